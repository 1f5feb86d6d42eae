"""How much was written and read: totals, rates, and what mqadmin prints of them.

A rate is what was counted between now and some samples ago; samples are taken every ten seconds by
whoever owns the clock. What belongs to one topic or group is a tally (``tallies.py``).

Source: StoreStatsService and BrokerStatsManager of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import NamedTuple

from rmqha.broker.common.latencies import Latencies
from rmqha.broker.common.tallies import DAY, MINUTE, PART, Samples, Tally, Window

SHORT, MEDIUM, LONG = 1, 6, 60
"""Samples that a rate looks back: 10 s, a minute, ten minutes."""

TOPIC_PUT, GROUP_GET, SENT_BACK = "TOPIC_PUT", "GROUP_GET", "SENT_BACK"
BROKER_PUT, BROKER_GET = "BROKER_PUT", "BROKER_GET"
Name = tuple[str, str, str]
"""What is counted, and the topic and the group of it, if it is of one."""


class Totals(NamedTuple):
    """What was counted since the start.

    Attributes:
        put, put_bytes: messages written, and their bodies.
        got, got_bytes: messages given to consumers, and their bytes.
        hits, misses: pulls that found something, and pulls that did not.
        timers_in, timers_out: timers read from the log, and delivered.
    """

    put: int = 0
    put_bytes: int = 0
    got: int = 0
    got_bytes: int = 0
    hits: int = 0
    misses: int = 0
    timers_in: int = 0
    timers_out: int = 0

    @property
    def pulls(self) -> int:
        """Whether or not they found something."""
        return self.hits + self.misses


class Statistics:
    """The counters of one broker.

    Args:
        names_max: topics, and groups by topic, with a rate of their own; others count in the
            totals only.

    Attributes:
        puts: how long puts took that waited for the disk or for replicas.
        puts_failed: that the store refused.
        slowest_read_ms: of one pull.
        timers_in, timers_out: see ``Totals``.
        records_skipped: records of its own topics that a service could not act on.
        planned_switches: masterships that went to another by ``switchMaster``.
        sends_passed_on: sends that the new master answered through this broker.
    """

    def __init__(self, names_max: int) -> None:
        self._max = names_max
        # Plain numbers: a message or two of every send and pull counts here.
        self._misses = 0
        self._samples: deque[tuple[int, Totals]] = deque(maxlen=LONG + 1)
        self._marks = Samples()
        self._put, self._got = Tally(), Tally()
        self._whole = {BROKER_PUT: self._put, BROKER_GET: self._got}
        self._tallies: dict[Name, Tally] = {}
        self._day: int | None = None
        self.puts = Latencies()
        self.puts_failed = self.slowest_read_ms = self.timers_in = self.timers_out = 0
        self.records_skipped = self.planned_switches = self.sends_passed_on = 0
        self.yesterday_morning = self.today_morning = Totals()

    @property
    def totals(self) -> Totals:
        """Everything counted since the start."""
        return Totals(
            self._put.messages, self._put.size, self._got.messages, self._got.size,
            self._got.calls, self._misses, self.timers_in, self.timers_out,
        )  # fmt: skip

    def put(self, topic: str, count: int, size: int) -> None:
        """Messages were written."""
        whole = self._put
        whole.messages += count
        whole.size += size
        whole.calls += 1
        self._count((TOPIC_PUT, topic, ""), count, size)

    def got(self, topic: str, group: str, count: int, size: int) -> None:
        """Messages were given to a consumer."""
        whole = self._got
        whole.messages += count
        whole.size += size
        whole.calls += 1
        self._count((GROUP_GET, topic, group), count, size)

    def sent_back(self, topic: str, group: str, size: int) -> None:
        """A consumer gave a message back, to get it once more."""
        self._count((SENT_BACK, topic, group), 1, size)

    def read_took(self, ms: int) -> None:
        """A pull has looked for so long."""
        if ms > self.slowest_read_ms:
            self.slowest_read_ms = ms

    def missed(self) -> None:
        """A pull found nothing."""
        self._misses += 1

    def _count(self, name: Name, count: int, size: int) -> None:
        tally = self._tallies.get(name)
        if tally is None:
            if len(self._tallies) >= self._max:
                return
            tally = self._tallies[name] = self._marks.tally()
        tally.messages += count
        tally.size += size
        tally.calls += 1

    def forget(self, topic: str) -> None:
        """A topic was deleted: one of its name begins anew."""
        for name in [name for name in self._tallies if name[1] == topic]:
            del self._tallies[name]

    def written(self) -> dict[str, int]:
        """Messages by topic; one that nothing comes to for a day begins anew, or for a minute
        where there is no room for others."""
        return {
            topic: tally.messages for (kind, topic, _), tally in self._tallies.items()
            if kind == TOPIC_PUT
        }  # fmt: skip

    def read(self) -> dict[tuple[str, str], int]:
        """Messages by topic and group, as :meth:`written`."""
        return {
            (topic, group): tally.messages for (kind, topic, group), tally in self._tallies.items()
            if kind == GROUP_GET
        }  # fmt: skip

    def sample(self, now_ms: int, day: int) -> Generator[None, None, None]:
        """Remember the counts; to be called every ten seconds.

        Args:
            day: number of the local day.

        Yields:
            Where others may have their turn: there may be very many names.
        """
        if day != self._day:
            self.yesterday_morning = self.today_morning
            self.today_morning = self.totals if self._day is not None else Totals()
            self._day = day
        self.puts.sample(now_ms, self._put.messages)
        self._samples.append((now_ms, self.totals))
        tallies = [*self._whole.values(), *self._tallies.values()]
        is_day = yield from self._marks.take(now_ms, tallies)
        if is_day:
            yield from self._drop(DAY)
        if len(self._tallies) >= self._max:
            yield from self._drop(MINUTE)

    def _drop(self, window: int) -> Generator[None, None, None]:
        """Forget the names that nothing came to for so long: their rates are 0 without them."""
        for index, name in enumerate(list(self._tallies), 1):
            tally = self._tallies.get(name)
            if tally is not None and self._marks.is_silent(tally, window):
                del self._tallies[name]
            if not index % PART:
                yield

    def rate(self, member: str, back: int) -> float:
        """Per second, of one member of the totals, over the last ``back`` samples."""
        if len(self._samples) < 2:
            return 0.0
        at_ms, last = self._samples[-1]
        since_ms, first = self._samples[max(0, len(self._samples) - 1 - back)]
        grown = getattr(last, member) - getattr(first, member)
        return _rate(grown, at_ms - since_ms)

    def rates(self, member: str) -> str:
        """The three rates as Java writes them, blanks between."""
        return " ".join(str(self.rate(member, back)) for back in (SHORT, MEDIUM, LONG))

    def topic_put_tps(self, topic: str) -> float:
        """Messages per second written to a topic, in a minute."""
        return self._name_rate((TOPIC_PUT, topic, ""))

    def group_get_tps(self, topic: str, group: str) -> float:
        """Messages per second of a topic given to a group, in a minute."""
        return self._name_rate((GROUP_GET, topic, group))

    def _name_rate(self, name: Name) -> float:
        tally = self._tallies.get(name)
        if tally is None:
            return 0.0
        return round(self._marks.look(tally, MINUTE, "messages").rate, 2)

    def window(self, name: Name, window: int, member: str) -> Window | None:
        """What was counted of a name, or of the whole broker, in a minute, an hour or a day.

        Args:
            window: one of ``MINUTE``, ``HOUR`` and ``DAY``.
            member: ``messages`` or ``size``.

        Returns:
            None when nothing was counted of it.
        """
        tally = self._whole.get(name[0]) or self._tallies.get(name)
        return None if tally is None else self._marks.look(tally, window, member)


def _rate(count: int, ms: int) -> float:
    return round(count * 1000 / ms, 2) if ms > 0 else 0.0
