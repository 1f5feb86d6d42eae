"""One controller node: the port where brokers, tools and the other controllers come together.

bytes -> Connection -> here -> ControllerMachine (what to answer) and RaftNode (what to agree on).
Nothing is decided here: requests wait until the applied state may be read (lease or read index),
then the machine answers or proposes, and its effects are carried out.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

from rmqha.auth.aio.guard import Refusals
from rmqha.auth.aio.server_guard import guarded
from rmqha.auth.aio.server_users import ServerUsers
from rmqha.auth.registered import ProvenAddresses
from rmqha.base.ids import Term
from rmqha.base.invariants import unknown_effect
from rmqha.base.machine import Note, Ticked
from rmqha.base.proofs import Secrets
from rmqha.controller import machine as cm
from rmqha.controller.aio.config_changes import CODES as CONFIG_CODES
from rmqha.controller.aio.config_changes import ConfigChanges
from rmqha.controller.aio.group_requests import CODES as GROUP_CODES
from rmqha.controller.aio.group_requests import GroupRequests
from rmqha.controller.aio.long_answers import LongAnswers
from rmqha.controller.aio.metadata_answer import MetadataAnswer
from rmqha.controller.aio.metrics import CODE_MAX, ControllerMetrics
from rmqha.controller.aio.note_log import NoteLog
from rmqha.controller.aio.notifier import Notifier
from rmqha.controller.aio.prober import Prober
from rmqha.controller.aio.raft_node import RaftNode
from rmqha.controller.aio.replies import RepeatedReplies, reply_to, tell
from rmqha.controller.aio.route_watch import RouteWatch
from rmqha.controller.aio.state_machine import Observer
from rmqha.controller.aio.state_reads import StateReads
from rmqha.controller.machine_settings import machine_settings
from rmqha.controller.metadata.decide import NOT_LEADER, READS, WRITES
from rmqha.controller.metadata.decide_history import history_json
from rmqha.controller.metadata.decision import Decision
from rmqha.controller.metadata.elections import Elections
from rmqha.controller.metadata.snapshot import reading
from rmqha.controller.metadata.state import MetadataState
from rmqha.controller.metadata.status import Status
from rmqha.controller.raft.messages import Entry
from rmqha.controller.raft.node import VOTER
from rmqha.controller.readiness import not_ready
from rmqha.controller.settings import ControllerConfig
from rmqha.controller.traced import CONTROLLER_KIND
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.aio.server import CONNECTION_IDS, RemotingServer, unsupported
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import FLAG_ONEWAY, RemotingCommand
from rmqha.remoting.heartbeat import HEARTBEAT, HeartbeatCommand, beat_of, decode_heartbeat
from rmqha.remoting.repeats import HeaderCache
from rmqha.remoting.settings import RemotingSettings
from rmqha.runtime.aio.driver import Driver
from rmqha.runtime.aio.tasks import Tasks
from rmqha.runtime.aio.trace_file import trace_file
from rmqha.runtime.aio.turns import in_turns
from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import Clock, Disk, Network, Rng

READ_CODES = frozenset(map(int, READS))
WRITE_CODES = frozenset(map(int, WRITES))
PEER_CODES = frozenset({int(RequestCode.RAFT_HELLO), int(RequestCode.RAFT_MESSAGE)})
"""Controllers prove by the raftSecret who they are."""
READS_WAITING_MANY = 2_000
"""While more wait for a round, connections that bring many requests are not read: all that wait are
answered at once, some 15 ms a thousand."""
RAFT_MESSAGE = int(RequestCode.RAFT_MESSAGE)
TRANSFER_TIMEOUT_MS = 1000


class ControllerService:
    """Everything of one controller but its process.

    Args:
        config: checked configuration.
        clock, rng, disk, network: the ports.
        log: bound to this node.
        on_fatal: called when the node must stop (disk failed, safety rule broken).
        observer: watches; None in production.
        connections_max: instead of ``connectionsMax``: there are not descriptors for so many.
    """

    def __init__(
        self,
        config: ControllerConfig,
        *,
        clock: Clock,
        rng: Rng,
        disk: Disk,
        network: Network,
        log: Logger,
        on_fatal: Callable[[Exception], None],
        observer: Observer | None = None,
        connection_ids: Iterator[int] = CONNECTION_IDS,
        connections_max: int | None = None,
    ) -> None:
        self.config = config
        self.node_id = config.self_id
        self._clock = clock
        self._disk = disk
        self._log = log
        self._on_fatal = on_fatal
        self._observer = observer
        remoting = RemotingSettings(
            connections_max=connections_max or config.integer("connectionsMax"),
            held_bytes_max=config.integer("heldBytesMax"),
            idle_timeout_ms=config.integer("serverChannelMaxIdleTimeSeconds") * 1000,
        )
        self.machine = cm.ControllerMachine(machine_settings(config))
        self._driver: Driver[cm.ControllerEvent, cm.ControllerEffect] = Driver(
            self.machine, clock, self._carry_out,
            next_deadline_ms=self._next_deadline_ms, on_due=self._on_timer,
        )  # fmt: skip
        self._trace = trace_file(
            config.values, config.values["controllerStorePath"], disk, clock, log
        )
        self.metrics = ControllerMetrics()
        self.metrics.probes = self.machine.probing.counts
        self.elections = Elections()
        self._replayed_index = 0
        self.raft = RaftNode(
            group=config.group,
            node_id=self.node_id,
            members=config.peers,
            store_path=config.store_path,
            settings=config.raft_settings(),
            remoting=remoting,
            machine=self,
            snapshot_every=config.snapshot_every,
            segment_bytes=config.integer("walSegmentBytes"),
            forgive_damage=config.boolean("raftForgiveDamage"),
            secrets=Secrets.of(config.values, "raft"),
            clock=clock,
            rng=rng,
            disk=disk,
            network=network,
            log=log,
        )
        credentials = config.auth.credentials
        # It signs nothing by itself: most of what it sends goes where anybody may have it sent to.
        self._client = RemotingClient(network, clock, remoting, connection_ids=connection_ids)
        self._proven = ProvenAddresses(credentials)
        self._notifier = Notifier(self._client, self._proven, log)
        self._routes = RouteWatch(self._client, self._proven, clock, log, self._driver.give)
        self._users = ServerUsers(
            config.auth.named, disk, clock, log, path=config.values["authUsersPath"],
            reload_ms=config.integer("authUsersReloadMs"),
        )  # fmt: skip
        refusals = Refusals(log)
        self.rejected = refusals.counts
        handler = guarded(
            self, config.auth, self._users, refusals, self._proven, passes=PEER_CODES,
            has_users=bool(config.auth.named or config.values["authUsersPath"]),
        )  # fmt: skip
        self.server = RemotingServer(
            network, clock, remoting, handler, on_protocol_error=self._protocol_error,
            is_full=lambda: len(self._reads) > READS_WAITING_MANY,
            connection_ids=connection_ids,
            rejected=self.rejected,
            # A beat's fields are signed, too, and then needed as they came.
            headers=HeaderCache(
                decode_beat=None if config.auth.authentication or credentials else decode_heartbeat
            ),
        )  # fmt: skip
        self._tasks = Tasks(log)
        self._long = LongAnswers(self._tasks)
        self._group = GroupRequests(
            config.group, self.raft, self.machine, self._long,
            clock=clock, tasks=self._tasks, log=log,
        )  # fmt: skip
        self._prober = Prober(
            self.raft,
            self._client,
            credentials,
            self._proven,
            clock,
            self._tasks,
            lambda one: self.server.connection(one),
            self._driver.give,
        )
        self.configuration = ConfigChanges(
            config, disk=disk, tasks=self._tasks, log=log, on_changed=self._configured
        )
        self._notes = NoteLog(clock, log)
        self._requests: dict[int, tuple[Connection, RemotingCommand, int]] = {}
        self._reads: dict[int, tuple[Connection, RemotingCommand, int]] = {}
        self._proposed_ms: dict[bytes, int] = {}
        self._checked: tuple[bytes, tuple[int, MetadataState]] | None = None
        self._repeated = RepeatedReplies()
        self._state_reads = StateReads(
            self.machine, self._driver, self._repeated, self._long, clock
        )
        self.metadata = MetadataAnswer(config, self.raft)
        self._next_token = 0
        self._closing = False

    # -- life ------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the store, listen, join the group.

        Raises:
            StoreCorrupted, StoreMismatch, DiskFailed: the store cannot be used.
            ConfigInvalid: the file of users cannot be used.
            OSError: the port cannot be used.
        """
        await self._users.load()
        if self._trace is not None:
            # Before the store is read: its snapshot is the machine's first event.
            await self._trace.open()
            self._driver.recorder = self._trace.core(CONTROLLER_KIND, self.machine.settings)
        await self.raft.open()
        if self.raft.core is not None:
            self._replayed_index = self.raft.core.node.log.last_index
        await self.server.start(self.config.values["bindAddress"], self.config.this.port)
        self.raft.join()
        if self.raft.peers.secrets.is_optional:
            self._log.log("warning", "raft_proof_optional")
        if self.config.values["authUsersPath"]:
            self._tasks.start(self._users.run(), name="users")

    async def stop(self) -> None:
        """Hand leadership over, flush, close."""
        self._closing = True
        handed_over = await self.raft.transfer_leadership(None, TRANSFER_TIMEOUT_MS)
        self._log.log("info", "controller_stopping", handed_over=handed_over)
        await self.close()

    async def close(self) -> None:
        """Close without handing over."""
        self._closing = True
        await self.server.close()
        await self._notifier.close()
        await self._routes.close()
        await self._client.close()
        await self._tasks.close()
        await self.raft.close()
        self._driver.close()
        self._notes.flush()
        if self._trace is not None:
            await self._trace.close()

    async def status(self) -> Status:
        """Plain figures of this node, for metrics and people; others have their turns in between."""
        core = self.raft.core
        if core is not None:
            self.metrics.may_vote = int(core.node.standing_on_disk == VOTER)
            self.metrics.members = len(core.node.members)
            self.metrics.voters = len(core.node.voters)
            self.metrics.unproven = self.raft.peers.unproven
            self.metrics.election_timeout_ms = core.node.patience.election_min_ms
        self.metrics.no_space = int(self.raft.no_space)
        return await in_turns(self.machine.status(self._clock.now_ms()))

    def not_ready(self) -> str | None:
        """What this node lacks, in a sentence; None when it takes part."""
        core = self.raft.core
        if core is None:
            return "its store is being read"
        return not_ready(
            leader_id=core.leader_id,
            may_vote=core.node.standing_on_disk == VOTER,
            is_removed=core.node.is_removed,
            votes=self.node_id in core.node.voters,
        )

    def election_history(self, broker_name: str | None, count: int) -> bytes | None:
        """JSON of the newest elections by this node's applied state; None without such a set."""
        state = self.machine.state
        if broker_name is not None and broker_name not in state.sets:
            return None
        return history_json(state, self.machine.stages, broker_name, count)

    def elected_master(self, broker_name: str) -> tuple[str, int, frozenset[str]] | None:
        """Address and epoch of a set's master, and all addresses; None without set or master.

        By this node's applied state, which may be behind: whoever asks compares epochs.
        """
        known = self.machine.state.sets.get(broker_name)
        if known is None or known.master_broker_id is None:
            return None
        addresses = frozenset(one.address for one in known.replicas.values())
        return known.replicas[known.master_broker_id].address, known.master_epoch, addresses

    # -- requests ----------------------------------------------------------------------------

    def on_commands(self, connection: Connection, commands: list[RemotingCommand]) -> None:
        """Handle one chunk's commands; the connection gathers the answers into one write."""
        now_ms = self._clock.now_ms()
        counts = self.metrics.requests
        may_read = self.raft.lease_valid(now_ms)
        frames: list[bytes] = []
        beats = 0
        for command in commands:
            code = command.code
            if code == HEARTBEAT:
                self._heartbeat(now_ms, connection, command, frames)
                beats += 1
                continue
            if code in READ_CODES:
                if may_read:
                    self._state_reads.read(now_ms, connection, command, frames)
                else:
                    self._wait_to_read(connection, command, now_ms)
            elif code == RAFT_MESSAGE:
                self.raft.peers.on_frame(connection, command)
                continue
            elif code in WRITE_CODES:
                if may_read:
                    self._decide(now_ms, connection, command, now_ms)
                else:
                    self._wait_to_read(connection, command, now_ms)
            else:
                self._other(connection, command, frames)
                self.metrics.count(code)
                continue
            if code < CODE_MAX:
                counts[code] += 1
            else:
                self.metrics.count(code)
        counts[HEARTBEAT] += beats
        if frames:
            connection.send_frames(frames)
        self.raft.rounds.flush()
        self.metrics.batch(len(commands))
        self._driver.arm()

    def on_closed(self, connection: Connection, error: Exception | None) -> None:
        """A connection ended: a peer's, a broker's or a tool's."""
        self.raft.peers.on_closed(connection.id)
        if not self._closing:
            self._group.on_closed(connection.id)
            self._driver.give(cm.ConnectionClosed(connection.id))

    def _protocol_error(self, connection: Connection, error: Exception) -> None:
        self.metrics.protocol_errors += 1
        self._log.log("warning", "frame_refused", address=connection.peer, reason=str(error))

    def _heartbeat(
        self, now_ms: int, connection: Connection, command: RemotingCommand, frames: list[bytes]
    ) -> None:
        beat = command.beat if type(command) is HeartbeatCommand else beat_of(command)
        if self._driver.recorder is not None:
            self._driver.give_at(now_ms, cm.HeartbeatHeard(connection.id, beat))
        elif effects := self.machine.heartbeat(now_ms, connection.id, beat):
            self._driver.carry_out(now_ms, effects)
        if not command.flag & FLAG_ONEWAY:
            answer = self.machine.heartbeat_answer(now_ms, beat)
            frames.append(self._repeated.frame(command, answer))

    def _wait_to_read(self, connection: Connection, command: RemotingCommand, now_ms: int) -> None:
        """The lease has run out, or this node does not lead: ask Raft."""
        if not self.raft.is_ready_leader:
            tell(connection, command, reply_to(command, NOT_LEADER))
            return
        self._next_token += 1
        self._reads[self._next_token] = (connection, command, now_ms)
        self.raft.request_read(self._next_token)

    def _decide(
        self, now_ms: int, connection: Connection, command: RemotingCommand, arrived_ms: int
    ) -> None:
        self._next_token += 1
        token = self._next_token
        self._requests[token] = (connection, command, arrived_ms)
        request = cm.RequestReceived(
            token, connection.id, command.code, command.ext_fields or {}, command.body
        )
        self._driver.give_at(now_ms, request)

    def _other(self, connection: Connection, command: RemotingCommand, frames: list[bytes]) -> None:
        code = command.code
        if command.is_response:
            self._prober.answered(connection, command)
        elif code == RequestCode.CONTROLLER_GET_METADATA_INFO:
            if not command.is_oneway:
                frames.append(self._repeated.frame(command, self.metadata.now()))
        elif code == RequestCode.GET_BROKER_SILENCE:
            now_ms = self._clock.now_ms()
            self._decide(now_ms, connection, command, now_ms)
        elif code in GROUP_CODES:
            self._group.answer(connection, command)
        elif code == RequestCode.RAFT_HELLO:
            self.raft.peers.on_hello(connection, command)
        elif code in CONFIG_CODES:
            self.configuration.answer(connection, command)
        else:
            tell(connection, command, unsupported(command))

    def _configured(self) -> None:
        """Other values count from now on."""
        self._driver.give(cm.Configured(machine_settings(self.config)))
        if self.raft.core is not None:
            self.raft.core.use_lease(not self.config.boolean("isProcessReadEvent"))

    # -- Raft drives us (raft_node.StateMachine) ---------------------------------------------

    def apply(self, entries: tuple[Entry, ...]) -> None:
        """Give committed records to the machine."""
        now_ms = self._clock.now_ms()
        for entry in entries:
            proposed_ms = self._proposed_ms.pop(entry.data, None)
            if proposed_ms is not None:
                self.metrics.appended(now_ms - proposed_ms)
            self._driver.give_at(now_ms, cm.Committed(entry.log_index, entry.data))
            if self._observer is not None:
                self._observer.entry_applied(self.node_id, entry)
        self._driver.arm()

    def leader_ready(self, term: Term) -> None:
        """Start to answer."""
        offset_ms = self._clock.wall_ms() - self._clock.now_ms()
        self._driver.give(cm.LeadershipChanged(True, term, offset_ms))

    def role_changed(self, role: str, term: Term, leader_id: str | None) -> None:
        """Log it; stop answering when this node does not lead any more."""
        self.metrics.role = role
        core = self.raft.core
        last_index = core.node.log.last_index if core is not None else 0
        self._log.log("info", "raft_role_changed", role=role, term=term, leader=leader_id)
        before = self.metrics.leader_id
        if self.metrics.led_by(leader_id):
            self._log.log("warning", "leader_changed", before=before, now=leader_id, term=term)
        if self._observer is not None:
            self._observer.role_changed(self.node_id, role, term, last_index)
        if role != "leader" and self.machine.is_leader:
            self._driver.give(cm.LeadershipChanged(is_leader=False, term=term))
            # Whether the next leader commits them or cuts them off, nobody waits for them here.
            self._proposed_ms.clear()

    def reads_ready(self, tokens: tuple[int, ...]) -> None:
        """These requests may see the applied state now."""
        now_ms = self._clock.now_ms()
        for token in tokens:
            connection, command, arrived_ms = self._reads.pop(token)
            if connection.is_closing:
                # Whoever asked has ended, and this machine may know: it is no sign of life.
                continue
            if command.code in READ_CODES:
                decision = self._state_reads.decision(now_ms, connection, command)
                if decision is not None:
                    self._answer(now_ms, (connection, command, arrived_ms), decision)
            else:
                self._decide(now_ms, connection, command, arrived_ms)

    def refused(self, records: tuple[bytes, ...], tokens: tuple[int, ...]) -> None:
        """Raft cannot take these: tell the machine, and those who wait."""
        for token in tokens:
            self._answer(self._clock.now_ms(), self._reads.pop(token), NOT_LEADER)
        for record in records:
            self._proposed_ms.pop(record, None)
            self.metrics.appends_failed += 1
            self._driver.give(cm.ProposalDropped(record))

    def check_record(self, record: bytes) -> None:
        """Raise StoreCorrupted when the machine could not read it."""
        self.machine.check_record(record)

    def check_snapshot(self, data: bytes) -> Generator[None, None, None]:
        """Raise StoreCorrupted or StoreMismatch when the machine could not load it; in parts."""
        self._checked = (data, (yield from reading(data)))

    def snapshot(self) -> bytes:
        """The machine's state."""
        return self.machine.snapshot()

    def restore(self, index: int, data: bytes) -> None:
        """Load a snapshot into the machine."""
        # Large ones take long to read: what was read to be checked is not read again.
        checked, self._checked = self._checked, None
        state = checked[1] if checked is not None and checked[0] is data else None
        self._driver.give(cm.SnapshotLoaded(index, data, state))

    def fatal(self, error: Exception) -> None:
        """The node must stop."""
        self._log.log("error", "controller_failed", error=str(error))
        self._on_fatal(error)

    # -- effects -----------------------------------------------------------------------------

    def _carry_out(self, effect: cm.ControllerEffect) -> None:
        # Every request passes here twice: a match of fields costs more than what is done.
        match effect:
            case cm.Reply():
                waiting = self._requests.pop(effect.token, None)
                if waiting is not None:
                    self._answer(self._driver.now_ms, waiting, effect)
            case cm.Propose():
                self._proposed_ms[effect.record] = self._driver.now_ms
                self.raft.rounds.propose(effect.record)
            case cm.Notify(address, ext_fields, body):
                self._notifier.notify(address, ext_fields, body)
            case cm.Probe():
                self._prober.probe(effect)
            case cm.AskPeers():
                self._prober.ask_peers(effect)
            case cm.WatchRoute():
                self._routes.watch(effect)
            case Note():
                replayed = self.machine.applied_index <= self._replayed_index
                self.elections.noted(effect, None if replayed else self._clock.wall_ms())
                self._notes.write(effect)
                if self._observer is not None:
                    self._observer.noted(self.node_id, effect)
            case _:
                unknown_effect(effect)

    def _answer(
        self,
        now_ms: int,
        waiting: tuple[Connection, RemotingCommand, int],
        answer: cm.Reply | Decision,
    ) -> None:
        connection, command, arrived_ms = waiting
        self.metrics.latency(command.code, now_ms - arrived_ms)
        if not command.is_oneway:
            # Raft's driver may be above: what one asker cannot be told must not end this node.
            connection.answer(command, reply_to(command, answer))

    # -- time --------------------------------------------------------------------------------

    def _next_deadline_ms(self) -> int | None:
        return None if self._closing else self.machine.next_deadline_ms()

    def _on_timer(self) -> None:
        if not self._closing:
            self._driver.give(Ticked())
