"""Where reads begin and end when users say times, in topics that are written meanwhile; no brokers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import pytest

from rmqha.client.offsets import Edge
from rmqha.client.routes import QueueKey
from rmqha.pipeline.live import source
from rmqha.pipeline.live.offsets import DataLost, Progress
from rmqha.pipeline.live.planning import Planner
from rmqha.pipeline.live.source import LiveReader
from tests.pipeline.test_live_resuming import A, B, Scripted, listed, options, reader

EACH = '{"t":{"a":{"0":%d}}}'
STRICT = {"failOnDataLoss": "true"}


class Written(Scripted):
    """A cluster whose queues get a message each time that somebody asks about them.

    Attributes:
        since: the first message of each queue since any time; None for its end of then.
    """

    since: Mapping[QueueKey, int] | None = None

    def edges(self, queues: list[QueueKey]) -> dict[QueueKey, Edge]:
        """Those of now, and then a message comes."""
        found = super().edges(queues)
        self.ends = {one: edge._replace(high=edge.high + 1) for one, edge in self.ends.items()}
        return found

    def offsets_at(self, times_ms: Mapping[QueueKey, int]) -> dict[QueueKey, int]:
        """The ends, where none is given."""
        found = {one: self.ends[one].high for one in times_ms}
        return found if self.since is None else {one: self.since[one] for one in times_ms}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""


def planned(cluster: Written, monkeypatch: pytest.MonkeyPatch, **more: str) -> list[str]:
    """The ranges of a batch that takes no loss."""
    monkeypatch.setattr(Planner, "queues", lambda *_, **__: listed(cluster))
    monkeypatch.setattr(source, "connect", lambda _: cluster)
    parts: list[Any] = list(LiveReader(options(**STRICT, **more), ("body",)).partitions())
    return [str(one.wanted) for one in parts]


@pytest.mark.parametrize(
    "how", [{"endingTimestamp": "9"}, {"endingOffsetsByTimestamp": EACH % 9}], ids=["all", "each"]
)
def test_batch_when_messages_come_while_its_end_is_found_then_no_loss(
    monkeypatch: pytest.MonkeyPatch, how: dict[str, str]
) -> None:
    """A time that is still to come means the end of now, which is further on than it was before."""
    assert planned(Written({A: Edge(0, 100)}), monkeypatch, **how) == ["t/a/0[0:101]"]


@pytest.mark.parametrize(
    "how",
    [{"startingTimestamp": "9"}, {"startingOffsetsByTimestamp": EACH % 9}],
    ids=["all", "each"],
)
def test_read_when_messages_come_while_its_beginning_is_found_then_none_from_before(
    monkeypatch: pytest.MonkeyPatch, how: dict[str, str]
) -> None:
    """A batch has nothing to read, and a stream begins with what comes after the question."""
    assert planned(Written({A: Edge(0, 100)}), monkeypatch, **how) == []
    stream = reader(Written({A: Edge(0, 100)}), monkeypatch, **STRICT, **how)
    assert Progress.decode(stream.initialOffset()).queues == {A: 101}


def test_time_when_a_queue_has_lost_all_its_messages_then_where_it_stands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Java says 0 of such a queue, which is not where somebody wanted to read what is gone."""
    cluster = Written({A: Edge(50, 50), B: Edge(0, 9)})
    cluster.since = {A: 0, B: 4}
    assert planned(cluster, monkeypatch, startingTimestamp="9") == ["t/b/0[4:9]"]


@pytest.mark.parametrize("how", ["startingOffsets", "endingOffsets"])
def test_offset_when_a_user_wrote_it_then_it_must_be_there(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """It is somebody's place, and what the queue does not have of it is lost."""
    cluster = Written({A: Edge(5, 100)})
    with pytest.raises(DataLost, match=f"{how}: .*messages before 5 have been deleted"):
        planned(cluster, monkeypatch, **{how: EACH % 4})
    with pytest.raises(DataLost, match=f"{how}: .*the queue ends at"):
        planned(cluster, monkeypatch, **{how: EACH % 999})


@pytest.mark.parametrize("name", ["startingTimestamp", "startingOffsetsByTimestamp"])
def test_start_when_it_must_have_a_message_then_the_last_one_is_enough(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A queue that ends where the time lies has none since then."""
    value = "9" if name == "startingTimestamp" else EACH % 9
    more = {name: value, "startingOffsetsByTimestampStrategy": "error"}
    for since, is_there in ((99, True), (100, False), (101, False)):
        cluster = Scripted({A: Edge(0, 100)})
        at: Any = dict.fromkeys([A], since)
        monkeypatch.setattr(cluster, "offsets_at", lambda _, at=at: at, raising=False)
        stream = reader(cluster, monkeypatch, **STRICT, **more)
        if is_there:
            assert Progress.decode(stream.initialOffset()).queues == {A: since}
            continue
        with pytest.raises(DataLost, match="has no message since then"):
            stream.initialOffset()
