"""The demo's two clusters: real Java brokers with a producer, or scripted agents."""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Self

from rmqha.cli.demo_show import TOPIC, ReplicaRow
from rmqha.testing.real import maven, wire
from rmqha.testing.real.controllers import Controllers
from rmqha.testing.real.java import CLUSTER_NAME, JavaBroker, NameServer
from rmqha.testing.real.processes import Child, allocate_ports, wait_until
from rmqha.testing.real.producer import Producer, missing, read_back

BROKERS = 3
JOIN_TIMEOUT_S = 90.0
# How soon a set is whole again matters more in a demo than in production.
DEMO_BROKER = {
    "checkSyncStateSetPeriod": 1000,
    "syncBrokerMetadataPeriod": 1000,
    "haMaxTimeSlaveNotCatchup": 3000,
    "registerNameServerPeriod": 10000,
    "allAckInSyncStateSet": True,
}


def java_is_there(say: Callable[[str], None]) -> str | None:
    """Why real brokers cannot be had here; None when they can."""
    try:
        maven.java()
        say("Looking for Apache RocketMQ (Maven fetches it at first use) ...")
        maven.classpath()
    except maven.JavaUnavailable as error:
        return str(error).splitlines()[0]
    return None


class DemoCluster(ABC):
    """What both clusters share: the controllers and what is asked of them."""

    what = "brokers"
    broker_name = "broker-a"
    cluster_name = CLUSTER_NAME

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.controllers = Controllers("rmqha", folder)
        self.killed_wall_s = 0.0
        self._victim: Child | None = None

    # -- for each kind -----------------------------------------------------------------------

    @abstractmethod
    def brokers(self) -> list[Child]:
        """The brokers' processes, in the order of their start."""

    @abstractmethod
    def addresses(self) -> list[str]:
        """The brokers' addresses, in the same order."""

    @abstractmethod
    def start_writing(self) -> None:
        """Begin to write, where there is something to write to."""

    def writes_are_back(self) -> bool:
        """Whether the failover is over for a client."""
        return True

    def write_stages(self) -> list[tuple[float, str, str]]:
        """Stages that a client saw: milliseconds after the kill, who, what."""
        return []

    def verdict(self) -> list[str]:
        """What can be said at the end."""
        return []

    # -- the same for both ---------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for child in reversed(self.children()):
            child.kill()

    def children(self) -> list[Child]:
        """Every process of the demo."""
        return [*self.controllers.children, *self.brokers()]

    def logs(self) -> list[tuple[str, Path]]:
        """Name and file of every JSON log."""
        return [
            (f"controller n{index}", child.log)
            for index, child in enumerate(self.controllers.children)
        ]

    def start_controllers(self) -> str:
        """Start them; the leader's id."""
        self.controllers.start()
        return f"n{self.controllers.wait_for_leader()}"

    def start_brokers(self) -> None:
        """Start them one after the other, until all are in the SyncStateSet."""
        for count, broker in enumerate(self.brokers(), 1):
            broker.start()
            registered = partial(self._registered, count)
            wait_until(registered, JOIN_TIMEOUT_S, f"broker {count} to register")
        self._wait_in_sync()

    def _registered(self, count: int) -> bool:
        return len(self.replicas()) >= count

    def _wait_in_sync(self) -> None:
        def whole() -> bool:
            rows = self.replicas()
            return len(rows) == BROKERS and all(row.in_sync for row in rows)

        wait_until(whole, JOIN_TIMEOUT_S, "all brokers to be in the SyncStateSet")

    def replicas(self) -> list[ReplicaRow]:
        """All registered brokers, by id."""
        info = self.controllers.sync_state_set(self.broker_name) or {}
        rows = []
        for key, in_sync in (("inSyncReplicas", True), ("notInSyncReplicas", False)):
            for one in info.get(key, []):
                is_master = one["brokerId"] == info.get("masterBrokerId")
                rows.append(
                    ReplicaRow(
                        one["brokerId"], one["brokerAddress"], is_master, in_sync, one["alive"]
                    )
                )
        return sorted(rows)

    def epoch_and_set(self) -> tuple[int, list[int]]:
        """Master epoch and SyncStateSet."""
        info = self.controllers.replica_info(self.broker_name)
        return (info.master_epoch, sorted(info.sync_state_set)) if info else (0, [])

    def kill_master(self) -> str:
        """Kill the master with SIGKILL and say who it was."""
        master = next(row for row in self.replicas() if row.is_master)
        self._victim = self.brokers()[self.addresses().index(master.address)]
        self.killed_wall_s = time.time()
        self._victim.kill()
        return f"broker {master.broker_id}"

    def revive(self) -> None:
        """Start the killed broker again and wait until it is in sync."""
        if self._victim is not None:
            self._victim.start()
        self._wait_in_sync()


class AgentCluster(DemoCluster):
    """Scripted agents; there are no messages."""

    what = "scripted agents"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._ports = list(allocate_ports()[:BROKERS])
        self._brokers = [self._agent(port) for port in self._ports]

    def _agent(self, port: int) -> Child:
        store = self.folder / f"agent-{port}"
        command = [
            sys.executable, "-m", "rmqha.cli.broker_agent",
            "--cluster", self.cluster_name, "--name", self.broker_name, "--port", str(port),
            "--controllers", self.controllers.address_list, "--store", str(store),
        ]  # fmt: skip
        return Child(f"agent {port}", command, store / "out.log")

    def brokers(self) -> list[Child]:
        """The scripted agents, where there are any."""
        return self._brokers

    def addresses(self) -> list[str]:
        """Where they listen."""
        return [f"127.0.0.1:{port}" for port in self._ports]

    def start_writing(self) -> None:
        """Agents keep no messages."""

    def logs(self) -> list[tuple[str, Path]]:
        """Agents log JSON too."""
        return [*super().logs(), *((child.name, child.log) for child in self._brokers)]


class JavaCluster(DemoCluster):
    """Real brokers and a real name server; a producer writes all the time."""

    what = f"Java brokers (Apache RocketMQ {maven.DEFAULT_VERSION})"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._name_server = NameServer(folder / "namesrv", allocate_ports()[0])
        self._java = [
            JavaBroker(
                folder / f"broker{number}",
                allocate_ports(),
                number,
                self._name_server.address,
                self.controllers.address_list,
                settings=DEMO_BROKER,
            )
            for number in range(1, BROKERS + 1)
        ]
        self._producer: Producer | None = None
        self._killed_s = 0.0
        self._old_master = ""

    def children(self) -> list[Child]:
        """The name server too."""
        return [*super().children(), self._name_server.child]

    def brokers(self) -> list[Child]:
        """The brokers' processes."""
        return [broker.child for broker in self._java]

    def addresses(self) -> list[str]:
        """Where they listen."""
        return [broker.address for broker in self._java]

    def start_brokers(self) -> None:
        """The name server first."""
        self._name_server.start()
        self._name_server.wait_ready()
        super().start_brokers()

    def start_writing(self) -> None:
        """Create the topic everywhere and write to the master."""
        for address in self.addresses():
            with wire.Connection(address) as broker:
                wire.create_topic(broker, TOPIC, 4)
        self._producer = Producer(self._name_server.address, TOPIC, self.broker_name).start()
        self._producer.wait_for_acks(500, JOIN_TIMEOUT_S)

    def kill_master(self) -> str:
        """Note the moment for the producer's figures."""
        self._killed_s = time.monotonic()
        self._old_master = next(row.address for row in self.replicas() if row.is_master)
        return super().kill_master()

    def _first_ack_s(self) -> float | None:
        acked = self._producer.acked if self._producer else []
        after = [
            one
            for one in acked[-5000:]
            if one.sent_at > self._killed_s and one.broker != self._old_master
        ]
        return after[0].acked_at - self._killed_s if after else None

    def writes_are_back(self) -> bool:
        """Whether a message sent after the kill was acknowledged."""
        return self._first_ack_s() is not None

    def write_stages(self) -> list[tuple[float, str, str]]:
        """When the producer's writes were back."""
        first = self._first_ack_s()
        return (
            [] if first is None else [(first * 1000, "producer", "writes are acknowledged again")]
        )

    def verdict(self) -> list[str]:
        """Read everything back from the new master and compare."""
        producer = self._producer
        if producer is None:
            return []
        producer.stop()
        self._producer = None
        master = next(row for row in self.replicas() if row.is_master)
        lost = missing(producer.acked, read_back(master.address, TOPIC))
        return [f"{len(producer.acked)} messages acknowledged, {len(lost)} of them lost"]

    def __exit__(self, *_: object) -> None:
        if self._producer is not None:
            self._producer.stop()
        super().__exit__()
