"""When a timer is due, compared with Java's arithmetic."""

from __future__ import annotations

import pytest

from rmqha.broker.deferred.delays import place, timer_out_ms
from rmqha.store.record import Message
from tests.broker.test_producer_rules import NOW, RULES, message


@pytest.mark.parametrize("step_ms", [1_000, 100, 1])
def test_timer_when_its_time_is_a_whole_step_then_it_is_due_one_step_earlier(step_ms: int) -> None:
    """Java's HookUtils takes one step off a round time; a recall made there names that one."""
    rules = RULES._replace(precision_ms=step_ms)
    due_ms = (NOW // 1_000 + 5) * 1_000
    for wanted_ms, out_ms in {
        due_ms: due_ms - step_ms,
        due_ms + step_ms: due_ms,
        due_ms + step_ms - 1: due_ms if step_ms > 1 else due_ms - step_ms,
    }.items():
        placed = place(message(TIMER_DELIVER_MS=str(wanted_ms)), rules, NOW)
        assert isinstance(placed, Message)
        assert timer_out_ms(placed.properties) == out_ms
