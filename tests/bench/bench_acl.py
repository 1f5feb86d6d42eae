"""What do signatures and policies cost a controller's 1004, and a broker's messages?

Question: microseconds of CPU of one request, with authentication and authorization on and off. Each
server is whole and in this process; chunks of frames are given to a connection whose other end is a
list, so no socket and no generator is in the figure. The kinds in turn in every round, so that
drift hits both; CPU time, and the least of all rounds, so that others on the machine matter less.

Recipe: ``.venv/bin/python -m tests.bench.bench_acl --rounds 5``. A chunk is 64 requests, as a busy
connection brings them. Messages are signed by a normal user with one policy, each with a signature
of its own; bodies have 128 bytes. Noise: run it alone for figures to quote.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from rmqha.auth.signature import Credentials
from rmqha.broker.aio.replica import BrokerReplica
from rmqha.broker.common.settings import load_config as load_broker_config
from rmqha.controller.aio.service import ControllerService
from rmqha.controller.settings import load_config as load_controller_config
from rmqha.ha.events import Role
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.aio.server import RemotingServer
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.frame import encode
from rmqha.runtime.aio.clock import SystemClock, SystemRng
from rmqha.runtime.aio.disk import SystemDisk
from rmqha.runtime.aio.loop import run
from rmqha.runtime.aio.net import TcpNetwork
from rmqha.runtime.logs import Logger
from rmqha.testing.real.processes import allocate_ports

ROOT, ANN = Credentials("root", "root-secret"), Credentials("ann", "ann-secret")
ON = {
    "authenticationEnabled": "true", "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"root","password":"root-secret"}',
}  # fmt: skip
CHUNK = 64
LOOKS_MAX = 5_000
TOPIC = "Bench"
Feed = Callable[[bytes], None]
Works = tuple[Callable[[], Awaitable[float]], Callable[[], Awaitable[None]]]
"""Seconds of CPU of one request; and what ends the server."""


class _Sink:
    """The other end of a connection."""

    connection: Connection

    def __init__(self) -> None:
        self.written = bytearray()

    def write(self, data: bytes) -> None:
        """Take what was sent."""
        self.written += data

    def writelines(self, parts: list[bytes]) -> None:
        """Take what was sent."""
        for part in parts:
            self.written += part

    def get_extra_info(self, _: str) -> tuple[str, int]:
        """An address."""
        return ("127.0.0.1", 5000)

    def get_write_buffer_size(self) -> int:
        """Nothing waits."""
        return 0

    def is_closing(self) -> bool:
        """It is open."""
        return False

    def pause_reading(self) -> None:
        """What comes next is handed over all the same: one connection is all there is."""

    def resume_reading(self) -> None:
        """It was never paused."""

    def close(self) -> None:
        """The end of it."""
        self.connection.connection_lost(None)

    abort = close


def _request(
    code: int, fields: dict[str, str], body: bytes, by: Credentials | None, opaque: int
) -> bytes:
    command = RemotingCommand(code, opaque, language="JAVA", ext_fields=fields, body=body)
    if by is not None:
        by.sign(command)
    return encode(command)


def _message(number: int) -> dict[str, str]:
    return {
        "a": "PG", "b": TOPIC, "c": "TBW102", "d": "4", "e": str(number % 4), "f": "0",
        "g": str(1_700_000_000_000 + number), "h": "0", "j": "0", "k": "false", "m": "false",
        "i": f"UNIQ_KEY\x017F000001A1B2C3D4E5F6{number:012X}\x02WAIT\x01true\x02TAGS\x01TagA\x02",
    }  # fmt: skip


def _connected(server: RemotingServer) -> tuple[Feed, _Sink]:
    connection, sink = server._make_connection(), _Sink()
    sink.connection = connection
    connection.connection_made(sink)  # type: ignore[arg-type]  # it only looks like a transport
    return connection.data_received, sink


async def _until(is_so: Callable[[], bool]) -> None:
    for _ in range(LOOKS_MAX):
        if is_so():
            return
        await asyncio.sleep(0.002)
    raise AssertionError("it never came about")


async def _ask(feed: Feed, sink: _Sink, frame: bytes) -> None:
    """One request that must succeed."""
    sink.written.clear()
    feed(frame)
    await _until(lambda: bool(sink.written))
    assert b'"code":0,' in bytes(sink.written), bytes(sink.written)


async def _polls(folder: Path, *, on: bool) -> Works:
    """A controller alone, and 1004 as a broker asks it every five seconds."""
    port = allocate_ports()[0]
    config = load_controller_config(
        {"controllerDLegerGroup": "g", "controllerDLegerSelfId": "n0", "bindAddress": "127.0.0.1",
         "controllerDLegerPeers": f"n0-127.0.0.1:{port}", "controllerStorePath": str(folder),
         **(ON if on else {})},
        home="", user_home=str(folder),
    )  # fmt: skip
    service = ControllerService(
        config, clock=SystemClock(), rng=SystemRng(), disk=SystemDisk(), network=TcpNetwork(),
        log=Logger(), on_fatal=lambda error: None,
    )  # fmt: skip
    await service.start()
    await _until(lambda: service.raft.is_ready_leader)
    feed, sink = _connected(service.server)
    by = ROOT if on else None
    who = {"clusterName": "C", "brokerName": "broker-a"}
    await _ask(feed, sink, _request(1012, who, b"", by, 1))
    apply = {**who, "appliedBrokerId": "1", "registerCheckCode": "x"}
    await _ask(feed, sink, _request(1013, apply, b"", by, 2))
    named = {"brokerName": "broker-a"}
    chunk = b"".join(_request(1004, named, b"", by, 100 + number) for number in range(CHUNK))

    async def once() -> float:
        sink.written.clear()
        begun = time.process_time()
        for _ in range(100):
            feed(chunk)
        spent = time.process_time() - begun
        assert sink.written.count(b'"code":0,') == 100 * CHUNK
        return spent / (100 * CHUNK)

    return once, service.close


async def _sends(folder: Path, *, on: bool) -> Works:
    """A broker alone, and messages as Java's producers send them."""
    port = allocate_ports()[5]
    properties = {
        "enableControllerMode": "false", "listenPort": str(port), "brokerIP1": "127.0.0.1",
        "bindAddress": "127.0.0.1", "storePathRootDir": str(folder), **(ON if on else {}),
    }  # fmt: skip
    config = load_broker_config(
        properties, host_name="h", local_address="127.0.0.1", user_home=str(folder)
    )
    broker = BrokerReplica(
        config, clock=SystemClock(), rng=SystemRng(), disk=SystemDisk(), network=TcpNetwork(), log=Logger()
    )  # fmt: skip
    await broker.start()
    await _until(lambda: broker.role is Role.MASTER)
    feed, sink = _connected(broker._doors.servers[port])
    by, user = (ROOT, ANN) if on else (None, None)
    topic = {"topic": TOPIC, "readQueueNums": "4", "writeQueueNums": "4", "perm": "6",
             "defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0",
             "order": "false"}  # fmt: skip
    await _ask(feed, sink, _request(17, topic, b"", by, 1))
    if on:
        body = json.dumps({"password": ANN.secret_key}).encode()
        await _ask(feed, sink, _request(3001, {"username": "ann"}, body, by, 2))
        entry = {"resource": f"Topic:{TOPIC}*", "actions": ["Pub"], "decision": "Allow"}
        acl = json.dumps({"policies": [{"entries": [entry]}]}).encode()
        await _ask(feed, sink, _request(3006, {"subject": "User:ann"}, acl, by, 3))
    numbers = iter(range(1 << 60))

    async def once() -> float:
        chunks = [
            b"".join(_request(310, _message(n), b"x" * 128, user, n % (1 << 30))
                     for n in (next(numbers) for _ in range(CHUNK)))
            for _ in range(60)
        ]  # fmt: skip
        sink.written.clear()
        gc.collect()
        begun = time.process_time()
        for chunk in chunks:
            feed(chunk)
            await asyncio.sleep(0)
        # With all that a message is followed by: queues, index, the answer.
        await _until(lambda: broker.store.dispatched_offset >= broker.store.max_offset)
        spent = time.process_time() - begun
        assert sink.written.count(b'"code":0,') == 60 * CHUNK
        return spent / (60 * CHUNK)

    return once, broker.close


async def _measure(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, make in (("1004", _polls), ("messages", _sends)):
            kinds: dict[str, Any] = {}
            for kind in ("off", "on"):
                kinds[kind] = await make(Path(folder) / f"{name}-{kind}", on=kind == "on")
            spent: dict[str, list[float]] = {kind: [] for kind in kinds}
            for number in range(rounds + 1):
                for kind, (once, _) in kinds.items():
                    found = await once()
                    if number:
                        spent[kind].append(found * 1e6)
            for _, close in kinds.values():
                await close()
            off, on = (min(spent[kind]) for kind in ("off", "on"))
            print(
                f"{name:10} off {off:6.2f} us  on {on:6.2f} us  rate {100 * (off / on - 1):+.1f} %"
            )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="bench_acl", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    run(_measure(parser.parse_args().rounds))


if __name__ == "__main__":
    main()
