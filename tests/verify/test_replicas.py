"""One log, one state: what the watch compares, and what it says."""

from __future__ import annotations

import dataclasses

import pytest
from msgspec import Struct

from rmqha.base.errors import InvariantBroken
from rmqha.verify.replicas import StateWatch, difference, freeze


class Record(Struct, frozen=True):
    """As the elections are kept: nothing in it changes."""

    epoch: int
    candidates: tuple[str, ...] = ()


class Holder(Struct, frozen=True):
    """Frozen itself, with a list that is not."""

    names: list[str]


class Opaque(Struct, frozen=True, eq=False):
    """Two of them are never equal by ``==``, whatever they hold."""

    epoch: int


@dataclasses.dataclass
class State:
    """A state with a cache that takes no part in comparisons."""

    sets: dict[str, object]
    cache: int = dataclasses.field(default=0, compare=False)


def test_states_when_a_frozen_record_differs_then_the_difference_is_named() -> None:
    watch = StateWatch()
    watch.applied("n0", 7, State({"a": [Record(1), Record(2, ("x",))]}))
    watch.applied("n1", 7, State({"a": [Record(1), Record(2, ("x",))]}, cache=9))
    with pytest.raises(InvariantBroken, match="applied the same entries and differ") as broken:
        watch.applied("n2", 7, State({"a": [Record(1), Record(2, ("y",))]}))
    assert "difference=('x', 'y')" in str(broken.value)


def test_states_when_looked_at_then_later_changes_do_not_reach_what_was_kept() -> None:
    state = State({"a": Holder(["x"])})
    watch = StateWatch()
    watch.applied("n0", 7, state)
    state.sets["a"].names.append("y")  # type: ignore[attr-defined]
    with pytest.raises(InvariantBroken):
        watch.applied("n1", 7, state)


def test_freeze_when_nothing_in_a_record_can_change_then_it_is_not_copied() -> None:
    """A state holds hundreds of elections, and is looked at after every entry."""
    record = Record(1, ("x",))
    assert freeze(State({"a": record})) == ((("a", record),),)
    assert freeze(State({"a": record}))[0][0][1] is record  # type: ignore[index]


def test_freeze_when_a_kind_has_no_equality_then_it_is_read_field_by_field() -> None:
    assert freeze(Opaque(3)) == freeze(Opaque(3)) == (3,)


def test_difference_when_lengths_or_kinds_differ_then_that_level_is_told() -> None:
    assert difference((1, 2), (1, 2, 3)) == ((1, 2), (1, 2, 3))
    one, other = Record(2), Opaque(2)
    assert difference((1, one), (1, other)) == (one, other)
