"""Rows of damage that stay in a lake: without Spark."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from rmqha.pipeline.lake.cells import ROTTEN
from rmqha.pipeline.lake.damage_kept import DamageRow, damage_kept, rotten_places


def row(at: int, reason: str = ROTTEN) -> DamageRow:
    """Of ten bytes."""
    return DamageRow("r", at, 10, reason, "c", "b")


BEFORE = [row(50), row(100), row(200), row(300, "no record"), row(900)]


@pytest.mark.parametrize(
    ("new", "read_again", "kept"),
    [
        # All topics: whatever lies in what was read is told anew, or is well.
        ([], None, {50, 900}),
        # Of a topic, whose message at 100 is well now; the one at 200 is another's.
        ([], {100}, {50, 200, 900}),
        ([], set(), {50, 100, 200, 900}),
        # A range is damaged now that holds the message.
        ([row(195, "no record")], set(), {50, 100, 900}),
        ([row(200, "no record")], set(), {50, 100, 900}),
        ([row(190, "no record")], set(), {50, 100, 200, 900}),
    ],
)
def test_damage_when_a_topic_is_exported_then_other_topics_messages_stay_rotten(
    new: list[DamageRow], read_again: Collection[int] | None, kept: set[int]
) -> None:
    """Nobody has looked at them; the export of one topic said that all of them were well."""
    found = damage_kept(BEFORE, new, (100, 900), read_again)
    assert {one.at for one in found} == kept


def test_places_when_asked_for_then_of_rotten_messages_only() -> None:
    """Damaged ranges are looked for in the whole log."""
    assert rotten_places(BEFORE) == {50, 100, 200, 900}
