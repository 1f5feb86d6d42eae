"""Partial partitions: whoever can talk to a majority must be able to lead it."""

from __future__ import annotations

import itertools

import pytest

from tests.controller.raft.cluster import Cluster


@pytest.mark.costly
@pytest.mark.few
@pytest.mark.parametrize("one_way", [False, True])
@pytest.mark.parametrize(("x", "bridge", "y"), [*itertools.permutations(("n0", "n1", "n2"))])
def test_bridge_when_only_it_can_talk_to_a_majority_then_it_leads(
    x: str, bridge: str, y: str, one_way: bool
) -> None:
    """Without a leader the brokers of the whole group have nobody to ask (row C4)."""
    for seed in range(4):
        cluster = Cluster(5, seed=seed)
        cluster.wait_leader()
        for dead in ("n3", "n4"):
            cluster.crash(dead)
        cluster.cut(x, y)
        if not one_way:
            cluster.cut(y, x)
        cluster.run(1_000)
        leader = cluster.wait_leader(3_000)
        if not one_way:
            assert leader == bridge


@pytest.mark.slow
def test_bridge_when_its_patience_has_grown_then_rivals_cost_it_no_widened_timeouts() -> None:
    """Where a leader was cut off for a second, the next one could be nine seconds in coming."""
    widened, waited_ms = 0, []
    for seed in range(8):
        cluster = Cluster(5, seed=seed)
        leader = cluster.wait_leader()
        *_, other = others = [one for one in cluster.members if one != leader]
        low, middle, bridge = others[:3]
        node = cluster.cores[bridge].node
        node.patience.heard_after(900)
        cluster.crash(leader)
        cluster.crash(other)
        cluster.cut(low, middle)
        cluster.cut(middle, low)
        start_ms = cluster.now_ms
        assert cluster.wait_leader(10_000) == bridge
        waited_ms.append(cluster.now_ms - start_ms)
        widened += node.patience.is_widened
    assert widened == len(waited_ms)
    assert max(waited_ms) <= 5 * node.settings.election_max_ms, waited_ms
