"""What in a store waits for a disk that takes less than is written: a part of ``bin/bench waits``.

The store is on an ext4 of its own in a file, whose loop device takes so many bytes a second, and whose
share of dirty memory is the least that Linux gives: then write-back is at its limit as soon as it
would be on a machine whose memory is full of what waits to be written. For root on Linux with version
1 of the block controller.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rmqha.store.aio.message_store import MessageStore
from rmqha.store.index_file import IndexWriter
from rmqha.store.record import Message, pack_host
from tests.bench.cold_looks import GROUPS
from tests.bench.waiting import waits

IMAGE_BYTES = 2 << 30
HOST = pack_host("127.0.0.1", 10911)
BODY = b"b" * 1_000
RECORD_BYTES = 1_200
MESSAGES_PER_S, AT_ONCE = 10_000, 50
SECONDS = 20.0
SLOW_WRITES = 4 << 20


@contextlib.contextmanager
def slow_disk(path: Path) -> Iterator[Path]:
    """An ext4 at ``path`` that takes ``SLOW_WRITES`` bytes a second; gone at the end."""
    path.mkdir(parents=True)
    image = path.with_suffix(".img")
    with image.open("wb") as file:
        file.truncate(IMAGE_BYTES)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(path)], check=True)
    device = os.stat(path).st_dev
    name = f"{os.major(device)}:{os.minor(device)}"
    limit = GROUPS / "blkio.throttle.write_bps_device"
    dirty = Path("/sys/class/bdi") / name
    try:
        (dirty / "strict_limit").write_text("1")
        (dirty / "max_ratio").write_text("1")
        limit.write_text(f"{name} {SLOW_WRITES}")
        yield path
    finally:
        limit.write_text(f"{name} 0")
        subprocess.run(["umount", str(path)], check=True)
        image.unlink()


class Sleeps:
    """How long calls have slept in the kernel: who only waits for a core does not give it up."""

    def __init__(self) -> None:
        self.longest_ms: dict[str, float] = {}

    def timed(self, name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        """The same work, watched."""
        self.longest_ms[name] = 0.0

        def run(*given: Any, **named: Any) -> Any:
            before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
            began = time.perf_counter()
            try:
                return work(*given, **named)
            finally:
                took_ms = (time.perf_counter() - began) * 1000
                if resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw > before:
                    self.longest_ms[name] = max(self.longest_ms[name], took_ms)

        return run


async def pressure(store: MessageStore, *, with_room: bool) -> dict[str, float]:
    """Write more than the disk takes; ``store`` is on a slow one, with an index.

    Args:
        with_room: room is made once a write has waited, as a broker does; else nobody ever notices.
    """
    if not with_room:
        store.room.wrote = lambda begun_ms: None  # type: ignore[method-assign]
    sleeps = Sleeps()
    for part, method, name in (
        (store.commit_log, "append", "append"),
        (store.commit_log, "_roll", "the log's next file"),
        (store.queues, "put_queue_runs", "dispatch of a run"),
        (IndexWriter, "put", "keys of the index"),
    ):
        setattr(part, method, sleeps.timed(name, getattr(part, method)))
    await store.open()
    count = 0

    async def write() -> None:
        nonlocal count
        began = time.monotonic()
        while time.monotonic() - began < SECONDS:
            if store.room.is_short:
                await store.room.make(AT_ONCE * RECORD_BYTES)
            for _ in range(AT_ONCE):
                properties = b"KEYS\x01k%d\x02" % count
                store.append(Message("t", count % 8, BODY, properties, 0, HOST, HOST))
                count += 1
            await asyncio.sleep(max(0.0, count / MESSAGES_PER_S - (time.monotonic() - began)))

    longest, took = await waits(write())
    await store.close()
    name = "more written than the disk takes, " + ("room made" if with_room else "as before")
    return {
        f"{name}: longest wait, ms": longest,
        f"{name}: messages of 1 KiB a second": count / took * 1000,
        **{
            f"{name}: longest sleep in the kernel, {what}, ms": found
            for what, found in sleeps.longest_ms.items()
        },
    }
