"""What history-check tells of its findings, and how it ends: without Spark."""

from __future__ import annotations

import pytest

from rmqha.cli.pipeline_history import _line
from rmqha.pipeline.jobs.history_check import Checked, Finding, report
from rmqha.pipeline.jobs.report_page import moment


@pytest.mark.parametrize("ms", [253_402_300_800_000, 1_700_000_000_000_000, 2**63 - 1, -(2**63)])
def test_finding_when_its_times_are_in_no_calendar_then_told_as_they_are(ms: int) -> None:
    """A client that counts in microseconds: all the work was done, and a traceback hid what it found.
    And it ended with the code that means a loss."""
    one = Finding("lost", "T", "b", 0, 7, "k", "p", ms, ms, "passed")
    told = f"{ms} ms"
    assert _line(one) == f"lost T b queue 0 offset 7 key k by p from {told} to {told}: passed"
    assert report(["h"], checked(findings=(one,))).count(f"<td>{told}</td>") == 2


def test_moment_when_it_is_the_last_in_the_calendar_then_a_date() -> None:
    """One later there is none."""
    assert moment(253_402_300_799_999) == "9999-12-31 23:59:59.999"


@pytest.mark.parametrize(
    ("counts", "unread", "unread_ok", "is_bad"),
    [
        ({}, 0, False, False),
        ({"redelivered": 1, "unsent": 2, "unavailable": 3}, 0, False, False),
        ({"lost": 1}, 1, False, True),
        ({"lost": 1}, 1, True, False),
        ({"lost": 2}, 1, True, True),
        ({"conflict": 1}, 0, True, True),
    ],
)
def test_job_when_something_was_lost_or_two_had_one_place_then_bad(
    counts: dict[str, int], unread: int, unread_ok: bool, is_bad: bool
) -> None:
    """What the exit code says: one of two messages at a place is there no more."""
    assert checked(counts=counts, unread=unread).is_bad(unread_ok=unread_ok) == is_bad


def checked(
    *, counts: dict[str, int] | None = None, unread: int = 0, findings: tuple[Finding, ...] = ()
) -> Checked:
    return Checked({}, counts or {}, unread, findings, 0, ())
