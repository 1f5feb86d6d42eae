"""The commands of a cluster against captured answers: their text is the real mqadmin's."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from rmqha.admin.java_text import hash_order, parse_time, pretty, time_of
from rmqha.admin.spec import Here
from rmqha.client.exchange import Call
from rmqha.remoting import fastjson
from rmqha.remoting.command import RemotingCommand
from tests.admin.driving import run
from tests.admin.golden import CLUSTER, NAME_SERVER, Captured, last_answer, printed

_RATES = re.compile(r"((?:Tps|TPS|runtime|Latency\S*|putRate) *: ).*")
_UNKNOWN = re.compile(r"(trackType=UNKNOWN, exceptionDesc=).*?(?=\]\n)", re.DOTALL)


@pytest.fixture(autouse=True)
def _zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The capture was made in UTC."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


SHOWN = next(one.answers[0][2] for one in CLUSTER if one.line[0] == "topicStatus")
"""The route of an ordinary topic."""
_ENDS = b'{"offsetTable":{%s}}' % b",".join(
    b'{"brokerName":"broker-a","queueId":%d,"topic":"Shown"}:{"minOffset":0,"maxOffset":3}' % one
    for one in range(2)
)


def replay(captured: Captured) -> tuple[Any, list[Call]]:
    """Run a captured command; every request must be the one that was answered."""
    left = iter(captured.answers)

    def answer(call: Call) -> RemotingCommand:
        topic = (call.command.ext_fields or {}).get("topic", "")
        if captured.line[0] == "consumerProgress" and call.command.code == 105 and topic == "Shown":
            # Whether the topic is static: the capture is from before we asked.
            return SHOWN
        if captured.line[0] == "brokerConsumeStats" and call.command.code == 28:
            return call.command.reply(0)  # whether the broker hangs is asked since then
        if captured.line[0] == "resetOffsetByTime" and call.command.code == 202:
            return call.command.reply(0, body=_ENDS)  # whether it has queue and offset, since then
        address, code, reply = next(left)
        if captured.line[0] == "resetOffsetByTime" and (code, call.command.code) == (15, 222):
            address, code, reply = next(left)  # theirs sends 15 before anybody has looked at it
        assert (address, code) == (call.address, call.command.code)
        return reply

    found = run(captured.line, answer, Here(captured.now_ms, 1))
    assert next(left, None) is None, "not all requests were made"
    return found


def comparable(name: str, text: str) -> str | list[str]:
    """What both tools must have in common.

    Rates moved between the two calls (the real topicStatus always shows 0.0). The words for "no
    route" are the Java client's exception. Settings and resets come in a hash table's order.
    """
    text = _UNKNOWN.sub(r"\1", _RATES.sub(r"\1", text)).rstrip("\n")
    return sorted(text.split("\n")) if name in {"getBrokerConfig", "resetOffsetByTime"} else text


@pytest.mark.parametrize("captured", CLUSTER, ids=lambda one: " ".join(one.line[3:])[:60])
def test_text_is_javas(captured: Captured) -> None:
    """Scripts cut columns out of it; whoever reads both must not have to think."""
    report, _ = replay(captured)
    name = captured.line[0]
    assert comparable(name, report.plain) == comparable(name, captured.printed)
    assert report.plain.endswith("\n")
    assert not report.failures
    assert fastjson.loads(fastjson.dumps(report.data)) is not None


def test_text_of_a_cluster_with_a_slave_is_javas() -> None:
    """The other capture: a master with one slave, in controller mode."""

    def answer(call: Call) -> RemotingCommand:
        return last_answer(call.address, call.command.code)

    report, _ = run("haStatus -b 127.0.0.1:30911", answer)
    assert report.plain == printed("haStatus") + "\n"
    assert report.data[0]["slaves"][0]["inSync"] is True
    report, _ = run(f"topicRoute -n {NAME_SERVER} -t TopicA", answer)
    assert report.plain == printed("topicRoute") + "\n"
    report, _ = run(f"clusterList -n {NAME_SERVER}", answer)
    theirs, ours = printed("clusterList").splitlines(), report.plain.splitlines()
    assert ours[0].split() == theirs[0].split()
    # The age of the oldest message is that of our clock.
    rows = [[line.split()[:-3], line.split()[-2:]] for line in (*ours[1:], *theirs[1:])]
    assert rows[:2] == rows[2:]


def test_text_of_a_slave_names_its_master_and_times() -> None:
    """What Java prints where the asked broker is none."""
    info = {
        "master": False,
        "haClientRuntimeInfo": {
            "masterAddr": "10.0.0.1:10912", "maxOffset": 9, "transferredByteInSecond": 2048,
            "lastReadTimestamp": 1005, "lastWriteTimestamp": 2007, "masterFlushOffset": 8,
        },
    }  # fmt: skip
    report, _ = run(
        "haStatus -b b:1", lambda call: call.command.reply(0, body=fastjson.dumps(info))
    )
    assert report.plain == (
        "\n#MasterAddr\t10.0.0.1:10912\n#CommitLogMaxOffset\t9\n#TransferSpeed(KB/s)\t2.00\n"
        "#LastReadTime\t1970-01-01 00:00:01,005\n#LastWriteTime\t1970-01-01 00:00:02,007\n"
        "#MasterFlushOffset\t8\n"
    )


def data_of(*line: str) -> Any:
    """The ``--json`` of the first captured command that begins so."""
    matches = [one for one in CLUSTER if [*one.line[:1], *one.line[3:]][: len(line)] == [*line]]
    captured = min(matches, key=lambda one: len(one.line))
    return replay(captured)[0].data


def test_json_has_the_figures_of_the_tables() -> None:
    """Machines read this, not the columns."""
    (broker,) = data_of("clusterList")
    assert (broker["brokerName"], broker["runtime"]["brokerVersionDesc"]) == ("broker-a", "V5_3_3")
    assert "Shown" in data_of("topicList")
    shown = next(one for one in data_of("topicList", "-c") if one["topic"] == "Shown")
    assert {"G", "Offline", "Pulling"} <= set(shown["consumerGroups"])
    assert data_of("topicRoute")["queueDatas"][0]["readQueueNums"] == 2
    status = data_of("topicStatus")
    assert [queue["maxOffset"] for queue in status["queues"]] == [3, 3]
    assert status["topicPutTps"] >= 0
    progress = data_of("consumerProgress", "-g", "G")
    assert (progress["diffTotal"], [one["diff"] for one in progress["queues"]]) == (1, [1, 0])
    groups = {one["group"]: one for one in data_of("consumerProgress")}
    assert (groups["G"]["version"], groups["Pulling"]["type"]) == ("V5_3_3", "PULL")
    assert groups["Offline"]["version"] == "OFFLINE"
    assert data_of("haStatus")[0]["master"] is True
    (message,) = data_of("queryMsgById")
    assert (message["body"], message["keys"]) == ("body-2", "key-2 all")
    tracks = {track["consumerGroup"]: track["trackType"] for track in message["tracks"]}
    assert {
        "G": "CONSUMED", "Filtered": "CONSUMED_BUT_FILTERED", "Pulling": "PULL",
        "Offline": "NOT_ONLINE",
    }.items() <= tracks.items()  # fmt: skip
    assert len(data_of("queryMsgByKey")) == 6
    assert [one["queueOffset"] for one in data_of("consumeMessage")] == [0, 1, 2]
    assert data_of("resetOffsetByTime")["queues"][0]["offset"] == 0
    assert data_of("wipeWritePerm")["topicCounts"].popitem()[1] > 0


# -- Java's texts ------------------------------------------------------------------------------------


def test_hash_order_is_that_of_a_java_set() -> None:
    """More keys than the first table takes; Aa and BB are of one hash."""
    keys = [f"topic-{number}" for number in range(20)]
    assert sorted(hash_order(keys)) == sorted(keys)
    assert hash_order(["BB", "Aa"]) == ["BB", "Aa"]
    assert hash_order(["b", "a", "c", "a"]) == ["a", "b", "c"]


def test_times_are_read_and_shown_as_javas() -> None:
    """And what is no time is shown as it is, not as a traceback."""
    assert parse_time("1970-01-01#00:00:01:005") == 1005
    assert parse_time("1005") == 1005
    for text in ("1970-01-01#00:00:01", "x", "1970-13-01#00:00:00:000", "", "9" * 30):
        assert parse_time(text) is None
    assert time_of(1005) == "1970-01-01 00:00:01,005"
    assert time_of(1 << 62) == str(1 << 62)


def test_pretty_json_escapes_and_keeps_number_maps_on_a_line() -> None:
    """fastjson's own way of indenting."""
    text = pretty({"a": {0: "x", 2: "y"}, 'q"': [], "n": None, "t": [True, {}]})
    assert (
        text
        == '{\n\t"a":{0:"x",2:"y"\n\t},\n\t"q\\"":[],\n\t"n":null,\n\t"t":[\n\t\ttrue,\n\t\t{}\n\t]\n}'
    )
