"""Up to which moment timers are read and delivered, step by step."""

from __future__ import annotations

import pytest

from rmqha.broker.deferred.timer_progress import TimerProgress


def test_progress_when_the_queues_and_the_table_are_behind_then_the_moment_waits_for_both() -> None:
    """And so does what was written by then."""
    progress = TimerProgress()
    progress.note(100, 1_000)
    assert progress.waits_for_queues
    progress.dispatched(999, 7)
    progress.read(7)
    assert (progress.read_ms, progress.waits_for_queues) == (0, True)
    progress.dispatched(1_000, 8)
    progress.read(7)
    assert (progress.read_ms, progress.waits_for_queues) == (0, False)
    progress.read(8)
    assert (progress.read_ms, progress.read_to) == (100, 8)
    progress.written(1_500)
    progress.dispatched(1_499, 9)
    assert (progress.delivered_ms, progress.waits_for_queues) == (0, True)
    progress.dispatched(1_500, 9)
    assert (progress.delivered_ms, progress.waits_for_queues) == (100, False)


def test_progress_when_it_has_a_moment_already_then_a_later_one_does_not_take_its_place() -> None:
    """It would be reached by nobody who is always a little behind."""
    progress = TimerProgress()
    progress.note(100, 1_000)
    progress.note(200, 2_000)
    progress.dispatched(1_999, 5)
    progress.dispatched(1_999, 6)
    progress.read(5)
    assert progress.read_ms == 100
    progress.written(3_000)
    progress.note(200, 2_000)
    progress.dispatched(2_000, 6)
    progress.read(6)
    progress.written(4_000)
    progress.dispatched(3_000, 6)
    assert (progress.read_ms, progress.delivered_ms) == (200, 100)


@pytest.mark.parametrize("lag", [1, 10, 1_000])
def test_progress_when_timers_come_as_fast_as_they_are_read_then_it_goes_on(lag: int) -> None:
    """A flood that never ends puts no delivery off for ever: a moment waits for what was before it."""
    progress = TimerProgress()
    for now_ms in range(10 * lag):
        progress.note(now_ms, now_ms + 1)
        progress.dispatched(now_ms - lag // 2, max(0, now_ms - lag // 2))
        progress.read(max(0, now_ms - lag))
        progress.written(now_ms)
        if now_ms > 4 * lag:
            assert now_ms - progress.read_ms <= 3 * lag + 3
            assert now_ms - progress.delivered_ms <= 5 * lag + 5
