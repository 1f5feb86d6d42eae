"""How far groups are (208, 317): of very many queues in turns, and the same whatever a turn holds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from rmqha.broker.groups.aio import consume_stats
from rmqha.broker.groups.aio.consume_stats import ROWS_A_TURN, ConsumeStats
from rmqha.broker.topics.group_table import GroupConfig
from rmqha.broker.topics.topic_table import TopicConfig
from rmqha.remoting import fastjson
from rmqha.remoting.command import RemotingCommand
from rmqha.statictopic.mapping import TopicQueueMappingDetail
from tests.broker.replicas import ReplicaCluster, master_of
from tests.broker.subscriber import Subscriber

GROUP = "Counted"
TOPICS, QUEUES = 40, 8
ROWS = TOPICS * QUEUES


@pytest.fixture
def cluster() -> Iterator[ReplicaCluster]:
    """One replica, with more queues of a group than are looked at in a turn."""
    with ReplicaCluster(seed=21, replicas=1) as one:
        one.boot_all()
        table = master_of(one).offsets.table
        master_of(one).groups.table.put(GroupConfig(GROUP), 0)
        for number in range(TOPICS):
            name = f"T{number:02}"
            master_of(one).topics.table.put(TopicConfig(name, QUEUES, QUEUES - 1), 0)
            for queue in range(QUEUES):
                table.commit(GROUP, name, queue, number * QUEUES + queue, 0)
        yield one


def ask(cluster: ReplicaCluster, code: int, **fields: str) -> bytes:
    """The body of an answer."""
    client = Subscriber(cluster, master_of(cluster).config.address)
    answer = client.ask(code, fields)
    assert answer.code == 0, answer.remark
    return bytes(answer.body)


def rows(body: bytes) -> dict[tuple[str, int], dict[str, Any]]:
    """By topic and queue, of Java's table with objects for keys."""
    found = {}
    for pair in body[body.index(b"{", 1) + 1 : body.rindex(b"},")].split(b"},{"):
        key, _, row = (b"{" + pair.strip(b"{}") + b"}").partition(b"}:{")
        queue = fastjson.loads(key + b"}")
        found[queue["topic"], queue["queueId"]] = fastjson.loads(b"{" + row)
    return found


@pytest.mark.parametrize("a_turn", [1, 7, ROWS_A_TURN, ROWS + 1])
def test_group_when_it_has_very_many_queues_then_few_are_looked_at_in_a_turn(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch, a_turn: int
) -> None:
    """A group of ten thousand topics held everybody up for a third of a second."""
    looked: list[int] = []

    async def others_turn(seconds: float) -> None:
        looked.append(0)
        await asyncio.sleep(seconds)

    row = ConsumeStats._row

    def count(self: Any, *args: Any) -> Any:
        looked[-1] += 1
        return row(self, *args)

    monkeypatch.setattr(consume_stats, "ROWS_A_TURN", a_turn)
    monkeypatch.setattr(ConsumeStats, "_row", count)
    looked.append(0)
    monkeypatch.setattr(consume_stats, "asyncio", SimpleNamespace(sleep=others_turn))
    body = ask(cluster, 208, consumerGroup=GROUP)
    assert max(looked) == min(a_turn, ROWS)
    assert sum(looked) == ROWS
    found = rows(body)
    assert sorted(found) == [(f"T{at // QUEUES:02}", at % QUEUES) for at in range(ROWS)]
    assert [found[key]["consumerOffset"] for key in sorted(found)] == list(range(ROWS))


def test_group_when_its_members_left_a_topic_then_that_is_shown_only_where_it_is_named(
    cluster: ReplicaCluster,
) -> None:
    """A topic that nobody of the group reads any more is behind for ever."""
    client = Subscriber(cluster, master_of(cluster).config.address)
    client.beat(GROUP, "T01")
    assert {topic for topic, _ in rows(ask(cluster, 208, consumerGroup=GROUP))} == {"T01"}
    named = rows(ask(cluster, 208, consumerGroup=GROUP, topic="T02"))
    assert sorted(named) == [("T02", queue) for queue in range(QUEUES)]


def test_topic_when_it_is_static_and_nothing_is_known_here_then_its_offset_is_nowhere(
    cluster: ReplicaCluster,
) -> None:
    """0 would be the begin of a queue whose first segments are elsewhere."""
    master = master_of(cluster)
    master.offsets.table.commit("Other", "T00", 1, 5, 0)
    name = master.config.broker_name
    ordinary = rows(ask(cluster, 208, consumerGroup="Other", topic="T00"))
    master.mappings.table.items["T00"] = TopicQueueMappingDetail("T00", QUEUES, name, 1)
    static = rows(ask(cluster, 208, consumerGroup="Other", topic="T00"))
    for found, nothing in ((ordinary, 0), (static, -1)):
        offsets = [found["T00", queue]["consumerOffset"] for queue in range(QUEUES)]
        assert offsets == [nothing, 5, *[nothing] * (QUEUES - 2)]


def test_all_groups_when_asked_for_then_queues_that_are_written_count(
    cluster: ReplicaCluster,
) -> None:
    """317 looks at queues for writing, 208 at those for reading, as in Java."""
    found = fastjson.loads(ask(cluster, 317))
    (tables,) = [entry[GROUP] for entry in found["consumeStatsList"] if GROUP in entry]
    assert [len(table["offsetTable"]) for table in tables] == [QUEUES - 1] * TOPICS
    assert found["totalDiff"] == -sum(
        number * QUEUES + queue for number in range(TOPICS) for queue in range(QUEUES - 1)
    )


def test_tables_when_many_are_asked_for_at_once_then_one_is_made_at_a_time(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table of ten thousand topics has 16 MB: a thousand that are made beside each other end the broker."""
    made: list[tuple[str, str]] = []
    row = ConsumeStats._row

    def note(self: Any, group: str, topic: str, *more: Any) -> Any:
        made.append((group, topic))
        return row(self, group, topic, *more)

    monkeypatch.setattr(ConsumeStats, "_row", note)
    monkeypatch.setattr(consume_stats, "ASKED_MAX", 3)
    master = master_of(cluster)
    for group in ("A", "B", "C", "D"):
        for number in range(TOPICS):
            master.offsets.table.commit(group, f"T{number:02}", 0, 1, 0)
    client = Subscriber(cluster, master.config.address)
    first = client.tell(208, {"consumerGroup": "A"})
    cluster.until(lambda: made, "the first table begun")
    numbers = [first, *(client.tell(208, {"consumerGroup": group}) for group in ("B", "C", "D"))]
    cluster.until(lambda: all(one in client.answers for one in numbers), "all answers")
    assert [client.answers[one].code for one in numbers].count(2) <= 1
    groups = [group for group, _ in made]
    assert groups == sorted(groups), "one after the other"


def test_table_when_who_asked_is_gone_then_it_is_not_made_and_the_next_one_is(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks a thousand times and leaves must not keep the broker at it."""
    monkeypatch.setattr(consume_stats, "ASKED_MAX", 2)
    stats, answers = ConsumeStats(master_of(cluster)), []
    request = RemotingCommand(208, ext_fields={"consumerGroup": GROUP})
    for is_gone in (True, False):
        connection: Any = SimpleNamespace(is_closing=is_gone, send=answers.append)
        cluster.loop.call_soon(stats.of_group, connection, request)
    cluster.run_for(100)
    assert [answer.code for answer in answers] == [0]
    for _ in range(2):
        cluster.loop.call_soon(stats.of_group, connection, request)
    cluster.run_for(100)
    assert len(answers) == 3, "both places are free again"


def test_tables_when_too_many_are_asked_for_then_one_more_is_refused(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consume_stats, "ASKED_MAX", 2)
    client = Subscriber(cluster, master_of(cluster).config.address)
    numbers = [client.tell(208, {"consumerGroup": GROUP}) for _ in range(5)]
    cluster.until(lambda: all(one in client.answers for one in numbers), "all answers")
    assert sorted(client.answers[one].code for one in numbers) == [0, 0, 2, 2, 2]
    assert client.ask(317, {}).code == 0
