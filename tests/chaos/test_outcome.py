"""Figures of cells, and their report."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.chaos.outcome import Cell, Round, percentile, totals
from rmqha.chaos.report import from_json, markdown, page, summary, to_json


def cell(**more: object) -> Cell:
    """A good one, unless more is said."""
    rounds = [
        Round(0, "crash broker-0", 1, 0, 2000, 40, 60, 90, 85, 10, 3000),
        Round(1, "crash broker-1 <b>", 2, 9000, 2000, None, None, None, 31_000, None, None),
    ]
    values: dict[str, object] = {
        "scenario": "crash-brokers", "controllers": "py", "brokers": "py", "seed": 1,
        "rounds": rounds, "acknowledged": 500, "links_by": "nothing", **more,
    }  # fmt: skip
    return Cell(**values)  # type: ignore[arg-type]


@given(st.lists(st.integers(0, 1000), min_size=1), st.integers(1, 100))
def test_percentile_when_taken_then_so_many_values_are_not_above_it(
    values: list[int], percent: int
) -> None:
    found = percentile(values, percent)
    assert found in values
    assert sum(one <= found for one in values) * 100 >= percent * len(values)
    assert sum(one < found for one in values) * 100 < percent * len(values)


def test_percentile_when_there_is_nothing_then_it_is_refused() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)


@pytest.mark.parametrize(
    "wrong",
    [
        {"lost": ["chaos-0 7"]},
        {"damaged": 1},
        {"broken": ["two masters"]},
        {"rounds": []},
        {"acknowledged": 0},
    ],
)
def test_cell_when_something_is_missing_or_wrong_then_it_is_not_good(
    wrong: dict[str, object],
) -> None:
    """A cell that acknowledged nothing, or broke nothing, has shown nothing."""
    assert cell().is_good
    assert not cell(**wrong).is_good


def test_totals_when_added_then_faults_are_those_of_all_rounds() -> None:
    assert totals([cell(), cell(lost=["a 1"], broken=["x"])]) == (6, 1000, 1, 1)


def test_times_when_a_round_has_none_then_it_does_not_count_as_zero() -> None:
    assert cell().times("elected_ms") == [40]


def test_report_when_a_cell_is_bad_then_table_and_page_say_what() -> None:
    cells = [cell(), cell(scenario="hang-both", lost=["chaos-1 17"])]
    table = markdown(cells)
    assert "lost chaos-1 17" in table
    assert table.count("\n| ") == 3
    assert "0.09 / 31.0 / 31.0 / 31.0" in table
    shown = page(cells)
    assert "Something is wrong" in shown
    assert "crash broker-1 &lt;b&gt;" in shown
    assert "http" not in shown
    assert "Nothing was lost" in page(cells[:1])


@pytest.mark.parametrize(
    "other",
    [
        {"scenario": "hang-both"}, {"controllers": "java"}, {"brokers": "java"}, {"seed": 2},
        {"replicas": 5}, {"asked": "9 rounds"}, {"settings": "slaveReadEnable=true"},
    ],
)  # fmt: skip
def test_cell_when_anything_else_was_asked_for_then_it_does_not_stand_for_it(
    other: dict[str, object],
) -> None:
    """What came of it, and how long that took, is nothing that one asks for."""
    assert cell().is_of(cell(rounds=[], acknowledged=0, took_s=3.0, broken=["x"]))
    assert not cell().is_of(cell(**other))


def test_report_when_read_back_then_the_same() -> None:
    assert from_json(to_json([cell()])) == [cell()]
    assert summary([cell()]).startswith(
        "2 rounds with 3 faults; 500 messages acknowledged, 0 of them"
    )
