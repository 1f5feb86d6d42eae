"""How many files of a log are over; ``store/expiry.py`` has the rule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from rmqha.store import expiry, recovery
from rmqha.store.recovery import Segment
from rmqha.store.settings import StoreSettings


def expired_count(
    segments: Sequence[Segment], settings: StoreSettings, wall_ms: int, used_ratio: float,
    safe: int, *, is_asked: bool = False,
) -> int:  # fmt: skip
    """Of a log's oldest files those whose time is over.

    Args:
        segments: the files, oldest first.
        wall_ms: now.
        used_ratio: share of the disk in use, 0 to 1.
        safe: files that end behind this offset stay.
        is_asked: somebody has asked for it, whatever the hour.
    """
    count = expiry.files_to_expire(
        _last_written(segments),
        now_ms=wall_ms,
        reserved_hours=settings.file_reserved_time,
        is_hour=is_asked or is_delete_hour(settings, wall_ms),
        used_ratio=used_ratio,
        max_ratio=settings.disk_max_used_space_ratio / 100,
        forced_ratio=settings.disk_space_clean_forcibly_ratio / 100,
        forcibly=settings.clean_file_forcibly_enable,
        batch_max=settings.delete_file_batch_max,
    )
    return sum(1 for segment in segments[:count] if segment.end <= safe)


def _last_written(segments: Sequence[Segment]) -> Iterator[int]:
    """Of each file but the last, when its newest record was stored at the latest; 0 when unknown.

    That record is not younger than the next file's first one, or, where that one is damaged, than
    the first one of a later file: one rotten page must not keep everything on a full disk. Files
    are looked into one at a time, for most of a log is not in memory.
    """
    for number in range(1, len(segments)):
        later = (recovery.first_timestamp(one) for one in segments[number:])
        yield next(filter(None, later), 0)


def is_delete_hour(settings: StoreSettings, wall_ms: int) -> bool:
    """Whether the local hour is one of deleteWhen."""
    return datetime.fromtimestamp(wall_ms / 1000, tz=UTC).astimezone().hour in settings.delete_when
