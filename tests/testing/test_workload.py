"""The ledger must find every loss; and a workload's figures must be true after real failovers."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from rmqha.base.errors import RmqhaError
from rmqha.testing.cluster import RmqCluster
from rmqha.testing.workload import NUMBERS_AHEAD_MAX, Ledger, Workload, stop_all


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


class Load:
    """Stops when all have been asked to."""

    def __init__(self, topic: str, all_asked: asyncio.Barrier, error: Exception | None) -> None:
        self.topic, self._all_asked, self._error = topic, all_asked, error

    async def stop(self, drain_s: float) -> None:
        async with asyncio.timeout(drain_s):
            await self._all_asked.wait()
        if self._error is not None:
            raise self._error


async def stopped(*errors: Exception | None) -> list[str]:
    barrier = asyncio.Barrier(len(errors))
    loads = [Load(f"t{number}", barrier, error) for number, error in enumerate(errors)]
    return await stop_all(cast(list[Workload], loads), 5)


async def test_workloads_when_stopped_together_then_they_wait_at_the_same_time() -> None:
    """Sixteen topics that nobody serves any more took sixteen minutes, one after another."""
    assert await stopped(None, None, None) == []


async def test_workloads_when_one_has_broken_then_it_is_named_and_a_bug_is_raised() -> None:
    assert await stopped(None, RmqhaError("refused for good"), OverflowError("too many")) == [
        "t1: the workload broke: refused for good", "t2: the workload broke: too many",
    ]  # fmt: skip
    with pytest.raises(ZeroDivisionError):
        await stopped(None, ZeroDivisionError())


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
