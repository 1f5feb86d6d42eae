"""The bytes of the write-ahead log and of snapshots: frames, records, recovery. No IO.

A segment is a run of frames, one frame for one fdatasync::

    offset 0   magic       4 bytes  b"RQW2"
           4   length      u32 be   bytes of the payload
           8   crc32       u32 be   of seq and payload
          12   seq         u64 be   grows by one with each frame, over all segments
          20   header crc  u32 be   of the 20 bytes before it
          24   zeros       8 bytes
          32   payload              msgpack list of records
               end         1 byte   0xC1, which msgpack never uses
               padding              zeros up to a multiple of 32

Records: ``[0, format, cluster, node, term, vote, standing]`` opens a segment, ``[1, term, vote,
standing]`` is a hard state, ``[2, index, term, data]`` an entry (it cuts whatever the log held
from its index on), ``[3, index, term]`` restarts the log behind a snapshot. A standing is
``[kind, store id, [[node, store id], ...]]``.

Behind the last frame of a segment there may be zeros, written ahead of time. A frame is written
only after the one before it is durable, so a bad frame with a good one behind it was durable once
and is damaged. The last frame may be bad for two reasons: the power failed before it was synced
(torn: nobody was told that it is there, it may be cut), or it was durable, was answered for, and
is damaged. Disks write sectors of 512 bytes whole or not at all, so in a torn frame at least one
sector is still what it was before, zeros or beyond the end of the file; and no sector of a whole
frame is all zeros, but where a record itself holds as many. Headers never cross a sector, as
frames begin at multiples of 32. A bad frame of which every sector was written is damaged
(ADR 0018).

Format 1 (magic ``RQW1``, a header of 20 bytes, multiples of 8) is read and never written; there a
bad last frame counts as torn. A snapshot file is one frame with the magic ``RQS1`` and the
payload ``[format, cluster, index, term, data]``.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import msgpack
import msgspec
from msgspec import Struct, field

from rmqha.base.errors import StoreCorrupted, StoreMismatch
from rmqha.base.ids import Term
from rmqha.controller.raft.events import HardState, SnapshotMeta, Standing
from rmqha.controller.raft.messages import BoundedTerm, Count, Entry

FORMAT = 2
WAL_MAGIC = b"RQW2"
WAL_MAGIC_1 = b"RQW1"
SNAPSHOT_MAGIC = b"RQS1"
SNAPSHOT_FORMAT = 1
SEGMENT_SUFFIX = ".wal"
SNAPSHOT_SUFFIX = ".snapshot"
HEADER = struct.Struct(">4sIIQ")
HEADER_CRC = struct.Struct(">I8x")
WHOLE_HEADER = struct.Struct(">4sIIQI8x")
ALIGNMENT_1 = 8
ALIGNMENT = 32
SECTOR = 512
SLICE_BYTES = 1 << 20
"""Of a snapshot, so many are read for a checksum before others get a turn."""

END = b"\xc1"
OPEN, HARD, ENTRY, RESET = 0, 1, 2, 3

Record = tuple[object, ...]


def magic_of(segment: bytes) -> bytes:
    """With which magic the frames of a segment begin."""
    return WAL_MAGIC_1 if segment.startswith(WAL_MAGIC_1) else WAL_MAGIC


def encode_frame(magic: bytes, seq: int, payload: bytes) -> bytes:
    """One frame with its padding; the one of a log has a header that is checked by itself."""
    crc = zlib.crc32(payload, zlib.crc32(seq.to_bytes(8, "big")))
    header = HEADER.pack(magic, len(payload), crc, seq)
    if magic != WAL_MAGIC:
        return header + payload + bytes(-(HEADER.size + len(payload)) % ALIGNMENT_1)
    frame = b"".join((header, HEADER_CRC.pack(zlib.crc32(header)), payload, END))
    return frame + bytes(-len(frame) % ALIGNMENT)


def decode_frame(data: memoryview, offset: int, magic: bytes) -> tuple[int, memoryview, int] | None:
    """The frame at ``offset``: its seq, payload and end; None when there is no whole good one."""
    if offset + HEADER.size > len(data):
        return None
    found, length, crc, seq = HEADER.unpack_from(data, offset)
    second = magic == WAL_MAGIC
    start = offset + (ALIGNMENT if second else HEADER.size)
    end = start + length
    if found != magic or end > len(data):
        return None
    if second and not (_header_is_good(data, offset) and _is_closed(data, end)):
        return None
    payload = data[start:end]
    if zlib.crc32(payload, zlib.crc32(seq.to_bytes(8, "big"))) != crc:
        return None
    if second:
        return seq, payload, _padded(end)
    return seq, payload, end + -(end - offset) % ALIGNMENT_1


def _padded(end: int) -> int:
    """Where a frame with a payload up to ``end`` ends, its last byte and padding included."""
    end += len(END)
    return end + -end % ALIGNMENT


def _is_closed(data: memoryview, end: int) -> bool:
    """Whether a payload's last byte and all of its padding are there."""
    return _padded(end) <= len(data) and data[end] == END[0]


def _header_is_good(data: memoryview, offset: int) -> bool:
    header = data[offset : offset + HEADER.size]
    found = data[offset + HEADER.size : offset + ALIGNMENT]
    return len(found) == HEADER_CRC.size and HEADER_CRC.unpack(found)[0] == zlib.crc32(header)


def is_torn(data: memoryview, offset: int) -> bool:
    """Whether the bad frame at ``offset`` was never whole: one of its sectors was not written."""
    header = data[offset : offset + ALIGNMENT]
    if len(header) < ALIGNMENT or not any(header):
        return True
    if not _header_is_good(data, offset):
        return False
    end = offset + ALIGNMENT + HEADER.unpack_from(data, offset)[1]
    if _padded(end) > len(data):
        return True
    end += len(END)
    sector = offset - offset % SECTOR + SECTOR
    while sector < end:
        if not any(data[sector : min(sector + SECTOR, end)]):
            return True
        sector += SECTOR
    return False


def encode_records(records: list[Record]) -> bytes:
    """The payload of one frame."""
    packed: bytes = msgpack.packb(records, use_bin_type=True)
    return packed


def open_record(cluster: str, node: str, hard_state: HardState) -> Record:
    """The first record of a segment."""
    return (OPEN, FORMAT, cluster, node, *hard_state)


def hard_record(hard_state: HardState) -> Record:
    """A hard state."""
    return (HARD, *hard_state)


class _EntryRecord(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=ENTRY):
    """The record of an entry, to be read."""

    log_index: Count
    term: BoundedTerm
    data: bytes


_decode_entries = msgspec.msgpack.Decoder(list[_EntryRecord]).decode


ASIDE_MARK = "setting-aside"
"""A file beside the segments while a damaged store is set aside: what is there is no whole log."""


class Segment(Struct):
    """A segment that recovery has read."""

    name: str
    last_index: int
    """The highest entry index in it, 0 when it holds none."""


class Recovered(Struct):
    """What the segments say, record by record in order.

    Attributes:
        end: the last segment's name and good bytes; None when it has none.
        torn: what is cut is a torn frame, and not only zeros written ahead.
        empty_last: name of a last segment that does not even hold its opening record.
        old_last: the last segment has format 1: nothing may be appended to it.
    """

    hard_state: HardState = field(default_factory=HardState)
    base: tuple[int, Term] | None = None
    entries: list[Entry] = field(default_factory=list)
    next_seq: int = 1
    segments: list[Segment] = field(default_factory=list)
    end: tuple[str, int] | None = None
    torn: bool = False
    empty_last: str | None = None
    old_last: bool = False


class Recovery:
    """Reads segments in order and checks all that can be checked.

    Args:
        cluster, node: whose store this must be.
        forgiving: a damaged last frame is cut as a torn one is.
    """

    def __init__(self, cluster: str, node: str, *, forgiving: bool = False) -> None:
        self._cluster = cluster
        self._node = node
        self._forgiving = forgiving
        self._expected_seq: int | None = None
        self.result = Recovered()

    def read_segment(self, name: str, data: bytes, *, is_last: bool) -> None:
        """Take in one segment.

        Raises:
            StoreCorrupted: a damaged frame with acknowledged frames behind it, or a missing one.
            StoreMismatch: another cluster's or node's store, or a newer format.
        """
        view = memoryview(data)
        offset = 0
        segment = Segment(name, 0)
        magic = magic_of(data)
        while offset < len(view):
            if magic == WAL_MAGIC:
                offset = self._read_entries(data, offset, segment)
                if offset >= len(view):
                    break
            frame = decode_frame(view, offset, magic)
            if frame is None:
                self._bad_frame(name, view, offset, magic, is_last=is_last)
                break
            seq, payload, end = frame
            if self._expected_seq not in (None, seq):
                raise StoreCorrupted(
                    f"{name} at byte {offset}: frame {seq} follows, frame {self._expected_seq}"
                    " is missing"
                )
            self._expected_seq = seq + 1
            self.result.next_seq = seq + 1
            for record in self._records(name, offset, payload):
                self._take(name, segment, record)
            offset = end
        if offset == 0 and not is_last:
            raise StoreCorrupted(f"{name} is empty, but segments follow it")
        if offset == 0:
            self.result.empty_last = name
        else:
            self.result.segments.append(segment)
            self.result.end = (name, min(offset, len(view)))
            self.result.old_last = magic == WAL_MAGIC_1

    def _bad_frame(
        self, name: str, view: memoryview, offset: int, magic: bytes, *, is_last: bool
    ) -> None:
        rest = view[offset:]
        if rest == bytes(len(rest)) and (offset > 0 or is_last):
            # A frame that is missing here shows by the number of the one that follows.
            return
        behind = next_good_frame(view, offset + 1, magic)
        if behind is not None or not is_last:
            where = f"a good frame follows at byte {behind}" if behind else "segments follow it"
            raise StoreCorrupted(
                f"{name} at byte {offset}: damaged frame in the middle of the log ({where})"
            )
        if magic == WAL_MAGIC and not self._forgiving and not is_torn(view, offset):
            raise StoreCorrupted(
                f"{name} at byte {offset}: the last frame is damaged, not torn: each of its"
                " sectors was written, so others may have been told of it"
            )
        self.result.torn = True

    def _read_entries(self, data: bytes, offset: int, segment: Segment) -> int:
        """Take in frames that are good, follow, and hold nothing but entries that follow.

        Nearly all of a long log is so, and is read five times faster here. Whatever is otherwise
        is left to ``read_segment``.

        Returns:
            Where the first other frame begins, or the end.
        """
        entries, expected = self.result.entries, self._expected_seq
        if not entries or expected is None:
            return offset
        before, following, append = len(entries), entries[-1].log_index + 1, entries.append
        unpack, crc32, size = WHOLE_HEADER.unpack_from, zlib.crc32, len(data)
        while offset + ALIGNMENT <= size:
            magic, length, crc, seq, header_crc = unpack(data, offset)
            start = offset + ALIGNMENT
            end = start + length
            after = end + 1 + -(end + 1) % ALIGNMENT
            if magic != WAL_MAGIC or seq != expected or after > size or data[end] != END[0]:
                break
            payload = data[start:end]
            if crc32(payload, crc32(data[offset + 12 : offset + 20])) != crc:
                break
            if crc32(data[offset : offset + 20]) != header_crc:
                break
            try:
                found = _decode_entries(payload)
            except (msgspec.DecodeError, UnicodeDecodeError):
                break
            count = len(entries)
            for one in found:
                if one.log_index != following:
                    break
                append(Entry(following, one.term, one.data))
                following += 1
            else:
                expected += 1
                offset = after
                continue
            del entries[count:]
            break
        if len(entries) > before:
            segment.last_index = max(segment.last_index, entries[-1].log_index)
        self._expected_seq = self.result.next_seq = expected
        return offset

    def _records(self, name: str, offset: int, payload: memoryview) -> list[list[object]]:
        try:
            records = msgpack.unpackb(payload, raw=False)
        except (ValueError, msgpack.UnpackException) as error:
            raise StoreCorrupted(f"{name} at byte {offset}: {error}") from error
        if not isinstance(records, list):
            raise StoreCorrupted(f"{name} at byte {offset}: not a list of records")
        return records

    def _take(self, name: str, segment: Segment, record: list[object]) -> None:
        result = self.result
        match record:
            case [0, int(version), *_] if version > FORMAT:
                raise StoreMismatch(
                    f"{name} has format {version}; this release reads up to {FORMAT}"
                )
            case [0, int(), str(cluster), str(node), int(term), (str() | None) as vote]:
                self._check_owner(cluster, node)
                result.hard_state = HardState(Term(term), vote)
            case [0, int(), str(cluster), str(node), int(term), (str() | None) as vote, standing]:
                self._check_owner(cluster, node)
                result.hard_state = HardState(Term(term), vote, _standing(name, standing))
            case [1, int(term), (str() | None) as vote]:
                result.hard_state = HardState(Term(term), vote, result.hard_state.standing)
            case [1, int(term), (str() | None) as vote, standing]:
                result.hard_state = HardState(Term(term), vote, _standing(name, standing))
            case [2, int(index), int(term), bytes(data)]:
                self._entry(name, Entry(index, Term(term), data))
                segment.last_index = max(segment.last_index, index)
            case [3, int(index), int(term)]:
                result.base = (index, Term(term))
                result.entries = []
            case _:
                raise StoreCorrupted(f"{name}: unknown record {str(record)[:80]}")

    def _check_owner(self, cluster: str, node: str) -> None:
        if (cluster, node) != (self._cluster, self._node):
            raise StoreMismatch(
                f"the store belongs to node {node} of group {cluster}, this is node"
                f" {self._node} of group {self._cluster}"
            )

    def _entry(self, name: str, entry: Entry) -> None:
        entries = self.result.entries
        while entries and entries[-1].log_index >= entry.log_index:
            entries.pop()
        base = self.result.base
        last = entries[-1].log_index if entries else (base[0] if base else None)
        if last is not None and entry.log_index != last + 1:
            raise StoreCorrupted(f"{name}: entry {entry.log_index} follows entry {last}")
        entries.append(entry)


def _standing(name: str, packed: object) -> Standing:
    match packed:
        case [str(kind), str(store_id), list(founders)] if all(map(_is_founder, founders)):
            return Standing(kind, store_id, tuple((node, store) for node, store in founders))
        case _:
            raise StoreCorrupted(f"{name}: unknown standing {str(packed)[:80]}")


def _is_founder(packed: object) -> bool:
    match packed:
        case [str(), str()]:
            return True
        case _:
            return False


def next_good_frame(view: memoryview, offset: int, magic: bytes) -> int | None:
    """The first offset from here on at which a whole good frame begins."""
    alignment = ALIGNMENT if magic == WAL_MAGIC else ALIGNMENT_1
    offset += -offset % alignment
    for position in range(offset, len(view) - HEADER.size, alignment):
        if view[position] == magic[0] and decode_frame(view, position, magic) is not None:
            return position
    return None


def join_snapshot(
    recovered: Recovered, snapshot: SnapshotMeta
) -> tuple[int, Term, list[Entry], bool]:
    """Fit the log to the snapshot.

    Returns:
        Base index, base term, entries after it, and whether the log must be restarted on disk
        behind the snapshot (it does not hold the snapshot's last entry, so what follows in it may
        conflict with the snapshot).

    Raises:
        StoreCorrupted: entries between snapshot and log are missing.
    """
    entries, base = recovered.entries, recovered.base
    first = entries[0].log_index if entries else None
    last = snapshot.last_index
    if base is not None and base[0] >= last:
        if base[0] > last:
            raise StoreCorrupted(
                f"the log starts after entry {base[0]}, but the newest snapshot ends at {last}"
            )
        return base[0], base[1], entries, False
    if first is None:
        return last, snapshot.term, [], last > 0 and base is not None
    if first > last + 1:
        raise StoreCorrupted(f"the log starts at entry {first}, but the snapshot ends at {last}")
    if first == last + 1:
        return last, snapshot.term, entries, False
    held = entries[last - first] if last - first < len(entries) else None
    if held is None or held.term != snapshot.term:
        return last, snapshot.term, [], True
    return first, entries[0].term, entries[1:], False


def digest(data: bytes) -> int:
    """What a snapshot's bytes are known by, from who made it to who loads it: a CRC-32."""
    return zlib.crc32(data)


class SnapshotEncoder:
    """Makes a snapshot file a slice at a time, for a large one takes as long as many requests.

    Args:
        cluster, meta_index, meta_term: whose snapshot, and of which entry.
        data: the state.
    """

    def __init__(self, cluster: str, meta_index: int, meta_term: Term, data: bytes) -> None:
        fields = (SNAPSHOT_FORMAT, cluster, meta_index, meta_term, b"")
        empty: bytes = msgpack.packb(fields, use_bin_type=True)
        self._head = empty[: -len(_bytes_header(0))] + _bytes_header(len(data))
        self._seq = meta_index
        self._data = data
        self._crc = zlib.crc32(self._head, zlib.crc32(meta_index.to_bytes(8, "big")))
        self.digest = digest(b"")

    def slices(self) -> Iterator[None]:
        """Read the data; yields where others may have a turn."""
        view = memoryview(self._data)
        for start in range(0, len(view), SLICE_BYTES):
            if start:
                yield
            part = view[start : start + SLICE_BYTES]
            self.digest = zlib.crc32(part, self.digest)
            self._crc = zlib.crc32(part, self._crc)

    def content(self) -> bytes:
        """The file, once all slices have been read."""
        size = len(self._head) + len(self._data)
        header = HEADER.pack(SNAPSHOT_MAGIC, size, self._crc, self._seq)
        padding = bytes(-(HEADER.size + size) % ALIGNMENT_1)
        return b"".join((header, self._head, self._data, padding))


def _bytes_header(size: int) -> bytes:
    """What msgpack writes in front of so many bytes."""
    if size < 1 << 8:
        return b"\xc4" + size.to_bytes(1, "big")
    if size < 1 << 16:
        return b"\xc5" + size.to_bytes(2, "big")
    return b"\xc6" + size.to_bytes(4, "big")


def decode_snapshot(name: str, content: bytes, cluster: str) -> tuple[int, Term, bytes]:
    """Index, term and data of a snapshot file.

    Raises:
        StoreCorrupted: damaged.
        StoreMismatch: another cluster's, or of a newer format.
    """
    frame = decode_frame(memoryview(content), 0, SNAPSHOT_MAGIC)
    if frame is None:
        raise StoreCorrupted(f"{name}: the snapshot is damaged; nothing was changed")
    try:
        version, owner, index, term, data = msgpack.unpackb(frame[1], raw=False)
    except (TypeError, ValueError, msgpack.UnpackException) as error:
        raise StoreCorrupted(f"{name}: {error}") from error
    if not all(type(one) is int for one in (version, index, term)) or type(data) is not bytes:
        raise StoreCorrupted(f"{name}: a good checksum, but no snapshot of this program")
    if version > SNAPSHOT_FORMAT:
        raise StoreMismatch(
            f"{name} has format {version}; this release reads up to {SNAPSHOT_FORMAT}"
        )
    if owner != cluster:
        raise StoreMismatch(f"{name} belongs to group {owner}, this is group {cluster}")
    return index, Term(term), data
