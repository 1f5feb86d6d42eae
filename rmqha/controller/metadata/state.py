"""The replicated state: one object for each broker set, so that its two halves cannot part.

Java keeps the replicas and the sync state of a set in two tables, and cleaning can drop one
without the other; ids are then handed out twice. Here a set is there or it is not.

Source: RIP-44, persistent-broker-id design; Java 5.3.3 ReplicasInfoManager.
"""

from __future__ import annotations

import dataclasses

from msgspec import Struct, field

from rmqha.base.errors import StoreCorrupted
from rmqha.base.ids import BrokerId
from rmqha.controller.metadata.decision import Decision
from rmqha.remoting.bodies import SyncStateSet


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
        cached_replica_info: 1004's answer; dropped by ``changed``.
        cached_body: the SyncStateSet JSON; dropped by ``changed``.
    """

    cluster_name: str
    broker_name: str
    last_issued_id: int = 0
    retired_ids: tuple[BrokerId, ...] = ()
    replicas: dict[BrokerId, Replica] = dataclasses.field(default_factory=dict)
    master_epoch: int = 0
    sync_state_set_epoch: int = 0
    sync_state_set: tuple[BrokerId, ...] = ()
    master_broker_id: BrokerId | None = None
    cached_replica_info: Decision | None = dataclasses.field(
        default=None, compare=False, repr=False
    )
    cached_body: bytes | None = dataclasses.field(default=None, compare=False, repr=False)

    def changed(self) -> None:
        """Drop cached answers; apply calls this after every change."""
        self.cached_replica_info = None
        self.cached_body = None

    def address(self, broker_id: BrokerId | None) -> str | None:
        """The registered address of a replica, None when there is no such one."""
        replica = None if broker_id is None else self.replicas.get(broker_id)
        return None if replica is None else replica.address

    def sync_state_set_body(self) -> bytes:
        """``{"syncStateSet":[1,2],"syncStateSetEpoch":3}``, byte for byte as Java writes it."""
        if self.cached_body is None:
            self.cached_body = sync_state_set_body(self.sync_state_set, self.sync_state_set_epoch)
        return self.cached_body


def sync_state_set_body(ids: tuple[BrokerId, ...], epoch: int) -> bytes:
    """Encode a SyncStateSet; ``ids`` ascending."""
    return SyncStateSet(ids, epoch).encode()


class MetadataState(Struct):
    """Every broker set by brokerName, which is the only key (clusters are just stored)."""

    sets: dict[str, BrokerSet] = field(default_factory=dict)

    def to_snapshot(self) -> list[object]:
        """Plain lists for msgpack, sets and replicas ascending, the same on every node.

        Each set is ``[cluster, name, last_issued_id, retired_ids, [[id, address, check_code]],
        master_epoch, sync_state_set_epoch, sync_state_set, master_broker_id]``.
        """
        return [_set_to_plain(self.sets[name]) for name in sorted(self.sets)]

    @classmethod
    def from_snapshot(cls, plain: object) -> MetadataState:
        """Rebuild the state that ``to_snapshot`` wrote.

        Raises:
            StoreCorrupted: when the shape is not the one above.
        """
        if not isinstance(plain, list):
            raise StoreCorrupted("a snapshot's sets are not a list")
        rebuilt = [_set_from_plain(item) for item in plain]
        return cls({one.broker_name: one for one in rebuilt})


def _set_to_plain(one: BrokerSet) -> list[object]:
    replicas = [
        [broker_id, one.replicas[broker_id].address, one.replicas[broker_id].register_check_code]
        for broker_id in sorted(one.replicas)
    ]
    return [
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


def _set_from_plain(plain: object) -> BrokerSet:
    match plain:
        case [
            str(cluster), str(name), int(last), list(retired), list(replicas),
            int(master_epoch), int(set_epoch), list(members), int() | None as master,
        ]:  # fmt: skip
            return BrokerSet(
                cluster_name=cluster,
                broker_name=name,
                last_issued_id=last,
                retired_ids=_ids(retired),
                replicas=dict(_replica_from_plain(item) for item in replicas),
                master_epoch=master_epoch,
                sync_state_set_epoch=set_epoch,
                sync_state_set=_ids(members),
                master_broker_id=None if master is None else BrokerId(master),
            )
        case _:
            raise StoreCorrupted("a snapshot holds something that is no broker set")


def _replica_from_plain(plain: object) -> tuple[BrokerId, Replica]:
    match plain:
        case [int(broker_id), str(address), str(check_code)]:
            return BrokerId(broker_id), Replica(address, check_code)
        case _:
            raise StoreCorrupted("a snapshot holds something that is no replica")


def _ids(plain: list[object]) -> tuple[BrokerId, ...]:
    if not all(isinstance(number, int) for number in plain):
        raise StoreCorrupted("a snapshot holds something that is no broker id")
    return tuple(BrokerId(number) for number in plain if isinstance(number, int))
