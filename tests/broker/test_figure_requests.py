"""What the dashboard and the exporter ask: 305, 315 and 328 against a whole replica, simulated."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from rmqha.remoting import fastjson
from tests.broker.replicas import TOPIC, ReplicaCluster, master_of, send_fields
from tests.broker.subscriber import Subscriber, pull_fields

SAMPLED_MS = 20_500
CLUSTER = "DefaultCluster"


@pytest.fixture
def alone() -> Iterator[ReplicaCluster]:
    """One replica, which reigns."""
    with ReplicaCluster(seed=31, replicas=1, messageDelayLevel="1s 5s") as one:
        one.boot_all()
        yield one


def send(cluster: ReplicaCluster, number: int, more: str = "") -> int:
    """Send a message with further properties; its answer's offset is not looked at."""
    fields = send_fields(number)
    fields["i"] += more
    answer = cluster.ask(master_of(cluster).config.address, 310, fields, b"body-%d" % number)
    assert answer.code == 0, answer.remark
    return int((answer.ext_fields or {})["queueOffset"])


def stats(cluster: ReplicaCluster, name: str, key: str) -> Any:
    """What a statistic says of a minute."""
    fields = {"statsName": name, "statsKey": key}
    answer = cluster.ask(master_of(cluster).config.address, 315, fields)
    assert answer.code == 0, answer.remark
    return fastjson.loads(answer.body)["statsMinute"]


def test_system_topics_when_asked_then_all_that_the_broker_made_for_itself(
    alone: ReplicaCluster,
) -> None:
    """305: the dashboard hides these from its topic page, and failed as a whole without them."""
    master = master_of(alone)
    answer = alone.ask(master.config.address, 305)
    found = set(fastjson.loads(answer.body)["topicList"])
    assert answer.code == 0
    assert found >= {"TBW102", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_METADATA"}
    made = {name for name in master.topics.table.topics if name != TOPIC}
    assert made <= found
    assert TOPIC not in found


@pytest.mark.parametrize("auto_create", ["true", "false"])
def test_trace_topic_when_wanted_then_clients_can_write_traces(auto_create: str) -> None:
    """Nobody else can make it: its name is one of the broker's own. Java has both keys."""
    keys = {"traceTopicEnable": "true", "autoCreateTopicEnable": auto_create}
    with ReplicaCluster(seed=27, replicas=1, **keys) as cluster:
        cluster.boot_all()
        address = master_of(cluster).config.address
        fields = {**send_fields(0, "RMQ_SYS_TRACE_TOPIC"), "e": "0"}
        assert cluster.ask(address, 310, fields, b"Pub").code == 0
        topic = master_of(cluster).topics.table.topics["RMQ_SYS_TRACE_TOPIC"]
        assert topic.read_queue_nums == topic.write_queue_nums == 1
    with ReplicaCluster(seed=27, replicas=1, msgTraceTopicName="Traces", **keys) as cluster:
        cluster.boot_all()
        assert "Traces" in master_of(cluster).topics.table.topics


@pytest.mark.costly
def test_stats_when_messages_flow_then_rates_of_topic_group_and_broker(
    alone: ReplicaCluster,
) -> None:
    """315: the exporter's rates and the dashboard's charts are these numbers."""
    for number in range(6):
        send(alone, number)
    client = Subscriber(alone, master_of(alone).config.address)
    assert client.ask(11, pull_fields("CG", TOPIC, sysFlag=4)).code == 0
    alone.run_for(SAMPLED_MS)
    put, size = stats(alone, "TOPIC_PUT_NUMS", TOPIC), stats(alone, "TOPIC_PUT_SIZE", TOPIC)
    assert put["sum"] == stats(alone, "BROKER_PUT_NUMS", CLUSTER)["sum"] == 6
    assert 0 < put["tps"] <= 0.6
    assert size["sum"] > 6 * 80
    assert size["avgpt"] == pytest.approx(size["sum"] / 6)
    got = stats(alone, "GROUP_GET_NUMS", f"{TOPIC}@CG")
    assert got["sum"] == stats(alone, "BROKER_GET_NUMS", CLUSTER)["sum"] > 0
    assert stats(alone, "GROUP_GET_SIZE", f"{TOPIC}@CG")["sum"] > 80 * got["sum"]


@pytest.mark.costly
def test_stats_when_a_message_is_delayed_or_sent_back_then_its_delivery_counts(
    alone: ReplicaCluster,
) -> None:
    """A topic whose messages all are delayed had no rate: they counted under the delays' topic."""
    send(alone, 1, "DELAY\x011\x02")
    client = Subscriber(alone, master_of(alone).config.address)
    client.beat("CG", TOPIC)
    fields = {"offset": "0", "group": "CG", "delayLevel": "1", "originTopic": TOPIC}
    alone.run_for(3_000)
    reader = master_of(alone).store.reader
    queue = next(one for one in range(8) if reader.max_offset(TOPIC, one))
    unit = reader.unit(TOPIC, queue, 0)
    assert unit is not None
    client_answer = client.ask(36, fields | {"offset": str(unit.physical_offset)})
    assert client_answer.code == 0, client_answer.remark
    alone.run_for(SAMPLED_MS)
    assert stats(alone, "TOPIC_PUT_NUMS", TOPIC)["sum"] == 1
    assert stats(alone, "TOPIC_PUT_NUMS", "SCHEDULE_TOPIC_XXXX")["sum"] == 2
    assert stats(alone, "TOPIC_PUT_NUMS", "%RETRY%CG")["sum"] == 1
    assert stats(alone, "SNDBCK_PUT_NUMS", f"{TOPIC}@CG")["sum"] == 1


@pytest.mark.costly
def test_stats_when_the_topic_is_deleted_then_they_are_gone(alone: ReplicaCluster) -> None:
    """One that is made once more begins anew."""
    address = master_of(alone).config.address
    send(alone, 1)
    alone.run_for(SAMPLED_MS)
    assert stats(alone, "TOPIC_PUT_NUMS", TOPIC)["sum"] == 1
    assert alone.ask(address, 215, {"topic": TOPIC}).code == 0
    answer = alone.ask(address, 315, {"statsName": "TOPIC_PUT_NUMS", "statsKey": TOPIC})
    assert (answer.code, answer.remark) == (1, f"The stats <TOPIC_PUT_NUMS> <{TOPIC}> not exist")


def test_producers_when_asked_for_all_then_who_they_are_and_when_they_were_heard(
    alone: ReplicaCluster,
) -> None:
    """328: the exporter's producer counts; the dashboard's and mqadmin's lists of clients."""
    master = master_of(alone)
    body = json.dumps(
        {"clientID": "p1", "consumerDataSet": [], "producerDataSet": [{"groupName": "PG"}]}
    ).encode()
    client = Subscriber(alone, master.config.address, "p1")
    assert fastjson.loads(client.ask(328).body) == {"data": {}}
    assert client.ask(34, body=body).code == 0
    heard_ms = master.clock.wall_ms()
    alone.run_for(5_000)
    answer = client.ask(328)
    data = fastjson.loads(answer.body)["data"]
    assert list(data) == ["PG"]
    (one,) = data["PG"]
    # The two simulated clocks run apart by 4 % at most.
    assert abs(one.pop("lastUpdateTimestamp") - heard_ms) < 300
    assert one.pop("remoteIP").startswith("/10.0.3.")
    assert one == {"clientId": "p1", "language": "JAVA", "version": 479}
