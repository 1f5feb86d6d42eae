"""Reads consume queues: how far they go, what is missing within them, and what of the log they lack.

The files of queues with very many messages are not read by default: of each that is full some units
are looked at. On the store of a running broker a file may go while it is looked at, and a queue with
the topic it is of.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from statistics import multimode
from typing import NamedTuple

from rmqha.doctor.facts import QueueFacts
from rmqha.remoting.topic_names import LIGHT_PREFIX
from rmqha.store.aio.queue_files import GAP_MAX
from rmqha.store.consume_queue import FILLER_SIZE, UNIT, place_of, valid_units
from rmqha.store.metadata_records import METADATA_KEY, ended_topics
from rmqha.store.queue_list import QueueList, rows
from rmqha.store.record import INNER_BATCH, TRANSACTION_COMMIT, TRANSACTION_MASK, Head
from rmqha.store.recovery import NO_LIMIT
from rmqha.store.scan import QueueRun, Run
from rmqha.store.segments import file_name, joined, starts_of

SAMPLES = 16
"""Units of a full file that are looked at: as many pages of the disk."""

_LIGHT = LIGHT_PREFIX.encode()
Key = tuple[bytes, int]


class _File(NamedTuple):
    """A file of a queue that is not empty."""

    start: int
    size: int
    path: Path


def mapped(path: Path, stack: ExitStack) -> memoryview | None:
    """The bytes of a file that is not empty; None once it is gone."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return None
    with file:
        found = stack.enter_context(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    return stack.enter_context(memoryview(found))


def sizes_of(folder: Path) -> dict[int, int]:
    """The files of a row by their starts, and their bytes; none where there is no such folder."""
    sizes: dict[int, int] = {}
    try:
        starts = starts_of(one.name for one in folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return sizes
    is_gone = False
    for start in starts:
        try:
            size = (folder / file_name(start)).stat().st_size
        except FileNotFoundError:
            is_gone = True
            continue
        if is_gone:
            sizes.clear()  # files expire oldest first: those before it have gone since, too
        sizes[start], is_gone = size, False
    return sizes


def usual_size(sizes: Iterable[int]) -> int:
    """The length that most files have, the larger one of two: files lose an end more often than they get one."""
    return max(multimode(sizes), default=0)


def log_end(folder: Path) -> int:
    """Where the last record ends that any queue knows.

    Args:
        folder: ``consumequeue``.
    """
    return max((_end_of(_files(one))[1] for one in _folders(folder)), default=0)


def read_queues(folder: Path, *, is_whole: bool) -> tuple[QueueFacts, ...]:
    """The queues of a store.

    Args:
        folder: ``consumequeue``.
        is_whole: read all units of all files.
    """
    rows = {one: _files(one) for one in _folders(folder)}
    size = usual_size(file.size for files in rows.values() for file in files)
    return tuple(_queue(one, files, size, is_whole=is_whole) for one, files in rows.items())


def _folders(folder: Path) -> list[Path]:
    folders = sorted(folder.glob("*/*"))
    return [one for one in folders if one.name.isdecimal() and one.is_dir()]


def _files(folder: Path) -> list[_File]:
    found = sizes_of(folder).items()
    return [_File(start, size, folder / file_name(start)) for start, size in found if size]


def _queue(folder: Path, files: list[_File], size: int, *, is_whole: bool) -> QueueFacts:
    max_offset, end, full = _end_of(files)
    damage = _wrong_sizes(files, size) or _gap(files, size) or _holed(full, is_whole=is_whole)
    min_offset = files[0].start // UNIT.size if files else 0
    return QueueFacts(folder.parent.name, int(folder.name), max_offset, end, min_offset, damage)


def _end_of(files: list[_File]) -> tuple[int, int, list[_File]]:
    """A queue's end is that of its newest file that has a unit.

    Returns:
        The offset after that unit, where its record ends, and the files before it.
    """
    max_offset = end = 0
    full = list(files)
    while full:
        last = full.pop()
        count, end = _counted(last)
        max_offset = last.start // UNIT.size + count
        if count:
            break
    return max_offset, end, full


def _counted(file: _File) -> tuple[int, int]:
    with ExitStack() as stack:
        data = mapped(file.path, stack)
        return (0, 0) if data is None else valid_units(data, UNIT.size, 0)


def _wrong_sizes(files: list[_File], size: int) -> str:
    """Which file is longer or shorter than others, so that no broker starts; empty for none."""
    wrong = (one for one in files if one.size != size)
    return next((f"{one.path} has {one.size} bytes, the others {size}" for one in wrong), "")


def _gap(files: list[_File], size: int) -> str:
    """Which file follows none; empty for a row without gaps."""
    count = joined([one.start for one in files], size)
    return "" if count == len(files) else f"the file before {files[count].path} is missing"


def _holed(files: list[_File], *, is_whole: bool) -> str:
    """What is wrong within files that have to be full, for others follow them; empty for nothing."""
    for file in files:
        with ExitStack() as stack:
            data = mapped(file.path, stack)
            if data is None:
                continue  # it has expired since
            units = len(data) // UNIT.size
            wrong = valid_units(data, UNIT.size, 0)[0] if is_whole else _sampled(data, units)
        if wrong < units:
            number = file.start // UNIT.size + wrong
            return f"{file.path} has no unit of message {number}, and files follow it"
    return ""


def _sampled(data: memoryview, units: int) -> int:
    """The first unit that is none, or out of order, of a few over the file; ``units`` without one."""
    before = 0
    for number in range(SAMPLES):
        unit = (units - 1) * number // (SAMPLES - 1)
        offset, size = place_of(data, unit * UNIT.size)
        if size <= 0 or (size != FILLER_SIZE and offset < before):
            return unit
        before = max(before, offset)
    return units


def lost_queues(found: QueueList, queues: Iterable[QueueFacts]) -> tuple[str, ...]:
    """Which queues are not as a stop in order left them, by its list, and how far they go."""
    known = {(queue.topic, queue.queue_id): queue for queue in queues}
    lost = []
    for one in rows(found):
        if one.is_batch or one.topic.startswith(_LIGHT):
            continue
        topic, first, end = one.topic.decode(), one.first // UNIT.size, one.end // UNIT.size
        queue = known.get((topic, one.queue_id))
        low, high = (0, 0) if queue is None else (queue.min_offset, queue.max_offset)
        if low > first or high < end:
            lost.append(f"{topic}/{one.queue_id} has {low} to {high} of {first} to {end}")
    return tuple(lost)


class Unreached:
    """Looks, as records of the log are passed, whether their queues have them.

    Only of a broker that has stopped in order anything can be said: else queues may be behind.

    Args:
        topics: that the broker knows. Of others, which were deleted, the log keeps messages for a
            while, and they have no queue; light queues are of no topic.
        confirmed: records that end behind it are not in the queues yet.

    Attributes:
        found: by queue, the first record that it lacks and what it has.
    """

    def __init__(
        self, queues: Iterable[QueueFacts], topics: frozenset[str], confirmed: int
    ) -> None:
        self._queues = {(one.topic.encode(), one.queue_id): one for one in queues}
        self._topics = frozenset(topic.encode() for topic in topics)
        self._met: set[Key] = set()
        self.confirmed = confirmed
        self.found: dict[Key, str] = {}
        # Which number the next record of a queue has, of those that lack one.
        self._next: dict[Key, int] = {}

    def open_queue_run(self, topic: bytes, queue_id: int) -> QueueRun | None:
        """As a walk takes it: the first record of each queue comes by itself, with its number."""
        key = (topic, queue_id)
        if topic == METADATA_KEY or key not in self._met:
            return None
        if key in self.found:
            return QueueRun(self._next[key], 0)
        queue = self._queues.get(key)
        if queue is None or topic not in self._topics:
            return QueueRun(0, NO_LIMIT)
        return QueueRun(queue.max_offset, queue.log_end)

    def passed(self, part: Head | Run, buffer: memoryview) -> None:
        """What a walk has yielded."""
        if isinstance(part, Head):
            self._passed_one(part, buffer)
            return
        for (topic, queue_id), run in part.queue_runs.items():
            key = (topic[1:], queue_id)
            if run.units:
                self._note(key, run.next_offset - len(run.units))
                self._next[key] = run.next_offset

    def _passed_one(self, head: Head, buffer: memoryview) -> None:
        if head.topic == METADATA_KEY:
            self._end(buffer[head.properties_at : head.properties_at + head.properties_size])
        key, end = (head.topic, head.queue_id), head.offset + head.size
        self._met.add(key)
        has_unit = head.sys_flag & TRANSACTION_MASK in {0, TRANSACTION_COMMIT}
        if not has_unit or head.sys_flag & INNER_BATCH or end > self.confirmed:
            return
        if self._has_begun_anew(key, head.queue_offset):
            self.found.pop(key, None)
        queue = self._queues.get(key)
        if head.topic not in self._topics:
            is_out = False
        elif queue is None:
            is_out = head.queue_id >= 0
        else:
            is_behind = end > queue.log_end and head.queue_offset >= queue.max_offset
            is_out = is_behind or 0 <= head.queue_offset < queue.min_offset
        if is_out:
            self._note(key, head.queue_offset)
        self._next[key] = head.queue_offset + 1

    def _has_begun_anew(self, key: Key, number: int) -> bool:
        """Whether what came before of a queue that lacks records went with this one, as a store does it."""
        return key in self.found and (number == 0 or number - self._next[key] > GAP_MAX)

    def _end(self, properties: memoryview) -> None:
        """What came before of a topic is not looked for: its queues went with this record."""
        for topic in ended_topics(bytes(properties)):
            for key in [key for key in self._met if key[0] == topic]:
                self._met.discard(key)
                self.found.pop(key, None)

    def _note(self, key: Key, number: int) -> None:
        if key in self.found:
            return
        queue = self._queues.get(key)
        has = "none" if queue is None else f"{queue.min_offset} to {queue.max_offset}"
        topic = key[0].decode(errors="backslashreplace")
        self.found[key] = f"{topic}/{key[1]} lacks message {number} and has {has}"
