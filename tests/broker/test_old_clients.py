"""Static topics for clients that know none, on whole replicas, time and network simulated.

Such a client asks one broker set, the front, for every logical queue, and takes queue and offset of
a message from its record.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from rmqha.base.errors import RequestTimeout
from rmqha.broker.common.json_members import MessageQueue
from rmqha.broker.common.refusal import Refusal
from rmqha.broker.groups.queue_locks import QueueLocks
from rmqha.broker.logical.aio import forwarding
from rmqha.broker.naming.aio import other_sets
from rmqha.broker.naming.aio.other_sets import OtherSets
from rmqha.remoting import fastjson
from rmqha.remoting.command import RemotingCommand
from tests.broker.broker_sets import GROUP, STATIC, SetsCluster, segment
from tests.broker.old_client import GO, JAVA_4_9_8, OldClient, read_records

A, B, C = "broker-a", "broker-b", "broker-c"
TOTAL = 2


@pytest.fixture
def three() -> Iterator[SetsCluster]:
    """Three sets of one replica; both logical queues are led by the first, as 2 and 3 there."""
    with SetsCluster(seed=41, sets=3) as one:
        one.boot_all()
        create(one)
        yield one


def create(cluster: SetsCluster) -> None:
    """The topic, as updateStaticTopic makes it: all sets know of it."""
    cluster.tell(A, 1_000, led_by_a(), total=TOTAL, physical=4)
    for name in cluster.hosts_of.keys() - {A}:
        cluster.tell(name, 1_000, {}, total=TOTAL, physical=0)


def led_by_a() -> dict[int, list]:
    """The first mapping."""
    return {queue: [segment(0, 2 + queue, A, 0)] for queue in range(TOTAL)}


def move(cluster: SetsCluster, old: str, new: str, queues: dict[int, list], epoch: int) -> None:
    """Move all queues as a remap does; ``queues`` are the lists that it ends with."""
    undecided = {
        queue: [*items[:-1], segment(items[-1].gen, items[-1].queue_id, new, -1)]
        for queue, items in queues.items()
    }
    for lists in (undecided, queues):
        cluster.tell(new, epoch, lists, total=TOTAL, physical=6)
        cluster.tell(old, epoch, lists, total=TOTAL, physical=6)
    for name in cluster.hosts_of.keys() - {old, new}:
        cluster.tell(name, epoch, {}, total=TOTAL, physical=6)


def at_c() -> dict[int, list]:
    """Both queues have gone on to the third set, from 10,000 on."""
    return {queue: [*items, segment(1, queue, C, 10_000)] for queue, items in led_by_a().items()}


def back_at_a() -> dict[int, list]:
    """And back to the first, from 20,000 on."""
    return {queue: [*items, segment(2, 4 + queue, A, 20_000)] for queue, items in at_c().items()}


def told(answer: object, name: str) -> str | None:
    """A field of an answer."""
    return (getattr(answer, "ext_fields", None) or {}).get(name)


# -- sends and pulls ---------------------------------------------------------------------------


@pytest.mark.costly
@pytest.mark.few
@pytest.mark.parametrize("version", [JAVA_4_9_8, GO])
@pytest.mark.parametrize("front", [A, B, C])
def test_queue_when_it_moves_twice_then_an_old_client_reads_it_in_order_at_any_front(
    three: SetsCluster, front: str, version: int
) -> None:
    """Whatever set it asks, queue and offset of all messages are the logical ones, and go on."""
    old = OldClient(three, version)
    old.heartbeat(A, B, C)
    expected: dict[int, list[tuple[int, int, bytes]]] = {queue: [] for queue in range(TOTAL)}

    def send(begin: int) -> None:
        for queue in range(TOTAL):
            for number in range(3):
                body = begin + 10 * queue + number
                answer = old.put(front, body, queue)
                assert answer.code == 0, answer.remark
                assert told(answer, "queueId") == str(queue)
                assert told(answer, "queueOffset") == str(begin + number)
                expected[queue].append((queue, begin + number, b"body-%d" % body))
        three.run_for(100)
        for queue in range(TOTAL):
            assert old.consume(front, queue) == expected[queue]

    send(0)
    move(three, A, C, at_c(), 2_000)
    send(10_000)
    move(three, C, A, back_at_a(), 3_000)
    send(20_000)
    # Nothing but these messages is anywhere: none lies under its logical number.
    masters = [three.master_of(name) for name in (A, B, C)]
    lies = {
        (one.config.broker_name, queue): one.store.reader.max_offset(STATIC, queue)
        for one in masters if one is not None for queue in range(6)
    }  # fmt: skip
    assert {place: count for place, count in lies.items() if count > 0} == {
        (A, 2): 3, (A, 3): 3, (C, 0): 3, (C, 1): 3, (A, 4): 3, (A, 5): 3,
    }  # fmt: skip


@pytest.mark.costly
def test_messages_when_a_new_client_reads_them_then_their_bytes_are_the_physical_ones(
    three: SetsCluster,
) -> None:
    """Beside old clients: it adds ``offsetDelta`` itself, and pays for nobody's translation."""
    for number in range(2):
        assert three.put(A, number, 0).code == 0
    move(three, A, C, at_c(), 2_000)
    assert three.put(C, 2, 0).code == 0
    three.run_for(100)
    first, second = three.pull(C, 0, 0), three.pull(C, 0, 10_000)
    assert [one[:2] for one in read_records(first.body)] == [(2, 0), (2, 1)]
    assert [one[:2] for one in read_records(second.body)] == [(0, 0)]
    assert told(second, "offsetDelta") == "10000"
    # A set that never led the queue goes on refusing such a client.
    assert three.put(B, 3, 0).code == three.pull(B, 0, 0).code == 501


@pytest.mark.costly
def test_pull_when_an_old_client_waits_at_a_front_then_it_waits_through_a_remap(
    three: SetsCluster,
) -> None:
    """The leader that holds it is none any more; the front asks the next one, and stores nothing twice."""
    old = OldClient(three)
    old.heartbeat(A, B, C)
    for number in range(2):
        assert old.put(B, number, 1).code == 0
    fields = old.pull_fields(
        1, 2, sysFlag="3", commitOffset="1", suspendTimeoutMillis="9000"
    )  # fmt: skip
    answers = old.collect(B, 11, fields)
    three.run_for(200)
    group = {"consumerGroup": GROUP, "topic": STATIC, "queueId": "1"}
    assert told(old.ask(B, 14, group), "offset") == "1"
    assert old.ask(B, 15, group | {"commitOffset": "2"}).code == 0
    move(three, A, C, at_c(), 2_000)
    assert not answers
    assert old.put(B, 2, 1).code == 0
    three.until(lambda: answers, "the message", limit_ms=2_000)
    (answer,) = answers
    assert [one[:3] for one in read_records(answer.body)] == [(1, 10_000, b"body-2")]
    assert told(answer, "nextBeginOffset") == "10001"
    assert told(old.ask(B, 14, group), "offset") == "2"


@pytest.mark.costly
@pytest.mark.parametrize("front", [B, C])
def test_pull_when_its_leader_goes_on_holding_it_after_a_remap_then_the_front_asks_the_next_one(
    three: SetsCluster, front: str
) -> None:
    """A Java set answers it when its time is over, up to 20 s later; messages waited so long."""
    old = OldClient(three)
    old.heartbeat(A, B, C)
    leader = three.master_of(A)
    assert leader is not None
    leader.mappings.on_changed.clear()  # so that it looks at no pull that it holds
    fields = old.pull_fields(
        1, 0, sysFlag="3", commitOffset="0", suspendTimeoutMillis="9000"
    )  # fmt: skip
    answers = old.collect(front, 11, fields)
    three.run_for(200)
    move(three, A, C, at_c(), 2_000)
    assert not answers
    assert old.put(front, 2, 1).code == 0
    three.until(lambda: answers, "the message", limit_ms=1_000)
    (answer,) = answers
    assert [one[:3] for one in read_records(answer.body)] == [(1, 10_000, b"body-2")]


@pytest.mark.costly
@pytest.mark.few
@pytest.mark.parametrize("front", [A, B, C])
def test_pull_when_queues_move_while_it_waits_then_its_time_does_not_begin_anew(
    three: SetsCluster, front: str
) -> None:
    """Its client gives up after 30 s, twice as long as it says that it may wait."""
    old = OldClient(three)
    old.heartbeat(A, B, C)
    fields = old.pull_fields(1, 0, sysFlag="2", suspendTimeoutMillis="9000")
    answers = old.collect(front, 11, fields)
    three.run_for(6_000)
    move(three, A, C, at_c(), 2_000)
    three.run_for(2_500)
    assert not answers
    three.until(lambda: answers, "that there is nothing", limit_ms=1_500)
    assert answers[0].code == 19


@pytest.mark.costly
def test_pull_when_the_leader_has_not_heard_of_the_group_then_the_front_says_what_it_wants(
    three: SetsCluster,
) -> None:
    """A queue may move to a set that joins; the client's next heartbeat is up to 30 s away."""
    old = OldClient(three)
    old.heartbeat(B)
    assert old.put(B, 1, 0).code == 0
    three.run_for(100)
    assert old.consume(B, 0) == [(0, 0, b"body-1")]


@pytest.mark.costly
@pytest.mark.parametrize("front", [A, B, C])
def test_offsets_when_an_old_client_asks_a_front_then_they_are_logical(
    three: SetsCluster, front: str
) -> None:
    """Ends, times, and what its group has stored, through two segments."""
    old = OldClient(three)
    old.heartbeat(A, B, C)
    for number in range(3):
        assert old.put(front, number, 0).code == 0
    three.run_for(1_000)
    move(three, A, C, at_c(), 2_000)
    first_new_ms = three.wall_ms()
    assert old.put(front, 3, 0).code == 0
    three.run_for(100)
    queue = {"topic": STATIC, "queueId": "0"}

    def ask(code: int, **fields: str) -> tuple[int, str | None]:
        answer = old.ask(front, code, queue | fields)
        return answer.code, told(answer, "offset")

    assert ask(30) == (0, "10001")
    assert ask(31) == (0, "0")
    assert ask(29, timestamp=str(first_new_ms)) == (0, "10000")
    assert ask(14, consumerGroup=GROUP) == (22, None)
    for offset in ("2", "10000", "10001", "1"):
        assert ask(15, consumerGroup=GROUP, commitOffset=offset)[0] == 0
        assert ask(14, consumerGroup=GROUP) == (0, offset)


@pytest.mark.costly
def test_message_when_the_front_is_wrong_about_the_leader_then_it_finds_the_right_one(
    three: SetsCluster,
) -> None:
    """Java's tool tells no set of the next move of a queue that it has lost."""
    move(three, A, B, {q: [*items, segment(1, q, B, 10_000)] for q, items in led_by_a().items()},
         2_000)  # fmt: skip
    lists = {
        q: [*items, segment(1, q, B, 10_000), segment(2, q, C, 20_000)]
        for q, items in led_by_a().items()
    }
    for name in (C, B):
        three.tell(name, 3_000, lists, total=TOTAL, physical=6)
    # The first set believes in the second, which leads nothing any more.
    old = OldClient(three)
    answer = old.put(A, 1, 0)
    assert answer.code == 0, answer.remark
    assert told(answer, "queueOffset") == "20000"


def test_message_when_nobody_leads_its_queue_then_an_old_client_is_refused(
    three: SetsCluster,
) -> None:
    """After some looks, and nothing is written anywhere."""
    old = OldClient(three)
    assert old.put(B, 1, TOTAL).code == 501
    before = three.loop.time()
    assert old.put(A, 1, TOTAL + 1).code == 501
    assert three.loop.time() - before < 2.0
    assert all(
        one.store.reader.max_offset(STATIC, queue) <= 0
        for one in three.replicas.values() for queue in range(6)
    )  # fmt: skip


def test_pulls_when_very_many_wait_elsewhere_then_messages_are_passed_on_all_the_same(
    three: SetsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Consumers with nothing to read would keep producers from sending; what is too much is refused."""
    monkeypatch.setattr(forwarding, "FORWARDS_MAX", 4)
    old = OldClient(three)
    old.heartbeat(A, B, C)
    fields = old.pull_fields(0, 0, sysFlag="2", suspendTimeoutMillis="5000")
    held = [old.collect(B, 11, fields) for _ in range(2)]
    three.run_for(200)
    assert not any(held)
    assert old.ask(B, 11, fields).code == 501
    assert old.put(B, 1, 0).code == 0
    three.until(lambda: all(held), "the message", limit_ms=2_000)
    monkeypatch.setattr(forwarding, "FORWARDS_MAX", 0)
    assert old.put(B, 2, 0).code == 501
    monkeypatch.undo()
    three.run_for(100)
    assert old.consume(B, 0) == [(0, 0, b"body-1")]


def test_messages_when_more_are_passed_on_than_may_be_on_their_way_then_one_after_the_other(
    three: SetsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has been answered is not on its way; after so many requests all others were refused."""
    monkeypatch.setattr(forwarding, "FORWARDS_MAX", 2)
    old = OldClient(three)
    for number in range(5):
        answer = old.put(B, number, 0)
        assert answer.code == 0, answer.remark


@pytest.mark.costly
def test_pull_when_its_queue_has_moved_then_nothing_waits_at_the_leader_of_before(
    three: SetsCluster,
) -> None:
    """Each remap would leave a request behind, for as long as a client may wait."""
    old = OldClient(three)
    old.heartbeat(A, B, C)
    leader = three.master_of(A)
    assert leader is not None
    leader.mappings.on_changed.clear()  # so that it goes on holding the pull
    fields = old.pull_fields(1, 0, sysFlag="3", commitOffset="0", suspendTimeoutMillis="9000")
    answers = old.collect(B, 11, fields)

    def asking() -> int:
        tasks = asyncio.all_tasks(three.loop)
        return sum(getattr(one.get_coro(), "__name__", "") == "_adapted" for one in tasks)

    three.run_for(200)
    assert asking() == 1
    move(three, A, C, at_c(), 2_000)
    three.run_for(200)
    assert not answers
    assert asking() == 1, "at the new leader alone"


def test_places_when_very_many_topics_are_looked_up_then_they_are_forgotten(
    three: SetsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are looked up again; those of topics that are gone would stay for ever."""
    monkeypatch.setattr(other_sets, "PLACES_KEPT_MAX", 1)
    old = OldClient(three)
    assert old.put(B, 1, 0).code == 0
    front = three.master_of(B)
    assert front is not None
    known = front.logical.forwarding._sets._places
    known["Gone"] = known.pop(STATIC)
    assert old.put(B, 2, 0).code == 0
    assert [*known] == [STATIC]


# -- locks -------------------------------------------------------------------------------------


def test_queue_when_two_old_consumers_lock_it_at_two_fronts_then_one_has_it(
    three: SetsCluster,
) -> None:
    """Each may be shown another front; consumers of 5.x ask the leader under another name."""
    old = OldClient(three)
    assert old.lock(B, "one", 0, 1) == [0, 1]
    assert old.lock(C, "two", 0, 1) == []
    assert old.lock(A, "two", 0, 1) == []
    assert old.lock(C, "one", 0, 1) == [0, 1]
    new = {
        "consumerGroup": GROUP, "clientId": "new",
        "mqSet": [{"topic": STATIC, "brokerName": "__syslo__global__", "queueId": 0}],
    }  # fmt: skip
    held = three.ask(three.address(A), 41, None, fastjson.dumps(new))
    assert fastjson.loads(held.body)["lockOKMQSet"] == []
    old.lock(C, "one", 0, code=42)
    assert old.lock(B, "two", 0, 1) == [0]


@pytest.mark.costly
def test_queue_when_it_comes_back_to_a_set_then_a_lock_of_before_holds_nobody_up(
    three: SetsCluster,
) -> None:
    """Its consumer gave it back to whoever led it then; else the next one waits for 60 s."""
    old = OldClient(three)
    assert old.lock(B, "one", 0, 1) == [0, 1]
    move(three, A, C, at_c(), 2_000)
    assert old.lock(B, "one", 0, 1) == [0, 1]
    old.lock(B, "one", 0, 1, code=42)
    move(three, C, A, back_at_a(), 3_000)
    assert old.lock(B, "two", 0, 1) == [0, 1]


def test_lock_when_given_back_then_sets_that_led_the_queue_before_are_told(
    three: SetsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Java set keeps the lock of a queue that has moved away."""
    monkeypatch.setattr(QueueLocks, "forget", lambda *_: None)
    old = OldClient(three)
    assert old.lock(B, "one", 0, 1) == [0, 1]
    move(three, A, C, at_c(), 2_000)
    assert old.lock(B, "one", 0, 1) == [0, 1]
    old.lock(B, "one", 0, code=42)
    assert old.lock(B, "two", 0, 1) == [0]
    move(three, C, A, back_at_a(), 3_000)
    assert old.lock(B, "two", 0, 1) == [0]


def test_locks_when_a_queue_moves_then_those_of_other_queues_stay(three: SetsCluster) -> None:
    """Queue 1 goes, queue 0 and the group's retry queue have not moved."""
    old = OldClient(three)
    retry = MessageQueue(f"%RETRY%{GROUP}", A, 0)
    leader = three.master_of(A)
    assert leader is not None
    leader.locks.lock(leader.clock.now_ms(), GROUP, "one", [retry])
    assert old.lock(B, "one", 0, 1) == [0, 1]
    assert len(leader.locks) == 3
    three.tell(C, 2_000, {1: at_c()[1]}, total=TOTAL, physical=6)
    three.tell(A, 2_000, led_by_a() | {1: at_c()[1]}, total=TOTAL, physical=6)
    three.tell(B, 2_000, {}, total=TOTAL, physical=6)
    assert len(leader.locks) == 2
    assert leader.locks.lock(leader.clock.now_ms(), GROUP, "two", [retry]) == []
    assert old.lock(B, "two", 0, 1) == [1]


def test_queue_when_it_has_moved_then_it_is_locked_at_its_new_leader(three: SetsCluster) -> None:
    """Through a front that never led it, and through the leader of before."""
    old = OldClient(three)
    assert old.lock(B, "one", 0) == [0]
    move(three, A, C, at_c(), 2_000)
    assert old.lock(A, "one", 0) == [0]
    assert old.lock(B, "two", 0) == []
    leader = three.master_of(C)
    assert leader is not None
    assert leader.locks.has_any(leader.clock.now_ms(), GROUP)


# -- what is named by its place in a log ---------------------------------------------------------


def back_fields(place: int, message_id: str) -> dict[str, str]:
    """Of a 36 as 4.9.8 sends it."""
    return {
        "offset": str(place), "group": GROUP, "delayLevel": "1", "originMsgId": message_id,
        "originTopic": STATIC, "unitMode": "false", "maxReconsumeTimes": "16",
    }  # fmt: skip


@contextlib.contextmanager
def forbidding(cluster: SetsCluster, name: str) -> Iterator[list[tuple[str, str]]]:
    """A set whose users may nothing; the topics and groups that it was asked about."""
    master = cluster.master_of(name)
    assert master is not None
    asked: list[tuple[str, str]] = []

    def refusal_of_topic(
        _: object, __: object, topic: str, *___: object, group: str = ""
    ) -> Refusal:
        asked.append((topic, group))
        return Refusal(16, "no permission")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(master.rights, "refusal_of_topic", refusal_of_topic)
        yield asked


def retries(cluster: SetsCluster, name: str) -> list[str | None]:
    """UNIQ_KEYs of the messages that wait for their next delivery at a set."""
    master = cluster.master_of(name)
    assert master is not None
    reader, topic = master.store.reader, "SCHEDULE_TOPIC_XXXX"
    units = [reader.store_timestamp(topic, 0, at) for at in range(reader.max_offset(topic, 0))]
    return [str(one) for one in units]


@pytest.mark.costly
def test_message_when_sent_back_at_a_front_then_the_set_that_has_it_delivers_it_again(
    three: SetsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place is one of that set's log. The client's signature would not fit there, and is not sent."""
    old = OldClient(three)
    old.heartbeat(A, B, C)
    move(three, A, C, at_c(), 2_000)
    assert old.put(B, 7, 0).code == 0
    three.run_for(100)
    (got,) = old.got(B, 0)
    with forbidding(three, B) as asked:
        assert old.ask(B, 36, back_fields(got.physical_offset, "U7")).code == 16
    assert asked == [(STATIC, GROUP)]
    three.run_for(3_000)
    assert retries(three, C) == []
    sent: list[dict[str, str]] = []
    ask = OtherSets.ask

    async def noting(
        sets: OtherSets, name: str, code: int, fields: dict[str, str], *args: Any, **more: Any
    ) -> RemotingCommand:
        sent.append(fields)
        return await ask(sets, name, code, fields, *args, **more)

    monkeypatch.setattr(OtherSets, "ask", noting)
    signed = {"AccessKey": "ann", "Signature": "of hers"}
    answer = old.ask(B, 36, back_fields(got.physical_offset, "U7") | signed)
    assert answer.code == 0, answer.remark
    three.run_for(3_000)
    assert len(retries(three, C)) == 1
    assert any("originMsgId" in one for one in sent)
    assert not any(signed.keys() & one.keys() for one in sent)
    assert retries(three, A) == retries(three, B) == []


@pytest.mark.costly
@pytest.mark.parametrize("front", [A, B])
@pytest.mark.parametrize(("language", "answered"), [("JAVA", True), ("GO", False)])
def test_message_when_sent_back_and_not_found_then_its_client_tries_again(
    three: SetsCluster, language: str, answered: bool, front: str
) -> None:
    """The first set has another message at the place, which must not come again.

    Java's clients are refused and send the message themselves; Go's take any answer for a yes.
    """
    old = OldClient(three, language=language)
    old.heartbeat(A, B, C)
    assert old.put(B, 7, 0).code == 0
    three.run_for(100)
    (got,) = old.got(B, 0)
    fields = back_fields(got.physical_offset, "U8")
    if answered:
        assert old.ask(front, 36, fields).code == 1
    else:
        with pytest.raises(RequestTimeout):
            old.ask(front, 36, fields, timeout_ms=5_000)
    three.run_for(2_000)
    assert [retries(three, name) for name in (A, B, C)] == [[], [], []]


def half(number: int) -> dict[str, str]:
    """Fields of a half message."""
    return {
        "f": "4",
        "i": f"UNIQ_KEY\x01U{number}\x02WAIT\x01true\x02TRAN_MSG\x01true\x02PGROUP\x01PG\x02",
    }


def end_fields(answer: object, number: int) -> dict[str, str]:
    """Of a 37 that commits, by what the send was answered."""
    return {
        "producerGroup": "PG", "tranStateTableOffset": told(answer, "queueOffset") or "",
        "commitLogOffset": str(int((told(answer, "msgId") or "")[-16:], 16)),
        "commitOrRollback": "8", "fromTransactionCheck": "false", "msgId": f"U{number}",
    }  # fmt: skip


@pytest.mark.costly
def test_transaction_when_ended_at_a_front_then_the_set_that_has_it_ends_it(
    three: SetsCluster,
) -> None:
    """Also in a later segment, and only there."""
    old = OldClient(three)
    old.heartbeat(A, B, C)
    move(three, A, C, at_c(), 2_000)
    answer = old.put(B, 1, 0, **half(1))
    assert answer.code == 0, answer.remark
    three.run_for(100)
    assert old.consume(B, 0) == []
    # Another transaction of the group, at the same place of another log.
    for name in (B, C):
        assert old.ask(name, 37, end_fields(answer, 2)).code == 1
    assert old.consume(B, 0) == []
    with forbidding(three, B) as asked:
        assert old.ask(B, 37, end_fields(answer, 1)).code == 16
    assert asked == [(STATIC, "")]
    assert old.ask(B, 37, end_fields(answer, 1)).code == 0
    three.run_for(100)
    assert old.consume(B, 0) == [(0, 10_000, b"body-1")]
    assert old.ask(B, 37, end_fields(answer, 1)).code == 1
