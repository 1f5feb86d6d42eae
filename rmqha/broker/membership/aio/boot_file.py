"""Whether the machine has lost its memory since a store was last open, and whether that still matters."""

from __future__ import annotations

from rmqha.base.ids import NEVER_ELECTED, MasterEpoch
from rmqha.broker.membership.power_loss import is_tail_doubtful
from rmqha.runtime.ports import Disk

BOOT_FILE = "rmqhaBoot"
DOUBT = "\n?"
"""Behind the boot id. A release that does not know it takes the boot for another one, and doubts, too."""


class BootFile:
    """The boot in which a store was last open, and a doubt that no start may forget.

    A process that begins after a loss of power may end again before it has given up its epoch: the
    controllers may be away. The next one runs in the same boot, and perhaps after an end in order; what
    the first one knew must not be lost with it.

    Args:
        path: of the file.
        boot_id: this boot's; empty where nobody can tell.

    Attributes:
        is_doubtful: what was written before may be gone although nothing says so (``power_loss``).
        lost_epoch: the epoch that this replica must not reign in again.
    """

    def __init__(self, disk: Disk, path: str, boot_id: str) -> None:
        self._disk = disk
        self._path = path
        self._boot_id = boot_id
        self.is_doubtful = False
        self.lost_epoch: MasterEpoch = NEVER_ELECTED
        self._is_settled = False

    async def open(self, *, clean: bool) -> None:
        """Look, and write down what the next start has to know.

        Args:
            clean: the store was closed in order.

        Raises:
            DiskFailed: the disk cannot be used.
        """
        try:
            text = (await self._disk.read(self._path)).decode("ascii", "replace")
        except FileNotFoundError:
            text = ""
        before = text.removesuffix(DOUBT)
        self.is_doubtful = before != text or is_tail_doubtful(
            before, self._boot_id, closed_in_order=clean
        )
        wanted = self._boot_id + (DOUBT if self.is_doubtful else "")
        if text != wanted or not text:
            await self._disk.write_atomic(self._path, wanted.encode())

    def role_taken(self, epoch: MasterEpoch) -> None:
        """A role in a newer epoch ends the doubt: nobody can have this replica reign in the lost one."""
        self._is_settled = self._is_settled or epoch > self.lost_epoch

    async def close(self) -> None:
        """The store was closed in order: forget a doubt that is over; raises DiskFailed.

        A process that is killed leaves it, and the next one is elected anew, as after every kill.
        """
        if self.is_doubtful and self._is_settled:
            self.is_doubtful = False
            await self._disk.write_atomic(self._path, self._boot_id.encode())
