"""What the store of a controller holds, read while the controller does not run.

For a group that lost its majority: nobody is left who could say what was committed, so every entry
of the log counts, and what only the lost nodes held is gone. Reads as the controller itself does
(``raft/wal_layout.py``, ``metadata/apply.py``); nothing is written.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgpack
from msgspec import Struct

from rmqha.base.errors import StoreCorrupted, StoreMismatch
from rmqha.controller.metadata import snapshot as state_snapshot
from rmqha.controller.metadata.apply import apply
from rmqha.controller.metadata.events import STATE_RECORDS, from_entry
from rmqha.controller.metadata.state import MetadataState
from rmqha.controller.raft import wal_layout as layout
from rmqha.controller.raft.events import SnapshotMeta
from rmqha.controller.raft.members import from_snapshot, is_members


class StoreRead(Struct, frozen=True):
    """A store's content.

    Attributes:
        group, node: whose it is.
        standing: ``voter``, or why the node does not count by itself.
        term: the newest one that the node knew.
        last_index, last_term: of its last entry: of several stores that with the greatest (term,
            index) is the newest.
        state: with all entries applied.
    """

    group: str
    node: str
    standing: str
    term: int
    last_index: int
    last_term: int
    state: MetadataState

    @property
    def end(self) -> tuple[int, int]:
        """By what stores are compared (Raft 5.4.1)."""
        return self.last_term, self.last_index


def read_store(files: Mapping[str, bytes], *, forgiving: bool = False) -> StoreRead:
    """Read segments and snapshots, by their names.

    Args:
        files: of ``<controllerStorePath>/rmqha``; others are left alone.
        forgiving: a damaged last frame is cut as a torn one is.

    Raises:
        StoreCorrupted: something that was durable cannot be read, or there is no store.
        StoreMismatch: it was written by a newer release.
    """
    if layout.ASIDE_MARK in files:
        why = files[layout.ASIDE_MARK].decode(errors="replace")
        raise StoreCorrupted(f"it is half set aside, for it is damaged: {why}")
    segments = sorted(name for name in files if name.endswith(layout.SEGMENT_SUFFIX))
    if not segments:
        raise StoreCorrupted("there is no log of a controller")
    group, node = _owner(segments[0], files[segments[0]])
    recovery = layout.Recovery(group, node, forgiving=forgiving)
    for name in segments:
        recovery.read_segment(name, files[name], is_last=name == segments[-1])
    found = recovery.result
    meta, state = _snapshot(files, group)
    _, base_term, entries, _ = layout.join_snapshot(found, meta)
    last_index, last_term = meta.last_index, base_term
    for entry in entries:
        last_index, last_term = entry.log_index, entry.term
        if entry.log_index <= meta.last_index or not entry.data or is_members(entry.data):
            continue
        said = from_entry(entry.data)
        if not isinstance(said, STATE_RECORDS):
            apply(state, said)
    hard = found.hard_state
    standing = hard.standing.kind
    return StoreRead(group, node, standing, hard.term, last_index, last_term, state)


def _owner(name: str, segment: bytes) -> tuple[str, str]:
    frame = layout.decode_frame(memoryview(segment), 0, layout.magic_of(segment))
    records = None if frame is None else msgpack.unpackb(frame[1], raw=False)
    match records:
        case [[layout.OPEN, int(version), *_], *_] if version > layout.FORMAT:
            raise StoreMismatch(
                f"{name} has format {version}; this release reads up to {layout.FORMAT}"
            )
        case [[layout.OPEN, int(), str(group), str(node), *_], *_]:
            return group, node
        case _:
            raise StoreCorrupted(f"{name}: it does not say whose log it is")


def _snapshot(files: Mapping[str, bytes], group: str) -> tuple[SnapshotMeta, MetadataState]:
    names = sorted(name for name in files if name.endswith(layout.SNAPSHOT_SUFFIX))
    if not names:
        return SnapshotMeta(), MetadataState()
    index, term, data = layout.decode_snapshot(names[-1], files[names[-1]], group)
    _, packed = from_snapshot(data)
    _, state = state_snapshot.from_snapshot(packed)
    return SnapshotMeta(index, term, len(data), layout.digest(data)), state
