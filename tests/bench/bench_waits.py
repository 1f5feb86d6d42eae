"""For how long does the event loop stand still while a store works on its disk, and what do queues take?

Question: the longest time in which nothing else gets its turn, while a log of 1 GiB is cut, while it is
recovered with a torn tail, and while a slave with 1,000 dirty queues truncates at an election; while a
million consumer offsets are written, told and copied; while very much that was to come later is due at
the same moment; while a crowd of consumers does the same at once; while consumers read what has left
the memory;
and the disk, descriptors, mappings and memory of many topics with two messages a queue.

Recipe: ``bin/bench waits --rounds 3`` (``--topics 10000``). One store, no sockets (for offsets and
what is due replicas, a controller and a name server in one loop, for a crowd one beside a process of
consumers); a task that sleeps
for a millisecond at a time measures how much later than that it was woken. Wall time: the disk counts,
and so does whatever else the machine does; read the medians. Each row runs in a process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import psutil
import uvloop

from rmqha.cli.process import collections_held, settle_memory
from rmqha.runtime.aio.clock import SystemClock
from rmqha.runtime.aio.descriptors import count_in_use, raise_limit
from rmqha.runtime.aio.disk import SystemDisk
from rmqha.runtime.logs import Logger
from rmqha.store.aio.message_store import MessageStore
from rmqha.store.record import Message, pack_host
from rmqha.store.settings import StoreSettings
from tests.bench.choosing import some_of
from tests.bench.cold_looks import COLD_BYTES, COLD_COUNT, COLD_MESSAGES, cold_looks, evict
from tests.bench.crowd_waits import crowd
from tests.bench.due_waits import due
from tests.bench.ending import end_children_when_terminated
from tests.bench.offset_waits import offsets
from tests.bench.pressed_broker import pressed_broker
from tests.bench.pressure_waits import pressure, slow_disk
from tests.bench.tables import machine, markdown, spread, write_json
from tests.bench.waiting import waits

HOST = pack_host("127.0.0.1", 10911)
BODY = b"b" * 100
PROPERTIES = b"KEYS\x01k\x02"
"""Every producer's messages have some."""
DIRTY_QUEUES = 1_000
CUT_RECORDS = 1_000
QUEUES_A_TOPIC = 8
COLD_FILE_BYTES = 64 << 20
TORN_AT = 512 << 20
PHASE_TIMEOUT_S = 420
PHASES = ["cut", "election", "cold", "many", "offsets", "due", "crowd"]
Found = dict[str, float]


def store_at(root: Path, **changes: object) -> MessageStore:
    """A store with Java's default file sizes."""
    settings = StoreSettings(str(root), str(root / "commitlog"), **changes)  # type: ignore[arg-type]
    return MessageStore(SystemClock(), SystemDisk(), settings, Logger(node="bench"))


def put(store: MessageStore, topic: str, queue_id: int) -> None:
    """Append one message."""
    store.append(Message(topic, queue_id, BODY, PROPERTIES, 1_700_000_000_000, HOST, HOST))


async def cut(root: Path) -> Found:
    """Cut some records in a file of 1 GiB, as a slave does; and recover one with a torn tail."""
    store = store_at(root)
    await store.open()
    for _ in range(CUT_RECORDS):
        put(store, "kept", 0)
    end = store.max_offset
    for _ in range(CUT_RECORDS):
        put(store, "kept", 0)
    await store.wait_dispatched(store.max_offset)
    await store.flush(store.max_offset)
    stood, took = await waits(store.truncate(end))
    await store.close()
    with (root / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(TORN_AT)
        file.write(b"torn" * 10_000)
    (root / "abort").write_bytes(b"1")
    again = store_at(root)
    stood_open, took_open = await waits(again.open())
    if again.max_offset != end:
        raise SystemExit(f"recovered up to {again.max_offset}, not {end}")
    await again.close()
    return {
        "cut in a file of 1 GiB: longest wait, ms": stood,
        "cut in a file of 1 GiB: it took, ms": took,
        "recovery of it with a torn tail: longest wait, ms": stood_open,
        "recovery of it with a torn tail: it took, ms": took_open,
    }


async def election(root: Path) -> Found:
    """Truncate while 1,000 queues are dirty and their sync has begun."""
    store = store_at(root, flush_interval_consume_queue=3_600_000)
    await store.open()
    for number in range(DIRTY_QUEUES):
        put(store, f"topic{number:04d}", 0)
    await store.wait_dispatched(store.max_offset)
    await store.flush_queues()
    for number in range(DIRTY_QUEUES):
        put(store, f"topic{number:04d}", 0)
    middle = store.max_offset
    for number in range(DIRTY_QUEUES):
        put(store, f"topic{number:04d}", 0)
    await store.wait_dispatched(store.max_offset)
    await store.flush(store.max_offset)
    syncing = asyncio.create_task(store.flush_queues())
    await asyncio.sleep(0)
    stood, took = await waits(store.truncate(middle))
    await syncing
    await store.close()
    return {
        "election with 1,000 dirty queues: longest wait, ms": stood,
        "election with 1,000 dirty queues: the cut took, ms": took,
    }


async def cold(root: Path, reads_per_s: int) -> Found:
    """Pulls of 256 KiB and other looks at places of the log that have left the memory: not of the last
    three files, which a start reads."""
    store = store_at(root, mapped_file_size_commit_log=COLD_FILE_BYTES)
    await store.open()
    body = b"b" * (COLD_BYTES // COLD_COUNT - 200)
    for number in range(COLD_MESSAGES):
        store.append(Message("cold", 0, body, b"", 1_700_000_000_000, HOST, HOST))
        if number % 100 == 0:
            await store.wait_dispatched(store.max_offset)
    await store.close()
    evict(root / "commitlog")
    store = store_at(root, mapped_file_size_commit_log=COLD_FILE_BYTES)
    await store.open()
    found = await cold_looks(store, reads_per_s)
    await store.close()
    return found


async def pressed(root: Path) -> Found:
    """Write more than a disk takes."""
    found: Found = {}
    for with_room in (False, True):
        with slow_disk(root / str(with_room)) as folder:
            store = store_at(folder / "store", message_index_enable=True)
            found |= await pressure(store, with_room=with_room)
    return found


async def many(root: Path, topics: int) -> Found:
    """Two messages in each queue of many topics."""
    raise_limit()
    process = psutil.Process()
    # One flush at the end: how long the disk takes for files meanwhile is not what is asked.
    store = store_at(root, flush_interval_consume_queue=3_600_000)
    await store.open()
    settle_memory()  # as the broker's program does
    memory, files = process.memory_info().rss, count_in_use()

    async def fill() -> None:
        for _ in range(2):
            for number in range(topics):
                for queue_id in range(QUEUES_A_TOPIC):
                    put(store, f"topic{number:05d}", queue_id)
                await asyncio.sleep(0)
            await store.wait_dispatched(store.max_offset)

    stood, took = await waits(fill())
    stood_sync, took_sync = await waits(store.flush_queues())
    mappings = len(Path("/proc/self/maps").read_text().splitlines())
    name = f"{topics} topics of {QUEUES_A_TOPIC} queues"
    found = {
        f"{name}: disk, MiB": _used(root) / (1 << 20),
        f"{name}: descriptors": count_in_use() - files,
        f"{name}: mappings": mappings,
        f"{name}: memory, MiB": (process.memory_info().rss - memory) / (1 << 20),
        f"{name}: filled and synced in, s": (took + took_sync) / 1000,
        f"{name}: filled: longest wait, ms": stood,
        f"{name}: synced: longest wait, ms": stood_sync,
    }
    # As every second of a broker's life, and as at an election: the others have nothing to do.
    spent = time.process_time()
    put(store, "topic00000", 0)
    await store.wait_dispatched(store.max_offset)
    found[f"{name}: a sync of one of them: longest wait, ms"], _ = await waits(store.flush_queues())
    found[f"{name}: the same: processor, ms"] = (time.process_time() - spent) * 1000
    end = store.max_offset
    put(store, "topic00000", 0)
    await store.wait_dispatched(store.max_offset)
    found[f"{name}: a cut of one of them: longest wait, ms"], _ = await waits(store.truncate(end))
    found[f"{name}: numbers of a new master: longest wait, ms"], _ = await waits(
        store.rebuild_queue_offsets()
    )
    found[f"{name}: old files looked for: longest wait, ms"], _ = await waits(
        store.expiring.expire_queues()
    )
    await store.close()
    began = time.perf_counter()
    again = store_at(root)
    with collections_held():
        await again.open()
    found[f"{name}: opened in, s"] = time.perf_counter() - began
    await again.close()
    return found


def _used(root: Path) -> int:
    """Bytes of the blocks of all queue files."""
    return sum(path.lstat().st_blocks * 512 for path in (root / "consumequeue").rglob("*"))


def main() -> None:
    """Measure and print the table."""
    end_children_when_terminated()
    options = _options()
    if options.phase:
        raise SystemExit(_phase(options))
    figures: dict[str, list[float]] = {}
    for number in range(options.rounds):
        print(f"round {number + 1} of {options.rounds}", flush=True)
        for phase in options.phases:
            folder = Path(tempfile.mkdtemp(prefix="rmqha-bench-waits-", dir=options.folder))
            try:
                for name, value in _run(phase, folder, options).items():
                    figures.setdefault(name, []).append(value)
                    print(f"  {name}: {value:.1f}", flush=True)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
    print(machine() + f"; medians of {options.rounds} (smallest-largest)\n")
    print(markdown(["work", "rmqha"], [[name, spread(found)] for name, found in figures.items()]))
    if options.json:
        write_json(Path(options.json), {"machine": machine(), "figures": figures})


def _run(phase: str, folder: Path, options: argparse.Namespace) -> Found:
    line = [sys.executable, "-m", "tests.bench.bench_waits", "--phase", phase]
    done = subprocess.run(
        [
            *line, "--folder", str(folder), "--topics", str(options.topics),
            "--reads-per-s", str(options.reads_per_s),
        ],
        capture_output=True, text=True, timeout=PHASE_TIMEOUT_S, check=False,
    )  # fmt: skip
    if done.returncode:
        print(f"  {phase} failed: {done.stderr.strip().splitlines()[-1:]}", flush=True)
        return {}
    found: Found = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def _phase(options: argparse.Namespace) -> int:
    root = Path(options.folder) / "store"
    work: dict[str, Callable[[], Awaitable[Found]]] = {
        "cut": lambda: cut(root),
        "election": lambda: election(root),
        "cold": lambda: cold(root, options.reads_per_s),
        "pressure": lambda: pressed(root),
        "broker": lambda: pressed_broker(root, delayed=False),
        "delays": lambda: pressed_broker(root, delayed=True),
        "many": lambda: many(root, options.topics),
        "offsets": lambda: offsets(root),
        "due": lambda: due(root),
        "crowd": lambda: crowd(root),
    }

    async def run() -> Found:
        return await work[options.phase]()

    print(json.dumps(uvloop.run(run())))
    return 0


def _options(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bin/bench waits", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--topics", type=int, default=10_000, help="of the row about many topics")
    parser.add_argument(
        "--phases", default=PHASES,
        type=lambda text: some_of([*PHASES, "pressure", "broker", "delays"])(text).split(","),
        help=f"which of {', '.join(PHASES)}, and for root pressure, broker and delays",
    )  # fmt: skip
    parser.add_argument(
        "--reads-per-s", type=int, default=0,
        help="what the disk gives a process in the row about what has left the memory (as root)",
    )  # fmt: skip
    parser.add_argument("--folder", default=None, help="where stores go (default: temporary)")
    parser.add_argument("--json", help="keep the raw figures here")
    parser.add_argument("--phase", help=argparse.SUPPRESS)
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
