"""How soon a master looks again while a planned switch is under way: timers by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rmqha.broker.common.aio.answers import Answers
from rmqha.broker.send.aio import handovers
from rmqha.broker.send.aio.handovers import (
    LOOK_HOLDING_MS,
    LOOK_MS,
    LOOK_OWING_MS,
    NOT_ELECTED,
    NOT_ENOUGH,
    Handovers,
)
from rmqha.broker.send.aio.undecided_sends import OVERHEAD_BYTES
from rmqha.broker.send.handover import TAKEN_MS, Phase
from rmqha.ha.events import Role
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import FLAG_ONEWAY, RemotingCommand
from rmqha.runtime.aio.tasks import Tasks
from rmqha.runtime.logs import Logger


class Timers:
    """A clock whose timers fire when the test says so."""

    def __init__(self) -> None:
        self.now = 0
        self.waiting: dict[int, tuple[float, Callable[[], object]]] = {}

    def now_ms(self) -> int:
        """The test's time."""
        return self.now

    def call_later(self, delay_ms: float, callback: Callable[[], object]) -> SimpleNamespace:
        """Keep it until it is cancelled or fired."""
        key = max(self.waiting, default=0) + 1
        self.waiting[key] = (delay_ms, callback)
        return SimpleNamespace(cancel=lambda: self.waiting.pop(key, None))

    def delays_ms(self) -> list[float]:
        """Of all that wait."""
        return [delay for delay, _ in self.waiting.values()]

    async def sleep(self, delay_ms: float) -> None:
        """Time passes at once."""
        self.now += int(delay_ms)

    def fire(self) -> None:
        """The only one that waits, when it is due."""
        ((key, (delay_ms, callback)),) = self.waiting.items()
        self.now += int(delay_ms)
        del self.waiting[key]
        callback()


class Peer:
    """A connection that keeps its answers."""

    is_closing = False

    def __init__(self) -> None:
        self.answers: list[RemotingCommand] = []

    def send(self, answer: RemotingCommand) -> None:
        """Keep it."""
        self.answers.append(answer)


class Rig:
    """A master with one slave that holds all; ``unanswered`` sends wait for another."""

    def __init__(self) -> None:
        self.clock, self.unanswered, self.peer = Timers(), 0, Peer()
        self.elected: list[int] = []
        self.written: list[bytes] = []
        self.passed_on: list[bytes] = []
        self.refusals: list[tuple[int, str]] = []
        tasks = Tasks(Logger(), self._ended)
        sets = SimpleNamespace(possible=[{1, 2}])
        members = SimpleNamespace(acks=lambda: {2: 100}, sync_state_set=sets)
        self.broker = SimpleNamespace(
            clock=self.clock, role=Role.MASTER, ha=SimpleNamespace(is_leased=True),
            ha_core=SimpleNamespace(members=members), store=SimpleNamespace(max_offset=100),
            statistics=SimpleNamespace(planned_switches=0, sends_passed_on=0),
            tasks=tasks, answers=Answers(tasks, Logger()),
        )  # fmt: skip
        self.handovers = Handovers(
            cast(Any, self.broker), cast(Any, self), lambda: "10.0.0.2:10911", self.elected.append, Logger(),
            send=lambda connection, request: self.written.append(request.body), unanswered=lambda: self.unanswered, kept_max=10,
        )  # fmt: skip

    async def invoke(self, address: str, command: RemotingCommand, *_: Any, **__: Any) -> Any:
        """The new master writes what it is given, once it has refused as often as it shall."""
        assert address == self.handovers._followed()
        if self.refusals:
            return command.reply(*self.refusals.pop(0))
        self.passed_on.append(command.body)
        return command.reply(ResponseCode.SUCCESS)

    def send(self, body: bytes, flag: int = 0) -> RemotingCommand | None:
        """What a send is answered at once."""
        request = RemotingCommand(RequestCode.SEND_MESSAGE_V2, flag=flag, body=body)
        return self.handovers.take(cast(Any, self.peer), request)

    def _ended(self, error: BaseException) -> None:
        raise AssertionError from error

    def keep_two(self) -> None:
        """Keep a send and one that wants no answer; their client leaves."""
        for body, flag in ((b"asked", 0), (b"told", FLAG_ONEWAY)):
            assert self.send(body, flag) is None
        self.peer.is_closing = True
        self.handovers.closed(cast(Any, self.peer))
        assert len(self.handovers) == 1

    def ask(self, hold_ms: int, **more: str) -> RemotingCommand | None:
        """Ask for a switch to 2."""
        fields = {"brokerId": "2", "holdMs": str(hold_ms), **more}
        request = RemotingCommand(RequestCode.HAND_OVER, ext_fields=fields)
        hand_over = self.handovers.handlers()[RequestCode.HAND_OVER]
        answer = hand_over(cast(Any, self.peer), request)
        return cast("RemotingCommand | None", answer)

    def take(self, role: Role) -> None:
        """Another election."""
        self.broker.role = role
        self.handovers.role_taken(role)


def test_hold_when_this_master_passed_sends_on_a_moment_ago_then_it_looks_at_once_again() -> None:
    """Once a second is enough while sends pass on; a hold that waits so long stops all sends."""
    rig = Rig()
    rig.ask(500)
    assert rig.peer.answers[0].code == 0
    rig.take(Role.SLAVE)
    assert rig.clock.delays_ms() == [LOOK_MS[Phase.PASSING_ON]]
    rig.take(Role.MASTER)
    assert rig.clock.delays_ms() == [], "nothing to look for"
    rig.unanswered = 3
    rig.ask(500)
    assert rig.clock.delays_ms() == [LOOK_HOLDING_MS]
    rig.unanswered = 0
    rig.clock.fire()
    assert rig.peer.answers[1].code == 0


def test_hold_when_nobody_answers_then_it_ends_by_itself_and_nothing_is_looked_for() -> None:
    """One timer at a time, and none at the end."""
    rig = Rig()
    rig.unanswered = 3
    rig.ask(20)
    while rig.clock.waiting:
        assert rig.handovers.holds
        rig.clock.fire()
    assert rig.clock.now == 20
    assert "3 sends are not acknowledged" in (rig.peer.answers[0].remark or "")
    assert not rig.handovers.holds


def test_electing_when_this_master_follows_then_whoever_asked_hears_soon_that_it_was() -> None:
    """Where nobody sends: else at the next look of one that passes on, a second later."""
    rig = Rig()
    rig.ask(500, elect="true")
    assert (rig.elected, rig.peer.answers) == ([2], [])
    rig.take(Role.SLAVE)
    while not rig.peer.answers:
        assert rig.clock.delays_ms() == [LOOK_OWING_MS]
        rig.clock.fire()
    assert rig.clock.now == TAKEN_MS
    assert (rig.peer.answers[0].code, rig.peer.answers[0].ext_fields) == (
        0, {"maxOffset": "100", "tookMs": "200", "elected": "true"},
    )  # fmt: skip
    assert rig.clock.delays_ms() == [LOOK_MS[Phase.PASSING_ON]]
    assert rig.elected == [2], "there is nothing to take back"


def test_electing_when_nothing_is_heard_then_the_controllers_are_asked_no_more() -> None:
    """An answer that comes late must find nobody who asks again."""
    rig = Rig()
    rig.ask(20, elect="true")
    rig.clock.now = 20
    rig.clock.fire()
    assert rig.elected == [2, 0]
    assert rig.peer.answers[0].remark == "no election was heard of in time"
    assert not rig.handovers.holds


def test_electing_when_the_controllers_refuse_then_sends_go_on_at_once() -> None:
    """With their words."""
    rig = Rig()
    rig.ask(500, elect="true")
    rig.handovers.refused("the controllers: 2012 no")
    assert (rig.elected, rig.handovers.holds) == ([2, 0], False)
    assert rig.peer.answers[0].remark == "the controllers: 2012 no"


def test_close_when_a_switch_is_under_way_then_no_timer_is_left() -> None:
    """The broker is stopping."""
    rig = Rig()
    rig.unanswered = 3
    rig.ask(20)
    rig.handovers.close()
    assert rig.clock.delays_ms() == []


def test_hold_when_a_client_leaves_then_only_what_it_wants_no_answer_to_is_written() -> None:
    """What it wanted to hear of it sends again, elsewhere."""
    rig = Rig()
    rig.unanswered = 3
    rig.ask(500)
    rig.keep_two()
    while rig.clock.waiting:
        rig.clock.fire()
    assert rig.written == [b"told"]


async def test_sends_when_their_client_leaves_and_another_reigns_then_so_they_are_passed_on() -> (
    None
):
    """The new master writes what nobody wanted to hear of."""
    rig = Rig()
    rig.unanswered = 3
    rig.ask(500)
    rig.keep_two()
    rig.unanswered = 0
    rig.take(Role.SLAVE)
    for _ in range(5):
        await asyncio.sleep(0)
    assert (rig.passed_on, rig.written, len(rig.handovers)) == ([b"told"], [], 0)


@pytest.mark.parametrize(
    "refusal",
    [
        (ResponseCode.SYSTEM_ERROR, NOT_ENOUGH), (ResponseCode.SYSTEM_BUSY, "x"),
        (ResponseCode.SERVICE_NOT_AVAILABLE, "x"),
    ],
    ids=["too few in sync", "busy", "not serving"],
)  # fmt: skip
async def test_sends_when_the_new_master_cannot_write_yet_then_they_are_tried_again(
    refusal: tuple[int, str],
) -> None:
    """Its slaves have not come back yet: what a producer had been told of that, it took for the end."""
    rig = Rig()
    rig.ask(500)
    assert rig.send(b"one") is None
    rig.refusals = [refusal] * 3
    rig.take(Role.SLAVE)
    for _ in range(20):
        await asyncio.sleep(0)
    assert (rig.passed_on, rig.refusals) == ([b"one"], [])
    assert [answer.code for answer in rig.peer.answers] == [0, 0], "of the switch, and of the send"


async def test_sends_when_the_new_master_refuses_for_another_reason_then_its_answer_is_told() -> (
    None
):
    """A message that no master takes would be tried until the client has given up."""
    rig = Rig()
    rig.ask(500)
    rig.send(b"one")
    rig.refusals = [(ResponseCode.SYSTEM_ERROR, "another")]
    rig.take(Role.SLAVE)
    for _ in range(20):
        await asyncio.sleep(0)
    assert rig.passed_on == []
    assert [(one.code, one.remark) for one in rig.peer.answers[1:]] == [(1, "another")]


ROOM = 3 * (OVERHEAD_BYTES + 1)


@pytest.fixture
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """For three sends of one byte."""
    monkeypatch.setattr(handovers, "KEPT_BYTES_MAX", ROOM)


def full(rig: Rig) -> bool:
    """Whether one more is refused; it is kept otherwise."""
    answer = rig.send(b"x")
    assert answer is None or (answer.code, answer.remark) == (2, NOT_ELECTED)
    return answer is not None


@pytest.mark.usefixtures("little_room")
def test_sends_when_those_that_are_kept_are_large_then_the_next_ones_are_refused() -> None:
    """A hundred thousand of four MiB each would be the end of the broker."""
    rig = Rig()
    rig.unanswered = 3
    rig.ask(500)
    assert [full(rig) for _ in range(4)] == [False, False, False, True]
    assert len(rig.handovers) == 3


@pytest.mark.usefixtures("little_room")
@pytest.mark.parametrize("how", ["written here", "their client has gone", "passed on"])
async def test_sends_when_what_was_kept_has_gone_then_there_is_room_for_others(how: str) -> None:
    """Bytes that nobody gives back would refuse every send of the next switch."""
    rig = Rig()
    for _ in range(2):
        rig.unanswered = 3
        rig.ask(500)
        assert [full(rig) for _ in range(4)] == [False, False, False, True]
        if how == "written here":
            rig.handovers.refused("x")
            while rig.clock.waiting:
                rig.clock.fire()
        elif how == "their client has gone":
            rig.handovers.closed(cast(Any, rig.peer))
        else:
            rig.unanswered = 0
            rig.take(Role.SLAVE)
            assert full(rig), "what is on its way is in memory still"
            for _ in range(20):
                await asyncio.sleep(0)
            assert len(rig.passed_on) in (3, 6)
            rig.take(Role.MASTER)
        assert len(rig.handovers) == 0
    assert rig.handovers._bytes == 0
