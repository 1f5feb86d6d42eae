"""A Raft group of real ``RaftNode`` shells on the simulator's disks, network and time.

Nothing of the shell is written again here: what a test shows of holding sends back, of installs
or of the log on disk, it shows of the code that runs in production. Every message that arrives is
held against the disk of who sent it: a vote or an acknowledgement that is not durable there fails
the test at that moment.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import random
from collections.abc import Callable, Generator, Mapping
from typing import Any, ClassVar

import msgpack

from rmqha.base.errors import DiskFailed, StoreCorrupted
from rmqha.base.ids import ConnectionId
from rmqha.base.proofs import Secrets
from rmqha.controller.aio.raft_node import RaftNode
from rmqha.controller.raft import events as ev
from rmqha.controller.raft import wal_layout as layout
from rmqha.controller.raft.core import RaftCore
from rmqha.controller.raft.members import Member
from rmqha.controller.raft.membership import UNDER_WAY
from rmqha.controller.raft.messages import AppendResponse, Entry, Message, VoteResponse
from rmqha.controller.raft.settings import RaftSettings
from rmqha.controller.settings import Peer
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.aio.server import RemotingServer
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.settings import RemotingSettings
from rmqha.sim.clock import SimClock, SimRng
from rmqha.sim.disk import SimDisk, SimFile
from rmqha.sim.loop import HOST, SimLoop
from rmqha.sim.net import SimNet, Weather
from rmqha.sim.trace import Trace, TraceLogger
from rmqha.verify.raft import RaftWatch

PORT = 9
STORE = "/store"
NEVER = 1 << 60


class Change:
    """A change of the group that was asked for; ``answer`` is None until there is one."""

    answer: str | None = None


class Life:
    """One life of one node: its shell, its port, and the state that its log makes."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.clock = SimClock(cluster.loop)
        self.records: list[bytes] = []
        self.context = context = contextvars.copy_context()
        context.run(HOST.set, name)
        self.network = cluster.net.boot(name, context)
        log = TraceLogger(cluster.trace, name)
        remoting = RemotingSettings()
        secrets = cluster.secrets.get(name, "")
        self.node = RaftNode(
            group="group",
            node_id=name,
            members=tuple(Peer(one, one, PORT) for one in sorted({*cluster.members, name})),
            store_path=STORE,
            settings=cluster.settings,
            remoting=remoting,
            machine=self,
            snapshot_every=cluster.snapshot_every or NEVER,
            segment_bytes=cluster.segment_bytes,
            secrets=secrets if isinstance(secrets, Secrets) else Secrets(secrets),
            clock=self.clock,
            rng=SimRng(cluster.random.randrange(1 << 30)),
            disk=cluster.disks[name],
            network=self.network,
            log=log,
        )
        self.server = RemotingServer(
            self.network, self.clock, remoting, self, connection_ids=cluster.ids
        )
        self.task = cluster.loop.create_task(self._start(), name=f"start {name}", context=context)

    async def _start(self) -> None:
        await self.node.open()
        await self.server.start(self.name, PORT)
        self.node.join()

    # -- what the port brings ----------------------------------------------------------------

    def on_commands(self, connection: Connection, commands: list[RemotingCommand]) -> None:
        for command in commands:
            if command.code == RequestCode.RAFT_HELLO:
                self.node.peers.on_hello(connection, command)
            else:
                self.node.peers.on_frame(connection, command)

    def on_closed(self, connection: Connection, error: Exception | None) -> None:
        self.node.peers.on_closed(ConnectionId(connection.id))

    # -- state_machine.StateMachine ----------------------------------------------------------------

    def apply(self, entries: tuple[Entry, ...]) -> None:
        for entry in entries:
            self.cluster.entry_applied(self.name, entry)
            self.records.append(entry.data)

    def leader_ready(self, term: int) -> None:
        pass

    def role_changed(self, role: str, term: int, leader_id: str | None) -> None:
        self.cluster.trace.say(self.name, f"{role} term {term} leader {leader_id}")
        core = self.node.core
        if role == "leader" and core is not None:
            self.cluster.watch.leader_elected(self.name, term, core.node.log.last_index - 1)

    def reads_ready(self, tokens: tuple[int, ...]) -> None:
        for token in tokens:
            self.cluster.reads_done[token] = len(self.records)

    def refused(self, records: tuple[bytes, ...], tokens: tuple[int, ...]) -> None:
        self.cluster.records_refused += records
        self.cluster.reads_refused.update(tokens)

    def check_record(self, record: bytes) -> None:
        if record == self.cluster.poison:
            raise StoreCorrupted("poison")

    def check_snapshot(self, data: bytes) -> Generator[None, None, None]:
        msgpack.unpackb(data)
        yield

    def snapshot(self) -> bytes:
        packed: bytes = msgpack.packb(self.records)
        return packed

    def restore(self, index: int, data: bytes) -> None:
        self.records[:] = msgpack.unpackb(data)

    def fatal(self, error: Exception) -> None:
        self.cluster.failed(self.name, error)


class Cluster:
    """Nodes ``n0 .. n(count-1)``; times are milliseconds.

    Args:
        count: of nodes.
        seed: decides everything.
        delay_ms, fsync_ms: of a message and of a sync, shortest and longest.
        loss: share of segments that come 200 ms late, as TCP's retransmissions do.
        snapshot_every: entries between two snapshots, 0 for none.
        lazy: start no node yet.
        spare: nodes beside, which no file but their own names; they are started by hand.
    """

    alive: ClassVar[list[Cluster]] = []

    def __init__(
        self,
        count: int = 3,
        *,
        seed: int = 0,
        settings: RaftSettings | None = None,
        delay_ms: tuple[float, float] = (1, 3),
        fsync_ms: tuple[float, float] = (1, 4),
        loss: float = 0.0,
        snapshot_every: int = 0,
        segment_bytes: int = 20_000,
        lazy: bool = False,
        spare: int = 0,
    ) -> None:
        self.random = random.Random(seed)
        self.settings = settings or RaftSettings()
        self.snapshot_every, self.segment_bytes = snapshot_every, segment_bytes
        self.members = tuple(f"n{i}" for i in range(count))
        self.names = tuple(f"n{i}" for i in range(count + spare))
        self.alive.append(self)
        self.loop = SimLoop()
        asyncio.set_event_loop(self.loop)
        self.trace = Trace(self.loop)
        self.net = SimNet(self.loop, random.Random(self.random.random()))
        self.disks = {one: SimDisk(random.Random(self.random.random())) for one in self.names}
        self.set_weather(delay_ms, fsync_ms, loss)
        self.ids = itertools.count(1)
        self.lives: dict[str, Life] = {}
        self.reads_done: dict[int, int] = {}
        self.reads_refused: set[int] = set()
        self.records_refused: tuple[bytes, ...] = ()
        self.poison = b"\x00poison"
        self.secrets: Mapping[str, str | Secrets] = {}
        self.watch = RaftWatch()
        self.errors: list[BaseException] = []
        self.messages_checked = 0
        if not lazy:
            for one in self.members:
                self.start(one, wait=False)
            self.run_until(lambda: all(life.task.done() for life in self.lives.values()))

    def set_weather(
        self,
        delay_ms: tuple[float, float] = (1, 3),
        fsync_ms: tuple[float, float] = (1, 4),
        loss: float = 0.0,
    ) -> None:
        """How quick network and disks are from now on."""
        self.net.weather = Weather(*delay_ms, loss=loss)
        for disk in self.disks.values():
            disk.mood.sync_min_ms, disk.mood.sync_max_ms = fsync_ms

    # -- life ------------------------------------------------------------------------------

    def start(self, name: str, *, wait: bool = True) -> None:
        """Start a node on what its disk holds."""
        self.lives[name] = life = Life(self, name)
        life.node.peers._on_message = self._checked(name, life.node.peers._on_message)
        if wait:
            self.run_until(life.task.done)

    def crash(self, name: str, *, power: bool = False) -> None:
        """Kill a node; with ``power`` what it had not synced is lost."""
        self.say(f"{name} crashes")
        self.lives.pop(name).clock.dead = True
        self.net.kill(name, power=power)
        self.loop.end_host(name)
        if power:
            self.disks[name].power_cut()

    def wipe(self, name: str) -> None:
        """Replace the disk of a dead node by an empty one, when its last words have arrived."""
        self.run(20)
        self.disks[name].files.clear()

    def failed(self, name: str, error: Exception) -> None:
        """A node stops itself, because of its disk or because a rule broke."""
        self.say(f"{name} fails: {error}")
        if not isinstance(error, DiskFailed):
            self.errors.append(error)

    # -- time ------------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        return int(self.loop.time() * 1000)

    def run(self, duration_ms: float) -> None:
        """Let time pass; raises the first error of any node, task or check."""
        self.loop.run_until_complete(asyncio.sleep(duration_ms / 1000))
        self.errors += self.loop.errors
        for life in self.lives.values():
            if life.task.done() and life.task.exception() is not None:
                self.errors.append(life.task.exception())  # type: ignore[arg-type]  # not None
        if self.errors:
            self.errors[0].add_note("\n".join(self.lines[-60:]))
            raise self.errors[0]

    def run_until(self, condition: Callable[[], Any], limit_ms: int = 5_000) -> None:
        end = self.now_ms + limit_ms
        while not condition():
            assert self.now_ms < end, "\n".join(["not reached:", *self.lines[-40:]])
            self.run(1)

    # -- doing -----------------------------------------------------------------------------

    @property
    def lines(self) -> list[str]:
        return self.trace.lines

    @property
    def cores(self) -> dict[str, RaftCore]:
        """The cores of the living nodes."""
        return {
            name: life.node.core for name, life in self.lives.items() if life.node.core is not None
        }

    @property
    def applied(self) -> dict[str, list[bytes]]:
        """What each living node has applied, no-ops included."""
        return {name: life.records for name, life in self.lives.items()}

    def say(self, text: str) -> None:
        self.trace.say("test", text)

    def give(self, name: str, event: ev.Event) -> None:
        """Feed a node one event, now."""
        life = self.lives[name]

        async def feed() -> None:
            life.context.run(life.node.give, event)

        self.loop.run_until_complete(feed())

    def change(self, member: Member, *, joins: bool, at: str | None = None) -> Change:
        """Ask the leader for another group; the answer comes later."""
        life = self.lives[at or self.wait_leader()]
        change = Change()

        async def ask() -> None:
            change.answer = await life.node.change_members(member, joins=joins)

        self.loop.create_task(ask(), context=life.context.copy())
        return change

    def joins(self, name: str) -> None:
        """A node is started, if it does not run, and added, and votes in the end."""
        if name not in self.lives:
            self.start(name)
        self._changed(Member(name, name, PORT), joins=True)
        self.run_until(lambda: name in self.cores[self.leader() or name].node.voters)

    def leaves(self, name: str) -> None:
        """A node is removed."""
        self._changed(Member(name, name, PORT), joins=False)

    def _changed(self, member: Member, *, joins: bool) -> None:
        """The group changes, when the change before is done."""
        answer: str | None = UNDER_WAY
        while answer == UNDER_WAY:
            change = self.change(member, joins=joins)
            self.run_until(lambda change=change: change.answer is not None)  # type: ignore[misc]  # bound here
            answer = change.answer
        assert answer == ""

    def voters(self) -> dict[str, tuple[str, ...]]:
        """Who votes, as each living node knows it."""
        return {name: core.node.voters for name, core in self.cores.items()}

    def propose(self, *records: bytes) -> None:
        leader = self.leader()
        if leader is not None:
            self.give(leader, ev.Proposed(records))

    def cut(self, source: str, target: str) -> None:
        self.net.cut(source, target)

    def isolate(self, *nodes: str) -> None:
        self.say(f"cut off {' '.join(nodes)}")
        for inside in nodes:
            for outside in self.names:
                if outside not in nodes:
                    self.net.cut(inside, outside)
                    self.net.cut(outside, inside)

    def heal(self) -> None:
        self.say("healed")
        self.net.heal()

    # -- checking --------------------------------------------------------------------------

    def entry_applied(self, name: str, entry: Entry) -> None:
        """Committed means: the same everywhere, and durable on a majority at this moment."""
        self.watch.entry_applied(name, entry.log_index, entry.term, entry.data)

    def _checked(self, to: str, on_message: Callable[[Message], None]) -> Callable[..., None]:
        """Hold what arrives against the disk of who sent it."""

        def check(message: Message) -> None:
            match message:
                case VoteResponse(term, sender, True):
                    held = self.durable(sender).hard_state
                    assert (held.term, held.vote) == (term, to) or held.term > term, (
                        f"{sender} voted for {to} in term {term}, and its disk has {held}"
                    )
                    self.messages_checked += 1
                case AppendResponse(term, sender, True, match_index):
                    # What comes late may have been cut since, by a leader of a later term.
                    last = self.durable_last_index(sender)
                    cut_since = self.durable(sender).hard_state.term > term
                    assert match_index <= last or cut_since, (
                        f"{sender} acknowledged {match_index}, and its disk ends at {last}"
                    )
                    self.messages_checked += 1
                case _:
                    pass
            on_message(message)

        return check

    def durable(self, name: str) -> layout.Recovered:
        """What a power cut would leave of a node's log."""
        recovery = layout.Recovery("group", name)
        found = self._files(name, ".wal")
        for path, file in found:
            recovery.read_segment(path, file.durable, is_last=path == found[-1][0])
        return recovery.result

    def durable_last_index(self, name: str) -> int:
        """Where a node's log and snapshot end on its disk."""
        content = self.durable(name)
        base = content.base[0] if content.base is not None else 0
        snapshots = self._files(name, ".snapshot")
        meta = 0
        if snapshots:
            path, file = snapshots[-1]
            meta = layout.decode_snapshot(path, file.durable, "group")[0]
        return max(content.entries[-1].log_index if content.entries else 0, base, meta)

    def _files(self, name: str, suffix: str) -> list[tuple[str, SimFile]]:
        files = self.disks[name].files
        return [
            (path, file)
            for path, file in sorted(files.items())
            if path.endswith(suffix) and isinstance(file, SimFile)
        ]

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

    def close(self) -> None:
        """Kill every node and free the loop."""
        for name in list(self.lives):
            self.crash(name)
        self.loop.run_until_complete(asyncio.sleep(0.001))
        self.loop.close()
