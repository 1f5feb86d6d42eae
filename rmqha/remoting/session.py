"""The client's side of one connection as a pure core: which answers are awaited, and until when.

States: open, then closed for good. Rules: an opaque is never given out while a request with the same
number waits; every started request ends exactly once, by its answer, its deadline, ``forget`` or
``close``.

Source: NettyRemotingAbstract's response table, RocketMQ remoting.
"""

from __future__ import annotations

import heapq

from rmqha.base.errors import LocalProtocolError
from rmqha.remoting.command import FLAG_ONEWAY, RemotingCommand

TIMEOUTS_MAX = 2
"""So many requests in a row without an answer, and nothing else from the peer: it hears nothing."""

OPAQUE_MAX = 0x7FFFFFFF
OPAQUE_MIN = -0x80000000
_STALE_DEADLINES_MAX = 64


class ClientSession:
    """Numbers requests and matches answers, in whatever order they come."""

    __slots__ = ("_closed", "_deadlines", "_next_opaque", "_pending", "_pending_max")

    def __init__(self, pending_max: int, first_opaque: int = 0) -> None:
        self._pending: dict[int, int] = {}  # opaque -> deadline
        # A heap of (deadline, opaque); answered requests stay in it until they surface.
        self._deadlines: list[tuple[int, int]] = []
        self._next_opaque = first_opaque
        self._pending_max = pending_max
        self._closed = False

    @property
    def next_deadline_ms(self) -> int | None:
        """When :meth:`expire` has something to do next; None while nothing waits."""
        deadlines = self._deadlines
        while deadlines and self._pending.get(deadlines[0][1]) != deadlines[0][0]:
            heapq.heappop(deadlines)
        return deadlines[0][0] if deadlines else None

    def start(self, now_ms: int, command: RemotingCommand, timeout_ms: int) -> int:
        """Number a request that wants an answer and note its deadline.

        Returns:
            The opaque, which is also written into ``command``.

        Raises:
            LocalProtocolError: the session is closed, or ``pending_max`` requests wait already.
        """
        if self._closed:
            raise LocalProtocolError("the session is closed")
        if len(self._pending) >= self._pending_max:
            raise LocalProtocolError(f"{self._pending_max} requests wait for an answer already")
        opaque = command.opaque = self._allot()
        deadline_ms = now_ms + timeout_ms
        self._pending[opaque] = deadline_ms
        heapq.heappush(self._deadlines, (deadline_ms, opaque))
        if len(self._deadlines) > 2 * len(self._pending) + _STALE_DEADLINES_MAX:
            self._deadlines = [(at, number) for number, at in self._pending.items()]
            heapq.heapify(self._deadlines)
        return opaque

    def start_oneway(self, command: RemotingCommand) -> int:
        """Number a request that wants no answer; nothing is awaited.

        Raises:
            LocalProtocolError: the session is closed.
        """
        if self._closed:
            raise LocalProtocolError("the session is closed")
        command.flag |= FLAG_ONEWAY
        command.opaque = self._allot()
        return command.opaque

    def receive(self, command: RemotingCommand) -> bool:
        """Take a response; False when nothing waits for it (late, or never asked)."""
        return self._pending.pop(command.opaque, None) is not None

    def forget(self, opaque: int) -> None:
        """Stop waiting for an answer; a later one is ignored."""
        self._pending.pop(opaque, None)

    def expire(self, now_ms: int) -> list[int]:
        """End the requests whose deadline has come, earliest first."""
        expired: list[int] = []
        while (deadline := self.next_deadline_ms) is not None and deadline <= now_ms:
            opaque = heapq.heappop(self._deadlines)[1]
            del self._pending[opaque]
            expired.append(opaque)
        return expired

    def close(self) -> list[int]:
        """End the session; returns the requests that will get no answer, ascending."""
        self._closed = True
        failed = sorted(self._pending)
        self._pending.clear()
        self._deadlines.clear()
        return failed

    def _allot(self) -> int:
        """The next number, wrapping as Java's int does; numbers still awaited are passed over."""
        opaque = self._next_opaque
        while opaque in self._pending:
            opaque = OPAQUE_MIN if opaque == OPAQUE_MAX else opaque + 1
        self._next_opaque = OPAQUE_MIN if opaque == OPAQUE_MAX else opaque + 1
        return opaque


class Silence:
    """Whether a peer has fallen silent: the kernel tells of a host that is gone only after minutes.

    A peer that is slow with one request and answers others is heard, and so is one whose answer
    comes too late.
    """

    __slots__ = ("_heard_bytes", "_timeouts")

    def __init__(self) -> None:
        self._heard_bytes = self._timeouts = 0

    def timed_out(self, heard_then_bytes: int, heard_bytes: int) -> bool:
        """A request got no answer in time; tells whether the peer counts as silent.

        Args:
            heard_then_bytes: what the peer had sent in all when it was asked.
            heard_bytes: what it has sent by now.
        """
        if heard_bytes != self._heard_bytes:
            self._heard_bytes, self._timeouts = heard_bytes, 0
        self._timeouts += heard_then_bytes == heard_bytes
        return self._timeouts >= TIMEOUTS_MAX
