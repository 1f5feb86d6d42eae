"""Messages for a logical queue that has just come here, while its first offset is being decided.

The old leader may still be writing then. Whoever is answered now would be before what it writes, or
would be told an offset of -1, as Java does. They are held for as long as a remap takes; where
nobody decides, producers are sent away.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.runtime.aio.earliest import EarliestTimer
from rmqha.runtime.ports import Clock

HELD_MS = 2_000
"""Clients wait 3 s; a remap of many queues takes a fraction of a second."""
HELD_BYTES_MAX = 64 * 1024 * 1024
OVERHEAD_BYTES = 1024
"""What a record has besides its body, but for many properties."""

UNDECIDED = "where logical queue {}-{} begins is being decided: try again"


class _Held(NamedTuple):
    connection: Connection
    request: RemotingCommand
    topic: str
    logical_id: int
    until_ms: int

    @property
    def size(self) -> int:
        """What it takes in memory in bytes, about."""
        return len(self.request.body) + OVERHEAD_BYTES


class UndecidedSends:
    """Of one broker, in the order in which they came.

    Args:
        send: takes a message once more.
        held_max: at a time, and no more than ``HELD_BYTES_MAX`` together.
    """

    def __init__(
        self, clock: Clock, send: Callable[[Connection, RemotingCommand], object], held_max: int
    ) -> None:
        self._clock = clock
        self._send = send
        self._max = held_max
        self._held: list[_Held] = []
        self._bytes = 0
        self._timer = EarliestTimer(clock, self._tick)

    def __len__(self) -> int:
        return len(self._held)

    def hold(
        self, connection: Connection, request: RemotingCommand, topic: str, logical_id: int
    ) -> RemotingCommand | None:
        """Keep a message; the answer if it cannot be kept."""
        until_ms = self._clock.now_ms() + HELD_MS
        one = _Held(connection, request, topic, logical_id, until_ms)
        if len(self._held) >= self._max or self._bytes + one.size > HELD_BYTES_MAX:
            return request.reply(ResponseCode.SYSTEM_BUSY, UNDECIDED.format(topic, logical_id))
        self._held.append(one)
        self._bytes += one.size
        self._timer.arm(self._held[0].until_ms)
        return None

    def remapped(self, topics: frozenset[str]) -> None:
        """Mappings have changed: messages for these topics are taken once more, in their order."""
        found = [one for one in self._held if one.topic in topics]
        if not found:
            return
        self._keep([one for one in self._held if one.topic not in topics])
        for one in found:
            if one.request.is_oneway or not one.connection.is_closing:
                self._send(one.connection, one.request)
        self._arm()

    def closed(self, connection: Connection) -> None:
        """A connection has ended: nobody is there to hear of its messages, which are not written.

        Those of which nobody wanted to hear are.
        """
        self._keep(
            [one for one in self._held if one.connection is not connection or one.request.is_oneway]
        )
        self._arm()

    def close(self) -> None:
        """Forget all; their connections are closing."""
        self._keep([])
        self._timer.cancel()

    def _keep(self, held: list[_Held]) -> None:
        self._held = held
        self._bytes = sum(one.size for one in held)

    def _arm(self) -> None:
        if self._held:
            self._timer.arm(self._held[0].until_ms)
        else:
            self._timer.cancel()

    def _tick(self) -> None:
        now_ms = self._clock.now_ms()
        while self._held and self._held[0].until_ms <= now_ms:
            one = self._held.pop(0)
            self._bytes -= one.size
            if not one.request.is_oneway:
                remark = UNDECIDED.format(one.topic, one.logical_id)
                one.connection.send(one.request.reply(ResponseCode.SYSTEM_BUSY, remark))
        self._arm()
