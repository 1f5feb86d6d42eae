"""A disk without space: the append file is as it was before, and goes on when there is space."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

from rmqha.base.errors import DiskFailed, DiskFull
from rmqha.runtime.aio import append_file
from rmqha.runtime.aio.disk import SystemDisk


class Quota:
    """Lets so many bytes be written, then answers as a full disk does: in the middle of a write."""

    def __init__(self, patch: pytest.MonkeyPatch, left: int) -> None:
        self.left = left
        self._pwrite = os.pwrite
        patch.setattr(append_file.os, "pwrite", self.pwrite)

    def pwrite(self, fd: int, data: memoryview, offset: int) -> int:
        size = min(self.left, len(data))
        if size == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.left -= size
        return self._pwrite(fd, bytes(data[:size]), offset)


def test_append_when_there_is_no_space_then_the_file_is_as_before_and_takes_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a frame left behind would look like damage to something acknowledged."""
    path = tmp_path / "file"

    async def story() -> None:
        file = await SystemDisk().open_append(str(path))
        await file.append_sync(b"a" * 100)
        quota = Quota(monkeypatch, 30)
        with pytest.raises(DiskFull, match="No space left"):
            await file.append_sync(b"b" * 100)
        assert path.read_bytes() == b"a" * 100
        assert file.size == 100
        with pytest.raises(DiskFull):
            await file.append_sync(b"c" * 10)
        quota.left = 1000
        await file.append_sync(b"d" * 50)
        await file.close()

    asyncio.run(story())
    assert path.read_bytes() == b"a" * 100 + b"d" * 50


def test_append_when_the_disk_breaks_then_nothing_is_written_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After another error nobody knows what the disk holds."""

    def broken(fd: int, data: object, offset: int) -> int:
        raise OSError(errno.EIO, "Input/output error")

    async def story() -> None:
        file = await SystemDisk().open_append(str(tmp_path / "file"))
        with monkeypatch.context() as patch:
            patch.setattr(append_file.os, "pwrite", broken)
            with pytest.raises(DiskFailed, match="Input/output error") as caught:
                await file.append_sync(b"a")
        assert not isinstance(caught.value, DiskFull)
        with pytest.raises(DiskFailed):
            await file.append_sync(b"b")
        await file.close()

    asyncio.run(story())
