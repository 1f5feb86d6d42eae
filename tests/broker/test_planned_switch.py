"""A master that asks the controllers to elect its heir: which answer ends the switch, and how."""

from __future__ import annotations

import pytest

from rmqha.broker.membership import events as ev
from rmqha.remoting.bodies import SyncStateSet
from rmqha.remoting.codes import RequestCode
from tests.broker.driver import LEADER, OTHER, Driver, mastership

ELECT = RequestCode.CONTROLLER_ELECT_MASTER
BOTH = SyncStateSet((1, 2), 2).encode()


def switching() -> Driver:
    """Broker 1 reigns in epoch 1, and wants 2 to be elected."""
    driver = Driver()
    driver.reign()
    driver.give(ev.RoleSettled(1, accepted=True))
    driver.take(ev.Ask)
    driver.give(ev.SwitchWanted(2))
    return driver


def test_switch_when_wanted_then_the_leader_is_asked_at_once_to_elect_the_heir() -> None:
    """Each millisecond is one without writes."""
    asked = switching().asked(ELECT)
    assert asked.address == LEADER
    assert (asked.fields["brokerId"], asked.fields["designateElect"]) == ("2", "true")


@pytest.mark.parametrize("code", [0, 2011])
def test_switch_when_the_heir_is_named_then_it_is_followed_without_a_notification(
    code: int,
) -> None:
    """2011 says that a master lives: the heir, for the first answer was lost."""
    driver = switching()
    made = driver.answer(ELECT, code, mastership(2, 2), BOTH)
    assert ev.BecomeSlave(2, 2, mastership(2, 2)["masterAddress"]) in made
    assert driver.take(ev.RefuseSwitch) == []


@pytest.mark.parametrize("code", [2009, 2012, 1])
def test_switch_when_refused_then_the_master_hears_why_and_nobody_is_asked_again(code: int) -> None:
    """It writes what it held."""
    driver = switching()
    driver.give(ev.Answered(driver.asked(ELECT).token, code, {}, b"", "no such replica"))
    assert driver.take(ev.RefuseSwitch) == [
        ev.RefuseSwitch(f"the controllers: {code} no such replica")
    ]
    assert not asked_later(driver)


def test_switch_when_this_broker_is_named_then_it_is_refused() -> None:
    """The controllers found that it lives, and elected nobody else."""
    driver = switching()
    driver.answer(ELECT, 2011, mastership(1, 1), SyncStateSet((1, 2), 1).encode())
    assert len(driver.take(ev.RefuseSwitch)) == 1
    assert not asked_later(driver)


@pytest.mark.parametrize("how", ["lost", "not the leader"])
def test_switch_when_the_leader_is_gone_then_its_successor_is_asked(how: str) -> None:
    """Nobody is told meanwhile: the heir may have been elected."""
    driver = switching()
    token = driver.asked(ELECT).token
    driver.give(
        ev.Unanswered(token, sent=True) if how == "lost" else ev.Answered(token, 2007, {}, b"")
    )
    assert driver.take(ev.RefuseSwitch) == []
    driver.tick_until_asked(1005)
    driver.lead(OTHER)
    again = driver.asked(ELECT)
    assert (again.address, again.fields["brokerId"]) == (OTHER, "2")


@pytest.mark.parametrize("how", ["taken back", "another epoch"])
def test_switch_when_it_is_over_while_a_leader_is_looked_for_then_nobody_is_asked(how: str) -> None:
    """An election that nobody waits for any more would take the mastership by surprise."""
    driver = switching()
    driver.give(ev.Unanswered(driver.asked(ELECT).token, sent=True))
    if how == "taken back":
        driver.give(ev.SwitchWanted(0))
    else:
        driver.give(ev.Told(mastership(3, 2), SyncStateSet((1, 3), 2).encode()))
    driver.tick_until_asked(1005)
    driver.lead(OTHER)
    assert not asked_later(driver)


def asked_later(driver: Driver) -> bool:
    """Whether an heir is asked for within a minute."""
    end_ms = driver.now_ms + 60_000
    while driver.now_ms < end_ms:
        driver.tick()
        driver.lead()
        if any(one.code == ELECT for one in driver.take(ev.Ask)):
            return True
    return False
