"""Messages that wait until the log has room that takes them without holding up the loop (ADR 0048).

While writes wait for the disk (``Room.is_short``), messages stand in a row, and with them requests to
write one that is stored already once more: sent-back ones (36), ends of transactions (37). Room is made
for as many as come together, and they are then taken in the order in which they came. Whoever waits
too long is sent away: nothing of that was written.
"""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import accumulate, takewhile
from typing import NamedTuple

from rmqha.broker.common.aio.ports import Handler
from rmqha.broker.groups.aio.ports import Broker
from rmqha.broker.send.aio.undecided_sends import HELD_BYTES_MAX, HELD_MS, OVERHEAD_BYTES
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.runtime.aio.earliest import EarliestTimer
from rmqha.store.aio.room import Stretch

ROOM_BYTES_MIN, ROOM_BYTES_MAX = 64 * 1024, 128 * 1024
"""Made at a time; a larger message is taken alone."""
TASK = "room for sends"
AT_ONCE_MAX, AT_ONCE_BYTES = 128, 1 << 20
"""Taken in the first turn of the loop in which no write waits any more: some milliseconds."""
STORED_BYTES = 4096
"""Taken for the size of a message of which a request only says where it is: to look may take long."""

BUSY = "[PCBUSY_CLEAN_QUEUE] the disk takes less than is sent: try again"
"""The brackets are those of Java's brokers when their page cache is busy (BrokerFastFailure of 5.3.3)."""


class _Held(NamedTuple):
    connection: Connection
    request: RemotingCommand
    handler: Handler
    size: int
    until_ms: int


class RoomySends:
    """Of one broker.

    Args:
        held_max: at a time; more get SYSTEM_BUSY.

    Attributes:
        holds: a message that comes now has to stand in the row; looked at for each.
    """

    def __init__(self, broker: Broker, held_max: int) -> None:
        self._broker = broker
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

    def behind(self, handler: Handler) -> Handler:
        """A handler whose requests stand in the row, too; they say where a message is."""

        def handle(connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
            if self.holds:
                return self.take(connection, request, handler, STORED_BYTES)
            return handler(connection, request)

        return handle

    def take(
        self, connection: Connection, request: RemotingCommand, handler: Handler, size: int = 0
    ) -> RemotingCommand | None:
        """Put a request in the row; the answer if that is full.

        Args:
            handler: asked when its turn comes, as if it had just come.
            size: of the record in bytes, about; 0 where the request has the body.
        """
        size = size or len(request.body) + OVERHEAD_BYTES
        one = _Held(connection, request, handler, size, self._broker.clock.now_ms() + HELD_MS)
        if len(self._held) >= self._max or self._bytes + one.size > HELD_BYTES_MAX:
            return request.reply(ResponseCode.SYSTEM_BUSY, BUSY)
        self._held.append(one)
        self._bytes += one.size
        self._timer.arm(one.until_ms)
        if not self._works:
            self._works = True
            self._broker.tasks.start(self._work(), name=TASK)
        return None

    def closed(self, connection: Connection) -> None:
        """A connection has ended: nobody is there to hear of its messages, which are not written.

        Those of which nobody wanted to hear are.
        """
        self._held = deque(
            one for one in self._held if one.connection is not connection or one.request.is_oneway
        )
        self._bytes = sum(one.size for one in self._held)
        self._look_at_room()

    def close(self) -> None:
        """Forget all; connections are closing."""
        self._held.clear()
        self._timer.cancel()

    async def _work(self) -> None:
        times = 1
        try:
            while self._held:
                if not self._room.is_short:
                    self._take_at_once(times)
                    times *= 2
                    await asyncio.sleep(0)
                    continue
                times = 1
                sums = accumulate(one.size for one in self._held)
                wanted = max(takewhile(lambda size: size <= ROOM_BYTES_MAX, sums), default=0)
                length = max(wanted, ROOM_BYTES_MIN, self._held[0].size)
                async with self._room.stretch(length) as stretch:
                    await self._take_in(stretch)
        finally:
            self._works = False

    async def _take_in(self, stretch: Stretch) -> None:
        """Take those for whom there is room, each in a turn; the next room begins behind them."""
        while self._held and self._room.is_short and stretch.takes(self._held[0].size):
            self._take(self._next())
            await asyncio.sleep(0)

    def _take_at_once(self, times: int) -> None:
        """Take many in one turn, twice as many in each: no write waits any more.

        Else it would never end. Who is answered sends the next one, which may not overtake those that
        still stand in the row.
        """
        stretch = Stretch(self._room, times * AT_ONCE_BYTES)
        for _ in range(min(len(self._held), times * AT_ONCE_MAX)):
            if not stretch.takes(self._held[0].size):
                return
            self._take(self._next())

    def _look_at_room(self) -> None:
        self.holds = self._room.is_short or bool(self._held)

    def _next(self) -> _Held:
        one = self._held.popleft()
        self._bytes -= one.size
        return one

    def _take(self, one: _Held) -> None:
        connection, request = one.connection, one.request
        self.holds = False

        def handle() -> None:
            answer = one.handler(connection, request)
            if answer is not None and not request.is_oneway:
                connection.answer(request, answer)

        try:
            if request.is_oneway or not connection.is_closing:
                self._broker.answers.take(handle, connection, request)
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
