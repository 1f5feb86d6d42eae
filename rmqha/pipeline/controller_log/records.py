"""A controller's store as rows: every record of its log, every snapshot, and what cannot be read.

Reads only, and nothing is locked: the directory may belong to a running controller. Where the
controller itself refuses a damaged store, this goes on behind the damage and tells of it: a row
with ``_corrupt`` says where, how much and why.

Source: ``controller/raft/wal_layout.py``, ``controller/metadata/events.py``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, BinaryIO

import msgpack
import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from rmqha.base.errors import ConfigInvalid, StoreCorrupted, StoreMismatch
from rmqha.controller.metadata import events
from rmqha.controller.metadata.snapshot import from_snapshot
from rmqha.controller.raft import members
from rmqha.controller.raft import wal_layout as layout

STORE_FOLDER = "rmqha"
"""What a controller makes in ``controllerStorePath``."""
LIST_ATTEMPTS_MAX = 10
"""So often a directory is listed anew because a running controller has removed a file of it."""

TORN = "a torn tail: it was never acknowledged"
OPEN, HARD_STATE, RESET = "Open", "HardState", "Reset"
LEADER, SNAPSHOT, MEMBERS = "Leader", "Snapshot", "Members"
MARKED, COMPARED = "StateMarked", "StateCompared"


class Row(Struct, frozen=True):
    """One record of a controller's store, or one place that holds none.

    Attributes:
        replica: the directory's name.
        segment: the file.
        position: of the frame in it, bytes.
        number: of the record in its frame, from 0.
        size: bytes of the frame, or of the damaged place.
        index, term: of an entry or a snapshot; of a restart, where the log goes on behind.
        kind: an event's name, ``Leader`` (the empty entry that opens a term), ``StateMarked`` and
            ``StateCompared`` (where nodes compare their states, and by what), ``Members`` (who is
            in the group from there on), ``Snapshot``,
            ``Reset`` (the log was restarted behind a snapshot), ``HardState`` (term and vote),
            ``Open`` (whose log it is); None for damage.
        broker_set: of an event.
        fields: what the record says, as JSON.
        corrupt: why no record could be made of these bytes.
    """

    replica: str
    segment: str
    position: int
    number: int
    size: int
    index: int | None = None
    term: int | None = None
    kind: str | None = None
    broker_set: str | None = None
    fields: str | None = None
    corrupt: str | None = None


def find_store(root: str) -> str:
    """The directory of log and snapshots: ``root``, or the one that a controller makes in it.

    Raises:
        ConfigInvalid: it is not there, or holds neither log nor snapshot.
    """
    if not os.path.isdir(root):
        raise ConfigInvalid(f"{root}: no such directory")
    for folder in (root, os.path.join(root, STORE_FOLDER)):
        if os.path.isdir(folder) and any(_is_ours(name) for name in os.listdir(folder)):
            return folder
    raise ConfigInvalid(
        f"{root}: no controller's store, for neither it nor {STORE_FOLDER} in it has"
        f" *{layout.SEGMENT_SUFFIX} or *{layout.SNAPSHOT_SUFFIX}"
    )


def read_store(root: str, name: str) -> Iterator[Row]:
    """Everything that a store holds: segments in their order, then snapshots.

    Args:
        root: the directory of log and snapshots.
        name: for the rows.

    Raises:
        OSError: a file cannot be read.
    """
    with ExitStack() as stack:
        # Files that compaction removes from here on can still be read.
        files = _open_all(root, stack)
        reader = _Reader(name)
        segments = [one for one in files if one.endswith(layout.SEGMENT_SUFFIX)]
        for segment in segments:
            data = files[segment].read()
            yield from reader.segment(segment, data, is_last=segment == segments[-1])
        for file in files:
            if file.endswith(layout.SNAPSHOT_SUFFIX):
                yield reader.snapshot(file, files[file].read())


def _is_ours(name: str) -> bool:
    stem, dot, suffix = name.rpartition(".")
    return dot + suffix in (layout.SEGMENT_SUFFIX, layout.SNAPSHOT_SUFFIX) and stem.isdecimal()


def _open_all(root: str, stack: ExitStack) -> dict[str, BinaryIO]:
    for attempt in range(LIST_ATTEMPTS_MAX):
        names = sorted(name for name in os.listdir(root) if _is_ours(name))
        try:
            return {
                name: stack.enter_context(open(os.path.join(root, name), "rb")) for name in names
            }
        except FileNotFoundError:
            if attempt == LIST_ATTEMPTS_MAX - 1:
                raise
    raise AssertionError("the loop returns or raises")


class _Reader:
    """What one pass over a store must remember: whose it is, and which frame comes next."""

    def __init__(self, replica: str) -> None:
        self._replica = replica
        self._owner: tuple[str, str] | None = None
        self._next_seq: int | None = None

    def segment(self, name: str, data: bytes, *, is_last: bool) -> Iterator[Row]:
        view, at, magic = memoryview(data), 0, layout.magic_of(data)
        while at < len(view):
            frame = layout.decode_frame(view, at, magic)
            if frame is None:
                behind = layout.next_good_frame(view, at + 1, magic)
                stop = len(view) if behind is None else behind
                if any(view[at:stop]) or (behind is not None):
                    torn = is_last and behind is None
                    if magic == layout.WAL_MAGIC:
                        torn = torn and layout.is_torn(view, at)
                    yield self._bad(name, at, stop, torn=torn)
                self._next_seq = self._next_seq if behind is None and is_last else None
                at = stop
                continue
            seq, payload, end = frame
            if self._next_seq not in (None, seq):
                text = f"frame {seq} follows: frame {self._next_seq} is missing"
                yield self._row(name, at, 0, 0, corrupt=text)
            self._next_seq = seq + 1
            yield from self._frame(name, at, payload, min(end, len(view)) - at)
            at = end
        if not data and not is_last:
            yield self._row(name, 0, 0, 0, corrupt="empty, but segments follow it")

    def snapshot(self, name: str, data: bytes) -> Row:
        try:
            cluster = self._owner[0] if self._owner else _group_of(data)
            index, term, content = layout.decode_snapshot(name, data, cluster)
            _, state = from_snapshot(members.from_snapshot(content)[1])
        except (StoreCorrupted, StoreMismatch, TypeError, ValueError) as error:
            # Wrong kinds of values behind a good checksum are a foreign writer's.
            return self._row(name, 0, 0, len(data), corrupt=f"no snapshot of ours: {error}")
        return self._row(
            name, 0, 0, len(data), index=index, term=term, kind=SNAPSHOT,
            fields=msgspec.json.encode(state.to_snapshot()).decode(),
        )  # fmt: skip

    def _bad(self, name: str, at: int, stop: int, *, torn: bool) -> Row:
        reason = TORN if torn else "damaged frames"
        return self._row(name, at, 0, stop - at, corrupt=reason)

    def _frame(self, name: str, at: int, payload: memoryview, size: int) -> Iterator[Row]:
        try:
            records = msgpack.unpackb(payload, raw=False)
        except (ValueError, msgpack.UnpackException) as error:
            records = error
        if not isinstance(records, list):
            yield self._row(name, at, 0, size, corrupt=f"a frame that holds no records: {records}")
            return
        for number, record in enumerate(records):
            try:
                found = self._record(record)
            except (StoreCorrupted, StoreMismatch) as error:
                found = {"corrupt": str(error)}
            yield self._row(name, at, number, size, **found)

    def _record(self, record: object) -> dict[str, Any]:
        """The fields of a row; raises StoreCorrupted, StoreMismatch."""
        match record:
            case [layout.OPEN, int(version), *_] if version > layout.FORMAT:
                raise StoreMismatch(f"format {version}; this release reads up to {layout.FORMAT}")
            case [
                layout.OPEN,
                int(),
                str(cluster),
                str(node),
                int(term),
                (str() | None) as vote,
                *standing,
            ]:
                owner = (cluster, node)
                self._owner = self._owner or owner
                if owner != self._owner:
                    raise StoreMismatch(
                        f"a segment of node {node} of group {cluster} in the store of node"
                        f" {self._owner[1]} of group {self._owner[0]}"
                    )
                said = {"group": cluster, "node": node, "vote": vote, **_standing(standing)}
                return {"term": term, "kind": OPEN, "fields": _json(said)}
            case [layout.HARD, int(term), (str() | None) as vote, *standing]:
                said = {"vote": vote, **_standing(standing)}
                return {"term": term, "kind": HARD_STATE, "fields": _json(said)}
            case [layout.ENTRY, int(index), int(term), bytes(data)]:
                return {"index": index, "term": term, **_entry(data)}
            case [layout.RESET, int(index), int(term)]:
                return {"index": index, "term": term, "kind": RESET}
            case _:
                raise StoreCorrupted(f"unknown record {str(record)[:80]}")

    def _row(self, segment: str, position: int, number: int, size: int, **fields: Any) -> Row:
        return Row(self._replica, segment, position, number, size, **fields)


def _standing(packed: list[object]) -> dict[str, object]:
    """The kind of a standing, which format 1 does not have."""
    match packed:
        case [[str(kind), *_]]:
            return {"standing": kind}
        case _:
            return {}


def _group_of(data: bytes) -> str:
    """The group that a snapshot names, when no segment says whose store it is."""
    frame = layout.decode_frame(memoryview(data), 0, layout.SNAPSHOT_MAGIC)
    if frame is None:
        return ""
    try:
        said = msgpack.unpackb(frame[1], raw=False)
    except (ValueError, msgpack.UnpackException):
        return ""
    whole = isinstance(said, list) and len(said) > 1
    return str(said[1]) if whole else ""


def _entry(data: bytes) -> dict[str, Any]:
    if not data:
        return {"kind": LEADER}
    if members.is_members(data):
        group = members.decode_members(data)
        named = [{"id": one.id, "host": one.host, "port": one.port, "votes": one.votes}
                 for one in group.members]  # fmt: skip
        return {"kind": MEMBERS, "fields": _json({"members": named})}
    said = events.from_entry(data)
    about = None if isinstance(said, events.STATE_RECORDS) else said.broker_name
    return {"kind": events.kind_of(said), "broker_set": about, "fields": _json(asdict(said))}


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def event_of(kind: str, fields: str) -> events.Event:
    """The event of a row.

    Raises:
        StoreCorrupted: not what ``read_store`` makes.
    """
    shape = events.KINDS.get(kind)
    if shape is None:
        raise StoreCorrupted(f"{kind} is no event")
    try:
        said = msgspec.json.decode(fields, type=dict[str, Any])
        plain = [shape.__struct_config__.tag, *(said[name] for name in shape.__struct_fields__)]
        event: events.Event = msgspec.convert(plain, events.Event)
        return event
    except (msgspec.DecodeError, msgspec.ValidationError, KeyError) as error:
        raise StoreCorrupted(f"{kind}: {error}") from error
