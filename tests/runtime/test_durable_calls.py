"""What the disk port makes durable, in which order: the system's own calls, noted.

The simulated disk takes the port at its word, and to lose power for real a test must be root on a
machine with device mapper. That a call is left out can be seen anywhere.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from rmqha.runtime.aio.disk import SystemDisk

NEW = b"new"


class Calls:
    """Notes syncs, renames and deletions with the names that they are of."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.noted: list[str] = []
        self._root = f"{root}/"
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, self._of_descriptor(name, getattr(os, name)))
        for name in ("replace", "unlink", "ftruncate"):
            monkeypatch.setattr(os, name, self._of_path(name, getattr(os, name)))

    def _name(self, of: Any) -> str:
        path = os.readlink(f"/proc/self/fd/{of}") if isinstance(of, int) else str(of)
        return "." if f"{path}/" == self._root else path.removeprefix(self._root)

    def _of_descriptor(self, name: str, real: Callable[[int], None]) -> Callable[[int], None]:
        def noted(fd: int) -> None:
            real(fd)
            self.noted.append(f"sync {self._name(fd)}")

        return noted

    def _of_path(self, name: str, real: Callable[..., None]) -> Callable[..., None]:
        def noted(of: Any, *rest: Any) -> None:
            self.noted.append(f"{name} {self._name(of)}")
            real(of, *rest)

        return noted


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Calls:
    """What is called from here on; ``old`` is there already."""
    (tmp_path / "old").write_bytes(b"old")
    return Calls(tmp_path, monkeypatch)


async def make_and_sync(disk: SystemDisk, path: str, *, sparse: bool) -> None:
    """A new mapped file that is synced twice."""
    file = disk.map_file(path, 8_192, create=True, sparse=sparse)
    file.write(0, memoryview(NEW))
    await file.sync()
    await file.sync()
    file.close()


async def append_twice(disk: SystemDisk, path: str) -> None:
    file = await disk.open_append(path)
    await file.append_sync(NEW)
    await file.append_sync(NEW)
    await file.close()


async def deep_file(disk: SystemDisk, path: str) -> None:
    """A queue's folders are made without a sync of their own."""
    await disk.make_dirs(f"{path}/topic/0", later=True)
    await make_and_sync(disk, f"{path}/topic/0/file", sparse=True)


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (lambda disk, at: disk.write_atomic(f"{at}/old", NEW),
         ["sync old.tmp", "replace old.tmp", "sync ."]),
        (lambda disk, at: disk.rename(f"{at}/old", f"{at}/moved"), ["replace old", "sync ."]),
        (lambda disk, at: disk.remove(f"{at}/old"), ["unlink old", "sync ."]),
        (lambda disk, at: disk.remove(f"{at}/none"), ["unlink none"]),
        (lambda disk, at: disk.write_again(f"{at}/old", b"o"), ["ftruncate old", "sync old"]),
        (lambda disk, at: disk.make_dirs(f"{at}/one/two"), ["sync .", "sync one"]),
        (lambda disk, at: append_twice(disk, f"{at}/log"), ["sync .", "sync log", "sync log"]),
        (lambda disk, at: make_and_sync(disk, f"{at}/map", sparse=False),
         ["sync map", "sync .", "sync map"]),
        (lambda disk, at: make_and_sync(disk, f"{at}/map", sparse=True),
         ["sync map", "sync .", "sync map"]),
        (lambda disk, at: deep_file(disk, f"{at}/queues"),
         ["sync queues/topic/0/file", "sync queues/topic/0", "sync queues/topic", "sync queues",
          "sync .", "sync queues/topic/0/file"]),
    ],
    ids=["write_atomic", "rename", "remove", "remove_missing", "write_again", "make_dirs", "append",
         "mapped", "sparse", "deep"],
)  # fmt: skip
async def test_change_when_it_is_called_durable_then_data_are_synced_before_their_name_is(
    calls: Calls,
    tmp_path: Path,
    act: Callable[[SystemDisk, str], Awaitable[None]],
    expected: list[str],
) -> None:
    """A name that a power cut leaves stands for a whole file, and one that is gone stays so."""
    await act(SystemDisk(), str(tmp_path))
    # How a new file gets its length is no matter of durability.
    made = [one for one in calls.noted if one != "ftruncate old" and one.startswith("ftruncate")]
    # Nor is what lies above: a sparse file knows how deep in its store a queue's is.
    above = [one for one in calls.noted if one.startswith("sync /")]
    assert [one for one in calls.noted if one not in (*made, *above)] == expected


async def test_files_when_they_were_made_by_another_process_then_their_folders_are_synced_too(
    calls: Calls, tmp_path: Path
) -> None:
    """It may have been killed before: a power cut would take what a queue's mark already vouches for."""
    folder = tmp_path / "queues" / "topic" / "0"
    folder.mkdir(parents=True)
    (folder / "file").write_bytes(bytes(8_192))
    (tmp_path / "log").write_bytes(bytes(8_192))
    disk = SystemDisk()
    await make_and_sync(disk, str(folder / "file"), sparse=True)
    await make_and_sync(disk, str(folder / "next"), sparse=True)
    await make_and_sync(disk, str(tmp_path / "log"), sparse=False)
    queues = ["sync queues/topic/0", "sync queues/topic", "sync queues", "sync ."]
    assert [one for one in calls.noted if not one.startswith("ftruncate")] == [
        "sync queues/topic/0/file", *queues, "sync queues/topic/0/file",
        "sync queues/topic/0/next", "sync queues/topic/0", "sync queues/topic/0/next",
        "sync log", "sync .", "sync log",
    ]  # fmt: skip


async def test_file_when_written_again_then_each_byte_is_before_the_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of pages of which a sync has failed Linux says ever after that all is well. Only who writes to them
    has them written."""
    path, real, written = tmp_path / "old", os.pwrite, list[tuple[int, bytes]]()
    path.write_bytes(b"0123456789")
    synced = os.fsync

    def some(fd: int, data: memoryview, at: int) -> int:
        written.append((at, bytes(data[:4])))
        return real(fd, data[:4], at)  # as much as it likes

    def sync(fd: int) -> None:
        assert written == [(0, b"0123"), (4, b"456")]
        synced(fd)
        written.append((-1, b"synced"))

    monkeypatch.setattr(os, "pwrite", some)
    monkeypatch.setattr(os, "fsync", sync)
    await SystemDisk().write_again(str(path), b"0123456")
    assert written[-1] == (-1, b"synced")
    assert path.read_bytes() == b"0123456"
