"""Cutting a failing story down."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from rmqha.cli.simulate import main
from rmqha.sim.coverage import HAPPENINGS, missing
from rmqha.sim.shrink import same_failure, shrink
from rmqha.sim.story import Fault

SCRIPT = tuple(Fault(float(at), f"kind {at}") for at in range(40))


@pytest.mark.parametrize("needed", [(3,), (0, 39), (5, 6, 30), ()])
def test_a_script_is_cut_down_to_the_faults_that_it_needs(needed: tuple[int, ...]) -> None:
    """People read what is left; every fault too many costs an hour."""
    wanted = {SCRIPT[number] for number in needed}
    assert shrink(SCRIPT, lambda shorter: wanted <= set(shorter)) == tuple(
        SCRIPT[number] for number in needed
    )


def test_a_failure_is_named_without_the_facts_of_its_run() -> None:
    """A shorter script fails at another index; it is the same failure."""
    assert same_failure(ValueError("a rule (index=3)")) == "ValueError: a rule"


def test_what_never_happened_is_named() -> None:
    """A batch without installs says nothing about installs."""
    counts = dict.fromkeys(HAPPENINGS, 1) | {"fault: pause": 1, "snapshot installed": 0}
    assert missing(counts, ["pause", "bridge"]) == ["fault: bridge", "snapshot installed"]
    found = missing({**counts, "ambush: reading": 2}, [], ["reading", "voting"])
    assert found == ["ambush: voting", "snapshot installed"]


@pytest.mark.parametrize("count", ["0", "-3"])
def test_simulate_when_there_is_nothing_to_play_then_says_so(count: str) -> None:
    """A batch of no seeds that ends well would be taken for a good one."""
    result = CliRunner().invoke(main, ["1", "--count", count])
    assert result.exit_code == 2
    assert "is not in the range x>=1" in result.output
