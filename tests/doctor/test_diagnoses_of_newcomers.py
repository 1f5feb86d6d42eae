"""Diagnoses of controllers that are new to a group that works, or were removed from it."""

from __future__ import annotations

from msgspec.structs import replace

from rmqha.doctor.examine import is_wrong
from rmqha.doctor.facts import ControllerFacts, ControllerView, Facts
from tests.doctor.healthy import (
    BROKERS,
    CONTROLLERS,
    DOWN,
    HEALTHY,
    codes,
    config,
    controller,
    diagnose,
    only,
)
from tests.doctor.test_diagnoses_of_controllers import view

NEW_ONE = "10.0.0.9:9878"
PEERS = HEALTHY.controllers[0].peers


def founded(facts: Facts = HEALTHY, joining: frozenset[str] = frozenset()) -> Facts:
    """The three members as they are of a release that says what its store is."""
    for number in range(3):
        said = view(number, standing="voter", joining=joining)
        facts = controller(number, facts, view=said)
    return facts


def beside(facts: Facts, standing: str = "new") -> Facts:
    """The cluster with a fourth controller, whose file names all four."""
    said = ControllerView("n3", "follower", 0, False, 0, 0, {}, standing)
    one = ControllerFacts(NEW_ONE, peers={**PEERS, "n3": NEW_ONE}, view=said)
    return replace(facts, controllers=(*facts.controllers, one))


def test_newcomer_when_it_waits_to_be_added_then_nothing_is_wrong_and_the_command_is_told() -> None:
    """It is step 2 of adding a node: its store is empty by right, and it is nobody's member yet."""
    facts = beside(founded())
    found = only(facts, "controller-joins").found
    assert found.subject == NEW_ONE
    assert f"addController -a {CONTROLLERS[0]} -i n3 --address {NEW_ONE}" in found.next_step
    assert not is_wrong(diagnose(facts))


def test_newcomer_when_it_is_added_and_not_caught_up_then_it_is_no_emptied_member() -> None:
    """Its own view is still that of its file, or the leader's already; neither is a loss."""
    facts = founded(joining=frozenset({"n3"}))
    for number in range(3):
        facts = controller(number, facts, peers={**PEERS, "n3": NEW_ONE})
    for broker_id in BROKERS:
        facts = config(broker_id, facts, controllerAddr=";".join((*CONTROLLERS, NEW_ONE)))
    facts = replace(facts, conf=None, identity=None, store=None)
    for standing in ("new", ""):
        found = only(beside(facts, standing), "controller-joins").found
        assert "is being caught up" in found.what


def test_newcomer_when_it_is_far_behind_then_it_is_not_told_as_a_slow_member() -> None:
    facts = founded()
    for number in range(3):
        said = view(number, standing="voter", applied_index=9_000, commit_index=9_000)
        facts = controller(number, facts, view=said)
    assert codes(beside(facts)) == ["controller-joins"]


def test_newcomer_when_brokers_name_it_already_then_it_is_no_stranger() -> None:
    """They must, before it is added; one that nobody knows stays a stranger."""
    named = ";".join((*CONTROLLERS, NEW_ONE))
    facts = config(3, founded(), controllerAddr=named)
    assert codes(beside(facts)) == ["controller-joins"]
    assert codes(facts) == ["controller-addr-differs"]


def test_newcomer_when_nobody_leads_then_the_group_is_not_called_unfounded() -> None:
    """The group has worked, as those with a vote show: it lacks a majority, and no founder."""
    facts = beside(founded())
    facts = controller(1, facts, leads=False, leader_address="")
    facts = controller(0, facts, leads=False, leader_address="")
    gone = ControllerFacts(CONTROLLERS[2], DOWN)
    facts = replace(
        facts, sets={}, has_sets=False,
        controllers=tuple(gone if one.address == gone.address else one for one in facts.controllers),
    )  # fmt: skip
    assert set(codes(facts)) == {
        "no-controller-leader", "controller-unreachable", "controller-joins",
    }  # fmt: skip
    assert "2 of 3 controllers answer" in diagnose(facts)[0].found.why


def test_member_when_its_store_was_emptied_then_it_is_no_newcomer() -> None:
    """The others have it among their members: it lost something."""
    facts = controller(2, founded(), view=view(2, standing="new", may_vote=False))
    found = only(facts, "controller-without-vote").found
    assert found.subject == CONTROLLERS[2]
    assert "emptied" in found.why


def test_removed_when_it_runs_then_it_is_to_be_stopped_and_not_said_to_miss_its_leader() -> None:
    """It keeps its vote and its old peers for as long as it runs."""
    said = ControllerView("n3", "removed", 4, True, 90, 90, {}, "voter")
    one = ControllerFacts(NEW_ONE, peers={**PEERS, "n3": NEW_ONE}, view=said)
    facts = founded()
    facts = replace(facts, controllers=(*facts.controllers, one))
    assert "Stop it" in only(facts, "controller-removed").found.next_step


def test_newcomer_when_it_was_added_and_never_ran_then_its_store_brings_nothing_back() -> None:
    """It was said to start it again, and that its store brings it back: it never had one."""
    facts = founded(joining=frozenset({"n3"}))
    for number in range(3):
        facts = controller(number, facts, peers={**PEERS, "n3": NEW_ONE})
    for broker_id in BROKERS:
        facts = config(broker_id, facts, controllerAddr=";".join((*CONTROLLERS, NEW_ONE)))
    facts = replace(facts, conf=None, identity=None, store=None)
    facts = replace(facts, controllers=(*facts.controllers, ControllerFacts(NEW_ONE, DOWN)))
    found = only(facts, "controller-unreachable").found
    assert "It was added as n3, has no vote yet" in found.why
    assert found.next_step.startswith("Start it, with an empty store")
    assert f"removeController -a {CONTROLLERS[0]} -i n3`" in found.next_step
