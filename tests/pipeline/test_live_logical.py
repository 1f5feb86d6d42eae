"""Logical queues, without brokers: leaders, holders of places, gaps and losses, cut logs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from rmqha.base.errors import RemoteProtocolError
from rmqha.client.logical import Leaders, begins_at, decode_segments, is_logical
from rmqha.client.offsets import Edge
from rmqha.client.pull import Pulled
from rmqha.client.routes import QueueKey, TopicRoute
from rmqha.pipeline.live.offsets import DataLost, Holder, LogPlace, Progress, QueueRange, holder_of
from rmqha.pipeline.live.offsets import is_newest as is_newest_at
from rmqha.pipeline.live.options import read_options
from rmqha.pipeline.live.planning import Planner
from rmqha.pipeline.live.pulling import RangeReader
from rmqha.remoting.bodies import EpochEntryCache
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.statictopic.mapping import Segments
from tests.namesrv.node import mapping_info
from tests.pipeline.test_live_offsets import epochs
from tests.statictopic.examples import detail, item

QUEUE = QueueKey("t", "__syslo__global__", 3)
OTHER = QueueKey("t", "broker-a", 3)
SEGMENTS = (item(0, "a", 0, 0), item(1, "b", 3, 10_000, 100), item(2, "c", 1))
READ, WRITE = 4, 2


def route(*infos: dict[str, Any], perms: Mapping[str, int]) -> TopicRoute:
    """A route as a name server tells it."""
    queues = [
        {"brokerName": name, "perm": perm, "readQueueNums": 8, "writeQueueNums": 8}
        for name, perm in perms.items()
    ]
    mappings = {one["bname"]: one for one in infos}
    body = {"brokerDatas": [], "queueDatas": queues, "topicQueueMappingByBroker": mappings}
    return TopicRoute.decode(json.dumps(body).encode())


def test_leaders_when_two_claim_a_queue_then_the_newer_epoch_counts() -> None:
    """And a queue of a leader that allows nothing is not used."""
    found = Leaders.of(
        "t",
        route(
            mapping_info("t", "a", 9, leads={0: 5}),
            mapping_info("t", "b", 7, leads={0: 1, 1: 2, 2: 3}),
            mapping_info("t", "c", 8, leads={2: 0}),
            perms={"a": READ | WRITE, "b": READ, "c": 0},
        ),
    )
    queues = [QUEUE._replace(queue_id=one) for one in range(3)]
    assert found.names == dict(zip(queues, "abc", strict=True))
    assert found.allowing(READ) == queues[:2]
    assert found.allowing(WRITE) == queues[:1]
    assert all(map(is_logical, queues))
    assert not is_logical(OTHER)


def test_mapping_when_malformed_then_refused() -> None:
    """What a name server or a broker may say is anything."""
    for broken in ({"currIdMap": {"x": 1}}, {"bname": ""}, {"currIdMap": []}):
        wrong = route(mapping_info("t", "a") | {"bname": "a"}, perms={})
        wrong.raw["topicQueueMappingByBroker"]["a"].update(broken)
        with pytest.raises(RemoteProtocolError):
            Leaders.of("t", wrong)
    for body in (b"", b"[]", b'{"mappingDetail":[]}', b'{"mappingDetail":{"topic":"t"}}'):
        with pytest.raises(RemoteProtocolError):
            decode_segments(body)
    assert decode_segments(b'{"topicName":"t"}') == {}
    whole = {"topicName": "t", "mappingDetail": detail("b", {3: SEGMENTS}).members()}
    assert decode_segments(json.dumps(whole).encode()) == {3: SEGMENTS}


@pytest.mark.parametrize(
    ("offset", "holder", "is_newest"),
    [
        (0, Holder("a", 0), False), (9_999, Holder("a", 0), False),
        (10_000, Holder("b", 10_000), True), (10_005, Holder("b", 10_000), True),
    ],
)  # fmt: skip
def test_holder_when_a_place_lies_in_a_segment_then_its_set(
    offset: int, holder: Holder, is_newest: bool
) -> None:
    """A leader that is still undecided has nothing."""
    assert holder_of(QUEUE, offset, {QUEUE: SEGMENTS}) == holder
    assert is_newest_at(SEGMENTS, offset) is is_newest
    assert holder_of(QUEUE, offset, {}) == Holder("", offset)
    assert holder_of(OTHER, offset, {}) == Holder("broker-a", 0)
    assert is_newest_at((), offset)


def test_segment_when_looked_for_then_only_where_it_begins() -> None:
    """An undecided one begins nowhere."""
    assert [one for one in (-1, 0, 1, 9_999, 10_000) if begins_at(SEGMENTS, one)] == [0, 10_000]


def test_first_offset_when_a_segment_counts_from_elsewhere_then_logical() -> None:
    """A record has the number that its segment's set gave it."""
    body = b"".join(number.to_bytes(size) for number, size in ((36, 4), (0, 16), (107, 8), (5, 8)))
    fields = {"offsetDelta": "9900", "nextBeginOffset": "10008"}
    pulled = Pulled.of(RemotingCommand(0, ext_fields=fields, body=body), 10_007)
    assert (pulled.first_offset, pulled.first_record) == (10_007, (5, 41))
    assert Pulled.of(RemotingCommand(19, ext_fields=fields), 10_007).first_offset is None


# -- ranges and plans --------------------------------------------------------------------------


class Scripted:
    """A cluster with one logical queue, which answers as it is told; time passes while one waits.

    Attributes:
        history: its segments.
        ends: the end in its log of every record, by logical offset.
        caches: epochs of broker sets.
        following: where the next message is behind an offset without one.
    """

    failover_timeout_ms = 0

    def __init__(self, answer: Callable[[int], Pulled] | None = None) -> None:
        self._answer = answer
        self.history: Segments = SEGMENTS
        self.edge = Edge(0, 10_000)
        self.ends: dict[int, int] = {}
        self.caches: dict[str, EpochEntryCache] = {}
        self.following: dict[int, int] = {}
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

    def segments(self, queues: Sequence[QueueKey]) -> dict[QueueKey, Segments]:
        """Those of the queue."""
        return {queue: self.history for queue in queues if self.history}

    def is_compacted(self, _: QueueKey) -> bool:
        """No."""
        return False

    def pulls(self, _: QueueKey, ranges: Sequence[tuple[int, int]], __: str) -> list[Pulled]:
        """One answer."""
        assert self._answer is not None
        return [self._answer(ranges[0][0])]

    def edges(self, queues: Sequence[QueueKey]) -> dict[QueueKey, Edge]:
        """One for all."""
        return dict.fromkeys(queues, self.edge)

    def record_ends(self, offsets: dict[QueueKey, int]) -> dict[QueueKey, tuple[int, int] | None]:
        """Of the records that there are."""
        found = {queue: self.ends.get(offset) for queue, offset in offsets.items()}
        return {queue: None if end is None else (end - 1, end) for queue, end in found.items()}

    def next_offset(self, _: QueueKey, offset: int, __: Segments) -> int:
        """Itself where no gap is."""
        return self.following.get(offset, offset)

    def epochs(self, name: str) -> EpochEntryCache | None:
        """Those of a set."""
        return self.caches.get(name)


def retry(low: int, following: int) -> Callable[[int], Pulled]:
    """A broker that says where to go on."""
    code = ResponseCode.PULL_RETRY_IMMEDIATELY
    return lambda _: Pulled(code, "", following, Edge(low, 20_000), b"")


OPTIONS = read_options({"nameServer": "a:1", "topic": "t"})
TAGGED = read_options({"nameServer": "a:1", "topic": "t", "subExpression": "A"})


def test_gap_when_java_points_behind_it_then_nothing_is_lost() -> None:
    """Java names the next segment's beginning as the smallest offset, too."""
    for low in (0, 10_000):
        cluster: Any = Scripted(retry(low, 10_000))
        for options in (OPTIONS, TAGGED):
            reader = RangeReader(cluster, options, ("body",), pytest.fail)
            assert list(reader.read(QueueRange(QUEUE, 25, 10_000))) == []


def test_messages_when_deleted_in_a_segment_then_lost() -> None:
    """A filter passes over messages, and deletes none."""
    cluster: Any = Scripted(retry(10_100, 10_100))
    for options in (OPTIONS, TAGGED):
        with pytest.raises(DataLost, match="messages before 10100 have been deleted"):
            list(RangeReader(cluster, options, (), pytest.fail).read(QueueRange(QUEUE, 25, 10_200)))
    cluster.history = ()
    with pytest.raises(DataLost, match="10100"):
        list(RangeReader(cluster, OPTIONS, (), pytest.fail).read(QueueRange(QUEUE, 25, 10_200)))
    passed: Any = Scripted(retry(0, 60))
    reader = RangeReader(passed, TAGGED, (), pytest.fail)
    assert list(reader.read(QueueRange(QUEUE, 25, 60))) == []


def planner(
    cluster: Any, monkeypatch: pytest.MonkeyPatch, said: list[str] | None = None
) -> Planner:
    """A planner of the one queue."""
    made = Planner(cluster, OPTIONS, pytest.fail if said is None else said.append)
    monkeypatch.setattr(made, "queues", lambda **_: [QUEUE])
    return made


def test_place_when_a_batch_ends_then_in_the_log_of_its_segment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Epochs are those of the broker set that has the last message."""
    cluster = Scripted()
    cluster.caches = {"a": epochs((1, 0), end=500), "b": epochs((7, 0), end=900)}
    said: list[str] = []
    made, edges = planner(cluster, monkeypatch, said), {QUEUE: Edge(0, 10_003)}
    cluster.ends = {19: 400, 10_002: 800}
    old = made.placed({QUEUE: 20}, {QUEUE: 10}, {}, edges)
    assert old == Progress({QUEUE: 20}, {"a": LogPlace(1, 0, 400)})
    new = made.placed({QUEUE: 10_003}, old.queues, old.logs, edges)
    assert new.logs == {"a": LogPlace(1, 0, 400), "b": LogPlace(7, 0, 800)}
    # In a gap there is no message, and none is waited for; where messages come one is.
    assert made.placed({QUEUE: 30}, {QUEUE: 20}, {}, edges).queues == {QUEUE: 30}
    assert made.placed({QUEUE: 10_000}, {QUEUE: 20}, {}, edges).queues == {QUEUE: 10_000}
    assert (cluster.waited_ms, said) == (0, [])
    assert made.placed({QUEUE: 10_002}, {QUEUE: 10_001}, {}, edges).queues == {QUEUE: 10_002}
    assert cluster.waited_ms >= OPTIONS.failover_timeout_ms
    assert len(said) == 1


def test_queue_when_it_stands_before_a_gap_then_it_goes_on_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The limit of a batch would be spent on offsets that no message has; never behind the end."""
    cluster = Scripted()
    cluster.edge = Edge(0, 10_020)
    cluster.following = {20: 10_000, 25: 10_030, 10_005: 10_010}
    made = planner(cluster, monkeypatch)
    for before, after in ((20, 10_000), (25, 10_020), (15, 15), (10_005, 10_005)):
        assert made.resumed(Progress({QUEUE: before}, {})).progress.queues == {QUEUE: after}


def test_log_when_cut_then_only_the_segment_that_is_read_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was read of older segments can never be replaced by others."""
    cluster = Scripted()
    cluster.edge = Edge(0, 10_020)
    logs = {"a": LogPlace(1, 0, 400), "b": LogPlace(7, 0, 1_010)}
    cluster.ends = {10_000 + number: 1_001 + number for number in range(20)}
    start = Progress({QUEUE: 10_010}, logs)
    made = planner(cluster, monkeypatch)
    cluster.caches = {"a": epochs((1, 0), (2, 100), end=900), "b": epochs((7, 0), end=2_000)}
    assert made.resumed(start).progress == start
    cluster.caches["b"] = epochs((7, 0), (8, 1_004), end=2_000)
    with pytest.raises(DataLost, match="log of b was cut at 1004; offset 10010 was next, 10004"):
        made.resumed(start)
    cluster.caches["b"] = epochs((7, 0), (8, 10), end=2_000)
    with pytest.raises(DataLost, match="offset 10010 was next, 10000 is"):
        made.resumed(start)
