"""Requests about the controllers' own group: who is in it, who leads, and how each node sees things.

Codes of our own: 60020 changes the members, 60021 hands leadership over, 60022 shows one node's
view. All but the last are for the leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping

from rmqha.base.errors import ConfigInvalid
from rmqha.controller.aio.long_answers import LongAnswers
from rmqha.controller.aio.raft_node import RaftNode
from rmqha.controller.aio.replies import tell
from rmqha.controller.machine import ControllerMachine
from rmqha.controller.metadata.decide import NOT_LEADER
from rmqha.controller.metadata.decision import Decision
from rmqha.controller.metadata.sync_state_data import TOO_LARGE
from rmqha.controller.raft.members import Member
from rmqha.controller.raft.membership import NOT_LEADER as NOT_OUR_GROUP
from rmqha.controller.raft.membership import UNDER_WAY
from rmqha.controller.settings import is_node_id
from rmqha.controller.view import controller_view, prepare
from rmqha.remoting.address import parse_address
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.runtime.aio.tasks import Tasks
from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import Clock

CODES = frozenset(
    {
        int(RequestCode.CHANGE_CONTROLLER_MEMBERS),
        int(RequestCode.TRANSFER_CONTROLLER_LEADER),
        int(RequestCode.GET_CONTROLLER_VIEW),
    }
)
TRANSFER_MS = 2_000
WAIT_MS_MAX = 600_000
LOOK_MS = 20
CHANGES_MAX = 8
"""So many requests may wait for their change at a time."""
TOLD_FIELDS = frozenset({"action", "nodeId", "address", "waitMs"})
TOLD_LENGTH_MAX = 200


class GroupRequests:
    """Answers them for one node.

    Args:
        group: the group's name.
        raft, machine: the node.
        long: answers what takes its time.
        tasks: what waits is started here.
    """

    def __init__(
        self,
        group: str,
        raft: RaftNode,
        machine: ControllerMachine,
        long: LongAnswers,
        *,
        clock: Clock,
        tasks: Tasks,
        log: Logger,
    ) -> None:
        self._group = group
        self._raft = raft
        self._machine = machine
        self._long = long
        self._clock = clock
        self._tasks = tasks
        self._log = log
        self._waiting: dict[asyncio.Task[None], int] = {}

    def on_closed(self, connection_id: int) -> None:
        """Whoever asked over this connection is gone, and makes room for others.

        What the group has begun goes on; what it has not is not begun.
        """
        for task, asker in list(self._waiting.items()):
            if asker == connection_id:
                del self._waiting[task]
                task.cancel()

    def answer(self, connection: Connection, command: RemotingCommand) -> None:
        """Answer one of :data:`CODES`, now or when it is done."""
        if command.code == RequestCode.GET_CONTROLLER_VIEW:
            self._long.add(connection, command, self._view())
        elif not self._raft.is_ready_leader:
            tell(connection, command, command.reply(NOT_LEADER.code, NOT_LEADER.remark))
        elif len(self._waiting) >= CHANGES_MAX:
            tell(connection, command, command.reply(ResponseCode.SYSTEM_BUSY, UNDER_WAY))
        else:
            task = self._tasks.start(self._later(connection, command), name="group request")
            self._waiting[task] = connection.id
            task.add_done_callback(lambda ended: self._waiting.pop(ended, None))

    async def _later(self, connection: Connection, command: RemotingCommand) -> None:
        fields = command.ext_fields or {}
        try:
            if command.code == RequestCode.TRANSFER_CONTROLLER_LEADER:
                code, remark = await self._transfer(fields)
            else:
                code, remark = await self._change(fields)
        except asyncio.CancelledError:
            is_asked = asyncio.current_task() in self._waiting
            remark = "this node stops" if is_asked else "nobody waits for it any more"
            self._say(connection, command, ResponseCode.SYSTEM_BUSY, remark)
            raise
        self._say(connection, command, code, remark)
        if not connection.is_closing:
            tell(connection, command, command.reply(code, remark or None))

    def _say(
        self, connection: Connection, command: RemotingCommand, code: ResponseCode, remark: str
    ) -> None:
        self._log.log(
            "warning", "group_change_asked", address=connection.peer,
            asked=told_fields(command.ext_fields or {}), request=command.code, code=int(code),
            remark=remark,
        )  # fmt: skip

    # -- members -----------------------------------------------------------------------------

    async def _change(self, fields: Mapping[str, str]) -> tuple[ResponseCode, str]:
        """Let a node join, and wait until it votes; or remove one."""
        joins = fields.get("action") == "add"
        try:
            member = _member(fields, joins=joins)
            wait_ms = min(WAIT_MS_MAX, max(0, int(fields.get("waitMs", "0"))))
        except (ConfigInvalid, ValueError) as error:
            return ResponseCode.SYSTEM_ERROR, str(error)
        end_ms, before = self._clock.now_ms() + wait_ms, self._raft.members()
        while (reason := await self._raft.change_members(member, joins=joins)) == UNDER_WAY:
            if self._clock.now_ms() >= end_ms:
                return ResponseCode.SYSTEM_BUSY, reason
            await self._clock.sleep(LOOK_MS)
        if reason == NOT_OUR_GROUP:
            return ResponseCode.CONTROLLER_NOT_LEADER, reason
        if reason:
            return ResponseCode.SYSTEM_ERROR, reason
        if not joins and before.find(member.id) is None:
            # Done already, for who asks again; but a slip of the pen must not end a voter's process.
            ids = ", ".join(one.id for one in before.members)
            return ResponseCode.SUCCESS, f"{member.id} is no member: the group is {ids}"
        while joins and member.id not in self._raft.members().voters:
            if self._clock.now_ms() >= end_ms or not self._raft.leads():
                return ResponseCode.SUCCESS, "it joins, and votes when it has caught up"
            await self._clock.sleep(LOOK_MS)
        return ResponseCode.SUCCESS, ""

    async def _transfer(self, fields: Mapping[str, str]) -> tuple[ResponseCode, str]:
        target = fields.get("nodeId") or None
        voters = self._raft.members().voters
        if target == self._raft.node_id:
            return ResponseCode.SUCCESS, ""
        if target is not None and target not in voters:
            return ResponseCode.SYSTEM_ERROR, f"{target} is not among {', '.join(voters)}"
        if len(voters) == 1:
            return ResponseCode.SYSTEM_ERROR, "there is no other member to lead"
        if not await self._raft.transfer_leadership(target, TRANSFER_MS):
            return ResponseCode.SYSTEM_ERROR, f"{target or 'another one'} could not take over"
        leader = await self._leader()
        if target is None or leader == target:
            return ResponseCode.SUCCESS, ""
        # It may have lost the leadership to somebody else meanwhile: an election, a lost message.
        return ResponseCode.SYSTEM_ERROR, f"{leader or 'nobody yet'} leads, and not {target}"

    async def _leader(self) -> str | None:
        """Who leads, once this node has heard of it."""
        end_ms = self._clock.now_ms() + TRANSFER_MS
        core = self._raft.core
        while core is not None and core.leader_id is None and self._clock.now_ms() < end_ms:
            await self._clock.sleep(LOOK_MS)
        return None if core is None else core.leader_id

    def _view(self) -> Generator[None, None, Decision | list[bytes]]:
        sets = self._machine.state.sets
        if not (yield from prepare(sets)):
            return TOO_LARGE
        core = self._raft.core
        if core is None:
            return Decision(ResponseCode.SYSTEM_BUSY, "this node reads its store")
        return controller_view(
            self._group, core.node, core.leader_id, self._raft.applied_index, sets
        )


def told_fields(fields: Mapping[str, str]) -> dict[str, str]:
    """What the log gets of a request: strangers may write anything into it, and much of it."""
    return {key: value[:TOLD_LENGTH_MAX] for key, value in fields.items() if key in TOLD_FIELDS}


def _member(fields: Mapping[str, str], *, joins: bool) -> Member:
    """The node that a request names.

    Raises:
        ConfigInvalid: its id or address cannot be used.
    """
    node_id = fields.get("nodeId", "")
    if fields.get("action") not in ("add", "remove") or not node_id:
        raise ConfigInvalid("action add or remove, and nodeId, must be given")
    if not joins:
        return Member(node_id, "", 0)
    if not is_node_id(node_id):
        raise ConfigInvalid(f"{node_id!r} is no id of letters, digits, dots and underscores")
    return Member(node_id, *parse_address(fields.get("address", "")))
