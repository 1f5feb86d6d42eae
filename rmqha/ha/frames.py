"""HA frames: values to bytes, and bytes in any chunks back to values; bodies never pass through.

``layout.py`` draws the frames. A parser is fed header bytes only: when a transfer header is
complete it says how many body bytes follow, and whoever owns the socket receives those straight
into the log.

Source: AutoSwitchHAClient and AutoSwitchHAConnection of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from rmqha.base.errors import FrameTooLarge, HeaderMalformed, RemoteProtocolError
from rmqha.base.ids import MasterEpoch
from rmqha.ha.epochs import EpochEntry
from rmqha.ha.settings import EPOCH_ENTRIES_MAX, RECEIVED_BODY_BYTES_MAX

_HANDSHAKE_REQUEST = struct.Struct(">ihhq")
_HANDSHAKE_REPLY = struct.Struct(">iiqi")
_EPOCH = struct.Struct(">iq")
_TRANSFER = struct.Struct(">iiqiqq")
_ACK = struct.Struct(">iq")
_STATE = struct.Struct(">i")
_STATE_AND_SIZE = struct.Struct(">ii")
TRANSFER_HEADER_BYTES = _TRANSFER.size
HEADER_BYTES_MAX = TRANSFER_HEADER_BYTES
"""Of one read of header bytes from a master; a handshake's epochs come in such pieces too."""


class ConnectionState(IntEnum):
    """Java's HAConnectionState, numbered as on the wire, where only 1 and 2 appear."""

    READY = 0
    HANDSHAKE = 1
    TRANSFER = 2
    SUSPEND = 3
    SHUTDOWN = 4


class HandshakeRequest(NamedTuple):
    """A slave presents itself."""

    slave_id: int
    sync_from_last_file: bool = False
    async_learner: bool = False


class HandshakeReply(NamedTuple):
    """A master's epochs, ascending, and the end of its log."""

    max_offset: int
    last_epoch: MasterEpoch
    entries: tuple[EpochEntry, ...]


class TransferHeader(NamedTuple):
    """``body_size`` bytes of the log at ``offset`` follow; a heartbeat has none."""

    body_size: int
    offset: int
    epoch: MasterEpoch
    epoch_start: int
    confirm_offset: int


class Ack(NamedTuple):
    """A slave holds everything before ``offset``."""

    offset: int


SlaveFrame = HandshakeRequest | Ack
MasterFrame = HandshakeReply | TransferHeader


def encode_handshake_request(frame: HandshakeRequest) -> bytes:
    """The 16 bytes; they must leave in one write."""
    return _HANDSHAKE_REQUEST.pack(
        ConnectionState.HANDSHAKE, frame.sync_from_last_file, frame.async_learner, frame.slave_id
    )


def encode_handshake_reply(frame: HandshakeReply) -> bytes:
    """Header and epochs in one piece."""
    header = _HANDSHAKE_REPLY.pack(
        ConnectionState.HANDSHAKE,
        _EPOCH.size * len(frame.entries),
        frame.max_offset,
        frame.last_epoch,
    )
    return header + b"".join(_EPOCH.pack(entry.epoch, entry.start) for entry in frame.entries)


def encode_transfer_header(frame: TransferHeader) -> bytes:
    """The 36 bytes before a body."""
    size, offset, epoch, epoch_start, confirm = frame
    return _TRANSFER.pack(2, size, offset, epoch, epoch_start, confirm)


def encode_ack(offset: int) -> bytes:
    """The 12 bytes of an acknowledgement."""
    return _ACK.pack(2, offset)


class SlaveFrameParser:
    """Reads what slaves send, for one connection of a master.

    It waits for all 16 bytes of a handshake. After a malformed frame it stays broken: the
    stream has no mark to start again from.
    """

    __slots__ = ("_has_begun", "_pending", "error")

    def __init__(self) -> None:
        self._pending = b""
        self._has_begun = False
        self.error: RemoteProtocolError | None = None

    def feed(self, data: bytes) -> list[SlaveFrame]:
        """Take the stream's next bytes and return the frames that they complete.

        Frames before a malformed one are returned first; :attr:`error` is set then, and the
        next call raises it.

        Raises:
            HeaderMalformed: a state that no slave sends, an impossible flag, or a handshake after an
                acknowledgement: each of those would be looked at.
        """
        if self.error is not None:
            raise self.error
        data = self._pending + data if self._pending else data
        frames: list[SlaveFrame] = []
        position, size = 0, len(data)
        while size - position >= _STATE.size:
            state = _STATE.unpack_from(data, position)[0]
            need = _NEEDS.get(state)
            if need is None:
                self.error = HeaderMalformed(f"a slave sent state {state}")
                break
            if size - position < need:
                break
            if state == ConnectionState.TRANSFER:
                self._has_begun = True
                frames.append(Ack(_ACK.unpack_from(data, position)[1]))
            elif self._has_begun:
                self.error = HeaderMalformed("a slave presents itself after an acknowledgement")
                break
            else:
                _, last_file, learner, slave_id = _HANDSHAKE_REQUEST.unpack_from(data, position)
                frames.append(HandshakeRequest(slave_id, last_file == 1, learner == 1))
            position += need
        self._pending = data[position:] if self.error is None else b""
        if self.error is not None and not frames:
            raise self.error
        return frames


def without_passed(frames: list[SlaveFrame]) -> list[SlaveFrame]:
    """Of acknowledgements in a row the first and the last: each says more than those before it.

    The first of a connection says where the master goes on. A slave never has more than a few on
    their way, but 20,000 fit into what a master reads at once. The same holds for handshakes, which
    a slave of Java's repeats until it is answered.
    """
    if len(frames) < 3:
        return frames
    between = zip(frames, frames[1:], frames[2:], strict=False)
    kept = (two for one, two, three in between if not type(one) is type(two) is type(three))
    return [frames[0], *kept, frames[-1]]


_NEEDS = {
    int(ConnectionState.HANDSHAKE): _HANDSHAKE_REQUEST.size,
    int(ConnectionState.TRANSFER): _ACK.size,
}


class MasterFrameParser:
    """Reads what masters send, for a slave's connection.

    After the first transfer frame the next is taken for another, and its header is read in one
    piece; a handshake reply that comes instead may be shorter, and what was read beyond it is
    the beginning of the next header.

    Attributes:
        body_pending: body bytes of the current transfer frame that are still to come; while it
            is positive the stream's bytes belong to the log and not to :meth:`feed`.
    """

    __slots__ = ("_buffer", "_need", "body_pending")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._need = _HANDSHAKE_REPLY.size
        self.body_pending = 0

    @property
    def wanted(self) -> int:
        """Header bytes to read next; at most the rest of a header, or of a handshake's epochs."""
        return self._need - len(self._buffer)

    def body_received(self, size: int) -> None:
        """So many bytes of the body have arrived."""
        self.body_pending -= size

    def feed(self, data: bytes) -> MasterFrame | None:
        """Take at most :attr:`wanted` header bytes.

        Returns:
            A frame when these bytes complete one.

        Raises:
            HeaderMalformed: a state that no master sends, or epochs of a broken size.
            FrameTooLarge: a body over the limits, or of negative size.
        """
        self._buffer += data
        if len(self._buffer) < min(self._need, _HANDSHAKE_REPLY.size):
            return None
        state, body_size = _STATE_AND_SIZE.unpack_from(self._buffer)
        if state == ConnectionState.TRANSFER:
            return self._transfer(body_size)
        if state == ConnectionState.HANDSHAKE:
            return self._handshake(body_size)
        raise HeaderMalformed(f"a master sent state {state}")

    def _transfer(self, body_size: int) -> TransferHeader | None:
        if len(self._buffer) < TRANSFER_HEADER_BYTES:
            self._need = TRANSFER_HEADER_BYTES
            return None
        if not 0 <= body_size <= RECEIVED_BODY_BYTES_MAX:
            raise FrameTooLarge(f"body of {body_size} is outside 0..{RECEIVED_BODY_BYTES_MAX}")
        header = TransferHeader(*_TRANSFER.unpack(self._buffer)[1:])
        self.body_pending = body_size
        self._buffer = bytearray()
        self._need = TRANSFER_HEADER_BYTES
        return header

    def _handshake(self, body_size: int) -> HandshakeReply | None:
        start = _HANDSHAKE_REPLY.size
        if not 0 <= body_size <= EPOCH_ENTRIES_MAX * _EPOCH.size:
            raise FrameTooLarge(f"{body_size} bytes of epochs")
        if body_size % _EPOCH.size:
            raise HeaderMalformed(f"{body_size} bytes are no whole number of epochs")
        end = start + body_size
        if len(self._buffer) < end:
            self._need = end
            return None
        _, _, max_offset, last_epoch = _HANDSHAKE_REPLY.unpack_from(self._buffer)
        found = _EPOCH.iter_unpack(memoryview(bytes(self._buffer[start:end])))
        entries = tuple(EpochEntry(epoch, start) for epoch, start in found)
        self._buffer = self._buffer[end:]
        self._need = _HANDSHAKE_REPLY.size
        return HandshakeReply(max_offset, last_epoch, entries)
