"""What do ten thousand broker sets cost three controllers, and how soon are a thousand elected anew?

Question: with sets of three replicas, each of which beats once a second to every controller over a
connection of its own: processor time and memory of each controller, the time in which an honest
1004 is answered, and, when the masters of many sets die in one moment, when the last of these sets
has another master.

Recipe: ``bin/bench fleet --sets 10000 --deaths 1000``. Controllers, and the processes that play the
brokers, share this machine's cores: the fleet's own share is stated. Where the hard limit of
descriptors is too low, brokers share connections. They come from 127.0.1.1 and following. With ``--nodes 1`` two
cores carry three times as many beats: a controller's share does not depend on how many there are.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import struct
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import orjson
import psutil

from tests.bench.agents import Calls
from tests.bench.ending import end_children_when_terminated
from tests.bench.fleet import CLUSTER, REPLICAS, Fleet, brokers_a_connection, set_name
from tests.bench.load import BenchFailed, frame
from tests.bench.tables import machine, markdown, number, spread, write_json
from tests.cli.nodes import Group, Node, group

REGISTERING_MAX = 64
LEADERS_MAX = 5
"""So often a set begins anew."""
BEGIN_S = 300.0
ELECTED_S_MAX = 60.0
ASKING_PAUSE_S = 0.01
FRAME_HEAD = struct.Struct(">II")


class Usage:
    """Processor seconds and memory of processes between two moments."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._processes = [psutil.Process(pid) for pid in pids]
        self._begun = time.monotonic()
        self._spent = self._spent_s()

    def _spent_s(self) -> list[float]:
        return [sum(one.cpu_times()[:2]) for one in self._processes]

    def shares(self) -> list[float]:
        """Of one core, a process each, since this was made."""
        past_s = time.monotonic() - self._begun
        spent = zip(self._spent_s(), self._spent, strict=True)
        return [100 * (now - before) / past_s for now, before in spent]

    def mib(self) -> list[float]:
        """Resident memory now, a process each."""
        return [one.memory_info().rss / (1 << 20) for one in self._processes]


async def register(trio: Group, address: str, sets: int) -> None:
    """Register all replicas, have replica 1 of each set elected and the others taken in.

    A set whose leader lost its place meanwhile begins again at the next one, as brokers do.

    Raises:
        BenchFailed: controllers refused for good.
    """
    names = iter([set_name(one) for one in range(sets)])

    async def work() -> None:
        for name in names:
            for left in reversed(range(LEADERS_MAX)):
                leader = await asyncio.to_thread(trio.wait_leader)
                calls = Calls(leader.address)
                try:
                    await _register(calls, name, address)
                    break
                except (BenchFailed, OSError, TimeoutError):
                    if not left:
                        raise
                finally:
                    calls.close()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(REGISTERING_MAX):
            tasks.create_task(work())


async def _register(calls: Calls, name: str, address: str) -> None:
    base: dict[str, object] = {"clusterName": CLUSTER, "brokerName": name}
    for replica in REPLICAS:
        check = {"appliedBrokerId": replica, "registerCheckCode": f"{address};{replica}"}
        await calls.ask(1013, {**base, **check})
        register = {**base, "brokerId": replica, "brokerAddress": address, "invokeTime": 1}
        known = await calls.ask(1003, register)
    elect = {**base, "brokerId": 1, "designateElect": "false", "invokeTime": 1}
    elected = known if "masterBrokerId" in known else await calls.ask(1002, elect)
    if elected["masterBrokerId"] != "1":
        raise BenchFailed(f"{name}: {elected['masterBrokerId']} was elected, 1 expected")
    alter = {
        "brokerName": name, "masterBrokerId": 1, "masterEpoch": elected["masterEpoch"],
        "invokeTime": 1,
    }  # fmt: skip
    members = {"syncStateSet": REPLICAS, "syncStateSetEpoch": int(elected["syncStateSetEpoch"])}
    if elected["syncStateSetEpoch"] == "1":
        await calls.ask(1001, alter, orjson.dumps(members))


async def honest(leader: str, name: str, seconds: float) -> list[float]:
    """Milliseconds of one 1004 after another."""
    calls = Calls(leader)
    took = []
    over = time.monotonic() + seconds
    while (begun := time.monotonic()) < over:
        await calls.ask(1004, {"brokerName": name})
        took.append((time.monotonic() - begun) * 1000)
        await asyncio.sleep(0.001)
    calls.close()
    return took


async def elected_anew(leader: str, sets: int, died: float) -> list[float]:
    """Seconds from the deaths until the leader names another master, a set each."""
    host, _, port = leader.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    waiting = set(range(sets))
    found: list[float] = []
    while waiting:
        if time.monotonic() - died > ELECTED_S_MAX:
            raise BenchFailed(f"{len(waiting)} of {sets} sets have no other master")
        asked = sorted(waiting)
        writer.write(b"".join(frame(1004, {"brokerName": set_name(one)}, one) for one in asked))
        for _ in asked:
            total, packed = FRAME_HEAD.unpack(await reader.readexactly(8))
            rest = await reader.readexactly(total - 4)
            header = orjson.loads(rest[: packed & 0xFFFFFF])
            if (header.get("extFields") or {}).get("masterBrokerId") not in (None, "", "1"):
                waiting.discard(header["opaque"])
                found.append(time.monotonic() - died)
        await asyncio.sleep(ASKING_PAUSE_S)
    writer.close()
    return found


async def sink() -> tuple[asyncio.Server, str]:
    """Where all brokers listen: who connects is read and forgotten."""
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
    return server, f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


class Measured:
    """The figures of one run."""

    def __init__(self, sets: int, shared: int) -> None:
        self.sets, self.shared = sets, shared
        self.empty_mib: list[float] = []
        self.full_mib: list[float] = []
        self.controllers: list[float] = []
        self.fleet = self.registered_s = self.lag_s = 0.0
        self.idle_ms: list[float] = []
        self.honest_ms: list[float] = []
        self.elected_s: list[float] = []

    def rows(self) -> list[tuple[str, str]]:
        """A line each."""
        return [
            ("broker sets of three, connections a controller", f"{number(self.sets)}, {number(len(REPLICAS) * self.sets / self.shared)}"),
            ("register, elect and take in all, s", number(self.registered_s)),
            ("processor of a controller, % of a core", spread(self.controllers)),
            ("processor of the fleet itself, % of a core", number(self.fleet)),
            ("latest beat of the fleet, s late", number(self.lag_s)),
            ("memory of a controller before, MiB", spread(self.empty_mib)),
            ("memory of a controller after, MiB", spread(self.full_mib)),
            ("1004 before: p50, p99, ms", _percentiles(self.idle_ms)),
            ("1004 among them: p50, p99, ms", _percentiles(self.honest_ms)),
            (f"{len(self.elected_s)} masters die at once: another elected, p50, p99, last, s",
             f"{_percentiles(self.elected_s)}, {number(max(self.elected_s, default=0.0))}"),
        ]  # fmt: skip


def _percentiles(values: list[float]) -> str:
    if len(values) < 2:
        return "-"
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return f"{number(cuts[49])}, {number(cuts[98])}"


def _controllers(trio: Group) -> tuple[Node, list[int]]:
    leader = trio.wait_leader()
    return leader, [node.pid for node in trio.nodes]


async def play(
    folder: Path, nodes: int, sets: int, shared: int, deaths: int, seconds: float, beat_s: float
) -> Measured:
    """One group, one fleet."""
    found = Measured(sets, shared)
    server, address = await sink()
    with group(folder, nodes) as trio:
        leader, pids = _controllers(trio)
        found.empty_mib = Usage(pids).mib()
        found.idle_ms = await honest_alone(leader.address, address, seconds / 4)
        fleet = Fleet([node.address for node in trio.nodes], address, sets, shared, beat_s)
        try:
            await asyncio.to_thread(fleet.begin, BEGIN_S)
            # Thousands that connect in the same second can cost a leader its place.
            leader = await asyncio.to_thread(trio.wait_leader)
            begun = time.monotonic()
            await register(trio, address, sets)
            found.registered_s = time.monotonic() - begun
            leader = await asyncio.to_thread(trio.wait_leader)
            fleet.lag_s()
            usage = Usage([*pids, *fleet.pids])
            found.honest_ms = await honest(leader.address, set_name(sets - 1), seconds)
            shares = usage.shares()
            found.controllers, found.fleet = shares[: len(pids)], sum(shares[len(pids) :])
            found.full_mib = usage.mib()[: len(pids)]
            found.lag_s = fleet.lag_s()
            died = await asyncio.to_thread(fleet.die, deaths)
            found.elected_s = await elected_anew(leader.address, deaths, died)
            if trio.leader() is not leader:
                raise BenchFailed("another controller leads")
        finally:
            fleet.close()
    server.close()
    return found


async def honest_alone(leader: str, address: str, seconds: float) -> list[float]:
    """The same 1004 for a set that nobody else stands beside."""
    calls = Calls(leader)
    check = {"appliedBrokerId": 1, "registerCheckCode": f"{address};1"}
    await calls.ask(1013, {"clusterName": CLUSTER, "brokerName": "alone", **check})
    calls.close()
    return await honest(leader, "alone", seconds)


def main(arguments: Sequence[str] | None = None) -> None:
    """Play the runs, print a table of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", default="10000", help="broker sets, several runs with commas")
    parser.add_argument("--nodes", type=int, default=3, help="controllers; each hears every beat")
    parser.add_argument("--deaths", type=int, default=1000, help="masters that die at once")
    parser.add_argument("--seconds", type=float, default=30.0, help="of steady beats")
    parser.add_argument("--beat-s", type=float, default=1.0, help="between beats of a broker")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args(arguments)
    end_children_when_terminated()
    sizes = [int(one) for one in asked.sets.split(",")]
    all_found = []
    for sets in sizes:
        with tempfile.TemporaryDirectory() as folder:
            deaths = min(asked.deaths, sets)
            shared = brokers_a_connection(sets)
            played = play(
                Path(folder), asked.nodes, sets, shared, deaths, asked.seconds, asked.beat_s
            )
            all_found.append(asyncio.run(played))
    columns = [one.rows() for one in all_found]
    lines = [
        (first[0], *(row[1] for row in (first, *others)))
        for first, *others in zip(*columns, strict=True)
    ]
    print(markdown(("", *itertools.repeat("figures", len(all_found))), lines))
    print(f"\n{machine()}")
    if asked.json:
        write_json(asked.json, [vars(one) for one in all_found])


if __name__ == "__main__":
    main()
