"""Which commit-log files may go: whole files from the oldest on, never the one in use.

Source: RocketMQ's protocol as observed.
"""

from __future__ import annotations

from collections.abc import Sequence

HOUR_MS = 3_600_000
FORCED_RATIO = 0.85
"""Above this use of the disk files go at any hour and before their time, as in Java."""


def files_to_expire(
    last_written_ms: Sequence[int],
    *,
    now_ms: int,
    reserved_hours: int,
    is_hour: bool,
    used_ratio: float,
    max_ratio: float,
    batch_max: int = 10,
) -> int:
    """How many of the oldest files to delete now.

    Args:
        last_written_ms: of each file but the last, when its newest record was stored; 0 when
            unknown, which keeps it and all after it.
        is_hour: the local hour is one of deleteWhen.
        used_ratio, max_ratio: share of the disk in use, and diskMaxUsedSpaceRatio as a share.
        batch_max: files at once, so that a disk with many expired ones stays responsive.
    """
    forced = used_ratio > max(FORCED_RATIO, max_ratio)
    if not (is_hour or forced or used_ratio > max_ratio):
        return 0
    count = 0
    for written in last_written_ms:
        if not written or count >= batch_max:
            break
        if not forced and written + reserved_hours * HOUR_MS > now_ms:
            break
        count += 1
    return count
