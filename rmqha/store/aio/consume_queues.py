"""All consume queues of a store, and the table of next queue offsets.

Source: RocketMQ's protocol as observed.
"""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar

from rmqha.base.errors import DiskFull, RmqhaError, StoreDamaged
from rmqha.remoting.topic_names import LIGHT_PREFIX
from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import Disk, MappedFile
from rmqha.store import properties as props
from rmqha.store.aio.commit_log import CommitLog
from rmqha.store.aio.next_offsets import NextOffsets, raised
from rmqha.store.aio.queue_files import QueueFiles
from rmqha.store.consume_queue import (
    BATCH_SIZE_MAX,
    SCHEDULE_TOPIC,
    UNIT,
    BatchUnit,
    name_error,
    unit_tags_code,
)
from rmqha.store.metadata_records import METADATA_KEY, ended_topics
from rmqha.store.queue_list import ListedQueue
from rmqha.store.record import INNER_BATCH, TRANSACTION_MASK, Head
from rmqha.store.scan import QueueRun, QueueRunKey
from rmqha.store.settings import StoreSettings

PLAIN = "consumequeue"
BATCH = "batchconsumequeue"
Key = tuple[bytes, int]
Flush = Callable[[int], Awaitable[object]]
Item = TypeVar("Item")

_UNUSUAL_TOPICS = frozenset({SCHEDULE_TOPIC, METADATA_KEY})
"""Of which each record means more than its unit."""

_LIGHT = LIGHT_PREFIX.encode()
"""Before the names of Java's light queues, in which messages of other topics are found once more."""

MOUNTS_OWN = "lost+found"
"""Stands at the top of a file system, which the queues may have to themselves; only root may look."""

QUEUE_OFFSET_MAX = ((1 << 63) - 1) // UNIT.size
"""Beyond it no file of units has a name that Java could read."""

AT_ONCE = 4
"""Queues that are synced or cut at a time; the pool of threads has six where there are two cores."""

HEAD_BYTES = 65_536
"""Written bytes of a queue up to which it is recovered without being mapped."""

TURN_QUEUES = 64
"""Queues that are looked at before others get their turn."""

TOLD_MAX = 32
"""Queues with something missing of which each has a line in the log."""

TURN_ENDS = 4096
"""Queues that are asked for nothing but their end before that: a millisecond."""


class ConsumeQueues:
    """Queues by (topic, queue id); topics are the bytes that records hold.

    Args:
        log: told each record that no queue can hold, and why.

    Attributes:
        anew: where the record stands with which a queue began anew, of those that did since the
            store was opened.
        next_offsets: of the messages to come; of a master only, and made anew at an election.
        skipped: records that no queue can hold: another master wrote them. They stay in the log.
        watched: queues of which somebody waits for a message.
        arrived: those of them that have grown; who told the watcher clears it.
        dirty: queues that may have units that are not durable, as they became so.
        upkeep: held while files are synced or deleted.
    """

    def __init__(
        self,
        disk: Disk,
        settings: StoreSettings,
        log: Logger,
    ) -> None:
        self._disk = disk
        self._log = log
        self._settings = settings
        self._delays = settings.message_delay_levels_ms
        self._gapped: list[tuple[Key, QueueFiles]] = []
        # Where plain queues ended of which a list says that something is missing.
        self._ends: dict[Key, int] = {}
        self.skipped = 0
        self.upkeep = asyncio.Lock()
        self.queues: dict[Key, QueueFiles] = {}
        self.next_offsets = NextOffsets(self.queues)
        self.watched: set[Key] = set()
        self.arrived: dict[Key, None] = {}
        self.dirty: dict[Key, None] = {}
        self.anew: dict[Key, int] = {}

    async def load(self, *, clean: bool) -> None:
        """Recover every queue that has a directory.

        Args:
            clean: the last stop was a clean one.

        Raises:
            StoreMismatch, DiskFailed: as ``QueueFiles.recover``.
        """
        for kind in (PLAIN, BATCH):
            root = self._settings.path(kind)
            names = [name for name in await self._disk.list_dir(root) if _is_topic(name)]
            await _some_at_a_time(names, partial(self._load_topic, kind, clean))

    async def _load_topic(self, kind: str, clean: bool, topic: str) -> None:
        found = await self._disk.survey(self._settings.path(kind, topic), HEAD_BYTES)
        for number, files in found.items():
            if number.isdecimal() and str(int(number)) == number:
                key = (topic.encode(), int(number))
                queue = self._new(key, batch=kind == BATCH)
                if not queue.adopt(files, durable=clean):
                    await queue.recover()
                self._tell_lost(key, queue)
                if key not in self.queues or queue.files.files:
                    self.queues[key] = queue
                    self.dirty[key] = None

    def need(self, one: ListedQueue) -> None:
        """Note what is missing of a queue that a stop in order left; one that is whole stays as it is."""
        key = (one.topic, one.queue_id)
        queue = self.queues.get(key) or self._new(key, batch=one.is_batch)
        is_told = queue.lost_from is not None
        if queue.batch != one.is_batch or key[0].startswith(_LIGHT):
            return
        if queue.lacks(one.first, one.end):
            if not one.is_batch:
                self._ends[key] = one.end
            if not is_told:
                self._tell_lost(key, queue)

    def _tell_lost(self, key: Key, queue: QueueFiles) -> None:
        if queue.lost_from is None:
            return
        self._gapped.append((key, queue))
        if len(self._gapped) <= TOLD_MAX:
            self._log.log(
                "warning", "queue_file_missing", topic=key[0].decode(), queue_id=key[1],
                max_offset=queue.max_offset, offset=queue.lost_from,
            )  # fmt: skip

    def _new(self, key: Key, *, batch: bool) -> QueueFiles:
        directory = self._settings.path(BATCH if batch else PLAIN, key[0].decode(), str(key[1]))
        size = (
            self._settings.mapper_file_size_batch_consume_queue
            if batch
            else self._settings.mapped_file_size_consume_queue
        )
        return QueueFiles(self._disk, directory, size, batch=batch)

    async def _make(self, head: Head, flush: Flush) -> None:
        """Make the queue of a record for which :meth:`dispatch` found none it could use.

        Raises:
            DiskFailed: its directory cannot be made, or the log not be flushed.
        """
        key = (head.topic, head.queue_id)
        old = self.queues.get(key)
        if old is not None:
            await self._begin_anew(key, old, head, flush)
            return
        queue = self._new(key, batch=bool(head.sys_flag & INNER_BATCH))
        await self._disk.make_dirs(queue.files.directory, later=True)
        self.queues[key] = queue

    async def _begin_anew(self, key: Key, queue: QueueFiles, head: Head, flush: Flush) -> None:
        if queue.indexed_end:
            self._log.log(
                "warning", "queue_begins_anew", topic=key[0].decode(), queue_id=key[1],
                offset=head.offset, max_offset=queue.max_offset,
            )  # fmt: skip
            self.anew[key] = head.offset
            await flush(head.offset + head.size)
        async with self.upkeep:
            await queue.clear()

    def cut_anew(self, offset: int) -> bool:
        """Whether a record at or behind ``offset`` began a queue anew: without it the old units are back."""
        gone = [key for key, at in self.anew.items() if at >= offset]
        for key in gone:
            del self.anew[key]
        return bool(gone)

    async def take(self, head: Head, buffer: memoryview, flush: Flush) -> None:
        """Write the unit of a record, in a queue that is made for it, and end the topics it ends.

        Args:
            flush: makes the log durable up to an offset. A queue's files go once the record is that
                says so: if the power took it with them gone, what they named would be read no more.

        Raises:
            DiskFailed: as :meth:`dispatch`; a directory cannot be made, or the log not be flushed.
        """
        if not self.dispatch(head, buffer):
            await self._make(head, flush)
            self.dispatch(head, buffer)
        if head.topic == METADATA_KEY and (topics := ended_topics(_properties(head, buffer))):
            await flush(head.offset + head.size)
            for topic in topics:
                await self._end(topic)

    async def _end(self, topic: bytes) -> None:
        """Delete a topic's queues; records behind, of its next life, are dispatched after this."""
        gone = [self.queues.pop(key) for key in list(self.queues) if key[0] == topic]
        async with self.upkeep:
            for queue in gone:
                await queue.clear()

    def dispatch(self, head: Head, buffer: memoryview) -> bool:
        """Write the unit of a record; False when its queue must be made first.

        PREPARED and ROLLBACK records have none, and those that no queue can hold are counted.

        Raises:
            DiskFailed: no room for a queue's next file.
        """
        if head.sys_flag & TRANSACTION_MASK in (0x4, 0xC):
            return True
        queue = self.queues.get((head.topic, head.queue_id))
        end, number = head.offset + head.size, head.queue_offset
        if queue is None or queue.begins_elsewhere(number) or queue.begins_anew(end, number):
            reason = _why_no_queue(head)
            return False if reason is None else self._skip(head, reason)
        key = (head.topic, head.queue_id)
        self.dirty[key] = None
        if key in self.watched:
            self.arrived[key] = None
        properties = _properties(head, buffer)
        try:
            return self._put(queue, head, properties)
        except struct.error as error:
            return self._skip(head, f"its unit cannot be written: {error}")

    def _skip(self, head: Head, reason: str) -> bool:
        self.skipped += 1
        self._log.log("error", "record_skipped", offset=head.offset, reason=reason)
        return True

    def _put(self, queue: QueueFiles, head: Head, properties: bytes) -> bool:
        code = self._code_of(head, properties)
        if head.queue_offset < 0:
            return self._skip(head, f"queue offset {head.queue_offset}")
        if not queue.batch:
            put = queue.put(head.offset, head.size, code, head.queue_offset)
            if not put and head.offset >= queue.indexed_end:
                return self._skip(head, f"queue offset {head.queue_offset} is another record's")
            return True
        base = props.find_integer(properties, b"INNER_BASE")
        number = props.find_integer(properties, b"INNER_NUM")
        if base is not None and number is not None:
            if number > BATCH_SIZE_MAX:
                return self._skip(head, f"an inner batch of {number} messages")
            queue.put_batch(
                BatchUnit(head.offset, head.size, code, head.store_timestamp, base, number)
            )
        return True

    def code_of(self, head: Head, buffer: memoryview) -> int:
        """The tags code that the unit of a record should have."""
        return self._code_of(head, _properties(head, buffer))

    def _code_of(self, head: Head, properties: bytes) -> int:
        return unit_tags_code(head.topic, properties, head.store_timestamp, self._delays)

    def open_queue_run(self, topic: bytes, queue_id: int) -> QueueRun | None:
        """Where a plain queue stands, for :func:`scan`; None for one that needs ``dispatch``."""
        queue = self.queues.get((topic, queue_id))
        if queue is None or queue.batch or not queue.has_units or topic in _UNUSUAL_TOPICS:
            return None
        return QueueRun(queue.count_end, queue.indexed_end)

    def tails(
        self, queue_runs: dict[QueueRunKey, QueueRun]
    ) -> Iterator[tuple[MappedFile, tuple[int, int]]]:
        """The bytes of each file that :meth:`put_queue_runs` would write, but for a new one's."""
        for (topic, queue_id), queue_run in queue_runs.items():
            queue = self.queues.get((topic[1:], queue_id))
            if queue is not None and queue_run.units and queue.files.holds(queue.end):
                file, within = queue.files.at(queue.end)
                yield file, (within, min(file.size, within + UNIT.size * len(queue_run.units)))

    def put_queue_runs(self, queue_runs: dict[QueueRunKey, QueueRun]) -> None:
        """Write the units that a run collected.

        Raises:
            DiskFailed: no room for a queue's next file; units that are there may come again.
        """
        for (topic, queue_id), queue_run in queue_runs.items():
            if queue_run.units:
                key = (topic[1:], queue_id)
                self.dirty[key] = None
                self.queues[key].put_run(queue_run)
                if key in self.watched:
                    self.arrived[key] = None

    @property
    def indexed_end(self) -> int:
        """End in the commit log of the highest record that any queue knows."""
        return max((queue.indexed_end for queue in self.queues.values()), default=0)

    @property
    def lost_from(self) -> int | None:
        """Some records at or after it lost their units with a queue's file; None for none."""
        lost = (queue.lost_from for _, queue in self._made_anew())
        return min((one for one in lost if one is not None), default=None)

    async def leave_lost(self, before: int, damage: StoreDamaged) -> None:
        """Leave queues as they are that lost units of records before an offset, and say so.

        Raises:
            StoreDamaged: ``damage``, which keeps the log from being walked from there; one of them cannot be used
                as it is, and nothing was changed.
            DiskFailed: no room for what stands for missing units.
        """
        left = [one for one in self._made_anew() if (one[1].lost_from or 0) < before]
        if not all(queue.can_stay for _, queue in left):
            raise damage
        for number, (key, queue) in enumerate(left):
            if number < TOLD_MAX:
                self._log.log(
                    "error", "queue_not_mended", topic=key[0].decode(), queue_id=key[1],
                    offset=queue.lost_from, error=str(damage),
                )  # fmt: skip
            await queue.stay()
        if len(left) > TOLD_MAX:
            self._log.log("error", "queues_not_mended", queues=len(left))
        self._gapped = [one for one in self._gapped if one[1].lost_from is not None]

    async def end_as_listed(self) -> None:
        """Have queues end where a list says that they did, once all records are in them that the log has.

        Those behind have expired or are damaged. To number the next one as if they had never been
        would hide it from groups that are behind them already. A full disk keeps no store shut.

        Raises:
            DiskFailed: a directory or file cannot be made.
        """
        ends, self._ends = self._ends, {}
        for key, end in ends.items():
            queue = self.queues.get(key) or self._new(key, batch=False)
            if queue.batch or queue.end >= end:
                continue
            try:
                await self._disk.make_dirs(queue.files.directory, later=True)
                queue.end_at(end)
            except DiskFull:
                if key not in self.queues:
                    await queue.clear()
                continue
            self.queues[key] = queue
            self.dirty[key] = None

    async def drop_beyond(self) -> None:
        """Delete the files that stand behind a missing one, once ``lost_from`` is noted durably.

        Not those of light queues, which nobody makes anew: they stay where they are, unread.
        """
        if len(self._gapped) > TOLD_MAX:
            self._log.log("warning", "queue_files_missing", queues=len(self._gapped))
        for _, queue in self._made_anew():
            await queue.drop_beyond()

    def _made_anew(self) -> list[tuple[Key, QueueFiles]]:
        return [one for one in self._gapped if not one[0][0].startswith(_LIGHT)]

    async def forget(self, offset: int) -> None:
        """Drop the units that recovery makes anew, durably: of records at or after ``offset``.

        From the log's very beginning nothing is kept, not even a file that was made before the one in
        front. Light queues keep what they have: their units are made by Java's brokers only.
        """
        own = [key for key in self.queues if not key[0].startswith(_LIGHT)]
        if not offset:
            await self._for_each(own, lambda _, queue: queue.clear())
            return
        touched = [key for key in own if self.queues[key].indexed_end > offset]
        await self._for_each(touched, lambda _, queue: queue.cut(offset))

    async def cut(self, offset: int) -> None:
        """Drop the units of records at or after ``offset``, durably, from all queues.

        None is made and none goes meanwhile.
        """
        touched = [key async for key in self._in_turns() if self.queues[key].indexed_end > offset]
        await self._for_each(touched, lambda _, queue: queue.cut(offset))

    async def drop_strangers(self, log: CommitLog, *, clean: bool) -> None:
        """Drop last units that name no record of their own queue: what a torn page left, or a cut of
        Java's, which leaves units where they are.

        Those of light queues all name records of other topics; a record is enough for them.

        Args:
            clean: after a stop in order. Nobody makes anew then what goes here, so a unit stays that
                names a damaged record, or one of another number: Java appends all the same where
                a queue's order is wrong.
        """
        for number, key in enumerate(sorted(self.queues)):
            if number % TURN_QUEUES == 0:
                await asyncio.sleep(0)
            await self._drop_strangers_of(key, self.queues[key], log, clean=clean)

    async def _drop_strangers_of(
        self, key: Key, queue: QueueFiles, log: CommitLog, *, clean: bool
    ) -> None:
        end, last = queue.count_end, queue.last_unit()
        while last is not None and last[1] >= log.min_offset:
            numbered = not (clean or queue.batch)
            if not await self._is_stranger(key, last, log, clean=clean, numbered=numbered):
                break
            end, last = last[0], queue.unit_before(last[0])
            if end % TURN_ENDS == 0:
                await asyncio.sleep(0)
        if end < queue.count_end:
            await queue.keep_to(end)

    async def _is_stranger(
        self, key: Key, unit: tuple[int, int, int], log: CommitLog, *, clean: bool, numbered: bool
    ) -> bool:
        index, offset, size = unit
        _, head = log.check(offset)
        is_own = (head.topic, head.queue_id) == key
        is_own &= not numbered or head.queue_offset == index
        if clean and head.size < 0 and offset < log.max_offset:
            start = await log.record_start(offset, 0)
            # Within a whole record. Else it is a damaged one's, which its replicas may mend.
            return start < offset < start + log.check(start)[1].size
        return head.size != size or not (is_own or key[0].startswith(_LIGHT))

    async def sync(self) -> None:
        """Make all queues durable; raises DiskFailed. They may be cut, and go, meanwhile.

        Only those are looked at that were written to: a store can have a hundred thousand others.
        """
        written, self.dirty = self.dirty, {}
        try:
            await self._for_each(written, self._sync)
        except BaseException:
            self.dirty |= written
            raise

    async def _sync(self, key: Key, queue: QueueFiles) -> None:
        await queue.sync()
        if queue.end > queue.dirty_from:
            # One that was cut meanwhile does not say what of it is durable.
            self.dirty[key] = None

    async def _for_each(
        self, keys: Iterable[Key], work: Callable[[Key, QueueFiles], Awaitable[object]]
    ) -> None:
        """Do it for queues, some at a time: what syncs together shares the file system's journal.

        In the order in which they come: to sort a hundred thousand takes 60 ms.

        Raises:
            DiskFailed: the first; no queue is begun after it.
        """

        async def on(key: Key) -> None:
            queue = self.queues.get(key)
            if queue is not None:
                await work(key, queue)

        await _some_at_a_time(keys, on)

    async def expire(self, log_min: int) -> list[QueueFiles]:
        """Give up files of which the log has no record any more; the queues that had some.

        The caller holds the upkeep lock. :meth:`remove_left` deletes them, and needs none.
        """
        gone: list[QueueFiles] = []
        async for key in self._in_turns():
            queue = self.queues.get(key)
            # The last one stays in any case.
            if queue is not None and len(queue.files.files) > 1:
                if queue.expire(log_min):
                    gone.append(queue)
                await asyncio.sleep(0)  # each look may wait for a page from the disk
        return gone

    async def remove_left(self, queues: list[QueueFiles]) -> None:
        """Delete the files that queues have given up.

        Raises:
            DiskFailed: the first that cannot be removed.
        """
        await _some_at_a_time(queues, lambda queue: queue.files.remove_left())

    async def _in_turns(self) -> AsyncIterator[Key]:
        """The queues that there are now; others get their turn while they are gone through."""
        for number, key in enumerate(list(self.queues), 1):
            yield key
            if number % TURN_ENDS == 0:
                await asyncio.sleep(0)

    async def clear(self) -> None:
        """Delete the files of all queues."""
        await self._for_each(list(self.queues), lambda _, queue: queue.clear())

    def end_numbers(self, properties: bytes) -> None:
        """A record was written that ends topics: what comes behind it begins at 0."""
        for topic in ended_topics(properties):
            self.next_offsets.end(topic)

    async def rebuild_in_turns(self, log: CommitLog, dispatched: int) -> None:
        """Each queue's end, raised by the records that wait for the dispatcher; others get their turn.

        At a change of role the dispatcher is among them: a queue that is first asked then may already
        have units of records that are walked over later. These raise no end twice, for a record names
        its place and the higher end counts; and what ends a topic, or begins one anew, comes in the
        order of the log, with all that follows behind it.
        """
        table = NextOffsets(self.queues)
        for _ in raised(log, table, dispatched):
            await asyncio.sleep(0)
        self.next_offsets = table

    def close(self) -> None:
        """Unmap the files of all queues."""
        for queue in self.queues.values():
            queue.close()


def _properties(head: Head, buffer: memoryview) -> bytes:
    return bytes(buffer[head.properties_at : head.properties_at + head.properties_size])


def _why_no_queue(head: Head) -> str | None:
    """Why there can be no queue for a record; None when there can."""
    if head.queue_id < 0:
        return f"queue {head.queue_id}"
    if not 0 <= head.queue_offset <= QUEUE_OFFSET_MAX:
        return f"queue offset {head.queue_offset}"
    return name_error(head.topic)


def _is_topic(folder: str) -> bool:
    return folder != MOUNTS_OWN and name_error(os.fsencode(folder)) is None


async def _some_at_a_time(items: Iterable[Item], work: Callable[[Item], Awaitable[object]]) -> None:
    """Work on all of them, in their order, ``AT_ONCE`` at any time.

    Raises:
        RmqhaError: the first that came; nothing is begun after it.
    """
    left = enumerate(items)
    failed: list[RmqhaError] = []

    async def worker() -> None:
        for number, item in left:
            if failed:
                return
            try:
                await work(item)
            except RmqhaError as error:
                failed.append(error)
            if number % TURN_QUEUES == 0:
                await asyncio.sleep(0)

    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))
    if failed:
        raise failed[0]
