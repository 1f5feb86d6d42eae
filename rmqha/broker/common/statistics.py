"""How much was written and read: totals, rates, and what mqadmin prints of them.

A rate is what was counted between now and some samples ago; samples are taken every ten seconds by
whoever owns the clock.

Source: StoreStatsService and BrokerStatsManager of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from rmqha.broker.common.latencies import Latencies

SHORT, MEDIUM, LONG = 1, 6, 60
"""Samples that a rate looks back: 10 s, a minute, ten minutes."""

TOPIC_PUT, GROUP_GET = "TOPIC_PUT", "GROUP_GET"
Name = tuple[str, str, str]


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
        self._put = self._put_bytes = self._got = self._got_bytes = self._hits = self._misses = 0
        self._samples: deque[tuple[int, Totals]] = deque(maxlen=LONG + 1)
        self._counts: dict[Name, int] = {}
        self._count_samples: deque[tuple[int, dict[Name, int]]] = deque(maxlen=MEDIUM + 1)
        self._day: int | None = None
        self.puts = Latencies()
        self.puts_failed = self.slowest_read_ms = self.timers_in = self.timers_out = 0
        self.records_skipped = self.planned_switches = self.sends_passed_on = 0
        self.yesterday_morning = self.today_morning = Totals()

    @property
    def totals(self) -> Totals:
        """Everything counted since the start."""
        return Totals(
            self._put, self._put_bytes, self._got, self._got_bytes, self._hits, self._misses,
            self.timers_in, self.timers_out,
        )  # fmt: skip

    def put(self, topic: str, count: int, size: int) -> None:
        """Messages were written."""
        self._put += count
        self._put_bytes += size
        self._count((TOPIC_PUT, topic, ""), count)

    def got(self, topic: str, group: str, count: int, size: int) -> None:
        """Messages were given to a consumer."""
        self._got += count
        self._got_bytes += size
        self._hits += 1
        self._count((GROUP_GET, topic, group), count)

    def read_took(self, ms: int) -> None:
        """A pull has looked for so long."""
        if ms > self.slowest_read_ms:
            self.slowest_read_ms = ms

    def missed(self) -> None:
        """A pull found nothing."""
        self._misses += 1

    def _count(self, name: Name, count: int) -> None:
        if name in self._counts or len(self._counts) < self._max:
            self._counts[name] = self._counts.get(name, 0) + count

    def written(self) -> dict[str, int]:
        """Messages by topic; one that nothing comes to for a minute begins anew."""
        return {topic: n for (kind, topic, _), n in self._counts.items() if kind == TOPIC_PUT}

    def read(self) -> dict[tuple[str, str], int]:
        """Messages by topic and group, as :meth:`written`."""
        return {
            (topic, group): n for (kind, topic, group), n in self._counts.items()
            if kind == GROUP_GET
        }  # fmt: skip

    def sample(self, now_ms: int, day: int) -> None:
        """Remember the counts; to be called every ten seconds.

        Args:
            day: number of the local day.
        """
        if day != self._day:
            self.yesterday_morning = self.today_morning
            self.today_morning = self.totals if self._day is not None else Totals()
            self._day = day
        self.puts.sample(now_ms, self._put)
        self._samples.append((now_ms, self.totals))
        self._count_samples.append((now_ms, dict(self._counts)))
        if len(self._count_samples) > MEDIUM:
            before = self._count_samples[0][1]
            for name in [n for n, count in self._counts.items() if before.get(n) == count]:
                # Nothing for a minute: its rate is 0 without being counted.
                del self._counts[name]

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
        """Messages per second written to a topic."""
        return self._name_rate((TOPIC_PUT, topic, ""))

    def group_get_tps(self, topic: str, group: str) -> float:
        """Messages per second of a topic given to a group."""
        return self._name_rate((GROUP_GET, topic, group))

    def _name_rate(self, name: Name) -> float:
        if len(self._count_samples) < 2:
            return 0.0
        (since_ms, first), (at_ms, last) = self._count_samples[0], self._count_samples[-1]
        return _rate(max(0, last.get(name, 0) - first.get(name, 0)), at_ms - since_ms)


def _rate(count: int, ms: int) -> float:
    return round(count * 1000 / ms, 2) if ms > 0 else 0.0
