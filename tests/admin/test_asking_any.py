"""A request that any of several name servers may answer: one that was just started knows nothing."""

from __future__ import annotations

import pytest

from rmqha.client.exchange import Call, Refused, Unreachable, ask_any
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import RemotingCommand
from tests.admin.driving import drive
from tests.namesrv.node import Node

FIRST, SECOND, THIRD = ADDRESSES = ("n1:1", "n2:1", "n3:1")
LISTS = (
    RequestCode.GET_BROKER_CLUSTER_INFO,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
)
Told = dict[str, Node | Exception | tuple[int, bytes]]
MISSING, NOT_READY, DISABLED = (
    Refused("", 17, "No topic route info"), Refused("", 1, "name server not ready"),
    Refused("", 1, "disable"),
)  # fmt: skip
BUSY = Refused("", 2, "[OVERLOAD]system busy")


def ask(code: RequestCode, told: Told) -> tuple[str, RemotingCommand, list[str]]:
    """Who answered, the answer, and who was asked; those that are not there are down."""

    def answer(call: Call) -> RemotingCommand:
        found = told.get(call.address, Unreachable("down"))
        if isinstance(found, Refused):
            return call.command.reply(found.code, found.remark)
        if isinstance(found, Exception):
            raise found
        if isinstance(found, tuple):
            return call.command.reply(found[0], "a remark", body=found[1])
        reply = found.ask(call.command.code, call.command.ext_fields, call.command.body)
        return call.command.reply(reply.code, reply.remark, reply.ext_fields, reply.body)

    fields = {"topic": "A"} if code == RequestCode.GET_ROUTEINFO_BY_TOPIC else {}
    (address, found), calls = drive(ask_any(ADDRESSES, code, **fields), answer)
    return address, found, [call.address for call in calls]


def whole() -> Node:
    """A name server to which a broker has registered."""
    node = Node()
    node.register()
    return node


def waiting() -> Node:
    """One that was just started with ``needWaitForService``."""
    return Node({"needWaitForService": "true"}, started_ms=Node().now_ms)


@pytest.mark.parametrize("code", [RequestCode.GET_ROUTEINFO_BY_TOPIC, *LISTS])
def test_name_server_when_it_has_just_started_then_the_next_one_is_asked(code: RequestCode) -> None:
    """A client that asked the new one first lost its topics, or its masters."""
    for new in (Node(), waiting(), (2, b"")):
        address, answer, asked = ask(code, {FIRST: new, SECOND: whole(), THIRD: whole()})
        assert (address, answer.code) == (SECOND, 0)
        assert b"broker" in answer.body or b'"A"' in answer.body
        assert asked == [FIRST, SECOND]


@pytest.mark.parametrize("code", LISTS)
def test_list_when_it_is_empty_everywhere_then_it_is_the_answer(code: RequestCode) -> None:
    """Nothing is there yet: that is no failure; a server that is down changes nothing."""
    for told in ({FIRST: Node(), SECOND: Node()}, {SECOND: Node()}, {FIRST: Node()}):
        address, answer, asked = ask(code, {**told})
        assert (address, answer.code) == (max(told), 0)
        assert asked == [*ADDRESSES]


def test_list_when_one_is_empty_and_one_is_not_ready_then_nobody_knows() -> None:
    """Who asks may ask again; an empty list would say that nothing is there."""
    for told in ({FIRST: (1, b""), SECOND: Node()}, {FIRST: Node(), SECOND: (1, b"")}):
        with pytest.raises(Refused) as refused:
            ask(RequestCode.GET_BROKER_CLUSTER_INFO, {**told})
        assert refused.value.code == 1


@pytest.mark.parametrize("code", [1, 2, 17])
def test_refusal_when_all_say_so_then_it_is_the_first_one_s(code: int) -> None:
    with pytest.raises(Refused) as refused:
        ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {SECOND: (code, b""), THIRD: (code, b"")})
    assert (refused.value.code, refused.value.address) == (code, SECOND)


@pytest.mark.parametrize(
    ("first", "second", "counts"),
    [
        (MISSING, NOT_READY, MISSING),
        (MISSING, BUSY, MISSING),
        (MISSING, DISABLED, MISSING),
        (NOT_READY, DISABLED, NOT_READY),
        (BUSY, DISABLED, BUSY),
    ],
)
def test_refusal_when_they_differ_then_the_order_of_name_servers_plays_no_part(
    first: Refused, second: Refused, counts: Refused
) -> None:
    """A client waited a minute for one that never became ready, though another had told all."""
    for told in ({FIRST: first, SECOND: second}, {FIRST: second, THIRD: first}):
        with pytest.raises(Refused) as refused:
            ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {**told})
        assert (refused.value.code, refused.value.remark) == (counts.code, counts.remark)


@pytest.mark.parametrize(
    ("refused", "is_for_now"),
    [(MISSING, False), (NOT_READY, True), (DISABLED, False), (BUSY, True)],
)
def test_refusal_when_it_may_soon_be_another_answer_then_it_says_so(
    refused: Refused, is_for_now: bool
) -> None:
    """``disable`` stays: 1,201 requests in a minute changed nothing about it."""
    assert refused.is_for_now is is_for_now


def test_refusal_of_one_that_was_just_started_is_for_now() -> None:
    """The words are those that ours says, and Java's."""
    said = waiting().ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "A"})
    assert Refused("", said.code, said.remark or "").is_for_now


@pytest.mark.parametrize(
    ("told", "timeouts"),
    [
        ({FIRST: MISSING}, [3_000, 1_000, 1_000]),
        ({SECOND: MISSING}, [3_000, 3_000, 1_000]),
        ({FIRST: NOT_READY, SECOND: MISSING}, [3_000, 3_000, 1_000]),
        ({FIRST: NOT_READY, SECOND: BUSY}, [3_000] * 3),
    ],
)
def test_topic_when_one_says_that_it_is_nowhere_then_dead_ones_are_not_waited_for_long(
    told: dict[str, Refused], timeouts: list[int]
) -> None:
    """Each cost three seconds, of each look for a topic that there is not."""

    def answer(call: Call) -> RemotingCommand:
        found = told.get(call.address)
        if found is None:
            raise Unreachable("down")
        return call.command.reply(found.code, found.remark)

    calls: list[Call] = []
    work = ask_any(ADDRESSES, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="A")
    with pytest.raises(Refused):
        drive(work, lambda call: (calls.append(call), answer(call))[1])
    assert [call.timeout_ms for call in calls] == timeouts


def test_timeout_when_it_is_shorter_then_it_stays() -> None:
    calls: list[Call] = []

    def answer(call: Call) -> RemotingCommand:
        calls.append(call)
        return call.command.reply(17, "No topic route info")

    with pytest.raises(Refused):
        drive(ask_any(ADDRESSES, RequestCode.GET_ROUTEINFO_BY_TOPIC, 500, topic="A"), answer)
    assert [call.timeout_ms for call in calls] == [500] * 3


def test_refusal_when_another_would_say_the_same_then_nobody_else_is_asked() -> None:
    """A user who may not, may not there either."""
    with pytest.raises(Refused) as refused:
        ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {FIRST: (16, b""), SECOND: whole()})
    assert (refused.value.code, refused.value.address) == (16, FIRST)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"x" * 300])
def test_answer_when_it_is_no_list_then_who_asks_says_what_is_wrong(body: bytes) -> None:
    """It is the answer of one that is no name server, and no empty one."""
    told: Told = {FIRST: (0, body), SECOND: whole()}
    assert ask(RequestCode.GET_BROKER_CLUSTER_INFO, told)[0] == FIRST


def test_answer_when_others_are_short_then_they_are_answers() -> None:
    """A request that asks for no list is answered by a few bytes."""
    told: Told = {FIRST: (0, b"{}"), SECOND: whole()}
    assert ask(RequestCode.CONTROLLER_GET_METADATA_INFO, told)[0] == FIRST
