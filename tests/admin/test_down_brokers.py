"""Commands that ask several brokers: one that is down hides no other, and is told as a failure."""

from __future__ import annotations

from typing import Any

import pytest

from rmqha.client.exchange import Call, Refused, Unreachable
from rmqha.remoting import fastjson
from rmqha.remoting.command import RemotingCommand
from tests.admin.driving import Answer, run
from tests.admin.static_cluster import TOPIC, StaticCluster
from tests.admin.test_cluster_commands import reply, route, stored

WHO = f"-n ns:1 -t {TOPIC}"
SERVERS = "-n ns:1"
UNIQUE = "7F0000010B2418B4AAC2000000010001"
ONLINE = {
    "connectionSet": [{"clientId": "c@1", "clientAddr": "x:1", "language": "JAVA", "version": 1}],
    "subscriptionTable": {}, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
    "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
}  # fmt: skip


def offsets(broker: str, **numbers: int) -> bytes:
    """A table of one queue; keys are objects, which JSON has not."""
    key = fastjson.dumps({"brokerName": broker, "queueId": 0, "topic": "T"})
    return b'{"consumeTps":1.0,"offsetTable":{' + key + b":" + fastjson.dumps(numbers) + b"}}"


def answering(down: str, table: dict[int, Any]) -> Answer:
    """Answers by code: functions of a call, or bytes of the broker's letter."""

    def answer(call: Call) -> RemotingCommand:
        if call.address in down.split(","):
            raise Unreachable(f"{call.address} is down")
        found = table[call.command.code]
        return found(call)  # type: ignore[no-any-return]

    return answer


def down_words(report: Any) -> list[str]:
    return [str(failure) for failure in report.failures]


# -- static topics -----------------------------------------------------------------------------------


@pytest.fixture
def cluster() -> StaticCluster:
    """Four queues that have moved from a to b; a still has messages of the first; c leads none."""
    cluster = StaticCluster("abc")
    cluster.run(f"updateStaticTopic {WHO} -b a -qn 4")
    cluster.brokers["a"].ends = {0: (0, 8)}
    cluster.run(f"remappingStaticTopic {WHO} -b b")
    return cluster


def test_query_when_a_set_is_down_then_its_segments_are_not_called_expired(
    cluster: StaticCluster,
) -> None:
    """Who retires a set waits for that word."""
    cluster.calls.clear()
    cluster.down.add("a:1")
    (report,) = cluster.run(f"queryLogicalQueueMapping {WHO}")
    assert down_words(report) == ["a:1 is down"]
    assert report.data["state"] == "a did not answer"
    segments = {
        (one["logicalQueue"], one["brokerName"]): one["state"] for one in report.data["segments"]
    }
    assert (segments[0, "a"], segments[1, "a"], segments[0, "b"]) == (None, None, "Normal")
    assert [call.address for call in cluster.calls].count("a:1") == 1, "each waits for its timeout"


def test_query_when_a_leader_is_down_then_it_is_not_called_gone(cluster: StaticCluster) -> None:
    """Nobody is to give its queues to others by force because it restarts."""
    cluster.down.add("b:1")
    (report,) = cluster.run(f"queryLogicalQueueMapping {WHO}")
    assert report.data["state"] == "b did not answer"


def test_query_when_nobody_answers_then_that_is_said(cluster: StaticCluster) -> None:
    """Not that the topic is an ordinary one."""
    cluster.down |= {"a:1", "b:1", "c:1"}
    with pytest.raises(Unreachable, match="a:1 is down"):
        cluster.run(f"queryLogicalQueueMapping {WHO}")


def test_query_when_a_set_goes_down_amid_it_then_the_others_are_shown(
    cluster: StaticCluster,
) -> None:
    answer = cluster.answer

    def dying(call: Call) -> RemotingCommand:
        if call.command.code == 202 and call.address == "b:1":
            cluster.down.add("b:1")
        return answer(call)

    cluster.answer = dying  # type: ignore[method-assign]
    (report,) = cluster.run(f"queryLogicalQueueMapping {WHO}")
    assert down_words(report) == ["b:1 is down"]
    first, second = report.data["segments"][:2]
    assert (first["state"], first["messages"]) == ("ReadOnly", 8)
    assert (second["state"], second["messages"]) == ("Normal", None)


def test_topic_status_when_a_set_is_down_then_the_others_are_shown(cluster: StaticCluster) -> None:
    cluster.down.add("c:1")
    (report,) = cluster.run(f"topicStatus {WHO}")
    assert down_words(report) == ["c:1 is down"]
    names = [one["brokerName"] for one in report.data["queues"]]
    assert (names.count("__syslo__global__"), names.count("a"), names.count("b")) == (4, 4, 4)
    cluster.down |= {"a:1", "b:1"}
    with pytest.raises(Unreachable, match="a:1 is down"):
        cluster.run(f"topicStatus {WHO}")


def test_progress_when_a_set_is_down_then_the_others_are_shown_and_sums_say_so(
    cluster: StaticCluster,
) -> None:
    cluster.brokers["a"].consumed = {0: 8}
    cluster.down.add("c:1")
    (report,) = cluster.run(f"consumerProgress {SERVERS} -g G -t {TOPIC}")
    assert down_words(report) == ["c:1 is down"]
    assert [one["queueId"] for one in report.data["queues"]] == [0]
    assert not report.data["complete"]
    lines = report.plain.splitlines()
    assert "Consume Diff Total: 9992+" in lines, "beyond the gap between two segments"
    assert "Consume Inflight Total: 0+" in lines


def test_progress_when_a_set_does_not_say_what_it_knows_then_that_is_told(
    cluster: StaticCluster,
) -> None:
    """Its offsets are there; where the queues are that they are of is not all known."""
    cluster.brokers["a"].consumed = {0: 8}
    answer = cluster.answer
    cluster.answer = lambda call: (  # type: ignore[method-assign]
        call.command.reply(1, "busy")
        if (call.address, call.command.code) == ("c:1", 351)
        else answer(call)
    )
    (report,) = cluster.run(f"consumerProgress {SERVERS} -g G -t {TOPIC}")
    assert [type(failure) for failure in report.failures] == [Refused]
    assert not report.data["complete"]
    (report,) = cluster.run(f"topicStatus {WHO}")
    assert [type(failure) for failure in report.failures] == [Refused]


# -- groups ------------------------------------------------------------------------------------------


def groups(down: str, **more: Any) -> Answer:
    """One group at two brokers, a million behind at a, and none at b."""

    def routes(call: Call) -> RemotingCommand:
        topic = (call.command.ext_fields or {})["topic"]
        return route("a", "b")(call) if topic.startswith("%RETRY%") else reply(17)(call)

    def consumed(call: Call) -> RemotingCommand:
        end = 1_000_000 if call.address == "a:1" else 0
        body = offsets(call.address[0], brokerOffset=end, consumerOffset=0, pullOffset=0)
        return reply(0, body)(call)

    table = {206: reply(0, {"topicList": ["%RETRY%G"]}), 105: routes, 208: consumed,
             203: reply(0, ONLINE)}  # fmt: skip
    return answering(down, {**table, **{int(key[1:]): one for key, one in more.items()}})


@pytest.mark.parametrize(
    ("down", "row", "failures"),
    [
        ("", ["G", "1", "2", "1000000"], []),
        ("b:1", ["G", "1", "1+", "1000000+"], ["b:1 is down"]),
        ("a:1", ["G", "1", "1+", "0+"], ["a:1 is down"]),
        ("a:1,b:1", ["G", "-", "-", "-"], ["a:1 is down"]),
    ],
)
def test_progress_of_all_when_a_broker_is_down_then_sums_are_of_the_others(
    down: str, row: list[str], failures: list[str]
) -> None:
    """A group that is far behind at the broker that answers was shown as 0 behind."""
    report, _ = run(f"consumerProgress {SERVERS}", groups(down))
    words = report.plain.splitlines()[1].split()
    assert [words[0], words[1], *words[-2:]] == row
    assert down_words(report) == failures
    (data,) = report.data
    assert data["complete"] is not bool(failures)
    assert data["diffTotal"] == {"a:1,b:1": None, "a:1": 0}.get(down, 1_000_000)


def test_progress_of_all_when_a_group_cannot_be_asked_for_then_that_is_told() -> None:
    """An error, and no row that says 0."""
    report, _ = run(f"consumerProgress {SERVERS}", groups("", _105=reply(1, remark="busy")))
    assert [type(failure) for failure in report.failures] == [Refused]
    assert report.plain.splitlines()[1].split() == ["G", "0", "OFFLINE", "-", "-"]


def test_progress_of_all_when_a_broker_is_down_then_it_is_asked_once_and_told_once() -> None:
    """Each question waits for its timeout: fifty groups waited for five minutes."""

    def routes(call: Call) -> RemotingCommand:
        topic = (call.command.ext_fields or {})["topic"]
        return route("a", "b")(call) if topic.startswith("%RETRY%") else reply(17)(call)

    topics = [f"%RETRY%G{number}" for number in range(50)]
    answer = groups("b:1", _206=reply(0, {"topicList": topics}), _105=routes)
    report, calls = run(f"consumerProgress {SERVERS}", answer)
    assert [call.address for call in calls].count("b:1") == 1
    assert [call.address for call in calls].count("a:1") == 100
    assert down_words(report) == ["b:1 is down"]
    assert {one["complete"] for one in report.data} == {False}
    assert {one["diffTotal"] for one in report.data} == {1_000_000}


@pytest.mark.parametrize(("first", "failure"), [(206, None), (None, None), (206, "b"), (None, "b")])
def test_members_when_the_first_broker_knows_none_then_the_next_is_asked(
    first: int | None, failure: str | None
) -> None:
    """It was started anew, and they have not come back yet; or it is down."""

    def members(call: Call) -> RemotingCommand:
        if call.address == "b:1" and failure is None:
            return reply(0, ONLINE)(call)
        return reply(206, remark="not online")(call)

    answer = groups("" if first else "a:1", _203=members)
    line = f"consumerConnection {SERVERS} -g G"
    if failure is None:
        report, _ = run(line, answer)
        assert report.data["clients"][0]["clientId"] == "c@1"
        return
    # Who is at a broker that does not answer is not known.
    with pytest.raises(Refused if first else Unreachable):
        run(line, answer)


# -- resets ------------------------------------------------------------------------------------------


def test_reset_when_a_broker_is_down_then_the_others_are_set_and_told() -> None:
    """It stopped there, and did not say what was done."""

    def reset(call: Call) -> RemotingCommand:
        name = call.address[0]
        key = fastjson.dumps({"brokerName": name, "queueId": 0, "topic": "T"})
        return reply(0, b'{"offsetTable":{' + key + b":7}}")(call)

    answer = answering("b:1", {105: route("a", "b", "c"), 222: reset})
    report, _ = run(f"resetOffsetByTime {SERVERS} -g G -t T -s now", answer)
    assert [one["brokerName"] for one in report.data["queues"]] == ["a", "c"]
    assert down_words(report) == ["b:1 is down"]


def test_reset_when_some_brokers_want_a_member_then_each_is_set_in_its_way() -> None:
    """Releases are mixed while a cluster is upgraded."""

    def reset(call: Call) -> RemotingCommand:
        if call.address != "a:1":
            return reply(206, remark="not online")(call)
        key = fastjson.dumps({"brokerName": "a", "queueId": 0, "topic": "T"})
        return reply(0, b'{"offsetTable":{' + key + b":7}}")(call)

    def consumed(call: Call) -> RemotingCommand:
        body = offsets(call.address[0], brokerOffset=9, consumerOffset=8)
        return reply(0, body)(call)

    table = {105: route("a", "b", "c"), 222: reset, 208: consumed, 29: reply(offset=4)}

    def commit(call: Call) -> RemotingCommand:
        return reply(1, remark="busy")(call) if call.address == "c:1" else reply()(call)

    line = f"resetOffsetByTime {SERVERS} -g G -t T -s 1"
    report, _ = run(line, answering("", {**table, 15: commit}))
    rows = [(one["brokerName"], one.get("offset"), one.get("resetOffset"))
            for one in report.data["queues"]]  # fmt: skip
    assert rows == [("a", 7, None), ("b", None, 4)]
    assert [type(failure) for failure in report.failures] == [Refused]
    report, _ = run(line, answering("", {**table, 15: reply(1, remark="busy")}))
    assert [one["brokerName"] for one in report.data["queues"]] == ["a"]
    assert report.failures


def test_reset_when_all_brokers_want_a_member_then_who_is_down_hides_no_other() -> None:
    """Nothing is done when none of the offsets could be stored, and that is an error alone."""

    def consumed(call: Call) -> RemotingCommand:
        return reply(0, offsets(call.address[0], brokerOffset=9, consumerOffset=8))(call)

    table = {105: route("a", "b"), 222: reply(206), 208: consumed, 29: reply(offset=4),
             15: reply()}  # fmt: skip
    line = f"resetOffsetByTime {SERVERS} -g G -t T -s 1"
    report, _ = run(line, answering("a:1", table))
    assert [one["brokerName"] for one in report.data["queues"]] == ["b"]
    assert down_words(report) == ["a:1 is down"]
    with pytest.raises(Refused, match="busy"):
        run(line, answering("", {**table, 15: reply(1, remark="busy")}))


# -- messages, groups of topics, users ---------------------------------------------------------------


@pytest.mark.parametrize("more", ["", "-a", "-g G -d c@1"])
def test_unique_key_when_a_broker_is_down_then_what_others_have_is_shown(more: str) -> None:
    """The one that is down may have an older message of the id."""
    body = stored(b"x", properties=f"UNIQ_KEY\x01{UNIQUE}\x02".encode())
    pushed = reply(0, {"consumeResult": "CR_SUCCESS", "spentTimeMills": 3})
    table = {105: route("a", "b"), 12: reply(0, body), 300: reply(0, {"groupList": []}),
             309: pushed}  # fmt: skip
    line = f"queryMsgByUniqueKey {SERVERS} -t T -i {UNIQUE} {more}"
    report, _ = run(line, answering("b:1", table))
    assert down_words(report) == ["b:1 is down"]


def test_track_when_a_broker_is_down_then_it_is_not_said_that_nobody_consumed_it() -> None:
    """It may be the one that stored the message."""
    body = stored(b"x", properties=f"UNIQ_KEY\x01{UNIQUE}\x02".encode())
    table = {105: route("a", "b"), 12: reply(0, body), 300: reply(0, {"groupList": ["G"]}),
             203: reply(0, ONLINE), 208: reply(0, offsets("a", consumerOffset=0)),
             106: reply(0, {"brokerAddrTable": {}, "clusterAddrTable": {}})}  # fmt: skip
    line = f"queryMsgByUniqueKey {SERVERS} -t T -i {UNIQUE}"
    kinds = {}
    for down in ("", "b:1"):
        report, _ = run(line, answering(down, table))
        kinds[down] = [one["trackType"] for one in report.data[0]["tracks"]]
    assert kinds == {"": ["NOT_CONSUME_YET"], "b:1": ["UNKNOWN"]}


def test_topics_when_the_first_broker_is_down_then_the_next_names_groups() -> None:
    cluster = {
        "brokerAddrTable": {}, "clusterAddrTable": {"C": ["a", "b"]},
    }  # fmt: skip
    table = {106: reply(0, cluster), 206: reply(0, {"topicList": ["T"]}), 105: route("a", "b"),
             300: reply(0, {"groupList": ["G"]})}  # fmt: skip
    report, _ = run(f"topicList {SERVERS} -c", answering("a:1", table))
    assert (report.data[0]["consumerGroups"], report.failures) == (["G"], ())
    report, _ = run(f"topicList {SERVERS} -c", answering("a:1,b:1", table))
    assert (report.data[0]["consumerGroups"], down_words(report)) == ([], ["b:1 is down"])


def test_accounts_when_a_master_is_down_then_others_are_asked() -> None:
    groups = {
        name: {"brokerAddrs": {"0": f"{name}:1"}, "brokerName": name, "cluster": "C"}
        for name in "ab"
    }
    cluster = {"brokerAddrTable": groups, "clusterAddrTable": {"C": ["a", "b"]}}
    user = {"username": "u", "userType": "Super", "userStatus": "enable"}
    acl = [{"subject": "User:u", "policies": []}]
    table = {106: reply(0, cluster), 3004: reply(0, user), 3009: reply(0, acl), 3010: reply(0, acl),
             3005: reply(0, [user])}  # fmt: skip
    report, _ = run(f"listUser {SERVERS} -c C", answering("a:1", table))
    assert [one["username"] for one in report.data] == ["u"]
    report, _ = run(f"listAcl {SERVERS} -c C", answering("a:1", table))
    assert ([*report.data], down_words(report)) == (["b:1"], ["a:1 is down"])
    for line in ("listUser", "listAcl"):
        with pytest.raises(Unreachable, match="a:1 is down"):
            run(f"{line} {SERVERS} -c C", answering("a:1,b:1", table))
