"""Timeouts that follow the delays that are seen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.controller.raft.patience import WIDEN_MAX, Patience
from rmqha.controller.raft.settings import RaftSettings
from tests.controller.raft.cluster import Cluster

SETTINGS = RaftSettings()


@given(st.lists(st.integers(0, 100_000), max_size=60))
def test_timeouts_when_anything_was_seen_then_within_their_bounds(silences: list[int]) -> None:
    """A node that was stopped for a minute must still notice a dead leader in seconds."""
    patience = Patience(SETTINGS)
    for one in silences:
        patience.heard_after(one)
        patience.round_took(one)
    assert SETTINGS.election_min_ms <= patience.election_min_ms
    assert patience.election_min_ms <= SETTINGS.election_min_ms * WIDEN_MAX
    assert patience.election_min_ms < patience.election_max_ms
    assert SETTINGS.election_max_ms <= patience.quorum_ms <= SETTINGS.election_max_ms * WIDEN_MAX


def test_timeouts_when_all_is_quiet_again_then_as_they_were_set() -> None:
    """One bad moment is forgotten."""
    patience = Patience(SETTINGS)
    patience.heard_after(400)
    assert patience.election_min_ms == 800
    for _ in range(900):
        patience.heard_after(52)
    assert patience.election_min_ms == SETTINGS.election_min_ms
    assert not patience.is_widened


def stalls(cluster: Cluster, count: int) -> tuple[int, int]:
    """Hold the leader's messages back for 400 ms again and again; (leaders, terms used)."""
    leader = cluster.wait_leader()
    cluster.run(2_000)
    first = cluster.cores[leader].node.term
    for _ in range(count):
        leader = cluster.wait_leader()
        for one in cluster.members:
            if one != leader:
                cluster.cut(leader, one)
        cluster.run(400)
        cluster.heal()
        cluster.run(600)
    leader = cluster.wait_leader()
    return len(cluster.watch.leaders), cluster.cores[leader].node.term - first


@pytest.mark.costly
def test_leader_when_it_stalls_again_and_again_then_it_keeps_its_office() -> None:
    """Under ten times the load that fits, leaders changed every few seconds (row C12)."""
    leaders, terms = stalls(Cluster(3, seed=3), 20)
    assert leaders <= 3, f"{leaders} leaders in 20 s, {terms} terms"


@pytest.mark.costly
def test_leader_when_its_connection_is_reset_then_replaced_quickly_all_the_same() -> None:
    """What is learnt of slowness must not slow down what is certain."""
    cluster = Cluster(3, seed=3)
    stalls(cluster, 4)
    leader = cluster.wait_leader()
    start = cluster.now_ms
    cluster.crash(leader)
    cluster.wait_leader(1_000)
    assert cluster.now_ms - start <= 300
