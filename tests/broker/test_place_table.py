"""The table of a broker's place in its set against the core: every row happens, nothing else."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from rmqha.base.machine import Ticked
from rmqha.broker.membership import events as ev
from rmqha.broker.membership.identity import RegisterState
from rmqha.broker.membership.place_table import TABLE
from rmqha.ha.events import Role
from rmqha.remoting.bodies import SyncStateSet
from rmqha.store.identity import Identity
from tests.broker.driver import ADDRESS, CLUSTER, NAME, WALL_MS, Driver, mastership

EPOCH = 5
TEMPORARY = Identity(CLUSTER, NAME, 1, f"{ADDRESS};{WALL_MS}")
FINAL = Identity(CLUSTER, NAME, 1)
NOBODY = SyncStateSet((), 0).encode()
CODES = (0, 2, 2007, 2008, 2010, 2011, 2012, 2014)
"""Success, busy, not the leader, and each refusal that a broker tells from others."""
REGISTRATION = {
    RegisterState.INITIAL: "nameless",
    RegisterState.CREATE_TEMP_METADATA_FILE_DONE: "applying",
    RegisterState.CREATE_METADATA_FILE_DONE: "identified",
    RegisterState.REGISTERED: "registered",
}


def state(driver: Driver) -> str:
    """Which state of the table a broker is in."""
    place = driver.core.place
    if place.role is not None:
        return "master" if place.role is Role.MASTER else "slave"
    if place.master_id is None:
        return REGISTRATION[driver.core.registration.state]
    return "refused" if place.refused_epoch == place.master_epoch else "changing"


def unborn() -> Driver:
    return Driver()


def nameless() -> Driver:
    driver = Driver()
    driver.start()
    driver.lead()
    return driver


def applying() -> Driver:
    driver = nameless()
    driver.answer(1012, 0, {"nextBrokerId": "1"})
    driver.disk()
    return driver


def identified() -> Driver:
    driver = Driver()
    driver.register_as(1)
    return driver


def registered() -> Driver:
    driver = identified()
    driver.answer(1003, 0, {}, NOBODY)
    return driver


def assigned(master_id: int, accepted: bool | None) -> Callable[[], Driver]:
    """A role of epoch 5, under way, refused or complete."""

    def begin() -> Driver:
        driver = identified()
        body = SyncStateSet((master_id,), EPOCH).encode()
        driver.answer(1003, 0, mastership(master_id, EPOCH), body)
        if accepted is not None:
            driver.give(ev.RoleSettled(EPOCH, accepted=accepted))
        return driver

    return begin


def polling(begin: Callable[[], Driver]) -> Callable[[], Driver]:
    """The same with a poll (1004) out."""

    def later() -> Driver:
        driver = begin()
        driver.tick_until_asked(1004)
        return driver

    return later


def switching(begin: Callable[[], Driver]) -> Callable[[], Driver]:
    """The same with a question for an heir's election out."""

    def later() -> Driver:
        driver = begin()
        driver.effects[:] = [one for one in driver.effects if not isinstance(one, ev.Ask)]
        driver.give(ev.SwitchWanted(2))
        return driver

    return later


def checking(begin: Callable[[], Driver]) -> Callable[[], Driver]:
    """The same after a 1008 that tells of another epoch: all controllers are asked."""

    def later() -> Driver:
        driver = begin()
        driver.effects[:] = [one for one in driver.effects if not isinstance(one, ev.Ask)]
        body = SyncStateSet((1, 2), EPOCH).encode()
        driver.give(ev.Notified(mastership(2, EPOCH + 1), body))
        return driver

    return later


ROLES = [assigned(who, accepted) for who in (1, 2) for accepted in (None, False, True)]
BEGINNINGS: tuple[Callable[[], Driver], ...] = (
    unborn, nameless, applying, identified, registered, polling(registered), *ROLES,
    *(polling(one) for one in ROLES), checking(identified), switching(assigned(1, accepted=True)),
)  # fmt: skip


def happenings(driver: Driver) -> list[tuple[str, ev.Event]]:
    """Every event; answers to all that is asked, with every code and every master."""
    found: list[tuple[str, ev.Event]] = []
    masters = [mastership(who, epoch) for who in (1, 2) for epoch in (EPOCH - 1, EPOCH, EPOCH + 1)]
    body = SyncStateSet((1, 2), EPOCH).encode()
    for ask in [one for one in driver.effects if isinstance(one, ev.Ask)]:
        name = f"Answered ({ask.code})"
        said = itertools.product(CODES, ({}, {"nextBrokerId": "1"}, *masters))
        found += [(name, ev.Answered(ask.token, code, one, body)) for code, one in said]
        found.append(("Unanswered", ev.Unanswered(ask.token, sent=True)))
    plain: list[ev.Event] = [
        Ticked(), ev.TemporaryWritten(TEMPORARY), ev.TemporaryRemoved(),
        ev.IdentityWritten(FINAL), ev.ReplicationStarted(), ev.AlterWanted(frozenset({1, 2}), 1),
        ev.NameServerAnswered("10.0.0.2:10911", "10.0.0.2:10912"),
        *(ev.RoleSettled(one, accepted=yes) for one in (EPOCH - 1, EPOCH) for yes in (True, False)),
        *(ev.Notified(fields, body) for fields in masters), ev.Notified({}, body),
        *(ev.Told(fields, body) for fields in masters),
        *(ev.Started(WALL_MS, *files) for files in ((None, None), (None, TEMPORARY), (FINAL, None))),
    ]  # fmt: skip
    return found + [(type(one).__name__, one) for one in plain if belongs(driver, one)]


def belongs(driver: Driver, event: ev.Event) -> bool:
    """Whether the shell can say so: the disk answers what was asked, and a start comes once."""
    registration = driver.core.registration.state
    match event:
        case ev.Started():
            return driver.core.next_deadline_ms is None
        case ev.TemporaryWritten():
            return registration is RegisterState.INITIAL
        case ev.TemporaryRemoved() | ev.IdentityWritten():
            return registration is RegisterState.CREATE_TEMP_METADATA_FILE_DONE
        case ev.RoleSettled():
            return state(driver) == "changing"
        case ev.Told():
            return state(driver) in ("master", "slave", "changing", "refused")
        case _:
            return True


def seen() -> set[tuple[str, str, str]]:
    """Every change that the core makes, from every beginning."""
    found = set()
    for begin in BEGINNINGS:
        for number in itertools.count():
            driver = begin()
            all_events = happenings(driver)
            if number == len(all_events):
                break
            name, event = all_events[number]
            before = state(driver)
            driver.give(event)
            if state(driver) != before:
                found.add((before, name, state(driver)))
    return found


@pytest.mark.costly
def test_place_when_every_event_comes_in_every_state_then_the_table_says_where_it_leads() -> None:
    """A way to "master" that the table lacks is a second master, or one without a log."""
    rows, found = {(row.state, row.event, row.to) for row in TABLE}, seen()
    assert found - rows == set(), "the core does what the table lacks"
    assert rows - found == set(), "the table says what the core never does"
    assert len(rows) == len(TABLE), "a row stands twice"


def test_master_when_looked_for_then_only_a_complete_role_change_leads_there() -> None:
    """Nothing is served before replication has said that the role is complete."""
    ways = [(row.state, row.event) for row in TABLE if row.to == "master"]
    assert ways == [("changing", "RoleSettled")]


@pytest.mark.parametrize("accepted", [True, False])
def test_role_when_an_earlier_one_is_settled_late_then_the_newer_is_still_changing(
    accepted: bool,
) -> None:
    """A slave would begin to serve as the master that it was to become before."""
    driver = assigned(1, None)()
    driver.tick_until_asked(1004)
    driver.answer(1004, 0, mastership(2, EPOCH + 1), SyncStateSet((1, 2), EPOCH + 1).encode())
    assert state(driver) == "changing"
    driver.give(ev.RoleSettled(EPOCH, accepted=accepted))
    assert state(driver) == "changing"
    driver.give(ev.RoleSettled(EPOCH + 1, accepted=True))
    assert state(driver) == "slave"
