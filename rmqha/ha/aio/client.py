"""A slave's connection to its master: what arrives goes into one buffer, and from it into the log.

Reading into the mapped file itself saves a copy and costs more: every page of a new file is
cleared and mapped by a fault before the first byte gets there (ADR 0014 has the figures).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, Protocol, cast

from rmqha.base.errors import DiskFailed, DiskFull, RemoteProtocolError
from rmqha.ha.busy_wait import FEW_BYTES, BusyWait
from rmqha.ha.events import BodyReceived, MasterClosed, MasterConnected, MasterHeard, MasterSent
from rmqha.ha.frames import HEADER_BYTES_MAX, MasterFrameParser, TransferHeader, encode_ack
from rmqha.ha.ports import ReplicatedLog

RECEIVE_BUFFER_BYTES = 1024 * 1024
"""As much as one read may take: some thirty of Java's frames, one of ours."""

READ_BYTES_MIN = 16 * 1024
FRAMES_A_TURN = 128
"""Frames that are taken before others have a turn, of some 100 us each with what they bring: who writes
single records and is read late has thousands of them in one buffer."""

FULL_BODY_BYTES_MIN = 32 * 1024
"""Java's ``haTransferBatchSize``. A body as large as the connection's largest, and not smaller than
this, was cut by its master: more is on its way."""

HEARD_EVERY_MS = 100
"""So often at most the core hears that a body is on its way."""

ACK_DELAY_S = 0.001
ACK_DELAY_BYTES_MAX = 1024 * 1024
"""How long, and for how much, an acknowledgement may wait for the frame after a full one. Each costs
both ends a system call and the master a wake-up, at 32 KiB frames as much as the data itself."""


ROOM_BYTES_MIN = 64 * 1024
"""Made at a time while writes wait for the disk; for what came last, if that was more."""


class Owner(Protocol):
    """What a client needs of the service."""

    def give(
        self, event: MasterConnected | MasterSent | MasterHeard | BodyReceived | MasterClosed
    ) -> None:
        """Take an event."""

    def busy_wait(self) -> BusyWait | None:
        """For what the master sends next; None where loops sleep."""

    def broken(self, error: DiskFailed) -> None:
        """The disk failed: nothing more may be sent."""

    def in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Run what has to wait, until the service ends."""


class MasterConnection(asyncio.BufferedProtocol):
    """The slave's end.

    Args:
        owner: the service.
        conn: the number that the core gave this connection.
        log: where bodies go.
    """

    def __init__(self, owner: Owner, conn: int, log: ReplicatedLog) -> None:
        self._owner = owner
        self._conn = conn
        self._log = log
        self._parser = MasterFrameParser()
        self._transport: asyncio.Transport | None = None
        self._buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        # So much of it is handed out; by what came last.
        self._read_bytes = 2 * READ_BYTES_MIN
        self._frames = 0
        self._header: TransferHeader | None = None
        self._got = 0
        self._ack: int | None = None
        self._acked = 0
        self._ack_timer: asyncio.Handle | None = None
        self._ack_is_late = False
        # Bytes are being used up, and what they brought is to be acknowledged after them.
        self._taking = self._ack_is_due = False
        self._largest = 0
        self._full = False
        self._ended = False
        self._heard_ms = 0
        self._wait = owner.busy_wait()

    # -- asyncio.BufferedProtocol ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection to the master is made."""
        if self._ended:
            cast(asyncio.Transport, transport).abort()
            return
        self._transport = cast(asyncio.Transport, transport)
        self._owner.give(MasterConnected(self._conn))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Room for whatever comes next; ``buffer_updated`` uses all of it up."""
        return self._buffer[: self._read_bytes]

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes are in the buffer that was handed out last."""
        self._take(self._buffer[:nbytes])

    def data_received(self, data: bytes) -> None:
        """For networks that hand over bytes of their own, such as the simulator's."""
        self._take(memoryview(data))

    def eof_received(self) -> bool:
        """The master has closed."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Gone; what arrived of a body counts first."""
        self.fail(str(exc) if exc is not None else "closed by the master")

    # -- effects ------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Write a frame in one piece."""
        if self._transport is not None:
            self._transport.write(data)

    def send_ack(self, offset: int) -> None:
        """Acknowledge at the end of what has arrived, or soon when more is on its way.

        Only the newest counts.
        """
        may_wait = self._full and offset - self._acked < ACK_DELAY_BYTES_MAX
        self._ack = offset
        if self._taking and not may_wait:
            # Another turn of the loop would cost a single record as much as writing it.
            self._ack_is_due = True
            return
        if self._ack_is_late and not may_wait:
            self._cancel_ack()
        if self._ack_timer is None:
            loop = asyncio.get_running_loop()
            self._ack_is_late = may_wait
            if may_wait:
                self._ack_timer = loop.call_later(ACK_DELAY_S, self._write_ack)
            else:
                self._ack_timer = loop.call_soon(self._write_ack)

    def close(self) -> None:
        """Abort; what arrived of a body is counted, so nothing lies behind the log's end."""
        self._ended = True
        if self._wait is not None:
            self._wait.stop()
        self._count_partial()
        self._cancel_ack()
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()

    def fail(self, reason: str) -> None:
        """End a connection that cannot go on, and say so."""
        if not self._ended:
            self.close()
            self._owner.give(MasterClosed(self._conn, reason))

    # -- inside -------------------------------------------------------------------------------------

    def _cancel_ack(self) -> None:
        if self._ack_timer is not None:
            self._ack_timer.cancel()
            self._ack_timer = None

    def _write_ack(self) -> None:
        self._cancel_ack()
        offset, self._ack, self._ack_is_due = self._ack, None, False
        if offset is not None and self._transport is not None:
            few = offset - self._acked <= FEW_BYTES
            self._acked = offset
            self._transport.write(encode_ack(offset))
            if self._wait is not None and few:
                self._wait.expect()

    def _take(self, data: memoryview) -> None:
        """Use up a chunk of the stream: headers and bodies in turn, the last perhaps in part."""
        if self._wait is not None:
            self._wait.came()
        room = self._log.room
        begun_ms = room.now_ms()
        self._taking, self._frames = True, 0
        try:
            self._take_all(data)
        finally:
            self._taking = False
        if self._ack_is_due:
            self._write_ack()
        if self._header is not None and begun_ms - self._heard_ms >= HEARD_EVERY_MS:
            self._heard_ms = begun_ms
            self._owner.give(MasterHeard(self._conn))
        room.wrote(begun_ms)
        if room.is_short and self._transport is not None:
            # What comes next waits in its socket, and not the loop (ADR 0048).
            self._transport.pause_reading()
            length = max(len(data), ROOM_BYTES_MIN)
            self._owner.in_background(self._make_room(length, ahead=self._got))
        else:
            self._pace(len(data))

    def _pace(self, size: int) -> None:
        """Read less at a time where frames are small, and more where they are not."""
        frames = self._frames
        if frames > FRAMES_A_TURN:
            self._read_bytes = max(READ_BYTES_MIN, self._read_bytes // 2)
        elif frames <= FRAMES_A_TURN // 4:
            if size >= self._read_bytes:
                self._read_bytes = min(RECEIVE_BUFFER_BYTES, 2 * self._read_bytes)
            return
        if self._transport is not None:
            # Without it the loop reads on while the socket has more, thirty times and without a turn.
            self._transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()

    async def _make_room(self, length: int, ahead: int) -> None:
        with contextlib.suppress(DiskFailed):  # whoever writes learns why
            await self._log.room.make(length, ahead=ahead)
        if self._transport is not None:
            self._transport.resume_reading()

    def _take_all(self, data: memoryview) -> None:
        at, end = 0, len(data)
        while at < end and not self._ended:
            header = self._header
            if header is None:
                size = min(self._parser.wanted, HEADER_BYTES_MAX, end - at)
                self._header_bytes(bytes(data[at : at + size]))
            else:
                size = min(header.body_size - self._got, end - at)
                self._body_bytes(header, data[at : at + size])
            at += size

    def _header_bytes(self, data: bytes) -> None:
        try:
            frame = self._parser.feed(data)
        except RemoteProtocolError as error:
            self.fail(str(error))
            return
        if frame is None:
            return
        self._frames += 1
        # The core may close this connection while it looks at the header.
        self._owner.give(MasterSent(self._conn, frame))
        if isinstance(frame, TransferHeader) and frame.body_size and not self._ended:
            self._begin_body(frame)

    def _begin_body(self, header: TransferHeader) -> None:
        try:
            self._log.reserve(header.offset, header.body_size)
        except (DiskFull, ValueError) as error:
            # The log is as it was; the next connection asks again, and copies once there is room.
            self.fail(str(error))
            return
        except DiskFailed as error:
            self._owner.broken(error)
            return
        self._header = header
        self._got = 0
        self._largest = max(self._largest, header.body_size)
        self._full = header.body_size == self._largest >= FULL_BODY_BYTES_MIN

    def _body_bytes(self, header: TransferHeader, data: memoryview) -> None:
        try:
            self._log.write(header.offset + self._got, data)
        except DiskFailed as error:
            self._owner.broken(error)
            return
        self._got += len(data)
        self._parser.body_received(len(data))
        if self._got == header.body_size:
            self._count_partial()

    def _count_partial(self) -> None:
        header, got = self._header, self._got
        self._header, self._got = None, 0
        if header is not None and got:
            self._log.received(header.offset, got)
            damaged_at = self._log.damaged_at
            self._owner.give(BodyReceived(self._conn, header.offset, got, damaged_at))
