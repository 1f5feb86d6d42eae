"""When the first message of the log was stored, without anybody waiting for the disk.

It is far behind the log's end and has most often left the memory; mqadmin and Prometheus ask for its
time every few seconds. It is read once for each beginning that retention gives the log.
"""

from __future__ import annotations

import contextlib

from rmqha.base.errors import DiskFailed
from rmqha.runtime.aio.tasks import Tasks
from rmqha.store.aio.cold_reads import NotInMemory
from rmqha.store.aio.message_store import MessageStore

NEVER_READ = -1


class OldestMessage:
    """Of one store.

    Args:
        store: whose log it is.
        tasks: run what fetches it.
    """

    def __init__(self, store: MessageStore, tasks: Tasks) -> None:
        self._store = store
        self._tasks = tasks
        self._offset = NEVER_READ
        self._stored_ms = NEVER_READ
        self._is_fetching = False

    def stored_ms(self) -> int:
        """Its store time; -1 without one.

        Raises:
            NotInMemory: it must be read first, for who looks by ``ColdReads``.
        """
        offset = max(0, self._store.min_offset)
        if offset != self._offset:
            record = self._store.reader.look(offset)
            if record is None:
                return NEVER_READ
            self._offset, self._stored_ms = offset, record.store_timestamp
        return self._stored_ms

    def last_known_ms(self) -> int:
        """The same for who cannot wait: until it is read, that of the beginning before."""
        try:
            return self._store.cold.now(self.stored_ms)
        except NotInMemory:
            if not self._is_fetching:
                self._is_fetching = True
                self._tasks.start(self._fetch(), name="oldest message")
            return self._stored_ms

    async def _fetch(self) -> None:
        # A disk that cannot be read is told of by the store, and to whoever pulls.
        with contextlib.suppress(DiskFailed):
            await self._store.cold.look(self.stored_ms)
        self._is_fetching = False
