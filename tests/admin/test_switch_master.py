"""switchMaster: who is asked what, and what becomes of it when somebody refuses or is silent."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rmqha.admin.commands.java_hold import BehindMaster
from rmqha.admin.commands.switch_master import NotReady
from rmqha.client.exchange import Call, NotFound, Refused, Unreachable
from rmqha.remoting import fastjson
from rmqha.remoting.command import RemotingCommand
from tests.admin.driving import run

LINE = "switchMaster -a a:1 -bn broker-a -c C -b"


class Peers:
    """A controller, a set of three with master 1 and 2 in sync, and its master.

    Attributes:
        asked: (address, code, brokerId) of what changes something.
        cluster: whose the set is, by its master's word; None where it does not tell.
        hold: how the master answers 60041.
        elect: how the controller answers 1002.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, str]] = []
        self.master: int | None = 1
        self.cluster: str | None = "C"
        self.hold: Callable[[Call], RemotingCommand] = lambda call: call.command.reply(0)
        self.elect = self._elects

    def _elects(self, call: Call) -> RemotingCommand:
        self.master = int((call.command.ext_fields or {})["brokerId"])
        return call.command.reply(0)

    def __call__(self, call: Call) -> RemotingCommand:
        command = call.command
        if command.code == 1005:
            return command.reply(0, None, {"controllerLeaderAddress": "a:1"})
        if command.code == 1006:
            return command.reply(
                0, body=fastjson.dumps({"replicasInfoTable": {"broker-a": self.info()}})
            )
        if command.code == 1007:
            if self.cluster is None:
                return command.reply(3, "request type 1007 not supported")
            body = {"clusterName": self.cluster, "brokerName": "broker-a", "epochList": []}
            return command.reply(0, body=fastjson.dumps(body))
        self.asked.append((call.address, command.code, (command.ext_fields or {})["brokerId"]))
        return self.hold(call) if command.code == 60041 else self.elect(call)

    def info(self) -> dict[str, object]:
        """1006's words."""
        replicas = [
            {
                "alive": one != 4,
                "brokerAddress": f"m{one}:1",
                "brokerId": one,
                "brokerName": "broker-a",
            }
            for one in (1, 2, 3, 4)
        ]
        found: dict[str, object] = {
            "inSyncReplicas": replicas[:2], "notInSyncReplicas": replicas[2:],
            "masterEpoch": 5, "syncStateSetEpoch": 6,
        }  # fmt: skip
        if self.master is not None:
            found |= {"masterBrokerId": self.master, "masterAddress": f"m{self.master}:1"}
        return found


def refuse(code: int, remark: str = "no") -> Callable[[Call], RemotingCommand]:
    """An answer that is none."""
    return lambda call: call.command.reply(code, remark)


def test_switch_when_the_master_has_it_elected_then_nobody_else_is_asked() -> None:
    """It knows the moment, and answers when it is over."""
    peers = Peers()

    def done(call: Call) -> RemotingCommand:
        peers.master = 2
        return call.command.reply(0, None, {"elected": "true"})

    peers.hold = done
    report, _ = run(f"{LINE} 2", peers)
    assert peers.asked == [("m1:1", 60041, "2")]
    assert (report.data["oldMaster"], report.data["newMaster"]) == (1, 2)


def test_switch_when_the_master_is_older_then_held_first_and_elected_then() -> None:
    """It only holds. In the other order sends would fail."""
    peers = Peers()
    report, calls = run(f"{LINE} 2 -w 7 --hold 300", peers)
    assert peers.asked == [("m1:1", 60041, "2"), ("a:1", 1002, "2")]
    hold = next(one for one in calls if one.command.code == 60041)
    fields = {"brokerId": "2", "waitMs": "7000", "holdMs": "300", "elect": "true"}
    assert hold.command.ext_fields == fields
    assert hold.timeout_ms > 7300, "the master waits that long for the target"
    elect = next(one.command.ext_fields for one in calls if one.command.code == 1002)
    assert (elect or {})["designateElect"] == "true"
    assert "#Master\t1 -> 2" in report.plain
    assert report.data["how"] == "sends are held until the new master takes them"


def test_switch_when_it_is_the_master_already_then_nothing_is_asked() -> None:
    """Run twice, as scripts do."""
    peers = Peers()
    report, _ = run(f"{LINE} 1", peers)
    assert peers.asked == []
    assert "it was the master already" in report.plain


def test_switch_when_the_target_cannot_be_master_then_nothing_is_asked() -> None:
    """Said before anything is held."""
    peers = Peers()
    with pytest.raises(NotFound, match="broker 9 is not registered"):
        run(f"{LINE} 9", peers)
    with pytest.raises(NotReady, match="broker 4 is not alive"):
        run(f"{LINE} 4", peers)
    peers.master = None
    with pytest.raises(NotReady, match="no master"):
        run(f"{LINE} 2", peers)
    assert peers.asked == []


@pytest.mark.parametrize("broker_id", [1, 2])
def test_switch_when_the_set_is_of_another_cluster_then_nothing_is_asked(broker_id: int) -> None:
    """Sets of two clusters may have one name; the operator has the other one in mind."""
    peers = Peers()
    peers.cluster = "Other"
    with pytest.raises(NotFound, match="broker-a is of cluster Other, not of C"):
        run(f"{LINE} {broker_id}", peers)
    assert peers.asked == []
    peers.cluster = None
    run(f"{LINE} 1", peers)  # a master that does not tell is no hindrance


def test_switch_when_the_master_refuses_then_nobody_is_elected() -> None:
    """The target has not caught up in time."""
    peers = Peers()
    peers.hold = refuse(1, "broker 3 is not in the SyncStateSet")
    with pytest.raises(Refused, match="broker 3 is not in the SyncStateSet"):
        run(f"{LINE} 3", peers)
    assert [code for _, code, _ in peers.asked] == [60041]


def test_switch_when_the_controllers_refuse_then_the_master_is_told_to_go_on() -> None:
    """Sends are held: every moment counts."""
    peers = Peers()
    peers.elect = refuse(2012, "Failed to elect a new master")
    with pytest.raises(Refused, match="Failed to elect"):
        run(f"{LINE} 2", peers)
    assert peers.asked[-1] == ("m1:1", 60041, "0")


def test_switch_when_the_controllers_are_silent_then_the_master_is_not_told() -> None:
    """Somebody may have been elected: then it must not write; its deadline ends the hold."""
    peers = Peers()

    def silent(call: Call) -> RemotingCommand:
        raise Unreachable("nobody")

    peers.elect = silent
    with pytest.raises(Unreachable):
        run(f"{LINE} 2", peers)
    assert [one for one in peers.asked if one[1] == 60041] == [("m1:1", 60041, "2")]


def test_switch_when_the_first_answer_was_lost_then_the_second_question_finds_it_done() -> None:
    """2011 of the master that one wanted is a success."""
    peers = Peers()

    def lost(call: Call) -> RemotingCommand:
        if peers.master == 2:
            return call.command.reply(2011, "still alive")
        peers.master = 2
        raise Unreachable("lost")

    peers.elect = lost
    report, _ = run(f"{LINE} 2", peers)
    assert report.data["newMaster"] == 2


def test_switch_when_the_master_is_javas_then_elected_if_in_sync() -> None:
    """It cannot hold sends, and moves at once."""
    peers = Peers()
    peers.hold = refuse(3, "request type 60041 not supported")
    report, _ = run(f"{LINE} 2", peers)
    assert "the master is not rmqha's" in report.plain
    assert peers.asked == [("m1:1", 60041, "2"), ("a:1", 1002, "2")]
    peers = Peers()
    peers.hold = refuse(3)
    with pytest.raises(NotReady, match="not in the SyncStateSet"):
        run(f"{LINE} 3", peers)
    assert [code for _, code, _ in peers.asked] == [60041]


class JavaMaster(Peers):
    """A master of Java with two slaves in sync.

    Attributes:
        acks: what the two slaves hold, of a log of 5,000,000 bytes, in the order of the questions.
        moments: what startAcceptSendRequestTimeStamp was set to, in order.
        before: what it was.
        late: so many questions after the election find it a master still.
    """

    def __init__(self, *acks: tuple[int, int]) -> None:
        super().__init__()
        self.acks = list(acks)
        self.moments: list[int] = []
        self.before = 0
        self.late = 0
        self.sets = lambda call: call.command.reply(0)

    def __call__(self, call: Call) -> RemotingCommand:
        command = call.command
        if command.code == 60041:
            return command.reply(3)
        if command.code == 28:
            table = {"bootTimestamp": "1000000", "runtime": "[ 0 days, 0 hours, 1 minutes, 5 seconds ]",
                     "startAcceptSendRequestTimeStamp": str(self.before)}  # fmt: skip
            return command.reply(0, body=fastjson.dumps({"table": table}))
        if command.code == 907:
            acks = self.acks.pop(0) if len(self.acks) > 1 else self.acks[0]
            slaves = [{"slaveAckOffset": one} for one in acks]
            is_master = self.master == 1 or self.late > 0
            self.late -= self.master != 1
            body = {
                "master": is_master,
                "masterCommitLogMaxOffset": END,
                "haConnectionInfo": slaves,
            }
            return command.reply(0, body=fastjson.dumps(body))
        if command.code == 25:
            answer = self.sets(call)
            if answer.code == 0:
                self.moments.append(int(command.body.decode().strip().partition("=")[2]))
            return answer
        return super().__call__(call)

    def info(self) -> dict[str, object]:
        """All three are in sync."""
        found = super().info()
        replicas = [*found["inSyncReplicas"], *found["notInSyncReplicas"]]  # type: ignore[misc]
        return found | {"inSyncReplicas": replicas[:3], "notInSyncReplicas": replicas[3:]}


END = 5_000_000
HELD_UNTIL = 1_000_000 + 65_000 + 1_000 + 1_000
"""The broker's clock in whole seconds, one more, and --hold."""


def test_switch_when_java_is_held_then_elected_when_its_slaves_have_all_and_let_go() -> None:
    peers = JavaMaster((END, 100), (END, END - 900), (END - 10, END - 900), (END, END))
    peers.before, peers.late = 77, 2
    report, calls = run(f"{LINE} 2 --hold-java", peers)
    assert "it refused sends until its slaves had all" in report.plain
    assert peers.moments == [HELD_UNTIL, 77]
    codes = [call.command.code for call in calls if call.command.code in (907, 25, 1002)]
    assert codes == [907, 907, 25, 907, 907, 1002, 907, 907, 907, 25]
    delays = [call.delay_ms for call in calls if call.command.code == 907]
    assert delays == [0, 100, 0, 5, 0, 5, 5]


def test_switch_when_javas_slaves_stay_behind_then_it_goes_on_at_once() -> None:
    """Far behind: it was never held. Near, but not there in time: it is let go, and nobody elected."""
    peers = JavaMaster((END, 100))
    with pytest.raises(BehindMaster, match=r"1 have come within 262144 .* lacks 4999900"):
        run(f"{LINE} 2 --hold-java -w 1", peers)
    assert peers.moments == []
    peers = JavaMaster((END, END - 1))
    with pytest.raises(BehindMaster, match="within 0 bytes of the master's log in 1000 ms"):
        run(f"{LINE} 2 --hold-java", peers)
    assert peers.moments == [HELD_UNTIL, 0]
    assert peers.asked == []


def test_switch_when_the_controllers_refuse_then_java_is_let_go() -> None:
    peers = JavaMaster((END, END))
    peers.elect = refuse(2012)
    with pytest.raises(Refused):
        run(f"{LINE} 2 --hold-java", peers)
    assert peers.moments == [HELD_UNTIL, 0]


def test_switch_when_java_lets_no_setting_be_changed_then_nothing_has_changed() -> None:
    """By its access lists; the command can be run without the option."""
    peers = JavaMaster((END, END))
    peers.sets = refuse(16)
    with pytest.raises(Refused, match="CODE: 16"):
        run(f"{LINE} 2 --hold-java", peers)
    assert peers.asked == []


def test_switch_when_java_cannot_be_let_go_then_that_is_no_failure() -> None:
    """Its moment passes by itself."""
    peers = JavaMaster((END, END))

    def once(call: Call) -> RemotingCommand:
        if peers.moments:
            raise Unreachable("down")
        return call.command.reply(0)

    peers.sets = once
    report, _ = run(f"{LINE} 2 --hold-java", peers)
    assert report.data["newMaster"] == 2


def test_switch_when_java_dies_after_the_election_then_that_is_no_failure() -> None:
    peers = JavaMaster((END, END))

    def answer(call: Call) -> RemotingCommand:
        if peers.master == 2 and call.address == "m1:1":
            raise Unreachable("down")
        return peers(call)

    report, _ = run(f"{LINE} 2 --hold-java", answer)
    assert report.data["newMaster"] == 2
    assert peers.moments == [HELD_UNTIL]
