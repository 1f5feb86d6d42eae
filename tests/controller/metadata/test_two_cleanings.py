"""Ids that were cleaned at two times: all of them stay away for good, not only the newest."""

from __future__ import annotations

import pytest

from rmqha.controller.machine import LeadershipChanged, SnapshotLoaded
from rmqha.remoting.codes import ResponseCode
from tests.controller.metadata.driving import CLUSTER, NAME, Driver


def cleaned(*ids: int) -> Driver:
    """Brokers 1 to 3, of which these were cleaned, one after the other."""
    driver = Driver()
    for broker_id in (1, 2, 3):
        driver.register(broker_id)
    for broker_id in ids:
        answer = driver.ask(
            1011, 99, clusterName=CLUSTER, brokerName=NAME, brokerControllerIdsToClean=broker_id,
            isCleanLivingBroker="true",
        )  # fmt: skip
        assert answer.code == ResponseCode.SUCCESS
    return driver


def apply_for(driver: Driver, broker_id: int) -> int:
    """1013 of a newcomer."""
    return driver.ask(
        1013, 50, clusterName=CLUSTER, brokerName=NAME, appliedBrokerId=broker_id,
        registerCheckCode="other:9;7",
    ).code  # fmt: skip


@pytest.mark.parametrize("ids", [(2, 3), (3, 2)])
def test_apply_when_ids_were_cleaned_one_after_the_other_then_each_is_refused(
    ids: tuple[int, int],
) -> None:
    """A newcomer with the id of a replica that is gone would be taken for it."""
    driver = cleaned(*ids)
    for broker_id in ids:
        assert apply_for(driver, broker_id) == ResponseCode.CONTROLLER_BROKER_ID_INVALID
    assert driver.machine.state.sets[NAME].retired_ids == (2, 3)
    assert apply_for(driver, 4) == ResponseCode.SUCCESS


def test_apply_when_ids_of_two_cleanings_come_from_a_snapshot_then_each_is_refused() -> None:
    """A controller that was behind knows the cleanings by their outcome only."""
    before = cleaned(2, 3)
    driver = Driver(log=list(before.log))
    driver.step(SnapshotLoaded(len(before.log), before.machine.snapshot()))
    driver.step(LeadershipChanged(True, 2))
    for broker_id in (2, 3):
        assert apply_for(driver, broker_id) == ResponseCode.CONTROLLER_BROKER_ID_INVALID
