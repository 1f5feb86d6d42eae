"""A master without controllers: Java's classic mode, as far as one broker alone can have it.

It reigns from its start, and nobody is elected in its place. Slaves of the classic mode are not
served: they speak another replication protocol (see ``docs/PARITY.md``).
"""

from __future__ import annotations

from rmqha.base.ids import NEVER_ELECTED, MasterEpoch, SyncStateSetEpoch
from rmqha.broker.membership.aio.manager import ManagedBroker
from rmqha.broker.membership.events import Event
from rmqha.ha.events import Role
from rmqha.runtime.aio.tasks import Tasks
from rmqha.runtime.aio.trace_file import TraceFile

OWN_ID = 1
"""For replication only; name servers list a master as 0."""


class StandaloneManager:
    """Stands where ``ReplicasManager`` stands in a set.

    Args:
        replica: the broker.
        tasks: owns what runs in the background.
    """

    broker_id = OWN_ID
    lease = None

    def __init__(self, *, replica: ManagedBroker, tasks: Tasks) -> None:
        self._replica = replica
        self._tasks = tasks
        self._closed = False

    def record(self, file: TraceFile) -> None:
        """There is no core: nothing is decided."""

    async def start(self) -> None:
        """Take up the role, in the background, as a set's member does."""
        self._tasks.start(self._reign(), name="reign")

    async def _reign(self) -> None:
        await self._replica.start_replication(OWN_ID)
        epoch = MasterEpoch(max(1, int(self._replica.log_fields()["epoch"])))
        alone = frozenset({OWN_ID}), SyncStateSetEpoch(epoch)
        accepted = await self._replica.become_master(epoch, *alone)
        if accepted and not self._closed:
            # Without controllers there is no epoch that name servers could compare.
            self._replica.serve_as(Role.MASTER, NEVER_ELECTED)

    def close(self) -> None:
        """Take up nothing any more."""
        self._closed = True

    def lost(self, address: str) -> None:
        """A connection has ended; there is no lease to lose."""

    def fence(self, *, is_up: bool) -> None:
        """Nobody else can be elected."""

    def give(self, event: Event) -> None:
        """What concerns controllers and elections is nothing to a broker alone."""
