"""A Java master of 5.5 that keeps its timers in RocksDB: what its slave of ours makes of its mark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rmqha.broker.deferred.timers import TimerMark
from rmqha.broker.sync.aio.positions import ODD_MARKS_MAX, PositionSync

KNOWN_MS = 1_796_000_000_000
ODD, USUAL = TimerMark(KNOWN_MS, 0), TimerMark(KNOWN_MS, 7)


class Slave:
    """One that has asked its master again and again."""

    def __init__(self, stored: int) -> None:
        self.said: list[str] = []
        log: Any = SimpleNamespace(log=lambda level, event, **facts: self.said.append(event))
        anything: Any = SimpleNamespace(timers_stored=stored)
        self.sync = PositionSync(
            questions=anything, clock=anything, log=log, store=anything, offsets=anything,
            ended=anything, services=anything, period_ms=3_000,
        )  # fmt: skip

    def hear(self, *marks: TimerMark) -> list[str]:
        """What it logs at these answers."""
        for mark in marks:
            self.sync._look_at_timers("m:1", mark)
        return self.said


def test_mark_when_its_time_moves_and_its_queue_does_not_then_that_is_told_once() -> None:
    """By such marks all timers of three days come once more at the next master, without a word before."""
    assert Slave(stored=3).hear(*[ODD] * (3 * ODD_MARKS_MAX)) == ["timers_kept_elsewhere"]


@pytest.mark.parametrize(
    ("stored", "marks"),
    [
        (0, [ODD] * 100),
        (3, [ODD] * (ODD_MARKS_MAX - 1) + [USUAL] + [ODD] * (ODD_MARKS_MAX - 1)),
        (3, [TimerMark()] * 100),
    ],
    ids=["no timers here", "a wheel that has just begun", "nothing known"],
)
def test_mark_when_it_is_a_wheel_s_then_nothing_is_told(
    stored: int, marks: list[TimerMark]
) -> None:
    assert Slave(stored).hear(*marks) == []
