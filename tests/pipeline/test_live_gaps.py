"""Messages that an answer passes over in silence: deleted ones are told, places without any are not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rmqha.base.errors import RmqhaError
from rmqha.client.aio.masters import Masters
from rmqha.client.exchange import Refused
from rmqha.client.offsets import Edge
from rmqha.client.pull import Pulled
from rmqha.client.routes import QueueKey
from rmqha.pipeline.live.clients import LiveClient
from rmqha.pipeline.live.gaps import Answer, Gap, gaps
from rmqha.pipeline.live.losing import WAS_REMOVING
from rmqha.pipeline.live.offsets import DataLost, QueueRange
from rmqha.pipeline.live.pulling import RangeReader
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.store import properties as props
from rmqha.store.record import INNER_BATCH, Record
from tests.pipeline import test_live_logical as logical
from tests.pipeline.stores import written
from tests.pipeline.test_live_pulling import COUNT, Scripted, found, log, read
from tests.store.harness import message

__all__ = ["log"]
Log = tuple[bytes, list[Record]]
Answers = Callable[[int, int], Pulled]


def holed(whole: Log, first: int, stop: int) -> Answers:
    """A Java broker's answers without the messages from ``first`` on, before ``stop``: it goes on
    behind them with what it finds next, as long as its queue files still have their places."""
    data, records = whole

    def answer(at: int, count: int) -> Pulled:
        there = [one for one in records[at:] if not first <= one.queue_offset < stop][:count]
        if not there:
            code = ResponseCode.PULL_RETRY_IMMEDIATELY
            return Pulled(code, WAS_REMOVING, stop, Edge(0, COUNT), b"")
        body = b"".join(data[one.physical_offset :][: one.size] for one in there)
        following = there[-1].queue_offset + 1
        if following == first:
            # Behind the last message that it finds it looks at units whose messages have gone.
            following = stop
        return Pulled(ResponseCode.SUCCESS, "FOUND", following, Edge(0, COUNT), body)

    return answer


@pytest.mark.parametrize(
    ("first", "stop", "batch"),
    [(0, 5, "10"), (0, 5, "1"), (7, 9, "20"), (7, 9, "7"), (7, 20, "9")],
    ids=["in front", "one by one", "in the middle", "behind", "to the end"],
)
async def test_messages_when_an_answer_passes_over_them_then_lost(
    log: Log, first: int, stop: int, batch: str
) -> None:
    """Their log file has gone and their queue file not yet: the answer brings what follows."""
    with pytest.raises(
        DataLost,
        match=f"before {stop} have been deleted; offset {first} was next, {stop} is",
    ):
        read(Scripted(holed(log, first, stop)), pullBatchSize=batch)
    warnings: list[str] = []
    rest = [*range(first), *range(stop, COUNT)]
    cluster = Scripted(holed(log, first, stop))
    assert read(cluster, warnings=warnings, pullBatchSize=batch) == rest
    assert len(warnings) == 1


async def test_messages_when_passed_over_outside_of_the_range_then_no_loss(log: Log) -> None:
    """What another task reads it tells."""
    cluster = Scripted(holed(log, 7, 9))
    assert read(cluster, 0, 7, pullBatchSize="20") == list(range(7))
    assert read(cluster, 9, 12) == [9, 10, 11]


async def test_messages_when_a_filter_may_have_passed_over_them_then_no_loss(log: Log) -> None:
    """A hole says nothing where not every message is wanted."""
    assert read(Scripted(holed(log, 7, 9)), subExpression="Aa || BB") == [
        *range(7),
        *range(9, COUNT),
    ]


async def test_queue_when_it_jumps_at_a_missing_file_then_lost(log: Log) -> None:
    """Java's OFFSET_FOUND_NULL is code 19 with the next file's first offset; whatever is wanted."""

    def answer(at: int, count: int) -> Pulled:
        if at < 5:
            code = ResponseCode.PULL_NOT_FOUND
            return Pulled(code, "OFFSET_FOUND_NULL", 10, Edge(0, COUNT), b"")
        return found(log, at, count)

    for expression in ("*", "Aa || BB"):
        with pytest.raises(DataLost, match="before 10 have been deleted; offset 0 was next, 10 is"):
            read(Scripted(answer), subExpression=expression)
        warnings: list[str] = []
        rest = list(range(10, COUNT))
        assert read(Scripted(answer), warnings=warnings, subExpression=expression) == rest
        assert len(warnings) == 1


async def test_topic_when_it_is_compacted_then_its_holes_are_no_loss(log: Log) -> None:
    """Older messages of a key go; the topic is asked about once a range, and only at a hole."""
    data, records = log
    kept = [0, 3, 4, 9, 15]

    def answer(at: int, count: int) -> Pulled:
        there = [records[one] for one in kept if one >= at][:count]
        if not there:
            return Pulled(ResponseCode.SUCCESS, "FOUND", COUNT, Edge(0, COUNT), b"")
        body = b"".join(data[one.physical_offset :][: one.size] for one in there)
        following = there[-1].queue_offset + 1
        return Pulled(ResponseCode.SUCCESS, "FOUND", following, Edge(0, COUNT), body)

    cluster = Scripted(answer)
    cluster.is_sparse = True
    assert read(cluster, pullBatchSize="2") == kept
    assert cluster.asked_about == 1
    code = ResponseCode.PULL_NOT_FOUND
    jump = Pulled(code, "OFFSET_FOUND_NULL", 9, Edge(0, COUNT), b"")
    cluster = Scripted(lambda at, count: jump if at == 4 else answer(at, count))
    cluster.is_sparse = True
    assert read(cluster, 4) == [9, 15]
    whole = Scripted(lambda at, count: found(log, at, count))
    assert read(whole) == list(range(COUNT))
    assert whole.asked_about == 0


async def test_hole_when_its_message_is_there_then_no_loss(log: Log) -> None:
    """An answer without it, and then one with it: it is not called deleted."""
    asked: list[int] = []

    def answer(at: int, count: int) -> Pulled:
        asked.append(at)
        return found(log, at, count) if at == 7 else holed(log, 7, 9)(at, count)

    assert read(Scripted(answer), pullBatchSize="20") == [*range(7), *range(9, COUNT)]
    assert asked == [0, 7]


async def test_hole_when_a_new_master_is_asked_about_it_then_waited_for(log: Log) -> None:
    """It may not have come to it yet; what an answer says of the queue's files is certain."""

    def reads(late_ms: int, pulled: Pulled) -> Scripted:
        def answer(at: int, count: int) -> Pulled:
            if at != 7:
                return holed(log, 7, 9)(at, count)
            return pulled if cluster.now_ms() < late_ms else found(log, at, count)

        cluster = Scripted(answer)
        expected = [*range(7), *range(9, COUNT)]
        assert read(cluster, warnings=warnings, pullBatchSize="20") == expected
        return cluster

    warnings: list[str] = []
    behind = Pulled(ResponseCode.PULL_NOT_FOUND, "", 7, Edge(0, 7), b"")
    assert reads(300, behind).now_ms() == 300
    assert warnings == []
    cluster = reads(1 << 40, behind)
    assert cluster.now_ms() >= cluster.failover_timeout_ms
    assert len(warnings) == 1
    for code, following in (
        (ResponseCode.PULL_RETRY_IMMEDIATELY, 9),
        (ResponseCode.PULL_OFFSET_MOVED, 9),
        # Where the queue begins says it, too.
        (ResponseCode.PULL_OFFSET_MOVED, 7),
    ):
        warnings.clear()
        assert reads(1 << 40, Pulled(code, "", following, Edge(9, COUNT), b"")).now_ms() == 0
        assert len(warnings) == 1


def test_gaps_when_batches_share_an_offset_then_only_behind_their_last_message() -> None:
    """INNER_NUM messages of a batch have one record."""
    counts = {0: 3, 2: 2}
    offsets = np.array([4, 7, 8, 12], np.int64)
    of_answer = np.array([0, 0, 1, 1], np.int64)

    def found_in(following: int) -> list[Gap]:
        answers = [Answer(4, 8), Answer(8, following)]
        return gaps(answers, offsets, of_answer, lambda row: counts.get(row, 1))

    assert found_in(13) == [Gap(10, 12)]
    assert found_in(15) == [Gap(10, 12), Gap(13, 15)]
    counts[2] = 4
    assert found_in(13) == []


def test_gaps_when_an_answer_has_no_record_then_all_of_it() -> None:
    """And none in front of records that were not asked for."""
    nothing = np.array([], np.int64)
    assert gaps([Answer(3, 9)], nothing, nothing, int) == [Gap(3, 9)]
    assert gaps([], nothing, nothing, int) == []
    early = np.array([1, 2, 3], np.int64)
    assert gaps([Answer(3, 4)], early, np.zeros(3, np.int64), lambda _: 1) == []


async def test_batch_when_it_has_many_messages_then_no_hole_behind_it(tmp_path: Path) -> None:
    """The count is that of the record's own property."""
    made = [
        message(
            number, topic="t", queue_id=0, properties=props.encode(pairs),
            sys_flag=INNER_BATCH if pairs else 0,
        )
        for number, pairs in enumerate(({}, {"INNER_NUM": "3"}, {}))
    ]  # fmt: skip
    records = await written(tmp_path, made)
    assert [one.queue_offset for one in records] == [0, 1, 4]
    data = (tmp_path / "commitlog" / f"{0:020d}").read_bytes()
    body = data[: records[-1].physical_offset + records[-1].size]

    def answer(_: int, __: int) -> Pulled:
        return Pulled(ResponseCode.SUCCESS, "FOUND", 5, Edge(0, 5), body)

    cluster: Any = Scripted(answer)
    reader = RangeReader(cluster, logical.OPTIONS, ("queueOffset",), pytest.fail)
    (batch,) = reader.read(QueueRange(QueueKey("t", "broker-a", 0), 0, 5))
    assert batch["queueOffset"].to_pylist() == [0, 1, 4]
    assert cluster.asked == [[0]], "there is no hole to ask about"


async def test_segment_when_an_answer_begins_with_it_then_no_hole_before_it(log: Log) -> None:
    """Offsets between two segments have no messages; inside of one they had."""
    for first, is_lost in ((10_000, False), (10_003, True)):

        def answer(at: int, first: int = first) -> Pulled:
            whole = found(log, max(0, at - first), COUNT)
            following = whole.next_offset + first
            return whole._replace(delta=first, next_offset=following, edge=Edge(0, 20_000))

        cluster: Any = logical.Scripted(answer)
        reader = RangeReader(cluster, logical.OPTIONS, ("queueOffset",), pytest.fail)
        rows = reader.read(QueueRange(logical.QUEUE, 25, 10_005))
        if is_lost:
            with pytest.raises(DataLost, match="before 10003 have been deleted; offset 25 was"):
                list(rows)
        else:
            assert [one for batch in rows for one in batch["queueOffset"].to_pylist()] == [
                *range(10_000, 10_005)
            ]


# -- what a topic is like ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"topicName": "t", "attributes": {"cleanup.policy": "COMPACTION"}}, True),
        ({"topicName": "t", "attributes": {"cleanup.policy": "DELETE"}}, False),
        ({"topicName": "t", "attributes": None}, False),
        ({"topicName": "t"}, False),
        (Refused("a:1", ResponseCode.NO_PERMISSION, "no"), False),
    ],
    ids=["compacted", "deleted", "null", "of an old broker", "not told"],
)
def test_topic_when_its_broker_is_asked_then_compacted_or_not(
    answer: Any, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who may not be told takes a hole for a loss, which is the safe side."""
    asked: list[RemotingCommand] = []

    async def on_queue(_: object, __: object, make: Callable[[], RemotingCommand]) -> Any:
        asked.append(make())
        if isinstance(answer, RmqhaError):
            raise answer
        return RemotingCommand(0, body=json.dumps(answer).encode())

    monkeypatch.setattr(Masters, "on_queue", on_queue)
    with LiveClient(["a:1"], timeout_ms=1, failover_timeout_ms=1, group="g") as live:
        assert live.is_compacted(QueueKey("t", "broker-a", 0)) is expected
    (request,) = asked
    assert request.code == RequestCode.GET_TOPIC_CONFIG
    assert (request.ext_fields or {})["topic"] == "t"
