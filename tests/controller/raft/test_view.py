"""What one controller says of its group and of all broker sets (60022)."""

from __future__ import annotations

from typing import Any, cast

import orjson
import pytest

from rmqha.base.ids import BrokerId
from rmqha.controller import view
from rmqha.controller.metadata.apply import apply
from rmqha.controller.metadata.events import BrokerAddressUpdated, BrokerDataCleaned, BrokerIdTaken
from rmqha.controller.metadata.state import BrokerSet, MetadataState, Replica
from rmqha.controller.view import controller_view, prepare
from tests.controller.metadata.driving import in_parts, whole
from tests.controller.raft.cluster import Cluster

SETS = {
    "broker-a": BrokerSet(
        "c", "broker-a", 2, replicas={1: Replica("a:1", "x"), 2: Replica("b:1", "y")},
        master_epoch=3, sync_state_set_epoch=4, sync_state_set=(1, 2), master_broker_id=2,
    )
}  # fmt: skip


def view_of(cluster: Cluster, name: str) -> dict[str, Any]:
    core = cluster.cores[name]
    found = controller_view("group", core.node, core.leader_id, 7, SETS)
    return cast(dict[str, Any], orjson.loads(b"".join(found)))


def test_view_when_of_a_leader_then_it_says_how_far_each_member_is() -> None:
    cluster = Cluster(3, spare=1)
    leader = cluster.wait_leader()
    cluster.run(200)
    seen = view_of(cluster, leader)
    last = cluster.cores[leader].node.log.last_index
    assert (seen["role"], seen["leaderId"], seen["appliedIndex"]) == ("leader", leader, 7)
    assert not seen["changeUnderWay"]
    assert (seen["mayVote"], seen["standing"]) == (True, "voter")
    others = [one for one in seen["members"] if one["id"] != leader]
    assert [(one["matchIndex"], one["recovering"]) for one in others] == [(last, False)] * 2
    assert all(one["votes"] and one["address"].endswith(":9") for one in seen["members"])
    assert seen["brokerSets"] == {
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
    seen = view_of(cluster, gone)
    assert seen["role"] == "removed"
    assert gone not in [one["id"] for one in seen["members"]]
    assert all("matchIndex" not in one for one in seen["members"])


def state_of(*sizes: int) -> MetadataState:
    """Sets s0, s1, .. of so many replicas."""
    state = MetadataState()
    for at, size in enumerate(sizes):
        for number in range(1, size + 1):
            apply(state, BrokerIdTaken("c", f"s{at}", "a:1", BrokerId(number), "x"))
    return state


def test_view_when_sets_change_while_it_is_prepared_then_it_is_of_one_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever compares two nodes at one index must not find a difference that never was."""
    monkeypatch.setattr(view, "REPLICAS_A_PART", 6)
    state, node = state_of(*[1] * 9), Cluster(1).cores["n0"].node
    work = prepare(state.sets)
    next(work)
    apply(state, BrokerIdTaken("c", "s0", "b:1", BrokerId(2), "x"))
    apply(state, BrokerIdTaken("c", "t", "b:1", BrokerId(1), "x"))
    apply(state, BrokerDataCleaned("s8", None))
    assert in_parts(work) == (True, 1)
    written = [name for name, one in state.sets.items() if one.cached_view]
    assert written == [f"s{at}" for at in range(1, 8)]
    again = state_of(2, *[1] * 7)
    apply(again, BrokerIdTaken("c", "t", "b:1", BrokerId(1), "x"))
    apply(again, BrokerAddressUpdated("s0", "s0", "b:1", BrokerId(2)))
    assert controller_view("g", node, None, 7, state.sets) == controller_view(
        "g", node, None, 7, again.sets
    )


def test_view_when_it_fits_into_no_frame_then_the_rest_is_not_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(view, "FRAME_BYTES_MAX", 300)
    state = state_of(*[1] * 9)
    assert not whole(prepare(state.sets))
    assert sum(one.cached_view is not None for one in state.sets.values()) == 3
