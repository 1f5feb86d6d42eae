"""A snapshot of the replicated state: msgpack ``[format, index, sets]``.

Frames, checksums and files are the log's business.
"""

from __future__ import annotations

from rmqha.base.errors import StoreCorrupted, StoreMismatch
from rmqha.controller.metadata.packing import pack, unpack
from rmqha.controller.metadata.state import MetadataState

SNAPSHOT_FORMAT = 1


def to_snapshot(index: int, state: MetadataState) -> bytes:
    """Encode the state up to log ``index``; the same bytes on every node."""
    return pack([SNAPSHOT_FORMAT, index, state.to_snapshot()])


def from_snapshot(data: bytes) -> tuple[int, MetadataState]:
    """Decode (index, state).

    Raises:
        StoreMismatch: a newer format wrote it.
        StoreCorrupted: it is no snapshot.
    """
    match unpack(data, "a snapshot"):
        case [int(version), *_] if version != SNAPSHOT_FORMAT:
            raise StoreMismatch(f"snapshot format {version}, this is {SNAPSHOT_FORMAT}")
        case [int(), int(index), list(sets)]:
            return index, MetadataState.from_snapshot(sets)
        case _:
            raise StoreCorrupted("not a snapshot of the controller")
