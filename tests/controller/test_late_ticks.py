"""A controller that was not scheduled: what its brokers sent meanwhile counts before their deadlines.

SIGSTOP, a machine that was moved, a loop that was held up: all deadlines are over when it goes on, and
all heartbeats lie in its buffers.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rmqha.base.machine import Note, Ticked
from rmqha.controller.machine import ConnectionClosed, ControllerEvent
from rmqha.runtime.late import LATE_MS, PAUSED_MS, READ_MS
from tests.controller.metadata.driving import Driver

TIMEOUT_MS = 10_000
STRANGER = 77


def paired() -> Driver:
    """Both brokers have just been heard."""
    driver = Driver()
    driver.pair()
    beat(driver, 1)
    beat(driver, 2)
    return driver


def beat(driver: Driver, broker_id: int) -> None:
    driver.beat(broker_id, epoch=1, maxOffset=5)


def told(driver: Driver) -> list[str]:
    """Brokers that were told dead."""
    return [str(one.facts["broker_id"]) for one in driver.notes if one.event == "broker_inactive"]


def notes_of(driver: Driver, event: str) -> list[Note]:
    return [one for one in driver.notes if one.event == event]


@pytest.mark.parametrize("first", [Ticked(), ConnectionClosed(STRANGER)])
def test_pause_when_all_brokers_went_on_then_no_master_is_replaced(first: ControllerEvent) -> None:
    """A single controller that was stopped for 11 s took every master away."""
    driver = paired()
    driver.now_ms += TIMEOUT_MS + 1_500
    driver.step(first)
    assert driver.machine.next_deadline_ms() == driver.now_ms + READ_MS
    beat(driver, 2)
    beat(driver, 1)
    driver.pass_time(TIMEOUT_MS - 1_000)
    assert (told(driver), driver.master()) == ([], (1, 1))


@pytest.mark.parametrize("away_ms", [TIMEOUT_MS + LATE_MS + 2, TIMEOUT_MS + 1 + PAUSED_MS])
def test_pause_when_heartbeats_were_lost_then_masters_are_spared_for_their_timeout(
    away_ms: int,
) -> None:
    """A machine that was moved had no buffers: senders try again after seconds."""
    driver = paired()
    driver.now_ms += away_ms
    driver.step(Ticked())
    driver.pass_time(TIMEOUT_MS - 1_000)
    assert driver.master() == (1, 1)
    assert len(notes_of(driver, "controller_was_away")) == 1
    beat(driver, 2)
    driver.pass_time(1_001)
    assert driver.master() == (2, 2), "who never comes back is replaced all the same"


def test_master_when_the_loop_was_late_for_a_moment_then_it_is_replaced_a_moment_later() -> None:
    """A loop that is held up for some milliseconds did not miss 10 s of heartbeats."""
    driver = paired()
    driver.pass_time(TIMEOUT_MS - 500)
    beat(driver, 2)
    driver.now_ms += 500 + LATE_MS + 2
    driver.step(Ticked())
    assert driver.master() == (1, 1)
    driver.pass_time(READ_MS)
    assert (told(driver), driver.master()) == (["1"], (2, 2))


def test_master_when_the_tick_comes_in_time_then_it_is_replaced_at_once() -> None:
    """Nothing waits where nobody was late."""
    driver = paired()
    driver.pass_time(TIMEOUT_MS - 500)
    beat(driver, 2)
    driver.now_ms += 500 + 1 + LATE_MS
    driver.step(Ticked())
    assert (told(driver), driver.master()) == (["1"], (2, 2))


def test_masters_when_very_many_die_then_their_parts_are_not_late() -> None:
    """They are told in parts, and the last ones' deadlines were long over when the first ones were."""
    driver = paired()
    cluster = {"clusterName": "c", "epoch": 1, "maxOffset": 5}
    for number in range(450):
        driver.beat(1, connection=1_000 + number, brokerName=f"s{number}", **cluster)
    driver.pass_time(TIMEOUT_MS)
    driver.now_ms += 1
    for part in (200, 400, 452):
        driver.step(Ticked())
        assert len(told(driver)) == part
        driver.now_ms += LATE_MS


def test_scan_when_this_node_was_late_then_it_waits_too() -> None:
    """It finds masters that are not alive; what they sent was not read yet."""
    driver = paired()
    driver.pass_time(TIMEOUT_MS - 500)
    beat(driver, 2)
    driver.now_ms += 800
    assert driver.machine._scanning.next_ms < driver.now_ms
    driver.step(Ticked())
    assert driver.machine.next_deadline_ms() == driver.now_ms + READ_MS
    beat(driver, 1)
    driver.pass_time(5_000)
    assert driver.master() == (1, 1)


@pytest.mark.parametrize(("late_ms", "spared"), [(PAUSED_MS - 1, False), (PAUSED_MS, True)])
def test_master_when_the_loop_was_late_for_a_heartbeat_then_it_is_spared(
    late_ms: int, spared: bool
) -> None:
    """Somebody was read already, so that it looks as if this node had heard all the time."""
    driver = paired()
    driver.pass_time(TIMEOUT_MS)
    driver.now_ms += 1 + late_ms
    beat(driver, 2)
    driver.step(Ticked())
    beat(driver, 2)
    driver.pass_time(TIMEOUT_MS - 1_000)
    assert driver.master() == ((1, 1) if spared else (2, 2))


TURNS_MS = [LATE_MS + 1, 25, 40, 300, PAUSED_MS - 100]


def turn(driver: Driver, turn_ms: int, read: Callable[[], None] = lambda: None) -> None:
    """One of a loop that has much to do: the tick, if one is due, then what lay in the buffers."""
    due_ms = driver.machine.next_deadline_ms()
    if due_ms is not None and due_ms <= driver.now_ms:
        driver.step(Ticked())
    read()
    driver.now_ms += turn_ms


@pytest.mark.parametrize("turn_ms", TURNS_MS)
def test_dead_master_when_every_turn_is_long_then_replaced_after_the_second_one(
    turn_ms: int,
) -> None:
    """Every look was late, and put the death off again: nobody was elected for ever."""
    driver = paired()
    beat(driver, 1)
    dead_ms = driver.now_ms + TIMEOUT_MS + 1
    while driver.master() == (1, 1):
        assert driver.now_ms <= dead_ms + 2 * turn_ms
        turn(driver, turn_ms, lambda: beat(driver, 2))
    assert (told(driver), driver.master()) == (["1"], (2, 2))


@pytest.mark.parametrize("turn_ms", TURNS_MS)
def test_closed_master_when_every_turn_is_long_then_replaced_after_the_second_one(
    turn_ms: int,
) -> None:
    driver = paired()
    driver.machine.liveness.close_grace_ms = 5
    driver.close(1)
    for _ in range(3):
        turn(driver, turn_ms, lambda: beat(driver, 2))
    assert (told(driver), driver.master()) == (["1"], (2, 2))


@pytest.mark.parametrize("turn_ms", TURNS_MS[1:])
def test_master_when_it_would_die_between_two_late_looks_then_its_heartbeat_is_read_first(
    turn_ms: int,
) -> None:
    """Others' deaths wait no longer. Its own, and the scan that is due, wait for a reading behind it."""
    driver = paired()
    driver.beat(7, connection=7, brokerName="other", heartbeatTimeoutMills=TIMEOUT_MS - turn_ms)
    driver.now_ms += TIMEOUT_MS - turn_ms
    beat(driver, 2)
    driver.now_ms += LATE_MS + 2
    driver.machine._scanning.next_ms = driver.now_ms
    turn(driver, turn_ms)
    assert told(driver) == [], "put off, and read"
    turn(driver, turn_ms, lambda: beat(driver, 1))
    assert told(driver) == ["7"]
    assert driver.machine._scanning.next_ms > driver.now_ms, "it went on"
    turn(driver, turn_ms, lambda: beat(driver, 2))
    assert "1" not in told(driver)
    assert driver.master() == (1, 1)


def test_master_when_somebody_closes_while_the_loop_reads_then_what_is_not_read_counts() -> None:
    """The first look is over, but not the reading that it waits for."""
    driver = paired()
    driver.now_ms += TIMEOUT_MS + 1 + LATE_MS + 1
    beat(driver, 2)
    driver.step(Ticked())
    driver.now_ms += LATE_MS
    driver.close(STRANGER)
    assert told(driver) == []
    assert driver.machine.next_deadline_ms() == driver.now_ms - LATE_MS + READ_MS, (
        "not put off more"
    )
    beat(driver, 1)
    driver.pass_time(TIMEOUT_MS - 1_000)
    assert driver.master() == (1, 1)


def test_close_when_it_comes_late_then_the_next_tick_reads_before_it_tells() -> None:
    """It came in the middle of a reading: of what was sent before it, much may not be read."""
    driver = paired()
    driver.now_ms += TIMEOUT_MS + 1 + LATE_MS + 1
    beat(driver, 2)
    driver.close(STRANGER)
    driver.now_ms += READ_MS
    driver.step(Ticked())
    assert told(driver) == []
    driver.pass_time(READ_MS)
    assert (told(driver), driver.master()) == (["1"], (2, 2))


def test_slaves_when_somebody_dies_in_every_turn_then_told_and_scanned_for_all_the_same() -> None:
    """One death that was put off held up whatever was due: for ever, where turns are long."""
    driver = paired()
    driver.register(3)
    beat(driver, 3)
    assert driver.alter(1, 1, [1, 2, 3], 2).code == 0
    driver.told()
    driver.routes = True
    driver.close(1)
    told_of, turn_ms, end_ms = [], 3 * LATE_MS, driver.now_ms + 11_000
    while driver.now_ms < end_ms:
        strange = {"brokerName": f"s{driver.now_ms}", "heartbeatTimeoutMills": turn_ms // 2}
        driver.beat(1, connection=driver.now_ms, **strange)
        turn(driver, turn_ms, lambda: (beat(driver, 2), beat(driver, 3))[0])
        told_of += driver.told()
        assert driver.machine._scanning.next_ms > driver.now_ms - 3 * turn_ms
    assert driver.master() == (2, 2)
    assert "h:3" in told_of


def test_slave_when_its_heartbeat_is_not_read_yet_then_it_is_told_behind_the_reading() -> None:
    """It counts as dead at that look, and the dead are not told who is master."""
    driver = paired()
    driver.register(3)
    driver.routes = True
    driver.close(1)
    driver.pass_time(100)
    assert driver.master() == (2, 2)
    due_ms = driver.machine._announcer.next_deadline_ms()
    assert due_ms is not None
    driver.beat(3, heartbeatTimeoutMills=due_ms - driver.now_ms - LATE_MS - 2)
    driver.told()
    driver.now_ms = due_ms
    driver.step(Ticked())
    beat(driver, 3)
    driver.pass_time(READ_MS)
    assert driver.told() == ["h:3"]
