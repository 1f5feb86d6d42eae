"""A disk that gets full: the store says so in time, makes room, and opens on one, too."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from rmqha.base.errors import DiskFull
from rmqha.runtime.aio.clock import SystemClock
from rmqha.runtime.aio.disk import SystemDisk
from rmqha.runtime.logs import Logger
from rmqha.store.aio import index_files
from rmqha.store.aio.message_store import MessageStore
from tests.store.harness import TOPIC, bodies, message, small_settings
from tests.store.test_expiring import COUNT, GONE, filled
from tests.store.test_index_files import EVER, INDEXED


class Use:
    """Shares of two disks, which a test sets."""

    def __init__(self, commit_log: float, queues: float) -> None:
        self.commit_log = commit_log
        self.queues = queues

    def __call__(self) -> float:
        return self.commit_log

    def of_queues(self) -> float:
        return self.queues

    def space(self) -> tuple[int, int]:
        return 100, 100 - int(self.commit_log * 100)


def store_on(root: Path, use: Use, **settings: Any) -> MessageStore:
    """A store whose disks are as full as ``use`` says; it looks when it is asked to."""
    values = {
        "file_reserved_time": 72,
        "delete_when": (),
        "expire_interval_ms": 1 << 30,
        **settings,
    }
    return MessageStore(
        SystemClock(), SystemDisk(), small_settings(str(root), **values), Logger(node="test"),
        used_ratio=use,
    )  # fmt: skip


@pytest.mark.parametrize(("commit_log", "queues"), [(0.91, 0.2), (0.2, 0.91)])
async def test_store_when_one_of_its_disks_is_too_full_then_it_says_so_until_it_is_no_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], commit_log: float, queues: float
) -> None:
    """The commit log may be on a disk of its own, at which nobody looked."""
    use = Use(0.2, 0.2)
    store = await filled(store_on(tmp_path, use))
    assert await store.expiring.expire() == 0
    assert not store.expiring.is_disk_full
    use.commit_log, use.queues = commit_log, queues
    # Young as they are: files go before their time above diskSpaceCleanForciblyRatio.
    assert await store.expiring.expire() == GONE
    assert await store.expiring.expire() == 0
    assert store.expiring.is_disk_full
    assert store.expiring.ratios == (commit_log, queues)
    use.commit_log = use.queues = 0.9
    await store.expiring.expire()
    assert not store.expiring.is_disk_full
    printed = capsys.readouterr().out
    assert (printed.count("disk_full"), printed.count("disk_has_space")) == (1, 1)
    await store.close()


async def test_store_when_it_opens_on_a_full_disk_then_what_may_go_goes_before_it_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its mark found no room: a broker that had filled its disk could not be started again."""
    use = Use(0.2, 0.2)
    store = await filled(store_on(tmp_path, use))
    await store.close()
    store = store_on(tmp_path, use)
    told: list[int] = []
    store.expiring._on_prefix_cut = told.append
    use.commit_log = 1.0
    write = store._disk.write_atomic

    async def full(path: str, data: bytes) -> None:
        if len(os.listdir(tmp_path / "commitlog")) > 1:
            raise DiskFull("no space left")
        await write(path, data)

    monkeypatch.setattr(store._disk, "write_atomic", full)
    await store.open()
    assert store.min_offset == GONE * store.file_size
    # Whoever serves the log is built on what it finds then.
    assert told == []
    low = store.reader.min_offset(TOPIC, 0)
    assert bodies(store) == [b"%032d" % n for n in range(low, COUNT)]
    await store.close()


@pytest.mark.parametrize("clean", [False, True])
async def test_mark_when_there_is_no_room_for_it_then_the_one_of_before_or_an_empty_one_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, clean: bool
) -> None:
    """A broker that had stopped in order could not be started again on a disk without a free byte."""
    use = Use(0.2, 0.2)
    store = await filled(store_on(tmp_path, use))
    await store.close()
    if not clean:
        (tmp_path / "abort").write_text("1")
    store = store_on(tmp_path, use)

    write = store._disk.write_atomic

    async def full(path: str, data: bytes) -> None:
        if data:
            raise DiskFull("no space left")
        await write(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(store._disk, "write_atomic", full)
        await store.open()
        assert len(bodies(store)) == COUNT
        assert (tmp_path / "abort").read_text() == ("" if clean else "1")
    await store.close()
    assert not (tmp_path / "abort").exists()


async def test_mark_when_not_even_an_empty_one_can_be_written_then_the_store_stays_shut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a mark a crash would be taken for a stop in order."""
    store = store_on(tmp_path, Use(0.2, 0.2))

    async def full(path: str, data: bytes) -> None:
        raise DiskFull("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(store._disk, "write_atomic", full)
        with pytest.raises(DiskFull):
            await store.open()
    await store.close()


async def test_index_when_there_is_no_room_for_its_next_file_then_it_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended the store, although the log has the keys still."""
    monkeypatch.setattr(index_files, "SPACE_PAUSE_MS", 5)
    store = store_on(tmp_path, Use(0.2, 0.2), **INDEXED)
    await store.open()
    asked, map_file = asyncio.Event(), store._disk.map_file

    def full(path: str, size: int, **options: bool) -> Any:
        if "/index/" in path:
            asked.set()
            raise DiskFull("no space left")
        return map_file(path, size, **options)

    with monkeypatch.context() as patch:
        patch.setattr(store._disk, "map_file", full)
        for number in range(100):
            store.append(message(number, properties=b"KEYS\x01k%d\x02" % number))
        async with asyncio.timeout(5):
            await asked.wait()
    async with asyncio.timeout(5):
        while store.indexes.position < store.max_offset:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.001)
    assert store.failed is None
    assert len(store.indexes.find(TOPIC, "k99", limit=9, **EVER)) == 1
    await store.close()


def test_file_when_there_is_no_room_to_make_it_then_the_disk_counts_as_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that has failed ends the store; a full one is waited for."""

    def full(fd: int, offset: int, length: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(DiskFull, match="No space left"):
        SystemDisk().map_file(str(tmp_path / "file"), 4096, create=True)
    assert os.listdir(tmp_path) == []
