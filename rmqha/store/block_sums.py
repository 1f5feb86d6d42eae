"""Sums of a log's blocks: what 64 KiB of it were when this process wrote them, or had proven them.

A file of sums stands beside each file of the log. A block that still has its sum is what it was, all
of it; that takes a tenth of the time that its records take, one by one. A sum is never trusted to
say more: where there is none, or another one, the records themselves are judged.

Integers of the files are big-endian; ``layout.BLOCK_SUMS`` draws them.
"""

from __future__ import annotations

import struct
import sys
from array import array
from typing import NamedTuple

from rmqha.store import segments
from rmqha.store.crc import crc32

BLOCK_BYTES = 65_536
MAGIC = b"RHBS"
SUMS_VERSION = 1
NO_START = 0xFFFFFFFF

_HEAD = struct.Struct(">4sIqqII")  # magic, version, start, file size, block bytes, blocks
_CRC = struct.Struct(">I")


class Summed(NamedTuple):
    """A block, or its first part, whose sum is known: physical offsets, and the CRC-32 of its bytes."""

    begin: int
    end: int
    crc: int


class FileSums:
    """The sums of one file's blocks.

    Attributes:
        lengths: of so many first bytes of each block; 0 where there is no sum.
        crcs: of those bytes.
        starts: where in each block a record is known to begin; ``NO_START`` where none is.
        unsaved: how many sums are not in a file yet.
    """

    __slots__ = ("crcs", "lengths", "starts", "unsaved")

    def __init__(self, count: int) -> None:
        self.lengths = array("I", bytes(4 * count))
        self.crcs = array("I", bytes(4 * count))
        self.starts = array("I", b"\xff" * (4 * count))
        self.unsaved = 0


class BlockSums:
    """The sums of one log, as far as they are in memory.

    Args:
        file_size: of the log's files, bytes.

    Attributes:
        files: by the offset at which each file begins.
    """

    def __init__(self, file_size: int, block_bytes: int = BLOCK_BYTES) -> None:
        self._file_size = file_size
        self._block_bytes = block_bytes
        self.blocks = -(-file_size // block_bytes)
        self.files: dict[int, FileSums] = {}

    def file_of(self, offset: int) -> int:
        """Where the file begins that holds ``offset``."""
        return segments.floor(offset, self._file_size)

    def bounds(self, offset: int) -> tuple[int, int]:
        """The block that holds ``offset``."""
        start = self.file_of(offset)
        begin = start + segments.floor(offset - start, self._block_bytes)
        return begin, min(begin + self._block_bytes, start + self._file_size)

    def find(self, offset: int) -> Summed | None:
        """The sum that covers the byte at ``offset``."""
        begin, _ = self.bounds(offset)
        file, number = self._at(begin)
        if file is None or begin + file.lengths[number] <= offset:
            return None
        return Summed(begin, begin + file.lengths[number], file.crcs[number])

    def put(self, summed: Summed) -> None:
        """Remember the sum of a block, or of its first part."""
        start = self.file_of(summed.begin)
        file = self.files.get(start)
        if file is None:
            file = self.files[start] = FileSums(self.blocks)
        number = (summed.begin - start) // self._block_bytes
        file.lengths[number], file.crcs[number] = summed.end - summed.begin, summed.crc
        file.unsaved += 1

    def record_starts(self, offset: int) -> None:
        """A record begins at ``offset``, or will; kept where the file's sums are in memory."""
        begin, _ = self.bounds(offset)
        file, number = self._at(begin)
        if file is not None:
            file.starts[number] = offset - begin

    def is_start(self, offset: int) -> bool:
        """Whether a record is known to begin at ``offset``."""
        begin, _ = self.bounds(offset)
        file, number = self._at(begin)
        return file is not None and file.starts[number] == offset - begin

    def start_before(self, offset: int) -> int | None:
        """The last place before ``offset``, in its file, at which a record is known to begin."""
        begin, _ = self.bounds(offset)
        file, number = self._at(begin)
        if file is None:
            return None
        start = self.file_of(offset)
        for at in range(number, -1, -1):
            within = file.starts[at]
            found = start + at * self._block_bytes + within
            if within != NO_START and found < offset:
                return found
        return None

    def cut(self, offset: int) -> bool:
        """The log ends at ``offset`` now; whether a sum went that a file may have.

        Of files that are in memory: those that begin behind it are not asked for any more.
        """
        for start in [one for one in self.files if one >= offset]:
            del self.files[start]
        file = self.files.get(self.file_of(offset))
        if file is None:
            return False
        begin, _ = self.bounds(offset)
        first = (begin - self.file_of(offset)) // self._block_bytes
        lost = False
        for number in range(first, self.blocks):
            at = begin + (number - first) * self._block_bytes
            if file.lengths[number] > max(0, offset - at):
                file.lengths[number], lost = 0, True
            if file.starts[number] != NO_START and at + file.starts[number] > offset:
                file.starts[number] = NO_START
        return lost

    def _at(self, begin: int) -> tuple[FileSums | None, int]:
        start = self.file_of(begin)
        return self.files.get(start), (begin - start) // self._block_bytes

    def encode(self, start: int) -> bytes:
        """The content of the file of sums of the log's file that begins at ``start``."""
        one = self.files[start]
        head = _HEAD.pack(
            MAGIC, SUMS_VERSION, start, self._file_size, self._block_bytes, self.blocks
        )
        data = b"".join((head, *map(_big_endian, (one.lengths, one.crcs, one.starts))))
        return data + _CRC.pack(crc32(data))

    def decode(self, start: int, data: bytes) -> FileSums | None:
        """The same read again; None for another file's, another layout's, or a damaged one."""
        count = self.blocks
        if len(data) != _HEAD.size + 12 * count + _CRC.size:
            return None
        head = (MAGIC, SUMS_VERSION, start, self._file_size, self._block_bytes, count)
        if _HEAD.unpack_from(data) != head or _CRC.unpack(data[-4:])[0] != crc32(data[:-4]):
            return None
        one = FileSums(count)
        parts = (data[_HEAD.size + 4 * count * part :][: 4 * count] for part in range(3))
        one.lengths, one.crcs, one.starts = map(_from_big_endian, parts)
        return one


def _big_endian(words: array[int]) -> bytes:
    if sys.byteorder == "little":
        words = words[:]
        words.byteswap()
    return words.tobytes()


def _from_big_endian(data: bytes) -> array[int]:
    words = array("I", data)
    if sys.byteorder == "little":
        words.byteswap()
    return words
