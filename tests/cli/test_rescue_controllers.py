"""A group of controllers that lost its majority goes on as a new one, which knows the lost no more."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqha.controller.metadata.imported import SET_EPOCH_LEAP
from tests.cli.changing import done, mqadmin
from tests.cli.nodes import (
    GET_METADATA_INFO,
    GET_REPLICA_INFO,
    REGISTER_BROKER,
    Group,
    Node,
    broker_address,
    group,
    join,
)

pytestmark = pytest.mark.slow
SET = {"brokerName": "broker-a"}


@pytest.fixture
def trio(tmp_path: Path) -> Iterator[Group]:
    with group(tmp_path) as one:
        yield one


def renamed(old: Node, folder: Path, group_name: str, peers: str) -> Node:
    """The same node with an empty store in another group."""
    return Node(folder, old.name, old.port, {
        **old.properties,
        "controllerDLegerGroup": group_name,
        "controllerDLegerPeers": peers,
        "controllerStorePath": str(folder / f"store-{group_name}-{old.name}"),
    })  # fmt: skip


def test_group_when_its_majority_is_lost_then_rescued_as_another_that_the_lost_cannot_enter(
    trio: Group, tmp_path: Path
) -> None:
    """Two of three disks are gone; one of them turns up again later."""
    leader = trio.wait_leader()
    connection = join(leader, "broker-a", 1)
    before = leader.ask(GET_REPLICA_INFO, SET)
    left, lost, other = trio.nodes
    file = tmp_path / "state.json"
    addresses = ";".join(node.address for node in trio.nodes)
    rescue = (
        "rescueControllers", "-a", addresses, "-s", str(left.store), "-o", str(file),
    )  # fmt: skip
    lost.kill()
    other.kill()
    running = mqadmin(*rescue, "--accept-loss")
    assert running.exit_code == 1
    assert f"the controller at {left.address} runs" in running.output
    elsewhere = f"127.0.0.1:{trio.spare_ports[0]}"
    locked = mqadmin(rescue[0], "-a", elsewhere, *rescue[3:], "--accept-loss")
    assert locked.exit_code == 1
    assert "is in use by another process" in locked.output
    left.kill()
    connection.close()
    kept = {path.name: path.read_bytes() for path in left.store.iterdir()}
    asked = mqadmin(*rescue)
    assert asked.exit_code == 1
    assert "What was committed behind that by the lost nodes alone is gone" in asked.output
    assert not file.exists()
    told = done(*rescue, "--accept-loss")
    assert told["rescuedGroup"] == "test"
    assert {path.name: path.read_bytes() for path in left.store.iterdir()} == kept, "it is a copy"

    # A new group of the old name is refused: the lost would be at home in it.
    peers = f"{left.name}-{left.address}"
    same = renamed(left, tmp_path, "test", peers)
    trio.nodes.append(same)
    same.start().wait_boot()
    trio.nodes = [same]
    trio.wait_leader()
    refused = mqadmin(
        "importControllerState", "-a", same.address, "-f", str(file), "-u", "broker-a"
    )
    assert refused.exit_code == 1
    assert "runs: stop it first" in refused.output
    same.kill()

    new = renamed(left, tmp_path, "test2", peers)
    trio.nodes = [new]
    new.start().wait_boot()
    trio.wait_leader()
    take_in = ("importControllerState", "-a", new.address, "-f", str(file))
    doubtful = mqadmin(*take_in)
    assert doubtful.exit_code == 1
    assert "its master does not answer" in doubtful.output
    assert done(*take_in, "-u", "broker-a") == {"broker-a": "imported"}
    after = new.ask(GET_REPLICA_INFO, SET)
    assert after.ext == before.ext
    body = json.loads(after.body)
    assert body["syncStateSet"] == [1]
    assert body["syncStateSetEpoch"] == 1 + SET_EPOCH_LEAP
    next_id = new.ask(1012, {**SET, "clusterName": "TestCluster"})
    assert next_id.ext["nextBrokerId"] == "102"

    # One of the lost turns up with its store: nobody listens to it, and it leads nobody.
    lost.start().wait_boot()
    reason = "group 'test' knocked at group 'test2'"
    new.wait_logged("raft_peer_refused", reason=reason)
    lost.wait_logged("raft_peer_refused_us", reason=reason, peer=left.name)
    assert lost.ask(GET_REPLICA_INFO, SET).code == 2007
    assert lost.ask(GET_METADATA_INFO).ext["isLeader"] == "false"
    lost.kill()

    # Emptied and renamed it joins, and the group is safe again.
    joins = renamed(lost, tmp_path, "test2", f"{peers};{lost.name}-{lost.address}")
    trio.nodes.append(joins)
    joins.start().wait_boot()
    added = done(
        "addController", "-a", new.address, "-i", joins.name, "--address", joins.address
    )  # fmt: skip
    assert added["done"] == "joined"
    views = done("controllerViews", "-a", new.address)
    assert views["brokerSets"] == {"broker-a": "MATCHING"}
    # The broker registers with the id that it has, as it does when it starts.
    who = {**SET, "clusterName": "TestCluster", "brokerId": 1, "brokerAddress": broker_address(1)}
    assert trio.wait_leader().ask(REGISTER_BROKER, who).code == 0
