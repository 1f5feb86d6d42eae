"""Looks of who goes from record to record by himself, and may meet some that have left the memory.

Such a one ends what it does at the first record that is not in memory, says which it will look at
next, has them read in a thread, and goes on where it was. Requests are made again as a whole instead
(``cold_reads.ColdReads.look``).
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

from rmqha.store.aio.cold_reads import AHEAD_BYTES, NotInMemory, Run
from rmqha.store.aio.message_store import MessageStore
from rmqha.store.aio.reader import Reader
from rmqha.store.record import Record

LOOKS_A_TURN, LOOK_TURNS = 64, 8
"""Records that are looked at in one turn of the loop, 10 to 20 us for each, while clients wait; and
after how many such turns whoever looks does what follows from it."""

AHEAD_MAX = 64
"""Records that are read at once for who goes on there, of so many bytes as for who goes through all."""

FETCHES_MAX = 2
"""Times that one record is read: its length is not known before the first. One that is missing again
is looked at all the same: memory is too short to keep for a moment what was read."""

KNOWN_MAX = 16 * AHEAD_MAX
"""Records of which is remembered that they were read; some of those are never looked at."""


class RecordWalk:
    """Of one who looks at many records, a few at a time."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._missing: dict[int, Sequence[Run]] = {}
        self._fetches: dict[int, int] = {}

    def look(self, offset: int) -> Record | None:
        """As ``Reader.look``.

        Raises:
            NotInMemory: it would have to wait; after :meth:`fetch` it has not to.
        """
        cold, reader = self._store.cold, self._store.reader
        if self._fetches.get(offset, 0) >= FETCHES_MAX:
            record = reader.look(offset)
        else:
            try:
                record = cold.now(lambda: reader.look(offset))
            except NotInMemory as missing:
                self._missing[offset] = missing.runs
                raise
        self._fetches.pop(offset, None)
        return record

    def ahead(self, offsets: Iterable[int]) -> None:
        """Say what is looked at next; as much of it as is worth while is read with what is missing."""
        cold, reader, size = self._store.cold, self._store.reader, 0
        for offset in itertools.islice(offsets, AHEAD_MAX):
            if offset >= cold.far_to or size >= AHEAD_BYTES:
                break
            try:
                cold.now(lambda offset=offset: reader.look(offset))  # type: ignore[misc]
            except NotInMemory as missing:
                self._missing[offset] = missing.runs
                size += sum(end - begin for begin, end in missing.runs)

    async def turns(self, look: Callable[[], bool]) -> bool:
        """Look at many records, in turns between which others have theirs.

        Args:
            look: looks at :data:`LOOKS_A_TURN` records; says whether there may be more.

        Returns:
            What ``look`` said, the last time.
        """
        for _ in range(LOOK_TURNS):
            if not look():
                return False
            if self._missing:
                break
            await asyncio.sleep(0)
        return True

    async def fetch(self) -> bool:
        """Read what is missing; whether anything was.

        Raises:
            DiskFailed: it cannot be read.
        """
        missing, self._missing = self._missing, {}
        if not missing:
            return False
        if len(self._fetches) > KNOWN_MAX:
            self._fetches.clear()
        for offset in missing:
            self._fetches[offset] = self._fetches.get(offset, 0) + 1
        await self._store.cold.fetch([run for runs in missing.values() for run in runs])
        for offset in missing:
            if offset in self._store.mending.damaged:
                await self._store.mending.mend(offset)
        return True


def places(reader: Reader, topic: str, queue_id: int, first: int) -> Iterator[int]:
    """Where the records of a plain queue are, from a queue offset on."""
    for at in range(first, reader.max_offset(topic, queue_id)):
        unit = reader.unit(topic, queue_id, at)
        if unit is not None:
            yield unit.physical_offset
