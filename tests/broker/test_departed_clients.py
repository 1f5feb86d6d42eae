"""Consumers that leave while they are served: what was for them is there for others at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqha.store.aio.pulling import Pulled, Pulling
from tests.broker.replicas import TOPIC, ReplicaCluster, master_of
from tests.broker.subscriber import Subscriber
from tests.broker.test_crowds import GROUP, POP
from tests.broker.test_full_connections import Waiting, put
from tests.broker.test_pop_in_simulator import pop

READ_MS = 300


@pytest.fixture
def cluster() -> Iterator[ReplicaCluster]:
    """One replica, with a message."""
    one = ReplicaCluster(seed=21, replicas=1)
    one.boot_all()
    put(one)
    yield one
    one.close()


def test_pop_when_its_client_leaves_during_the_read_then_others_get_the_messages_at_once(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were handed to nobody, and came when the invisible time was over."""
    master, fetch = master_of(cluster), Pulling.fetch
    fetched: list[Pulled] = []

    async def slow(self: Pulling, found: Pulled) -> None:
        await master.clock.sleep(READ_MS)
        await fetch(self, found)
        fetched.append(found)

    leaves = Subscriber(cluster, master.config.address)
    with monkeypatch.context() as cold:
        cold.setattr(Pulling, "is_cold", lambda _, found: bool(found.messages))
        cold.setattr(Pulling, "fetch", slow)
        leaves.tell(200050, POP)
        cluster.run_for(READ_MS // 3)
        leaves.connection.close()
        cluster.until(lambda: fetched, "the read", 2 * READ_MS)
        cluster.run_for(READ_MS)
    assert master.pop.pops.popped_to((GROUP, TOPIC, 0)) is None
    assert len(pop(cluster, consumerGroup=GROUP)[1]) == 1


@pytest.mark.parametrize("is_over", [False, True], ids=["a message comes", "its time is over"])
def test_held_pop_when_its_connection_is_closing_then_it_takes_nothing(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch, is_over: bool
) -> None:
    """Until the last bytes have left it is held still, and its answer would be dropped."""
    one = Waiting(cluster, "pop")
    if is_over:
        with monkeypatch.context() as unseen:
            unseen.setattr(one.waiting._to_look_at, "add", list)
            put(cluster)
    monkeypatch.setattr(one.connection._transport, "is_closing", lambda: True)
    if not is_over:
        put(cluster)
    cluster.until(lambda: len(one.waiting) == 0, "its end", 16_000)
    assert len(pop(cluster, consumerGroup=GROUP)[1]) == 1


@pytest.mark.parametrize("kind", ["pull", "pop"])
def test_request_when_its_client_has_left_then_it_is_not_held(
    cluster: ReplicaCluster, kind: str
) -> None:
    """Nobody would take it away before its time is over, and there is room for so many only."""
    one = Waiting(cluster, kind)
    asked = one.waiting._held.all()[0].asked
    one.client.connection.abort()
    cluster.until(lambda: len(one.waiting) == 0, "its end", 100)

    def hold() -> None:
        if kind == "pop":
            one.waiting.hold(asked, [(TOPIC, 0)])
        else:
            assert one.waiting.hold(asked, master_of(cluster)._pull.read(asked, 1))

    cluster.loop.call_soon(hold)
    cluster.run_for(20)
    assert len(one.waiting) == 0
