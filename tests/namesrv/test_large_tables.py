"""Registrations with very many topics: read in one go, and taken off a part at a time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rmqha.base.errors import RemoteProtocolError
from rmqha.namesrv import figures, registration, status_document
from rmqha.namesrv.machine import LEAVING_MAX, LEAVING_ROUTES_MAX
from rmqha.namesrv.messages import Again, CloseConnection, MappingInfo
from rmqha.namesrv.registration import reading
from rmqha.namesrv.settings import RouteSettings
from rmqha.namesrv.usual_body import usual_body
from rmqha.remoting import fastjson
from rmqha.runtime.parts import at_once
from tests.namesrv.node import VERSION, Node, broker_fields, mapping_info, registration_body, topic

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
        return at_once(reading(VERSION, broker_fields(), body, RouteSettings()))
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


def test_connections_when_very_many_brokers_fall_silent_then_each_is_closed_with_its_own() -> None:
    """Every step closed all of them again: 10,000 brokers took 200,000 looks at 10,000 connections."""
    node = Node()
    count = LEAVING_MAX + 10
    for number in range(count):
        node.register(
            [topic("A"), topic("B")], brokerName=f"b{number}", brokerAddr=f"h:{number}",
            connection=number,
        )  # fmt: skip
    node.effects.clear()
    node.tick(200_000)
    first = [one.connection_id for one in node.effects if isinstance(one, CloseConnection)]
    assert first == list(range(LEAVING_MAX))
    wanted = again(node)
    assert wanted is not None
    node.effects += node.machine.step(node.now_ms, wanted.event)
    second = [one.connection_id for one in node.effects if isinstance(one, CloseConnection)]
    assert second == list(range(LEAVING_MAX, count))


class NeverWalked(dict[str, Any]):
    """A table in which single topics are looked up only."""

    def __iter__(self) -> Any:
        raise AssertionError("all of it was looked at")

    items = keys = values = __iter__


def test_set_when_it_leaves_among_very_many_static_topics_then_only_its_own_are_looked_at() -> None:
    """500 sets that leave in one step looked at 40,000 static topics each."""
    node = Node()
    table = node.machine.table
    for name in ("b", "c"):
        infos = {f"T{n}": mapping_info(f"T{n}", name) for n in (1, 2, name)}
        topics = [topic(f"T{n}") for n in (1, 2, name)]
        node.register(topics, mappings=infos, brokerName=name, brokerAddr=f"{name}:1",
                      connection=ord(name))  # fmt: skip
    assert table.mapped_by == {name: dict.fromkeys(("T1", "T2", f"T{name}")) for name in ("b", "c")}
    table.mappings = NeverWalked(table.mappings)
    node.close(ord("b"))
    assert table.mapped_by == {"c": dict.fromkeys(("T1", "T2", "Tc"))}
    assert table.mapping_count == 3
    node.close(ord("c"))
    assert (table.mapped_by, dict.__len__(table.mappings), table.mapping_count) == ({}, 0, 0)


def test_static_topics_when_a_broker_wrote_them_then_they_are_read_in_one_go() -> None:
    """Looked at one member at a time, 40,000 of them took more than a second."""
    infos = {f"T{n}": mapping_info(f"T{n}", leads={0: n, 5: 1}) for n in range(9)}
    body = registration_body([topic(f"T{n}") for n in range(9)], mappings=infos)
    usual = usual_body(body)
    assert usual is not None
    assert len(usual.topic_config_serialize_wrapper.topic_queue_mapping_info_map or ()) == 9
    assert read(body).mapping_infos["T7"] == MappingInfo(
        "T7", "b", "__global__", 2, 7, False, ((0, 7), (5, 1)),
    )  # fmt: skip


def _turns(reading: Any) -> int:
    return sum(1 for _ in reading)


def test_registration_when_it_has_very_many_topics_then_it_is_read_in_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether it is as usual or not."""
    monkeypatch.setattr(registration, "PART", 8)
    topics = [topic(f"T{n}") for n in range(16)]
    infos = {f"T{n}": mapping_info(f"T{n}") for n in range(16)}
    body = registration_body(topics, mappings=infos)
    assert _turns(reading(VERSION, broker_fields(), body, RouteSettings())) == 2 + 5, "by queues"
    odd_body = body.replace(b'"perm":6', b'"perm":null')
    assert usual_body(odd_body) is None
    assert _turns(reading(VERSION, broker_fields(), odd_body, RouteSettings())) == 8 + 16


def test_look_when_there_are_very_many_sets_then_others_have_their_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A scrape and a page of 10,000 sets took 75 and 105 ms; a set may leave in between."""
    monkeypatch.setattr(figures, "SETS_A_TURN", 2)
    monkeypatch.setattr(status_document, "SETS_A_TURN", 2)
    node = Node()
    for number in range(6):
        node.register(brokerName=f"b{number}", brokerAddr=f"h:{number}", connection=number)
    facts = status_document.NodeFacts("a", "v", node.now_ms, 0, 0)
    scraped = figures.figures(node.machine, node.now_ms)
    shown = status_document.document(facts, node.machine.table, {})
    next(scraped)
    next(shown)
    node.close(4)
    assert [one.broker_name for one in at_once(scraped).sets] == ["b0", "b1", "b2", "b3", "b5"]
    assert [one.broker_name for one in at_once(shown).broker_sets] == ["b0", "b1", "b2", "b3", "b5"]
    assert _turns(figures.figures(node.machine, node.now_ms)) == 2
    assert _turns(status_document.document(facts, node.machine.table, {})) == 2


def test_permissions_when_they_are_wiped_then_topics_with_the_same_queues_share_one_value() -> None:
    """40,000 topics took 60 ms."""
    node = Node()
    node.register([topic(f"T{n}") for n in range(9)] + [topic("other", perm=7)])
    node.ask(105, {"topic": "T1"})
    node.ask(205, {"brokerName": "b"})
    values = [queues["b"] for queues in node.machine.table.topics.values()]
    assert [one.perm for one in values] == [4] * 9 + [5]
    assert len(set(map(id, values))) == 2
    assert node.route("T1")["queueDatas"][0]["perm"] == 4
