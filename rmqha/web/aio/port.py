"""HTTP ports: who may ask, how many at a time, and how long they may say nothing."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from aiohttp import web
from msgspec import Struct

from rmqha.web.names import machine_names, plain

CONNECTIONS_MAX = 128
FIRST_REQUEST_S = 10.0
SHUTDOWN_TIMEOUT_S = 0.2
BACKLOG = 128
HOSTS_FILE = Path("/etc/hosts")
RESOLVER_FILE = Path("/etc/resolv.conf")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Hosts(Struct, frozen=True):
    """Names under which a port may be asked for.

    A page of somebody else can have its own name point to this machine, and then read what only
    this network may see; such requests carry that name in ``Host``.

    Attributes:
        names: in lower case; ``*`` for any.
    """

    names: frozenset[str]

    @classmethod
    def of_machine(cls, more: Iterable[str] = ()) -> Hosts:
        """This machine's names, and those of ``httpAllowedHosts``."""
        own = machine_names(os.uname().nodename, _content(HOSTS_FILE), _content(RESOLVER_FILE))
        return cls(own | {name for name in map(plain, more) if name})

    def allow(self, header: str) -> bool:
        """Whether a ``Host`` is one of the names, or an address."""
        name = plain(_without_port(header))
        if "*" in self.names or name in self.names:
            return True
        try:
            ip_address(name)
        except ValueError:
            return False
        return True

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer 421 to who asks under another name."""
        if not self.allow(request.headers.get("Host", "")):
            raise web.HTTPMisdirectedRequest(
                text="this name is not one of httpAllowedHosts\n", content_type="text/plain"
            )
        return await handler(request)


def _content(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _without_port(header: str) -> str:
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]


class BoundedPort:
    """A port for an application, with a bounded number of connections.

    One that has asked for nothing whole is closed soon. When all places are taken a new one gets that of
    the one which has waited longest with nothing being answered on it, so that nobody who only holds
    connections keeps others out; while all are being answered it is closed at once.

    Args:
        app: not started yet.
        rejected: counts those that were not let in, or lost their place, as ``http_connections``.
    """

    def __init__(self, app: web.Application, rejected: Counter[str] | None = None) -> None:
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_TIMEOUT_S)
        self._server: asyncio.Server | None = None
        # Those that have waited longest first.
        self._open: dict[_Guard, None] = {}
        self._by_protocol: dict[object, _Guard] = {}
        app.middlewares.insert(0, self._answer)
        self.rejected = Counter[str]() if rejected is None else rejected

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port.

        Raises:
            OSError: the address cannot be used.
        """
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(self._make, host, port, backlog=BACKLOG)
        except OSError:
            await self._runner.cleanup()
            raise
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop; requests under way have a moment to end."""
        if self._server is not None:
            self._server.close()
        await self._runner.cleanup()

    def _make(self) -> asyncio.Protocol:
        assert self._runner.server is not None, "it was set up"
        return _Guard(self._runner.server(), self)

    @web.middleware
    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Note which connection is being answered."""
        guard = self._by_protocol.get(request.protocol)
        if guard is None:
            return await handler(request)
        guard.answering += 1
        guard.has_asked()
        try:
            return await handler(request)
        finally:
            guard.answering -= 1
            if guard in self._open:
                del self._open[guard]
                self._open[guard] = None

    def admit(self, guard: _Guard, protocol: object) -> bool:
        """Whether one more connection may be open; another one may have to go for it."""
        if len(self._open) >= CONNECTIONS_MAX:
            self.rejected["http_connections"] += 1
            waiting = next((one for one in self._open if not one.answering), None)
            if waiting is None:
                return False
            self.forget(waiting)
            waiting.close()
        self._open[guard] = None
        self._by_protocol[protocol] = guard
        return True

    def forget(self, guard: _Guard) -> None:
        """A connection was closed."""
        self._open.pop(guard, None)
        self._by_protocol.pop(guard.protocol, None)


class _Guard(asyncio.Protocol):
    """In front of aiohttp's protocol, which waits for a first request for ever.

    Attributes:
        protocol: aiohttp's.
        answering: so many requests of the connection are being answered.
    """

    def __init__(self, inner: Any, port: BoundedPort) -> None:
        self.protocol = inner
        self.answering = 0
        self._port = port
        self._is_in = False
        self._transport: asyncio.BaseTransport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def has_asked(self) -> None:
        """A whole request has come."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        """Somebody else gets its place."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection, and have it speak soon."""
        if not self._port.admit(self, self.protocol):
            transport.close()
            return
        self._is_in = True
        self._transport = transport
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(FIRST_REQUEST_S, transport.close)
        self.protocol.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """The peer has said something, which may be a part of a request."""
        if self._is_in:
            self.protocol.data_received(data)

    def eof_received(self) -> bool | None:
        """The peer will send nothing more."""
        return bool(self.protocol.eof_received()) if self._is_in else False

    def pause_writing(self) -> None:
        """The peer reads slowly."""
        self.protocol.pause_writing()

    def resume_writing(self) -> None:
        """The peer has read."""
        self.protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is over, whoever ended it."""
        self.has_asked()
        self._port.forget(self)
        if self._is_in:
            self.protocol.connection_lost(exc)
