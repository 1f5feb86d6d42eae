"""Which sends wait for the disk: rules 2 and 3 of the Raft shell's contract."""

from __future__ import annotations

from rmqha.controller.raft.events import Send
from rmqha.controller.raft.held_sends import HeldSends
from rmqha.controller.raft.messages import TimeoutNow


def send(to: str) -> Send:
    """Any message to somebody."""
    return Send(to, TimeoutNow(1, "n0"))


def test_may_leave_when_listed_before_the_persist_then_it_leaves_at_once() -> None:
    """A leader's entries would reach its followers one disk write later."""
    held = HeldSends()
    assert held.may_leave(send("a"))
    held.persisting(1, hard=False)
    assert not held.may_leave(send("b"))


def test_durable_when_the_disk_is_done_then_the_sends_behind_it_leave_in_order() -> None:
    """A follower's answer would say "on disk" of what is not, or answers would overtake."""
    held = HeldSends()
    held.persisting(1, hard=False)
    held.may_leave(send("a"))
    held.step_ended()
    held.persisting(2, hard=False)
    held.may_leave(send("b"))
    held.step_ended()
    assert held.durable(1) == [send("a")]
    assert held.durable(2) == [send("b")]
    assert held.durable(3) == []


def test_may_leave_when_a_later_step_sends_during_a_plain_persist_then_it_leaves() -> None:
    """Rule 2 is about the sends of one step: heartbeats must not wait for a slow disk."""
    held = HeldSends()
    held.persisting(1, hard=False)
    held.step_ended()
    assert held.may_leave(send("a"))


def test_may_leave_when_a_vote_is_not_durable_then_nothing_leaves_before_it() -> None:
    """A node that crashes between its answer and its disk would vote twice in a term."""
    held = HeldSends()
    held.persisting(1, hard=True)
    held.step_ended()
    held.persisting(2, hard=False)
    held.step_ended()
    assert not held.may_leave(send("a"))
    assert held.durable(1) == [send("a")]
    assert held.may_leave(send("b"))


def test_may_leave_when_two_votes_are_not_durable_then_what_is_sent_waits_for_the_second() -> None:
    """A message of the newer term would leave while a power cut still takes term and vote back."""
    held = HeldSends()
    held.persisting(1, hard=True)
    held.step_ended()
    held.persisting(2, hard=True)
    held.step_ended()
    held.persisting(3, hard=False)
    held.step_ended()
    assert not held.may_leave(send("a"))
    assert held.durable(1) == []
    assert held.durable(2) == [send("a")]
    assert held.may_leave(send("b"))
