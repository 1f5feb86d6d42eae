"""What brokers disagree on, and which of them is believed."""

from __future__ import annotations

import pytest

from rmqha.statictopic.known import Known, KnownTopic, histories, is_stale, is_unfinished
from rmqha.statictopic.plan import retell
from tests.statictopic.examples import UNDECIDED, A, B, detail, item, known
from tests.statictopic.model import steps_of

TWO = known(A, B)


def test_history_when_java_left_it_undecided_at_the_old_leader_then_the_new_ones_counts() -> None:
    """Java's mqadmin never tells a broker where the queue went on."""
    decided = (UNDECIDED[0], item(1, "b", 8, 10_000))
    one = known(detail("a", {0: UNDECIDED}), detail("b", {0: decided}), nums=9)
    one = one.with_broker("a", KnownTopic(9, 9, detail("a", {0: UNDECIDED}, total=1)))
    one = one.with_broker("b", KnownTopic(9, 9, detail("b", {0: decided}, total=1)))
    assert histories(one) == {0: decided}
    assert (is_unfinished(one), is_stale(one)) == (False, True)
    assert [step.broker_name for step in steps_of(retell(one, 5_000))] == ["a", "b"]


def test_history_when_segments_have_expired_then_the_leaders_list_counts() -> None:
    """Others learn late what was cleaned away."""
    new = item(1, "b", 0, 10_000)
    one = known(
        detail("a", {0: (item(0, "a", 0, 0), new)}, total=1), detail("b", {0: (new,)}, total=1)
    )
    assert histories(one) == {0: (new,)}
    assert not is_stale(one)


def test_history_when_two_commands_ran_at_once_then_the_fenced_leader_counts() -> None:
    """Both gave the queue away; the old leader stopped for one of them only."""
    for_b, for_c = UNDECIDED, (UNDECIDED[0], item(1, "c", 0))
    one = known(
        detail("a", {0: for_b}, epoch=2000),
        detail("b", {0: for_b}, epoch=2000),
        detail("c", {0: for_c}, epoch=3000),
    )
    assert histories(one) == {0: for_b}
    assert is_unfinished(one)
    decided = (UNDECIDED[0], item(1, "c", 0, 10_000))
    assert histories(one.with_broker("c", KnownTopic(1, 1, detail("c", {0: decided})))) == {
        0: decided
    }


@pytest.mark.parametrize(
    ("brokers", "unfinished", "stale"),
    [
        (TWO, False, False),
        (known(A, B, more=("c",)), False, True),
        (known(A, detail("b", epoch=2000)), False, True),
        (known(A, detail("b", total=3)), False, True),
        (known(A, detail("b", dirty=True)), False, True),
        (known(A, detail("b", {0: UNDECIDED})), True, True),
        # Nobody but the scribe was told that b leads a queue.
        (known(detail("a", {0: (item(0, "b", 0, 0),)}, total=1), B), True, True),
        # The leader is away: there is nothing that could be finished.
        (known(detail("a", {0: (item(0, "z", 0, 0),)}, total=1)), False, False),
    ],
)
def test_topic_when_looked_at_then_what_is_left_to_do_is_known(
    brokers: Known, unfinished: bool, stale: bool
) -> None:
    """The next command does it first."""
    assert (is_unfinished(brokers), is_stale(brokers)) == (unfinished, stale)
