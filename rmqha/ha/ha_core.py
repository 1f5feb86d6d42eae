"""The whole of a replica's AutoSwitch HA as one machine: role, sessions, sets, offsets, waits.

Begin with ``role_table.py``: the roles, what leads from one to the next, and what replication
promises. ``role.py`` has each change as a plan, ``master_session`` and ``slave_session`` a
connection's two ends, ``sync_state_set`` who is in sync, ``epochs`` where two logs part.

Source: RIP-44; AutoSwitchHAService of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

from collections import deque
from typing import assert_never

from rmqha.base.machine import Ticked
from rmqha.ha import events as ev
from rmqha.ha import role as roles
from rmqha.ha.epochs import EpochCache
from rmqha.ha.events import Effect, Event, PutStatus, Role
from rmqha.ha.frames import Ack, ConnectionState, HandshakeRequest
from rmqha.ha.master_session import MasterSession
from rmqha.ha.membership import CHECK_PERIOD_MS_MAX, Membership
from rmqha.ha.settings import SLAVES_MAX, HaSettings
from rmqha.ha.slave_session import SlaveSession
from rmqha.ha.state import HaState, LogFacts

ROLE_COMMANDS_MAX = 64


class HaCore:
    """The core of one replica's replication.

    Args:
        own_id: the persistent controller id, from 1.
        settings: of this replica.
        log: what the store recovered.
        epochs: what the epoch file held.
        now_ms: the time of the start.

    Attributes:
        ha: log, epochs and settings.
        role: slave until an election; ``is_settled`` tells whether a change is under way.
        members: a master's SyncStateSet, waiting puts and confirmOffset.
        sessions: connections of slaves, by connection number.
        client: the session with the master; None before the first role and on a master.
    """

    def __init__(
        self,
        *,
        own_id: int,
        settings: HaSettings,
        log: LogFacts,
        epochs: EpochCache,
        now_ms: int,
    ) -> None:
        self.ha = HaState(own_id, settings, log, epochs)
        self.role = Role.SLAVE
        self.sessions: dict[int, MasterSession] = {}
        self.members = Membership(self.ha, self.sessions)
        self.client: SlaveSession | None = None
        self.master_id: int | None = None
        self._retired: SlaveSession | None = None
        self._plan: roles.Plan | None = None
        self._plan_seq = 0
        self._commands: deque[ev.ChangedToMaster | ev.ChangedToSlave] = deque()
        self._next_check_ms = now_ms
        self._same_master = False

    # -- questions -------------------------------------------------------------------------

    @property
    def is_settled(self) -> bool:
        """No role change is under way."""
        return self._plan is None

    @property
    def is_serving(self) -> bool:
        """This replica is the master and may take puts and serve slaves."""
        return self.role is Role.MASTER and self._plan is None

    @property
    def reign_number(self) -> int:
        """Grows whenever this replica leaves its reign, after which its log may be cut."""
        return self.members.reign_number

    def is_leased(self, now_ms: int) -> bool:
        """Whether puts complete by the settings alone; see ``events.LeaseGranted``."""
        return self.members.is_leased(now_ms)

    def check_put(self, *, wait_store_ok: bool = True, now_ms: int | None = None) -> PutStatus:
        """What a put would meet before anything is written.

        Args:
            wait_store_ok: the message's property WAIT is absent or "true".
            now_ms: the time, for the lease; None does not look at it.
        """
        if self.role is not Role.MASTER or (self._plan is not None and not self._same_master):
            return PutStatus.SERVICE_NOT_AVAILABLE
        return self.members.check_put(wait_store_ok=wait_store_ok, now_ms=now_ms)

    @property
    def next_deadline_ms(self) -> int | None:
        """When to send ``Ticked`` next."""
        serving = self.is_serving
        due = [one.next_deadline_ms(serving=serving) for one in self.sessions.values()]
        if self.client is not None and self.client.next_deadline_ms is not None:
            due.append(self.client.next_deadline_ms)
        if self.members.waits.next_deadline_ms is not None:
            due.append(self.members.waits.next_deadline_ms)
        if serving:
            due.append(self._next_check_ms)
        return min(due, default=None)

    # -- the machine -------------------------------------------------------------------------

    def step(self, now_ms: int, event: Event) -> list[Effect]:
        """Take one event.

        Returns:
            What the shell must do; see ``events`` for its contract.

        Raises:
            InvariantBroken: when a safety rule would be violated; the process must stop.
        """
        match event:
            case ev.Appended() | ev.SlaveWritable() | ev.PutWaited():
                self._hot(now_ms, event)
            case ev.SlaveConnected() | ev.SlaveSent() | ev.SlaveClosed():
                self._from_slave(now_ms, event)
            case (
                ev.MasterConnected()
                | ev.MasterSent()
                | ev.MasterHeard()
                | ev.BodyReceived()
                | ev.MasterClosed()
            ):
                self._from_master(now_ms, event)
            case ev.TailCut() | ev.LogTruncated() | ev.EpochsWritten() | ev.DispatchReached():
                self._completed(now_ms, event)
            case ev.Flushed(offset):
                self._flushed(now_ms, offset)
            case ev.Trimmed(min_offset):
                self._trimmed(min_offset)
            case ev.LeaseGranted(until_ms):
                self.members.lease_until_ms = until_ms
            case Ticked():
                self._tick(now_ms)
            case _:
                self._command(now_ms, event)
        return self.ha.take_effects()

    def _hot(self, now_ms: int, event: ev.Appended | ev.SlaveWritable | ev.PutWaited) -> None:
        match event:
            case ev.Appended(max_offset):
                self.ha.log.max_offset = max_offset
                if self.ha.log.min_offset < 0:
                    self.ha.log.min_offset = 0
                if self.is_serving:
                    self._pump(now_ms)
                    self.move_confirm()
            case ev.SlaveWritable(conn):
                session = self.sessions.get(conn)
                if session is not None and self.is_serving:
                    session.writable(now_ms)
                elif session is not None:
                    session.rested()
            case ev.PutWaited(token, end_offset, reign):
                reigning = self.role is Role.MASTER and reign == self.reign_number
                self.members.wait(now_ms, token, end_offset, reigning=reigning)

    def _flushed(self, now_ms: int, offset: int) -> None:
        self.ha.log.flushed_offset = max(self.ha.log.flushed_offset, offset)
        if self.client is not None:
            self.client.flushed(now_ms)
        elif self.is_serving:
            self.move_confirm()

    def _pump(self, now_ms: int) -> None:
        for session in self.sessions.values():
            session.pump(now_ms)

    # -- commands ------------------------------------------------------------------------------

    def _command(
        self,
        now_ms: int,
        event: ev.ChangedToMaster
        | ev.ChangedToSlave
        | ev.MasterFound
        | ev.SyncStateSetConfirmed
        | ev.AlterRefused
        | ev.AlterLost
        | ev.SetHeard,
    ) -> None:
        members = self.members
        match event:
            case ev.ChangedToMaster() | ev.ChangedToSlave():
                if len(self._commands) >= ROLE_COMMANDS_MAX:
                    dropped = self._commands.popleft()
                    self.ha.emit(ev.RoleRefused(dropped.epoch, self.ha.epochs.last_epoch))
                self._commands.append(event)
                self._next_plan(now_ms)
            case ev.MasterFound() | ev.SetHeard():
                self._told(now_ms, event)
            case ev.SyncStateSetConfirmed(ids, epoch):
                members.confirmed(now_ms, ids, epoch)
            case ev.AlterRefused(for_a_member):
                members.sync_state_set.refused(now_ms, for_a_member=for_a_member)
            case ev.AlterLost():
                members.sync_state_set.lost()
            case _:
                assert_never(event)
        if self.is_serving:
            members.changed(now_ms)

    def _told(self, now_ms: int, event: ev.MasterFound | ev.SetHeard) -> None:
        if self.client is None:
            return
        match event:
            case ev.MasterFound(address):
                self.client.master_found(now_ms, address)
            case ev.SetHeard(ids):
                self.client.set_heard(now_ms, ids)

    def _next_plan(self, now_ms: int) -> None:
        while self._plan is None and self._commands:
            command = self._commands.popleft()
            self._plan = self._plan_for(now_ms, command)
            self._resume(now_ms)

    def _plan_for(self, now_ms: int, command: ev.ChangedToMaster | ev.ChangedToSlave) -> roles.Plan:
        if isinstance(command, ev.ChangedToMaster):
            self._same_master = self.role is Role.MASTER
            if self._same_master:
                return roles.change_to_master_when_last_role_is_master(self, command)
            return roles.change_to_master(self, command)
        # The master that is followed was elected again: its log goes on, and so does the session.
        same = command.master_id is not None and command.master_id == self.master_id
        if self.role is Role.SLAVE and self.client is not None and same:
            if command.master_address is not None:
                self.client.master_found(now_ms, command.master_address)
            return roles.change_to_slave_when_master_not_change(self, command)
        return roles.change_to_slave(self, now_ms, command)

    def _resume(self, now_ms: int) -> None:
        if self._plan is None:
            return
        try:
            self._plan_seq = next(self._plan)
        except StopIteration:
            self._plan = None
            if self.is_serving:
                self._next_check_ms = now_ms
                for session in self.sessions.values():
                    session.answer(now_ms)
                    session.pump(now_ms)
                self._sweep(now_ms)
                self.members.changed(now_ms)

    def _completed(
        self,
        now_ms: int,
        event: ev.TailCut | ev.LogTruncated | ev.EpochsWritten | ev.DispatchReached,
    ) -> None:
        match event:
            case ev.TailCut(_, max_offset) | ev.LogTruncated(_, max_offset):
                self.ha.log_cut(max_offset)
            case ev.EpochsWritten(seq):
                self.ha.epochs_written(seq)
            case ev.DispatchReached():
                pass
            case _:
                assert_never(event)
        client = self.client
        if client is not None:
            match event:
                case ev.TailCut(seq):
                    client.tail_cut(now_ms, seq)
                case ev.LogTruncated(seq):
                    client.truncated(now_ms, seq)
                case ev.EpochsWritten():
                    client.epochs_written(now_ms)
                case ev.DispatchReached():
                    pass
        if self._plan is not None and event.seq == self._plan_seq:
            self._resume(now_ms)
            self._next_plan(now_ms)

    # -- what plans do (role.RoleHolder) ----------------------------------------------------------

    def reign(self, command: ev.ChangedToMaster) -> None:
        """Take the controller's SyncStateSet.

        One that this master knows already ends nothing: what was asked for since then may still come.
        """
        known = self.members.sync_state_set
        if command.sync_state_set_epoch > known.epoch or self.role is not Role.MASTER:
            known.adopt(command.sync_state_set | {self.ha.own_id}, command.sync_state_set_epoch)

    def leave_slaves(self, reason: str) -> None:
        """Close the connections that were served; those still unanswered stay."""
        for session in list(self.sessions.values()):
            if session.is_answered:
                session.close(reason, "info")
                del self.sessions[session.conn]
        self.members.give_up_puts()

    def leave_master(self, reason: str) -> None:
        """End the slave session; what it still receives of a body is counted."""
        if self.client is not None:
            self.client.shutdown(reason)
            self._retired, self.client = self.client, None
        self.master_id = None

    def renew(self, command: ev.ChangedToSlave) -> None:
        """The master that is followed was elected again."""
        if self.client is not None:
            self.client.renewed(command.epoch)

    def follow(self, now_ms: int, command: ev.ChangedToSlave) -> None:
        """Begin a slave session."""
        self.master_id = command.master_id
        self.client = SlaveSession(self.ha, now_ms, command.master_address, command.epoch)

    def move_confirm(self) -> None:
        """Recompute a master's confirmOffset."""
        self.members.move_confirm()

    # -- slaves --------------------------------------------------------------------------------

    def _from_slave(
        self, now_ms: int, event: ev.SlaveConnected | ev.SlaveSent | ev.SlaveClosed
    ) -> None:
        match event:
            case ev.SlaveConnected(conn, address):
                session = MasterSession(self.ha, now_ms, conn, address)
                if len(self.sessions) >= SLAVES_MAX and not self._make_room():
                    session.close(ev.TOO_MANY)
                else:
                    self.sessions[conn] = session
            case ev.SlaveSent(conn, frame):
                found = self.sessions.get(conn)
                if found is not None and isinstance(frame, Ack):
                    self._acked(now_ms, found, frame.offset)
                elif found is not None and isinstance(frame, HandshakeRequest):
                    self._presented(now_ms, found, frame)
                self._sweep(now_ms)
            case ev.SlaveClosed(conn, reason):
                gone = self.sessions.pop(conn, None)
                if gone is not None:
                    self.ha.note("ha_slave_lost", "warning", slave_id=gone.slave_id, reason=reason)
                    if self.is_serving:
                        self.members.changed(now_ms)

    def _make_room(self) -> bool:
        """Close the oldest connection that has said nothing, or else acknowledged nothing."""
        for is_idle in (_has_said_nothing, _has_acknowledged_nothing):
            oldest = next((one for one in self.sessions.values() if is_idle(one)), None)
            if oldest is not None:
                oldest.close(ev.TOO_MANY)
                del self.sessions[oldest.conn]
                return True
        return False

    def _presented(self, now_ms: int, session: MasterSession, frame: HandshakeRequest) -> None:
        if session.presented(now_ms, frame):
            for other in self.sessions.values():
                if other is not session and other.slave_id == session.slave_id:
                    other.close("a newer connection of the same slave", "info")
            if self.is_serving:
                session.answer(now_ms)

    def _acked(self, now_ms: int, session: MasterSession, offset: int) -> None:
        if not session.acked(now_ms, offset) or not self.is_serving:
            return
        self.members.changed(now_ms)
        session.pump(now_ms)

    def _sweep(self, now_ms: int) -> None:
        """Forget connections that this side has closed."""
        closed = [
            one.conn for one in self.sessions.values() if one.state is ConnectionState.SHUTDOWN
        ]
        for conn in closed:
            del self.sessions[conn]
        if closed and self.is_serving:
            self.members.changed(now_ms)

    # -- the master, the log, time -----------------------------------------------------------------

    def _from_master(
        self,
        now_ms: int,
        event: ev.MasterConnected
        | ev.MasterSent
        | ev.MasterHeard
        | ev.BodyReceived
        | ev.MasterClosed,
    ) -> None:
        client = self.client
        if isinstance(event, ev.BodyReceived):
            for session in (client, self._retired):
                if session is not None:
                    session.body_received(now_ms, event)
        elif client is not None and client.conn == event.conn:
            match event:
                case ev.MasterConnected():
                    client.connected(now_ms)
                case ev.MasterSent(_, frame):
                    client.received(now_ms, frame)
                case ev.MasterHeard():
                    client.heard(now_ms)
                case ev.MasterClosed(_, reason):
                    client.closed(now_ms, reason)

    def _trimmed(self, min_offset: int) -> None:
        """Old files are gone, and so are the epochs that ended in them (9.3: min - 1, as Java)."""
        self.ha.log.min_offset = min_offset
        if self.ha.epochs.truncate_prefix_by_offset(min_offset - 1):
            self.ha.write_epochs()

    def _tick(self, now_ms: int) -> None:
        self.members.expire_puts(now_ms)
        if self.client is not None:
            self.client.tick(now_ms)
        for session in list(self.sessions.values()):
            session.tick(now_ms, serving=self.is_serving)
        self._sweep(now_ms)
        if self.is_serving and now_ms >= self._next_check_ms:
            period = min(self.ha.settings.check_sync_state_set_period_ms, CHECK_PERIOD_MS_MAX)
            self._next_check_ms = now_ms + period
            self.members.changed(now_ms)


def _has_said_nothing(session: MasterSession) -> bool:
    return session.slave_id is None


def _has_acknowledged_nothing(session: MasterSession) -> bool:
    return session.ack_offset is None
