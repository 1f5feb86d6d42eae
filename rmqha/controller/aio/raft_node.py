"""The shell around the Raft core: it feeds events in and carries effects out, in order.

The contract it keeps is written in ``raft/events.py``. Everything runs in one event loop; only
fdatasync runs in a thread, behind the Disk port.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator

from rmqha.base.errors import (
    DiskFailed,
    InvariantBroken,
    RemoteProtocolError,
    StoreCorrupted,
    StoreMismatch,
)
from rmqha.base.invariants import invariant, unknown_effect
from rmqha.base.machine import Note, Ticked
from rmqha.base.proofs import NO_SECRETS, Secrets
from rmqha.controller.aio.members import ConfiguredGroup, SnapshotParts, for_machine
from rmqha.controller.aio.patient_timer import PatientTimer
from rmqha.controller.aio.peers import Peers
from rmqha.controller.aio.proposal_rounds import ProposalRounds
from rmqha.controller.aio.raft_store import SET_ASIDE, open_store
from rmqha.controller.aio.snapshot_saving import SnapshotSaving
from rmqha.controller.aio.snapshots import Snapshots
from rmqha.controller.aio.space import Space
from rmqha.controller.aio.state_machine import StateMachine
from rmqha.controller.aio.wal import Wal
from rmqha.controller.raft import events as ev
from rmqha.controller.raft.core import RaftCore
from rmqha.controller.raft.held_sends import HeldSends
from rmqha.controller.raft.members import (
    Member,
    Members,
    decode_members,
    is_members,
    to_snapshot,
)
from rmqha.controller.raft.messages import AppendRequest, Message, SnapshotRequest
from rmqha.controller.raft.settings import RaftSettings
from rmqha.controller.settings import Peer
from rmqha.remoting.settings import RemotingSettings
from rmqha.runtime.aio.driver import Driver
from rmqha.runtime.aio.tasks import Tasks
from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import Clock, Disk, Network, Rng

STORE_IDS_MAX = (1 << 62) - 1


class RaftNode:
    """One member of the controller group.

    Args:
        group, node_id, members: the group, by the configuration; the log may know a newer one.
        store_path: directory of log and snapshots.
        machine: what committed entries are given to.
        snapshot_every: entries between two snapshots.
        segment_bytes: size of a log segment.
        secrets: of which peers must prove to know one; none to believe them.
        forgive_damage: cut a damaged last frame as a torn one is; an operator's last resort.
    """

    def __init__(
        self,
        *,
        group: str,
        node_id: str,
        members: tuple[Peer, ...],
        store_path: str,
        settings: RaftSettings,
        remoting: RemotingSettings,
        machine: StateMachine,
        snapshot_every: int,
        segment_bytes: int,
        forgive_damage: bool = False,
        secrets: Secrets = NO_SECRETS,
        clock: Clock,
        rng: Rng,
        disk: Disk,
        network: Network,
        log: Logger,
    ) -> None:
        self._group = group
        self.node_id = node_id
        self._members = tuple(peer.id for peer in members)
        self._configured = ConfiguredGroup(members)
        self._settings = settings
        self._machine = machine
        self._clock = clock
        self._rng = rng
        self._disk = disk
        self._store_path = store_path
        self._log = log
        self._tasks = Tasks(log, self._task_failed)
        self.space = Space(
            disk,
            store_path,
            clock,
            log,
            self._tasks,
            on_changed=lambda enough: self.give(ev.SpaceChanged(enough)),
            retry=lambda: self.wal.retry(),
        )
        self.wal = Wal(
            disk,
            store_path,
            cluster=group,
            node=node_id,
            segment_bytes=segment_bytes,
            on_durable=self._on_durable,
            on_failed=self._on_disk_failed,
            on_full=self.space.is_full,
            forgiving=forgive_damage,
        )
        self.snapshots = Snapshots(disk, store_path, cluster=group)
        self.peers = Peers(
            group=group,
            node_id=node_id,
            peers=members,
            network=network,
            clock=clock,
            rng=rng,
            settings=remoting,
            secrets=secrets,
            on_message=self._on_message,
            on_lost=self._on_peer_lost,
            on_guest=self._on_guest,
            log=log,
        )
        self.core: RaftCore | None = None
        self.applied_index = 0
        self._driver: Driver[ev.Event, ev.Effect] | None = None
        self._parts = SnapshotParts()
        self._changes: dict[int, asyncio.Future[str]] = {}
        self._changes_asked = 0
        self._early: list[ev.Event] = []  # before there was a core
        self.rounds = ProposalRounds(
            clock, applied_index=lambda: self.applied_index, send=self._send_round
        )
        self._held = HeldSends()
        self._timer = PatientTimer(clock, self._deadline_ms, self._due)
        self._saving = SnapshotSaving(
            self.snapshots, every=snapshot_every, is_sending=self._is_sending_snapshot,
            state=self._state, tasks=self._tasks, log=log,
            on_saved=lambda meta: self.give(ev.SnapshotTaken(meta)),
        )  # fmt: skip
        self._wrote_ms = 0
        self._stopped = False

    # -- life ------------------------------------------------------------------------------

    async def open(self) -> None:
        """Read the store and restore the state.

        Raises:
            StoreCorrupted, StoreMismatch, DiskFailed: the store cannot be used.
        """
        store = await open_store(
            self._disk,
            self._store_path,
            self.wal,
            self.snapshots,
            members=self._members,
            new_store_id=f"{self._rng.randint(1, STORE_IDS_MAX):016x}",
            node_id=self.node_id,
            check_snapshot=self._check_snapshot,
        )
        meta, content = store.snapshot, store.content
        named: Members | None = None
        await self.space.open()
        if store.damage:
            self._log.log("error", "store_damaged", reason=store.damage, set_aside=SET_ASIDE)
        if meta.last_index > 0:
            named, state = self._parts.of(self.snapshots.data)
            self._machine.restore(meta.last_index, state)
        self.applied_index = meta.last_index
        self.core = RaftCore(
            node_id=self.node_id,
            members=self._members,
            settings=self._settings,
            hard_state=content.hard_state,
            entries=content.entries,
            base_index=content.base_index,
            base_term=content.base_term,
            snapshot=meta,
            seed=self._rng.randint(0, 1 << 30),
            now_ms=self._clock.now_ms(),
            group=(0, self._configured.members) if named is None else (meta.last_index, named),
        )
        self._say_if_other_members()
        # Without the driver's timer: ``PatientTimer`` knows when it is late.
        self._driver = Driver(
            self.core,
            self._clock,
            self._carry_out,
            on_error=self._broken,
            after_step=self._step_ended,
            settled=self._settled,
        )
        self.rounds.is_open = True
        self._log.log(
            "info",
            "raft_store_opened",
            term=content.hard_state.term,
            last_index=self.core.node.log.last_index,
            snapshot_index=meta.last_index,
            torn_tail_cut=content.torn_bytes_cut,
            standing=content.hard_state.standing.kind,
        )

    def join(self) -> None:
        """Take part in the group, from now on."""
        if self.core is not None and self.core.node.groups[-1][0]:
            self._meet(self.core.node.peer_members)
        self.peers.start()
        self._timer.arm()

    async def transfer_leadership(self, target: str | None, timeout_ms: int) -> bool:
        """Hand leadership over; whether this node does not lead any more."""
        if self.core is None or not self.leads() or self.core.node.voters == (self.node_id,):
            return True
        self.give(ev.TransferRequested(target))
        deadline_ms = self._clock.now_ms() + timeout_ms
        while self.leads() and self._clock.now_ms() < deadline_ms:
            await self._clock.sleep(5)
        return not self.leads()

    async def change_members(self, member: Member, *, joins: bool) -> str:
        """Let a node join the group, without a vote until it has caught up, or remove one.

        Returns:
            Why that was not done; empty once it is committed, or was so already.
        """
        self._changes_asked += 1
        token, done = self._changes_asked, asyncio.get_running_loop().create_future()
        self._changes[token] = done
        self.give(ev.MembersAsked(token, member, joins))
        answer: str = await done
        return answer

    def members(self) -> Members:
        """The group as this node knows it now."""
        return self._configured.members if self.core is None else self.core.node.group

    def member_peers(self) -> tuple[Peer, ...]:
        """The same, with addresses; those of the configuration are newer than the log's."""
        return self._configured.addresses(self.members().members)

    async def close(self) -> None:
        """Flush the log and stop taking part."""
        self._stopped = True
        for done in self._changes.values():
            done.cancel()
        self._timer.close()
        self.rounds.close()
        await self._tasks.close()
        await self.peers.close()
        await self.wal.close()

    @property
    def no_space(self) -> bool:
        """Whether the disk is full."""
        return self.space.is_low

    # -- what the controller asks ------------------------------------------------------------

    def leads(self) -> bool:
        """Whether this node leads its term."""
        return self.core is not None and self.core.is_leader

    @property
    def is_ready_leader(self) -> bool:
        """Whether this node leads and its applied state is the newest."""
        return self.core is not None and self.core.is_ready

    def lease_valid(self, now_ms: int) -> bool:
        """Whether the applied state may be read right now."""
        return self.core is not None and self.core.lease_valid(now_ms)

    def _send_round(self, records: tuple[bytes, ...]) -> int | None:
        self.give(ev.Proposed(records))
        core = self.core
        return core.node.log.last_index if core is not None and core.is_leader else None

    def request_read(self, token: int) -> None:
        """Ask for a linearizable read; ``reads_ready`` or ``refused`` answers."""
        self.give(ev.ReadRequested(token))

    # -- events in ---------------------------------------------------------------------------

    def give(self, event: ev.Event) -> None:
        """Feed the core; effects may feed it again, which waits its turn."""
        if self._stopped:
            return
        if self._driver is None:
            self._early.append(event)
        elif self._early:
            early, self._early = self._early, []
            self._driver.give(*early, event)
        else:
            self._driver.give(event)

    def _step_ended(self) -> None:
        self._held.step_ended()
        self.peers.flush()

    def _settled(self) -> None:
        self.rounds.settled()
        self._timer.arm()

    def _broken(self, error: Exception) -> None:
        """Effects were lost half-way, or a rule broke: what the core believes was not done."""
        self._stopped = True
        self._machine.fatal(error)
        if not isinstance(error, InvariantBroken):
            raise error

    def _on_message(self, message: Message) -> None:
        if isinstance(message, AppendRequest) and message.entries:
            try:
                for entry in message.entries:
                    if is_members(entry.data):
                        decode_members(entry.data)
                    elif entry.data:
                        self._machine.check_record(entry.data)
            except StoreCorrupted as error:
                # Once durable it would end this node at every start.
                raise RemoteProtocolError(f"an entry that cannot be applied: {error}") from error
        self.give(ev.Received(message))

    def _on_guest(self, peer: str, instead_of: str) -> None:
        self.give(ev.PeerMet(peer, instead_of))

    def _on_peer_lost(self, peer: str) -> None:
        self.give(ev.PeerLost(peer))

    def _on_disk_failed(self, error: DiskFailed) -> None:
        self._log.log("error", "disk_failed", error=str(error))
        self.give(ev.DiskBroken())
        self._machine.fatal(error)

    def _task_failed(self, error: BaseException) -> None:
        self.give(ev.DiskBroken())
        self._machine.fatal(error if isinstance(error, Exception) else RuntimeError(repr(error)))

    def _deadline_ms(self) -> int | None:
        return None if self.core is None or self._stopped else self.core.next_deadline_ms

    def _due(self) -> None:
        self._tell_of_disk()
        self.give(Ticked())

    def _tell_of_disk(self) -> None:
        now_ms = self._clock.now_ms()
        if self.wal.is_idle:
            self._wrote_ms = now_ms
        else:
            self.give(ev.DiskWaited(now_ms - self._wrote_ms))

    # -- effects out ---------------------------------------------------------------------------

    def _carry_out(self, effect: ev.Effect) -> None:
        match effect:
            case ev.Persist(seq, hard_state, _):
                self._held.persisting(seq, hard=hard_state is not None)
                # What was listed before it may leave: followers write while this node wakes its disk.
                self.peers.flush()
                # A leader's time is its group's time, and nobody waits for its own disk alone.
                self.wal.append(effect, may_block=not self.leads())
            case ev.Send() | ev.SendSnapshot():
                if self._held.may_leave(effect):
                    self._transmit(effect)
            case _:
                self._local(effect)

    def _on_durable(self, seq: int) -> None:
        self._wrote_ms = self._clock.now_ms()
        for send in self._held.durable(seq):
            self._transmit(send)
        self.give(ev.Persisted(seq))

    def _transmit(self, effect: ev.Send | ev.SendSnapshot) -> None:
        match effect:
            case ev.Send(to, message):
                self.peers.send(to, message)
            case ev.SendSnapshot(to, term, meta, offset, length, number):
                data = self.snapshots.chunk(meta, offset, length)
                if data is not None:
                    request = SnapshotRequest(
                        term, self.node_id, meta.last_index, meta.term, offset, meta.size,
                        data, number, meta.digest,
                    )  # fmt: skip
                    self.peers.send(to, request)
            case _:
                unknown_effect(effect)

    def _local(self, effect: ev.LocalEffect) -> None:
        match effect:
            case ev.Apply(entries):
                self.applied_index = entries[-1].log_index
                self._machine.apply(tuple(map(for_machine, entries)))
                if not self._stopped:
                    self._saving.applied(self.applied_index, entries[-1].term)
            case ev.ReadReady(tokens):
                self._machine.reads_ready(tokens)
            case ev.Refused(records, tokens):
                self._machine.refused(records, tokens)
            case ev.RoleChanged(role, term, leader_id):
                self.rounds.role_changed()
                self._machine.role_changed(role, term, leader_id)
            case ev.LeaderReady(term):
                self._machine.leader_ready(term)
            case ev.StoreSnapshotChunk() | ev.InstallSnapshot() | ev.CompactLog():
                self._snapshot_effect(effect)
            case ev.MembersAnswered() | ev.PeersChanged():
                self._group_effect(effect)
            case Note():
                self._log.note(effect)
            case _:
                unknown_effect(effect)

    def _group_effect(self, effect: ev.MembersAnswered | ev.PeersChanged) -> None:
        match effect:
            case ev.MembersAnswered(token, reason):
                done = self._changes.pop(token, None)
                if done is not None and not done.done():
                    done.set_result(reason)
            case ev.PeersChanged(peers):
                self._meet(peers)

    # -- snapshots -----------------------------------------------------------------------------

    def _snapshot_effect(
        self, effect: ev.StoreSnapshotChunk | ev.InstallSnapshot | ev.CompactLog
    ) -> None:
        match effect:
            case ev.StoreSnapshotChunk(offset, data):
                self.snapshots.receive(offset, data)
            case ev.InstallSnapshot(meta):
                self._tasks.start(self._install(meta), name="install snapshot")
            case ev.CompactLog(up_to_index):
                self._tasks.start(self._compact(up_to_index), name="compact log")

    def _is_sending_snapshot(self) -> bool:
        return self.core is not None and self.core.is_sending_snapshot(self._clock.now_ms())

    def _state(self) -> bytes:
        named = None if self.core is None else self.core.node.named_group(self.applied_index)
        return to_snapshot(named, self._machine.snapshot())

    async def _compact(self, up_to_index: int) -> None:
        try:
            await self.wal.compact(up_to_index)
        except DiskFailed as error:
            self._log.log("warning", "compaction_failed", error=str(error))

    async def _install(self, meta: ev.SnapshotMeta) -> None:
        """Make a snapshot the state; the core neither appends nor stands meanwhile."""
        try:
            data = await self.snapshots.install(meta, self._check_snapshot)
        except (StoreCorrupted, StoreMismatch, DiskFailed) as error:
            self._log.log("error", "snapshot_refused", error=str(error))
            self.give(ev.SnapshotInstalled(ev.SnapshotMeta()))
            return
        core = self.core
        if core is not None and core.node.log.term_at(meta.last_index) != meta.term:
            await self.wal.reset(meta.last_index, meta.term)
        invariant(
            meta.last_index > self.applied_index,
            "the applied state never goes back",
            snapshot_index=meta.last_index,
            applied_index=self.applied_index,
        )
        named, state = self._parts.of(data)
        self._machine.restore(meta.last_index, state)
        self.applied_index = meta.last_index
        self.give(ev.SnapshotInstalled(meta, named))

    def _check_snapshot(self, data: bytes) -> Generator[None, None, None]:
        yield from self._machine.check_snapshot(self._parts.of(data)[1])

    # -- the group ---------------------------------------------------------------------------

    def _meet(self, members: tuple[Member, ...]) -> None:
        """Speak to these from here on."""
        self.peers.set_peers(self._configured.addresses(members))

    def _say_if_other_members(self) -> None:
        """Operators should bring the files up to date; the log is right meanwhile."""
        if self.core is not None and self.core.node.members != self._configured.members.ids:
            self._log.log(
                "warning",
                "raft_members_differ",
                configured=list(self._configured.members.ids),
                members=list(self.core.node.members),
            )
