"""A stream's batch that is run again after a restart, and one whose last message cannot be had."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from rmqha.base.errors import ConfigInvalid
from rmqha.client.offsets import Edge
from rmqha.client.routes import QueueKey
from rmqha.pipeline.live import stream
from rmqha.pipeline.live.offsets import DataLost, LogPlace, Progress
from tests.pipeline.test_live_offsets import epochs
from tests.pipeline.test_live_resuming import (
    ALL,
    RECORD_SIZE,
    A,
    B,
    Scripted,
    planner,
    reader,
    taken,
)

STRICT = {"failOnDataLoss": "true"}


# -- queues that were new to a batch -----------------------------------------------------------


@pytest.mark.parametrize("low", [5, 10])
def test_batch_when_run_again_and_a_new_queue_has_lost_messages_then_told(
    monkeypatch: pytest.MonkeyPatch, low: int
) -> None:
    """Retention took them between the two attempts; the second one read the rest without a word."""
    cluster = Scripted({A: Edge(0, 100)})
    start = Progress({A: 100}, {}).encode()
    cluster.ends[B] = Edge(2, 10)
    first = reader(cluster, monkeypatch, **STRICT)
    end = json.loads(json.dumps(first.latestOffset(start, ALL)))
    assert taken(first, start, end) == ["t/b/0[2:10]"]
    assert taken(reader(cluster, monkeypatch, **STRICT), start, end) == ["t/b/0[2:10]"]
    cluster.ends[B] = Edge(low, 10)
    with pytest.raises(DataLost, match=f"messages before {low} have been deleted; offset 2 was"):
        reader(cluster, monkeypatch, **STRICT).partitions(start, end)
    said: list[str] = []
    monkeypatch.setattr(stream.LOG, "warning", said.append)
    rest = [] if low == 10 else ["t/b/0[5:10]"]
    assert taken(reader(cluster, monkeypatch), start, end) == rest
    assert len(said) == 1


@pytest.mark.parametrize("absent", [{}, {B: 4}], ids=["new", "back"])
def test_batch_when_run_again_and_a_queue_of_it_is_gone_then_waited_for_and_told(
    monkeypatch: pytest.MonkeyPatch, absent: Mapping[QueueKey, int]
) -> None:
    """It was new to the batch, or had come back: the next batch would have begun behind it."""
    cluster = Scripted({A: Edge(0, 100), B: Edge(0, 10)})
    start = Progress({A: 100}, {}, absent).encode()
    end = reader(cluster, monkeypatch, **STRICT).latestOffset(start, ALL)
    assert ("begun" in end) != bool(absent), "the start says where it stood"
    cluster.up = [A]
    with pytest.raises(DataLost, match="t, b, queue 0: the queue is gone"):
        reader(cluster, monkeypatch, **STRICT).partitions(start, end)
    assert cluster.waited_ms >= cluster.failover_timeout_ms


def test_checkpoint_when_queues_were_new_then_says_where_they_began_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the batch in which they were; nothing that is new makes no batch."""
    cluster = Scripted({A: Edge(0, 100), B: Edge(2, 10)})
    made = reader(cluster, monkeypatch, **STRICT)
    end = made.latestOffset(Progress({A: 100}, {}).encode(), ALL)
    assert end["begun"] == {"t": {"b": {"0": 2}}}
    assert Progress.decode(json.loads(json.dumps(end))).begun == {B: 2}
    assert made.latestOffset(end, ALL) == end, "it is no reason for another batch"
    cluster.ends[B] = Edge(2, 11)
    later = made.latestOffset(end, ALL)
    assert "begun" not in later
    assert taken(made, end, later) == ["t/b/0[10:11]"]
    with pytest.raises(ConfigInvalid, match="cannot be read"):
        Progress.decode(later | {"begun": {"t": 5}})


def test_batch_when_small_and_its_start_had_new_queues_then_still_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``minOffsetsPerTrigger`` counts messages, not what else the checkpoint says."""
    cluster = Scripted({A: Edge(0, 100)})
    made = reader(cluster, monkeypatch, minOffsetsPerTrigger="50")
    first = made.latestOffset(Progress({A: 60}, {}).encode(), ALL)
    cluster.ends[B] = Edge(2, 10)
    end = made.latestOffset(first, ALL)
    assert Progress.decode(end).begun == {B: 2}
    cluster.ends[B] = Edge(2, 11)
    assert made.latestOffset(end, ALL) is end


def test_batch_when_an_older_release_planned_it_then_run_again_as_by_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody knows where its new queues began."""
    cluster = Scripted({A: Edge(0, 100), B: Edge(5, 10)})
    start, end = Progress({A: 100}, {}).encode(), Progress({A: 100, B: 10}, {}).encode()
    assert taken(reader(cluster, monkeypatch, **STRICT), start, end) == ["t/b/0[5:10]"]


# -- last messages that cannot be had ----------------------------------------------------------


class Holed(Scripted):
    """A cluster in which a record cannot be had before a time, or never.

    Attributes:
        hole: its offset.
        until_ms: the time.
    """

    hole = 9
    until_ms: float = float("inf")

    def record_ends(  # type: ignore[override]
        self, offsets: Mapping[QueueKey, int]
    ) -> dict[QueueKey, tuple[int, int] | None]:
        """Of all others."""
        is_missing = self.waited_ms < self.until_ms
        return {
            queue: None if is_missing and offsets[queue] == self.hole else ends
            for queue, ends in super().record_ends(offsets).items()
        }


def test_batch_when_its_last_message_is_lost_then_ends_there_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The stream chose the same end at every trigger and stood still; who reads the range tells."""
    cluster = Holed({A: Edge(0, 100), B: Edge(0, 12)})
    cluster.caches = {"a": epochs((1, 0), end=9000), "b": epochs((4, 0), end=9000)}
    made = reader(cluster, monkeypatch, maxOffsetsPerTrigger="20")
    said: list[str] = []
    monkeypatch.setattr(stream.LOG, "warning", said.append)
    start = Progress({A: 0, B: 2}, {}).encode()
    end = made.latestOffset(start, ReadMaxRows(20))
    assert Progress.decode(end) == Progress({A: 10, B: 12}, {"b": LogPlace(4, 0, 12 * RECORD_SIZE)})
    assert said == ["t, a, queue 0: the message at 9, the last of a batch, cannot be had"]
    timeout_ms = cluster.failover_timeout_ms
    assert timeout_ms <= cluster.waited_ms < timeout_ms + 2000
    assert taken(made, start, end) == ["t/a/0[0:10]", "t/b/0[2:12]"]


def test_run_when_its_last_message_comes_late_then_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A new master has it a moment later; a run that ends with what is there had ended without it."""
    cluster = Holed({A: Edge(0, 10)})
    cluster.until_ms = 3000
    cluster.caches = {"a": epochs((1, 0), end=9000)}
    made = reader(cluster, monkeypatch, **STRICT)
    made.prepareForTriggerAvailableNow()
    end = made.latestOffset(Progress({A: 4}, {}).encode(), ReadAllAvailable())
    assert Progress.decode(end) == Progress({A: 10}, {"a": LogPlace(1, 0, 10 * RECORD_SIZE)})
    assert 3000 <= cluster.waited_ms < 5000


def test_stream_when_it_begins_behind_a_lost_message_then_waits_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What stands before its beginning is not read."""
    cluster = Holed({A: Edge(0, 10)})
    begin = reader(cluster, monkeypatch, **STRICT).initialOffset()
    assert Progress.decode(begin) == Progress({A: 10}, {})
    assert cluster.waited_ms == 0


@pytest.mark.parametrize("ends", [(50, 20), (20, 50)])
def test_place_when_a_set_has_several_queues_then_the_one_furthest_on_counts(
    monkeypatch: pytest.MonkeyPatch, ends: tuple[int, int]
) -> None:
    """A cut behind the others' last messages must be noticed."""
    queues = [A, A._replace(queue_id=1)]
    cluster = Scripted(dict.fromkeys(queues, Edge(0, 60)))
    cluster.caches = {"a": epochs((1, 0), end=2000)}
    wanted = dict(zip(queues, ends, strict=True))
    found = planner(cluster, monkeypatch).placed(wanted, {}, {}, cluster.ends)
    assert found == Progress(wanted, {"a": LogPlace(1, 0, 500)})
