"""A fleet of scripted brokers: for each controller a process that beats to it.

Each broker beats once a second to every controller, one-way and spread over the second, as Java's
brokers do. A connection is one broker's, or, where the limit of descriptors is below that, of some
that have the same number in their sets, as in a broker container. A process takes orders over a
pipe: begin, close the connections of some, say how far it lags.
"""

from __future__ import annotations

import itertools
import multiprocessing
import resource
import select
import socket
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection

from tests.bench.load import BenchFailed, frame

CLUSTER = "bench"
REPLICAS = (1, 2, 3)
TICKS = 100
"""Parts of the fleet, and of the time between beats: each part beats at its own moment."""
TIMEOUT_MS = 10_000
SOURCES_MAX = 10_000
"""Connections from one address of the loopback net: far fewer than ports are lent, so that one is
found soon."""
DESCRIPTORS_FOR_OTHERS = 3_000
"""Of a controller's limit: files, peers, and what it keeps free."""


def set_name(number: int) -> str:
    """Of a broker set."""
    return f"broker-{number:05d}"


def beat(name: str, replica: int, address: str) -> bytes:
    """One heartbeat of a broker, as Java's brokers send it."""
    fields = {
        "clusterName": CLUSTER, "brokerAddr": address, "brokerName": name, "brokerId": replica,
        "epoch": 1, "maxOffset": 0, "confirmOffset": 0, "heartbeatTimeoutMills": TIMEOUT_MS,
        "electionPriority": 2147483647,
    }  # fmt: skip
    return frame(904, fields, replica, flag=2)


def brokers_a_connection(sets: int) -> int:
    """As few as the limit of descriptors allows, which is raised as far as it goes.

    Children inherit the limit.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    room = hard - DESCRIPTORS_FOR_OTHERS
    return 1 if hard == resource.RLIM_INFINITY else -(-sets * len(REPLICAS) // room)


class Fleet:
    """The fleet's processes, seen from the bench.

    Args:
        nodes: addresses of the controllers.
        address: where every broker says that it listens.
        sets: how many broker sets.
        shared: brokers a connection.
        beat_s: seconds between two beats of a broker.
    """

    def __init__(
        self, nodes: Sequence[str], address: str, sets: int, shared: int, beat_s: float = 1.0
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipes: list[Connection] = []
        self._processes = []
        for number, node in enumerate(nodes, 1):
            here, there = context.Pipe()
            arguments = (there, node, f"127.0.{number}", address, sets, shared, beat_s)
            process = context.Process(target=_run, args=arguments, daemon=True)
            process.start()
            there.close()
            self._pipes.append(here)
            self._processes.append(process)

    @property
    def pids(self) -> list[int]:
        """Of the processes."""
        return [one.pid or 0 for one in self._processes]

    def begin(self, timeout_s: float) -> None:
        """Return when every broker is connected and has beaten once."""
        self._ask("begin", 0, timeout_s)

    def die(self, sets: int) -> float:
        """Close the connections of replica 1 of the first sets; when that began, monotonic."""
        return min(self._ask("die", sets, 60.0))

    def lag_s(self) -> float:
        """How late the latest part of the fleet has beaten since this was asked last."""
        return max(self._ask("lag", 0, 60.0))

    def close(self) -> None:
        """End it."""
        for one in self._processes:
            one.terminate()
            one.join()

    def _ask(self, order: str, number: int, timeout_s: float) -> list[float]:
        for pipe in self._pipes:
            pipe.send((order, number))
        for pipe in self._pipes:
            if not pipe.poll(timeout_s):
                raise BenchFailed(f"the fleet did not answer to {order} within {timeout_s} s")
        return [float(pipe.recv()) for pipe in self._pipes]


class _Brokers:
    def __init__(self, node: str, network: str, address: str, sets: int, shared: int) -> None:
        self._parts: list[list[tuple[socket.socket, bytes]]] = [[] for _ in range(TICKS)]
        self._masters: list[tuple[int, socket.socket]] = []
        numbers = itertools.count()
        for first in range(0, sets, shared):
            names = [set_name(one) for one in range(first, min(first + shared, sets))]
            for replica in REPLICAS:
                nth = next(numbers)
                one = self._connect(node, f"{network}.{1 + nth // SOURCES_MAX}")
                beats = b"".join(beat(name, replica, address) for name in names)
                self._parts[nth % TICKS].append((one, beats))
                if replica == 1:
                    self._masters.append((first, one))

    @staticmethod
    def _connect(node: str, source: str) -> socket.socket:
        host, _, port = node.rpartition(":")
        one = socket.socket()
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        one.bind((source, 0))
        one.connect((host, int(port)))
        one.setblocking(False)
        return one

    def beat(self, part: int) -> None:
        for one, message in self._parts[part]:
            if one.fileno() >= 0:
                one.send(message)

    def die(self, sets: int) -> None:
        for first, one in self._masters:
            if first < sets:
                one.close()


def _run(
    pipe: Connection, node: str, network: str, address: str, sets: int, shared: int, beat_s: float
) -> None:
    brokers = _Brokers(node, network, address, sets, shared)
    due = time.monotonic()
    lag_s = 0.0
    for tick in itertools.count():
        left_s = due - time.monotonic()
        lag_s = max(lag_s, -left_s)
        if left_s > 0:
            select.select([pipe], [], [], left_s)
        while pipe.poll():
            order, number = pipe.recv()
            if order == "begin":
                for part in range(TICKS):
                    brokers.beat(part)
                due = time.monotonic()
                pipe.send(due)
            elif order == "die":
                pipe.send(time.monotonic())
                brokers.die(number)
            else:
                pipe.send(lag_s)
                lag_s = 0.0
        if time.monotonic() >= due:
            brokers.beat(tick % TICKS)
            due += beat_s / TICKS
