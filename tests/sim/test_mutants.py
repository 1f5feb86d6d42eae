"""Bugs put in on purpose: the simulator must find each of them, or its silence means nothing."""

from __future__ import annotations

import pytest

from rmqha.controller.raft import node, quorum
from rmqha.sim.swarm import run_seed
from tests.sim.mutants import MUTANTS, Mutant, search

SEEDS_MAX = 25


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.turns(3)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.name)
def test_the_simulator_finds_a_bug_by_the_rule_that_it_breaks(mutant: Mutant) -> None:
    """By that rule and no other, and the same seed passes without the bug."""
    found = search(mutant, mutant.first_seed, SEEDS_MAX)
    assert found is not None, f"{SEEDS_MAX} seeds from {mutant.first_seed} on found nothing"
    print(f"{mutant.name}: seed {found.seed}, {found.seconds:.1f} s")
    assert mutant.rule == found.failure, f"seed {found.seed}"
    run_seed(found.seed)


def test_mutants_have_names_of_their_own_and_rules() -> None:
    """Two of one name would hide each other in the table."""
    assert len({one.name for one in MUTANTS}) == len(MUTANTS) >= 30
    assert all(one.rule for one in MUTANTS)


def test_quorum_arithmetic_is_what_the_mutant_replaces() -> None:
    """If the name moved, the mutant would change nothing."""
    assert node.reached_by_majority is quorum.reached_by_majority
