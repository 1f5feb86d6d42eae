"""A broker's replication: the HA service under the id that the controllers gave.

It is there from the moment when the id is known; before it, what the controllers say of the set is
nothing to it. The way of a SyncStateSet leads from ``HaCore`` here to the manager, and its answer
from the manager here to ``HaCore``.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable

from rmqha.base.ids import NEVER_ELECTED, MasterEpoch, SyncStateSetEpoch
from rmqha.broker.common.settings import BrokerConfig
from rmqha.broker.membership.aio.boot_file import BootFile
from rmqha.broker.membership.power_loss import epoch_given_up
from rmqha.ha import events as ha_ev
from rmqha.ha.aio.epoch_file import EpochFile
from rmqha.ha.aio.service import HaService
from rmqha.ha.busy_wait import Processor
from rmqha.ha.ha_core import HaCore
from rmqha.ha.state import LogFacts
from rmqha.ha.traced import HA_KIND, HaStart
from rmqha.runtime.aio.trace_file import TraceFile
from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import Clock, Disk, Network
from rmqha.store.aio.message_store import MessageStore


def _nobody_is_asked(_: frozenset[int], __: int) -> None:
    """A broker alone."""


class Replication:
    """One replica's part in its set.

    Args:
        config: of the broker.
        store: whose log is replicated.
        disk, clock, network, log: the ports.
        on_failed: told when the process must stop.
        trace: keeps the core's events; None for nobody.
        boot: what the last start left.
        rejected: counts, by reason, the connections that were turned away.
        processor: for waits without sleep (haBusyWaitMicros); None for none.

    Attributes:
        service, core: None before the broker has its id.
        lost_epoch: the epoch that this replica must not reign in again, 0 for none (``power_loss``).
        want_set: asks the controllers for a SyncStateSet (1001); the answer comes by ``give``. The
            manager puts itself here; a broker alone has nobody to ask.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        store: MessageStore,
        disk: Disk,
        clock: Clock,
        network: Network,
        log: Logger,
        on_failed: Callable[[Exception], None],
        trace: TraceFile | None,
        rejected: Counter[str],
        boot: BootFile,
        processor: Processor | None,
    ) -> None:
        self._rejected = rejected
        self.service: HaService | None = None
        self.core: HaCore | None = None
        self._config = config
        self._store = store
        self._disk = disk
        self._clock = clock
        self._network = network
        self._log = log
        self.want_set: Callable[[frozenset[int], SyncStateSetEpoch], None] = _nobody_is_asked
        self._on_failed = on_failed
        self._trace = trace
        self._epoch_file = EpochFile(disk, config.epoch_path)
        self._boot = boot
        self._processor = processor
        self.lost_epoch: MasterEpoch = NEVER_ELECTED

    async def open(self, *, clean: bool) -> None:
        """Look whether the machine has lost its memory, and what has to be given up for it.

        Args:
            clean: the store was closed in order.

        Raises:
            StoreCorrupted, DiskFailed: the epoch file or that of the boot cannot be used.
        """
        boot = self._boot
        await boot.open(clean=clean)
        last_epoch = (await self._epoch_file.load()).epochs.last_epoch
        self.lost_epoch = epoch_given_up(
            last_epoch, boot.given_up, tail_may_be_lost=boot.tail_may_be_lost
        )
        await boot.keep(self.lost_epoch)

    async def load(self, broker_id: int) -> None:
        """Read the epochs, and make the service.

        Raises:
            StoreCorrupted, DiskFailed: the epoch file cannot be used.
        """
        config, store = self._config, self._store
        await self._disk.make_dirs(os.path.dirname(config.epoch_path))
        loaded = await self._epoch_file.load()
        if loaded.damage is not None:
            self._log.log("warning", "epoch_file_restored", damage=loaded.damage)
        start = HaStart(
            own_id=broker_id,
            settings=config.ha,
            log=LogFacts(
                file_size=store.file_size,
                min_offset=store.min_offset,
                max_offset=store.max_offset,
                flushed_offset=store.flushed_offset,
                confirm_offset=store.confirm_offset,
            ),
            epochs=loaded.epochs.entries,
            now_ms=self._clock.now_ms(),
        )
        self.core = start.make()
        self.service = HaService(
            core=self.core,
            log=store,
            epoch_file=self._epoch_file,
            settings=config.ha,
            clock=self._clock,
            network=self._network,
            listener=self,
            logger=self._log,
            rejected=self._rejected,
            processor=self._processor,
        )
        store.on_flushed = self.service.flushed
        if self._trace is not None:
            self.service.record(self._trace.core(HA_KIND, start))
        if config.replicas.write_lease_ms:
            self.service.granted(0)

    async def close(self) -> None:
        """Close every connection."""
        if self.service is not None:
            await self.service.close()

    # -- what the broker and its controllers say -----------------------------------------------------

    def give(self, event: ha_ev.Event) -> None:
        """Tell the core, if there is one."""
        if self.service is not None:
            self.service.give(event)

    def granted(self, until_ms: int) -> None:
        """The controllers elect nobody else until then."""
        self.give(ha_ev.LeaseGranted(until_ms))

    # -- what replication asks (ha.aio.service.HaListener) ---------------------------------------------

    def alter_sync_state_set(self, ids: frozenset[int], epoch: SyncStateSetEpoch) -> None:
        """Ask the controllers for a set."""
        self.want_set(ids, epoch)

    def ha_failed(self, error: Exception) -> None:
        """Stop the broker: replication broke."""
        self._on_failed(error)
