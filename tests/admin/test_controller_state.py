"""exportControllerState and importControllerState: what is asked, what is doubtful, what is left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from msgspec.structs import replace

from rmqha.admin.commands.export_controller_state import group_addresses
from rmqha.admin.commands.import_controller_state import SameGroup, StillRunning
from rmqha.admin.controller_state import ControllerState
from rmqha.admin.report import Report
from rmqha.admin.set_comparison import NotAsExported
from rmqha.admin.set_takeable import NotTakeable
from rmqha.base.errors import RemoteProtocolError
from rmqha.client.exchange import Call, NotFound, Refused, Unreachable
from rmqha.remoting import fastjson
from rmqha.remoting.command import RemotingCommand
from tests.admin.driving import HERE, drive, run

FOREVER = 2**63 - 1


class World:
    """A controller ``c:1``, a name server ``n:1`` and set ``broker-a`` of three: 2 is master, 3 in sync.

    Attributes:
        java: the controller is Java's, and runs.
        down: addresses where nobody answers.
        epochs: the newest epoch of each broker.
        ends: the end of each broker's log.
        in_sync: how many slaves the master has in sync.
        master: who says that it is master.
        names: what each broker says of its cluster and set.
        taken: the bodies of 60013.
        group: of the controllers that answer.
        known: what ours keep already of set ``broker-a``; None for nothing.
    """

    def __init__(self) -> None:
        self.java = True
        self.down: set[str] = set()
        self.epochs = {1: 7, 2: 7, 3: 7}
        self.ends = {1: 50, 2: 100, 3: 90}
        self.acks = {1: 50, 3: 80}
        self.in_sync = {3}
        self.master: int | None = 2
        self.names = dict.fromkeys((1, 2, 3), ("C", "broker-a"))
        self.listed = {"broker-a": "C"}
        self.taken: list[Any] = []
        self.refusal: str | None = None
        self.group = "new"
        self.known: dict[str, Any] | None = None

    def __call__(self, call: Call) -> RemotingCommand:
        if call.address in self.down:
            raise Unreachable(f"{call.address}: nobody there")
        code, command = call.command.code, call.command
        if call.address.startswith("b"):
            return self._broker(int(call.address[1]), command)
        if code == 106:
            table = {
                name: {"brokerName": name, "cluster": cluster, "brokerAddrs": {}}
                for name, cluster in self.listed.items()
            }
            return command.reply(0, body=fastjson.dumps({"brokerAddrTable": table}))
        if code == 1005:
            fields = {
                "controllerLeaderAddress": "c:1", "peers": "n0:c:1;n1:c:2;", "group": self.group,
            }  # fmt: skip
            return command.reply(0, None, fields)
        if code == 1006:
            known = self.info() if self.java else self.known
            table = {"broker-a": known} if known and b"broker-a" in command.body else {}
            return command.reply(0, body=fastjson.dumps({"replicasInfoTable": table}))
        if code == 1012:
            return command.reply(0, None, {"nextBrokerId": "6"})
        if self.java:
            return command.reply(3, f" request type {code} not supported")
        if code == 60022:
            return command.reply(0, body=fastjson.dumps({"group": self.group}))
        assert code == 60013
        assert command.ext_fields == {"brokerName": "broker-a"}
        if self.refusal is not None:
            return command.reply(2005, self.refusal)
        self.taken.append(fastjson.loads(command.body))
        return command.reply(0)

    def info(self) -> dict[str, Any]:
        """What 1006 says."""
        one = {
            number: {"brokerName": "broker-a", "brokerId": number, "brokerAddress": f"b{number}:1",
                     "alive": True}
            for number in (1, 2, 3)
        }  # fmt: skip
        return {
            "masterBrokerId": 2, "masterAddress": "b2:1", "masterEpoch": 7, "syncStateSetEpoch": 9,
            "inSyncReplicas": [one[3], one[2]], "notInSyncReplicas": [one[1]],
        }  # fmt: skip

    def _broker(self, number: int, command: RemotingCommand) -> RemotingCommand:
        cluster, name = self.names[number]
        is_master = number == self.master
        if command.code == 1007:
            body = {
                "clusterName": cluster, "brokerName": name, "brokerId": 0 if is_master else number,
                "maxOffset": self.ends[number],
                "epochList": [
                    {"epoch": 1, "startOffset": 0, "endOffset": 5},
                    {"epoch": self.epochs[number], "startOffset": 5, "endOffset": FOREVER},
                ],
            }  # fmt: skip
            return command.reply(0, body=fastjson.dumps(body))
        assert command.code == 907
        if not is_master:
            return command.reply(0, body=b'{"master":false}')
        slaves = [{"slaveAckOffset": end, "inSync": one in self.in_sync}
                  for one, end in self.acks.items()]  # fmt: skip
        body = {
            "master": True, "inSyncSlaveNums": len(self.in_sync), "haConnectionInfo": slaves,
        }  # fmt: skip
        return command.reply(0, body=fastjson.dumps(body))


def export(world: World, *more: str) -> tuple[ControllerState, Report]:
    """Run an export by the name server's list."""
    line = ["exportControllerState", "-a", "c:1", "-n", "n:1", "-o", "x/state.json", *more]
    report, _ = run(line, world)
    assert report.then is not None
    told, asked = drive(report.then, world)
    assert asked == []
    return ControllerState.decode(report.files["x/state.json"]), told


def take_in(world: World, folder: Path, *more: str, content: bytes | None = None) -> Report:
    """Export, stop the old controllers, and import."""
    file = folder / "state.json"
    file.write_bytes(export(World())[0].encode() if content is None else content)
    world.java = False
    return run(["importControllerState", "-a", "c:1", "-f", str(file), *more], world)[0]


def problem(report: Report, kind: type[Exception] = NotAsExported) -> str:
    """The words with which the only set was left out."""
    assert report.data == {"broker-a": "left out"}
    (failure,) = report.failures
    assert isinstance(failure, kind)
    return str(failure)


def test_export_when_all_answer_then_everything_is_in_the_file() -> None:
    """What is left out here is forgotten for good."""
    state, report = export(World())
    assert (state.exported_ms, state.controllers) == (HERE.now_ms, ("c:1", "c:2"))
    assert (state.remarks, state.not_exported) == ({}, {})
    (one,) = state.broker_sets
    assert fastjson.loads(one.encode()) == {
        "clusterName": "C", "brokerName": "broker-a", "nextBrokerId": 6, "masterBrokerId": 2,
        "masterEpoch": 7, "syncStateSet": [2, 3], "syncStateSetEpoch": 9,
        "replicas": [{"brokerId": n, "brokerAddress": f"b{n}:1"} for n in (1, 2, 3)],
    }  # fmt: skip
    assert report.plain == "broker-a\tmaster 2\tepoch 7\t-\n"


def test_export_when_brokers_are_silent_then_it_is_said_and_the_name_server_believed() -> None:
    """Partly unknown is not the same as known."""
    world = World()
    world.down = {"b1:1", "b2:1", "b3:1"}
    state, _ = export(world)
    assert state.broker_sets[0].cluster_name == "C"
    *silent, last = state.remarks["broker-a"]
    assert [one.split(" did not")[0] for one in silent] == ["broker 1", "broker 2", "broker 3"]
    assert last == "no broker told its cluster: C is the name servers' word"


def test_export_when_nobody_knows_the_cluster_then_it_is_left_open() -> None:
    """A guessed cluster would make every heartbeat that of a stranger."""
    world = World()
    world.down = {"b1:1", "b2:1", "b3:1"}
    line = "exportControllerState -a c:1 -b broker-a -o f"
    report, calls = run(line, world)
    state = ControllerState.decode(report.files["f"])
    assert state.broker_sets[0].cluster_name is None
    assert state.remarks["broker-a"][-1] == "its cluster is not known: write it into the file"
    assert 106 not in {one.command.code for one in calls}


def test_export_when_brokers_disagree_then_said() -> None:
    """A broker of another set at a registered address, two clusters, and a newer epoch."""
    world = World()
    world.names |= {1: ("C", "broker-b"), 3: ("D", "broker-a")}
    world.epochs[3] = 8
    state, _ = export(world)
    assert state.broker_sets[0].cluster_name is None
    assert state.remarks["broker-a"] == (
        "behind b1:1 of broker 1 there is one of broker-b",
        "broker 3 knows epoch 8: a newer one",
        "its cluster is not known: write it into the file",
    )


def test_export_when_sets_are_not_under_controllers_then_listed_as_left_out() -> None:
    """Sets without controllers register with name servers, too."""
    world = World()
    world.listed["plain"] = "C"
    state, report = export(world)
    assert state.not_exported == {"plain": "the controllers do not know it"}
    assert [row[0] for row in report.tables[0].rows] == ["broker-a", "plain"]


def test_export_when_nothing_is_found_then_refused() -> None:
    """An empty file would look like success."""
    world = World()
    with pytest.raises(NotFound, match="broker set x is not known"):
        export(world, "-b", "x")
    world.listed = {"plain": "C"}
    with pytest.raises(NotFound, match="broker set plain is not known"):
        export(world)
    with pytest.raises(click.UsageError, match="name server"):
        run("exportControllerState -a c:1 -o f", world)


def test_group_when_told_by_either_controller_then_every_address() -> None:
    """All of them must be stopped."""
    assert group_addresses(["a:1"], "n0:a:1;n1:b:2;") == ("a:1", "b:2")
    assert group_addresses(["a:1"], "c:3;") == ("a:1", "c:3")
    assert group_addresses(["a:1"], "") == ("a:1",)


def test_import_when_brokers_are_as_exported_then_taken_in(tmp_path: Path) -> None:
    """What stands in the file, and nothing else."""
    world = World()
    report = take_in(world, tmp_path)
    assert report.data == {"broker-a": "imported"}
    assert report.failures == ()
    assert world.taken == [fastjson.loads(export(World())[0].broker_sets[0].encode())]


def test_import_when_only_checking_then_nothing_is_taken_in(tmp_path: Path) -> None:
    """To be tried before."""
    world = World()
    assert take_in(world, tmp_path, "--check").data == {"broker-a": "may be imported"}
    assert world.taken == []


def test_import_when_ours_do_not_run_yet_then_the_check_compares_and_says_so(
    tmp_path: Path,
) -> None:
    """The brokers can be compared with; what ours know already cannot."""
    world = World()
    world.down = {"c:1", "c:2"}
    report = take_in(world, tmp_path, "--check")
    assert report.data == {"broker-a": "may be imported"}
    assert [type(one) for one in report.failures] == [Unreachable]
    with pytest.raises(Unreachable):
        take_in(world, tmp_path)


ONE = {"brokerName": "broker-a", "brokerAddress": "b2:1", "brokerId": 2, "alive": True}
OTHERS = [{**ONE, "brokerAddress": f"b{each}:1", "brokerId": each} for each in (1, 3)]


@pytest.mark.parametrize("check", [("--check",), ()])
@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"master_broker_id": 1}, "the master 1 is not in its SyncStateSet"),
        ({"sync_state_set": (2, 9)}, "of the SyncStateSet [9] are no replicas"),
        ({"next_broker_id": 0}, "ids are numbers from 1 on"),
        ({"sync_state_set_epoch": -1}, "epochs are numbers from 0"),
        ({"sync_state_set": (2, 2)}, "an id is named twice"),
    ],
)
def test_import_when_the_leader_would_refuse_a_set_then_the_check_says_it(
    tmp_path: Path, members: dict[str, Any], said: str, check: tuple[str, ...]
) -> None:
    """A check that passes, and an import that is refused when the old controllers are stopped."""
    state = export(World())[0]
    one = replace(state.broker_sets[0], **members)
    world = World()
    world.in_sync = set(one.sync_state_set[1:])
    world.master = one.master_broker_id
    content = replace(state, broker_sets=(one,)).encode()
    report = take_in(world, tmp_path, *check, content=content)
    assert said in problem(report, NotTakeable)
    assert world.taken == []


def test_import_when_ours_know_the_set_then_only_as_it_was_imported(tmp_path: Path) -> None:
    """An import whose answer was lost is tried again; what ours decided since is not overwritten."""
    world = World()
    imported = {
        "masterBrokerId": 2, "masterAddress": "b2:1", "masterEpoch": 7, "syncStateSetEpoch": 1009,
        "inSyncReplicas": [ONE, OTHERS[1]], "notInSyncReplicas": [OTHERS[0]],
    }  # fmt: skip
    world.known = imported
    assert take_in(world, tmp_path, "--check").data == {"broker-a": "may be imported"}
    moved = {**OTHERS[0], "brokerAddress": "b9:1"}
    for changed in (
        {"masterEpoch": 8}, {"syncStateSetEpoch": 1010}, {"masterBrokerId": None},
        {"inSyncReplicas": [ONE], "notInSyncReplicas": OTHERS}, {"notInSyncReplicas": [moved]},
    ):  # fmt: skip
        world.known = {**imported, **changed}
        told = problem(take_in(world, tmp_path, "--check"), NotTakeable)
        assert "know this set already" in told
        assert "--brokerNames" in told


def test_import_when_an_old_controller_runs_then_nothing_is_asked(tmp_path: Path) -> None:
    """One set would have two masters."""
    file = tmp_path / "state.json"
    file.write_bytes(export(World())[0].encode())
    world = World()
    world.down = {"c:1"}
    with pytest.raises(StillRunning, match="the old controller at c:2 runs"):
        run(f"importControllerState -a d:1 -f {file}", world)
    assert world.taken == []


def test_import_when_somebody_does_not_say_what_it_is_then_nothing_is_asked(tmp_path: Path) -> None:
    """It may be an old controller that wants a signature."""
    world = World()

    def signed(call: Call) -> RemotingCommand:
        if call.command.code == 60022:
            return call.command.reply(16, "no permission")
        return world(call)

    file = tmp_path / "state.json"
    file.write_bytes(export(World())[0].encode())
    with pytest.raises(Refused, match="no permission"):
        run(f"importControllerState -a c:1 -f {file}", signed)
    assert world.taken == []


def test_import_when_the_master_is_at_a_newer_epoch_then_left_out(tmp_path: Path) -> None:
    """It was elected again after the export."""
    world = World()
    world.epochs[2] = 8
    assert "broker 2 knows epoch 8, the file 7" in problem(take_in(world, tmp_path))
    assert world.taken == []


def test_import_when_nothing_was_written_in_the_masters_epoch_then_taken_in(tmp_path: Path) -> None:
    """Java's epoch file leaves such an epoch out, as 5.3.3 showed."""
    world = World()
    world.epochs = {1: 6, 2: 6, 3: 6}
    assert take_in(world, tmp_path).data == {"broker-a": "imported"}


def test_import_when_another_is_master_then_left_out(tmp_path: Path) -> None:
    """Somebody was elected after the export, and the old master has heard of it."""
    world = World()
    world.master = 3
    assert "broker 2 is no master now" in problem(take_in(world, tmp_path))


def test_import_when_a_slave_knows_a_newer_epoch_then_left_out(tmp_path: Path) -> None:
    """Somebody was elected, and the old master has not heard of it."""
    world = World()
    world.epochs[3] = 8
    assert "broker 3 knows epoch 8, the file 7" in problem(take_in(world, tmp_path))


@pytest.mark.parametrize("in_sync", [set(), {1, 3}])
def test_import_when_the_sync_state_set_has_another_size_then_left_out(
    tmp_path: Path, in_sync: set[int]
) -> None:
    """A slave that left it may lack what was acknowledged since, and would be electable."""
    world = World()
    world.in_sync = in_sync
    told = problem(take_in(world, tmp_path))
    assert f"its master has {len(in_sync)} slaves in sync, the file 1" in told


def test_import_when_a_member_lacks_what_was_acknowledged_then_left_out(tmp_path: Path) -> None:
    """Of the same size, with another member."""
    world = World()
    world.in_sync, world.acks[1], world.ends[3] = {1}, 95, 90
    assert "broker 3 is in the file's SyncStateSet, and its log ends at 90, before 95" in problem(
        take_in(world, tmp_path)
    )


def test_import_when_the_master_is_silent_then_only_on_the_files_word(tmp_path: Path) -> None:
    """It may have died meanwhile; whether the file is right nobody can say."""
    world = World()
    world.down = {"b2:1"}
    assert "--unverified broker-a takes its word" in problem(take_in(world, tmp_path))
    report = take_in(world, tmp_path, "--unverified", "broker-a")
    assert report.data == {"broker-a": "imported"}
    world.epochs[3] = 8
    assert "knows epoch 8" in problem(take_in(world, tmp_path, "-u", "broker-a"))


def test_import_when_a_slave_is_silent_then_taken_in(tmp_path: Path) -> None:
    """It was so under the old controllers."""
    world = World()
    world.down = {"b1:1", "b3:1"}
    assert take_in(world, tmp_path).data == {"broker-a": "imported"}


def test_import_when_another_broker_answers_at_an_address_then_left_out(tmp_path: Path) -> None:
    """The set would be elected by the words of strangers."""
    world = World()
    world.names[2] = ("C", "broker-b")
    assert "behind b2:1 of broker 2 there is one of broker-b in C" in problem(
        take_in(world, tmp_path)
    )
    world = World()
    world.names[1] = ("D", "broker-a")
    assert "there is one of broker-a in D" in problem(take_in(world, tmp_path))


def test_import_when_the_cluster_is_unknown_then_left_out(tmp_path: Path) -> None:
    """The file says null; a person writes it in."""
    content = export(World())[0].encode().replace(b'"C"', b"null")
    told = problem(take_in(World(), tmp_path, content=content))
    assert "the file does not know its cluster" in told


def test_import_when_the_leader_refuses_then_its_words(tmp_path: Path) -> None:
    """It knows the set already."""
    world = World()
    world.refusal = "it is not overwritten"
    assert "it is not overwritten" in problem(take_in(world, tmp_path), Refused)


def test_import_when_the_file_is_none_or_lacks_the_set_then_refused(tmp_path: Path) -> None:
    """Before anybody is asked."""
    world = World()
    with pytest.raises(click.UsageError, match="-f"):
        run("importControllerState -a c:1", world)
    with pytest.raises(click.UsageError, match="no broker set broker-z"):
        take_in(world, tmp_path, "-b", "broker-z")
    with pytest.raises(RemoteProtocolError, match="not an exported state"):
        take_in(world, tmp_path, content=b"{}")
    newer = export(World())[0].encode().replace(b'"format": 1', b'"format": 2')
    with pytest.raises(RemoteProtocolError, match="format 2"):
        take_in(world, tmp_path, content=newer)


def test_import_when_one_set_differs_then_none_is_taken_in(tmp_path: Path) -> None:
    """The way back is to start the old controllers; once ours have a set, both could elect for it."""
    state = export(World())[0]
    (one,) = state.broker_sets
    other = replace(one, broker_name="broker-b")
    content = replace(state, broker_sets=(one, other)).encode()
    world = World()
    report = take_in(world, tmp_path, content=content)
    assert report.data == {"broker-a": "may be imported", "broker-b": "left out"}
    assert world.taken == []
    assert len(report.failures) == 1
    report = take_in(world, tmp_path, "-b", "broker-a", content=content)
    assert report.data == {"broker-a": "imported"}, "that was asked for"


def test_import_when_sets_are_named_then_only_these(tmp_path: Path) -> None:
    """One set at a time is a way, too."""
    state = export(World())[0]
    content = state.encode().replace(b'"broker-a"', b'"broker-b"')
    world = World()
    report = take_in(world, tmp_path, "-b", "broker-b", "--check", content=content)
    assert [*report.data] == ["broker-b"]


def test_import_from_brokers_when_another_is_master_then_it_alone_in_a_new_epoch(
    tmp_path: Path,
) -> None:
    """The file is stale: what is sure is who is master; the others come in again by its word."""
    world = World()
    world.master, world.epochs = 3, {1: 7, 2: 7, 3: 9}
    report = take_in(world, tmp_path, "--from-brokers", "broker-a")
    assert report.data == {"broker-a": "imported"}
    (taken,) = world.taken
    assert (taken["masterBrokerId"], taken["syncStateSet"], taken["masterEpoch"]) == (3, [3], 19)
    assert (taken["syncStateSetEpoch"], taken["nextBrokerId"]) == (9, 6)


def test_import_from_brokers_when_their_epochs_are_low_then_above_the_files(tmp_path: Path) -> None:
    """Epochs in which nothing was written are in the file alone."""
    world = World()
    world.epochs = {1: 2, 2: 2, 3: 2}
    take_in(world, tmp_path, "-r", "broker-a")
    assert world.taken[0]["masterEpoch"] == 17


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"down": {"b1:1"}}, "broker 1 does not answer, and may be a newer master"),
        ({"master": None}, "its brokers have 0 masters"),
        ({"epochs": {1: 8, 2: 7, 3: 7}}, "another knows a newer epoch than its 7"),
        ({"names": {1: ("C", "x"), 2: ("C", "broker-a"), 3: ("C", "broker-a")}}, "there is one of x"),
    ],
)  # fmt: skip
def test_import_from_brokers_when_it_is_not_sure_then_left_out(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    """The other one may have acknowledged what this master lacks."""
    world = World()
    for name, value in change.items():
        setattr(world, name, value)
    assert words in problem(take_in(world, tmp_path, "-r", "broker-a"))
    assert world.taken == []


def test_import_of_a_rescued_group_when_the_new_one_has_its_name_then_refused(
    tmp_path: Path,
) -> None:
    """Lost nodes would be members again, and vote for what they remember."""
    lost = replace(export(World())[0], rescued_group="old", controllers=("c:8", "c:9"))
    world = World()
    world.group, world.down = "old", {"c:8", "c:9"}
    with pytest.raises(SameGroup, match="group old"):
        take_in(world, tmp_path, content=lost.encode())
    world.group = "new"
    assert take_in(world, tmp_path, content=lost.encode()).data == {"broker-a": "imported"}


def test_import_of_a_rescued_group_when_one_of_it_runs_then_refused(tmp_path: Path) -> None:
    """Brokers would hear of two leaders; one of the new group at its address is none of it."""
    lost = replace(export(World())[0], rescued_group="old")
    world = World()
    world.group = "old"
    with pytest.raises(StillRunning, match="the old controller at c:1 runs"):
        take_in(world, tmp_path, content=lost.encode())
    world.group = "new"
    assert take_in(world, tmp_path, content=lost.encode()).data == {"broker-a": "imported"}
