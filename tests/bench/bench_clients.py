"""How much does one real Java client send and consume, with our broker and with Java's?

Question: messages per second and latency of synchronous sends, with 1 and with 64 threads of one
``DefaultMQProducer``, and messages per second of one push consumer that reads everything from the
start. One master without replicas, asynchronous flush, bodies of 128 bytes, 8 queues; name server
and broker are both ours, or both Java's. The client (``java/ClientBench.java``) and the broker share the
cores, so it takes from the broker what it needs itself.

Recipe: ``bin/bench clients --rounds 3 --seconds 5``. Both JVMs have the full compiler, and every
side sends for some seconds before it is measured. What logical queues cost:
``--kinds rmqha,rmqha-static``.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Self

import psutil

from rmqha.testing.real import maven, wire
from rmqha.testing.real.java import JavaBroker, NameServer
from rmqha.testing.real.mqadmin import mqadmin
from rmqha.testing.real.name_servers import PythonNameServer
from rmqha.testing.real.processes import Child, allocate_ports, wait_until
from tests.bench.choosing import some_of
from tests.bench.ending import end_children_when_terminated
from tests.bench.java_program import command, compiled
from tests.bench.tables import machine, markdown, ratio, spread, write_json

KINDS = ("rmqha", "java")
STATIC = "-static"
"""Behind a kind: the topic's eight queues are logical ones."""
BROKER = "bench"
TOPIC = "ClientBench"
QUEUES = 8
START_TIMEOUT_S = 60.0
MIB = 1 << 20
# Java's own defaults where a test's broker has small files.
SETTINGS: dict[str, object] = {
    "enableControllerMode": False, "brokerRole": "ASYNC_MASTER", "brokerId": 0,
    "mappedFileSizeCommitLog": 1 << 30, "mappedFileSizeConsumeQueue": 6_000_000,
    "messageIndexEnable": True, "maxHashSlotNum": 5_000_000, "maxIndexNum": 20_000_000,
}  # fmt: skip


class Side:
    """A name server and a broker of one kind."""

    def __init__(self, kind: str, folder: Path, version: str) -> None:
        self._is_static = kind.endswith(STATIC)
        kind = kind.removesuffix(STATIC)
        self.server = (PythonNameServer if kind == "rmqha" else NameServer)(
            folder / "namesrv", allocate_ports()[0]
        )
        self.broker = JavaBroker(
            folder / "broker", allocate_ports(), 1, self.server.address, "", broker_name=BROKER,
            version=version, settings=SETTINGS,
        )  # fmt: skip
        if kind == "rmqha":
            config = self.broker.home / "broker.properties"
            line = [sys.executable, "-m", "rmqha.cli.mqbroker", "-c", str(config)]
            self.broker.child = Child("python", line, self.broker.home / "out.log")
        else:
            self.broker.child.command = full_compiler(self.broker.child.command)

    def __enter__(self) -> Self:
        self.server.start()
        self.server.wait_ready()
        self.broker.start()
        self.broker.wait_ready()
        with wire.Connection(self.server.address) as connection:
            wait_until(
                lambda: wire.broker_addresses(connection, BROKER, BROKER), START_TIMEOUT_S, "route"
            )
        if self._is_static:
            words = ("-n", self.server.address, "-t", TOPIC, "-qn", str(QUEUES), "-b", BROKER)
            mqadmin("updateStaticTopic", *words)
        else:
            with wire.Connection(self.broker.address) as connection:
                wire.create_topic(connection, TOPIC, QUEUES)
        with wire.Connection(self.server.address) as connection:
            wait_until(
                lambda: wire.broker_addresses(connection, TOPIC, BROKER), START_TIMEOUT_S, "topic"
            )
        return self

    def __exit__(self, *_: object) -> None:
        self.broker.child.kill()
        self.server.child.kill()

    def cpu_s(self) -> float:
        """Processor time that the broker has taken."""
        times = psutil.Process(self.broker.child.pid).cpu_times()
        return float(times.user + times.system)


def full_compiler(line: list[str]) -> list[str]:
    """The command line of a Java broker, for speed."""
    kept = [word for word in line if not word.startswith(("-XX:TieredStop", "-Xmx", "-Xms"))]
    return [kept[0], "-Xms1g", "-Xmx1g", *kept[1:]]


class Client:
    """The Java program."""

    def __init__(self, home: Path, classpath: str, version: str, servers: str) -> None:
        line = command(
            "ClientBench", version, home, classpath, [servers, TOPIC], ("-Xms256m", "-Xmx512m")
        )
        self._process = subprocess.Popen(
            line,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._answer()

    def ask(self, line: str) -> list[float]:
        """The figures of an answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return [float(word) for word in self._answer().split()]

    def _answer(self) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, _, rest = line.strip().partition(" ")
            if word == "ok":
                return rest
            if word == "error":
                raise SystemExit(f"the client: {rest}")
        raise SystemExit("the client has ended")

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


def main() -> None:
    """Run the rounds and print the table."""
    end_children_when_terminated()
    options = _options()
    kinds: list[str] = options.kinds.split(",")
    rows: dict[str, dict[str, list[float]]] = {}
    folder = Path(tempfile.mkdtemp(prefix="bench-clients-", dir=options.folder))
    try:
        classpath = compiled("ClientBench", options.version, folder)
        for number in range(options.rounds):
            for kind in kinds:
                print(f"round {number + 1} of {options.rounds}: {kind}", flush=True)
                home = folder / f"{kind}{number}"
                for row, value in _measure(kind, home, classpath, options).items():
                    print(f"  {row}: {value:.1f}", flush=True)
                    rows.setdefault(row, {}).setdefault(kind, []).append(value)
                shutil.rmtree(home, ignore_errors=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"\n{machine()}; RocketMQ {options.version}, medians of {options.rounds}\n")
    print(_table(rows, kinds))
    if options.json:
        write_json(Path(options.json), {"machine": machine(), "figures": rows})


def _measure(
    kind: str, home: Path, classpath: str, options: argparse.Namespace
) -> dict[str, float]:
    found: dict[str, float] = {}
    with Side(kind, home, options.version) as side:
        client = Client(home, classpath, options.version, side.server.address)
        try:
            sent = client.ask(f"send 64 {options.warm_up} {options.size}")[0]
            for threads in (1, 64):
                before = side.cpu_s()
                count, rate, p50, p99, failures = client.ask(
                    f"send {threads} {options.seconds} {options.size}"
                )
                if failures:
                    raise SystemExit(f"{kind}: {failures:.0f} sends failed")
                sent += count
                name = f"send, {threads} in flight"
                found[f"{name}, per s"] = rate
                found[f"{name}, p50 us"] = p50
                found[f"{name}, p99 us"] = p99
                found[f"{name}, broker us of processor a message"] = (
                    (side.cpu_s() - before) / count * 1e6
                )
            before = side.cpu_s()
            _, rate = client.ask(f"consume {sent:.0f}")
            found["consume, per s"] = rate
            found["consume, broker us of processor a message"] = (
                (side.cpu_s() - before) / sent * 1e6
            )
        finally:
            client.close()
    return found


def _table(rows: dict[str, dict[str, list[float]]], kinds: list[str]) -> str:
    both = set(kinds) == set(KINDS)
    lines = []
    for row, values in rows.items():
        cells = [spread(values.get(kind, [])) for kind in kinds]
        lines.append([row, *cells, *([ratio(values["rmqha"], values["java"])] if both else [])])
    return markdown(["work", *kinds, *(["rmqha/java"] if both else [])], lines)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--warm-up", type=float, default=8.0, help="seconds of sending before")
    parser.add_argument("--size", type=int, default=128, help="bytes of a body")
    parser.add_argument(
        "--kinds",
        type=some_of([*KINDS, *(kind + STATIC for kind in KINDS)]),
        default=",".join(KINDS),
        help=f"of {', '.join(KINDS)}; either with {STATIC} behind it",
    )
    parser.add_argument("--version", default=maven.DEFAULT_VERSION, help="of RocketMQ")
    parser.add_argument("--folder", default=os.environ.get("TMPDIR"), help="where stores are made")
    parser.add_argument("--json", help="keep the raw figures in this file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
