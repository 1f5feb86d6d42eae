"""What is read from an answer to 907: a real master's, a slave's, one that leaves members out."""

from __future__ import annotations

import pytest

from rmqha.base.errors import RemoteProtocolError
from rmqha.client.ha_status import FollowingStatus, ask_ha_status, ha_document, read_ha_status
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import RemotingCommand
from tests.admin.golden import last_answer

NOBODY = FollowingStatus(None, False, 0, 0, 0, 0, 0)


def test_status_when_a_real_master_answers_then_each_slave_is_told() -> None:
    """Captured of RocketMQ 5.3.3; here one member is changed at a time."""
    document = ha_document(last_answer("127.0.0.1:30911", RequestCode.GET_BROKER_HA_STATUS).body)
    status = read_ha_status(document)
    assert (status.is_master, status.following) == (True, NOBODY)
    assert len(status.slaves) == len(document["haConnectionInfo"]) > 0
    shown = document["haConnectionInfo"][0]
    shown |= {"slaveAckOffset": 7, "diff": 8, "transferFromWhere": 9, "transferredByteInSecond": 10}
    first = read_ha_status(document | {"masterCommitLogMaxOffset": 15, "inSyncSlaveNums": 2})
    slave = first.slaves[0]
    assert (first.log_end, first.in_sync_slaves) == (15, 2)
    assert (slave.address, slave.is_in_sync) == (shown["addr"], shown["inSync"])
    assert (slave.ack_offset, slave.lag_bytes, slave.transfer_from, slave.bytes_per_s) == (
        7,
        8,
        9,
        10,
    )


def test_status_when_a_slave_answers_then_it_tells_whom_it_follows() -> None:
    told = {
        "activated": True, "lastReadTimestamp": 1, "lastWriteTimestamp": 2, "masterAddr": "m:1",
        "masterFlushOffset": 3, "maxOffset": 4, "transferredByteInSecond": 5,
    }  # fmt: skip
    status = read_ha_status({"master": False, "haClientRuntimeInfo": told})
    assert not status.is_master
    assert status.following == FollowingStatus("m:1", True, 4, 5, 1, 2, 3)


@pytest.mark.parametrize("body", [b"{}", b'{"haConnectionInfo":null,"haClientRuntimeInfo":null}'])
def test_status_when_members_are_missing_then_it_is_a_slave_of_nobody(body: bytes) -> None:
    status = read_ha_status(ha_document(body))
    assert (status.is_master, status.slaves, status.following) == (False, (), NOBODY)


@pytest.mark.parametrize(
    "body", [b"[]", b"?", b'{"haConnectionInfo":[3]}', b'{"inSyncSlaveNums":"2"}']
)
def test_status_when_it_is_another_document_then_that_is_said(body: bytes) -> None:
    exchange = ask_ha_status("b:1", 40)
    call = next(exchange)
    assert (call.address, call.command.code, call.delay_ms) == ("b:1", 907, 40)
    with pytest.raises(RemoteProtocolError):
        exchange.send(RemotingCommand(0, body=body))
