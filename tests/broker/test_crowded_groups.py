"""Groups of thousands: told of their members and rid of the silent in turns, without the square."""

from __future__ import annotations

import pytest

from rmqha.base.ids import ConnectionId
from rmqha.broker.common.json_members import MessageQueue
from rmqha.broker.groups.aio.client_requests import EXPIRED_A_TURN
from rmqha.broker.groups.aio.member_notices import NOTICES_A_TURN, MemberNotices
from rmqha.broker.groups.consumers import ConsumerTable
from rmqha.broker.groups.memberships import CHANNEL_EXPIRED_MS
from rmqha.broker.groups.producers import ProducerTable
from rmqha.broker.groups.queue_locks import LEASE_MS, LEASES_A_TURN, QueueLocks
from tests.broker.backlogs import turns
from tests.broker.replicas import TOPIC, ReplicaCluster, master_of
from tests.broker.subscriber import Subscriber
from tests.broker.test_consumers import client, data
from tests.broker.test_pop_in_simulator import cluster

__all__ = ["cluster", "turns"]

GROUP = "Crowd"
MEMBERS = 2 * NOTICES_A_TURN


@pytest.mark.costly
def test_members_when_very_many_join_at_once_then_each_hears_of_the_last_and_few_notices_leave(
    cluster: ReplicaCluster, turns: list[int]
) -> None:
    """A broker that begins anew gets its clients back at once; the square of them is too much."""
    address = master_of(cluster).config.address
    clients = [Subscriber(cluster, address, f"c{at}") for at in range(MEMBERS)]
    groups = [f"{GROUP}{0 if at % 3 else 1}" for at in range(MEMBERS)]
    heard_ms = dict.fromkeys(groups, 0.0) | {one.client_id: 0.0 for one in clients}
    joined_ms: dict[str, float] = {}
    turns.clear()
    for one, group in zip(clients, groups, strict=True):
        one.on_oneway = lambda _, one=one: heard_ms.update(
            {one.client_id: cluster.loop.time() * 1000}
        )  # type: ignore[misc]
        joined_ms[group] = cluster.loop.time() * 1000
        one.beat(group, TOPIC)
    cluster.run_for(1_000)
    for one, group in zip(clients, groups, strict=True):
        assert heard_ms[one.client_id] > joined_ms[group], "told before the last one joined"
    notices = sum(len(one.told(40)) for one in clients)
    assert MEMBERS <= notices <= MEMBERS**2 // 4
    assert max(turns) <= NOTICES_A_TURN


def test_groups_when_several_wait_to_be_told_then_each_is_told_in_its_time(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timer of the first must not be the last."""
    master = master_of(cluster)
    sizes = {"A": 30, "B": 90, "C": 60}
    for group, size in sizes.items():
        for number in range(size):
            master.consumers.register(master.clock.now_ms(), client(number), data(group))
    told: list[tuple[str, float]] = []
    monkeypatch.setattr(
        master.clients, "oneway",
        lambda _, command: told.append((command.ext_fields["consumerGroup"], cluster.loop.time())),
    )  # fmt: skip
    notices = MemberNotices(master)
    for _ in range(2):
        cluster.loop.call_soon(notices.changed, sizes)
    cluster.run_for(20)
    assert {group: [one for one, _ in told].count(group) for group in sizes} == sizes
    del told[:]
    cluster.run_for(200)
    assert {group: [one for one, _ in told].count(group) for group in sizes} == sizes
    assert list(dict.fromkeys(group for group, _ in told)) == ["A", "C", "B"]
    assert len({at for _, at in told}) == len(sizes)
    cluster.loop.call_soon(notices.changed, sizes)
    cluster.loop.call_soon(notices.changed, sizes)
    cluster.loop.call_soon(notices.close)
    del told[:]
    cluster.run_for(200)
    assert len(told) == NOTICES_A_TURN, "what was told before it was closed"


def test_silent_when_very_many_then_they_are_forgotten_in_parts_the_longest_silent_first() -> None:
    """Two minutes of a broken network, and ten thousand clients are silent in the same second."""
    consumers, producers = ConsumerTable(1_000), ProducerTable(1_000)
    for number in range(10):
        consumers.register(number, client(number), data())
        producers.register(number, "P", client(number))
    consumers.register(20, client(0), data())
    producers.register(20, "P", client(0))
    over_ms = CHANNEL_EXPIRED_MS + 15
    assert consumers.expire(over_ms, 4)[0] == producers.expire(over_ms, 4) == [1, 2, 3, 4]
    assert consumers.expire(over_ms, 9)[0] == producers.expire(over_ms, 9) == [5, 6, 7, 8, 9]
    assert consumers.expire(over_ms, 9)[0] == producers.expire(over_ms, 9) == []
    assert consumers.client_ids("G") == ["c0"]


@pytest.mark.costly
def test_silent_when_more_than_a_turn_takes_then_all_of_them_go(cluster: ReplicaCluster) -> None:
    master = master_of(cluster)
    for number in range(2 * EXPIRED_A_TURN + 1):
        master.consumers.register(master.clock.now_ms(), client(-1 - number), data())
    cluster.run_for(CHANNEL_EXPIRED_MS + 20_000)
    assert master.consumers.size("G") == 0


def test_producer_when_asked_for_by_its_name_then_its_newest_connection_whatever_ended() -> None:
    """Replies go to the newest connection: the one before may be dead and not closed yet."""
    table = ProducerTable(100)
    for group in ("P", "Q"):
        table.register(0, group, client(1, "a"))
        table.register(0, group, client(2, "a"))
    table.register(0, "P", client(3, "b"))

    def found(name: str) -> int | None:
        one = table.find(1, name)
        return None if one is None else one.connection

    assert (found("a"), found("b"), found("c")) == (2, 3, None)
    table.unregister(1, "P", ConnectionId(2))
    assert found("a") == 2, "it produces for another group still"
    table.unregister(1, "Q", ConnectionId(2))
    assert found("a") == 1
    table.register(1, "P", client(3, "c"))
    assert (found("b"), found("c")) == (None, 3)
    table.closed(1, ConnectionId(1))
    assert found("a") is None
    table.expire(CHANNEL_EXPIRED_MS + 2, 9)
    assert found("c") is None
    assert len(table._names) == 0
    assert not table._names._beats


def test_leases_when_very_many_then_they_are_looked_at_in_parts_and_renewed_ones_stay() -> None:
    locks = QueueLocks(2 * LEASES_A_TURN)
    queues = [MessageQueue("T", "b", number) for number in range(2 * LEASES_A_TURN)]
    locks.lock(0, "G", "a", queues)
    work = locks.expire(LEASE_MS + 1)
    next(work)
    left = len(locks)
    assert 0 < left < 2 * LEASES_A_TURN
    assert locks.lock(LEASE_MS + 1, "G", "b", queues[-1:]) == queues[-1:]
    locks.unlock("G", "a", queues[-2:-1])
    parts = sum(1 for _ in work)
    assert parts == 1
    assert len(locks) == 1
    assert locks.lock(LEASE_MS + 2, "G", "a", queues[-1:]) == []
