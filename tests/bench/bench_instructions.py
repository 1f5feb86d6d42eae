"""How many instructions of the machine does one request cost, all who take part in it together?

Question: does a version do more work than another one, where no machine is quiet enough to time it?
Real replicas and controllers in the simulator, with valgrind counting whatever the process executes,
Python's own code and that of libraries alike. Each request is made so many times and so many more; the
difference, by request, is the figure. A question that nobody answers is the row to compare with: it
costs the simulator, the client and two frames, and every other row has that in it.

Recipe: ``bin/bench instructions`` (``--only "a pull"``); for another version the same file there. Needs
valgrind and two minutes. Noise: none that counts; a figure repeats to a few parts in a thousand. What
it does not see: caches, system calls, and whoever waits for whom.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.bench.ending import end_children_when_terminated
from tests.bench.tables import markdown, number
from tests.broker.replicas import TOPIC, ReplicaCluster, master_of, send_fields

FEW, MORE = 20, 320
BODY = b"b" * 1000
MESSAGES = 32
UNKNOWN = 7_777
COUNTED = re.compile(r"I\s+refs:\s+([\d,]+)")
TIMEOUT_S = 900
Ask = Callable[[int], int]
"""Makes the request of a number, and returns the answer's code."""


def unanswered(cluster: ReplicaCluster) -> Ask:
    """A code that no broker knows."""
    address = master_of(cluster).config.address
    return lambda _: int(cluster.ask(address, UNKNOWN, {}).code == 0)


def sent(cluster: ReplicaCluster) -> Ask:
    """Messages of a kilobyte."""
    address = master_of(cluster).config.address
    return lambda number: cluster.ask(address, 310, send_fields(4 * number), BODY).code


def pulled(cluster: ReplicaCluster) -> Ask:
    """Pulls of 32 such messages."""
    send = sent(cluster)
    for each in range(MESSAGES):
        assert send(each) == 0
    address = master_of(cluster).config.address
    fields = {
        "consumerGroup": "G", "topic": TOPIC, "queueId": "0", "queueOffset": "0",
        "maxMsgNums": str(MESSAGES), "sysFlag": "4", "commitOffset": "0",
        "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
    }  # fmt: skip
    return lambda _: cluster.ask(address, 11, fields).code


def caught_up(cluster: ReplicaCluster) -> Ask:
    """Messages that come while the slave is dead; at the end it copies them."""
    (slave,) = (
        host for host, one in cluster.replicas.items() if one is not master_of(cluster)
    )  # fmt: skip
    cluster.kill(slave)
    cluster.until(lambda: len(cluster.controller_set()) == 1, "a set of one")
    return sent(cluster)


def beaten(cluster: ReplicaCluster) -> Ask:
    """Heartbeats with offsets that grow."""
    fields = {
        "clusterName": "other", "brokerName": "other", "brokerId": "1", "brokerAddr": "10.0.0.9:1",
        "heartbeatTimeoutMills": "5000", "epoch": "1",
    }  # fmt: skip
    leader = _leader(cluster)
    return lambda number: (
        cluster.ask(
            leader, 904, {**fields, "maxOffset": str(number), "confirmOffset": str(number)}
        ).code
    )


def told(cluster: ReplicaCluster) -> Ask:
    """Who leads."""
    leader = _leader(cluster)
    return lambda _: cluster.ask(leader, 1005, {}).code


def committed(cluster: ReplicaCluster) -> Ask:
    """Broker ids applied for, in a new set each."""
    leader = _leader(cluster)
    return lambda number: (
        cluster.ask(
            leader, 1013,
            {
                "clusterName": "other", "brokerName": f"set-{number}", "appliedBrokerId": "1",
                "registerCheckCode": f"10.0.0.9:1;{number}",
            },
        ).code
    )  # fmt: skip


def _leader(cluster: ReplicaCluster) -> str:
    host = cluster.leader()
    assert host is not None, "boot_all() waits for it"
    return cluster.controllers[host].config.this.address


WORKS: dict[str, tuple[int, Callable[[ReplicaCluster], Ask]]] = {
    "a question that nobody answers": (1, unanswered),
    "a message of 1 KB": (1, sent),
    "a message of 1 KB, three replicas": (3, sent),
    "a message of 1 KB, and a dead slave copies it later": (2, caught_up),
    "a pull of 32 messages": (1, pulled),
    "904 with growing offsets": (1, beaten),
    "1005": (1, told),
    "an id applied for, three controllers": (1, committed),
}
"""Replicas, and what is asked of them."""


def work(name: str, times: int) -> None:
    """Make a request so many times, and some before."""
    replicas, begin = WORKS[name]
    with ReplicaCluster(seed=9, replicas=replicas) as cluster:
        cluster.boot_all()
        cluster.until(cluster.in_sync, "a whole set")
        # The simulator's own proofs cost more than what they look at.
        setattr(cluster, "entry_applied", _unchecked)  # noqa: B010
        ask = begin(cluster)
        for each in range(MESSAGES, MESSAGES + times):
            code = ask(each)
            if code:
                raise SystemExit(f"{name}: refused with {code}")
        for host in cluster.broker_hosts:
            if host not in cluster.replicas:
                cluster.boot(host)
        cluster.until(cluster.in_sync, "a whole set")


def _unchecked(node: str, entry: object) -> None:
    """Take it as it is."""


def instructions(name: str, times: int) -> int:
    """Of a process that does this and nothing else."""
    command = [
        "valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null",
        sys.executable, "-m", "tests.bench.bench_instructions", "--work", name,
        "--times", str(times),
    ]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )  # fmt: skip
    found = COUNTED.search(done.stderr)
    if done.returncode or found is None:
        raise SystemExit(f"{name}: {done.stderr[-2_000:]}")
    return int(found[1].replace(",", ""))


def by_request(name: str) -> float:
    """Instructions of one request."""
    return (instructions(name, MORE) - instructions(name, FEW)) / (MORE - FEW)


def main(argv: Sequence[str] | None = None) -> None:
    """Count and print the table."""
    end_children_when_terminated()
    options = _options(argv)
    if options.work:
        work(options.work, options.times)
        return
    if shutil.which("valgrind") is None:
        raise SystemExit("there is no valgrind here to count with: apt-get install valgrind")
    names = [name for name in WORKS if name.startswith(options.only)]
    if not names:
        raise SystemExit(f"{options.only!r} begins none of: {', '.join(WORKS)}")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = dict(zip(names, pool.map(by_request, names), strict=True))
    print(markdown(["a request", "instructions"], [[k, number(v)] for k, v in found.items()]))


def _options(argv: Sequence[str] | None) -> Any:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="only requests whose name starts so")
    parser.add_argument("--work", choices=WORKS, help=argparse.SUPPRESS)
    parser.add_argument("--times", type=int, default=FEW, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
