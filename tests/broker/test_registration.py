"""From no id to an id for good: every answer, every crash (persistent-broker-id design)."""

from __future__ import annotations

import itertools

import pytest
from msgspec.structs import replace

from rmqha.base.errors import StoreMismatch
from rmqha.base.ids import BrokerId
from rmqha.broker.membership import events as ev
from rmqha.broker.membership.identity import (
    RegisterState,
    RemoveTemporary,
    WriteIdentity,
    WriteTemporary,
)
from rmqha.controller.metadata.apply import apply
from rmqha.controller.metadata.decide_register import decide_apply_broker_id
from rmqha.controller.metadata.decision import Context, LiveInfo
from rmqha.controller.metadata.state import MetadataState
from rmqha.remoting.bodies import SyncStateSet
from rmqha.store.identity import Identity
from tests.broker.driver import ADDRESS, CLUSTER, NAME, SETTINGS, WALL_MS, Driver, Files

OTHER_ADDRESS = "10.0.0.2:10911"
NOBODY = SyncStateSet((), 0).encode()


def next_id(broker_id: int) -> dict[str, str]:
    """The fields of the answer to 1012."""
    return {"nextBrokerId": str(broker_id)}


def fresh() -> Driver:
    """A broker without files that has found its leader."""
    driver = Driver()
    driver.start()
    driver.lead()
    return driver


def test_first_start_when_all_goes_well_then_the_id_is_kept_and_registered() -> None:
    """9.5 "success": the temporary file is gone, the final one is there."""
    driver = fresh()
    driver.answer(1012, 0, next_id(1))
    assert driver.core.registration.state is RegisterState.INITIAL
    driver.disk()
    assert driver.files.temporary == Identity(CLUSTER, NAME, 1, f"{ADDRESS};{WALL_MS}")
    driver.answer(1013)
    driver.disk()
    assert (driver.files.final, driver.files.temporary) == (Identity(CLUSTER, NAME, 1), None)
    driver.answer(1003, 0, {}, NOBODY)
    assert driver.core.registration.state is RegisterState.REGISTERED
    assert driver.core.broker_id == 1


@pytest.mark.parametrize("names", [("Other", NAME), (CLUSTER, "broker-b")])
@pytest.mark.parametrize("temporary", [False, True])
def test_start_when_a_file_names_another_broker_then_it_refuses(
    names: tuple[str, str], *, temporary: bool
) -> None:
    """9.5: a changed name must not take over another broker's log, nor overwrite its identity."""
    files = Files()
    identity = Identity(*names, 1, "code" if temporary else "")
    if temporary:
        files.temporary = identity
    else:
        files.final = identity
    with pytest.raises(StoreMismatch, match=names[1]):
        Driver(files).start()
    assert identity in (files.final, files.temporary)


@pytest.mark.parametrize("code", [1, 2, 2005, 2012])
def test_next_id_when_refused_then_nothing_is_written_and_it_is_asked_again(code: int) -> None:
    """9.5 "next-id failure": INITIAL, no files."""
    driver = fresh()
    driver.answer(1012, code)
    assert driver.core.registration.state is RegisterState.INITIAL
    assert driver.take(WriteTemporary) == []
    driver.tick_until_asked(1012)


def test_apply_when_the_id_is_somebody_elses_then_another_is_chosen() -> None:
    """Two brokers read the same next id; the second one to apply starts over."""
    driver = fresh()
    driver.answer(1012, 0, next_id(1))
    driver.disk()
    driver.answer(1013, 2014)
    driver.disk()
    assert driver.files.temporary is None
    driver.tick_until_asked(1012)
    driver.answer(1012, 0, next_id(2))
    driver.disk()
    driver.answer(1013)
    driver.disk()
    assert driver.files.final == Identity(CLUSTER, NAME, 2)


def test_apply_when_the_answer_is_lost_then_the_same_id_is_applied_for_again() -> None:
    """Java forgets the id here, although the controller may have granted it: it leaks."""
    driver = fresh()
    driver.answer(1012, 0, next_id(1))
    driver.disk()
    first = driver.asked(1013)
    driver.give(ev.Unanswered(first.token, sent=True))
    driver.tick()
    driver.lead()
    driver.tick_until_asked(1013)
    assert driver.asked(1013).fields == first.fields


def test_register_when_the_controllers_do_not_know_the_id_then_no_new_one_is_taken() -> None:
    """2010 to a broker with a final file: its id stands in SyncStateSets and in epochs' history."""
    driver = Driver()
    driver.register_as(3)
    driver.answer(1003, 2010)
    driver.tick_until_asked(1003)
    assert not driver.has_asked(1012)
    assert driver.files.final == Identity(CLUSTER, NAME, 3)


class Controller:
    """The controller room's own decisions about ids."""

    def __init__(self) -> None:
        self.state = MetadataState()
        self.context = Context(0, DeafTable())

    def serve(self, ask: ev.Ask) -> ev.Answered:
        """Act on one request."""
        if ask.code == 1012:
            known = self.state.sets.get(NAME)
            return ev.Answered(
                ask.token, 0, next_id(1 if known is None else known.last_issued_id + 1)
            )
        decision = decide_apply_broker_id(self.state, self.context, ask.fields, b"")
        if decision.event is not None:
            apply(self.state, decision.event)
        return ev.Answered(ask.token, decision.code, decision.ext_fields)


class DeafTable:
    """Ids are granted whether anybody lives or not."""

    def alive(self, now_ms: int, cluster: str, name: str, broker_id: BrokerId) -> bool:
        """Nobody is heard."""
        return False

    def info(self, cluster: str, name: str, broker_id: BrokerId) -> LiveInfo | None:
        """Nobody is heard."""
        return None


def live(files: Files, controller: Controller, steps: int, address: str = ADDRESS) -> bool:
    """One life of a broker, at most ``steps`` steps long; whether it came to its id.

    A request costs two steps, the controller's work and its answer; so does a write, its effect
    and its end: a life may end between the two.
    """
    driver = Driver(files, replace(SETTINGS, broker_address=address))
    driver.start()
    driver.lead()
    for _ in range(200):
        if driver.core.broker_id is not None:
            return True
        asks = [one for one in driver.take(ev.Ask) if one.code in (1012, 1013)]
        writes = driver.take(WriteTemporary) + driver.take(RemoveTemporary)
        writes += driver.take(WriteIdentity)
        for effect in [*asks, *writes]:
            if steps == 0:
                return False
            answer = controller.serve(effect) if effect in asks else driver.do(effect)
            if steps == 1:
                return False
            steps -= 2
            if answer is None:
                driver.done(effect)
            else:
                driver.give(answer)
        if not asks and not writes:
            driver.tick()
            driver.lead()
    raise AssertionError("never came to an id")


@pytest.mark.parametrize("lengths", [*itertools.product(range(10), range(10))])
def test_crash_when_at_any_step_twice_then_the_broker_ends_with_the_first_id(
    lengths: tuple[int, int],
) -> None:
    """Whatever was lost, one broker is one id, and the next broker gets the next one."""
    controller, files = Controller(), Files()
    for length in lengths:
        live(files, controller, length)
    assert live(files, controller, 1000)
    assert files.final == Identity(CLUSTER, NAME, 1)
    assert files.temporary is None
    second = Files()
    assert live(second, controller, 1000)
    assert second.final == Identity(CLUSTER, NAME, 2)


@pytest.mark.parametrize("length", range(14))
def test_two_brokers_when_they_apply_for_one_id_then_each_gets_its_own(length: int) -> None:
    """The read of the next id reserves nothing; a refused broker must come to another one."""
    controller, one, other = Controller(), Files(), Files()
    live(one, controller, length)
    live(other, controller, 3, OTHER_ADDRESS)
    assert live(one, controller, 1000)
    assert live(other, controller, 1000, OTHER_ADDRESS)
    assert one.final is not None
    assert other.final is not None
    assert {one.final.broker_id, other.final.broker_id} == {1, 2}
