"""Two brokers with one identity, as a restored image makes them: the second one is not registered."""

from __future__ import annotations

import pytest

from rmqha.controller import twins
from rmqha.remoting.codes import RequestCode, ResponseCode
from tests.controller.metadata.driving import CLUSTER, NAME, Driver

TWIN = "h:99"
TWICE = "broker_identity_twice"


@pytest.fixture
def driver() -> Driver:
    """A master and a slave, on connections 1 and 2."""
    found = Driver()
    found.pair()
    return found


def register(driver: Driver, connection: int, address: str = TWIN, broker_id: int = 1) -> int:
    """Send 1003; the answer's code."""
    fields = {
        "clusterName": CLUSTER, "brokerName": NAME, "brokerId": broker_id, "brokerAddress": address,
    }  # fmt: skip
    return driver.ask(RequestCode.CONTROLLER_REGISTER_BROKER, connection, **fields).code


def address_of(driver: Driver, broker_id: int = 1) -> str:
    """Where a replica is, as all controllers have it."""
    return driver.machine.state.sets[NAME].replicas[broker_id].address  # type: ignore[index]  # an id is an int


def test_twin_when_the_broker_is_heard_then_it_is_not_registered(driver: Driver) -> None:
    """Both were masters of one epoch, with promises to both: what either acknowledged the other lacked."""
    before = address_of(driver)
    for _ in range(30):
        driver.pass_time(1_000)
        driver.beat(1, epoch=1)
        driver.beat(2, epoch=1)
        assert register(driver, 99) == ResponseCode.CONTROLLER_INVALID_REQUEST
    assert (address_of(driver), driver.master()) == (before, (1, 1))
    assert register(driver, 99, before) == ResponseCode.SUCCESS, "the same address is no twin's"


def test_twin_when_it_beats_then_it_is_nobody_and_promised_nothing(driver: Driver) -> None:
    """Brokers of ours beat before they register; the heartbeats took the id's connection over."""
    driver.beat(1, epoch=1)
    for _ in range(12):
        driver.pass_time(1_000)
        driver.beat(2, epoch=1)
        driver.beat(1, connection=99, epoch=1, brokerAddr=TWIN)
        promise = driver.ask(
            RequestCode.BROKER_HEARTBEAT, 99, clusterName=CLUSTER, brokerName=NAME, brokerId=1,
            brokerAddr=TWIN,
        )  # fmt: skip
        assert promise.ext_fields == {"promiseMillis": "0"}, "a success without it is a promise"
    assert driver.master() == (2, 2), "its heartbeats are not those of the one that is gone"


def test_broker_when_it_beats_over_a_new_connection_then_it_is_the_one_that_was_known(
    driver: Driver,
) -> None:
    """Clients close connections on which an answer is late, and their ends may come later."""
    driver.beat(1, epoch=1, brokerAddr=address_of(driver))
    driver.beat(1, connection=50, epoch=1, brokerAddr=address_of(driver))
    driver.close(1)
    driver.pass_time(1_000)
    assert driver.master() == (1, 1)


def test_twin_when_it_is_refused_then_the_log_says_so_once_a_minute(driver: Driver) -> None:
    for _ in range(90):
        driver.pass_time(1_000)
        driver.beat(1, epoch=1)
        driver.beat(2, epoch=1)
        register(driver, 99)
    said = [one for one in driver.notes if one.event == TWICE]
    assert [one.level for one in said] == ["error", "error"]
    assert TWIN in str(said[0].facts["reason"])


def test_twin_when_it_asks_for_ever_then_the_broker_is_missed_all_the_same(driver: Driver) -> None:
    """Its requests are no sign of life of the other one, whose machine is gone."""
    for _ in range(12):
        driver.pass_time(1_000)
        driver.beat(2, epoch=1)
        register(driver, 99)
    assert driver.master() == (2, 2)
    assert register(driver, 99) == ResponseCode.SUCCESS
    assert address_of(driver) == TWIN


def test_broker_when_it_has_moved_then_it_is_registered_at_once(driver: Driver) -> None:
    """Its process has ended, and its connections with it."""
    driver.close(2)
    assert register(driver, 99, broker_id=2) == ResponseCode.SUCCESS
    assert address_of(driver, 2) == TWIN


def test_broker_when_it_names_another_address_itself_then_it_is_registered(driver: Driver) -> None:
    """Over the connection of its heartbeats."""
    driver.beat(1, epoch=1)
    assert register(driver, 1) == ResponseCode.SUCCESS
    assert address_of(driver) == TWIN


def test_twins_when_there_are_many_then_few_are_remembered(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(twins, "NOTED_MAX", 3)
    for number in range(10):
        assert register(driver, 99, f"x:{number}") == ResponseCode.CONTROLLER_INVALID_REQUEST
    assert len(driver.machine._twins._noted_ms) <= 3
