"""A slave connects to its master's log once its tables are those of a moment of that log.

A replica whose tables nobody knows may not be elected, so it does not follow yet; one whose log was
cut below what its tables hold receives nothing until they are right again.
"""

from __future__ import annotations

from collections.abc import Callable

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
    """

    def __init__(
        self,
        broker: Broker,
        metadata: MetadataLog,
        sync: SlaveSync,
        *,
        connect: Callable[[str], None],
        tasks: Tasks,
    ) -> None:
        self._broker = broker
        self._metadata = metadata
        self._sync = sync
        self._connect = connect
        self._tasks = tasks
        self._followed_at = ""

    def follow(self, ha_address: str) -> None:
        """Connect to a master's HA port, now or when the tables are known."""
        self._followed_at = ha_address
        if self._metadata.is_known:
            self._connect(ha_address)
        else:
            self._tasks.start(self._copy_first(ha_address), name="first copy")

    async def _copy_first(self, ha_address: str) -> None:
        while self._followed_at == ha_address and self._broker.role is not Role.MASTER:
            if await self._sync.copy():
                self._connect(ha_address)
                return
            await self._broker.clock.sleep(RETRY_MS)

    async def again(self) -> None:
        """Copy the tables until they are right, or this is no slave any more."""
        while self._broker.role is Role.SLAVE and not await self._sync.copy():
            await self._broker.clock.sleep(RETRY_MS)
