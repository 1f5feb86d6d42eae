"""Stores as another release of the program leaves them, made from what this release wrote."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgpack

from rmqha.controller.raft import wal_layout as layout
from rmqha.controller.raft.node import VOTER
from rmqha.sim.disk import SimDisk, SimFile


def to_format_1(disk: SimDisk, directory: str) -> bool:
    """Rewrite a controller's log as format 1 has it, which knows no standings.

    Args:
        disk: of a host that is down and whose store is whole.
        directory: the store, with a slash at its end.

    Returns:
        Whether there was a voter's log; whoever does not vote cannot be told in format 1.
    """
    segments = {
        path: file
        for path, file in sorted(disk.files.items())
        if path.startswith(directory) and path.endswith(layout.SEGMENT_SUFFIX)
        if isinstance(file, SimFile)
    }
    standing = ""
    rewritten: dict[str, bytes] = {}
    for path, file in segments.items():
        frames = []
        for seq, records in _frames(file.content):
            for record in records:
                standing = _forget_standing(record) or standing
            payload = layout.encode_records(records)
            frames.append(layout.encode_frame(layout.WAL_MAGIC_1, seq, payload))
        rewritten[path] = b"".join(frames)
    if standing != VOTER:
        return False
    for path, data in rewritten.items():
        disk.files[path] = one = SimFile()
        one.durable = data
    disk.version += 1
    return True


def _frames(segment: bytes) -> Iterator[tuple[int, list[Any]]]:
    """Number and records of each good frame, up to the zeros or the torn frame at the end."""
    offset, magic = 0, layout.magic_of(segment)
    while (frame := layout.decode_frame(memoryview(segment), offset, magic)) is not None:
        seq, payload, offset = frame
        yield seq, msgpack.unpackb(payload, raw=False)


def _forget_standing(record: list[Any]) -> str:
    """Make a record one of format 1; what kind of standing it had, if it had one."""
    hard_state_at = {layout.OPEN: 4, layout.HARD: 1}.get(record[0])
    if hard_state_at is None or len(record) == hard_state_at + 2:
        return ""
    if record[0] == layout.OPEN:
        record[1] = 1
    kind: str = record.pop()[0]
    return kind
