"""What does TLS cost a controller's 1004, and a broker's messages?

Question: requests a second, and microseconds of the server's CPU for each, in plain text and by TLS
with certificates on both sides. Two clusters of processes (one controller, one name server, one
replica each) run side by side and are asked in turn in every round, so that drift hits both.

Recipe: ``bin/bench tls --rounds 5``. One connection, 64 requests in flight; messages of 128 bytes.
The client is this process, and is the same for both kinds: on two cores it limits the rates, so the
servers' CPU is the better witness. Noise: run it alone for figures to quote.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import psutil

from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.settings import RemotingSettings
from rmqha.runtime.aio.clock import SystemClock
from rmqha.runtime.aio.loop import run
from rmqha.runtime.aio.net import TcpNetwork
from rmqha.runtime.aio.tls import Tls
from rmqha.runtime.logs import Logger
from rmqha.testing.cluster import RmqCluster
from rmqha.testing.nodes import Node
from rmqha.testing.settings import BROKER_NAME
from tests.bench.tables import machine, markdown, ratio, spread

IN_FLIGHT = 64
POLLS, SENDS = 20_000, 10_000
BODY = bytes(128)
TOPIC = "Bench"


def _poll(_: int) -> RemotingCommand:
    return RemotingCommand(1004, ext_fields={"brokerName": BROKER_NAME})


def _message(number: int) -> RemotingCommand:
    fields = {
        "a": "PG", "b": TOPIC, "c": "TBW102", "d": "4", "e": str(number % 4), "f": "0",
        "g": "1700000000000", "h": "0", "i": "TAGS\x01TagA\x02", "j": "0", "k": "false",
        "m": "false",
    }  # fmt: skip
    return RemotingCommand(310, ext_fields=fields, body=BODY)


async def _ask(tls: Tls | None, node: Node, make: object, count: int) -> tuple[float, float]:
    """Requests a second, and the server's CPU of one in microseconds."""
    assert callable(make)
    client = RemotingClient(TcpNetwork(tls), SystemClock(), RemotingSettings())
    process = psutil.Process(node.pid)  # type: ignore[attr-defined]  # nodes here are processes
    left = iter(range(count))

    async def asks() -> None:
        for number in left:
            answer = await client.invoke(node.address, make(number), 10_000)
            assert answer.code == 0, answer

    await client.invoke(node.address, make(0), 10_000)
    before, cpu = time.perf_counter(), process.cpu_times()
    await asyncio.gather(*(asks() for _ in range(IN_FLIGHT)))
    took, after = time.perf_counter() - before, process.cpu_times()
    await client.close()
    used = after.user + after.system - cpu.user - cpu.system
    return count / took, used / count * 1e6


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="bench_tls", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    found: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="rmqha-bench-tls-") as root:
        shape = {"controllers": 1, "replicas": 1, "processes": True}
        with (
            RmqCluster(Path(root) / "plain", **shape) as plain,  # type: ignore[arg-type]
            RmqCluster(Path(root) / "tls", tls=True, **shape) as sealed,  # type: ignore[arg-type]
        ):
            keys = sealed.tls_keys
            for _ in range(rounds):
                for kind, cluster in (("plain", plain), ("tls", sealed)):
                    tls = Tls(keys, Logger()) if kind == "tls" else None
                    leader, master = cluster.wait_for_leader(), cluster.wait_for_master()
                    found["1004", kind].append(run(_ask(tls, leader, _poll, POLLS)))
                    found["send", kind].append(run(_ask(tls, master, _message, SENDS)))
    rows = []
    for work in ("1004", "send"):
        both = [
            [one[part] for one in found[work, kind]] for part in (0, 1) for kind in ("plain", "tls")
        ]
        rows.append(
            [f"{work}, a second", spread(both[0]), spread(both[1]), ratio(both[1], both[0])]
        )
        rows.append([f"{work}, us of the server's CPU", spread(both[2]), spread(both[3]),
                     ratio(both[3], both[2])])  # fmt: skip
    print(machine())
    print(markdown(["work", "plain", "tls", "tls/plain"], rows))


if __name__ == "__main__":
    main()
