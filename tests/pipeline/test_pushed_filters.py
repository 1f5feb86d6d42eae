"""Filters that Spark pushes into the source of commit logs: what each of them says of the rows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from msgspec.structs import replace
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from rmqha.pipeline.commitlog.batches import Bounds, Wanted
from rmqha.pipeline.commitlog.source import narrowed

FIELDS = {
    "queueId": "queue_id",
    "physicalOffset": "physical_offset",
    "queueOffset": "queue_offset",
    "storeTimestamp": "store_timestamp",
}
EVERYTHING = Wanted()
BEFORE = Bounds(5, 20)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
NOON_MS = 1_772_366_400_000
EAST = timezone(timedelta(hours=5, minutes=30))


@pytest.mark.parametrize("column", FIELDS)
@pytest.mark.parametrize(
    ("made", "alone", "within"),
    [
        (EqualTo, Bounds(7, 7), Bounds(7, 7)),
        (GreaterThan, Bounds(low=7), Bounds(7, 20)),
        (GreaterThanOrEqual, Bounds(low=7), Bounds(7, 20)),
        (LessThan, Bounds(high=7), Bounds(5, 7)),
        (LessThanOrEqual, Bounds(high=7), Bounds(5, 7)),
    ],
)
def test_bound_when_pushed_then_what_may_be_within_is_read(
    column: str, made: type[Any], alone: Bounds, within: Bounds
) -> None:
    """Spark looks at every row once more, so one that is too many does no harm. Times have parts of a
    millisecond: behind one may be some in it."""
    field, one = FIELDS[column], made((column,), 7)
    assert narrowed(EVERYTHING, one) == replace(EVERYTHING, **{field: alone})
    chosen = replace(EVERYTHING, **{field: BEFORE})
    assert narrowed(chosen, one) == replace(EVERYTHING, **{field: within})
    wider = {
        EqualTo: Bounds(30, 20),
        GreaterThan: Bounds(30, 20),
        GreaterThanOrEqual: Bounds(30, 20),
    }
    expected = replace(EVERYTHING, **{field: wider.get(made, BEFORE)})
    assert narrowed(chosen, made((column,), 30)) == expected


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        (0, 0),
        (-3, -3),
        (2**63 - 1, 2**63 - 1),
        (NOON, NOON_MS),
        (NOON + timedelta(microseconds=1), NOON_MS),
        (NOON + timedelta(microseconds=999), NOON_MS),
        (NOON - timedelta(microseconds=1), NOON_MS - 1),
        (NOON.replace(tzinfo=None), NOON_MS),
        (datetime(2026, 3, 1, 17, 30, tzinfo=EAST), NOON_MS),
        (datetime(1969, 12, 31, 23, 59, 59, 999_500, tzinfo=UTC), -1),
    ],
)
def test_value_when_a_number_or_a_time_then_its_whole_milliseconds(value: object, ms: int) -> None:
    """A time without a zone is UTC, and one with a zone is what it is there."""
    found = narrowed(EVERYTHING, EqualTo(("storeTimestamp",), value))  # type: ignore[arg-type]
    assert found == replace(EVERYTHING, store_timestamp=Bounds(ms, ms))


@pytest.mark.parametrize("value", [True, False, 2.5, "7", None, NOON.date(), b"7"])
@pytest.mark.parametrize(
    "made", [EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual]
)
def test_value_when_of_another_kind_then_nothing_is_left_out(
    made: type[Any], value: object
) -> None:
    """How Spark compares it is Spark's matter."""
    for column in FIELDS:
        assert narrowed(EVERYTHING, made((column,), value)) is EVERYTHING


@pytest.mark.parametrize(
    ("one", "alone", "within"),
    [
        (EqualTo(("topic",), "a"), {"a"}, {"a"}),
        (EqualTo(("topic",), "z"), {"z"}, set()),
        (EqualTo(("topic",), None), set(), set()),
        (In(("topic",), ("a", "z", None)), {"a", "z"}, {"a"}),
        (In(("topic",), ()), set(), set()),
    ],
)
def test_topics_when_pushed_then_those_that_are_wanted_already(
    one: Filter, alone: set[str], within: set[str]
) -> None:
    """The option ``topic`` and the filter must both allow a row."""
    assert narrowed(EVERYTHING, one) == replace(EVERYTHING, topics=frozenset(alone))
    chosen = Wanted(topics=frozenset({"a", "b"}))
    assert narrowed(chosen, one) == replace(EVERYTHING, topics=frozenset(within))


@pytest.mark.parametrize(
    "one",
    [
        Not(EqualTo(("topic",), "a")),
        Not(EqualTo(("queueId",), 3)),
        EqualNullSafe(("queueId",), 3),  # type: ignore[arg-type]
        IsNotNull(("topic",)),
        StringStartsWith(("topic",), "a"),
        GreaterThan(("topic",), "a"),  # type: ignore[arg-type]
        In(("queueId",), (1, 2)),
        EqualTo(("flag",), 3),
        EqualTo(("tags",), "a"),
        EqualTo(("bornTimestamp",), NOON),
        EqualTo(("topic", "x"), "a"),
        GreaterThan(("queueId", "x"), 3),
    ],
    ids=str,
)
def test_filter_when_it_says_nothing_of_use_then_nothing_is_left_out(one: Filter) -> None:
    """What cannot be used is Spark's to apply."""
    assert narrowed(EVERYTHING, one) is EVERYTHING
