"""What a slow machine leaves out: parameters of tests, never a test."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from tests.share import LEAST_SHARE, STEPS, left_out, share_at


@dataclass(frozen=True)
class Item:
    """As pytest names a test."""

    nodeid: str


COUNTS = st.lists(st.integers(1, 7), min_size=1, max_size=5)


def items_of(counts: list[int]) -> list[Item]:
    """Tests a, b, c, ... with so many parameters each; one alone has none."""
    return [
        Item(f"t.py::{chr(97 + test)}" + (f"[{number}]" if count > 1 else ""))
        for test, count in enumerate(counts)
        for number in range(count)
    ]


@given(COUNTS, st.integers(1, 5), st.integers(0, 9999))
def test_share_when_taken_then_every_test_runs_with_some_parameter(
    counts: list[int], share: int, turn: int
) -> None:
    items = items_of(counts)
    gone = left_out(items, share, turn)
    kept = [item for item in items if item not in gone]
    assert {one.nodeid.partition("[")[0] for one in kept} == {
        one.nodeid.partition("[")[0] for one in items
    }
    for test, count in enumerate(counts):
        of_test = [one for one in kept if one.nodeid.partition("[")[0] == f"t.py::{chr(97 + test)}"]
        assert len(of_test) <= -(-count // min(share, count))


@given(COUNTS, st.integers(1, 5), st.integers(0, 9999))
def test_turns_when_they_follow_each_other_then_they_run_everything(
    counts: list[int], share: int, turn: int
) -> None:
    items = items_of(counts)
    never = set(items)
    for step in range(share):
        never &= set(left_out(items, share, turn + step))
    assert never == set()


def test_machine_when_it_is_as_quick_as_most_then_everything_is_run() -> None:
    assert share_at(0.25) == 1
    assert [share_at(limit) for limit, _ in STEPS] == [share for _, share in STEPS]
    assert share_at(9.0) == LEAST_SHARE
