"""Batches of ``bin/simulate``: each kind of story says what it must hold, and lacks it where nothing is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing

import pytest
from click.testing import CliRunner

from rmqha.cli.simulate import COVERED_FROM, SHRUNK, main
from rmqha.sim.batch import Played, Run
from rmqha.sim.coverage import GIVEN_UP, REFUSED
from rmqha.sim.emptied_swarm import EMPTIED_WANTED, run_emptied_seed
from rmqha.sim.java_peer import HAPPENED, run_java_peer_seed
from rmqha.sim.members_swarm import run_members_seed
from rmqha.sim.replica_cluster import ReplicaCluster
from rmqha.sim.replica_options import ReplicaOptions
from rmqha.sim.replica_swarm import ReplicaSwarm, run_replica_seed
from rmqha.sim.storm_swarm import run_storm_seed
from rmqha.sim.swarm import run_seed
from rmqha.sim.wanted import LIVED, RARE, REPLICA_FAULTS, WANTED, uncovered

STORIES = [
    "--replicas", "--services", "--java-peer", "--pressed", "--members", "--probes", "--stopped",
    "--rot", "--emptied", "--storms", "",
]  # fmt: skip


def play(
    monkeypatch: pytest.MonkeyPatch, story: str, count: int, counts: dict[str, int]
) -> tuple[int, str]:
    """The exit code and the words of a batch of seeds that cost nothing."""

    def batch(run: Run, first: int, count: int, processes: int) -> Iterator[Played]:
        for seed in range(first, first + count):
            yield Played(seed, counts=counts)

    monkeypatch.setattr("rmqha.cli.simulate.play_batch", batch)
    options = [story] if story else []
    result = CliRunner().invoke(main, ["1", "--count", str(count), *options])
    return result.exit_code, result.output


@pytest.mark.parametrize("story", STORIES)
def test_batch_when_nothing_happens_in_it_then_it_fails(
    story: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A story that does nothing any more would look like one that breaks nothing."""
    code, told = play(monkeypatch, story, COVERED_FROM, {})
    assert code == 1
    assert "never happened in this batch: " in told


@pytest.mark.parametrize("story", STORIES)
def test_batch_when_a_search_was_given_up_then_it_fails_however_short(
    story: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls of which nobody knows whether they have an order were not checked."""
    assert play(monkeypatch, story, 2, {})[0] == 0
    code, told = play(monkeypatch, story, 2, {GIVEN_UP: 1})
    assert code == 1
    assert "searches given up in this batch: 2" in told


def test_batch_of_replicas_when_something_did_not_happen_then_it_is_named() -> None:
    """What the tests of seeds ask for, a long batch asks for as well."""
    assert {*LIVED, *RARE} <= {*WANTED[run_replica_seed]}
    assert {*HAPPENED} <= {*WANTED[run_java_peer_seed]}
    assert {*EMPTIED_WANTED} <= {*WANTED[run_emptied_seed]}
    counts = Counter(dict.fromkeys(WANTED[run_replica_seed], 1))
    assert uncovered(run_replica_seed, 1, counts) == []
    del counts["fault: quiet return"], counts[RARE[0]]
    assert uncovered(run_replica_seed, 1, counts) == [RARE[0], "fault: quiet return"]


def test_faults_of_replicas_when_a_batch_asks_for_them_then_stories_have_them() -> None:
    """A kind that a batch does not ask for may never be played again."""
    cluster = ReplicaCluster(1, ReplicaOptions())
    with closing(cluster):
        kinds = ReplicaSwarm(cluster, cluster.rng).kinds
    assert {f"fault: {name}" for name in kinds} == {*REPLICA_FAULTS}


@pytest.mark.parametrize("run", [run_seed, run_storm_seed])
def test_batch_of_controllers_when_nothing_out_of_date_came_then_it_is_named(run: Run) -> None:
    """Checks that no request reaches are not tested."""
    assert {*REFUSED} <= {*uncovered(run, 1, {})}


def test_stories_that_are_cut_down_are_those_that_the_documents_name() -> None:
    """Others print the whole story."""
    assert set(SHRUNK) == {run_seed, run_storm_seed}
    assert run_members_seed not in SHRUNK
