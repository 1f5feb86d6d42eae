"""The growing file: order, reserved zeros, errors, and who waits for the disk."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from rmqha.base.errors import DiskFailed
from rmqha.runtime.aio import append_file
from rmqha.runtime.aio.append_file import SystemAppendFile
from rmqha.runtime.aio.disk import SystemDisk


async def test_calls_end_in_their_order_whoever_syncs(tmp_path: Path) -> None:
    """A thread and the loop itself take turns; nothing overtakes."""
    file = await SystemDisk().open_append(str(tmp_path / "f"), 1 << 16)
    ended: list[int] = []
    all_ended = asyncio.Event()

    def end(number: int, error: DiskFailed | None) -> None:
        assert error is None
        ended.append(number)
        if len(ended) == 200:
            all_ended.set()

    for number in range(200):
        file.append(b"%4d" % number, lambda e, n=number: end(n, e), may_block=number % 3 == 0)
        if number % 7 == 0:
            await asyncio.sleep(0)
    await all_ended.wait()
    assert ended == list(range(200))
    assert file.size == 800
    await file.close()
    assert (tmp_path / "f").read_bytes() == b"".join(b"%4d" % n for n in range(200))


async def test_zeros_stand_ahead_until_the_file_is_closed(tmp_path: Path) -> None:
    """A sync then has no new length to record."""
    path = tmp_path / "f"
    file = await SystemDisk().open_append(str(path), 10_000)
    await file.append_sync(b"abc")
    assert path.read_bytes() == b"abc" + bytes(9997)
    await file.append_sync(b"d" * 20_000)
    assert path.stat().st_size == 20_003
    await file.close()
    assert path.read_bytes() == b"abc" + b"d" * 20_000


async def test_a_disk_without_room_for_zeros_still_takes_what_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reserving is for speed; only a record that cannot be written is a failure."""
    path = tmp_path / "f"
    room = 100

    def write_at(fd: int, data: bytes, offset: int) -> None:
        fits = data[: max(0, room - offset)]
        os.pwrite(fd, fits, offset)
        if len(fits) < len(data):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(append_file, "write_at", write_at)
    file = await SystemDisk().open_append(str(path), 10_000)
    for _ in range(10):
        await file.append_sync(b"0123456789")
    with pytest.raises(DiskFailed, match="No space left"):
        await file.append_sync(b"x")
    await file.close()
    assert path.read_bytes()[:100] == b"0123456789" * 10


async def test_the_first_error_is_the_last_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a failed sync left on the disk is unknown: nothing may be written behind it."""
    path = tmp_path / "f"
    file = await SystemDisk().open_append(str(path))
    await file.append_sync(b"good")
    sync = os.fdatasync

    def broken(fd: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(append_file.os, "fdatasync", broken)
    with pytest.raises(DiskFailed, match="Input/output error"):
        await file.append_sync(b"bad")
    monkeypatch.setattr(append_file.os, "fdatasync", sync)
    with pytest.raises(DiskFailed, match="Input/output error"):
        await file.append_sync(b"more")
    await file.close()
    assert b"more" not in path.read_bytes()


async def test_a_slow_sync_sends_the_next_ones_to_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop waits for a quick disk only."""
    file = await SystemDisk().open_append(str(tmp_path / "f"))
    threads: list[bool] = []
    now_s = 1.0
    takes_s = 0.001

    def sync(fd: int) -> None:
        nonlocal now_s
        threads.append(threading.current_thread() is threading.main_thread())
        now_s += takes_s

    monkeypatch.setattr(append_file.os, "fdatasync", sync)
    monkeypatch.setattr(append_file, "time", SimpleNamespace(monotonic=lambda: now_s))
    await append(file)
    takes_s = 0.1
    await append(file)
    takes_s = 0.001
    await append(file)
    now_s += append_file.THREADED_FOR_S
    await append(file)
    assert threads == [True, True, False, True]
    monkeypatch.undo()
    await file.close()


async def append(file: SystemAppendFile) -> None:
    """One append that may block, to its end."""
    done: asyncio.Future[DiskFailed | None] = asyncio.get_running_loop().create_future()
    file.append(b"x", done.set_result, may_block=True)
    assert await done is None
