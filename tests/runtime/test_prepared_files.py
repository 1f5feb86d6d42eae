"""Blocks that are reserved before a file has a name."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

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
