"""TCP on the running event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from rmqha.base.errors import ConnectFailed

BACKLOG = 1024


class TcpListener:
    """Listener port over an asyncio server."""

    def __init__(self, server: asyncio.Server) -> None:
        self._server = server

    @property
    def port(self) -> int:
        """The bound port."""
        return int(self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Stop accepting."""
        self._server.close()

    async def wait_closed(self) -> None:
        """Wait until the listening sockets are closed."""
        await self._server.wait_closed()


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
        server = await loop.create_server(
            factory, host, port, backlog=BACKLOG, reuse_address=True, family=socket.AF_UNSPEC
        )
        return TcpListener(server)

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
