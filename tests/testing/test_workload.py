"""The ledger must find every loss; and a workload's figures must be true after real failovers."""

from __future__ import annotations

import pytest

from rmqha.testing.cluster import RmqCluster
from rmqha.testing.workload import NUMBERS_AHEAD_MAX, Ledger


def test_a_message_that_was_passed_over_is_lost() -> None:
    """The consumer stands behind its place and has not seen it."""
    ledger = Ledger()
    ledger.acked(0, 0, 0)
    ledger.acked(1, 0, 1)
    ledger.read(1, 0, 1)
    ledger.passed(0, 2)
    assert ledger.lost == [0]
    assert (ledger.acknowledged, ledger.consumed, ledger.pending) == (2, 1, 0)


def test_a_message_that_is_acknowledged_where_the_consumer_has_been_is_lost() -> None:
    """A new master that answers with an offset of the past has cut something off."""
    ledger = Ledger()
    ledger.passed(2, 7)
    ledger.acked(0, 2, 6)
    assert ledger.lost == [0]


def test_another_message_in_its_place_is_a_loss() -> None:
    """A truncated tail that was written anew."""
    ledger = Ledger()
    ledger.acked(0, 1, 0)
    ledger.read(5, 1, 0)
    ledger.passed(1, 1)
    assert ledger.lost == [0]


def test_a_message_that_was_sent_twice_is_a_duplicate_and_no_loss() -> None:
    """Its first answer was lost; both copies are there, the second one is the acknowledged one."""
    ledger = Ledger()
    ledger.read(0, 0, 0)
    ledger.acked(0, 0, 3)
    ledger.read(0, 0, 3)
    ledger.passed(0, 4)
    assert (ledger.duplicates, ledger.consumed, ledger.lost) == (1, 1, [])


def test_what_never_comes_is_lost_when_it_is_given_up() -> None:
    """At the end of a run nothing may stay in between."""
    ledger = Ledger()
    ledger.acked(0, 3, 0)
    assert ledger.pending == 1
    ledger.give_up()
    assert (ledger.lost, ledger.pending) == ([0], 0)


def test_memory_is_bounded_while_numbers_are_missing() -> None:
    """One gap must not make the ledger keep every number behind it for ever."""
    ledger = Ledger()
    for number in range(1, NUMBERS_AHEAD_MAX + 1):
        ledger.read(number, 0, number)
    with pytest.raises(OverflowError, match="message 0 is missing"):
        ledger.read(NUMBERS_AHEAD_MAX + 1, 0, NUMBERS_AHEAD_MAX + 1)


@pytest.mark.slow
def test_a_workload_goes_on_over_kills(rmq_cluster: RmqCluster) -> None:
    """Three masters die under a producer and a consumer; every message is read, none is lost."""
    workload = rmq_cluster.workload("Steady")
    for _ in range(3):
        workload.wait_for_acks(100)
        old = rmq_cluster.wait_for_master()
        killed_ms = workload.now_ms()
        rmq_cluster.kill(old)
        workload.wait_for_acks(100)
        first = workload.first_ack_after(killed_ms, not_by=old.address)
        assert first is not None
        rmq_cluster.heal()
    ledger = workload.stop()
    assert ledger.acknowledged == ledger.consumed >= 600
    assert (ledger.lost, ledger.pending) == ([], 0)
