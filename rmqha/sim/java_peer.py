"""Stories of services in sets of which one replica treats its tables as Java's brokers do.

It stores our records of changes (ADR 0022) as any others and passes over them. As a slave it copies
topics, groups, offsets, delays' offsets and the timers' mark from its master every three seconds as a
whole, and takes positions at once; as a master it makes topics and groups without a record, and
answers no more than Java does. Log, replication and services are ours.

What Java's protocol cannot promise is not asked for here, and nothing else:

- that a topic or a group outlives a failover within three seconds of its making (so no topics come
  and go in these stories, and clients make again what is gone, as they do with Java);
- that all replicas end with the same tables: a peer that reigns lacks what it had not copied, and who
  follows it keeps that.

All that is said of messages and of what was promised with them stays.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from rmqha.base.invariants import invariant
from rmqha.broker.aio.replica import BrokerReplica
from rmqha.broker.aio.router import Router
from rmqha.broker.common.aio.held_answers import WAITS_FIELD
from rmqha.broker.common.aio.ports import Handler
from rmqha.broker.common.refusal import Refusal
from rmqha.broker.groups.aio.offset_requests import SINCE_FIELD
from rmqha.broker.sync.aio.master_questions import FoundT, MasterQuestions, Paged
from rmqha.broker.sync.aio.metadata_log import MetadataLog
from rmqha.broker.sync.aio.positions import Positions, PositionSync
from rmqha.broker.sync.aio.tables import SlaveSync
from rmqha.broker.topics.aio.ports import TABLE_FIELD
from rmqha.broker.topics.group_table import GroupTable
from rmqha.broker.topics.metadata import Change
from rmqha.ha.events import Role
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import RemotingCommand
from rmqha.sim.replica_options import ReplicaOptions
from rmqha.sim.service_swarm import ServiceCluster, ServiceSwarm, service_options
from rmqha.sim.story import Outcome, tell
from rmqha.sim.topic_lives import tables_of
from rmqha.store.aio.metadata_reader import MetadataRecord
from rmqha.verify.topic_lives import check_same

PERIOD_MS = 3_000
"""Java's ``syncSlaveMetadataPeriod``."""

HAPPENED = (
    "peer reigned", "peer followed", "peer copied tables", "peer copied positions",
    "peer passed over a record", "peer made something without a record", "peer was copied",
    "peer reigned in the end", "peer followed in the end",
)  # fmt: skip
"""What is to happen in every batch of stories."""

Count = Callable[[str], None]
POSITIONS = (
    RequestCode.GET_ALL_CONSUMER_OFFSET, RequestCode.GET_ALL_DELAY_OFFSET,
    RequestCode.GET_TIMER_CHECK_POINT,
)  # fmt: skip
ASKED = (
    RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, *POSITIONS,
)  # fmt: skip


class JavaMetadata(MetadataLog):
    """Tables without records."""

    count: Count

    @property
    def is_known(self) -> bool:
        """The tables are never those of a moment of the log."""
        return False

    @is_known.setter
    def is_known(self, value: bool) -> None:
        pass

    def open(self) -> None:
        """Use the tables as their files have them."""
        store = self._broker.store
        store.dispatcher.on_metadata = self._passed
        store.on_truncated = self._truncated

    def reign(self) -> None:
        """Nothing waits in the log."""
        self._reigning = True

    def resign(self) -> None:
        """Nothing is taken back."""
        self._reigning = False

    async def _truncated(self, offset: int, before: int) -> None:
        """Positions go back with the log, as ours do; tables stay."""
        await self._broker.offsets.cut(self._broker.store.queues.next_offsets.find, self._log)
        await self.on_cut()

    def _passed(self, record: MetadataRecord) -> None:
        self.count("peer passed over a record")

    def commit(self, change: Change) -> int | Refusal:
        """Change the tables at once."""
        refusal = self._refusal(change)
        if refusal is not None:
            return refusal
        broker, at = self._broker, self._broker.store.max_offset
        self._state.passed(at, at, change, broker.clock.wall_ms())
        broker.topics.changed()
        broker.groups.changed()
        broker.routes_changed()
        self.count("peer made something without a record")
        return at


class JavaQuestions(MasterQuestions):
    """A slave that knows nothing of our fields."""

    async def ask(
        self,
        master: str,
        code: RequestCode,
        read: Callable[[bytes], FoundT],
        fields: Mapping[str, str] | None = None,
        paged: Paged[FoundT] | None = None,
    ) -> FoundT | None:
        """As Java's slaves ask."""
        return await super().ask(master, code, read)


class JavaTables(SlaveSync):
    """What the master has, and nothing else."""

    count: Count

    def _merge(self, master: str, found: Any, groups: GroupTable) -> None:
        broker, self._java = self._broker, master
        self._topics_before = frozenset(broker.topics.table.items)
        self._groups_before = frozenset(broker.groups.table.items)
        self._mappings_before = frozenset(broker.mappings.table.items)
        super()._merge(master, found, groups)
        self.count("peer copied tables")


class JavaPositions(PositionSync):
    """Positions are taken whatever the own log has."""

    count: Count

    async def _reached(self, master: str, found: Positions) -> bool:
        return self._questions.master == master

    async def _take(self, master: str, found: Positions) -> None:
        await super()._take(master, found)
        self.count("peer copied positions")


class JavaReplica(BrokerReplica):
    """A replica with all of that."""

    def __init__(self, count: Count, *given: Any, **ports: Any) -> None:
        self._count = count
        super().__init__(*given, **ports)

    def _copy_from_master(self) -> None:
        super()._copy_from_master()
        # Each part is put together with the others, so it becomes another one where it stands.
        self.metadata.__dict__.pop("is_known")
        for part, kind in (
            (self.metadata, JavaMetadata), (self._copies.tables, JavaTables),
            (self._copies.positions, JavaPositions), (self._copies.questions, JavaQuestions),
        ):  # fmt: skip
            part.__class__ = kind
            part.__dict__["count"] = self._count

    def _route(self) -> Router:
        """Requests of slaves are read as Java reads them: fields that it does not know are none."""
        router = super()._route()
        for code in ASKED:
            router.handlers[code] = self._forgetful(router.handlers[code])
        return router

    def _forgetful(self, handler: Handler) -> Handler:
        def handle(connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
            for name in (TABLE_FIELD, SINCE_FIELD):
                if request.ext_fields and request.ext_fields.pop(name, None):
                    self._count("peer was copied")
            if request.code in POSITIONS:
                # Java's masters tell whatever they have.
                request.ext_fields = {**(request.ext_fields or {}), WAITS_FIELD: "true"}
            return handler(connection, request)

        return handle


class JavaPeerCluster(ServiceCluster):
    """A set with a peer.

    Attributes:
        peer: its host.
    """

    def __init__(self, seed: int, options: ReplicaOptions) -> None:
        super().__init__(seed, options)
        hosts = [host for host in self.broker_hosts if host not in self.learner_hosts]
        self.peer = random.Random(f"peer of {seed}").choice(hosts)

    def _happened(self, what: str) -> None:
        self.counts[what] += 1

    def _maker(self, host: str) -> Callable[..., BrokerReplica]:
        return partial(JavaReplica, self._happened) if host == self.peer else BrokerReplica

    def _properties(self, host: str) -> dict[str, str]:
        return {**super()._properties(host), "syncSlaveMetadataPeriod": str(PERIOD_MS)}

    def _role_taken(self, host: str, role: Role, epoch: int) -> None:
        super()._role_taken(host, role, epoch)
        if host == self.peer:
            self._happened("peer reigned" if role is Role.MASTER else "peer followed")

    def check_tables(self) -> None:
        """Look at the tables once every slave has copied.

        Raises:
            InvariantBroken: replicas of ours differ, or one lacks what its master has.
        """
        self.run_for(2 * PERIOD_MS)
        (master,) = self.master_hosts()
        tables = {host: tables_of(one) for host, one in self.replicas.items()}
        if master != self.peer:
            self._happened("peer followed in the end")
            check_same(tables)
            return
        self._happened("peer reigned in the end")
        told = tables[master]
        for host, has in sorted(tables.items()):
            lacks = sorted(name for name, one in told.items() if has.get(name) != one)
            invariant(not lacks, "a slave lacks what its master has", host=host, names=lacks[:5])


def run_java_peer_seed(seed: int, options: ReplicaOptions | None = None) -> Outcome:
    """Play one seed of services in a set with a peer.

    Raises:
        InvariantBroken: as ``run_service_seed``.
    """
    kind = msgspec.structs.replace(options or service_options(seed), topics=0)
    cluster = JavaPeerCluster(seed, kind)
    swarm = ServiceSwarm(cluster, random.Random(seed))
    return tell(seed, swarm, lambda: (cluster.reigns, len(cluster.acked)))
