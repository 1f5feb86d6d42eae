"""The consume queues of a store, asked for everything that they say of one range of the log.

A queue's units stand in the log's order, so a range of the log is a range of each queue, found by
bisection and read on from there. Nothing is believed here: a damaged queue only yields fewer or
wrong claims, and who uses them looks at the log (``claim_coverage``, ``claimed_records``).

Source: RocketMQ's protocol as observed: units of 20 bytes, files named by the position of their first.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from rmqha.pipeline.commitlog.store_folder import CONSUME_QUEUE, NAME_DIGITS
from rmqha.store.consume_queue import FILLER_SIZE, UNIT
from rmqha.store.record import MIN_SIZE

QUEUES_MAX = 4096
"""With more queues than this, asking each costs more than going through the log."""
_UNIT = np.dtype([("at", ">i8"), ("size", ">i4"), ("tags", ">i8")])
_PLACE = struct.Struct(">qi")
_NEAR = 256
"""A bisection ends so many units before what it looks for; so many are read at once, then more."""
_READ_MAX = 1 << 16
_BEFORE = 16
"""So many claims are kept of records before the range: the nearest is where reading begins."""

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
    """What the queues say of records that begin in ``[low, high)``, and of the nearest before.

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
    found = _Found()
    for topic, queue_id, path in folders:
        is_sought = topic in sought.topics and _is_within(queue_id, sought.queue_ids)
        with ExitStack() as closing:
            queue = _Queue(path, closing)
            for first, data in queue.read(queue.near(low), high):
                found.add(is_sought, first, data)
    return found.claims(sought.queue_offsets, low, high)


def _is_within(number: int, bounds: tuple[int, int]) -> bool:
    return bounds[0] <= number <= bounds[1]


class _Found:
    """Units of many queues, put in order all at once."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._sought: list[bool] = []
        self._firsts: list[int] = []
        self._counts: list[int] = []
        self._count = 0

    def add(self, is_sought: bool, first: int, data: bytes) -> None:
        """Units of one queue from index ``first`` on."""
        count = len(data) // UNIT.size
        self._pieces.append(data)
        self._sought.append(is_sought)
        self._firsts.append(first - self._count)
        self._counts.append(count)
        self._count += count

    def claims(self, queue_offsets: tuple[int, int], low: int, high: int) -> Claims:
        """Those of records that begin in ``[low, high)``, and the nearest before."""
        units = np.frombuffer(b"".join(self._pieces), _UNIT)
        at, size = units["at"].astype(np.int64), units["size"].astype(np.int64)
        wanted = np.repeat(np.asarray(self._sought, np.bool_), self._counts)
        if queue_offsets != Sought().queue_offsets and wanted.any():
            indexes = np.arange(len(at)) + np.repeat(self._firsts, self._counts)
            wanted &= (indexes >= queue_offsets[0]) & (indexes <= queue_offsets[1])
        known = np.flatnonzero((size >= MIN_SIZE) & (size != FILLER_SIZE) & (at >= 0) & (at < high))
        order = known[np.argsort(at[known], kind="stable")]
        ordered = at[order]
        begin = max(0, int(np.searchsorted(ordered, low)) - _BEFORE)
        order, ordered = order[begin:], ordered[begin:]
        if (ordered[1:] != ordered[:-1]).all():
            return Claims(at[order], size[order], wanted[order])
        # Of equal claims the first is kept: one that is wanted, when there is any.
        order = order[np.lexsort((~wanted[order], size[order], at[order]))]
        one = Claims(at[order], size[order], wanted[order])
        kept = np.ones(len(order), np.bool_)
        kept[1:] = (one.at[1:] != one.at[:-1]) | (one.size[1:] != one.size[:-1])
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


class _File(NamedTuple):
    """A queue's file: the index of its first unit, how many it has room for, and where it is."""

    first: int
    room: int
    path: str


def _file(entry: os.DirEntry[str]) -> _File | None:
    """None of what is no file of a queue, or has gone meanwhile."""
    name = entry.name
    if len(name) != NAME_DIGITS or not name.isdecimal() or int(name) % UNIT.size:
        return None
    try:
        is_file, size = entry.is_file(), entry.stat().st_size
    except FileNotFoundError:
        return None
    return _File(int(name) // UNIT.size, size // UNIT.size, entry.path) if is_file else None


class _Queue:
    """One queue's units by their index over all files.

    Args:
        folder: the queue's directory.
        closing: takes the files that are opened.
    """

    def __init__(self, folder: str, closing: ExitStack) -> None:
        found = (_file(entry) for entry in _entries(folder))
        self._files = sorted(file for file in found if file is not None and file.room)
        self._open: dict[str, int] = {}
        self._closing = closing

    def near(self, offset: int) -> int:
        """An index before the first whose record begins at ``offset`` or behind, and near to it."""
        files = self._files
        number = self._bisect(0, len(files), offset, lambda one: (files[one], 0), 0) - 1
        if number < 0:
            return 0
        file = files[number]
        return file.first + self._bisect(0, file.room, offset, lambda one: (file, one), _NEAR) - 1

    def _bisect(
        self,
        low: int,
        high: int,
        offset: int,
        place: Callable[[int], tuple[_File, int]],
        enough: int,
    ) -> int:
        """How many of ascending units are before ``offset``.

        What was never written counts as behind everything, fillers as before.

        Args:
            low, high: the first unit's number, and behind the last.
            offset: a record's beginning.
            place: a unit's file, and its position there.
            enough: by how many the answer may be too low.
        """
        while high - low > enough:
            middle = (low + high) // 2
            file, position = place(middle)
            data = self._read(file, position, 1)
            at, size = _PLACE.unpack_from(data) if data else (0, 0)
            if size == FILLER_SIZE or (size > 0 and at < offset):
                low = middle + 1
            else:
                high = middle
        return low

    def read(self, begin: int, offset: int) -> Iterator[tuple[int, bytes]]:
        """Units from index ``begin`` on, more and more at once, until one is not before ``offset``.

        Yields:
            The index of the first, and whole units of one file.
        """
        count = _NEAR
        for file in self._files:
            at = max(0, begin - file.first)
            while at < file.room and (data := self._read(file, at, count)):
                yield file.first + at, data
                last_at, size = _PLACE.unpack_from(data, len(data) - UNIT.size)
                if size != FILLER_SIZE and (size <= 0 or last_at >= offset):
                    return
                at, count = at + len(data) // UNIT.size, min(2 * count, _READ_MAX)

    def _read(self, file: _File, position: int, count: int) -> bytes:
        """At most so many whole units; none when the file has gone meanwhile."""
        descriptor = self._open.get(file.path)
        if descriptor is None:
            try:
                descriptor = self._open[file.path] = os.open(file.path, os.O_RDONLY)
            except FileNotFoundError:
                return b""
            self._closing.callback(os.close, descriptor)
        data = os.pread(descriptor, count * UNIT.size, position * UNIT.size)
        return data[: len(data) // UNIT.size * UNIT.size]
