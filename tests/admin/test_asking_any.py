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


def ask(code: RequestCode, told: Told) -> tuple[str, RemotingCommand, list[str]]:
    """Who answered, the answer, and who was asked; those that are not there are down."""

    def answer(call: Call) -> RemotingCommand:
        found = told.get(call.address, Unreachable("down"))
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


def test_refusal_when_all_say_so_then_it_is_the_last_one_s() -> None:
    with pytest.raises(Refused) as refused:
        ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {FIRST: (2, b""), SECOND: (17, b"")})
    assert (refused.value.code, refused.value.address) == (17, SECOND)


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
