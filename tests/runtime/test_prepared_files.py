"""Blocks that are reserved before a file has a name."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from rmqha.runtime.aio import prepared_files
from rmqha.runtime.aio.disk import SystemDisk
from rmqha.runtime.aio.prepared_files import PreparedFiles

SIZE = 1 << 20


def open_files() -> set[str]:
    """What this process holds open that has no name."""
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:
            continue
        if "(deleted)" in target:
            found.add(target)
    return found


async def test_a_prepared_file_is_mapped_under_its_name(tmp_path: Path) -> None:
    """Nothing is seen in the directory before; afterwards it is a file like any other."""
    disk = SystemDisk()
    await disk.prepare_file(str(tmp_path), SIZE)
    assert os.listdir(tmp_path) == []
    path = tmp_path / "00000000000000000000"
    mapped = disk.map_file(str(path), SIZE, create=True)
    mapped.write(10, memoryview(b"there"))
    assert bytes(mapped.buffer[9:16]) == b"\0there\0"
    await mapped.sync()
    mapped.close()
    found = path.stat()
    assert (found.st_size, found.st_nlink) == (SIZE, 1)
    assert found.st_blocks * 512 >= SIZE
    assert path.read_bytes()[10:15] == b"there"


async def test_only_its_own_directory_and_size_take_it(tmp_path: Path) -> None:
    """Everything else is made as if nothing had been prepared; dropping gives it back."""
    before = open_files()
    disk = SystemDisk()
    (tmp_path / "other").mkdir()
    await disk.prepare_file(str(tmp_path), SIZE)
    await disk.prepare_file(str(tmp_path), SIZE)
    assert len(open_files() - before) == 1
    disk.map_file(str(tmp_path / "other" / "a"), SIZE, create=True).close()
    disk.map_file(str(tmp_path / "b"), SIZE // 2, create=True).close()
    assert len(open_files() - before) == 1
    disk.drop_prepared(str(tmp_path))
    assert open_files() == before


async def test_a_name_that_is_taken_is_opened_instead(tmp_path: Path) -> None:
    """A prepared file never hides or replaces what is there."""
    disk = SystemDisk()
    path = tmp_path / "file"
    path.write_bytes(b"x" * SIZE)
    await disk.prepare_file(str(tmp_path), SIZE)
    mapped = disk.map_file(str(path), SIZE, create=True)
    assert bytes(mapped.buffer[:3]) == b"xxx"
    mapped.close()
    disk.drop_prepared(str(tmp_path))


def test_whoever_cannot_prepare_does_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No room, a file system without nameless files, a directory that went: no error, no leak."""
    before = open_files()
    files = PreparedFiles()
    files.prepare(str(tmp_path / "missing"), SIZE)

    def full(fd: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        files.prepare(str(tmp_path), SIZE)
    assert files.take(str(tmp_path / "a"), SIZE) is None
    files.prepare(str(tmp_path), SIZE)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    assert files.take(str(tmp_path / "a"), SIZE) is None
    assert open_files() == before
    assert os.listdir(tmp_path) == []


def test_what_is_ready_too_late_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that closes while a thread still reserves leaves nothing open."""
    before = open_files()
    files = PreparedFiles()
    begun, go_on = threading.Event(), threading.Event()
    honest = os.posix_fallocate

    def slow(fd: int, offset: int, size: int) -> None:
        begun.set()
        assert go_on.wait(10)
        honest(fd, offset, size)

    monkeypatch.setattr(os, "posix_fallocate", slow)
    thread = threading.Thread(target=files.prepare, args=(str(tmp_path), SIZE))
    thread.start()
    assert begun.wait(10)
    files.drop(str(tmp_path))
    go_on.set()
    thread.join(10)
    assert open_files() == before


class Slices:
    """Stands in for the reservation of blocks: the second slice waits until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(prepared_files, "SLICE_BYTES", SIZE // 4)
        self.calls: list[tuple[int, int, bool]] = []
        self.second, self.go_on = threading.Event(), threading.Event()
        self._honest = os.posix_fallocate
        monkeypatch.setattr(os, "posix_fallocate", self)

    def __call__(self, fd: int, offset: int, size: int) -> None:
        mine = threading.current_thread() is threading.main_thread()
        self.calls.append((offset, size, mine))
        if not mine and offset:
            self.second.set()
            assert self.go_on.wait(10)
        self._honest(fd, offset, size)


def test_a_file_is_taken_while_it_is_being_prepared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever needs it now reserves what is missing, and nobody reserves it a second time."""
    before = open_files()
    files, slices = PreparedFiles(), Slices(monkeypatch)
    thread = threading.Thread(target=files.prepare, args=(str(tmp_path), SIZE))
    thread.start()
    assert slices.second.wait(10)
    path = tmp_path / "a"
    fd = files.take(str(path), SIZE)
    assert fd is not None
    slices.go_on.set()
    thread.join(10)
    quarter = SIZE // 4
    assert slices.calls == [
        (0, quarter, False), (quarter, quarter, False), (quarter, 3 * quarter, True)
    ]  # fmt: skip
    os.pwrite(fd, b"there", SIZE - 5)
    os.close(fd)
    found = path.stat()
    assert found.st_size == SIZE
    assert found.st_blocks * 512 >= SIZE
    assert files.take(str(tmp_path / "b"), SIZE) is None
    assert open_files() == before


def test_a_disk_that_is_full_half_way_gives_everything_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither what was prepared nor what is taken in part keeps blocks, or a name."""
    before = open_files()
    files, slices = PreparedFiles(), Slices(monkeypatch)

    def full(fd: int, offset: int, size: int) -> None:
        if offset:
            raise OSError(errno.ENOSPC, "no space left")
        slices(fd, offset, size)

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        files.prepare(str(tmp_path), SIZE)
        assert files.take(str(tmp_path / "a"), SIZE) is None
        assert open_files() == before
    thread = threading.Thread(target=files.prepare, args=(str(tmp_path), SIZE))
    thread.start()
    assert slices.second.wait(10)
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        assert files.take(str(tmp_path / "a"), SIZE) is None
    slices.go_on.set()
    thread.join(10)
    assert open_files() == before
    assert os.listdir(tmp_path) == []


def test_reserving_gives_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever had to wait for a core pauses, up to a bound; whoever had one to itself does not."""
    files, slices = PreparedFiles(), Slices(monkeypatch)
    slices.go_on.set()
    slept: list[float] = []
    walls = iter([0.0, 0.04, 1.0, 1.05, 2.0, 12.0, 13.0, 13.5])
    works = iter([0.0, 0.03, 0.1, 0.15, 0.2, 0.3, 0.3, 0.4])
    clock = SimpleNamespace(
        monotonic=lambda: next(walls), thread_time=lambda: next(works), sleep=slept.append
    )
    monkeypatch.setattr(prepared_files, "time", clock)
    files.prepare(str(tmp_path), SIZE)
    assert [one for one in slept if one > 1e-9] == pytest.approx([0.03, prepared_files.PAUSE_S_MAX])
    files.drop(str(tmp_path))


def test_file_when_it_gets_its_blocks_then_it_has_no_name_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut in between left a file of another length, with which no store opened any more."""
    reserve, seen = os.posix_fallocate, []

    def look(fd: int, offset: int, length: int) -> None:
        seen.append(os.listdir(tmp_path))
        reserve(fd, offset, length)

    monkeypatch.setattr(os, "posix_fallocate", look)
    file = SystemDisk().map_file(str(tmp_path / "file"), 8_192, create=True)
    assert seen == [[]]
    assert os.listdir(tmp_path) == ["file"]
    assert file.size == os.stat(tmp_path / "file").st_size
    file.close()
