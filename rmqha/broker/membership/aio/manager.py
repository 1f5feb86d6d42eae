"""The shell around ``ReplicasCore``: requests out, answers in, disk and role changes in one lane."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from rmqha.base.errors import RmqhaError
from rmqha.base.ids import MasterEpoch, SyncStateSetEpoch
from rmqha.base.invariants import unknown_effect
from rmqha.base.machine import Note, Ticked
from rmqha.broker.membership import events as ev
from rmqha.broker.membership.aio.asking import ask
from rmqha.broker.membership.aio.replication import Replication
from rmqha.broker.membership.confirmation import is_told, namesake, other_master
from rmqha.broker.membership.controller_requests import who_fields
from rmqha.broker.membership.core import ReplicasCore
from rmqha.broker.membership.events import Effect, Event
from rmqha.broker.membership.identity import RemoveTemporary, WriteIdentity, WriteTemporary
from rmqha.broker.membership.traced import LEASE_KIND, REPLICAS_KIND, LeaseStart
from rmqha.broker.membership.write_lease import (
    UNSAID,
    Confirm,
    Confirmed,
    Deposed,
    Fenced,
    Grant,
    LeaseEffect,
    LeaseEvent,
    Led,
    Left,
    Named,
    Reigned,
    Unfenced,
    Vouched,
    WriteLease,
)
from rmqha.ha import events as ha_ev
from rmqha.ha.events import Role
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import FLAG_ONEWAY, RemotingCommand
from rmqha.remoting.headers import int_field
from rmqha.runtime.aio.driver import Driver, Lane
from rmqha.runtime.aio.tasks import Tasks
from rmqha.runtime.aio.trace_file import TraceFile
from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import Clock
from rmqha.store.aio.small_files import IdentityFiles


class ManagedBroker(Protocol):
    """The broker around the manager. Only the ``async`` calls may wait."""

    @property
    def is_empty(self) -> bool:
        """Whether the log holds nothing."""

    async def start_replication(self, broker_id: int) -> MasterEpoch:
        """Start the HA service under this id; returns ``ReplicationStarted.lost_epoch``."""

    async def become_master(
        self, epoch: MasterEpoch, ids: frozenset[int], set_epoch: SyncStateSetEpoch
    ) -> bool:
        """Reign; False when the log knows a newer epoch."""

    async def become_slave(self, epoch: MasterEpoch, master_id: int, master_address: str) -> bool:
        """Follow; False when the log knows a newer epoch."""

    def follow_master(self, ha_address: str) -> None:
        """The master's HA address."""

    def serve_as(self, role: Role, epoch: MasterEpoch) -> None:
        """The role is complete."""

    def switch_refused(self, reason: str) -> None:
        """Whom ``SwitchWanted`` named is not elected."""

    def log_fields(self) -> dict[str, str]:
        """``epoch``, ``maxOffset`` and ``confirmOffset`` of a heartbeat."""


LaneEffect = (
    WriteTemporary
    | RemoveTemporary
    | WriteIdentity
    | ev.StartReplication
    | ev.BecomeMaster
    | ev.BecomeSlave
)

BEATS_OUT_MAX = 3
"""Heartbeats of a master that wait for one controller at a time."""


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
        replication: of the broker; told what the controllers say of the set.

    Attributes:
        lease: a master's; None where masters never stop writing.
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
        replica: ManagedBroker,
        replication: Replication,
    ) -> None:
        self.core = core
        self._files = files
        self._client = client
        self._clock = clock
        self._log = log
        self._tasks = tasks
        self._replica = replica
        self._replication = replication
        replication.want_set = self._set_wanted
        self._driver: Driver[Event, Effect] = Driver(
            core,
            clock,
            self._carry_out,
            next_deadline_ms=lambda: core.next_deadline_ms,
            on_due=lambda: self.give(Ticked()),
            settled=self._tell_lease,
        )
        self._lane: Lane[LaneEffect] = Lane(tasks, "replicas lane", self._wait_for)
        self._beating: dict[str, int] = {}
        settings = core.settings
        self.lease: WriteLease | None = None
        self._lease_driver: Driver[LeaseEvent, LeaseEffect] | None = None
        if settings.write_lease_ms:
            timeout_ms = settings.controller_heart_beat_timeout_ms
            lease = self.lease = WriteLease(
                settings.controllers, settings.write_lease_ms, timeout_ms
            )
            self._lease_driver = Driver(
                lease,
                clock,
                self._carry_out_lease,
                # Only for the note of the loss: whoever writes looks at the clock.
                next_deadline_ms=lambda: lease.next_deadline_ms,
                on_due=lambda: self._lease(Ticked()),
            )
        self._confirming = False
        self._counted = Named(settings.controllers)
        self._promises: dict[str, int] = {}
        self._promise_ms = 0

    @property
    def broker_id(self) -> int | None:
        """The persistent id; None before it is known."""
        return self.core.broker_id

    @property
    def _reigns(self) -> bool:
        """This broker is the master of the newest epoch it knows, settled or not."""
        return self.core.place.is_master

    def record(self, file: TraceFile) -> None:
        """Have every event of both cores recorded; to be called before the first."""
        self._driver.recorder = file.core(REPLICAS_KIND, self.core.settings)
        if self._lease_driver is not None:
            settings = self.core.settings
            start = LeaseStart(
                settings.controllers,
                settings.write_lease_ms,
                settings.controller_heart_beat_timeout_ms,
            )
            self._lease_driver.recorder = file.core(LEASE_KIND, start)

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
        self._driver.close()
        self._lane.close()
        if self._lease_driver is not None:
            self._lease_driver.close()

    def lost(self, address: str) -> None:
        """A connection to a controller, or to anybody, has ended."""
        self._lease(Left(address))

    def fence(self, *, is_up: bool) -> None:
        """Have no lease while somebody may have another master elected."""
        self._lease(Fenced() if is_up else Unfenced())

    def give(self, event: Event) -> None:
        """Take an event, and carry out what follows from it."""
        self._driver.give(event)

    def _set_wanted(self, ids: frozenset[int], epoch: SyncStateSetEpoch) -> None:
        self.give(ev.AlterWanted(ids, epoch))

    # -- the write lease -----------------------------------------------------------------------------

    def _tell_lease(self) -> None:
        """The lease follows what the core knows."""
        named = Named(self.core.search.configured, self.core.search.members)
        if named != self._counted:
            self._counted = named
            self._lease(named)
            self._tell_promise()
        if self.core.search.leader is not None:
            self._lease(Led(self.core.search.leader))
        self._lease(Reigned() if self._reigns else Deposed())

    def _lease(self, event: LeaseEvent) -> None:
        if self._lease_driver is not None:
            self._lease_driver.give(event)

    def _carry_out_lease(self, effect: LeaseEffect) -> None:
        match effect:
            case Grant(until_ms):
                self._replication.granted(until_ms)
            case Confirm(number):
                leader = self.core.search.leader
                if not self._confirming and leader is not None:
                    self._confirming = True
                    self._tasks.start(self._confirm(number, leader), name="confirm")
            case Note():
                self._log.note(effect)
            case _:
                unknown_effect(effect)

    async def _confirm(self, number: int, leader: str) -> None:
        """Have the leader say who is master; another one is told to the core."""
        core = self.core
        fields = who_fields(
            core.settings, self.broker_id, self._clock.wall_ms(), designateElect=False
        )
        command = RemotingCommand(RequestCode.CONTROLLER_ELECT_MASTER, ext_fields=fields)
        try:
            answer = await self._client.invoke(leader, command)
            other = other_master(
                answer.ext_fields, answer.body, broker_id=self.broker_id,
                master_epoch=core.place.master_epoch,
            )  # fmt: skip
        except RmqhaError as error:
            self._log.log("debug", "mastership_not_confirmed", by=leader, reason=str(error))
            return
        finally:
            self._confirming = False
        if not is_told(answer.code):
            return
        if other is not None:
            self.give(other)
        elif (found := namesake(answer.ext_fields, core.settings.broker_address)) is not None:
            self._log.log("error", "identity_of_another_broker", at=found, by=leader)
        else:
            self._lease(Confirmed(number))

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
            case ev.TellSet(ids):
                self._replication.give(ha_ev.SetHeard(ids))
            case ev.ConfirmSet(ids, set_epoch):
                self._replication.give(ha_ev.SyncStateSetConfirmed(ids, set_epoch))
            case ev.EndAlter(refused, for_a_member):
                self._replication.give(
                    ha_ev.AlterRefused(for_a_member) if refused else ha_ev.AlterLost()
                )
            case ev.RefuseSwitch(reason):
                self._replica.switch_refused(reason)
            case ev.ServeAs(role, epoch):
                self._replica.serve_as(role, epoch)
            case Note():
                self._log.note(effect)
            case _:
                self._lane.add(effect)

    async def _ask(self, effect: ev.Ask) -> None:
        self.give(await ask(self._client, effect))

    def _beat(self, addresses: tuple[str, ...], fields: dict[str, str]) -> None:
        answered = self.lease is not None and self._reigns
        for address in addresses:
            # A controller that cannot be reached gets one heartbeat at a time.
            under_way = self._beating.get(address, 0)
            if under_way < (BEATS_OUT_MAX if answered else 1):
                self._beating[address] = under_way + 1
                self._tasks.start(self._beat_one(address, fields, answered), name=f"beat {address}")

    async def _beat_one(self, address: str, fields: Mapping[str, str], answered: bool) -> None:
        """Send a heartbeat; a master wants an answer, which renews its lease."""
        said = {**fields, **self._replica.log_fields()}
        flag = 0 if answered else FLAG_ONEWAY
        command = RemotingCommand(RequestCode.BROKER_HEARTBEAT, flag=flag, ext_fields=said)
        sent_ms = self._clock.now_ms()
        try:
            if not answered:
                await self._client.invoke_oneway(address, command)
                return
            answer = await self._client.invoke(address, command)
            if answer.code == ResponseCode.SUCCESS:
                self._promised(address, sent_ms, answer.ext_fields)
        except RmqhaError as error:
            self._log.log("debug", "heartbeat_not_sent", to=address, reason=str(error))
        finally:
            self._beating[address] -= 1
            if not self._beating[address]:
                del self._beating[address]

    def _promised(self, address: str, sent_ms: int, fields: Mapping[str, str] | None) -> None:
        """An answer; a controller that asks silent masters waits for less than it was asked to."""
        promise_ms = int_field(fields, "promiseMillis", UNSAID)
        self._lease(Vouched(address, sent_ms, max(UNSAID, promise_ms)))
        if promise_ms:  # 0 is for a while only
            self._promises[address] = max(0, promise_ms)
            self._tell_promise()

    def _tell_promise(self) -> None:
        """The core beats as often as the shortest promise asks for, of those who are controllers now."""
        known = self.core.search.controllers
        self._promises = {one: ms for one, ms in self._promises.items() if one in known}
        shortest_ms = min((one for one in self._promises.values() if one), default=0)
        if shortest_ms != self._promise_ms:
            self._promise_ms = shortest_ms
            self.give(ev.Promised(shortest_ms))

    async def _wait_for(self, effect: LaneEffect) -> None:
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
                self.give(ev.ReplicationStarted(lost_epoch, self._replica.is_empty))
            case ev.BecomeMaster(epoch, ids, set_epoch):
                accepted = await self._replica.become_master(epoch, ids, set_epoch)
                self.give(ev.RoleSettled(epoch, accepted))
            case ev.BecomeSlave(epoch, master_id, master_address):
                accepted = await self._replica.become_slave(epoch, master_id, master_address)
                self.give(ev.RoleSettled(epoch, accepted))
            case _:
                unknown_effect(effect)
