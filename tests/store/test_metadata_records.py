"""Records that end topics: queues go in the log's order, on every replica and after every stop."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqha.store.aio.message_store import MessageStore
from rmqha.store.aio.metadata_reader import MetadataRecord, dispatched_since, waiting_from
from rmqha.store.metadata_records import METADATA_TOPIC, ended_property, ended_topics
from rmqha.store.record import Message
from tests.store.harness import HOST, TOPIC, bodies, message, real_store


def end_of(*topics: str, body: bytes = b"{}") -> Message:
    """The record with which topics end."""
    return Message(METADATA_TOPIC, 0, body, ended_property(topics), 0, HOST, HOST)


def put(store: MessageStore, text: str, topic: str = TOPIC, queue_id: int = 0) -> int:
    """One message; its queue offset."""
    return store.append(message(body=text.encode(), topic=topic, queue_id=queue_id)).queue_offset


async def all_dispatched(store: MessageStore) -> None:
    """Every record is in its queue."""
    await store.wait_dispatched(store.max_offset)


def test_property_when_read_back_then_it_names_the_topics() -> None:
    """A topic that is not named keeps its old messages."""
    assert ended_topics(ended_property(["A", "%RETRY%G"]) + b"K\x01v\x02") == [b"A", b"%RETRY%G"]
    assert ended_topics(ended_property([])) == []
    assert ended_topics(b"TOPICS_ENDED\x01,,\xff,\x02") == [b"\xff"]


@pytest.mark.parametrize("clean", [True, False])
async def test_topic_when_it_ends_then_its_next_life_begins_at_0(
    tmp_path: Path, clean: bool
) -> None:
    """Also when a restart dispatches the records of the first life once more."""
    store = real_store(tmp_path)
    await store.open()
    for number in range(5):
        assert put(store, f"old-{number}") == number
    put(store, "other", topic="Other")
    store.append(end_of(TOPIC))
    await all_dispatched(store)
    assert not store.reader.has_topic(TOPIC)
    assert list((tmp_path / "consumequeue" / TOPIC / "0").iterdir()) == []
    assert [put(store, f"new-{number}") for number in range(2)] == [0, 1]
    await all_dispatched(store)
    if clean:
        await store.close()
    else:
        await store.flush(store.max_offset)
        store.commit_log.close()
    again = real_store(tmp_path)
    await again.open()
    assert bodies(again) == [b"new-0", b"new-1"]
    assert bodies(again, topic="Other") == [b"other"]
    assert put(again, "new-2") == 2
    await all_dispatched(again)
    assert bodies(again)[-1] == b"new-2"
    await again.close()


@pytest.mark.parametrize("old", [1, 3])
async def test_topic_when_its_next_life_begins_before_the_dispatcher_then_no_number_comes_twice(
    tmp_path: Path, old: int
) -> None:
    """The old queue may be as long as the new one is already when it goes."""
    store = real_store(tmp_path)
    await store.open()
    for number in range(old):
        put(store, f"old-{number}")
    await all_dispatched(store)
    async with store.dispatcher.lock:
        store.append(end_of(TOPIC))
        assert put(store, "new-0") == 0
    await all_dispatched(store)
    assert put(store, "new-1") == 1
    await all_dispatched(store)
    assert bodies(store) == [b"new-0", b"new-1"]
    await store.close()


async def test_next_offsets_when_an_end_waits_for_the_dispatcher_then_they_begin_anew(
    tmp_path: Path,
) -> None:
    """A replica that is elected works them out of what its dispatcher has not passed yet."""
    store = real_store(tmp_path, enable_controller_mode=True)
    await store.open()
    for queue_id in (0, 1):
        put(store, "old", queue_id=queue_id)
    store.set_confirm_offset(store.max_offset)
    await all_dispatched(store)
    put(store, "old again")
    put(store, "other", topic="Other")
    store.append(end_of(TOPIC))
    await store.rebuild_queue_offsets()
    assert put(store, "new") == 0
    await store.rebuild_queue_offsets()
    assert (put(store, "newer"), put(store, "other", topic="Other")) == (1, 1)
    store.set_confirm_offset(store.max_offset)
    await all_dispatched(store)
    assert bodies(store) == [b"new", b"newer"]
    await store.close()


async def test_records_when_looked_for_then_each_is_found_once_in_order(tmp_path: Path) -> None:
    """One that is passed over is a topic that a replica does not have."""
    store = real_store(tmp_path, enable_controller_mode=True)
    await store.open()
    written: list[MetadataRecord] = []
    seen: list[MetadataRecord] = []
    store.dispatcher.on_metadata = seen.append
    for number in range(40):
        body = b"%d" % number
        put(store, "between", queue_id=number % 3)
        result = store.append(end_of(body=body))
        written.append(MetadataRecord(result.offset, result.end, body))
    half = written[19].end
    store.set_confirm_offset(half)
    await store.wait_dispatched(half)
    log, queues = store.commit_log, store.queues
    assert list(waiting_from(log, store.dispatched_offset)) == written[20:]
    for first in range(21):
        since = written[first].offset if first < 20 else half
        assert list(dispatched_since(log, queues, since)) == written[first:20]
    assert list(dispatched_since(log, queues, written[3].offset + 1)) == written[4:20]
    store.set_confirm_offset(store.max_offset)
    await all_dispatched(store)
    assert seen == written
    await store.close()
