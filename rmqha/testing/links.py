"""Links between nodes that can be cut, as a network cuts them: nothing is refused, nothing arrives.

Every connection is guarded at the end that opened it, which is enough to hold both directions:
what that end writes waits here, and what it does not read waits in the kernel. A link that is
healed delivers all of it, as TCP does. A connection that is closed or killed while its link is
cut is heard of by the other end only when the link heals.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, cast

from rmqha.base.errors import ConnectFailed
from rmqha.runtime.ports import Listener, Network
from rmqha.testing.gates import Gate

HELD_HIGH_BYTES = 1 << 20
"""A writer whose link is cut is told to pause when this much is held for it."""


class Links:
    """One node's way to every other: a gate for each port that somebody listens on."""

    def __init__(self) -> None:
        self._gates: dict[int, Gate] = {}
        self._cut: frozenset[int] = frozenset()

    def to(self, port: int) -> Gate:
        """The gate of everything that goes to a port."""
        gate = self._gates.get(port)
        if gate is None:
            gate = self._gates[port] = Gate()
            gate.set_open(port not in self._cut)
        return gate

    def cut(self, ports: Iterable[int]) -> None:
        """Let nothing through to these ports, and everything to all others."""
        self._cut = frozenset(ports)
        for port, gate in sorted(self._gates.items()):
            gate.set_open(port not in self._cut)


class LinkedNetwork:
    """Network port whose outgoing connections obey ``links``.

    Args:
        inner: the real network.
        links: of this node.
        life: closed while the node is stopped.
    """

    def __init__(self, inner: Network, links: Links, life: Gate | None = None) -> None:
        self._inner = inner
        self._links = links
        self._life = life
        self.guards: dict[int, Guard] = {}

    async def listen(
        self, host: str, port: int, factory: Callable[[], asyncio.Protocol]
    ) -> Listener:
        """As the real network."""
        return await self._inner.listen(host, port, factory)

    async def connect(
        self, host: str, port: int, factory: Callable[[], asyncio.Protocol], *, timeout_ms: int
    ) -> asyncio.Transport:
        """Open a connection; over a cut link nobody answers.

        Raises:
            ConnectFailed: refused, or no answer within ``timeout_ms``.
        """
        gate = self._links.to(port)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await gate.passed()
        except TimeoutError as error:
            raise ConnectFailed(f"cannot connect to {host}:{port}: TimeoutError") from error
        guards: list[Guard] = []

        def guarded() -> asyncio.Protocol:
            guards.append(self.guard(factory(), gate))
            return guards[-1]

        await self._inner.connect(host, port, guarded, timeout_ms=timeout_ms)
        return guards[-1].transport

    def guard(self, protocol: asyncio.Protocol, *gates: Gate) -> Guard:
        """Put a guard before a protocol of this node."""
        return Guard(protocol, self._life, gates, self.guards)


class Guard(asyncio.Protocol):
    """Between a transport and the protocol that uses it: holds everything while a gate is closed.

    Args:
        protocol: of the node.
        life: closed while the node is stopped.
        links: closed while the way is cut. All must be open for anything to pass either way.
        guards: where this one is listed while its protocol has not been told of the end.
    """

    def __init__(
        self,
        protocol: asyncio.Protocol,
        life: Gate | None,
        links: tuple[Gate, ...],
        guards: dict[int, Guard],
    ) -> None:
        self._protocol: asyncio.Protocol | None = protocol
        self._links = links
        self._gates = links if life is None else (life, *links)
        self._guards = guards
        self._real: asyncio.Transport | None = None
        self._inbox: deque[Callable[[], object]] = deque()
        self._outbox: list[bytes] = []
        self._held_bytes = 0
        self._told_pause = False
        self._wants_pause = False
        self._reading_paused = False
        self._is_lost = False
        self._end: Callable[[], None] | None = None
        self.is_closing = False
        self.transport = GuardedTransport(self)
        self._forget = [gate.watch(self._changed) for gate in self._gates]
        guards[id(self)] = self

    @property
    def is_open(self) -> bool:
        """Whether anything passes."""
        return all(gate.is_open for gate in self._gates)

    @property
    def real(self) -> asyncio.Transport:
        """The transport; only after ``connection_made``."""
        assert self._real is not None
        return self._real

    def set_protocol(self, protocol: asyncio.Protocol) -> None:
        """Guard another one from now on."""
        if self._protocol is not None:
            self._protocol = protocol

    # -- from the transport ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection to the peer is made."""
        self._real = cast(asyncio.Transport, transport)
        if self._protocol is None:  # killed meanwhile
            self._real.abort()
            return
        self._pass(lambda p: p.connection_made(self.transport))
        self._pause_or_resume()

    def data_received(self, data: bytes) -> None:
        """Bytes for the node; a closed connection hears no more."""
        self._pass(lambda p: None if self.is_closing else p.data_received(data))

    def eof_received(self) -> bool:
        """No more bytes."""
        if self._inbox or not self.is_open:
            # Staying half open until the node has heard of it; then it closes as it likes.
            self._pass(self._late_eof)
            return True
        return bool(self._protocol is not None and self._protocol.eof_received())

    def _late_eof(self, protocol: asyncio.Protocol) -> None:
        if not protocol.eof_received():
            self.transport.close()

    def pause_writing(self) -> None:
        """The transport has enough."""
        self._pass(lambda p: p.pause_writing())

    def resume_writing(self) -> None:
        """The transport wants more."""
        self._pass(lambda p: p.resume_writing())

    def connection_lost(self, exc: Exception | None) -> None:
        """The real connection has ended."""
        self._is_lost = True
        if self._protocol is None:
            self._done()
        else:
            self._pass(lambda p: self._tell_lost(exc))

    def _pass(self, call: Callable[[asyncio.Protocol], object]) -> None:
        def now() -> None:
            if self._protocol is not None:
                call(self._protocol)

        if self._inbox or not self.is_open:
            self._inbox.append(now)
        else:
            now()

    # -- from the node -----------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send, or hold what cannot leave."""
        if self.is_closing or self._real is None:
            return
        if self.is_open and not self._outbox:
            self._real.write(data)
            return
        self._outbox.append(bytes(data))
        self._held_bytes += len(data)
        if self._held_bytes > HELD_HIGH_BYTES and not self._told_pause:
            self._told_pause = True
            asyncio.get_running_loop().call_soon(self._say_pause, True)

    def _say_pause(self, pause: bool) -> None:
        if self._protocol is not None and not self.is_closing:
            (self._protocol.pause_writing if pause else self._protocol.resume_writing)()

    @property
    def held_bytes(self) -> int:
        """Written and not handed to the kernel."""
        return self._held_bytes + (0 if self._real is None else self._real.get_write_buffer_size())

    def want_pause(self, pause: bool) -> None:
        """The node does not, or does again, want to read."""
        self._wants_pause = pause
        self._pause_or_resume()

    def close(self, *, abort: bool) -> None:
        """End the connection; over a cut link the other end does not hear of it yet."""
        if self.is_closing and not abort:
            return
        self.is_closing = True
        if abort:
            self._outbox.clear()
            self._held_bytes = 0
        if self.is_open and not self._outbox:
            (self.real.abort if abort else self.real.close)()
            return
        self._end = self.real.abort if abort else self.real.close
        if not self._outbox:
            asyncio.get_running_loop().call_soon(self._tell_lost, None)

    def kill(self) -> None:
        """The node is no more: its protocol is told nothing."""
        self._protocol = None
        self._outbox.clear()
        self._inbox.clear()
        self.is_closing = True
        self._guards.pop(id(self), None)
        if self._real is None or self._is_lost:
            self._done()
        elif self._link_is_open:
            self._real.abort()
        else:
            self._end = self._real.abort

    @property
    def _link_is_open(self) -> bool:
        """Whether the other end would hear of the end: a dead node's kernel still speaks."""
        return all(gate.is_open for gate in self._links)

    # -- gates -------------------------------------------------------------------------------

    def _changed(self) -> None:
        if self._protocol is None:
            if self._end is not None and self._link_is_open:
                self._end()
            return
        self._pause_or_resume()
        # Not here: whoever opens several gates would find some of them still closed.
        asyncio.get_running_loop().call_soon(self._drain)

    def _drain(self) -> None:
        while self.is_open and self._outbox and self._real is not None:
            data = b"".join(self._outbox)
            self._outbox.clear()
            self._held_bytes = 0
            self._real.write(data)
            if self._told_pause:
                self._told_pause = False
                self._say_pause(False)
        if self.is_open and self._end is not None and not self._is_lost:
            end, self._end = self._end, None
            end()
        while self._inbox and self.is_open:
            self._inbox.popleft()()

    def _pause_or_resume(self) -> None:
        real = self._real
        if real is None or self._is_lost or real.is_closing():
            return
        pause = self._wants_pause or not self.is_open
        if pause != self._reading_paused:
            self._reading_paused = pause
            (real.pause_reading if pause else real.resume_reading)()

    def _tell_lost(self, exc: Exception | None) -> None:
        protocol, self._protocol = self._protocol, None
        self._guards.pop(id(self), None)
        if protocol is not None:
            protocol.connection_lost(exc)
        if self._is_lost:
            self._done()

    def _done(self) -> None:
        for forget in self._forget:
            forget()
        self._forget.clear()


class GuardedTransport(asyncio.Transport):
    """What the node's protocol takes for its transport."""

    def __init__(self, guard: Guard) -> None:
        super().__init__()
        self._guard = guard

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Of the real transport."""
        return self._guard.real.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Have another protocol of the node take over."""
        self._guard.set_protocol(cast(asyncio.Protocol, protocol))

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes through the link."""
        self._guard.write(cast(bytes, data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Send several pieces through the link."""
        guard = self._guard
        if guard.is_open and not guard.is_closing and not guard.held_bytes:
            guard.real.writelines(list_of_data)
        else:
            guard.write(b"".join(list_of_data))

    def is_closing(self) -> bool:
        """Whether nothing can be sent."""
        return self._guard.is_closing or self._guard.real.is_closing()

    def close(self) -> None:
        """Close once what was written has left."""
        self._guard.close(abort=False)

    def abort(self) -> None:
        """Close the connection now."""
        self._guard.close(abort=True)

    def pause_reading(self) -> None:
        """Read no more for now."""
        self._guard.want_pause(True)

    def resume_reading(self) -> None:
        """Read from the peer again."""
        self._guard.want_pause(False)

    def is_reading(self) -> bool:
        """Whether bytes are taken."""
        return self._guard.real.is_reading()

    def get_write_buffer_size(self) -> int:
        """Bytes that have not left."""
        return self._guard.held_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Of the real transport."""
        return self._guard.real.get_write_buffer_limits()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Of the real transport."""
        self._guard.real.set_write_buffer_limits(high, low)

    def can_write_eof(self) -> bool:
        """Nobody half-closes here."""
        return False
