"""A set of one broker of RocketMQ 5.5 and one of ours: what 5.3.3 has not, or does in another way."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqha.testing.real import wire
from rmqha.testing.real.cluster import FAST_BROKER, JOIN_TIMEOUT_S, Cluster
from rmqha.testing.real.java import JavaBroker
from rmqha.testing.real.name_servers import PythonNameServer
from rmqha.testing.real.processes import allocate_ports, wait_until
from rmqha.testing.real.python import PythonBroker
from tests.interop import required

VERSION = "5.5.0"
TOPIC, QUEUES = "Newer", 4
DUE_S = 15
"""Longer than a failover takes, so that the next master delivers what is due then."""
ROCKSDB_TRANSACTIONS = {"transRocksDBEnable": True, "transWriteOriginTransHalfEnable": False}
"""5.5 keeps them in topics of its own only with both; brokers of ours know neither key."""
SETTINGS = {
    **FAST_BROKER, "timerWheelEnable": True, "timerFlushIntervalMs": 100, "recallMessageEnable": True,
    "mappedFileSizeCommitLog": 1 << 20, "syncSlaveMetadataPeriod": 500,
    "transactionCheckInterval": 1_000, "transactionTimeOut": 1_000, "transactionCheckMax": 1_000,
}  # fmt: skip
TOPIC_CHANGED = 351
RECALL, MESSAGE_ILLEGAL = 370, 13
COMMIT, ROLLBACK = 8, 12
WAIT_S = DUE_S + JOIN_TIMEOUT_S
NO_FIELD = "Failed field"
NOT_ASKED = (
    r"TransactionalMessageRocksDBService checkProducerTransactionState failed"
    r".* msgId: [0-9A-F]{16}([0-9A-F]{16})"
)


@pytest.fixture(scope="module")
def pair(folder: Path) -> Iterator[tuple[Cluster, JavaBroker, JavaBroker]]:
    """The set, its broker of Java's, which is master, and ours."""
    required.require_classpath(VERSION)
    settings = {**SETTINGS, **ROCKSDB_TRANSACTIONS}
    with Cluster(folder, "rmqha", brokers=0, broker_settings=settings, version=VERSION) as cluster:
        cluster.name_server = PythonNameServer(folder / "namesrv", allocate_ports()[0])  # type: ignore[assignment]  # same interface
        java = cluster.add_broker()
        ours = PythonBroker.of(cluster, 2, SETTINGS)
        cluster.brokers.append(ours)
        cluster.start()
        with wire.Connection(java.address) as master:
            wire.create_topic(master, TOPIC, QUEUES)
        wait_until(
            lambda: wire.invoke(ours.address, TOPIC_CHANGED, {"topic": TOPIC}).code == wire.SUCCESS,
            JOIN_TIMEOUT_S, "our slave knows the topic",
        )  # fmt: skip
        yield cluster, java, ours


def send(broker: JavaBroker, body: str, **properties: object) -> wire.Answer:
    """Send one message; its body is its name."""
    named = {"UNIQ_KEY": f"AC11000100000000000000{body:0>10}", "WAIT": "true", **properties}
    fields = {
        "producerGroup": "PG", "topic": TOPIC, "defaultTopic": "TBW102", "defaultTopicQueueNums": 4,
        "queueId": 0, "sysFlag": 0, "bornTimestamp": 1_700_000_000_000, "flag": 0,
        "properties": "".join(f"{name}\x01{value}\x02" for name, value in named.items()),
        "reconsumeTimes": 0, "unitMode": False, "batch": False,
    }  # fmt: skip
    return wire.invoke(broker.address, 10, fields, body.encode())


def send_recalled(broker: JavaBroker, name: str) -> None:
    """Send two timers, and take the one back that is due a second before the other."""
    due_ms = int((time.time() + DUE_S) * 1000)
    assert send(broker, f"{name}-kept", TIMER_DELIVER_MS=due_ms + 1_000).code == wire.SUCCESS
    sent = send(broker, f"{name}-recalled", TIMER_DELIVER_MS=due_ms)
    assert sent.code == wire.SUCCESS
    fields = {"producerGroup": "PG", "topic": TOPIC, "recallHandle": sent.ext["recallHandle"]}
    assert wire.invoke(broker.address, RECALL, fields).code == wire.SUCCESS


def send_half(broker: JavaBroker, name: str) -> dict[str, object]:
    """Send a half message; the fields that end it."""
    sent = send(broker, name, TRAN_MSG="true", PGROUP="PG")
    assert sent.code == wire.SUCCESS
    return {
        "producerGroup": "PG", "tranStateTableOffset": sent.ext["queueOffset"],
        "commitLogOffset": int(sent.ext["msgId"][-16:], 16), "fromTransactionCheck": False,
        "msgId": sent.ext["msgId"], "transactionId": sent.ext["transactionId"],
    }  # fmt: skip


def end(broker: JavaBroker, half: dict[str, object], decision: int) -> int:
    """End a transaction, and ask for an answer."""
    return wire.invoke(broker.address, 37, {**half, "commitOrRollback": decision}).code


def asked_about(java: JavaBroker, half: dict[str, object]) -> set[object]:
    """Places of the half messages of one round of questions: it logs each whose producer is not there."""
    log = java.home / "java.log"

    def asked(since: int) -> set[object]:
        said = log.read_text(errors="replace")[since:]
        return {int(place, 16) for place in re.findall(NOT_ASKED, said)}

    since, found = len(log.read_text(errors="replace")), set[object]()
    for _ in range(2):
        wait_until(
            lambda since=since: half["commitLogOffset"] in asked(since), WAIT_S, "a question"  # type: ignore[misc]
        )  # fmt: skip
        found, since = asked(since), len(log.read_text(errors="replace"))
    return found


def bodies(broker: JavaBroker, queue: int = 0) -> set[str]:
    """What consumers find in one queue."""
    with wire.Connection(broker.address) as connection:
        return {one.body.decode() for one in wire.pull_queue(connection, TOPIC, queue)}


def take_over(cluster: Cluster, one: JavaBroker, other: JavaBroker) -> None:
    """Kill the master; the other one leads, and takes sends."""
    one.child.kill()
    cluster.controllers.wait_for_master("broker-a", other_than=one.controller_id)
    wait_until(
        lambda: send(other, "x", TAGS="ready").code == wire.SUCCESS, JOIN_TIMEOUT_S, "a send"
    )


def test_set_with_a_newer_broker_when_it_fails_over_both_ways_then_nothing_differs(
    pair: tuple[Cluster, JavaBroker, JavaBroker],
) -> None:
    """A recall that was acknowledged holds for whoever is master when the timer is due; a transaction in
    the topics of RocksDB is ended by whoever is asked; a priority chooses the queue at both; and our
    slave is no line of an error in the other's log."""
    cluster, java, ours = pair
    assert send(java, "first", _SYS_MSG_PRIORITY_=3).ext["queueId"] == "3"
    committed, rolled_back, left = halves = [send_half(java, f"half-{n}") for n in range(3)]
    assert asked_about(java, committed) == {half["commitLogOffset"] for half in halves}
    send_recalled(java, "by-java")
    assert NO_FIELD not in (java.home / "java.log").read_text(errors="replace")
    take_over(cluster, java, ours)
    assert send(ours, "second", _SYS_MSG_PRIORITY_=2).ext["queueId"] == "2"
    assert end(ours, committed, COMMIT) == end(ours, rolled_back, ROLLBACK) == wire.SUCCESS
    lite = send(ours, "lite", __LITE_TOPIC="session")
    assert (lite.code, "__LITE_TOPIC" in (lite.remark or "")) == (MESSAGE_ILLEGAL, True)
    wait_until(lambda: "by-java-kept" in bodies(ours), WAIT_S, "a timer of the other's")
    assert "by-java-recalled" not in bodies(ours)
    assert {one for one in bodies(ours) if one.startswith("half")} == {"half-0"}
    java.start()
    cluster.wait_in_sync()
    assert asked_about(java, left) == {left["commitLogOffset"]}, "it has not read our ends"
    send_recalled(ours, "by-ours")
    take_over(cluster, ours, java)
    assert end(java, left, COMMIT) == wire.SUCCESS
    wait_until(lambda: "half-2" in bodies(java), WAIT_S, "what ours had not ended")
    assert (bodies(java, 3), bodies(java, 2)) == ({"first"}, {"second"})
    wait_until(lambda: "by-ours-kept" in bodies(java), WAIT_S, "a timer of ours")
    assert "by-ours-recalled" not in bodies(java)
    assert "SyncTimerMetrics Exception" not in (java.home / "java.log").read_text(errors="replace")
