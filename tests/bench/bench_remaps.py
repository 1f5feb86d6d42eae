"""For how long does a remap of 64 logical queues stop those who write to them?

Question: one producer for each of 64 logical queues, each with one message in flight, sends to the
broker set that it believes to lead its queue, and looks at the route every 30 s, as Java's clients
do; meanwhile our mqadmin moves all queues from one broker set to the other and back. The pause of a
queue is the longest time between two of its acknowledgements that a remap lies in. One broker a
set, asynchronous flush, no Java. The command runs in a process of its own. Before, each queue is given
a history of so many segments with a message each.

Recipe: ``bin/bench remaps --rounds 5 --segments 1,30,300``.

With ``--remaps`` another question: is anything lost, or out of its order, while masters die? Two broker
sets of several replicas with their controllers; an ordered producer and a reader for each logical
queue; one remap after the other by our mqadmin's code (``--mqadmin java``: Java's brokers by the real
mqadmin), and in the midst of some the master of either set is killed (``kill -9``) and started again
when another one reigns. A command that fails is typed again until it succeeds, or ``--patience`` is
over. At last every logical queue is read from offset 0 and compared with what was acknowledged. The
exit status is 1 if ours has lost or reordered anything; ``--plant`` takes one message away from what
was read, so that one sees it fail.

Recipe: ``bin/bench remaps --remaps 500 --failovers 50``, ``bin/bench remaps --remaps 20 --failovers 5
--kinds rmqha,java``, and the same with ``--kinds java --mqadmin java``.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import uvloop

from rmqha.base.errors import RmqhaError
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.settings import RemotingSettings
from rmqha.runtime.aio.clock import SystemClock
from rmqha.runtime.aio.net import TcpNetwork
from rmqha.testing.real import wire
from rmqha.testing.real.name_servers import PythonNameServer
from rmqha.testing.real.processes import allocate_ports, wait_until
from tests.bench import remap_failovers
from tests.bench.choosing import some_of
from tests.bench.ending import end_children_when_terminated
from tests.bench.remap_command import RemapProcess
from tests.bench.remap_histories import prepare
from tests.bench.tables import machine, markdown, spread
from tests.interop.alone import AloneBroker

TOPIC = "Remapped"
NAMES = ("broker-a", "broker-b")
QUEUES = 64
SETTLE_S = 1.0
_TO_WHOM = (513, 202)


class Producers:
    """One for each logical queue.

    Attributes:
        acks: moments of the acknowledgements, by queue.
        failures: answers other than success.
    """

    def __init__(self, client: RemotingClient, topic: str, address: str) -> None:
        self._client = client
        self._topic = topic
        self.address = address
        self.acks: list[list[float]] = [[] for _ in range(QUEUES)]
        self.failures = 0

    async def run(self, queue: int) -> None:
        """Send for ever."""
        number = 0
        while True:
            number += 1
            fields = {
                "a": "PG", "b": self._topic, "c": "TBW102", "d": "4", "e": str(queue), "f": "0",
                "g": str(int(time.time() * 1000)), "h": "0", "j": "0", "k": "false", "m": "false",
                "i": f"UNIQ_KEY\x01U{queue}x{number}\x02WAIT\x01true\x02",
            }  # fmt: skip
            command = RemotingCommand(310, ext_fields=fields, body=b"x" * 128)
            try:
                answer = await self._client.invoke(self.address, command, 5_000)
            except RmqhaError:
                self.failures += 1
                continue
            if answer.code == 0:
                self.acks[queue].append(time.monotonic())
            else:
                self.failures += 1

    def pauses_ms(self, begun: float, ended: float) -> list[float]:
        """Of each queue the longest time between two acknowledgements around a remap."""
        found = []
        for acks in self.acks:
            near = [one for one in acks if begun - SETTLE_S <= one <= ended + SETTLE_S]
            gaps = [
                later - earlier for earlier, later in pairwise(near)
                if later >= begun and earlier <= ended
            ]  # fmt: skip
            found.append(max(gaps) * 1000)
        return found


async def _measure(
    server: str, addresses: dict[str, str], segments: int, rounds: int
) -> dict[str, list[float]]:
    topic = f"{TOPIC}{segments}"
    client = RemotingClient(TcpNetwork(), SystemClock(), RemotingSettings())
    await prepare(client, addresses, topic, QUEUES, segments)
    rows: dict[str, list[float]] = {}
    for number in range(rounds):
        old, new = NAMES[number % 2], NAMES[1 - number % 2]
        for row, value in (await _round(client, server, topic, addresses, old, new)).items():
            print(f"  {segments}: {row}: {value:.1f}", flush=True)
            rows.setdefault(row, []).append(value)
    await client.close()
    return rows


async def _round(
    client: RemotingClient, server: str, topic: str, addresses: dict[str, str], old: str, new: str
) -> dict[str, float]:
    """Remap all queues once, while producers send; the figures."""
    process = await RemapProcess.start(server, topic, new)
    producers = Producers(client, topic, addresses[old])
    tasks = [asyncio.create_task(producers.run(queue)) for queue in range(QUEUES)]
    await asyncio.sleep(SETTLE_S)
    told = await process.run()
    begun, ended = told["begun"], told["ended"]
    await asyncio.sleep(SETTLE_S)
    producers.address = addresses[new]
    await asyncio.sleep(SETTLE_S)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    pauses = sorted(producers.pauses_ms(begun, ended))
    usual = sorted(producers.pauses_ms(begun - SETTLE_S, begun - SETTLE_S / 2))
    took_s = 3 * SETTLE_S + ended - begun
    return {
        "longest pause of a queue, ms": pauses[-1], "median pause, ms": pauses[QUEUES // 2],
        "the same without a remap, longest, ms": usual[-1],
        "the whole command, ms": (ended - begun) * 1000,
        **_calls_ms(told["calls"], {addresses[old]: "the old leader", addresses[new]: "the new one"}),
        "messages a second meanwhile": sum(map(len, producers.acks)) / took_s,
        "refused or failed": float(producers.failures),
    }  # fmt: skip


def _calls_ms(calls: Sequence[Sequence[Any]], names: Mapping[str, str]) -> dict[str, float]:
    """How long each call of a command took, in their order, and the command itself between them."""
    found: dict[str, float] = {}
    last = calls[0][2]
    for number, (code, address, begun, ended) in enumerate(calls, 1):
        # Which broker is asked first what it knows (351), changes with every round.
        whom = f" to {names[address]}" if code in _TO_WHOM else ""
        found[f"before call {number}, ms"] = (begun - last) * 1000
        found[f"call {number}, {code}{whom}, ms"] = (ended - begun) * 1000
        last = ended
    return found


def _add_failover_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("with failovers").add_argument
    add("--remaps", type=int, default=0, help="so many, one after the other")
    add("--failovers", type=int, default=0, help="in the midst of so many of them")
    add("--kinds", type=some_of(("rmqha", "java")), default="rmqha", help="of rmqha, java")
    add("--mqadmin", choices=("ours", "java"), default="ours", help="of the kind java")
    add("--replicas", type=int, default=2, help="of each broker set")
    add("--queues", type=int, default=8, help="logical ones")
    add("--pause-ms", type=float, default=5.0, help="of a producer after an acknowledgement")
    add("--settle-ms", type=float, default=300.0, help="between two remaps")
    add("--patience", type=float, default=120.0, help="seconds until a remap is given up")
    add("--minutes", type=float, default=60.0, help="after which no further remap begins")
    add("--seed", type=int, default=1, help="of the moments of kills")
    add("--plant", action="store_true", help="take away one message that was read")
    add("--keep", action="store_true", help="keep stores and logs")
    add("--json", default="", help="keep the raw figures in this file")


def _show(columns: Mapping[str, Mapping[str, Sequence[float]]], rounds: int) -> None:
    print(f"\n{machine()}; medians of {rounds}\n")
    rows = dict.fromkeys(row for column in columns.values() for row in column)
    table = [[row, *(spread(one.get(row, ())) for one in columns.values())] for row in rows]
    print(markdown(["work", *columns], table))


def main() -> None:
    """Run the rounds and print the table."""
    end_children_when_terminated()
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--segments", default="1", help="of each queue before, several with commas")
    parser.add_argument("--folder", default=os.environ.get("TMPDIR"), help="where stores are made")
    _add_failover_options(parser)
    options = parser.parse_args()
    if options.remaps:
        sys.exit(remap_failovers.run(options))
    folder = Path(tempfile.mkdtemp(prefix="bench-remaps-", dir=options.folder))
    server = PythonNameServer(folder / "namesrv", allocate_ports()[0])
    brokers = [AloneBroker(folder / name, server.address, name) for name in NAMES]
    try:
        server.start()
        server.wait_ready()
        for broker in brokers:
            broker.start()
            broker.wait_ready()
            with wire.Connection(server.address) as connection:
                name = broker.broker_name
                wait_until(lambda: wire.broker_addresses(connection, name, name), 20.0, name)  # noqa: B023 - within the loop
        addresses = {broker.broker_name: broker.address for broker in brokers}
        _show({
            f"{segments} segments": uvloop.run(
                _measure(server.address, addresses, segments, options.rounds)
            )
            for segments in map(int, options.segments.split(","))
        }, options.rounds)  # fmt: skip
    finally:
        for broker in brokers:
            broker.child.kill()
        server.child.kill()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
