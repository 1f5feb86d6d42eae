"""1013 APPLY_BROKER_ID and 1003 REGISTER_BROKER.

Ids are never handed out twice: a cleaned id is refused to everyone (Java counts adds instead of
the highest id, #7414). Source: persistent-broker-id design; Java 5.3.3 ReplicasInfoManager.
"""

from __future__ import annotations

from collections.abc import Mapping

from rmqha.auth.registered import address_trouble
from rmqha.base.ids import NEVER_ALTERED, BrokerId
from rmqha.controller.metadata.decide_query import master_fields
from rmqha.controller.metadata.decision import Context, Decision
from rmqha.controller.metadata.events import BrokerAddressUpdated, BrokerIdTaken, Event
from rmqha.controller.metadata.fields import broker_id_field
from rmqha.controller.metadata.state import BrokerSet, MetadataState, sync_state_set_body
from rmqha.remoting.codes import ResponseCode

NAME_LENGTH_MAX = 255
"""Characters of a cluster's and of a broker's name; no others are registered."""
ADDRESS_LENGTH_MAX = 512
CHECK_CODE_LENGTH_MAX = 1024
ID_LEAP_MAX = 1_000
"""So far above the ids that were given may be the one that a broker takes: brokers ask for the next
one, and with the last of all numbers a set would be closed to newcomers for ever."""
RETIRED_IDS_MAX = 10_000
"""So many replicas of a set may have been cleaned before it takes no more: their ids are kept."""
ADOPTED_ID_MAX = 2**53 - 1
"""Who is adopted may have any id, for how many were given was lost; there are enough above it."""


def decide_apply_broker_id(
    state: MetadataState, context: Context, ext_fields: Mapping[str, str], body: bytes
) -> Decision:
    """1013: take an id; the same check code again is a retry and succeeds without an event."""
    name = ext_fields.get("brokerName", "")
    cluster = ext_fields.get("clusterName", "")
    check_code = ext_fields.get("registerCheckCode", "")
    address = check_code.partition(";")[0]
    broker_id = broker_id_field(ext_fields, "appliedBrokerId")
    echo = {"clusterName": cluster, "brokerName": name}
    broker_set = state.sets.get(name)
    asked = ext_fields.get("appliedBrokerId", "null") if broker_id is None else str(broker_id)
    if broker_set is None and broker_id != 1:
        return _invalid_id(
            f"Broker-set: {name} hasn't been registered in controller,"
            f" but broker try to apply brokerId: {asked}",
            echo,
        )
    refused = _invalid_id(f"Fail to apply brokerId: {asked} in broker-set: {name}", echo)
    if broker_id is None:
        return refused
    if broker_set is not None:
        taken = broker_set.replicas.get(broker_id)
        if taken is not None and taken.register_check_code == check_code:
            return Decision(ResponseCode.SUCCESS, ext_fields=echo)
        if taken is not None or broker_id in broker_set.retired_ids:
            return refused
        if broker_id > broker_set.last_issued_id + ID_LEAP_MAX:
            return _invalid_id(
                f"{refused.remark}: it is no id to take, 1012 says the next one", echo
            )
    new = new_replica(state, context, (cluster, name, broker_id), address, check_code)
    if isinstance(new, str):
        return Decision(ResponseCode.CONTROLLER_INVALID_REQUEST, new, echo)
    return Decision(ResponseCode.SUCCESS, ext_fields=echo, event=new)


def new_replica(
    state: MetadataState,
    context: Context,
    identity: tuple[str, str, BrokerId],
    address: str,
    check_code: str,
) -> BrokerIdTaken | str:
    """What gives an id that nobody has to a broker, or why it cannot be, in words.

    Args:
        identity: cluster, broker name and id.
    """
    cluster, name, broker_id = identity
    broker_set = state.sets.get(name)
    problem = _cannot_add(state, context, broker_set, cluster, name, address, check_code)
    return problem or BrokerIdTaken(cluster, name, address, broker_id, check_code)


def _invalid_id(remark: str, echo: dict[str, str]) -> Decision:
    return Decision(ResponseCode.CONTROLLER_BROKER_ID_INVALID, remark, echo)


def _cannot_add(
    state: MetadataState,
    context: Context,
    broker_set: BrokerSet | None,
    cluster: str,
    name: str,
    address: str,
    check_code: str,
) -> str | None:
    """Why a replica cannot be added, in words; None when it can. Everything stored is bounded."""
    if not name or not address:
        return "brokerName and the broker's address must not be empty"
    if max(len(name), len(cluster)) > NAME_LENGTH_MAX:
        return f"brokerName and clusterName may have {NAME_LENGTH_MAX} characters"
    if len(address) > ADDRESS_LENGTH_MAX or len(check_code) > CHECK_CODE_LENGTH_MAX:
        return "the broker's address or registerCheckCode is too long"
    trouble = address_trouble(address, "the broker's address")
    if trouble is not None:
        return trouble
    if broker_set is None and len(state.sets) >= context.broker_sets_max:
        return f"the controller keeps {context.broker_sets_max} broker-sets at most"
    if broker_set is not None and len(broker_set.replicas) >= context.replicas_per_set_max:
        return f"a broker-set has {context.replicas_per_set_max} replicas at most"
    if broker_set is not None and len(broker_set.retired_ids) >= RETIRED_IDS_MAX:
        return (
            f"{RETIRED_IDS_MAX} replicas of this broker-set were cleaned, whose ids nobody else gets:"
            " clean the whole set before it takes another"
        )
    return None


def decide_register_broker(
    state: MetadataState, context: Context, ext_fields: Mapping[str, str], body: bytes
) -> Decision:
    """1003: tell a registered broker who is master, and note its address.

    The four master fields are there only when the master is alive; the SyncStateSet always is.
    """
    name = ext_fields.get("brokerName", "")
    address = ext_fields.get("brokerAddress", "")
    broker_id = broker_id_field(ext_fields, "brokerId")
    broker_set = state.sets.get(name)
    if broker_set is None:
        remark = f"Broker-set: {name} hasn't been registered in controller"
        return _adopted_or_refused(state, context, None, ext_fields, remark)
    if broker_id is None or broker_id not in broker_set.replicas:
        asked = ext_fields.get("brokerId", "null")
        remark = f"BrokerId: {asked} hasn't been registered in broker-set: {name}"
        return _adopted_or_refused(state, context, broker_set, ext_fields, remark)
    moved = bool(address) and address != broker_set.replicas[broker_id].address
    if moved and len(address) > ADDRESS_LENGTH_MAX:
        return Decision(ResponseCode.CONTROLLER_INVALID_REQUEST, "brokerAddress is too long")
    trouble = address_trouble(address, "brokerAddress") if moved else None
    if trouble is not None:
        return Decision(ResponseCode.CONTROLLER_INVALID_REQUEST, trouble)
    event: Event | None = None
    if moved:
        event = BrokerAddressUpdated(broker_set.cluster_name, name, address, broker_id)
    answer = _registered(broker_set, context, ext_fields, broker_id)
    if moved and broker_set.master_broker_id == broker_id and "masterAddress" in answer:
        # Java answers the address from before this update.
        answer["masterAddress"] = address
    return Decision(
        ResponseCode.SUCCESS,
        ext_fields=answer,
        body=broker_set.sync_state_set_body(),
        event=event,
    )


def _registered(
    broker_set: BrokerSet, context: Context, ext_fields: Mapping[str, str], asker: BrokerId
) -> dict[str, str]:
    echo = {
        "clusterName": ext_fields.get("clusterName", ""),
        "brokerName": broker_set.broker_name,
    }
    master = broker_set.master_broker_id
    if master is None:
        return echo
    # The asker is alive, whatever became of its last heartbeat.
    alive = master == asker or context.live.alive(
        context.now_ms, broker_set.cluster_name, broker_set.broker_name, master
    )
    return {**echo, **master_fields(broker_set)} if alive else echo


def _adopted_or_refused(
    state: MetadataState,
    context: Context,
    broker_set: BrokerSet | None,
    ext_fields: Mapping[str, str],
    remark: str,
) -> Decision:
    """After the controller lost its data, take a broker's word for its id when that is allowed."""
    refused = Decision(ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, remark)
    broker_id = broker_id_field(ext_fields, "brokerId")
    if not context.adopt_unknown_brokers or broker_id is None or broker_id > ADOPTED_ID_MAX:
        return refused
    name = ext_fields.get("brokerName", "")
    cluster = ext_fields.get("clusterName", "")
    address = ext_fields.get("brokerAddress", "")
    check_code = f"{address};adopted"
    if _cannot_add(state, context, broker_set, cluster, name, address, check_code) is not None:
        return refused
    if broker_set is None:
        answer = {"clusterName": cluster, "brokerName": name}
        members = sync_state_set_body((), NEVER_ALTERED)
    else:
        cluster = broker_set.cluster_name
        answer = _registered(broker_set, context, ext_fields, broker_id)
        members = broker_set.sync_state_set_body()
    event = BrokerIdTaken(cluster, name, address, broker_id, check_code)
    return Decision(ResponseCode.SUCCESS, ext_fields=answer, body=members, event=event)
