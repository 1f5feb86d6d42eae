"""What a scenario shows of one controller, and when a pair of controllers shows the bug."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct


class Outcome(Enum):
    """What was seen."""

    BUG = "red"
    """The bug is there."""
    RIGHT = "green"
    """What should happen happened."""
    UNCLEAR = "unclear"
    """Neither: the scenario did not get so far, or something else went wrong."""


class Finding(Struct, frozen=True):
    """One controller's part.

    Attributes:
        outcome: what was seen.
        words: in plain words, for who reads no codes.
    """

    outcome: Outcome
    words: str


def bug(words: str) -> Finding:
    """The bug is there."""
    return Finding(Outcome.BUG, words)


def right(words: str) -> Finding:
    """The bug is not there."""
    return Finding(Outcome.RIGHT, words)


def unclear(words: str) -> Finding:
    """Nothing is shown."""
    return Finding(Outcome.UNCLEAR, words)


def is_shown(java: Finding, ours: Finding) -> bool:
    """Whether Java has the bug and ours has not; nothing else is a success."""
    return java.outcome is Outcome.BUG and ours.outcome is Outcome.RIGHT
