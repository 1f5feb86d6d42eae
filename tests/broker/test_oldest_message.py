"""When the log's first message was stored: told at once if it is in memory, and read in a thread if not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rmqha.broker.admin.aio.oldest_message import NEVER_READ, OldestMessage
from rmqha.runtime.aio.tasks import Tasks
from rmqha.runtime.logs import Logger
from rmqha.store.aio import cold_reads
from rmqha.store.aio.cold_reads import NotInMemory
from rmqha.store.aio.message_store import MessageStore
from tests.store.harness import message, real_store


class Cold:
    """A store of three messages whose log is in memory once it was fetched."""

    def __init__(self, store: MessageStore) -> None:
        self.store = store
        self.fetched = 0
        self.may_read = asyncio.Event()
        self.is_there = False
        log = store.commit_log
        log.is_cached = lambda begin, end: self.is_there  # type: ignore[method-assign]
        log.fetch = self._fetch  # type: ignore[method-assign]

    async def _fetch(self, begin: int, end: int) -> None:
        self.fetched += 1
        await self.may_read.wait()
        self.is_there = True


async def _opened(tmp_path: Path, messages: int) -> MessageStore:
    store = real_store(tmp_path)
    await store.open()
    for number in range(messages):
        store.append(message(number))
    await store.wait_dispatched(store.max_offset)
    return store


@pytest.fixture(autouse=True)
def nothing_near(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything may have left the memory."""
    monkeypatch.setattr(cold_reads, "COLD_BYTES", -1)


async def test_oldest_when_it_left_the_memory_then_nobody_waits_for_it(tmp_path: Path) -> None:
    """A metrics scrape every few seconds would hold all clients up for a read of the disk."""
    store = await _opened(tmp_path, 3)
    cold = Cold(store)
    tasks = Tasks(Logger())
    oldest = OldestMessage(store, tasks)
    with pytest.raises(NotInMemory):
        store.cold.now(oldest.stored_ms)
    assert oldest.last_known_ms() == oldest.last_known_ms() == NEVER_READ
    await asyncio.sleep(0)
    cold.may_read.set()
    await asyncio.gather(*tasks._running.values())
    assert cold.fetched == 1
    first = store.reader.look(0)
    assert first is not None
    assert oldest.last_known_ms() == first.store_timestamp > 0
    await store.close()


async def test_oldest_when_asked_again_then_the_log_is_not_looked_at(tmp_path: Path) -> None:
    """Its page leaves the memory again; the time does not change until retention moves on."""
    store = await _opened(tmp_path, 3)
    oldest = OldestMessage(store, Tasks(Logger()))
    known = oldest.stored_ms()
    cold = Cold(store)
    assert store.cold.now(oldest.stored_ms) == known > 0
    assert cold.fetched == 0
    await store.close()


async def test_oldest_when_the_log_is_empty_then_it_is_unknown_and_asked_for_again(
    tmp_path: Path,
) -> None:
    """The first message may come at any moment."""
    store = await _opened(tmp_path, 0)
    oldest = OldestMessage(store, Tasks(Logger()))
    assert oldest.last_known_ms() == NEVER_READ
    store.append(message(1))
    await store.wait_dispatched(store.max_offset)
    assert oldest.last_known_ms() > 0
    await store.close()
