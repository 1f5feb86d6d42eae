"""A slave connects to its master's log once its tables are those of a moment of that log, and kept.

A replica whose tables nobody knows may not be elected, so it does not follow yet; one whose log was
cut below what its tables hold receives nothing until they are right again. Tables that were copied
must be on disk before: a power cut would leave the log, which goes on from there, and members of a
SyncStateSet are elected with what they have.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from rmqha.base.errors import DiskFailed
from rmqha.broker.groups.aio.ports import Broker
from rmqha.broker.sync.aio.metadata_log import MetadataLog
from rmqha.broker.sync.aio.tables import SlaveSync
from rmqha.ha.events import Role
from rmqha.runtime.aio.tasks import Tasks

RETRY_MS = 200


class FirstCopy:
    """Holds a slave back while its tables are unknown.

    Args:
        sync: copies the tables.
        connect: connects to a master's HA address.
        save: writes the tables that have changed.
    """

    def __init__(
        self,
        broker: Broker,
        metadata: MetadataLog,
        sync: SlaveSync,
        *,
        connect: Callable[[str], None],
        save: Callable[[], Awaitable[None]],
        tasks: Tasks,
    ) -> None:
        self._broker = broker
        self._metadata = metadata
        self._sync = sync
        self._connect = connect
        self._save = save
        self._tasks = tasks
        self._followed_at = ""

    def follow(self, ha_address: str) -> None:
        """Connect to a master's HA port, now or when the tables are known and kept."""
        self._followed_at = ha_address
        if self._metadata.is_known and self._metadata.is_kept:
            self._connect(ha_address)
        else:
            self._tasks.start(self._copy_first(ha_address), name="first copy")

    async def _copy_first(self, ha_address: str) -> None:
        while self._is_followed(ha_address):
            if await self._copied():
                # Another master may have begun to reign meanwhile, and be followed already.
                if self._is_followed(ha_address):
                    self._connect(ha_address)
                return
            await self._broker.clock.sleep(RETRY_MS)

    def _is_followed(self, ha_address: str) -> bool:
        return self._followed_at == ha_address and self._broker.role is not Role.MASTER

    async def _copied(self) -> bool:
        metadata = self._metadata
        if not metadata.is_known and not await self._sync.copy():
            return False
        if not metadata.is_kept:
            metadata.is_kept = True  # unless others come while they are written
            try:
                await self._save()
            except DiskFailed:  # told by the file
                metadata.is_kept = False
        return metadata.is_kept

    async def again(self) -> None:
        """Copy the tables until they are right, or this is no slave any more."""
        while self._broker.role is Role.SLAVE and not await self._copied():
            await self._broker.clock.sleep(RETRY_MS)
