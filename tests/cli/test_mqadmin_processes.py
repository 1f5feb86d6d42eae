"""mqadmin's commands against three running controllers, as an operator would use them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqha.runtime.properties import parse_properties
from rmqha.testing.real import wire
from tests.cli.nodes import CLUSTER, ROOT, Group, Node, broker_address, group, join, replica_info

pytestmark = pytest.mark.slow

REFUSED, UNREACHABLE = 1, 3


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    """Three nodes for all tests of this file; each test has broker sets of its own."""
    with group(tmp_path_factory.mktemp("trio")) as one:
        one.wait_leader()
        yield one


def mqadmin(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run bin/mqadmin to its end."""
    return subprocess.run(
        [ROOT / "bin" / "mqadmin", *arguments],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def answered(*arguments: str) -> Any:
    """Run a command that must succeed; returns its JSON."""
    done = mqadmin(*arguments, "--json")
    assert 0 == done.returncode, done.stderr
    return json.loads(done.stdout)


def follower(trio: Group) -> Node:
    """A node that does not lead; commands must find the leader from it."""
    return trio.others(trio.wait_leader())[0]


def addresses(trio: Group) -> str:
    """All nodes, as config commands take them."""
    return ";".join(node.address for node in trio.nodes)


def test_get_controller_metadata_names_the_leader_from_any_node(trio: Group) -> None:
    """The text is Java's; scripts cut it apart."""
    leader = trio.wait_leader()
    done = mqadmin("getControllerMetaData", "-a", follower(trio).address, "--plain")
    assert 0 == done.returncode
    peers = "".join(f"\n#Peer:\t{node.name}:{node.address}" for node in trio.nodes)
    expected = (
        f"\n#ControllerGroup\ttest\n#ControllerLeaderId\t{leader.name}"
        f"\n#ControllerLeaderAddress\t{leader.address}{peers}\n"
    )
    assert expected == done.stdout


def test_get_sync_state_set_shows_master_and_slaves(trio: Group) -> None:
    """An operator looks here before anything is restarted."""
    leader = trio.wait_leader()
    with join(leader, "shown", 1), join(leader, "shown", 2):
        done = mqadmin("getSyncStateSet", "-a", follower(trio).address, "-b", "shown", "--plain")
    assert 0 == done.returncode, done.stderr
    assert "#brokerName\tshown\n#MasterBrokerId\t1\n" in done.stdout
    assert "\nInSyncReplica:\tReplicaIdentity{brokerName='shown', brokerId=1," in done.stdout
    assert "\nNotInSyncReplica:\tReplicaIdentity{brokerName='shown', brokerId=2," in done.stdout


def test_election_history_and_dry_run_are_answered_by_the_leader(trio: Group) -> None:
    """Before and after an election, from a node that does not lead."""
    leader = trio.wait_leader()
    with join(leader, "explained", 1), join(leader, "explained", 2):
        words = ("-a", follower(trio).address, "-bn", "explained", "-b", "1", "-c", CLUSTER)
        would = answered("electMaster", *words, "--dry-run")
        assert would["code"] == 2011
        told = answered("electionHistory", "-a", follower(trio).address, "-b", "explained")
    (first,) = told["elections"]
    assert (first["newMaster"], first["trigger"]) == (1, "broker")
    assert first["masterEpoch"] == would["masterEpoch"]
    assert first["decidedMs"] > 1_600_000_000_000
    assert first["commitMs"] is not None


def test_elect_master_moves_the_mastership(trio: Group) -> None:
    """Before maintenance of the master's machine."""
    leader = trio.wait_leader()
    arguments = ("-b", "2", "-bn", "moved", "-c", CLUSTER)
    with join(leader, "moved", 1) as master, join(leader, "moved", 2):
        epoch = int(replica_info(leader, "moved")["masterEpoch"])
        fields = {"brokerName": "moved", "masterBrokerId": 1, "masterEpoch": epoch}
        master.ask(1001, fields, b'{"syncStateSet":[1,2],"syncStateSetEpoch":1}')
        done = mqadmin("electMaster", "-a", follower(trio).address, *arguments, "--plain")
        found = replica_info(leader, "moved")
    assert 0 == done.returncode, done.stderr
    assert f"#BrokerMasterAddr\t{broker_address(2)}\n" in done.stdout
    assert ("2", str(epoch + 1)) == (found["masterBrokerId"], found["masterEpoch"])


def test_elect_master_of_an_unknown_broker_is_refused_with_a_reason(trio: Group) -> None:
    """Java's tool prints a stack trace and ends with 0."""
    arguments = ("-b", "9", "-bn", "nobody", "-c", CLUSTER)
    done = mqadmin("electMaster", "-a", follower(trio).address, *arguments)
    assert (REFUSED, "") == (done.returncode, done.stdout)
    assert done.stderr.startswith("mqadmin: ")
    assert "Traceback" not in done.stderr


def test_clean_broker_metadata_needs_living_brokers_named_on_purpose(trio: Group) -> None:
    """A living broker that is forgotten loses its mastership."""
    leader = trio.wait_leader()
    arguments = ("-a", follower(trio).address, "-bn", "cleaned", "-b", "1", "-c", CLUSTER)
    with join(leader, "cleaned", 1):
        refused = mqadmin("cleanBrokerMetadata", *arguments)
        before = replica_info(leader, "cleaned")
        forced = mqadmin("cleanBrokerMetadata", *arguments, "-l", "--plain")
    assert (REFUSED, "1") == (refused.returncode, before["masterBrokerId"])
    assert 0 == forced.returncode, forced.stderr
    assert "clear broker cleaned metadata from controller success! \n" in forced.stdout
    assert 0 != leader.ask(1004, {"brokerName": "cleaned"}).code


def test_get_controller_config_asks_every_node(trio: Group) -> None:
    """Nodes may differ: the configuration is not replicated."""
    done = mqadmin("getControllerConfig", "-a", addresses(trio), "--plain")
    assert 0 == done.returncode
    for node in trio.nodes:
        assert f"============{node.address}============\n" in done.stdout
        assert f"{'controllerDLegerSelfId':<50}=  {node.name}\n" in done.stdout


def test_update_controller_config_changes_and_stores_on_every_node(trio: Group) -> None:
    """It must hold after a restart too, when the stored file is passed with -c."""
    change = ("-k", "electMasterMaxRetryCount", "-v", "5")
    done = mqadmin("updateControllerConfig", "-a", addresses(trio), *change, "--plain")
    assert 0 == done.returncode, done.stderr
    assert "update controller config success!" in done.stdout
    for node in trio.nodes:
        stored = Path(node.properties["configStorePath"])
        assert stored.is_relative_to(node.folder)
        assert "5" == parse_properties(stored.read_text())["electMasterMaxRetryCount"]
        assert b"electMasterMaxRetryCount=5\n" in node.ask(1010).body


@pytest.mark.parametrize("key", ["configStorePath", "controllerStorePath"])
def test_update_controller_config_is_refused_for_paths(trio: Group, key: str) -> None:
    """A store that moves while the node runs is lost."""
    node = follower(trio)
    before = node.ask(1010).body
    done = mqadmin("updateControllerConfig", "-a", node.address, "-k", key, "-v", "/elsewhere")
    assert REFUSED == done.returncode
    assert done.stderr.startswith("mqadmin: ")
    assert before == node.ask(1010).body


def test_get_broker_epoch_asks_the_brokers_that_the_controllers_know(trio: Group) -> None:
    """Brokers are found through a name server; without one the tool says so."""
    done = mqadmin("getBrokerEpoch", "-b", "shown", "-n", f"127.0.0.1:{trio.spare_ports[0]}")
    assert UNREACHABLE == done.returncode
    assert str(trio.spare_ports[0]) in done.stderr


def test_an_address_where_nobody_listens_ends_with_3(trio: Group) -> None:
    """Scripts tell a refusal from a controller that is away."""
    done = mqadmin("getControllerMetaData", "-a", f"127.0.0.1:{trio.spare_ports[0]}")
    assert (UNREACHABLE, "") == (done.returncode, done.stdout)
    assert str(trio.spare_ports[0]) in done.stderr


def test_an_independent_client_sees_what_the_tool_says(trio: Group) -> None:
    """The tool's JSON is made of the wire's fields, not of guesses."""
    leader = trio.wait_leader()
    said = answered("getControllerMetaData", "-a", follower(trio).address)
    answer = wire.invoke(leader.address, wire.GET_METADATA_INFO)
    assert answer.ext["controllerLeaderAddress"] in json.dumps(said)


def test_output_when_there_is_no_room_for_it_then_one_line_says_so(trio: Group) -> None:
    """A traceback of thirty lines stood there."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [ROOT / "bin" / "mqadmin", "getControllerMetaData", "-a", trio.nodes[0].address],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert done.returncode == REFUSED
    assert done.stderr == "mqadmin: cannot write to standard output: No space left on device\n"


def test_election_when_refused_by_running_controllers_then_the_reason_is_told(trio: Group) -> None:
    """By the same question as --dry-run's."""
    with join(trio.wait_leader(), "refusing", 1):
        done = mqadmin(
            "electMaster", "-a", addresses(trio), "-bn", "refusing", "-c", CLUSTER, "-b", "99"
        )
    assert done.returncode == REFUSED
    assert "the set has no broker 99, it has 1" in done.stderr
