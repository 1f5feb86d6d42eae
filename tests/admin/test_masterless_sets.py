"""Commands for a whole cluster while one of its broker sets has no master."""

from __future__ import annotations

import pytest

from rmqha.client.exchange import Call, NotFound, Unreachable
from rmqha.remoting import fastjson
from rmqha.remoting.command import RemotingCommand
from tests.admin.driving import run

_MASTER = {"brokerAddrs": {"0": "a:1", "1": "a:2"}, "brokerName": "a", "cluster": "C"}
_NO_MASTER = {"brokerAddrs": {"2": "b:2"}, "brokerName": "b", "cluster": "C"}
_CLUSTER = fastjson.dumps(
    {"brokerAddrTable": {"a": _MASTER, "b": _NO_MASTER}, "clusterAddrTable": {"C": ["a", "b"]}}
)


def _answer(call: Call) -> RemotingCommand:
    """The master of b died, and nobody has been elected yet."""
    body = {106: _CLUSTER, 351: b'{"perm":6}', 907: b"{}", 3010: b"[]"}
    return call.command.reply(0, body=body.get(call.command.code, b""))


@pytest.mark.parametrize(
    "line",
    [
        "deleteTopic -t T", "updateTopic -t T", "updateTopic -t T -o true", "updateTopicPerm -t T -p 4",
        "updateSubGroup -g G", "deleteSubGroup -g G -r true", "updateBrokerConfig -k k -v v",
        "haStatus", "listAcl",
    ],
)  # fmt: skip
def test_cluster_wide_when_a_set_has_no_master_then_it_is_a_failure(line: str) -> None:
    """It would go on as it was, and nobody would know."""
    report, calls = run(f"{line} -n ns:1 -c C", _answer)
    (failure,) = report.failures
    assert str(failure) == (
        "broker set b has no master now; try again later, or stop its slaves if it is to have none "
        "any more: name servers then forget it"
    )
    assert {call.address for call in calls} == {"ns:1", "a:1"}


@pytest.mark.parametrize(
    ("line", "asked"),
    [("updateTopic -t T", {"a:1", "b:1"}), ("updateBrokerConfig -k k -v v -a true",
                                           {"a:1", "a:2", "b:1", "b:2"})],
)  # fmt: skip
@pytest.mark.parametrize("servers", ["ns:1;new:1", "new:1;ns:1"])
def test_cluster_wide_when_a_name_server_lacks_a_set_then_the_others_are_believed(
    servers: str, line: str, asked: set[str]
) -> None:
    """It was started anew; the set would go on as it was."""
    whole = {"brokerAddrs": {"0": "b:1", "2": "b:2"}, "brokerName": "b", "cluster": "C"}
    tables = {
        "ns:1": {"a": _MASTER, "b": whole},
        "new:1": {"a": _MASTER},
    }

    def answer(call: Call) -> RemotingCommand:
        table = tables.get(call.address)
        if table is None:
            return call.command.reply(0)
        body = {"brokerAddrTable": table, "clusterAddrTable": {"C": [*table]}}
        return call.command.reply(0, body=fastjson.dumps(body))

    report, calls = run(f"{line} -n {servers} -c C", answer)
    assert {call.address for call in calls} - tables.keys() == asked
    assert report.failures == ()


@pytest.mark.parametrize("line", ["deleteTopic -t T", "deleteSubGroup -g G -r true"])
def test_deletion_when_a_set_has_no_master_then_name_servers_are_not_told(line: str) -> None:
    """The set would make the topic known again when it has one."""
    _, calls = run(f"{line} -n ns:1 -c C", _answer)
    assert 216 not in [call.command.code for call in calls]


def test_setting_when_slaves_are_meant_too_then_a_set_without_master_is_none_less() -> None:
    line = "updateBrokerConfig -n ns:1 -c C -k k -v v -a true"
    report, calls = run(line, _answer)
    assert ({call.address for call in calls}, report.failures) == (
        {"ns:1", "a:1", "a:2", "b:2"}, (),
    )  # fmt: skip


@pytest.mark.parametrize("refuses", [None, "a:1"])
def test_ordered_topic_when_not_all_sets_have_it_then_its_configuration_stays(
    refuses: str | None,
) -> None:
    """It would name fewer sets, and clients would not send to the others any more."""

    def answer(call: Call) -> RemotingCommand:
        if call.address != refuses:
            return _answer(call)
        return call.command.reply(1, "busy")

    report, calls = run("updateTopic -n ns:1 -c C -t T -o true", answer)
    assert 100 not in [call.command.code for call in calls]
    assert "orderConf" not in report.plain
    assert report.failures


def test_users_when_no_master_that_is_there_has_any_then_they_may_be_at_another_set() -> None:
    """Nothing was shown, and that was a success."""
    report, _ = run("listUser -n ns:1 -c C", _answer)
    assert (report.plain, report.data) == ("", [])
    assert ["broker set b" in str(failure) for failure in report.failures] == [True]


def test_brokers_when_name_servers_list_one_under_two_ids_then_it_is_asked_once() -> None:
    """The first has not heard yet that the master is another one; b was asked twice."""
    tables = {"n1:1": {"0": "b:1", "1": "a:1", "3": "a:1"}, "n2:1": {"0": "a:1", "2": "b:1"}}

    def answer(call: Call) -> RemotingCommand:
        addresses = tables.get(call.address)
        if addresses is None:
            return call.command.reply(0)
        group = {"brokerAddrs": addresses, "brokerName": "s", "cluster": "C"}
        body = {"brokerAddrTable": {"s": group}, "clusterAddrTable": {"C": ["s"]}}
        return call.command.reply(0, body=fastjson.dumps(body))

    _, calls = run("createUser -n n1:1;n2:1 -c C -u bob -p x", answer)
    assert [call.address for call in calls] == ["n1:1", "n2:1", "b:1", "a:1"]


@pytest.mark.parametrize(
    "line",
    [
        "updateTopic -t T", "updateTopic -t T -o true", "updateTopicPerm -t T -p 4", "haStatus",
        "updateSubGroup -g G", "updateBrokerConfig -k k -v v", "updateBrokerConfig -k k -v v -a true",
        "brokerStatus", "createUser -u u -p p", "deleteUser -u u", "getUser -u u", "listUser",
        "createAcl -s User:u -r Topic:T -a Pub -d Allow", "deleteAcl -s User:u", "listAcl",
        "getAcl -s User:u",
    ],
)  # fmt: skip
def test_cluster_wide_when_a_name_server_is_down_then_it_is_a_warning(line: str) -> None:
    """One of several stops nobody, but a set that it alone knows would go on as it was."""
    group = {**_MASTER, "brokerAddrs": {"0": "a:1"}}
    cluster = {"brokerAddrTable": {"a": group}, "clusterAddrTable": {"C": ["a"]}}

    def answer(call: Call) -> RemotingCommand:
        if call.address == "dead:1" and call.command.code == 106:
            raise Unreachable("dead:1 is down")
        bodies = {106: fastjson.dumps(cluster), 28: b"{}", 3004: b'{"username":"u"}', 3005: b"[]"}
        body = bodies.get(call.command.code)
        return _answer(call) if body is None else call.command.reply(0, body=body)

    report, _ = run(f"{line} -n dead:1;new:1 -c C", answer)
    words = "dead:1 is down; broker sets that no other name server lists are passed over"
    assert (report.warnings, report.failures) == ((words,), ())


@pytest.mark.parametrize("line", ["deleteTopic -t T", "deleteSubGroup -g G -r true"])
def test_deletion_when_a_name_server_is_down_then_the_others_forget_it_all_the_same(
    line: str,
) -> None:
    group = {**_MASTER, "brokerAddrs": {"0": "a:1"}}
    cluster = {"brokerAddrTable": {"a": group}, "clusterAddrTable": {"C": ["a"]}}

    def answer(call: Call) -> RemotingCommand:
        if call.address == "dead:1":
            raise Unreachable("dead:1 is down")
        return call.command.reply(0, body=fastjson.dumps(cluster))

    report, calls = run(f"{line} -n dead:1;new:1 -c C", answer)
    assert ("new:1", 216) in [(call.address, call.command.code) for call in calls]
    assert report.warnings
    assert {str(failure) for failure in report.failures} == {"dead:1 is down"}


def test_user_when_no_master_that_is_there_has_it_then_it_may_be_at_another_set() -> None:
    with pytest.raises(NotFound, match="broker set b has no master now"):
        run("getUser -n ns:1 -c C -u bob", _answer)
