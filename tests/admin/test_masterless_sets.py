"""Commands for a whole cluster while one of its broker sets has no master."""

from __future__ import annotations

import pytest

from rmqha.client.exchange import Call, NotFound
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
    words = ["broker set b has no master now; try again later"]
    assert [str(failure) for failure in report.failures] == words
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


def test_user_when_no_master_that_is_there_has_it_then_it_may_be_at_another_set() -> None:
    with pytest.raises(NotFound, match="broker set b has no master now"):
        run("getUser -n ns:1 -c C -u bob", _answer)
