"""One consume queue, or one batch consume queue, in its mapped files.

Source: RocketMQ's protocol as observed.
"""

from __future__ import annotations

from collections.abc import Iterator

from rmqha.runtime.ports import Disk, MappedFile, Surveyed
from rmqha.store import segments
from rmqha.store.aio.mapped_files import MappedFiles
from rmqha.store.consume_queue import (
    BATCH_UNIT,
    FILLER,
    FILLER_SIZE,
    UNIT,
    BatchUnit,
    Unit,
    count_below,
    first_live,
    last_real,
    place_of,
    places,
    valid_units,
)
from rmqha.store.scan import QueueRun

FILES_SCANNED = 3
GAP_MAX = 1 << 20
"""Units; where a queue offset is further ahead than this, the queue begins anew and fills no gap."""


class QueueFiles:
    """Units of one topic's queue.

    Args:
        batch: units are those of a batch consume queue.

    Attributes:
        end: position after the last unit, bytes since the queue's origin.
        indexed_end: end in the commit log of the last unit's record.
        dirty_from: everything before it is durable.
        lost_from: records of the commit log at or after it lost their units with a file that was
            not there; None where none was missing.
    """

    def __init__(self, disk: Disk, directory: str, file_size: int, *, batch: bool) -> None:
        self.batch = batch
        self.unit_size = BATCH_UNIT.size if batch else UNIT.size
        self.files = MappedFiles(disk, directory, file_size, sparse=True)
        self.end = 0
        self.indexed_end = 0
        self.dirty_from = 0
        self.lost_from: int | None = None
        self._beyond: list[int] = []
        self._is_headless = False
        self._cuts = 0
        # As last_unit() says it, of a queue that was adopted and not changed since.
        self._last: tuple[int, int, int] | None = None
        # Nothing before it is live; it is, itself, while the log begins where the second says.
        self._live = 0
        self._live_for: int | None = None

    # -- units by their position

    def _place(self, position: int) -> tuple[int, int]:
        file, within = self.files.at(position)
        return place_of(file.buffer, within)

    def unit(self, index: int) -> Unit:
        """The unit with this index since the queue's origin."""
        file, within = self.files.at(index * UNIT.size)
        return Unit._make(UNIT.unpack_from(file.buffer, within))

    def batch_unit(self, index: int) -> BatchUnit:
        """The same of a batch consume queue."""
        file, within = self.files.at(index * BATCH_UNIT.size)
        return BatchUnit._make(BATCH_UNIT.unpack_from(file.buffer, within))

    @property
    def first_index(self) -> int:
        """Index of the first unit in the files."""
        return self.files.first // self.unit_size if self.files.files else 0

    @property
    def count_end(self) -> int:
        """Index after the last unit."""
        return self.end // self.unit_size

    # -- queue offsets

    @property
    def max_offset(self) -> int:
        """The next queue offset."""
        if not self.batch or self.end <= self.files.first:
            return self.end // UNIT.size if not self.batch else 0
        last = self.batch_unit(self.count_end - 1)
        return last.base_offset + last.batch_size

    def min_offset(self, log_min: int) -> int:
        """The first queue offset whose record the log still has; ``max_offset`` without one."""
        index = self.first_live_index(log_min)
        if index >= self.count_end:
            return self.max_offset
        return self.batch_unit(index).base_offset if self.batch else index

    def first_live_index(self, log_min: int) -> int:
        """Index of the first unit that is no filler and whose record the log still has."""
        if log_min == self._live_for:
            return self._live
        index = max(self._live, self.first_index)
        while index < self.count_end:
            buffer, within, count = self._rest(index)
            low = first_live(buffer[within:], self.unit_size, count, log_min)
            index += low
            if low < count:
                self._live_for = log_min
                break
        # It only grows, until a cut.
        self._live = index
        return index

    def _forget_live(self) -> None:
        self._live, self._live_for = 0, None

    def _rest(self, index: int) -> tuple[memoryview, int, int]:
        """The file of a unit, the unit's place in it, and how many units it has from there on."""
        position = index * self.unit_size
        file, within = self.files.at(position)
        count = (min(self.end - position, file.size - within)) // self.unit_size
        return file.buffer, within, count

    def places(self, index: int) -> Iterator[tuple[int, int, int]]:
        """Physical offset and size of the plain units from ``index`` on, and the next index."""
        while index < self.count_end:
            buffer, within, count = self._rest(index)
            for offset, size in places(buffer[within : within + count * UNIT.size]):
                index += 1
                yield offset, size, index

    def coded_places(self, index: int) -> Iterator[tuple[int, int, int, int]]:
        """The same with each unit's tags code before the next index."""
        while index < self.count_end:
            buffer, within, count = self._rest(index)
            units = buffer[within : within + count * UNIT.size]
            for offset, size, code in UNIT.iter_unpack(units):
                index += 1
                yield offset, size, code, index

    def batch_index(self, offset: int, log_min: int) -> int:
        """Index of the batch unit that holds a queue offset, or of the next one."""
        low, high = self.first_live_index(log_min), self.count_end
        while low < high:
            middle = (low + high) // 2
            unit = self.batch_unit(middle)
            if unit.base_offset + unit.batch_size <= offset:
                low = middle + 1
            else:
                high = middle
        return low

    @property
    def has_units(self) -> bool:
        """Whether there is any unit, so that the next one's place is known."""
        return bool(self.files.files) and self.end > self.files.first

    def begins_elsewhere(self, queue_offset: int) -> bool:
        """Whether a queue that names no record has files, and none that ``queue_offset`` can go to.

        A power cut can take the first file of a queue and leave the second. And a cut that leaves no
        unit leaves the file of the topic's next life, while the records that come next are of the one
        before it.
        """
        files, position = self.files, queue_offset * self.unit_size
        if not files.files or self.batch or self.indexed_end:
            return False
        return not self.end <= position < max(self.end + 1, files.end)

    def begins_anew(self, record_end: int, queue_offset: int) -> bool:
        """Whether a record that no unit knows is the first of its queue, which has others.

        A master of Java's deletes the queues of a topic that ends, and tells nobody. The topic's
        next life begins at 0. A number that is far ahead is no gap, either: to fill it would take as
        much room as its master pleases.
        """
        if record_end <= self.indexed_end:
            return False
        if queue_offset == 0:
            return self.max_offset > 0
        return self.has_units and not self.batch and queue_offset - self.count_end > GAP_MAX

    # -- writing

    def put(self, offset: int, size: int, tags_code: int, queue_offset: int) -> bool:
        """Write the unit of a record; False when it, or another one, is there already.

        A queue without units begins at ``queue_offset``. A gap is filled with fillers, so that
        a unit's place always is its queue offset; Java would append at the wrong place.

        Raises:
            DiskFailed: no room for the next file.
        """
        if offset + size <= self.indexed_end:
            return False
        position = queue_offset * UNIT.size
        if position < self.end and self.files.files:
            return False
        if position != self.end or not self.files.files:
            self._fill(position)
        self.files.make_for(position)
        file, within = self.files.at(position)
        file.reserve(within + UNIT.size)
        UNIT.pack_into(file.buffer, within, offset, size, tags_code)
        self.end = position + UNIT.size
        self.indexed_end = offset + size
        return True

    def put_run(self, queue_run: QueueRun) -> None:
        """Write the units of a run, which follow the last one.

        Raises:
            DiskFailed: no room for the next file; the units before it are written.
        """
        units, done = b"".join(queue_run.units), 0
        while done < len(units):
            self.files.make_for(self.end)
            file, within = self.files.at(self.end)
            part = units[done : done + file.size - within]
            file.reserve(within + len(part))
            file.buffer[within : within + len(part)] = part
            done += len(part)
            self.end += len(part)
            offset, size = place_of(file.buffer, within + len(part) - UNIT.size)
            self.indexed_end = offset + size

    def _fill(self, position: int) -> None:
        """Fillers before the first unit of a fresh queue, or into a gap."""
        if not self.files.files:
            self.files.make_for(position)
            self.end = self.files.first
            self.dirty_from = self.end
            self._forget_live()
        while self.end < position:
            self.files.make_for(self.end)
            file, within = self.files.at(self.end)
            count = min(position - self.end, file.size - within) // UNIT.size
            file.reserve(within + count * UNIT.size)
            file.buffer[within : within + count * UNIT.size] = FILLER * count
            self.end += count * UNIT.size

    def put_batch(self, unit: BatchUnit) -> bool:
        """Write the unit of an inner batch; False when it is there already."""
        if unit.physical_offset + unit.size <= self.indexed_end:
            return False
        self.files.make_for(self.end)
        file, within = self.files.at(self.end)
        file.reserve(within + BATCH_UNIT.size)
        BATCH_UNIT.pack_into(file.buffer, within, *unit)
        self.end += BATCH_UNIT.size
        self.indexed_end = unit.physical_offset + unit.size
        return True

    async def sync(self) -> None:
        """Make all units durable; raises DiskFailed. A cut may come in between."""
        high, cuts = self.end, self._cuts
        if high > self.dirty_from:
            await self.files.sync(self.dirty_from, high)
            if cuts == self._cuts:
                self.dirty_from = max(self.dirty_from, high)

    # -- recovery and cuts

    def adopt(self, found: list[Surveyed], *, durable: bool) -> bool:
        """Take over a queue of one short file as a survey found it; False when it needs
        :meth:`recover`. Most queues of a store with many of them are such.

        Args:
            durable: the last stop was a clean one: what is there is on the disk.
        """
        starts = segments.starts_of(one.name for one in found)
        if len(found) != 1 or not starts or found[0].size != self.files.size:
            return False
        head = found[0].head
        if head is None:
            return False
        head += bytes(-len(head) % self.unit_size)
        units = memoryview(head)
        count, indexed_end = valid_units(units, self.unit_size, 0)
        if head.count(0, count * self.unit_size) != len(head) - count * self.unit_size:
            return False  # a torn tail is to be erased
        self.files.adopt(starts[0], found[0])
        self.end = self.files.first + count * self.unit_size
        self.dirty_from = self.end if durable else self.files.first
        self.indexed_end = indexed_end
        if count:
            place = place_of(units, (count - 1) * self.unit_size)
            if place[1] != FILLER_SIZE:
                self._last = (self.count_end - 1, *place)
        return True

    async def recover(self) -> None:
        """Find the end of the whole units in the last three files, and erase what is behind.

        Files behind a gap, of which a power cut took the one between, wait for :meth:`drop_beyond`,
        or for :meth:`stay`.

        Raises:
            StoreMismatch, DiskFailed: as ``MappedFiles.load``.
        """
        self._beyond = await self.files.load()
        if self.files.files:
            await self._find_end()
        if self._beyond:
            self.lost_from = self.indexed_end

    async def _find_end(self) -> None:
        first = max(0, len(self.files.files) - FILES_SCANNED)
        position = self.files.first + first * self.files.size
        previous = 0
        for file in self.files.files[first:]:
            count, previous = valid_units(file.buffer, self.unit_size, previous)
            position += count * self.unit_size
            if count < file.size // self.unit_size:
                break
        # Nobody knows how far a torn tail goes.
        self.end = self.files.end
        await self._cut_units(position)
        self.dirty_from = self.end

    def lacks(self, first: int, end: int) -> bool:
        """Whether units are missing of those that were there between two positions; ``lost_from`` tells.

        Files can be made at the end of a queue only. So one that lacks its first ones is made anew.
        """
        if self.files.first > first:
            self.lost_from, self._is_headless = 0, True
        elif self.end < end:
            self.lost_from = self.indexed_end
        else:
            return False
        return True

    async def drop_beyond(self) -> None:
        """Delete the files behind a gap; whoever does it has noted ``lost_from`` where it outlives him.

        The log has all that they say. With them goes what tells that anything is missing.
        """
        for start in self._beyond:
            await self.files.drop(start)
        self._beyond = []
        if self._is_headless:
            await self.clear()

    @property
    def can_stay(self) -> bool:
        """Whether :meth:`stay` is possible: a batch queue has nothing that stands for a missing unit."""
        return not (self.batch and self._beyond)

    async def stay(self) -> None:
        """Go on without what is missing, which nobody can make anew; fillers stand for it within a gap.

        Raises:
            DiskFailed: no room for these.
        """
        self.lost_from = None
        if not self._beyond:
            return
        self._fill(self.files.end)
        await self.sync()
        beyond, self._beyond = self._beyond, []
        for start in beyond:
            await self.files.join(start, FILLER * (self.files.size // UNIT.size))
        await self._find_end()

    def end_at(self, position: int) -> None:
        """Have fillers reach up to where the queue ended once: what they stand for is gone, its numbers are not.

        Not over a gap that is too wide to be filled: there the queue begins anew with its next unit.

        Raises:
            DiskFailed: no room for them.
        """
        if not self.files.files or position - self.end <= GAP_MAX * UNIT.size:
            self._fill(position)

    async def _cut_units(self, position: int) -> None:
        written, self.end, self._last = self.end, position, None
        self.dirty_from = min(self.dirty_from, position)
        self._cuts += 1
        self._forget_live()
        await self.files.remove_after(max(position, self.files.first))
        await self.files.erase(position, written)
        self.indexed_end = self._last_end()

    def _last_end(self) -> int:
        position = self.end - self.unit_size
        while self.files.holds(position) and position >= self.files.first:
            offset, size = self._place(position)
            if size != FILLER_SIZE:
                return offset + size
            position -= self.unit_size
        return 0

    async def cut(self, offset: int) -> bool:
        """Drop the units of records at or after ``offset``, durably; whether there were any."""
        if self.indexed_end <= offset:
            return False
        position = self.end
        for number in reversed(range(len(self.files.files))):
            file = self.files.files[number]
            start = self.files.first + number * self.files.size
            count = max(0, min(self.end - start, file.size)) // self.unit_size
            below = count_below(file.buffer, self.unit_size, count, offset)
            if below < count:
                position = start + below * self.unit_size
            if last_real(file.buffer, self.unit_size, below) >= 0:
                # Files of nothing but fillers say nothing about the ones before.
                break
        if position >= self.end:
            return False
        await self._cut_units(position)
        return True

    async def keep_to(self, index: int) -> None:
        """Drop the units from ``index`` on, durably."""
        await self._cut_units(index * self.unit_size)

    def last_unit(self) -> tuple[int, int, int] | None:
        """As :meth:`unit_before` the end."""
        if self._last is not None and self._last[0] == self.count_end - 1:
            return self._last
        return self.unit_before(self.count_end)

    def unit_before(self, index: int) -> tuple[int, int, int] | None:
        """Index, physical offset and size of the unit before ``index``; None for none, and for a filler."""
        position = (index - 1) * self.unit_size
        if not self.files.files or position < self.files.first:
            return None
        offset, size = self._place(position)
        return None if size == FILLER_SIZE else (index - 1, offset, size)

    def expire(self, log_min: int) -> int:
        """Give up the files whose records are all gone; the last file stays. How many.

        ``files.remove_left`` deletes them.
        """
        count = 0
        while len(self.files.files) > 1 and not self._has_live(self.files.files[0], log_min):
            count += self.files.leave_before(self.files.first + self.files.size)
        return count

    def _has_live(self, file: MappedFile, log_min: int) -> bool:
        """Whether the log still has any record of a file that is not the last.

        Its last unit says it: to search the file would read a dozen pages that have left the memory.
        """
        units = file.size // self.unit_size
        offset, size = place_of(file.buffer, (units - 1) * self.unit_size)
        if size not in {0, FILLER_SIZE}:
            return offset >= log_min
        return first_live(file.buffer, self.unit_size, units, log_min) < units

    async def clear(self) -> None:
        """Delete every file."""
        self._cuts, self._last = self._cuts + 1, None
        await self.files.remove_after(-1)
        self.end = self.indexed_end = self.dirty_from = 0
        self._forget_live()

    def close(self) -> None:
        """Unmap the files of this queue."""
        self.files.close()
