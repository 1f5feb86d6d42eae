"""Nothing goes to a slave, or to a reader, that is not what was written: quickly, and record by record."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.store import properties as props
from rmqha.store import record as rec
from rmqha.store.aio import cold_reads
from rmqha.store.aio.message_store import MessageStore
from rmqha.store.block_sums import BlockSums, Summed
from rmqha.store.whole import pass_whole
from tests.store.harness import BORN_MS, message, real_store

FILES, COUNT = 5, 400
BLOCK = 3_000
"""Of which a file is no multiple."""


def log_of(messages: list[tuple[rec.Message, bool]]) -> tuple[bytearray, list[int]]:
    """Records, some with a CRC of their own, and where each begins; the end at last."""
    log, starts = bytearray(), [0]
    for number, (one, crc) in enumerate(messages):
        size = rec.encoded_size(one, property_crc=crc)
        log += bytes(size)
        rec.encode_into(
            log, starts[-1], one, size=size, queue_offset=number, physical_offset=starts[-1],
            store_timestamp=BORN_MS, property_crc=crc,
        )  # fmt: skip
        starts.append(len(log))
    return log, starts


@given(st.lists(st.booleans(), min_size=1, max_size=6), st.data())
def test_record_with_a_crc_of_its_own_when_any_byte_of_it_is_another_then_it_is_not_passed(
    crcs: list[bool], data: st.DataObject
) -> None:
    """The quick loop knows the body's CRC only, and passed a topic or a queue that had changed."""
    log, starts = log_of([(message(number), crc) for number, crc in enumerate([*crcs, True])])
    last = len(crcs)
    assert pass_whole(memoryview(log), 0, len(log), 0) == (last + 1, len(log), "")
    at = data.draw(st.integers(starts[last], starts[last + 1] - props.CRC_SIZE - 1))
    log[at] ^= 1 << data.draw(st.integers(0, 7))
    found = pass_whole(memoryview(log), 0, len(log), 0)
    assert (found.records, found.position) == (last, starts[last])
    assert found.reason


def small_blocks(store: MessageStore) -> MessageStore:
    """The same store with several blocks in each of its small files."""
    store.proving.summing.sums = BlockSums(store.file_size, BLOCK)
    return store


async def rotten(root: Path, *, crc: bool) -> tuple[MessageStore, list[int], list[int]]:
    """A store that was opened anew, with a flipped bit in the bodies of some records: where they begin,
    and all begins with the end."""
    settings = {"unchecked_tail_bytes": 0, "enabled_append_prop_crc": crc}
    store = small_blocks(real_store(root, **settings))
    await store.open()
    sizes = random.Random(7)
    starts = [
        store.append(message(number, body=b"b" * sizes.randint(1, 400))).offset
        for number in range(COUNT)
    ]
    starts.append(store.max_offset)
    assert len(store.commit_log.segments()) >= FILES
    await store.close()
    store = small_blocks(real_store(root, **settings))
    await store.open()
    bad = sizes.sample(starts[:-1], 5)
    for at in bad:
        buffer, head = store.commit_log.check(at)
        buffer[head.body_at] ^= 4
    return store, sorted(bad), starts


@pytest.mark.few
@pytest.mark.parametrize("known", ["all", "some", "none"])
@pytest.mark.parametrize("crc", [False, True])
async def test_range_when_it_is_asked_about_then_only_rotten_records_in_it_count(
    tmp_path: Path, *, crc: bool, known: str
) -> None:
    """Ranges begin and end in the middle of records, blocks and files; some follow each other, as a slave
    that catches up reads, and most do not. It makes no difference whose sums are known."""
    store, bad, starts = await rotten(tmp_path, crc=crc)
    rng, following, told = random.Random(3), 0, set()
    sums = store.proving.summing
    for turn in range(600):
        offset = following if turn % 3 else rng.randrange(store.max_offset)
        length = min(rng.choice([1, 90, 700, 5_000, 20_000]), store.max_offset - offset)
        length = store.readable(offset, length)
        if not length:
            following = 0
            continue
        following = (offset + length) % store.max_offset
        await sums.load(offset)
        if known != "all":
            forget(store, rng, 1.0 if known == "none" else 0.1)
        touched = [
            begin for begin, end in pairwise(starts)
            if begin < offset + length and end > offset
        ]  # fmt: skip
        is_whole = not set(touched) & set(bad)
        proven = store.is_proven(offset, length)
        assert is_whole or not proven
        told.add(proven)
        # Where it begins within a record, nobody looks for that record's start at once.
        assert await store.prove(offset, length) is is_whole, (offset, length)
    assert told == {True, False}
    assert known == "some" or bool(sums.differing) is (known == "all")
    await store.close()


def forget(store: MessageStore, rng: random.Random, share: float) -> None:
    """A share of the sums that are in memory."""
    for file in store.proving.summing.sums.files.values():
        for number in range(len(file.lengths)):
            if rng.random() < share:
                file.lengths[number] = 0


async def test_log_when_a_slave_reads_all_of_it_then_each_batch_goes_at_once(
    tmp_path: Path,
) -> None:
    store, bad, _ = await rotten(tmp_path, crc=False)
    offset = 0
    while offset < store.max_offset:
        length = store.readable(offset, 3_000)
        await store.proving.summing.load(offset)
        if not store.is_proven(offset, length):
            break
        offset += length
    assert bad[0] < offset + 3_000, "up to the first that is rotten"
    assert offset <= bad[0]
    await store.close()


@pytest.mark.parametrize("crc", [False, True])
async def test_batch_when_its_records_are_ordinary_then_no_more_than_one_takes_the_careful_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, crc: bool
) -> None:
    """A call for each made a slave that catches up four times as slow as Java's, and no test noticed."""
    store = real_store(
        tmp_path, unchecked_tail_bytes=0, mapped_file_size_commit_log=1 << 20,
        enabled_append_prop_crc=crc,
    )  # fmt: skip
    await store.open()
    for number in range(COUNT):
        store.append(message(number))
    careful, check = [], store.commit_log.check

    def counted(offset: int, *, check_crc: bool = False) -> tuple[memoryview, rec.Head]:
        careful.append(offset)
        return check(offset, check_crc=check_crc)

    monkeypatch.setattr(store.commit_log, "check", counted)
    end, batches = store.max_offset, 4
    for turn in range(batches):
        begin = end * turn // batches
        assert store.is_proven(begin, end * (turn + 1) // batches - begin)
    assert 0 < len(careful) <= batches + 1, "the last of each, and where the first begins"
    await store.close()


async def test_log_when_all_its_sums_are_known_then_a_slave_is_served_without_a_look_at_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quarter of the rate was left where each record was checked."""
    settings = {"unchecked_tail_bytes": 0, "mapped_file_size_commit_log": 1 << 20}
    store = real_store(tmp_path, **settings)
    await store.open()
    for number in range(3 * COUNT):
        store.append(message(number, body=b"b" * 1000))
    await store.close()
    store = real_store(tmp_path, **settings)
    await store.open()
    scanned, summed = [], []
    scan, fits = store.commit_log.scan, store.proving.summing._fits
    monkeypatch.setattr(
        store.commit_log, "scan", lambda *one, **more: scanned.append(one) or scan(*one, **more)
    )
    monkeypatch.setattr(store.proving.summing, "_fits", lambda one: summed.append(one) or fits(one))
    offset, waited = 0, 0
    while offset < store.max_offset:
        length = store.readable(offset, 10_000)
        if not store.is_proven(offset, length):
            waited += 1
            assert await store.prove(offset, length)
        offset += length
    files = len(store.commit_log.segments())
    assert files == 2
    assert not scanned
    assert waited == 1, (
        "the sums of the first file are read; those of the last one were at the start"
    )
    begins = [one.begin for one in summed]
    assert begins == sorted(set(begins)), "each block once"
    assert summed[-1].end == store.max_offset, "the part of a block at the end as well"
    await store.close()


class ShortMemory:
    """Pages of a log that come and go; who looks at a block has all of it, or waits."""

    PAGE = 512

    def __init__(self, store: MessageStore, patch: pytest.MonkeyPatch) -> None:
        self.pages: set[int] = set()
        self.fetched = self.looks = 0
        self._fits = store.proving.summing._fits
        patch.setattr(cold_reads, "COLD_BYTES", 0)
        patch.setattr(store.commit_log, "is_cached", self.is_cached)
        patch.setattr(store.commit_log, "fetch", self.fetch)
        patch.setattr(store.proving.summing, "_fits", self.looked_at)

    def _of(self, begin: int, end: int) -> set[int]:
        return {*range(begin // self.PAGE, (end - 1) // self.PAGE + 1)}

    def is_cached(self, begin: int, end: int) -> bool:
        """Whether all of it is there."""
        return self._of(begin, end) <= self.pages

    async def fetch(self, begin: int, end: int) -> None:
        """Have it there."""
        self.fetched += 1
        self.pages |= self._of(begin, end)

    def looked_at(self, summed: Summed) -> bool:
        """A page that is not there would hold up the loop."""
        self.looks += 1
        assert self.is_cached(summed.begin, summed.end), summed
        return self._fits(summed)

    def forget(self, rng: random.Random) -> None:
        """Half of the pages go."""
        self.pages = {page for page in self.pages if rng.random() < 0.5}


async def test_block_when_a_part_has_left_the_memory_then_it_is_read_before_anybody_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch for a slave is in memory when it is asked about, and the blocks at its ends need not be."""
    store, bad, starts = await rotten(tmp_path, crc=False)
    for start in store.commit_log.segments():
        await store.proving.summing.load(start.start)
    memory, rng = ShortMemory(store, monkeypatch), random.Random(5)
    sums = store.proving.summing.sums
    flipped = [at + store.commit_log.check(at)[1].body_at - at % store.file_size for at in bad]
    following, waited = 0, 0
    for turn in range(400):
        offset = following if turn % 3 else rng.randrange(store.max_offset)
        length = store.readable(offset, rng.choice([90, 700, 5_000]))
        if not length:
            following = 0
            continue
        following = (offset + length) % store.max_offset
        memory.forget(rng)
        if store.is_cold(offset, length):
            await store.fetch(offset, length)
        touched = {
            begin for begin, end in pairwise(starts)
            if begin < offset + length and end > offset
        }  # fmt: skip
        # A record may be rotten in a block before the one that the batch begins in.
        is_rotten = any(offset <= at < offset + length for at in flipped)
        may_be = bool(touched & set(bad))
        proven, fetched = store.is_proven(offset, length), memory.fetched
        assert not (proven and is_rotten)
        if not proven:
            assert await store.prove(offset, length) in {not is_rotten, not may_be}
            waited += memory.fetched > fetched
            ends = (
                sums.bounds(offset)[0],
                min(sums.bounds(offset + length - 1)[1], store.max_offset),
            )
            assert memory.is_cached(*ends), "or its last records are looked at one by one"
    assert memory.looks > 100
    assert waited > 50, "blocks that were there in part"
    await store.close()


@pytest.mark.parametrize("is_cut", [False, True])
async def test_range_when_it_goes_while_it_is_read_then_it_may_not_be_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_cut: bool
) -> None:
    """A sum was held against bytes that the log had no more, and the master ended."""
    store, _, _ = await rotten(tmp_path, crc=False)
    fetch = store.cold.fetch

    async def slow(runs: Sequence[Sequence[int]]) -> bool:
        waited = await fetch(runs)
        if is_cut:
            await store.truncate(BLOCK)
        else:
            store.commit_log.files.leave_before(store.file_size)
        return waited

    monkeypatch.setattr(store.cold, "fetch", slow)
    assert not await store.prove(BLOCK, BLOCK)
    await store.close()


async def test_range_when_it_goes_while_a_record_is_looked_for_then_nothing_counts_as_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a range begins in the middle of a record, to find its start takes turns of the loop."""
    store, _, starts = await rotten(tmp_path, crc=False)
    find = store.proving._record_start
    for start in store.commit_log.segments():
        await store.proving.summing.load(start.start)
    forget(store, random.Random(1), 1.0)

    async def slow(position: int) -> int:
        found = await find(position)
        store.commit_log.files.leave_before(store.file_size)
        return found

    monkeypatch.setattr(store.proving, "_record_start", slow)
    assert not await store.prove(starts[1] + 10, 1_000)
    assert store.min_offset == store.file_size
    assert not store.mending.damaged
    await store.close()
