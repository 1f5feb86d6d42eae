"""The shell around ``ReplicasCore``: requests out, answers in, disk and role changes in one lane."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Protocol

from rmqha.base.errors import ConnectFailed, LocalProtocolError, RmqhaError
from rmqha.base.machine import Note
from rmqha.broker import events as ev
from rmqha.broker.events import Effect, Event
from rmqha.broker.registration import RemoveTemporary, WriteIdentity, WriteTemporary
from rmqha.broker.replicas import ReplicasCore
from rmqha.ha.events import Role
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import FLAG_ONEWAY, RemotingCommand
from rmqha.runtime.aio.tasks import Tasks
from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import Clock, TimerHandle
from rmqha.store.aio.small_files import IdentityFiles


class Replica(Protocol):
    """The broker around the manager. Only the ``async`` calls may wait."""

    async def start_replication(self, broker_id: int) -> int:
        """Start the HA service under this id; returns ``ReplicationStarted.lost_epoch``."""

    async def become_master(self, epoch: int, ids: frozenset[int], set_epoch: int) -> bool:
        """Reign; False when the log knows a newer epoch."""

    async def become_slave(self, epoch: int, master_id: int, master_address: str) -> bool:
        """Follow; False when the log knows a newer epoch."""

    def follow_master(self, ha_address: str) -> None:
        """The master's HA address."""

    def confirm_set(self, ids: frozenset[int], set_epoch: int) -> None:
        """The controller's SyncStateSet."""

    def end_alter(self, *, refused: bool) -> None:
        """An alteration brought nothing."""

    def serve_as(self, role: Role, epoch: int) -> None:
        """The role is complete."""

    def log_fields(self) -> dict[str, str]:
        """``epoch``, ``maxOffset`` and ``confirmOffset`` of a heartbeat."""


class ReplicasManager:
    """One broker's connection to its controllers.

    Args:
        core: the machine.
        files: the identity files.
        client: connections to controllers and to other replicas.
        clock: the port.
        log: for notes.
        tasks: owns what runs in the background.
        replica: the broker.
    """

    def __init__(
        self,
        *,
        core: ReplicasCore,
        files: IdentityFiles,
        client: RemotingClient,
        clock: Clock,
        log: Logger,
        tasks: Tasks,
        replica: Replica,
    ) -> None:
        self.core = core
        self._files = files
        self._client = client
        self._clock = clock
        self._log = log
        self._tasks = tasks
        self._replica = replica
        self._events: deque[Event] = deque()
        self._draining = False
        self._closed = False
        self._lane: deque[Effect] = deque()
        self._lane_runs = False
        self._timer: TimerHandle | None = None
        self._timer_ms = 0
        self._beating: set[str] = set()

    @property
    def broker_id(self) -> int | None:
        """The persistent id; None before it is known."""
        return self.core.broker_id

    async def start(self) -> None:
        """Read who this broker is, and begin; everything else happens in the background.

        Raises:
            StoreCorrupted: an identity file is damaged.
            StoreMismatch: the store is another broker's.
            DiskFailed: the disk cannot be read.
        """
        final = await self._files.read()
        # A final file makes whatever a crash left beside it meaningless.
        temporary = await self._files.read_temporary() if final is None else None
        self.give(ev.Started(self._clock.wall_ms(), final, temporary))

    def close(self) -> None:
        """Take no more events; the owner of ``tasks`` ends what runs."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def give(self, event: Event) -> None:
        """Take an event, and carry out what follows from it."""
        if self._closed:
            return
        self._events.append(event)
        if self._draining:
            return
        self._draining = True
        try:
            while self._events and not self._closed:
                for effect in self.core.step(self._clock.now_ms(), self._events.popleft()):
                    self._carry_out(effect)
        finally:
            self._draining = False
        self._arm()

    def _arm(self) -> None:
        due = self.core.next_deadline_ms
        if due is None or self._closed or (self._timer is not None and self._timer_ms <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = due
        self._timer = self._clock.call_later(max(0, due - self._clock.now_ms()), self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.give(ev.Ticked())

    # -- effects -----------------------------------------------------------------------------------

    def _carry_out(self, effect: Effect) -> None:  # noqa: C901 - one case an effect
        match effect:
            case ev.Ask():
                self._tasks.start(self._ask(effect), name=f"ask {effect.code}")
            case ev.Beat(addresses, fields):
                self._beat(addresses, fields)
            case ev.Leave(addresses):
                for address in addresses:
                    self._client.disconnect(address)
            case ev.FollowMaster(ha_address):
                self._replica.follow_master(ha_address)
            case ev.ConfirmSet(ids, set_epoch):
                self._replica.confirm_set(ids, set_epoch)
            case ev.EndAlter(refused):
                self._replica.end_alter(refused=refused)
            case ev.ServeAs(role, epoch):
                self._replica.serve_as(role, epoch)
            case Note():
                self._log.note(effect)
            case _:
                self._lane.append(effect)
                if not self._lane_runs:
                    self._lane_runs = True
                    self._tasks.start(self._run_lane(), name="replicas lane")

    async def _ask(self, effect: ev.Ask) -> None:
        command = RemotingCommand(effect.code, ext_fields=effect.fields or None, body=effect.body)
        try:
            answer = await self._client.invoke(effect.address, command, effect.timeout_ms)
        except (ConnectFailed, LocalProtocolError) as error:
            self.give(ev.Unanswered(effect.token, sent=False, reason=str(error)))
        except RmqhaError as error:
            self.give(ev.Unanswered(effect.token, sent=True, reason=str(error)))
        else:
            self.give(
                ev.Answered(
                    effect.token, answer.code, answer.ext_fields, answer.body, answer.remark or ""
                )
            )

    def _beat(self, addresses: tuple[str, ...], fields: dict[str, str]) -> None:
        for address in addresses:
            # A controller that cannot be reached gets one heartbeat at a time.
            if address not in self._beating:
                self._beating.add(address)
                self._tasks.start(self._beat_one(address, fields), name=f"beat {address}")

    async def _beat_one(self, address: str, fields: Mapping[str, str]) -> None:
        said = {**fields, **self._replica.log_fields()}
        command = RemotingCommand(RequestCode.BROKER_HEARTBEAT, flag=FLAG_ONEWAY, ext_fields=said)
        try:
            await self._client.invoke_oneway(address, command)
        except RmqhaError as error:
            self._log.log("debug", "heartbeat_not_sent", to=address, reason=str(error))
        finally:
            self._beating.discard(address)

    async def _run_lane(self) -> None:
        try:
            while self._lane and not self._closed:
                await self._wait_for(self._lane.popleft())
        finally:
            self._lane_runs = False

    async def _wait_for(self, effect: Effect) -> None:
        match effect:
            case WriteTemporary(identity):
                await self._files.write_temporary(identity)
                self.give(ev.TemporaryWritten(identity))
            case RemoveTemporary():
                await self._files.remove_temporary()
                self.give(ev.TemporaryRemoved())
            case WriteIdentity(identity):
                await self._files.write(identity)
                self.give(ev.IdentityWritten(identity))
            case ev.StartReplication(broker_id):
                lost_epoch = await self._replica.start_replication(broker_id)
                self.give(ev.ReplicationStarted(lost_epoch))
            case ev.BecomeMaster(epoch, ids, set_epoch):
                accepted = await self._replica.become_master(epoch, ids, set_epoch)
                self.give(ev.RoleSettled(epoch, accepted))
            case ev.BecomeSlave(epoch, master_id, master_address):
                accepted = await self._replica.become_slave(epoch, master_id, master_address)
                self.give(ev.RoleSettled(epoch, accepted))
            case _:
                raise AssertionError(f"{effect} does not wait")
