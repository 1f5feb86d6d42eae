"""A Raft group of pure cores under virtual time: message delays, losses, crashes, slow disks.

No asyncio: a heap of (time, number, thing). Everything that happens is written to ``lines``, so
that a test can assert a story instead of a state.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from rmqha.base.machine import Note
from rmqha.controller.raft import events as ev
from rmqha.controller.raft.core import RaftCore
from rmqha.controller.raft.messages import Entry, Message, SnapshotRequest
from rmqha.controller.raft.node import Role
from rmqha.controller.raft.settings import RaftSettings
from rmqha.verify.raft import RaftWatch


@dataclass
class Durable:
    """What a node's disk holds."""

    hard_state: ev.HardState = field(default_factory=ev.HardState)
    entries: dict[int, Entry] = field(default_factory=dict)
    base: tuple[int, int] = (0, 0)
    snapshot: ev.SnapshotMeta = field(default_factory=ev.SnapshotMeta)
    snapshot_data: bytes = b""

    def persist(self, effect: ev.Persist) -> None:
        if effect.hard_state is not None:
            self.hard_state = effect.hard_state
        for entry in effect.entries:
            self.entries = {i: e for i, e in self.entries.items() if i < entry.log_index}
            self.entries[entry.log_index] = entry

    def log(self) -> list[Entry]:
        return [self.entries[i] for i in sorted(self.entries) if i > self.base[0]]


class Cluster:
    """Nodes ``n0 .. n(count-1)``."""

    def __init__(
        self,
        count: int = 3,
        *,
        seed: int = 0,
        settings: RaftSettings | None = None,
        delay_ms: tuple[int, int] = (1, 3),
        fsync_ms: tuple[int, int] = (1, 4),
        loss: float = 0.0,
        snapshot_every: int = 0,
    ) -> None:
        self.random = random.Random(seed)
        self.settings = settings or RaftSettings()
        self.delay_ms, self.fsync_ms, self.loss = delay_ms, fsync_ms, loss
        self.snapshot_every = snapshot_every
        self.members = tuple(f"n{i}" for i in range(count))
        self.now_ms = 0
        self.heap: list[tuple[int, int, Callable[[], None]]] = []
        self.counter = 0
        self.disks = {node: Durable() for node in self.members}
        self.cores: dict[str, RaftCore] = {}
        self.lives = dict.fromkeys(self.members, 0)
        self.fsync_queue: dict[str, list[tuple[ev.Persist, list[ev.Effect]]]] = {}
        self.applied: dict[str, list[bytes]] = {}
        self.incoming: dict[str, bytes] = {}
        self.cut: set[tuple[str, str]] = set()
        self.reads_done: dict[int, int] = {}
        self.reads_refused: set[int] = set()
        self.watch = RaftWatch()
        self.lines: list[str] = []
        for node in self.members:
            self.start(node)

    # -- life ------------------------------------------------------------------------------

    def start(self, node: str) -> None:
        disk = self.disks[node]
        self.lives[node] += 1
        self.fsync_queue[node] = []
        self.applied[node] = disk.snapshot_data.split(b",") if disk.snapshot_data else []
        self.cores[node] = RaftCore(
            node_id=node,
            members=self.members,
            settings=self.settings,
            hard_state=disk.hard_state,
            entries=disk.log(),
            base_index=disk.base[0],
            base_term=disk.base[1],
            snapshot=disk.snapshot,
            seed=self.random.randrange(1 << 30),
            now_ms=self.now_ms,
        )
        self.arm(node)

    def crash(self, node: str) -> None:
        """Stop at once; what was not yet durable is lost. Peers see their connections reset."""
        self.say(f"{node} crashes")
        self.lives[node] += 1
        del self.cores[node]
        for other in sorted(self.cores):
            self.after(1, other, lambda other=other: self.give(other, ev.PeerLost(node)))

    # -- time ------------------------------------------------------------------------------

    def at(self, when_ms: int, call: Callable[[], None]) -> None:
        self.counter += 1
        heapq.heappush(self.heap, (when_ms, self.counter, call))

    def after(self, delay_ms: int, node: str, call: Callable[[], None]) -> None:
        life = self.lives[node]

        def run() -> None:
            if self.lives[node] == life and node in self.cores:
                call()

        self.at(self.now_ms + delay_ms, run)

    def run(self, duration_ms: int) -> None:
        end = self.now_ms + duration_ms
        while self.heap and self.heap[0][0] <= end:
            self.now_ms, _, call = heapq.heappop(self.heap)
            call()
        self.now_ms = end

    def run_until(self, condition: Callable[[], bool], limit_ms: int = 5_000) -> None:
        end = self.now_ms + limit_ms
        while not condition():
            assert self.heap, "nothing left to happen"
            assert self.now_ms < end, "\n".join(["not reached:", *self.lines[-40:]])
            self.now_ms, _, call = heapq.heappop(self.heap)
            call()

    def arm(self, node: str) -> None:
        deadline = self.cores[node].next_deadline_ms
        if deadline is not None:
            self.after(max(0, deadline - self.now_ms), node, lambda: self.tick(node, deadline))

    def tick(self, node: str, deadline: int) -> None:
        if self.cores[node].next_deadline_ms == deadline:
            self.give(node, ev.Ticked())
        self.arm(node)

    # -- doing -----------------------------------------------------------------------------

    def say(self, text: str) -> None:
        self.lines.append(f"[{self.now_ms:5d}] {text}")

    def give(self, node: str, event: ev.Event) -> None:
        core = self.cores[node]
        before = core.next_deadline_ms
        effects = core.step(self.now_ms, event)
        self.carry_out(node, effects)
        if node in self.cores and core.next_deadline_ms != before:
            self.arm(node)

    def carry_out(self, node: str, effects: list[ev.Effect]) -> None:
        pending: tuple[ev.Persist, list[ev.Effect]] | None = None
        for effect in effects:
            match effect:
                case ev.Persist():
                    pending = (effect, [])
                    self.fsync_queue[node].append(pending)
                    delay = self.random.randint(*self.fsync_ms)
                    self.after(delay, node, lambda e=effect: self.fsync(node, e.seq))
                case ev.Send() | ev.SendSnapshot():
                    barrier = next(
                        (p for p in reversed(self.fsync_queue[node]) if p[0].hard_state), None
                    )
                    holder = pending or barrier
                    if holder is not None:
                        holder[1].append(effect)
                    else:
                        self.transmit(node, effect)
                case _:
                    self.local(node, effect)

    def fsync(self, node: str, seq: int) -> None:
        queue = self.fsync_queue[node]
        while queue and queue[0][0].seq <= seq:
            persist, held = queue.pop(0)
            self.disks[node].persist(persist)
            self.watch.term_seen(node, self.disks[node].hard_state.term)
            for effect in held:
                self.transmit(node, effect)
            self.give(node, ev.Persisted(persist.seq))

    def transmit(self, node: str, effect: ev.Effect) -> None:
        if isinstance(effect, ev.SendSnapshot):
            data = self.disks[node].snapshot_data[effect.offset : effect.offset + effect.length]
            meta = effect.meta
            message: Message = SnapshotRequest(
                effect.term, node, meta.last_index, meta.term, effect.offset, meta.size, data,
                effect.round,
            )  # fmt: skip
            to = effect.to
        else:
            assert isinstance(effect, ev.Send)
            message, to = effect.message, effect.to
        if (node, to) in self.cut or self.random.random() < self.loss or to not in self.cores:
            return
        delay = self.random.randint(*self.delay_ms)
        self.after(delay, to, lambda: self.give(to, ev.Received(message)))

    def local(self, node: str, effect: ev.Effect) -> None:  # noqa: C901 - one case an effect
        core = self.cores[node]
        disk = self.disks[node]
        match effect:
            case ev.Apply(entries):
                for entry in entries:
                    self.watch.entry_applied(node, entry.log_index, entry.term, entry.data)
                    self.applied[node].append(entry.data)
                self.maybe_snapshot(node)
            case ev.RoleChanged(role, term, leader):
                self.say(f"{node} {role} term {term} leader {leader}")
                if role == Role.LEADER.value:
                    self.watch.leader_elected(node, term, core.node.log.last_index - 1)
            case ev.ReadReady(tokens):
                for token in tokens:
                    self.reads_done[token] = len(self.applied[node])
            case ev.Refused(_, tokens):
                self.reads_refused.update(tokens)
            case ev.StoreSnapshotChunk(offset, data):
                held = b"" if offset == 0 else self.incoming[node]
                self.incoming[node] = held + data
            case ev.InstallSnapshot(meta):
                self.after(2, node, lambda: self.install(node, meta))
            case ev.CompactLog(up_to_index):
                term = disk.entries[up_to_index].term
                disk.base = (up_to_index, term)
            case Note(event, _, facts):
                self.say(f"{node} {event} {facts}")
            case _:
                pass

    def maybe_snapshot(self, node: str) -> None:
        if not self.snapshot_every or len(self.applied[node]) % self.snapshot_every:
            return
        core, applied = self.cores[node], list(self.applied[node])
        index = core.node.commit_index
        if len(applied) != index or core.node.durable_index < index:
            return
        term = core.node.log.term_at(index)
        assert term is not None
        data = b",".join(applied)
        meta = ev.SnapshotMeta(index, term, len(data))

        def written() -> None:
            if meta.last_index > self.disks[node].snapshot.last_index:
                self.disks[node].snapshot, self.disks[node].snapshot_data = meta, data
                self.give(node, ev.SnapshotTaken(meta))

        self.after(1, node, written)

    def install(self, node: str, meta: ev.SnapshotMeta) -> None:
        disk = self.disks[node]
        disk.snapshot, disk.snapshot_data = meta, self.incoming[node]
        assert len(disk.snapshot_data) == meta.size
        kept = disk.entries.get(meta.last_index)
        if kept is None or kept.term != meta.term:
            disk.entries = {}
        disk.base = (meta.last_index, meta.term)
        self.applied[node] = disk.snapshot_data.split(b",")
        self.give(node, ev.SnapshotInstalled(meta))

    # -- looking ---------------------------------------------------------------------------

    def leader(self) -> str | None:
        """The ready leader of the highest term, if there is one."""
        ready = [(c.node.term, n) for n, c in sorted(self.cores.items()) if c.is_ready]
        return max(ready)[1] if ready else None

    def wait_leader(self, limit_ms: int = 5_000) -> str:
        self.run_until(lambda: self.leader() is not None, limit_ms)
        leader = self.leader()
        assert leader is not None
        return leader

    def propose(self, *records: bytes) -> None:
        leader = self.leader()
        if leader is not None:
            self.give(leader, ev.Proposed(records))

    def isolate(self, *nodes: str) -> None:
        self.say(f"cut off {' '.join(nodes)}")
        for inside in nodes:
            for outside in self.members:
                if outside not in nodes:
                    self.cut |= {(inside, outside), (outside, inside)}

    def heal(self) -> None:
        self.say("healed")
        self.cut.clear()
