"""Stops and starts as they were before queues were listed, for what few seeds find.

A stop writes a list of its queues, a start reads it, and each call of the disk takes a time that a seed
draws: with the list, other seeds come by a situation. Those that are as rare as one in a thousand are
played without it.
"""

from __future__ import annotations

from typing import Any

import pytest

from rmqha.store.aio.queue_lists import QueueLists


def without_lists(patch: pytest.MonkeyPatch) -> None:
    """No stop lists its queues, and no start looks for a list."""

    async def nothing(*_: Any) -> None:
        pass

    for name in ("write", "find_missing", "remove"):
        patch.setattr(QueueLists, name, nothing)
