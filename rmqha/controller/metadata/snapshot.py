"""A snapshot of the replicated state: msgpack ``[format, index, sets]``.

Frames, checksums and files are the log's business.
"""

from __future__ import annotations

from collections.abc import Generator

import msgspec

from rmqha.base.errors import StoreCorrupted, StoreMismatch
from rmqha.controller.metadata.packing import list_header, pack
from rmqha.controller.metadata.state import MetadataState
from rmqha.runtime.parts import at_once

STATE_FORMAT = 1


def to_snapshot(index: int, state: MetadataState) -> bytes:
    """Encode the state up to log ``index``; the same bytes on every node."""
    return pack([STATE_FORMAT, index, state.to_snapshot()])


def join_snapshot(index: int, state: MetadataState) -> bytes:
    """The same bytes as ``to_snapshot``, joined of what has been packed after each change."""
    parts = state.packed.parts()
    head = (list_header(3), pack(STATE_FORMAT), pack(index), list_header(len(parts)))
    return b"".join((*head, *parts))


_decode_list = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_decode_number = msgspec.msgpack.Decoder(int).decode


def from_snapshot(data: bytes) -> tuple[int, MetadataState]:
    """What ``reading`` finds, at once: for who lets nobody wait.

    Raises:
        StoreMismatch, StoreCorrupted: as there.
    """
    return at_once(reading(data))


def reading(data: bytes) -> Generator[None, None, tuple[int, MetadataState]]:
    """Decode (index, state), in parts: that of very many sets takes as long as a whole election.

    Raises:
        StoreMismatch: a newer format wrote it.
        StoreCorrupted: it is no snapshot.
    """
    try:
        version, *fields = _decode_list(data)
        if _decode_number(version) != STATE_FORMAT:
            raise StoreMismatch(
                f"snapshot format {_decode_number(version)}, this is {STATE_FORMAT}"
            )
        index, sets = fields
        found = yield from MetadataState.reading(_decode_list(sets))
        return _decode_number(index), found
    except (ValueError, msgspec.DecodeError, RecursionError) as error:
        raise StoreCorrupted(f"not a snapshot of the controller: {error}") from error
