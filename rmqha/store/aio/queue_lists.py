"""Writes the list of queues at a stop in order, and looks at the next start what of it is missing.

``store/queue_list.py`` has the file and why it is there. Nothing of a queue's content is read for it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from itertools import islice

from rmqha.base.errors import DiskFull
from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import Disk
from rmqha.store.aio.consume_queues import ConsumeQueues
from rmqha.store.checkpoint import Checkpoint
from rmqha.store.queue_list import (
    BYTES_MAX,
    FILE,
    ListedQueue,
    decode,
    encode,
    encode_row,
    rows,
    seal_of,
)
from rmqha.store.settings import StoreSettings

TURN_ROWS = 512
"""Queues that are listed, or compared with the list, before others get their turn: a millisecond."""


class QueueLists:
    """The list of one store."""

    def __init__(
        self, disk: Disk, settings: StoreSettings, queues: ConsumeQueues, log: Logger
    ) -> None:
        self._disk = disk
        self._path = settings.path(FILE)
        self._queues = queues
        self._log = log

    async def write(self, checkpoint: Checkpoint, log_begin: int) -> None:
        """List what is there; where a full disk has no room for it, the next start does without.

        Args:
            checkpoint: as it was written last.
            log_begin: first offset of the commit log.

        Raises:
            DiskFailed: it cannot be written.
        """
        seal = seal_of(checkpoint)
        listed, parts = _listed(self._queues), []
        while part := b"".join(map(encode_row, islice(listed, TURN_ROWS))):
            parts.append(part)
            await asyncio.sleep(0)
        with contextlib.suppress(DiskFull):
            await self._disk.write_atomic(self._path, encode(seal, log_begin, b"".join(parts)))

    async def find_missing(self, checkpoint: Checkpoint, log_begin: int) -> None:
        """Have the queues note what the last stop left and is not there: a start after that stop.

        A file that is larger than any store's list is left out of account, and said so.

        Raises:
            DiskFailed: the list cannot be read.
        """
        try:
            size = await self._disk.file_size(self._path)
            if size > BYTES_MAX:
                self._log.log("warning", "queue_list_too_large", path=self._path, size=size)
                return
            found = decode(await self._disk.read(self._path))
        except FileNotFoundError:
            return
        if found is None or not found.counts(checkpoint, log_begin):
            return
        listed = rows(found)
        while part := list(islice(listed, TURN_ROWS)):
            for one in part:
                self._queues.need(one)
            await asyncio.sleep(0)

    async def remove(self) -> None:
        """The store is open: what is listed changes.

        Raises:
            DiskFailed: it cannot be removed.
        """
        await self._disk.remove(self._path)


def _listed(queues: ConsumeQueues) -> Iterator[ListedQueue]:
    for (topic, queue_id), queue in list(queues.queues.items()):
        yield ListedQueue(topic, queue_id, queue.batch, queue.files.first, queue.end)
