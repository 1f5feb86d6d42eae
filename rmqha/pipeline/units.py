"""The consume queues of a store, asked for everything that they say of one range of the log.

A queue's units stand in the log's order, so a range of the log is a range of each queue, found by
bisection. Nothing is believed here: a damaged queue only yields fewer or wrong claims, and who uses
them looks at the log where they do not fit together (``topics``).

Source: protocol fact (ha-store 5.7): units of 20 bytes, files named by the position of their first.
"""

from __future__ import annotations

import os
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

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Claims(Struct, frozen=True):
    """Where queues say that records stand, ascending, each place and size once.

    Attributes:
        at: physical offsets.
        size: of the records, in bytes.
        wanted: whether a queue of a wanted topic says so.
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


def claims(root: str, topics: frozenset[str], low: int, high: int) -> Claims | None:
    """What the queues say of records that begin in ``[low, high)``, and of the one before.

    Args:
        root: the store's directory.
        topics: their claims are wanted.
        low, high: physical offsets.

    Returns:
        None when the store has no queues, or too many.
    """
    folders = list(_queue_folders(os.path.join(root, CONSUME_QUEUE)))
    if not folders or len(folders) > QUEUES_MAX:
        return None
    # Of equal claims the first is kept: wanted topics come first.
    folders.sort(key=lambda one: one[0] not in topics)
    found = [(_units(path, low, high), topic in topics) for topic, path in folders]
    raw = np.concatenate([units for units, _ in found])
    wanted = np.repeat(
        np.array([flag for _, flag in found], np.bool_), [len(units) for units, _ in found]
    )
    at, size = raw["at"].astype(np.int64), raw["size"].astype(np.int64)
    order = np.argsort(at, kind="stable")
    one = Claims(at[order], size[order], wanted[order])
    one = one.where((one.size >= MIN_SIZE) & (one.size != FILLER_SIZE) & (one.at < high))
    repeated = (one.at[1:] == one.at[:-1]) & (one.size[1:] == one.size[:-1])
    return one.where(np.concatenate((np.ones(min(1, len(one.at)), np.bool_), ~repeated)))


def _queue_folders(root: str) -> Iterator[tuple[str, str]]:
    """(topic, directory) of every queue."""
    for topic in _entries(root):
        for queue in _entries(topic.path):
            if queue.name.isdecimal() and queue.is_dir():
                yield topic.name, queue.path


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []


def _units(folder: str, low: int, high: int) -> npt.NDArray[np.void]:
    """A queue's units of records that begin in ``[low, high)``, and the one before."""
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
        while low < high:
            middle = (low + high) // 2
            data = self._bytes(middle, middle + 1)
            at, size, _ = UNIT.unpack_from(data) if data else (0, 0, 0)
            if size == FILLER_SIZE or (size > 0 and at < offset):
                low = middle + 1
            else:
                high = middle
        return low

    def read(self, begin: int, stop: int) -> npt.NDArray[np.void]:
        """Units ``[begin, stop)``, as far as files have them."""
        return np.frombuffer(self._bytes(begin, stop), _UNIT)

    def _bytes(self, begin: int, stop: int) -> bytes:
        parts = []
        for first, count, path in self._files:
            low, high = max(begin, first), min(stop, first + count)
            if low < high:
                size, at = (high - low) * UNIT.size, (low - first) * UNIT.size
                descriptor = self._descriptor(path)
                data = b"" if descriptor is None else os.pread(descriptor, size, at)
                parts.append(data[: len(data) - len(data) % UNIT.size])
        return b"".join(parts)

    def _descriptor(self, path: str) -> int | None:
        """None when the file has gone meanwhile."""
        if path not in self._open:
            try:
                self._open[path] = os.open(path, os.O_RDONLY)
            except FileNotFoundError:
                return None
            self._closing.callback(os.close, self._open[path])
        return self._open[path]
