"""The boot in which a store was last open, and the epoch that was given up for a loss of power."""

from __future__ import annotations

from rmqha.base.ids import NEVER_ELECTED, MasterEpoch
from rmqha.broker.membership.power_loss import is_tail_doubtful
from rmqha.runtime.ports import Disk

BOOT_FILE = "rmqhaBoot"


class BootFile:
    """A line with the boot id, and one with the epoch if there is any.

    A release that knows only the first compares both with its boot's id, and doubts its log's end.

    Args:
        path: of the file.
        boot_id: this boot's; empty where nobody can tell.

    Attributes:
        tail_may_be_lost: what was written before may be gone although nothing says so.
        given_up: the epoch that an earlier start gave up, 0 for none.
    """

    def __init__(self, disk: Disk, path: str, boot_id: str) -> None:
        self._disk = disk
        self._path = path
        self._boot_id = boot_id
        self._text = ""
        self.tail_may_be_lost = False
        self.given_up: MasterEpoch = NEVER_ELECTED

    async def open(self, *, clean: bool) -> None:
        """Look what the last start left.

        Args:
            clean: the store was closed in order.

        Raises:
            DiskFailed: the disk cannot be used.
        """
        try:
            self._text = (await self._disk.read(self._path)).decode("ascii", "replace")
        except FileNotFoundError:
            self._text = ""
        before, _, epoch = self._text.partition("\n")
        is_whole = not epoch or epoch.isdecimal()
        self.tail_may_be_lost = not is_whole or is_tail_doubtful(
            before, self._boot_id, closed_in_order=clean
        )
        self.given_up = MasterEpoch(int(epoch)) if epoch and is_whole else NEVER_ELECTED

    async def keep(self, given_up: MasterEpoch) -> None:
        """Write down this boot, and the epoch that is given up; before that the next start doubts anew.

        An older epoch stays: the newer one that has ended it has ended it for good.

        Raises:
            DiskFailed: the disk cannot be used.
        """
        kept = max(given_up, self.given_up)
        text = f"{self._boot_id}\n{kept}" if kept else self._boot_id
        if text != self._text or not text:
            await self._disk.write_atomic(self._path, text.encode())
            self._text = text
