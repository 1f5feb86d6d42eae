"""Controllers and scripted brokers on simulated hosts, watched by the properties of ``verify``."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import random

from msgspec import Struct

from rmqha.base.errors import DiskFailed
from rmqha.base.ids import BrokerId
from rmqha.base.machine import Note
from rmqha.controller.aio.service import ControllerService
from rmqha.controller.raft.messages import Entry
from rmqha.controller.settings import load_config
from rmqha.sim.broker_agent import AgentSettings, BrokerAgent
from rmqha.sim.clock import SimClock, SimRng
from rmqha.sim.disk import SimDisk
from rmqha.sim.loop import HOST, SimLoop
from rmqha.sim.net import SimNet
from rmqha.sim.trace import Trace, TraceLogger
from rmqha.verify.history import EpochHistory
from rmqha.verify.masters import MastersProperty
from rmqha.verify.raft import RaftWatch
from rmqha.verify.replicas import StateWatch

CONTROLLER_PORT = 9878
BROKER_PORT = 10911
CLUSTER = "SimCluster"
CLOCK_DRIFT = 0.04


class SimOptions(Struct, frozen=True):
    """How large the simulated cluster is."""

    controllers: int = 3
    broker_sets: int = 2
    replicas: int = 3
    snapshot_every: int = 25
    heartbeat_timeout_ms: int = 4000
    unclean: bool = False


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
        self.controllers: dict[str, ControllerService] = {}
        self.brokers: dict[str, BrokerAgent] = {}
        self.clocks: dict[str, SimClock] = {}
        self.ids = itertools.count(1)
        self.lives = itertools.count(1)
        # what each life of a controller saw last: set name to (master epoch, SyncStateSet)
        self.seen: dict[str, dict[str, tuple[int, tuple[BrokerId, ...]]]] = {}
        self.observers: dict[str, str] = {}
        self.controller_hosts = [f"c{i}" for i in range(self.options.controllers)]
        self.broker_hosts = [
            f"b{s}{r}"
            for s in range(self.options.broker_sets)
            for r in range(self.options.replicas)
        ]
        hosts = [*self.controller_hosts, *self.broker_hosts]
        self.disks = {host: SimDisk(random.Random(self.rng.random())) for host in hosts}

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
            "log": TraceLogger(self.trace, host),
            "connection_ids": self.ids,
        }
        self.trace.say(host, "boots")
        self.observers[host] = f"{host}/{next(self.lives)}"
        self.seen[host] = {}
        started: ControllerService | BrokerAgent
        if host in self.controller_hosts:
            started = self.controllers[host] = context.run(self._controller, host, ports)
        else:
            started = self.brokers[host] = context.run(self._broker, host, ports)
        self.loop.create_task(
            self._start(host, started), name=f"boot {host}", context=context.copy()
        )

    async def _start(self, host: str, started: ControllerService | BrokerAgent) -> None:
        """Start; a disk that breaks meanwhile ends the process, as it does later."""
        try:
            await started.start()
        except DiskFailed as error:
            self._failed(host, error)

    def _controller(self, host: str, ports: dict) -> ControllerService:  # type: ignore[type-arg]  # ports of several kinds
        peers = ";".join(f"n{h[1:]}-{h}:{CONTROLLER_PORT}" for h in self.controller_hosts)
        config = load_config(
            {
                "controllerDLegerGroup": "sim",
                "controllerDLegerPeers": peers,
                "controllerDLegerSelfId": f"n{host[1:]}",
                "controllerStorePath": "/store",
                "snapshotEveryEntries": str(self.options.snapshot_every),
                "walSegmentBytes": "20000",
                "enableElectUncleanMaster": str(self.options.unclean).lower(),
            },
            home="",
            user_home="/home",
        )
        return ControllerService(
            config, on_fatal=lambda error: self._failed(host, error), observer=self, **ports
        )

    def _broker(self, host: str, ports: dict) -> BrokerAgent:  # type: ignore[type-arg]  # ports of several kinds
        return BrokerAgent(
            cluster=CLUSTER,
            name=f"set-{host[1]}",
            host=host,
            port=BROKER_PORT,
            controllers=tuple(f"{h}:{CONTROLLER_PORT}" for h in self.controller_hosts),
            store="/store",
            settings=AgentSettings(
                heartbeat_ms=300,
                heartbeat_timeout_ms=self.options.heartbeat_timeout_ms,
                poll_ms=700,
                find_leader_ms=1500,
                invoke_ms=1000,
            ),
            on_role=lambda address, role, epoch: self.trace.say(host, f"is {role}", epoch=epoch),
            history=self.history,
            on_error=self.loop.errors.append,
            **ports,
        )

    def _failed(self, host: str, error: Exception) -> None:
        self.trace.say(host, "stops itself", reason=error)
        if "simulated" not in str(error):
            self.loop.errors.append(error)
        self.loop.call_soon(self.kill, host)

    def kill(self, host: str, *, power: bool = False) -> None:
        """End a host's process at once; with ``power`` its unsynced writes are lost too."""
        if host not in self.clocks:
            return
        self.trace.say(host, "loses power" if power else "is killed")
        self.clocks.pop(host).dead = True
        self.controllers.pop(host, None)
        self.brokers.pop(host, None)
        self.net.kill(host, power=power)
        self.loop.cancel_host(host)
        if power:
            self.disks[host].power_cut()

    # -- what the nodes tell (service.Observer) ----------------------------------------------

    def entry_applied(self, node: str, entry: Entry) -> None:
        """Check the log and the state it makes."""
        self.raft_watch.entry_applied(node, entry.log_index, entry.term, entry.data)
        host = f"c{node[1:]}"
        service = self.controllers.get(host)
        if service is None:
            return
        self.states.applied(node, entry.log_index, service.machine.snapshot())
        self._observe_masters(host, service)

    def _observe_masters(self, host: str, service: ControllerService) -> None:
        seen = self.seen[host]
        for name, one in sorted(service.machine.state.sets.items()):
            epoch, members = seen.get(name, (-1, ()))
            elected = epoch >= 0 and one.master_epoch > epoch
            self.masters.observe(
                name,
                one.master_epoch,
                one.master_broker_id,
                sync_state_set_before=members if elected else None,
                unclean=self.options.unclean,
                observer=self.observers[host],
            )
            if one.master_broker_id is not None:
                self.elections.add((name, one.master_epoch))
            seen[name] = (one.master_epoch, one.sync_state_set)

    def role_changed(self, node: str, role: str, term: int, last_index: int) -> None:
        """Check that a term has one leader, and that it has everything committed."""
        if role == "leader":
            self.raft_watch.leader_elected(node, term, last_index - 1)

    def noted(self, node: str, note: Note) -> None:
        """Nothing to check."""

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

    def close(self) -> None:
        """Stop everything and free the loop."""
        for host in [*self.clocks]:
            self.kill(host)
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
        return len({service.raft.applied_index for service in self.controllers.values()}) == 1
