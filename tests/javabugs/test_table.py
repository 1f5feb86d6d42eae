"""docs/known-java-bugs.md is what the tree has: each bug a test and a mutant, each mutant a row."""

from __future__ import annotations

import re

import pytest
from msgspec import Struct

from tests.javabugs import MUTANTS
from tests.javabugs.mutant import ROOT
from tests.reproduce.scenarios import SCENARIOS

PAGE = ROOT / "docs" / "known-java-bugs.md"
CELL = re.compile(r"(?<!\\)\|")
LINK = re.compile(r"\[(test_\w+)\]\(\.\./tests/([^)]+)\)")
SHOWN = re.compile(r"`bin/reproduce (\d+)`")
NAME = re.compile(r"`(\w+)`")
# Section by section of what was collected; further ones are added behind it.
FIRST_KNOWN, LAST_KNOWN = 1, 62


class Row(Struct, frozen=True):
    """One row: its tests as (name, file below tests), its mutants' names, what shows it."""

    number: int
    tests: frozenset[tuple[str, str]]
    mutants: frozenset[str]
    shown: tuple[int, ...]


def rows_of(text: str) -> list[Row]:
    """The numbered rows of the page."""
    found = []
    for line in text.splitlines():
        cells = [one.strip() for one in CELL.split(line)[1:-1]]
        if cells and cells[0].isdigit():
            _, _, _, _, tests, mutants, shown = cells
            found.append(
                Row(
                    int(cells[0]),
                    frozenset(LINK.findall(tests)),
                    frozenset(NAME.findall(mutants)),
                    tuple(int(one) for one in SHOWN.findall(shown)),
                )
            )
    return found


def complaints(rows: list[Row]) -> list[str]:
    """Where the rows and the mutants part."""
    wrong = [f"row {one.number} has no test" for one in rows if not one.tests]
    wrong += [f"row {one.number} has no mutant" for one in rows if not one.mutants]
    for row in rows:
        mine = [mutant for mutant in MUTANTS if mutant.number == row.number]
        strangers = row.mutants ^ {mutant.name for mutant in mine}
        wrong += [f"row {row.number}: mutant {name}" for name in sorted(strangers)]
        missing = {(mutant.test, mutant.file) for mutant in mine} - row.tests
        wrong += [f"row {row.number} does not name {name}" for name, _ in sorted(missing)]
        expected = (row.number,) if row.number in SCENARIOS else ()
        if row.shown != expected:
            wrong.append(f"row {row.number} is shown by {row.shown}, not by {expected}")
    wrong += [f"no row {one} to show" for one in SCENARIOS if one not in {r.number for r in rows}]
    unknown = {mutant.number for mutant in MUTANTS} - {row.number for row in rows}
    return wrong + [f"no row {number}" for number in sorted(unknown)]


ROWS = rows_of(PAGE.read_text())


def test_table_when_held_against_the_tree_then_each_has_the_other() -> None:
    """Links are looked up by tests/test_documents.py."""
    assert [row.number for row in ROWS] == list(range(FIRST_KNOWN, LAST_KNOWN + 1))
    assert complaints(ROWS) == []


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.name)
def test_mutant_when_read_then_it_says_what_it_is(mutant: object) -> None:
    """Its docstring is what a reader finds by the name."""
    assert (mutant.patch.__doc__ or "").strip()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("`offsets_are_compared_as_int`", "`gone`", "row 4: mutant gone"),
        ("`offsets_are_compared_as_int`", "", "row 4 has no mutant"),
        (
            "[test_elect_when_offsets",
            "[test_another",
            "row 4 does not name test_elect_when_offsets",
        ),
        ("\n| 4 |", "\n| 400 |", "no row 4"),
        ("\n| 4 |", "\n| 400 |", "no row 4 to show"),
        ("`bin/reproduce 4`", "", "row 4 is shown by"),
        ("`bin/reproduce 4`", "`bin/reproduce 5`", "row 4 is shown by"),
    ],
)
def test_table_when_it_is_wrong_then_it_is_told(before: str, after: str, said: str) -> None:
    """A comparison that finds nothing may be blind."""
    text = PAGE.read_text()
    assert before in text
    assert any(one.startswith(said) for one in complaints(rows_of(text.replace(before, after))))
