"""What a properties file that was read again means for a process that runs. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple


class Reload(NamedTuple):
    """What is to be done.

    Attributes:
        changed: keys that may change, with the file's values where they are not those that count.
        fixed: other keys that the file has other values of than at the start: they need one anew.
    """

    changed: dict[str, str]
    fixed: tuple[str, ...]


def compare(
    started: Mapping[str, str], now: Mapping[str, str], running: Mapping[str, str],
    mutable: Collection[str],
) -> Reload:  # fmt: skip
    """Compare a file with what runs.

    A key that the file does not name stays as it is: a request may have changed it.

    Args:
        started: the file's content when the process started.
        now: its content now.
        running: the values that count.
        mutable: keys that may change.
    """
    changed = {
        key: value for key, value in now.items() if key in mutable and running.get(key) != value
    }
    fixed = (
        key
        for key in {**started, **now}
        if key not in mutable
        and started.get(key) != now.get(key)
        and (key not in now or running.get(key) != now[key])
    )
    return Reload(changed, tuple(sorted(fixed)))
