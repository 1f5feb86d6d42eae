"""Which half messages have no end yet, as a pair of topics says, and which of them to ask about.

Source: TransactionalMessageServiceImpl of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import NamedTuple

from rmqha.broker.deferred.offset_set import OffsetSet

OP_BLOCKS_MAX = 4096
"""Places among the op messages that are remembered, to begin there again."""


class Open(NamedTuple):
    """A half message without an end.

    Attributes:
        ask_ms: when to ask about it; wall clock.
        first: offset of the half message that this one renews, or its own.
        asked: how often it was asked about since this master knows it.
    """

    queue_offset: int
    physical_offset: int
    ask_ms: int
    first: int
    asked: int = 0


class OpenTransactions:
    """Half messages that nobody has ended, as the two topics say.

    Only an op message that was read ends one. What this broker has written itself and not read yet is
    remembered beside, so that nothing is ended, or asked about, twice.

    Args:
        half_offset, op_offset: where to begin reading.
        open_max: half messages to know at a time; reading stops there until some have ended.

    Attributes:
        half_next, op_next: the queue offsets to read next.
    """

    def __init__(self, half_offset: int, op_offset: int, open_max: int) -> None:
        self._max = open_max
        # In the order of their offsets.
        self._open: OrderedDict[int, Open] = OrderedDict()
        # By where the first one stood: those that renew it. More than one after a failover that left
        # a renewed half message and not the end of the one before.
        self._renewed: dict[int, tuple[int, ...]] = {}
        # Those not read yet; while there are too many open ones they may be all that was sent since.
        self._ended = OffsetSet()
        self._answered: set[int] = set()
        # Blocks of op messages: where one begins, and the last half message that it ends.
        self._ops: deque[tuple[int, int]] = deque()
        self.half_next = half_offset
        self.op_next = op_offset

    def __len__(self) -> int:
        return len(self._open)

    @property
    def is_full(self) -> bool:
        """Whether no further half message can be taken."""
        return len(self._open) >= self._max

    def op(self, queue_offset: int, half_offsets: list[int]) -> None:
        """Take the op message at ``op_next``."""
        self.op_next = queue_offset + 1
        for offset in half_offsets:
            self._answered.discard(offset)
            if offset >= self.half_next:
                self._ended.add(offset)
            else:
                self._drop(offset)
        last = max(half_offsets, default=-1)
        if not self._ops or last > self._ops[-1][1]:
            self._ops.append((queue_offset, last))  # else the block before is kept for longer
        if len(self._ops) > OP_BLOCKS_MAX:
            self._join_blocks()

    def _join_blocks(self) -> None:
        """Half as many, each twice as long: behind an old half message there may be millions.

        The last half message of a block grows from block to block, so the later one's counts.
        """
        blocks = list(self._ops)
        joined = [
            (first, last) for (first, _), (_, last) in zip(blocks[::2], blocks[1::2], strict=False)
        ]
        self._ops = deque(joined + blocks[len(joined) * 2 :])

    def _drop(self, offset: int) -> None:
        one = self._open.pop(offset, None)
        if one is None or one.first == offset:
            return
        left = tuple(other for other in self._renewed[one.first] if other != offset)
        if left:
            self._renewed[one.first] = left
        else:
            del self._renewed[one.first]

    def half(self, found: Open) -> None:
        """Take the half message at ``half_next``."""
        self.half_next = found.queue_offset + 1
        if found.queue_offset in self._ended:
            self._ended.forget_before(self.half_next)
            return
        self._open[found.queue_offset] = found
        if found.first != found.queue_offset:
            others = self._renewed.get(found.first, ())
            self._renewed[found.first] = (*others, found.queue_offset)

    def skip_halves(self, queue_offset: int) -> None:
        """Nothing can be read before ``queue_offset``."""
        self.half_next = queue_offset
        self._ended.forget_before(queue_offset)

    def skip_ops(self, queue_offset: int) -> None:
        """Nothing can be read before ``queue_offset``."""
        self.op_next = queue_offset

    def to_end(self, queue_offset: int, first: int) -> list[int]:
        """What an end of this half message ends: itself, and all that renew it.

        Args:
            first: where it stood before it was renewed.

        Returns:
            Offsets for an op message; empty when it has ended already.
        """
        found = []
        # It may itself have been renewed since, by one that is not the same any more.
        for offset in dict.fromkeys((queue_offset, first, *self._renewed.get(first, ()))):
            unread = offset >= self.half_next and offset not in self._ended
            if (offset in self._open or unread) and offset not in self._answered:
                found.append(offset)
        return found

    def answered(self, half_offsets: list[int]) -> None:
        """An op message for them is written, and will be read."""
        self._answered.update(half_offsets)

    def to_ask(self, wall_ms: int, before: int, count_max: int) -> list[Open]:
        """Half messages to ask about now.

        Args:
            before: a queue offset; those at it or behind it were stored since the round began.
        """
        found: list[Open] = []
        for offset, one in self._open.items():
            if offset >= before:
                break
            if one.ask_ms <= wall_ms and offset not in self._answered:
                found.append(one)
                if len(found) >= count_max:
                    break
        return found

    def asked(self, one: Open, ask_ms: int) -> None:
        """One that is not renewed was asked about, and will be again."""
        self._open[one.queue_offset] = one._replace(ask_ms=ask_ms, asked=one.asked + 1)

    def expired(self, one: Open) -> None:
        """The log does not have it any more, nor has any replica an end for it."""
        self._drop(one.queue_offset)

    def kept(self) -> tuple[int, int]:
        """The offsets from which another one can go on: of half messages, of op messages."""
        half = next(iter(self._open), self.half_next)
        while self._ops and self._ops[0][1] < half:
            self._ops.popleft()
        op = self._ops[0][0] if self._ops else self.op_next
        return half, op
