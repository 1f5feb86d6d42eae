"""What the store vouches for, and shows consumers, is never more than it has."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqha.store.aio.message_store import MessageStore
from tests.store.harness import message, real_store

NEVER_MS = 10**8


async def quiet(root: Path) -> MessageStore:
    """A replica's store with ten messages that does nothing by itself."""
    store = real_store(
        root, enable_controller_mode=True, flush_interval_commit_log=NEVER_MS,
        flush_checkpoint_interval_ms=NEVER_MS, flush_interval_consume_queue=NEVER_MS,
    )  # fmt: skip
    await store.open()
    for number in range(10):
        store.append(message(number))
    store.set_confirm_offset(store.max_offset)
    await store.wait_dispatched(store.max_offset)
    return store


async def test_checkpoint_when_confirmed_bytes_are_not_durable_then_it_says_less(
    tmp_path: Path,
) -> None:
    """After a power cut recovery would take what is no longer there for confirmed."""
    store = await quiet(tmp_path)
    half = store.max_offset // 2
    await store.flush(half)
    flushed = store.flushed_offset
    for number in range(10):
        store.append(message(number))
    store.set_confirm_offset(store.max_offset)
    await store._write_checkpoint()
    assert store._checkpoint.content.confirm_offset == flushed < store.confirm_offset
    await store.close()


async def test_log_when_it_was_cut_and_grows_again_then_what_is_new_is_not_confirmed(
    tmp_path: Path,
) -> None:
    """Consumers would see what no other replica may have."""
    store = await quiet(tmp_path)
    end = store.max_offset
    size = end // 10
    await store.truncate(5 * size)
    for number in range(5):
        store.append(message(number))
    assert store.max_offset == end
    assert store.confirm_offset == store.limit() == 5 * size
    await store.close()


async def test_checkpoint_when_the_log_is_cut_while_queues_are_synced_then_it_names_the_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Units behind the cut are of other records by then."""
    store = await quiet(tmp_path)
    cut, real = store.max_offset // 2, store.queues.sync

    async def sync() -> None:
        await real()
        await store.truncate(cut)

    monkeypatch.setattr(store.queues, "sync", sync)
    await store.flush_queues()
    assert store._checkpoint.indexed_end <= cut
    monkeypatch.undo()
    await store.flush_queues()
    assert store._checkpoint.indexed_end == cut
    await store.close()


async def test_checkpoint_when_queues_are_synced_in_the_middle_of_a_cut_then_it_names_the_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dispatcher stood behind the cut until the end of it, and that was written down as synced."""
    store = await quiet(tmp_path)
    cut, real = store.max_offset // 2, store.queues.cut

    async def cut_queues(offset: int) -> None:
        await store.flush_queues()
        await real(offset)

    monkeypatch.setattr(store.queues, "cut", cut_queues)
    await store.truncate(cut)
    assert store._checkpoint.indexed_end <= cut
    await store.close()
