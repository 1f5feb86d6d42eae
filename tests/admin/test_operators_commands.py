"""deleteSubGroup, updateTopicPerm, getNamesrvConfig, updateNamesrvConfig and queryMsgByUniqueKey."""

from __future__ import annotations

from typing import Any

import pytest

from rmqha.client.exchange import Call, NotFound, Refused, Unreachable
from rmqha.remoting import fastjson
from rmqha.remoting.command import RemotingCommand
from rmqha.store import record
from tests.admin.driving import by_code, run, usage_error
from tests.admin.test_cluster_commands import SERVERS, cluster, reply, route

UNIQUE = "AC11000100002A9F00000000000001F4"


def codes(calls: list[Call]) -> list[tuple[str, int]]:
    """Whom a command asked what."""
    return [(call.address, call.command.code) for call in calls]


def fields_of(call: Call) -> dict[str, str]:
    """The fields of a request."""
    return dict(call.command.ext_fields or {})


# -- deleteSubGroup --------------------------------------------------------------------------------


def test_group_when_deleted_from_a_cluster_then_its_topics_go_after_it() -> None:
    """As DeleteSubscriptionGroupCommand of 5.3.3."""
    table = {106: cluster("a", "b"), 207: reply(), 215: reply(), 216: reply()}
    report, calls = run(f"deleteSubGroup {SERVERS} -c C -g G -r true", by_code(table))
    assert report.plain == (
        "delete subscription group [G] from broker [a:1] in cluster [C] success.\n"
        "delete subscription group [G] from broker [b:1] in cluster [C] success.\n"
    )
    assert codes(calls)[:3] == [("ns:1", 106), ("a:1", 207), ("b:1", 207)]
    assert fields_of(calls[1]) == {"groupName": "G", "cleanOffset": "true"}
    gone = [fields_of(call)["topic"] for call in calls if call.command.code == 215]
    assert gone == ["%RETRY%G", "%RETRY%G", "%DLQ%G", "%DLQ%G"]
    assert report.data == {
        "group": "G", "brokers": ["a:1", "b:1"], "topics": ["%RETRY%G", "%DLQ%G"],
    }  # fmt: skip


def test_group_when_deleted_from_a_broker_then_that_one_alone_is_asked() -> None:
    report, calls = run("deleteSubGroup -b a:1 -g G", by_code({207: reply()}))
    assert codes(calls) == [("a:1", 207)]
    assert fields_of(calls[0])["cleanOffset"] == "false"
    assert report.plain == "delete subscription group [G] from broker [a:1] success.\n"


def test_group_when_a_master_keeps_it_then_its_topics_stay() -> None:
    """That master would make the retry topic anew, and the dead letters would be gone for nothing."""

    def delete(call: Call) -> RemotingCommand:
        return call.command.reply(0 if call.address == "a:1" else 1, "busy")

    line = f"deleteSubGroup {SERVERS} -c C -g G"
    report, calls = run(line, by_code({106: cluster("a", "b"), 207: delete}))
    assert [code for _, code in codes(calls)] == [106, 207, 207]
    assert (report.data["brokers"], len(report.failures)) == (["a:1"], 1)


def test_group_when_its_topic_cannot_be_deleted_then_that_is_told() -> None:
    table = {106: cluster("a"), 207: reply(), 215: reply(1, remark="busy"), 216: reply()}
    report, _ = run(f"deleteSubGroup {SERVERS} -c C -g G", by_code(table))
    assert report.data["topics"] == []
    assert [str(one).count("busy") for one in report.failures] == [1, 1]


# -- updateTopicPerm -------------------------------------------------------------------------------


def topic_config(perm: int, **more: Any) -> dict[str, Any]:
    """The answer to 351."""
    return {"topicName": "T", "readQueueNums": 3, "writeQueueNums": 2, "perm": perm,
            "topicSysFlag": 1, "order": True, **more}  # fmt: skip


def test_permission_when_changed_then_all_else_of_the_topic_stays() -> None:
    """Java's tool takes the queues of another broker set, and the order away."""
    table = {351: reply(0, topic_config(6)), 17: reply()}
    report, calls = run("updateTopicPerm -b a:1 -t T -p 4", by_code(table))
    asked = fields_of(calls[-1])
    kept = ("readQueueNums", "writeQueueNums", "topicSysFlag", "order", "perm", "attributes")
    assert [asked[name] for name in kept] == ["3", "2", "1", "true", "4", ""]
    assert report.plain == (
        "update topic perm from 6 to 4 in a:1 success.\n"
        "TopicConfig [topicName=T, readQueueNums=3, writeQueueNums=2, perm=R--, "
        "topicFilterType=SINGLE_TAG, topicSysFlag=1, order=true, attributes={}].\n"
    )


def test_permission_when_it_is_so_already_then_nothing_is_changed() -> None:
    report, calls = run(
        "updateTopicPerm -b a:1 -t T -p 6", by_code({351: reply(0, topic_config(6))})
    )
    assert [code for _, code in codes(calls)] == [351]
    assert report.plain == "new perm equals to the old one!\n"


def test_permission_when_changed_in_a_cluster_then_at_each_master_that_has_the_topic() -> None:
    """Java's tool makes the topic where it is not."""

    def config(call: Call) -> RemotingCommand:
        if call.address == "b:1":
            return call.command.reply(17, "no such topic")
        return call.command.reply(0, body=fastjson.dumps(topic_config(6)))

    table = {106: cluster("a", "b", "c"), 351: config, 17: reply()}
    report, calls = run(f"updateTopicPerm {SERVERS} -c C -t T -p 2", by_code(table))
    assert [address for address, code in codes(calls) if code == 17] == ["a:1", "c:1"]
    assert report.plain == (
        "update topic perm from 6 to 2 in a:1 success.\n"
        "update topic perm from 6 to 2 in c:1 success.\n"
    )
    assert report.failures == ()


def test_permission_when_one_broker_refuses_then_the_others_are_done_and_told() -> None:
    def change(call: Call) -> RemotingCommand:
        return call.command.reply(1 if call.address == "a:1" else 0, "topics are changed elsewhere")

    table = {106: cluster("a", "b"), 351: reply(0, topic_config(6)), 17: change}
    report, _ = run(f"updateTopicPerm {SERVERS} -c C -t T -p 2", by_code(table))
    assert [one["address"] for one in report.data["brokers"]] == ["b:1"]
    assert [type(one) for one in report.failures] == [Refused]


def test_permission_when_nobody_has_the_topic_then_it_is_a_failure() -> None:
    with pytest.raises(NotFound, match="T"):
        run("updateTopicPerm -b a:1 -t T -p 6", by_code({351: reply(17)}))


# -- name servers ----------------------------------------------------------------------------------


def test_name_servers_when_asked_then_the_settings_of_each_that_answers() -> None:
    """As GetNamesrvConfigCommand of 5.3.3, which shows nothing when one of them is down."""

    def config(call: Call) -> RemotingCommand:
        if call.address == "a:1":
            raise Unreachable("a:1 is down")
        return call.command.reply(0, body=b"listenPort=9876\nrocketmqHome=/opt\n")

    report, _ = run("getNamesrvConfig -n a:1;b:1", by_code({319: config}))
    assert report.plain == (
        f"============b:1============\n{'listenPort':<50}=  9876\n{'rocketmqHome':<50}=  /opt\n"
    )
    assert report.data == {"b:1": {"listenPort": "9876", "rocketmqHome": "/opt"}}
    assert [type(one) for one in report.failures] == [Unreachable]


def test_name_servers_when_a_setting_is_changed_then_each_is_sent_it() -> None:
    """As UpdateNamesrvConfigCommand of 5.3.3."""
    report, calls = run(
        ["updateNamesrvConfig", "-n", "a:1;b:1", "-k", "orderMessageEnable", "-v", " true "],
        by_code({318: reply()}),
    )
    assert codes(calls) == [("a:1", 318), ("b:1", 318)]
    assert [call.command.body for call in calls] == [b"orderMessageEnable=true\n"] * 2
    assert report.plain == (
        "update name server config success![a:1, b:1]\norderMessageEnable : true\n"
    )


def test_name_servers_when_one_refuses_then_it_is_not_told_as_updated() -> None:
    def change(call: Call) -> RemotingCommand:
        return call.command.reply(0 if call.address == "b:1" else 16, "black list")

    report, _ = run("updateNamesrvConfig -n a:1;b:1 -k kvConfigPath -v x", by_code({318: change}))
    assert report.plain == "update name server config success![b:1]\nkvConfigPath : x\n"
    assert (report.data["updated"], len(report.failures)) == (["b:1"], 1)


# -- queryMsgByUniqueKey ---------------------------------------------------------------------------


def stored(body: bytes, *, offset: int, at: int, unique: str = UNIQUE) -> bytes:
    """A record with a producer's id."""
    host = record.pack_host("10.0.0.1", 10911)
    properties = f"UNIQ_KEY\x01{unique}\x02".encode()
    message = record.Message("T", 0, body, properties, 1000, host, host)
    size = record.encoded_size(message, property_crc=False)
    buffer = bytearray(size)
    record.encode_into(
        buffer, 0, message, size=size, queue_offset=offset, physical_offset=500 + offset,
        store_timestamp=at,
    )  # fmt: skip
    return bytes(buffer)


NOBODY = reply(0, {"groupList": []})
TWICE = stored(b"late", offset=9, at=3000) + stored(b"first", offset=4, at=2000)


def test_unique_key_when_there_are_several_then_the_oldest_is_shown() -> None:
    """As QueryMsgByUniqueKeySubCommand of 5.3.3: no OffsetID, the times in order."""
    table = {105: route("a"), 12: reply(0, TWICE), 300: NOBODY}
    report, calls = run(f"queryMsgByUniqueKey {SERVERS} -t T -i {UNIQUE}", by_code(table))
    asked = fields_of(calls[1])
    assert (asked["key"], asked["_UNIQUE_KEY_QUERY"], asked["maxNum"]) == (UNIQUE, "true", "32")
    lines = report.plain.splitlines()
    assert lines[:3] == [f"{'Topic:':<20} T", f"{'Tags:':<20} [null]", f"{'Keys:':<20} [null]"]
    assert report.plain.endswith("\n\nWARN: No Consumer\n")
    assert [one["queueOffset"] for one in report.data] == [4]
    ((path, body),) = report.files.items()
    assert (path.rpartition("/")[2], body) == (UNIQUE, b"first")


def test_unique_key_when_all_are_wanted_then_each_has_a_file_of_its_own() -> None:
    """A send that was tried again is stored twice; the bodies need not be the same."""
    table = {105: route("a"), 12: reply(0, TWICE), 300: NOBODY}
    report, _ = run(f"queryMsgByUniqueKey {SERVERS} -t T -i {UNIQUE} -a", by_code(table))
    files = {path.rpartition("/")[2]: body for path, body in report.files.items()}
    assert files == {UNIQUE: b"first", f"{UNIQUE}_1": b"late"}
    paths = [line.split()[-1] for line in report.plain.splitlines() if "Body Path" in line]
    assert [path.rpartition("/")[2] for path in paths] == [UNIQUE, f"{UNIQUE}_1"]


def test_unique_key_when_a_consumer_is_named_then_it_consumes_the_message() -> None:
    pushed = reply(0, {"consumeResult": "CR_SUCCESS", "spentTimeMills": 3})
    table = {105: route("a"), 12: reply(0, TWICE), 309: pushed}
    line = f"queryMsgByUniqueKey {SERVERS} -t T -i {UNIQUE} -g G -d c@1"
    report, calls = run(line, by_code(table))
    assert codes(calls)[-1] == ("10.0.0.1:10911", 309)
    assert fields_of(calls[-1])["clientId"] == "c@1"
    assert "consumeResult=CR_SUCCESS" in report.plain


def test_unique_key_when_nobody_has_it_then_it_is_a_failure() -> None:
    """The Java tool says nothing and exits with 0."""
    line = f"queryMsgByUniqueKey {SERVERS} -t T -i {UNIQUE}"
    with pytest.raises(NotFound, match=UNIQUE):
        run(line, by_code({105: route("a"), 12: reply(22)}))
    with pytest.raises(Refused, match="busy"):
        run(line, by_code({105: route("a"), 12: reply(2, remark="busy")}))


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("deleteSubGroup -g G", "-b or a cluster"), ("deleteSubGroup -c C -g G", "-n"),
        (f"deleteSubGroup {SERVERS} -c C -b a:1 -g G", "exclude"),
        ("updateTopicPerm -t T -p 6", "-b or a cluster"), ("updateTopicPerm -b a:1 -t T", "-p"),
        ("updateTopicPerm -b a:1 -t T -p 8", "8"), ("getNamesrvConfig", "-n"),
        (f"updateNamesrvConfig {SERVERS} -k a=b -v c", "a=b"),
        (f"queryMsgByUniqueKey {SERVERS} -t T -i I -g G", "-g and -d"),
    ],
)  # fmt: skip
def test_wrong_usage_when_given_then_told_before_anything_is_asked(
    line: str, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    assert word in usage_error(line)
