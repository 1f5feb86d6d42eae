"""Queues of a few units are opened by a look from outside: the same as by mapping them."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from rmqha.runtime.aio.disk import SystemDisk
from rmqha.runtime.aio.sparse_file import SparseMappedFile
from rmqha.runtime.ports import Surveyed
from rmqha.store.aio.queue_files import QueueFiles
from rmqha.store.consume_queue import BATCH_UNIT, FILLER, UNIT
from tests.store.harness import message, real_store

FILE_BYTES = 4000 * UNIT.size
START = f"{0:020d}"


def units(count: int, first: int = 0) -> bytes:
    """Whole units of records of 100 bytes."""
    return b"".join(UNIT.pack(100 * (first + number), 100, 7) for number in range(count))


def queue_at(root: Path, content: bytes) -> tuple[QueueFiles, list[Surveyed]]:
    """A queue whose first file holds these bytes, and what a survey finds of it."""
    folder = root / "topic" / "0"
    folder.mkdir(parents=True)
    with (folder / START).open("wb") as file:
        file.write(content)
        file.truncate(FILE_BYTES)
    disk = SystemDisk()
    found = asyncio.run(disk.survey(str(root / "topic"), 65_536))
    return QueueFiles(disk, str(folder), FILE_BYTES, batch=False), found["0"]


@pytest.mark.parametrize("content", [b"", units(1), units(300), FILLER * 5 + units(2, 5)])
def test_queue_when_adopted_then_it_is_as_if_it_had_been_recovered(
    content: bytes, tmp_path: Path
) -> None:
    """An end that differs would overwrite units, or leave a gap."""
    adopted, found = queue_at(tmp_path, content)
    assert adopted.adopt(found, durable=True)
    (file,) = adopted.files.files
    assert isinstance(file, SparseMappedFile)
    assert not file.is_mapped, "80,000 mappings took a minute"
    recovered = QueueFiles(SystemDisk(), adopted.files.directory, FILE_BYTES, batch=False)
    asyncio.run(recovered.recover())
    for one in (adopted, recovered):
        assert one.end == len(content)
        assert one.dirty_from == one.end
    assert adopted.indexed_end == recovered.indexed_end
    assert adopted.last_unit() == recovered.last_unit()
    assert adopted.max_offset == recovered.max_offset
    adopted.put(90_000, 100, 7, adopted.max_offset)
    assert adopted.last_unit() == (len(content) // UNIT.size, 90_000, 100)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (units(2) + b"torn", "a torn tail is to be erased"),
        (units(3, 5) + units(1), "a unit that lies before the last one, too"),
        (units(3500), "it has more than is read of it"),
    ],
    ids=["torn", "backwards", "long"],
)
def test_queue_when_more_is_to_be_done_then_it_is_not_adopted(
    content: bytes, why: str, tmp_path: Path
) -> None:
    """What is behind the end would be taken for units later."""
    queue, found = queue_at(tmp_path, content)
    assert not queue.adopt(found, durable=True), why


def test_queue_when_it_has_two_files_or_another_length_then_it_is_not_adopted(
    tmp_path: Path,
) -> None:
    """Gaps and other settings are the recovery's to judge."""
    queue, (one,) = queue_at(tmp_path, units(2))
    second = one._replace(name=f"{FILE_BYTES:020d}")
    assert not queue.adopt([one, second], durable=True)
    assert not queue.adopt([one._replace(size=FILE_BYTES // 2)], durable=True)
    assert not queue.adopt([], durable=True)


def test_queue_when_the_stop_was_not_clean_then_its_units_are_synced_at_the_start(
    tmp_path: Path,
) -> None:
    """After kill -9 the page cache has them and the disk may not; the checkpoint vouches for them."""
    queue, found = queue_at(tmp_path, units(2))
    assert queue.adopt(found, durable=False)
    assert (queue.dirty_from, queue.end) == (0, 2 * UNIT.size)


def test_queue_of_batches_when_adopted_then_its_units_are_of_their_own_length(
    tmp_path: Path,
) -> None:
    """46 bytes, not 20."""
    _, (one,) = queue_at(tmp_path, units(1))
    size, head = 16 * BATCH_UNIT.size, BATCH_UNIT.pack(0, 100, 7, 1, 0, 3, 0, 0)
    os.truncate(tmp_path / "topic" / "0" / START, size)
    queue = QueueFiles(SystemDisk(), str(tmp_path / "topic" / "0"), size, batch=True)
    assert queue.adopt([one._replace(size=size, head=head)], durable=True)
    assert (queue.end, queue.indexed_end) == (BATCH_UNIT.size, 100)


def test_store_when_opened_again_then_each_queue_goes_on_where_it_was(tmp_path: Path) -> None:
    """Through the whole of an opening, after a clean stop."""

    async def play() -> None:
        store = real_store(tmp_path, mapped_file_size_consume_queue=FILE_BYTES)
        await store.open()
        for number in range(40):
            store.append(message(number, queue_id=number % 8))
        await store.wait_dispatched(store.max_offset)
        before = {key: (q.end, q.indexed_end) for key, q in store.queues.queues.items()}
        await store.close()
        store = real_store(tmp_path, mapped_file_size_consume_queue=FILE_BYTES)
        await store.open()
        assert {key: (q.end, q.indexed_end) for key, q in store.queues.queues.items()} == before
        files = [q.files.files[0] for q in store.queues.queues.values()]
        assert not any(one.is_mapped for one in files if isinstance(one, SparseMappedFile))
        for number in range(8):
            result = store.append(message(number, queue_id=number))
            assert result.queue_offset == 5
        await store.wait_dispatched(store.max_offset)
        assert all(queue.max_offset == 6 for queue in store.queues.queues.values())
        await store.close()

    asyncio.run(play())
