"""Where a stream goes on when its cluster changed meanwhile: queues that come back, cuts, lost ends."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from rmqha.base.errors import ConfigInvalid
from rmqha.client.offsets import Edge
from rmqha.client.routes import QueueKey
from rmqha.pipeline.live.offsets import DataLost, LogPlace, Progress
from rmqha.pipeline.live.options import read_options
from rmqha.pipeline.live.planning import Planner
from rmqha.pipeline.live.stream import LiveStreamReader
from rmqha.remoting.bodies import EpochEntryCache
from tests.pipeline.test_live_offsets import epochs

A, B = QueueKey("t", "a", 0), QueueKey("t", "b", 0)
ALL = ReadAllAvailable()
RECORD_SIZE = 10


class Scripted:
    """A cluster of ordinary queues; time passes while one waits.

    Attributes:
        ends: where each queue begins and ends.
        up: the queues that are listed; None for all.
        late: queues that end elsewhere until that time.
        caches: epochs of broker sets.
        asked: the sets that were asked for their epochs.
    """

    def __init__(self, ends: Mapping[QueueKey, Edge], failover_timeout_ms: int = 60_000) -> None:
        self.ends = dict(ends)
        self.failover_timeout_ms = failover_timeout_ms
        self.up: list[QueueKey] | None = None
        self.late: dict[QueueKey, tuple[int, Edge]] = {}
        self.caches: dict[str, EpochEntryCache] = {}
        self.asked: list[str] = []
        self.waited_ms = 0

    @property
    def clock(self) -> Scripted:
        """Itself."""
        return self

    def now_ms(self) -> int:
        """As far as it was waited."""
        return self.waited_ms

    def sleep(self, delay_ms: float) -> None:
        """Wait."""
        self.waited_ms += int(delay_ms)

    def forget_masters(self) -> None:
        """There is one."""

    def close(self) -> None:
        """Nothing is open."""

    def segments(self, _: object) -> dict[QueueKey, Any]:
        """No queue is logical."""
        return {}

    def edges(self, queues: list[QueueKey]) -> dict[QueueKey, Edge]:
        """Those of now."""
        found = {}
        for queue in queues:
            until, early = self.late.get(queue, (0, self.ends[queue]))
            found[queue] = early if self.waited_ms < until else self.ends[queue]
        return found

    def record_ends(self, offsets: Mapping[QueueKey, int]) -> dict[QueueKey, tuple[int, int]]:
        """All records are of one size, and each set has one queue."""
        return {
            queue: (offset * RECORD_SIZE, (offset + 1) * RECORD_SIZE)
            for queue, offset in offsets.items()
        }

    def epochs(self, name: str) -> EpochEntryCache | None:
        """Those of a set."""
        self.asked.append(name)
        return self.caches.get(name)


def options(**more: str) -> Any:
    """A reader's, which goes on after losses unless that is given."""
    timeout = {"failoverTimeoutMs": "60000", "failOnDataLoss": "false"}
    return read_options({"nameServer": "a:1", "topic": "t", **timeout, **more})


def listed(cluster: Scripted) -> list[QueueKey]:
    """The queues that name servers tell of."""
    return sorted(cluster.ends if cluster.up is None else cluster.up)


def planner(
    cluster: Any, monkeypatch: pytest.MonkeyPatch, said: list[str] | None = None, **more: str
) -> Planner:
    """A planner of all its queues."""
    made = Planner(cluster, options(**more), pytest.fail if said is None else said.append)
    monkeypatch.setattr(made, "queues", lambda **_: listed(cluster))
    return made


def reader(cluster: Any, monkeypatch: pytest.MonkeyPatch, **more: str) -> LiveStreamReader:
    """A stream's reader of all its queues."""
    monkeypatch.setattr(Planner, "queues", lambda *_, **__: listed(cluster))
    made = LiveStreamReader(options(**more), ("body",))
    monkeypatch.setattr(made, "_cluster", cluster)
    return made


def taken(made: LiveStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[str]:
    """The ranges of a batch."""
    parts: list[Any] = list(made.partitions(start, end))
    return [str(one.wanted) for one in parts]


# -- queues that come back ---------------------------------------------------------------------


def test_set_when_it_comes_back_late_then_read_from_where_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker set that was away for longer than ``failoverTimeoutMs`` has all of its messages still."""
    cluster = Scripted({A: Edge(0, 100), B: Edge(0, 1000)})
    made = reader(cluster, monkeypatch)
    at = Progress({A: 100, B: 1000}, {}).encode()
    cluster.up, before = [A], at
    at = made.latestOffset(at, ALL)
    assert cluster.waited_ms >= cluster.failover_timeout_ms
    assert taken(made, before, at) == []
    waited_ms = cluster.waited_ms
    assert made.latestOffset(at, ALL) == at, "it is told once, and not waited for again"
    assert cluster.waited_ms == waited_ms
    cluster.up, cluster.ends[B] = None, Edge(0, 1003)
    end = made.latestOffset(json.loads(json.dumps(at)), ALL)
    assert taken(made, at, end) == ["t/b/0[1000:1003]"]
    assert Progress.decode(end) == Progress({A: 100, B: 1003}, {})


def test_set_when_it_comes_back_without_what_was_read_then_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is judged as one that was there all the time: by its edges, and by its epochs."""
    for edge, reason in (
        (Edge(5, 9), "messages before 5 have been deleted; offset 4 was next, 5 is"),
        (Edge(0, 3), "the queue ends at 3; offset 4 was next, 3 is"),
    ):
        cluster = Scripted({A: Edge(0, 9), B: edge})
        start = Progress({A: 9}, {}, {B: 4})
        said: list[str] = []
        with pytest.raises(DataLost, match=reason):
            planner(cluster, monkeypatch, failOnDataLoss="true").resumed(start)
        planner(cluster, monkeypatch, said).resumed(start)
        assert len(said) == 1
        assert reason in said[0]
    cluster = Scripted({A: Edge(0, 9), B: Edge(0, 9)})
    cluster.caches["b"] = epochs((1, 0), (2, 20), end=90)
    start = Progress({A: 9}, {"b": LogPlace(1, 0, 40)}, {B: 4})
    with pytest.raises(DataLost, match="log of b was cut at 20; offset 4 was next, 2 is"):
        planner(cluster, monkeypatch, failOnDataLoss="true").resumed(start)


def test_set_when_it_is_away_then_nobody_asks_for_its_epochs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its master would be waited for, and the query would fail; its place in its log is kept."""
    cluster = Scripted({A: Edge(0, 9), B: Edge(0, 9)})
    cluster.up = [A]
    cluster.caches["a"] = epochs((1, 0), end=90)
    logs = {"a": LogPlace(1, 0, 90), "b": LogPlace(1, 0, 40)}
    said: list[str] = []
    found = planner(cluster, monkeypatch, said).resumed(Progress({A: 9, B: 4}, logs))
    assert cluster.asked == ["a"]
    assert found.progress == Progress({A: 9}, logs, {B: 4})
    assert len(said) == 1
    assert "the queue is gone" in said[0]


def test_checkpoint_when_a_queue_is_absent_then_kept_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of a release that knew no absent queues is read, and one without any looks the same."""
    plain = Progress({A: 9}, {})
    assert plain.encode() == {"version": 1, "queues": {"t": {"a": {"0": 9}}}, "logs": {}}
    assert Progress.decode(plain.encode()) == plain
    absent = Progress({A: 9}, {}, {B: 4})
    assert Progress.decode(json.loads(json.dumps(absent.encode()))) == absent
    for wrong in ({"t": 5}, [], {"t": {"b": {"x": 1}}}):
        with pytest.raises(ConfigInvalid, match="cannot be read"):
            Progress.decode(plain.encode() | {"absent": wrong})


# -- cuts, and ends that come late -------------------------------------------------------------


def test_set_when_another_one_was_cut_then_still_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its new master comes to what was read two seconds later, and nothing of it is lost."""
    cluster = Scripted({A: Edge(0, 100), B: Edge(0, 1000)})
    cluster.late[B] = (2000, Edge(0, 900))
    cluster.caches = {"a": epochs((1, 0), (2, 500), end=1000), "b": epochs((1, 0), end=10_000)}
    start = Progress({A: 100, B: 1000}, {"a": LogPlace(1, 0, 1000), "b": LogPlace(1, 0, 9000)})
    said: list[str] = []
    found = planner(cluster, monkeypatch, said).resumed(start)
    assert found.progress.queues == {A: 50, B: 1000}
    assert 2000 <= cluster.waited_ms < cluster.failover_timeout_ms
    cluster.waited_ms = 0
    with pytest.raises(DataLost) as error:
        planner(cluster, monkeypatch, failOnDataLoss="true").resumed(start)
    for text in (*said, str(error.value)):
        assert "cut at 500" in text
        assert "t, b, queue" not in text


def test_set_when_it_was_cut_for_certain_then_its_own_ends_are_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A log that a newer epoch has cut never comes to what was read; messages that expired do not either."""
    cluster = Scripted({A: Edge(0, 60), B: Edge(5, 9)})
    cluster.caches = {"a": epochs((1, 0), (2, 500), end=600)}
    start = Progress({A: 100, B: 4}, {"a": LogPlace(1, 0, 1000)})
    said: list[str] = []
    found = planner(cluster, monkeypatch, said).resumed(start)
    assert cluster.waited_ms == 0
    assert found.progress.queues == {A: 50, B: 5}


def test_queue_when_cut_and_short_then_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on at the cut, which is further down than its end."""
    cluster = Scripted({A: Edge(0, 60)})
    cluster.caches = {"a": epochs((1, 0), (2, 500), end=600)}
    start = Progress({A: 100}, {"a": LogPlace(1, 0, 1000)})
    said: list[str] = []
    found = planner(cluster, monkeypatch, said).resumed(start)
    assert found.progress.queues == {A: 50}
    assert len(said) == 1
    assert said[0].count("t, a, queue 0") == 1
    assert "cut at 500; offset 100 was next, 50 is" in said[0]


def test_cut_when_it_was_tolerated_then_not_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was known of the log's place is forgotten with it, though the new log is shorter."""
    cluster = Scripted({A: Edge(0, 60)})
    cluster.caches = {"a": epochs((1, 0), (2, 500), end=600)}
    start = Progress({A: 100}, {"a": LogPlace(1, 0, 1000)})
    said: list[str] = []
    made = planner(cluster, monkeypatch, said)
    resumed = made.resumed(start)
    assert resumed.progress == Progress({A: 50}, {})
    end = made.placed({A: 60}, {A: 50}, resumed.progress.logs, resumed.edges)
    assert end == Progress({A: 60}, {"a": LogPlace(2, 500, 600)})
    assert len(said) == 1
    assert made.resumed(end).progress == end
    assert len(said) == 1


def test_place_when_a_queue_behind_goes_on_then_never_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other queues of the set are known further on in its log, and a cut there must be noticed."""
    cluster = Scripted({A: Edge(0, 60)})
    cluster.caches = {"a": epochs((1, 0), end=2000)}
    made = planner(cluster, monkeypatch)
    logs = {"a": LogPlace(1, 0, 900)}
    assert made.placed({A: 50}, {A: 40}, logs, cluster.ends).logs == logs
    further = made.placed({A: 50}, {A: 40}, {"a": LogPlace(1, 0, 400)}, cluster.ends)
    assert further.logs == {"a": LogPlace(1, 0, 500)}


# -- what a batch takes ------------------------------------------------------------------------


def test_place_when_a_queue_has_not_moved_then_its_last_message_is_not_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its set may be away; each batch of the others would wait for it, and warn."""
    cluster = Scripted({A: Edge(0, 5), B: Edge(0, 5)})
    asked: list[QueueKey] = []

    def of_those_that_are_up(offsets: Mapping[QueueKey, int]) -> dict[QueueKey, Any]:
        asked.extend(offsets)
        return {one: None if one == A else (0, RECORD_SIZE) for one in offsets}

    monkeypatch.setattr(cluster, "record_ends", of_those_that_are_up)
    edges = cluster.edges([A, B])
    planner(cluster, monkeypatch).placed({A: 5, B: 5}, {A: 5, B: 3}, {}, edges)
    assert (asked, cluster.waited_ms) == ([B], 0)


def test_batch_when_rewound_to_the_same_end_then_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The log has grown again exactly as far, with other messages."""
    cluster = Scripted({A: Edge(0, 100)})
    cluster.caches = {"a": epochs((1, 0), (2, 500), end=1000)}
    made = reader(cluster, monkeypatch)
    start = Progress({A: 100}, {"a": LogPlace(1, 0, 1000)}).encode()
    end = made.latestOffset(start, ALL)
    assert end == Progress({A: 100}, {"a": LogPlace(2, 500, 1000)}).encode()
    assert taken(made, start, end) == ["t/a/0[50:100]"]
    assert made.latestOffset(end, ALL) == end


def test_run_when_it_ends_then_with_what_was_there_as_it_began(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Messages that came meanwhile are the next run's, and a queue that came does not go back."""
    cluster = Scripted({A: Edge(0, 10), B: Edge(0, 9)})
    cluster.up = [A]
    made = reader(cluster, monkeypatch)
    made.prepareForTriggerAvailableNow()
    cluster.up, cluster.ends[A] = None, Edge(0, 15)
    start = Progress({A: 4, B: 7}, {}).encode()
    end = made.latestOffset(start, ALL)
    assert Progress.decode(end).queues == {A: 10, B: 7}
    assert taken(made, start, end) == ["t/a/0[4:10]"]
    later = reader(cluster, monkeypatch).latestOffset(end, ALL)
    assert Progress.decode(later).queues == {A: 15, B: 9}


def test_batch_when_planned_from_another_start_then_from_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A query that starts again plans the batch in its log, and not the one it has just thought of."""
    cluster = Scripted({A: Edge(0, 10)})
    made = reader(cluster, monkeypatch)
    first, second = (Progress({A: offset}, {}).encode() for offset in (2, 6))
    end = made.latestOffset(second, ALL)
    assert taken(made, second, end) == ["t/a/0[6:10]"]
    assert taken(made, first, second) == ["t/a/0[2:6]"]
