"""The whole replica: store, replication, the ReplicasManager, topics, and both ports.

Everything reaches the machine through ports, so the same replica runs in the simulator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from rmqha.auth.aio.guard import Refusals
from rmqha.base.errors import DiskFailed, RmqhaError
from rmqha.base.ids import MasterEpoch, SyncStateSetEpoch
from rmqha.base.proofs import Secrets
from rmqha.broker.admin.aio.admin_requests import AdminProcessor
from rmqha.broker.admin.aio.config_text import ConfigText
from rmqha.broker.admin.aio.figure_requests import FigureProcessor
from rmqha.broker.admin.aio.upkeep_requests import UpkeepProcessor
from rmqha.broker.aio.doors import Doors
from rmqha.broker.aio.router import Router
from rmqha.broker.common.aio.answers import Answers
from rmqha.broker.common.settings import BrokerConfig
from rmqha.broker.common.statistics import Statistics
from rmqha.broker.common.unique_ids import UniqueIds
from rmqha.broker.deferred.aio.copy_requests import DeferredProcessor
from rmqha.broker.deferred.aio.master_services import MasterServices
from rmqha.broker.groups.aio.client_connections import ClientConnections
from rmqha.broker.groups.aio.client_requests import ClientProcessor
from rmqha.broker.groups.aio.client_watch import watch_clients
from rmqha.broker.groups.aio.group_tool_requests import GroupToolProcessor
from rmqha.broker.groups.aio.offset_requests import OffsetProcessor
from rmqha.broker.groups.consumers import ConsumerTable
from rmqha.broker.groups.producers import ProducerTable
from rmqha.broker.groups.queue_locks import QueueLocks
from rmqha.broker.logical.aio.logical_parts import LogicalParts
from rmqha.broker.membership import events as ev
from rmqha.broker.membership.aio.boot_file import BOOT_FILE, BootFile
from rmqha.broker.membership.aio.log_report import LogReport
from rmqha.broker.membership.aio.manager import ReplicasManager
from rmqha.broker.membership.aio.replication import Replication
from rmqha.broker.membership.aio.requests import ReplicationProcessor
from rmqha.broker.membership.aio.stall_guard import StallGuard, WatchPort
from rmqha.broker.membership.aio.standalone import StandaloneManager
from rmqha.broker.membership.core import ReplicasCore
from rmqha.broker.membership.readiness import not_ready
from rmqha.broker.membership.stall_watch import WatchSettings
from rmqha.broker.naming.aio.lookups import Lookups
from rmqha.broker.naming.aio.other_sets import OtherSets
from rmqha.broker.naming.aio.own_registration import own_registration
from rmqha.broker.naming.messages import MasterKnown
from rmqha.broker.pop.aio.pop_mode import PopParts
from rmqha.broker.pull.aio.arrivals import Arrivals
from rmqha.broker.pull.aio.filter_requests import FilterProcessor
from rmqha.broker.pull.aio.pull_requests import PullProcessor
from rmqha.broker.pull.aio.query_requests import QueryProcessor
from rmqha.broker.pull.filters import Selectors
from rmqha.broker.send.aio.send_parts import SendParts
from rmqha.broker.send.signed_request import BrokerCheck
from rmqha.broker.sync.aio.account_migration import AccountMigration
from rmqha.broker.sync.aio.account_requests import AccountProcessor
from rmqha.broker.sync.aio.comparing import CompareProcessor
from rmqha.broker.sync.aio.files import BrokerFiles
from rmqha.broker.sync.aio.master_copies import MasterCopies
from rmqha.broker.sync.aio.metadata_log import MetadataLog
from rmqha.broker.sync.aio.scrubbing import Scrub
from rmqha.broker.sync.aio.super_only import only_for_super
from rmqha.broker.topics.aio.group_requests import GroupProcessor
from rmqha.broker.topics.aio.rights import Rights
from rmqha.broker.topics.aio.topic_requests import TopicProcessor
from rmqha.ha import events as ha_ev
from rmqha.ha.aio.proven_network import ProvenNetwork
from rmqha.ha.aio.service import HaService
from rmqha.ha.busy_wait import Processor
from rmqha.ha.events import Role
from rmqha.ha.ha_core import HaCore
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.aio.server import CONNECTION_IDS
from rmqha.remoting.command import RemotingCommand
from rmqha.runtime.aio.tasks import Tasks
from rmqha.runtime.aio.trace_file import trace_file
from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import Clock, Disk, DiskUse, Names, Network, Rng
from rmqha.store.aio.message_store import MessageStore
from rmqha.store.aio.small_files import IdentityFiles


class BrokerReplica:
    """One replica of a broker set. :meth:`start`, then :meth:`stop`.

    Args:
        config: checked.
        clock, rng, disk, network, log: the ports.
        ha_network: of replication, where that is another one.
        names: where name servers and controllers are looked up; None where they are not.
        boot_id: changes whenever the machine loses its memory; empty when nobody can tell.
        process_id: for the store's ``abort`` file.
        on_fatal: told once what makes it impossible to go on; the owner then calls ``close``.
        on_role: told every complete role.
        used_ratio: see ``MessageStore``.
        memory_bytes: of the machine; with accessMessageInMemoryMaxRatio it says which messages
            count as recent.
        config_path: of the properties file that request 25 may change; empty without one.
        connection_ids: numbers for connections.
        watch: runs who acts for this replica while it stands still; None for nobody.
        processor: for waits without sleep (haBusyWaitMicros); None for none.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock,
        rng: Rng,
        disk: Disk,
        network: Network,
        ha_network: Network | None = None,
        names: Names | None = None,
        log: Logger,
        boot_id: str = "",
        process_id: int = 0,
        on_fatal: Callable[[BaseException], None] | None = None,
        on_role: Callable[[Role, int], None] | None = None,
        used_ratio: DiskUse | None = None,
        memory_bytes: int = 1 << 33,
        config_path: str = "",
        connection_ids: Iterator[int] = CONNECTION_IDS,
        watch: WatchPort | None = None,
        processor: Processor | None = None,
    ) -> None:
        self.config = config
        self.clock = clock
        self._disk = disk
        self._log = log
        self._boot_id = boot_id
        self._on_fatal = on_fatal
        self._on_role = on_role
        self._fatal: BaseException | None = None
        # A plain attribute, as ha and ha_core are: every request looks at it.
        self.role: Role | None = None
        self.near_bytes = memory_bytes * config.integer("accessMessageInMemoryMaxRatio") // 100
        self.tasks = Tasks(log, self._failed)
        self._trace = trace_file(config.values, config.store.path(""), disk, clock, log)
        self.answers = Answers(self.tasks, log)
        self.ha: HaService | None = None
        self.ha_core: HaCore | None = None
        self.store = MessageStore(
            clock, disk, config.store, log, process_id=process_id, on_failed=self._failed,
            on_prefix_cut=self._prefix_cut, used_ratio=used_ratio,
        )  # fmt: skip
        self.arrivals = Arrivals(self.store)
        self.metadata: MetadataLog
        self.files = BrokerFiles(
            config, disk, clock, log, log_flushed=self.store.flush_all,
            make_group=lambda group: self.metadata.make_group(group), named=config.auth.named,
        )  # fmt: skip
        self.troubles = self.files.troubles
        self.topics, self.mappings = self.files.topics, self.files.mappings
        self.groups, self.offsets = self.files.groups, self.files.offsets
        self.accounts = self.files.accounts
        self.refusals = Refusals(log)
        self.rejected = self.refusals.counts
        self._check = BrokerCheck(config.auth, self.accounts.find, config.cluster_name)
        secrets = Secrets.of(config.values, "ha")
        self.rights = Rights(self._check, self.accounts, self.refusals, secrets)
        self.metadata = MetadataLog(self, log)
        self.proven: ProvenNetwork | None = None
        if secrets.own:
            ha_network = self.proven = ProvenNetwork(
                ha_network or network, secrets, config.broker_name, clock, rng, log, self.rejected
            )
        if secrets.is_optional:
            log.log("warning", "ha_proof_optional")
        self._migration = AccountMigration(self, disk, log)
        self._join_set(network, ha_network or network, connection_ids, watch, processor)
        self._registration = own_registration(
            self, self._client, log,
            broker_id=lambda: self.manager.broker_id, on_master=self._master_known,
        )  # fmt: skip
        self._lookups = Lookups(
            config, names, clock, log, on_name_servers=self._registration.named,
            on_controllers=lambda *found: self.manager.give(ev.ControllersNamed(*found)),
            # Where the leader names the members a majority of these is needed as well.
            may_forget=lambda: len(self.replicas.search.members) > 1,
        )  # fmt: skip
        unique_ids = UniqueIds(config.address, clock.wall_ms() + rng.randint(0, 1000))
        memberships_max = config.integer("clientMembershipsMax")
        self.producers = ProducerTable(memberships_max)
        self.consumers = ConsumerTable(memberships_max)
        self.selectors = Selectors()
        self.statistics = Statistics(config.integer("statisticsNamesMax"))
        self.locks = QueueLocks(config.integer("queueLocksMax"))
        self.clients = ClientConnections(clock, config.integer("clientRequestsPendingMax"))
        self._clients = ClientProcessor(self, log)
        sets = OtherSets(self._client, clock, lambda: self.name_servers, config.cluster_name)
        self.services = MasterServices(self, disk, sets, unique_ids, log, self._failed)
        self.metadata.on_cut = self.services.cut
        self.pop = PopParts(self, self.services, self._client, disk, log)
        self.metadata.on_ended = self.pop.ended
        self._copy_from_master()
        self.logical = LogicalParts(self, sets, self._registration.told, log)
        self.scrub = Scrub(self, self._client, log)
        self._send = SendParts(
            self, self.services, unique_ids, sets, self.logical.forwarding, self._client,
            self._followed, lambda heir: self.manager.give(ev.SwitchWanted(heir)), log,
        )  # fmt: skip
        self._pull = PullProcessor(self, self.logical.segments, self.logical.forwarding)
        self.admin = AdminProcessor(
            self, log, ConfigText(disk, config_path), disk_use=used_ratio, services=self.services,
            held_pulls=lambda: len(self._pull.waiting),
            waiting_sends=lambda: (
                self._send.sends.waiting_count, self._send.sends.oldest_wait_ms,
            ),
            named=self._lookups.controllers_named,
        )  # fmt: skip
        self._doors = Doors(
            config, self._route(), network=network, clock=clock, check=self._check,
            refusals=self.refusals, connection_ids=connection_ids,
        )  # fmt: skip

    def _join_set(
        self,
        network: Network,
        ha_network: Network,
        connection_ids: Iterator[int],
        watch: WatchPort | None,
        processor: Processor | None,
    ) -> None:
        """The place in the set: replication, the controllers, and who acts during a stall."""
        config, clock, disk, log = self.config, self.clock, self._disk, self._log
        self._replication = Replication(
            config=config, store=self.store, disk=disk, clock=clock, network=ha_network, log=log,
            on_failed=self._ha_failed, trace=self._trace, rejected=self.rejected,
            boot=BootFile(disk, config.store.path(BOOT_FILE), self._boot_id), processor=processor,
        )  # fmt: skip
        self._client = RemotingClient(
            network, clock, config.remoting, on_lost=self._connection_lost,
            connection_ids=connection_ids,
            sign=None if config.auth.credentials is None else config.auth.credentials.sign,
        )  # fmt: skip
        self.replicas = ReplicasCore(config.replicas)
        self._log_report = LogReport(
            self.store, now_ms=clock.now_ms, core=lambda: self.ha_core, broker_id=lambda: self.manager.broker_id,
            is_learner=config.ha.async_learner,
        )  # fmt: skip
        self.manager: ReplicasManager | StandaloneManager
        if config.controllers:
            self.manager = ReplicasManager(
                core=self.replicas, files=IdentityFiles(disk, config.identity_path),
                client=self._client, clock=clock, log=log, tasks=self.tasks, replica=self,
                replication=self._replication,
            )  # fmt: skip
        else:
            self.manager = StandaloneManager(replica=self, tasks=self.tasks)
        self.guard: StallGuard | None = None
        if watch is not None and config.stall_ms:
            self.guard = StallGuard(
                watch, WatchSettings(config.replicas, config.stall_ms, config.auth.credentials), clock, log,
                facts=self._log_report.now, on_fence=lambda is_up: self.manager.fence(is_up=is_up),
                controllers=lambda: self.replicas.search.controllers,
            )  # fmt: skip

    def _copy_from_master(self) -> None:
        """What a slave takes from its master beside the log."""
        self._copies = MasterCopies(
            self, self.metadata, self.services, self._client, self._log,
            followed=self._followed, take_modes=self.pop.take_modes,
            connect=lambda address: self._replication.give(ha_ev.MasterFound(address)),
            save=self.files.save,
        )  # fmt: skip

    def _followed(self) -> str | None:
        """The service address of the master that this broker follows."""
        return self.replicas.place.master_address if self.role is Role.SLAVE else None

    def _route(self) -> Router:
        """Who answers which request."""
        offsets, clients = OffsetProcessor(self).handlers(), self._clients.handlers()
        accounts = AccountProcessor(self, self._client, self._followed).handlers()
        config = self.admin.handlers()
        handovers = self._send.handovers.handlers()
        compared = CompareProcessor(self).handlers()
        if not self.config.auth.authorization:
            accounts, config, handovers, compared = (
                only_for_super(one, self._check, self.accounts, self.refusals)
                for one in (accounts, config, handovers, compared)
            )
        return Router(
            self._log,
            self._send.sends.send_all,
            config,
            FigureProcessor(self).handlers(),
            UpkeepProcessor(self).handlers(),
            accounts,
            ReplicationProcessor(self).handlers(),
            TopicProcessor(self, self._registration.told).handlers(),
            DeferredProcessor(self, self.services).handlers(),
            FilterProcessor(self.config, self.selectors).handlers(),
            self._send.handlers(),
            handovers,
            compared,
            QueryProcessor(self).handlers(),
            self._pull.handlers(),
            self.pop.handlers(),
            clients,
            offsets,
            GroupToolProcessor(self).handlers(),
            self.logical.handlers(offsets, clients),
            GroupProcessor(self).handlers(),
            on_response=self.clients.on_response,
            on_closed=(
                self._clients.closed, self._pull.waiting.closed, self.pop.pops.closed,
                self._send.sends.closed,
            ),
        )  # fmt: skip

    # -- life --------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the store, listen, and join the set in the background; fenced until it has a role.

        Raises:
            StoreMismatch, StoreCorrupted: the store cannot be used; nothing was changed.
            DiskFailed: the disk cannot be used.
            OSError: a port cannot be used.
        """
        await self.store.open()
        loaded = self.store.loaded
        await self._replication.open(clean=loaded is not None and loaded.clean)
        await self.files.load()
        await self.pop.load()  # records of the log may say that topics and groups of it are gone
        self.metadata.open()
        await self.logical.open()
        await self.services.load()
        await self._migration.load()
        await self._doors.open()
        self.files.run(self.tasks)
        self.tasks.start(self.pop.run(), name="files of pop mode")
        self.tasks.start(self.services.keep_files(), name="files of services")
        self.tasks.start(self.logical.cleaning.run(), name="cleaning of mappings")
        self.tasks.start(watch_clients(self, self._clients), name="clients")
        if self.guard is not None:
            self.tasks.start(self.guard.run(), name="signs of life")
        self._registration.named(self.name_servers)
        self.tasks.start(self._copies.tables.run(), name="slave sync")
        self.tasks.start(self.scrub.run(), name="scrub")
        self.tasks.start(self._copies.positions.run(), name="position sync")
        if self._trace is not None:
            await self._trace.open()
            self.manager.record(self._trace)
        await self.manager.start()
        await self._lookups.start(self.tasks)

    async def stop(self) -> None:
        """Leave the name servers, stop serving, and flush everything."""
        self.role = None
        await self._registration.unregister()
        await self.close()

    async def close(self) -> None:
        """Stop at once; the store is closed in order if it still can be."""
        self.role = None
        await self.services.close()
        self.manager.close()
        self._send.sends.close()
        self._pull.waiting.close()
        self.pop.pops.close()
        self._clients.close()
        await self.tasks.close()
        if self.guard is not None:
            self.guard.close()
        await self._doors.close()
        await self._replication.close()
        await self._client.close()
        if self._trace is not None:
            await self._trace.close()
        await self._save_consumers()
        await self.store.close()

    async def _save_consumers(self) -> None:
        """Groups and offsets as they are at the end, unless the disk broke."""
        if self._fatal is not None or self.store.loaded is None:
            return
        try:
            await self.files.save()
            await self.pop.save()
        except DiskFailed as error:
            self._log.log("error", "consumers_not_saved", reason=str(error))

    def _failed(self, error: BaseException) -> None:
        """The disk, a safety rule or a task broke: nothing is served from here on."""
        if self._fatal is not None:
            return
        self._fatal = error
        self.role = None
        self.services.stop()
        self._log.log("error", "broker_failed", error=repr(error))
        if self._on_fatal is not None:
            self._on_fatal(error)

    def _ha_failed(self, error: Exception) -> None:
        self._failed(error if isinstance(error, RmqhaError) else RmqhaError(repr(error)))

    def _prefix_cut(self, min_offset: int) -> None:
        self._replication.give(ha_ev.Trimmed(min_offset))

    # -- what processors see -------------------------------------------------------------------------

    @property
    def broker_id(self) -> int | None:
        """The persistent id; None before there is one."""
        return self.manager.broker_id

    @property
    def name_servers(self) -> tuple[str, ...]:
        """The name servers that are known now."""
        return self._lookups.name_servers

    @property
    def lease_facts(self) -> tuple[bool, int] | None:
        """For request 28."""
        lease = self.manager.lease
        if lease is None or self.role is not Role.MASTER:
            return None
        return self.ha is not None and self.ha.is_leased, lease.losses

    @property
    def peers_unproven(self) -> int:
        """Connections of replication that were taken although the other end proved nothing."""
        return 0 if self.proven is None else self.proven.let_in

    @property
    def busy_waits(self) -> Mapping[str, int]:
        """Waits of replication without sleep, by their ends."""
        return {} if self.ha is None else self.ha.busy_waits

    def not_ready(self) -> str | None:
        """What this replica lacks to serve, in a sentence; None for nothing."""
        lease = self.lease_facts
        return not_ready(self.role, self.ha_core, is_leased=lease is None or lease[0])

    def topics_changed(self) -> None:
        """Keep the topics, and tell the name servers."""
        self.topics.changed()
        self.routes_changed()

    def _connection_lost(self, address: str) -> None:
        self.manager.lost(address)
        self._registration.lost(address)

    def routes_changed(self) -> None:
        """Tell the name servers of the topics."""
        self._registration.changed()

    def notified(self, request: RemotingCommand) -> None:
        """A controller sent 1008."""
        self.manager.give(ev.Notified(request.ext_fields, request.body))

    # -- what the manager asks (membership.aio.manager.ManagedBroker) ----------------------------------------

    @property
    def is_empty(self) -> bool:
        """Whether the log holds nothing."""
        return self.store.max_offset == 0

    async def start_replication(self, broker_id: int) -> MasterEpoch:
        """Read the epochs and listen for slaves.

        Returns:
            The epoch that this replica must not reign in again, 0 for none: it lost power, and
            slaves may have more of that epoch.

        Raises:
            StoreCorrupted, DiskFailed: the epoch file cannot be used.
            OSError: the HA port cannot be used.
        """
        replication = self._replication
        await replication.load(broker_id)
        # Plain attributes: every put looks at them.
        self.ha, self.ha_core = replication.service, replication.core
        if self.ha is not None:
            if self.guard is not None:
                self.ha.is_fenced = self.guard.is_fenced
            await self.ha.start(self.config.values["bindAddress"], self.config.ha_port)
        self._log.log("info", "broker_identified", broker_id=broker_id)
        return replication.lost_epoch

    async def become_master(
        self, epoch: MasterEpoch, ids: frozenset[int], set_epoch: SyncStateSetEpoch
    ) -> bool:
        """Reign; a master that is elected once more goes on serving meanwhile."""
        if self.ha is None:
            return False
        if self.role is not Role.MASTER:
            self.role = None
            self.services.stop()
        if not await self.ha.change_to_master(epoch, ids, set_epoch):
            return False
        if self.role is None:
            await self.offsets.cut(self.store.queues.next_offsets.find, self._log)
        return True

    async def become_slave(self, epoch: MasterEpoch, master_id: int, master_address: str) -> bool:
        """Follow; its HA address comes by ``follow_master``."""
        if self.ha is None:
            return False
        if self.role is Role.MASTER:
            self.role = None
            self.services.stop()
            self.metadata.resign()
        return await self.ha.change_to_slave(epoch, master_id)

    def follow_master(self, ha_address: str) -> None:
        """Connect to a master's HA port, once the tables are those of a moment of the log."""
        self._copies.first.follow(ha_address)

    def serve_as(self, role: Role, epoch: MasterEpoch) -> None:
        """The role is complete: serve, and tell the name servers by a newer topic version."""
        if self._fatal is not None:
            return
        self.role = role
        if role is Role.MASTER:
            self.metadata.reign()
            self.services.start()
            self._migration.start()
        else:
            self.services.stop()
            # Members consume elsewhere now, and are not to be sent back when this one reigns again.
            self.offsets.table.forget_resets()
        self._send.handovers.role_taken(role)
        self._pull.waiting.ask_again()
        self.pop.pops.role_changed()
        self.topics.table.advance(epoch, self.clock.wall_ms())
        self.mappings.changed()
        self.topics_changed()
        self._log.log("info", "role_taken_up", role=role.value, epoch=epoch)
        if self._on_role is not None:
            self._on_role(role, epoch)

    def switch_refused(self, reason: str) -> None:
        """The controllers did not elect whom a planned switch is for."""
        self._send.handovers.refused(reason)

    def log_fields(self) -> dict[str, str]:
        """What a heartbeat says of the log; the election looks at it."""
        return self._log_report.heartbeat_fields()

    # -- name servers ----------------------------------------------------------------------------------------

    def _master_known(self, master: MasterKnown) -> None:
        self.manager.give(ev.NameServerAnswered(master.address, master.ha_address))
