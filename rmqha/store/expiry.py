"""Which commit-log files may go: whole files from the oldest on, never the one in use.

Source: RocketMQ's protocol as observed.
"""

from __future__ import annotations

from collections.abc import Iterable

HOUR_MS = 3_600_000


def files_to_expire(
    last_written_ms: Iterable[int],
    *,
    now_ms: int,
    reserved_hours: int,
    is_hour: bool,
    used_ratio: float,
    max_ratio: float,
    forced_ratio: float,
    forcibly: bool = True,
    batch_max: int = 10,
) -> int:
    """How many of the oldest files to delete now.

    Args:
        last_written_ms: of each file but the last, when its newest record was stored; 0 when
            unknown, which keeps it and all after it. No more of them are asked for than needed.
        is_hour: the local hour is one of deleteWhen.
        used_ratio: share of the disk in use.
        max_ratio: above this use files go at any hour: diskMaxUsedSpaceRatio as a share.
        forced_ratio: above this they go at any hour, too, and ``forcibly`` before their time:
            diskSpaceCleanForciblyRatio and cleanFileForciblyEnable.
        batch_max: files at once, so that a disk with many expired ones stays responsive.
    """
    if not (is_hour or used_ratio > min(max_ratio, forced_ratio)):
        return 0
    forced = forcibly and used_ratio > forced_ratio
    count = 0
    for written in last_written_ms:
        if not written or count >= batch_max:
            break
        if not forced and written + reserved_hours * HOUR_MS > now_ms:
            break
        count += 1
    return count
