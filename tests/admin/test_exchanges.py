"""Each command against captured answers, without a socket: its text is the Java tool's."""

from __future__ import annotations

import click
import pytest

from rmqha.admin.commands import (
    clean_broker_metadata,
    elect_master,
    get_broker_epoch,
    get_controller_config,
    get_controller_meta_data,
    get_sync_state_set,
    update_controller_config,
)
from rmqha.base.errors import RemoteProtocolError
from rmqha.client.exchange import Call, NotFound, Refused, Unreachable
from rmqha.controller.metadata.decide import READS, WRITES
from rmqha.namesrv.machine import NamesrvMachine
from rmqha.namesrv.settings import load_config
from rmqha.remoting.bodies import ElectMasterResponseBody
from rmqha.remoting.codes import RequestCode, asked_kind
from rmqha.remoting.command import RemotingCommand
from tests.admin.driving import Answer, drive
from tests.admin.golden import CONTROLLER, NAME_SERVER, last_answer, printed


def captured(call: Call) -> RemotingCommand:
    """Answer as the real cluster did."""
    return last_answer(call.address, call.command.code)


def leader_is(address: str, then: Answer) -> Answer:
    """Answer 1005 with this leader, and everything else as ``then`` does."""

    def answer(call: Call) -> RemotingCommand:
        if call.command.code == 1005:
            return call.command.reply(0, None, {"controllerLeaderAddress": address})
        return then(call)

    return answer


def test_meta_data_is_javas_text() -> None:
    """Scripts cut the leader out of it."""
    report, _ = drive(get_controller_meta_data.run((CONTROLLER,)), captured)
    assert printed("getControllerMetaData") + "\n" == report.plain
    assert {
        "group": "g",
        "controllerLeaderId": "n0",
        "controllerLeaderAddress": "127.0.0.1:19878",
        "peers": ["n0:127.0.0.1:19878"],
    } == report.data


def test_meta_data_of_jraft_without_a_leader() -> None:
    """JRaft sends an empty id, and peers without ids."""
    fields = {"group": "g", "controllerLeaderId": "", "isLeader": "false", "peers": "a:1;b:2;"}
    report, _ = drive(
        get_controller_meta_data.run(("a:1",)), lambda c: c.command.reply(0, None, fields)
    )
    expected = (
        "\n#ControllerGroup\tg\n#ControllerLeaderId\t\n#ControllerLeaderAddress\tnull"
        "\n#Peer:\ta:1\n#Peer:\tb:2\n"
    )
    assert expected == report.plain
    assert report.data["controllerLeaderId"] is None
    assert report.data["peers"] == ["a:1", "b:2"]


def test_sync_state_set_is_javas_text() -> None:
    """The most watched output of all during a failover."""
    report, calls = drive(get_sync_state_set.run((CONTROLLER,), "broker-a", None, None), captured)
    assert printed("getSyncStateSet") + "\n" == report.plain
    assert [1005, 1006] == [call.command.code for call in calls]
    assert b'["broker-a"]' == calls[1].command.body
    assert report.data[0]["masterBrokerId"] == 2


def test_sync_state_set_of_a_cluster_asks_the_name_server() -> None:
    """The controller lists no clusters."""
    report, calls = drive(
        get_sync_state_set.run((CONTROLLER,), None, "DefaultCluster", (NAME_SERVER,)), captured
    )
    assert [106, 1005, 1006] == [call.command.code for call in calls]
    assert printed("getSyncStateSet") + "\n" == report.plain


def test_sync_state_set_without_a_master_shows_null() -> None:
    """Java's %d of null; also the replica that fell out."""
    body = (
        b'{"replicasInfoTable":{"b":{"inSyncReplicas":[],"masterEpoch":5,"notInSyncReplicas":'
        b'[{"alive":false,"brokerAddress":"x:1","brokerId":1,"brokerName":"b"}],'
        b'"syncStateSetEpoch":4},"empty":{}}}'
    )
    report, _ = drive(
        get_sync_state_set.run(("a:1",), "b", None, None),
        leader_is("a:1", lambda call: call.command.reply(0, body=body)),
    )
    assert (
        "\n#brokerName\tb\n#MasterBrokerId\tnull\n#MasterAddr\tnull\n#MasterEpoch\t5"
        "\n#SyncStateSetEpoch\t4\n#SyncStateSetNums\t0\n\nNotInSyncReplica:\tReplicaIdentity"
        "{brokerName='b', brokerId=1, brokerAddress='x:1', alive=false}\n"
    ) in report.plain
    assert ("empty", None, None, None, None, None, 0, 0) == tuple(report.tables[0].rows[1])


def test_unknown_broker_set_and_cluster_are_not_found() -> None:
    """The Java tool prints nothing at all."""
    empty = leader_is("a:1", lambda call: call.command.reply(0, body=b'{"replicasInfoTable":{}}'))
    with pytest.raises(NotFound, match="nope"):
        drive(get_sync_state_set.run(("a:1",), "nope", None, None), empty)
    with pytest.raises(NotFound, match="nope"):
        drive(get_sync_state_set.run((CONTROLLER,), None, "nope", (NAME_SERVER,)), captured)
    with pytest.raises(NotFound, match="nope"):
        drive(get_broker_epoch.run("nope", None, (NAME_SERVER,)), captured)


def test_broker_epochs_are_javas_text() -> None:
    """The running epoch ends where the log does, not at the greatest long."""
    report, calls = drive(get_broker_epoch.run("broker-a", None, (NAME_SERVER,)), captured)
    assert printed("getBrokerEpoch") + "\n" == report.plain
    assert [106, 1007, 1007] == [call.command.code for call in calls]
    by_cluster, _ = drive(get_broker_epoch.run(None, "DefaultCluster", (NAME_SERVER,)), captured)
    assert report == by_cluster
    assert {"epoch": 3, "startOffset": 8125, "endOffset": 9750} == report.data[0]["epochs"][-1]


def test_broker_epochs_survive_a_broker_that_is_down() -> None:
    """During an incident one broker is always down."""

    def answer(call: Call) -> RemotingCommand:
        if call.address == "127.0.0.1:30911":
            raise Unreachable("down")
        return captured(call)

    report, _ = drive(get_broker_epoch.run("broker-a", None, (NAME_SERVER,)), answer)
    assert "127.0.0.1:30921" in report.plain
    assert [Unreachable] == [type(failure) for failure in report.failures]


def test_election_is_javas_text() -> None:
    """A Java controller's answer gives no #Broker lines, as with the Java tool."""
    exchange = elect_master.run((CONTROLLER,), 2, "broker-a", "DefaultCluster")
    report, calls = drive(exchange, captured)
    assert printed("electMaster") + "\n" == report.plain
    expected = {
        "clusterName": "DefaultCluster",
        "brokerName": "broker-a",
        "brokerId": "2",
        "designateElect": "true",
    }
    assert expected == calls[-1].command.ext_fields
    assert {1: "127.0.0.1:30911", 2: "127.0.0.1:30921"} == report.data["brokerAddrs"]
    assert (2, 2, 3) == (
        report.data["masterBrokerId"], report.data["masterEpoch"], report.data["syncStateSetEpoch"],
    )  # fmt: skip


def test_election_by_rmqha_shows_the_members() -> None:
    """rmqha's controller puts the members where the Java tool looks for them."""
    golden = ElectMasterResponseBody.decode(last_answer(CONTROLLER, 1002).body)

    def answer(call: Call) -> RemotingCommand:
        elected = last_answer(CONTROLLER, 1002).ext_fields
        return call.command.reply(0, None, elected, golden.encode())

    report, _ = drive(elect_master.run(("a:1",), 2, "broker-a", "c"), leader_is("a:1", answer))
    assert report.plain.endswith("\t#Broker\t1\t127.0.0.1:30911\n\t#Broker\t2\t127.0.0.1:30921\n")


def test_clean_is_javas_text() -> None:
    """And sends what the Java tool sends."""
    exchange = clean_broker_metadata.run((CONTROLLER,), "broker-a", "1; 2;", "c", False)
    report, calls = drive(exchange, captured)
    assert printed("cleanBrokerMetadata") + "\n" == report.plain
    assert {
        "clusterName": "c",
        "brokerName": "broker-a",
        "brokerControllerIdsToClean": "1;2",
        "isCleanLivingBroker": "false",
    } == calls[1].command.ext_fields


@pytest.mark.parametrize("ids", ["", ";", "1;x", "-1", "1,2"])
def test_clean_refuses_ids_that_are_none(ids: str) -> None:
    """A list that names nobody would make the controllers forget the whole set."""
    with pytest.raises(click.UsageError):
        drive(clean_broker_metadata.run((CONTROLLER,), "b", ids, "c", True), captured)


def test_clean_needs_the_cluster_unless_living_brokers_go_too() -> None:
    """As the Java tool."""
    with pytest.raises(click.UsageError):
        drive(clean_broker_metadata.run((CONTROLLER,), "b", None, None, False), captured)
    drive(clean_broker_metadata.run((CONTROLLER,), "b", None, None, True), captured)


def test_config_has_javas_lines() -> None:
    """The Java tool's order is that of a hash table; ours is the controller's."""
    report, _ = drive(get_controller_config.run((CONTROLLER,)), captured)
    expected = printed("getControllerConfig").split("\n")
    lines = report.plain.rstrip("\n").split("\n")
    assert expected[0] == lines[0]
    assert sorted(expected[1:]) == sorted(lines[1:])
    assert "19878" == report.data[CONTROLLER]["listenPort"]


def test_config_update_is_javas_text() -> None:
    """And the body is what the Java tool sends."""
    exchange = update_controller_config.run((CONTROLLER,), "notifyBrokerRoleChanged", "true")
    report, calls = drive(exchange, captured)
    assert printed("updateControllerConfig") + "\n" == report.plain
    assert b"notifyBrokerRoleChanged=true\n" == calls[0].command.body


def test_config_update_refuses_a_key_that_is_none() -> None:
    """ "a=b" would change another setting than the one typed."""
    with pytest.raises(click.UsageError):
        drive(update_controller_config.run((CONTROLLER,), "a=b", "c"), captured)


def test_config_calls_go_to_every_address_past_failures() -> None:
    """Settings are per node; the one that is down must not hide the rest."""

    def answer(call: Call) -> RemotingCommand:
        if call.address == "a:1":
            raise Unreachable("a:1 is down")
        if call.address == "b:1":
            return call.command.reply(16, "Can not update config in black list.")
        return call.command.reply(0, body=b"k=v\n")

    report, _ = drive(update_controller_config.run(("a:1", "b:1", "c:1"), "k", "v"), answer)
    assert "update controller config success![c:1]\nk : v\n" == report.plain
    assert [Unreachable, Refused] == [type(failure) for failure in report.failures]
    shown, _ = drive(get_controller_config.run(("a:1", "b:1", "c:1")), answer)
    assert {"c:1": {"k": "v"}} == shown.data
    assert 2 == len(shown.failures)


def test_config_that_is_no_text_is_a_protocol_error() -> None:
    """Not a traceback."""
    with pytest.raises(RemoteProtocolError):
        drive(get_controller_config.run(("a:1",)), lambda call: call.command.reply(0, body=b"\xff"))


def test_leader_is_found_past_dead_and_leaderless_nodes() -> None:
    """Any living node of the list must do."""

    def answer(call: Call) -> RemotingCommand:
        if call.address == "dead:1":
            raise Unreachable("dead:1 is down")
        if call.address == "alone:1":
            return call.command.reply(0, None, {"isLeader": "false"})
        if call.address == "odd:1":
            return call.command.reply(3, " request type 1005 not supported")
        if call.command.code == 1005:
            return call.command.reply(0, None, {"controllerLeaderAddress": "leader:1"})
        return call.command.reply(0)

    addresses = ("dead:1", "alone:1", "odd:1", "good:1")
    exchange = clean_broker_metadata.run(addresses, "b", None, "c", False)
    _, calls = drive(exchange, answer)
    assert "leader:1" == calls[-1].address
    with pytest.raises(Unreachable, match="knows no leader"):
        drive(clean_broker_metadata.run(addresses[:3], "b", None, "c", False), answer)


def test_leader_that_was_reached_is_not_asked_for_by_another_name() -> None:
    """Containers advertise addresses that operators cannot reach."""

    def answer(call: Call) -> RemotingCommand:
        fields = {"isLeader": "true", "controllerLeaderAddress": "inner:1"}
        return call.command.reply(0, None, fields)

    _, calls = drive(clean_broker_metadata.run(("outer:1",), "b", None, "c", False), answer)
    assert ["outer:1", "outer:1"] == [call.address for call in calls]


def test_leader_that_moved_is_looked_for_again_a_few_times() -> None:
    """Operators run these commands during elections."""
    refusals = iter([2007, 2007, 0])
    exchange = clean_broker_metadata.run(("a:1",), "b", None, "c", False)
    _, calls = drive(exchange, leader_is("a:1", lambda c: c.command.reply(next(refusals), "moved")))
    assert [1005, 1011] * 3 == [call.command.code for call in calls]
    with pytest.raises(Refused) as refused:
        drive(
            clean_broker_metadata.run(("a:1",), "b", None, "c", False),
            leader_is("a:1", lambda call: call.command.reply(2007, "moved")),
        )
    assert 2007 == refused.value.code


def test_leader_that_died_is_looked_for_again_a_few_times() -> None:
    """The others go on naming it until they have elected."""
    calls: list[int] = []

    def answer(call: Call) -> RemotingCommand:
        calls.append(call.command.code)
        raise Unreachable("gone")

    with pytest.raises(Unreachable):
        drive(clean_broker_metadata.run(("a:1",), "b", None, "c", False), leader_is("b:1", answer))
    assert [1011] * 3 == calls


def test_kinds_of_servers_when_named_then_those_that_take_the_request() -> None:
    """A hint that names the wrong kind sends people to the wrong machine."""
    machine = NamesrvMachine(load_config({}, user_home="/home"), 0)
    # Both take a heartbeat, and only brokers send one.
    taken = set(machine._handlers) - {RequestCode.BROKER_HEARTBEAT}
    assert {asked_kind(code) for code in taken} == {"name server"}
    assert {asked_kind(code) for code in {*READS, *WRITES}} == {"controller"}
    asked = (RequestCode.SEND_MESSAGE, RequestCode.GET_BROKER_EPOCH_CACHE, RequestCode.COMPARE_LOG)
    assert {asked_kind(code) for code in asked} == {"broker"}


def test_sync_state_set_when_asked_of_a_broker_then_it_is_said_that_it_is_no_controller() -> None:
    """What the broker answers does not say what to do about it."""

    def broker(call: Call) -> RemotingCommand:
        return call.command.reply(3, f"request type {call.command.code} not supported")

    with pytest.raises(Refused, match=r"1005 not supported.*; perhaps b:1 is no controller$"):
        drive(get_sync_state_set.run(("b:1",), "broker-a", None, None), broker)
