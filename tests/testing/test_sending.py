"""What a test gives to the verbs, and what it asked wrongly: refused at once, and nothing is left over."""

from __future__ import annotations

import asyncio
import time

import pytest

from rmqha.runtime.aio.clock import SystemClock
from rmqha.runtime.aio.net import TcpNetwork
from rmqha.testing.client import Acked, ClusterClient, RefusedForGood
from rmqha.testing.cluster import RmqCluster
from rmqha.testing.plugin import Factory
from rmqha.testing.settings import Plan


@pytest.fixture
def cluster(rmq_cluster_factory: Factory) -> RmqCluster:
    """One broker."""
    return rmq_cluster_factory(controllers=1, replicas=1)


@pytest.mark.costly
def test_body_when_no_frame_holds_it_then_it_is_refused_after_one_attempt(
    cluster: RmqCluster,
) -> None:
    """It was tried again for half a minute."""
    started = time.monotonic()
    with pytest.raises(RefusedForGood, match="is over the limit"):
        cluster.produce(b"x" * (16 << 20), topic="Big")
    assert time.monotonic() - started < 10


@pytest.mark.costly
def test_body_when_it_is_a_bytearray_or_a_view_then_it_is_one_message(
    cluster: RmqCluster,
) -> None:
    """It was taken for a list of numbers."""
    data = bytearray(b"abc")
    sent = cluster.produce(data, topic="Views") + cluster.produce(memoryview(data), topic="Views")
    sent += cluster.produce([data], topic="Views")
    data[:] = b"xyz"
    assert [one.body for one in sent] == [b"abc"] * 3
    cluster.assert_nothing_lost("Views")


@pytest.mark.costly
def test_partition_when_a_node_is_on_both_sides_then_no_link_is_cut(
    rmq_cluster_factory: Factory,
) -> None:
    """Half of it held, and came into force with the next verb."""
    cluster = rmq_cluster_factory(controllers=1, replicas=3)
    with pytest.raises(ValueError, match="broker-1 cannot be cut off from itself"):
        cluster.partition(["broker-0", "broker-1"], ["broker-1", "broker-2"])
    assert cluster._core._cut == set()


class OneRefused(ClusterClient):
    """Refuses one body for good, and takes the others when it is let."""

    def __init__(self) -> None:
        super().__init__(Plan((), (), ()), TcpNetwork(), SystemClock())
        self.may_go_on = asyncio.Event()

    async def send_once(self, number: int, body: bytes, topic: str, attempt: int) -> Acked | None:
        if body == b"bad":
            raise RefusedForGood("never")
        await self.may_go_on.wait()
        return Acked(topic, body, 0, number, "id", "m:1", attempt, 0, 0)


async def test_sends_when_one_of_several_is_refused_then_the_others_end_too() -> None:
    """They went on behind the test's back, and what was acknowledged grew later."""
    client = OneRefused()
    with pytest.raises(RefusedForGood, match="never"):
        await client.produce([b"one", b"bad", b"two"], "t", 5, in_flight=3)
    client.may_go_on.set()
    ours = asyncio.current_task()
    assert [task for task in asyncio.all_tasks() if task is not ours] == []
    assert client.acked == []
