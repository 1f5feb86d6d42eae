"""Looks into a log that has left the memory: made where they stand, and tried first and made again.

A part of ``bin/bench waits``. The first is how it was done before.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from rmqha.store.aio.cold_reads import NotInMemory
from rmqha.store.aio.message_store import MessageStore
from rmqha.store.aio.pulling import Pulled
from rmqha.store.aio.record_walk import RecordWalk
from rmqha.store.transfer import Transfer
from tests.bench.waiting import waits

COLD_BYTES, COLD_COUNT = 256 * 1024, 32
COLD_MESSAGES, COLD_LOOKS = 128_000, 200
COLD_TRANSFER = Transfer(0, COLD_COUNT, COLD_BYTES, COLD_COUNT, COLD_BYTES)
GROUPS = Path("/sys/fs/cgroup/blkio")


@contextlib.contextmanager
def slow_reads(path: Path, reads_per_s: int) -> Iterator[None]:
    """Let this process read so often in a second from the disk of ``path``; 0 for no limit.

    For root on Linux with version 1 of the block controller.
    """
    if not reads_per_s:
        yield
        return
    device = os.stat(path).st_dev
    group = GROUPS / f"rmqha-bench-{os.getpid()}"
    group.mkdir()
    limit = f"{os.major(device)}:{os.minor(device)} {reads_per_s}"
    (group / "blkio.throttle.read_iops_device").write_text(limit)
    (group / "cgroup.procs").write_text(str(os.getpid()))
    try:
        yield
    finally:
        (GROUPS / "cgroup.procs").write_text(str(os.getpid()))
        group.rmdir()


def evict(folder: Path) -> None:
    """Let files leave the memory, but for what somebody has looked at through a mapping."""
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class ColdLooks:
    """The same looks in both ways."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._pulling = store.pulling

    def _read(self, place: int, *, fetched_to: int | None = None) -> Pulled:
        """A pull of 256 KiB; with ``fetched_to`` one of a filter that wants none of it."""
        return self._pulling.read(
            "cold", 0, place, None, count_max=COLD_COUNT, bytes_max=COLD_BYTES,
            scan_max=COLD_COUNT, transfer=COLD_TRANSFER, fetched_to=fetched_to or 0,
            matches=None if fetched_to is None else lambda record: b"".join([record]) == b"",
        )  # fmt: skip

    async def pull_in_loop(self, place: int) -> None:
        """Join the slices, as a send does."""
        b"".join(self._read(place).parts)

    async def pull(self, place: int) -> None:
        """The same once they are in memory."""
        found = self._read(place)
        await self._pulling.fetch(found)
        b"".join(found.parts)

    async def filter_in_loop(self, place: int) -> None:
        """Look at each record."""
        self._read(place, fetched_to=1 << 60)

    async def filter(self, place: int) -> None:
        """The same once they are in memory."""
        found = self._read(place, fetched_to=0)
        await self._pulling.fetch(found)
        self._read(place, fetched_to=found.missing[-1][-1] if found.missing else 0)

    def _look(self, place: int) -> object:
        unit = self._store.reader.unit("cold", 0, place)
        return None if unit is None else self._store.reader.look(unit.physical_offset)

    async def look_in_loop(self, place: int) -> None:
        """Look at a message."""
        self._look(place)

    async def look(self, place: int) -> None:
        """The same once it is in memory."""
        await self._store.cold.look(lambda: self._look(place))

    def _places(self, places: list[int]) -> list[int]:
        units = [self._store.reader.unit("cold", 0, place) for place in sorted(places)]
        return [unit.physical_offset for unit in units if unit is not None]

    async def deliver_in_loop(self, places: list[int]) -> None:
        """Look at what is due, as timers and delays did: all that is due in one turn."""
        for offset in self._places(places):
            self._store.reader.look(offset)

    async def deliver(self, places: list[int]) -> None:
        """The same once it is in memory, as ``timer_service.py`` does."""
        due, walk = self._places(places), RecordWalk(self._store)
        while due:
            try:
                while due:
                    walk.look(due[0])
                    due.pop(0)
            except NotInMemory:
                walk.ahead(due)
            await walk.fetch()


async def cold_looks(store: MessageStore, reads_per_s: int) -> dict[str, float]:
    """Look at messages of the first half of the topic "cold", each place once."""
    looks = ColdLooks(store)
    kinds: dict[str, Callable[[int], Awaitable[None]]] = {
        "cold pulls of 256 KiB, read in the loop": looks.pull_in_loop,
        "cold pulls of 256 KiB, fetched before": looks.pull,
        "cold filters of 256 KiB, read in the loop": looks.filter_in_loop,
        "cold filters of 256 KiB, fetched before": looks.filter,
        "looks at a cold message, read in the loop": looks.look_in_loop,
        "looks at a cold message, fetched before": looks.look,
    }
    together: dict[str, Callable[[list[int]], Awaitable[None]]] = {
        "deliveries of cold messages, read in the loop": looks.deliver_in_loop,
        "deliveries of cold messages, fetched before": looks.deliver,
    }
    count = min(COLD_LOOKS, reads_per_s or COLD_LOOKS)
    places = range(0, COLD_MESSAGES // 2, COLD_COUNT)
    chosen = iter(random.Random(1).sample(places, count * (len(kinds) + len(together))))
    found: dict[str, float] = {}
    root = Path(store.settings.store_path_root_dir)
    with slow_reads(root, reads_per_s):
        for name, work in kinds.items():
            evict(root / "commitlog")  # what the reads before have read ahead
            longest, took = await waits(_all_of(work, [next(chosen) for _ in range(count)]))
            found[f"{count} {name}: longest wait, ms"] = longest
            found[f"{count} {name}: they took, ms"] = took
        for name, deliver in together.items():
            evict(root / "commitlog")
            longest, took = await waits(deliver([next(chosen) for _ in range(count)]))
            found[f"{count} {name}: longest wait, ms"] = longest
            found[f"{count} {name}: they took, ms"] = took
    return found


async def _all_of(work: Callable[[int], Awaitable[None]], places: list[int]) -> None:
    for place in places:
        await work(place)
        await asyncio.sleep(0)
