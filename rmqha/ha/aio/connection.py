"""One slave's connection on a master: bytes to frames, frames to bytes, nothing decided here."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Protocol, cast

from rmqha.base.errors import RemoteProtocolError
from rmqha.ha.busy_wait import FEW_BYTES, BusyWait
from rmqha.ha.events import SlaveClosed, SlaveConnected, SlaveSent, SlaveWritable
from rmqha.ha.frames import SlaveFrameParser, without_passed
from rmqha.runtime.aio.pieces import write_pieces


class Owner(Protocol):
    """What a connection needs of the service."""

    in_flight_bytes_max: int
    rejected: Counter[str]

    def give(self, event: SlaveConnected | SlaveSent | SlaveWritable | SlaveClosed) -> None:
        """Take an event."""

    def busy_wait(self) -> BusyWait | None:
        """For the answers of one connection; None where loops sleep."""

    def opened(self, connection: SlaveConnection) -> int:
        """Number a new connection."""

    def forgotten(self, conn: int) -> None:
        """It is gone."""


class SlaveConnection(asyncio.Protocol):
    """The master's end. Batches are gathered writes of a header and a mapped slice.

    The next batch is asked for one loop turn after the last, and not while the transport holds
    more than its high-water mark: a slow slave costs no memory, a fast one starves nobody.
    """

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._parser = SlaveFrameParser()
        self._transport: asyncio.Transport | None = None
        self._conn = 0
        self._paused = False
        self._hungry = False
        self._scheduled = False
        self._wait = owner.busy_wait()
        # What is to be sent once the first batch of it has been read; None when nothing waits.
        self._held: list[bytes | memoryview] | None = None

    # -- asyncio.Protocol ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A slave's connection is accepted."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self._owner.in_flight_bytes_max)
        self._conn = self._owner.opened(self)
        peer = transport.get_extra_info("peername") or ("?", 0)
        self._owner.give(SlaveConnected(self._conn, f"{peer[0]}:{peer[1]}"))

    def data_received(self, data: bytes) -> None:
        """Frames of the slave."""
        if self._wait is not None:
            self._wait.came()
        try:
            frames = self._parser.feed(data)
        except RemoteProtocolError as error:
            self._owner.rejected["broken"] += 1
            self.end(str(error))
            return
        for frame in without_passed(frames):
            self._owner.give(SlaveSent(self._conn, frame))

    def pause_writing(self) -> None:
        """The transport holds enough."""
        self._paused = True

    def resume_writing(self) -> None:
        """The slave has taken it."""
        self._paused = False
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """The slave's connection is gone."""
        self.end(str(exc) if exc is not None else "closed by the slave")

    # -- effects -----------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Write a frame in one piece."""
        if self._held is not None:
            self._held.append(data)
        elif self._transport is not None:
            self._transport.write(data)

    def send_batch(self, header: bytes, body: memoryview | None) -> None:
        """Write a header and a slice of the log together, without a copy of the slice."""
        if self._transport is None:
            return
        if self._held is not None:
            self._held += [header] if body is None else [header, body]
            return
        if body is None:
            self._transport.write(header)
        else:
            write_pieces(self._transport, [header, body])
            if self._wait is not None and len(body) <= FEW_BYTES:
                self._wait.expect()
        self._hungry = True
        self._wake()

    def hold(self) -> None:
        """Send nothing until :meth:`let_go`: the next batch is not in memory yet."""
        if self._held is None:
            self._held = []

    def let_go(self) -> None:
        """Send what was held, in its order."""
        held, self._held = self._held, None
        if held and self._transport is not None:
            write_pieces(self._transport, held)
            self._hungry = True
            self._wake()

    def abort(self) -> None:
        """Drop what is buffered and close."""
        transport, self._transport = self._transport, None
        self._held = None
        if self._wait is not None:
            self._wait.stop()
        if transport is not None:
            self._owner.forgotten(self._conn)
            transport.abort()

    def end(self, reason: str) -> None:
        """Close a connection that cannot go on, and say so."""
        if self._transport is not None:
            self.abort()
            self._owner.give(SlaveClosed(self._conn, reason))

    # -- inside ------------------------------------------------------------------------------------

    def _wake(self) -> None:
        if self._hungry and not self._paused and not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._ask)

    def _ask(self) -> None:
        self._scheduled = False
        if self._hungry and not self._paused and self._transport is not None:
            self._hungry = False
            self._owner.give(SlaveWritable(self._conn))
