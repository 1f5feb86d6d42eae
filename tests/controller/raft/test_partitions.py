"""Partial partitions: whoever can talk to a majority must be able to lead it."""

from __future__ import annotations

import itertools

import pytest

from tests.controller.raft.cluster import Cluster


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
