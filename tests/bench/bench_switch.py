"""How many sends fail, and how long is none acknowledged, when the mastership is moved on purpose?

Question: what a client sees whose route is as old as a Java client's may be. Three controllers, a
name server and three Python replicas as processes, ``allAckInSyncStateSet``; senders that send the
next message a millisecond after an answer, each to the master that the name server named at their
last question, 30 s apart, and never try again. Mastership goes round by ``bin/mqadmin switchMaster``
(``--how electMaster``: as one had to before). Of each switch: failed sends, and the longest time
between two acknowledgements.

Each of them sends to one address; all ask together.

Recipe: ``bin/bench switch --switches 100 --json figures.json``. Noise: eight processes and the
senders share the cores.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rmqha.base.errors import RmqhaError
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.settings import RemotingSettings
from rmqha.runtime.aio.clock import SystemClock
from rmqha.runtime.aio.net import TcpNetwork
from rmqha.testing.cluster import RmqCluster
from rmqha.testing.loop_thread import LoopThread
from rmqha.testing.settings import BROKER_NAME, CLUSTER_NAME
from tests.bench.ending import end_children_when_terminated
from tests.bench.tables import machine, markdown, number, spread, write_json

ROOT = Path(__file__).resolve().parents[2]
TOPIC = "Switched"
QUEUES = 4
ROUTE_S = 30.0
BODY = b"x" * 256
COMMANDS = ("switchMaster", "electMaster")


@dataclass(slots=True)
class Outcome:
    """The switches by one command."""

    gaps_ms: list[float] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    acked: int = 0
    lost: int = 0
    reasons: dict[str, int] = field(default_factory=dict)


class Senders:
    """Clients with a route that is up to half a minute old."""

    def __init__(self, cluster: RmqCluster, count: int) -> None:
        self._cluster = cluster
        self._thread = LoopThread("senders")
        self.acked_s: list[float] = []
        self.failed: list[tuple[float, str]] = []
        self._number = 0
        self._is_over = False
        self._address, self._asked_s = "", 0.0
        self.route()
        self._done = asyncio.run_coroutine_threadsafe(self._run(count), self._thread.loop)

    async def _run(self, count: int) -> None:
        client = RemotingClient(TcpNetwork(), SystemClock(), RemotingSettings())
        try:
            await asyncio.gather(*(self._send(client, one) for one in range(count)))
        finally:
            await client.close()

    async def _send(self, client: RemotingClient, one: int) -> None:
        while not self._is_over:
            self._number += 1
            fields = {
                "a": "PG", "b": TOPIC, "c": "TBW102", "d": str(QUEUES), "e": str(one % QUEUES),
                "f": "0", "g": str(time.time_ns() // 1_000_000), "h": "0",
                "i": f"UNIQ_KEY\x01U{self._number:016}\x02WAIT\x01true\x02",
                "j": "0", "k": "false", "m": "false", "n": BROKER_NAME,
            }  # fmt: skip
            command = RemotingCommand(310, ext_fields=fields, body=BODY)
            try:
                answer = await client.invoke(self._address, command, 3_000)
            except RmqhaError as error:
                self.failed.append((time.monotonic(), type(error).__name__))
            else:
                if answer.code == 0:
                    self.acked_s.append(time.monotonic())
                else:
                    self.failed.append((time.monotonic(), f"{answer.code} {answer.remark}"))
            await asyncio.sleep(0.001)

    def route(self) -> None:
        """Ask who is master, if that is half a minute ago."""
        if not self._address or time.monotonic() - self._asked_s >= ROUTE_S:
            self._address = self._cluster.wait_for_master().address
            self._asked_s = time.monotonic()

    def stop(self) -> None:
        """Take the answers that are still to come."""
        self._is_over = True
        self._done.result(10)
        self._thread.close()


def main() -> None:
    """Run all and print the table."""
    end_children_when_terminated()
    options = _options()
    outcomes: dict[str, Outcome] = {}
    for how in options.how.split(","):
        with tempfile.TemporaryDirectory(prefix="rmqha-switch-", dir=options.folder) as folder:
            outcomes[how] = _run(how, options.switches, options.senders, Path(folder))
    print(f"\n{machine()}; {options.switches} switches each, {options.senders} senders\n")
    print(table(outcomes))
    if options.json:
        raw = {how: asdict(one) for how, one in outcomes.items()}
        write_json(Path(options.json), {"machine": machine(), "outcomes": raw})


def table(outcomes: dict[str, Outcome]) -> str:
    """One row a command."""
    head = ["command", "without an acknowledgement: median (range), ms", "above 50 ms",
            "failed sends", "switches with one", "acknowledged", "lost"]  # fmt: skip
    rows = [
        [
            how, spread(one.gaps_ms), str(sum(gap > 50 for gap in one.gaps_ms)),
            str(sum(one.failed)), str(sum(map(bool, one.failed))), number(one.acked), str(one.lost),
        ]
        for how, one in outcomes.items()
    ]  # fmt: skip
    return markdown(head, rows)


def _run(how: str, switches: int, count: int, folder: Path) -> Outcome:
    outcome = Outcome()
    with RmqCluster(folder, processes=True) as cluster:
        cluster.produce(20, topic=TOPIC)
        cluster.wait_in_sync(3)
        senders = Senders(cluster, count)
        time.sleep(1)
        for number_of in range(switches):
            switch_once(cluster, senders, how, outcome)
            print(
                f"{how} {number_of + 1}: {outcome.gaps_ms[-1]:.0f} ms, failed {outcome.failed[-1]}",
                flush=True,
            )
        senders.stop()
        outcome.acked = len(senders.acked_s)
        for _, reason in senders.failed:
            outcome.reasons[reason] = outcome.reasons.get(reason, 0) + 1
        stored = cluster.consume(TOPIC, settle_s=3.0)
        outcome.lost = max(0, outcome.acked + 20 - len(stored))
    print(outcome.reasons)
    return outcome


def switch_once(cluster: RmqCluster, senders: Senders, how: str, outcome: Outcome) -> None:
    """Move the mastership by one command, and see what its senders see."""
    info = cluster.wait_in_sync(3)
    senders.route()
    assert info.master_id is not None
    ids = sorted(info.sync_state_set)
    target = ids[(ids.index(info.master_id) + 1) % len(ids)]
    begun_s = time.monotonic()
    subprocess.run(
        [ROOT / "bin" / "mqadmin", how, "-a", cluster.controller_addr, "-bn", BROKER_NAME,
         "-b", str(target), "-c", CLUSTER_NAME],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    cluster.wait_in_sync(3)
    with suppress(IndexError):
        seen_s = senders.acked_s[-1]
        while senders.acked_s[-1] < seen_s + 0.3 and time.monotonic() < begun_s + 10:
            time.sleep(0.05)
    acks = [one for one in list(senders.acked_s) if one >= begun_s - 0.1] or [begun_s]
    ends = [*acks[1:], time.monotonic()]
    gaps = [b - a for a, b in zip(acks, ends, strict=True)]
    outcome.gaps_ms.append(1000 * max(gaps, default=time.monotonic() - begun_s))
    outcome.failed.append(sum(at >= begun_s for at, _ in senders.failed))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--switches", type=int, default=20)
    parser.add_argument("--senders", type=int, default=4)
    parser.add_argument("--how", default="switchMaster", help=f"of {', '.join(COMMANDS)}")
    parser.add_argument("--folder", default=None, help="where stores are made")
    parser.add_argument("--json", default="", help="keep the raw figures here")
    return parser.parse_args()


if __name__ == "__main__":
    main()
