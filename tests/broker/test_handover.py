"""When a master holds sends for a planned switch: the rules alone, without sockets."""

from __future__ import annotations

import random

import pytest

from rmqha.broker.send.handover import (
    HOLD_MS_MAX,
    NEAR_BYTES,
    PASS_ON_MS,
    TAKEN_MS,
    Answer,
    Elect,
    Facts,
    Handover,
    HandoverEffect,
    PassOn,
    Phase,
    TakeBack,
    WriteHere,
)

NEAR = Facts(True, True, 100, 2)
READY = Facts(True, True, 0, 0)


def begun(
    facts: Facts = NEAR, wait_ms: int = 500, hold_ms: int = 100, *, elects: bool = False
) -> Handover:
    """A switch to broker 2 that was asked for at 0."""
    one = Handover()
    assert one.asked(0, 2, wait_ms, hold_ms, facts, elects=elects) == []
    return one


def electing() -> Handover:
    """The same, and the controllers have been asked to elect it, at 2."""
    one = begun(elects=True)
    assert one.looked(2, READY) == [Elect(2)]
    return one


def test_switch_when_the_target_catches_up_then_ready_and_passed_on() -> None:
    """The way it should go."""
    one = begun()
    assert (one.phase, one.holds) == (Phase.HOLDING, True)
    assert one.looked(1, Facts(True, True, 0, 1)) == [], "a send is not acknowledged yet"
    assert one.looked(2, READY) == [Answer(None)]
    assert one.holds
    assert one.role_taken(5, is_master=False) == [PassOn()]
    assert one.looked(5 + PASS_ON_MS - 1, READY) == []
    assert one.holds
    one.looked(5 + PASS_ON_MS, READY)
    assert (one.phase, one.holds) == (Phase.IDLE, False)


def test_switch_when_the_target_is_far_or_not_in_sync_then_nothing_is_held_for_it() -> None:
    """Producers must not wait for a replica that copies a gigabyte."""
    for far in (Facts(True, True, NEAR_BYTES + 1, 0), Facts(True, False, 0, 0),
                Facts(True, False, None, 0)):  # fmt: skip
        one = begun(far)
        assert (one.phase, one.holds) == (Phase.WAITING, False)
        assert one.looked(499, far) == []
        (answer,) = one.looked(500, far)
        assert isinstance(answer, Answer)
        assert answer.refusal is not None
        assert not one.holds
        again = begun(far)
        assert again.looked(300, NEAR) == []
        assert again.holds


def test_switch_when_the_target_dies_while_sends_are_held_then_they_are_written_here() -> None:
    """At once, not at the deadline."""
    one = begun()
    gone = Facts(True, True, None, 2)
    assert one.looked(3, gone) == [Answer("broker 2 is not connected to its master"), WriteHere()]
    assert not one.holds


def test_switch_when_nobody_is_elected_then_sends_go_on_here_by_the_deadline() -> None:
    """Whoever asked may have died, and the controllers may be electing their own leader."""
    one = begun()
    assert one.looked(2, READY) == [Answer(None)]
    assert one.looked(99, READY) == []
    assert one.looked(100, READY) == [WriteHere()]
    assert one.phase is Phase.IDLE
    slow = begun()
    assert slow.looked(100, NEAR) == [Answer("broker 2 lacks 100 bytes"), WriteHere()]
    longest = begun(hold_ms=10**9)
    assert longest.looked(HOLD_MS_MAX, NEAR)[-1] == WriteHere()


def test_switch_when_it_is_taken_back_then_sends_go_on_here() -> None:
    """The controllers refused."""
    one = begun()
    one.looked(2, READY)
    assert one.withdrawn() == [WriteHere()]
    assert one.withdrawn() == []
    assert begun(Facts(True, False, 0, 0)).withdrawn() == [Answer("withdrawn")]
    assert begun().withdrawn() == [Answer("withdrawn"), WriteHere()]


def test_switch_when_another_is_asked_for_meanwhile_then_refused() -> None:
    """Two operators at a time."""
    one = begun()
    assert one.asked(1, 3, 0, 50, NEAR) == [Answer("a switch to broker 2 is under way")]
    assert one.target == 2
    assert Handover().asked(0, 2, 9, 9, Facts(False, True, 0, 0))[0] != Answer(None)


def test_role_when_this_broker_is_elected_again_then_sends_go_on_here() -> None:
    """Also one that passed sends on, and became master once more."""
    one = begun()
    one.looked(2, READY)
    assert one.role_taken(3, is_master=True) == [WriteHere()]
    one = begun()
    one.looked(2, READY)
    one.role_taken(3, is_master=False)
    assert one.role_taken(4, is_master=True) == [WriteHere()]
    assert one.phase is Phase.IDLE


def test_role_when_an_election_comes_between_then_what_is_held_is_passed_on() -> None:
    """Nothing may be written by a broker that is a slave now."""
    one = begun()
    answer, passed = one.role_taken(3, is_master=False)
    assert answer == Answer("another election came between")
    assert passed == PassOn()
    assert Handover().role_taken(3, is_master=False) == []


def test_electing_when_the_target_is_elected_then_answered_when_it_has_taken_a_send() -> None:
    """The command's end means that writes go on."""
    one = electing()
    assert one.role_taken(5, is_master=False) == [PassOn()]
    assert one.owes
    assert one.taken() == [Answer(None)]
    assert one.taken() == []
    assert not one.owes


def test_electing_when_nobody_sends_then_answered_after_a_while() -> None:
    """Nor is it said twice."""
    one = electing()
    one.role_taken(5, is_master=False)
    assert one.looked(5 + TAKEN_MS - 1, READY) == []
    assert one.looked(5 + TAKEN_MS, READY) == [Answer(None)]
    assert one.looked(5 + TAKEN_MS + 1, READY) == []


def test_electing_when_nobody_was_elected_then_told_so_and_asked_for_no_more() -> None:
    """By the controllers' word, by the deadline, by another election of this broker, or by hand."""
    on = [WriteHere()]
    assert electing().refused("2012") == [TakeBack(), Answer("2012"), *on]
    late = electing().looked(102, READY)
    assert late == [TakeBack(), Answer("no election was heard of in time"), *on]
    assert electing().withdrawn() == [TakeBack(), Answer("withdrawn"), *on]
    again = electing().role_taken(9, is_master=True)
    assert again == [TakeBack(), Answer("another election came between"), *on]
    assert begun().refused("an answer to nobody's question") == []


def test_electing_when_this_broker_reigns_again_before_it_answered_then_it_answers() -> None:
    """Whoever asked waits."""
    one = electing()
    one.role_taken(5, is_master=False)
    assert one.role_taken(9, is_master=True) == [Answer(None), WriteHere()]
    assert one.taken() == []


def answers(effects: list[HandoverEffect]) -> int:
    """How many are told something."""
    return sum(isinstance(effect, Answer) for effect in effects)


@pytest.mark.few
@pytest.mark.parametrize("seed", range(200))
def test_switch_when_anything_happens_then_it_ends_and_sends_are_never_held_for_long(
    seed: int,
) -> None:
    """No order of events leaves sends held beyond the deadline, or written by a slave."""
    rng = random.Random(seed)
    one, now_ms, held_since, master = Handover(), 0, None, True
    asked = answered = 0
    for _ in range(400):
        now_ms += rng.choice((0, 1, 5, 50))
        facts = Facts(master, rng.random() < 0.8, rng.choice((None, 0, 0, 9)), rng.choice((0, 1)))
        effects: list[HandoverEffect] = []
        match rng.randrange(10):
            case 0:
                asked += 1
                effects = one.asked(
                    now_ms,
                    2,
                    rng.choice((0, 300)),
                    rng.choice((9, 900)),
                    facts,
                    elects=seed % 2 == 0,
                )
            case 8:
                effects = one.refused("no")
            case 9:
                effects = one.taken()
            case 1:
                effects = one.withdrawn()
            case 2 if rng.random() < 0.2:
                master = not master
                effects = one.role_taken(now_ms, is_master=master)
            case _:
                effects = one.looked(now_ms, facts)
        answered += answers(effects)
        if any(isinstance(effect, WriteHere) for effect in effects):
            assert master, "written by a slave"
        if one.phase in (Phase.HOLDING, Phase.READY):
            held_since = now_ms if held_since is None else held_since
            assert now_ms - held_since <= 900 + 50
            one_more = one.looked(held_since + 900, facts)
            answered += answers(one_more)
            assert one.phase is Phase.IDLE or one.phase is Phase.READY, one_more
            if one.phase is Phase.READY:
                answered += answers(one.looked(held_since + 900, facts))
            assert not one.holds
            held_since = None
        else:
            held_since = None
        assert one.phase is Phase.IDLE or one.deadline_ms is not None
        waits = one.phase in (Phase.WAITING, Phase.HOLDING) or one.owes
        assert asked - answered == waits, "each who asked is answered once"
