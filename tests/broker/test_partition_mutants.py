"""Faults put in on purpose: the stories of partitions and of Java's rule must find each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from rmqha.broker.topics.metadata_change import Change
from rmqha.ha.membership import Membership
from tests.broker.partition_story import JAVA_RULE, LONG_MS
from tests.broker.test_remap_mutants import goes_on_taking, takes_undecided
from tests.broker.test_remaps_under_partitions import tell, tell_kills

Patch = Callable[[pytest.MonkeyPatch], None]
Story = Callable[[], Counter[str]]


def never_loses_its_lease(patch: pytest.MonkeyPatch) -> None:
    """A master that nobody in charge hears goes on acknowledging, when another reigns already."""
    patch.setattr(Membership, "is_leased", lambda self, now_ms: True)


def forgets_mappings(patch: pytest.MonkeyPatch) -> None:
    """Records say nothing of mappings, so only the master has them."""
    encode = Change.encode
    patch.setattr(Change, "encode", lambda change: encode(replace(change, mappings=())))


MUTANTS: dict[str, tuple[Patch, Story, str]] = {
    "never loses its lease": (
        never_loses_its_lease,
        lambda: tell("old leader and all others", 1, LONG_MS, **JAVA_RULE),
        r"queue \d: (\[|\d+ at \d+)",
    ),
    "forgets mappings": (
        forgets_mappings,
        lambda: tell_kills("kill_when_held", 8, 0, **JAVA_RULE),
        r"is led by|queue \d: \d+ at \d+",
    ),
    "goes on taking": (
        goes_on_taking,
        lambda: tell("operator and new leader", 6, LONG_MS),
        r"\d+ at \d+|offsets go back|queue \d: \[",
    ),
    "takes undecided": (
        takes_undecided,
        lambda: tell("operator and old leader", 4, LONG_MS),
        r"\d+ at \d+|offsets go back|queue \d: \[",
    ),
}


@pytest.mark.slow
@pytest.mark.turns(3)
@pytest.mark.parametrize("name", MUTANTS)
def test_fault_when_put_in_then_a_story_of_partitions_finds_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A story that passes with one of these proves nothing."""
    change, story, words = MUTANTS[name]
    change(monkeypatch)
    with pytest.raises(AssertionError, match=words):
        story()
