"""Pop in order and 200052 over real replicas: a queue waits for what it gave, and skips nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from rmqha.ha.events import Role
from rmqha.remoting.command import RemotingCommand
from tests.broker.replicas import NAME, TOPIC, ReplicaCluster
from tests.broker.test_pop_in_simulator import GROUP, INVISIBLE_MS, Popped, ack, pop, understood

ORDER_FILE = "/store/config/consumerOrderInfo.json"


@pytest.fixture
def cluster() -> Iterator[ReplicaCluster]:
    """One replica with six messages in queue 0."""
    one = ReplicaCluster(seed=31, replicas=1)
    one.boot_all()
    send(one, 6)
    yield one
    one.close()


def send(cluster: ReplicaCluster, count: int) -> None:
    """Messages to queue 0."""
    for number in range(0, 4 * count, 4):
        assert cluster.send(number) is not None
    cluster.run_for(100)


def ordered(
    cluster: ReplicaCluster, count: int = 2, queue_id: int = 0, **more: object
) -> tuple[int, list[Popped]]:
    """Pop in order, of one queue."""
    return pop(cluster, count, order="true", queueId=queue_id, **more)


def offsets(found: list[Popped]) -> list[int]:
    """In the order in which they came."""
    return [one.offset for one in found]


def address(cluster: ReplicaCluster) -> str:
    """Of the master."""
    master = cluster.master()
    assert master is not None
    return master.config.address


def ask(cluster: ReplicaCluster, code: int, body: bytes = b"", **fields: object) -> RemotingCommand:
    """Ask the master about queue 0 of the topic, or with other fields."""
    all_fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0} | fields
    texts = {name: str(value) for name, value in all_fields.items()}
    return cluster.ask(address(cluster), code, texts, body, timeout_ms=60_000)


def change(cluster: ReplicaCluster, message: Popped, invisible_ms: int) -> dict[str, str]:
    """Send 200053; the fields of the answer."""
    answer = ask(
        cluster, 200053, offset=message.offset, extraInfo=message.key, invisibleTime=invisible_ms
    )
    assert answer.code == 0
    return dict(answer.ext_fields or {})


def test_queue_when_popped_in_order_then_it_waits_for_every_acknowledgement(
    cluster: ReplicaCluster,
) -> None:
    """Nothing overtakes; other queues and other groups go on."""
    _, found = ordered(cluster)
    assert offsets(found) == [0, 1]
    assert found[0].key.split(" ")[3] == "999"
    assert ordered(cluster) == (210, [])
    assert ack(cluster, found[1]) == 0
    assert ordered(cluster) == (210, []), "the first is still in flight"
    assert offsets(ordered(cluster, consumerGroup="Other")[1]) == [0, 1]
    assert cluster.send(1) is not None
    cluster.run_for(100)
    assert len(ordered(cluster, queue_id=1)[1]) == 1
    assert ack(cluster, found[0]) == 0
    assert offsets(ordered(cluster)[1]) == [2, 3]


@pytest.mark.costly
def test_queue_when_the_invisible_time_is_over_then_the_same_comes_again_counted(
    cluster: ReplicaCluster,
) -> None:
    """From the queue itself, without a retry topic; what was acknowledged in front stays done."""
    _, found = ordered(cluster, 3)
    assert ack(cluster, found[0]) == 0
    cluster.run_for(INVISIBLE_MS + 10)
    answer = ask(
        cluster, 200050, maxMsgNums=3, invisibleTime=INVISIBLE_MS, pollTime=0, order="true"
    )
    assert offsets(understood(answer)) == [1, 2, 3]
    fields = answer.ext_fields or {}
    assert fields["orderCountInfo"] == "0 qo0%1 1;0 qo0%2 1;0 0 0"
    assert fields["reviveQid"] == "999"
    assert [ack(cluster, one) for one in found[1:]] == [0, 0], "too late, but no error"
    assert ordered(cluster) == (210, [])
    for one in understood(answer):
        assert ack(cluster, one) == 0
    cluster.run_for(4 * INVISIBLE_MS)
    assert offsets(ordered(cluster)[1]) == [4, 5]
    master = cluster.master()
    assert master is not None
    assert master.topics.table.get(f"%RETRY%{GROUP}_{TOPIC}") is None


@pytest.mark.costly
def test_invisible_time_when_changed_in_order_then_the_queue_opens_at_the_new_time(
    cluster: ReplicaCluster,
) -> None:
    """A consumer that failed wants its message sooner; what it held is in the answer."""
    _, (found, *_) = ordered(cluster, 1)
    said = change(cluster, found, 1_000)
    assert said["reviveQid"] == "999"
    assert said["popTime"] == found.key.split(" ")[1]
    assert 1_000 <= int(said["invisibleTime"]) < INVISIBLE_MS
    before = cluster.loop.time()
    assert offsets(ordered(cluster, 1, pollTime=20_000)[1]) == [0]
    assert 0.9 < cluster.loop.time() - before < 1.2, "whoever waits is woken at that time"
    assert change(cluster, found, 60_000)["popTime"] == found.key.split(" ")[1]
    cluster.run_for(INVISIBLE_MS)
    _, (again, *_) = ordered(cluster, 1)
    assert again.offset == 0, "the key of the former time changed nothing"
    assert ack(cluster, again) == 0
    assert change(cluster, again, 1_000) == {
        "popTime": "0", "invisibleTime": "0", "reviveQid": "0",
    }  # fmt: skip


@pytest.mark.costly
def test_held_pop_when_the_queue_opens_then_it_is_answered_at_once(cluster: ReplicaCluster) -> None:
    """By the last acknowledgement, or when the invisible time is over: nobody polls in a loop."""
    _, found = ordered(cluster, 1)
    cluster.loop.call_later(1.0, lambda: cluster.ask_later(address(cluster), 200051, {
        "consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "offset": "0",
        "extraInfo": found[0].key,
    }))  # fmt: skip
    before = cluster.loop.time()
    assert offsets(ordered(cluster, 1, pollTime=15_000)[1]) == [1]
    assert 0.9 < cluster.loop.time() - before < 1.2
    before = cluster.loop.time()
    assert offsets(ordered(cluster, 1, pollTime=15_000)[1]) == [1]
    assert INVISIBLE_MS / 1000 - 0.2 < cluster.loop.time() - before < INVISIBLE_MS / 1000 + 0.2


def test_attempt_when_its_answer_was_lost_then_it_may_ask_again(cluster: ReplicaCluster) -> None:
    """``attemptId`` of proxies: the same messages at once, and not counted as given before."""
    assert offsets(ordered(cluster, attemptId="one")[1]) == [0, 1]
    assert ordered(cluster, attemptId="two") == (210, [])
    assert offsets(ordered(cluster, attemptId="one")[1]) == [0, 1]
    asked = {"pollTime": 0, "order": "true"}
    told = ask(cluster, 200054, attemptId="two", **asked).ext_fields or {}
    assert told["hasMsg"] == "false"
    told = ask(cluster, 200054, attemptId="one", **asked).ext_fields or {}
    assert told["hasMsg"] == "true"


def test_batch_ack_when_popped_in_order_then_the_queue_opens(cluster: ReplicaCluster) -> None:
    """200151 with the revive queue 999; an offset that is not in flight is refused."""
    _, found = ordered(cluster, 3)
    entry = {
        "c": GROUP, "t": TOPIC, "r": "0", "so": 0, "q": 0, "rq": 999,
        "pt": int(found[0].key.split(" ")[1]), "it": INVISIBLE_MS, "b": "Aw==",
    }  # fmt: skip

    def batch(bits: str) -> int:
        body = json.dumps({"brokerName": NAME, "acks": [{**entry, "b": bits}]}).encode()
        return ask(cluster, 200151, body).code

    assert batch("Aw==") == 0
    assert ordered(cluster) == (210, [])
    assert batch("EA==") == 13, "the fifth was never given"
    assert batch("BA==") == 0
    assert offsets(ordered(cluster)[1]) == [3, 4]


@pytest.mark.costly
def test_order_when_the_broker_restarts_then_what_was_in_flight_still_is(
    cluster: ReplicaCluster,
) -> None:
    """``consumerOrderInfo.json``, as Java writes it; a kill loses what is younger than its period."""
    _, found = ordered(cluster, 2, invisibleTime=60_000)
    assert ack(cluster, found[0]) == 0
    cluster.run_for(6_000)
    master = cluster.master()
    assert master is not None
    host = cluster.host_of(master)
    cluster.kill(host)
    cluster.boot(host)
    cluster.until(lambda: cluster.master() not in (None, master), "master")
    assert ordered(cluster) == (210, [])
    assert ack(cluster, found[1]) == 0
    assert offsets(ordered(cluster)[1]) == [2, 3]


@pytest.mark.slow
def test_acks_when_the_broker_reigns_no_more_then_they_are_refused(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a slave wrote down would be known to nobody: its master gives the messages again."""
    _, found = ordered(cluster)
    master = cluster.master()
    assert master is not None
    told = address(cluster)
    fields = {
        "consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "offset": str(found[0].offset),
        "extraInfo": found[0].key, "invisibleTime": "60000",
    }  # fmt: skip
    monkeypatch.setattr(master, "role", Role.SLAVE)
    for code in (200051, 200053):
        assert cluster.ask(told, code, fields).code == 14
    monkeypatch.undo()
    assert ack(cluster, found[1]) == 0
    assert ordered(cluster) == (210, []), "the first is still in flight"


def test_order_when_another_replica_takes_over_then_nothing_is_skipped() -> None:
    """It does not know what is in flight: everything from the kept offset on comes again."""
    with ReplicaCluster(seed=32, replicas=3) as cluster:
        cluster.boot_all()
        cluster.until(cluster.in_sync, "SyncStateSet")
        send(cluster, 6)
        _, found = ordered(cluster, 4)
        assert offsets(found) == [0, 1, 2, 3]
        assert ack(cluster, found[0]) == 0
        cluster.run_for(4_000)
        old = cluster.master()
        assert old is not None
        cluster.kill(cluster.host_of(old))
        cluster.until(lambda: cluster.master() not in (None, old), "new master")
        # Java's would take this for all before it.
        assert ack(cluster, found[3]) == 0
        seen: list[int] = []

        def all_there() -> bool:
            code, more = ordered(cluster, 32)
            seen.extend(offsets(more))
            return code == 0

        cluster.until(all_there, "messages in order")
        assert seen[-5:] == [1, 2, 3, 4, 5]


@pytest.mark.costly
def test_order_when_a_replica_reigns_again_then_what_is_done_blocks_nothing() -> None:
    """Its own record said that a message was in flight, which was acknowledged at another master."""
    with ReplicaCluster(seed=4, replicas=2) as cluster:
        cluster.boot_all()
        cluster.until(cluster.in_sync, "SyncStateSet")
        send(cluster, 2)

        def change_masters() -> None:
            old = cluster.master()
            assert old is not None
            cluster.run_for(8_000)  # what is in flight is written
            cluster.kill(cluster.host_of(old))
            cluster.until(lambda: cluster.master() not in (None, old), "new master")
            cluster.boot(cluster.host_of(old))
            cluster.until(cluster.in_sync, "SyncStateSet")

        assert offsets(ordered(cluster, 1, invisibleTime=120_000)[1]) == [0]
        first = cluster.master()
        assert first is not None
        change_masters()
        for offset in (0, 1):
            (one,) = ordered(cluster, 1, invisibleTime=120_000)[1]
            assert one.offset == offset
            assert ack(cluster, one) == 0
        change_masters()
        again = cluster.master()
        assert again is not None
        assert cluster.host_of(again) == cluster.host_of(first)
        cluster.loop.call_later(1.0, cluster.send_without_waiting, 1)
        assert offsets(ordered(cluster, 1, pollTime=15_000)[1]) == [2], "a held pop is served, too"


def test_reset_when_an_operator_moves_the_group_then_nothing_blocks(
    cluster: ReplicaCluster,
) -> None:
    """222 forgets what is in flight, as Java does."""
    assert offsets(ordered(cluster, 4)[1]) == [0, 1, 2, 3]
    fields = {"topic": TOPIC, "group": GROUP, "timestamp": 0, "isForce": "true", "offset": 2}
    assert ask(cluster, 222, **fields).code == 0
    assert offsets(ordered(cluster)[1]) == [2, 3]


def test_order_when_too_many_queues_are_in_flight_then_it_is_refused() -> None:
    """popOrderQueuesMax: a queue that could not be remembered gives nothing."""
    with ReplicaCluster(seed=33, replicas=1, popOrderQueuesMax=1) as cluster:
        cluster.boot_all()
        cluster.send_many(8)
        cluster.run_for(100)
        assert ordered(cluster)[0] == 0
        assert ordered(cluster, queue_id=1)[0] == 1
        assert pop(cluster, queueId=1)[0] == 0, "others pop as ever"


@pytest.mark.costly
def test_peek_when_asked_then_messages_are_shown_and_nothing_moves(cluster: ReplicaCluster) -> None:
    """200052: what is popped is not shown any more, what is in flight in order is."""

    def peek(**more: object) -> tuple[int, int, str]:
        answer = ask(cluster, 200052, **({"maxMsgNums": 4} | more))
        sizes, at = 0, 0
        body = bytes(answer.body)
        while at < len(body):
            at += int.from_bytes(body[at : at + 4])
            sizes += 1
        return answer.code, sizes, (answer.ext_fields or {}).get("restNum", "")

    assert peek(queueId=-1) == peek() == (0, 4, "6")
    assert peek(maxMsgNums=99) == (0, 6, "6")
    assert ordered(cluster, 2)[0] == 0
    assert peek() == (0, 4, "6")
    cluster.run_for(INVISIBLE_MS + 10)
    assert len(pop(cluster, 5)[1]) == 5
    assert peek() == (0, 1, "1")
    assert peek(queueId=1) == (19, 0, "0")
    assert [peek(**more)[0] for more in (
        {"topic": "Nowhere"}, {"queueId": 99}, {"consumerGroup": "no group"}, {"maxMsgNums": 0},
    )] == [17, 29, 26, 29]  # fmt: skip
