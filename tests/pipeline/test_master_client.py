"""Live queues without Spark: reading over failovers, and what was lost, told or rewound."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqha.base.errors import ConfigInvalid
from rmqha.client.aio.master_client import MasterClient
from rmqha.client.aio.masters import Masters
from rmqha.client.exchange import Exchange, Refused, Unreachable
from rmqha.client.routes import QueueKey, TopicRoute
from rmqha.pipeline.live.bounds import At, Bound
from rmqha.pipeline.live.offsets import DataLost, Progress, QueueRange, ranges
from rmqha.pipeline.live.options import ReadOptions, read_options
from rmqha.pipeline.live.planning import Planner, connect
from rmqha.pipeline.live.pulling import RangeReader
from rmqha.remoting.command import RemotingCommand
from rmqha.testing.cluster import RmqCluster
from tests.namesrv.node import Node, mapping_info
from tests.pipeline.live import Topic

pytestmark = [pytest.mark.filterwarnings("ignore")]
COLUMNS = ("queueId", "queueOffset", "body")
QUICK = {"failoverTimeoutMs": "5000"}
AT_ONCE = {"failoverTimeoutMs": "300"}


class Reader:
    """A stream without Spark: where it stands, and what it has read.

    Attributes:
        warnings: what was told.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._progress: Progress | None = None
        self.warnings: list[str] = []

    def read(self) -> list[bytes]:
        """What has come since the last time, queue by queue."""
        with connect(self._options) as cluster:
            planner = Planner(cluster, self._options, self.warnings.append)
            if self._progress is None:
                edges = planner.known_and({})
                start = planner.bounded(Bound(At.EARLIEST), edges, At.EARLIEST)
                before = planner.placed(start, {}, {}, edges)
            else:
                resumed = planner.resumed(Progress.decode(self._progress.encode()))
                before, edges = resumed.progress, resumed.edges
            ends = {queue: edge.high for queue, edge in edges.items()}
            self._progress = planner.placed(ends, before.queues, before.logs, edges)
            reader = RangeReader(cluster, self._options, COLUMNS, self.warnings.append)
            return [
                row["body"]
                for wanted in ranges(before.queues, self._progress.queues)
                for batch in reader.read(wanted)
                for row in batch.to_pylist()
            ]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RmqCluster]:
    """Three replicas in this process."""
    with RmqCluster(tmp_path_factory.mktemp("live")) as made:
        yield made


@pytest.mark.costly
def test_stream_when_the_master_dies_then_it_goes_on(cluster: RmqCluster) -> None:
    """Each message once, before and after, with the epoch of the new master."""
    topic = Topic(cluster, "GoesOn")
    topic.fill(10)
    reader = Reader(read_options(topic.options(**QUICK)))
    assert len(reader.read()) == 10
    assert reader.read() == []
    old = cluster.kill(cluster.wait_for_master())
    cluster.wait_for_master(other_than=old)
    topic.fill(6, first=10)
    assert sorted(reader.read()) == sorted(b"GoesOn %d" % number for number in range(10, 16))
    assert reader.read() == []
    assert reader.warnings == []
    cluster.heal()


@pytest.mark.slow
def test_range_when_its_end_is_not_there_yet_then_waited_for(cluster: RmqCluster) -> None:
    """What a batch's plan names was confirmed; if it never comes it is lost."""
    topic = Topic(cluster, "Ends", queues=1)
    topic.fill(3)
    options = read_options(topic.options(**AT_ONCE))
    with connect(options) as live:
        (queue,) = Planner(live, options, print).queues()
        reader = RangeReader(live, options, COLUMNS, print)
        with pytest.raises(DataLost, match="ends at 3, before 5"):
            list(reader.read(QueueRange(queue, 0, 5)))
        lenient = read_options(topic.options(failOnDataLoss="false", **AT_ONCE))
        warnings: list[str] = []
        found = list(
            RangeReader(live, lenient, COLUMNS, warnings.append).read(QueueRange(queue, 0, 5))
        )
        assert [batch.num_rows for batch in found] == [3]
        assert len(warnings) == 1


@pytest.mark.slow
def test_topic_when_deleted_then_lost_or_left_out(cluster: RmqCluster) -> None:
    """A queue that nobody has is waited for, since its broker may only be starting."""
    topic = Topic(cluster, "Deleted")
    topic.fill(8)
    strict = Reader(read_options(topic.options(**AT_ONCE)))
    lenient = Reader(read_options(topic.options(failOnDataLoss="false", **AT_ONCE)))
    assert len(strict.read()) == len(lenient.read()) == 8
    topic.delete()
    with pytest.raises(DataLost, match="the queue is gone"):
        strict.read()
    assert lenient.read() == []
    assert len(lenient.warnings) == 1


@pytest.mark.costly
def test_topic_when_unknown_then_said_at_once(cluster: RmqCluster) -> None:
    """By its name; a pattern may match nothing yet."""
    given = {"nameServer": cluster.namesrv_addr}
    options = read_options(given | {"topic": "NoSuch"})
    with connect(options) as live:
        with pytest.raises(ConfigInvalid, match="topic NoSuch does not exist"):
            Planner(live, options, print).known_and({})
        by_pattern = read_options(given | {"subscribePattern": "NoSuch.*"})
        assert Planner(live, by_pattern, print).known_and({}) == {}


def test_topic_when_static_then_its_logical_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name, and by a pattern that it matches; the route is a name server's own."""
    node = Node()
    node.register(mappings={"A": mapping_info("A")})
    routes = {name: TopicRoute.decode(node.ask(105, {"topic": name}).body) for name in "AB"}

    async def asked(*_: object) -> tuple[list[str], frozenset[str]]:
        return list(routes), frozenset()

    def route_of(_: object, topic: str) -> Exchange[TopicRoute]:
        yield from ()
        return routes[topic]

    monkeypatch.setattr(Masters, "topics", asked)
    monkeypatch.setattr("rmqha.client.aio.masters.topic_route", route_of)
    logical = [QueueKey("A", "__syslo__global__", one) for one in (0, 1)]
    for chosen in ({"topic": "A"}, {"subscribe": "B,A"}, {"subscribePattern": ".*"}):
        options = read_options({"nameServer": "127.0.0.1:1", **chosen})
        with connect(options) as live:
            found = Planner(live, options, print).queues()
        assert [one for one in found if one.topic == "A"] == logical
        assert {one.topic for one in found} == ({"A"} if chosen == {"topic": "A"} else {"A", "B"})


def test_pattern_when_given_then_the_users_topics(cluster: RmqCluster) -> None:
    """Brokers keep a dozen of their own, which nobody means by ``.*``."""
    Topic(cluster, "PatternA")
    Topic(cluster, "PatternB")
    given = {"nameServer": cluster.namesrv_addr}
    with connect(read_options(given | {"subscribePattern": "x"})) as live:
        for pattern, expected in (("Pattern[AB]", {"PatternA", "PatternB"}), ("Pattern", set())):
            options = read_options(given | {"subscribePattern": pattern})
            assert {one.topic for one in Planner(live, options, print).queues()} == expected
        options = read_options(given | {"subscribePattern": ".*"})
        found = {one.topic for one in Planner(live, options, print).queues()}
        assert {"PatternA", "PatternB"} <= found
        assert not [one for one in found if one.startswith(("rmq_sys", "TBW102", "TestCluster"))]


@pytest.mark.slow
def test_log_when_cut_and_grown_again_then_noticed_by_its_epochs(tmp_path: Path) -> None:
    """A replica that had nothing of it is elected: its queues are as long, and hold other messages."""
    unclean = {"enableElectUncleanMaster": True}
    with RmqCluster(tmp_path, controllers=1, replicas=2, controller_settings=unclean) as cluster:
        topic = Topic(cluster, "Cut", queues=1)
        topic.fill(5)
        master = cluster.wait_for_master()
        slave = next(node for node in cluster.brokers if node is not master)
        cluster.wait_in_sync(2)
        cluster.kill(slave)
        topic.fill(5, first=5)
        readers = [
            Reader(read_options(topic.options(failOnDataLoss=text, **AT_ONCE)))
            for text in ("true", "false")
        ]
        assert [len(reader.read()) for reader in readers] == [10, 10]
        cluster.kill(master)
        cluster.restart(slave)
        assert cluster.wait_for_master() is slave
        topic.fill(9, first=100)
        with pytest.raises(DataLost, match=r"was cut at \d+; offset 10 was next, 5 is"):
            readers[0].read()
        assert readers[1].read() == [b"Cut %d" % number for number in range(100, 109)]
        assert len(readers[1].warnings) == 1
        assert readers[1].read() == []
        assert len(readers[1].warnings) == 1, "it is said once"


@pytest.mark.costly
def test_message_when_stored_less_safely_then_sent_again_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not flushed or not replicated in time is not what was promised; a refusal is final."""
    queues = [QueueKey("t", name, 0) for name in ("broker-a", "broker-b")]
    asked: list[QueueKey] = []
    codes = [10, 11, 12, 2, 14, 0]

    async def writable(_: str) -> list[QueueKey]:
        return queues

    async def stored(queue: QueueKey, command: RemotingCommand) -> RemotingCommand:
        asked.append(queue)
        code = codes.pop(0)
        if code:
            raise Refused("a:1", code, "scripted")
        return command

    with MasterClient(["a:1"], timeout_ms=100, failover_timeout_ms=5000, group="g") as live:
        monkeypatch.setattr(live, "_writable", writable)
        monkeypatch.setattr(live, "_stored", stored)
        live.call(live.send("t", 0, lambda _: RemotingCommand(0)))
        assert asked == queues * 3
        codes.append(13)
        with pytest.raises(Refused, match="CODE: 13"):
            live.call(live.send("t", 0, lambda _: RemotingCommand(0)))
    with MasterClient(["a:1"], timeout_ms=100, failover_timeout_ms=0, group="g") as live:
        monkeypatch.setattr(live, "_writable", writable)
        monkeypatch.setattr(live, "_stored", stored)
        codes.append(12)
        with pytest.raises(Unreachable, match=r"took no message for 0 ms.*CODE: 12"):
            live.call(live.send("t", 0, lambda _: RemotingCommand(0)))
