"""Answers about replication: 907 (HA status), 1007 (epochs), 906 (the master's HA address).

Source: HARuntimeInfo, EpochEntryCache and ExchangeHAInfoResponseHeader of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

from typing import Any

from rmqha.ha.epochs import OFFSET_MAX
from rmqha.ha.events import Role
from rmqha.ha.frames import ConnectionState
from rmqha.ha.ha_core import HaCore
from rmqha.remoting import fastjson


def ha_status(core: HaCore, now_ms: int, wall_ms: int) -> bytes:
    """The body of 907.

    Args:
        now_ms: on the core's clock.
        wall_ms: the same moment since 1970; Java shows such stamps.
    """
    log = core.ha.log
    is_master = core.role is Role.MASTER
    members = core.members.sync_state_set.ids
    info: dict[str, Any] = {
        "haClientRuntimeInfo": _client(core, now_ms, wall_ms),
        "haConnectionInfo": [
            {
                "addr": session.address,
                "diff": log.max_offset - (session.ack_offset or 0),
                "inSync": session.slave_id in members,
                "slaveAckOffset": session.ack_offset or 0,
                "transferFromWhere": session.next_offset or 0,
                "transferredByteInSecond": 0,
            }
            for session in core.sessions.values()
            if session.slave_id is not None
        ],
        "inSyncSlaveNums": max(0, len(members) - 1) if is_master else 0,
        "master": is_master,
        "masterCommitLogMaxOffset": log.max_offset if is_master else 0,
    }
    return fastjson.dumps(info)


def _client(core: HaCore, now_ms: int, wall_ms: int) -> dict[str, Any]:
    client = core.client
    if client is None:
        return {
            "activated": False, "lastReadTimestamp": 0, "lastWriteTimestamp": 0,
            "masterFlushOffset": 0, "maxOffset": 0, "transferredByteInSecond": 0,
        }  # fmt: skip
    shown: dict[str, Any] = {
        "activated": client.state is ConnectionState.TRANSFER,
        "lastReadTimestamp": wall_ms - now_ms + client.last_read_ms,
        "lastWriteTimestamp": wall_ms - now_ms + client.last_write_ms,
        "masterFlushOffset": 0,
        "maxOffset": core.ha.log.max_offset,
        "transferredByteInSecond": 0,
    }
    if client.address is not None:
        shown["masterAddr"] = client.address
    return shown


def epoch_cache(core: HaCore, cluster_name: str, broker_name: str) -> bytes:
    """The body of 1007; the last epoch has no end yet and shows Java's largest number."""
    own_id = 0 if core.role is Role.MASTER else core.ha.own_id
    return fastjson.dumps(
        {
            "brokerId": own_id,
            "brokerName": broker_name,
            "clusterName": cluster_name,
            "epochList": [
                {"endOffset": span.end, "epoch": span.epoch, "startOffset": span.start}
                for span in core.ha.epochs.spans(OFFSET_MAX)
            ],
            "maxOffset": core.ha.log.max_offset,
        }
    )
