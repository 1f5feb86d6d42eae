"""1004 and 1012: questions about the applied state.

1004 is the hot one (each broker asks every 5 s): its whole answer is kept beside the set and
dropped when the set changes. Source: Java 5.3.3 ReplicasInfoManager.
"""

from __future__ import annotations

from collections.abc import Mapping

from rmqha.controller.metadata.decision import Context, Decision
from rmqha.controller.metadata.state import BrokerSet, MetadataState
from rmqha.remoting.codes import ResponseCode

METADATA_NOT_EXIST = Decision(
    ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST, "Broker metadata is not existed"
)


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
    following = 1 if broker_set is None else broker_set.next_id
    return Decision(
        ResponseCode.SUCCESS,
        ext_fields={
            "clusterName": ext_fields.get("clusterName", ""),
            "brokerName": name,
            "nextBrokerId": str(following),
        },
    )
