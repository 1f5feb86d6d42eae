"""303, 308, 314 and 321: what tools ask of a group's offsets, pure and against a whole replica."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rmqha.broker.groups.offset_questions import correction_offsets, time_span
from rmqha.remoting import fastjson
from rmqha.remoting.command import RemotingCommand
from tests.broker.replicas import TOPIC, ReplicaCluster, master_of, send_fields
from tests.broker.subscriber import Subscriber

NEVER = (1 << 63) - 1


@pytest.fixture
def alone() -> Iterator[ReplicaCluster]:
    """One replica, which reigns; ten messages in the first queue, and a group that is at 4."""
    with ReplicaCluster(seed=33, replicas=1) as one:
        one.boot_all()
        for number in range(10):
            fields = send_fields(number) | {"e": "0"}
            assert one.ask(master_of(one).config.address, 310, fields, b"body").code == 0
        client = Subscriber(one, master_of(one).config.address)
        client.beat("CG", TOPIC)
        place = {"consumerGroup": "CG", "topic": TOPIC, "queueId": 0, "commitOffset": 4}
        assert client.ask(15, place).code == 0
        yield one


def ask(cluster: ReplicaCluster, code: int, **fields: Any) -> RemotingCommand:
    """A tool's question to the master."""
    texts = {name: str(value) for name, value in fields.items()}
    return cluster.ask(master_of(cluster).config.address, code, texts)


def stored(cluster: ReplicaCluster, group: str) -> dict[int, int]:
    """What a group has stored for the topic."""
    return master_of(cluster).offsets.table.stored(group, TOPIC)


@pytest.mark.parametrize(
    ("low", "high", "consumed", "found"),
    [
        (0, 0, -1, (-1, 0, -1, -1)), (5, 8, 6, (105, 9_894, 107, 105)),
        (5, 8, 8, (107, 0, 107, 105)), (5, 8, -1, (105, 9_895, 107, 105)),
        (5, 8, 2, (-1, 9_895, 107, 105)),
    ],
)  # fmt: skip
def test_span_when_a_group_is_anywhere_then_its_delay_is_of_the_message_that_waits(
    low: int, high: int, consumed: int, found: tuple[int, int, int, int]
) -> None:
    """A group that never read, or whose place was deleted, waits for the first that is there."""

    def stamp(offset: int) -> int:
        return 100 + offset if low <= offset < high else -1

    span = time_span(stamp, low=low, high=high, consumed=consumed, wall_ms=10_000)
    assert tuple(span.values()) == found


@pytest.mark.parametrize(
    ("compared", "left_out", "found"),
    [
        ({}, (), {0: 3, 1: 7}), ({0: 2, 1: 7}, (), {0: NEVER, 1: 7}), ({}, ("B",), {0: 5}),
        ({0: 3, 9: 1}, ("A", "B"), {}),
    ],
)  # fmt: skip
def test_corrections_when_groups_differ_then_the_last_that_still_can_read(
    compared: dict[int, int], left_out: tuple[str, ...], found: dict[int, int]
) -> None:
    """Whoever is before the first message that is kept does not count, and no group is changed."""
    groups = [("A", {0: 5, 1: 1}), ("B", {0: 3, 1: 7})]
    assert correction_offsets(groups, compared, left_out, lambda queue_id: 2) == found
    assert groups == [("A", {0: 5, 1: 1}), ("B", {0: 3, 1: 7})]


def test_spans_when_asked_then_a_row_a_queue(alone: ReplicaCluster) -> None:
    """303 against a real store."""
    answer = ask(alone, 303, topic=TOPIC, group="CG")
    rows = fastjson.loads(answer.body)["consumeTimeSpanSet"]
    first = rows[0]
    assert first["minTimeStamp"] <= first["consumeTimeStamp"] <= first["maxTimeStamp"]
    assert first["delayTime"] > 0
    assert [row["messageQueue"]["queueId"] for row in rows] == list(range(len(rows)))
    assert {(row["minTimeStamp"], row["delayTime"]) for row in rows[1:]} == {(-1, 0)}


def test_offsets_when_cloned_then_the_group_is_there_and_begins_where_the_other_is(
    alone: ReplicaCluster,
) -> None:
    """314 without a topic copies all; Java's copies nothing then and answers success."""
    assert ask(alone, 314, srcGroup="CG", destGroup="Heir").code == 0
    assert stored(alone, "Heir") == stored(alone, "CG") == {0: 4}
    assert master_of(alone).groups.table.get("Heir") is not None
    assert ask(alone, 314, srcGroup="CG", destGroup="Late", topic="Nowhere").code == 0
    assert stored(alone, "Late") == {}
    assert ask(alone, 314, srcGroup="CG", destGroup="no group!").code == 26


def test_offsets_when_there_is_no_room_for_all_then_those_that_were_cloned_are_kept(
    alone: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They count at once; a file without them would take them back at the next start."""
    offsets = master_of(alone).offsets
    offsets.table.commit("CG", TOPIC, 1, 2, 0)
    commit, told = offsets.table.commit, []
    monkeypatch.setattr(
        type(offsets.table), "commit",
        lambda _, group, topic, queue_id, *more: queue_id == 0 and commit(group, topic, 0, *more),
    )  # fmt: skip
    monkeypatch.setattr(type(offsets), "changed", lambda _: told.append(1))
    assert ask(alone, 314, srcGroup="CG", destGroup="Heir").code == 2
    assert stored(alone, "Heir") == {0: 4}
    assert told


def test_offsets_when_cloned_online_then_only_what_the_group_subscribes_to(
    alone: ReplicaCluster,
) -> None:
    """Offsets of a topic that the group has left are kept out, unless that is asked for."""
    client = Subscriber(alone, master_of(alone).config.address)
    client.beat("CG", "Another")
    assert ask(alone, 314, srcGroup="CG", destGroup="Heir", topic=TOPIC).code == 0
    assert stored(alone, "Heir") == {}
    assert ask(alone, 314, srcGroup="CG", destGroup="Heir", topic=TOPIC, offline="true").code == 0
    assert stored(alone, "Heir") == {0: 4}


def test_units_when_asked_for_more_than_there_are_then_to_the_end(
    alone: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """321: mqadmin asks for any number; an answer has to fit into a frame."""
    body = fastjson.loads(
        ask(alone, 321, topic=TOPIC, queueId=0, index=7, count=50, consumerGroup="CG").body
    )
    assert (body["minQueueIndex"], body["maxQueueIndex"]) == (0, 10)
    assert len(body["queueData"]) == 3
    assert body["subscriptionData"]["topic"] == TOPIC
    monkeypatch.setattr("rmqha.broker.groups.aio.group_tool_requests.UNITS_MAX", 2)
    body = fastjson.loads(ask(alone, 321, topic=TOPIC, queueId=0, index=0, count=50).body)
    assert len(body["queueData"]) == 2
