"""A controller that was not scheduled: what its brokers sent meanwhile counts before their deadlines.

SIGSTOP, a machine that was moved, a loop that was held up: all deadlines are over when it goes on, and
all heartbeats lie in its buffers.
"""

from __future__ import annotations

import pytest

from rmqha.base.machine import Note, Ticked
from rmqha.controller.late import LATE_MS, PAUSED_MS, READ_MS
from rmqha.controller.machine import ConnectionClosed, ControllerEvent
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
