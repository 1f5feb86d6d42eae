"""The same requests of tools to a Java 5.3.3 broker and to ours: codes, fields, and members of bodies.

Each broker stands alone with a name server of its own kind; both get the same messages and clients
first. What differs on purpose stands in PARITY.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from rmqha import __version__
from rmqha.testing.real import wire
from rmqha.testing.real.mqadmin import mqadmin
from rmqha.testing.real.processes import wait_until
from tests.interop import required
from tests.interop.alone import BROKER, Alone, new_topic

TOPIC, EMPTY, GROUP, CLUSTER = "Coded", "Idle", "Readers", "DefaultCluster"
SENT, READ = 5, 3
SAMPLED_S = 40.0
"""Both take a sample every ten seconds."""


class Both:
    """A Java broker and ours, and one connection of a client to each."""

    def __init__(self, java: Alone, ours: Alone) -> None:
        self.stages = (java, ours)
        self.connections = tuple(wire.Connection(one.broker.address) for one in self.stages)

    def ask(self, code: int, fields: Mapping[str, object] | None = None) -> list[wire.Answer]:
        """Both answers, Java's first."""
        return [one.invoke(code, fields or {}) for one in self.connections]

    def bodies(self, code: int, fields: Mapping[str, object] | None = None) -> list[Any]:
        """Both bodies of answers that are alike in their codes and fields."""
        java, ours = self.ask(code, fields)
        assert (java.code, sorted(java.ext)) == (ours.code, sorted(ours.ext)), (java, ours)
        return [java.json(), ours.json()]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """Both brokers, with the same past."""
    required.require_classpath()
    settings = {"timerWheelEnable": True}
    with (
        Alone("java", tmp_path_factory.mktemp("java"), **settings) as java,
        Alone("python", tmp_path_factory.mktemp("python"), **settings) as ours,
    ):
        found = Both(java, ours)
        for stage, connection in zip(found.stages, found.connections, strict=True):
            prepare(stage, connection)
        yield found
        for connection in found.connections:
            connection.close()


def prepare(stage: Alone, connection: wire.Connection) -> None:
    """Topics, a client that produces and consumes, messages, and a group that has read some."""
    new_topic(stage.broker, stage.servers, TOPIC, 1)
    new_topic(stage.broker, stage.servers, EMPTY, 1)
    body = {
        "clientID": "c1", "heartbeatFingerprint": 0, "withoutSub": False,
        "consumerDataSet": [], "producerDataSet": [{"groupName": "PG"}],
    }  # fmt: skip
    connection.ask(34, {}, json.dumps(body).encode())
    for number in range(SENT):
        wire.send_message(connection, TOPIC, 0, b"x", keys=f"K{number}", default_queues=1)
    end = {"topic": TOPIC, "queueId": 0}
    # What a queue shows grows a moment after the send was answered, with Java, too.
    wait_until(lambda: connection.ask(30, end).ext["offset"] == str(SENT), 10.0, "all to pull")
    for name in (GROUP, "Other"):
        group = {"groupName": name, "consumeEnable": True, "retryQueueNums": 1, "retryMaxTimes": 3}
        connection.ask(200, {}, json.dumps(group).encode())
    pull = {
        "consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "queueOffset": 0,
        "maxMsgNums": READ, "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0,
        "subVersion": 0, "subscription": "*",
    }  # fmt: skip
    assert connection.invoke(11, pull).code == 0
    connection.ask(15, {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "commitOffset": READ})


def shape(value: Any) -> Any:
    """Names and kinds of what JSON holds, without the values."""
    if isinstance(value, dict):
        return {name: shape(one) for name, one in value.items()}
    if isinstance(value, list):
        return [shape(one) for one in value]
    return type(value).__name__


def test_system_topics_when_both_are_asked_then_ours_are_javas_and_the_log_of_changes(
    both: Both,
) -> None:
    """305: the dashboard asks each broker before it shows a topic page."""
    java, ours = both.bodies(305)
    assert java.keys() == ours.keys()
    assert set(ours["topicList"]) - set(java["topicList"]) == {"rmq_sys_METADATA"}
    assert set(java["topicList"]) <= set(ours["topicList"])


def test_producers_when_both_are_asked_then_the_same_client(both: Both) -> None:
    """328: the exporter counts producers, mqadmin lists them."""
    java, ours = both.bodies(328)
    assert shape(java) == shape(ours)
    found = [one["data"]["PG"] for one in (java, ours)]
    for (one,) in found:
        assert one.pop("remoteIP").startswith("/127.0.0.1:")
        assert one.pop("lastUpdateTimestamp") > 1_600_000_000_000
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("name", "key", "total"),
    [
        ("TOPIC_PUT_NUMS", TOPIC, SENT), ("TOPIC_PUT_SIZE", TOPIC, None),
        ("GROUP_GET_NUMS", f"{TOPIC}@{GROUP}", READ), ("GROUP_GET_SIZE", f"{TOPIC}@{GROUP}", None),
        ("BROKER_PUT_NUMS", CLUSTER, SENT), ("BROKER_GET_NUMS", CLUSTER, READ),
    ],
)  # fmt: skip
def test_stats_when_messages_flow_then_both_have_counted_them(
    both: Both, name: str, key: str, total: int | None
) -> None:
    """315: the dashboard's charts and the exporter's rates; a record is as long here as there."""
    fields = {"statsName": name, "statsKey": key}

    def counted() -> bool:
        return all(one.json()["statsMinute"]["sum"] for one in both.ask(315, fields))

    wait_until(counted, SAMPLED_S, f"samples of {name}")
    java, ours = both.bodies(315, fields)
    assert shape(java) == shape(ours)
    sums = [one["statsMinute"]["sum"] for one in (java, ours)]
    assert sums[0] == sums[1] == (total or sums[0])
    assert ours["statsHour"]["sum"] == ours["statsDay"]["sum"] == sums[1]


@pytest.mark.parametrize(
    ("name", "key"),
    [("TOPIC_PUT_NUMS", EMPTY), ("SNDBCK_PUT_NUMS", f"{TOPIC}@{GROUP}"), ("NO_SUCH_NAME", TOPIC)],
)
def test_stats_when_nothing_was_counted_then_both_say_that_it_does_not_exist(
    both: Both, name: str, key: str
) -> None:
    """The exporter takes this for "no messages yet", and goes on."""
    java, ours = both.ask(315, {"statsName": name, "statsKey": key})
    assert (java.code, java.remark) == (ours.code, ours.remark)
    assert ours.code == 1


def test_stats_all_when_javas_tool_asks_both_then_the_same_table(both: Both) -> None:
    """``statsAll`` shows the rates that 315 tells; it showed an empty table for ours."""
    rows = []
    for stage in both.stages:
        text = mqadmin("statsAll", "-n", stage.servers, "-t", TOPIC)
        (row,) = [line.split() for line in text.splitlines() if line.startswith(TOPIC)]
        rows.append([row[0], row[1], row[2], row[-2], row[-1]])
    assert rows[0] == rows[1], BROKER


def test_time_spans_when_both_are_asked_then_ages_and_only_where_one_waits(both: Both) -> None:
    """303: the dashboard's monitor warns by delayTime; Java calls an unread queue 56 years late."""
    java, ours = both.bodies(303, {"topic": TOPIC, "group": GROUP})
    assert shape(java) == shape(ours)
    for (row,) in (one["consumeTimeSpanSet"] for one in (java, ours)):
        assert row["minTimeStamp"] <= row["consumeTimeStamp"] <= row["maxTimeStamp"]
        assert 0 < row["delayTime"] < 240_000
        for name in ("minTimeStamp", "maxTimeStamp", "consumeTimeStamp"):
            seconds, millis = divmod(row[name], 1000)
            local = time.strftime("%Y-%m-%d#%H:%M:%S", time.localtime(seconds))
            assert row[f"{name}Str"] == f"{local}:{millis:03d}"
        assert row["messageQueue"] == {"brokerName": BROKER, "queueId": 0, "topic": TOPIC}
    java, ours = both.bodies(303, {"topic": EMPTY, "group": GROUP})
    assert java["consumeTimeSpanSet"][0].pop("delayTime") > 1_600_000_000_000
    assert ours["consumeTimeSpanSet"][0].pop("delayTime") == 0
    assert java == ours
    java_none, our_none = both.ask(303, {"topic": "Nowhere", "group": GROUP})
    assert (java_none.code, java_none.remark) == (our_none.code, our_none.remark)


def test_units_when_both_are_asked_then_the_same_but_where_records_lie(both: Both) -> None:
    """321: ``queryCq`` shows what a queue's file holds."""
    fields = {"topic": TOPIC, "queueId": 0, "index": 1, "count": 3, "consumerGroup": "Nobody"}
    java, ours = both.bodies(321, fields)
    sizes = []
    for one in (java, ours):
        units = one["queueData"]
        assert len(units) == 3
        assert [unit["physicOffset"] for unit in units] == sorted(
            unit.pop("physicOffset") for unit in [dict(unit) for unit in units]
        )
        sizes.append([unit["physicSize"] for unit in units])
        for unit in units:
            del unit["physicOffset"]
    assert java == ours
    for missing in ({"index": SENT}, {"queueId": 7}, {"topic": "Nowhere"}):
        java_none, our_none = both.ask(321, {**fields, **missing})
        assert (java_none.code, java_none.remark) == (our_none.code, our_none.remark)


def test_corrections_when_both_are_asked_then_the_same_and_ours_deletes_no_offset(
    both: Both,
) -> None:
    """308: the smallest offset of all groups; who asks must not lose a group's place."""
    for connection in both.connections:
        connection.ask(15, {"consumerGroup": "Other", "topic": TOPIC, "queueId": 0,
                            "commitOffset": READ + 1})  # fmt: skip
    for compared in ("Other", GROUP, "Nobody"):
        java, ours = both.bodies(308, {"topic": TOPIC, "compareGroup": compared})
        assert java == ours == {"correctionOffsets": {"0": READ}}
    fields = {"topic": TOPIC, "compareGroup": GROUP, "filterGroups": GROUP}
    assert both.connections[1].ask(308, fields).json() == {
        "correctionOffsets": {"0": (1 << 63) - 1}
    }
    place = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0}
    assert both.connections[1].ask(14, place).ext["offset"] == str(READ)


def test_offsets_when_cloned_at_both_then_the_other_group_has_them(both: Both) -> None:
    """314: ``cloneGroupOffset`` before a group is renamed."""
    fields = {"srcGroup": GROUP, "destGroup": "Heirs", "topic": TOPIC, "offline": True}
    java, ours = both.ask(314, fields)
    assert (java.code, java.remark, java.ext) == (ours.code, ours.remark, ours.ext)
    for connection in both.connections:
        place = {"consumerGroup": "Heirs", "topic": TOPIC, "queueId": 0}
        assert connection.ask(14, place).ext["offset"] == str(READ)
    both.connections[1].ask(314, fields | {"destGroup": "All", "topic": ""})
    place = {"consumerGroup": "All", "topic": TOPIC, "queueId": 0}
    assert both.connections[1].ask(14, place).ext["offset"] == str(READ)


def test_cluster_list_when_javas_tool_asks_ours_then_it_shows_our_release(both: Both) -> None:
    """Who upgrades a cluster step by step sees how far it is, in Java's table, too."""
    rows = []
    for stage in both.stages:
        text = mqadmin("clusterList", "-n", stage.servers)
        (row,) = [line.split() for line in text.splitlines() if line.startswith(CLUSTER)]
        rows.append(row)
    assert [row[4] for row in rows] == ["V5_3_3", f"rmqha_{__version__}"]
    assert len({len(row) for row in rows}) == 1


@pytest.mark.parametrize("code", [306, 316, 329])
def test_tidying_when_both_are_asked_then_the_same_answer_and_no_message_goes(
    both: Both, code: int
) -> None:
    """``cleanExpiredCQ``, ``cleanUnusedTopic``, ``deleteExpiredCommitLog``: nothing is over yet."""
    java, ours = both.ask(code)
    assert (java.code, java.remark, java.ext, java.body) == (
        ours.code, ours.remark, ours.ext, ours.body,
    )  # fmt: skip
    for connection in both.connections:
        assert connection.ask(30, {"topic": TOPIC, "queueId": 0}).ext["offset"] == str(SENT)
        assert connection.ask(31, {"topic": TOPIC, "queueId": 0}).ext["offset"] == "0"


def test_timers_when_both_are_asked_then_the_same_number_of_each_topic(both: Both) -> None:
    """61: slaves copy it."""
    topic = "Timed"
    for stage, connection in zip(both.stages, both.connections, strict=True):
        new_topic(stage.broker, stage.servers, topic, 1)
        due_ms = int((time.time() + 3_600) * 1000)
        for number in range(3):
            sent = wire.send_message(
                connection, topic, 0, b"x", keys=f"T{number}", default_queues=1,
                properties=f"TIMER_DELIVER_MS\x01{due_ms}\x02",
            )  # fmt: skip
            assert sent.code == 0

    def waiting(connection: wire.Connection) -> int:
        counts = connection.ask(61).json()["timingCount"]
        return counts[topic]["count"] if topic in counts else 0

    for connection in both.connections:
        wait_until(lambda: waiting(connection) == 3, 20.0, "three timers")  # noqa: B023
    java, ours = both.bodies(61)
    assert java["timingCount"].keys() == ours["timingCount"].keys() == {topic}
    assert shape(java) == shape(ours)


REFUSED = [323, 353, 354, 355, 905, 908, 2001, 2002, 2003, 2004, 200_056]


@pytest.mark.parametrize("code", REFUSED)
def test_code_when_it_is_not_served_then_it_is_refused_as_java_refuses_strangers(
    both: Both, code: int
) -> None:
    """PARITY says of each why; a tool must see that it was not done."""
    answer = both.connections[1].invoke(code, {})
    assert answer.code == 3
    assert answer.remark.endswith(f"request type {code} not supported")
