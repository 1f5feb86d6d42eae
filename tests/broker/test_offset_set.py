"""Queue offsets as stretches of neighbours."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.broker.deferred.offset_set import OffsetSet


@pytest.mark.costly
@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 30)), max_size=60))
def test_offsets_when_taken_and_forgotten_then_a_set_says_the_same(
    steps: list[tuple[bool, int]],
) -> None:
    """In any order, and more than once."""
    found, expected = OffsetSet(), set[int]()
    for is_taken, offset in steps:
        if is_taken:
            found.add(offset)
            expected.add(offset)
        else:
            found.forget_before(offset)
            expected = {one for one in expected if one >= offset}
        assert [one for one in range(-1, 33) if one in found] == sorted(expected)
        assert len(found) == sum(one - 1 not in expected for one in expected)


def test_offsets_when_they_follow_one_another_then_they_take_no_memory() -> None:
    """A table that is full of open transactions learns of all that end meanwhile."""
    found = OffsetSet()
    for offset in range(1, 10_001):
        found.add(offset)
    assert len(found) == 1
    assert 10_000 in found
    assert 10_001 not in found
