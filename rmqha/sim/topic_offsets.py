"""The offsets that one group commits in one topic, looked at where masters and slaves have them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from rmqha.broker.aio.replica import BrokerReplica
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.verify.offsets import OffsetHistory, Process

COPIED_S = 1.0
"""In calm a slave is less far behind its master (docs/PARITY.md)."""


class Reigning(NamedTuple):
    """Who is master just now.

    Attributes:
        reign: names this uninterrupted time as a master.
    """

    reign: object
    process: Process
    replica: BrokerReplica


Look = Callable[[], Reigning | None]


class GroupOffsets:
    """Of one group in one topic.

    Args:
        look: at the master to whom requests go.
        counts: what was looked at, for coverage.
        is_sure: whether nothing that is still on its way can change what was committed.
        now_s: the loop's time.
    """

    def __init__(
        self, group: str, topic: str, look: Look, counts: Counter[str], *,
        is_sure: Callable[[], bool], now_s: Callable[[], float],
    ) -> None:  # fmt: skip
        self._group, self._topic = group, topic
        self._look = look
        self._counts = counts
        self._is_sure = is_sure
        self._now_s = now_s
        self._queues: dict[int, OffsetHistory] = {}
        # Of each queue: what was acknowledged in this reign, and when.
        self._acked: dict[int, list[tuple[int, float]]] = {}
        self._asked: Reigning | None = None

    def clear(self) -> None:
        """The topic or the group is gone, and all of this with it."""
        self._queues, self._acked = {}, {}

    def sent(self, queue_id: int, offset: int) -> int:
        """A commit leaves to the master of this moment; its number."""
        self._asked = self._look()
        return self._queues.setdefault(queue_id, OffsetHistory()).sent(offset)

    def answered(self, queue_id: int, number: int, answer: RemotingCommand | None) -> None:
        """Its answer is here, or was given up.

        Raises:
            InvariantBroken: the master that has taken it does not have it.
        """
        is_done = answer is not None and answer.code == ResponseCode.SUCCESS
        is_sure, now_s = self._is_sure(), self._now_s()
        history = self._queues.get(queue_id)
        if history is None or number >= len(history.values):
            return
        asked, seen = self._asked, self._look()
        if not is_done or not is_sure or asked is None or seen is None or asked.reign != seen.reign:
            history.unanswered()
            return
        history.acknowledged(number, seen.reign)
        history.told(number, [seen.process])
        self._acked.setdefault(queue_id, []).append((number, now_s))
        self._check(queue_id, history, seen)

    def _check(self, queue_id: int, history: OffsetHistory, seen: Reigning) -> None:
        found = seen.replica.offsets.table.query(self._group, self._topic, queue_id)
        if history.check_reign(seen.reign, found):
            self._counts["offset found at its master"] += 1

    def calm(self, since_s: float, processes: Iterable[Process]) -> None:
        """Nothing has disturbed the set since then: what was committed before is copied."""
        everybody, now_s = list(processes), self._now_s()
        if not self._is_sure() or now_s - since_s < COPIED_S:
            return
        for queue_id, acked in self._acked.items():
            while len(acked) > 1 and now_s - acked[1][1] >= COPIED_S:
                del acked[0]
            if acked and now_s - acked[0][1] >= COPIED_S:
                self._queues[queue_id].told(acked[0][0], everybody)

    def begins(self, process: Process, replica: BrokerReplica, *, is_whole: bool = True) -> None:
        """A master has taken up its role.

        Args:
            is_whole: its queues have all of its log that matters here.

        Raises:
            InvariantBroken: it has lost what it was told.
        """
        is_known = is_whole and self._is_sure()
        for queue_id, history in self._queues.items():
            self._acked.pop(queue_id, None)
            if not is_known:
                history.forget()
                continue
            found = replica.offsets.table.query(self._group, self._topic, queue_id)
            if history.begins(process, found):
                self._counts["offset found at a new master"] += 1

    def check_end(self) -> None:
        """Nobody commits any more.

        Raises:
            InvariantBroken: the master has something else than it was told in this reign.
        """
        seen = self._look()
        if seen is not None:
            for queue_id, history in self._queues.items():
                self._check(queue_id, history, seen)


def stored_offsets(
    replica: BrokerReplica, pairs: Iterable[tuple[str, str]]
) -> dict[str, int]:  # fmt: skip
    """What groups have stored for topics."""
    table = replica.offsets.table
    return {
        f"{topic}@{group}:{queue_id}": offset
        for group, topic in pairs
        for queue_id, offset in table.stored(group, topic).items()
    }
