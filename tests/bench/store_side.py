"""Our side of bench_store: one phase over one directory, one JSON line out.

The phases are those of ``java/StoreBench.java``, step for step: the same records, the same warm-up,
the same checks of what was read.

``append`` appends without waiting for the disk, ``sync`` keeps a number of puts waiting for it,
``read`` reads all twice and times the second pass, ``open`` times loading and recovery, ``hold``
appends and then waits to be killed.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

import uvloop

from rmqha.runtime.aio.clock import SystemClock
from rmqha.runtime.aio.disk import SystemDisk
from rmqha.runtime.logs import Logger
from rmqha.store.aio.message_store import MessageStore
from rmqha.store.record import Message, pack_host
from rmqha.store.settings import StoreSettings

TOPIC = "bench"
QUEUES = 8
BATCH_COUNT = 32
BATCH_BYTES = 256 << 10
HOST = pack_host("127.0.0.1", 10911)
BODY = b"b" * 1024


def store_at(root: Path, flush: str = "ASYNC_FLUSH") -> MessageStore:
    """A store with Java's default file sizes."""
    settings = StoreSettings(str(root), str(root / "commitlog"), flush_disk_type=flush)
    return MessageStore(SystemClock(), SystemDisk(), settings, Logger(node="bench"))


def message(queue: int, properties: bytes) -> Message:
    """One record of about 1 KB."""
    return Message(TOPIC, queue, BODY, properties, 1_700_000_000_000, HOST, HOST)


def append_all(store: MessageStore, count: int, properties: bytes) -> None:
    """Append ``count`` messages, each an object of its own as a request makes it."""
    for number in range(count):
        store.append(message(number % QUEUES, properties))


async def append(root: Path, properties: bytes, count: int, warm: int) -> dict[str, float]:
    """Seconds until all are appended, and until all are in their queues."""
    store = store_at(root)
    await store.open()
    append_all(store, warm, properties)
    await store.wait_dispatched(store.max_offset)
    start = time.perf_counter()
    append_all(store, count, properties)
    appended = time.perf_counter() - start
    await store.wait_dispatched(store.max_offset)
    dispatched = time.perf_counter() - start
    end = store.max_offset
    await store.close()
    return {"append_s": appended, "dispatched_s": dispatched, "end": end}


async def hold(root: Path, properties: bytes, count: int) -> None:
    """Fill the store, say so, and do nothing more until killed."""
    store = store_at(root)
    await store.open()
    append_all(store, count, properties)
    await store.wait_dispatched(store.max_offset)
    print(json.dumps({"end": store.max_offset}), flush=True)
    await asyncio.Event().wait()


async def sync(root: Path, properties: bytes, width: int, duration: float) -> dict[str, float]:
    """Durable puts within a time, with ``width`` of them waiting at any moment."""
    store = store_at(root, "SYNC_FLUSH")
    await store.open()

    async def putter(queue: int, stop: float) -> int:
        done = 0
        while time.perf_counter() < stop:
            await store.flush(store.append(message(queue, properties)).end)
            done += 1
        return done

    async def run(seconds: float) -> int:
        stop = time.perf_counter() + seconds
        return sum(await asyncio.gather(*(putter(n % QUEUES, stop) for n in range(width))))

    await run(duration / 4)
    start = time.perf_counter()
    done = await run(duration)
    took = time.perf_counter() - start
    await store.close()
    return {"puts": done, "seconds": took}


async def read(root: Path) -> dict[str, float]:
    """Seconds to read every record through its queue, and by its physical offset."""
    store = store_at(root)
    await store.open()
    read_queues(store)
    start = time.perf_counter()
    count = read_queues(store)
    queues = time.perf_counter() - start
    look(store)
    start = time.perf_counter()
    looked = look(store)
    looks = time.perf_counter() - start
    if looked != count:
        raise SystemExit(f"{looked} records by offset, {count} in queues")
    await store.close()
    return {"records": count, "queue_s": queues, "look_s": looks}


def read_queues(store: MessageStore) -> int:
    """How many records the queues give."""
    count, reader = 0, store.reader
    for queue in range(QUEUES):
        offset, before = 0, -1
        while offset < reader.max_offset(TOPIC, queue):
            result = reader.get(TOPIC, queue, offset, count_max=BATCH_COUNT, bytes_max=BATCH_BYTES)
            for view in result.records:
                physical = int.from_bytes(view[28:36])
                if physical <= before:
                    raise SystemExit(f"record {physical} after {before}")
                before = physical
            count += len(result.records)
            offset = result.next_begin_offset
    return count


def look(store: MessageStore) -> int:
    """How many records follow each other in the log."""
    count, offset, end = 0, 0, store.max_offset
    while offset < end:
        record = store.reader.look(offset)
        if record is None or len(record.body) != len(BODY):
            raise SystemExit(f"no whole record at {offset}")
        offset += record.size
        count += 1
    return count


async def open_only(root: Path) -> dict[str, float]:
    """Seconds of loading and recovery."""
    store = store_at(root)
    start = time.perf_counter()
    await store.open()
    took = time.perf_counter() - start
    units = sum(store.reader.max_offset(TOPIC, queue) for queue in range(QUEUES))
    result = {"open_s": took, "end": store.max_offset, "units": units}
    await store.close()
    return result


def main() -> None:
    """Run the phase that the arguments name."""
    phase, root, text, *rest = sys.argv[1:]
    properties = text.replace("=", "\x01").replace(";", "\x02").encode()
    path = Path(root)
    match phase:
        case "append":
            result = uvloop.run(append(path, properties, int(rest[0]), int(rest[1])))
        case "hold":
            uvloop.run(hold(path, properties, int(rest[0])))
            return
        case "sync":
            result = uvloop.run(sync(path, properties, int(rest[0]), float(rest[1])))
        case "read":
            result = uvloop.run(read(path))
        case "open":
            result = uvloop.run(open_only(path))
        case _:
            raise SystemExit(f"no phase {phase}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
