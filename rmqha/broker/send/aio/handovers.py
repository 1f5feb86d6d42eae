"""A planned switch on the side of the master: sends are kept, and passed on to the new one.

``handover.py`` decides; here requests wait, and go to the new master as they came, signature and
all. It may refuse the first ones, for it has to take up its role: who is refused there was not
written there, and is tried again until the client would have given up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from rmqha.base.errors import ConnectFailed, RmqhaError
from rmqha.broker.common.aio.ports import Handlers
from rmqha.broker.groups.aio.ports import Broker
from rmqha.broker.send import handover as core
from rmqha.broker.send.aio.undecided_sends import HELD_BYTES_MAX, OVERHEAD_BYTES
from rmqha.broker.send.handover import Facts, Handover, HandoverEffect, Phase
from rmqha.broker.send.plain_request import PlainSend
from rmqha.ha.events import Role
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import int_field, long_field
from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import TimerHandle

LOOK_MS = {Phase.WAITING: 20, Phase.PASSING_ON: 1_000}
LOOK_HOLDING_MS = 1
LOOK_OWING_MS = 20
RETRY_MS = 2
GIVE_UP_MS = 2_700
"""Clients wait 3 s for an answer."""
WAIT_MS_MAX = 300_000
HOLD_MS_DEFAULT = 1_000
KEPT_BYTES_MAX = HELD_BYTES_MAX
"""Of sends that are kept, or on their way to the new master."""
FLAG_PASSED_ON = 1 << 10
"""Of a request, beside Java's bits 0 and 1; no signature is over the flag."""

MASTER_FIELD = "masterAddr"
"""In the refusal of what was passed on: whom this broker follows."""

NOT_ELECTED = "a planned switch is under way: try again"
BUSY = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE})
NOT_ENOUGH = "in-sync replicas not enough"


class _Kept(NamedTuple):
    connection: Connection
    request: RemotingCommand
    arrived_ms: int

    @property
    def size(self) -> int:
        """What it takes in memory, about."""
        return len(self.request.body) + OVERHEAD_BYTES


class Handovers:
    """Of one broker.

    Args:
        client: the way to the new master.
        followed: its address, once this broker follows it.
        elect: asks the controllers to elect a broker; 0 takes it back. ``refused`` is called when
            they surely do not.
        send: takes a message as if it had just come.
        unanswered: sends that are written and wait.
        kept_max: sends that are kept at a time; more get SYSTEM_BUSY, and so do those for which
            ``KEPT_BYTES_MAX`` leaves no room.

    Attributes:
        holds: sends are not for the store now; looked at for each.
    """

    def __init__(
        self,
        broker: Broker,
        client: RemotingClient,
        followed: Callable[[], str | None],
        elect: Callable[[int], None],
        log: Logger,
        *,
        send: Callable[[Connection, RemotingCommand], object],
        unanswered: Callable[[], int],
        kept_max: int,
    ) -> None:
        self._broker = broker
        self._client = client
        self._followed = followed
        self._elect = elect
        self._log = log
        self._send = send
        self._unanswered = unanswered
        self._kept_max = kept_max
        self._core = Handover()
        self._kept: deque[_Kept] = deque()
        self._asker: tuple[Connection, RemotingCommand] | None = None
        self._timer: TimerHandle | None = None
        self._is_open = self._is_closed = self._drains = False
        self._begun_ms = self._passing = self._bytes = 0
        self._hint: tuple[str, str] | None = None
        self.holds = False

    def handlers(self) -> Handlers:
        """By request code."""
        return {RequestCode.HAND_OVER: self._hand_over}

    # -- who asks ------------------------------------------------------------------------------------

    def _hand_over(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand | None:
        """60041: ``brokerId`` shall be master; 0 takes the last one back.

        With ``elect`` this broker asks the controllers for it, and answers when it is done.
        """
        fields = request.ext_fields or {}
        target = long_field(fields, "brokerId", -1)
        if target < 0:
            return request.reply(ResponseCode.SYSTEM_ERROR, "brokerId is missing")
        if target == 0:
            self._carry_out(self._core.withdrawn())
            return request.reply(ResponseCode.SUCCESS)
        now_ms = self._broker.clock.now_ms()
        wait_ms = min(int_field(fields, "waitMs", 0), WAIT_MS_MAX)
        hold_ms = int_field(fields, "holdMs", HOLD_MS_DEFAULT)
        elects = fields.get("elect") == "true"
        facts = self._facts(target)
        asker, self._asker = self._asker, (connection, request)
        before = self._core.phase
        effects = self._core.asked(now_ms, target, wait_ms, hold_ms, facts, elects=elects)
        if self._core.phase is before and effects:
            self._asker = asker  # of a switch that is under way
            refusal = next(one.refusal for one in effects if isinstance(one, core.Answer))
            return request.reply(ResponseCode.SYSTEM_ERROR, refusal)
        self._begun_ms = now_ms
        self._carry_out(effects)
        return None

    def _facts(self, target: int) -> Facts:
        broker, ha_core = self._broker, self._broker.ha_core
        ha = broker.ha
        if ha_core is None or ha is None:
            return Facts(False, False, None, 0)
        ack = ha_core.members.acks().get(target)
        possible = ha_core.members.sync_state_set.possible
        return Facts(
            broker.role is Role.MASTER and ha.is_leased,
            bool(possible) and all(target in ids for ids in possible),
            None if ack is None else max(0, broker.store.max_offset - ack),
            self._unanswered(),
        )

    # -- sends ---------------------------------------------------------------------------------------

    def take(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """Keep a send, or pass it on; the answer if neither can be."""
        # A replica that follows may be elected before it knows: what it passed back would wait here
        # for an answer that waits there.
        if request.flag & FLAG_PASSED_ON:
            # Whoever passed it on may follow this broker still, and hear of another master later.
            known = self._followed()
            more = {MASTER_FIELD: known} if known else None
            return request.reply(ResponseCode.SYSTEM_BUSY, NOT_ELECTED, more)
        one = _Kept(connection, request, self._broker.clock.now_ms())
        if len(self._kept) >= self._kept_max or self._bytes + one.size > KEPT_BYTES_MAX:
            return request.reply(ResponseCode.SYSTEM_BUSY, NOT_ELECTED)
        self._bytes += one.size
        if self._is_open and not self._kept and self._passing < self._kept_max:
            self._start(one)
        else:
            self._kept.append(one)
            self._drain()
        return None

    def role_taken(self, role: Role) -> None:
        """The broker has taken up a role."""
        now_ms = self._broker.clock.now_ms()
        self._carry_out(self._core.role_taken(now_ms, is_master=role is Role.MASTER))

    def refused(self, reason: str) -> None:
        """The controllers have surely elected nobody upon this broker's question."""
        self._carry_out(self._core.refused(reason))

    def closed(self, connection: Connection) -> None:
        """A connection has ended: nobody is there to hear of what it sent, which is not written.

        What nobody wanted to hear of is.
        """
        kept, self._kept = self._kept, deque()
        for one in kept:
            if one.connection is not connection or one.request.is_oneway:
                self._kept.append(one)
            else:
                self._bytes -= one.size

    def close(self) -> None:
        """Forget all; connections are closing."""
        self._kept.clear()
        self._is_closed = True
        self._look_later()

    def __len__(self) -> int:
        """Sends that are kept."""
        return len(self._kept)

    # -- effects -------------------------------------------------------------------------------------

    def _carry_out(self, effects: list[HandoverEffect]) -> None:
        self.holds = self._core.holds
        for effect in effects:
            match effect:
                case core.Answer(refusal):
                    self._answer(refusal)
                case core.Elect(target):
                    self._log.log("info", "handover_ready", target=target, took_ms=self._took_ms)
                    self._elect(target)
                case core.TakeBack():
                    self._elect(0)
                case core.WriteHere():
                    self._over("went on here")
                    self._write_here()
                case core.PassOn():
                    self._broker.statistics.planned_switches += 1
                    self._over("passed on")
                    self._drain()
        self._look_later()

    def _answer(self, refusal: str | None) -> None:
        asker, self._asker = self._asker, None
        took_ms, elected = self._took_ms, self._core.phase is Phase.PASSING_ON
        facts = {"target": self._core.target, "took_ms": took_ms}
        if refusal is not None:
            self._log.log("warning", "handover_refused", **facts, reason=refusal)
        elif not elected:
            self._log.log("info", "handover_ready", **facts)
        if asker is None:
            return
        connection, request = asker
        code = ResponseCode.SUCCESS if refusal is None else ResponseCode.SYSTEM_ERROR
        fields = {"maxOffset": str(self._broker.store.max_offset), "tookMs": str(took_ms)}
        if elected and refusal is None:
            fields["elected"] = "true"
        connection.send(request.reply(code, refusal, fields))

    @property
    def _took_ms(self) -> int:
        return self._broker.clock.now_ms() - self._begun_ms

    def _over(self, how: str) -> None:
        self._is_open = False
        facts = {"kept": len(self._kept), "took_ms": self._took_ms}
        self._log.log("info", "handover_over", how=how, **facts)

    def _write_here(self) -> None:
        kept, self._kept = self._kept, deque()
        self._bytes -= sum(one.size for one in kept)
        for one in kept:
            if one.request.is_oneway or not one.connection.is_closing:
                self._send(one.connection, one.request)

    def _look_later(self) -> None:
        """Ask the core again, as soon as its state now wants it: each ends by a deadline."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        phase = self._core.phase
        if phase is not Phase.IDLE and not self._is_closed:
            delay_ms = LOOK_OWING_MS if self._core.owes else LOOK_MS.get(phase, LOOK_HOLDING_MS)
            self._timer = self._broker.clock.call_later(delay_ms, self._look)

    def _look(self) -> None:
        self._timer = None
        facts = self._facts(self._core.target)
        self._carry_out(self._core.looked(self._broker.clock.now_ms(), facts))
        if not self.holds:
            self._write_here()

    # -- passing on ----------------------------------------------------------------------------------

    def _drain(self) -> None:
        if self._core.phase is Phase.PASSING_ON and self._kept and not self._drains:
            self._drains = True
            self._broker.tasks.start(self._drained(), name="passing sends on")

    async def _drained(self) -> None:
        """The first one alone, until the new master takes it; then all that wait, in their order."""
        try:
            while self._kept and self._core.phase is Phase.PASSING_ON:
                one = self._kept.popleft()
                if self._is_open:
                    self._start(one)
                else:
                    await self._pass_on(one)
        finally:
            self._drains = False

    def _start(self, one: _Kept) -> None:
        work = self._pass_on(one)
        self._broker.answers.start(work, one.connection, one.request, name="passed on")

    async def _pass_on(self, one: _Kept) -> None:
        self._passing += 1
        try:
            await self._passed_on(one)
        finally:
            self._passing -= 1
            self._bytes -= one.size

    async def _passed_on(self, one: _Kept) -> None:
        clock, request = self._broker.clock, one.request
        if isinstance(request, PlainSend):
            request.general()
        until_ms = one.arrived_ms + GIVE_UP_MS
        answer = request.reply(ResponseCode.SYSTEM_BUSY, NOT_ELECTED)
        while request.is_oneway or not one.connection.is_closing:
            if not self.holds:
                self._send(one.connection, request)
                return
            found = await self._tried(request, until_ms - clock.now_ms())
            if found is not None:
                answer = request.reply(found.code, found.remark, found.ext_fields, found.body)
                if not self._is_open:
                    self._is_open = True
                    self._carry_out(self._core.taken())
                self._broker.statistics.sends_passed_on += 1
                break
            if clock.now_ms() >= until_ms:
                break
            await clock.sleep(RETRY_MS)
        if not request.is_oneway:
            one.connection.send(answer)

    async def _tried(self, request: RemotingCommand, timeout_ms: int) -> RemotingCommand | None:
        """The new master's answer; None when it has not written the message."""
        followed = self._followed()
        if followed is None:
            return None
        master = self._hint[1] if self._hint and self._hint[0] == followed else followed
        asked = RemotingCommand(
            request.code, flag=FLAG_PASSED_ON, version=request.version,
            ext_fields=request.ext_fields, body=request.body,
        )  # fmt: skip
        try:
            answer = await self._client.invoke(master, asked, max(1, timeout_ms), sign=False)
        except ConnectFailed:
            return None
        except RmqhaError as error:
            return request.reply(ResponseCode.SYSTEM_ERROR, f"the new master: {error}")
        if answer.code == ResponseCode.SYSTEM_BUSY:
            named = (answer.ext_fields or {}).get(MASTER_FIELD)
            self._hint = (followed, named) if named else self._hint
        not_enough = answer.code == ResponseCode.SYSTEM_ERROR and answer.remark == NOT_ENOUGH
        return None if answer.code in BUSY or not_enough else answer
