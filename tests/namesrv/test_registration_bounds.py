"""How much one registration may hold, and one broker set: what is listed in one step."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from rmqha.base.errors import RemoteProtocolError
from rmqha.namesrv import compressed_body, machine, register, registration, registration_members
from rmqha.namesrv import route_table as table_module
from rmqha.namesrv.kept_answers import KeptAnswers
from rmqha.namesrv.registration import reading
from rmqha.namesrv.registration_members import SMALL_BYTES_MAX
from rmqha.namesrv.settings import RouteSettings
from rmqha.runtime.parts import at_once
from tests.namesrv.node import (
    NAME,
    SLAVE,
    VERSION,
    Node,
    broker_fields,
    mapping_info,
    registration_body,
    topic,
)
from tests.namesrv.node import compressed_body as compressed

RECORD = b"T%d 3 4 6 SINGLE_TAG"
MAX = 3


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A set has three topics, and as many static ones."""
    for module in (registration_members, register, machine):
        monkeypatch.setattr(module, "TOPICS_MAX", MAX)
    for module in (registration_members, register):
        monkeypatch.setattr(module, "INFOS_MAX", MAX)


def plain(count: int) -> bytes:
    """As brokers write it."""
    return registration_body([topic(f"T{n}") for n in range(count)])


def odd(count: int) -> bytes:
    """One that has to be looked at closely, and names no topic twice."""
    table = {f"T{n}": {"perm": None} for n in range(count)}
    return json.dumps({"topicConfigSerializeWrapper": {"topicConfigTable": table}}).encode()


def records(count: int) -> bytes:
    """The compressed form."""
    return compressed([RECORD % n for n in range(count)])


def refusal(body: bytes, **fields: object) -> str:
    """Why a registration is refused; empty when it is read."""
    try:
        at_once(reading(VERSION, broker_fields(**fields), body, RouteSettings()))
    except RemoteProtocolError as error:
        return str(error)
    return ""


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(("made", "is_compressed"), [(plain, False), (odd, False), (records, True)])
def test_topics_when_a_registration_has_more_than_may_be_then_it_is_refused_unread(
    made: Callable[[int], bytes], is_compressed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """900,000 of them kept everybody waiting for 6 s when they were listed, and 3 s when they left."""
    assert refusal(made(MAX), compressed=is_compressed) == ""
    for module in (registration, compressed_body):
        monkeypatch.setattr(module, "QueueData", lambda *_: pytest.fail("a topic was read"))
    monkeypatch.setattr(registration, "topic_of", lambda *_: pytest.fail("a topic was read"))
    assert "more than 3 topics" in refusal(made(MAX + 1), compressed=is_compressed)


def test_topics_when_a_plain_body_names_too_many_then_it_is_not_parsed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """300,000 of them took 156 ms before anybody looked at ``routesMax``."""
    monkeypatch.setattr(registration, "usual_body", lambda _: pytest.fail("it was parsed"))
    work = reading(VERSION, broker_fields(), plain(4), RouteSettings(routes_max=3))
    with pytest.raises(RemoteProtocolError, match="more than 3 topics"):
        at_once(work)


@pytest.mark.usefixtures("few")
def test_infos_when_a_registration_has_more_than_may_be_then_it_is_refused() -> None:
    """In each form."""
    for count, remark in ((MAX, ""), (MAX + 1, "more than 3 mapping infos")):
        infos = {f"T{n}": mapping_info(f"T{n}") for n in range(count)}
        body = registration_body([topic("T0")], mappings=infos)
        assert remark in refusal(body)
        assert remark in refusal(body.replace(b'"perm":6', b'"perm":null'))
        listed = [json.dumps(one).encode() for one in infos.values()]
        assert remark in refusal(compressed([], infos=listed), compressed=True)


@pytest.mark.usefixtures("few")
def test_set_when_registrations_add_up_to_more_than_may_be_then_the_next_is_refused() -> None:
    """It leaves in one step, too; what it has already may change."""
    node = Node()
    assert node.register([topic("A"), topic("B"), topic("D")]).code == 0
    answer = node.register([topic("E"), topic("F")], counter=2)
    assert (answer.code, "more than 3 topics of b" in str(answer.remark)) == (1, True)
    assert node.register([topic("A", perm=4), topic("B")], counter=3).code == 0
    assert node.perms() == {"A": 4, "B": 6, "D": 6}

    def news(name: str) -> int:
        queues = {"queueDatas": [{"brokerName": NAME, "perm": 2}]}
        return node.ask(217, {"topic": name}, json.dumps(queues).encode()).code

    assert (news("E"), news("A")) == (1, 0)
    assert node.perms() == {"A": 2, "B": 6, "D": 6}


@pytest.mark.usefixtures("few")
def test_set_when_registrations_add_up_to_too_many_static_topics_then_the_next_is_refused() -> None:
    """As for topics."""
    node, listed = Node(), [topic("A"), topic("B")]

    def say(names: str, counter: int) -> int:
        infos = {name: mapping_info(name) for name in names}
        return node.register(listed, mappings=infos, counter=counter).code

    assert [say("CDE", 1), say("F", 2), say("CDE", 3)] == [0, 1, 0]
    assert node.machine.table.mapping_count == MAX


@pytest.mark.parametrize("part", ["dataVersion", "filterServerList"])
def test_part_when_it_is_larger_than_it_can_be_then_it_is_not_read(part: str) -> None:
    """A DataVersion of 14 MiB took more than a second in one step."""
    blanks = b" " * SMALL_BYTES_MAX
    version, servers = (
        (b"{" + blanks + b"}", b"[]") if part == "dataVersion" else (b"{}", b"[" + blanks + b"]")
    )
    body = compressed([], data_version=version, filters=servers)
    assert refusal(body, compressed=True) == f"{part} is larger than {SMALL_BYTES_MAX} bytes"
    usual = registration_body([topic("A"), topic("B")])
    usual = (
        usual.replace(b'"dataVersion":{', b'"dataVersion":{' + blanks)
        if part == "dataVersion"
        else usual.replace(b'"filterServerList":[', b'"filterServerList":[' + blanks)
    )
    assert refusal(usual) == f"{part} is larger than {SMALL_BYTES_MAX} bytes"


@pytest.mark.parametrize("unit", [b"{},", b"1:1,", b"[],", b"0,"])
def test_members_when_a_body_has_more_than_may_be_then_it_is_not_parsed(
    unit: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five million objects in a member that nobody reads; a million bare keys."""
    monkeypatch.setattr(registration, "MEMBERS_MAX", 50)
    inside = unit * 52
    begin, end = (b"{", b"}") if b":" in unit else (b"[", b"]")
    body = b'{"x":' + begin + inside[:-1] + end + b"}"
    assert refusal(body) == "the registration has more than 50 members"
    assert refusal(plain(2)) == ""


def test_members_when_a_body_is_not_as_usual_then_it_may_have_fewer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A million members with names of their own took 670 ms in one step."""
    monkeypatch.setattr(registration, "ODD_MEMBERS_MAX", 10)
    assert refusal(plain(9)) == ""
    assert refusal(odd(2)) == ""
    assert "more than 10 members that have to be looked at" in refusal(odd(9))


def test_infos_when_all_together_have_very_many_queues_then_no_more_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """61 KiB that stood for 61 MiB of them took the only place for minutes."""
    monkeypatch.setattr(compressed_body, "MEMBERS_MAX", 100)
    info = b'{"bname":"b","currIdMap":{' + b",".join([b"1:1"] * 30) + b"}}"
    assert refusal(compressed([], infos=[info] * 3), compressed=True) == ""
    assert refusal(compressed([], infos=[info] * 4), compressed=True) == (
        "the registration has more than 100 members in mapping infos"
    )


def test_infos_when_they_are_large_then_others_have_their_turns_by_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thousand of 2 MiB would be read between two turns."""
    infos = [json.dumps(mapping_info(f"T{n}")).encode() for n in range(8)]
    monkeypatch.setattr(compressed_body, "INFO_BYTES_PART", 2 * len(infos[0]))
    body = compressed([], infos=infos)
    fields = broker_fields(compressed=True)
    assert sum(1 for _ in reading(VERSION, fields, body, RouteSettings())) == 4


def test_body_when_it_is_large_and_plain_then_it_waits_for_room_before_it_is_parsed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """16 MiB were parsed before anybody asked whether there is room for more."""
    body = plain(4)
    monkeypatch.setattr(registration, "PLAIN_BYTES_PART", len(body))
    assert sum(1 for _ in reading(VERSION, broker_fields(), body, RouteSettings())) == 0
    monkeypatch.setattr(registration, "PLAIN_BYTES_PART", len(body) - 1)
    with monkeypatch.context() as patch:
        patch.setattr(registration, "usual_body", lambda _: pytest.fail("it was parsed"))
        work = reading(VERSION, broker_fields(), body, RouteSettings())
        next(work)
    assert len(at_once(work).topics) == 4


@pytest.mark.parametrize("leave", ["close", "deleted"])
def test_set_when_it_comes_or_goes_then_what_it_changes_is_forgotten_once(
    leave: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Topic by topic, 100,000 took a name server 140 ms, and 104 ms when they left."""
    asked = list[bool]()
    monkeypatch.setattr(
        KeptAnswers, "forget_topic_lists",
        lambda _, *, of_clusters_only=False: asked.append(of_clusters_only),
    )  # fmt: skip
    node = Node({"deleteTopicWithBrokerRegistration": "true"})
    topics = [topic(f"T{n}") for n in range(50)]
    node.register(topics)
    node.register(topics[:40], brokerName="c", brokerAddr=SLAVE, connection=2)
    assert asked == [False, True], "the second set has no topic that is new to all"
    asked.clear()
    assert len(node.route("T5")["queueDatas"]) == 2
    if leave == "close":
        node.close(1)
    else:
        node.register([topic("T1"), topic("T2")], counter=2)
    assert asked == [False]
    assert [one["brokerName"] for one in node.route("T5")["queueDatas"]] == ["c"]
    table = node.machine.table
    left = 40 + (0 if leave == "close" else 2)
    assert (table.route_count, len(table.topics)) == (left, 40)


def test_answers_when_very_many_topics_change_at_once_then_none_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor is any that is wrong."""
    monkeypatch.setattr(table_module, "FORGOTTEN_MAX", 2)
    node, names = Node(), "ABDE"
    for counter, perm in ((1, 6), (2, 4)):
        node.register([topic(name, perm=perm) for name in names], counter=counter)
        assert len(node.machine.table.kept) == 0
        node.ask(106)
        for name in names:
            assert node.route(name)["queueDatas"][0]["perm"] == perm
    node.register([topic("A", perm=2), topic("B", perm=4)], counter=3)
    made = node.machine.table.kept.made
    assert node.route("A")["queueDatas"][0]["perm"] == 2
    assert node.route("B")["queueDatas"][0]["perm"] == 4
    assert node.machine.table.kept.made == made + 1, "the others are kept"


def test_set_when_it_has_no_topics_or_mappings_then_no_empty_table_is_left_of_it() -> None:
    """Names would fill the memory."""
    node = Node()
    node.register([], brokerName="none")
    node.register([topic("A"), topic("B")], brokerAddr=SLAVE)
    table = node.machine.table
    assert (list(table.topics_of), table.mapped_by) == ([NAME], {})


def test_topics_when_one_misses_at_the_same_version_then_only_that_one_is_listed_anew() -> None:
    """Permissions that were wiped stay so."""
    node = Node()
    node.register([topic("A"), topic("B")])
    node.ask(205, {"brokerName": NAME})
    node.ask(216, {"topic": "A"})
    node.register([topic("A"), topic("B")])
    assert node.perms() == {"A": 6, "B": 4}


def test_mappings_when_they_are_the_same_then_their_routes_stay_and_strangers_are_not_taken() -> (
    None
):
    """40,000 are sent every 30 s; one of a topic that is not listed needs another DataVersion."""
    node, topics = Node(), [topic("A"), topic("B")]
    node.register(topics, mappings={"A": mapping_info("A")})
    node.route("A")
    made = node.machine.table.kept.made
    node.register(topics, mappings={"A": mapping_info("A")}, counter=2)
    node.route("A")
    assert node.machine.table.kept.made == made
    infos = {name: mapping_info(name) for name in "AZ"}
    node.register(topics, mappings=infos, counter=2)
    assert list(node.machine.table.mappings) == ["A"]
    node.register(topics, mappings=infos, counter=3)
    assert list(node.machine.table.mappings) == ["A", "Z"]
