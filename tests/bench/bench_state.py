"""What do a controller's snapshots, restarts and applied events cost, by the size of its state?

Question: for how long does a snapshot stand in the event loop's way, how long does a node take to
open its store, and what does one applied AlterSyncStateSet cost? Processor time of this thread,
which other processes do not lengthen; the opening of a store is wall time, for it reads files.

Recipe: ``bin/bench state --rounds 3`` (``--sets 10000,100000 --entries 1000000``). No sockets, no
other controller: the state machine, the snapshots and the log are driven as the shell does it.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

import uvloop

from rmqha.base.ids import BrokerId
from rmqha.cli.process import settle_memory
from rmqha.controller.aio.snapshots import Snapshots
from rmqha.controller.aio.wal import Wal
from rmqha.controller.machine import Committed, ControllerMachine, SnapshotLoaded
from rmqha.controller.metadata import events as ev
from rmqha.controller.metadata.snapshot import reading
from rmqha.controller.metadata.state import MetadataState
from rmqha.controller.raft import wal_layout as layout
from rmqha.controller.raft.core import RaftCore
from rmqha.controller.raft.events import HardState, SnapshotMeta
from rmqha.controller.raft.settings import RaftSettings
from rmqha.runtime.aio.disk import SystemDisk
from tests.bench.tables import machine, markdown, spread

CLUSTER = "DefaultCluster"
IDS = (BrokerId(1), BrokerId(2), BrokerId(3))
ALTERS = 20_000
SEGMENT_BYTES = 16 << 20
SNAPSHOT_EVERY = 20_000
MARKS_EVERY = 1_000


def name_of(number: int) -> str:
    """A broker set's name; neighbours in time are no neighbours in the alphabet."""
    return f"broker-{number * 7919 % 1_000_003:07d}"


def filled(sets: int) -> ControllerMachine:
    """A machine whose state holds this many sets of three replicas, each with a master."""
    one = ControllerMachine()
    for number in range(sets):
        name = name_of(number)
        for broker_id in IDS:
            address = f"10.0.{number % 250}.{broker_id}:10911"
            code = f"{address};1700000000000"
            _commit(one, ev.BrokerIdTaken(CLUSTER, name, address, broker_id, code))
        _commit(one, ev.MasterElected(name, IDS[0], 1, "broker", "first", False))
    return one


def _commit(one: ControllerMachine, event: ev.Event) -> None:
    index = one.applied_index + 1
    one.step(0, Committed(index, ev.to_proposal(1, index, event)))


def alter(
    one: ControllerMachine, active: int, count: int = ALTERS, *, marks_every: int = 0
) -> float:
    """Apply ``count`` changes of the first ``active`` sets in turn; microseconds of each.

    With ``marks_every`` the log holds a mark after as many, where the state's digest is taken.
    """
    committed: list[Committed] = []
    epochs = {name_of(i): one.state.sets[name_of(i)].sync_state_set_epoch for i in range(active)}
    for number in range(count):
        name = name_of(number % active)
        epochs[name] += 1
        event = ev.SyncStateSetAltered(name, IDS[: 1 + number % 3], epochs[name])
        index = one.applied_index + 1 + len(committed)
        committed.append(Committed(index, ev.to_proposal(1, index, event)))
        if marks_every and number % marks_every == marks_every - 1:
            committed.append(Committed(index + 1, ev.to_mark(ev.StateMarked(1))))
    began = time.thread_time()
    for each in committed:
        one.step(0, each)
    return (time.thread_time() - began) / count * 1e6


async def longest_block_ms(work: Callable[[], object]) -> float:
    """The longest turn of the event loop, processor time in milliseconds, until ``work`` is done."""
    loop = asyncio.get_running_loop()
    longest, last = 0.0, time.thread_time()
    running = True

    def tick() -> None:
        nonlocal longest, last
        now = time.thread_time()
        longest = max(longest, now - last)
        last = now
        if running:
            loop.call_soon(tick)

    loop.call_soon(tick)
    await asyncio.sleep(0)
    outcome = work()
    if asyncio.iscoroutine(outcome):
        await outcome
    running = False
    await asyncio.sleep(0)
    return longest * 1000


async def snapshot_blocks_ms(one: ControllerMachine, folder: Path) -> tuple[float, float]:
    """The longest turn while a snapshot is made, and while it is saved."""
    snapshots = Snapshots(SystemDisk(), str(folder), cluster="group")
    await snapshots.open()
    made: list[bytes] = []
    making = await longest_block_ms(lambda: made.append(one.snapshot()))
    saving = await longest_block_ms(lambda: snapshots.save(one.applied_index, 1, made[0]))
    return making, saving


async def install_block_ms(one: ControllerMachine, folder: Path) -> float:
    """The longest turn while another node, which has as many sets, takes a snapshot from its leader."""
    other, data, index = ControllerMachine(), one.snapshot(), one.applied_index
    other.step(0, SnapshotLoaded(index, data))
    snapshots = Snapshots(SystemDisk(), str(folder), cluster="group")
    await snapshots.open()
    snapshots.receive(0, data)
    sent = SnapshotMeta(index + 1, 1, len(data), layout.digest(data))
    found: list[tuple[int, MetadataState]] = []

    def check(state: bytes) -> Generator[None, None, None]:
        found.append((yield from reading(state)))

    async def install() -> None:
        loaded = await snapshots.install(sent, check)
        other.step(0, SnapshotLoaded(sent.last_index, loaded, found[0]))

    return await longest_block_ms(install)


def write_log(folder: Path, entries: int, a_frame: int) -> None:
    """A log of ``entries`` changes behind a snapshot at 1, ``a_frame`` of them for one sync."""
    data = [
        ev.to_proposal(1, i, ev.SyncStateSetAltered(name_of(i % 1000), IDS, i // 1000 + 2))
        for i in range(1000)
    ]
    opening = [layout.open_record("group", "n0", HardState(1, "n0")), (layout.ENTRY, 1, 1, b"")]
    parts = [layout.encode_frame(layout.WAL_MAGIC, 1, layout.encode_records(opening))]
    seq, size, first = 2, len(parts[0]), 1
    for index in range(2, entries + 2, a_frame):
        records: list[layout.Record] = [
            (layout.ENTRY, i, 1, data[i % 1000])
            for i in range(index, min(index + a_frame, entries + 2))
        ]
        if size >= SEGMENT_BYTES:
            (folder / f"{first:020d}.wal").write_bytes(b"".join(parts))
            opening = [layout.open_record("group", "n0", HardState(1, "n0"))]
            parts, first = [], seq
            parts.append(layout.encode_frame(layout.WAL_MAGIC, seq, layout.encode_records(opening)))
            seq, size = seq + 1, len(parts[0])
        parts.append(layout.encode_frame(layout.WAL_MAGIC, seq, layout.encode_records(records)))
        seq, size = seq + 1, size + len(parts[-1])
    (folder / f"{first:020d}.wal").write_bytes(b"".join(parts))


async def open_s(folder: Path, snapshot: SnapshotMeta) -> tuple[float, RaftCore]:
    """Seconds to open a log and build the core on it."""
    began = time.perf_counter()
    wal = _wal(folder)
    content = await wal.open(snapshot)
    core = RaftCore(
        node_id="n0", members=("n0", "n1", "n2"), settings=RaftSettings(),
        hard_state=content.hard_state, entries=content.entries, base_index=content.base_index,
        base_term=content.base_term, snapshot=snapshot, seed=1, now_ms=0,
    )  # fmt: skip
    took = time.perf_counter() - began
    await wal.close()
    return took, core


async def compact(folder: Path, snapshot: SnapshotMeta) -> None:
    """Delete the segments that a snapshot makes needless."""
    wal = _wal(folder)
    await wal.open(SnapshotMeta(1, 1, 0, 0))
    await wal.compact(snapshot.last_index)
    await wal.close()


def _wal(folder: Path) -> Wal:
    def ignore(_: object) -> None:
        """Nothing is written."""

    return Wal(
        SystemDisk(), str(folder), cluster="group", node="n0", segment_bytes=SEGMENT_BYTES,
        on_durable=ignore, on_failed=ignore,
    )  # fmt: skip


def apply_s(core: RaftCore) -> float:
    """Seconds in which a machine applies all that the log holds."""
    one = filled(1000)
    log = core.node.log
    entries = log.between(log.base_index + 1, log.last_index)
    start = one.applied_index
    began = time.thread_time()
    for number, entry in enumerate(entries, 1):
        one.step(0, Committed(start + number, entry.data))
    return time.thread_time() - began


def main() -> None:
    """Measure and print the table."""
    options = _options()
    figures: dict[str, list[float]] = {}
    folder = Path(tempfile.mkdtemp(prefix="rmqha-bench-state-", dir=options.folder))
    try:
        for number in range(options.rounds):
            print(f"round {number + 1} of {options.rounds}", flush=True)
            for sets in options.sets:
                _measure_state(figures, folder / f"{number}-{sets}", sets)
            if options.entries:
                _measure_restart(figures, folder, options.entries)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(machine() + f"; medians of {options.rounds} (min-max)\n")
    print(markdown(["work", "rmqha"], [[name, spread(found)] for name, found in figures.items()]))


def _add(figures: dict[str, list[float]], name: str, value: float) -> None:
    figures.setdefault(name, []).append(value)
    print(f"  {name}: {value:.3f}", flush=True)


def _measure_state(figures: dict[str, list[float]], folder: Path, sets: int) -> None:
    one = filled(sets)
    settle_memory()  # as a controller's process does
    for active in (100, sets):
        name = f"{sets} sets, changes of {active}: apply one"
        _add(figures, f"{name}, digests, us", alter(one, active, marks_every=MARKS_EVERY))
        _add(figures, f"{name}, us", alter(one, active))
    making, saving = uvloop.run(snapshot_blocks_ms(one, folder))
    _add(figures, f"{sets} sets: longest block, make a snapshot, ms", making)
    _add(figures, f"{sets} sets: longest block, save it, ms", saving)
    installing = uvloop.run(install_block_ms(one, folder))
    _add(figures, f"{sets} sets: longest block, take one from the leader, ms", installing)


def _measure_restart(figures: dict[str, list[float]], folder: Path, entries: int) -> None:
    for a_frame in (1, 20):
        log = folder / f"log-{entries}-{a_frame}"
        if not log.exists():
            log.mkdir()
            write_log(log, entries, a_frame)
        took, core = uvloop.run(open_s(log, SnapshotMeta(1, 1, 0, 0)))
        assert core.node.log.last_index == entries + 1
        _add(figures, f"{entries} entries, {a_frame} a sync: open the store, s", took)
    _add(figures, f"{entries} entries: apply them, s", apply_s(core))
    # As the default settings leave it: the newest snapshot is 20,000 entries old.
    snapshot = SnapshotMeta(entries - SNAPSHOT_EVERY, 1, 0, 0)
    left = folder / f"left-{entries}"
    shutil.rmtree(left, ignore_errors=True)
    shutil.copytree(log, left)
    uvloop.run(compact(left, snapshot))
    took, core = uvloop.run(open_s(left, snapshot))
    size = sum(one.stat().st_size for one in left.iterdir()) / (1 << 20)
    _add(figures, f"snapshot after {entries} entries: log that is left, MiB", size)
    _add(figures, f"snapshot after {entries} entries: open the store, s", took)


def _options(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench_state", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--sets", type=lambda text: [int(one) for one in text.split(",")], default=[10_000, 100_000],
        help="sizes of the state, sets of three replicas",
    )  # fmt: skip
    parser.add_argument("--entries", type=int, default=1_000_000, help="of the log; 0: no restart")
    parser.add_argument("--folder", default=None, help="where state goes (default: temporary)")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
