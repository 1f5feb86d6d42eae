"""Sets that have lived under other controllers: who may be their first master here, and when."""

from __future__ import annotations

import pytest

from rmqha.controller.machine import MachineSettings
from rmqha.controller.metadata.decide_elect import EPOCH_LEAP_MAX
from tests.controller.metadata.driving import CLUSTER, NAME, Driver

GRACE_MS = 10_000


def adopting() -> Driver:
    """Controllers that know nothing yet."""
    return Driver(MachineSettings(adopt_unknown_brokers=True, cold_start_grace_ms=GRACE_MS))


def adopt(driver: Driver, broker_id: int) -> None:
    """1003 of a broker that was registered with the former controllers."""
    answer = driver.ask(
        1003, broker_id, clusterName=CLUSTER, brokerName=NAME, brokerId=broker_id,
        brokerAddress=f"h:{broker_id}",
    )  # fmt: skip
    assert answer.code == 0


def test_first_election_when_a_newer_broker_is_heard_then_no_stale_one_is_elected() -> None:
    """Broker 3 would cut a million bytes of acknowledged messages from broker 1."""
    driver = adopting()
    driver.beat(1, epoch=7, maxOffset=1_000_000, heartbeatTimeoutMills=60_000)
    driver.beat(3, epoch=7, maxOffset=10, heartbeatTimeoutMills=60_000)
    adopt(driver, 3)
    refused = driver.elect(3)
    assert (refused.code, refused.remark) == (2012, "Failed to elect a new master")
    assert driver.master() == (None, 0)
    driver.pass_time(5_000)
    adopt(driver, 1)
    assert driver.elect(3).code == 0
    assert driver.master() == (1, 8)


def test_first_election_when_the_newer_one_never_registers_then_the_newest_registered() -> None:
    """A broker that is only heard holds its set up for ``coldStartGraceMs``, not for ever."""
    driver = adopting()
    driver.beat(1, epoch=7, maxOffset=1_000_000, heartbeatTimeoutMills=60_000)
    driver.pass_time(2_000)
    driver.beat(2, epoch=7, maxOffset=500, heartbeatTimeoutMills=60_000)
    driver.beat(3, epoch=7, maxOffset=10, heartbeatTimeoutMills=60_000)
    adopt(driver, 3)
    adopt(driver, 2)
    assert driver.elect(3).code == 2012
    driver.pass_time(GRACE_MS - 2_001)
    assert driver.elect(3).code == 2012
    driver.pass_time(1)
    assert driver.elect(3).code == 0
    # Above the epoch of the one that is missing, too: it must follow when it comes.
    assert driver.master() == (2, 8)


def test_first_election_when_the_newer_one_is_dead_then_nobody_waits_for_it() -> None:
    """It cannot register; its epoch counts all the same."""
    driver = adopting()
    driver.beat(1, epoch=9, maxOffset=1_000_000, heartbeatTimeoutMills=1_000)
    driver.pass_time(2_000)
    driver.beat(3, epoch=7, maxOffset=10)
    adopt(driver, 3)
    assert driver.elect(3).code == 0
    assert driver.master() == (3, 10)


@pytest.mark.parametrize(
    ("epoch", "max_offset"),
    [(7, 10), (7, 9), (6, 1_000_000), (-1, -1), (2**30 + 1, 5)],
    ids=["equal", "shorter", "older epoch", "nothing", "not believed"],
)
def test_first_election_when_others_are_not_newer_then_it_is_at_once(
    epoch: int, max_offset: int
) -> None:
    """Nobody waits for a broker that could not be preferred."""
    driver = adopting()
    driver.beat(1, epoch=epoch, maxOffset=max_offset, heartbeatTimeoutMills=60_000)
    driver.beat(3, epoch=7, maxOffset=10)
    adopt(driver, 3)
    assert driver.elect(3).code == 0
    assert driver.master() == (3, 8)


def test_first_election_when_the_newer_one_is_of_another_cluster_then_it_is_at_once() -> None:
    """Two clusters may have sets of one name; only one is known here."""
    driver = adopting()
    driver.beat(1, clusterName="Other", epoch=9, maxOffset=1_000_000)
    driver.beat(3, epoch=7, maxOffset=10)
    adopt(driver, 3)
    assert driver.elect(3).code == 0
    assert driver.master() == (3, 8)


def test_first_election_when_an_operator_designates_then_he_is_obeyed() -> None:
    """Somebody may know that the newer broker never comes."""
    driver = adopting()
    driver.beat(1, epoch=7, maxOffset=1_000_000, heartbeatTimeoutMills=60_000)
    driver.beat(3, epoch=7, maxOffset=10, heartbeatTimeoutMills=60_000)
    adopt(driver, 3)
    assert driver.elect(3, designate=True).code == 0
    assert driver.master() == (3, 8)


def test_fresh_set_when_others_are_heard_before_they_register_then_the_asker_is_elected() -> None:
    """New brokers have no epochs: the first that asks wins, as ever."""
    driver = Driver()
    driver.beat(2, epoch=-1, maxOffset=50, heartbeatTimeoutMills=60_000)
    driver.register(1)
    driver.beat(1, epoch=-1, maxOffset=0)
    assert driver.elect(1).code == 0
    assert driver.master() == (1, 1)


@pytest.mark.parametrize(
    ("epoch", "following"),
    [(5, 6), (1 + EPOCH_LEAP_MAX, 2 + EPOCH_LEAP_MAX), (2 + EPOCH_LEAP_MAX, 2), (2**30, 2)],
)
def test_later_elections_when_somebody_claims_an_epoch_then_only_a_near_one_counts(
    epoch: int, following: int
) -> None:
    """One heartbeat of a stranger made the next epoch 1,073,741,825."""
    driver = Driver()
    driver.pair()
    driver.beat(9, connection=77, epoch=epoch, maxOffset=0)
    assert driver.elect(2, designate=True).code == 0
    assert driver.master() == (2, following)
