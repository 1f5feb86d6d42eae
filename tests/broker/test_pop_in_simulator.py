"""Pop over real replicas and a simulated network: what is not acknowledged comes again, always."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from rmqha.base.errors import LocalProtocolError
from rmqha.broker.pop.aio import pop_requests, queue_takes
from rmqha.broker.pop.aio.pop_requests import PopProcessor
from rmqha.broker.pop.check_points import REVIVE_TOPIC
from rmqha.broker.pop.request import PopKey, encode_key
from rmqha.broker.topics.topic_table import TopicConfig
from rmqha.remoting.command import RemotingCommand
from rmqha.store.record import PROPERTIES_MAX, Message, check_record, decode, pack_host
from tests.broker.replicas import NAME, TOPIC, ReplicaCluster, send_fields
from tests.broker.subscriber import Subscriber

GROUP = "PopGroup"
INVISIBLE_MS = 5_000
RETRY = f"%RETRY%{GROUP}_{TOPIC}"


class Popped(NamedTuple):
    """A message as a client understands it."""

    body: bytes
    topic: str
    queue_id: int
    offset: int
    times: int
    key: str
    """POP_CK."""


@pytest.fixture
def cluster() -> Iterator[ReplicaCluster]:
    """One replica; enough for everything but failovers."""
    one = ReplicaCluster(seed=21, replicas=1)
    one.boot_all()
    yield one
    one.close()


def pop(cluster: ReplicaCluster, count: int = 32, **more: object) -> tuple[int, list[Popped]]:
    """Send 200050 to the master; the code and the messages."""
    master = cluster.master()
    assert master is not None
    fields = {
        "consumerGroup": GROUP, "topic": TOPIC, "queueId": -1, "maxMsgNums": count,
        "invisibleTime": INVISIBLE_MS, "pollTime": 0, "bornTime": 0, "initMode": 0,
        "expType": "TAG", "exp": "*",
    } | more  # fmt: skip
    answer = cluster.ask(
        master.config.address, 200050, {name: str(value) for name, value in fields.items()},
        timeout_ms=60_000,
    )  # fmt: skip
    return answer.code, understood(answer)


def understood(answer: Any) -> list[Popped]:
    """Messages with their POP_CK, as Java's client makes it of the answer's texts."""
    if answer.code:
        return []
    got, body = answer.ext_fields, memoryview(bytes(answer.body))
    starts = {
        tuple(one.split(" ")[:2]): one.split(" ")[2] for one in got["startOffsetInfo"].split(";")
    }
    listed = {
        (one.split(" ")[0], one.split(" ")[1], offset)
        for one in got["msgOffsetInfo"].split(";")
        for offset in one.split(" ")[2].split(",")
    }
    made, at = [], 0
    while at < len(body):
        (physical,) = struct.unpack_from(">q", body, at + 28)
        head = check_record(body, at, len(body), physical, check_crc=True)
        assert head.size > 0, head.reason
        record = decode(body, head)
        at += head.size
        key = record.property_map().get("POP_CK")
        if key is None:
            mark, queue, offset = "0", str(record.queue_id), str(record.queue_offset)
            assert (mark, queue, offset) in listed
            key = encode_key(
                PopKey(
                    int(starts[mark, queue]), int(got["popTime"]), int(got["invisibleTime"]),
                    int(got["reviveQid"]), mark, NAME, record.queue_id, record.queue_offset,
                )
            )  # fmt: skip
        made.append(
            Popped(record.body, record.topic, record.queue_id, record.queue_offset,
                   record.reconsume_times, key)
        )  # fmt: skip
    return made


def ack(cluster: ReplicaCluster, message: Popped, **more: object) -> int:
    """Send 200051; the code."""
    master = cluster.master()
    assert master is not None
    fields = {
        "consumerGroup": GROUP, "topic": real_topic_of(message), "queueId": message.queue_id,
        "offset": message.offset, "extraInfo": message.key,
    } | more  # fmt: skip
    return cluster.ask(
        master.config.address, 200051, {name: str(value) for name, value in fields.items()}
    ).code


def real_topic_of(message: Popped) -> str:
    """As clients say it: by the mark in the key."""
    return RETRY if message.key.split(" ")[4] == "1" else TOPIC


def bodies(messages: list[Popped]) -> list[bytes]:
    """What they say, in order."""
    return sorted(one.body for one in messages)


def pop_until(cluster: ReplicaCluster, limit_ms: int = 30_000) -> list[Popped]:
    """Pop until there is something."""
    found: list[Popped] = []

    def some() -> bool:
        found.extend(pop(cluster)[1])
        return bool(found)

    cluster.until(some, "message to pop", limit_ms)
    return found


@pytest.mark.slow
def test_pop_when_acknowledged_then_no_message_ever_comes_again(cluster: ReplicaCluster) -> None:
    """The plain life of a message, over all queues."""
    cluster.send_many(10)
    cluster.run_for(100)
    code, found = pop(cluster)
    assert code == 0
    assert len(found) == 10
    assert [ack(cluster, one) for one in found] == [0] * 10
    assert pop(cluster) == (210, [])
    cluster.run_for(4 * INVISIBLE_MS)
    assert pop(cluster) == (210, [])
    master = cluster.master()
    assert master is not None
    assert master.topics.table.get(RETRY) is None
    assert master.pop.revive.open_count == 0


@pytest.mark.slow
def test_pop_when_not_acknowledged_then_it_comes_again_after_the_invisible_time(
    cluster: ReplicaCluster,
) -> None:
    """From the retry topic, under its own topic's name, counted; only what was left out."""
    cluster.send_many(6)
    cluster.run_for(100)
    _, found = pop(cluster)
    for one in found[:4]:
        assert ack(cluster, one) == 0
    before = cluster.loop.time()
    again = pop_until(cluster)
    waited_ms = (cluster.loop.time() - before) * 1000
    assert INVISIBLE_MS - 500 < waited_ms < INVISIBLE_MS + 6_000
    cluster.run_for(1_000)
    again += pop(cluster)[1]
    assert bodies(again) == bodies(found[4:])
    assert {one.times for one in again} == {1}
    assert {one.topic for one in again} == {TOPIC}
    assert {one.key.split(" ")[4] for one in again} == {"1"}
    for one in again:
        assert ack(cluster, one) == 0
    cluster.run_for(4 * INVISIBLE_MS)
    assert pop(cluster) == (210, [])


def test_change_invisible_time_when_asked_in_the_same_millisecond_then_it_comes_again(
    cluster: ReplicaCluster,
) -> None:
    """Check points differ by their time alone: the old one's acknowledgement ended the new one, too,
    and the message was lost."""
    cluster.send_many(1)
    cluster.run_for(100)
    ((one,), master) = pop(cluster)[1], cluster.master()
    assert master is not None
    pop_ms = int(one.key.split(" ")[1])
    clock = cluster.clocks[cluster.host_of(master)]
    fields = {
        "consumerGroup": GROUP, "topic": TOPIC, "queueId": str(one.queue_id),
        "offset": str(one.offset), "extraInfo": one.key, "invisibleTime": "1000",
    }  # fmt: skip
    command = RemotingCommand(200053, ext_fields=fields)
    later = Subscriber(cluster, master.config.address)
    clock.wall_offset_ms += pop_ms - clock.wall_ms() - 1  # as if no time had passed
    later.connection.send(command)
    cluster.until(lambda: later.answers, "an answer")
    (answer,) = later.answers.values()
    assert answer.code == 0
    assert int((answer.ext_fields or {})["popTime"]) > pop_ms
    assert bodies(pop_until(cluster)) == [one.body]


@pytest.mark.slow
def test_change_invisible_time_when_asked_then_only_the_new_time_counts(
    cluster: ReplicaCluster,
) -> None:
    """A consumer that failed wants its message sooner, or later; the old key is done."""
    cluster.send_many(2)
    cluster.run_for(100)
    _, found = pop(cluster)
    master = cluster.master()
    assert master is not None
    for one, later_ms in zip(found, (1_000, 20_000), strict=True):
        answer = cluster.ask(master.config.address, 200053, {
            "consumerGroup": GROUP, "topic": TOPIC, "queueId": str(one.queue_id),
            "offset": str(one.offset), "extraInfo": one.key, "invisibleTime": str(later_ms),
        })  # fmt: skip
        assert answer.code == 0
        assert (answer.ext_fields or {})["invisibleTime"] == str(later_ms)
    soon = pop_until(cluster, limit_ms=5_000)
    assert bodies(soon) == [found[0].body]
    assert ack(cluster, soon[0]) == 0
    cluster.run_for(2 * INVISIBLE_MS)
    assert pop(cluster) == (210, []), "the second waits longer than its first invisible time"
    late = pop_until(cluster, limit_ms=20_000)
    assert bodies(late) == [found[1].body]


@pytest.mark.costly
def test_batch_ack_when_some_bits_are_set_then_the_others_come_again(
    cluster: ReplicaCluster,
) -> None:
    """200151, with Java's Base64 of a BitSet."""
    for number in range(0, 5 * 4, 4):
        cluster.send(number)
    cluster.run_for(100)
    _, found = pop(cluster)
    assert len(found) == 5
    key = found[0].key.split(" ")
    entry = {
        "c": GROUP, "t": TOPIC, "r": "0", "so": int(key[0]), "q": found[0].queue_id,
        "rq": int(key[3]), "pt": int(key[1]), "it": int(key[2]), "b": "Cw==",
    }  # fmt: skip
    master = cluster.master()
    assert master is not None
    body = json.dumps({"brokerName": NAME, "acks": [entry]}).encode()
    assert cluster.ask(master.config.address, 200151, {}, body).code == 0
    again = pop_until(cluster)
    cluster.run_for(500)
    again += pop(cluster)[1]
    assert bodies(again) == bodies([found[2], found[4]])


@pytest.mark.costly
def test_pop_when_held_then_it_is_answered_by_the_next_message(cluster: ReplicaCluster) -> None:
    """Long polling: no consumer asks in a loop."""
    cluster.send_many(1)
    cluster.run_for(100)
    assert len(pop(cluster)[1]) == 1
    master = cluster.master()
    assert master is not None
    cluster.loop.call_later(2.0, cluster.send_without_waiting, 1)
    before = cluster.loop.time()
    code, found = pop(cluster, pollTime=15_000)
    assert (code, len(found)) == (0, 1)
    assert 1.9 < cluster.loop.time() - before < 2.5
    before = cluster.loop.time()
    # what was popped above comes again within this one
    assert len(pop(cluster, pollTime=15_000)[1]) >= 1
    assert 2.0 < cluster.loop.time() - before < INVISIBLE_MS / 1000 + 6


def test_pop_when_nothing_comes_then_it_ends_with_210_in_time(cluster: ReplicaCluster) -> None:
    """Clients give up a little after the time that they asked for."""
    cluster.send_many(1)
    cluster.run_for(100)
    for one in pop(cluster)[1]:
        ack(cluster, one)
    before = cluster.loop.time()
    assert pop(cluster, pollTime=3_000) == (210, [])
    assert 3.0 <= cluster.loop.time() - before < 3.2


def test_pops_when_a_tag_is_wanted_then_others_are_passed_over_for_good(
    cluster: ReplicaCluster,
) -> None:
    """Messages that nobody of the group wants have no check point and hold nothing up."""
    cluster.send_many(8)
    cluster.run_for(100)
    assert pop(cluster, exp="TagB") == (210, [])
    assert pop(cluster) == (210, []), "the group has passed them"
    assert len(pop(cluster, consumerGroup="Other", exp="TagA")[1]) == 8


BAD_POPS: list[tuple[dict[str, object], int]] = [
    ({"topic": "Nowhere"}, 17),
    ({"queueId": 99}, 29),
    ({"maxMsgNums": 33}, 29),
    ({"maxMsgNums": 0}, 29),
    ({"invisibleTime": -1}, 29),
    ({"invisibleTime": 10**12}, 29),
    ({"expType": "SQL92", "exp": "a >"}, 23),
    ({"expType": "XPATH", "exp": "/a"}, 23),
    ({"exp": "||"}, 23),
    ({"exp": " || "}, 23),
    ({"consumerGroup": "no group"}, 26),
]


def test_pop_when_asked_wrongly_then_nothing_is_handed_out(cluster: ReplicaCluster) -> None:
    """Java's codes; a later pop gets everything."""
    cluster.send_many(3)
    cluster.run_for(100)
    assert [pop(cluster, **more)[0] for more, _ in BAD_POPS] == [code for _, code in BAD_POPS]
    assert len(pop(cluster)[1]) == 3


@pytest.mark.costly
def test_keys_when_they_come_from_a_proxy_then_acks_and_changes_count(
    cluster: ReplicaCluster,
) -> None:
    """gRPC clients are served by a proxy, whose keys have a ninth part: the commit log's offset."""
    cluster.send_many(2)
    cluster.run_for(100)
    done, later = (one._replace(key=f"{one.key} 4711") for one in pop(cluster)[1])
    assert ack(cluster, done) == 0
    master = cluster.master()
    assert master is not None
    answer = cluster.ask(master.config.address, 200053, {
        "consumerGroup": GROUP, "topic": TOPIC, "queueId": str(later.queue_id),
        "offset": str(later.offset), "extraInfo": later.key, "invisibleTime": "1000",
    })  # fmt: skip
    assert answer.code == 0
    (again,) = pop_until(cluster, limit_ms=INVISIBLE_MS)
    assert again.body == later.body
    assert ack(cluster, again._replace(key=f"{again.key} 4712")) == 0
    cluster.run_for(2 * INVISIBLE_MS)
    assert pop(cluster) == (210, [])


BAD_ACKS: list[tuple[dict[str, object], int]] = [
    ({"topic": "Nowhere"}, 17),
    ({"queueId": 99}, 13),
    ({"offset": 1_000}, 208),
    ({"extraInfo": "1 2 3"}, 1),
    ({"extraInfo": f"0 x 1 0 0 {NAME} 0 0"}, 1),
    ({"extraInfo": f"0 1 1 99 0 {NAME} 0 0"}, 13),
]


@pytest.mark.costly
@pytest.mark.costly
def test_ack_when_the_queue_is_not_dispatched_yet_then_it_counts(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new master has the messages in its log before they are in its queues; refused with 208, what
    was consumed came again."""
    cluster.send_many(2)
    cluster.run_for(100)
    _, found = pop(cluster)
    master = cluster.master()
    assert master is not None
    with monkeypatch.context() as patch:
        patch.setattr(master.store.reader, "max_offset", lambda *_: 0)
        assert [ack(cluster, one) for one in found] == [0, 0]
        beyond = PopKey(0, 1, 5_000, 0, "0", NAME, 0, 10_000)
        assert ack(cluster, found[0]._replace(offset=10_000, key=encode_key(beyond))) == 208
    cluster.run_for(2 * INVISIBLE_MS)
    assert pop(cluster) == (210, [])


def test_pops_when_one_message_comes_for_many_of_a_proxy_then_the_others_do_not_all_look(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has an attempt, and a time, of its own; all of them read all queues for every message."""
    served = []
    serve = PopProcessor._serve

    def noted(processor: PopProcessor, asked: Any) -> bool:
        served.append(serve(processor, asked))
        return served[-1]

    master, count = cluster.master(), 20
    assert master is not None
    assert cluster.send(0) is not None
    cluster.run_for(100)
    assert len(pop(cluster, invisibleTime=600_000)[1]) == 1
    for number in range(count):
        cluster.ask_later(master.config.address, 200050, {
            "consumerGroup": GROUP, "topic": TOPIC, "queueId": "-1",
            "maxMsgNums": str(1 + number % 3), "invisibleTime": str(60_000 + number),
            "pollTime": str(10_000 + number), "bornTime": "0", "initMode": "0",
            "attemptId": f"a{number}",
        })  # fmt: skip
    cluster.until(lambda: held_count(cluster) == count, "the pops", 200)
    monkeypatch.setattr(PopProcessor, "_serve", noted)
    assert cluster.send(1) is not None
    cluster.until(lambda: held_count(cluster) == count - 1, "one that is served", 200)
    cluster.run_for(100)
    assert served.count(True) == 1
    assert len(served) <= 6


def test_ack_when_it_names_nothing_then_it_is_refused_and_the_message_comes_again(
    cluster: ReplicaCluster,
) -> None:
    """Java's codes; garbage acknowledges nothing."""
    cluster.send_many(1)
    cluster.run_for(100)
    (found,) = pop(cluster, invisibleTime=1_000)[1]
    assert [ack(cluster, found, **more) for more, _ in BAD_ACKS] == [code for _, code in BAD_ACKS]
    master = cluster.master()
    assert master is not None
    for body in (b"", b"{", b'{"acks":[1]}', b'{"acks":[{"b":"*"}]}', b'{"acks":[{"r":"9"}]}'):
        assert cluster.ask(master.config.address, 200151, {}, body).code != 0
    assert bodies(pop_until(cluster)) == [found.body]


@pytest.mark.costly
def test_revive_log_when_written_then_it_has_javas_form(cluster: ReplicaCluster) -> None:
    """A Java replica of the same set goes on with it."""
    cluster.send_many(1)
    cluster.run_for(100)
    (found,) = pop(cluster)[1]
    ack(cluster, found)
    cluster.run_for(INVISIBLE_MS + 3_000)
    master = cluster.master()
    assert master is not None
    topic = REVIVE_TOPIC + master.config.cluster_name
    queue = int(found.key.split(" ")[3])
    seen = []
    for at in range(2):
        unit = master.store.reader.unit(topic, queue, at)
        assert unit is not None
        record = master.store.reader.look(unit.physical_offset)
        assert record is not None
        seen.append((record.property_map()["TAGS"], json.loads(record.body)))
    pop_ms, invisible_ms = (int(one) for one in found.key.split(" ")[1:3])
    common = {"bn": NAME, "c": GROUP, "pt": pop_ms, "q": found.queue_id, "so": 0, "t": TOPIC}
    point = {
        **common, "bm": 0, "d": [0], "it": invisible_ms, "n": 1, "ro": 0,
        "reviveTime": pop_ms + invisible_ms,
    }  # fmt: skip
    assert seen == [("ck", point), ("ack", {**common, "ao": 0})]


@pytest.mark.slow
@pytest.mark.parametrize("restarted", [False, True], ids=["failover", "restart"])
def test_check_points_when_the_master_is_killed_then_nothing_unacknowledged_is_lost(
    restarted: bool,
) -> None:
    """Popped, some acknowledged, killed: the next master delivers the rest again, and no other."""
    with ReplicaCluster(seed=22, replicas=1 if restarted else 3) as cluster:
        cluster.boot_all()
        cluster.until(cluster.in_sync, "SyncStateSet")
        cluster.send_many(12)
        cluster.run_for(100)
        _, found = pop(cluster)
        assert len(found) == 12
        for one in found[:6]:
            assert ack(cluster, one) == 0
        old = cluster.master()
        assert old is not None
        host = cluster.host_of(old)
        cluster.kill(host)
        if restarted:
            cluster.boot(host)
        cluster.until(lambda: cluster.master() not in (None, old), "new master")
        # A slave that had not copied the young topic yet makes it anew with the next message.
        assert cluster.send(99) is not None
        again: list[Popped] = []
        until_s = cluster.loop.time() + 20
        while cluster.loop.time() < until_s:
            for one in pop(cluster)[1]:
                again.append(one)
                assert ack(cluster, one) == 0
            cluster.run_for(500)
        assert {one.body for one in found[6:]} <= {one.body for one in again}
        # The group's offset is kept every few seconds only: messages that were acknowledged just
        # before the kill may be handed out again, as offsets of pulls may go back.
        assert {one.body for one in again} <= {one.body for one in found} | {b"body-99"}
        cluster.run_for(4 * INVISIBLE_MS)
        assert pop(cluster)[1] == []


@pytest.mark.costly
def test_request_modes_when_set_then_slaves_and_a_restart_keep_them() -> None:
    """mqadmin setConsumeMode, and what clients are then assigned."""
    with ReplicaCluster(seed=23, replicas=2) as cluster:
        cluster.boot_all()
        cluster.until(cluster.in_sync, "SyncStateSet")
        cluster.send_many(1)
        pop(cluster)
        master = cluster.master()
        assert master is not None
        wanted = {"topic": TOPIC, "consumerGroup": GROUP, "mode": "POP", "popShareQueueNum": 0}
        body = json.dumps(wanted).encode()
        address = master.config.address
        assert cluster.ask(address, 401, {}, body.replace(b"Orders", b"Nowhere")).code == 17
        assert cluster.ask(address, 401, {}, body.replace(b"PopGroup", b"NotYetThere")).code == 0
        assert cluster.ask(address, 401, {}, body.replace(b"Orders", b"%RETRY%x")).code in (16, 17)
        assert cluster.ask(address, 401, {}, b"{").code == 1
        assert cluster.ask(address, 401, {}, body).code == 0
        (slave,) = [one for one in cluster.replicas.values() if one is not master]
        early = {**wanted, "consumerGroup": "NotYetThere"}
        wanted_map = {"messageRequestModeMap": {TOPIC: {GROUP: wanted, "NotYetThere": early}}}

        def copied() -> bool:
            return bool(json.loads(cluster.ask(slave.config.address, 402).body) == wanted_map)

        cluster.until(copied, "copy on the slave")
        cluster.kill(cluster.host_of(master))
        cluster.boot(cluster.host_of(master))
        cluster.until(lambda: cluster.master() not in (None, master), "master")
        assert json.loads(cluster.ask(address, 402).body) == wanted_map


def test_message_when_it_has_no_room_for_one_property_more_then_it_comes_again_without(
    cluster: ReplicaCluster,
) -> None:
    """Else it was never delivered again; Java keeps its check point, and delivers it as little."""
    fields = send_fields(0)
    size = next(
        size
        for size in range(PROPERTIES_MAX, 0, -1)
        if cluster.ask(
            "10.0.0.1:10911", 310,
            {**fields, "i": f"UNIQ_KEY\x01U\x02K\x01{'v' * (size - 14)}\x02"}, b"full",
        ).code == 0
    )  # fmt: skip
    assert size > PROPERTIES_MAX - 100
    (first,) = pop(cluster)[1]
    assert (first.body, first.times) == (b"full", 0)
    cluster.run_for(INVISIBLE_MS + 3_000)
    # With no room for POP_CK either, under the retry topic's name.
    answer = cluster.ask("10.0.0.1:10911", 200050, {
        "consumerGroup": GROUP, "topic": TOPIC, "queueId": "-1", "maxMsgNums": "1",
        "invisibleTime": "60000", "pollTime": "0", "bornTime": "0", "initMode": "0",
    })  # fmt: skip
    assert answer.code == 0
    body = memoryview(bytes(answer.body))
    (physical,) = struct.unpack_from(">q", body, 28)
    record = decode(body, check_record(body, 0, len(body), physical, check_crc=True))
    assert (record.body, record.topic, record.reconsume_times) == (b"full", RETRY, 1)
    master = cluster.master()
    assert master is not None
    assert master.statistics.records_skipped == 0


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_pop_when_java_has_put_it_into_a_retry_topic_of_its_second_form_then_it_comes(
    cluster: ReplicaCluster, when: str
) -> None:
    """``enableRetryTopicV2`` at a Java master whose set is led by ours now; also by a held pop."""
    cluster.send_many(1)
    cluster.run_for(100)
    assert len(pop(cluster, invisibleTime=60_000)[1]) == 1
    master = cluster.master()
    assert master is not None
    name, host = f"%RETRY%{GROUP}+{TOPIC}", pack_host("10.0.0.1", 1)

    def put() -> None:
        master.topics.table.put(TopicConfig(name, 1, 1), 1)
        message = Message(name, 0, b"again", b"UNIQ_KEY\x01U\x02", 1, host, host)
        # Confirmed as any put is; nothing of the topic itself wakes the pop.
        master.services.writer.append(message)

    context = cluster._client_context.copy()
    cluster.loop.call_later(0 if when == "before" else 1, put, context=context)
    if when == "before":
        cluster.run_for(500)
    begun_s = cluster.loop.time()
    (got,) = pop(cluster, pollTime=5_000)[1]
    assert cluster.loop.time() - begun_s < 2, "not at the end of its time"
    assert (got.body, got.topic) == (b"again", TOPIC)
    assert ack(cluster, got, topic=name) == 0
    cluster.run_for(INVISIBLE_MS + 3_000)
    assert pop(cluster)[1] == []


BIG_QUEUES, BIG_BYTES = 16, 1_100_000


@pytest.mark.costly
@pytest.mark.parametrize("order", ["false", "true"])
def test_pop_when_every_queue_has_a_large_message_then_what_fits_comes_and_the_rest_stays(
    order: str,
) -> None:
    """A queue gives one message at least: 16 of 1.1 MB make no frame, and were gone until they came
    again; in order they came never."""
    with ReplicaCluster(seed=22, replicas=1, mappedFileSizeCommitLog=str(128 << 20)) as cluster:
        cluster.boot_all()
        master = cluster.master()
        assert master is not None
        address = master.config.address
        topic = {
            "topic": "Big", "readQueueNums": str(BIG_QUEUES), "writeQueueNums": str(BIG_QUEUES),
            "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
            "defaultTopic": "TBW102",
        }  # fmt: skip
        assert cluster.ask(address, 17, topic).code == 0
        for number in range(BIG_QUEUES):
            fields = {**send_fields(number, "Big"), "e": str(number), "d": str(BIG_QUEUES)}
            assert cluster.ask(address, 310, fields, bytes([number]) * BIG_BYTES).code == 0
        found: list[int] = []
        for _ in range(3):
            code, messages = pop(cluster, topic="Big", order=order, invisibleTime=60_000)
            assert code == 0
            assert sum(len(one.body) for one in messages) <= 8 << 20
            found += [one.body[0] for one in messages]
        assert sorted(found) == list(range(BIG_QUEUES))


def test_held_pop_when_what_it_would_get_makes_no_frame_then_it_is_told(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was the loop's error, and whoever waited learnt nothing until his time was over."""
    cluster.send_many(1)
    cluster.run_for(100)
    assert len(pop(cluster, invisibleTime=60_000)[1]) == 1
    master = cluster.master()
    assert master is not None

    def fail(*_: object) -> None:
        raise LocalProtocolError("a frame of too many bytes")

    monkeypatch.setattr(pop_requests, "answer_found", fail)
    waiting = Subscriber(cluster, master.config.address)
    number = waiting.tell(200050, {
        "consumerGroup": GROUP, "topic": TOPIC, "queueId": -1, "maxMsgNums": 1,
        "invisibleTime": 60_000, "pollTime": 20_000, "bornTime": 0, "initMode": 0,
        "expType": "TAG", "exp": "*",
    })  # fmt: skip
    cluster.until(lambda: held_count(cluster) == 1, "the pop held")
    cluster.send_without_waiting(1)
    cluster.until(lambda: number in waiting.answers, "an answer", limit_ms=1_000)
    answer = waiting.answers[number]
    assert (answer.code, answer.remark) == (1, "a frame of too many bytes")
    assert held_count(cluster) == 0


def test_notification_when_a_group_is_new_then_it_begins_where_its_first_pop_says(
    cluster: ReplicaCluster,
) -> None:
    """The question moved the group to the oldest message, and took a reset that was for a pop."""
    master = cluster.master()
    assert master is not None
    address = master.config.address
    for number in range(4):
        assert cluster.ask(address, 310, send_fields(number), b"before").code == 0
    asked = {
        "consumerGroup": GROUP, "topic": TOPIC, "queueId": "-1", "pollTime": "0", "bornTime": "0",
    }  # fmt: skip
    answer = cluster.ask(address, 200054, asked)
    assert (answer.ext_fields or {})["hasMsg"] == "true"
    table = master.offsets.table
    assert [table.query(GROUP, TOPIC, queue) for queue in range(4)] == [None] * 4
    table.reset(GROUP, TOPIC, 1, 1, 0)
    assert cluster.ask(address, 200054, {**asked, "queueId": "1"}).code == 0
    assert table.pending_reset(GROUP, TOPIC, 1) == 1


def test_notification_when_something_comes_then_it_is_told(cluster: ReplicaCluster) -> None:
    """200054 and 200055, which proxies ask."""
    cluster.send_many(1)
    cluster.run_for(100)
    for one in pop(cluster)[1]:
        ack(cluster, one)
    master = cluster.master()
    assert master is not None
    fields = {
        "consumerGroup": GROUP, "topic": TOPIC, "queueId": "-1", "pollTime": "5000",
        "bornTime": "0",
    }  # fmt: skip
    cluster.loop.call_later(1.0, cluster.send_without_waiting, 1)
    answer = cluster.ask(master.config.address, 200054, fields, timeout_ms=60_000)
    assert answer.ext_fields == {"hasMsg": "true", "pollingFull": "false"}
    assert len(pop(cluster)[1]) == 1
    answer = cluster.ask(master.config.address, 200054, {**fields, "pollTime": "100"})
    assert (answer.ext_fields or {})["hasMsg"] == "false"
    answer = cluster.ask(master.config.address, 200055, fields)
    assert answer.ext_fields == {"pollingNum": "0"}


def test_notification_when_what_is_wanted_is_far_behind_then_it_says_yes(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than one look passes over: it said no for ever, and who waits for a yes never popped."""
    monkeypatch.setattr(queue_takes, "SCAN_MAX", 5)
    for number in range(12):
        assert cluster.send(number, e="0") is not None
    master = cluster.master()
    assert master is not None
    fields = {
        "consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "pollTime": "100", "bornTime": "0",
        "exp": "TagB", "expType": "TAG",
    }  # fmt: skip

    def has_message() -> bool:
        answer = cluster.ask(master.config.address, 200054, fields)
        return (answer.ext_fields or {})["hasMsg"] == "true"

    assert has_message()
    assert master.offsets.table.groups_of(TOPIC) == [], "the question moves nobody"
    for _ in range(3):
        assert pop(cluster, exp="TagB", queueId=0) == (210, [])
    assert not has_message(), "a pop has passed over all there is"


def test_held_pops_when_there_are_too_many_then_further_ones_are_told_209() -> None:
    """popPollingSize of one group and topic."""
    with ReplicaCluster(seed=24, replicas=1, popPollingSize=1) as cluster:
        cluster.boot_all()
        assert cluster.send(1) is not None
        cluster.run_for(100)
        pop(cluster)
        codes = []
        cluster.loop.call_later(0.5, lambda: codes.append(held_count(cluster)))
        master = cluster.master()
        assert master is not None
        cluster.ask_later(master.config.address, 200050, {
            "consumerGroup": GROUP, "topic": TOPIC, "queueId": "-1", "maxMsgNums": "1",
            "invisibleTime": "60000", "pollTime": "10000", "bornTime": "0", "initMode": "0",
        })  # fmt: skip
        cluster.run_for(1_000)
        assert codes == [1]
        assert pop(cluster, pollTime=5_000)[0] == 209


def held_count(cluster: ReplicaCluster) -> int:
    """What 200055 would say, without asking."""
    master = cluster.master()
    assert master is not None
    return master.pop.pops.held_count


def test_send_fields_are_those_of_the_topic() -> None:
    """The tag that the tests above filter by."""
    assert "TagA" in send_fields(0)["i"]
