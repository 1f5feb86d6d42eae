"""electionHistory and electMaster --dry-run, asked of the controller's own core."""

from __future__ import annotations

import pytest

from rmqha.client.exchange import Call, NotFound, Refused, Unreachable
from rmqha.controller.machine import LeadershipChanged, MachineSettings
from rmqha.remoting import fastjson
from rmqha.remoting.command import RemotingCommand
from tests.admin.driving import run, usage_error
from tests.controller.metadata.driving import Driver


class Controller:
    """Answers as a leader of one set, whose master 1 has just died."""

    def __init__(self) -> None:
        kept = MachineSettings(elections_per_set=5, elections_in_all=5)
        self.driver = Driver(kept)
        self.driver.step(LeadershipChanged(True, 2, 1_700_000_000_000 - self.driver.now_ms))
        self.driver.pair()
        self.driver.beat(1, epoch=1, maxOffset=900)
        self.driver.beat(2, epoch=1, maxOffset=800)
        self.driver.close(1)
        self.driver.pass_time(200)

    def __call__(self, call: Call) -> RemotingCommand:
        command = call.command
        if command.code == 1005:
            return command.reply(0, None, {"controllerLeaderAddress": "a:1"})
        fields = command.ext_fields or {}
        answer = self.driver.ask(command.code, 99, **fields)
        return command.reply(answer.code, answer.remark, answer.ext_fields, answer.body)


def test_history_when_printed_then_each_election_explains_itself() -> None:
    """One block an election: what, why, when, and everybody who was there."""
    report, _ = run("electionHistory -a a:1 -b broker-a", Controller())
    newest = report.plain.split("\n\n")[0].splitlines()
    assert newest[1:] == [
        "#BrokerName\tbroker-a",
        "#MasterEpoch\t2",
        "#Master\t1 -> 2",
        "#Trigger\tcontroller, master_inactive",
        "#Decided\t2023-11-14 22:13:20.100",
        "#Stages(ms)\tlast heard -100, noticed -0, committed 0, told after 0,"
        " slaves told after -, heard in its epoch after -",
        "\t#Broker\t1\tnot alive\tepoch 1, log end 900, priority 2147483647, in sync, dead,"
        " heard 100 ms before",
        "\t#Broker\t2\telected\tepoch 1, log end 800, priority 2147483647, in sync, alive,"
        " heard 100 ms before",
    ]
    assert [one["masterEpoch"] for one in report.data["elections"]] == [2, 1]
    rows = report.tables[0].rows
    assert rows[0][1:6] == ("broker-a", 2, "1 -> 2", "controller", "master_inactive")
    assert rows[0][-1] == "1 (not alive)"
    everything, _ = run("electionHistory -a a:1 -m 1", Controller())
    assert len(everything.data["elections"]) == 1


def test_history_when_the_set_is_unknown_or_the_count_is_none_then_an_error() -> None:
    """Not an empty table, which says that there was no election."""
    with pytest.raises(Refused, match="broker set x is not known"):
        run("electionHistory -a a:1 -b x", Controller())
    usage_error("electionHistory -a a:1 -m 0")


@pytest.mark.parametrize("body", [b"", b"nothing", b'{"candidates":[{}]}', b"[]"])
def test_election_when_refused_and_what_speaks_against_it_cannot_be_read_then_the_refusal_stays(
    body: bytes,
) -> None:
    """It is what was asked for; why is more than that."""
    controller = Controller()

    def answer(call: Call) -> RemotingCommand:
        if call.command.code == 60012:
            return call.command.reply(0, body=body)
        return controller(call)

    with pytest.raises(Refused, match="Failed to elect a new master"):
        run("electMaster -a a:1 -bn broker-a -c DefaultCluster -b 1", answer)


def test_dry_run_when_asked_then_the_answer_is_that_of_the_election_and_nothing_moves() -> None:
    """The words of before must be those of after."""
    controller = Controller()
    line = "electMaster -a a:1 -bn broker-a -c DefaultCluster -b"
    kept, calls = run(f"{line} 2 --dry-run", controller)
    assert [one.command.code for one in calls] == [1005, 1006, 1005, 60012]
    assert "#Would\tthis broker is the master already" in kept.plain
    refused, _ = run(f"{line} 1 --dry-run", controller)
    assert "#Would\tthis broker would not be elected" in refused.plain
    assert "#Broker\t1\tnot alive" in refused.plain
    assert refused.data["newMaster"] is None
    controller.driver.beat(1, connection=11, epoch=2, maxOffset=900)
    assert controller.driver.alter(2, 2, [1, 2], 3).code == 0
    moves, _ = run(f"{line} 1 --dry-run", controller)
    assert "#Would\tthis broker would become the master\n#Master\t2 -> 1" in moves.plain
    assert moves.tables[0].rows[1][:2] == (2, "another is designated")
    assert controller.driver.master() == (2, 2)
    run(f"{line} 1", controller)
    assert controller.driver.master() == (1, 3)


def test_dry_run_when_the_controller_is_javas_then_nothing_is_elected() -> None:
    """Java skips fields that it does not know: 1002 with one of ours would elect."""
    asked: list[int] = []

    def java(call: Call) -> RemotingCommand:
        if call.command.code == 1005:
            return call.command.reply(0, None, {"controllerLeaderAddress": "a:1"})
        asked.append(call.command.code)
        return call.command.reply(3, " request type 60012 not supported")

    with pytest.raises(Refused):
        run("electMaster -a a:1 -bn broker-a -c C -b 2 --dry-run", java)
    assert asked == [1006, 60012]


def test_election_when_refused_then_it_is_said_what_speaks_against_the_broker() -> None:
    """The answer itself says no more than that it failed."""
    line = "electMaster -a a:1 -bn broker-a -c DefaultCluster -b"
    with pytest.raises(Refused, match="Failed to elect a new master: broker 1: not alive"):
        run(f"{line} 1", Controller())
    with pytest.raises(Refused, match="the set has no broker 98, it has 1, 2"):
        run(f"{line} 98", Controller())


def test_election_when_javas_controller_refuses_then_its_words_stand_alone() -> None:
    """It knows no question for the reason."""

    def java(call: Call) -> RemotingCommand:
        if call.command.code == 1005:
            return call.command.reply(0, None, {"controllerLeaderAddress": "a:1"})
        code, remark = {1002: (2012, "Failed")}.get(call.command.code, (3, "not supported"))
        return call.command.reply(code, remark)

    with pytest.raises(Refused, match=r"DESC: Failed \("):
        run("electMaster -a a:1 -bn broker-a -c C -b 2", java)


class OfCluster:
    """A controller, and a set of which two brokers are alive.

    Attributes:
        told: the cluster by each broker's word; None for a broker that gives no answer.
        elected: requests that would change the master, or tell of it.
    """

    def __init__(self, **told: str | None) -> None:
        self.told = told
        self.elected: list[int] = []
        self.asked: list[str] = []

    def __call__(self, call: Call) -> RemotingCommand:
        command = call.command
        if command.code == 1005:
            return command.reply(0, None, {"controllerLeaderAddress": "a:1"})
        if command.code == 1006:
            replicas = [
                {"alive": name != "dead", "brokerAddress": f"{name}:1", "brokerId": at}
                for at, name in enumerate(("dead", *self.told), 1)
            ]
            info = {"inSyncReplicas": replicas, "notInSyncReplicas": []}
            return command.reply(0, body=fastjson.dumps({"replicasInfoTable": {"broker-a": info}}))
        if command.code == 1007:
            self.asked.append(call.address)
            cluster = self.told[call.address.partition(":")[0]]
            if cluster is None:
                raise Unreachable("down")
            return command.reply(0, body=fastjson.dumps({"clusterName": cluster, "epochList": []}))
        self.elected.append(command.code)
        return command.reply(0, None, {}, b'{"code":0,"remark":""}')


@pytest.mark.parametrize("more", ["", " --dry-run"])
def test_election_when_the_set_is_of_another_cluster_then_nobody_is_elected(more: str) -> None:
    """Controllers know sets by their names alone, and elected in a cluster that was not meant."""
    peers = OfCluster(b="Other", c="Other")
    with pytest.raises(NotFound, match="broker-a is of cluster Other, not of C"):
        run(f"electMaster -a a:1 -bn broker-a -c C -b 3{more}", peers)
    assert peers.elected == []
    assert peers.asked == ["c:1"], "the one that shall be master is asked first, and tells"


@pytest.mark.parametrize(
    ("peers", "asked"),
    [
        (OfCluster(b="C", c="Other"), ["b:1"]), (OfCluster(b=None, c="C"), ["b:1", "c:1"]),
        (OfCluster(b="", c=None), ["b:1", "c:1"]),
    ],
)  # fmt: skip
def test_election_when_the_cluster_is_right_or_nobody_tells_then_it_goes_on(
    peers: OfCluster, asked: list[str]
) -> None:
    """An election is wanted above all when brokers are down."""
    run("electMaster -a a:1 -bn broker-a -c C -b 2", peers)
    assert peers.elected == [1002]
    assert peers.asked == asked
