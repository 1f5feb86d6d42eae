"""Requests upon which a broker writes by itself: who does not reign, or may not write, writes nothing.

What a slave wrote into its own log would stand where the master's next record belongs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from rmqha.base.errors import LocalProtocolError
from rmqha.broker.aio.replica import BrokerReplica
from rmqha.ha.events import Role
from rmqha.remoting.codes import RequestCode, ResponseCode
from tests.broker.replicas import TOPIC, ReplicaCluster, master_of, send_fields
from tests.broker.test_batch_acks import batch_of, body_of
from tests.broker.test_pop_in_simulator import GROUP, Popped, pop
from tests.broker.test_producer_services import half, stored, subscribe, wall_ms
from tests.broker.test_write_lease_in_simulator import held, isolate

POP = {
    "consumerGroup": GROUP, "topic": TOPIC, "queueId": "-1", "maxMsgNums": "1",
    "invisibleTime": "5000", "pollTime": "0", "bornTime": "0", "initMode": "0",
    "expType": "TAG", "exp": "*",
}  # fmt: skip
SLAVE, NO_LEASE = "slave", "no lease"
NOT_WRITING = (ResponseCode.SERVICE_NOT_AVAILABLE, "this broker cannot be written to now")
NOT_SERVING = "this broker does not know its role yet, or is giving it up"
NO_RECALL = "recall failed, broker service not available"
REFUSED = {
    SLAVE: {
        RequestCode.POP_MESSAGE: (
            ResponseCode.SYSTEM_BUSY,
            "[REJECTREQUEST]system busy, start flow control for a while: pop at the master",
        ),
        RequestCode.END_TRANSACTION: (ResponseCode.SLAVE_NOT_AVAILABLE, NOT_SERVING),
        RequestCode.RECALL_MESSAGE: (ResponseCode.SLAVE_NOT_AVAILABLE, NO_RECALL),
    },
    NO_LEASE: {
        RequestCode.POP_MESSAGE: (
            ResponseCode.SERVICE_NOT_AVAILABLE, "check points cannot be written now",
        ),
        RequestCode.END_TRANSACTION: NOT_WRITING,
        RequestCode.RECALL_MESSAGE: (ResponseCode.SERVICE_NOT_AVAILABLE, NO_RECALL),
    },
}  # fmt: skip
"""Those that are refused in another way where somebody else reigns."""


class Asked(NamedTuple):
    """One request."""

    code: int
    fields: dict[str, str]
    body: bytes = b""


@pytest.fixture
def cluster() -> Iterator[ReplicaCluster]:
    """Two replicas that wait for nobody: Java's default."""
    keys = {
        "allAckInSyncStateSet": "false", "slaveTimeout": "1000", "recallMessageEnable": "true",
    }  # fmt: skip
    with ReplicaCluster(seed=13, replicas=2, **keys) as one:
        one.controller_keys = {"activeProbeTimeoutMillis": "0"}
        one.boot_all()
        one.until(one.in_sync, "SyncStateSet of two")
        one.until(lambda: held(master_of(one)), "write lease")
        yield one


def popped(cluster: ReplicaCluster, message: Popped) -> dict[str, str]:
    """The fields of who says something of it."""
    return {
        "consumerGroup": GROUP, "topic": TOPIC, "queueId": str(message.queue_id),
        "offset": str(message.offset), "extraInfo": message.key,
    }  # fmt: skip


def everything(cluster: ReplicaCluster) -> list[Asked]:
    """One of each kind, which the master would take; it has what they speak of, and so has a slave."""
    address, lines = master_of(cluster).config.address, send_fields(0)
    cluster.send_many(6)
    ended = half(cluster, 7)
    timer = {**lines, "i": f"UNIQ_KEY\x01T\x02TIMER_DELIVER_MS\x01{wall_ms(cluster) + 60_000}\x02"}
    handle = (cluster.ask(address, 310, timer, b"later").ext_fields or {})["recallHandle"]
    subscribe(cluster, "CG")
    back = {
        "offset": str(stored(cluster, TOPIC)[0].physical_offset), "group": "CG", "delayLevel": "1",
        "originTopic": TOPIC, "unitMode": "false", "maxReconsumeTimes": "16",
    }  # fmt: skip
    # With this its topics are there.
    assert cluster.ask(address, 36, back).code == 0
    (acked,), (changed,), batch = (pop(cluster, count)[1] for count in (1, 1, 1))
    reply = {**lines, "i": lines["i"] + "REPLY_TO_CLIENT\x01nobody\x02"}
    replies = {
        "producerGroup": "PG", "topic": TOPIC, "defaultTopic": "TBW102", "queueId": "0",
        "defaultTopicQueueNums": "4", "sysFlag": "0", "bornTimestamp": "1700000000000",
        "flag": "0", "properties": reply["i"], "reconsumeTimes": "0", "unitMode": "false",
    }  # fmt: skip
    cluster.run_for(500)
    return [
        Asked(RequestCode.CONSUMER_SEND_MSG_BACK, back),
        Asked(RequestCode.SEND_REPLY_MESSAGE, replies, b"r"),
        Asked(RequestCode.SEND_REPLY_MESSAGE_V2, reply, b"r"),
        Asked(RequestCode.POP_MESSAGE, POP),
        Asked(RequestCode.ACK_MESSAGE, popped(cluster, acked)),
        Asked(RequestCode.BATCH_ACK_MESSAGE, {}, body_of(batch_of(batch))),
        Asked(
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
            {**popped(cluster, changed), "invisibleTime": "20000"},
        ),
        Asked(
            RequestCode.RECALL_MESSAGE,
            {"producerGroup": "PG", "topic": TOPIC, "recallHandle": handle},
        ),
        Asked(RequestCode.END_TRANSACTION, {**ended, "commitOrRollback": "8"}),
    ]


def asked_to_write(
    cluster: ReplicaCluster, replica: BrokerReplica, requests: list[Asked]
) -> dict[int, tuple[int, str | None, bool]]:
    """By request: what is answered, and whether anything is written. A reply's code is of its push."""
    found: dict[int, tuple[int, str | None, bool]] = {}
    for one in requests:
        end = replica.store.max_offset
        answer = cluster.ask(replica.config.address, one.code, one.fields, one.body)
        code, remark = answer.code, answer.remark if answer.code else None
        if one.code in (RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2):
            stays = (answer.ext_fields or {})["msgId"] == "0"
            code, remark = NOT_WRITING if stays else (0, None)
        found[one.code] = code, remark, replica.store.max_offset > end
    return found


@pytest.mark.parametrize("why", [SLAVE, NO_LEASE])
def test_requests_when_the_broker_may_not_write_then_refused_and_its_log_stays(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """Each looks for itself, and one that did not would write. The master takes the very same ones."""
    requests, master = everything(cluster), master_of(cluster)
    asked = master
    if why == SLAVE:
        (asked,) = [one for one in cluster.replicas.values() if one is not master]
    else:
        isolate(cluster, master)
        cluster.send(0)  # the slave is seen to lack it
        # As after a standstill; else somebody else is elected soon after the lease has ended.
        monkeypatch.setattr(master.ha, "is_fenced", lambda: True)
        cluster.until(lambda: not master.services.writer.is_open, "end of the lease", 3_000)
    refused = {one.code: NOT_WRITING for one in requests} | {
        RequestCode.CONSUMER_SEND_MSG_BACK: (ResponseCode.SYSTEM_ERROR, NOT_SERVING)
    } | REFUSED[why]  # fmt: skip
    expected = {code: (*answer, False) for code, answer in refused.items()}
    assert asked_to_write(cluster, asked, requests) == expected
    assert asked.role is (Role.SLAVE if why == SLAVE else Role.MASTER)
    assert master_of(cluster) is master, "nobody else has been elected meanwhile"
    cluster.net.heal()
    monkeypatch.undo()
    cluster.until(lambda: held(master), "lease again", limit_ms=1_000)
    taken = asked_to_write(cluster, master, requests)
    assert taken == {one.code: (0, None, True) for one in requests}


@pytest.mark.parametrize("role", [Role.SLAVE, None])
def test_writer_when_the_broker_does_not_reign_then_it_writes_nothing(
    cluster: ReplicaCluster, role: Role | None
) -> None:
    """Whoever forgets to ask first is stopped here, too."""
    cluster.send_many(1)
    (record,) = stored(cluster, TOPIC)
    master = master_of(cluster)
    assert master.services.writer.is_open
    master.role, end = role, master.store.max_offset
    assert not master.services.writer.is_open

    async def write() -> None:
        master.services.writer.append(record.message())

    with pytest.raises(LocalProtocolError, match="does not reign"):
        cluster.loop.run_until_complete(write())
    assert master.store.max_offset == end
