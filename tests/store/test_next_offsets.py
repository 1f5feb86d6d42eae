"""The queue offset of the next message: worked out of the records that no queue has yet, and of the
queues only when it is asked for."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.sim.loop import SimLoop
from rmqha.store.aio.message_store import MessageStore
from rmqha.store.aio.queue_files import QueueFiles
from rmqha.store.metadata_records import METADATA_KEY, METADATA_TOPIC, ended_property
from rmqha.store.record import INNER_BATCH, Message
from tests.store.harness import (
    BODY,
    BORN_MS,
    HOST,
    message,
    new_disk,
    real_store,
    sim_store,
    simulate,
)

TOPICS = ("A", "B", "Inner")
Key = tuple[bytes, int]


class Written(NamedTuple):
    """A record, and what it did."""

    start: int
    key: Key
    count: int = 0
    ends: bytes = b""


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(TOPICS), st.integers(0, 1)),
        st.tuples(st.just("end"), st.sampled_from(TOPICS)),
        st.tuples(st.just("dispatch"), st.integers(1, 4)),
        st.tuples(st.just("cut"), st.integers(1, 5)),
        st.tuples(st.just("elect")),
        st.tuples(st.just("restart")),
    ),
    max_size=40,
)


def expected(log: list[Written]) -> dict[Key, int]:
    """Where each queue goes on, by all of the log's records."""
    ends: dict[Key, int] = {}
    for one in log:
        ends[one.key] = ends.get(one.key, 0) + one.count
        if one.ends:
            ends = {key: 0 if key[0] == one.ends else end for key, end in ends.items()}
    return ends


def put(store: MessageStore, log: list[Written], topic: str, queue_id: int) -> None:
    """A message goes where the model says that it must."""
    key = (topic.encode(), queue_id)
    if topic == "Inner":
        one = Message(
            topic, queue_id, BODY, b"INNER_NUM\x013\x02", BORN_MS, HOST, HOST, INNER_BATCH
        )
    else:
        one = message(topic=topic, queue_id=queue_id)
    wanted = expected(log).get(key, 0)
    found = store.append(one)
    assert found.queue_offset == wanted
    log.append(Written(found.offset, key, 3 if topic == "Inner" else 1))


def end(store: MessageStore, log: list[Written], topic: str) -> None:
    """A topic ends."""
    record = Message(METADATA_TOPIC, 0, b"{}", ended_property([topic]), 0, HOST, HOST)
    log.append(Written(store.append(record).offset, (METADATA_KEY, 0), 1, topic.encode()))


async def play(loop: SimLoop, steps: list[tuple[Any, ...]]) -> None:
    """All steps, and each queue's number after each of them."""
    disk, log = new_disk(), list[Written]()
    store = sim_store(loop, disk, enable_controller_mode=True)
    await store.open()
    dispatched = 0
    for name, *values in steps:
        match name, values:
            case "put", [str(topic), int(queue_id)]:
                put(store, log, topic, queue_id)
            case "end", [str(topic)]:
                end(store, log, topic)
            case "dispatch", [int(records)]:
                dispatched = min(dispatched + records, len(log))
                upto = log[dispatched].start if dispatched < len(log) else store.max_offset
                store.set_confirm_offset(upto)
                await store.wait_dispatched(upto)
            case "cut", [int(records)] if log:
                offset = log[-min(records, len(log))].start
                del log[-records:]
                dispatched = min(dispatched, len(log))
                await store.truncate(offset)
            case "elect", _:
                await store.rebuild_queue_offsets()
            case "restart", _:
                await store.close()
                store = sim_store(loop, disk, enable_controller_mode=True)
                await store.open()
        for key, number in expected(log).items():
            assert (key, store.queues.next_offsets[key]) == (key, number)
        assert store.queues.next_offsets.find((b"Never", 0)) is None
    await store.close()


@pytest.mark.costly
@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_numbers_when_topics_end_and_logs_are_cut_then_they_follow_the_log(
    steps: list[tuple[Any, ...]],
) -> None:
    """A number that comes twice hides a message; one that is left out leaves a hole."""
    with contextlib.closing(SimLoop()) as loop:
        simulate(play(loop, steps), loop)


async def test_election_when_no_record_waits_for_its_queue_then_no_queue_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To ask 80,000 of them held up a new master for 17 to 49 ms."""
    store = real_store(tmp_path, enable_controller_mode=True)
    await store.open()
    for queue_id in range(20):
        store.append(message(queue_id=queue_id))
    store.set_confirm_offset(store.max_offset)
    await store.wait_dispatched(store.max_offset)
    store.append(message(queue_id=7))
    asked: list[str] = []
    honest = QueueFiles.max_offset

    def seen(self: QueueFiles) -> int:
        asked.append(self.files.directory.rsplit("/", 1)[1])
        return honest.__get__(self)

    monkeypatch.setattr(QueueFiles, "max_offset", property(seen))
    await store.rebuild_queue_offsets()
    assert set(asked) == {"7"}
    assert store.queues.next_offsets == {(b"FooBar", 7): 2}
    assert store.append(message(queue_id=3)).queue_offset == 1
    assert set(asked) == {"7", "3"}
    await store.close()
