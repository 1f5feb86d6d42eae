"""Each of Java's bugs, brought back: the test of its row fails, where it should."""

from __future__ import annotations

import pytest

from rmqha.base.errors import InvariantBroken
from tests.controller.raft.conftest import close_clusters
from tests.javabugs import MUTANTS, Mutant
from tests.javabugs.mutant import failing_line

__all__ = ["close_clusters"]


def _identity(mutant: Mutant) -> str:
    return f"{mutant.number}-{mutant.name}"


@pytest.mark.costly
@pytest.mark.turns(3)
@pytest.mark.parametrize("mutant", MUTANTS, ids=_identity)
def test_java_bug_when_it_is_back_then_its_test_fails_there(mutant: Mutant) -> None:
    """By the assertion that tells of the bug, and by no other; without the bug it passes."""
    mutant.run()
    with pytest.MonkeyPatch.context() as patch:
        mutant.patch(patch)
        # A group under test is watched, too: who is elected must have what is committed.
        with pytest.raises((AssertionError, InvariantBroken)) as caught:
            mutant.run()
    line = failing_line(caught.value, mutant)
    assert line is not None
    assert mutant.fails_at in line
    mutant.run()


@pytest.mark.parametrize("mutant", MUTANTS, ids=_identity)
def test_line_of_a_mutant_when_looked_for_then_there_is_one_such_in_the_test(
    mutant: Mutant,
) -> None:
    """A part that fits several lines would take any of them for the reason."""
    source = mutant.path.read_text()
    body = source[source.index(f"def {mutant.test}(") :].partition("\n\n\n")[0]
    assert body.count(mutant.fails_at) == 1


def test_mutants_have_names_of_their_own() -> None:
    """Two of one name would hide each other in the table."""
    assert len({one.name for one in MUTANTS}) == len(MUTANTS) > 30


def test_error_when_it_never_was_in_the_test_then_no_line_is_found() -> None:
    """Whatever fails elsewhere is no proof."""
    assert failing_line(AssertionError("elsewhere"), MUTANTS[0]) is None
