"""Copies in a log: as many as attempts, and no more."""

from __future__ import annotations

import pytest

from rmqha.base.errors import InvariantBroken
from rmqha.verify.copies import Attempts


def test_check_when_there_are_no_more_copies_than_attempts_then_silent() -> None:
    """What was sent twice may be there twice; what nobody here has sent is not looked at."""
    attempts = Attempts(repeated={"Served"})
    for topic, body in (("T", b"1"), ("T", b"2"), ("T", b"2"), ("Served", b"3"), ("T", b"4")):
        attempts.sent(topic, body)
    stored = [
        ("T", b"1"),
        ("T", b"2"),
        ("T", b"2"),
        ("Served", b"3"),
        ("Served", b"3"),
        ("U", b"1"),
    ]
    assert attempts.check(stored) == 2


@pytest.mark.parametrize("copies", [2, 3])
def test_check_when_a_message_is_there_once_too_often_then_broken(copies: int) -> None:
    """Whoever got the first answer has no reason to send it again."""
    attempts = Attempts()
    for _ in range(copies - 1):
        attempts.sent("T", b"1")
    with pytest.raises(InvariantBroken, match="stored more often than it was sent"):
        attempts.check([("T", b"1")] * copies)
