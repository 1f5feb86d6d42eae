"""TCP on the running event loop, with TLS where the process has certificates.

One port speaks both, as Java's do: a peer's first byte says which (0x16 begins a TLS handshake, and
the length of any legal frame begins with 0). It is looked at without being taken, so a plain
connection costs nothing more once it is open.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
import sys
from collections.abc import Callable, Sequence
from typing import Any

from rmqha.base.errors import ConnectFailed
from rmqha.runtime.aio.threshold import opened
from rmqha.runtime.aio.tls import Tls

BACKLOG = 1024
RETRY_S = 0.1
"""Until the next try to accept after one that failed: without a descriptor it fails again."""


TCP_THIN_LINEAR_TIMEOUTS, TCP_RTO_MAX_MS = 16, 44
"""Options of tcp(7) that Python has no names for; the second one came with Linux 6.15."""
RTO_MAX_MS = 1_000
"""The least that the kernel takes, and more than any way there and back between replicas."""
FIRST_BYTE_S = 30.0
"""How long a peer may be silent before it is known what it speaks; brokers probe with connections
over which they say nothing."""
HANDSHAKE_S = 5.0
SHUTDOWN_S = 1.0
OPENING_MAX = 1024
"""Connections of a port that have not said what they speak, or not finished their handshake."""
TLS_HANDSHAKE = b"\x16"


class TcpListener:
    """Listener port that accepts one connection at a time.

    A loop's own server takes everything that waits before any protocol can refuse, so a crowd
    takes the last descriptors of the process for a moment, whatever its bound of connections is.
    """

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        factory: Callable[[], asyncio.Protocol],
        tls: Tls | None = None,
    ) -> None:
        self._port = int(sockets[0].getsockname()[1])
        self._factory = factory
        self._door = Door(factory, tls)
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._accept(one), name="accept") for one in sockets]
        for task, one in zip(self._tasks, sockets, strict=True):
            task.add_done_callback(lambda _, one=one: one.close())  # type: ignore[misc]

    @property
    def port(self) -> int:
        """The bound port."""
        return self._port

    def close(self) -> None:
        """Stop accepting connections."""
        for task in self._tasks:
            task.cancel()
        self._door.close()

    async def wait_closed(self) -> None:
        """Wait until the listening sockets are closed."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._door.wait_closed()

    async def _accept(self, listening: socket.socket) -> None:
        while True:
            await readable(listening)
            try:
                accepted, _ = listening.accept()
            except (BlockingIOError, InterruptedError):
                continue
            except OSError:
                await asyncio.sleep(RETRY_S)
                continue
            try:
                accepted.setblocking(False)
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                _send_again_soon(accepted)
                if self._door.is_watched:
                    self._door.open(accepted)
                else:
                    await entered(self._factory, accepted)
            except OSError:
                accepted.close()  # it is gone again
            except asyncio.CancelledError:
                accepted.close()  # the port is closed meanwhile
                raise
            except Exception as error:  # noqa: BLE001 - the port outlives a protocol's failure
                accepted.close()
                what = {"message": "a connection could not be taken", "exception": error}
                asyncio.get_running_loop().call_exception_handler(what)


class Door:
    """Where accepted connections say what they speak.

    Where nobody can come in by TLS they are let in at once.
    Of those that have not, the oldest is closed for a new one beyond ``OPENING_MAX``: who says
    nothing keeps nobody out.

    Args:
        factory: of the protocol for who comes in.
        tls: None for a port that is always plain.
    """

    def __init__(self, factory: Callable[[], asyncio.Protocol], tls: Tls | None) -> None:
        self._factory = factory
        self._tls = tls
        self._opening: dict[asyncio.Task[None], socket.socket] = {}

    @property
    def is_watched(self) -> bool:
        """Whether anybody can come in by TLS at present."""
        return self._tls is not None and self._tls.server is not None

    def open(self, accepted: socket.socket) -> None:
        """Let a connection say what it speaks, and then in."""
        if len(self._opening) >= OPENING_MAX:
            oldest = next(iter(self._opening))
            self._refused("crowd")
            oldest.cancel()
        task = asyncio.get_running_loop().create_task(self._enter(accepted), name="enter")
        self._opening[task] = accepted
        task.add_done_callback(self._entered)

    def close(self) -> None:
        """Close those that are not in yet."""
        for task in self._opening:
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait until they are closed."""
        await asyncio.gather(*self._opening, return_exceptions=True)

    async def _enter(self, accepted: socket.socket) -> None:
        if not self.is_watched:
            await entered(self._factory, accepted)
            return
        try:
            async with asyncio.timeout(FIRST_BYTE_S):
                first = await first_byte(accepted)
        except TimeoutError:
            self._refused("silent")
            raise
        tls = self._tls
        if not first:
            raise ConnectionResetError("closed before it said anything")
        if tls is not None and tls.server is not None and first == TLS_HANDSHAKE:
            await self._shake_hands(accepted, tls.server)
        elif tls is not None and not tls.is_plain_taken:
            self._refused("plain")
            raise ConnectionResetError("plain, where only TLS is spoken")
        else:
            await entered(self._factory, accepted)

    async def _shake_hands(self, accepted: socket.socket, context: ssl.SSLContext) -> None:
        try:
            await entered(
                self._factory, accepted, ssl=context,
                ssl_handshake_timeout=HANDSHAKE_S, ssl_shutdown_timeout=SHUTDOWN_S,
            )  # fmt: skip
        except OSError:
            self._refused("handshake")
            raise

    def _refused(self, reason: str) -> None:
        if self._tls is not None:
            self._tls.refuse(reason)

    def _entered(self, task: asyncio.Task[None]) -> None:
        """A task that is cancelled before it begins cleans nothing up itself."""
        accepted = self._opening.pop(task)
        if task.cancelled():
            accepted.close()
            return
        error = task.exception()
        if error is None:
            return
        accepted.close()
        if not isinstance(error, OSError):
            what = {"message": "a connection could not be taken", "exception": error}
            asyncio.get_running_loop().call_exception_handler(what)


async def entered(
    factory: Callable[[], asyncio.Protocol], accepted: socket.socket, **secure: Any
) -> None:
    """Begin the stream of an accepted connection.

    Raises:
        OSError: it is gone again, or its handshake failed.
    """
    loop = asyncio.get_running_loop()
    await opened(
        factory, lambda threshold: loop.connect_accepted_socket(threshold, accepted, **secure)
    )


async def first_byte(accepted: socket.socket) -> bytes:
    """What a peer says first, left where it is; empty when it closes instead.

    Raises:
        OSError: the connection broke.
    """
    while True:
        with contextlib.suppress(BlockingIOError, InterruptedError):
            return accepted.recv(1, socket.MSG_PEEK)
        await readable(accepted)


async def readable(one: socket.socket) -> None:
    """Wait until a socket has something to be read or accepted."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(one, _set_done, ready)
    try:
        await ready
    finally:
        loop.remove_reader(one)


def _set_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class TcpNetwork:
    """Network port: TCP with TCP_NODELAY, which asyncio and uvloop set on every stream.

    Args:
        tls: certificates of the process; None for streams that are always plain.
    """

    def __init__(self, tls: Tls | None = None) -> None:
        self._tls = tls

    async def listen(
        self, host: str, port: int, factory: Callable[[], asyncio.Protocol]
    ) -> TcpListener:
        """Accept connections on ``host:port``.

        Raises:
            OSError: when the address cannot be used.
        """
        loop = asyncio.get_running_loop()
        try:
            infos = await loop.getaddrinfo(
                host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
        except UnicodeError as error:
            raise OSError(errno.EADDRNOTAVAIL, f"{host} is no name of a host: {error}") from error
        found: list[socket.socket] = []
        try:
            for family, _, _, _, address in dict.fromkeys(infos):
                found.append(_listening(family, address))
        except OSError:
            for one in found:
                one.close()
            raise
        return TcpListener(found, factory, self._tls)

    async def connect(
        self, host: str, port: int, factory: Callable[[], asyncio.Protocol], *, timeout_ms: int
    ) -> asyncio.Transport:
        """Open a connection within ``timeout_ms``.

        Raises:
            ConnectFailed: refused, unresolvable or too slow.
        """
        loop = asyncio.get_running_loop()
        context = None if self._tls is None else self._tls.client
        secure: dict[str, Any] = {}
        if context is not None:
            secure = {
                "ssl": context, "server_hostname": host,
                "ssl_handshake_timeout": timeout_ms / 1000, "ssl_shutdown_timeout": SHUTDOWN_S,
            }  # fmt: skip
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                transport = await opened(
                    factory,
                    lambda threshold: loop.create_connection(threshold, host, port, **secure),
                )
        except ssl.SSLError as error:
            raise ConnectFailed(
                f"cannot connect to {host}:{port} by TLS: {_words(error)}"
            ) from error
        # asyncio's own loop overflows at a port that is none, and a part of a name that is too long
        # cannot be encoded; addresses come from other servers.
        except (OSError, TimeoutError, OverflowError, UnicodeError) as error:
            reason = str(error) or type(error).__name__
            raise ConnectFailed(f"cannot connect to {host}:{port}: {reason}") from error
        if not transport.is_closing():
            # The stream's own object takes no options where uvloop made it.
            same = socket.socket(fileno=transport.get_extra_info("socket").fileno())
            _send_again_soon(same)
            same.detach()
        return transport


def _send_again_soon(one: socket.socket) -> None:
    """Have what was lost be sent again within a second, however often it was lost before.

    The kernel's timeout doubles with each loss, to two minutes: a link that was bad for some seconds
    stays silent for as long again once it is whole. A peer that acknowledges nothing for a
    quarter of a minute is given up, and not after a quarter of an hour. Older kernels know
    only the first of the two options; elsewhere the numbers mean something else.
    """
    if sys.platform != "linux":
        return
    for option, value in ((TCP_THIN_LINEAR_TIMEOUTS, 1), (TCP_RTO_MAX_MS, RTO_MAX_MS)):
        with contextlib.suppress(OSError):
            one.setsockopt(socket.IPPROTO_TCP, option, value)


def _words(error: ssl.SSLError) -> str:
    if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
        return "the peer does not speak TLS"
    return str(error)


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
