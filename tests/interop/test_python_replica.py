"""A replica of ours in a set of real Java brokers: it follows, it reigns, it is followed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqha.testing.real import wire
from rmqha.testing.real.cluster import FAST_BROKER, FAST_CONTROLLER, Cluster
from rmqha.testing.real.java import JavaBroker
from rmqha.testing.real.mqadmin import mqadmin
from rmqha.testing.real.processes import wait_until
from rmqha.testing.real.producer import Producer, assert_nothing_lost, read_commit_log
from rmqha.testing.real.python import PythonBroker
from tests.interop import required

NAME = "broker-a"
NOT_LEADER_FOR_QUEUE = 501
TIMER_STEP_MS = 1_000
"""``timerPrecisionMs``."""


@pytest.fixture(scope="module")
def shared_cluster(folder: Path, kind: str) -> Iterator[Cluster]:
    """One 5.3.3 broker and one replica of ours under three controllers."""
    required.require_classpath()
    # Java's answer to 60 is as old as the last flush; a test kills it before the next second.
    settings = {**FAST_BROKER, "timerWheelEnable": True, "timerFlushIntervalMs": 100}
    # Our controllers would ask a silent master themselves, and be first as often as its watcher.
    controllers = {**FAST_CONTROLLER, "activeProbeTimeoutMillis": 0}
    with Cluster(
        folder, kind, brokers=1, broker_settings=settings, controller_settings=controllers
    ) as cluster:
        cluster.start_base()
        cluster.join_all()
        python = PythonBroker.of(cluster, 2, **settings, syncSlaveMetadataPeriod=100)
        cluster.brokers.append(python)
        python.start()
        cluster.wait_in_sync()
        yield cluster


def java_of(cluster: Cluster) -> JavaBroker:
    """The Java broker."""
    return cluster.brokers[0]


def python_of(cluster: Cluster) -> JavaBroker:
    """Our replica."""
    return cluster.brokers[1]


def have_master(cluster: Cluster, broker: JavaBroker) -> None:
    """Make a broker master, by killing the other if need be; all are in sync afterwards."""
    if cluster.master() is not broker:
        other = cluster.master()
        before = cluster.controllers.wait_for_master(NAME)
        other.child.kill()
        cluster.controllers.wait_for_master(NAME, other_than=before.master_id)
        other.start()
        cluster.wait_in_sync()
    assert cluster.master() is broker


def log_content(broker: JavaBroker, end: int) -> bytes:
    """The first ``end`` bytes of the commit log's files."""
    paths = sorted((broker.store / "commitlog").glob("[0-9]*"))
    return b"".join(path.read_bytes() for path in paths)[:end]


def max_offset(broker: JavaBroker) -> int:
    """What the broker itself says of its log's end."""
    answer = wire.invoke(broker.address, 1007)
    assert answer.code == wire.SUCCESS
    return int(answer.json()["maxOffset"])


def epochs(broker: JavaBroker) -> list[tuple[int, int]]:
    """Epochs and their first bytes, by the broker's own word."""
    listed = wire.invoke(broker.address, 1007).json()["epochList"]
    return [(entry["epoch"], entry["startOffset"]) for entry in listed]


def assert_logs_become_equal(cluster: Cluster) -> None:
    """Both logs end at the same byte, and hold the same bytes and the same epochs."""
    java, python = java_of(cluster), python_of(cluster)
    wait_until(lambda: max_offset(java) == max_offset(python), 10.0, "logs of equal length")
    end = max_offset(java)
    assert end > 0
    assert log_content(java, end) == log_content(python, end)
    assert epochs(java) == epochs(python)


def test_java_master_when_it_writes_then_our_slave_has_the_same_bytes(
    cluster: Cluster, topic: str
) -> None:
    """Every acknowledged message waited for our acknowledgement: allAckInSyncStateSet is on."""
    have_master(cluster, java_of(cluster))
    with Producer(cluster.name_server.address, topic) as producer:
        producer.wait_for_acks(500)
        assert_nothing_lost(cluster, producer, replicas=cluster.brokers)
    assert_logs_become_equal(cluster)


def test_java_master_when_killed_then_our_replica_serves_and_java_follows_it(
    cluster: Cluster, topic: str
) -> None:
    """The whole failover, and back into one log."""
    have_master(cluster, java_of(cluster))
    java, python = java_of(cluster), python_of(cluster)
    before = cluster.controllers.wait_for_master(NAME)
    with Producer(cluster.name_server.address, topic) as producer:
        producer.wait_for_acks(300)
        moment = time.monotonic()
        java.child.kill()
        producer.wait_for_write_after(moment, not_by=java.address)
        after = cluster.controllers.wait_for_master(NAME, other_than=before.master_id)
        assert after.master_id == python.controller_id
        assert after.master_epoch == before.master_epoch + 1
        producer.wait_for_acks(300)
        java.start()
        cluster.wait_in_sync()
        assert cluster.master() is python
        producer.wait_for_acks(200)
        assert_nothing_lost(cluster, producer, replicas=cluster.brokers)
    assert_logs_become_equal(cluster)


def test_our_master_when_killed_then_java_serves_and_ours_follows_again(
    cluster: Cluster, topic: str
) -> None:
    """kill -9 of ours: the epoch file, the log and the identity must be readable afterwards."""
    have_master(cluster, python_of(cluster))
    java, python = java_of(cluster), python_of(cluster)
    identity = python.controller_id
    with Producer(cluster.name_server.address, topic) as producer:
        producer.wait_for_acks(300)
        moment = time.monotonic()
        python.child.kill()
        producer.wait_for_write_after(moment, not_by=python.address)
        producer.wait_for_acks(100)
        python.start()
        cluster.wait_in_sync()
        assert cluster.master() is java
        assert python.controller_id == identity
        producer.wait_for_acks(100)
        assert_nothing_lost(cluster, producer, replicas=cluster.brokers)
    assert_logs_become_equal(cluster)


def test_our_master_when_it_stands_still_then_its_watcher_has_java_elected(
    cluster: Cluster, topic: str
) -> None:
    """By requests that any controller serves, before the heartbeats' timeout (ADR 0024)."""
    have_master(cluster, python_of(cluster))
    java, python = java_of(cluster), python_of(cluster)
    with Producer(cluster.name_server.address, topic) as producer:
        producer.wait_for_acks(200)
        moment = time.monotonic()
        python.child.stop()
        try:
            producer.wait_for_write_after(moment, not_by=python.address)
        finally:
            python.child.cont()
        assert cluster.master() is java
        cluster.wait_in_sync()
        producer.wait_for_acks(100)
        assert_nothing_lost(cluster, producer, replicas=cluster.brokers)
    assert "mastership_handed_over" in (python.home / "out.log").read_text()


def mapping_of(broker: JavaBroker, topic: str) -> dict[str, object] | None:
    """The logical queues of a topic at one broker, by number; None if to it the topic has none."""
    answer = wire.invoke(broker.address, 351, {"topic": topic, "lo": True})
    detail = answer.json().get("mappingDetail") if answer.code == wire.SUCCESS else None
    return detail and detail["hostedQueues"]


def make_static(cluster: Cluster, topic: str) -> dict[str, object]:
    """Two logical queues at the master; returns them."""
    server = cluster.name_server.address
    text = mqadmin("updateStaticTopic", "-n", server, "-t", topic, "-b", NAME, "-qn", "2")
    assert "Exception" not in text, text
    hosted = mapping_of(cluster.master(), topic)
    assert hosted is not None
    assert sorted(hosted) == ["0", "1"]
    return hosted


def answered(broker: JavaBroker, topic: str, queue: int) -> int:
    """The code of a send to a logical queue."""
    with wire.Connection(broker.address) as one:
        return wire.send_message(one, topic, queue, b"x", keys="k", default_queues=2).code


def test_static_topic_when_its_java_master_dies_then_ours_knows_its_queues(
    cluster: Cluster, topic: str
) -> None:
    """Java's masters have no records of mappings; ours copies them beside the log."""
    java, python = java_of(cluster), python_of(cluster)
    have_master(cluster, java)
    hosted = make_static(cluster, topic)
    wait_until(lambda: mapping_of(python, topic) == hosted, 30.0, "the slave's mapping")
    have_master(cluster, python)
    wait_until(lambda: answered(python, topic, 1) == wire.SUCCESS, 30.0, "a logical queue")
    assert answered(python, topic, 2) == NOT_LEADER_FOR_QUEUE
    assert mapping_of(python, topic) == hosted


def test_static_topic_when_a_java_slave_reigns_between_then_ours_keeps_its_queues(
    cluster: Cluster, topic: str
) -> None:
    """Java's slaves up to 5.5.0 copy topics and never mappings; ours does not forget for that."""
    java, python = java_of(cluster), python_of(cluster)
    have_master(cluster, python)
    hosted = make_static(cluster, topic)

    def is_known() -> bool:
        return wire.invoke(java.address, 351, {"topic": topic}).code == wire.SUCCESS

    wait_until(is_known, 30.0, "the Java slave to know the topic")
    have_master(cluster, java)
    assert mapping_of(java, topic) is None
    have_master(cluster, python)
    assert mapping_of(python, topic) == hosted
    wait_until(lambda: answered(python, topic, 1) == wire.SUCCESS, 30.0, "a logical queue")
    assert answered(python, topic, 2) == NOT_LEADER_FOR_QUEUE


def test_our_master_when_a_topic_is_made_then_the_java_slave_learns_it(
    cluster: Cluster, topic: str
) -> None:
    """Topics travel beside the log (21, on the port two below): the next master must know them."""
    have_master(cluster, python_of(cluster))
    with wire.Connection(python_of(cluster).address) as broker:
        wire.create_topic(broker, topic, 3)

    def known() -> bool:
        answer = wire.invoke(java_of(cluster).address, 351, {"topic": topic})
        return answer.code == wire.SUCCESS and answer.json()["writeQueueNums"] == 3

    wait_until(known, 30.0, "the Java slave to know the topic")


def test_topic_when_java_deletes_it_and_it_is_made_again_then_ours_has_the_new_messages(
    cluster: Cluster, topic: str
) -> None:
    """Java's master deletes the queues and numbers messages from 0 again; the log says nothing of it,
    and Java's own slaves keep the old queue and leave out what is acknowledged in the new one."""
    java, python = java_of(cluster), python_of(cluster)
    have_master(cluster, java)

    def send(master: wire.Connection, text: str) -> int:
        answer = wire.send_message(master, topic, 0, text.encode(), keys=text, default_queues=1)
        assert answer.code == wire.SUCCESS, answer
        return int(answer.ext["queueOffset"])

    with wire.Connection(java.address) as master:
        wire.create_topic(master, topic, 1)
        assert [send(master, f"old-{number}") for number in range(5)] == [0, 1, 2, 3, 4]
        assert master.invoke(215, {"topic": topic}).code == wire.SUCCESS
        wire.create_topic(master, topic, 1)
        assert [send(master, f"new-{number}") for number in range(3)] == [0, 1, 2]
    have_master(cluster, python)
    with wire.Connection(python.address) as master:
        wait_until(lambda: send(master, "ours") >= 3, 30.0, "our master to take messages")
        found = [one.body for one in wire.pull_queue(master, topic, 0)]
    assert found[:3] == [b"new-0", b"new-1", b"new-2"]
    assert set(found[3:]) == {b"ours"}


def send_timer(broker: wire.Connection, topic: str, due_ms: int) -> bytes:
    """Have a message delivered at ``due_ms``; its body."""
    body = f"{topic}-{due_ms}"
    timer = f"TIMER_DELIVER_MS\x01{due_ms}\x02"
    answer = wire.send_message(
        broker, topic, 0, body.encode(), keys=body, default_queues=1, properties=timer
    )
    assert answer.code == wire.SUCCESS, answer
    return body.encode()


def test_java_master_when_killed_before_it_delivers_a_timer_then_ours_delivers_it(
    cluster: Cluster, topic: str
) -> None:
    """Java's mark names the second to deliver next, not the last that was: ours copies it."""
    have_master(cluster, java_of(cluster))
    java, python = java_of(cluster), python_of(cluster)
    kept = python.store / "config" / "rmqhaTimers.json"
    bodies: dict[int, bytes] = {}
    marks: list[int] = []
    with wire.Connection(java.address) as master:
        wire.create_topic(master, topic, 1)

        def named_and_not_delivered() -> bytes | None:
            # There is always one to come: how long it takes until one is caught is chance.
            now_ms = int(time.time()) * TIMER_STEP_MS
            for due_ms in range(now_ms + 4_000, now_ms + 10_000, TIMER_STEP_MS):
                if due_ms not in bodies:
                    # Java takes the part of a second off.
                    bodies[due_ms] = send_timer(master, topic, due_ms + TIMER_STEP_MS // 2)
            delivered_ms = json.loads(kept.read_text())["readTimeMs"]
            if delivered_ms in marks:
                return None
            marks.append(delivered_ms)
            body = bodies.get((delivered_ms + 1) // TIMER_STEP_MS * TIMER_STEP_MS)
            return None if body in read_commit_log(java, topic).values() else body

        caught = wait_until(named_and_not_delivered, 120.0, "a mark of our slave's", 0.005)
    java.child.kill()
    delivered = set(read_commit_log(java, topic).values())
    wait_until(
        lambda: set(bodies.values()) <= {*read_commit_log(python, topic).values()}, 30.0, "timers"
    )
    print(f"{caught!r} {'delivered at last' if caught in delivered else 'not delivered'} by Java")
    java.start()
    cluster.wait_in_sync()


def test_our_master_when_killed_before_it_delivers_timers_then_java_delivers_them(
    cluster: Cluster, topic: str
) -> None:
    """And the other way round: a timer in each second around the one that our mark names."""
    have_master(cluster, python_of(cluster))
    java, python = java_of(cluster), python_of(cluster)
    with wire.Connection(python.address) as master:
        wire.create_topic(master, topic, 1)
        first_ms = int(time.time() * 1000) + 2_000
        bodies = {send_timer(master, topic, first_ms + 300 * step) for step in range(20)}
    wait_until(lambda: len(read_commit_log(python, topic)) >= 5, 20.0, "the first timers")
    python.child.kill()
    wait_until(lambda: bodies <= {*read_commit_log(java, topic).values()}, 60.0, "all timers")
    python.start()
    cluster.wait_in_sync()


def test_our_replica_when_terminated_then_it_leaves_in_order(cluster: Cluster) -> None:
    """SIGTERM ends it by itself, without a trace of it in the route and with a clean store."""
    python = python_of(cluster)
    assert python.child.terminate()
    assert not (python.store / "abort").exists()
    with wire.Connection(cluster.name_server.address) as name_server:
        listed = wire.broker_addresses(name_server, NAME, NAME)
    assert python.address not in listed.values()
