"""Records that a broker's own services cannot act on: refused from clients, passed over in logs.

A log may hold such a record all the same: an older release or a Java master wrote it. It is on every
replica and for ever, so whoever reads it must get past it.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from rmqha.base.errors import RemoteProtocolError
from rmqha.broker.common.aio import writer
from rmqha.broker.deferred.delays import SCHEDULE_TOPIC, TIMER_TOPIC
from rmqha.broker.deferred.transactions import HALF_TOPIC
from rmqha.broker.pop.check_points import (
    AHEAD_MAX_MS,
    REVIVE_DELAY_MS,
    REVIVE_TOPIC,
    Acks,
    CheckPoint,
    ReviveQueue,
    read_record,
)
from rmqha.store import properties as props
from rmqha.store.aio.commit_log import AppendResult
from rmqha.store.aio.room import Stretch
from rmqha.store.record import Message, pack_host
from tests.broker.replicas import NAME, TOPIC, ReplicaCluster

HOST = pack_host("127.0.0.1", 10911)
POINT: dict[str, Any] = {
    "bm": 0, "bn": NAME, "c": "G", "d": [0], "it": 1000, "n": 1, "pt": 1, "q": 0, "so": 0,
    "t": TOPIC,
}  # fmt: skip
CLUSTER = "DefaultCluster"


@pytest.fixture
def cluster() -> Iterator[ReplicaCluster]:
    """One replica."""
    one = ReplicaCluster(seed=31, replicas=1)
    one.boot_all()
    yield one
    one.close()


def write(cluster: ReplicaCluster, topic: str, body: bytes, **pairs: str) -> None:
    """Put a record into the master's log as no client can."""
    master = cluster.master()
    assert master is not None
    found = Message(topic, 0, body, props.encode(pairs), 0, HOST, HOST)
    cluster.loop.call_soon(master.services.writer.append, found)


def alive(cluster: ReplicaCluster) -> None:
    """The master serves, and a timer and a popped message still come."""
    master = cluster.master()
    assert master is not None
    assert master.store.failed is None
    answer = cluster.send(1, i="TIMER_DELAY_MS\x011000\x02")
    assert answer is not None
    assert answer.code == 0
    before = master.statistics.timers_out
    cluster.until(lambda: master.statistics.timers_out > before, "timer", 10_000)
    answer = cluster.send(2)
    assert answer is not None
    assert answer.code == 0


@pytest.mark.few
@pytest.mark.parametrize("topic", [TIMER_TOPIC, REVIVE_TOPIC + CLUSTER, REVIVE_TOPIC + "Other"])
@pytest.mark.parametrize("code", [10, 310, 320])
def test_topics_of_services_when_a_producer_sends_to_them_then_it_is_refused(
    cluster: ReplicaCluster, topic: str, code: int
) -> None:
    """One such send ended every replica."""
    master = cluster.master()
    assert master is not None
    short = {"a": "P", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}
    names = dict(zip("abcdefgh", (
        "producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag",
        "bornTimestamp", "flag",
    ), strict=True))  # fmt: skip
    fields = {names[key]: value for key, value in short.items()} if code == 10 else short
    answer = cluster.ask(master.config.address, code, fields, b"body")
    assert (answer.code, answer.remark) == (16, f"sending to topic {topic} is forbidden")


@pytest.mark.parametrize("properties", ["A\x01" + "\0" * 9000 + "\x02", "A\x01" + "\0" * 4095])
def test_message_when_its_properties_hold_a_page_of_zeros_then_the_next_start_is_well(
    cluster: ReplicaCluster, properties: str
) -> None:
    """One such send, and every replica took its store for damaged when it started again."""
    for unique in ("", "UNIQ_KEY\x01U1\x02"):
        answer = cluster.send(1, i=unique + properties)
        assert answer is not None
        assert answer.code == 13
    host = cluster.broker_hosts[0]
    cluster.send_many(1)
    cluster.kill(host)
    cluster.boot(host)
    cluster.until(lambda: cluster.master() is not None, "the master again")
    alive(cluster)


@pytest.mark.few
@pytest.mark.parametrize(
    "place",
    [
        {"REAL_TOPIC": "a/b", "REAL_QID": "0"},
        {"REAL_TOPIC": "x" * 300, "REAL_QID": "0"},
        {"REAL_TOPIC": "..", "REAL_QID": "0"},
        {"REAL_TOPIC": TIMER_TOPIC, "REAL_QID": "0"},
        {"REAL_TOPIC": SCHEDULE_TOPIC, "REAL_QID": "99"},
        {"REAL_TOPIC": HALF_TOPIC, "REAL_QID": "0"},
        {"REAL_TOPIC": TOPIC, "REAL_QID": "99999999999"},
        {"REAL_TOPIC": TOPIC, "REAL_QID": "70000"},
        {},
    ],
    ids=lambda one: str(one)[:40],
)
def test_timer_when_its_place_is_impossible_then_it_is_skipped_and_others_come(
    cluster: ReplicaCluster, place: dict[str, str]
) -> None:
    """Nothing is delivered to where a service would act on it again, and nobody dies of it."""
    write(cluster, TIMER_TOPIC, b"bad", TIMER_OUT_MS="1", **place)
    master = cluster.master()
    assert master is not None
    cluster.until(lambda: master.statistics.records_skipped, "record that is skipped", 10_000)
    alive(cluster)
    assert master.statistics.records_skipped == 1


BAD_POINTS: list[dict[str, Any]] = [
    {"d": [], "n": 10_000_000},
    {"d": list(range(33))},
    {"d": [1 << 62], "so": 1 << 62},
    {"d": [-5]},
    {"so": -1},
    {"q": -1},
    {"q": 1 << 40},
    {"pt": -1},
    {"it": -1},
    {"pt": (1 << 63) - 1, "it": (1 << 63) - 1},
    {"c": "a/b"},
    {"c": ""},
    {"c": "x" * 250},
    {"t": "a/b"},
    {"t": ""},
    {"t": "x" * 300},
    {"rp": "9" * 5000},
    {"rp": "²"},
]


@pytest.mark.few
@pytest.mark.parametrize("bad", BAD_POINTS, ids=lambda one: str(one)[:40])
def test_check_point_when_its_numbers_are_broken_then_it_is_skipped(
    cluster: ReplicaCluster, bad: dict[str, Any]
) -> None:
    """The revive log is read by every master, for as long as the record is there."""
    body = json.dumps(POINT | bad).encode()
    write(cluster, REVIVE_TOPIC + CLUSTER, body, TAGS="ck")
    master = cluster.master()
    assert master is not None
    cluster.until(lambda: master.statistics.records_skipped, "record that is skipped", 10_000)
    cluster.run_for(5_000)
    alive(cluster)
    assert master.pop.revive.open_count == 0


@pytest.mark.parametrize("bad", BAD_POINTS, ids=lambda one: str(one)[:40])
def test_check_point_when_it_is_read_then_only_possible_ones_are(bad: dict[str, Any]) -> None:
    """The same without a broker: as an error of whoever wrote it."""
    with pytest.raises(RemoteProtocolError):
        CheckPoint.decode(json.dumps(POINT | bad).encode(), NAME)


def test_acks_when_there_are_very_many_then_they_are_refused() -> None:
    """A check point has 32 messages at most."""
    body = {"aol": list(range(2_000)), "c": "G", "t": TOPIC, "pt": 1, "q": 0, "so": 0}
    with pytest.raises(RemoteProtocolError):
        Acks.decode(json.dumps(body).encode(), NAME, batch=True)


def test_check_point_when_it_is_due_in_a_thousand_years_then_it_holds_nobody_up() -> None:
    """One that is not due keeps those behind it; the timers bring it when it nearly is."""
    far = CheckPoint(TOPIC, "G", 0, 0, 1 << 45, 1000, NAME, (0,))
    near = CheckPoint(TOPIC, "G", 0, 1, 1_000, 1_000, NAME, (1,))
    queue = ReviveQueue(0, 10)
    queue.add(far, 2_000)
    queue.add(near, 2_000)
    later_ms = 2_000 + AHEAD_MAX_MS + REVIVE_DELAY_MS + 1
    assert [one.point for one in queue.due(later_ms - 1, 9)] == []
    assert [one.point for one in queue.due(later_ms, 9)] == [far, near]


def test_record_when_its_kind_is_unknown_then_it_is_none() -> None:
    """Newer releases may write more kinds."""
    assert read_record(props.encode({"TAGS": "new"}), b"{", NAME) is None


def test_big_messages_when_they_are_revived_then_other_work_gets_its_turn(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check points of one look write so many bytes at most before others are served."""
    master = cluster.master()
    assert master is not None
    monkeypatch.setattr(writer, "BATCH_BYTES", 65_000)
    for number in range(4):
        fields = {"a": "P", "b": TOPIC, "c": "TBW102", "d": "1", "e": "0", "f": "0", "g": "1",
                  "h": "0"}  # fmt: skip
        body = b"%d" % number * 30_000
        assert cluster.ask(master.config.address, 310, fields, body).code == 0
    cluster.run_for(200)
    for number in range(4):
        body = json.dumps(POINT | {"so": number, "it": number}).encode()
        write(cluster, REVIVE_TOPIC + CLUSTER, body, TAGS="ck")
    revive, revived, times_s = master.pop.revive, [0], []
    batch = master.services.writer.batch

    async def watched(write: Callable[[Stretch], tuple[int, bool]]) -> tuple[int, bool]:
        found = await batch(write)
        if revive.revived != revived[-1]:
            times_s.append(cluster.loop.time())
        revived.append(revive.revived)
        return found

    master.services.writer.batch = watched  # type: ignore[assignment,method-assign]  # to see each turn
    cluster.until(lambda: revive.revived == 4, "messages revived", 60_000)
    turns = [after - before for before, after in itertools.pairwise(revived) if after > before]
    assert turns == [2, 2]
    assert times_s[1] - times_s[0] < 0.1, "at once"


@pytest.mark.costly
def test_messages_when_very_many_are_revived_then_one_after_the_other_without_a_pause(
    cluster: ReplicaCluster,
) -> None:
    """There was one of 200 ms after each 64 check points: 320 messages a second of a queue."""
    master, count = cluster.master(), 1_000
    assert master is not None
    assert cluster.send(0) is not None
    cluster.run_for(200)
    for number in range(count):
        write(
            cluster, REVIVE_TOPIC + CLUSTER, json.dumps(POINT | {"pt": number}).encode(), TAGS="ck"
        )
    revive = master.pop.revive
    cluster.until(lambda: revive.revived, "the first message revived", 60_000)
    begun_s = cluster.loop.time()
    cluster.until(lambda: revive.revived == count, "all messages revived", 60_000)
    assert cluster.loop.time() - begun_s < 1


@pytest.mark.costly
@pytest.mark.parametrize("kind", ["delayed", "timer", "popped"])
def test_messages_when_very_many_are_due_then_few_in_a_turn_and_one_wait_for_all(
    cluster: ReplicaCluster, kind: str
) -> None:
    """Clients are answered between the turns; and one sync is for what several of them wrote."""
    master, count = cluster.master(), 160
    assert master is not None
    service, turns, ends, is_due = master.services.writer, list[int](), list[int](), False
    batch, settle, append = service.batch, service.settle, service.append

    async def watched(write: Callable[[Stretch], tuple[int, bool]]) -> tuple[int, bool]:
        turns.append(0)
        return await batch(write) if is_due else (0, False)

    def appended(message: Message) -> AppendResult:
        turns[-1] += 1
        return append(message)

    def settled(end: int, *, durable: bool = False) -> Coroutine[Any, Any, bool]:
        ends.append(end)
        return settle(end, durable=durable)

    service.batch = watched  # type: ignore[assignment,method-assign]  # to see each turn
    if kind == "popped":
        for _ in range(20):
            assert cluster.send(0) is not None
        for number in range(count // 20):
            point = POINT | {"pt": number, "d": list(range(20)), "n": 20}
            write(cluster, REVIVE_TOPIC + CLUSTER, json.dumps(point).encode(), TAGS="ck")
    else:
        due_ms = master.clock.wall_ms() + 6_000
        more = "DELAY\x011\x02" if kind == "delayed" else f"TIMER_DELIVER_MS\x01{due_ms}\x02"
        for _ in range(count):
            assert cluster.send(0, i=more) is not None
    cluster.run_for(8_000)
    is_due = True
    service.append = appended  # type: ignore[method-assign]
    service.settle = settled  # type: ignore[method-assign]
    cluster.until(lambda: sum(turns) >= count, "all messages", 60_000)
    cluster.run_for(100)
    assert sum(turns) == count
    assert max(turns) == (20 if kind == "popped" else writer.RECORDS_A_TURN)
    assert len(ends) < len([one for one in turns if one])
