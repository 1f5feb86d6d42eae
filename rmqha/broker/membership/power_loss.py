"""What a replica may do whose machine lost its memory: pure, from what the disk still says.

After a crash of the process the page cache still has everything. After a crash of the machine only
what was flushed is there, and slaves may hold more than this log: with SYNC_FLUSH too, for records
go out to slaves while the disk is still at work. Were such a replica to reign on in its epoch,
others would stand in the place of the records that it lost: two histories of one epoch.
"""

from __future__ import annotations

from rmqha.base.ids import NEVER_ELECTED, MasterEpoch


def is_tail_doubtful(boot_before: str, boot_now: str, *, closed_in_order: bool) -> bool:
    """Whether the end of the log may be gone although nothing says so.

    Args:
        boot_before: the boot in which the store was last open; empty when nobody wrote it down.
        boot_now: this one; empty where nobody can tell.
        closed_in_order: everything was flushed at the end.
    """
    same_boot = bool(boot_before) and boot_before == boot_now
    return not closed_in_order and not same_boot


def epoch_given_up(
    last_epoch: MasterEpoch, before: MasterEpoch, *, tail_may_be_lost: bool
) -> MasterEpoch:
    """The epoch that this replica must not reign in again; 0 for none.

    It does not matter what was promised. Where nobody waits for slaves they may hold the more of
    what this log lost, and an epoch that began at the very byte where this log ends now would look
    the same in both files.

    Args:
        last_epoch: the newest that the log knows, negative for none.
        before: what an earlier start gave up, 0 for none. That process may have ended before it found
            a controller, and this one runs in the same boot; a newer epoch ends it.
        tail_may_be_lost: see :func:`is_tail_doubtful`.
    """
    if tail_may_be_lost:
        return max(last_epoch, before)
    return before if last_epoch <= before else NEVER_ELECTED
