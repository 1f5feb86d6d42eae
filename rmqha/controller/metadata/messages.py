"""What goes into the controller's machine and what comes out of it.

Source: RIP-44 for the requests and the 1008 notification; the rest is this project's shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from msgspec import Struct, field

from rmqha.base.ids import MasterEpoch, Term
from rmqha.base.machine import Note, Ticked
from rmqha.controller.metadata.probe_messages import AskPeers, PeersHeard, Probe, ProbeAnswered
from rmqha.controller.metadata.state import MetadataState
from rmqha.remoting.heartbeat import Heartbeat


class MachineSettings(Struct, frozen=True):
    """Settings of the controller's core, changeable at run time.

    Attributes:
        enable_elect_unclean_master: elect replicas outside the SyncStateSet when all in it are
            dead; acknowledged messages may be lost.
        notify_broker_role_changed: send 1008 after elections.
        elect_master_max_retry_count: proposals of one controller-triggered election.
        scan_inactive_master_interval_ms: how often the leader looks for sets with a dead master.
        close_grace_ms: how long a broker outlives its closed connection, 0 to 100.
        slave_notify_delay_ms: the latest time after an election at which slaves are told, when
            the old master's connection is closed.
        slave_notify_open_delay_ms: the same when the old master may still accept connections.
        slave_notify_open_margin_ms: in that case, the wait after the new master's first heartbeat
            with the new epoch.
        watch_name_server_route: tell slaves when the name servers name the new master; the two
            delays above count where that cannot be seen.
        cold_start_grace_ms: how long a new leader spares masters that it never heard, and a set's
            first election waits for a newer broker that is heard and not registered.
        renotify_window_ms: a new leader announces elections again that are younger than this.
        adopt_unknown_brokers: 1003 takes in unknown ids (after the controller lost its data).
        requests_queued_per_set_max: waiting requests of one set; more get SYSTEM_BUSY.
        broker_sets_max: sets kept.
        replicas_per_set_max: replicas of one set.
        live_brokers_max: entries of the live table; registered brokers always find room.
        heartbeat_timeout_ms_max: how long one heartbeat counts at most, whatever it says.
        elections_per_set, elections_in_all: how many elections are remembered; 0 for none.
        digest_every: entries between two comparisons of the nodes' states; 0 for none.
        active_probe_timeout_ms: how long a silent master may leave a probe unanswered; 0 for no
            probes.
        active_probe_only_leased: masters are probed only if they hold a write lease.
    """

    enable_elect_unclean_master: bool = False
    notify_broker_role_changed: bool = True
    elect_master_max_retry_count: int = 3
    scan_inactive_master_interval_ms: int = 5_000
    close_grace_ms: int = 100
    slave_notify_delay_ms: int = 300
    slave_notify_open_delay_ms: int = 8_000
    slave_notify_open_margin_ms: int = 1_000
    watch_name_server_route: bool = True
    cold_start_grace_ms: int = 10_000
    renotify_window_ms: int = 5_000
    adopt_unknown_brokers: bool = False
    requests_queued_per_set_max: int = 1_000
    broker_sets_max: int = 20_000
    replicas_per_set_max: int = 1_000
    live_brokers_max: int = 50_000
    heartbeat_timeout_ms_max: int = 300_000
    digest_every: int = 0
    elections_per_set: int = 0
    elections_in_all: int = 0
    active_probe_timeout_ms: int = 0
    active_probe_only_leased: bool = True


class RequestReceived(Struct, frozen=True):
    """A request frame came in; ``token`` comes back in its one ``Reply``."""

    token: int
    connection: int
    code: int
    ext_fields: dict[str, str]
    body: bytes = b""


class HeartbeatHeard(Struct, frozen=True):
    """A 904 came in; nobody waits for what ``step`` says to it."""

    connection: int
    beat: Heartbeat


class Configured(Struct, frozen=True):
    """An operator has changed settings; deadlines already running keep theirs."""

    settings: MachineSettings


class ConnectionClosed(Struct, frozen=True):
    """A broker's or client's connection ended, for whatever reason."""

    connection: int


class LeadershipChanged(Struct, frozen=True):
    """This node may decide from now on, or no longer.

    Attributes:
        is_leader: true only when the first entry of the node's own term is applied.
        term: the Raft term it leads.
        wall_offset_ms: what makes of this node's clock milliseconds since 1970; for people only.
    """

    is_leader: bool
    term: Term
    wall_offset_ms: int | None = None


class Committed(Struct, frozen=True):
    """A log entry is committed; every node sees all of them, in order.

    Attributes:
        index: its position in the log; one at or below the last applied is ignored.
        record: what a ``Propose`` carried; empty for Raft's own entries.
    """

    index: int
    record: bytes


class ProposalDropped(Struct, frozen=True):
    """A proposal of this node, the ``record`` of its ``Propose``, will never commit."""

    record: bytes


class SnapshotLoaded(Struct, frozen=True):
    """The state is replaced by a snapshot that covers the log up to ``index``.

    Attributes:
        state: what ``from_snapshot`` made of ``data``, by whom it was read already.
    """

    index: int
    data: bytes
    state: tuple[int, MetadataState] | None = None


class RouteFollowed(Struct, frozen=True):
    """A name server answers, and does not name the master of ``WatchRoute`` yet."""

    broker_name: str
    master_epoch: MasterEpoch


class RouteUpdated(Struct, frozen=True):
    """Every name server that answers names the master of ``WatchRoute``."""

    broker_name: str
    master_epoch: MasterEpoch


class RouteUnknown(Struct, frozen=True):
    """What ``WatchRoute`` asked for cannot be seen, or not in time."""

    broker_name: str
    master_epoch: MasterEpoch


ControllerEvent: TypeAlias = (
    RequestReceived
    | HeartbeatHeard
    | Configured
    | ConnectionClosed
    | Ticked
    | LeadershipChanged
    | Committed
    | ProposalDropped
    | SnapshotLoaded
    | RouteFollowed
    | RouteUpdated
    | RouteUnknown
    | ProbeAnswered
    | PeersHeard
)


class Reply(Struct, frozen=True):
    """Answer a request; the shell drops it when the request was one-way or its peer is gone."""

    token: int
    code: int
    remark: str | None
    ext_fields: dict[str, str]
    body: bytes


class Propose(Struct, frozen=True):
    """Append ``record`` to the log; ``Committed`` or ``ProposalDropped`` name it again."""

    record: bytes


class Notify(Struct, frozen=True):
    """Send a one-way 1008 NOTIFY_BROKER_ROLE_CHANGED to a broker's registered address.

    Attributes:
        address: ``host:port``.
        ext_fields: masterAddress, masterBrokerId, masterEpoch, syncStateSetEpoch.
        body: SyncStateSet JSON, never empty: brokers read it unchecked.
    """

    address: str
    ext_fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


class WatchRoute(Struct, frozen=True):
    """See when the new master's name servers name it: ``RouteFollowed``, if that takes a while,
    and in the end ``RouteUpdated`` or ``RouteUnknown``. A newer one of the same set replaces it.

    Attributes:
        cluster_name, broker_name: the broker set.
        master_epoch: of the election.
        master_address: ``host:port``; the master itself tells its name servers.
        timeout_ms: when to give up.
    """

    cluster_name: str
    broker_name: str
    master_epoch: MasterEpoch
    master_address: str
    timeout_ms: int


ControllerEffect: TypeAlias = Reply | Propose | Notify | WatchRoute | Probe | AskPeers | Note
Effects: TypeAlias = Sequence[ControllerEffect]
