"""Loopback ports that stay one node's, also while it is dead: bound from the start, never guessed.

The kernel picks them (port 0), so clusters of parallel test workers never meet. While nobody
listens on a port that is bound, connections to it are refused, as those to a dead process are.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable

from rmqha.broker.common.settings import FAST_PORT_DISTANCE
from rmqha.runtime.aio.net import BACKLOG, Door, TcpNetwork
from rmqha.runtime.aio.tls import Tls
from rmqha.runtime.ports import Listener
from rmqha.testing.gates import Gate
from rmqha.testing.life import Life
from rmqha.testing.links import LinkedNetwork, Links

LOOPBACK = "127.0.0.1"
ATTEMPTS_MAX = 100


def bind(port: int = 0, *, again: bool = False) -> socket.socket:
    """Bind a loopback socket; 0 takes any port.

    Args:
        port: which.
        again: it was ours until now: connections that have ended there do not matter.

    Raises:
        OSError: the port is somebody else's.
    """
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if again:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.setblocking(False)
        found.bind((LOOPBACK, port))
        # Only now: before, two that do not listen yet could be given the same port.
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    except BaseException:
        found.close()
        raise
    return found


class Reserved:
    """The ports of one node."""

    def __init__(self) -> None:
        self._sockets: dict[int, socket.socket] = {}

    def take(self) -> int:
        """Reserve any port."""
        found = bind()
        return self._keep(found)

    def take_pair(self) -> int:
        """Reserve a port and the one two below it; returns the upper one.

        Raises:
            OSError: there is none.
        """
        for _ in range(ATTEMPTS_MAX):
            upper = bind()
            port = int(upper.getsockname()[1])
            try:
                lower = bind(port - FAST_PORT_DISTANCE)
            except OSError:
                upper.close()
                continue
            self._keep(lower)
            return self._keep(upper)
        raise OSError("no two ports that are two apart")

    def _keep(self, found: socket.socket) -> int:
        port = int(found.getsockname()[1])
        self._sockets[port] = found
        return port

    def lend(self, port: int) -> socket.socket | None:
        """The bound socket of a port, for the one who listens; None for a port of others."""
        return self._sockets.get(port)

    def renew(self, port: int) -> None:
        """Close a socket that has listened, and bind its port anew at once."""
        self._sockets[port].close()
        self._sockets[port] = bind(port, again=True)

    def close(self) -> None:
        """Give all ports back."""
        for one in self._sockets.values():
            one.close()
        self._sockets.clear()


class NodeNetwork(LinkedNetwork):
    """Network port of one node of this process.

    Args:
        links: its ways to others.
        life: of the node.
        reserved: the ports that it may listen on.
        tls: its certificates; None where it speaks no TLS.
    """

    def __init__(
        self, links: Links, life: Life, reserved: Reserved, tls: Tls | None = None
    ) -> None:
        super().__init__(TcpNetwork(tls), links, life.gate)
        self._tls = tls
        self._owner = life
        self._reserved = reserved
        self._listeners: list[ReservedListener] = []

    async def listen(
        self, host: str, port: int, factory: Callable[[], asyncio.Protocol]
    ) -> Listener:
        """Listen on a reserved port.

        Raises:
            OSError: the port is not this node's.
        """
        self._owner.check()
        if self._reserved.lend(port) is None:
            raise OSError(f"port {port} was not reserved for this node")
        listener = ReservedListener(
            self._reserved, port, Door(lambda: self.guard(factory()), self._tls), self._owner.gate
        )
        self._listeners.append(listener)
        return listener

    def kill(self) -> None:
        """End every connection and listener, as a kernel does for a dead process."""
        for listener in self._listeners:
            listener.close()
        for guard in list(self.guards.values()):
            guard.kill()


class ReservedListener:
    """Listener port on a reserved socket. While the node is stopped the kernel alone answers."""

    def __init__(
        self,
        reserved: Reserved,
        port: int,
        door: Door,
        life: Gate,
    ) -> None:
        found = reserved.lend(port)
        assert found is not None
        self._reserved = reserved
        self._socket = found
        self._port = port
        self._door = door
        self._life = life
        self._loop = asyncio.get_running_loop()
        self._is_closed = self._is_reading = False
        found.listen(BACKLOG)
        self._forget = life.watch(self._changed)
        self._changed()

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return self._port

    def _changed(self) -> None:
        reads = self._life.is_open and not self._is_closed
        if reads and not self._is_reading:
            self._loop.add_reader(self._socket, self._accept)
        elif self._is_reading and not reads:
            self._loop.remove_reader(self._socket)
        self._is_reading = reads

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._door.open(accepted)

    def close(self) -> None:
        """Stop listening; the port stays reserved."""
        if self._is_closed:
            return
        self._is_closed = True
        self._changed()
        self._forget()
        with contextlib.suppress(OSError):
            self._reserved.renew(self._port)

    async def wait_closed(self) -> None:
        """It is closed when ``close`` returns."""
