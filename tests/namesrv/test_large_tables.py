"""Registrations with very many topics: read in one go, and taken off a part at a time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rmqha.base.errors import RemoteProtocolError
from rmqha.namesrv import registration
from rmqha.namesrv.machine import LEAVING_MAX, LEAVING_ROUTES_MAX
from rmqha.namesrv.messages import Again
from rmqha.namesrv.registration import read_registration
from rmqha.namesrv.settings import RouteSettings
from rmqha.namesrv.usual_body import usual_body
from rmqha.remoting import fastjson
from tests.namesrv.node import VERSION, Node, broker_fields, registration_body, topic

TOPICS = 400
BROKERS = 3 * LEAVING_ROUTES_MAX // TOPICS + 1

odd = st.sampled_from(
    [
        None,
        True,
        False,
        0,
        1,
        6,
        -1,
        1.0,
        65_536,
        65_537,
        2**31 - 1,
        2**31,
        2**70,
        "",
        "7",
        "A",
        [],
        {},
    ]
)
members = st.dictionaries(
    st.sampled_from(["perm", "readQueueNums", "topicSysFlag", "writeQueueNums", "topicName", "order"]),
    odd, max_size=6,
)  # fmt: skip
tables = st.dictionaries(st.sampled_from(["A", "B", "", "n" * 600]), members | odd, max_size=3)
wrappers = st.fixed_dictionaries(
    {},
    optional={
        "topicConfigTable": tables | odd,
        "dataVersion": st.just({"stateVersion": 3, "timestamp": 2, "counter": 1}) | odd,
        "topicQueueMappingInfoMap": st.just({"A": {"bname": "b", "currIdMap": {"0": 1}}}) | odd,
    },
)
bodies = st.fixed_dictionaries(
    {}, optional={"topicConfigSerializeWrapper": wrappers | odd, "filterServerList": odd}
)
PLAIN = {"topicConfigSerializeWrapper": {"topicConfigTable": {"A": {"topicName": "A", "perm": 2}}}}


def read(body: bytes) -> Any:
    """What a registration says, or that it is refused."""
    try:
        return read_registration(VERSION, broker_fields(), body, RouteSettings())
    except RemoteProtocolError:
        return "refused"


@pytest.mark.slow
@given(bodies | odd)
@example(PLAIN)
def test_body_when_read_in_one_go_then_it_says_what_it_says_member_by_member(value: object) -> None:
    """The short way decides nothing by itself: what it does not know goes the long one."""
    body = fastjson.dumps(value) if not _is_huge(value) else str(value).encode()
    short = read(body)
    usual, registration.usual_body = registration.usual_body, lambda _: None
    try:
        long = read(body)
    finally:
        registration.usual_body = usual
    assert short == long


def test_body_when_its_text_is_no_utf8_then_refused_and_nothing_breaks() -> None:
    """Found by fuzzing: the short way raised what the port does not expect."""
    body = fastjson.dumps(
        {"topicConfigSerializeWrapper": {"topicConfigTable": {"T?": {"topicName": "T?"}}}}
    )
    assert usual_body(body) is not None
    broken = body.replace(b"T?", b"T\x91")
    assert usual_body(broken) is None
    assert read(broken) == "refused"


def _is_huge(value: object) -> bool:
    """Whether a number is in it that our writer refuses."""
    return str(2**70) in str(value)


def test_body_when_a_broker_wrote_it_then_it_is_read_in_one_go() -> None:
    """Otherwise the short way is there for nothing."""
    body = registration_body([topic(f"T{n}") for n in range(TOPICS)])
    assert usual_body(body) is not None
    queues = set(map(id, read(body).topics.values()))
    assert len(queues) == 1, "topics with the same queues share one value"


def _crowd() -> Node:
    node = Node()
    for number in range(BROKERS):
        names = [topic(f"T{number}-{n}") for n in range(TOPICS)]
        node.register(names, brokerName=f"b{number}", brokerAddr=f"10.0.1.{number}:1")
    node.effects.clear()
    return node


def again(node: Node) -> Again | None:
    """What the machine wants to be given once more."""
    wanted = [one for one in node.effects if isinstance(one, Again)]
    node.effects.clear()
    assert len(wanted) <= 1
    return wanted[0] if wanted else None


@pytest.mark.costly
def test_connection_when_it_brought_very_many_routes_then_they_leave_in_parts() -> None:
    """A million of them kept everybody waiting for four seconds."""
    node = _crowd()
    table, before = node.machine.table, BROKERS * TOPICS
    assert table.route_count == before
    node.close(1)
    parts = 1
    while (wanted := again(node)) is not None:
        assert before - table.route_count <= LEAVING_ROUTES_MAX + TOPICS
        before, parts = table.route_count, parts + 1
        if parts == 2:  # one of them comes back over another connection, and stays
            node.register([topic("A")] * 2, brokerName=f"b{BROKERS - 1}",
                          brokerAddr=f"10.0.1.{BROKERS - 1}:1", connection=2, counter=9)  # fmt: skip
            before = table.route_count
        node.effects += node.machine.step(node.now_ms, wanted.event)
    assert parts > 2
    assert list(table.live) == [
        one for one in table.live if one.address.startswith(f"10.0.1.{BROKERS - 1}:")
    ]
    assert len(table.live) == 1


def test_brokers_when_very_many_fall_silent_then_they_leave_in_parts() -> None:
    """Ghosts without topics, too."""
    node = Node()
    count = LEAVING_MAX + 10
    for number in range(count):
        node.register([topic("A"), topic("B")], brokerName=f"b{number}", brokerAddr=f"h:{number}")
    node.effects.clear()
    node.tick(200_000)
    wanted = again(node)
    assert wanted is not None
    assert len(node.machine.table.live) == count - LEAVING_MAX
    node.effects += node.machine.step(node.now_ms, wanted.event)
    assert again(node) is None
    assert not node.machine.table.live
