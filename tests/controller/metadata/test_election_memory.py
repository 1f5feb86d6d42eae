"""What is remembered of elections ends with the set."""

from __future__ import annotations

from rmqha.controller.machine import SnapshotLoaded
from rmqha.controller.metadata.snapshot import to_snapshot
from rmqha.controller.metadata.state import MetadataState
from tests.controller.metadata.driving import CLUSTER, NAME, Driver


def elected_and_cleaned(driver: Driver, name: str) -> None:
    fields = {"clusterName": CLUSTER, "brokerName": name}
    driver.ask(1013, 1, **fields, appliedBrokerId=1, registerCheckCode="h:1;1")
    assert driver.ask(1002, 1, **fields, brokerId=1, designateElect="false").code == 0
    assert driver.status()["elections"][-1]["broker_set"] == name
    cleaned = driver.ask(
        1011, 1, **fields, isCleanLivingBroker="true", brokerControllerIdsToClean=1
    )
    assert cleaned.code == 0


def test_counts_when_a_set_is_removed_then_they_go_with_it() -> None:
    """Whoever registers and cleans again and again filled the memory, and every scrape."""
    driver = Driver()
    driver.pair()
    before = driver.status()["elections"]
    for number in range(20):
        elected_and_cleaned(driver, f"s{number:02}")
    assert driver.status()["elections"] == before
    assert [one["broker_set"] for one in before] == [NAME]


def test_counts_when_a_broker_of_several_is_cleaned_then_they_stay() -> None:
    driver = Driver()
    driver.pair()
    before = driver.status()["elections"]
    driver.ask(1011, 9, brokerName=NAME, isCleanLivingBroker="true", brokerControllerIdsToClean=2)
    assert len(driver.machine.state.sets[NAME].replicas) == 1
    assert driver.status()["elections"] == before


def test_counts_when_a_snapshot_has_a_set_no_more_then_they_go() -> None:
    """It was cleaned while this node was behind."""
    driver = Driver()
    driver.pair()
    assert driver.status()["elections"]
    driver.step(SnapshotLoaded(1_000, to_snapshot(1_000, MetadataState())))
    assert driver.status()["elections"] == []
