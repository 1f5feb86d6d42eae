"""Server processes and the limit of their descriptors: connections take none that files need."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import resource
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqha.remoting.settings import RemotingSettings
from rmqha.runtime.aio import descriptors
from rmqha.runtime.aio.net import TcpNetwork
from rmqha.runtime.properties import format_properties
from rmqha.testing.real import wire
from rmqha.testing.real.processes import Child, allocate_ports, wait_until
from tests.cli.nodes import CLUSTER, ROOT

BOOT_S = 30.0
IDLE = 200
MODULES = ("mqcontroller", "mqnamesrv", "mqbroker")


class Server:
    """One server process of any kind under a limit of descriptors."""

    def __init__(self, folder: Path, module: str, limit: str) -> None:
        ports = allocate_ports()
        self.port = ports[2] if module == "mqbroker" else ports[0]
        self.address = f"127.0.0.1:{self.port}"
        self.folder = folder
        config = folder / f"{module}.conf"
        config.write_text(format_properties(self._properties(module)), encoding="utf-8")
        command = [sys.executable, "-m", f"rmqha.cli.{module}", "-c", str(config)]
        self.child = Child(
            module, ["sh", "-c", f'ulimit {limit}; exec "$@"', "sh", *command],
            folder / "out.log", cwd=ROOT,
        )  # fmt: skip
        self.child.start()
        self.child.wait_for_line("boot success", BOOT_S)

    def _properties(self, module: str) -> dict[str, str]:
        folder, common = str(self.folder), {"logLevel": "info", "bindAddress": "127.0.0.1"}
        if module == "mqcontroller":
            return common | {
                "controllerDLegerGroup": "group1",
                "controllerDLegerPeers": f"n0-{self.address}", "controllerDLegerSelfId": "n0",
                "controllerStorePath": folder, "snapshotEveryEntries": "50",
            }  # fmt: skip
        if module == "mqnamesrv":
            return common | {
                "listenPort": str(self.port),
                "kvConfigPath": f"{folder}/kvConfig.json",
            }
        return common | {
            "enableControllerMode": "false", "brokerName": "broker-a", "brokerIP1": "127.0.0.1",
            "listenPort": str(self.port), "storePathRootDir": f"{folder}/store",
            "mappedFileSizeCommitLog": "65536", "mappedFileSizeConsumeQueue": "4000",
        }  # fmt: skip

    def limit(self) -> tuple[int, int]:
        """The soft and the hard limit in force."""
        lines = Path(f"/proc/{self.child.pid}/limits").read_text().splitlines()
        words = next(one for one in lines if one.startswith("Max open files")).split()
        return int(words[3]), int(words[4])

    def logged(self, event: str) -> dict[str, object] | None:
        """The first line of this event."""
        for line in self.child.output().splitlines():
            if line.startswith("{") and json.loads(line)["event"] == event:
                found: dict[str, object] = json.loads(line)
                return found
        return None


@contextlib.contextmanager
def running(folder: Path, module: str, limit: str) -> Iterator[Server]:
    """A server that is killed at the end."""
    one = Server(folder, module, limit)
    try:
        yield one
    finally:
        one.child.kill()


@contextlib.contextmanager
def idle_connections(port: int) -> Iterator[None]:
    """Clients that connect all at once, and say nothing."""
    held = []
    for _ in range(IDLE):
        one = socket.socket()
        one.setblocking(False)
        assert one.connect_ex(("127.0.0.1", port)) in (0, errno.EINPROGRESS)
        held.append(one)
    try:
        yield
    finally:
        for one in held:
            one.close()


def application(name: str) -> dict[str, object]:
    """The fields of 1013 for id 1 of a set."""
    return {
        "clusterName": CLUSTER, "brokerName": name, "appliedBrokerId": 1,
        "registerCheckCode": "127.0.0.1:1;1",
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("module", MODULES)
def test_soft_limit_when_a_server_starts_then_it_is_raised_to_the_hard_one(
    tmp_path: Path, module: str
) -> None:
    """Many systems give 1,024 at first and allow far more; a queue of a store takes two."""
    hard = min(2_000, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    with running(tmp_path, module, f"-S -n 200; ulimit -H -n {hard}") as one:
        assert one.limit() == (hard, hard)


@pytest.mark.slow
def test_controller_when_idle_connections_take_all_room_then_it_still_takes_snapshots(
    tmp_path: Path,
) -> None:
    """The next snapshot failed for want of a descriptor, and ended the node with 1."""
    with running(tmp_path, "mqcontroller", "-n 100") as one:
        client = wire.Connection(one.address)
        wait_until(lambda: client.invoke(1012, {"brokerName": "x"}).code == 0, 10, "leader", 0.05)
        with idle_connections(one.port):
            for number in range(400):
                assert client.invoke(1013, application(f"set-{number}")).code == 0
            assert one.child.alive, one.child.output()
            found = [path.name for path in (tmp_path / "rmqha").iterdir()]
            assert any("snapshot" in name for name in found), found
        cut = one.logged("connections_max_cut")
        assert cut is not None
        assert cut["level"] == "warning"
        assert cut["wanted"] == 65_536
        assert cut["descriptors"] == 100
        assert isinstance(cut["connections_max"], int)
        assert 10 < cut["connections_max"] < 90
        client.close()


@pytest.mark.slow
def test_name_server_when_idle_connections_take_all_room_then_it_still_stores(
    tmp_path: Path,
) -> None:
    """Its KV configuration is a file."""
    with running(tmp_path, "mqnamesrv", "-n 100") as one:
        client = wire.Connection(one.address)
        assert client.invoke(100, {"namespace": "n", "key": "k0", "value": "v"}).code == 0
        with idle_connections(one.port):
            for number in range(1, 50):
                fields = {"namespace": "n", "key": f"k{number}", "value": "v"}
                assert client.invoke(100, fields).code == 0
            stored = tmp_path / "kvConfig.json"
            wait_until(lambda: "k49" in stored.read_text(), 10, "stored key", 0.05)
        assert one.child.alive
        client.close()


@pytest.mark.slow
def test_broker_when_idle_connections_take_all_room_then_it_still_writes(tmp_path: Path) -> None:
    """Every file of its log and of a queue takes two descriptors for as long as it is there."""
    with running(tmp_path, "mqbroker", "-n 400") as one:
        client = wire.Connection(one.address)
        fields = {"a": "P", "b": "T", "c": "TBW102", "d": 4, "f": 0, "g": 1, "h": 0}
        first = {**fields, "e": 0}
        wait_until(lambda: client.invoke(310, first, b"x").code == 0, 10, "role", 0.05)
        with idle_connections(one.port), idle_connections(one.port - 2):
            for number in range(200):
                answer = client.invoke(310, {**fields, "e": number % 4}, b"x" * 2_000)
                assert answer.code == 0, answer
        assert one.child.alive
        assert one.logged("store_failed") is None
        client.close()


@pytest.mark.parametrize(
    ("wanted", "limit", "in_use", "files", "ports", "fitting"),
    [
        (65_536, 1 << 20, 10, 100, 1, 65_536),
        (65_536, 1_024, 10, 100, 1, 914),
        (65_536, 1_024, 10, 100, 2, 457),
        (50, 1_024, 10, 100, 1, 50),
        (65_536, 32, 10, 100, 1, descriptors.CONNECTIONS_LEAST),
        (3, 32, 10, 100, 1, 3),
    ],
)
def test_connections_when_counted_then_files_have_their_reserve(
    wanted: int, limit: int, in_use: int, files: int, ports: int, fitting: int
) -> None:
    """What is asked for is never exceeded, and a few connections are always let in."""
    found = descriptors.connections_that_fit(
        wanted, limit=limit, in_use=in_use, files=files, ports=ports
    )
    assert found == fitting
    assert RemotingSettings(connections_max=found).connections_max == fitting


async def test_listener_when_many_connect_at_once_then_they_are_taken_one_by_one() -> None:
    """Whoever is refused must not take a descriptor for the moment that refusing takes."""
    open_now = most = seen = 0
    all_seen = asyncio.Event()

    class Refusing(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            nonlocal open_now, most, seen
            open_now, seen = open_now + 1, seen + 1
            most = max(most, open_now)
            assert isinstance(transport, asyncio.Transport)
            transport.abort()
            if seen == IDLE:
                all_seen.set()

        def connection_lost(self, exc: Exception | None) -> None:
            nonlocal open_now
            open_now -= 1

    listener = await TcpNetwork().listen("127.0.0.1", 0, Refusing)
    port = listener.port
    with idle_connections(port):
        async with asyncio.timeout(10):
            await all_seen.wait()
    assert most <= 2
    listener.close()
    await listener.wait_closed()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
