"""The replicated state: one object for each broker set, so that its two halves cannot part.

Java keeps the replicas and the sync state of a set in two tables, and cleaning can drop one
without the other; ids are then handed out twice. Here a set is there or it is not.

Source: RIP-44, persistent-broker-id design; Java 5.3.3 ReplicasInfoManager.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import operator
from collections.abc import Generator

import msgspec
from msgspec import Struct

from rmqha.base.errors import StoreCorrupted
from rmqha.base.ids import NEVER_ALTERED, NEVER_ELECTED, BrokerId, MasterEpoch, SyncStateSetEpoch
from rmqha.controller.metadata.decision import Decision
from rmqha.controller.metadata.election_records import ElectionOrder, ElectionRecord
from rmqha.controller.metadata.packed import DIGEST_BITS, Packed
from rmqha.remoting.bodies import SyncStateSet
from rmqha.remoting.headers import INT64_MAX

SETS_A_PART = 256
"""Of a snapshot that is read: a millisecond."""


class Replica(Struct, frozen=True):
    """One registered broker.

    Attributes:
        address: ``host:port`` where it serves clients and takes notifications.
        register_check_code: what it sent with 1013; the same code again is a retry.
    """

    address: str
    register_check_code: str


@dataclasses.dataclass(slots=True)
class BrokerSet:
    """All replicas of one brokerName and which of them is master.

    Attributes:
        last_issued_id: the highest id ever taken; ids are never handed out twice.
        retired_ids: cleaned ids, ascending; nobody else may take them.
        replicas: by id.
        master_epoch: 0 before the first election; grows with every master change.
        sync_state_set_epoch: grows with every change of the set.
        sync_state_set: ascending ids; holds the master whenever there is one.
        master_broker_id: None when there is no master.
        elections: those that are kept, the oldest first.
        cached_replica_info: 1004's answer; dropped by ``changed``.
        cached_body: the SyncStateSet JSON; dropped by ``changed``.
        cached_view: what 60022 says of it; dropped by ``changed``.
    """

    cluster_name: str
    broker_name: str
    last_issued_id: int = 0
    retired_ids: tuple[BrokerId, ...] = ()
    replicas: dict[BrokerId, Replica] = dataclasses.field(default_factory=dict)
    master_epoch: MasterEpoch = NEVER_ELECTED
    sync_state_set_epoch: SyncStateSetEpoch = NEVER_ALTERED
    sync_state_set: tuple[BrokerId, ...] = ()
    master_broker_id: BrokerId | None = None
    elections: tuple[ElectionRecord, ...] = ()
    cached_replica_info: Decision | None = dataclasses.field(
        default=None, compare=False, repr=False
    )
    cached_body: bytes | None = dataclasses.field(default=None, compare=False, repr=False)
    cached_view: bytes | None = dataclasses.field(default=None, compare=False, repr=False)

    def changed(self) -> None:
        """Drop cached answers; apply calls this after every change."""
        self.cached_replica_info = None
        self.cached_body = self.cached_view = None

    @property
    def next_id(self) -> BrokerId:
        """The one that nobody ever had. Logs of before may hold the last one that there is."""
        if self.last_issued_id < INT64_MAX:
            return BrokerId(self.last_issued_id + 1)
        had = {*self.replicas, *self.retired_ids}
        return next(BrokerId(one) for one in itertools.count(1) if one not in had)

    def address(self, broker_id: BrokerId | None) -> str | None:
        """The registered address of a replica, None when there is no such one."""
        replica = None if broker_id is None else self.replicas.get(broker_id)
        return None if replica is None else replica.address

    def sync_state_set_body(self) -> bytes:
        """``{"syncStateSet":[1,2],"syncStateSetEpoch":3}``, byte for byte as Java writes it."""
        if self.cached_body is None:
            self.cached_body = sync_state_set_body(self.sync_state_set, self.sync_state_set_epoch)
        return self.cached_body


def sync_state_set_body(ids: tuple[BrokerId, ...], epoch: SyncStateSetEpoch) -> bytes:
    """Encode a SyncStateSet; ``ids`` ascending."""
    return SyncStateSet(ids, epoch).encode()


@dataclasses.dataclass(slots=True)
class MetadataState:
    """Every broker set by brokerName, which is the only key (clusters are just stored).

    Attributes:
        packed: the sets as a snapshot has them, and their digest; follows ``changed``.
        election_order: the elections of all sets, the oldest first; follows ``apply``.
    """

    sets: dict[str, BrokerSet] = dataclasses.field(default_factory=dict)
    packed: Packed[BrokerSet] = dataclasses.field(init=False, compare=False, repr=False)
    election_order: ElectionOrder = dataclasses.field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Pack what is there when it is asked for."""
        self.packed = Packed(self.sets, pack_set, digest_of_set)
        self.election_order = ElectionOrder(self.sets)

    def changed(self, one: BrokerSet) -> None:
        """A set is another one now, is new, or is gone; apply calls this after every change."""
        one.changed()
        self.packed.changed(one.broker_name)

    def replace(self, other: MetadataState) -> None:
        """Become what ``other`` is, which must not be used afterwards; this object stays."""
        self.sets.clear()
        self.sets.update(other.sets)
        self.packed = other.packed.of(self.sets)
        self.election_order = other.election_order

    def to_snapshot(self) -> list[object]:
        """Plain lists for msgpack, sets and replicas ascending, the same on every node.

        Each set is ``[cluster, name, last_issued_id, retired_ids, [[id, address, check_code]],
        master_epoch, sync_state_set_epoch, sync_state_set, master_broker_id]``, and behind these
        the elections that are kept, if any: older releases read a state without them.
        """
        return [_set_to_plain(self.sets[name]) for name in sorted(self.sets)]

    @classmethod
    def from_snapshot(cls, plain: object) -> MetadataState:
        """Rebuild the state that ``to_snapshot`` wrote.

        Raises:
            StoreCorrupted: when the shape is not the one above.
        """
        try:
            found = msgspec.convert(plain, list[_PlainSet])
        except msgspec.ValidationError as error:
            raise StoreCorrupted(f"a snapshot's sets are none: {error}") from error
        return cls({one.broker_name: one.to_set() for one in found})

    @classmethod
    def reading(cls, packed: list[msgspec.Raw]) -> Generator[None, None, MetadataState]:
        """Rebuild the state whose sets were packed by ``pack_set``, in parts.

        Raises:
            StoreCorrupted: when the shape is not that of ``to_snapshot``.
        """
        sets: dict[str, BrokerSet] = {}
        parts: dict[str, bytes] = {}
        try:
            for number, part in enumerate(packed, 1):
                one = _decode_set(part).to_set()
                sets[one.broker_name] = one
                parts[one.broker_name] = bytes(part)
                if number % SETS_A_PART == 0:
                    yield
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise StoreCorrupted(f"a snapshot holds something that is no set: {error}") from error
        state = cls(sets)
        yield from state.packed.loading(parts)
        return state


def pack_set(one: BrokerSet) -> bytes:
    """One set of a snapshot, in msgpack."""
    return _encode(_set_to_plain(one))


def digest_of_set(one: BrokerSet) -> int:
    """A number that is the same wherever the set is the same, in all its fields.

    Of the fields as they are declared, and not of what a snapshot holds of them: a field that a
    snapshot forgets shows once a node has loaded one.
    """
    said = _encode((_fields_of(one), sorted(one.replicas.items())))
    if one.elections:  # logs of before hold digests of sets that had none
        said += _encode(one.elections)
    return int.from_bytes(hashlib.blake2b(said, digest_size=DIGEST_BITS // 8).digest(), "big")


_encode = msgspec.msgpack.Encoder().encode
# Replicas stand in the order in which they came, which is another one behind a snapshot.
_fields_of = operator.attrgetter(
    *(
        one.name
        for one in dataclasses.fields(BrokerSet)
        if one.compare and one.name not in ("replicas", "elections")
    )
)


def _set_to_plain(one: BrokerSet) -> list[object]:
    replicas = [
        [broker_id, one.replicas[broker_id].address, one.replicas[broker_id].register_check_code]
        for broker_id in sorted(one.replicas)
    ]
    plain: list[object] = [
        one.cluster_name,
        one.broker_name,
        one.last_issued_id,
        list(one.retired_ids),
        replicas,
        one.master_epoch,
        one.sync_state_set_epoch,
        list(one.sync_state_set),
        one.master_broker_id,
    ]
    if one.elections:
        plain.append(msgspec.to_builtins(one.elections))
    return plain


class _PlainSet(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What ``_set_to_plain`` makes, to be read."""

    cluster_name: str
    broker_name: str
    last_issued_id: int
    retired_ids: tuple[BrokerId, ...]
    replicas: list[tuple[BrokerId, str, str]]
    master_epoch: MasterEpoch
    sync_state_set_epoch: SyncStateSetEpoch
    sync_state_set: tuple[BrokerId, ...]
    master_broker_id: BrokerId | None
    elections: tuple[ElectionRecord, ...] = ()

    def to_set(self) -> BrokerSet:
        return BrokerSet(
            cluster_name=self.cluster_name,
            broker_name=self.broker_name,
            last_issued_id=self.last_issued_id,
            retired_ids=self.retired_ids,
            replicas={one: Replica(address, code) for one, address, code in self.replicas},
            master_epoch=self.master_epoch,
            sync_state_set_epoch=self.sync_state_set_epoch,
            sync_state_set=self.sync_state_set,
            master_broker_id=self.master_broker_id,
            elections=self.elections,
        )


_decode_set = msgspec.msgpack.Decoder(_PlainSet).decode
