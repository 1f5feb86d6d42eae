"""Controllers and scripted brokers on simulated hosts, watched by the properties of ``verify``."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from msgspec import Struct

from rmqha.base.errors import DiskFailed, StoreCorrupted
from rmqha.base.ids import BrokerId
from rmqha.base.invariants import invariant
from rmqha.base.machine import Note
from rmqha.controller.aio.service import ControllerService
from rmqha.controller.metadata.snapshot import to_snapshot
from rmqha.controller.metadata.state import BrokerSet, MetadataState
from rmqha.controller.raft.events import Event
from rmqha.controller.raft.messages import Entry
from rmqha.controller.raft.node import VOTER
from rmqha.controller.settings import load_config
from rmqha.sim.broker_agent import AgentSettings, BrokerAgent
from rmqha.sim.calls import CallLog
from rmqha.sim.clock import SimClock, SimRng
from rmqha.sim.coverage import happenings
from rmqha.sim.disk import SimDisk
from rmqha.sim.liveness import LivenessWatch
from rmqha.sim.loop import HOST, SimLoop
from rmqha.sim.net import SimNet
from rmqha.sim.pages import TORN_PAGES
from rmqha.sim.progress import ProgressWatch
from rmqha.sim.trace import Trace, TraceLogger
from rmqha.sim.witness import Witness
from rmqha.verify.history import EpochHistory
from rmqha.verify.masters import MastersProperty
from rmqha.verify.raft import RaftWatch
from rmqha.verify.replicas import StateWatch

CONTROLLER_PORT = 9878
BROKER_PORT = 10911
CLUSTER = "SimCluster"
CLOCK_DRIFT = 0.04
PAST_MS_MAX = 5000
PARTED_SHARE, JOINED_SHARE = 0.1, 0.3
WINDOWS_BYTES = 200, 1_000, 8_000
"""So long a first election has waited for newer logs at least (``coldStartGraceMs``)."""

PACKING_EVERY = 16
"""A whole snapshot is made of every so many entries, and compared."""


COUNTED_NOTES = ("master_probed", "master_given_up")


class SimOptions(Struct, frozen=True):
    """How large the simulated cluster is, and the limits of its controllers.

    Attributes:
        snapshot_every .. requests_in_flight_max: as the controller's settings of these names.
        heartbeat_timeout_ms: after which a silent broker counts as dead.
        heartbeat_ms, poll_ms: between two of a broker's heartbeats, and questions for the master.
        moving: a broker listens on another port in each of its lives.
        unclean: elections may leave the SyncStateSet.
        adopting: brokers may come that other controllers have registered.
        lease_reads: false lets every read wait for a round (``isProcessReadEvent``).
        spare_controllers: run beside the group, until somebody adds them.
    """

    controllers: int = 3
    broker_sets: int = 2
    replicas: int = 3
    snapshot_every: int = 25
    trailing_entries: int = 2000
    snapshot_chunk_bytes: int = 256 * 1024
    wal_segment_bytes: int = 20_000
    entries_per_request_max: int = 512
    requests_in_flight_max: int = 64
    digest_every: int = 1000
    heartbeat_timeout_ms: int = 4000
    heartbeat_ms: int = 300
    poll_ms: int = 700
    moving: bool = False
    unclean: bool = False
    adopting: bool = False
    lease_reads: bool = True
    spare_controllers: int = 0


class SimCluster:
    """Hosts ``c0..`` with controllers, ``b00 b01 ..`` with brokers (set, replica).

    Args:
        seed: decides everything.
        options: the size.
    """

    def __init__(self, seed: int, options: SimOptions | None = None) -> None:
        self.options = options or SimOptions()
        self.rng = random.Random(seed)
        self.loop = SimLoop()
        self.trace = Trace(self.loop)
        self.net = SimNet(self.loop, random.Random(self.rng.random()))
        self.raft_watch = RaftWatch()
        self.masters = MastersProperty()
        self.elections: set[tuple[str, int]] = set()
        self.states = StateWatch()
        self.history = EpochHistory()
        self.controller_keys: dict[str, str] = {}
        self.controllers: dict[str, ControllerService] = {}
        self.brokers: dict[str, BrokerAgent] = {}
        self.clocks: dict[str, SimClock] = {}
        self.ids = itertools.count(1)
        self.lives = itertools.count(1)
        # what each life of a controller saw last: set name to (master epoch, SyncStateSet, master)
        self.seen: dict[str, dict[str, tuple[int, tuple[BrokerId, ...], BrokerId | None]]] = {}
        self.observers: dict[str, str] = {}
        self.gone: set[str] = set()
        self.founders = [f"c{i}" for i in range(self.options.controllers)]
        spare = range(
            self.options.controllers, self.options.controllers + self.options.spare_controllers
        )
        self.controller_hosts = [*self.founders, *(f"c{i}" for i in spare)]
        self.broker_hosts = [
            f"b{s}{r}"
            for s in range(self.options.broker_sets)
            for r in range(self.options.replicas)
        ]
        hosts = [*self.controller_hosts, *self.broker_hosts]
        self.disks = {host: SimDisk(random.Random(self.rng.random())) for host in hosts}
        self.counts: Counter[str] = Counter()
        self._part_writes(seed)
        self.calls = CallLog(self.loop.time, counts=self.counts)
        # Called with each line that a node logs, and its facts.
        self.logged: list[Callable[[str, dict[str, object]], None]] = []
        self.witness = Witness(self.raft_watch, self.counts)
        self.liveness = LivenessWatch(self)
        self.progress = ProgressWatch(self)
        # Controllers that have read their store and listen.
        self.listening: set[str] = set()
        # Controllers whose store was damaged or emptied and that have not caught up since, and
        # those of them that refuse to start on what is left.
        self.damaged: set[str] = set()
        self.refused: set[str] = set()
        # Controllers that do not vote, by what they say of their standing.
        self.voteless: set[str] = set()
        self.election_max_ms = 300
        # Called with a controller's host, after each event that its node took.
        self.on_step: Callable[[str], None] | None = None
        self._reached: asyncio.Future[None] | None = None

    # -- hosts -----------------------------------------------------------------------------

    def boot(self, host: str) -> None:
        """Start a host's process on what its disk holds."""
        context = contextvars.copy_context()
        context.run(HOST.set, host)
        network = self.net.boot(host, context)
        rate = 1 + self.rng.uniform(-CLOCK_DRIFT, CLOCK_DRIFT)
        clock = SimClock(self.loop, rate=rate, offset_ms=self.rng.randint(0, 1_000_000))
        self.clocks[host] = clock
        ports = {
            "clock": clock,
            "rng": SimRng(self.rng.randint(0, 1 << 30)),
            "disk": self.disks[host],
            "network": network,
            "log": TraceLogger(self.trace, host, self._logged),
            "connection_ids": self.ids,
        }
        self.trace.say(host, "boots")
        self.liveness.disturbed(host)
        self.observers[host] = f"{host}/{next(self.lives)}"
        self.seen[host] = {}
        started: ControllerService | BrokerAgent
        if host in self.controller_hosts:
            if self.disks[host].mood.unreadable:
                # It takes its store for lost, and sets it aside file by file.
                self.damaged.add(host)
            started = self.controllers[host] = context.run(self._controller, host, ports)
            self.witness.node_made(started, self.disks[host])
            if self.on_step is not None:
                self._watch_steps(host, started, self.on_step)
        else:
            started = self.brokers[host] = context.run(self._broker, host, ports)
        self.start_task(host, self._start(host, started))

    def _watch_steps(
        self, host: str, service: ControllerService, on_step: Callable[[str], None]
    ) -> None:
        give = service.raft.give

        def watched(event: Event) -> None:
            give(event)
            if self.controllers.get(host) is service:
                on_step(host)

        setattr(service.raft, "give", watched)  # noqa: B010 - methods cannot be assigned

    def start_task(self, host: str, work: Coroutine[Any, Any, None]) -> None:
        """Run a task of a host; what it raises ends the run."""
        context = self.net.contexts[host].copy()
        task = self.loop.create_task(work, name=f"on {host}", context=context)
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.loop.errors.append(error)

    async def _start(self, host: str, started: ControllerService | BrokerAgent) -> None:
        """Start; a disk that breaks meanwhile ends the process, as it does later."""
        try:
            await started.start()
        except DiskFailed as error:
            self._failed(host, error)
        except StoreCorrupted as error:
            if host in self.damaged:
                self.refused.add(host)
                self.counts["damaged store refused"] += 1
            self._failed(host, error)
        else:
            if isinstance(started, ControllerService) and self.controllers.get(host) is started:
                self.listening.add(host)
                self.witness.node_opened(started)

    def _controller(self, host: str, ports: dict) -> ControllerService:  # type: ignore[type-arg]  # ports of several kinds
        hosts = sorted({*self.founders, host})
        peers = ";".join(f"n{h[1:]}-{h}:{CONTROLLER_PORT}" for h in hosts)
        config = load_config(
            {
                "controllerDLegerGroup": "sim",
                "controllerDLegerPeers": peers,
                "controllerDLegerSelfId": f"n{host[1:]}",
                "controllerStorePath": "/store",
                "snapshotEveryEntries": str(self.options.snapshot_every),
                "raftTrailingEntries": str(self.options.trailing_entries),
                "raftSnapshotChunkBytes": str(self.options.snapshot_chunk_bytes),
                "raftEntriesPerRequestMax": str(self.options.entries_per_request_max),
                "raftRequestsInFlightMax": str(self.options.requests_in_flight_max),
                "raftDigestEveryEntries": str(self.options.digest_every),
                "adoptUnknownBrokers": str(self.options.adopting).lower(),
                "enableElectUncleanMaster": str(self.options.unclean).lower(),
                "isProcessReadEvent": str(not self.options.lease_reads).lower(),
                **self.controller_keys,
            },
            home="",
            user_home="/home",
        )
        # Smaller than an operator may have it: a story has some hundred entries.
        config.values["walSegmentBytes"] = str(self.options.wal_segment_bytes)
        return ControllerService(
            config, on_fatal=lambda error: self._failed(host, error), observer=self, **ports
        )

    def _broker(self, host: str, ports: dict) -> BrokerAgent:  # type: ignore[type-arg]  # ports of several kinds
        return BrokerAgent(
            cluster=CLUSTER,
            name=f"set-{host[1]}",
            host=host,
            port=BROKER_PORT + (self.rng.randint(0, 1) if self.options.moving else 0),
            controllers=tuple(f"{h}:{CONTROLLER_PORT}" for h in self.controller_hosts),
            store="/store",
            settings=AgentSettings(
                heartbeat_ms=self.options.heartbeat_ms,
                heartbeat_timeout_ms=self.options.heartbeat_timeout_ms,
                poll_ms=self.options.poll_ms,
                find_leader_ms=1500,
                invoke_ms=1000,
            ),
            on_role=lambda address, role, epoch: self.trace.say(host, f"is {role}", epoch=epoch),
            history=self.history,
            calls=self.calls,
            on_error=self.loop.errors.append,
            **ports,
        )

    def _failed(self, host: str, error: Exception) -> None:
        self.trace.say(host, "stops itself", reason=error)
        self.counts["stopped itself"] += 1
        if "simulated" not in str(error) and host not in self.refused:
            self.loop.errors.append(error)
        self.loop.call_soon(self.kill, host)

    def _part_writes(self, seed: int) -> None:
        """In half of all stories what was written at once comes in parts, and what was not as one; in
        half of all, too, who writes much is told to pause."""
        segments = self.net.segments
        segments.counts = self.counts
        if random.Random(f"tcp of {seed}").random() < 0.5:
            segments.parted, segments.joined = PARTED_SHARE, JOINED_SHARE
        dice = random.Random(f"windows of {seed}")
        if dice.random() < 0.5:
            self.net.window_bytes = dice.choice(WINDOWS_BYTES)

    def kill(self, host: str, *, power: bool = False) -> None:
        """End a host's process at once; with ``power`` its unsynced writes are lost too."""
        if host not in self.clocks:
            return
        self.trace.say(host, "loses power" if power else "is killed")
        self.clocks.pop(host).dead = True
        service = self.controllers.pop(host, None)
        if service is not None:
            self.counts["leader lost"] += service.raft.leads()
            self.witness.node_gone(service.node_id)
        self.listening.discard(host)
        self.liveness.disturbed(host)
        self.brokers.pop(host, None)
        self.net.kill(host, power=power)
        self.loop.end_host(host)
        if power:
            self.counts[TORN_PAGES] += self.disks[host].power_cut()

    def pause(self, host: str) -> None:
        """Stop a host's process where it is, as SIGSTOP does."""
        if host in self.clocks and not self.loop.is_paused(host):
            self.trace.say(host, "stands still")
            self.net.pause(host)
            self.loop.pause(host)
            self.liveness.disturbed(host)

    def resume(self, host: str) -> None:
        """Let it go on: what it missed comes at once."""
        if self.loop.is_paused(host):
            self.trace.say(host, "goes on")
            self.loop.resume(host)
            self.net.resume(host)
            self.liveness.disturbed(host)

    # -- what the nodes tell (state_machine.Observer) ----------------------------------------------

    def entry_applied(self, node: str, entry: Entry) -> None:
        """Check the log and the state it makes."""
        host = f"c{node[1:]}"
        service = self.controllers.get(host)
        if service is None:
            return
        first_time = self.raft_watch.entry_applied(
            node, entry.log_index, entry.term, entry.data, life=self.observers[host]
        )
        self.counts["entry applied"] += 1
        if first_time:
            self.counts["entry committed"] += 1
            self.progress.committed(entry)
            self.witness.entry_committed(service, entry, bool(self.damaged))
        self.states.applied(node, entry.log_index, service.machine.state)
        if entry.log_index % PACKING_EVERY == 0:
            self._observe_packing(node, entry.log_index, service)
        self._observe_masters(host, service)

    def _observe_packing(self, node: str, index: int, service: ControllerService) -> None:
        """What is packed piece by piece holds what is there."""
        invariant(
            service.machine.snapshot()
            == to_snapshot(index, MetadataState(service.machine.state.sets)),
            "a snapshot holds the state",
            node=node,
            at=index,
        )

    def _observe_masters(self, host: str, service: ControllerService) -> None:
        seen = self.seen[host]
        for name in [name for name in seen if name not in service.machine.state.sets]:
            # Removed as a whole. A late request may make it again, with epochs from 0.
            self.gone.add(name)
            del seen[name]
        for name, one in sorted(service.machine.state.sets.items()):
            known = seen.get(name)
            now = (one.master_epoch, one.sync_state_set, one.master_broker_id)
            if known == now or name in self.gone:
                continue
            epoch, members, master = known or (-1, (), None)
            if known is not None:
                self.masters.observe_step(
                    name, (epoch, master), (one.master_epoch, one.master_broker_id)
                )
            elected = epoch >= 0 and one.master_epoch > epoch
            self.masters.observe(
                name,
                one.master_epoch,
                one.master_broker_id,
                sync_state_set_before=members if elected else None,
                unclean=self.options.unclean,
                observer=self.observers[host],
            )
            self.masters.observe_members(name, one.sync_state_set_epoch, one.sync_state_set)
            if elected and epoch == 0 and one.master_broker_id is not None:
                self._observe_first(host, service, one, one.master_broker_id)
            if one.master_broker_id is not None:
                self.elections.add((name, one.master_epoch))
            seen[name] = now

    def _observe_first(
        self, host: str, service: ControllerService, one: BrokerSet, master: BrokerId
    ) -> None:
        """Compare the first master with what the leader has heard, where there is a past."""
        live, now_ms = service.machine.liveness, self.clocks[host].now_ms()
        first_ms = live.first_heard_ms(one.cluster_name, one.broker_name)
        core = service.raft.core
        if (
            core is None
            or not core.is_leader
            or first_ms is None
            or now_ms - first_ms > PAST_MS_MAX
        ):
            return
        if service.machine.applied_index <= core.node.term_start_index:
            return  # Another decided it, by what had been told to that one.
        heard = {
            broker_id: (said.epoch, said.max_offset)
            for broker_id, said in live.heard_in(one.cluster_name, one.broker_name)
            if live.alive(now_ms, one.cluster_name, one.broker_name, broker_id)
        }
        if any(epoch > 0 for epoch, _ in heard.values()):
            self.counts["set adopted"] += 1
            self.masters.observe_first(one.broker_name, master, heard)

    def look_for_recovered(self) -> None:
        """A damaged node is whole again once it votes and has applied what is committed."""
        for host in sorted(self.damaged):
            service = self.controllers.get(host)
            core = service.raft.core if service is not None else None
            if service is None or core is None or core.node.standing_on_disk != VOTER:
                continue
            if service.raft.applied_index == self.raft_watch.index_max:
                self.trace.say("sim", "has caught up", host=host)
                self.damaged.discard(host)

    def role_changed(self, node: str, role: str, term: int, last_index: int) -> None:
        """Check that a term has one leader, and that it has everything committed."""
        if role == "leader":
            self.counts["leader elected"] += 1
            core = self.controllers[f"c{node[1:]}"].raft.core
            log = None if core is None else core.node.log
            self.raft_watch.leader_elected(node, term, last_index - 1, log)
            clocks = {f"n{host[1:]}": self.clocks[host] for host in self.controllers}
            self.witness.leader_elected(node, term, clocks)

    def noted(self, node: str, note: Note) -> None:
        """Count what is looked for, and look at the state that a snapshot has left."""
        if note.event in COUNTED_NOTES:
            self.counts[f"note: {note.event}"] += 1
        host = f"c{node[1:]}"
        service = self.controllers.get(host)
        if note.event == "snapshot_loaded" and service is not None:
            index = int(note.facts["index"])
            self.raft_watch.positioned(self.observers[host], index)
            self.states.applied(node, index, service.machine.state)
            self.seen[host] = {}

    def _logged(self, host: str, event: str, facts: dict[str, object]) -> None:
        """A node wrote a line into its log."""
        self.counts.update(happenings(event, facts))
        for look in self.logged:
            look(event, facts)
        if event == "request_broken":
            # It was answered, and nobody thought of it.
            self.loop.errors.append(RuntimeError(f"{host}: {facts}"))
        if event == "store_damaged":
            invariant(
                host in self.damaged or "simulated" in str(facts.get("reason")),
                "a node took a store for damaged that nothing damaged",
                host=host,
                reason=facts.get("reason"),
            )
            self.damaged.add(host)
        if event in ("raft_store_opened", "raft_standing_changed"):
            standing = facts.get("standing", facts.get("now"))
            (self.voteless.discard if standing == VOTER else self.voteless.add)(host)
        if event == "raft_store_opened" and host in self.controller_hosts:
            if host in self.damaged:
                self.raft_watch.forget(host)
            self.raft_watch.term_seen(host, int(str(facts["term"])))

    # -- running -----------------------------------------------------------------------------

    def run_for(self, duration_ms: float) -> None:
        """Let virtual time pass.

        Raises:
            Exception: the first error of any callback or task, a broken property first of all.
        """
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(asyncio.sleep(duration_ms / 1000))
        if self.loop.errors:
            raise self.loop.errors[0]

    def run_until(self, end_ms: float) -> None:
        """Let virtual time pass until it is ``end_ms``, or until somebody interrupts.

        Raises:
            Exception: as ``run_for``.
        """
        asyncio.set_event_loop(self.loop)
        self._reached = self.loop.create_future()
        timer = self.loop.call_at(end_ms / 1000, self.interrupt)
        self.loop.run_until_complete(self._reached)
        timer.cancel()
        if self.loop.errors:
            raise self.loop.errors[0]

    def interrupt(self) -> None:
        """Let ``run_until`` return now; what happens at this moment has not all happened."""
        if self._reached is not None and not self._reached.done():
            self._reached.set_result(None)

    def close(self) -> None:
        """Stop everything and free the loop."""
        for host in [*self.clocks]:
            self.kill(host)
        for host in [*self.loop.host_tasks]:
            self.loop.end_host(host)
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.run_until_complete(asyncio.sleep(0.001))
        self.loop.close()

    # -- looking -----------------------------------------------------------------------------

    def leader(self) -> str | None:
        """Host of the ready leader with the highest term."""
        found = [
            (service.raft.core.node.term, host)
            for host, service in sorted(self.controllers.items())
            if service.raft.core is not None and service.raft.is_ready_leader
        ]
        return max(found)[1] if found else None

    def master_hosts(self) -> list[str]:
        """Hosts whose broker believes to be a master."""
        return [host for host, agent in sorted(self.brokers.items()) if agent.role == "master"]

    def is_settled(self) -> bool:
        """Whether a leader leads, and every set has a living master that all replicas follow."""
        leader = self.leader()
        if leader is None or len(self.clocks) != len(self.disks):
            return False
        sets = self.controllers[leader].machine.state.sets
        for number in range(self.options.broker_sets):
            one = sets.get(f"set-{number}")
            if one is None or len(one.sync_state_set) != self.options.replicas:
                return False
            members = [a for h, a in sorted(self.brokers.items()) if h[1] == str(number)]
            masters = [a for a in members if a.role == "master"]
            if [a.broker_id for a in masters] != [one.master_broker_id]:
                return False
            if any(a.master_epoch != one.master_epoch for a in members):
                return False
        group = [self.controllers[f"c{one[1:]}"] for one in self.group(leader)]
        return len({service.raft.applied_index for service in group}) == 1

    def group(self, host: str) -> tuple[str, ...]:
        """Who votes, as one controller knows it."""
        core = self.controllers[host].raft.core
        return () if core is None else core.node.voters
