"""The row in which messages wait for room: who is next, for how much room is made, who is sent away."""

from __future__ import annotations

import asyncio
import itertools
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rmqha.base.errors import DiskFailed
from rmqha.broker.common.aio.answers import Answers
from rmqha.broker.send.aio import roomy_sends
from rmqha.broker.send.aio.roomy_sends import (
    AT_ONCE_BYTES,
    AT_ONCE_MAX,
    BUSY,
    ROOM_BYTES_MAX,
    ROOM_BYTES_MIN,
    STORED_BYTES,
    RoomySends,
)
from rmqha.broker.send.aio.undecided_sends import HELD_MS, OVERHEAD_BYTES
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.command import FLAG_ONEWAY, RemotingCommand
from rmqha.runtime.aio.tasks import Tasks
from rmqha.runtime.logs import Logger
from rmqha.store.aio.room import Room
from tests.store.test_room import Hands


class Client:
    """A producer's connection."""

    def __init__(self) -> None:
        self.is_closing = False
        self.answers: list[RemotingCommand] = []

    def send(self, answer: RemotingCommand) -> None:
        """What the broker answers."""
        self.answers.append(answer)

    def answer(self, request: RemotingCommand, answer: RemotingCommand) -> None:
        """The same, of one request."""
        assert request.opaque == answer.opaque
        self.answers.append(answer)


class Side:
    """A row, and whoever sends."""

    def __init__(self, held_max: int = 100) -> None:
        self.clock, self.is_short = Hands(), True
        self.on_changed: Any = None
        self.left = 1 << 30
        self.waited = 0
        self.made: list[int] = []
        self.taken_before: list[int] = []
        self.making: list[asyncio.Future[None]] = []
        self.taken: list[bytes] = []
        self.client = Client()
        self.ended_by: list[BaseException] = []
        tasks = Tasks(Logger(), self.ended_by.append)
        broker = SimpleNamespace(
            clock=self.clock, tasks=tasks, answers=Answers(tasks, Logger()),
            store=SimpleNamespace(room=self),
        )  # fmt: skip
        self.row = RoomySends(cast(Any, broker), held_max)
        self.handler: Any = self.send
        self._turn = asyncio.Lock()

    stretch = Room.stretch

    async def make(self, length: int) -> int:
        """As :class:`Room`, and as long as the test wants."""
        self.made.append(length)
        self.taken_before.append(len(self.taken))
        self.making.append(asyncio.get_running_loop().create_future())
        await self.making[-1]
        return min(length, self.left)

    def send(self, connection: Any, request: RemotingCommand) -> RemotingCommand | None:
        """As the broker takes a message."""
        if self.row.holds:
            return self.row.take(connection, request, self.handler)
        self.taken.append(request.body)
        return None

    def sends(self, *bodies: bytes, by: Client | None = None) -> None:
        """A producer sends."""
        for body in bodies:
            client = by or self.client
            answer = self.send(client, RemotingCommand(310, opaque=len(self.taken), body=body))
            if answer is not None:
                client.send(answer)

    async def room(self) -> None:
        """The room that was asked for is there; everybody has his turn."""
        self.making[-1].set_result(None)
        await turns()


async def turns(count: int = 10) -> None:
    """All that can go on does."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_row_when_room_is_there_then_nobody_overtakes() -> None:
    """Neither who comes while others stand in it, nor who comes while these have their turn."""
    side = Side()
    side.sends(b"1", b"2")
    await turns()
    side.sends(b"3")
    side.making[-1].set_result(None)
    while not side.taken:
        await turns(1)
    side.sends(b"4")
    assert side.taken == [b"1"]
    await turns()
    while len(side.taken) < 4:
        await side.room()
    side.is_short = False
    side.on_changed()
    side.sends(b"5")
    assert side.taken == [b"1", b"2", b"3", b"4", b"5"]


async def test_row_when_no_write_waits_any_more_then_nobody_overtakes_those_that_stand_in_it() -> (
    None
):
    """It is told of room by the disk, before any that stands in it has had a turn."""
    side = Side()
    side.sends(b"1", b"2")
    side.is_short = False
    side.on_changed()
    side.sends(b"3")
    assert side.taken == []
    await turns()
    assert side.taken == [b"1", b"2", b"3"]


async def test_row_when_room_is_made_then_behind_those_whose_room_was_made_before() -> None:
    """Room begins at the log's end: made before they are written, it is theirs once more."""
    side = Side()
    large = bytes(ROOM_BYTES_MAX // 2)
    side.sends(large, large, large)
    await turns()
    while len(side.taken) < 3:
        await side.room()
    assert len(side.made) == 3
    assert side.taken_before == [0, 1, 2]


async def test_row_when_it_is_empty_and_room_is_short_then_the_next_one_waits_again() -> None:
    side = Side()
    side.sends(b"1")
    await turns()
    await side.room()
    assert side.taken == [b"1"]
    side.sends(b"2")
    await turns()
    assert (side.taken, len(side.making)) == ([b"1"], 2)


async def test_row_when_its_client_leaves_as_its_turn_comes_then_nothing_is_written() -> None:
    side, other = Side(), Client()
    side.sends(b"1")
    side.sends(b"2", by=other)
    await turns()
    side.client.is_closing = True
    await side.room()
    assert side.taken == [b"2"]


async def test_row_when_a_client_leaves_then_the_others_stay() -> None:
    side, other = Side(), Client()
    side.sends(b"1")
    side.sends(b"2", by=other)
    side.row.closed(cast(Any, side.client))
    assert len(side.row) == 1
    await turns()
    await side.room()
    assert side.taken == [b"2"]


async def test_row_when_a_client_leaves_then_what_it_wants_no_answer_to_is_written() -> None:
    """A producer that commits and ends: the next question whether it has would find nobody."""
    side = Side()
    end = RemotingCommand(37, flag=FLAG_ONEWAY, body=b"commit")
    side.sends(b"1")
    assert side.row.take(cast(Any, side.client), end, side.handler) is None
    side.client.is_closing = True
    side.row.closed(cast(Any, side.client))
    assert len(side.row) == 1
    await turns()
    await side.room()
    assert side.taken == [b"commit"]


@pytest.mark.parametrize("how", ["taken", "left", "sent away"])
async def test_row_when_it_was_full_then_whoever_goes_makes_place(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(roomy_sends, "HELD_BYTES_MAX", 2 * (OVERHEAD_BYTES + 1))
    side, other = Side(), Client()
    for _ in range(3):
        side.sends(b"1", b"2")
        side.sends(b"3", by=other)
        assert other.answers.pop().code == ResponseCode.SYSTEM_BUSY
        await turns()
        if how == "taken":
            await side.room()
        elif how == "left":
            side.row.closed(cast(Any, side.client))
        else:
            side.clock.go(HELD_MS)
        assert len(side.row) == 0
        if how != "taken":
            await side.room()


async def test_row_when_each_has_waited_for_too_long_then_each_is_sent_away_in_its_time() -> None:
    side = Side()
    side.sends(b"1")
    side.clock.go(500)
    side.sends(b"2")
    side.clock.go(HELD_MS - 500)
    assert [one.remark for one in side.client.answers] == [BUSY]
    side.clock.go(499)
    assert len(side.client.answers) == 1
    side.clock.go(1)
    assert [one.remark for one in side.client.answers] == [BUSY, BUSY]


async def test_row_when_room_is_made_then_for_as_many_as_fit() -> None:
    """Room for each alone would cost a thread's work for each."""
    side = Side()
    body, small = bytes(ROOM_BYTES_MAX // 3 - OVERHEAD_BYTES), bytes(ROOM_BYTES_MIN // 2)
    side.sends(small)
    await turns()
    assert side.made == [ROOM_BYTES_MIN]
    side.sends(body, body, body, body)
    await side.room()
    each = len(body) + OVERHEAD_BYTES
    assert side.taken == [small]
    assert side.made[1:] == [3 * each]
    await side.room()
    assert len(side.taken) == 4
    assert side.made[2:] == [ROOM_BYTES_MIN]
    await side.room()
    assert len(side.taken) == 5


async def test_row_when_a_message_is_larger_than_room_is_made_at_a_time_then_it_is_taken_alone() -> (
    None
):
    side = Side()
    large = bytes(ROOM_BYTES_MAX)
    side.sends(large, b"small")
    await turns()
    assert side.made == [len(large) + OVERHEAD_BYTES]
    await side.room()
    assert side.taken == [large]
    await side.room()
    assert side.taken == [large, b"small"]


async def test_row_when_the_file_has_gone_then_whoever_writes_learns_why() -> None:
    side = Side()
    side.sends(b"1", bytes(ROOM_BYTES_MIN))
    await turns()
    side.making[-1].set_exception(DiskFailed("closed"))
    await turns()
    assert len(side.taken) == 2


async def test_row_when_closed_then_nobody_waits_and_no_clock_is_looked_at() -> None:
    side = Side()
    side.sends(b"1")
    side.row.close()
    assert (len(side.row), side.clock.due) == (0, [])


@pytest.mark.parametrize("how", ["left", "left in its turn", "sent away"])
async def test_row_when_its_last_one_goes_and_no_write_waits_then_the_next_one_is_taken(
    how: str,
) -> None:
    side, other = Side(), Client()
    side.sends(b"1", by=other)
    await turns()
    side.is_short = False
    side.on_changed()
    if how == "left":
        side.row.closed(cast(Any, other))
    elif how == "sent away":
        side.clock.go(HELD_MS)
    else:
        other.is_closing = True
        await side.room()
    side.sends(b"2")
    assert side.taken == [b"2"]


async def test_row_when_the_file_ends_then_one_begins_the_next_and_room_is_made_there() -> None:
    """Whoever followed in the same turn would write where no room was made."""
    side = Side()
    side.sends(b"1", b"2", b"3", b"4")
    await turns()
    side.left = 2 * (OVERHEAD_BYTES + 1)
    await side.room()
    assert side.taken == [b"1", b"2"]
    side.left = 10
    await side.room()
    assert side.taken == [b"1", b"2", b"3"]
    side.left = 1 << 30
    await side.room()
    assert side.taken == [b"1", b"2", b"3", b"4"]


async def test_row_when_one_waits_all_the_same_then_room_is_made_anew_for_those_behind_it() -> None:
    """The disk took the pages between their making and the write: each of them would wait."""
    side = Side()
    taken = side.send

    def waits(connection: Any, request: RemotingCommand) -> None:
        taken(connection, request)
        side.waited += request.body == b"2"

    side.handler = waits
    side.sends(b"1", b"2", b"3", b"4")
    await turns()
    await side.room()
    assert (side.taken, len(side.made)) == ([b"1", b"2"], 2)
    await side.room()
    assert side.taken == [b"1", b"2", b"3", b"4"]


async def test_row_while_those_have_their_turn_for_whom_there_is_room_then_so_have_others() -> None:
    """A row of a thousand messages is no longer than one of them."""
    side = Side()
    side.sends(*(b"%d" % number for number in range(20)))
    await turns()
    side.making[-1].set_result(None)
    seen = []
    while len(side.taken) < 20:
        await turns(1)
        seen.append(len(side.taken))
    assert seen == [*range(seen[0], 21)]


async def test_row_when_a_message_fails_then_that_is_its_answer_and_the_others_are_taken() -> None:
    """What nobody thought of is one sender's trouble."""
    side = Side()
    taken = side.send

    def fails(connection: Any, request: RemotingCommand) -> None:
        if request.body == b"1":
            raise ValueError("odd")
        taken(connection, request)

    side.handler = fails
    side.sends(b"1", b"2")
    await turns()
    await side.room()
    assert [(one.code, one.remark) for one in side.client.answers] == [(1, "odd")]
    assert side.taken == [b"2"]


async def test_row_when_the_disk_fails_in_a_turn_then_that_is_the_broker_s_trouble() -> None:
    """It ends; nobody is told that his message is not there."""
    side = Side()

    def fails(connection: Any, request: RemotingCommand) -> None:
        raise DiskFailed("gone")

    side.handler = fails
    side.sends(b"1")
    await turns()
    await side.room()
    assert [str(one) for one in side.ended_by] == ["gone"]
    assert side.client.answers == []


async def test_row_when_a_request_says_where_its_message_is_then_it_stands_behind_the_others() -> (
    None
):
    """It writes as much as a send does; what it is answered comes in its turn."""
    side = Side()

    def again(connection: Any, request: RemotingCommand) -> RemotingCommand:
        side.taken.append(b"again")
        return request.reply(ResponseCode.SYSTEM_ERROR, "not there")

    handler = side.row.behind(again)
    request = RemotingCommand(36, opaque=7)
    side.sends(b"1")
    assert handler(cast(Any, side.client), request) is None
    side.sends(b"2")
    await turns()
    while len(side.taken) < 3:
        await side.room()
    assert side.taken == [b"1", b"again", b"2"]
    assert [(one.opaque, one.remark) for one in side.client.answers] == [(7, "not there")]
    side.is_short = False
    side.on_changed()
    answer = handler(cast(Any, side.client), request)
    assert answer is not None
    assert answer.remark == "not there"


async def test_row_when_messages_are_written_again_then_room_is_made_for_some_at_a_time() -> None:
    """How large they are is not known before they are looked at."""
    side = Side()
    handler = side.row.behind(lambda *_: side.taken.append(b"again"))
    for _ in range(2 * ROOM_BYTES_MAX // STORED_BYTES):
        assert handler(cast(Any, side.client), RemotingCommand(36)) is None
    await turns(100)
    side.making[-1].set_result(None)
    await turns(100)
    assert len(side.taken) == ROOM_BYTES_MAX // STORED_BYTES


async def test_row_when_nobody_waits_for_an_answer_then_none_is_sent() -> None:
    side = Side()
    handler = side.row.behind(lambda _, request: request.reply(1, "no"))
    request = RemotingCommand(37, flag=FLAG_ONEWAY)
    assert handler(cast(Any, side.client), request) is None
    await turns()
    await side.room()
    assert (side.client.answers, len(side.row)) == ([], 0)


@pytest.mark.parametrize("count", [5, AT_ONCE_MAX, 10 * AT_ONCE_MAX])
@pytest.mark.parametrize("size", [1, AT_ONCE_BYTES // AT_ONCE_MAX])
async def test_row_when_no_write_waits_any_more_then_it_ends_though_each_sends_again(
    count: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It went on for ever: whoever was answered came back before the last one had been taken."""
    monkeypatch.setattr(roomy_sends, "HELD_BYTES_MAX", 1 << 30)
    side = Side(held_max=2_000)
    take, body = side.send, bytes(size)

    def again(connection: Any, request: RemotingCommand) -> RemotingCommand | None:
        found = take(connection, request)
        asyncio.get_running_loop().call_soon(side.sends, body)
        return found

    side.handler = again
    side.sends(*[body] * count)
    await turns()
    side.is_short = False
    side.on_changed()
    await side.room()
    assert (side.row.holds, len(side.row)) == (False, 0)
    assert len(side.making) == 1


async def test_row_when_no_write_waits_any_more_then_others_have_their_turns_all_the_same() -> None:
    side = Side(held_max=1_000)
    side.sends(*[b"first"] * (3 * AT_ONCE_MAX))
    await turns()
    side.is_short = False
    side.on_changed()
    side.making[-1].set_result(None)
    seen = [0]
    while len(side.row):
        await turns(1)
        seen.append(len(side.taken))
    steps = {after - before for before, after in itertools.pairwise(seen)}
    assert steps - {0} == {AT_ONCE_MAX, 2 * AT_ONCE_MAX}
    assert side.taken == [b"first"] * (3 * AT_ONCE_MAX)


async def test_row_when_a_write_waits_once_more_then_the_rest_stands_in_it_again() -> None:
    side = Side()
    taken = side.send

    def waits(connection: Any, request: RemotingCommand) -> None:
        taken(connection, request)
        if request.body == b"5":
            side.is_short, side.waited = True, side.waited + 1

    side.handler = waits
    side.left = 1
    side.sends(*(b"%d" % number for number in range(10)))
    await turns()
    side.is_short = False
    side.on_changed()
    await side.room()
    assert side.taken == [b"%d" % number for number in range(6)]
    assert len(side.making) == 2


async def test_row_when_writes_are_trusted_once_more_then_it_begins_with_few_again() -> None:
    side = Side(held_max=2_000)
    taken = side.send

    def waits(connection: Any, request: RemotingCommand) -> None:
        taken(connection, request)
        if len(side.taken) == 2 * AT_ONCE_MAX:
            side.is_short, side.waited = True, side.waited + 1

    side.handler = waits
    side.left = 1
    side.sends(*[b""] * (6 * AT_ONCE_MAX))
    await turns()
    side.is_short = False
    side.making[-1].set_result(None)
    while len(side.making) == 1:
        await turns(1)
    assert len(side.taken) == 2 * AT_ONCE_MAX
    side.is_short = False
    side.making[-1].set_result(None)
    while len(side.taken) == 2 * AT_ONCE_MAX:
        await turns(1)
    assert len(side.taken) == 3 * AT_ONCE_MAX
