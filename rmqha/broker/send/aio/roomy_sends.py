"""Messages that wait until the log has room that takes them without holding up the loop (ADR 0048).

While writes wait for the disk (``Room.is_short``), messages stand in a row. Room is made for as many
as come together, and they are then taken in the order in which they came. Whoever waits too long is
sent away: nothing of that was written.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from itertools import accumulate, takewhile
from typing import NamedTuple

from rmqha.base.errors import DiskFailed
from rmqha.broker.groups.aio.ports import Broker
from rmqha.broker.send.aio.undecided_sends import HELD_MS
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.runtime.aio.earliest import EarliestTimer

ROOM_BYTES_MIN, ROOM_BYTES_MAX = 64 * 1024, 128 * 1024
"""Made at a time; a larger message is taken alone."""
HELD_BYTES_MAX = 64 * 1024 * 1024
OVERHEAD_BYTES = 1024
"""What a record has besides its body, but for many properties."""

BUSY = "[PCBUSY_CLEAN_QUEUE] the disk takes less than is sent: try again"
"""The brackets are those of Java's brokers when their page cache is busy (BrokerFastFailure of 5.3.3)."""


class _Held(NamedTuple):
    connection: Connection
    request: RemotingCommand
    until_ms: int

    @property
    def size(self) -> int:
        """Of the record, about."""
        return len(self.request.body) + OVERHEAD_BYTES


class RoomySends:
    """Of one broker.

    Args:
        send: takes a message as if it had just come.
        held_max: at a time; more get SYSTEM_BUSY.

    Attributes:
        holds: a message that comes now has to stand in the row; looked at for each.
    """

    def __init__(
        self,
        broker: Broker,
        send: Callable[[Connection, RemotingCommand], object],
        held_max: int,
    ) -> None:
        self._broker = broker
        self._send = send
        self._max = held_max
        self._held: deque[_Held] = deque()
        self._bytes = 0
        self._works = False
        self._room = broker.store.room
        self._room.on_changed = self._look_at_room
        self.holds = self._room.is_short
        self._timer = EarliestTimer(broker.clock, self._look)

    def __len__(self) -> int:
        """Messages that wait."""
        return len(self._held)

    def take(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """Put a message in the row; the answer if that is full."""
        one = _Held(connection, request, self._broker.clock.now_ms() + HELD_MS)
        if len(self._held) >= self._max or self._bytes + one.size > HELD_BYTES_MAX:
            return request.reply(ResponseCode.SYSTEM_BUSY, BUSY)
        self._held.append(one)
        self._bytes += one.size
        self._timer.arm(one.until_ms)
        if not self._works:
            self._works = True
            self._broker.tasks.start(self._work(), name="room for sends")
        return None

    def closed(self, connection: Connection) -> None:
        """A connection has ended: its messages are for nobody to answer, and are not written."""
        self._held = deque(one for one in self._held if one.connection is not connection)
        self._bytes = sum(one.size for one in self._held)
        self._look_at_room()

    def close(self) -> None:
        """Forget all; connections are closing."""
        self._held.clear()
        self._timer.cancel()

    async def _work(self) -> None:
        try:
            while self._held:
                sums = accumulate(one.size for one in self._held)
                wanted = max(takewhile(lambda size: size <= ROOM_BYTES_MAX, sums), default=0)
                length = max(wanted, ROOM_BYTES_MIN, self._held[0].size)
                with contextlib.suppress(DiskFailed):  # whoever writes learns why
                    length = await self._room.make(length)
                await self._take_in(length)
        finally:
            self._works = False

    async def _take_in(self, length: int) -> None:
        """Take those for whom there is room, each in a turn; the next room begins behind them.

        One in any case: the first that does not fit where the file ends begins the next one. If one
        waits all the same, the disk has taken the pages before they were written to: made anew.
        """
        waited, is_first = self._room.waited, True
        while self._held and (is_first or self._held[0].size <= length):
            one, is_first = self._next(), False
            length -= one.size
            self._take(one)
            await asyncio.sleep(0)
            if self._room.waited != waited:
                return

    def _look_at_room(self) -> None:
        self.holds = self._room.is_short or bool(self._held)

    def _next(self) -> _Held:
        one = self._held.popleft()
        self._bytes -= one.size
        return one

    def _take(self, one: _Held) -> None:
        connection, request = one.connection, one.request
        self.holds = False
        try:
            if not connection.is_closing:
                self._broker.answers.take(
                    lambda: self._send(connection, request), connection, request
                )
        finally:
            self._look_at_room()

    def _look(self) -> None:
        now_ms = self._broker.clock.now_ms()
        while self._held and self._held[0].until_ms <= now_ms:
            one = self._next()
            if not one.request.is_oneway:
                one.connection.send(one.request.reply(ResponseCode.SYSTEM_BUSY, BUSY))
        if self._held:
            self._timer.arm(self._held[0].until_ms)
        self._look_at_room()
