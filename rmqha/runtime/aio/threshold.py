"""Streams that reach their owner only once nobody can take them back.

A loop closes the transport of a task that is cancelled, or out of time, in the very turn in which
its connection is made, and tells the protocol nothing: ``connection_lost`` never comes,
``is_closing`` stays false, and under uvloop the next write raises RuntimeError. Under load that turn
is long. So what is given to the loop is a threshold, and the owner is told by the task itself,
after its last await.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

Owner = Callable[[], asyncio.Protocol]
Opening = Callable[[Owner], Awaitable[tuple[asyncio.BaseTransport, asyncio.Protocol]]]


async def opened(factory: Owner, opening: Opening) -> asyncio.Transport:
    """Open a stream whose owner hears either of its begin and its end, or of neither.

    Args:
        factory: of the owner.
        opening: begins the stream with the protocol it is given, by any way a loop has.

    Raises:
        Exception: of ``opening``, of the factory, or of the owner's ``connection_made``, after
            which the stream is closed.
    """
    owner = factory()
    threshold = _Threshold()
    made, _ = await opening(lambda: threshold)
    transport = cast(asyncio.Transport, made)
    try:
        threshold.hand_over(transport, owner)
    except BaseException:
        transport.abort()
        raise
    return transport


class _Threshold(asyncio.Protocol):
    """Keeps what the stream says until its owner listens: a turn of the loop."""

    def __init__(self) -> None:
        self._is_secure = False
        self._bytes: list[bytes] = []
        self._has_ended = False
        self._is_lost = False
        self._error: Exception | None = None

    def hand_over(self, transport: asyncio.Transport, owner: asyncio.Protocol) -> None:
        """Tell the owner all that was said, in its order; from now on it hears itself.

        An owner that reads into a buffer of its own must take bytes as well.
        """
        had_closed = transport.is_closing()
        if had_closed or self._has_ended:
            transport.set_protocol(owner)
        else:
            # Before uvloop 0.23 it is chosen when reading begins whether it goes into a buffer.
            transport.pause_reading()
            transport.set_protocol(owner)
            transport.resume_reading()
        owner.connection_made(transport)
        if self._bytes and (had_closed or not transport.is_closing()):
            owner.data_received(b"".join(self._bytes))
        if self._is_lost:
            owner.connection_lost(self._error)
        elif self._has_ended and not transport.is_closing() and not owner.eof_received():
            transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Nothing yet: the task may never have it."""
        self._is_secure = transport.get_extra_info("sslcontext") is not None

    def data_received(self, data: bytes) -> None:
        """Keep what a peer says at once."""
        self._bytes.append(data)

    def eof_received(self) -> bool:
        """Half open until the owner has heard of it, where a stream can be that."""
        self._has_ended = True
        return not self._is_secure

    def connection_lost(self, exc: Exception | None) -> None:
        """Keep that it is over already."""
        self._is_lost, self._error = True, exc
