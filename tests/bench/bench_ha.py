"""How fast does a slave catch up, and how long does a put wait for it, ours next to Java?

Questions: MB/s of a fresh slave that catches up, for each pair of master and slave, Java's or ours;
beside it the bare loop and sendfile on the same file in the same run; and put-to-acknowledgement
times with allAckInSyncStateSet; all of it directly and through a proxy that delays each direction;
and, of ours, where the time of a single put goes.
Catch-up is taken on the slave, from the first bytes that are seen until the last are in its log: a
Java slave's first 5 s, in which it only waits for its own heartbeat, do not count. Java is the
project's own store and HA service without a broker around it, with the full compiler.

Recipe: ``bin/bench ha`` (``--megabytes 256 --rounds 1`` for a quick look; ``--only catchup``).
Noise: three or four processes on the cores, and dirty pages on their way to the disk.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rmqha.testing.real.processes import wait_until
from tests.bench import ha_bare
from tests.bench.ending import end_children_when_terminated
from tests.bench.put_stamps import PARTS
from tests.bench.tables import machine, markdown, number, ratio, spread, write_json
from tests.interop.peers import JAVA, PYTHON, Peer

FILE_BYTES = 1 << 30
BODY_BYTES = 1024
SIDES = (JAVA, PYTHON)
JVM = ("-Xms256m", "-Xmx1g", "-XX:MaxDirectMemorySize=1g")
SETTINGS: dict[str, object] = {
    "mappedFileSizeCommitLog": FILE_BYTES,
    "haSendHeartbeatInterval": 500,
    "timerWheelEnable": False,
    "messageIndexEnable": False,
    "diskMaxUsedSpaceRatio": 95,
    "allAckInSyncStateSet": True,
    "slaveTimeout": 10_000,
}
SETTLE_S = 1.0
"""After a slave's start, for what it does in the background."""

BUSY = "python, busy"
BUSY_SETTINGS: dict[str, object] = {"haBusyWaitMicros": 200}
PUTTERS = (JAVA, PYTHON, BUSY)
DELAYS_MS = (0, 2, 10)
IN_FLIGHT = (1, 16, 64)
BARE = {
    "bare sendmsg to mapped file": (ha_bare.SENDMSG, True),
    "bare sendmsg, discarded": (ha_bare.SENDMSG, False),
    "bare sendfile to mapped file": (ha_bare.SENDFILE, True),
    "bare sendfile, discarded": (ha_bare.SENDFILE, False),
}
Figures = dict[str, list[float]]
Stamps = dict[str, dict[str, int]]
APART_PUTS = 4_000
WARM_UP_PUTS = 20_000
WHOLE = "put to acknowledgement"
PROGRAM = "tests.interop.ha_peer"


class Bench:
    """One run: masters that stay, slaves that come and go."""

    def __init__(self, folder: Path, rounds: int) -> None:
        self._folder = folder
        self._rounds = rounds
        self._numbers = itertools.count(1)
        self._epochs = itertools.count(1)
        self.figures: dict[str, Figures] = {
            "catchup": defaultdict(list), "p50": defaultdict(list), "p99": defaultdict(list),
            "rate": defaultdict(list),
        }  # fmt: skip

    def peer(
        self, side: str, broker_id: int, name: str | None = None, program: str = PROGRAM
    ) -> Peer:
        """A replica over a fresh folder, or a named one."""
        root = self._folder / (name or f"fresh{next(self._numbers)}")
        side, more = (PYTHON, BUSY_SETTINGS) if side == BUSY else (side, {})
        return Peer(side, root, broker_id, SETTINGS | more, options=JVM, program=program)

    def prepare(self, size: int) -> None:
        """One log of 1 KB records, and a copy, for a master of each side."""
        first = self.peer(PYTHON, 1, PYTHON)
        first.start().ask("master 1 1")
        said = first.ask(f"put {size} {BODY_BYTES} {BODY_BYTES} 1 256", timeout_s=600)
        assert " failed=0 " in said, said
        first.ask("sync", timeout_s=300)
        first.stop()
        shutil.copytree(first.root, self._folder / JAVA)

    def catch_up(self) -> None:
        """Every pair, in turn in every round, beside the bare loops over the same file."""
        masters = {side: self.peer(side, 1, side).start() for side in SIDES}
        for _ in masters:
            next(self._epochs)
        epoch = next(self._epochs) + 1
        for master in masters.values():
            master.ask(f"master {epoch} 1", timeout_s=300)
        size = masters[PYTHON].offsets().max
        source = masters[PYTHON].store / "commitlog" / f"{0:020}"
        for turn in range(self._rounds):
            for name, (how, to_file) in BARE.items():
                rate = ha_bare.measure(
                    source, min(size, FILE_BYTES), how, to_file=to_file, folder=self._folder
                )
                self._note(name, rate)
            pairs = list(itertools.product(SIDES, SIDES))
            for one, two in pairs if turn % 2 == 0 else reversed(pairs):
                self._note(f"{one} to {two}", self._one(masters[one], two, epoch, None))
            for delay_ms in DELAYS_MS:
                rate = self._one(masters[PYTHON], PYTHON, epoch, delay_ms)
                self._note(f"python to python, proxy +{delay_ms} ms", rate)
        for master in masters.values():
            master.kill()

    def _note(self, name: str, rate: float) -> None:
        self.figures["catchup"][name].append(rate)
        print(f"{name}: {rate:.0f} MB/s", file=sys.stderr, flush=True)

    def _one(self, master: Peer, side: str, epoch: int, delay_ms: int | None) -> float:
        os.sync()
        end = master.offsets().max
        # Ours reserves its first file as soon as it is open and another later, Java's as it fills.
        ha_bare.claim_memory(self._folder, FILE_BYTES)
        slave = self.peer(side, 2).start()
        time.sleep(SETTLE_S)
        ha_bare.claim_memory(self._folder, 2 * FILE_BYTES)
        try:
            with self._way(master, delay_ms) as address:
                slave.ask(f"slave {address} {epoch} 1")
                took_ns, size = map(int, slave.ask(f"reach {end}", timeout_s=300).split())
        finally:
            slave.kill()
            shutil.rmtree(slave.root)
        wait_until(lambda: master.offsets().set == {1}, 30, "the slave gone")
        return size / 1e6 / (took_ns / 1e9)

    @contextmanager
    def _way(self, master: Peer, delay_ms: int | None) -> Iterator[str]:
        if delay_ms is None:
            yield master.address
            return
        command = [sys.executable, "-m", "tests.bench.delay_proxy"]
        proxy = subprocess.Popen(
            [*command, str(master.port), str(delay_ms)], stdout=subprocess.PIPE, text=True
        )
        assert proxy.stdout is not None
        try:
            yield f"127.0.0.1:{proxy.stdout.readline().strip()}"
        finally:
            proxy.kill()
            proxy.wait()
            proxy.stdout.close()

    def latency(self, delays_ms: Sequence[int]) -> None:
        """Puts of 1 KB on a master with one slave, both Java's or both ours."""
        for _, delay_ms, side in itertools.product(range(self._rounds), delays_ms, PUTTERS):
            master, slave = self.peer(side, 1), self.peer(side, 2)
            try:
                with self._way(master.start(), delay_ms or None) as address:
                    slave.start()
                    self._latencies(side, master, slave, address, delay_ms)
            finally:
                for peer in (master, slave):
                    peer.kill()
                    shutil.rmtree(peer.root)

    def apart(self, puts: int = APART_PUTS, warm_up: int = WARM_UP_PUTS) -> None:
        """Where the time of a single put goes, ours: both ends look at the machine's clock."""
        found: dict[str, list[float]] = defaultdict(list)
        for _ in range(self._rounds):
            master, slave = (self.peer(PYTHON, n, program="tests.bench.put_stamps") for n in (1, 2))
            try:
                address = master.start().address
                slave.start()
                self._join(master, slave, address, warm_up)
                for peer in (master, slave):
                    peer.ask("stamps")
                master.ask(f"latency {puts} {BODY_BYTES} 1", timeout_s=300)
                self._apart(found, *(json.loads(peer.ask("stamps")) for peer in (master, slave)))
            finally:
                for peer in (master, slave):
                    peer.kill()
                    shutil.rmtree(peer.root)
        self.figures["apart"] = found

    def _apart(self, found: Figures, master: Stamps, slave: Stamps) -> None:
        """Of puts that both saw whole, the tenth around the median, and the tenth that was fastest: each
        part's mean, in microseconds."""
        whole = [
            seen for end, moments in master.items()
            if all({one, other} <= (seen := {**moments, **slave.get(end, {})}).keys()
                   for _, _, one, other in PARTS)
        ]  # fmt: skip
        whole.sort(key=lambda seen: seen["returned"] - seen["begun"])
        tenth = len(whole) // 10
        middle = len(whole) // 2 - tenth // 2
        for who, what, one, other in (*PARTS, ("all", WHOLE, "begun", "returned")):
            for where, begin in (("median", middle), ("fastest", 0)):
                took = [seen[other] - seen[one] for seen in whole[begin : begin + tenth]]
                found[f"{where} {who}: {what}"].append(statistics.mean(took) / 1000)
        print(f"{len(whole)} puts", file=sys.stderr, flush=True)

    def _join(self, master: Peer, slave: Peer, address: str, warm_up: int) -> None:
        """Both are in sync, and warm."""
        master.ask("master 1 1")
        slave.ask(f"slave {address} 1 1")
        both = {1, 2}
        # A fresh slave of an empty log joins with the first bytes.
        master.ask(f"latency 100 {BODY_BYTES} 1")
        wait_until(lambda: master.offsets().set == both, 30, "the slave in sync")
        master.ask(f"latency {warm_up} {BODY_BYTES} 64", timeout_s=300)

    def _latencies(self, side: str, master: Peer, slave: Peer, address: str, delay_ms: int) -> None:
        self._join(master, slave, address, WARM_UP_PUTS if delay_ms == 0 else 2_000)
        for in_flight in IN_FLIGHT:
            count = 4_000 * min(in_flight, 4) if delay_ms == 0 else 100 * in_flight
            said = master.ask(f"latency {count} {BODY_BYTES} {in_flight}", timeout_s=300)
            p50_us, p99_us, rate = map(int, said.split())
            name = f"{in_flight} in flight, +{delay_ms} ms {side}"
            self.figures["p50"][name].append(p50_us / 1000)
            self.figures["p99"][name].append(p99_us / 1000)
            self.figures["rate"][name].append(rate)
            print(f"{name}: p50 {p50_us} us, p99 {p99_us} us", file=sys.stderr, flush=True)


def report(figures: dict[str, Figures]) -> str:
    """Both tables and the ratios."""
    parts = []
    found = figures["catchup"]
    if found:
        base, bare = found["java to java"], found["bare sendmsg to mapped file"]
        rows = [
            [name, spread(rates), ratio(rates, base), ratio(rates, bare)]
            for name, rates in found.items()
        ]
        head = ["catch-up of a fresh slave", "MB/s", "/ java to java", "/ bare loop"]
        parts.append(markdown(head, rows))
    if figures.get("apart"):
        took = figures["apart"]
        rows = [
            [name.removeprefix("median "), spread(took[name]),
             spread(took[name.replace("median", "fastest", 1)])]
            for name in took if name.startswith("median")
        ]  # fmt: skip
        head = ["one put of 1 KB in flight", "us, tenth around the median", "us, fastest tenth"]
        parts.append(markdown(head, rows))
    if figures["p50"]:
        names = [
            f"{many} in flight, +{delay} ms" for delay in DELAYS_MS for many in IN_FLIGHT
            if f"{many} in flight, +{delay} ms {JAVA}" in figures["p50"]
        ]  # fmt: skip
        rows = []
        for name in names:
            row = [name]
            for side in PUTTERS:
                p50, p99 = (figures[key][f"{name} {side}"] for key in ("p50", "p99"))
                row.append(f"{number(statistics.median(p50))} / {number(statistics.median(p99))}")
            theirs, ours, busy = (figures["p50"][f"{name} {side}"] for side in PUTTERS)
            rows.append([*row, ratio(ours, theirs), ratio(busy, theirs)])
        wait = " ".join(f"{key}={value}" for key, value in BUSY_SETTINGS.items())
        head = ["put to acknowledgement, 1 KB", "Java p50 / p99 ms", "rmqha p50 / p99 ms"]
        parts.append(markdown([*head, wait, "rmqha/Java p50", f"{wait}/Java p50"], rows))
    return "\n\n".join(parts)


def main() -> None:
    """Run, print markdown, and keep the raw figures when asked to."""
    end_children_when_terminated()
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument(
        "--megabytes", type=int, default=940, help="of bodies of 1 KB; the log is an eighth larger"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["catchup", "latency", "apart"])
    parser.add_argument(
        "--delays-ms", type=int, nargs="+", default=DELAYS_MS, help="of the proxies of puts"
    )
    parser.add_argument("--folder", type=Path, help="where stores go (a temporary folder)")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        bench = Bench(Path(folder), args.rounds)
        if args.only in (None, "catchup"):
            bench.prepare(args.megabytes * 1_000_000)
            bench.catch_up()
        if args.only in (None, "latency"):
            bench.latency(args.delays_ms)
        if args.only in (None, "apart"):
            bench.apart()
    print(f"{machine()}; {args.megabytes} MB, {args.rounds} rounds: median (smallest-largest)\n")
    print(report(bench.figures))
    if args.json:
        write_json(args.json, bench.figures)


if __name__ == "__main__":
    main()
