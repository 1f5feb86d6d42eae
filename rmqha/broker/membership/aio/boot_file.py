"""Whether the machine has lost its memory since a store was last open."""

from __future__ import annotations

from rmqha.runtime.ports import Disk

BOOT_FILE = "rmqhaBoot"


async def lost_power(disk: Disk, path: str, boot_id: str, *, clean: bool) -> bool:
    """Whether what was written before may be gone although nothing says so.

    After a crash of the process the page cache still has everything. After a crash of the
    machine only what was flushed is there, and slaves may hold more than this log: with
    SYNC_FLUSH too, for records go out to slaves while the disk is still at work.

    Args:
        path: of the file that holds the last boot id.
        boot_id: this boot's; empty where nobody can tell.
        clean: the store was closed in order.

    Raises:
        DiskFailed: the disk cannot be used.
    """
    try:
        before = (await disk.read(path)).decode("ascii", "replace")
    except FileNotFoundError:
        before = ""
    if before != boot_id or not before:
        await disk.write_atomic(path, boot_id.encode())
    same = bool(before) and before == boot_id
    return not clean and not same
