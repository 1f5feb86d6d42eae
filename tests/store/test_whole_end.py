"""A slave in a flood: where whole records end, and who waits while bytes come in."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rmqha.store import checkpoint as cp
from rmqha.store.aio import commit_log, dispatcher, message_store
from rmqha.store.aio.message_store import MessageStore
from tests.store.harness import message, real_store


async def pair(root: Path, **settings: int) -> tuple[MessageStore, MessageStore]:
    """A master's store and an empty slave's."""
    stores = []
    for name in ("one", "two"):
        (root / name).mkdir()
        stores.append(real_store(root / name, enable_controller_mode=True, **settings))
        await stores[-1].open()
    return stores[0], stores[1]


def copy(master: MessageStore, slave: MessageStore, start: int, end: int) -> None:
    """What replication does."""
    slave.reserve(start, end - start)[:] = master.view(start, end - start)
    slave.received(start, end - start)


async def test_a_flush_does_not_walk_over_dispatched_records_again(tmp_path: Path) -> None:
    """A walk over each record at each flush held up the event loop of a slave that catches up."""
    master, slave = await pair(tmp_path)
    ends = [master.append(message(number)).end for number in range(20)]
    copy(master, slave, 0, ends[-1])
    slave.set_confirm_offset(ends[9])
    await slave.wait_dispatched(ends[9])
    # Whoever looked at the first record again would stop there.
    first = slave.commit_log.view(0, 4)
    kept, first[:] = bytes(first), bytes(4)
    assert slave.commit_log.whole_end() == ends[-1]
    first[:] = kept
    first.release()
    await slave.close()
    await master.close()


async def test_the_walk_is_bounded_and_the_checkpoint_comes_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a second of a flood is some 400 000 records: nobody may wait for a walk over them."""
    monkeypatch.setattr(commit_log, "WHOLE_RECORDS_MAX", 3)
    master, slave = await pair(tmp_path, flush_checkpoint_interval_ms=2)
    ends = [master.append(message(number)).end for number in range(20)]
    copy(master, slave, 0, ends[-1])
    assert slave.commit_log.whole_end() == ends[2]
    await slave.flush(ends[-1])
    path = tmp_path / "two" / "checkpoint"
    async with asyncio.timeout(5):
        while cp.read(path.read_bytes()).flushed_offset != ends[-1]:  # noqa: ASYNC110
            await asyncio.sleep(0.002)
    await slave.close()
    await master.close()


@pytest.mark.parametrize("behind_max", [1 << 30, 0])
async def test_receiving_goes_before_dispatching_until_too_much_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behind_max: int
) -> None:
    """A slave that catches up acknowledges first; behind by too much, both get the same share."""
    monkeypatch.setattr(dispatcher, "BEHIND_BYTES_MAX", behind_max)
    monkeypatch.setattr(dispatcher, "FLOOD_PAUSE_S", 0.3)
    master, slave = await pair(tmp_path, dispatch_batch_max=1)
    ends = [0, *(master.append(message(number)).end for number in range(90))]
    copy(master, slave, 0, ends[1])
    slave.set_confirm_offset(ends[1])
    await slave.wait_dispatched(ends[1])  # the queue's file is there
    ends = ends[1:]
    for turn in range(29):
        copy(master, slave, ends[3 * turn], ends[3 * turn + 3])
        slave.set_confirm_offset(ends[3 * turn + 3])
        await asyncio.sleep(0)
    dispatched = sum(1 for end in ends[1:] if end <= slave.dispatched_offset)
    assert dispatched <= 3 if behind_max else dispatched >= 8, dispatched
    async with asyncio.timeout(10):
        await slave.wait_dispatched(slave.max_offset)
    await slave.close()
    await master.close()


async def test_look_for_the_valid_end_when_records_are_many_then_it_ends_after_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """8 MiB of small records took 50 ms in one turn of the loop, in each election."""
    monkeypatch.setattr(message_store, "WALKED_MAX", 3)
    master, slave = await pair(tmp_path)
    ends = [master.append(message(number)).end for number in range(7)]
    found = [0]
    while (end := master.valid_end(found[-1], master.max_offset)) > found[-1]:
        found.append(end)
    assert found == [0, ends[2], ends[5], ends[6]]
    await slave.close()
    await master.close()
