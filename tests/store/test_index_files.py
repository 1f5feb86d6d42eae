"""Index files: written as Java writes them, read back, rebuilt after crashes and cuts."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.base.errors import DiskFailed
from rmqha.sim.loop import SimLoop
from rmqha.store import properties as props
from rmqha.store.aio import cold_reads
from rmqha.store.aio.index_files import BATCH_MAX, LIGHT_BATCH_MAX, LIGHT_BYTES
from rmqha.store.aio.message_store import MessageStore
from rmqha.store.aio.room import SLOW_MS
from rmqha.store.index_file import (
    INT_MAX,
    INT_MIN,
    IndexFile,
    IndexWriter,
    file_size,
    gather_keys,
    key_hash,
    key_hashes,
)
from rmqha.store.record import Message, encode_into, encoded_size, pack_host
from tests.store.harness import BORN_MS, TOPIC, message, new_disk, real_store, sim_store, simulate

SLOTS, UNITS = 8, 40
RECORD_SIZE = 158
"""Of the harness's messages."""
HOST = pack_host("10.0.0.1", 10911)
INDEXED: dict[str, Any] = {
    "message_index_enable": True, "max_hash_slot_num": SLOTS, "max_index_num": UNITS,
}  # fmt: skip
EVER: dict[str, int] = {"begin_ms": 0, "end_ms": 1 << 62}

KEYS = st.text(alphabet="abcäß漢😀-_:%", min_size=1, max_size=12)


LONG_KEYS = st.text(alphabet="abZ9_-:", min_size=1, max_size=90)


@given(
    topic=st.text(alphabet="abcT%_-", min_size=1, max_size=9),
    keys=st.lists(KEYS | LONG_KEYS, max_size=4),
)
def test_hashes_when_made_from_properties_then_those_of_java(topic: str, keys: list[str]) -> None:
    """The hash of topic#key is put together from that of its prefix."""
    pairs = {"UNIQ_KEY": "U1", "KEYS": " ".join(keys)} if keys else {"UNIQ_KEY": "U1"}
    expected = [key_hash(topic, key) for key in ["U1", *keys]]
    assert key_hashes(topic.encode(), props.encode(pairs)) == expected
    assert all(0 <= value <= -INT_MIN - 1 for value in expected)


@given(
    puts=st.lists(
        st.tuples(st.sampled_from(["a", "b", "c", "Aa", "BB"]), st.integers(0, 5_000)), max_size=60
    ),
    crash_at=st.integers(0, 60),
    published=st.integers(0, 60),
    group=st.integers(1, 20),
)
def test_file_when_written_then_read_as_it_was_put(
    puts: list[tuple[str, int]], crash_at: int, published: int, group: int
) -> None:
    """Whatever was published before a crash: putting the rest again gives the very same file."""
    buffers = [bytearray(file_size(SLOTS, UNITS)) for _ in range(2)]
    clock, stored = 1_000_000, []
    for number, (key, step_ms) in enumerate(puts):
        clock += step_ms
        stored.append((key, 100 * number, clock))
    _put_all(buffers[0], stored)
    published = min(published, crash_at)
    writer = IndexWriter(buffers[1], SLOTS, UNITS)
    for number, one in enumerate(stored[:crash_at]):
        if number == published:
            writer.publish()
        _put(writer, one)
    if published >= len(stored[:crash_at]):
        writer.publish()
    _put_all(buffers[1], stored[published:], group)
    assert buffers[0] == buffers[1]
    index = IndexFile(bytes(buffers[1]), SLOTS)
    fitted = stored[: UNITS - 1]
    for key in {"a", "b", "c", "Aa", "BB"}:
        expected = [offset for one, offset, _ in reversed(fitted) if one == key]
        found = index.find("T", key, **EVER, limit=100)
        if key in ("Aa", "BB"):
            # Two texts of one hash: the reader of the log tells them apart.
            expected = [offset for one, offset, _ in reversed(fitted) if one in ("Aa", "BB")]
        assert found == expected


def _put(writer: IndexWriter, one: tuple[str, int, int]) -> None:
    if not writer.is_full:
        assert writer.put([(key_hash("T", one[0]), *one[1:])]) == 1


def _put_all(buffer: bytearray, stored: list[tuple[str, int, int]], group: int = 1) -> None:
    """So many at a time."""
    writer = IndexWriter(buffer, SLOTS, UNITS)
    keys = [(key_hash("T", key), *rest) for key, *rest in stored]
    for at in range(0, len(keys), group):
        put = writer.put(keys[at : at + group])
        assert put == len(keys[at : at + group]) or writer.is_full
    writer.publish()


@given(
    records=st.lists(
        st.tuples(
            st.sampled_from(["T", "%RETRY%g", "ü"]),
            st.sampled_from([
                "UNIQ_KEY\x01{}\x02", "A\x01b\x02UNIQ_KEY\x01{}\x02WAIT\x01true", "UNIQ_KEY\x01{}",
                "KEYS\x01k {}\x02UNIQ_KEY\x01{}\x02", "", "XUNIQ_KEY\x01{}\x02", "UNIQ_KEY\x01\x02{}",
                "UNIQ_KEY\x01{}\x02UNIQ_KEY\x01second\x02",
            ]),
            st.text(alphabet="0123456789ABCDEF", min_size=32, max_size=32)
            | st.text(alphabet="aä", max_size=20),
            st.sampled_from([0, 1, 4, 8]),
        ),
        max_size=12,
    ),
    count_max=st.integers(1, 14),
)  # fmt: skip
def test_keys_when_gathered_from_a_run_then_those_of_each_record(
    records: list[tuple[str, str, str, int]], count_max: int
) -> None:
    """A run ends at the first record of a transaction, and misses no other key."""
    log, expected, base = bytearray(), [], 3 << 20
    usual = True
    for number, (topic, pairs, key, sys_flag) in enumerate(records):
        properties = pairs.format(key, key).encode()
        one = Message(topic, 1, b"body", properties, 5, HOST, HOST, sys_flag)
        size = encoded_size(one, property_crc=False)
        usual = usual and not sys_flag & 0xC and number < count_max
        if usual:
            expected += [
                (value, base + len(log), 1_000 + number)
                for value in key_hashes(topic.encode(), properties)
            ]
            end = len(log) + size
        at = len(log)
        log += bytes(size)
        encode_into(
            log, at, one, size=size, queue_offset=0, physical_offset=base + at,
            store_timestamp=1_000 + number,
        )  # fmt: skip
    stop, keys = gather_keys(memoryview(log), 0, len(log), base, count_max=count_max)
    assert keys == expected
    assert stop == (end if expected or (records and not records[0][3] & 0xC) else 0)


def keyed(number: int) -> Any:
    """A message with a key and a UNIQ_KEY of its own."""
    pairs = {"UNIQ_KEY": f"U{number}", "KEYS": f"k{number} all"}
    return message(number, body=b"b%d" % number, properties=props.encode(pairs))


def by_key(store: MessageStore, key: str, limit: int = 500) -> list[bytes]:
    """Bodies of the messages with a key, newest first."""
    return [record.body for record in store.reader.query(TOPIC, key, **EVER, limit=limit)]


async def indexed(store: MessageStore) -> None:
    """Wait until the index has all of the log."""
    while store.indexes.position < store.max_offset:
        await store._clock.sleep(5)


async def test_messages_when_stored_then_found_by_each_key_over_several_files(
    tmp_path: Path,
) -> None:
    """UNIQ_KEY and every word of KEYS; files roll when they are full."""
    store = real_store(tmp_path, **INDEXED)
    await store.open()
    for number in range(50):
        store.append(keyed(number))
    await indexed(store)
    assert len(list((tmp_path / "index").iterdir())) == 4
    assert [by_key(store, f"{letter}{n}") for n in (0, 17, 49) for letter in "kU"] == [
        [b"b%d" % n] for n in (0, 17, 49) for _ in "kU"
    ]
    assert by_key(store, "all") == [b"b%d" % n for n in reversed(range(50))]
    assert by_key(store, "all", 3) == [b"b49", b"b48", b"b47"]
    assert by_key(store, "k50") == []
    await store.close()
    again = real_store(tmp_path, **INDEXED)
    assert (await again.open()).clean
    assert len(by_key(again, "all")) == 50
    again.append(keyed(50))
    await indexed(again)
    assert by_key(again, "all")[:2] == [b"b50", b"b49"]
    assert len(by_key(again, "all")) == 51
    await again.close()


def test_index_when_power_fails_then_every_record_is_found_again() -> None:
    """A file that was not full is not trusted after a crash; its keys are read from the log."""
    for seed in range(12):
        disk, dice = new_disk(seed), random.Random(seed)
        loop = SimLoop()

        async def life(loop: SimLoop = loop, disk: Any = disk, dice: Any = dice) -> int:
            store = sim_store(loop, disk, **INDEXED)
            await store.open()
            for number in range(dice.randint(5, 60)):
                store.append(keyed(number))
                if not dice.randint(0, 7):
                    await store.flush(store.max_offset)
                    await store._clock.sleep(dice.randint(1, 400))
            await store.flush(store.max_offset)
            await indexed(store)
            await store._tasks.close()
            return number + 1

        count = simulate(life(), loop)
        loop.close()
        disk.power_cut()
        loop = SimLoop()

        async def after(loop: SimLoop = loop, disk: Any = disk, count: int = count) -> None:
            store = sim_store(loop, disk, **INDEXED)
            assert not (await store.open()).clean
            await indexed(store)
            assert by_key(store, "all") == [b"b%d" % n for n in reversed(range(count))]
            await store.close()

        simulate(after(), loop)
        loop.close()


async def test_index_when_the_log_is_cut_then_only_what_is_there_is_found(tmp_path: Path) -> None:
    """A slave's tail may be replaced by another one: old keys are hints that lead nowhere."""
    store = real_store(tmp_path, **INDEXED)
    await store.open()
    results = [store.append(keyed(number)) for number in range(10)]
    await indexed(store)
    await store.truncate(results[6].offset)
    store.append(keyed(100))
    await indexed(store)
    assert by_key(store, "all") == [b"b100", *(b"b%d" % n for n in reversed(range(6)))]
    assert by_key(store, "k8") == []
    await store.truncate(results[3].offset)
    await store.close()
    again = real_store(tmp_path, **INDEXED)
    await again.open()
    again.append(keyed(200))
    await indexed(again)
    assert by_key(again, "all") == [b"b200", b"b2", b"b1", b"b0"]
    await again.close()


@given(
    slots=st.integers(1, 9_000),
    hashes=st.lists(st.lists(st.integers(0, INT_MAX), min_size=1, max_size=30), max_size=6),
)
def test_places_when_keys_are_put_then_no_other_byte_changes(
    slots: int, hashes: list[list[int]]
) -> None:
    """What would be written elsewhere might wait for the disk."""
    units = 300
    buffer = bytearray(file_size(slots, units))
    writer = IndexWriter(buffer, slots, units)
    for number, values in enumerate(hashes):
        keys = [(value, 1_000 * number + at, 1_000_000) for at, value in enumerate(values)]
        places, before = writer.places(keys), bytes(buffer)
        writer.put(keys)
        writer.publish()
        for low, high in places:
            assert 0 <= low < high <= len(buffer)
            before = before[:low] + bytes(buffer[low:high]) + before[high:]
        assert bytes(buffer) == before
        assert len(places) <= len(values) + 3


async def test_index_when_writes_wait_then_its_pages_are_made_writable_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for the index, so it may wait; and what it writes is the same."""
    store = real_store(tmp_path, **INDEXED)
    await store.open()
    store.append(keyed(0))
    await indexed(store)
    made: list[bytes] = []
    make = store.room.make_in

    async def watched(file: Any, ranges: Any) -> None:
        await make(file, ranges)
        if "/index/" in file.path:
            made.append(bytes(file.buffer))

    monkeypatch.setattr(store.room, "make_in", watched)
    store.append(keyed(1))
    await indexed(store)
    assert made == []
    store.room.wrote(store._clock.now_ms() - SLOW_MS)
    for number in range(2, 50):
        store.append(keyed(number))
    await indexed(store)
    assert len(made) >= len(list((tmp_path / "index").iterdir())) >= 4
    assert by_key(store, "all") == [b"b%d" % n for n in reversed(range(50))]
    await store.close()


async def test_index_when_the_log_is_cut_while_it_waits_then_it_goes_on_at_the_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = real_store(tmp_path, **INDEXED)
    await store.open()
    results = [store.append(keyed(number)) for number in range(5)]
    await indexed(store)
    waits, may_go = asyncio.Event(), asyncio.Event()

    async def slow(file: Any, ranges: Any) -> None:
        if "/index/" in file.path:
            waits.set()
            await may_go.wait()

    monkeypatch.setattr(store.room, "make_in", slow)
    store.room.wrote(store._clock.now_ms() - SLOW_MS)
    store.append(keyed(5))
    await waits.wait()
    await store.truncate(results[3].offset)
    store.append(keyed(100))
    may_go.set()
    await indexed(store)
    assert by_key(store, "all") == [b"b100", b"b2", b"b1", b"b0"]
    assert by_key(store, "k5") == []
    await store.close()
    again = real_store(tmp_path, **INDEXED)
    await again.open()
    assert by_key(again, "k100") == [b"b100"]
    await again.close()


async def test_index_when_a_put_has_waited_then_room_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = real_store(tmp_path, **INDEXED)
    await store.open()
    told: list[int] = []
    monkeypatch.setattr(store.room, "wrote", told.append)
    store.append(keyed(0))
    assert len(told) == 1
    await indexed(store)
    assert len(told) == 2
    await store.close()


@pytest.mark.parametrize("count", [20, 600])
async def test_index_when_little_has_come_then_it_is_put_in_small_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Who sends one message at a time waits for at most one of them; a flood is put as quickly as can be."""
    store = real_store(
        tmp_path, message_index_enable=True, max_hash_slot_num=500, max_index_num=5_000,
        mapped_file_size_commit_log=1 << 20,
    )  # fmt: skip
    await store.open()
    steps: list[int] = []
    step, before = store.indexes.step, store.indexes.position

    async def watched(count_max: int) -> None:
        begin = store.indexes.position
        await step(count_max)
        steps.append((store.indexes.position - begin) // RECORD_SIZE)

    monkeypatch.setattr(store.indexes, "step", watched)
    for number in range(count):
        store.append(message(number))
    assert (store.max_offset - before < LIGHT_BYTES) == (count == 20)
    await indexed(store)
    assert sum(steps) == count
    assert max(steps) == (LIGHT_BATCH_MAX if count == 20 else BATCH_MAX)
    await store.close()


@pytest.mark.parametrize("expires", [False, True])
async def test_index_when_the_log_cannot_be_read_then_it_passes_that_part_and_the_store_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, expires: bool
) -> None:
    """One sector of an old file ended the broker, and at every start anew, for the index begins there.

    A file that expires while it is read cannot be read, either, and nothing of it is missed."""
    monkeypatch.setattr(cold_reads, "COLD_BYTES", 1)
    store = real_store(tmp_path)
    await store.open()
    for number in range(400):
        store.append(message(number))
    await store.close()
    store = real_store(tmp_path, **INDEXED)
    run = store.indexes.run
    monkeypatch.setattr(store.indexes, "run", lambda: asyncio.sleep(0))
    await store.open()
    file, size, bad = store.commit_log.files.files[1], store.file_size, 20 * RECORD_SIZE
    fetch = file.fetch

    async def broken(low: int, high: int) -> None:
        if low <= bad < high:
            if expires and high - low < size:
                store.commit_log.files.leave_before(2 * size)
            raise DiskFailed("Input/output error")
        await fetch(low, high)

    monkeypatch.setattr(store.commit_log, "is_cached", lambda begin, end: False)
    monkeypatch.setattr(file, "fetch", broken)
    indexing = asyncio.create_task(run())
    async with asyncio.timeout(10):
        while store.indexes.position < store.max_offset and not indexing.done():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    indexing.cancel()
    assert store.failed is None
    skipped = 0 if expires else store.indexes.skipped_bytes
    assert store.indexes.skipped_bytes == skipped
    found = {
        offset for number in range(400)
        for offset in store.indexes.find(TOPIC, str(BORN_MS + number), limit=9, **EVER)
    }  # fmt: skip
    ours = {number * RECORD_SIZE for number in range(size // RECORD_SIZE)}
    if not expires:
        # Before the place each record is there, though its file was read in larger pieces.
        assert ours <= found
        assert len(found) > 3 * len(ours) - 20
        assert 0 < skipped < size
    assert max(found) > 3 * size
    await store.close()


async def test_index_when_the_log_is_cut_while_its_next_file_is_made_then_no_key_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records were gathered before the cut, and those that came in their place never were."""
    settings = INDEXED | {"max_index_num": 10}
    store = real_store(tmp_path, **settings)
    await store.open()
    waits, goes_on, real = asyncio.Event(), asyncio.Event(), store.indexes._next_file
    for number in range(9):
        store.append(one_key(f"old{number}"))
    await indexed(store)

    async def next_file() -> IndexWriter:
        waits.set()
        await goes_on.wait()
        return await real()

    monkeypatch.setattr(store.indexes, "_next_file", next_file)
    results = [store.append(one_key(f"cut{number}")) for number in range(8)]
    await waits.wait()
    await store.truncate(results[2].offset)
    for number in range(3):
        store.append(one_key(f"new{number}"))
    await store.wait_dispatched(store.max_offset)
    goes_on.set()
    store.append(one_key("last"))
    await store.wait_dispatched(store.max_offset)
    await indexed(store)
    for again in (False, True):
        for key in ("old8", "cut0", "cut1", "new0", "new1", "new2", "last"):
            assert store.indexes.find(TOPIC, key, limit=5, **EVER), (key, again)
        if not again:
            await store.close()
            store = real_store(tmp_path, **settings)
            await store.open()
            await indexed(store)
    await store.close()


def one_key(key: str) -> Message:
    return message()._replace(properties=props.encode({"KEYS": key}))
