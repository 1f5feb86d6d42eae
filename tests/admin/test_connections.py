"""consumerConnection and producerConnection: who of a group is connected, as the Java tool shows it."""

from __future__ import annotations

import pytest

from rmqha.admin.java_versions import version_name
from rmqha.client.exchange import Call, NotFound, Refused, Unreachable
from rmqha.remoting import fastjson
from rmqha.remoting.command import RemotingCommand
from tests.admin.driving import by_code, run, usage_error
from tests.admin.test_cluster_commands import SERVERS, reply, route

CLIENTS = [
    {"clientId": "10.0.0.9@7", "clientAddr": "10.0.0.9:5001", "language": "JAVA", "version": 479},
    {"clientId": "10.0.0.8@9", "clientAddr": "10.0.0.8:5002", "language": "CPP", "version": 409},
]
SUBSCRIPTIONS = {
    "T": {"topic": "T", "subString": "TagA || TagB", "tagsSet": ["TagA", "TagB"]},
    "%RETRY%G": {"topic": "%RETRY%G", "subString": "*", "tagsSet": []},
}
ONLINE = {
    "connectionSet": CLIENTS, "subscriptionTable": SUBSCRIPTIONS, "consumeType": "CONSUME_PASSIVELY",
    "messageModel": "CLUSTERING", "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
}  # fmt: skip
CONSUMERS_TEXT = """\
#ClientId                            #ClientAddr            #Language  #Version
10.0.0.9@7                           10.0.0.9:5001          JAVA       V5_3_3
10.0.0.8@9                           10.0.0.8:5002          CPP        V4_9_8

Below is subscription:
#Topic               #SubExpression
T                    TagA || TagB
%RETRY%G             *

ConsumeType: CONSUME_PASSIVELY
MessageModel: CLUSTERING
ConsumeFromWhere: CONSUME_FROM_LAST_OFFSET
"""
PRODUCERS_TEXT = """\
0001  10.0.0.9@7                       10.0.0.9:5001          JAVA     V5_3_3
0002  10.0.0.8@9                       10.0.0.8:5002          CPP      V4_9_8
"""


def test_consumers_when_asked_then_the_text_is_that_of_the_java_tool() -> None:
    """ConsumerConnectionSubCommand of 5.3.3."""
    line = f"consumerConnection {SERVERS} -g G"
    report, calls = run(line, by_code({105: route("a"), 203: reply(0, ONLINE)}))
    assert report.plain == CONSUMERS_TEXT
    assert [(call.address, call.command.code) for call in calls] == [("ns:1", 105), ("a:1", 203)]
    assert (calls[0].command.ext_fields or {})["topic"] == "%RETRY%G"
    assert calls[1].command.ext_fields == {"consumerGroup": "G"}
    clients = report.data["clients"]
    assert [(one["clientId"], one["version"]) for one in clients] == [
        ("10.0.0.9@7", "V5_3_3"), ("10.0.0.8@9", "V4_9_8"),
    ]  # fmt: skip
    assert report.data["subscriptions"] == {"%RETRY%G": "*", "T": "TagA || TagB"}


def test_consumers_when_a_broker_is_named_then_no_name_server_is_asked() -> None:
    report, calls = run("consumerConnection -b b:1 -g G", by_code({203: reply(0, ONLINE)}))
    assert [call.address for call in calls] == ["b:1"]
    assert report.plain == CONSUMERS_TEXT


def test_consumers_when_nobody_is_online_then_it_is_a_failure() -> None:
    """The Java tool prints a stack trace and exits with 0."""
    line = f"consumerConnection {SERVERS} -g G"
    with pytest.raises(Refused, match="CONSUMER_NOT_ONLINE"):
        run(line, by_code({105: route("a"), 203: reply(206)}))
    with pytest.raises(NotFound, match="G is not online"):
        run(line, by_code({105: route("a"), 203: reply(0, {"connectionSet": []})}))


def test_producers_when_asked_then_the_text_is_that_of_the_java_tool() -> None:
    """ProducerConnectionSubCommand of 5.3.3."""
    line = f"producerConnection {SERVERS} -g PG -t T"
    report, calls = run(line, by_code({105: route("a"), 204: reply(0, {"connectionSet": CLIENTS})}))
    assert report.plain == PRODUCERS_TEXT
    assert calls[1].command.ext_fields == {"producerGroup": "PG"}
    assert report.data["clients"][1]["language"] == "CPP"


def test_producers_when_the_first_broker_knows_none_then_the_next_is_asked() -> None:
    """A producer connects to the brokers to which it sends."""

    def answer(call: Call) -> RemotingCommand:
        if call.address == "a:1":
            return call.command.reply(1, "the producer group[PG] not exist")
        if call.address == "b:1":
            raise Unreachable("b:1 is down")
        return call.command.reply(0, body=fastjson.dumps({"connectionSet": CLIENTS}))

    line = f"producerConnection {SERVERS} -g PG -t T"
    report, calls = run(line, by_code({105: route("a", "b", "c"), 204: answer}))
    assert [call.address for call in calls] == ["ns:1", "a:1", "b:1", "c:1"]
    assert report.plain == PRODUCERS_TEXT


def test_producers_when_nobody_is_online_then_it_is_a_failure() -> None:
    line = f"producerConnection {SERVERS} -g PG -t T"
    with pytest.raises(Refused, match="not exist"):
        run(line, by_code({105: route("a"), 204: reply(1, remark="PG not exist")}))
    with pytest.raises(NotFound, match="PG is not online"):
        run(line, by_code({105: route("a"), 204: reply(0, {"connectionSet": []})}))


def test_connections_when_something_is_missing_then_it_is_wrong_usage() -> None:
    assert "-n" in usage_error("consumerConnection -g G")
    assert "-t" in usage_error(f"producerConnection {SERVERS} -g PG")


@pytest.mark.parametrize(
    ("ordinal", "name"),
    [
        (0, "V3_0_0_SNAPSHOT"), (15, "V3_0_0_FINAL"), (16, "V3_0_1_SNAPSHOT"), (45, "V3_0_15"),
        (46, "V3_1_0_SNAPSHOT"), (85, "V3_2_9"), (86, "V3_3_1_SNAPSHOT"), (157, "V3_6_9"),
        (211, "V3_9_9"), (212, "V4_0_0_SNAPSHOT"), (317, "V4_5_2"), (411, "V4_9_9"),
        (412, "V5_0_0_SNAPSHOT"), (479, "V5_3_3"), (513, "V5_5_0"), (611, "V5_9_9"),
        (612, "HIGHER_VERSION"), (5_000, "HIGHER_VERSION"), (-1, "-1"),
    ],
)  # fmt: skip
def test_release_when_its_ordinal_is_told_then_it_has_the_name_that_java_has(
    ordinal: int, name: str
) -> None:
    """MQVersion of 5.3.3; a wrong name sends people to upgrade the wrong clients."""
    assert version_name(ordinal) == name
