"""The ``checkpoint`` file: how far each part was safe on disk when it was last written.

Java uses five longs and keeps the rest of the 4 096 bytes. Behind them rmqha keeps marks of its own:
the exact offsets before which the commit log was durable, before which the consume queues were, and
at which a log began that does not begin at 0, each sealed by a CRC over Java's five longs and itself.
Once a Java broker has written its longs anew, the seals no longer fit and the marks count as absent.

Source: RocketMQ's protocol as observed.
"""

from __future__ import annotations

import struct
import zlib

from msgspec import Struct

ABORT = "abort"
"""The file beside it that is there while a broker has the store open; also Java's."""

SIZE = 4096
MARK, INDEXED_MARK, BEGIN_MARK = b"RHA1", b"RHA2", b"RHA3"
SLACK_MS = 3_000
"""Java subtracts it: a record's stamp may be a little older than its flush."""

_LONGS = struct.Struct(">5q")
_MARK_AT = 64
_MARK = struct.Struct(">4sIq")
_INDEXED_AT = _MARK_AT + _MARK.size
_BEGIN_AT = _INDEXED_AT + _MARK.size


class Checkpoint(Struct):
    """The content of the file.

    Attributes:
        physic_msg_timestamp: store timestamp, ms, of the newest durable record.
        logics_msg_timestamp: the same for the consume queues.
        index_msg_timestamp: the same for the index files.
        master_flushed_offset: kept as found.
        confirm_offset: see ``ReplicatedLog.confirm_offset``; -1 when never set.
        flushed_offset: the commit log's whole records were durable up to here; None when nobody knows, because
            Java wrote last.
        indexed_offset: units of all records before it were durable; None as above, and for files of
            earlier releases.
        begin_offset: where a log began that does not begin at 0, durable or not; None as above, and for
            other logs.
    """

    physic_msg_timestamp: int = 0
    logics_msg_timestamp: int = 0
    index_msg_timestamp: int = 0
    master_flushed_offset: int = 0
    confirm_offset: int = -1
    flushed_offset: int | None = None
    indexed_offset: int | None = None
    begin_offset: int | None = None

    @property
    def min_timestamp(self) -> int:
        """Records stored before it are durable in the log and in the queues; ms, 0 for none."""
        return max(0, min(self.physic_msg_timestamp, self.logics_msg_timestamp) - SLACK_MS)

    @property
    def durable_timestamp(self) -> int:
        """Records stored before it are durable in the log; ms, 0 for none."""
        return max(0, self.physic_msg_timestamp - SLACK_MS)

    def longs(self) -> bytes:
        """Java's five longs."""
        return _LONGS.pack(
            self.physic_msg_timestamp, self.logics_msg_timestamp, self.index_msg_timestamp,
            self.master_flushed_offset, self.confirm_offset,
        )  # fmt: skip


def write_into(buffer: memoryview | bytearray, checkpoint: Checkpoint) -> None:
    """Write the used bytes of the file."""
    longs = checkpoint.longs()
    buffer[: len(longs)] = longs
    for at, word, offset in (
        (_MARK_AT, MARK, checkpoint.flushed_offset),
        (_INDEXED_AT, INDEXED_MARK, checkpoint.indexed_offset),
        (_BEGIN_AT, BEGIN_MARK, checkpoint.begin_offset),
    ):
        mark = bytes(_MARK.size)
        if offset is not None:
            mark = _MARK.pack(word, _seal(longs, offset), offset)
        buffer[at : at + _MARK.size] = mark


def read(data: bytes | memoryview) -> Checkpoint:
    """Read the file; a shorter one counts as filled up with zeros."""
    padded = bytes(data[:SIZE]).ljust(SIZE, b"\x00")
    longs = padded[: _LONGS.size]
    physic, logics, index, master_flushed, confirm = _LONGS.unpack(longs)
    return Checkpoint(
        physic, logics, index, master_flushed, confirm,
        _marked(padded, _MARK_AT, MARK), _marked(padded, _INDEXED_AT, INDEXED_MARK),
        _marked(padded, _BEGIN_AT, BEGIN_MARK),
    )  # fmt: skip


def _marked(data: bytes, at: int, word: bytes) -> int | None:
    """The offset of a mark; None when it is absent."""
    mark, seal, offset = _MARK.unpack_from(data, at)
    return offset if mark == word and seal == _seal(data[: _LONGS.size], offset) else None


def _seal(longs: bytes, flushed: int) -> int:
    return zlib.crc32(longs + flushed.to_bytes(8, signed=True))
