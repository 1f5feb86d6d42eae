"""What one controller says of its group and of all broker sets (60022)."""

from __future__ import annotations

from rmqha.controller.metadata.state import BrokerSet, Replica
from rmqha.controller.view import controller_view
from tests.controller.raft.cluster import Cluster

SETS = {
    "broker-a": BrokerSet(
        "c", "broker-a", 2, replicas={1: Replica("a:1", "x"), 2: Replica("b:1", "y")},
        master_epoch=3, sync_state_set_epoch=4, sync_state_set=(1, 2), master_broker_id=2,
    )
}  # fmt: skip


def view_of(cluster: Cluster, name: str) -> dict:  # type: ignore[type-arg]  # JSON
    core = cluster.cores[name]
    return controller_view("group", core.node, core.leader_id, 7, SETS)


def test_view_when_of_a_leader_then_it_says_how_far_each_member_is() -> None:
    cluster = Cluster(3, spare=1)
    leader = cluster.wait_leader()
    cluster.run(200)
    view = view_of(cluster, leader)
    last = cluster.cores[leader].node.log.last_index
    assert (view["role"], view["leaderId"], view["appliedIndex"]) == ("leader", leader, 7)
    assert not view["changeUnderWay"]
    assert (view["mayVote"], view["standing"]) == (True, "voter")
    others = [one for one in view["members"] if one["id"] != leader]
    assert [(one["matchIndex"], one["recovering"]) for one in others] == [(last, False)] * 2
    assert all(one["votes"] and one["address"].endswith(":9") for one in view["members"])
    assert view["brokerSets"] == {
        "broker-a": {
            "masterBrokerId": 2, "masterEpoch": 3, "syncStateSet": [1, 2], "syncStateSetEpoch": 4,
            "replicas": {"1": "a:1", "2": "b:1"},
        }
    }  # fmt: skip


def test_view_when_of_a_removed_node_then_it_says_so() -> None:
    """Whoever compares views must not count what it knew when it left."""
    cluster = Cluster(3)
    leader = cluster.wait_leader()
    gone = next(one for one in cluster.members if one != leader)
    cluster.leaves(gone)
    cluster.run_until(lambda: cluster.cores[gone].node.is_removed)
    view = view_of(cluster, gone)
    assert view["role"] == "removed"
    assert gone not in [one["id"] for one in view["members"]]
    assert all("matchIndex" not in one for one in view["members"])
