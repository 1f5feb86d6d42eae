"""Sending to static topics, and reading them: queues are logical ones, and leaders are asked."""

from __future__ import annotations

from itertools import starmap
from typing import Any

import pytest
from msgspec.structs import replace

from rmqha.client.exchange import Call, NotFound
from rmqha.remoting.command import RemotingCommand
from tests.admin.driving import HERE, Answer, by_code, run
from tests.admin.test_cluster_commands import reply, route, stored

SERVERS = "-n ns:1 -t T"
MOCK = "__syslo__global__"


def mapped_route(*, perm_of_b: int = 6, living: str = "ab") -> Answer:
    """Queue 0 is physical 3 at a, queue 1 physical 2 at b: what they had before has moved away."""
    led = {"a": {"0": 3}, "b": {"1": 2}}
    groups = [
        {"brokerAddrs": {"0": f"{one}:1"}, "brokerName": one, "cluster": "C"} for one in living
    ]
    queues = [
        {"brokerName": name, "perm": perm, "readQueueNums": 4, "writeQueueNums": 4,
         "topicSysFlag": 0}
        for name, perm in (("a", 6), ("b", perm_of_b))
    ]  # fmt: skip
    infos = dict(zip(led, starmap(_info, led.items()), strict=True))
    return reply(
        0, {"brokerDatas": groups, "queueDatas": queues, "topicQueueMappingByBroker": infos}
    )


def _info(name: str, ids: dict[str, int]) -> dict[str, Any]:
    return {
        "topic": "T", "bname": name, "scope": "__global__", "totalQueues": 2, "epoch": 5,
        "dirty": False, "currIdMap": ids,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("more", "numbers", "places"),
    [
        ("", range(8), {("a:1", "a", "0"), ("b:1", "b", "1")}),
        ("-b b", range(8), {("b:1", "b", "1")}),
        ("-b a -i 0", range(8), {("a:1", "a", "0")}),
    ],
)
def test_send_when_the_topic_is_static_then_to_leaders(
    more: str, numbers: range, places: set[tuple[str, str, str]]
) -> None:
    """Who leads a queue takes messages for it; physical numbers are nobody's."""
    asked = set()
    for number in numbers:
        here = replace(HERE, number=number)
        table = {105: mapped_route(), 310: reply(queueId=0)}
        _, calls = run(f"sendMessage {SERVERS} -p x {more}", by_code(table), here)
        fields = calls[-1].command.ext_fields or {}
        asked.add((calls[-1].address, fields["n"], fields["e"]))
    assert asked == places


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("sendMessage -p x -b a -i 1", "broker set a does not lead logical queue 1 of T"),
        ("sendMessage -p x -b b", "broker set b does not take writes of T"),
        ("consumeMessage -b a -i 1", "broker set a does not lead logical queue 1 of T"),
        ("consumeMessage -b c", "topic T has no broker set c"),
    ],
)
def test_static_topic_when_a_set_does_not_lead_then_it_is_said(line: str, words: str) -> None:
    """It would answer 501, which tells nobody who does."""
    with pytest.raises(NotFound, match=words):
        run(f"{line} {SERVERS}", by_code({105: mapped_route(perm_of_b=4)}))


def test_static_topic_when_a_leader_has_no_broker_then_its_queues_are_left_out() -> None:
    """Its mapping stays at the name server when all of it are gone."""
    table = {105: mapped_route(living="a"), 310: reply(queueId=0), 31: reply(offset=0),
             30: reply(offset=0), 11: reply(19, nextBeginOffset=0)}  # fmt: skip
    for number in range(4):
        here = replace(HERE, number=number)
        _, calls = run(f"sendMessage {SERVERS} -p x", by_code(table), here)
        assert calls[-1].address == "a:1"
    _, calls = run(f"consumeMessage {SERVERS}", by_code(table))
    assert {call.address for call in calls} == {"ns:1", "a:1"}


def leaders(call: Call) -> RemotingCommand:
    """Each logical queue: 0 to 2 in an older segment, nothing up to 10, 10 to 12 in the newest."""
    fields = call.command.ext_fields or {}
    queue = int(fields.get("queueId", "-1"))
    if call.command.code == 105:
        return mapped_route()(call)
    assert (call.address, queue) in {("a:1", 0), ("b:1", 1)}
    if call.command.code in {30, 31}:
        return reply(offset=12 if call.command.code == 30 else 0)(call)
    start, count = int(fields["queueOffset"]), int(fields["maxMsgNums"])
    assert (fields["bname"], count > 0) == (call.address[0], True)
    if start >= 12:
        return reply(19, nextBeginOffset=start)(call)
    if 2 <= start < 10:
        return reply(21, nextBeginOffset=10)(call)
    first, delta = (0, 0) if start < 2 else (10, 10)
    end = min(first + 2, start + count)
    body = b"".join(stored(b"m", queue=3, offset=at - delta) for at in range(start, end))
    more = {"offsetDelta": delta} if delta else {}
    return reply(0, body, nextBeginOffset=end, minOffset=0, maxOffset=12, **more)(call)


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ("", [(0, 0), (0, 1), (0, 10), (0, 11), (1, 0), (1, 1), (1, 10), (1, 11)]),
        ("-b b", [(1, 0), (1, 1), (1, 10), (1, 11)]),
        ("-c 3", [(0, 0), (0, 1), (0, 10)]),
        ("-c 5", [(0, 0), (0, 1), (0, 10), (0, 11), (1, 0)]),
        ("-b b -i 1 -o 4", [(1, 10), (1, 11)]),
    ],
)
def test_consume_when_the_topic_is_static_then_offsets_are_logical(
    more: str, found: list[tuple[int, int]]
) -> None:
    """Across the gap between two segments, which holds no message however wide it is."""
    report, calls = run(f"consumeMessage {SERVERS} {more}", leaders)
    assert [(one["queueId"], one["queueOffset"]) for one in report.data] == found
    assert {one["brokerName"] for one in report.data} == {MOCK}
    assert len(calls) < 16


@pytest.mark.parametrize("beyond", [0, 99])
def test_consume_when_a_leader_sends_it_back_or_beyond_the_end_then_it_ends(beyond: int) -> None:
    table = {
        105: mapped_route(), 31: reply(offset=0), 30: reply(offset=4),
        11: reply(21, nextBeginOffset=beyond),
    }  # fmt: skip
    report, calls = run(f"consumeMessage {SERVERS} -b a", by_code(table))
    assert [105, 31, 30, 11] == [call.command.code for call in calls]
    assert "print msg finished. status=OFFSET_ILLEGAL" in report.plain


def test_consume_when_an_ordinary_queue_does_not_have_the_offset_then_it_ends() -> None:
    """As Java's tool. It has no gaps: messages were deleted meanwhile, from its beginning on."""
    table = {105: route("a"), 31: reply(offset=0), 30: reply(offset=4),
             11: reply(21, nextBeginOffset=2)}  # fmt: skip
    report, calls = run(f"consumeMessage {SERVERS} -b a -i 0", by_code(table))
    assert [105, 31, 30, 11] == [call.command.code for call in calls]
    assert "print msg finished. status=OFFSET_ILLEGAL, offset=2" in report.plain
