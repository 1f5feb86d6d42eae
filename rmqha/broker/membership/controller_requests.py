"""The fields of requests to controllers, and what their refusals mean.

Source: RocketMQ's protocol as observed.
"""

from __future__ import annotations

from collections.abc import Mapping

from rmqha.base.ids import MasterEpoch
from rmqha.broker.common.replicas_settings import ReplicasSettings
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.headers import FieldValue, ext_fields, int_field, long_field, text_field

NOT_APPLIED = frozenset(
    {
        ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
        ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
        ResponseCode.CONTROLLER_INVALID_MASTER,
        ResponseCode.CONTROLLER_INVALID_REPLICAS,
        ResponseCode.CONTROLLER_INVALID_REQUEST,
        ResponseCode.CONTROLLER_BROKER_NOT_ALIVE,
        ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
    }
)
"""Answers to 1001 that surely changed nothing. Any other may come from a leader that lost its term
after the change was on its way."""

OF_A_MEMBER = frozenset(
    {ResponseCode.CONTROLLER_INVALID_REPLICAS, ResponseCode.CONTROLLER_BROKER_NOT_ALIVE}
)
"""Answers to 1001 that are about one of the replicas that were asked for."""

NEEDS_OPERATOR = frozenset(
    {
        ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
        ResponseCode.CONTROLLER_BROKER_ID_INVALID,
    }
)
"""The controllers do not know an id that this broker holds for good: they have lost their state."""


def master_of(fields: Mapping[str, str] | None) -> tuple[int, MasterEpoch, str]:
    """Id, epoch and address of the master that an answer or 1008 names; 0, 0 and "" for none."""
    return (
        long_field(fields, "masterBrokerId", 0),
        MasterEpoch(int_field(fields, "masterEpoch", 0)),
        text_field(fields, "masterAddress", ""),
    )


def who_fields(
    settings: ReplicasSettings, broker_id: int | None, wall_ms: int, **more: FieldValue
) -> dict[str, str]:
    """What 1002 and 1003 have in common."""
    return ext_fields(
        clusterName=settings.cluster_name,
        brokerName=settings.broker_name,
        brokerId=broker_id,
        invokeTime=wall_ms,
        **more,
    )


def heartbeat_fields(settings: ReplicasSettings, broker_id: int | None) -> dict[str, str]:
    """The fields of 904, without those of the log."""
    return ext_fields(
        clusterName=settings.cluster_name,
        brokerAddr=settings.broker_address,
        brokerName=settings.broker_name,
        brokerId=broker_id,
        heartbeatTimeoutMills=settings.controller_heart_beat_timeout_ms,
        electionPriority=settings.broker_election_priority,
        writeLease=settings.write_lease_ms > 0,
    )


def alter_fields(
    settings: ReplicasSettings, broker_id: int | None, master_epoch: MasterEpoch, wall_ms: int
) -> dict[str, str]:
    """The fields of 1001; the set is its body."""
    return ext_fields(
        brokerName=settings.broker_name,
        masterBrokerId=broker_id,
        masterEpoch=master_epoch,
        invokeTime=wall_ms,
    )
