"""Numbers in options of the source, and what is none: without Spark."""

from __future__ import annotations

import pytest

from rmqha.base.errors import ConfigInvalid
from rmqha.pipeline.commitlog.batches import Bounds
from rmqha.pipeline.commitlog.numbers import number_of
from rmqha.pipeline.commitlog.source import PART_BYTES_MIN, _bounds, _part_bytes
from rmqha.pipeline.commitlog.up_to import UpTo

MANY = "9" * 5000
ARABIC = "\N{ARABIC-INDIC DIGIT SEVEN}"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0), ("100", 100), ("007", 7), ("0" * 5000 + "7", 7), ("101", None), ("1000", None),
        (MANY, None), (ARABIC, None), ("", None), ("-1", None), ("+1", None), (" 1", None),
        ("1_0", None), ("1.0", None),
    ],
)  # fmt: skip
def test_number_when_written_in_an_option_then_read_or_none(text: str, number: int | None) -> None:
    """Up to 100."""
    assert number_of(text, 100) == number


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("7", Bounds(7, 7)), ("7-20", Bounds(7, 20)), ("7-7", Bounds(7, 7)),
        ("8-7", Bounds(8, 7)), ("7-", Bounds(7, Bounds().high)), ("-20", Bounds(Bounds().low, 20)),
    ],
)  # fmt: skip
def test_bounds_when_written_then_both_ends_are_in(text: str, found: Bounds) -> None:
    """Either may be left out; behind the last one that was read there may be nothing yet."""
    assert _bounds({"queueId": text}, "queueId") == found


@pytest.mark.parametrize(
    "text", ["7-5", ARABIC, f"1-{ARABIC}", MANY, f"1-{MANY}", "-", "", "1-2-3", "x", str(1 << 63)]
)
def test_bounds_when_they_are_none_then_said(text: str) -> None:
    """No rows and no error came of some, and Python's own words of others."""
    with pytest.raises(ConfigInvalid, match="queueId="):
        _bounds({"queueId": text}, "queueId")


@pytest.mark.parametrize("text", [MANY, str(PART_BYTES_MIN - 1), ARABIC * 9, ""])
def test_part_bytes_when_they_are_none_then_said(text: str) -> None:
    """As any other wrong number."""
    with pytest.raises(ConfigInvalid, match="partBytes="):
        _part_bytes({"partBytes": text})
    assert _part_bytes({"partBytes": str(PART_BYTES_MIN)}) == PART_BYTES_MIN


def test_end_when_it_is_thousands_of_digits_long_then_said() -> None:
    """It was Python's own error."""
    with pytest.raises(ConfigInvalid, match="upTo="):
        UpTo.parse(MANY)
