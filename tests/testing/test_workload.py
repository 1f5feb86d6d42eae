"""The ledger must find every loss; and a workload's figures must be true after real failovers."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

import pytest

from rmqha.base.errors import RmqhaError
from rmqha.runtime.aio.clock import SystemClock
from rmqha.testing.client import Acked, ClusterClient, NotYet, RefusedForGood, missing
from rmqha.testing.cluster import RmqCluster
from rmqha.testing.ledger import NUMBERS_AHEAD_MAX, PAYLOAD, Ledger
from rmqha.testing.real.wire import Stored
from rmqha.testing.topics import Queues
from rmqha.testing.workload import Workload, stop_all


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


def test_missing_when_another_message_is_in_its_place_then_it_is_missing() -> None:
    """A tail that was cut and written anew has the same places."""
    acked = [Acked("t", b"%d" % n, 0, n, "", "m", 1, 0, 0) for n in range(3)]
    found = [Stored(0, n, 0, "t", b"%d" % n) for n in range(3)]
    assert missing(acked, found) == []
    found[1] = Stored(0, 1, 0, "t", b"another")
    assert missing(acked, found) == [acked[1]]


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


async def test_workloads_when_some_have_broken_then_each_is_named() -> None:
    """A bug in one of them ended a chaos cell with a traceback, and without a verdict."""
    assert await stopped(
        None, RmqhaError("refused for good"), NotYet("too late"), ZeroDivisionError("by 0")
    ) == [
        "t1: the workload broke: refused for good", "t2: the workload broke: too late",
        "t3: the workload broke: ZeroDivisionError('by 0')",
    ]  # fmt: skip


class Broker:
    """Stores what it is sent, in one queue, and gives out what it has become.

    Args:
        stored: what becomes of a body, by its number.
        unreadable: places at which a run of records cannot be taken apart.
    """

    history = None

    def __init__(
        self, stored: Mapping[int, bytes] | None = None, unreadable: Collection[int] = ()
    ) -> None:
        self.clock = SystemClock()
        self._stored, self._unreadable = stored or {}, unreadable
        self._bodies: list[bytes] = []

    async def send_together(
        self, number: int, bodies: Sequence[bytes], topic: str, attempt: int
    ) -> list[Acked]:
        """Store them."""
        await asyncio.sleep(0)
        at = len(self._bodies)
        self._bodies += [self._stored.get(number + n, one) for n, one in enumerate(bodies)]
        return [Acked(topic, b, 0, at + n, "", "m", attempt, 0, 0) for n, b in enumerate(bodies)]

    async def master(self) -> str:
        """Itself."""
        return "m"

    async def create_topic(self, *_: object) -> Queues:
        """Of one queue."""
        return Queues(1, 1)

    async def pull(
        self, _: str, topic: str, queue: int, offset: int, count: int = 32
    ) -> tuple[list[Stored], int]:
        """What it has; a damaged size or topic breaks the whole run."""
        end = min(len(self._bodies), offset + count)
        if bad := [one for one in self._unreadable if offset <= one < end]:
            if bad[0] % 2:
                raise struct.error("unpack_from requires a buffer")
            # A magic number that is none ends what can be taken apart.
            end_read = bad[0]
        else:
            end_read = end
        found = enumerate(self._bodies[offset:end_read], offset)
        return [Stored(queue, at, 0, topic, body) for at, body in found], end

    async def until(self, found: Any, what: str, timeout_s: float) -> None:
        """Wait for it."""
        async with asyncio.timeout(timeout_s):
            while not await found():  # noqa: ASYNC110 - as the real one does
                await asyncio.sleep(0.001)


async def ended(broker: Broker, acks: int = 100) -> tuple[Ledger, list[str]]:
    """A workload that has sent so many, and what is said of its end."""
    load = Workload(cast(ClusterClient, broker), "t", 0.0, 1.0)
    load.start()
    await load.wait_for_acks(acks, 10.0)
    return load.ledger, await stop_all([load], 10.0)


@pytest.mark.parametrize(
    "body", [b"\x751:" + PAYLOAD, b"", b"50:" + PAYLOAD[:-1] + b"y", "²:".encode() + PAYLOAD]
)
async def test_message_when_it_is_damaged_then_it_counts_as_that_and_reading_goes_on(
    body: bytes,
) -> None:
    """The consumer ended at it; what came behind it counted as lost, if anything was said at all."""
    ledger, broken = await ended(Broker({50: body}))
    assert broken == []
    assert (ledger.damaged, ledger.lost, ledger.pending) == (1, [50], 0)
    assert ledger.consumed == ledger.acknowledged - 1
    assert "1 damaged" in repr(ledger)


@pytest.mark.parametrize("place", [40, 51])
async def test_records_when_they_cannot_be_taken_apart_then_the_one_that_is_damaged_is_found(
    place: int,
) -> None:
    """Those around it are whole, and are not lost."""
    ledger, broken = await ended(Broker(unreadable=[place]), 200)
    assert broken == []
    assert (ledger.damaged, ledger.lost, ledger.pending) == (1, [place], 0)
    assert ledger.consumed == ledger.acknowledged - 1


async def test_workload_when_its_producer_breaks_then_its_consumer_ends_too() -> None:
    """It read on for as long as the cluster lived."""
    broker = Broker()

    async def refuse(*_: object) -> list[Acked]:
        raise RefusedForGood("never")

    load = Workload(cast(ClusterClient, broker), "t", 0.0, 1.0)
    load.start()
    await load.wait_for_acks(3, 10.0)
    broker.send_together = refuse  # type: ignore[method-assign]
    assert load._sending is not None
    await asyncio.wait([load._sending], timeout=10.0)
    with pytest.raises(RefusedForGood):
        await load.stop(10.0)
    assert [one for one in asyncio.all_tasks() if one.get_name().startswith("workload")] == []
    assert (load.ledger.pending, load.is_sending) == (0, False)
    await load.stop(10.0)


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
