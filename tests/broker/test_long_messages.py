"""Messages that are longer than maxMessageSize is now, or is on this replica."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqha.ha.events import Role
from tests.broker.replicas import TOPIC, ReplicaCluster, master_of, send_fields
from tests.broker.subscriber import Subscriber
from tests.broker.test_pop_in_simulator import pop
from tests.broker.test_producer_services import HALF, end, stored

pytestmark = pytest.mark.costly

BEFORE, NOW, BODY_BYTES = 20_000, 1_000, 15_000


@pytest.fixture
def alone() -> Iterator[ReplicaCluster]:
    """One replica, which reigns."""
    with ReplicaCluster(
        seed=2, replicas=1, messageDelayLevel="1s 5s 10s", maxMessageSize=BEFORE,
        transactionCheckInterval=1_000, transactionTimeOut=500, transactionCheckMax=3,
    ) as one:  # fmt: skip
        one.boot_all()
        yield one


def send_long(cluster: ReplicaCluster, more: str, **fields: str) -> dict[str, str]:
    """A message of nearly the limit; the fields of the answer."""
    values = send_fields(1)
    values["i"] += more
    body = b"x" * BODY_BYTES
    answer = cluster.ask(master_of(cluster).config.address, 310, {**values, **fields}, body)
    assert answer.code == 0
    return answer.ext_fields or {}


def lower_the_limit(cluster: ReplicaCluster) -> None:
    """Restart with a limit below what is in the log."""
    master = master_of(cluster)
    host, stopped = cluster.host_of(master), cluster.loop.create_task(master.stop())
    cluster.until(stopped.done, "stop")
    cluster.kill(host)
    cluster.keys = {**cluster.keys, "maxMessageSize": NOW}
    cluster.boot(host)
    cluster.until(lambda: cluster.master() is not None, "a master")


@pytest.mark.parametrize("more", ["DELAY\x012\x02", "TIMER_DELAY_SEC\x015\x02"])
def test_delayed_message_when_longer_than_the_limit_now_then_it_is_delivered(
    alone: ReplicaCluster, more: str
) -> None:
    """It was acknowledged; it was dropped with a line in the log."""
    send_long(alone, more)
    lower_the_limit(alone)
    alone.until(lambda: stored(alone, TOPIC), "the delivery", 10_000)
    assert [len(one.body) for one in stored(alone, TOPIC)] == [BODY_BYTES]


def test_half_message_when_longer_than_the_limit_now_then_it_is_asked_about_and_committed(
    alone: ReplicaCluster,
) -> None:
    """The question ended the broker, and every master after it."""
    got = send_long(alone, HALF, f="4")
    lower_the_limit(alone)
    halves = "RMQ_SYS_TRANS_HALF_TOPIC"
    alone.until(lambda: len(stored(alone, halves, 1)) == 2, "a question", 10_000)
    asked = stored(alone, halves, 1)[1]
    fields = {
        "producerGroup": "PG", "tranStateTableOffset": str(asked.queue_offset),
        "commitLogOffset": str(asked.physical_offset), "fromTransactionCheck": "true",
        "msgId": got["msgId"], "transactionId": got["transactionId"],
    }  # fmt: skip
    assert end(alone, fields, 8) == 0
    assert [len(one.body) for one in stored(alone, TOPIC)] == [BODY_BYTES]


def test_half_message_when_given_up_then_consumers_can_read_it(alone: ReplicaCluster) -> None:
    """Nobody ever ended it; it goes where people look, in a topic that brokers know."""
    send_long(alone, HALF, f="4")
    lower_the_limit(alone)
    aside = "TRANS_CHECK_MAX_TIME_TOPIC"
    alone.until(lambda: stored(alone, aside, 1), "the end", 20_000)
    consumer = Subscriber(alone, master_of(alone).config.address)
    answer = consumer.ask(11, {
        "consumerGroup": "G", "topic": aside, "queueId": "0", "queueOffset": "0",
        "maxMsgNums": "1", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
        "subscription": "*", "subVersion": "1",
    })  # fmt: skip
    assert (answer.code, len(answer.body) > BODY_BYTES) == (0, True), answer.remark


def test_popped_message_when_longer_than_the_limit_now_then_it_comes_again(
    alone: ReplicaCluster,
) -> None:
    """Nobody acknowledged it; it goes to the group's retry topic."""
    send_long(alone, "")
    assert pop(alone)[0] == 0
    lower_the_limit(alone)
    again: list[bytes] = []

    def popped() -> bool:
        again.extend(one.body for one in pop(alone)[1])
        return bool(again)

    alone.until(popped, "the message again", 90_000)
    assert [len(one) for one in again] == [BODY_BYTES]


def test_slave_when_its_limit_is_lower_than_its_master_s_then_it_copies_all_the_same() -> None:
    """Half of a record that is longer than its own limit was called damage, and ended it."""
    with LimitedSlave(seed=3, replicas=2, haTransferBatchSize=4_096) as cluster:
        cluster.boot_all()
        cluster.until(cluster.in_sync, "SyncStateSet of two")
        host = cluster.broker_hosts[1]
        cluster.kill(host)
        cluster.until(lambda: len(cluster.controller_set()) == 1, "a set of one")
        address = master_of(cluster).config.address
        assert cluster.ask(address, 310, send_fields(1), bytes(200_000)).code == 0
        cluster.boot(host)
        cluster.until(cluster.in_sync, "SyncStateSet of two again")
        slave = cluster.replicas[host]
        assert slave.role is Role.SLAVE
        cluster.until(
            lambda: slave.store.confirm_offset == master_of(cluster).store.max_offset, "all of it"
        )


class LimitedSlave(ReplicaCluster):
    """The second replica takes messages of 1,000 bytes only."""

    def _keys_of(self, host: str) -> dict[str, object]:
        size = {"mappedFileSizeCommitLog": 1 << 20}
        limit = {"maxMessageSize": NOW} if host == self.broker_hosts[1] else {}
        return {**self.keys, **size, **limit}
