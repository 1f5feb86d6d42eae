"""TCP on the running event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Any

from rmqha.base.errors import ConnectFailed

BACKLOG = 1024
RETRY_S = 0.1
"""Until the next try to accept after one that failed: without a descriptor it fails again."""


class TcpListener:
    """Listener port that accepts one connection at a time.

    A loop's own server takes everything that waits before any protocol can refuse, so a crowd
    takes the last descriptors of the process for a moment, whatever its bound of connections is.
    """

    def __init__(
        self, sockets: Sequence[socket.socket], factory: Callable[[], asyncio.Protocol]
    ) -> None:
        self._port = int(sockets[0].getsockname()[1])
        self._factory = factory
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._accept(one), name="accept") for one in sockets]

    @property
    def port(self) -> int:
        """The bound port."""
        return self._port

    def close(self) -> None:
        """Stop accepting connections."""
        for task in self._tasks:
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait until the listening sockets are closed."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with listening:
            while True:
                try:
                    accepted, _ = await loop.sock_accept(listening)
                except OSError:
                    await asyncio.sleep(RETRY_S)
                    continue
                try:
                    accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    await loop.connect_accepted_socket(self._factory, accepted)
                except OSError:
                    accepted.close()  # it is gone again
                except Exception as error:  # noqa: BLE001 - the port outlives a protocol's failure
                    accepted.close()
                    what = {"message": "a connection could not be taken", "exception": error}
                    loop.call_exception_handler(what)


class TcpNetwork:
    """Network port: TCP with TCP_NODELAY, which asyncio and uvloop set on every stream."""

    async def listen(
        self, host: str, port: int, factory: Callable[[], asyncio.Protocol]
    ) -> TcpListener:
        """Accept connections on ``host:port``.

        Raises:
            OSError: when the address cannot be used.
        """
        loop = asyncio.get_running_loop()
        infos = await loop.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        found: list[socket.socket] = []
        try:
            for family, _, _, _, address in dict.fromkeys(infos):
                found.append(_listening(family, address))
        except OSError:
            for one in found:
                one.close()
            raise
        return TcpListener(found, factory)

    async def connect(
        self, host: str, port: int, factory: Callable[[], asyncio.Protocol], *, timeout_ms: int
    ) -> asyncio.Transport:
        """Open a connection within ``timeout_ms``.

        Raises:
            ConnectFailed: refused, unresolvable or too slow.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                transport, _ = await loop.create_connection(factory, host, port)
        except (OSError, TimeoutError) as error:
            reason = str(error) or type(error).__name__
            raise ConnectFailed(f"cannot connect to {host}:{port}: {reason}") from error
        return transport


def _listening(family: int, address: Any) -> socket.socket:
    """A listening socket; raises OSError, with the address in its words."""
    one = socket.socket(family, socket.SOCK_STREAM)
    try:
        one.setblocking(False)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # The same port of IPv4 is a socket of its own.
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.bind(address)
        one.listen(BACKLOG)
    except OSError as error:
        one.close()
        raise OSError(error.errno, f"{error.strerror}: {address[0]}:{address[1]}") from error
    return one
