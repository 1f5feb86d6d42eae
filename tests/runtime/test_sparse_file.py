"""Sparse mapped files: blocks before bytes, few mappings, and nothing lost by either."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

from rmqha.base.errors import DiskFailed, DiskFull
from rmqha.runtime.aio.descriptors import count_in_use
from rmqha.runtime.aio.disk import SystemDisk
from rmqha.runtime.aio.sparse_file import (
    LOOKED_AT,
    STEP_BYTES_MAX,
    MappedPool,
    SparseMappedFile,
    open_sparse,
)

SIZE = 6_000_000
PAGE = 4096


def _blocks(path: Path) -> int:
    return path.stat().st_blocks * 512


def _new(folder: Path, name: str = "file", pool: MappedPool | None = None) -> SparseMappedFile:
    return open_sparse(pool or MappedPool(), str(folder / name), SIZE, create=True)


def test_file_when_bytes_come_then_blocks_are_there_before_them_and_not_many_more(
    tmp_path: Path,
) -> None:
    """A page without a block is a SIGBUS on a full disk, and thousands of queues fill a disk."""
    file, path = _new(tmp_path), tmp_path / "file"
    assert (path.stat().st_size, _blocks(path)) == (SIZE, 0)
    for end in (1, PAGE, PAGE + 1, 100_000, 3_000_000, SIZE):
        file.reserve(end)
        data = os.open(path, os.O_RDONLY)
        reserved = _blocks(path)
        os.close(data)
        assert end <= reserved <= min(2 * end, end + STEP_BYTES_MAX) + 2 * PAGE
    file.close()


def test_file_with_holes_that_another_program_left_gets_all_blocks_below_the_end(
    tmp_path: Path,
) -> None:
    """Java's queue files are sparse: that their end has blocks says nothing of their middle."""
    path = tmp_path / "file"
    path.touch()
    os.truncate(path, SIZE)
    with path.open("r+b") as other:
        other.seek(PAGE * 100)
        other.write(b"end")
    file = open_sparse(MappedPool(), str(path), SIZE, create=False)
    file.reserve(PAGE * 50)
    assert _blocks(path) >= PAGE * 51
    assert bytes(file.buffer[PAGE * 100 : PAGE * 100 + 3]) == b"end"
    file.close()


def test_reserve_when_the_disk_is_nearly_full_then_what_is_needed_is_taken_or_an_error_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is reserved ahead must not be what a message fails for."""
    file, left = _new(tmp_path), PAGE
    honest = os.posix_fallocate

    def full(fd: int, offset: int, length: int) -> None:
        nonlocal left
        if length > left:
            raise OSError(errno.ENOSPC, "No space left on device")
        left -= length
        honest(fd, offset, length)

    monkeypatch.setattr(os, "posix_fallocate", full)
    file.reserve(20)
    left = 40
    file.reserve(PAGE + 20)
    with pytest.raises(DiskFull, match="No space left"):
        file.reserve(PAGE + 60)
    left = SIZE
    file.reserve(PAGE + 60)
    file.close()


@pytest.mark.slow
def test_files_more_than_may_be_mapped_keep_what_was_written_and_few_descriptors(
    tmp_path: Path,
) -> None:
    """A store with 80,000 queues has neither so many descriptors nor so many mappings."""
    pool, before = MappedPool(mapped_max=8), count_in_use()
    files = [_new(tmp_path, f"{number}", pool) for number in range(100)]

    async def work() -> None:
        for turn in range(3):
            for number, file in enumerate(files):
                file.reserve(PAGE)
                file.buffer[turn] = number
                assert pool.count <= 8
                assert count_in_use() - before <= 8 + 6
            await asyncio.gather(*(file.sync() for file in files))
        for number, file in enumerate(files):
            assert bytes(file.buffer[:4]) == bytes([number] * 3 + [0])
            assert (tmp_path / f"{number}").read_bytes()[:4] == bytes([number] * 3 + [0])

    asyncio.run(work())
    for file in files:
        file.close()
    assert pool.count == 0


def test_file_that_is_in_use_or_not_yet_synced_stays_mapped_before_one_that_rests(
    tmp_path: Path,
) -> None:
    """Whoever is read all the time would be mapped at each read."""
    pool = MappedPool(mapped_max=3)
    busy, unsynced, resting, new = (_new(tmp_path, f"{number}", pool) for number in range(4))
    for file in (busy, unsynced, resting):
        assert file.buffer[0] == 0
        file.is_busy()
    unsynced.reserve(1)
    assert busy.buffer[0] == 0
    assert new.buffer[0] == 0
    assert [file.is_mapped for file in (busy, unsynced, resting, new)] == [True, True, False, True]
    for file in (busy, unsynced, resting, new):
        file.close()


def test_slice_of_a_file_that_was_unmapped_stays_good(tmp_path: Path) -> None:
    """A pull that is being sent would end the process."""
    pool = MappedPool(mapped_max=1)
    one, other = _new(tmp_path, "one", pool), _new(tmp_path, "other", pool)
    one.reserve(10)
    one.buffer[:4] = b"kept"
    held = one.buffer[:4]
    assert other.buffer[0] == 0
    assert not one.is_mapped
    assert bytes(held) == b"kept"
    held.release()
    assert bytes(one.buffer[:4]) == b"kept"
    one.close()
    other.close()


def test_file_that_has_gone_is_synced_without_a_word_and_its_successor_left_alone(
    tmp_path: Path,
) -> None:
    """A topic that is deleted and made again in the middle of a sync is no broken disk."""
    file = _new(tmp_path)
    path = tmp_path / "file"
    (tmp_path / "new").write_bytes(b"another file")
    os.replace(tmp_path / "new", path)
    asyncio.run(file.sync())
    assert asyncio.run(file.erase(0, 7)) == 0
    assert path.read_bytes() == b"another file"
    with pytest.raises(DiskFailed, match="another file"):
        file.reserve(SIZE)
    path.unlink()
    asyncio.run(file.sync())
    file.close()
    with pytest.raises(ValueError, match="closed"):
        file.buffer[0]


def test_pool_when_all_are_busy_then_lets_the_oldest_go_after_a_bounded_look(
    tmp_path: Path,
) -> None:
    """A look at thousands of files for each that is mapped would hold up the loop."""
    count = 2 * LOOKED_AT
    pool = MappedPool(mapped_max=count)
    files = [_new(tmp_path, f"{number}", pool) for number in range(count + 1)]
    for file in files:
        file.reserve(1)
        assert file.buffer[0] == 0
    assert [number for number, file in enumerate(files) if not file.is_mapped] == [0]
    for file in files:
        file.close()


def test_first_sync_of_a_file_makes_the_directories_durable_that_were_made_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power cut the queue would be gone, and the checkpoint says that it is there."""
    synced: list[str] = []
    honest = os.fsync

    def fsync(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        honest(fd)

    async def work() -> None:
        disk = SystemDisk()
        (tmp_path / "queues").mkdir()
        monkeypatch.setattr(os, "fsync", fsync)
        for number in range(2):
            folder = tmp_path / "queues" / "topic" / f"{number}"
            await disk.make_dirs(str(folder), later=True)
            assert synced == []
            file = disk.map_file(str(folder / "0"), SIZE, create=True, sparse=True)
            file.reserve(1)
            await file.sync()
            # Who made the folder of all queues may not have synced it.
            above = [folder, folder.parent, folder.parent.parent, tmp_path]
            assert synced == [str(one) for one in above[: 4 - 2 * number]]
            synced.clear()
            await file.sync()
            assert synced == []
            file.close()

    asyncio.run(work())


def test_file_when_it_has_become_shorter_then_that_is_a_failed_disk(tmp_path: Path) -> None:
    """It ended whoever looked as an error that nobody knows."""
    path = tmp_path / "0"
    file = SystemDisk().map_file(str(path), SIZE, create=True, sparse=True)
    os.truncate(path, 0)
    with pytest.raises(DiskFailed, match="cannot map"):
        file.buffer[0]
    file.close()
