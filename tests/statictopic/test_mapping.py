"""Mappings of static topics: their JSON, also as Java writes it, and what follows from them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from rmqha.base.errors import RemoteProtocolError
from rmqha.remoting import fastjson
from rmqha.statictopic.mapping import (
    SEGMENTS_MAX,
    LogicQueueMappingItem,
    TopicQueueMappingDetail,
    mock_broker_name,
)
from tests.statictopic.examples import DETAILS, detail, item

JAVAS = (
    b'{"bname":"broker-b","currIdMap":{},"dirty":false,"epoch":1795277765000,'
    b'"hostedQueues":{0:[{"bname":"broker-a","endOffset":-1,"gen":0,"logicOffset":0,"queueId":0,'
    b'"startOffset":0,"timeOfEnd":-1,"timeOfStart":-1},{"bname":"broker-b","endOffset":-1,"gen":1,'
    b'"logicOffset":10000,"queueId":2,"startOffset":0,"timeOfEnd":-1,"timeOfStart":-1}],'
    b'4:[{"bname":"broker-b","endOffset":-1,"gen":0,"logicOffset":0,"queueId":0,"startOffset":0,'
    b'"timeOfEnd":-1,"timeOfStart":-1}]},"scope":"__global__","topic":"Orders","totalQueues":6}'
)
"""The body of a 513: its keys stand bare."""
READ = detail(
    "broker-b",
    {
        0: (item(0, "broker-a", 0, 0), item(1, "broker-b", 2, 10_000)),
        4: (item(0, "broker-b", 0, 0),),
    },
    total=6,
    epoch=1_795_277_765_000,
)


@pytest.mark.costly
@given(one=DETAILS)
def test_detail_when_written_and_read_then_it_is_the_same(one: TopicQueueMappingDetail) -> None:
    """Whether its keys are quoted, as we write them, or bare, as Java does."""
    for write in (fastjson.dumps, fastjson.dumps_bare):
        assert TopicQueueMappingDetail.of(fastjson.loads(write(one.members()))) == one


def test_detail_when_java_writes_it_then_it_is_read_and_written_alike() -> None:
    """A byte more or less, and an old client that cuts by hand fails."""
    assert TopicQueueMappingDetail.of(fastjson.loads(JAVAS)) == READ
    assert fastjson.dumps_bare(READ.members()) == JAVAS


def test_detail_when_members_miss_or_are_new_then_it_has_javas_defaults() -> None:
    """A later release may write more, and an earlier one less."""
    members = {"topic": "Orders", "bname": "a", "totalQueues": 1, "futureMember": [1]}
    members["hostedQueues"] = {"0": [{"bname": "a", "futureMember": 1}]}
    assert TopicQueueMappingDetail.of(members) == detail(
        "a", {0: (item(0, "a", 0, 0),)}, total=1, epoch=0
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"topic": None}, {"bname": ""}, {"totalQueues": 65_537}, {"totalQueues": True},
        {"epoch": "1"}, {"epoch": 1 << 63}, {"hostedQueues": []}, {"hostedQueues": {"x": []}},
        {"hostedQueues": {"-1": []}}, {"hostedQueues": {"65536": []}},
        {"hostedQueues": {"0": {}}}, {"hostedQueues": {"0": [{"gen": 0}]}},
        {"hostedQueues": {"0": [{"bname": "a", "queueId": 1 << 31}]}},
        {"hostedQueues": {"0": [{"bname": "a", "logicOffset": -2}]}},
        {"hostedQueues": {"0": [{"bname": "a"}] * (SEGMENTS_MAX + 1)}},
    ],
)  # fmt: skip
def test_detail_when_a_member_is_no_such_thing_then_it_is_refused(wrong: dict[str, Any]) -> None:
    """Half a mapping would send messages to the wrong queue."""
    with pytest.raises(RemoteProtocolError):
        TopicQueueMappingDetail.of({**READ.members(), **wrong})


def test_info_when_asked_for_then_it_has_only_the_queues_that_are_led() -> None:
    """Clients would otherwise send to a broker that the queue has left."""
    moved = {0: (item(0, "a", 0, 0), item(1, "b", 0, 10_000)), 1: (item(0, "a", 7, 0),), 2: ()}
    one = detail("a", moved, total=3)
    assert one.info_members() == {
        "bname": "a", "currIdMap": {1: 7}, "dirty": False, "epoch": 1000, "scope": "__global__",
        "topic": "Orders", "totalQueues": 3,
    }  # fmt: skip
    # Java's own is empty in a detail: it is made when the broker registers.
    assert one.members()["currIdMap"] == {}
    assert one.name == "Orders"


def test_mock_broker_when_named_then_it_is_javas() -> None:
    """Clients find the route by this name."""
    assert detail("a").mock_broker_name == "__syslo__global__"
    assert mock_broker_name("west") == "__syslo__west"


def test_item_when_offsets_are_translated_then_bounds_and_the_undecided_hold() -> None:
    """Physical 100 is the first message that belongs to the segment."""
    one = item(1, "a", 0, 10_000, 100, 150)
    assert [one.logical(physical) for physical in (0, 100, 149)] == [10_000, 10_000, 10_049]
    assert (one.physical(10_049), one.logical_end) == (149, 10_050)
    assert [one.logical_or_bound(physical) for physical in (0, 149, 999)] == [
        10_000, 10_049, 10_050,
    ]  # fmt: skip
    undecided = item(1, "a", 0)
    assert (undecided.logical_or_bound(5), undecided.logical_end) == (-1, None)
    assert item(0, "a", 0, 0).logical_end is None
    assert LogicQueueMappingItem.of({"bname": "a"}).is_decided
