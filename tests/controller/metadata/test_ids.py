"""Which ids a broker may have: nobody can use up those that the next ones need."""

from __future__ import annotations

import pytest

from rmqha.base.ids import BrokerId
from rmqha.controller.machine import MachineSettings
from rmqha.controller.metadata.apply import apply
from rmqha.controller.metadata.decide_register import (
    ADOPTED_ID_MAX,
    ID_LEAP_MAX,
    RETIRED_IDS_MAX,
)
from rmqha.controller.metadata.events import BrokerDataCleaned, BrokerIdTaken
from rmqha.controller.metadata.messages import Reply
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.headers import INT64_MAX
from tests.controller.metadata.driving import CLUSTER, NAME, Driver

ADOPTING = MachineSettings(adopt_unknown_brokers=True)


def paired() -> Driver:
    driver = Driver()
    driver.pair()
    return driver


def next_id(driver: Driver) -> int:
    return int(driver.ask(1012, 9, clusterName=CLUSTER, brokerName=NAME).ext_fields["nextBrokerId"])


def apply_for(driver: Driver, broker_id: int) -> Reply:
    return driver.ask(
        1013, 9, clusterName=CLUSTER, brokerName=NAME, appliedBrokerId=broker_id,
        registerCheckCode=f"h{broker_id}:1;1",
    )  # fmt: skip


def adopt(driver: Driver, broker_id: int) -> Reply:
    return driver.ask(
        1003, 9, clusterName=CLUSTER, brokerName=NAME, brokerId=broker_id, brokerAddress="h:9"
    )


@pytest.mark.parametrize("above", [ID_LEAP_MAX + 1, 2**62, INT64_MAX - 2])
def test_id_when_it_is_far_above_those_given_then_it_is_refused(above: int) -> None:
    """One 1013 of a stranger, and no broker could ever join the set again."""
    driver = paired()
    answer = apply_for(driver, 2 + above)
    assert answer.code == ResponseCode.CONTROLLER_BROKER_ID_INVALID
    assert "1012 says the next one" in (answer.remark or "")
    assert next_id(driver) == 3
    assert apply_for(driver, 3).code == ResponseCode.SUCCESS


def test_id_when_it_is_a_little_above_those_given_then_it_is_taken() -> None:
    """Of brokers that start together each may have asked 1012 at another time."""
    driver = paired()
    assert apply_for(driver, 2 + ID_LEAP_MAX).code == ResponseCode.SUCCESS
    assert next_id(driver) == 3 + ID_LEAP_MAX


@pytest.mark.parametrize("broker_id", [1, 70_000, ADOPTED_ID_MAX])
def test_unknown_broker_when_it_is_adopted_then_with_any_id_that_can_be_real(
    broker_id: int,
) -> None:
    """The controllers lost what they knew, also how many ids they had given."""
    driver = Driver(ADOPTING)
    assert adopt(driver, broker_id).code == ResponseCode.SUCCESS
    assert next_id(driver) == broker_id + 1
    assert apply_for(driver, broker_id + 1).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("known", [False, True])
def test_unknown_broker_when_its_id_is_none_that_was_ever_given_then_it_is_refused(
    known: bool,
) -> None:
    driver = Driver(ADOPTING)
    if known:
        driver.pair()
    for broker_id in (ADOPTED_ID_MAX + 1, INT64_MAX):
        assert adopt(driver, broker_id).code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
    assert next_id(driver) == (3 if known else 1)


def test_next_id_when_a_log_of_before_holds_the_last_one_then_one_that_nobody_had() -> None:
    """2^63 is no id, so the set was closed; what was cleaned is given to nobody all the same."""
    driver = paired()
    for broker_id in (3, INT64_MAX):
        event = BrokerIdTaken(CLUSTER, NAME, "h:3", BrokerId(broker_id), "x")
        apply(driver.machine.state, event)
    apply(driver.machine.state, BrokerDataCleaned(NAME, (BrokerId(3), BrokerId(INT64_MAX))))
    assert next_id(driver) == 4
    assert apply_for(driver, 4).code == ResponseCode.SUCCESS
    assert apply_for(driver, 3).code == ResponseCode.CONTROLLER_BROKER_ID_INVALID
    asked = {"clusterName": CLUSTER, "brokerName": NAME, "brokerAddress": "old:1"}
    assert driver.ask(1003, 9, **asked).ext_fields["brokerId"] == "5"
    assert next_id(driver) == 6


def test_id_when_very_many_were_cleaned_then_the_set_takes_no_more() -> None:
    """The ids of cleaned replicas are kept, and so is their number bounded."""
    driver = paired()
    gone = tuple(BrokerId(one) for one in range(3, 3 + RETIRED_IDS_MAX))
    for one in gone:
        apply(driver.machine.state, BrokerIdTaken(CLUSTER, NAME, "h:3", one, "x"))
    apply(driver.machine.state, BrokerDataCleaned(NAME, gone[1:]))
    assert apply_for(driver, gone[-1] + 1).code == ResponseCode.SUCCESS
    apply(driver.machine.state, BrokerDataCleaned(NAME, gone[:1]))
    refused = apply_for(driver, gone[-1] + 2)
    assert refused.code == ResponseCode.CONTROLLER_INVALID_REQUEST
    assert "clean the whole set" in (refused.remark or "")


def test_election_when_whoever_was_in_sync_was_cleaned_then_it_is_called_unclean() -> None:
    """Who is left lacks what was acknowledged meanwhile; the alert for it stayed silent."""
    driver = paired()
    assert driver.alter(1, 1, [1], 2).code == ResponseCode.SUCCESS
    cleaned = driver.ask(
        1011, 9, brokerName=NAME, isCleanLivingBroker="true", brokerControllerIdsToClean=1
    )
    assert cleaned.code == ResponseCode.SUCCESS
    assert driver.elect(2).code == ResponseCode.SUCCESS
    assert driver.master()[0] == 2
    assert [one.level for one in driver.notes if one.event == "master_elected_unclean"] == ["error"]


def test_id_when_it_is_taken_again_then_it_is_retired_no_more() -> None:
    """An adopted broker comes back under its id: it would be refused its own, and its set closed."""
    driver = Driver(ADOPTING)
    driver.pair()
    state = driver.machine.state
    apply(state, BrokerDataCleaned(NAME, (BrokerId(2),)))
    assert state.sets[NAME].retired_ids == (2,)
    apply(state, BrokerIdTaken(CLUSTER, NAME, "h:2", BrokerId(2), "h2:1;1"))
    assert state.sets[NAME].retired_ids == ()
    assert list(state.sets[NAME].replicas) == [1, 2]
