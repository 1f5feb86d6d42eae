"""Up to where units of consume queues are durable, as the checkpoint's second mark says (ADR 0012)."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqha.store import checkpoint as cp
from tests.store.harness import message, real_store


def marked(root: Path) -> int | None:
    """The mark in the file."""
    return cp.read((root / "checkpoint").read_bytes()).indexed_offset


@pytest.mark.parametrize("clean", [True, False])
async def test_mark_when_a_store_has_opened_then_it_is_where_recovery_ended(
    tmp_path: Path, *, clean: bool
) -> None:
    """A start after the next crash would else begin with the first file of the log."""
    store = real_store(tmp_path)
    await store.open()
    for number in range(200):
        store.append(message(number))
    end = store.max_offset
    await store.close()
    assert marked(tmp_path) == end
    if not clean:
        (tmp_path / "abort").touch()
    store = real_store(tmp_path)
    await store.open()
    assert marked(tmp_path) == end
    await store.close()


async def test_mark_when_the_log_is_cut_then_it_goes_back_before_anything_else(
    tmp_path: Path,
) -> None:
    """What is written behind the cut next has no unit yet, whatever the mark said of that place."""
    store = real_store(tmp_path)
    await store.open()
    for number in range(200):
        store.append(message(number))
    await store.flush(store.max_offset)
    await store.wait_dispatched(store.max_offset)
    await store.flush_queues()
    await store.truncate(100 * 158)
    start = store.max_offset
    assert start <= 100 * 158
    assert marked(tmp_path) == start
    await store.close()
