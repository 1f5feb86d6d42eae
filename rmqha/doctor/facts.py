"""What was seen of a cluster: the only thing that rules know.

An address at which nobody answers is a fact like any other. What was not asked for, or is not
told by this kind of node, is None or empty; a rule that needs it then says nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from ipaddress import ip_address

from msgspec import Struct, field

from rmqha.base.errors import ConfigInvalid
from rmqha.base.ids import MASTER_ID
from rmqha.broker.common.settings import DEFAULTS
from rmqha.doctor.values import is_true
from rmqha.ha.epochs import EpochEntry
from rmqha.remoting.address import format_address, parse_address, split_addresses
from rmqha.remoting.bodies import BrokerMemberGroup, EpochEntryCache, ReplicaIdentity, ReplicasInfo
from rmqha.store.checkpoint import Checkpoint
from rmqha.store.identity import Identity


class Door(Enum):
    """How a server that works has to be spoken to, where it was spoken to otherwise."""

    TLS = "it speaks TLS alone, and was spoken to in plain"
    PLAIN = "it speaks no TLS, and was spoken to by TLS"
    CERTIFICATE = "it speaks TLS, and a certificate, its own or the one it asks for, does not fit"


class Silent(Struct, frozen=True):
    """Why a node says nothing.

    Attributes:
        connected: it took the connection, and then did not answer.
        ended: it ended the connection, or answered with something else, instead of being silent.
        door: what it would be spoken to by; None where that is not why it says nothing.
        is_other: what it answered is of another protocol than ours.
    """

    connected: bool
    reason: str
    door: Door | None = None
    ended: bool = False
    is_other: bool = False

    @property
    def hangs(self) -> bool:
        """Whether it takes connections, and nothing comes."""
        return self.connected and not self.ended

    @property
    def is_stranger(self) -> bool:
        """Whether another server listens there, whatever way it would be spoken to."""
        return self.is_other and self.door is None


class SetView(Struct, frozen=True):
    """A broker set as one controller has applied it."""

    master_id: int | None
    master_epoch: int
    sync_state_set: tuple[int, ...]
    set_epoch: int


class ControllerView(Struct, frozen=True):
    """What one of our controllers tells of itself (60022); Java's tell nothing of the kind.

    Attributes:
        standing: what its store is, ``new``, ``voter`` or ``recovering`` (ADR 0018); empty of a
            release that does not say, and of a node that joins.
        joining: ids of members that have no vote yet, as it holds them.
    """

    node_id: str
    role: str
    term: int
    may_vote: bool
    applied_index: int
    commit_index: int
    sets: Mapping[str, SetView]
    standing: str = ""
    joining: frozenset[str] = frozenset()

    @property
    def is_removed(self) -> bool:
        """Whether it has learnt that it is no member any more."""
        return self.role == "removed"


class ControllerFacts(Struct, frozen=True):
    """One controller, by its own word.

    Attributes:
        silent: why it said nothing; then the rest is empty.
        refused: why it is no controller, or tells nothing; empty when it is one and does.
        denied: what it refused for who asks; empty for nothing.
        unreadable: why an answer of it says nothing; empty for none.
        leads, leader_address, peers: of 1005; addresses by id.
        view: of ours.
        config: of 1010.
    """

    address: str
    silent: Silent | None = None
    refused: str = ""
    denied: str = ""
    unreadable: str = ""
    leads: bool = False
    leader_address: str = ""
    peers: Mapping[str, str] = field(default_factory=dict)
    view: ControllerView | None = None
    config: Mapping[str, str] = field(default_factory=dict)

    @property
    def answers(self) -> bool:
        """Whether it is there and a controller."""
        return self.silent is None and not self.refused


class NameServerFacts(Struct, frozen=True):
    """One name server and the broker sets that it knows (106); as of a controller."""

    address: str
    silent: Silent | None = None
    refused: str = ""
    denied: str = ""
    unreadable: str = ""
    sets: Mapping[str, BrokerMemberGroup] = field(default_factory=dict)

    @property
    def answers(self) -> bool:
        """Whether it is there and a name server, and says what it knows."""
        return self.silent is None and not self.refused and not self.unreadable


class HaFacts(Struct, frozen=True):
    """Replication by a broker's own word (907).

    Attributes:
        master_address: whose HA port a slave reads from; empty for none.
        transfers: a slave's connection has passed its handshake.
        in_sync_slaves: of a master.
        connected_in_sync: how many of these are connected to it.
        lags: of a master, bytes that each connected slave lacks.
        in_sync_from: of a master, addresses from which slaves in sync are connected.
    """

    is_master: bool
    master_address: str = ""
    transfers: bool = False
    in_sync_slaves: int = 0
    lags: tuple[int, ...] = ()
    connected_in_sync: int = 0
    in_sync_from: tuple[str, ...] = ()


class BrokerFacts(Struct, frozen=True):
    """One broker, by its own word.

    Attributes:
        listed_as: the broker set that controllers, name servers or broker.conf have it in.
        silent: why it said nothing.
        denied: what it refused for who asks; empty for nothing.
        unreadable: why an answer of it says nothing; empty for none.
        runtime: of 28.
        ha: of 907.
        epochs: of 1007; brokers out of controller mode have none.
        config: of 26.
        topics: of 21; None where it refused.
        clock_ahead_ms: how far its clock is before this machine's; None where it cannot be told.
    """

    address: str
    listed_as: str
    silent: Silent | None = None
    denied: str = ""
    unreadable: str = ""
    runtime: Mapping[str, str] = field(default_factory=dict)
    ha: HaFacts | None = None
    epochs: EpochEntryCache | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    topics: frozenset[str] | None = None
    clock_ahead_ms: int | None = None

    @property
    def is_there(self) -> bool:
        """Whether it works, whether or not it tells anything here."""
        return self.silent is None or self.silent.door is not None

    @property
    def log_end(self) -> int | None:
        """Where its commit log ends; None where it does not say."""
        text = self.runtime.get("commitLogMaxOffset", "")
        return int(text) if text.isdecimal() else None

    @property
    def is_java(self) -> bool:
        """Whether it says that it is one of Java's."""
        version = self.runtime.get("brokerVersionDesc", "")
        return bool(version) and not version.startswith("rmqha")

    @property
    def named_controllers(self) -> tuple[str, ...]:
        """The controllers that decide about it, by its configuration."""
        if not is_true(self.config, "enableControllerMode"):
            return ()
        return tuple(split_addresses(self.config.get("controllerAddr", "")))

    @property
    def acts_as_master(self) -> bool:
        """Whether it says that it is master."""
        return self.ha is not None and self.ha.is_master

    @property
    def is_learner(self) -> bool:
        """Whether it copies the log and shall never be master."""
        return is_true(self.config, "asyncLearner")

    @property
    def stands_in(self) -> bool:
        """Whether it serves for a master that is away, as a slave, without taking writes."""
        return is_true(self.config, "enableSlaveActingMaster")

    @property
    def ha_address(self) -> str:
        """Where slaves are to connect, by its configuration; empty when that is not known."""
        host, port = self.config.get("brokerIP2", ""), self.config.get("haListenPort", "")
        return format_address(host.strip("[]"), int(port)) if host and port.isdigit() else ""


class ConfFacts(Struct, frozen=True):
    """A broker.conf.

    Attributes:
        values: the keys that stand in it.
        refusal: why ``bin/mqbroker`` would not take it; empty when it would.
        address: what the broker would be known by.
        unknown: keys that ``bin/mqbroker`` does not know; not looked for in a file that it refuses.
    """

    path: str
    values: Mapping[str, str]
    refusal: str = ""
    address: str = ""
    unknown: tuple[str, ...] = ()

    def text(self, key: str, default: str = "") -> str:
        """A key's value without blanks around it."""
        return self.values.get(key, "").strip() or default

    @property
    def controller_mode(self) -> bool:
        """Whether controllers decide about roles."""
        return is_true(self.values, "enableControllerMode")

    @property
    def commit_log_file_size(self) -> int | None:
        """mappedFileSizeCommitLog, bytes; None where the file gives none that can be used."""
        text = self.text("mappedFileSizeCommitLog", DEFAULTS["mappedFileSizeCommitLog"])
        return int(text) if text.isascii() and text.isdigit() else None

    @property
    def controllers(self) -> tuple[str, ...]:
        """The addresses of controllerAddr."""
        return tuple(split_addresses(self.text("controllerAddr")))


class IdentityFacts(Struct, frozen=True):
    """The identity files of a store.

    Attributes:
        damage: what is wrong with the final file; empty for nothing.
    """

    path: str
    final: Identity | None = None
    temporary: Identity | None = None
    damage: str = ""


class QueueFacts(Struct, frozen=True):
    """A consume queue on disk.

    Attributes:
        max_offset: the offset after its last unit.
        log_end: where that one's record ends.
        min_offset: the first offset that its files have room for.
        damage: what is missing between the first and the last unit; empty for nothing.
    """

    topic: str
    queue_id: int
    max_offset: int
    log_end: int
    min_offset: int = 0
    damage: str = ""


class StoreFacts(Struct, frozen=True):
    """A message store on disk.

    Attributes:
        min_offset, end_offset: of the commit log: where its first file begins, where whole records
            end; 0 and 0 without files.
        end_reason: why they end there.
        missing_before: a file whose predecessor is missing; empty for none.
        damage: what recovery would refuse; empty for nothing.
        later_record: offset of a whole record behind the end; None without one.
        checkpoint: None without the file, or where it is damaged.
        checkpoint_damage: what is wrong with it; empty for nothing.
        abort: the file of a broker that runs, or did not stop in order.
        epochs: None without a readable epoch file.
        epoch_damage: what is wrong with the epoch file.
        consumer_offsets: by topic, group and queue id.
        config_damages: why files of ``config`` cannot be used, by path, where no copy stands in.
        log_sizes: bytes of each file of the commit log, by path; empty files are none.
        files_read: how many of these were read: the newest, or those before a gap.
        lost_queues: those that are not as a stop in order left them, with what they have.
        unreached: the same of queues without which messages of the files that were read are.
    """

    path: str
    min_offset: int = 0
    end_offset: int = 0
    end_reason: str = ""
    missing_before: str = ""
    damage: str = ""
    later_record: int | None = None
    checkpoint: Checkpoint | None = None
    abort: bool = False
    epochs: tuple[EpochEntry, ...] | None = None
    epoch_damage: str = ""
    queues: tuple[QueueFacts, ...] = ()
    consumer_offsets: Mapping[tuple[str, str, int], int] = field(default_factory=dict)
    checkpoint_damage: str = ""
    config_damages: Mapping[str, str] = field(default_factory=dict)
    log_sizes: Mapping[str, int] = field(default_factory=dict)
    files_read: int = 0
    lost_queues: tuple[str, ...] = ()
    unreached: tuple[str, ...] = ()

    @property
    def has_data(self) -> bool:
        """Whether any message was ever written."""
        return self.end_offset > 0


class PortFacts(Struct, frozen=True):
    """A port that broker.conf asks for, and whether this machine would give it now."""

    key: str
    port: int
    is_free: bool


class Facts(Struct, frozen=True):
    """All that was seen, in one look.

    Attributes:
        sets: the leading controller's word (1006), by broker name.
        has_sets: it was asked for them and answered.
        set_name: the one broker set that was asked for; empty for all.
        resolved: addresses of host names as this machine finds them; none for a name that it
            does not find.
        moved: the addresses at which controllers had a broker, by set and id, since the first look
            of a check; only of those that had several.
    """

    controllers: tuple[ControllerFacts, ...] = ()
    name_servers: tuple[NameServerFacts, ...] = ()
    brokers: tuple[BrokerFacts, ...] = ()
    sets: Mapping[str, ReplicasInfo] = field(default_factory=dict)
    has_sets: bool = False
    set_name: str = ""
    conf: ConfFacts | None = None
    identity: IdentityFacts | None = None
    store: StoreFacts | None = None
    ports: tuple[PortFacts, ...] = ()
    resolved: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    moved: Mapping[tuple[str, int], tuple[str, ...]] = field(default_factory=dict)

    @property
    def leaders(self) -> tuple[ControllerFacts, ...]:
        """Controllers that say they lead."""
        return tuple(one for one in self.controllers if one.leads)

    @property
    def may_hide_leader(self) -> bool:
        """Whether a controller works and does not tell, here, whether it leads."""
        return any(
            (one.refused and one.denied) or (one.silent is not None and one.silent.door is not None)
            for one in self.controllers
        )

    @property
    def elsewhere(self) -> list[str]:
        """Addresses of nodes that are no machine's word for itself."""
        found = [one.address for one in self.controllers]
        found += [one.address for one in self.name_servers]
        found += [one.address for one in self.brokers]
        return [address for address in found if not is_loopback(address)]

    def broker(self, address: str | None) -> BrokerFacts | None:
        """The broker at an address."""
        return next((one for one in self.brokers if one.address == address), None)

    def brokers_of(self, name: str) -> tuple[BrokerFacts, ...]:
        """The brokers of a set that answered and are of it by their own word, too."""
        return tuple(
            one
            for one in self.brokers
            if one.listed_as == name
            and one.silent is None
            and (one.epochs is None or one.epochs.broker_name in ("", name))
        )

    def master_of(self, name: str) -> BrokerFacts | None:
        """The broker that controllers have as a set's master, if it answered."""
        info = self.sets.get(name)
        found = None if info is None else self.broker(info.master_address)
        return found if found is not None and found.silent is None else None

    def is_same(self, one: str, other: str) -> bool:
        """Whether two addresses are of one place, host names looked up."""
        return one == other or bool(self._places(one) & self._places(other))

    def hosts(self, address: str) -> set[str]:
        """The host of an address, and what its name means here."""
        return {host for host, _ in self._places(address)}

    def _places(self, address: str) -> set[tuple[str, int]]:
        try:
            host, port = parse_address(address)
        except ConfigInvalid:
            return set()
        return {(found, port) for found in (*self.resolved.get(host, ()), host)}


def replicas_of(info: ReplicasInfo) -> tuple[ReplicaIdentity, ...]:
    """Every replica of a set."""
    return (*info.in_sync_replicas, *info.not_in_sync_replicas)


def is_loopback(address: str) -> bool:
    """Whether an address means the machine of whoever reads it, or none at all."""
    try:
        host, _ = parse_address(address)
    except ConfigInvalid:
        return False
    if host == "localhost":
        return True
    try:
        found = ip_address(host)
    except ValueError:
        return False
    return found.is_loopback or found.is_unspecified


def registered_master(group: BrokerMemberGroup) -> str | None:
    """Whom a name server's clients send to."""
    return group.broker_addrs.get(MASTER_ID)


def controlled_sets(facts: Facts) -> Iterator[tuple[str, ReplicasInfo]]:
    """The broker sets that controllers know, by name."""
    yield from sorted(facts.sets.items())
