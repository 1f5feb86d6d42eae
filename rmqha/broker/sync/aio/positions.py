"""A slave copies how far its master's consumers (43), delays (45) and timers (60) are.

A position says that something was delivered, and the delivery is a record of the master's log. A
slave that took the position and lacks the record would, elected, deliver it never. So the slave
asks for the end of the master's log *after* it has asked for the positions, and takes them only
once its own log is confirmed that far. A master that dies before has told nothing: what it had
delivered comes once more.

Java's slaves take positions at once (ADR 0021). Source: SlaveSynchronize of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

import asyncio
import contextlib
from itertools import chain
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from rmqha.base.errors import DiskFailed, RemoteProtocolError
from rmqha.broker.common.aio.held_answers import WAITS_FIELD
from rmqha.broker.common.table_slices import head_of, table_slices
from rmqha.broker.deferred.aio.master_services import MasterServices
from rmqha.broker.deferred.delay_offsets import DelayOffsets
from rmqha.broker.deferred.timers import TimerMark
from rmqha.broker.groups.aio.offset_file import OffsetFile
from rmqha.broker.groups.aio.offset_requests import (
    CHANGES_MEMBER,
    MORE_MEMBER,
    SINCE_EVER,
    SINCE_FIELD,
)
from rmqha.broker.sync.aio.master_questions import MasterQuestions
from rmqha.remoting import fastjson
from rmqha.remoting.broker_figures import read_figures
from rmqha.remoting.codes import RequestCode
from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import Clock

FoundT = TypeVar("FoundT")

LOOK_MS = 20
"""Between two looks at how far the own log is confirmed."""

QUICK_MS = 300
"""Between two questions to a master that tells no more than what has changed. So positions are less
than a second behind; a Java master's are asked for as often as ``syncSlaveMetadataPeriod`` says."""

PAGES_MAX = 2_000
"""Answers of one look; what a master has beyond is asked for by the next."""


class Dispatched(Protocol):
    """The own log."""

    @property
    def dispatched_offset(self) -> int:
        """Records before it are confirmed, and have done here what they say."""


ODD_MARKS_MAX = 20
"""A minute of a Java master's answers: its wheel reads a new queue within a second."""


class Ended(Protocol):
    """The own topics and groups."""

    ended_topics: set[str]
    ended_groups: set[str]


class Positions(Struct, frozen=True):
    """What one look at a master has brought.

    Attributes:
        consumers: the answers to 43, as they came: a million offsets as objects would be walked by
            the garbage collector; empty when none came.
        since: where the next look goes on; None with a master that tells everything each time.
        delays, timers: the answers to 45 and 60; None where there was none.
        log_end: bytes of the master's log at a later moment; the records of everything that the
            positions tell of end before.
    """

    consumers: tuple[bytes, ...]
    since: str | None
    delays: DelayOffsets | None
    timers: TimerMark | None
    log_end: int


class PositionSync:
    """Copies while this broker is a slave, so that it can go on when it is elected.

    Args:
        questions: the way to the master.
        store: the own log.
        ended: topics and groups whose end the own log tells of.
        period_ms: between two looks.
    """

    def __init__(
        self,
        *,
        questions: MasterQuestions,
        clock: Clock,
        log: Logger,
        store: Dispatched,
        offsets: OffsetFile,
        ended: Ended,
        services: MasterServices,
        period_ms: int,
    ) -> None:
        self._questions = questions
        self._clock = clock
        self._log = log
        self._ended = ended
        self._store = store
        self._offsets = offsets
        self._services = services
        self._period_ms = period_ms
        # Which process was asked last, and what it counted then.
        self._since = SINCE_EVER
        self._java = ""  # who was asked last, and tells everything each time
        self._failed_ms = 0  # the last pause, after a look that brought no offsets
        self._odd_marks = 0  # in a row, of timers that are not where their queue is

    async def run(self) -> None:
        """Look for ever."""
        while True:
            master = self._questions.master
            found = None if master is None else await self._ask_all(master)
            if master is not None and found is not None and await self._reached(master, found):
                await self._take(master, found)
            await self._pause(master, self._pause_ms(master, found))

    def _pause_ms(self, master: str | None, found: Positions | None) -> int:
        """Until the next look, where the master stays the same."""
        if master is not None and (found is None or not found.consumers):
            # One lost answer costs a short pause; a master that is in trouble is not pressed.
            self._failed_ms = min(2 * self._failed_ms or QUICK_MS, self._period_ms)
            return self._failed_ms
        self._failed_ms = 0
        return 0 if found is not None and found.since is not None else self._period_ms

    async def _pause(self, master: str | None, period_ms: int) -> None:
        """Wait; another master is asked soon."""
        until_ms = self._clock.now_ms() + period_ms
        while True:
            await self._clock.sleep(min(self._period_ms, QUICK_MS))
            if self._questions.master != master or self._clock.now_ms() >= until_ms:
                return

    async def _ask_all(self, master: str) -> Positions | None:
        rules = self._services.rules
        # What ends while the answers are on their way may still be in them.
        self._ended.ended_topics.clear()
        self._ended.ended_groups.clear()
        consumers, since = await self._ask_consumers(master)
        ask, waits = self._questions.ask, {WAITS_FIELD: "true"}
        delays = await ask(master, RequestCode.GET_ALL_DELAY_OFFSET, _delays, waits)
        timers = None
        if rules.timers:
            timers = await ask(
                master,
                RequestCode.GET_TIMER_CHECK_POINT,
                lambda body: TimerMark.decode(body, rules.precision_ms),
                waits,
            )
        # The last question: what the answers above tell of was in the log before.
        log_end = await ask(master, RequestCode.GET_BROKER_RUNTIME_INFO, _log_end)
        return None if log_end is None else Positions(consumers, since, delays, timers, log_end)

    async def _ask_consumers(self, master: str) -> tuple[tuple[bytes, ...], str | None]:
        """What has changed, and up to where that tells."""
        code, found = RequestCode.GET_ALL_CONSUMER_OFFSET, []
        # Another master knows by it that it has told nothing yet.
        since, seen = self._since, None
        for _page in range(PAGES_MAX):
            answer = await self._questions.ask(master, code, _page_of, {SINCE_FIELD: since})
            if answer is None:
                break
            found.append(answer[0])
            if CHANGES_MEMBER in answer[1]:
                since = seen = str(answer[1][CHANGES_MEMBER])
            if MORE_MEMBER not in answer[1]:
                break
        return tuple(found), seen

    async def _reached(self, master: str, found: Positions) -> bool:
        """Wait for the own log; False when the master is another one meanwhile."""
        while self._questions.master == master:
            if self._store.dispatched_offset >= found.log_end:
                return True
            await self._clock.sleep(LOOK_MS)
        return False

    async def _take(self, master: str, found: Positions) -> None:
        services = self._services
        is_first = bool(found.consumers) and await self._merge(master, found)
        if self._questions.master != master:
            return
        if found.delays is not None:
            services.delay_offsets.copy(found.delays)
        if found.timers is not None:
            services.timer_mark.mark = found.timers
            self._look_at_timers(master, found.timers)
        if is_first:
            await self._save()

    def _look_at_timers(self, master: str, mark: TimerMark) -> None:
        """A master of 5.5 with ``timerRocksDBEnable`` tells how far its time is, and 0 for its queue."""
        is_odd = mark.read_ms > 0 and mark.read_to == 0 and self._services.timers_stored > 0
        self._odd_marks = self._odd_marks + 1 if is_odd else 0
        if self._odd_marks == ODD_MARKS_MAX:
            self._log.log(
                "warning", "timers_kept_elsewhere", master=master,
                stored=self._services.timers_stored,
                advice="leave timerRocksDBEnable off in sets with replicas of rmqha: elected, this one"
                " delivers the timers of the last timerMaxDelaySec once more",
            )  # fmt: skip

    async def _merge(self, master: str, found: Positions) -> bool:
        """Take consumers' offsets; True when this master has told everything."""
        asked = self._since
        is_first = asked == SINCE_EVER if found.since else self._java != master
        self._since, self._java, changed, left_out = SINCE_EVER, "" if found.since else master, 0, 0
        table, ended = self._offsets.table, (self._ended.ended_topics, self._ended.ended_groups)
        try:
            for members in chain.from_iterable(map(table_slices, found.consumers)):
                # Elected meanwhile, it is told by consumers themselves, and later than by this.
                if self._questions.master != master:
                    return is_first
                merged = table.merge(members, *ended)
                changed, left_out = changed + merged.changed, left_out + merged.left_out
                await asyncio.sleep(0)
            # What was left out may be of the topic's next life: it is asked for again.
            self._since = asked if left_out else found.since or SINCE_EVER
        except RemoteProtocolError as error:
            what = RequestCode.GET_ALL_CONSUMER_OFFSET.name
            self._log.log("warning", "not_copied", what=what, reason=str(error))
        finally:
            if changed:
                self._offsets.changed()
        return is_first

    async def _save(self) -> None:
        """What the files hold may be of a tail that this log has lost since."""
        with contextlib.suppress(DiskFailed):  # told by the files, which are written again
            await self._offsets.file.save()
            await self._services.save()


def _page_of(body: bytes) -> tuple[bytes, dict[str, Any]]:
    return body, head_of(body)


def _object(body: bytes) -> dict[str, Any]:
    value = fastjson.loads(body)
    return value if isinstance(value, dict) else {}


def _delays(body: bytes) -> DelayOffsets:
    return DelayOffsets.of(_object(body))


def _log_end(body: bytes) -> int:
    end = read_figures(body).max_offset
    if end is None:
        raise RemoteProtocolError("the master does not say where its log ends")
    return end
