"""1001 ALTER_SYNC_STATE_SET: a master tells which replicas are in sync.

Checks in Java's order; "set unchanged" comes before master and epochs and gives 2013, also when
a lost answer is sent again (brokers recover by 1004). Source: Java 5.3.3
ReplicasInfoManager#alterSyncStateSet.
"""

from __future__ import annotations

from collections.abc import Mapping

from rmqha.base.ids import BrokerId, SyncStateSetEpoch
from rmqha.controller.metadata.decision import Context, Decision
from rmqha.controller.metadata.events import SyncStateSetAltered
from rmqha.controller.metadata.fields import int_field, long_field, parse_sync_state_set
from rmqha.controller.metadata.state import BrokerSet, MetadataState, sync_state_set_body
from rmqha.remoting.codes import ResponseCode

HEAD_BYTES_MAX = 256
"""Of a SyncStateSet's JSON besides its members."""
_ID_BYTES_MAX = 32
"""Of one id: 19 digits, and what stands around them."""

_REJECTED = "Rejecting alter syncStateSet request because the "


def decide_alter_sync_state_set(
    state: MetadataState, context: Context, ext_fields: Mapping[str, str], body: bytes
) -> Decision:
    """Replace the SyncStateSet when the asker is master and knows the current epochs."""
    broker_set = state.sets.get(ext_fields.get("brokerName", ""))
    if broker_set is None:
        return _refused(
            ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED, "Broker metadata is not existed"
        )
    if len(body) > HEAD_BYTES_MAX + _ID_BYTES_MAX * context.replicas_per_set_max:
        return too_long(context)
    requested = parse_sync_state_set(body)
    if requested is None:
        return Decision(ResponseCode.SYSTEM_ERROR, "the request's body is not a SyncStateSet")
    members, known_epoch = requested
    if members == broker_set.sync_state_set:
        return _refused(
            ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
            "The newSyncStateSet is equal with oldSyncStateSet, no needed to update syncStateSet",
        )
    refusal = _check_asker(broker_set, ext_fields, known_epoch)
    if refusal is None:
        refusal = _check_members(broker_set, context, members)
    if refusal is not None:
        return refusal
    epoch = SyncStateSetEpoch(broker_set.sync_state_set_epoch + 1)
    return Decision(
        ResponseCode.SUCCESS,
        ext_fields={"newSyncStateSetEpoch": str(epoch)},
        body=sync_state_set_body(members, epoch),
        event=SyncStateSetAltered(broker_set.broker_name, members, epoch),
    )


def too_long(context: Context) -> Decision:
    """The answer to a SyncStateSet that no broker set can have; nobody has parsed it."""
    return _refused(
        ResponseCode.CONTROLLER_INVALID_REQUEST,
        f"the SyncStateSet is too long: a broker-set has {context.replicas_per_set_max} replicas"
        " at most",
    )


def _check_asker(
    broker_set: BrokerSet, ext_fields: Mapping[str, str], known_epoch: int
) -> Decision | None:
    master = broker_set.master_broker_id
    asker = long_field(ext_fields, "masterBrokerId")
    if master is None or master != asker:
        return _refused(
            ResponseCode.CONTROLLER_INVALID_MASTER,
            f"{_REJECTED}current leader is:{{{_java(master)}}}, not {{{_java(asker)}}}",
        )
    asked_epoch = int_field(ext_fields, "masterEpoch")
    if asked_epoch is None:
        # Java throws a NullPointerException here and answers its text with the same code.
        return Decision(ResponseCode.SYSTEM_ERROR, "masterEpoch is missing or not an integer")
    if asked_epoch != broker_set.master_epoch:
        return _refused(
            ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
            f"{_REJECTED}current master epoch is:{{{broker_set.master_epoch}}},"
            f" not {{{asked_epoch}}}",
        )
    if known_epoch != broker_set.sync_state_set_epoch:
        return _refused(
            ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
            f"{_REJECTED}current syncStateSet epoch is:{{{broker_set.sync_state_set_epoch}}},"
            f" not {{{known_epoch}}}",
        )
    return None


def _check_members(
    broker_set: BrokerSet, context: Context, members: tuple[BrokerId, ...]
) -> Decision | None:
    master = broker_set.master_broker_id
    cluster, name = broker_set.cluster_name, broker_set.broker_name
    for broker_id in members:
        if broker_id not in broker_set.replicas:
            return _refused(
                ResponseCode.CONTROLLER_INVALID_REPLICAS,
                f"{_REJECTED}replicas {{{broker_id}}} don't exist",
            )
        # The master is asking right now: its heartbeat may still be on the way.
        alive = broker_id == master or context.live.alive(context.now_ms, cluster, name, broker_id)
        if not alive:
            return _refused(
                ResponseCode.CONTROLLER_BROKER_NOT_ALIVE,
                f"{_REJECTED}replicas {{{broker_id}}} don't alive",
            )
    if master not in members:
        return _refused(
            ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
            f"{_REJECTED}newSyncStateSet don't contains origin leader {{{master}}}",
        )
    return None


def _refused(code: int, remark: str) -> Decision:
    # newSyncStateSetEpoch is a primitive long in Java's header, so it travels even when unset.
    return Decision(code, remark, {"newSyncStateSetEpoch": "0"})


def _java(number: int | None) -> str:
    return "null" if number is None else str(number)
