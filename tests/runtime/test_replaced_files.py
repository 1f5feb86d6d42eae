"""Files that are replaced as a whole: whose they are, and who may read them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from rmqha.runtime.aio.disk import SystemDisk


@pytest.fixture
def umask() -> int:
    """The process' own."""
    found = os.umask(0o022)
    os.umask(found)
    return found


@pytest.mark.parametrize(
    ("before", "mask", "after"),
    [
        (0o600, 0o022, 0o600),
        (0o640, 0o022, 0o640),
        (0o644, 0o077, 0o600),
        (0o755, 0o022, 0o644),
        (None, 0o027, 0o640),
    ],
)
async def test_file_when_it_is_replaced_then_nobody_may_read_it_who_could_not(
    tmp_path: Path, umask: int, before: int | None, mask: int, after: int
) -> None:
    """Neither the file's mode nor ``fileUmask`` is ever loosened."""
    path = tmp_path / "ns.conf"
    if before is not None:
        path.write_text("secret")
        path.chmod(before)
    os.umask(mask)
    try:
        await SystemDisk().write_atomic(str(path), b"new")
    finally:
        os.umask(umask)
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == after


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
async def test_file_when_it_is_replaced_then_its_owner_keeps_it(tmp_path: Path) -> None:
    """Its group may be what lets others read it."""
    path = tmp_path / "ns.conf"
    path.write_text("old")
    os.chown(path, 4_321, 4_322)
    await SystemDisk().write_atomic(str(path), b"new")
    found = path.stat()
    assert (found.st_uid, found.st_gid) == (4_321, 4_322)
