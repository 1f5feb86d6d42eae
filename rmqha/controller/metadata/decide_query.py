"""1004, 1006 and 1012: questions about the applied state.

1004 is the hot one (each broker asks every 5 s): its whole answer is kept beside the set and
dropped when the set changes. Source: Java 5.3.3 ReplicasInfoManager.
"""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from rmqha.base.ids import BrokerId
from rmqha.controller.metadata.decision import Context, Decision
from rmqha.controller.metadata.state import BrokerSet, MetadataState
from rmqha.remoting.codes import ResponseCode

METADATA_NOT_EXIST = Decision(
    ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST, "Broker metadata is not existed"
)
NOT_SET = Decision(ResponseCode.SYSTEM_ERROR, "not set any response code")


def decide_get_replica_info(
    state: MetadataState, context: Context, ext_fields: Mapping[str, str], body: bytes
) -> Decision:
    """1004: who is master, in which epoch, and the SyncStateSet."""
    broker_set = state.sets.get(ext_fields.get("brokerName", ""))
    return METADATA_NOT_EXIST if broker_set is None else replica_info(broker_set)


def replica_info(broker_set: BrokerSet) -> Decision:
    """1004's answer for a known set, from its cache when nothing has changed."""
    cached = broker_set.cached_replica_info
    if cached is not None:
        return cached
    answer = Decision(
        ResponseCode.SUCCESS,
        ext_fields={
            **_master_fields(broker_set),
            "masterEpoch": str(broker_set.master_epoch),
        },
        body=broker_set.sync_state_set_body(),
    )
    broker_set.cached_replica_info = answer
    return answer


def master_fields(broker_set: BrokerSet) -> dict[str, str]:
    """Master and both epochs, as 1002, 1003 and 1008 carry them; an absent master is left out."""
    return {
        **_master_fields(broker_set),
        "masterEpoch": str(broker_set.master_epoch),
        "syncStateSetEpoch": str(broker_set.sync_state_set_epoch),
    }


def _master_fields(broker_set: BrokerSet) -> dict[str, str]:
    master = broker_set.master_broker_id
    if master is None:
        return {}
    fields = {"masterBrokerId": str(master)}
    address = broker_set.address(master)
    if address is not None:
        fields["masterAddress"] = address
    return fields


def decide_get_next_broker_id(
    state: MetadataState, context: Context, ext_fields: Mapping[str, str], body: bytes
) -> Decision:
    """1012: the next id that nobody ever had; it is not reserved."""
    name = ext_fields.get("brokerName", "")
    broker_set = state.sets.get(name)
    following = 1 if broker_set is None else broker_set.last_issued_id + 1
    return Decision(
        ResponseCode.SUCCESS,
        ext_fields={
            "clusterName": ext_fields.get("clusterName", ""),
            "brokerName": name,
            "nextBrokerId": str(following),
        },
    )


def decide_get_sync_state_data(
    state: MetadataState, context: Context, ext_fields: Mapping[str, str], body: bytes
) -> Decision:
    """1006: replicas in and out of sync of each named set; unknown names are left out."""
    try:
        names = orjson.loads(body)
    except orjson.JSONDecodeError:
        return NOT_SET
    if not isinstance(names, list) or not names:
        return NOT_SET
    known = {name for name in names if isinstance(name, str) and name in state.sets}
    table = {name: _replicas_info(state.sets[name], context) for name in sorted(known)}
    return Decision(ResponseCode.SUCCESS, body=orjson.dumps({"replicasInfoTable": table}))


def _replicas_info(broker_set: BrokerSet, context: Context) -> dict[str, object]:
    in_sync: list[dict[str, object]] = []
    not_in_sync: list[dict[str, object]] = []
    for broker_id in sorted(broker_set.replicas):
        group = in_sync if broker_id in broker_set.sync_state_set else not_in_sync
        group.append(_replica_identity(broker_set, context, broker_id))
    info: dict[str, object] = {"inSyncReplicas": in_sync}
    address = broker_set.address(broker_set.master_broker_id)
    if address is not None:
        info["masterAddress"] = address
    if broker_set.master_broker_id is not None:
        info["masterBrokerId"] = broker_set.master_broker_id
    info["masterEpoch"] = broker_set.master_epoch
    info["notInSyncReplicas"] = not_in_sync
    info["syncStateSetEpoch"] = broker_set.sync_state_set_epoch
    return info


def _replica_identity(
    broker_set: BrokerSet, context: Context, broker_id: BrokerId
) -> dict[str, object]:
    name = broker_set.broker_name
    return {
        "alive": context.live.alive(context.now_ms, broker_set.cluster_name, name, broker_id),
        "brokerAddress": broker_set.replicas[broker_id].address,
        "brokerId": broker_id,
        "brokerName": name,
    }
