"""The store on real files: what is written is found, before and after a restart."""

from __future__ import annotations

import asyncio
import os
import shutil
import struct
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from rmqha.base.errors import (
    DiskFailed,
    LocalProtocolError,
    MessageIllegal,
    StoreDamaged,
    StoreInUse,
    StoreMismatch,
)
from rmqha.runtime.aio.disk import lock_first_byte
from rmqha.store import batches
from rmqha.store import properties as props
from rmqha.store.aio import reader as words
from rmqha.store.record import INNER_BATCH, MAGIC_BLANK, Message, Plain, topic_field
from tests.store.harness import BORN, BORN_MS, HOST, TOPIC, bodies, message, put, real_store

SIZE = 158


async def fill(root: Path, count: int, **settings: object) -> None:
    """A store of ``count`` messages, stopped cleanly."""
    store = real_store(root, **settings)
    await store.open()
    for number in range(count):
        store.append(message(number, body=b"%032d" % number))
    await store.wait_dispatched(store.max_offset)
    await store.close()


async def test_ten_messages_lie_where_java_puts_them(tmp_path: Path) -> None:
    """The layout of AutoSwitchHATest: files of 1 700 bytes hold ten messages and a blank."""
    store = real_store(tmp_path, mapped_file_size_commit_log=1700)
    await store.open()
    results = [store.append(message(number)) for number in range(11)]
    assert [r.offset for r in results] == [*range(0, 1580, SIZE), 1700]
    assert [r.queue_offset for r in results] == list(range(11))
    assert results[10].msg_id == "7F00000100001FBB00000000000006A4"
    await store.wait_dispatched(store.max_offset)
    await store.close()
    first = (tmp_path / "commitlog" / ("0" * 20)).read_bytes()
    assert struct.unpack_from(">iI", first, 1580) == (120, MAGIC_BLANK)
    queue = (tmp_path / "consumequeue" / TOPIC / "0" / ("0" * 20)).read_bytes()
    units = [struct.unpack_from(">qiq", queue, 20 * n) for n in range(12)]
    assert units == [(r.offset, SIZE, 2567159) for r in results] + [(0, 0, 0)]
    assert not (tmp_path / "abort").exists()


async def test_messages_are_read_back_after_a_clean_restart(tmp_path: Path) -> None:
    """Over several files of the log and of the queue; offsets go on where they ended."""
    await fill(tmp_path, 300)
    store = real_store(tmp_path)
    found = await store.open()
    assert found.clean
    assert len(store.commit_log.files.files) >= 3
    assert bodies(store) == [b"%032d" % n for n in range(300)]
    assert store.append(message(300)).queue_offset == 300
    assert (tmp_path / "abort").read_text() == "0"
    await store.close()


async def test_reads_name_java_s_states(tmp_path: Path) -> None:
    """Each status with the offset where the consumer goes on."""
    store = real_store(tmp_path)
    await store.open()
    ask = store.reader.get
    assert ask("none", 0, 0, count_max=1, bytes_max=1).status == words.NO_MATCHED_LOGIC_QUEUE
    for number in range(5):
        store.append(message(number))
    await store.wait_dispatched(store.max_offset)
    result = ask(TOPIC, 0, 1, count_max=3, bytes_max=1 << 20)
    assert (result.status, len(result.records), result.next_begin_offset) == (words.FOUND, 3, 4)
    assert len(ask(TOPIC, 0, 0, count_max=9, bytes_max=2 * SIZE).records) == 2
    assert len(ask(TOPIC, 0, 0, count_max=9, bytes_max=1).records) == 1
    over = ask(TOPIC, 0, 5, count_max=1, bytes_max=1)
    assert (over.status, over.next_begin_offset) == (words.OFFSET_OVERFLOW_ONE, 5)
    assert ask(TOPIC, 0, 9, count_max=1, bytes_max=1).status == words.OFFSET_OVERFLOW_BADLY
    assert store.reader.look(SIZE) is not None
    assert store.reader.look(SIZE + 1) is None
    await store.close()


def test_batch_when_its_messages_say_where_they_were_popped_then_they_do_not_any_more() -> None:
    """As of a message by itself: who pops it would acknowledge another one, and it came for ever."""
    pairs = b"A\x01x\x02POP_CK\x010 1 60000 0 0 b 0 0\x02POP_CK\x01y\x02B\x01XPOP_CK\x02"
    body = batches.join_client_batch([(b"1", pairs), (b"2", b"C\x01z\x02"), (b"3", b"POP_CK\x01")])
    found = batches.split_client_batch(message(body=body), messages_max=9)
    assert [one.body for one in found] == [b"1", b"2", b"3"]
    kept = [b"A\x01x\x02B\x01XPOP_CK\x02", b"C\x01z\x02", b""]
    assert [one.properties for one in found] == kept


async def test_transactions_and_batches_take_their_queue_offsets(tmp_path: Path) -> None:
    """Half messages are in no queue, an inner batch counts for all it holds."""
    store = real_store(tmp_path)
    await store.open()
    half = store.append(message(0, sys_flag=4))
    assert half.queue_offset == 0
    assert store.append(message(1, sys_flag=8)).queue_offset == 0
    one = struct.pack(">5i", 20 + 3 + 2 + 2, 0, 0, 7, 3) + b"abc" + struct.pack(">h", 2) + b"a\x01"
    results = store.append_batch(message(2)._replace(body=one + one))
    assert [r.queue_offset for r in results] == [1, 2]
    inner = props.encode({"INNER_NUM": "3"})
    for _ in range(2):
        store.append(Message("Batch", 0, b"xyz", inner, BORN_MS, *message()[5:7], INNER_BATCH))
    await store.wait_dispatched(store.max_offset)
    assert bodies(store) == [message().body, b"abc", b"abc"]
    assert store.reader.max_offset("Batch", 0) == 6
    middle = store.reader.get("Batch", 0, 4, count_max=9, bytes_max=1 << 20)
    assert (len(middle.records), middle.next_begin_offset) == (1, 6)
    unit = (tmp_path / "batchconsumequeue" / "Batch" / "0" / ("0" * 20)).read_bytes()[46:92]
    assert struct.unpack(">qiqqqhii", unit)[4:] == (3, 3, -1, 0)
    with pytest.raises(MessageIllegal, match="INNER_NUM without"):
        store.append(message(3, properties=inner))
    with pytest.raises(MessageIllegal, match="wrong lengths"):
        store.append_batch(message(2)._replace(body=one + one[:-1]))
    await store.close()
    again = real_store(tmp_path)
    await again.open()
    offsets = again.queues.next_offsets
    assert (offsets[b"FooBar", 0], offsets[b"Batch", 0]) == (3, 6)
    await again.close()


async def test_a_record_larger_than_the_file_is_refused(tmp_path: Path) -> None:
    """The log is as it was, and takes the next message."""
    store = real_store(tmp_path, max_message_size=1 << 20)
    await store.open()
    store.append(message())
    with pytest.raises(MessageIllegal, match="does not fit into a file of 16384"):
        store.append(message(body=bytes(16_384)))
    largest = 16_384 - 8 - (SIZE - 32)
    assert store.append(message(body=bytes(largest))).offset == 16_384
    assert store.append(message()).offset == 2 * 16_384
    with pytest.raises(MessageIllegal, match="at most"):
        store.append(message(body=bytes((1 << 20) + 1)))
    await store.close()


async def test_files_of_another_size_are_refused_untouched(tmp_path: Path) -> None:
    """A wrong setting must not look like an empty store."""
    await fill(tmp_path, 10)
    store = real_store(tmp_path, mapped_file_size_commit_log=8192)
    with pytest.raises(StoreMismatch, match="16384 bytes, but the settings say 8192"):
        await store.open()
    await store.close()
    again = real_store(tmp_path)
    assert (await again.open()).clean
    assert len(bodies(again)) == 10
    await again.close()


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("record", [1, 150])
async def test_a_flipped_bit_in_the_middle_is_an_error(
    tmp_path: Path, clean: bool, record: int
) -> None:
    """Durable messages are never skipped: the error names file, offset and reason."""
    await fill(tmp_path, 300)
    offset = record * SIZE if record == 1 else 16_384 + 20 * SIZE
    path = tmp_path / "commitlog" / f"{offset - offset % 16_384:020d}"
    data = bytearray(path.read_bytes())
    data[offset % 16_384 + 90] ^= 4
    path.write_bytes(data)
    if not clean:
        (tmp_path / "abort").write_text("1")
        (tmp_path / "checkpoint").write_bytes(_without_mark_times(tmp_path))
    else:
        # A clean start reads the newest file only; the damage shows when it is read from there.
        for late in sorted((tmp_path / "commitlog").iterdir())[offset // 16_384 + 1 :]:
            late.unlink()
    store = real_store(tmp_path)
    with pytest.raises(StoreDamaged, match=f"{path.name}: damaged at offset {offset}: CRC of the"):
        await store.open()
    await store.close()
    assert path.read_bytes() == data


def _without_mark_times(root: Path) -> bytes:
    """The checkpoint with its mark, but stamps that make recovery begin at the first file."""
    from rmqha.store import checkpoint as cp

    content = cp.read((root / "checkpoint").read_bytes())
    content.physic_msg_timestamp = content.logics_msg_timestamp = 0
    buffer = bytearray(cp.SIZE)
    cp.write_into(buffer, content)
    return bytes(buffer)


async def test_a_flipped_bit_in_an_unsynced_tail_is_cut(tmp_path: Path) -> None:
    """After an unclean stop the tail beyond the durable part may be torn; the rest stays."""
    store = real_store(
        tmp_path, flush_interval_commit_log=10**8, flush_checkpoint_interval_ms=10**8
    )
    await store.open()
    for number in range(10):
        store.append(message(number))
    await store.flush(store.max_offset)
    await store._write_checkpoint()
    for number in range(10, 20):
        store.append(message(number))
    store.view(15 * SIZE, SIZE)[100] ^= 1
    await store._tasks.close()
    again = real_store(tmp_path)
    found = await again.open()
    assert not found.clean
    assert again.max_offset == 15 * SIZE
    assert len(bodies(again)) == 15
    assert not any(again.commit_log.files.files[0].buffer[15 * SIZE :])
    await again.close()


async def test_a_missing_log_is_an_error(tmp_path: Path) -> None:
    """An unmounted commit-log directory must not start as an empty broker."""
    await fill(tmp_path, 10)
    (tmp_path / "commitlog" / ("0" * 20)).unlink()
    store = real_store(tmp_path)
    with pytest.raises(StoreDamaged, match="no file is there"):
        await store.open()
    await store.close()


async def test_lost_queues_are_built_again(tmp_path: Path) -> None:
    """Queues are derived: without them the log is dispatched anew."""
    await fill(tmp_path, 50)
    for path in (tmp_path / "consumequeue").rglob("0*"):
        if path.is_file():
            path.unlink()
    store = real_store(tmp_path)
    await store.open()
    assert bodies(store) == [b"%032d" % n for n in range(50)]
    await store.close()


async def test_nothing_beyond_the_confirm_offset_is_read(tmp_path: Path) -> None:
    """RIP-44: consumers see only what every replica in sync has (testBuildConsumeQueue...)."""
    store = real_store(tmp_path, enable_controller_mode=True)
    await store.open()
    for number in range(10):
        store.append(message(number))
    store.set_confirm_offset(790)
    await store.wait_dispatched(790)
    assert len(bodies(store)) == 5
    assert store.reader.look(790) is None
    await store.rebuild_queue_offsets()
    assert store.queues.next_offsets[(b"FooBar", 0)] == 10
    await store.close()
    assert struct.unpack_from(">q", (tmp_path / "checkpoint").read_bytes(), 32) == (790,)
    again = real_store(tmp_path, enable_controller_mode=True)
    await again.open()
    assert (again.confirm_offset, again.max_offset, len(bodies(again))) == (790, 1580, 5)
    again.set_confirm_offset(10**9)
    assert again.confirm_offset == 1580
    await again.wait_dispatched(1580)
    assert len(bodies(again)) == 10
    await again.close()


async def test_received_bytes_go_straight_into_the_file(tmp_path: Path) -> None:
    """A replica's log and queues become equal, with frames that cut records in pieces."""
    source, target = real_store(tmp_path / "a"), real_store(tmp_path / "b")
    await source.open()
    await target.open()
    for number in range(250):
        source.append(message(number, body=b"%032d" % number))
    offset = 0
    while offset < source.max_offset:
        length = source.readable(offset, 1000)
        target.reserve(offset, length)[: length // 2] = source.view(offset, length // 2)
        rest = length - length // 2
        target.reserve(offset + length // 2, rest)[:] = source.view(offset + length // 2, rest)
        target.received(offset, length)
        offset += length
    await target.wait_dispatched(target.max_offset)
    assert bodies(target) == [b"%032d" % n for n in range(250)]
    await target.rebuild_queue_offsets()
    assert target.append(message()).queue_offset == 250
    with pytest.raises(ValueError, match="crosses"):
        target.reserve(target.max_offset, 16_385)
    with pytest.raises(ValueError, match="not the next"):
        target.reserve(target.max_offset + 500, 10)
    await source.close()
    await target.close()
    for name in sorted(os.listdir(tmp_path / "a" / "commitlog"))[:-1]:
        path = Path("commitlog") / name
        assert (tmp_path / "a" / path).read_bytes() == (tmp_path / "b" / path).read_bytes()


async def test_files_when_two_ask_at_once_then_no_more_go_than_are_over(tmp_path: Path) -> None:
    """Asked for at any hour (329), beside the store's own round: the second took as many again."""
    at = datetime.now().astimezone()
    store = real_store(
        tmp_path,
        file_reserved_time=0,
        delete_when=((at.hour + 12) % 24,),
        expire_interval_ms=1 << 30,
    )
    await store.open()
    for number in range(400):
        store.append(message(number, body=b"%032d" % number))
    await store.wait_dispatched(store.max_offset)
    await store.flush(store.max_offset)
    assert await store.expiring.expire() == 0
    assert sorted(
        await asyncio.gather(*(store.expiring.expire(is_asked=True) for _ in range(3)))
    ) == [
        0,
        0,
        3,
    ]
    assert store.min_offset == 3 * store.commit_log.file_size
    low = store.reader.min_offset(TOPIC, 0)
    assert bodies(store) == [b"%032d" % n for n in range(low, 400)]
    await store.close()


async def test_an_empty_replica_begins_at_a_file_of_its_master(tmp_path: Path) -> None:
    """After expiry the master's first byte is not 0; queues begin with fillers."""
    source = real_store(tmp_path / "a", file_reserved_time=0, delete_when=tuple(range(24)))
    await source.open()
    for number in range(400):
        source.append(message(number, body=b"%032d" % number))
    await source.wait_dispatched(source.max_offset)
    await source.flush(source.max_offset)
    cut: list[int] = []
    source.expiring._on_prefix_cut = cut.append
    assert await source.expiring.expire() == 3
    first = source.min_offset
    assert cut == [first]
    assert first > 0
    low = source.reader.min_offset(TOPIC, 0)
    assert bodies(source) == [b"%032d" % n for n in range(low, 400)]
    target = real_store(tmp_path / "b")
    await target.open()
    with pytest.raises(ValueError, match="not the next"):
        target.reserve(first + 100, 10)
    offset = first
    while offset < source.max_offset:
        length = source.readable(offset, 4096)
        target.reserve(offset, length)[:] = source.view(offset, length)
        target.received(offset, length)
        offset += length
    await target.wait_dispatched(target.max_offset)
    assert (target.min_offset, target.max_offset) == (first, source.max_offset)
    assert target.reader.min_offset(TOPIC, 0) == low
    assert bodies(target) == bodies(source)
    await source.close()
    await target.close()
    again = real_store(tmp_path / "b")
    await again.open()
    assert len(bodies(again)) == 400 - low
    await again.close()


async def test_a_queue_that_a_cut_empties_begins_at_zero(tmp_path: Path) -> None:
    """#10417: a lowest offset left behind the end hides what is written after the election."""
    store = real_store(tmp_path)
    await store.open()
    store.append(message(0))
    cut_at = store.max_offset
    for number in range(300):
        store.append(message(number, topic="New"))
    await store.wait_dispatched(store.max_offset)
    await store.flush(store.max_offset)
    await store.truncate(cut_at)
    reader = store.reader
    assert (reader.min_offset("New", 0), reader.max_offset("New", 0)) == (0, 0)
    for number in range(3):
        assert store.append(message(number, topic="New")).queue_offset == number
    await store.wait_dispatched(store.max_offset)
    assert (reader.min_offset("New", 0), reader.max_offset("New", 0)) == (0, 3)
    await store.close()
    again = real_store(tmp_path)
    await again.open()
    assert (again.reader.min_offset("New", 0), again.reader.max_offset("New", 0)) == (0, 3)
    await again.close()


@pytest.mark.parametrize("extra", [0, 60])
async def test_a_cut_is_gone_for_good(tmp_path: Path, extra: int) -> None:
    """On a record's start and within one: zeros follow, queues and offsets agree."""
    store = real_store(tmp_path)
    await store.open()
    for number in range(300):
        store.append(message(number))
    await store.wait_dispatched(store.max_offset)
    await store.flush(store.max_offset)
    offset = 16_384 + 30 * SIZE + extra
    before = bytes(store.view(offset - 500, 500))
    await store.truncate(offset)
    assert store.max_offset == store.flushed_offset == offset
    assert bytes(store.view(offset - 500, 500)) == before
    assert len(store.commit_log.files.files) == 2
    assert not any(store.commit_log.files.files[1].buffer[offset - 16_384 :])
    kept = 103 + 30
    assert len(bodies(store)) == kept
    assert store.queues.next_offsets[(b"FooBar", 0)] == kept
    if not extra:
        assert store.append(message(7)).queue_offset == kept
        await store.wait_dispatched(store.max_offset)
        assert len(bodies(store)) == kept + 1
    await store._tasks.close()
    again = real_store(tmp_path)
    await again.open()
    assert again.max_offset == 16_384 + 30 * SIZE + (0 if extra else SIZE)
    await again.truncate(0)
    assert (again.max_offset, bodies(again)) == (0, [])
    assert again.append(message()).queue_offset == 0
    await again.close()


async def test_a_failed_sync_stops_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everybody who waits is told, later writes are refused, and the next start is unclean."""
    store = real_store(tmp_path, flush_disk_type="SYNC_FLUSH", flush_interval_commit_log=10**8)
    told: list[BaseException] = []
    store._on_failed = told.append
    await store.open()
    await put(store, message(0))

    def broken(fd: int) -> None:
        raise OSError(5, "input/output error")

    monkeypatch.setattr(os, "fdatasync", broken)
    results = await asyncio.gather(
        *(put(store, message(n)) for n in range(5)), return_exceptions=True
    )
    assert all(isinstance(result, DiskFailed) for result in results), results
    with pytest.raises(DiskFailed, match="has stopped"):
        store.append(message(9))
    magic, topic, with_size = topic_field(TOPIC)
    plain = Plain((topic, 0), magic, 0, 0, b"body", with_size, b"")
    with pytest.raises(DiskFailed, match="has stopped"):
        store.plain.append_all([plain], BORN, HOST)
    assert len(told) == 1
    monkeypatch.undo()
    await store.close()
    assert (tmp_path / "abort").exists()


async def test_one_sync_serves_all_who_wait(tmp_path: Path) -> None:
    """Group commit: many waiters, few syncs; with SYNC_FLUSH only durable messages are read."""
    store = real_store(tmp_path, flush_disk_type="SYNC_FLUSH", flush_interval_commit_log=10**8)
    await store.open()
    before = store.flusher.rounds
    await asyncio.gather(*(put(store, message(n)) for n in range(64)))
    assert store.flusher.rounds - before <= 3
    assert store.flushed_offset == 64 * SIZE
    store.append(message(64))
    await store.wait_dispatched(64 * SIZE)
    assert len(bodies(store)) == 64
    await store.close()


def test_a_second_process_is_kept_out(tmp_path: Path) -> None:
    """The lock is Java's: byte 0 of the file ``lock``."""
    code = (
        "import sys; from rmqha.runtime.aio.disk import lock_first_byte as f\n"
        "f(sys.argv[1]); print('locked', flush=True); sys.stdin.read()"
    )
    path = str(tmp_path / "store" / "lock")
    with subprocess.Popen(
        [sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        with pytest.raises(StoreInUse):
            lock_first_byte(path)
        other.communicate("")
    os.close(lock_first_byte(path))
    assert Path(path).read_bytes() == b"lock"


BAD_TOPICS = ["a/b", "..", ".", "x" * 256, "a\\b", "a\0b", "a\nb"]


@pytest.mark.parametrize("topic", BAD_TOPICS)
async def test_message_when_its_topic_can_be_no_folder_then_it_is_refused(
    tmp_path: Path, topic: str
) -> None:
    """A record is for ever and on every replica: what cannot be filed is not written."""
    store = real_store(tmp_path)
    await store.open()
    for write in (store.append, store.append_batch):
        with pytest.raises(MessageIllegal):
            write(message(topic=topic))
    assert store.max_offset == 0
    await store.close()


@pytest.mark.costly
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    "bad",
    [*({"topic": topic} for topic in BAD_TOPICS), {"queue_id": -1}],
    ids=lambda one: repr(one)[:30],
)
async def test_record_when_its_queue_can_be_no_folder_then_it_is_passed_over_for_good(
    tmp_path: Path, bad: dict[str, Any], clean: bool
) -> None:
    """Another master wrote it: all others are served, and the store opens again."""
    store = real_store(tmp_path)
    await store.open()
    store.append(message(0))
    store.commit_log.append(message(1, **bad), 0)
    store.append(message(2, body=b"behind it"))
    await store.wait_dispatched(store.max_offset)
    assert bodies(store)[1:] == [b"behind it"]
    assert store.queues.skipped == 1
    if clean:
        await store.close()
    else:
        # Whatever the queues held is lost, so every record is looked at again.
        await store.flush(store.max_offset)
        shutil.copytree(tmp_path / "commitlog", tmp_path / "again" / "commitlog")
        await store.close()
        (tmp_path / "again" / "abort").touch()
    store = real_store(tmp_path if clean else tmp_path / "again")
    await store.open()
    assert bodies(store)[1:] == [b"behind it"]
    assert store.queues.skipped == 1
    assert store.failed is None
    assert store.append(message(3)).queue_offset == 2
    await store.close()
    assert sorted(one.name for one in tmp_path.iterdir() if one.is_dir()) == sorted(
        {"blocksums", "commitlog", "consumequeue", "index"} | (set() if clean else {"again"})
    )


@pytest.mark.parametrize("clean", [True, False])
async def test_last_file_when_it_is_short_and_was_never_used_then_it_goes_after_a_crash_only(
    tmp_path: Path, *, clean: bool
) -> None:
    """A power cut while it got its blocks kept the store shut for good."""
    store = real_store(tmp_path)
    await store.open()
    written = [store.append(message(number)).end for number in range(10)]
    await store.close()
    (tmp_path / "commitlog" / f"{16_384:020}").write_bytes(bytes(8_192))
    if not clean:
        (tmp_path / "abort").touch()
    again = real_store(tmp_path)
    if clean:
        with pytest.raises(StoreMismatch, match="has 8192 bytes"):
            await again.open()
    else:
        await again.open()
        assert again.max_offset == written[-1]
        assert len(bodies(again)) == 10
    await again.close()


async def test_log_when_it_is_being_cut_then_nothing_is_received(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cut would erase it, and the next frame would be taken for the one behind it."""
    store = real_store(tmp_path)
    await store.open()
    ends = [store.append(message(number)).end for number in range(4)]
    gate, reached, erase = asyncio.Event(), asyncio.Event(), store.commit_log.files.erase

    async def slow(low: int, high: int) -> int:
        reached.set()
        await gate.wait()
        return await erase(low, high)

    monkeypatch.setattr(store.commit_log.files, "erase", slow)
    cut = asyncio.create_task(store.truncate(ends[1]))
    await reached.wait()
    with pytest.raises(LocalProtocolError, match="being cut"):
        store.reserve(store.max_offset, 10)
    gate.set()
    await cut
    assert len(store.reserve(store.max_offset, 10)) == 10
    await store.close()
