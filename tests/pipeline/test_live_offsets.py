"""Where a stream stands: the checkpoint's form, fair limits, and how a cut log is noticed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.base.errors import ConfigInvalid
from rmqha.client.offsets import Edge
from rmqha.client.routes import QueueKey
from rmqha.pipeline.live.offsets import (
    Cut,
    LogPlace,
    Progress,
    cut_of,
    limited,
    losses,
    place_of,
    ranges,
)
from rmqha.remoting.bodies import EpochEntry, EpochEntryCache
from rmqha.remoting.headers import INT64_MAX

A, B, C = (QueueKey("t", "broker-a", number) for number in range(3))
QUEUES = st.builds(
    QueueKey, st.sampled_from(["t", "u"]), st.sampled_from(["a", "b"]), st.integers(0, 3)
)
OFFSETS = st.integers(0, 1 << 40)


def epochs(*starts: tuple[int, int], end: int) -> EpochEntryCache:
    """A broker's epochs, given as (epoch, start), of a log that ends at ``end``."""
    ends = [start for _, start in (*starts, (0, INT64_MAX))][1:]
    entries = [EpochEntry(*one, last) for one, last in zip(starts, ends, strict=True)]
    return EpochEntryCache("c", "a", 0, tuple(entries), end)


@pytest.mark.costly
@settings(max_examples=50)
@given(
    st.dictionaries(QUEUES, OFFSETS),
    st.dictionaries(st.sampled_from(["a", "b"]), st.builds(LogPlace, OFFSETS, OFFSETS, OFFSETS)),
)
def test_progress_when_written_and_read_then_the_same(
    queues: dict[QueueKey, int], logs: dict[str, LogPlace]
) -> None:
    """Through JSON, as Spark keeps it; the text does not depend on the order of anything."""
    progress = Progress(queues, logs)
    text = json.dumps(progress.encode())
    assert Progress.decode(json.loads(text)) == progress
    turned = Progress(dict(reversed(queues.items())), dict(reversed(logs.items())))
    assert json.dumps(turned.encode()) == text


@pytest.mark.parametrize(
    "found",
    [
        {},
        {"version": 2, "queues": {}, "logs": {}},
        {"version": 1, "queues": {"t": 5}, "logs": {}},
        {"version": 1, "queues": {}, "logs": {"a": {"epoch": 1}}},
        {"version": 1, "queues": {"t": {"a": {"x": 1}}}, "logs": {}},
    ],
)
def test_progress_when_it_is_none_then_said(found: dict[str, object]) -> None:
    """A checkpoint of another source, or of a newer release, is no offset 0."""
    with pytest.raises(ConfigInvalid, match="checkpoint"):
        Progress.decode(found)


@pytest.mark.costly
@settings(max_examples=50)
@given(st.dictionaries(QUEUES, st.tuples(OFFSETS, st.integers(0, 1000))), st.integers(1, 3000))
def test_limit_when_given_then_shared_and_used_up(
    backlog: dict[QueueKey, tuple[int, int]], most: int
) -> None:
    """No queue beyond its end, none before its start, and as many in all as may be."""
    start = {queue: offset for queue, (offset, _) in backlog.items()}
    latest = {queue: offset + count for queue, (offset, count) in backlog.items()}
    ends = limited(start, latest, most)
    assert all(start[queue] <= ends[queue] <= latest[queue] for queue in backlog)
    taken = {queue: ends[queue] - start[queue] for queue in backlog}
    assert sum(taken.values()) == min(most, sum(count for _, count in backlog.values()))
    cut = [taken[queue] for queue in backlog if ends[queue] < latest[queue]]
    assert not cut or max(taken.values()) <= max(cut) + 1, "who waits has had no less than others"
    assert limited(start, latest, None) == latest


def test_ranges_when_a_queue_has_nothing_then_none_of_it() -> None:
    """Also for a queue that ends before its start."""
    found = ranges({A: 3, B: 5, C: 7}, {A: 9, B: 5, C: 6})
    assert [(one.queue, one.start, one.stop) for one in found] == [(A, 3, 9)]


def test_losses_when_queues_end_elsewhere_then_named() -> None:
    """Deleted, cut, gone; what is in reach is none."""
    wanted = {A: 5, B: 5, C: 5, QueueKey("u", "x", 0): 5}
    found = losses(wanted, {A: Edge(0, 5), B: Edge(6, 9), C: Edge(0, 4)})
    assert [(one.queue, one.wanted, one.resume) for one in found] == [
        (B, 5, 6), (C, 5, 4), (QueueKey("u", "x", 0), 5, 0),
    ]  # fmt: skip
    assert "deleted" in str(found[0])
    assert "offset 5 was next, 4 is" in str(found[1])
    assert "gone" in str(found[2])


def test_losses_when_a_queue_ends_exactly_there_then_none() -> None:
    """The first message that is left is the next one, or there is none yet."""
    assert losses({A: 5, B: 5, C: 5}, {A: Edge(5, 9), B: Edge(5, 5), C: Edge(0, 5)}) == []


def test_place_when_epochs_are_known_then_the_one_that_wrote_there() -> None:
    """An offset is the end of a record: at an epoch's start it is the one's before."""
    known = epochs((3, 0), (5, 100), end=180)
    assert place_of(known, 100) == LogPlace(3, 0, 100)
    assert place_of(known, 101) == LogPlace(5, 100, 101)
    assert place_of(epochs((5, 100), end=180), 90) is None
    assert place_of(epochs(end=180), 90) is None


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (epochs((3, 0), (4, 100), end=200), None),
        (epochs((3, 0), (4, 100), (6, 150), end=200), None),
        (epochs((4, 100), (6, 150), end=200), None),
        (epochs((6, 150), end=200), None),
        (epochs(end=200), None),
        (epochs((3, 0), (4, 100), end=140), Cut(140, is_certain=False)),
        (epochs((3, 0), (4, 100), (6, 130), end=200), Cut(130, is_certain=True)),
        (epochs((3, 0), (6, 100), end=200), Cut(100, is_certain=True)),
        (epochs((3, 0), (6, 90), end=200), Cut(90, is_certain=True)),
        (epochs((3, 0), (6, 120), end=200), Cut(100, is_certain=True)),
        (epochs((3, 0), end=200), Cut(100, is_certain=False)),
        (epochs((3, 0), end=80), Cut(80, is_certain=False)),
        (epochs((6, 140), end=200), Cut(140, is_certain=True)),
    ],
    ids=[
        "the same", "a newer epoch behind", "older epochs expired", "its epoch expired",
        "no epochs", "a shorter log", "cut and grown again", "epoch replaced",
        "epoch replaced further down", "another one went on", "a replica that is behind",
        "one that is far behind", "expired and cut",
    ],
)  # fmt: skip
def test_cut_when_the_log_has_changed_below_then_where(
    found: EpochEntryCache, expected: Cut | None
) -> None:
    """Remembered: epoch 4 from 100 on, and 150 bytes in all."""
    assert cut_of(LogPlace(4, 100, 150), found) == expected


@pytest.mark.costly
@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 50)), min_size=1), st.data())
def test_cut_when_logs_share_a_beginning_then_never_behind_it(
    steps: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Two histories with a common beginning: what is kept was equal, what was equal may be cut."""
    epoch = place = 0
    starts = []
    for step, size in steps:
        epoch += step
        starts.append((epoch, place))
        place += size
    mine = epochs(*starts, end=place)
    common = data.draw(st.integers(0, place))
    read = data.draw(st.integers(0, place))
    where = place_of(mine, read)
    if where is None:
        return
    kept = [one for one in starts if one[1] < common] or starts[:1]
    grown = data.draw(st.integers(0, 60))
    other = epochs(*kept, (epoch + 1, common), end=common + grown)
    found = cut_of(where, other)
    assert (found is None) == (read <= common)
    if found is not None:
        assert found.offset <= common
        assert found.is_certain
