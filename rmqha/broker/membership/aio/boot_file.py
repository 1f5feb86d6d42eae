"""Whether the machine has lost its memory since a store was last open."""

from __future__ import annotations

from rmqha.broker.membership.power_loss import is_tail_doubtful
from rmqha.runtime.ports import Disk

BOOT_FILE = "rmqhaBoot"


async def lost_power(disk: Disk, path: str, boot_id: str, *, clean: bool) -> bool:
    """Whether what was written before may be gone although nothing says so; see ``power_loss``.

    This boot's id is written down for the next start.

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
    return is_tail_doubtful(before, boot_id, closed_in_order=clean)
