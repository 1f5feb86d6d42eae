"""Folders that are not there: a failure of the disk for who writes, an answer for who looks."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from rmqha.base.errors import DiskFailed
from rmqha.runtime.aio.disk import SystemDisk

NOWHERE = "/proc/rmqha"
"""Nobody can make it: the system says that there is no such file."""
Call = Callable[[SystemDisk, str], Coroutine[Any, Any, object]]


async def mapped(disk: SystemDisk, path: str, *, create: bool, sparse: bool = False) -> None:
    """Map a file, as a coroutine like the rest."""
    disk.map_file(path, 4096, create=create, sparse=sparse)


WRITES: dict[str, Call] = {
    "make_dirs": lambda disk, _: disk.make_dirs(NOWHERE),
    "make_dirs_later": lambda disk, _: disk.make_dirs(f"{NOWHERE}/below", later=True),
    "open_append": lambda disk, path: disk.open_append(path),
    "write_again": lambda disk, path: disk.write_again(path, b"x"),
    "write_atomic": lambda disk, path: disk.write_atomic(path, b"x"),
    "map_file": lambda disk, path: mapped(disk, path, create=True),
    "map_file_sparse": lambda disk, path: mapped(disk, path, create=True, sparse=True),
}
LOOKS: dict[str, Call] = {
    "read": lambda disk, path: disk.read(path),
    "rename": lambda disk, path: disk.rename(path, f"{path}.old"),
    "file_size": lambda disk, path: disk.file_size(path),
    "map_file": lambda disk, path: mapped(disk, path, create=False),
    "map_file_sparse": lambda disk, path: mapped(disk, path, create=False, sparse=True),
}


@pytest.mark.parametrize("name", WRITES)
async def test_write_when_the_folder_is_missing_then_the_disk_has_failed(
    tmp_path: Path, name: str
) -> None:
    """Whoever writes reckons with that, and with nothing else: tasks died of the other error."""
    with pytest.raises(DiskFailed):
        await WRITES[name](SystemDisk(), str(tmp_path / "missing" / "file"))


@pytest.mark.parametrize("name", LOOKS)
async def test_look_when_there_is_no_such_file_then_it_is_told_from_a_failure(
    tmp_path: Path, name: str
) -> None:
    """First starts find none; what cannot be read is another matter."""
    with pytest.raises(FileNotFoundError):
        await LOOKS[name](SystemDisk(), str(tmp_path / "missing" / "file"))
    assert await SystemDisk().list_dir(str(tmp_path / "missing")) == []
    assert await SystemDisk().survey(str(tmp_path / "missing"), 8) == {}
