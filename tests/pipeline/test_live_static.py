"""Static topics without Spark: a stream that goes on over remaps, by logical queues and offsets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rmqha.client.routes import QueueKey
from rmqha.pipeline.live.bounds import At, Bound
from rmqha.pipeline.live.offsets import DataLost, Progress, QueueRange, ranges
from rmqha.pipeline.live.options import read_options
from rmqha.pipeline.live.planning import Planner, connect
from rmqha.pipeline.live.pulling import RangeReader
from tests.pipeline.static import NAMES, StaticTopics

COLUMNS = ("brokerName", "queueId", "queueOffset", "body")
MOCK = "__syslo__global__"
Place = tuple[int, int]
QUICK = {"failoverTimeoutMs": "5000"}


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StaticTopics]:
    """Two broker sets."""
    with StaticTopics.opened(tmp_path_factory.mktemp("static")) as made:
        yield made


class Stream:
    """A stream without Spark; its progress goes through the checkpoint's form each time."""

    def __init__(self, sets: StaticTopics, topic: str, **more: str) -> None:
        self._options = read_options({**sets.options(topic), **QUICK, **more})
        self.progress: Progress | None = None

    def read(self) -> dict[bytes, Place]:
        """Queue and offset of what has come since the last time, each body once."""
        found: dict[bytes, Place] = {}
        with connect(self._options) as cluster:
            planner = Planner(cluster, self._options, pytest.fail)
            if self.progress is None:
                edges = planner.known_and({})
                start = planner.bounded(Bound(At.EARLIEST), edges, At.EARLIEST)
                before = planner.placed(start, {}, {}, edges)
            else:
                resumed = planner.resumed(Progress.decode(self.progress.encode()))
                before, edges = resumed.progress, resumed.edges
            ends = {queue: edge.high for queue, edge in edges.items()}
            self.progress = planner.placed(ends, before.queues, before.logs, edges)
            reader = RangeReader(cluster, self._options, COLUMNS, pytest.fail)
            for wanted in ranges(before.queues, self.progress.queues):
                for batch in reader.read(wanted):
                    for row in batch.to_pylist():
                        assert row["brokerName"] == MOCK
                        assert row["body"] not in found, "read twice"
                        found[row["body"]] = (row["queueId"], row["queueOffset"])
        return found


@pytest.mark.slow
def test_stream_when_queues_move_between_its_batches_then_each_message_once(
    sets: StaticTopics,
) -> None:
    """There and back: every message under the offset that its producer was told."""
    sets.create("Moves")
    stream = Stream(sets, "Moves", pullBatchSize="3")
    sent = sets.fill("Moves", range(10))
    assert stream.read() == sent
    sent = sets.fill("Moves", range(10, 14))
    sets.remap("Moves", NAMES[1])
    sent |= sets.fill("Moves", range(14, 20))
    assert stream.read() == sent
    sets.remap("Moves", NAMES[0])
    assert stream.read() == {}
    assert stream.progress is not None
    assert stream.progress.queues == {
        QueueKey("Moves", MOCK, one): sets.end("Moves", one) for one in (0, 1)
    }
    sent = sets.fill("Moves", range(20, 25))
    assert stream.read() == sent
    assert Stream(sets, "Moves").read().keys() == {b"Moves %d" % one for one in range(25)}


@pytest.mark.slow
def test_range_when_it_lies_in_a_gap_then_it_is_empty_and_skipped(sets: StaticTopics) -> None:
    """Thousands of offsets between two segments have no messages; nothing is lost there."""
    sets.create("Gap", 1)
    sets.fill("Gap", range(3), 1)
    sets.remap("Gap", NAMES[1])
    options = read_options(sets.options("Gap", failoverTimeoutMs="300"))
    (queue,) = [QueueKey("Gap", MOCK, 0)]
    with connect(options) as cluster:
        planner, reader = (
            Planner(cluster, options, pytest.fail),
            RangeReader(cluster, options, COLUMNS, pytest.fail),
        )
        begin = sets.end("Gap", 0)
        assert begin % 10_000 == 0
        assert planner.resumed(Progress({queue: 3}, {})).progress.queues == {queue: begin}
        assert planner.resumed(Progress({queue: 2}, {})).progress.queues == {queue: 2}
        assert rows(reader, QueueRange(queue, 1, 20)) == [1, 2]
        assert rows(reader, QueueRange(queue, 4, begin)) == []
        sets.fill("Gap", range(3, 5), 1)
        assert rows(reader, QueueRange(queue, 4, begin)) == []
        assert rows(reader, QueueRange(queue, 0, begin + 1)) == [0, 1, 2, begin]
        assert planner.resumed(Progress({queue: 7}, {})).progress.queues == {queue: begin}
        # What the next segment has first is no record of the place that was asked for.
        assert cluster.record_ends({queue: 5}) == {queue: None}
        assert cluster.record_ends({queue: begin})[queue] is not None
        with pytest.raises(DataLost, match=f"the queue ends at {begin + 2}"):
            planner.resumed(Progress({queue: begin + 9}, {}))


def rows(reader: RangeReader, wanted: QueueRange) -> list[Any]:
    """The offsets of a range."""
    return [row["queueOffset"] for batch in reader.read(wanted) for row in batch.to_pylist()]


@pytest.mark.slow
def test_tags_when_asked_for_then_also_over_segments(sets: StaticTopics) -> None:
    """What a filter passes over is neither a gap nor a loss."""
    sets.create("Tags", 1)
    for number in range(4):
        sets.send("Tags", 0, b"%d" % number, "AB"[number % 2])
    sets.remap("Tags", NAMES[1])
    for number in range(4, 8):
        sets.send("Tags", 0, b"%d" % number, "AB"[number % 2])
    assert sorted(Stream(sets, "Tags", subExpression="B").read()) == [b"1", b"3", b"5", b"7"]
