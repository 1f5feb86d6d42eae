"""One node of an explored group: the real Raft core, and the smallest shell that keeps its contract.

What ``raft/events.py`` asks of a shell is stated here once: effects are carried out in list order;
what is listed after a ``Persist`` leaves when that is durable; nothing leaves while a hard state is
not durable; the disk works in order; what was not durable may be lost in a crash. ``RaftNode`` does
the same over files and sockets. A snapshot that is not newer than what is applied is not installed.

A member is a value: a step copies it. Time is abstract: a step happens at 0, every deadline may have
passed or not, and no lease is valid, so a walk covers every choice of clocks but proves nothing
about leases.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

import msgspec

from rmqha.base.ids import NO_TERM, Term
from rmqha.base.invariants import invariant
from rmqha.controller.raft import events as ev
from rmqha.controller.raft.core import RaftCore
from rmqha.controller.raft.messages import Entry, Message, SnapshotRequest
from rmqha.controller.raft.node import VOTER, Role
from rmqha.controller.raft.patience import Patience
from rmqha.controller.raft.settings import RaftSettings
from rmqha.controller.raft.wal_layout import Recovered, join_snapshot
from rmqha.sim.explore.standings import check_counted, check_said
from rmqha.sim.explore.values import UNKEYED, copy_core, plain
from rmqha.verify.raft import RaftWatch

LONG_AGO_MS = -1_000_000
NEVER_MS = 1_000_000
TIMES = {
    "last_leader_contact_ms": LONG_AGO_MS,
    "quorum_round_ms": LONG_AGO_MS,
    "transfer_deadline_ms": NEVER_MS,
    "handed_over_ms": LONG_AGO_MS,
}
"""What a node's times are between two steps; all others are 0, and all are left out of its key."""

_pack = msgspec.msgpack.Encoder().encode


class Disk(NamedTuple):
    """What survives a crash.

    Attributes:
        base: where a reset has restarted the log, None when nothing did.
        data: the newest snapshot's bytes.
    """

    hard_state: ev.HardState = ev.HardState()
    base: tuple[int, Term] | None = None
    entries: tuple[Entry, ...] = ()
    snapshot: ev.SnapshotMeta = ev.SnapshotMeta()
    data: bytes = b""

    def written(self, persist: ev.Persist) -> Disk:
        """After one more persist; its entries cut what they overlap."""
        hard = persist.hard_state if persist.hard_state is not None else self.hard_state
        entries = self.entries
        if persist.entries:
            first = persist.entries[0].log_index
            entries = (*(e for e in entries if e.log_index < first), *persist.entries)
        return self._replace(hard_state=hard, entries=entries)

    def holds(self, index: int, term: int) -> bool:
        """Whether a committed entry is safe here, in the log or within the snapshot."""
        if index <= self.snapshot.last_index:
            return True
        return any(e.log_index == index and e.term == term for e in self.entries)


class Write(NamedTuple):
    """A persist that the disk has not finished, and the sends that wait for it."""

    persist: ev.Persist
    held: tuple[ev.Send | ev.SendSnapshot, ...]


class Snapshot(NamedTuple):
    """A snapshot on its way to the disk."""

    meta: ev.SnapshotMeta
    data: bytes


class Led(NamedTuple):
    """This node says that it leads ``term``; its log was this."""

    term: int
    base_index: int
    entries: tuple[Entry, ...]


class Read(NamedTuple):
    """A read was answered from the state up to ``applied_index``; it may not be older."""

    applied_index: int
    index_min: int


Seen = Led | Read | Entry
"""What properties look at; an Entry is one that was given to the state machine."""


def store_id(node_id: str, number: int) -> str:
    """The id of a node's first, second, ... store."""
    return f"{node_id}/{number}"


class Member:
    """One node; ``core`` is None while it is down."""

    __slots__ = (
        "applied_index", "core", "disk", "full", "incoming", "installing", "names", "node_id", "records",
        "saving", "seen", "sent", "settings", "stores", "told", "writing",
    )  # fmt: skip

    def __init__(
        self, node_id: str, names: tuple[str, ...], settings: RaftSettings, kind: str = VOTER
    ) -> None:
        self.node_id = node_id
        self.names = names
        self.settings = settings
        self.stores = 1
        founders = tuple((name, store_id(name, 1)) for name in names) if kind == VOTER else ()
        standing = ev.Standing(kind, store_id(node_id, 1), founders)
        self.disk = Disk(ev.HardState(standing=standing))
        self.core: RaftCore | None = None
        self.applied_index = 0
        self.records: tuple[bytes, ...] = ()
        self._clear()
        self.restart()
        self.finish(None)

    def _clear(self) -> None:
        """Forget what a process only has in memory."""
        self.full = False
        self.writing: tuple[Write, ...] = ()
        self.incoming = b""
        self.saving: Snapshot | None = None
        self.installing: tuple[Snapshot, bool] | None = None
        self.sent: list[tuple[str, Message]] = []
        self.seen: list[Seen] = []
        self.told: list[str] = []

    def copy(self) -> Member:
        """A member to step; nothing that a step changes is shared."""
        other: Member = Member.__new__(Member)
        for name in self.__slots__:
            setattr(other, name, getattr(self, name))
        other.core = None if self.core is None else copy_core(self.core)
        other.sent, other.seen, other.told = [], [], []
        return other

    # -- what happens to a copy --------------------------------------------------------------

    def give(self, event: ev.Event, now_ms: int = 0) -> None:
        """One event of the core, and all that its shell does at once."""
        assert self.core is not None
        self._carry_out(self.core.step(now_ms, event))
        if isinstance(event, ev.Received):
            check_counted(self.core.node, event.message)

    def persist(self) -> None:
        """The oldest write has become durable."""
        write, self.writing = self.writing[0], self.writing[1:]
        self.disk = self.disk.written(write.persist)
        for send in write.held:
            self._transmit(send)
        self.give(ev.Persisted(write.persist.seq))

    def crash(self, kept: int) -> None:
        """The power fails; ``kept`` writes have reached the disk, although nobody heard."""
        for write in self.writing[:kept]:
            self.disk = self.disk.written(write.persist)
        self._clear()
        self.core = None
        self.applied_index, self.records = 0, ()

    def lose(self, kind: str) -> None:
        """The power fails, and the store is gone: who starts then is ``new`` or ``recovering``."""
        self.crash(0)
        self.stores += 1
        self.disk = Disk(
            ev.HardState(standing=ev.Standing(kind, store_id(self.node_id, self.stores)))
        )

    def restart(self) -> None:
        """The process starts on what is durable."""
        disk = self.disk
        found = Recovered(hard_state=disk.hard_state, entries=list(disk.entries), base=disk.base)
        base_index, base_term, entries, again = join_snapshot(found, disk.snapshot)
        if again:
            self.disk = disk._replace(base=(base_index, base_term), entries=())
        if disk.snapshot.last_index > 0:
            self.records = tuple(msgspec.msgpack.decode(disk.data, type=list[bytes]))
        self.applied_index = disk.snapshot.last_index
        self.core = RaftCore(
            node_id=self.node_id,
            members=self.names,
            settings=self.settings,
            hard_state=disk.hard_state,
            entries=entries,
            base_index=base_index,
            base_term=base_term,
            snapshot=disk.snapshot,
        )

    def change_space(self, *, enough: bool) -> None:
        """The disk is found to be full, or has space again.

        What waits for a full disk is written in the room of the reserve, sooner or later. What of
        that room is for entries is taken as used up, so that none fits any more.
        """
        assert self.core is not None
        self.full = not enough
        self.give(ev.SpaceChanged(enough))
        self.core.node.spare_bytes = 0

    def begin_snapshot(self) -> None:
        """The state is taken; it is not durable yet."""
        assert self.core is not None
        data = _pack(self.records)
        term = self.core.node.log.term_at(self.applied_index) or NO_TERM
        self.saving = Snapshot(ev.SnapshotMeta(self.applied_index, term, len(data)), data)

    def save_snapshot(self) -> None:
        """The snapshot is durable; one that the leader's has overtaken is dropped.

        The core must not hear of it then: the newer one is on the disk and may not be loaded yet.
        """
        assert self.saving is not None
        taken, self.saving = self.saving, None
        if taken.meta.last_index > self.disk.snapshot.last_index:
            self.disk = self.disk._replace(snapshot=taken.meta, data=taken.data)
            self.give(ev.SnapshotTaken(taken.meta))

    def save_install(self) -> None:
        """The leader's snapshot is durable; it is not loaded yet."""
        assert self.installing is not None
        incoming, _ = self.installing
        self.installing = (incoming, True)
        if incoming.meta.last_index > self.disk.snapshot.last_index:
            self.disk = self.disk._replace(snapshot=incoming.meta, data=incoming.data)

    def refuse_install(self) -> None:
        """There is no space for the leader's snapshot."""
        self.installing = None
        self.give(ev.SnapshotInstalled(ev.SnapshotMeta()))

    def install(self) -> None:
        """The leader's snapshot is loaded, and the log restarted behind it where it must be."""
        assert self.installing is not None
        assert self.core is not None
        (incoming, _), self.installing = self.installing, None
        meta = incoming.meta
        if self.is_newer(meta):
            if self.core.node.log.term_at(meta.last_index) != meta.term:
                self.disk = self.disk._replace(base=(meta.last_index, meta.term), entries=())
            self.records = tuple(msgspec.msgpack.decode(incoming.data, type=list[bytes]))
            self.applied_index = meta.last_index
        self.give(ev.SnapshotInstalled(meta))

    def is_newer(self, meta: ev.SnapshotMeta) -> bool:
        """Whether a snapshot would carry this state forward."""
        return meta.last_index > self.applied_index

    # -- the shell ---------------------------------------------------------------------------

    def _carry_out(self, effects: list[ev.Effect]) -> None:
        persisting = False
        for effect in effects:
            match effect:
                case ev.Persist():
                    persisting = True
                    self.writing = (*self.writing, Write(effect, ()))
                case ev.Send() | ev.SendSnapshot():
                    self._hold_or_send(effect, persisting)
                case _:
                    self._local(effect)

    def _hold_or_send(self, effect: ev.Send | ev.SendSnapshot, persisting: bool) -> None:
        hard = [i for i, w in enumerate(self.writing) if w.persist.hard_state is not None]
        position = len(self.writing) - 1 if persisting else max(hard, default=-1)
        if position < 0:
            self._transmit(effect)
            return
        write = self.writing[position]
        held = write._replace(held=(*write.held, effect))
        self.writing = (*self.writing[:position], held, *self.writing[position + 1 :])

    def _transmit(self, effect: ev.Send | ev.SendSnapshot) -> None:
        if isinstance(effect, ev.Send):
            check_said(self.disk.hard_state.standing, effect.message)
            self.sent.append((effect.to, effect.message))
            return
        to, term, meta, offset, length, number = effect
        if meta == self.disk.snapshot:
            data = self.disk.data[offset : offset + length]
            self.sent.append((to, SnapshotRequest(
                term, self.node_id, meta.last_index, meta.term, offset, meta.size, data, number,
                meta.digest,
            )))  # fmt: skip

    def _local(self, effect: ev.Effect) -> None:
        assert self.core is not None
        match effect:
            case ev.Apply(entries):
                for entry in entries:
                    invariant(
                        entry.log_index == self.applied_index + 1,
                        "entries are applied in order",
                        index=entry.log_index,
                        applied_index=self.applied_index,
                    )
                    self.applied_index = entry.log_index
                    self.records += (entry.data,) if entry.data else ()
                self.seen += entries
                self.told.append(f"applies up to {self.applied_index}")
            case ev.RoleChanged(role, term, leader_id):
                self.told.append(f"is {role} of term {term} (leader {leader_id})")
                if role == Role.LEADER.value:
                    log = self.core.node.log
                    before = log.last_index - 1  # without the no-op that opens the term
                    entries = log.between(log.base_index + 1, before)
                    self.seen.append(Led(term, log.base_index, entries))
            case ev.ReadReady(tokens):
                self.seen += [Read(self.applied_index, token) for token in tokens]
            case ev.StoreSnapshotChunk(offset, data):
                self.incoming = data if offset == 0 else self.incoming + data
            case ev.InstallSnapshot(meta):
                self.installing = (Snapshot(meta, self.incoming), False)
                self.incoming = b""
            case ev.CompactLog(up_to_index):
                # Segments go when nothing in them is needed; the last entry of all stays.
                kept = tuple(e for e in self.disk.entries if e.log_index >= up_to_index)
                if kept:
                    self.disk = self.disk._replace(entries=kept)
            case _:
                pass

    # -- the end of a step -------------------------------------------------------------------

    def finish(self, before: Member | None) -> None:
        """Tidy up, and check what no step may do to its own node; None when a life begins or ends.

        Raises:
            InvariantBroken: a durable term or ``applied_index`` went back.
        """
        self._tidy()
        if before is not None:
            watch = RaftWatch()
            watch.term_seen(self.node_id, before.disk.hard_state.term)
            watch.term_seen(self.node_id, self.disk.hard_state.term)
            invariant(
                self.applied_index >= before.applied_index,
                "a node's applied_index fell",
                node=self.node_id,
                before=before.applied_index,
                now=self.applied_index,
            )

    def _tidy(self) -> None:
        """Bring times and sequence numbers into one form, so that equal states are equal.

        What a node has learned of how slow others are (``patience``) only moves deadlines.
        """
        if self.core is None:
            return
        node = self.core.node
        for name in vars(node):
            if name.endswith("_ms") and name != "round_started_ms":
                setattr(node, name, TIMES.get(name, 0))
        node.round_started_ms = deque((number, 0) for number, _ in node.round_started_ms)
        node.elections = 0
        node.patience = Patience(node.settings)
        node.replaced = ("", 0)
        done = node.persist_seq - len(node.persisting)
        node.persisting = deque((seq - done, i, t) for seq, i, t in node.persisting)
        node.persist_seq -= done
        node.voted_for_self_seq = max(0, node.voted_for_self_seq - done)
        node.standing_seq = max(0, node.standing_seq - done)
        self.writing = tuple(
            w._replace(persist=w.persist._replace(seq=number))
            for number, w in enumerate(self.writing, 1)
        )


def member_plain(member: Member, names: dict[str, str]) -> list[Any]:
    """Everything that what a member does next depends on."""
    node: list[Any] = []
    if member.core is not None:
        node = [
            plain(value, names)
            for name, value in sorted(vars(member.core.node).items())
            if (name not in UNKEYED and not name.endswith("_ms")) or name == "round_started_ms"
        ]
    rest = (member.disk, member.applied_index, member.records, member.writing, member.incoming,
            member.saving, member.installing, member.stores, member.full)  # fmt: skip
    return [names[member.node_id], node, plain(rest, names)]
