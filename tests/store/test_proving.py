"""Nothing goes to a slave, or to a reader, that is not what was written: quickly, and record by record."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.store import properties as props
from rmqha.store import record as rec
from rmqha.store.aio.message_store import MessageStore
from rmqha.store.whole import pass_whole
from tests.store.harness import BORN_MS, message, real_store

FILES, COUNT = 5, 400


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


async def rotten(root: Path, *, crc: bool) -> tuple[MessageStore, list[int], list[int]]:
    """A store that was opened anew, with a flipped bit in the bodies of some records: where they begin,
    and all begins with the end."""
    settings = {"unchecked_tail_bytes": 0, "enabled_append_prop_crc": crc}
    store = real_store(root, **settings)
    await store.open()
    sizes = random.Random(7)
    starts = [
        store.append(message(number, body=b"b" * sizes.randint(1, 400))).offset
        for number in range(COUNT)
    ]
    starts.append(store.max_offset)
    assert len(store.commit_log.segments()) >= FILES
    await store.close()
    store = real_store(root, **settings)
    await store.open()
    bad = sizes.sample(starts[:-1], 5)
    for at in bad:
        store.commit_log.view(at + rec.check_record(
            store.commit_log.view(at, 200), 0, 200, at, check_crc=False
        ).body_at, 1)[0] ^= 4  # fmt: skip
    return store, sorted(bad), starts


@pytest.mark.parametrize("crc", [False, True])
async def test_range_when_it_is_asked_about_then_only_rotten_records_in_it_count(
    tmp_path: Path, *, crc: bool
) -> None:
    """Ranges begin and end in the middle of records and of files; some follow each other, as a slave
    that catches up reads, and most do not."""
    store, bad, starts = await rotten(tmp_path, crc=crc)
    rng, following, told = random.Random(3), 0, set()
    for turn in range(600):
        offset = following if turn % 3 else rng.randrange(store.max_offset)
        length = min(rng.choice([1, 90, 700, 5_000, 20_000]), store.max_offset - offset)
        length = store.readable(offset, length)
        if not length:
            following = 0
            continue
        following = (offset + length) % store.max_offset
        touched = [
            begin for begin, end in pairwise(starts)
            if begin < offset + length and end > offset
        ]  # fmt: skip
        is_whole = not set(touched) & set(bad)
        proven = store.is_proven(offset, length)
        told.add(proven)
        # Where it begins within a record, nobody looks for that record's start at once.
        assert proven is is_whole or (not proven and offset not in starts), (offset, length)
        if proven:
            assert is_whole
    assert told == {True, False}
    await store.close()


async def test_log_when_a_slave_reads_all_of_it_then_each_batch_goes_at_once(
    tmp_path: Path,
) -> None:
    store, bad, _ = await rotten(tmp_path, crc=False)
    offset = 0
    while offset < store.max_offset:
        length = store.readable(offset, 3_000)
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
