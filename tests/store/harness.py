"""Stores on simulated and real disks, and messages to put into them."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from rmqha.runtime.aio.clock import SystemClock
from rmqha.runtime.aio.disk import SystemDisk
from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import Clock
from rmqha.sim.clock import SimClock
from rmqha.sim.disk import SimDisk
from rmqha.sim.loop import SimLoop
from rmqha.store import properties as props
from rmqha.store.aio.message_store import MessageStore
from rmqha.store.record import Message, pack_host
from rmqha.store.settings import StoreSettings

ROOT = "/store"
BORN_MS = 1_700_000_000_000
BORN = pack_host("127.0.0.1", 0)
HOST = pack_host("127.0.0.1", 8123)
TOPIC = "FooBar"
BODY = b"Once, there was a chance for me!"


def small_settings(root: str = ROOT, **changes: Any) -> StoreSettings:
    """Files of a few pages, so that a test fills many of them."""
    values: dict[str, Any] = {
        "store_path_root_dir": root,
        "store_path_commit_log": f"{root}/commitlog",
        "mapped_file_size_commit_log": 16_384,
        "mapped_file_size_consume_queue": 20 * 64,
        "mapper_file_size_batch_consume_queue": 46 * 16,
        **changes,
    }
    return StoreSettings(**values)


def message(number: int = 0, *, body: bytes = BODY, queue_id: int = 0, **changes: Any) -> Message:
    """The message of the protocol's test vector, or one like it."""
    keys = str(BORN_MS + number)
    properties = props.encode({"TAGS": "TAG1", "KEYS": keys})
    base = Message(TOPIC, queue_id, body, properties, BORN_MS + number, BORN, HOST)
    return base._replace(**changes)


def sim_store(loop: SimLoop, disk: SimDisk, **settings: Any) -> MessageStore:
    """A store in the simulator."""
    return MessageStore(SimClock(loop), disk, small_settings(**settings), Logger(node="test"))


def real_store(root: Path, clock: Clock | None = None, **settings: Any) -> MessageStore:
    """A store on real files; by the machine's clock unless another is given."""
    values = small_settings(str(root), **settings)
    return MessageStore(clock or SystemClock(), SystemDisk(), values, Logger(node="test"))


async def put(store: MessageStore, message: Message) -> None:
    """Append, and wait until it is durable."""
    await store.flush(store.append(message).end)


def simulate(work: Coroutine[Any, Any, Any], loop: SimLoop) -> Any:
    """Run to the end; what a task left unhandled fails the test."""
    result = loop.run_until_complete(work)
    assert not loop.errors, loop.errors
    return result


def simulate_seeds(
    story: Callable[[SimLoop, SimDisk, int], Coroutine[Any, Any, Any]], count: int
) -> None:
    """Play a story of one disk with each of so many seeds, in a loop of its own."""
    for seed in range(count):
        loop = SimLoop()
        try:
            simulate(story(loop, new_disk(seed), seed), loop)
        finally:
            loop.close()


def new_disk(seed: int = 1) -> SimDisk:
    """A simulated disk."""
    return SimDisk(random.Random(seed))


def bodies(store: MessageStore, queue_id: int = 0, topic: str = TOPIC) -> list[bytes]:
    """Every body of a queue, read through the consume queue."""
    found: list[bytes] = []
    offset = store.reader.min_offset(topic, queue_id)
    while True:
        result = store.reader.get(topic, queue_id, offset, count_max=32, bytes_max=1 << 20)
        if not result.records:
            return found
        for view in result.records:
            physical = int.from_bytes(view[28:36])
            record = store.reader.look(physical)
            assert record is not None
            assert record.view.obj is view.obj
            found.append(record.body)
        offset = result.next_begin_offset
