"""Controllers as processes whose group changes while brokers ask them: 3 to 5 to 3, all replaced."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqha.testing.real.processes import wait_until
from tests.cli.changing import Reader, done, joiner, mqadmin
from tests.cli.nodes import END_S, GET_METADATA_INFO, GET_REPLICA_INFO, Group, group, join

pytestmark = pytest.mark.slow

PAUSE_MAX_S = 1.0
"""Beside other tests; ``bin/bench members`` measures what it takes on a machine of its own."""


@pytest.fixture
def trio(tmp_path: Path) -> Iterator[Group]:
    with group(tmp_path) as one:
        yield one
        for node in one.nodes:
            node.kill()


def test_members_when_all_are_replaced_under_load_then_no_read_fails(
    trio: Group, tmp_path: Path
) -> None:
    """Three founders, two more, the founders go one by one, the last is the leader: nothing fails."""
    leader = trio.wait_leader()
    connection = join(leader, "broker-a", 1)
    addresses = [node.address for node in trio.nodes]
    reader = Reader(addresses, "broker-a")
    reader.start()
    try:
        for number in (3, 4, 5):
            node = joiner(trio, tmp_path, number)
            addresses.append(node.address)
            assert done("addController", "-a", leader.address, "-i", node.name, "--address",
                        node.address)["done"] == "joined"  # fmt: skip
        founders = [node for node in trio.nodes[:3] if node is not leader] + [leader]
        for node in founders:
            done("removeController", "-a", trio.nodes[-1].address, "-i", node.name)
            node.wait_logged("raft_removed")
            node.kill()
        views = done("controllerViews", "-a", trio.nodes[-1].address)
    finally:
        reader.over.set()
        reader.join()
    connection.close()
    assert {one["id"] for one in views["members"]} == {"n3", "n4", "n5"}  # type: ignore[index]  # JSON
    assert views["brokerSets"] == {"broker-a": "MATCHING"}
    assert reader.wrong == []
    assert reader.answers > 100
    assert reader.longest_s < PAUSE_MAX_S
    # The files of those who are left name founders that are gone: the log is right.
    for node in trio.nodes[3:]:
        node.kill()
    for node in trio.nodes[3:]:
        node.start()
    for node in trio.nodes[3:]:
        node.wait_boot().wait_logged("raft_members_differ")
    del trio.nodes[:3]
    assert trio.wait_leader().ask(GET_REPLICA_INFO, {"brokerName": "broker-a"}).code == 0


def test_member_when_it_joins_then_it_is_ready_only_with_a_vote_and_can_lead(
    trio: Group, tmp_path: Path
) -> None:
    leader = trio.wait_leader()
    node = joiner(trio, tmp_path, 3)
    done("addController", "-a", leader.address, "-i", "n3", "--address", node.address)
    # On a busy machine another one may be elected before it asks for votes.
    handed_over = "transferControllerLeader", "-a", ";".join(one.address for one in trio.nodes)
    wait_until(lambda: mqadmin(*handed_over, "-i", "n3").exit_code == 0, END_S, "n3 leads", 0.1)
    # On a busy machine it may have passed on by now.
    node.wait_logged("raft_role_changed", role="leader")
    peers = node.ask(GET_METADATA_INFO).ext["peers"]
    assert f"n3:{node.address};" in peers
    refused = mqadmin("transferControllerLeader", "-a", leader.address, "-i", "n7")
    assert refused.exit_code != 0
    assert "n7 is not among" in refused.output
    refused = mqadmin("addController", "-a", leader.address, "-i", "n0", "--address", "other:1")
    assert "n0 is a member at" in refused.output


def test_views_when_all_nodes_got_new_addresses_then_they_are_asked_there(trio: Group) -> None:
    """After a change of members the log has addresses, and after one of addresses they are old."""
    leader = trio.wait_leader()
    nobody = ("-i", "n9", "--address", "127.0.0.1:1")
    failed = mqadmin("addController", "-a", leader.address, *nobody, "-w", "1")
    assert (failed.exit_code, failed.stderr) == (1, "mqadmin: n9 has no vote after 1 s\n")
    done("removeController", "-a", leader.address, "-i", "n9")
    failed = mqadmin("removeController", "-a", leader.address, "-i", "n99")
    assert (failed.exit_code, "n99 is no member" in failed.stderr) == (1, True)
    for node in trio.nodes:
        node.kill()
    for node in trio.nodes:
        node.port = trio.spare_ports.pop()
        node.address = f"127.0.0.1:{node.port}"
    peers = ";".join(f"{node.name}-{node.address}" for node in trio.nodes)
    for node in trio.nodes:
        node.properties["controllerDLegerPeers"] = peers
        node.start()
    for node in trio.nodes:
        node.wait_boot()
    trio.wait_leader()
    views = done("controllerViews", "-a", trio.nodes[0].address)
    assert {one["id"]: one["address"] for one in views["members"]} == {  # type: ignore[index]
        node.name: node.address for node in trio.nodes
    }
    assert views["views"].keys() == {"n0", "n1", "n2"}  # type: ignore[attr-defined]  # JSON
