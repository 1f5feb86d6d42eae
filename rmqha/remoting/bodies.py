"""JSON bodies of the controller, the name server's cluster list and the brokers' epoch cache.

Each type writes Java's member names in Java's order and reads what any 5.1.1+ Java peer writes,
fastjson's bare number keys included. Unknown members are ignored; a member of the wrong type makes
the body malformed.

Source: SyncStateSet, ElectMasterResponseBody, BrokerMemberGroup, BrokerReplicasInfo, ClusterInfo and
EpochEntryCache, RocketMQ remoting.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct, field

from rmqha.base.errors import RemoteProtocolError
from rmqha.base.ids import MasterEpoch, SyncStateSetEpoch
from rmqha.remoting import fastjson
from rmqha.remoting.values import as_array, as_number, as_object, as_text


class SyncStateSet(Struct, frozen=True):
    """The in-sync broker ids of a set, ascending, and the epoch of that set."""

    broker_ids: tuple[int, ...]
    epoch: SyncStateSetEpoch

    def encode(self) -> bytes:
        """Write ``{"syncStateSet":[1,2],"syncStateSetEpoch":3}``."""
        ids = ",".join(map(str, sorted(self.broker_ids)))
        return b'{"syncStateSet":[%b],"syncStateSetEpoch":%d}' % (ids.encode(), self.epoch)

    @classmethod
    def decode(cls, body: bytes) -> SyncStateSet:
        """Read a body; a missing set is empty and a missing epoch 0.

        Raises:
            RemoteProtocolError: not such a body.
        """
        members = as_object(fastjson.loads(body))
        epoch = as_number(members.get("syncStateSetEpoch"))
        return cls(_ids(members.get("syncStateSet")), SyncStateSetEpoch(epoch))


class BrokerMemberGroup(Struct, frozen=True):
    """The registered brokers of a set: address by broker id."""

    cluster: str
    broker_name: str
    broker_addrs: Mapping[int, str]

    def members(self) -> dict[str, Any]:
        """The JSON members, addresses by ascending id."""
        return {
            "brokerAddrs": dict(sorted(self.broker_addrs.items())),
            "brokerName": self.broker_name,
            "cluster": self.cluster,
        }

    @classmethod
    def of(cls, value: object) -> BrokerMemberGroup:
        """Read the JSON members.

        Raises:
            RemoteProtocolError: not such an object.
        """
        members = as_object(value)
        return cls(
            as_text(members.get("cluster")),
            as_text(members.get("brokerName")),
            _addresses(members.get("brokerAddrs")),
        )


class ElectMasterResponseBody(Struct, frozen=True):
    """The answer to an election: who belongs to the set, and who is in sync with the new master."""

    broker_member_group: BrokerMemberGroup | None
    sync_state_set: tuple[int, ...]

    def encode(self) -> bytes:
        """Write the body.

        mqadmin reads this body as a bare BrokerMemberGroup, so that its ``#Broker`` lines stay
        empty with a Java controller. The group's members stand at the top level too: brokers
        ignore them there, and mqadmin finds them.
        """
        members: dict[str, Any] = {}
        if self.broker_member_group is not None:
            members = self.broker_member_group.members()
            members = {"brokerMemberGroup": members, **members}
        return fastjson.dumps(members | {"syncStateSet": sorted(self.sync_state_set)})

    @classmethod
    def decode(cls, body: bytes) -> ElectMasterResponseBody:
        """Read a body.

        Raises:
            RemoteProtocolError: not such a body.
        """
        members = as_object(fastjson.loads(body))
        group = members.get("brokerMemberGroup")
        return cls(
            None if group is None else BrokerMemberGroup.of(group),
            _ids(members.get("syncStateSet")),
        )


class ReplicaIdentity(Struct, frozen=True):
    """One replica in the answer to "get sync state data"."""

    broker_name: str
    broker_id: int
    broker_address: str
    alive: bool

    def members(self) -> dict[str, Any]:
        """The JSON members."""
        return {
            "alive": self.alive,
            "brokerAddress": self.broker_address,
            "brokerId": self.broker_id,
            "brokerName": self.broker_name,
        }

    @classmethod
    def of(cls, value: object) -> ReplicaIdentity:
        """Read the JSON members.

        Raises:
            RemoteProtocolError: not such an object.
        """
        members = as_object(value)
        return cls(
            as_text(members.get("brokerName")),
            as_number(members.get("brokerId")),
            as_text(members.get("brokerAddress")),
            members.get("alive") is True,
        )


class ReplicasInfo(Struct, frozen=True):
    """A broker set's state; no master is None twice."""

    master_broker_id: int | None
    master_address: str | None
    master_epoch: int
    sync_state_set_epoch: int
    in_sync_replicas: tuple[ReplicaIdentity, ...] = ()
    not_in_sync_replicas: tuple[ReplicaIdentity, ...] = ()

    def members(self) -> dict[str, Any]:
        """The JSON members; the master's are left out when there is none."""
        members: dict[str, Any] = {
            "inSyncReplicas": [replica.members() for replica in self.in_sync_replicas]
        }
        if self.master_address is not None:
            members["masterAddress"] = self.master_address
        if self.master_broker_id is not None:
            members["masterBrokerId"] = self.master_broker_id
        members["masterEpoch"] = self.master_epoch
        members["notInSyncReplicas"] = [replica.members() for replica in self.not_in_sync_replicas]
        members["syncStateSetEpoch"] = self.sync_state_set_epoch
        return members

    @classmethod
    def of(cls, value: object) -> ReplicasInfo:
        """Read the JSON members.

        Raises:
            RemoteProtocolError: not such an object.
        """
        members = as_object(value)
        master_id, address = members.get("masterBrokerId"), members.get("masterAddress")
        return cls(
            None if master_id is None else as_number(master_id),
            None if address is None else as_text(address),
            as_number(members.get("masterEpoch")),
            as_number(members.get("syncStateSetEpoch")),
            tuple(map(ReplicaIdentity.of, as_array(members.get("inSyncReplicas")))),
            tuple(map(ReplicaIdentity.of, as_array(members.get("notInSyncReplicas")))),
        )


class BrokerReplicasInfo(Struct, frozen=True):
    """The answer to "get sync state data": state by broker name."""

    replicas_info_table: Mapping[str, ReplicasInfo] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Write the body, broker names ascending."""
        table = sorted(self.replicas_info_table.items())
        return fastjson.dumps({"replicasInfoTable": {name: info.members() for name, info in table}})

    @classmethod
    def decode(cls, body: bytes) -> BrokerReplicasInfo:
        """Read a body.

        Raises:
            RemoteProtocolError: not such a body.
        """
        table = as_object(as_object(fastjson.loads(body)).get("replicasInfoTable"))
        return cls({name: ReplicasInfo.of(info) for name, info in table.items()})


class ClusterInfo(Struct, frozen=True):
    """The name server's list of broker sets, and of the sets in each cluster."""

    broker_addr_table: Mapping[str, BrokerMemberGroup]
    cluster_addr_table: Mapping[str, tuple[str, ...]]

    @classmethod
    def decode(cls, body: bytes) -> ClusterInfo:
        """Read a body.

        Raises:
            RemoteProtocolError: not such a body.
        """
        members = as_object(fastjson.loads(body))
        sets, clusters = as_object(members.get("brokerAddrTable")), members.get("clusterAddrTable")
        return cls(
            {name: BrokerMemberGroup.of(group) for name, group in sets.items()},
            {
                name: tuple(sorted(map(as_text, as_array(names))))
                for name, names in as_object(clusters).items()
            },
        )


class EpochEntry(Struct, frozen=True):
    """One mastership's stretch of the commit log, in bytes; the end is exclusive."""

    epoch: MasterEpoch
    start_offset: int
    end_offset: int


class EpochEntryCache(Struct, frozen=True):
    """A broker's epochs; ``broker_id`` 0 is the master, by the name server's habit."""

    cluster_name: str
    broker_name: str
    broker_id: int
    epoch_list: tuple[EpochEntry, ...]
    max_offset: int

    @classmethod
    def decode(cls, body: bytes) -> EpochEntryCache:
        """Read a body.

        Raises:
            RemoteProtocolError: not such a body.
        """
        members = as_object(fastjson.loads(body))
        return cls(
            as_text(members.get("clusterName")),
            as_text(members.get("brokerName")),
            as_number(members.get("brokerId")),
            tuple(map(_epoch_entry, as_array(members.get("epochList")))),
            as_number(members.get("maxOffset")),
        )


def encode_names(names: Iterable[str]) -> bytes:
    """Write the request body of "get sync state data": a list of broker names."""
    return fastjson.dumps(list(names))


def decode_names(body: bytes) -> tuple[str, ...]:
    """Read a list of broker names.

    Raises:
        RemoteProtocolError: not a list of texts.
    """
    return tuple(map(as_text, as_array(fastjson.loads(body))))


def _epoch_entry(value: object) -> EpochEntry:
    members = as_object(value)
    return EpochEntry(
        MasterEpoch(as_number(members.get("epoch"))),
        as_number(members.get("startOffset")),
        as_number(members.get("endOffset")),
    )


def _ids(value: object) -> tuple[int, ...]:
    return tuple(sorted({as_number(item) for item in as_array(value)}))


def _addresses(value: object) -> dict[int, str]:
    addresses: dict[int, str] = {}
    for key, address in as_object(value).items():
        text = key.removeprefix("-")
        if not (text.isascii() and text.isdigit() and len(text) <= 19):
            raise RemoteProtocolError(f"broker id {key!r} is not a number")
        addresses[int(key)] = as_text(address)
    return dict(sorted(addresses.items()))
