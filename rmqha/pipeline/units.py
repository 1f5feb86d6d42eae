"""The consume queues of a store, asked for everything that they say of one range of the log.

A queue's units stand in the log's order, so a range of the log is a range of each queue, found by
bisection. Nothing is believed here: a damaged queue only yields fewer or wrong claims, and who uses
them looks at the log where they do not fit together (``topics``).

Source: protocol fact (ha-store 5.7): units of 20 bytes, files named by the position of their first.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from rmqha.pipeline.replica import CONSUME_QUEUE
from rmqha.store.consume_queue import FILLER_SIZE, UNIT
from rmqha.store.record import MIN_SIZE

QUEUES_MAX = 4096
"""With more queues than this, asking each costs more than going through the log."""
_NAME_DIGITS = 20
_UNIT = np.dtype([("at", ">i8"), ("size", ">i4"), ("tags", ">i8")])
_PLACE = struct.Struct(">qi")
_BLOCK = 256
"""So many units are read at once at the end of a bisection."""

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Claims(Struct, frozen=True):
    """Where queues say that records stand, ascending, each place and size once.

    Attributes:
        at: physical offsets.
        size: of the records, in bytes.
        wanted: whether it is one of those sought.
    """

    at: Ints
    size: Ints
    wanted: Flags

    @property
    def wanted_bytes(self) -> int:
        """Of all wanted records together."""
        return int(self.size[self.wanted].sum())

    def where(self, kept: Flags) -> Claims:
        """Some of them."""
        return Claims(self.at[kept], self.size[kept], self.wanted[kept])


class Sought(Struct, frozen=True):
    """Whose records are wanted; bounds are inclusive.

    Attributes:
        topics: none, to learn only where records stand.
        queue_ids, queue_offsets: (lowest, highest).
    """

    topics: frozenset[str] = frozenset()
    queue_ids: tuple[int, int] = (0, 2**63 - 1)
    queue_offsets: tuple[int, int] = (0, 2**63 - 1)


def claims(
    root: str, sought: Sought, low: int, high: int, queues_max: int | None = None
) -> Claims | None:
    """What the queues say of records that begin in ``[low, high)``, and of the one before.

    Args:
        root: the store's directory.
        sought: their claims are wanted.
        low, high: physical offsets.
        queues_max: by default ``QUEUES_MAX``.

    Returns:
        None when the store has no queues, or too many.
    """
    folders = list(_queue_folders(os.path.join(root, CONSUME_QUEUE)))
    if not folders or len(folders) > (QUEUES_MAX if queues_max is None else queues_max):
        return None
    parts = []
    for topic, queue_id, path in folders:
        units, indexes = _units(path, low, high)
        wanted = (indexes >= sought.queue_offsets[0]) & (indexes <= sought.queue_offsets[1])
        if topic not in sought.topics or not sought.queue_ids[0] <= queue_id <= sought.queue_ids[1]:
            wanted[:] = False
        parts.append((units["at"].astype(np.int64), units["size"].astype(np.int64), wanted))
    at, size, wanted = (np.concatenate(one) for one in zip(*parts, strict=True))
    order = np.argsort(at, kind="stable")
    ordered = at[order]
    if (ordered[1:] == ordered[:-1]).any():
        # Of equal claims the first is kept: one that is wanted, when there is any.
        order = np.lexsort((~wanted, size, at))
    one = Claims(at[order], size[order], wanted[order])
    kept = (one.size >= MIN_SIZE) & (one.size != FILLER_SIZE) & (one.at < high)
    # Those of one place stand together, by size: what is dropped for its size parts no equal ones.
    kept[1:] &= (one.at[1:] != one.at[:-1]) | (one.size[1:] != one.size[:-1])
    return one.where(kept)


def _queue_folders(root: str) -> Iterator[tuple[str, int, str]]:
    """(topic, queue, directory) of every queue."""
    for topic in _entries(root):
        for queue in _entries(topic.path):
            if queue.name.isdecimal() and queue.is_dir():
                yield topic.name, int(queue.name), queue.path


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []


def _units(folder: str, low: int, high: int) -> tuple[npt.NDArray[np.void], Ints]:
    """A queue's units of records that begin in ``[low, high)``, and the one before; their indexes."""
    with ExitStack() as closing:
        queue = _Queue(folder, closing)
        begin = queue.first_at(low, queue.first)
        stop = queue.first_at(high, begin)
        return queue.read(max(queue.first, begin - 1), stop)


def _file(entry: os.DirEntry[str]) -> tuple[int, int, str] | None:
    """First unit, units, path; None of what is no file of a queue, or has gone meanwhile."""
    name = entry.name
    if len(name) != _NAME_DIGITS or not name.isdecimal() or int(name) % UNIT.size:
        return None
    try:
        is_file, size = entry.is_file(), entry.stat().st_size
    except FileNotFoundError:
        return None
    return (int(name) // UNIT.size, size // UNIT.size, entry.path) if is_file else None


class _Queue:
    """One queue's units by their index over all files.

    Args:
        folder: the queue's directory.
        closing: takes the files that are opened.

    Attributes:
        first, stop: indexes of the first unit, and behind the last that the files have room for.
    """

    def __init__(self, folder: str, closing: ExitStack) -> None:
        found = [file for entry in _entries(folder) if (file := _file(entry)) is not None]
        self._files = sorted(found)
        self._open: dict[str, int] = {}
        self._closing = closing
        self.first = self._files[0][0] if found else 0
        self.stop = max((first + count for first, count, _ in found), default=0)

    def first_at(self, offset: int, low: int) -> int:
        """The first index from ``low`` on whose record begins at or behind ``offset``.

        What was never written counts as behind everything, fillers as before.
        """
        high = self.stop
        while high - low > _BLOCK:
            middle = (low + high) // 2
            at, size = self._place(middle)
            if size == FILLER_SIZE or (size > 0 and at < offset):
                low = middle + 1
            else:
                high = middle
        for first, data in self._pieces(low, high):
            if first != low:
                break
            units = np.frombuffer(data, _UNIT)
            sizes = units["size"]
            before = (sizes == FILLER_SIZE) | ((sizes > 0) & (units["at"] < offset))
            if not before.all():
                return low + int(before.argmin())
            low += len(units)
        return low

    def _place(self, index: int) -> tuple[int, int]:
        """Offset and size that a unit says; zeros when no file has it."""
        for first, count, path in self._files:
            if first <= index < first + count:
                descriptor = self._descriptor(path)
                if descriptor is None:
                    break
                data = os.pread(descriptor, _PLACE.size, (index - first) * UNIT.size)
                if len(data) == _PLACE.size:
                    at, size = _PLACE.unpack(data)
                    return at, size
        return 0, 0

    def read(self, begin: int, stop: int) -> tuple[npt.NDArray[np.void], Ints]:
        """Units ``[begin, stop)``, as far as files have them, and the index of each."""
        units, indexes = [np.empty(0, _UNIT)], [np.empty(0, np.int64)]
        for first, data in self._pieces(begin, stop):
            units.append(np.frombuffer(data, _UNIT))
            indexes.append(np.arange(first, first + len(units[-1])))
        return np.concatenate(units), np.concatenate(indexes)

    def _pieces(self, begin: int, stop: int) -> Iterator[tuple[int, bytes]]:
        """Whole units of each file, and the index of the first."""
        for first, count, path in self._files:
            low, high = max(begin, first), min(stop, first + count)
            descriptor = self._descriptor(path) if low < high else None
            if descriptor is not None:
                size, at = (high - low) * UNIT.size, (low - first) * UNIT.size
                data = os.pread(descriptor, size, at)
                yield low, data[: len(data) - len(data) % UNIT.size]

    def _descriptor(self, path: str) -> int | None:
        """None when the file has gone meanwhile."""
        if path not in self._open:
            try:
                self._open[path] = os.open(path, os.O_RDONLY)
            except FileNotFoundError:
                return None
            self._closing.callback(os.close, self._open[path])
        return self._open[path]
