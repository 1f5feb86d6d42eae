"""Controllers as child processes, asked with a client that shares no line with ours."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from rmqha.runtime.properties import format_properties
from rmqha.testing.real import wire
from rmqha.testing.real.processes import allocate_ports, wait_until

ROOT = Path(__file__).resolve().parents[2]
BOOT_LINE = "The Controller Server boot success. serializeType=JSON"
START_S = 30.0
END_S = 15.0
CLUSTER = "TestCluster"
GET_METADATA_INFO, GET_REPLICA_INFO, REGISTER_BROKER, HEARTBEAT = 1005, 1004, 1003, 904
ELECT_MASTER, APPLY_BROKER_ID = 1002, 1013

Preexec = Callable[[], None]


class Node:
    """One controller process.

    Args:
        folder: for its file, store and output.
        properties: the whole configuration.
    """

    def __init__(self, folder: Path, name: str, port: int, properties: Mapping[str, str]) -> None:
        self.name = name
        self.port = port
        self.address = f"127.0.0.1:{port}"
        self.folder = folder
        self.properties = dict(properties)
        self.store = Path(self.properties["controllerStorePath"]) / "rmqha"
        self.config = folder / f"{name}.conf"
        self.log_to: Path | None = None
        self._runs = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *arguments: str, preexec: Preexec | None = None) -> Node:
        """Start it; nothing is waited for."""
        self._runs += 1
        self.config.write_text(format_properties(self.properties), encoding="utf-8")
        self._process = spawn(
            ("-c", str(self.config), *arguments), self._out, self._err, self.folder, preexec
        )
        return self

    @property
    def _out(self) -> Path:
        return self.folder / f"{self.name}.{self._runs}.out"

    @property
    def _err(self) -> Path:
        return self.log_to or self.folder / f"{self.name}.{self._runs}.err"

    @property
    def stdout(self) -> str:
        """What it printed since its last start."""
        return self._out.read_text()

    @property
    def stderr(self) -> str:
        """Its log since its last start."""
        return self._err.read_text()

    def events(self) -> list[dict[str, object]]:
        """Its log, parsed; every whole line must be JSON."""
        lines = self.stderr.splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def has_logged(self, event: str, **facts: object) -> bool:
        """Whether a line has this event and these facts."""
        wanted = {"event": event, **facts}.items()
        return any(wanted <= one.items() for one in self.events() if "changed" not in one)

    def wait_boot(self) -> Node:
        """Wait for Java's last boot line."""
        wait_until(lambda: BOOT_LINE in self.stdout or self.code is not None, START_S, self.name,
                   0.005)  # fmt: skip
        assert self.code is None, self.stderr
        return self

    def wait_logged(self, event: str, **facts: object) -> None:
        """Wait until a line has this event and these facts."""
        wait_until(lambda: self.has_logged(event, **facts), END_S, f"{event} of {self.name}", 0.02)

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def code(self) -> int | None:
        """The exit code; None while it runs."""
        assert self._process is not None
        return self._process.poll()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def wait_end(self) -> int:
        """Wait for its exit code."""
        assert self._process is not None
        return self._process.wait(END_S)

    def kill(self) -> None:
        """Kill -9, and reap it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(END_S)

    def ask(
        self, code: int, ext: Mapping[str, object] | None = None, body: bytes = b""
    ) -> wire.Answer:
        """Ask this node alone."""
        return wire.invoke(self.address, code, ext, body)


def spawn(
    arguments: tuple[str, ...], out: Path, err: Path, cwd: Path, preexec: Preexec | None = None
) -> subprocess.Popen[bytes]:
    """Start the controller's module with its output in files.

    One whose files are limited writes no byte code: it would be cut off, and every later process
    that reads it would end.
    """
    environment = {key: value for key, value in os.environ.items() if key != "ROCKETMQ_HOME"}
    environment["HOME"] = str(cwd)
    environment["PYTHONPATH"] = str(ROOT)
    if preexec is not None:
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        return subprocess.Popen(
            [sys.executable, "-m", "rmqha.cli.mqcontroller", *arguments],
            stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, cwd=cwd, env=environment,
            preexec_fn=preexec,
        )  # fmt: skip


def run(folder: Path, *arguments: str) -> tuple[int, str, str]:
    """Run to the end: exit code, stdout, stderr."""
    out, err = folder / "run.out", folder / "run.err"
    process = spawn(arguments, out, err, folder)
    try:
        code = process.wait(START_S)
    finally:
        process.kill()
        process.wait(END_S)
    return code, out.read_text(), err.read_text()


class Group:
    """Nodes n0, n1 ... of one Raft group."""

    def __init__(self, folder: Path, count: int = 3, **more: str) -> None:
        ports = allocate_ports()
        self.spare_ports = list(ports[count:])
        peers = ";".join(f"n{i}-127.0.0.1:{ports[i]}" for i in range(count))
        self.nodes = [
            Node(folder, f"n{i}", ports[i], {
                "controllerDLegerGroup": "test",
                "controllerDLegerPeers": peers,
                "controllerDLegerSelfId": f"n{i}",
                "controllerStorePath": str(folder / f"store{i}"),
                "configStorePath": str(folder / f"stored{i}" / "controller.properties"),
                "bindAddress": "127.0.0.1",
                **more,
            })
            for i in range(count)
        ]  # fmt: skip

    def start(self) -> Group:
        """Start all, and wait for their boot lines."""
        for node in self.nodes:
            node.start()
        for node in self.nodes:
            node.wait_boot()
        return self

    def leader(self) -> Node | None:
        """The node that says that it leads; None unless all that run agree on it."""
        running = [node for node in self.nodes if node.code is None]
        found = {}
        for node in running:
            try:
                answer = node.ask(GET_METADATA_INFO)
            except OSError:
                return None
            found[node.name] = answer.ext
        if len({ext.get("controllerLeaderAddress") for ext in found.values()}) != 1:
            return None
        return next((n for n in running if found[n.name]["isLeader"] == "true"), None)

    def wait_leader(self) -> Node:
        """Wait until all agree on a leader that answers requests."""

        def ready() -> Node | None:
            leader = self.leader()
            if leader is None:
                return None
            return (
                leader if leader.ask(GET_REPLICA_INFO, {"brokerName": "?"}).code != 2007 else None
            )

        found = wait_until(ready, START_S, "a leader", 0.01)
        assert isinstance(found, Node)
        return found

    def others(self, node: Node) -> list[Node]:
        """All nodes but one."""
        return [one for one in self.nodes if one is not node]

    def kill(self) -> None:
        """Kill -9 all."""
        for node in self.nodes:
            node.kill()


@contextlib.contextmanager
def group(folder: Path, count: int = 3, **more: str) -> Iterator[Group]:
    """A started group; its nodes end with the block, its logs are shown when that fails."""
    one = Group(folder, count, **more)
    try:
        yield one.start()
    except BaseException:
        for node in one.nodes:
            print(f"--- {node.name}\n{node.stderr[-3000:]}")
        raise
    finally:
        one.kill()


def join(leader: Node, name: str, broker_id: int) -> wire.Connection:
    """Give a broker its id, register it, heartbeat, and let it ask to be master.

    Returns:
        Its connection: the broker counts as dead soon after this is closed.
    """
    address = broker_address(broker_id)
    who = {"clusterName": CLUSTER, "brokerName": name, "brokerId": broker_id}
    connection = wire.Connection(leader.address)
    check = {"appliedBrokerId": broker_id, "registerCheckCode": f"{address};1"}
    connection.ask(APPLY_BROKER_ID, {"clusterName": CLUSTER, "brokerName": name, **check})
    alive = {"epoch": 1, "maxOffset": 1, "heartbeatTimeoutMills": 60000}
    connection.oneway(HEARTBEAT, {**who, "brokerAddr": address, **alive})
    connection.ask(REGISTER_BROKER, {**who, "brokerAddress": address})
    connection.invoke(ELECT_MASTER, {**who, "designateElect": False})
    return connection


def broker_address(broker_id: int) -> str:
    """What ``join`` registers."""
    return f"127.0.0.1:{30000 + broker_id}"


def replica_info(node: Node, name: str) -> dict[str, str]:
    """What 1004 says of a set."""
    answer = node.ask(GET_REPLICA_INFO, {"brokerName": name})
    assert answer.code == 0, answer
    return answer.ext


def now_s() -> float:
    """Seconds of the machine's monotonic clock."""
    return time.monotonic()
