"""Transactions that a broker of 5.5 keeps in topics of its own, at a master of ours."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqha.broker.deferred.transactions import EXPIRED_TOPIC, GROUP, NEWER_PAIR, PAIR, QUEUE
from rmqha.remoting.command import RemotingCommand
from rmqha.store import properties as props
from rmqha.store.aio.record_walk import RecordWalk
from rmqha.store.record import Message, Record
from tests.broker.replicas import TOPIC, ReplicaCluster, master_of
from tests.broker.subscriber import Subscriber
from tests.broker.test_producer_services import bodies, end, half, stored

ROUND_MS, CHECKS_MAX = 1_000, 3
COMMIT, ROLLBACK = 8, 12


@pytest.fixture
def alone() -> Iterator[ReplicaCluster]:
    """One replica, which reigns."""
    with ReplicaCluster(
        seed=2, replicas=1, transactionCheckInterval=ROUND_MS, transactionTimeOut=500,
        transactionCheckMax=CHECKS_MAX,
    ) as one:  # fmt: skip
        one.boot_all()
        yield one


def append(cluster: ReplicaCluster, message: Message) -> Record:
    """Write a record as the master of before did; it is in its queue then."""
    write, context = master_of(cluster).services.writer.append, cluster._client_context.copy()
    count = len(stored(cluster, message.topic, 1))
    cluster.loop.call_soon(write, message, context=context)
    cluster.until(lambda: len(stored(cluster, message.topic, 1)) > count, "the record", 1_000)
    return stored(cluster, message.topic, 1)[-1]


def newer_half(cluster: ReplicaCluster, number: int) -> dict[str, str]:
    """A half message in the other topic; the fields that end it."""
    fields = half(cluster, number)
    cluster.until(lambda: stored(cluster, PAIR.half, 1), "the half message", 1_000)
    ordinary = stored(cluster, PAIR.half, 1)[-1]
    assert ordinary.body == f"body-{number}".encode()
    assert end(cluster, fields, ROLLBACK) == 0
    found = append(cluster, ordinary.message()._replace(topic=NEWER_PAIR.half))
    return {
        **fields, "tranStateTableOffset": str(found.queue_offset),
        "commitLogOffset": str(found.physical_offset),
    }  # fmt: skip


def reboot(cluster: ReplicaCluster) -> None:
    """Kill the master, and let it reign again."""
    host = cluster.host_of(master_of(cluster))
    cluster.kill(host)
    cluster.boot(host)
    cluster.until(lambda: cluster.master() is not None, "a master", 60_000)


def ends_of(cluster: ReplicaCluster) -> list[str | None]:
    """Which half messages have an end in the log, by their places."""
    return [one.property_map().get("TRANS_OFFSET") for one in stored(cluster, NEWER_PAIR.op, 1)]


@pytest.mark.costly
def test_transactions_when_a_master_of_5_5_has_kept_them_then_the_next_one_ends_them(
    alone: ReplicaCluster,
) -> None:
    """They could neither be committed nor rolled back, and nobody asked about them."""
    committed, rolled_back, left = (newer_half(alone, number) for number in range(3))
    reboot(alone)
    assert end(alone, committed, COMMIT) == end(alone, rolled_back, ROLLBACK) == 0
    assert end(alone, committed, COMMIT) == 1, "it has ended"
    alone.until(lambda: len(ends_of(alone)) == 2, "the ends", 1_000)
    assert ends_of(alone) == [one["commitLogOffset"] for one in (committed, rolled_back)]
    assert bodies(stored(alone, TOPIC)) == [b"body-0"]
    reboot(alone)
    assert end(alone, rolled_back, COMMIT) == 1
    assert end(alone, left, COMMIT) == 0
    alone.until(lambda: len(stored(alone, TOPIC)) == 2, "the commit", 1_000)
    assert bodies(stored(alone, TOPIC)) == [b"body-0", b"body-2"]


def test_end_when_it_is_written_then_a_broker_of_5_5_finds_what_it_ends(
    alone: ReplicaCluster,
) -> None:
    """It looks its record up by place, real topic and transaction id, and passes over an op without one."""
    fields = newer_half(alone, 7)
    alone.run_for(200)
    assert end(alone, fields, COMMIT) == 0
    alone.until(lambda: ends_of(alone), "the end", 1_000)
    (op,) = stored(alone, NEWER_PAIR.op, 1)
    named = op.property_map()
    assert named.pop("UNIQ_KEY") not in ("", "U7")
    assert named == {
        "TAGS": "d", "TRANS_OFFSET": fields["commitLogOffset"], "__transactionId__": "U7",
        "REAL_TOPIC": TOPIC,
    }  # fmt: skip
    assert op.body == b"\0"


@pytest.mark.costly
def test_half_message_when_nobody_ends_it_then_it_is_asked_about_and_given_up(
    alone: ReplicaCluster,
) -> None:
    """Once a round, without a further record: 5.5 counts beside the log."""
    fields = newer_half(alone, 1)
    asked = Subscriber(alone, master_of(alone).config.address)
    heard: list[dict[str, str]] = []

    def hear(request: RemotingCommand) -> None:
        heard.append(dict(request.ext_fields or {}))

    asked.on_oneway = hear
    asked.beat("", producers=("PG",))
    alone.until(lambda: stored(alone, EXPIRED_TOPIC, 1), "the end", 10_000)
    place = (fields["tranStateTableOffset"], fields["commitLogOffset"])
    newer = [one for one in heard if one["topic"] == NEWER_PAIR.half]
    assert [(one["tranStateTableOffset"], one["commitLogOffset"]) for one in newer] == (
        [place] * CHECKS_MAX
    )
    assert [one["transactionId"] for one in newer] == ["U1"] * CHECKS_MAX
    assert len(stored(alone, NEWER_PAIR.half, 1)) == 1
    assert ends_of(alone) == [fields["commitLogOffset"]]
    alone.run_for(3 * ROUND_MS)
    assert len(heard) == CHECKS_MAX


@pytest.mark.costly
def test_half_message_when_the_producer_answers_then_its_answer_counts(
    alone: ReplicaCluster,
) -> None:
    newer_half(alone, 1)
    asked = Subscriber(alone, master_of(alone).config.address)
    ends: list[int] = []

    def hear(request: RemotingCommand) -> None:
        got = request.ext_fields or {}
        fields = {
            "producerGroup": "PG", "tranStateTableOffset": got["tranStateTableOffset"],
            "commitLogOffset": got["commitLogOffset"], "commitOrRollback": str(COMMIT),
            "fromTransactionCheck": "true", "msgId": "",
        }  # fmt: skip
        ends.append(asked.tell(37, fields))

    asked.on_oneway = hear
    asked.beat("", producers=("PG",))
    alone.until(lambda: ends and ends[0] in asked.answers, "the end", 5_000)
    assert asked.answers[ends[0]].code == 0
    alone.run_for(3 * ROUND_MS)
    assert (bodies(stored(alone, TOPIC)), len(ends)) == ([b"body-1"], 1)


def test_op_message_when_it_is_of_5_5_then_what_it_names_has_ended(alone: ReplicaCluster) -> None:
    """One that names nothing, or a place that is no half message's, ends nothing and is in nobody's way."""
    ended, open_one = newer_half(alone, 1), newer_half(alone, 2)
    (first, _) = stored(alone, NEWER_PAIR.half, 1)
    (_, ordinary) = stored(alone, PAIR.half, 1)
    assert str(ordinary.queue_offset) == open_one["tranStateTableOffset"], "else it shows nothing"
    elsewhere = str(ordinary.physical_offset)
    for place in ("", "1", "9" * 18, elsewhere, ended["commitLogOffset"]):
        pairs = {"TAGS": "d", "TRANS_OFFSET": place, "REAL_TOPIC": TOPIC}
        append(
            alone,
            first.message()._replace(
                topic=NEWER_PAIR.op, body=b"\0", properties=props.encode(pairs)
            ),
        )
    reboot(alone)
    assert end(alone, ended, COMMIT) == 1
    assert end(alone, open_one, COMMIT) == 0
    assert master_of(alone).statistics.records_skipped == 1


def test_offsets_when_there_are_no_such_transactions_then_none_is_kept(
    alone: ReplicaCluster,
) -> None:
    """The table of offsets is told to slaves and tools; where there are some, it does not begin anew."""

    def kept() -> list[int | None]:
        table = master_of(alone).offsets.table
        return [table.query(GROUP, topic, QUEUE) for topic in NEWER_PAIR]

    assert end(alone, half(alone, 1), COMMIT) == 0
    alone.run_for(2 * ROUND_MS)
    assert kept() == [None, None]
    for number in (2, 3):
        fields = newer_half(alone, number)
        alone.run_for(200)
        assert end(alone, fields, COMMIT) == 0
    alone.until(lambda: kept() == [2, 2], "both ends", 2 * ROUND_MS)


@pytest.mark.costly
def test_half_message_when_it_has_expired_then_it_is_forgotten_without_an_end(
    alone: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can read what an end would name, and 5.5 drops its own record of it."""
    newer_half(alone, 1)
    service = master_of(alone).services.transactions
    alone.until(lambda: service.waiting == 1, "an open one", 1_000)
    monkeypatch.setattr(RecordWalk, "look", lambda self, offset: None)
    alone.until(lambda: service.waiting == 0, "nobody knows of it", 5 * ROUND_MS)
    assert ends_of(alone) == []
    alone.run_for(3 * ROUND_MS)
    said = [line for line in alone.trace.lines if "half_message_expired" in line]
    assert len(said) == 1
