"""Delays, timers and transactions on simulated replicas: nothing lost, nothing early, over failovers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from rmqha.broker.deferred.delays import TIMER_TOPIC, decode_handle
from rmqha.broker.deferred.timers import TimerMark
from rmqha.remoting.command import RemotingCommand
from rmqha.store import properties as props
from rmqha.store.aio.dispatcher import Dispatcher
from rmqha.store.record import Record
from tests.broker.replicas import QUEUES, TOPIC, ReplicaCluster, master_of, send_fields
from tests.broker.subscriber import Subscriber

LEVELS = "1s 5s 10s"


@pytest.fixture
def alone() -> Iterator[ReplicaCluster]:
    """One replica, which reigns."""
    with ReplicaCluster(
        seed=2, replicas=1, messageDelayLevel=LEVELS, recallMessageEnable="true",
        transactionCheckInterval=1000, transactionTimeOut=500, transactionCheckMax=3,
    ) as one:  # fmt: skip
        one.boot_all()
        yield one


@pytest.fixture
def three() -> Iterator[ReplicaCluster]:
    """Three replicas, in sync."""
    with ReplicaCluster(
        seed=4, messageDelayLevel=LEVELS, transactionCheckInterval=1000, transactionTimeOut=500,
        syncSlaveMetadataPeriod=500,
    ) as one:  # fmt: skip
        one.boot_all()
        one.until(one.in_sync, "SyncStateSet of three")
        yield one


def send(cluster: ReplicaCluster, number: int, more: str = "", **fields: str) -> Any:
    """Send one message with further properties."""
    values = send_fields(number)
    values["i"] += more
    address = master_of(cluster).config.address
    return cluster.ask(address, 310, {**values, **fields}, f"body-{number}".encode())


def stored(cluster: ReplicaCluster, topic: str, queues: int = QUEUES) -> list[Record]:
    """Every message of a topic that consumers of the master see."""
    store, found = master_of(cluster).store, []
    for queue_id in range(queues):
        for at in range(
            store.reader.min_offset(topic, queue_id), store.reader.max_offset(topic, queue_id)
        ):
            unit = store.reader.unit(topic, queue_id, at)
            record = None if unit is None else store.reader.look(unit.physical_offset)
            assert record is not None
            found.append(record)
    return found


def bodies(records: list[Record]) -> list[bytes]:
    """Their bodies, sorted."""
    return sorted(record.body for record in records)


def wall_ms(cluster: ReplicaCluster) -> int:
    """The master's clock."""
    return master_of(cluster).clock.wall_ms()


# -- delay levels


@pytest.mark.costly
def test_delayed_message_when_sent_then_it_comes_at_its_time_to_its_real_queue(
    alone: ReplicaCluster,
) -> None:
    """The answer names the real queue; consumers see nothing before the level's time."""
    begun = wall_ms(alone)
    answer = send(alone, 1, "DELAY\x012\x02")
    assert answer.code == 0
    assert answer.ext_fields["queueId"] == "1"
    alone.run_for(4_900)
    assert stored(alone, TOPIC) == []
    alone.until(lambda: stored(alone, TOPIC), "the delivery", 1_500)
    (record,) = stored(alone, TOPIC)
    assert 5_000 <= wall_ms(alone) - begun < 5_600
    assert (record.queue_id, record.body, record.sys_flag) == (1, b"body-1", 0)
    assert record.property_map()["REAL_TOPIC"] == TOPIC
    assert record.property_map()["DELAY"] == "2"


def test_delay_level_when_too_large_then_the_largest(alone: ReplicaCluster) -> None:
    """Java clamps; a queue that nobody delivers from would swallow the message."""
    assert send(alone, 1, "DELAY\x0199\x02").code == 0
    (waiting,) = stored(alone, "SCHEDULE_TOPIC_XXXX", 18)
    assert (waiting.queue_id, waiting.property_map()["DELAY"]) == (2, "3")


@pytest.mark.costly
def test_delayed_messages_when_restarted_then_each_comes_once(alone: ReplicaCluster) -> None:
    """A stop in order keeps the exact position: none is lost, none comes twice."""
    for number in range(20):
        send(alone, number, f"DELAY\x01{1 + number % 3}\x02")
    alone.run_for(3_000)
    before = len(stored(alone, TOPIC))
    assert 0 < before < 20
    task = alone.loop.create_task(master_of(alone).stop())
    alone.until(task.done, "stop")
    host = alone.broker_hosts[0]
    alone.kill(host)
    alone.boot(host)
    alone.until(lambda: alone.master() is not None, "a master")
    alone.until(lambda: len(stored(alone, TOPIC)) >= 20, "all deliveries", 15_000)
    alone.run_for(3_000)
    assert bodies(stored(alone, TOPIC)) == sorted(f"body-{n}".encode() for n in range(20))


@pytest.mark.costly
def test_delayed_messages_when_the_master_dies_then_the_next_one_delivers_all(
    three: ReplicaCluster,
) -> None:
    """Nothing is lost and nothing is early; around the crash a message may come twice."""
    begun = wall_ms(three)
    for number in range(30):
        assert send(three, number, f"DELAY\x01{1 + number % 3}\x02").code == 0
    three.run_for(2_500)
    old = master_of(three)
    three.kill(three.host_of(old))
    three.until(lambda: three.master() not in (None, old), "new master")
    expected = {f"body-{n}".encode() for n in range(30)}
    three.until(lambda: set(bodies(stored(three, TOPIC))) == expected, "all", 25_000)
    found = stored(three, TOPIC)
    for record in found:
        level = int(record.property_map()["DELAY"])
        assert record.store_timestamp - begun >= (1_000, 5_000, 10_000)[level - 1]
    # Only level 1 was being delivered when the master died.
    assert len(found) - 30 <= 10


# -- timers


@pytest.mark.costly
def test_timer_when_sent_then_it_comes_within_the_precision_of_its_time(
    alone: ReplicaCluster,
) -> None:
    """TIMER_DELIVER_MS is rounded down to whole seconds, as Java does."""
    due = wall_ms(alone) + 7_500
    answer = send(alone, 3, f"TIMER_DELIVER_MS\x01{due}\x02")
    assert answer.code == 0
    handle = decode_handle(answer.ext_fields["recallHandle"])
    out = due // 1000 * 1000
    assert handle[2] == out + 1  # type: ignore[index]  # not refused
    alone.until(lambda: stored(alone, TOPIC), "the delivery", 9_000)
    (record,) = stored(alone, TOPIC)
    assert 0 <= record.store_timestamp - out < 200
    assert record.queue_id == 3


def test_timer_when_due_already_then_it_is_an_ordinary_message(alone: ReplicaCluster) -> None:
    """A time that has passed means now."""
    answer = send(alone, 0, f"TIMER_DELIVER_MS\x01{wall_ms(alone) - 1}\x02")
    assert "recallHandle" not in answer.ext_fields
    assert len(stored(alone, TOPIC)) == 1


@pytest.mark.parametrize("more", ["TIMER_DELAY_SEC\x01259201\x02", "TIMER_DELAY_MS\x01soon\x02"])
def test_timer_when_too_far_or_no_number_then_13(alone: ReplicaCluster, more: str) -> None:
    """What could not be delivered must not be acknowledged."""
    assert send(alone, 0, more).code == 13


@pytest.mark.slow
def test_timers_when_restarted_and_when_the_master_dies_then_none_is_lost(
    three: ReplicaCluster,
) -> None:
    """The log is the only place where timers are; marks say which were delivered."""
    due = {}
    for number in range(24):
        due[f"body-{number}".encode()] = wall_ms(three) // 1000 * 1000 + 2000 + number * 700
        moment = due[f"body-{number}".encode()]
        assert send(three, number, f"TIMER_DELIVER_MS\x01{moment}\x02").code == 0
    for _ in range(2):
        three.run_for(4_000)
        old = master_of(three)
        host = three.host_of(old)
        three.kill(host)
        three.until(lambda old=old: three.master() not in (None, old), "new master")  # type: ignore[misc]
        three.boot(host)
        three.until(three.in_sync, "all in sync")
    three.until(lambda: set(bodies(stored(three, TOPIC))) == set(due), "all timers", 30_000)
    found = stored(three, TOPIC)
    for record in found:
        assert record.store_timestamp >= due[record.body] - 1000
    assert len(found) - 24 <= 12


@pytest.mark.parametrize("timers", ["true", "false"])
def test_timer_mark_when_nothing_was_looked_at_then_no_answer(timers: str) -> None:
    """60: a Java slave would begin at the time that it is told, and deliver nothing for minutes."""
    with ReplicaCluster(seed=2, replicas=1, timerWheelEnable=timers) as one:
        one.boot_all()
        one.run_for(2_000)
        address = master_of(one).config.address
        answer = one.ask(address, 60)
        if timers == "false":
            assert answer.code == 1
        else:
            mark = TimerMark.decode(bytes(answer.body), 1000)
            assert 0 <= wall_ms(one) - mark.read_ms <= 3_000


def test_timer_when_recalled_then_it_never_comes(alone: ReplicaCluster) -> None:
    """370 takes one message back and leaves its neighbours alone."""
    due = wall_ms(alone) + 5_000
    handles = []
    for number in range(3):
        answer = send(alone, number, f"TIMER_DELIVER_MS\x01{due}\x02")
        handles.append(answer.ext_fields["recallHandle"])
    fields = {"producerGroup": "PG", "topic": TOPIC, "recallHandle": handles[1]}
    address = master_of(alone).config.address
    told = {"msgId": "U1", "MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
    assert alone.ask(address, 370, fields).ext_fields == told
    assert alone.ask(address, 370, {**fields, "recallHandle": "x"}).code == 604
    assert alone.ask(address, 370, {**fields, "topic": "TBW102"}).code == 604
    # In both forms, for whichever broker of Java's is master by then.
    taken_back = [one.property_map().get("TIMER_DEL_UNIQKEY") for one in stored(alone, TIMER_TOPIC)]
    assert taken_back == [None, None, None, f"{TOPIC}+U1", "U1"]
    alone.run_for(8_000)
    assert bodies(stored(alone, TOPIC)) == [b"body-0", b"body-2"]
    assert alone.ask(address, 370, fields).code == 604


@pytest.mark.parametrize(
    ("key", "comes"), [("U1", False), (f"{TOPIC}+U1", False), ("Other+U1", True)]
)
def test_timer_when_a_java_master_has_recalled_it_then_it_never_comes(
    alone: ReplicaCluster, key: str, comes: bool
) -> None:
    """Those of 5.5 write the message's key alone, older ones the topic before it."""
    due = wall_ms(alone) + 5_000
    for number in range(2):
        send(alone, number, f"TIMER_DELIVER_MS\x01{due}\x02")
    _, one = stored(alone, TIMER_TOPIC)
    properties = props.put(one.properties, b"TIMER_DEL_UNIQKEY", key.encode())
    properties = props.put(properties, b"UNIQ_KEY", b"of the recall")
    recall = one.message()._replace(properties=properties)
    append, context = master_of(alone).services.writer.append, alone._client_context.copy()
    alone.loop.call_soon(append, recall, context=context)
    alone.run_for(8_000)
    assert bodies(stored(alone, TOPIC)) == [b"body-0", *([b"body-1"] if comes else [])]


# -- transactions

HALVES = "RMQ_SYS_TRANS_HALF_TOPIC"
HALF = "TRAN_MSG\x01true\x02PGROUP\x01PG\x02"


def half(cluster: ReplicaCluster, number: int, more: str = "") -> dict[str, str]:
    """Send a half message; the fields that end it."""
    answer = send(cluster, number, HALF + more, f="4")
    assert answer.code == 0
    got = answer.ext_fields
    assert got["transactionId"] == f"U{number}"
    return {
        "producerGroup": "PG", "tranStateTableOffset": got["queueOffset"],
        "commitLogOffset": str(int(got["msgId"][-16:], 16)), "fromTransactionCheck": "false",
        "msgId": got["msgId"], "transactionId": got["transactionId"],
    }  # fmt: skip


def end(cluster: ReplicaCluster, fields: dict[str, str], decision: int) -> int:
    """Send 37 as a request that wants an answer, which real clients do not."""
    asked = {**fields, "commitOrRollback": str(decision)}
    return cluster.ask(master_of(cluster).config.address, 37, asked).code


@pytest.mark.costly
def test_transaction_when_committed_then_consumers_get_it_and_else_not(
    alone: ReplicaCluster,
) -> None:
    """The two ends; a half message alone is seen by nobody."""
    first, second = half(alone, 1), half(alone, 2)
    assert stored(alone, TOPIC) == []
    assert (end(alone, first, 8), end(alone, second, 12)) == (0, 0)
    (record,) = stored(alone, TOPIC)
    assert (record.body, record.queue_id, record.sys_flag) == (b"body-1", 1, 8)
    assert str(record.prepared_transaction_offset) == first["commitLogOffset"]
    alone.run_for(6_000)
    assert len(stored(alone, HALVES, 1)) == 2
    assert len(stored(alone, "RMQ_SYS_TRANS_OP_HALF_TOPIC", 1)) == 2


def test_half_message_when_its_properties_are_nearly_full_then_it_is_asked_about_or_refused(
    alone: ReplicaCluster,
) -> None:
    """One that could not be renewed was acknowledged, and ended by its first check."""
    longest = 0
    for padding in range(32_300, 32_800, 20):
        values = send_fields(padding, TOPIC)
        values["i"] += HALF + f"PAD\x01{'x' * padding}\x02"
        address = master_of(alone).config.address
        answer = alone.ask(address, 310, {**values, "f": "4"}, f"body-{padding}".encode())
        assert answer.code in (0, 13)
        longest = padding if answer.code == 0 else longest
    assert 32_300 < longest < 32_780
    kept = {one.body for one in stored(alone, HALVES, 1)}
    alone.run_for(2_500)
    renewed = [one for one in stored(alone, HALVES, 1)
               if "TRANSACTION_CHECK_TIMES" in one.property_map()]  # fmt: skip
    assert {one.body for one in renewed} == kept


def test_transaction_when_the_producers_clock_is_wrong_then_it_is_asked_about_all_the_same(
    alone: ReplicaCluster,
) -> None:
    """By its own clock the message was older than the log reaches back, and was given up."""
    assert send(alone, 1, HALF, f="4", g="1000").code == 0
    alone.run_for(2_500)
    found = stored(alone, HALVES, 1)
    assert any("TRANSACTION_CHECK_TIMES" in one.property_map() for one in found)


def test_transaction_when_ended_twice_then_it_comes_once(alone: ReplicaCluster) -> None:
    """A client repeats 37; Java would deliver twice."""
    fields = half(alone, 1)
    assert [end(alone, fields, 8), end(alone, fields, 8), end(alone, fields, 12)] == [0, 1, 1]
    alone.run_for(1_000)
    assert end(alone, fields, 8) == 1
    assert len(stored(alone, TOPIC)) == 1


@pytest.mark.parametrize(
    "wrong", [{"producerGroup": "X"}, {"tranStateTableOffset": "7"}, {"commitLogOffset": "5"}]
)
def test_transaction_when_the_end_does_not_fit_then_1(
    alone: ReplicaCluster, wrong: dict[str, str]
) -> None:
    """Nobody may end what another one began."""
    assert end(alone, {**half(alone, 1), **wrong}, 8) == 1
    assert stored(alone, TOPIC) == []


def test_transaction_when_delayed_then_the_delay_begins_with_the_commit(
    alone: ReplicaCluster,
) -> None:
    """Java loses sight of such a half message; here it is delivered late, as asked."""
    fields = half(alone, 1, "DELAY\x011\x02")
    assert end(alone, fields, 8) == 0
    assert stored(alone, TOPIC) == []
    alone.until(lambda: stored(alone, TOPIC), "the delivery", 2_000)


@pytest.mark.costly
def test_transaction_when_nobody_ends_it_then_it_is_asked_about_and_given_up(
    alone: ReplicaCluster,
) -> None:
    """Each question stores the half message anew; after transactionCheckMax it is put aside."""
    half(alone, 1)
    alone.until(lambda: stored(alone, "TRANS_CHECK_MAX_TIME_TOPIC", 1), "the end", 10_000)
    halves = stored(alone, HALVES, 1)
    asked = [record.property_map().get("TRANSACTION_CHECK_TIMES") for record in halves]
    assert asked == [None, "1", "2", "3"]
    assert stored(alone, TOPIC) == []
    count = len(halves)
    alone.run_for(5_000)
    assert len(stored(alone, HALVES, 1)) == count


def test_half_message_when_it_cannot_be_read_yet_then_its_producer_is_asked_later(
    alone: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it answered with, the renewed one, was not known, so its answer was refused."""
    fields, producer = half(alone, 1), Subscriber(alone, master_of(alone).config.address)
    heard: list[int] = []
    producer.on_oneway = lambda request: heard.append(request.code)

    async def nothing(*_: object) -> bool:
        return False

    producer.beat("", producers=("PG",))
    with monkeypatch.context() as patch:
        patch.setattr(Dispatcher, "_step", nothing)
        end = master_of(alone).store.max_offset
        alone.until(lambda: master_of(alone).store.max_offset > end, "the renewed one", 3_000)
        alone.run_for(500)
        assert 39 not in heard
    master_of(alone).store.dispatcher.wake()
    alone.until(lambda: 39 in heard, "the question", 1_000)
    assert int(fields["commitLogOffset"]) < end


@pytest.mark.costly
def test_transactions_when_many_are_open_then_each_is_asked_about_once_a_round() -> None:
    """A round of more than one batch met those again that it had renewed, and gave them up at once."""
    count, interval_ms = 600, 20_000

    def asked(cluster: ReplicaCluster) -> Counter[str | None]:
        halves = stored(cluster, HALVES, 1)
        return Counter(one.property_map().get("TRANSACTION_CHECK_TIMES") for one in halves)

    with ReplicaCluster(
        seed=2, replicas=1, transactionCheckInterval=interval_ms, transactionTimeOut=500,
        transactionCheckMax=3,
    ) as one:  # fmt: skip
        one.boot_all()
        for number in range(count):
            half(one, number)
        reader, expected = master_of(one).store.reader, Counter({None: count})
        assert asked(one) == expected
        for number in (1, 2):
            last = count * number
            one.until(lambda last=last: reader.max_offset(HALVES, 0) > last, "a round", interval_ms)
            one.run_for(interval_ms // 2)
            expected[str(number)] = count
            assert asked(one) == expected
        assert stored(one, "TRANS_CHECK_MAX_TIME_TOPIC", 1) == []


def test_transaction_when_renewed_then_the_first_half_s_end_still_counts(
    alone: ReplicaCluster,
) -> None:
    """A late 37 names the first half message; asking again afterwards would deliver twice."""
    fields = half(alone, 1)
    alone.until(lambda: len(stored(alone, HALVES, 1)) == 2, "a question", 5_000)
    alone.run_for(200)
    renewed = stored(alone, HALVES, 1)[1]
    assert end(alone, fields, 8) == 0
    late = {
        **fields, "tranStateTableOffset": str(renewed.queue_offset),
        "commitLogOffset": str(renewed.physical_offset), "fromTransactionCheck": "true",
    }  # fmt: skip
    assert end(alone, late, 8) == 1, "the renewed one ended with the first"
    alone.run_for(4_000)
    assert len(stored(alone, HALVES, 1)) == 2
    assert len(stored(alone, TOPIC)) == 1


@pytest.mark.costly
def test_transactions_when_the_master_dies_then_the_next_one_knows_which_are_open(
    three: ReplicaCluster,
) -> None:
    """State is in the log only: ended ones stay ended, open ones are asked about and can end."""
    ended = [half(three, number) for number in range(4)]
    for number, fields in enumerate(ended):
        assert end(three, fields, 8 if number % 2 else 12) == 0
    left = half(three, 9)
    old = master_of(three)
    three.kill(three.host_of(old))
    three.until(lambda: three.master() not in (None, old), "new master")

    def questions() -> list[Record]:
        halves = stored(three, "RMQ_SYS_TRANS_HALF_TOPIC", 1)
        return [r for r in halves if r.property_map().get("TRANSACTION_CHECK_TIMES")]

    three.until(questions, "a question", 10_000)
    asked = questions()[-1]
    assert {record.body for record in questions()} == {b"body-9"}
    fields = {
        **left, "tranStateTableOffset": str(asked.queue_offset),
        "commitLogOffset": str(asked.physical_offset), "fromTransactionCheck": "true",
    }  # fmt: skip
    assert end(three, fields, 8) == 0
    three.until(lambda: len(stored(three, TOPIC)) == 3, "the commit", 3_000)
    assert bodies(stored(three, TOPIC)) == [b"body-1", b"body-3", b"body-9"]
    three.run_for(3_000)
    assert len(stored(three, TOPIC)) == 3


@pytest.mark.costly
def test_transaction_when_committed_while_too_few_are_in_sync_then_it_comes_later() -> None:
    """#7709: two replicas and minSync=2; the commit failed a few times and the message was gone."""
    with ReplicaCluster(
        seed=5, replicas=2, inSyncReplicas=2, minInSyncReplicas=2, allAckInSyncStateSet="false",
        transactionCheckInterval=1000, transactionTimeOut=500, transactionCheckMax=15,
        haMaxTimeSlaveNotCatchup=1_000,
    ) as cluster:  # fmt: skip
        cluster.boot_all()
        cluster.until(cluster.in_sync, "SyncStateSet of two")
        fields, master = half(cluster, 1), master_of(cluster)
        (slave,) = [host for host, one in cluster.replicas.items() if one is not master]
        cluster.kill(slave)
        cluster.until(lambda: len(cluster.controller_set()) == 1, "a set of one")
        assert end(cluster, fields, 8) != 0
        cluster.run_for(20_000)
        assert stored(cluster, TOPIC) == []
        cluster.boot(slave)
        cluster.until(cluster.in_sync, "SyncStateSet of two again")

        def questions() -> list[Record]:
            halves = stored(cluster, "RMQ_SYS_TRANS_HALF_TOPIC", 1)
            return [r for r in halves if r.property_map().get("TRANSACTION_CHECK_TIMES")]

        cluster.until(questions, "a question", 10_000)
        asked = questions()[-1]
        fields |= {
            "tranStateTableOffset": str(asked.queue_offset),
            "commitLogOffset": str(asked.physical_offset), "fromTransactionCheck": "true",
        }  # fmt: skip
        assert end(cluster, fields, 8) == 0
        cluster.until(lambda: stored(cluster, TOPIC), "the message", 3_000)
        assert bodies(stored(cluster, TOPIC)) == [b"body-1"]


# -- sent back, replies, queries


def subscribe(cluster: ReplicaCluster, group: str) -> None:
    """Make a group by a consumer's heartbeat."""
    consumer = {
        "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": [],
        "unitMode": False,
    }  # fmt: skip
    body = json.dumps({"clientID": "c", "consumerDataSet": [consumer], "producerDataSet": []})
    assert cluster.ask(master_of(cluster).config.address, 34, {}, body.encode()).code == 0


def test_message_when_sent_back_then_it_comes_again_later_and_at_last_goes_aside(
    alone: ReplicaCluster,
) -> None:
    """36: each return costs one delivery; beyond the limit the dead letters have it."""
    subscribe(alone, "CG")
    address = master_of(alone).config.address
    send(alone, 1)
    (origin,) = stored(alone, TOPIC)
    fields = {
        "offset": str(origin.physical_offset), "group": "CG", "delayLevel": "1",
        "originTopic": TOPIC, "unitMode": "false", "maxReconsumeTimes": "1",
    }  # fmt: skip
    assert alone.ask(address, 36, fields).code == 0
    assert stored(alone, "%RETRY%CG", 1) == []
    alone.until(lambda: stored(alone, "%RETRY%CG", 1), "the retry", 2_000)
    (again,) = stored(alone, "%RETRY%CG", 1)
    found = again.property_map()
    assert (again.reconsume_times, again.body) == (1, b"body-1")
    assert (found["RETRY_TOPIC"], found["ORIGIN_MESSAGE_ID"]) == (TOPIC, origin.message_id)
    fields["offset"] = str(again.physical_offset)
    assert alone.ask(address, 36, fields).code == 0
    (dead,) = stored(alone, "%DLQ%CG", 1)
    assert (dead.reconsume_times, dead.property_map()["RETRY_TOPIC"]) == (2, TOPIC)
    assert alone.ask(address, 36, {**fields, "offset": "3"}).code == 1


def test_retry_when_sent_by_the_consumer_itself_then_the_same_limit_holds(
    alone: ReplicaCluster,
) -> None:
    """A client whose 36 failed sends an ordinary message to its retry topic."""
    subscribe(alone, "CG")
    assert send(alone, 0, b="%RETRY%CG", j="3", l="3").code == 0
    assert len(stored(alone, "%RETRY%CG", 1)) == 1
    assert send(alone, 0, b="%RETRY%CG", j="4", l="3").code == 0
    assert len(stored(alone, "%DLQ%CG", 1)) == 1


@pytest.mark.parametrize("locked", [True, False])
def test_retry_when_its_group_consumes_in_order_then_it_is_a_dead_letter_at_once(
    alone: ReplicaCluster, locked: bool
) -> None:
    """Whoever holds a queue waits for its message; a second one would come out of its order."""
    subscribe(alone, "CG")
    queues = [{"brokerName": "broker-a", "queueId": 0, "topic": TOPIC}]
    lock = {"clientId": "c", "consumerGroup": "CG" if locked else "Other", "mqSet": queues}
    address = master_of(alone).config.address
    assert alone.ask(address, 41, {}, json.dumps(lock).encode()).code == 0
    assert send(alone, 0, b="%RETRY%CG", j="1", l="16").code == 0
    counts = len(stored(alone, "%RETRY%CG", 1)), len(stored(alone, "%DLQ%CG", 1))
    assert counts == ((0, 1) if locked else (1, 0))


def test_retry_when_its_message_was_a_transaction_s_then_it_is_no_half_message(
    alone: ReplicaCluster,
) -> None:
    """Consumers of old clients leave TRAN_MSG in it; as a half message it would never come again."""
    subscribe(alone, "CG")
    assert send(alone, 0, HALF + "DELAY\x011\x02", b="%RETRY%CG", j="1", l="16").code == 0
    assert stored(alone, HALVES, 1) == []
    alone.until(lambda: stored(alone, "%RETRY%CG", 1), "the retry", 2_000)
    assert bodies(stored(alone, "%RETRY%CG", 1)) == [b"body-0"]


def test_message_when_sent_back_again_then_it_waits_for_the_next_level() -> None:
    """Each return that leaves it to the broker makes the pause longer: Java's 3 + reconsumeTimes."""
    with ReplicaCluster(seed=6, replicas=1, messageDelayLevel="1s 1s 1s 1s 1s") as cluster:
        cluster.boot_all()
        subscribe(cluster, "CG")
        send(cluster, 1)
        (one,) = stored(cluster, TOPIC)
        for times, level in ((1, 3), (2, 4), (3, 5)):
            fields = {"offset": str(one.physical_offset), "group": "CG", "delayLevel": "0"}
            assert cluster.ask(master_of(cluster).config.address, 36, fields).code == 0
            waiting = stored(cluster, "SCHEDULE_TOPIC_XXXX", 18)[-1]
            assert (waiting.queue_id, waiting.property_map()["DELAY"]) == (level - 1, str(level))
            cluster.until(
                lambda times=times: len(stored(cluster, "%RETRY%CG", 1)) == times, "it", 2_000
            )
            one = stored(cluster, "%RETRY%CG", 1)[-1]
            assert one.reconsume_times == times


@pytest.mark.parametrize(
    ("level", "topics"), [("1", ("SCHEDULE_TOPIC_XXXX", "%RETRY%CG")), ("-1", ("%DLQ%CG",))]
)
def test_message_when_a_transaction_s_is_sent_back_then_it_names_no_half_message(
    alone: ReplicaCluster, level: str, topics: tuple[str, ...]
) -> None:
    """It is a message of its own; Java's has 0 there as well."""
    subscribe(alone, "CG")
    assert end(alone, half(alone, 1), 8) == 0
    (origin,) = stored(alone, TOPIC)
    assert origin.prepared_transaction_offset > 0
    fields = {"offset": str(origin.physical_offset), "group": "CG", "delayLevel": level}
    assert alone.ask(master_of(alone).config.address, 36, fields).code == 0
    for topic in topics:
        alone.until(lambda topic=topic: stored(alone, topic, 1), "it", 2_000)
        (again,) = stored(alone, topic, 1)
        assert (again.body, again.prepared_transaction_offset) == (b"body-1", 0)


def test_message_when_its_group_has_no_retry_queues_then_it_is_given_up_silently(
    alone: ReplicaCluster,
) -> None:
    """As Java: the consumer is told that all is well, and nothing is written."""
    address = master_of(alone).config.address
    group = json.dumps({"groupName": "CG", "retryQueueNums": 0})
    assert alone.ask(address, 200, {}, group.encode()).code == 0
    send(alone, 1)
    (origin,) = stored(alone, TOPIC)
    written = master_of(alone).store.max_offset
    for level in ("0", "-1"):
        fields = {"offset": str(origin.physical_offset), "group": "CG", "delayLevel": level}
        answer = alone.ask(address, 36, fields)
        assert (answer.code, answer.remark) == (0, None)
    assert master_of(alone).store.max_offset == written


def test_message_when_nobody_may_write_to_its_retry_topic_then_it_is_not_sent_back(
    alone: ReplicaCluster,
) -> None:
    """An operator has closed it: the consumer keeps the message, and tries again later."""
    subscribe(alone, "CG")
    send(alone, 1)
    (origin,) = stored(alone, TOPIC)
    fields = {"offset": str(origin.physical_offset), "group": "CG", "delayLevel": "1"}
    address, topics = master_of(alone).config.address, master_of(alone).topics.table.topics
    name = "%RETRY%CG"
    topics[name] = msgspec.structs.replace(topics[name], perm=4)
    answer = alone.ask(address, 36, fields)
    assert (answer.code, answer.remark) == (16, "sending to the retry topic of CG is forbidden")
    topics[name] = msgspec.structs.replace(topics[name], perm=6)
    assert alone.ask(address, 36, fields).code == 0


def test_message_when_asked_for_by_key_or_place_then_found(alone: ReplicaCluster) -> None:
    """12 and 33, which mqadmin and consoles use."""
    answer = send(alone, 7)
    address = master_of(alone).config.address
    fields = {
        "topic": TOPIC, "key": "k7", "maxNum": "32", "beginTimestamp": "0",
        "endTimestamp": "9223372036854775807",
    }  # fmt: skip
    alone.until(lambda: alone.ask(address, 12, fields).code == 0, "the index", 1_000)
    found = alone.ask(address, 12, fields)
    assert b"body-7" in found.body
    assert int(found.ext_fields["indexLastUpdatePhyoffset"]) >= 0  # type: ignore[index]
    unique = {**fields, "key": "U7", "_UNIQUE_KEY_QUERY": "true", "maxNum": "0"}
    assert alone.ask(address, 12, unique).body == found.body
    assert alone.ask(address, 12, {**fields, "key": "k8"}).code == 22
    place = int(answer.ext_fields["msgId"][-16:], 16)
    assert alone.ask(address, 33, {"offset": str(place)}).body == found.body
    assert alone.ask(address, 33, {"offset": str(place + 1)}).code == 1


def reply(cluster: ReplicaCluster, topic: str, queue: int = 0) -> Any:
    """Reply to a client that is not there."""
    values = {**send_fields(0), "b": topic, "e": str(queue)}
    values["i"] += "REPLY_TO_CLIENT\x01nobody\x02"
    return cluster.ask(master_of(cluster).config.address, 325, values, b"r")


def test_reply_when_the_requester_is_unknown_then_1_and_it_is_stored(alone: ReplicaCluster) -> None:
    """324: whoever replies must hear that nobody waits any more. Java stores it all the same."""
    assert send(alone, 0, "REPLY_TO_CLIENT\x01nobody\x02").code == 0
    topic = f"{master_of(alone).config.cluster_name}_REPLY_TOPIC"
    for number in range(2):
        answer = reply(alone, topic)
        assert (answer.code, "nobody" in (answer.remark or "")) == (1, True)
        assert answer.ext_fields["queueOffset"] == str(number)
    first, second = stored(alone, topic, 1)
    assert first.body == second.body == b"r"
    assert b"REPLY_TO_CLIENT\x01nobody\x02" in first.properties
    assert b"TRACE_ON\x01true\x02" in first.properties
    assert int(answer.ext_fields["msgId"][-16:], 16) == second.physical_offset


def test_reply_when_it_cannot_or_shall_not_be_stored_then_it_is_pushed_only() -> None:
    """A topic or a queue that does not exist; ``storeReplyMessageEnable=false``."""
    with ReplicaCluster(seed=2, replicas=1, storeReplyMessageEnable="false") as one:
        one.boot_all()
        assert reply(one, TOPIC).ext_fields["msgId"] == "0"
        assert not stored(one, TOPIC, 1)
    with ReplicaCluster(seed=2, replicas=1) as one:
        one.boot_all()
        for answer in (reply(one, "absent"), reply(one, TOPIC, 99)):
            assert (answer.code, answer.ext_fields["msgId"]) == (1, "0")


def test_half_message_when_a_producer_answers_at_once_then_its_answer_counts(
    three: ReplicaCluster,
) -> None:
    """Asked before all replicas held the renewed half message, it was refused, time after time."""
    master = master_of(three)
    host = three.host_of(master)
    for other in three.broker_hosts:
        three.net.lags[other, host] = 60.0
    half(three, 1)
    asked = Subscriber(three, master.config.address)
    ends: list[int] = []

    def hear(request: RemotingCommand) -> None:
        got = request.ext_fields or {}
        fields = {
            "producerGroup": "PG", "tranStateTableOffset": got["tranStateTableOffset"],
            "commitLogOffset": got["commitLogOffset"], "commitOrRollback": "8",
            "fromTransactionCheck": "true", "msgId": "",
        }  # fmt: skip
        ends.append(asked.tell(37, fields))

    asked.on_oneway = hear
    asked.beat("", producers=("PG",))
    three.until(lambda: ends and ends[-1] in asked.answers, "the end of the transaction", 20_000)
    assert [asked.answers[one].code for one in ends if one in asked.answers] == [0]
