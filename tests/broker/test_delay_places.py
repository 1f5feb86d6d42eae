"""When a timer is due, compared with Java's arithmetic; and when a delayed message counts as delivered."""

from __future__ import annotations

import pytest

from rmqha.broker.common.aio.writer import Writer
from rmqha.broker.deferred.delays import due_ms, place, timer_out_ms
from rmqha.store.record import Message
from tests.broker.replicas import TOPIC, ReplicaCluster, master_of
from tests.broker.test_producer_rules import NOW, RULES, message
from tests.broker.test_producer_services import send, stored


@pytest.mark.parametrize("step_ms", [1_000, 100, 1])
def test_timer_when_its_time_is_a_whole_step_then_it_is_due_one_step_earlier(step_ms: int) -> None:
    """Java's HookUtils takes one step off a round time; a recall made there names that one."""
    rules = RULES._replace(precision_ms=step_ms)
    whole_ms = (NOW // 1_000 + 5) * 1_000
    for wanted_ms, out_ms in {
        whole_ms: whole_ms - step_ms,
        whole_ms + step_ms: whole_ms,
        whole_ms + step_ms - 1: whole_ms if step_ms > 1 else whole_ms - step_ms,
    }.items():
        placed = place(message(TIMER_DELIVER_MS=str(wanted_ms)), rules, NOW)
        assert isinstance(placed, Message)
        assert timer_out_ms(placed.properties) == out_ms


def test_unit_when_the_clock_was_set_back_then_it_waits_no_longer_than_its_level() -> None:
    """Its time was reckoned by the clock of before."""
    assert due_ms(NOW + 500, NOW, 1_000) == NOW + 500
    assert due_ms(NOW + 1_000, NOW, 1_000) == NOW + 1_000
    assert due_ms(NOW + 1_001, NOW, 1_000) == NOW


@pytest.mark.costly
def test_level_when_its_delivery_is_not_safe_then_its_offset_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Slaves copy it: the next master would never deliver what only this one has delivered."""
    settle, is_safe = Writer.settle, False

    async def settled(writer: Writer, offset: int, *, durable: bool = False) -> bool:
        return await settle(writer, offset, durable=durable) and is_safe

    with ReplicaCluster(seed=2, replicas=1, messageDelayLevel="1s 5s") as cluster:
        cluster.boot_all()
        offsets = master_of(cluster).services.delay_offsets.offsets
        monkeypatch.setattr(Writer, "settle", settled)
        assert send(cluster, 1, "DELAY\x011\x02").code == 0
        cluster.until(lambda: stored(cluster, TOPIC), "the delivery", 3_000)
        cluster.run_for(2_000)
        assert offsets.kept.get(1, 0) == 0
        is_safe = True
        cluster.until(lambda: offsets.kept.get(1, 0) == 1, "its offset", 1_000)
