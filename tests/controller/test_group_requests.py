"""Leadership handed over by request: what is answered is who leads."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rmqha.controller.aio.group_requests import (
    CHANGES_MAX,
    LOOK_MS,
    TRANSFER_MS,
    GroupRequests,
)
from rmqha.controller.raft.membership import UNDER_WAY
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.runtime.aio.tasks import Tasks


class Raft:
    """A leader that gives way, and hears after a while who comes next."""

    node_id = "n0"
    is_ready_leader = True

    def __init__(self, follows: str | None, *, gives_way: bool = True, looks: int = 3) -> None:
        self.core = SimpleNamespace(leader_id=None)
        self._follows, self._gives_way, self._looks = follows, gives_way, looks
        self.time_ms = 0

    def members(self) -> object:
        ids = ("n0", "n1", "n2")
        known = {one: SimpleNamespace(id=one) for one in ids}
        return SimpleNamespace(voters=ids, members=tuple(known.values()), find=known.get)

    async def change_members(self, member: object, *, joins: bool) -> str:
        assert not joins
        return ""

    async def transfer_leadership(self, target: str | None, timeout_ms: int) -> bool:
        assert timeout_ms == TRANSFER_MS
        return self._gives_way

    def now_ms(self) -> int:
        return self.time_ms

    async def sleep(self, delay_ms: float) -> None:
        self.time_ms += int(delay_ms)
        if self.time_ms >= self._looks * LOOK_MS:
            self.core.leader_id = self._follows


class Silent:
    """A log that keeps nothing."""

    def log(self, *_: object, **__: object) -> None:
        """Say nothing."""


async def answered(raft: Raft, target: str | None) -> tuple[int, str]:
    """The answer to 60021."""
    fields = {} if target is None else {"nodeId": target}
    return await asked(raft, RequestCode.TRANSFER_CONTROLLER_LEADER, fields)


async def asked(raft: Raft, code: int, fields: dict[str, str]) -> tuple[int, str]:
    """The answer to one request."""
    answer: asyncio.Future[RemotingCommand] = asyncio.get_running_loop().create_future()
    log, tasks = cast(Any, Silent()), Tasks(cast(Any, Silent()))
    requests = GroupRequests(
        "group",
        cast(Any, raft),
        cast(Any, None),
        cast(Any, None),
        clock=cast(Any, raft),
        tasks=tasks,
        log=log,
    )
    command = RemotingCommand(code, ext_fields=fields)
    peer = SimpleNamespace(send=answer.set_result, peer="127.0.0.1:1", is_closing=False, id=1)
    requests.answer(cast(Any, peer), command)
    async with asyncio.timeout(5):
        found = await answer
    return found.code, found.remark or ""


@pytest.mark.parametrize("target", ["n2", None])
async def test_leadership_when_handed_over_then_it_is_answered_once_the_next_leader_is_known(
    target: str | None,
) -> None:
    raft = Raft("n2")
    assert await answered(raft, target) == (ResponseCode.SUCCESS, "")
    assert raft.time_ms == 3 * LOOK_MS


async def test_leadership_when_another_takes_it_then_that_is_said() -> None:
    """mqadmin said that n2 led; a busy machine had elected n1 first."""
    assert await answered(Raft("n1"), "n2") == (ResponseCode.SYSTEM_ERROR, "n1 leads, and not n2")


async def test_leadership_when_nobody_takes_it_then_that_is_said_in_time() -> None:
    raft = Raft(None)
    found = await answered(raft, "n2")
    assert found == (ResponseCode.SYSTEM_ERROR, "nobody yet leads, and not n2")
    assert raft.time_ms == TRANSFER_MS


@pytest.mark.parametrize(
    ("target", "remark"),
    [("n2", "n2 could not take over"), (None, "another one could not take over"),
     ("n7", "n7 is not among n0, n1, n2")],
)  # fmt: skip
async def test_leadership_when_it_stays_then_the_reason_is_said(
    target: str | None, remark: str
) -> None:
    raft = Raft(None, gives_way=False)
    assert await answered(raft, target) == (ResponseCode.SYSTEM_ERROR, remark)
    assert await answered(raft, "n0") == (ResponseCode.SUCCESS, "")


@pytest.mark.parametrize(
    ("node_id", "said"), [("n1", ""), ("n9", "n9 is no member: the group is n0, n1, n2")]
)
async def test_removal_when_it_is_done_then_whether_there_was_such_a_member_is_said(
    node_id: str, said: str
) -> None:
    """A success for who asks again; who mistyped the id must not stop a voter."""
    fields = {"action": "remove", "nodeId": node_id}
    assert await asked(Raft(None), RequestCode.CHANGE_CONTROLLER_MEMBERS, fields) == (0, said)


class Busy(Raft):
    """A leader whose group is being changed by others, for ever."""

    def __init__(self) -> None:
        super().__init__(None)
        self.turn = asyncio.Event()

    async def change_members(self, member: object, *, joins: bool) -> str:
        return UNDER_WAY

    async def sleep(self, delay_ms: float) -> None:
        await self.turn.wait()


async def test_asker_when_it_is_gone_then_its_request_ends_and_makes_room() -> None:
    """So many interrupted addController kept everybody out for as long as they wanted to wait."""
    raft, log = Busy(), cast(Any, Silent())
    requests = GroupRequests(
        "group", cast(Any, raft), cast(Any, None), cast(Any, None), clock=cast(Any, raft),
        tasks=Tasks(log), log=log,
    )  # fmt: skip
    told: list[RemotingCommand] = []
    fields = {"action": "remove", "nodeId": "n1", "waitMs": "600000"}
    command = RemotingCommand(RequestCode.CHANGE_CONTROLLER_MEMBERS, ext_fields=fields)
    for number in range(CHANGES_MAX + 1):
        peer = SimpleNamespace(send=told.append, peer="127.0.0.1:1", is_closing=False, id=number)
        requests.answer(cast(Any, peer), command)
        if number % 2:
            await asyncio.sleep(0)  # some have begun to wait, and the newest has not run yet
    assert [one.code for one in told] == [ResponseCode.SYSTEM_BUSY]
    told.clear()
    for number in (2, CHANGES_MAX - 1):
        requests.on_closed(number)
    for _ in range(3):
        await asyncio.sleep(0)
    peer = SimpleNamespace(send=told.append, peer="127.0.0.1:1", is_closing=False, id=99)
    for _ in range(3):
        requests.answer(cast(Any, peer), command)
    assert len(told) == 1  # two have come in, the third has not
    for number in range(100):
        requests.on_closed(number)


class Kept:
    """A log that is read."""

    def __init__(self) -> None:
        self.remarks = list[object]()

    def log(self, level: str, event: str, **facts: object) -> None:
        assert (level, event, facts["code"]) == ("warning", "group_change_asked", 2)
        self.remarks.append(facts["remark"])


@pytest.mark.parametrize("stops", [True, False])
async def test_request_when_it_ends_without_an_answer_then_the_log_says_why(*, stops: bool) -> None:
    """What an operator asked of the group is in the log, also what came to nothing."""
    raft, log = Busy(), Kept()
    tasks = Tasks(cast(Any, Silent()))
    requests = GroupRequests(
        "group", cast(Any, raft), cast(Any, None), cast(Any, None), clock=cast(Any, raft),
        tasks=tasks, log=cast(Any, log),
    )  # fmt: skip
    fields = {"action": "remove", "nodeId": "n1", "waitMs": "600000"}
    command = RemotingCommand(RequestCode.CHANGE_CONTROLLER_MEMBERS, ext_fields=fields)
    peer = SimpleNamespace(send=None, peer="127.0.0.1:1", is_closing=False, id=1)
    requests.answer(cast(Any, peer), command)
    await asyncio.sleep(0)
    if not stops:
        requests.on_closed(1)
    await tasks.close()
    assert log.remarks == ["this node stops" if stops else "nobody waits for it any more"]
