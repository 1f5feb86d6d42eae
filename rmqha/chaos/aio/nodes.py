"""The nodes of a cell: three controllers, a name server and brokers, of either kind, at hosts.

Settings are the products' own but for what is written here. ``periods="short"`` shortens what has to
pass before a replica counts as in sync again, for runs of many rounds.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from rmqha.chaos.aio.clock_shift import write_shift
from rmqha.chaos.aio.disks import Disks
from rmqha.chaos.aio.hosts import HostsUnavailable
from rmqha.chaos.aio.java_clock import hide_shared_memory, with_clock, write_java_shift
from rmqha.chaos.aio.links import Links
from rmqha.chaos.aio.lives import Life
from rmqha.runtime.properties import format_properties
from rmqha.testing.real import java
from rmqha.testing.settings import BROKER_NAME, CLUSTER_NAME, Place, Plan

CONTROLLER_PORT, RAFT_PORT = 9878, 9978
NAMESRV_PORT = 9876
BROKER_PORT, HA_PORT, FAST_PORT = 10911, 10912, 10909
PORTS = {
    "controller": (CONTROLLER_PORT,),
    "namesrv": (NAMESRV_PORT,),
    "broker": (BROKER_PORT, HA_PORT, FAST_PORT),
}
"""Where nodes of ours listen; the first is a node's address."""
MODULES = {
    "controller": "rmqha.cli.mqcontroller",
    "namesrv": "rmqha.cli.mqnamesrv",
    "broker": "rmqha.cli.mqbroker",
}
CLOCK_SHIFT = "rmqha.chaos.aio.clock_shift"
SHORT: Mapping[str, object] = {
    "checkSyncStateSetPeriod": 500,
    "syncBrokerMetadataPeriod": 500,
    "haMaxTimeSlaveNotCatchup": 1_500,
    "haSendHeartbeatInterval": 500,
    "haHousekeepingInterval": 3_000,
    "registerNameServerPeriod": 10_000,
}
COMMIT_LOG_BYTES = 64 << 20
JAVA_CONTROLLER_JVM = ("-Xms64m", "-Xmx256m", *java.SMALL_JVM)
NO_JAVA = "nodes of Java need network namespaces"


class Kinds(Struct, frozen=True):
    """What a cell is made of.

    Attributes:
        controllers: ``py``, ``java`` (DLedger) or ``jraft``.
        brokers: ``py``, ``java``, or ``mixed``: one of Java and two of ours.
        settings: further properties of all brokers, such as those that the article varies.
        controller_settings: of all controllers.
        short: see this module's head.
        replicas: how many brokers.
        jumps: each node gets a wall clock of its own.
    """

    controllers: str = "py"
    brokers: str = "py"
    settings: Mapping[str, object] = {}
    controller_settings: Mapping[str, object] = {}
    short: bool = False
    replicas: int = 3
    jumps: bool = False

    @property
    def has_java(self) -> bool:
        """Whether any node is of Java."""
        return {self.controllers, self.brokers} != {"py"}

    def broker_kind(self, number: int) -> str:
        """Of one broker."""
        return self.brokers if self.brokers != "mixed" else ("java" if number == 0 else "py")


class Nodes:
    """All processes of a cell; nothing runs before ``start``.

    Args:
        folder: for configurations, logs and stores.
        hosts: gets a host a node.
        disks: gives brokers and controllers a file system each; None for the machine's own.

    Raises:
        HostsUnavailable: there are no such hosts, or none for nodes of Java.
    """

    def __init__(self, folder: Path, hosts: Links, kinds: Kinds, disks: Disks | None) -> None:
        self.folder, self._hosts, self._kinds, self._disks = folder, hosts, kinds, disks
        if not hosts.takes_java and kinds.has_java:
            raise HostsUnavailable(NO_JAVA)
        self.controllers = tuple(self._place("controller", i) for i in range(3))
        self.name_server = self._place("namesrv", 0)
        self.brokers = tuple(self._place("broker", i) for i in range(kinds.replicas))
        self.plan = Plan(self.controllers, (self.name_server,), self.brokers)
        self.children: dict[str, Life] = {}
        self._java_clocks: set[str] = set()
        if kinds.jumps and kinds.has_java:
            hide_shared_memory()
        for number, place in enumerate(self.controllers):
            self.children[place.name] = self._controller(number, place)
        self.children[self.name_server.name] = self._python(
            self.name_server,
            {
                "listenPort": NAMESRV_PORT,
                "bindAddress": self._bind(self.name_server),
                "kvConfigPath": self.name_server.folder / "kv.json",
            },
        )
        for number, place in enumerate(self.brokers):
            self.children[place.name] = self._broker(number, place)

    def _place(self, kind: str, number: int) -> Place:
        name = f"{kind}-{number}"
        ports = PORTS[kind]
        folder = self.folder / name
        disk = self.disk(name)
        disk.mkdir(parents=True)
        if self._disks is not None and kind != "namesrv":
            self._disks.add(disk)
        return Place(name, kind, folder, ports[0], ports[:1], self._hosts.add(name, ports))

    def _bind(self, place: Place) -> str:
        return self._hosts.bind_address(place.name)

    @property
    def erase_what_they_cut(self) -> bool:
        """Whether nothing but zeros follows the end of any broker's log: those of Java leave old bytes."""
        return self._kinds.brokers == "py"

    @property
    def addresses(self) -> dict[str, str]:
        """Names of brokers by the address that they register."""
        return {place.address: place.name for place in self.brokers}

    def disk(self, name: str) -> Path:
        """Where a node keeps what it may lose; its configuration and output lie elsewhere."""
        return self.folder / name / "disk"

    def store(self, name: str) -> Path:
        """Where a node keeps its state: a broker its log, a controller its own."""
        return self.disk(name) / "store"

    def commit_log(self, name: str) -> Path:
        """Where a broker keeps what was sent."""
        return self.store(name) / "commitlog"

    def clock(self, name: str) -> Path:
        """The file that says how wrong a node's wall clock is."""
        return self.folder / name / "clock"

    def move_clock(self, name: str, shift_s: int) -> None:
        """Have a node's wall clock be wrong by so much; 0 for the machine's own time."""
        write = write_java_shift if name in self._java_clocks else write_shift
        write(self.clock(name), shift_s)

    def start(self, *names: str) -> None:
        """Start these nodes, by default all in their order; nothing is waited for."""
        for name in names or self.children:
            self.children[name].start()

    def close(self) -> None:
        """Kill everything that runs."""
        for child in self.children.values():
            child.kill()

    def ends(self) -> list[str]:
        """Ends so far that nobody ordered, in words; who is dead at this moment is looked for."""
        for child in self.children.values():
            child.look()
        return [end.text for child in self.children.values() for end in child.ends]

    def outputs(self) -> list[str]:
        """All that each node has printed, over all of its lives."""
        return [
            child.log.read_text(encoding="utf-8", errors="replace")
            for child in self.children.values()
            if child.log.exists()
        ]

    def logs(self, lines: int = 30) -> str:
        """The end of each node's log."""
        return "\n".join(child.tail(lines) for child in self.children.values())

    def _at(self, place: Place, command: Sequence[str]) -> Life:
        log = self.folder / f"{place.name}.log"  # not on a disk that is about to fail
        return Life(place.name, [*self._hosts.prefix(place.name), *command], log)

    def _java(self, place: Place, command: Sequence[str]) -> Life:
        if self._kinds.jumps:
            command = with_clock(command, self.clock(place.name))
            self._java_clocks.add(place.name)
        return self._at(place, command)

    def _python(self, place: Place, properties: Mapping[str, object]) -> Life:
        config = place.folder / "node.conf"
        texts = {key: _text(value) for key, value in properties.items()}
        config.write_text(format_properties({"tls.config.file": "", **texts}), encoding="utf-8")
        command = [MODULES[place.kind], "-c", str(config)]
        if self._kinds.jumps:
            clock = self.clock(place.name)
            write_shift(clock, 0)
            command = [CLOCK_SHIFT, str(clock), *command]
        command = [sys.executable, "-m", *command]
        return self._at(place, command)

    def _controller(self, number: int, place: Place) -> Life:
        kind, store = self._kinds.controllers, self.store(place.name)
        peers = ";".join(f"n{i}-{one.address}" for i, one in enumerate(self.controllers))
        properties: dict[str, object] = {
            "controllerDLegerGroup": "chaos",
            "controllerDLegerPeers": peers,
            "controllerDLegerSelfId": f"n{number}",
            "controllerStorePath": store,
            **self._kinds.controller_settings,
        }
        if kind == "py":
            more = {
                "bindAddress": self._bind(place),
                "configStorePath": place.folder / "saved.properties",
            }
            return self._python(place, {**properties, **more})
        if kind == "jraft":
            rafts = [f"{one.host}:{RAFT_PORT}" for one in self.controllers]
            properties = {
                "controllerType": "jRaft",
                "jRaftServerId": rafts[number],
                "jRaftInitConf": ",".join(rafts),
                "jRaftControllerRPCAddr": ",".join(one.address for one in self.controllers),
                "controllerStorePath": store,
                **self._kinds.controller_settings,
            }
        config = place.folder / "controller.properties"
        java.write_properties(config, properties)
        command = java.controller_command(place.folder, config, JAVA_CONTROLLER_JVM)
        return self._java(place, command)

    def _broker(self, number: int, place: Place) -> Life:
        controllers = ";".join(one.address for one in self.controllers)
        settings: dict[str, object] = {
            "allAckInSyncStateSet": True,
            "mappedFileSizeCommitLog": COMMIT_LOG_BYTES,
            "diskMaxUsedSpaceRatio": 95,
            **(SHORT if self._kinds.short else {}),
            **self._kinds.settings,
        }
        if self._kinds.broker_kind(number) == "java":
            ports = range(FAST_PORT, FAST_PORT + 4)
            store = self.store(place.name)
            broker = java.JavaBroker(
                place.folder, ports, number, self.name_server.address, controllers,
                broker_name=BROKER_NAME, host=place.host,
                settings={
                    "brokerClusterName": CLUSTER_NAME,
                    "storePathRootDir": store,
                    "storePathCommitLog": store / "commitlog",
                    "storePathEpochFile": store / "epochFileCheckpoint",
                    "storePathBrokerIdentity": store / "brokerIdentity",
                    **settings,
                },
            )  # fmt: skip
            return self._java(place, broker.child.command)
        return self._python(
            place,
            {
                "enableControllerMode": True,
                "brokerClusterName": CLUSTER_NAME,
                "brokerName": BROKER_NAME,
                "brokerIP1": place.host,
                "bindAddress": self._bind(place),
                "listenPort": BROKER_PORT,
                "haListenPort": HA_PORT,
                "namesrvAddr": self.name_server.address,
                "controllerAddr": controllers,
                "storePathRootDir": self.store(place.name),
                **settings,
            },
        )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
