"""Topics that end at a master of Java's: it deletes their queues and tells nobody, and the next life
of a topic begins at 0 in a queue that has messages here."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rmqha.runtime.aio.clock import SystemClock
from rmqha.store.aio import queue_files
from rmqha.store.aio.message_store import MessageStore
from rmqha.store.checkpoint import SLACK_MS
from rmqha.store.consume_queue import UNIT
from rmqha.store.metadata_records import METADATA_TOPIC, ended_property
from rmqha.store.record import INNER_BATCH, Message
from tests.store.harness import BODY, BORN_MS, HOST, TOPIC, bodies, message, real_store

KEY = (TOPIC.encode(), 0)


def put(store: MessageStore, *texts: str, queue_id: int = 0) -> int:
    """Messages; where the first of them stands."""
    found = [store.append(message(body=one.encode(), queue_id=queue_id)).offset for one in texts]
    return found[0]


async def dispatched(store: MessageStore) -> None:
    """Every record is in its queue."""
    store.set_confirm_offset(store.max_offset)
    await store.wait_dispatched(store.max_offset)


async def two_lives(root: Path) -> tuple[MessageStore, int]:
    """Three messages, and two of the queue's next life; where that begins."""
    store = real_store(root, enable_controller_mode=True)
    await store.open()
    put(store, "old-0", "old-1", "old-2")
    put(store, "beside", queue_id=1)
    await dispatched(store)
    store.queues.next_offsets[KEY] = 0
    begins = put(store, "new-0", "new-1")
    return store, begins


@pytest.mark.parametrize("stop", ["clean", "killed", None])
async def test_queue_when_a_first_message_comes_then_it_has_the_new_ones_only(
    tmp_path: Path, stop: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """They were passed over as if they were there: acknowledged, and never delivered by this replica."""
    store, begins = await two_lives(tmp_path)
    await dispatched(store)
    if stop == "clean":
        await store.close()
    elif stop == "killed":
        await store.flush(store.max_offset)
        store.commit_log.close()
    if stop is not None:
        store = real_store(tmp_path, enable_controller_mode=True)
        await store.open()
        await dispatched(store)
    assert bodies(store) == [b"new-0", b"new-1"]
    assert bodies(store, queue_id=1) == [b"beside"]
    assert store.queues.skipped == 0
    await store.rebuild_queue_offsets()
    assert store.append(message()).queue_offset == 2
    lines = [one for one in capsys.readouterr().out.splitlines() if "queue_begins_anew" in one]
    assert len(lines) == 1 or stop == "killed"
    assert f"max_offset=3 node=test offset={begins} queue_id=0 topic={TOPIC}" in lines[0]
    await store.close()


async def test_queue_when_the_first_message_is_cut_off_then_the_old_ones_are_back(
    tmp_path: Path,
) -> None:
    """The next master may know nothing of a new life."""
    store, begins = await two_lives(tmp_path)
    await dispatched(store)
    await store.truncate(begins)
    await dispatched(store)
    assert bodies(store) == [b"old-0", b"old-1", b"old-2"]
    assert not store.queues.anew
    put(store, "old-3")
    await dispatched(store)
    end = put(store, "gone")
    await dispatched(store)
    await store.truncate(end)
    assert bodies(store)[3:] == [b"old-3"]
    await store.close()


async def test_numbers_when_a_next_life_waits_for_the_dispatcher_then_they_go_on_in_it(
    tmp_path: Path,
) -> None:
    """A replica that is elected before it has dispatched the first message."""
    store, _ = await two_lives(tmp_path)
    await store.rebuild_queue_offsets()
    assert store.append(message(body=b"new-2")).queue_offset == 2
    await dispatched(store)
    assert bodies(store) == [b"new-0", b"new-1", b"new-2"]
    await store.close()


async def test_inner_batches_when_a_next_life_begins_then_they_do_too(tmp_path: Path) -> None:
    """Their queue has other files."""
    store = real_store(tmp_path)
    await store.open()
    batch = Message("Batch", 0, BODY, b"INNER_NUM\x013\x02", BORN_MS, HOST, HOST, INNER_BATCH)
    for _ in range(2):
        store.append(batch)
    await store.wait_dispatched(store.max_offset)
    store.queues.next_offsets[b"Batch", 0] = 0
    store.append(batch)
    await store.wait_dispatched(store.max_offset)
    assert store.reader.max_offset("Batch", 0) == 3
    assert bodies(store, topic="Batch") == [BODY]
    await store.close()


async def test_message_when_its_number_is_taken_then_that_is_told(tmp_path: Path) -> None:
    """It can be delivered by nobody, and nobody had said so."""
    store = real_store(tmp_path)
    await store.open()
    put(store, "0", "1", "2")
    await store.wait_dispatched(store.max_offset)
    store.queues.next_offsets[KEY] = 1
    put(store, "another 1")
    store.queues.next_offsets[KEY] = 3
    put(store, "3")
    await store.wait_dispatched(store.max_offset)
    assert bodies(store) == [b"0", b"1", b"2", b"3"]
    assert store.queues.skipped == 1
    store.dispatcher.restart_at(0)
    await store.wait_dispatched(store.max_offset)
    assert bodies(store) == [b"0", b"1", b"2", b"3"]
    await store.close()


@pytest.mark.costly
async def test_queue_when_its_files_are_being_looked_after_then_it_waits_before_it_begins_anew(
    tmp_path: Path,
) -> None:
    """A sync, a cut or the look for old files may be at work on them."""
    store, _ = await two_lives(tmp_path)
    async with store.queues.upkeep:
        store.set_confirm_offset(store.max_offset)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(store.wait_dispatched(store.max_offset), 0.2)
        assert store.queues.anew
        assert store.queues.queues[KEY].max_offset == 3
    await dispatched(store)
    assert bodies(store) == [b"new-0", b"new-1"]
    await store.close()


FAR = 2 * queue_files.GAP_MAX
JAVA_BYTES = 300_000 * UNIT.size


class Ahead(SystemClock):
    """The machine's clock, or one that is ahead of it."""

    ahead_ms = 0

    def wall_ms(self) -> int:
        """The time of day."""
        return super().wall_ms() + self.ahead_ms


def end_topic(store: MessageStore, *, told: bool) -> int:
    """The topic ends, and its next life begins at 0; where the word of it stands, if there is one."""
    at = store.max_offset
    if told:
        properties = ended_property((TOPIC,))
        store.append(message(topic=METADATA_TOPIC, properties=properties, body=b"{}"))
    store.queues.next_offsets[KEY] = 0
    return at


@pytest.mark.parametrize("told", [True, False])
async def test_store_when_it_walks_over_two_lives_of_a_long_queue_then_it_opens(
    tmp_path: Path, *, told: bool
) -> None:
    """Every replica that crashed refused to open, for good, though nothing was damaged."""
    clock = Ahead()
    store = real_store(tmp_path, clock, mapped_file_size_consume_queue=JAVA_BYTES)
    await store.open()
    while store.max_offset < store.file_size:
        store.append(message(topic="Other", body=bytes(300)))
    store.queues.next_offsets[KEY] = FAR
    put(store, "old")
    end_topic(store, told=told)
    put(store, "new-0", "new-1")
    # So long after the second file's first record a start after a crash may begin with that file.
    clock.ahead_ms = 2 * SLACK_MS
    store.append(message(topic="Other"))
    await dispatched(store)
    await store.flush_all()
    await store.flush_queues()
    await store._write_checkpoint()
    store.commit_log.close()
    again = real_store(tmp_path, mapped_file_size_consume_queue=JAVA_BYTES)
    await again.open()
    await dispatched(again)
    assert bodies(again) == [b"new-0", b"new-1"]
    await again.close()


async def test_queue_when_the_end_of_its_topic_is_cut_then_the_long_one_is_back(
    tmp_path: Path,
) -> None:
    """The running store failed, with the file of the next life still there and no unit in it."""
    store = real_store(tmp_path, mapped_file_size_consume_queue=JAVA_BYTES)
    await store.open()
    store.queues.next_offsets[KEY] = FAR
    put(store, "old-0", "old-1")
    at = end_topic(store, told=True)
    await dispatched(store)
    put(store, "new")
    await dispatched(store)
    await store.truncate(at)
    await dispatched(store)
    assert bodies(store) == [b"old-0", b"old-1"]
    # Java finds a unit by the name of its file.
    names = [one.name for one in (tmp_path / "consumequeue" / TOPIC / "0").iterdir()]
    assert names == [f"{FAR * UNIT.size // JAVA_BYTES * JAVA_BYTES:020}"]
    assert store.append(message()).queue_offset == FAR + 2
    await store.close()


async def test_queue_when_a_number_is_far_ahead_then_it_begins_anew_and_that_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One record of another master ended every slave, at each start again."""
    monkeypatch.setattr(queue_files, "GAP_MAX", 100)
    store = real_store(tmp_path)
    await store.open()
    put(store, "0", "1")
    await store.wait_dispatched(store.max_offset)
    store.queues.next_offsets[KEY] = 102
    put(store, "ahead")
    store.queues.next_offsets[KEY] = 204
    last = put(store, "far ahead")
    await store.wait_dispatched(store.max_offset)
    assert bodies(store) == [b"far ahead"]
    out = capsys.readouterr().out
    lines = [one for one in out.splitlines() if "queue_begins_anew" in one]
    assert len(lines) == 1, "what is no further than the maximum is a gap"
    assert f"max_offset=103 node=test offset={last}" in lines[0]
    await store.truncate(last)
    await store.wait_dispatched(store.max_offset)
    assert store.reader.max_offset(TOPIC, 0) == 103
    await store.close()


async def test_record_when_its_number_has_no_file_then_it_is_passed_over(tmp_path: Path) -> None:
    """A file's name has 20 digits, and to Java it is a long."""
    store = real_store(tmp_path)
    await store.open()
    put(store, "0")
    await store.wait_dispatched(store.max_offset)
    store.queues.next_offsets[KEY] = (1 << 63) - 2
    put(store, "no number")
    await store.wait_dispatched(store.max_offset)
    assert bodies(store) == [b"0"]
    assert store.queues.skipped == 1
    await store.close()
