"""Who goes from record to record by himself has those read in a thread that have left the memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from rmqha.store.aio import cold_reads, record_walk
from rmqha.store.aio.cold_reads import NotInMemory, Run
from rmqha.store.aio.message_store import MessageStore
from rmqha.store.aio.record_walk import RecordWalk, places
from tests.store.harness import message, real_store


@asynccontextmanager
async def filled(folder: Path, count: int, body: bytes) -> AsyncIterator[MessageStore]:
    """A store of some messages of one queue, none of them in memory."""
    store = real_store(folder)
    await store.open()
    for _ in range(count):
        store.append(message(body=body))
    await store.wait_dispatched(store.max_offset)
    store.commit_log.is_cached = lambda begin, end: False  # type: ignore[method-assign]
    yield store
    await store.close()


def played(play: Callable[[], Awaitable[None]]) -> None:
    """Run it."""

    async def run() -> None:
        await play()

    asyncio.run(run())


@pytest.fixture(autouse=True)
def nothing_near(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything may have left the memory."""
    monkeypatch.setattr(cold_reads, "COLD_BYTES", -1)


def test_walk_when_a_record_is_missing_then_those_behind_it_are_read_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One at a time, each would wait for a read of its own: ten seconds for a thousand."""
    monkeypatch.setattr(record_walk, "AHEAD_MAX", 3)

    async def play() -> None:
        async with filled(tmp_path, 6, b"x" * 5_000) as store:
            fetched: list[Sequence[Run]] = []

            async def fetch(runs: Sequence[Run]) -> bool:
                fetched.append(runs)
                return True

            store.cold.fetch = fetch  # type: ignore[method-assign]
            walk, found = RecordWalk(store), list(places(store.reader, "FooBar", 0, 0))
            assert len(found) == 6
            assert not await walk.fetch()
            with pytest.raises(NotInMemory):
                walk.look(found[1])
            walk.ahead(found[1:])
            assert await walk.fetch()
            assert [run[0] for run in fetched[0]] == found[1:4]
            assert not await walk.fetch()

    played(play)


def test_walk_when_much_is_missing_then_so_many_bytes_are_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixty-four of 4 MiB would push out of the memory what was read first."""
    monkeypatch.setattr(record_walk, "AHEAD_BYTES", 20_000)

    async def play() -> None:
        async with filled(tmp_path, 6, b"x" * 5_000) as store:
            walk, found = RecordWalk(store), list(places(store.reader, "FooBar", 0, 0))
            walk.ahead(found)
            assert sorted(walk._missing) == found[:2]

    played(play)


def test_walk_when_the_memory_keeps_nothing_then_it_looks_all_the_same(tmp_path: Path) -> None:
    """Nobody reads the same for ever, not even two records that push each other out."""

    async def play() -> None:
        async with filled(tmp_path, 2, b"x") as store:
            walk, found = RecordWalk(store), list(places(store.reader, "FooBar", 0, 0))
            for _ in range(20):
                try:
                    records = [walk.look(place) for place in found]
                    break
                except NotInMemory:
                    await walk.fetch()
            assert [one and one.physical_offset for one in records] == found
            # That was no leave for the next time.
            with pytest.raises(NotInMemory):
                walk.look(found[0])

    played(play)


def test_walk_when_records_are_read_and_never_looked_at_then_few_are_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker runs for years."""
    monkeypatch.setattr(record_walk, "KNOWN_MAX", 2)

    async def play() -> None:
        async with filled(tmp_path, 8, b"x") as store:
            walk = RecordWalk(store)
            for place in places(store.reader, "FooBar", 0, 0):
                walk.ahead([place])
                await walk.fetch()
                assert len(walk._fetches) <= 3

    played(play)


@pytest.mark.parametrize(("left", "looks"), [(0, 1), (3, 4), (99, record_walk.LOOK_TURNS)])
async def test_walk_when_it_looks_in_turns_then_others_have_theirs_and_it_ends_in_time(
    left: int, looks: int
) -> None:
    """Whoever reads much goes on with it after what follows from the first part."""
    walk, done = RecordWalk(cast(Any, None)), list[str]()

    def look() -> bool:
        done.append("look")
        return done.count("look") <= left

    async def other() -> None:
        while True:
            done.append("other")
            await asyncio.sleep(0)

    beside = asyncio.create_task(other())
    assert await walk.turns(look) is (left >= looks)
    beside.cancel()
    assert done[: 2 * looks - 1] == (["look", "other"] * looks)[:-1]
    assert done.count("look") == looks


async def test_walk_when_a_record_is_missing_then_its_turns_end_for_it_to_be_read() -> None:
    """Each turn would ask for it again, and for all that are behind it."""
    walk, looks = RecordWalk(cast(Any, None)), [0]

    def look() -> bool:
        looks[0] += 1
        walk._missing[7] = ()
        return True

    assert await walk.turns(look)
    assert looks == [1]
