"""A topic's end takes its queues along: wherever the log loses the record of it, they must be back.

Else messages that were acknowledged are in the log and in no queue, and the next message of the topic
takes the number of the first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any

import pytest

from rmqha.sim.disk import SimDisk
from rmqha.sim.loop import HOST, SimLoop
from rmqha.store.aio.commit_log import CommitLog
from rmqha.store.aio.message_store import MessageStore
from rmqha.store.metadata_records import METADATA_TOPIC, ended_property
from tests.store.harness import bodies, message, new_disk, sim_store, simulate

PAID = "Payments"
OLD = [b"old-%d" % number for number in range(20)]
STEP_S = 0.0005
"""Between two moments to die at: what lies between two syncs is seldom longer than one."""
LATER_FILES_S = 6.0
"""The checkpoint vouches for what is older: a start after a crash does not read it once more."""


async def with_old_messages(loop: SimLoop, disk: SimDisk) -> MessageStore:
    """A store whose messages of the topic stand in files before the newest."""
    store = sim_store(loop, disk)
    await store.open()
    for body in OLD:
        store.append(message(topic=PAID, body=body))
    await asyncio.sleep(LATER_FILES_S)
    for _ in range(2):
        while store.max_offset % store.file_size < store.file_size - 1500:
            store.append(message(body=bytes(1000)))
        for _ in range(3):
            store.append(message(body=bytes(1000)))
        await asyncio.sleep(LATER_FILES_S)
    return store


def put_end(store: MessageStore, *, told: bool) -> None:
    """The topic ends: by its record, or only by the first message of its next life."""
    if told:
        store.append(message(topic=METADATA_TOPIC, properties=ended_property([PAID]), body=b"{}"))
    else:
        store.queues.next_offsets[PAID.encode(), 0] = 0
        store.append(message(topic=PAID, body=b"new"))


async def queue_after_start(loop: SimLoop, disk: SimDisk, end: int) -> tuple[bool, list[bytes]]:
    """Whether the log has still what ended the topic, and what is in the topic's queue."""
    store = sim_store(loop, disk)
    await store.open()
    await store.wait_dispatched(store.max_offset)
    has_end, found = store.max_offset > end, bodies(store, topic=PAID)
    assert store.append(message(topic=PAID)).queue_offset == len(found)
    await store.close()
    return has_end, found


def die(loop: SimLoop, disk: SimDisk, *, power: bool) -> None:
    """The process is killed, or the machine loses its power."""
    if power:
        disk.power_cut()
    HOST.set(None)
    loop.end_host("store")


async def ended(loop: SimLoop, disk: SimDisk, *, told: bool) -> tuple[MessageStore, int]:
    """A store in which the topic ends just now, and where its log was at before."""
    HOST.set("store")
    store = await with_old_messages(loop, disk)
    end = store.max_offset
    put_end(store, told=told)
    return store, end


async def dies_amid(
    loop: SimLoop, disk: SimDisk, seed: int, work: Coroutine[Any, Any, Any], *, power: bool
) -> None:
    """The process dies a while after it has begun with something."""
    task = asyncio.create_task(work)
    await asyncio.sleep(STEP_S * seed)
    die(loop, disk, power=power)
    await asyncio.wait([task])


async def ends_and_dies(
    loop: SimLoop, disk: SimDisk, seed: int, *, told: bool
) -> tuple[bool, list[bytes]]:
    """The topic ends, and the power goes soon after."""
    _, end = await ended(loop, disk, told=told)
    await asyncio.sleep(0.003 * seed)
    die(loop, disk, power=True)
    return await queue_after_start(loop, disk, end)


async def is_cut_and_dies(
    loop: SimLoop, disk: SimDisk, seed: int, *, power: bool
) -> tuple[bool, list[bytes]]:
    """The topic has ended, a new master does not know of it, and the process dies as it cuts its log."""
    store, end = await ended(loop, disk, told=True)
    await asyncio.sleep(3)
    assert not store.reader.has_topic(PAID)
    await dies_amid(loop, disk, seed, store.truncate(end), power=power)
    return await queue_after_start(loop, disk, end)


async def starts_and_dies(
    loop: SimLoop, disk: SimDisk, seed: int, *, told: bool
) -> tuple[bool, list[bytes]]:
    """The process was killed as the topic ended, and the power goes while the next one starts."""
    _, end = await ended(loop, disk, told=told)
    die(loop, disk, power=False)
    HOST.set("store")
    await dies_amid(loop, disk, seed, sim_store(loop, disk).open(), power=True)
    return await queue_after_start(loop, disk, end)


def played(seed: int, story: Callable[..., Any], **how: bool) -> tuple[bool, list[bytes]]:
    """What a story of its own loop and disk ends with."""
    loop = SimLoop()
    try:
        found: tuple[bool, list[bytes]] = simulate(story(loop, new_disk(seed), seed, **how), loop)
    finally:
        loop.close()
    return found


@pytest.mark.costly
@pytest.mark.parametrize("story", [ends_and_dies, starts_and_dies])
@pytest.mark.parametrize("told", [True, False])
def test_queue_when_the_power_takes_its_topic_s_end_then_it_has_its_messages(
    *, story: Callable[..., Any], told: bool
) -> None:
    """Its files went for good before the record of the end was durable."""
    ends = set()
    for seed in range(48):
        has_end, found = played(seed, story, told=told)
        assert found == (([] if told else [b"new"]) if has_end else OLD), seed
        ends.add(has_end)
    assert ends == {True, False}


@pytest.mark.parametrize("power", [True, False])
def test_queue_when_its_topic_s_end_is_cut_and_the_process_dies_then_it_has_its_messages(
    *, power: bool
) -> None:
    """That the log is read from its begin was in memory only, and the checkpoint said otherwise."""
    ends = set()
    for seed in range(24):
        has_end, found = played(seed, is_cut_and_dies, power=power)
        assert found == ([] if has_end else OLD), seed
        ends.add(has_end)
    assert ends == {True, False}


@pytest.mark.costly
def test_start_when_many_topics_have_ended_then_no_byte_of_the_log_is_written_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With 50 of them a start wrote all of a log again 50 times."""
    written: list[tuple[int, int]] = []
    again = CommitLog.sync_again

    async def noted(self: CommitLog, low: int, high: int) -> None:
        written.append((low, high))
        await again(self, low, high)

    async def story(loop: SimLoop, disk: SimDisk, seed: int) -> None:
        HOST.set("store")
        store = await with_old_messages(loop, disk)
        for number in range(12):
            topic = f"Ended{number}"
            store.append(message(topic=topic))
            store.append(
                message(topic=METADATA_TOPIC, properties=ended_property([topic]), body=b"{}")
            )
        die(loop, disk, power=False)
        monkeypatch.setattr(CommitLog, "sync_again", noted)
        HOST.set("store")
        second = sim_store(loop, disk)
        await second.open()
        await second.close()

    played(1, story)
    assert len(written) > 10
    assert all(high <= low for (_, high), (low, _) in pairwise(written[:-1]))
    # The open itself writes what was not vouched for once more, at most.
    assert sum(high - low for low, high in written) <= 2 * (written[-1][1] - written[0][0])
