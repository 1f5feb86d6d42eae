"""Brokers of 5.0.0 and 5.1.0, which name themselves by their address and know no ids.

They ask once, with 1003, for everything: to be registered, to be told the master, and to be elected
when there is none. Here each gets an id like any other broker, taken with the log before 1003 is
decided, and their requests are decided as those of later brokers are: only names are translated,
on the way in and out. Later brokers always send an id, so a request tells by itself which kind it is.

Source: the requests of RocketMQ 5.0.0 and 5.1.0 as observed; RIP-44.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import orjson
from msgspec.structs import replace

from rmqha.base.ids import BrokerId, SyncStateSetEpoch
from rmqha.controller.metadata.decide_alter import (
    HEAD_BYTES_MAX,
    decide_alter_sync_state_set,
    too_long,
)
from rmqha.controller.metadata.decide_elect import ElectRequest, elect_master
from rmqha.controller.metadata.decide_query import METADATA_NOT_EXIST
from rmqha.controller.metadata.decide_register import ADDRESS_LENGTH_MAX, new_replica
from rmqha.controller.metadata.decision import Context, Decision
from rmqha.controller.metadata.state import BrokerSet, MetadataState, Replica, sync_state_set_body
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.headers import int_field

_CHECK_CODE = ";by address"
"""Behind its address in the check code of such a replica."""

REGISTER_FAILED = int(ResponseCode.CONTROLLER_ELECT_MASTER_FAILED)
"""2012; its name was CONTROLLER_REGISTER_BROKER_FAILED then."""
ALTER_FAILED = 2010
"""CONTROLLER_ALTER_SYNC_STATE_SET_FAILED of then."""
_UNKNOWN = -1
_NO_SUCH_ID = BrokerId(2**62)
"""Stands for an address that is not registered, so that it is refused like an id that is not."""

_AROUND_BYTES = 8
"""Around each address in JSON: quotes, a comma, blanks."""

_FIELDS: dict[int, tuple[str, str]] = {
    RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: ("masterBrokerId", "masterAddress"),
    RequestCode.CONTROLLER_REGISTER_BROKER: ("brokerId", "brokerAddress"),
    RequestCode.CONTROLLER_GET_REPLICA_INFO: ("brokerId", "brokerAddress"),
}
"""Of each request: what later brokers name themselves by, and what these do."""


def is_by_address(code: int, ext_fields: Mapping[str, str]) -> bool:
    """Whether a request comes from such a broker."""
    names = _FIELDS.get(code)
    return names is not None and names[1] in ext_fields and names[0] not in ext_fields


def address_in(code: int, ext_fields: Mapping[str, str]) -> str:
    """The address by which it names itself."""
    return ext_fields.get(_FIELDS[code][1], "")


def knows_no_ids(replica: Replica) -> bool:
    """Whether a registered replica is of that kind."""
    return replica.register_check_code == replica.address + _CHECK_CODE


def id_at(broker_set: BrokerSet | None, address: str) -> BrokerId | None:
    """The id of the replica at an address; the newest one, if it was given several."""
    if broker_set is None:
        return None
    found = (one for one, replica in broker_set.replicas.items() if replica.address == address)
    return max(found, default=None)


def register(
    state: MetadataState, context: Context, ext_fields: Mapping[str, str], body: bytes
) -> Decision:
    """1003: take an id if it has none, which is decided again then; else master and epochs."""
    name, address = ext_fields.get("brokerName", ""), ext_fields.get("brokerAddress", "")
    broker_set = state.sets.get(name)
    broker_id = id_at(broker_set, address)
    if broker_set is None or broker_id is None:
        cluster = ext_fields.get("clusterName", "")
        following = BrokerId(1) if broker_set is None else broker_set.next_id
        taken = new_replica(
            state, context, (cluster, name, following), address, address + _CHECK_CODE
        )
        if isinstance(taken, str):
            return Decision(ResponseCode.CONTROLLER_INVALID_REQUEST, taken)
        return Decision(ResponseCode.SUCCESS, event=taken, decide_again=True)
    asked = ElectRequest(name, broker_id, False, "broker", "registered")
    decision = elect_master(state, context, asked)
    if decision.code in (ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST):
        told = {key: value for key, value in decision.ext_fields.items() if key in _TOLD}
        fields = {**told, "brokerId": str(broker_id)}
        return replace(
            decision, code=int(ResponseCode.SUCCESS), remark=None, ext_fields=fields, body=b""
        )
    nobody = {
        "masterAddress": "", "masterEpoch": str(broker_set.master_epoch),
        "syncStateSetEpoch": str(broker_set.sync_state_set_epoch), "brokerId": str(broker_id),
    }  # fmt: skip
    return Decision(REGISTER_FAILED, decision.remark, nobody, ballot=decision.ballot)


_TOLD = {"masterAddress", "masterEpoch", "syncStateSetEpoch"}


def replica_info(
    state: MetadataState, context: Context, ext_fields: Mapping[str, str], body: bytes
) -> Decision:
    """1004: the master, its epoch, who is in sync, and the asker's id, -1 when it has none."""
    broker_set = state.sets.get(ext_fields.get("brokerName", ""))
    if broker_set is None:
        return METADATA_NOT_EXIST
    own = id_at(broker_set, ext_fields.get("brokerAddress", ""))
    fields = {
        "masterEpoch": str(broker_set.master_epoch),
        "brokerId": str(_UNKNOWN if own is None else own),
    }
    master = broker_set.address(broker_set.master_broker_id)
    if master is not None:
        fields["masterAddress"] = master
    members = _addresses(broker_set, broker_set.sync_state_set)
    return Decision(
        ResponseCode.SUCCESS, ext_fields=fields,
        body=_members_body(members, broker_set.sync_state_set_epoch),
    )  # fmt: skip


def alter(
    state: MetadataState, context: Context, ext_fields: Mapping[str, str], body: bytes
) -> Decision:
    """1001 with addresses for ids."""
    broker_set = state.sets.get(ext_fields.get("brokerName", ""))
    most = context.replicas_per_set_max
    size_max = HEAD_BYTES_MAX + (ADDRESS_LENGTH_MAX + _AROUND_BYTES) * most
    # The comma more is before the epoch.
    if len(body) > size_max or body.count(b",") > most:
        return too_long(context)
    members, epoch = _parse_members(body)
    if members is None:
        return Decision(ResponseCode.SYSTEM_ERROR, "the request's body is not a SyncStateSet")
    master = id_at(broker_set, ext_fields.get("masterAddress", ""))
    # One look at the replicas, however many addresses somebody sends.
    replicas = {} if broker_set is None else broker_set.replicas
    known = {replicas[one].address: one for one in sorted(replicas)}
    ids = {known.get(address, _NO_SUCH_ID) for address in members}
    decision = decide_alter_sync_state_set(
        state, context, {**ext_fields, "masterBrokerId": str(_UNKNOWN if master is None else master)},
        sync_state_set_body(tuple(sorted(ids)), SyncStateSetEpoch(epoch)),
    )  # fmt: skip
    if decision.code == ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED:
        return replace(decision, code=ALTER_FAILED)
    if decision.event is None or broker_set is None:
        return decision
    told = _members_body(sorted(members), int(decision.ext_fields["newSyncStateSetEpoch"]))
    return replace(decision, body=told)


def _addresses(broker_set: BrokerSet, ids: tuple[BrokerId, ...]) -> list[str]:
    found = (broker_set.address(one) for one in ids)
    return [address for address in found if address is not None]


def _members_body(addresses: list[str], epoch: int) -> bytes:
    return orjson.dumps({"syncStateSet": addresses, "syncStateSetEpoch": epoch})


def _parse_members(body: bytes) -> tuple[set[str] | None, int]:
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None, 0
    members = parsed.get("syncStateSet") if isinstance(parsed, dict) else None
    if not isinstance(members, list) or not all(isinstance(one, str) for one in members):
        return None, 0
    epoch = int_field({"epoch": str(parsed.get("syncStateSetEpoch", 0))}, "epoch", -1)
    return set(members), epoch


DECIDERS: dict[
    int, Callable[[MetadataState, Context, Mapping[str, str], bytes], Decision]
] = {
    RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: alter,
    RequestCode.CONTROLLER_REGISTER_BROKER: register,
    RequestCode.CONTROLLER_GET_REPLICA_INFO: replica_info,
}  # fmt: skip
"""What decides their requests."""
