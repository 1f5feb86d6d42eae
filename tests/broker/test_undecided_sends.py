"""Messages for a queue of which nobody knows yet where it goes on: who is kept, and for whom."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from rmqha.broker.send.aio.undecided_sends import (
    HELD_BYTES_MAX,
    HELD_MS,
    OVERHEAD_BYTES,
    UndecidedSends,
)
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.command import FLAG_ONEWAY, RemotingCommand
from tests.broker.test_row_of_sends import Client
from tests.store.test_room import Hands

TOPIC = "T"


def kept(held_max: int = 10) -> tuple[UndecidedSends, Hands, list[bytes]]:
    """What keeps messages, its clock, and what it has taken once more."""
    clock, taken = Hands(), list[bytes]()

    def take(connection: Any, request: RemotingCommand) -> None:
        taken.append(request.body)

    return UndecidedSends(cast(Any, clock), take, held_max), clock, taken


def hold(
    sends: UndecidedSends, client: Client, body: bytes, *, flag: int = 0, topic: str = TOPIC
) -> RemotingCommand | None:
    """One message comes."""
    request = RemotingCommand(310, flag=flag, body=body)
    return sends.hold(cast(Any, client), request, topic, 3)


def test_messages_when_their_topic_is_remapped_then_they_are_taken_in_their_order() -> None:
    sends, clock, taken = kept()
    client = Client()
    for body in (b"1", b"2"):
        assert hold(sends, client, body) is None
    assert hold(sends, client, b"other", topic="O") is None
    sends.remapped(frozenset({TOPIC}))
    assert (taken, len(sends)) == ([b"1", b"2"], 1)
    sends.remapped(frozenset({"O"}))
    assert (taken[2:], len(sends), clock.due) == ([b"other"], 0, [])


def test_messages_when_a_client_leaves_then_only_what_it_wants_no_answer_to_is_taken() -> None:
    sends, _, taken = kept()
    gone, other = Client(), Client()
    hold(sends, gone, b"asked")
    hold(sends, gone, b"told", flag=FLAG_ONEWAY)
    hold(sends, other, b"stays")
    gone.is_closing = True
    sends.closed(cast(Any, gone))
    assert len(sends) == 2
    sends.remapped(frozenset({TOPIC}))
    assert taken == [b"told", b"stays"]


def test_messages_when_nothing_is_decided_in_time_then_they_are_refused() -> None:
    """Of one that wants no answer nobody hears."""
    sends, clock, taken = kept()
    client = Client()
    hold(sends, client, b"1")
    clock.go(HELD_MS // 2)
    hold(sends, client, b"2", flag=FLAG_ONEWAY)
    clock.go(HELD_MS // 2)
    assert [one.code for one in client.answers] == [ResponseCode.SYSTEM_BUSY]
    assert len(sends) == 1
    clock.go(HELD_MS)
    assert (len(client.answers), len(sends), taken, clock.due) == (1, 0, [], [])


def test_messages_when_too_many_are_kept_then_the_next_one_is_refused() -> None:
    sends, _, _ = kept(held_max=1)
    client = SimpleNamespace()
    assert hold(sends, cast(Client, client), b"1") is None
    answer = hold(sends, cast(Client, client), b"2")
    assert answer is not None
    assert answer.code == ResponseCode.SYSTEM_BUSY


def test_messages_when_they_take_too_much_memory_then_the_next_one_is_refused() -> None:
    """A hundred thousand of them may be as large as messages are; whatever goes makes room."""
    sends, clock, _ = kept()
    large = bytes(HELD_BYTES_MAX // 2 - OVERHEAD_BYTES)
    gone, stays = Client(), Client()
    assert hold(sends, gone, large) is None
    assert hold(sends, stays, large, topic="O") is None
    for makes_room in (
        lambda: sends.closed(cast(Any, gone)),
        lambda: sends.remapped(frozenset({"O"})),
        lambda: clock.go(HELD_MS),
    ):
        answer = hold(sends, stays, b"")
        assert answer is not None
        assert answer.code == ResponseCode.SYSTEM_BUSY
        makes_room()
        assert hold(sends, stays, large, topic="P") is None
        if len(sends) == 1:
            assert hold(sends, stays, large, topic="P") is None


def test_messages_when_closed_then_none_is_kept_and_no_clock_is_looked_at() -> None:
    sends, clock, _ = kept()
    hold(sends, Client(), b"1")
    sends.close()
    assert (len(sends), clock.due) == (0, [])
