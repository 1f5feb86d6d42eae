"""Cuts in files as large as those of the defaults: nobody waits for bytes that were never written."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from pathlib import Path

import pytest

from rmqha.store.aio.message_store import MessageStore
from tests.store.harness import bodies, message, real_store

GIB = 1 << 30
KEPT = 20
ADDED = 30
LOOP_S_MAX = 0.2
"""Of the loop's own processor time, which neither a busy machine nor a slow disk lengthens. Reading a
gigabyte takes a second at least."""


async def _filled(root: Path) -> tuple[MessageStore, int]:
    """A store of two parts, dispatched; and where the second begins."""
    store = real_store(root, mapped_file_size_commit_log=GIB)
    await store.open()
    for number in range(KEPT):
        store.append(message(number, body=b"kept %d" % number))
    cut_at = store.max_offset
    for number in range(ADDED):
        store.append(message(number, body=b"cut %d" % number))
    await store.wait_dispatched(store.max_offset)
    return store, cut_at


def test_cut_in_a_file_of_a_gibibyte_when_little_is_behind_it_then_the_loop_reads_no_more(
    tmp_path: Path,
) -> None:
    """A slave that truncates at an election would miss its heartbeats, and its lease."""

    async def work() -> None:
        store, cut_at = await _filled(tmp_path)
        began = time.thread_time()
        await store.truncate(cut_at)
        took = time.thread_time() - began
        assert bodies(store) == [b"kept %d" % number for number in range(KEPT)]
        assert bytes(store.commit_log.files.files[0].buffer[cut_at : cut_at + 65_536]) == bytes(
            65_536
        )
        await store.close()
        assert took < LOOP_S_MAX

    asyncio.run(work())


@pytest.mark.slow
@pytest.mark.parametrize("strays", [0, 600 << 20], ids=["next to it", "far behind"])
def test_recovery_in_a_file_of_a_gibibyte_when_its_tail_is_torn_then_the_loop_reads_no_more(
    tmp_path: Path, strays: int
) -> None:
    """Whatever else runs in this process would stand still, and torn bytes anywhere must still go."""

    async def work() -> None:
        store, end = await _filled(tmp_path)
        end = store.max_offset
        await store.close()
        path = tmp_path / "commitlog" / "0".zfill(20)
        with path.open("r+b") as file:
            file.seek(end + strays)
            file.write(b"torn" * 1000)
        (tmp_path / "abort").write_bytes(b"1")
        again = real_store(tmp_path, mapped_file_size_commit_log=GIB)
        began = time.thread_time()
        loaded = await again.open()
        took = time.thread_time() - began
        assert again.max_offset == end
        assert loaded.cut_bytes > 0
        assert len(bodies(again)) == KEPT + ADDED
        await again.close()
        with path.open("rb") as file:
            file.seek(end + strays)
            assert file.read(8192) == bytes(8192)
        assert took < LOOP_S_MAX

    asyncio.run(work())


@pytest.mark.slow
def test_cut_behind_a_long_undispatched_tail_when_it_looks_at_the_records_then_others_get_their_turn(
    tmp_path: Path,
) -> None:
    """A slave that was flooded and is elected would answer nobody for seconds."""
    records = 60_000

    async def work() -> None:
        store = real_store(
            tmp_path, mapped_file_size_commit_log=64 << 20, enable_controller_mode=True
        )
        await store.open()
        for number in range(records):
            store.append(message(number, queue_id=number % 4))
        turns: list[float] = []
        ends = False

        def tick() -> None:
            turns.append(time.thread_time())
            if not ends:
                asyncio.get_running_loop().call_soon(tick)

        last = store.append(message(records))
        tick()
        await asyncio.sleep(0)
        await store.truncate(last.offset)
        ends = True
        await asyncio.sleep(0)
        longest = max(after - before for before, after in pairwise(turns))
        assert longest < (turns[-1] - turns[0]) / 2
        offsets = store.queues.next_offsets
        assert {key[1]: offset for key, offset in offsets.items()} == dict.fromkeys(
            range(4), records // 4
        )
        await store.close()

    asyncio.run(work())
