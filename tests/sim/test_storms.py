"""Storms of faults: what they cover, that they can be replayed, and bugs that they must find."""

from __future__ import annotations

from collections import Counter

import pytest
from click.testing import CliRunner

from rmqha.cli.simulate import main
from rmqha.sim.coverage import HAPPENINGS as OF_CONTROLLERS
from rmqha.sim.storm_swarm import (
    HAPPENINGS,
    MENDS,
    faults_among,
    make_storm,
    missing_in_storms,
    run_storm_seed,
)
from tests.sim.mutants import MUTANTS, search

SEEDS = 40
FAULTS_A_SEED = 80
FOUND_WITHIN = 10

FOUND = {
    "leader_counts_itself_before_fsync": 1, "one_vote_less_is_enough": 4, "two_votes_a_term": 1,
    "old_terms_commit_by_counting": 1,
}  # fmt: skip
"""Mutants of controllers that storms find as well, and the seed from which on they break their own rule
first: whom too few have elected may also lack entries."""


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_storms_break_no_property_and_the_cluster_works_between_squalls() -> None:
    """Dense faults prove nothing about a cluster that does nothing but restart."""
    counts: Counter[str] = Counter()
    for seed in range(1, SEEDS + 1):
        counts.update(run_storm_seed(seed).counts)
    swarm = make_storm(1)
    swarm.cluster.close()
    assert missing_in_storms(counts, swarm.kinds) == []
    assert faults_among(counts) >= FAULTS_A_SEED * SEEDS


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.parametrize("name", FOUND)
def test_storms_find_a_bug_by_the_rule_that_it_breaks(name: str) -> None:
    (mutant,) = (one for one in MUTANTS if one.name == name)
    found = search(mutant, FOUND[name], FOUND_WITHIN, run_storm_seed)
    assert found is not None
    assert found.failure == mutant.rule, f"seed {found.seed}"
    run_storm_seed(found.seed)


@pytest.mark.sim
@pytest.mark.slow
def test_a_storm_is_replayed_by_its_script() -> None:
    """Which is what cuts a failure down to the faults that it needs."""
    swarm = make_storm(3)
    drawn = swarm.tell(3)
    again = make_storm(3, tuple(swarm.script)).tell(3)
    assert len(swarm.script) >= FAULTS_A_SEED // 2
    assert again.faults == drawn.faults
    assert again.digest == drawn.digest


def test_mends_are_not_counted_as_faults() -> None:
    """A million restarts would be a million of nothing."""
    played = {f"fault: {name}": 7 for name in (*MENDS, "blackout", "ring")}
    assert faults_among({**played, "leader elected": 5}) == 14


def test_what_a_batch_of_storms_lacks_is_named() -> None:
    """A cluster that is never well between two squalls is not tested by them."""
    counts = dict.fromkeys((*HAPPENINGS, *OF_CONTROLLERS), 1) | {HAPPENINGS[1]: 0}
    assert missing_in_storms(counts, ["ring"]) == ["fault: ring", HAPPENINGS[1]]


def test_storms_are_a_kind_of_story_of_their_own() -> None:
    """The message names the option."""
    told = CliRunner().invoke(main, ["1", "--storms", "--members"])
    assert told.exit_code == 2
    assert "--storms are different stories" in told.output
