"""What a stop in order leaves of consume queues is there at the next start, or is made anew."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqha.base.errors import DiskFull
from rmqha.runtime.aio.disk import SystemDisk
from rmqha.sim.disk import SimDisk
from rmqha.sim.loop import SimLoop
from rmqha.store import checkpoint as cp
from rmqha.store import queue_list
from rmqha.store.aio import consume_queues, queue_lists
from rmqha.store.aio.message_store import MessageStore
from rmqha.store.queue_list import FILE, ListedQueue, QueueList, seal_of
from tests.store.harness import (
    TOPIC,
    bodies,
    message,
    real_store,
    sim_store,
    simulate_seeds,
)
from tests.store.test_missing_queue_files import start_that_dies

QUEUE_FILE = 20 * 64
WANTED = {queue: [b"%d-%030d" % (queue, number) for number in range(200)] for queue in range(3)}


async def written(store: MessageStore) -> None:
    """Three queues of four files, and a stop in order."""
    await store.open()
    for number in range(200):
        for queue, wanted in WANTED.items():
            store.append(message(body=wanted[number], queue_id=queue))
    await store.wait_dispatched(store.max_offset)
    await store.close()


async def read_again(root: Path) -> None:
    """A start after which every message is found, and the next one gets the next number."""
    store = real_store(root)
    found = await store.open()
    assert found.clean
    assert {queue: bodies(store, queue) for queue in WANTED} == WANTED
    for queue in WANTED:
        assert store.append(message(queue_id=queue)).queue_offset == 200
    await store.close()


def folder(root: Path, queue: int = 1) -> Path:
    return root / "consumequeue" / TOPIC / str(queue)


def first_gone(root: Path) -> None:
    (folder(root) / f"{0:020d}").unlink()


def first_emptied(root: Path) -> None:
    (folder(root) / f"{0:020d}").write_bytes(b"")


def last_gone(root: Path) -> None:
    (folder(root) / f"{3 * QUEUE_FILE:020d}").unlink()


def two_at_the_end_gone(root: Path) -> None:
    last_gone(root)
    (folder(root) / f"{2 * QUEUE_FILE:020d}").unlink()


def first_and_third_gone(root: Path) -> None:
    first_gone(root)
    (folder(root) / f"{2 * QUEUE_FILE:020d}").unlink()


def hole_at_the_end(root: Path) -> None:
    path = folder(root) / f"{2 * QUEUE_FILE:020d}"
    path.write_bytes(path.read_bytes()[:400] + bytes(400) + path.read_bytes()[800:])


def folder_gone(root: Path) -> None:
    shutil.rmtree(folder(root))


def topic_gone(root: Path) -> None:
    shutil.rmtree(folder(root).parent)


DAMAGES = (
    first_gone, first_emptied, last_gone, two_at_the_end_gone, first_and_third_gone,
    hole_at_the_end, folder_gone, topic_gone,
)  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
async def test_queue_when_it_is_not_as_the_stop_left_it_then_it_is_made_anew_and_told(
    tmp_path: Path, damage: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """Messages that were acknowledged and are in the log were out of reach, and nobody said so."""
    await written(real_store(tmp_path))
    damage(tmp_path)
    capsys.readouterr()
    await read_again(tmp_path)
    told = [line for line in capsys.readouterr().out.splitlines() if "queue_file_missing" in line]
    assert len(told) == (3 if damage is topic_gone else 1), told
    # It is told once.
    await real_store_opened_and_closed(tmp_path)
    assert "queue_file_missing" not in capsys.readouterr().out


async def test_queues_when_very_many_are_gone_then_not_each_has_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consume_queues, "TOLD_MAX", 2)
    await written(real_store(tmp_path))
    shutil.rmtree(tmp_path / "consumequeue")
    await read_again(tmp_path)
    out = capsys.readouterr().out
    assert out.count("queue_file_missing") == 2
    assert [
        line for line in out.splitlines() if "queue_files_missing" in line and "queues=3" in line
    ]


async def real_store_opened_and_closed(root: Path) -> None:
    store = real_store(root)
    await store.open()
    await store.close()


async def test_queues_when_whole_then_nothing_is_told_or_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await written(real_store(tmp_path))
    store = real_store(tmp_path)
    found = await store.open()
    assert found.records < 600, "more than the newest file was read"
    assert not (tmp_path / FILE).exists(), "it says nothing of a store that is open"
    await store.close()
    assert "queue_file_missing" not in capsys.readouterr().out


async def test_list_when_somebody_wrote_the_checkpoint_since_then_it_does_not_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A broker of Java's that ended the topic, or deleted what had expired."""
    await written(real_store(tmp_path))
    data = bytearray((tmp_path / "checkpoint").read_bytes())
    data[7] ^= 1
    (tmp_path / "checkpoint").write_bytes(data)
    folder_gone(tmp_path)
    await real_store_opened_and_closed(tmp_path)
    assert "queue_file_missing" not in capsys.readouterr().out


async def test_list_when_the_log_begins_later_than_it_says_then_it_does_not_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who deletes what has expired and takes no message leaves the checkpoint as it was."""
    await written(real_store(tmp_path))
    (tmp_path / "commitlog" / f"{0:020d}").unlink()
    first_gone(tmp_path)
    await real_store_opened_and_closed(tmp_path)
    assert "queue_file_missing" not in capsys.readouterr().out


async def test_list_when_damaged_or_of_a_crash_then_it_does_not_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await written(real_store(tmp_path))
    whole = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(whole[:-1] + b"X")
    await real_store_opened_and_closed(tmp_path)
    # Of another stop: this one says the same of the log, and the checkpoint has another time.
    (tmp_path / FILE).write_bytes(whole.replace(b" ", b" 1", 1))
    folder_gone(tmp_path)
    (tmp_path / "abort").touch()
    await real_store_opened_and_closed(tmp_path)
    assert "queue_file_missing" not in capsys.readouterr().out


async def test_list_when_it_is_written_or_goes_then_the_mark_of_a_crash_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut in between would leave a store as after a stop in order, and no list."""
    await written(real_store(tmp_path))
    seen: list[tuple[str, bool]] = []
    write, remove = SystemDisk.write_atomic, SystemDisk.remove

    def look(name: str, path: str) -> None:
        if path.endswith(FILE):
            seen.append((name, (tmp_path / cp.ABORT).exists()))

    async def looked_at_write(disk: SystemDisk, path: str, data: bytes) -> None:
        look("written", path)
        await write(disk, path, data)

    async def looked_at_remove(disk: SystemDisk, path: str) -> None:
        look("removed", path)
        await remove(disk, path)

    monkeypatch.setattr(SystemDisk, "write_atomic", looked_at_write)
    monkeypatch.setattr(SystemDisk, "remove", looked_at_remove)
    await real_store_opened_and_closed(tmp_path)
    assert seen == [("removed", True), ("written", True)]
    assert (tmp_path / FILE).exists()
    assert not (tmp_path / cp.ABORT).exists()


async def test_list_when_it_is_far_too_large_then_it_is_left_out_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it would be read into memory."""
    await written(real_store(tmp_path))
    folder_gone(tmp_path)
    size = (tmp_path / FILE).stat().st_size
    copy = tmp_path.with_name("copy")
    shutil.copytree(tmp_path, copy)
    monkeypatch.setattr(queue_lists, "BYTES_MAX", size)
    await read_again(copy)
    capsys.readouterr()
    monkeypatch.setattr(queue_lists, "BYTES_MAX", size - 1)
    await real_store_opened_and_closed(tmp_path)
    out = capsys.readouterr().out
    assert "queue_file_missing" not in out
    assert "queue_list_too_large" in out


@pytest.mark.parametrize(("begin", "counts"), [(-1, True), (16, True), (32, True), (48, False)])
def test_list_when_the_log_begins_no_later_than_it_says_then_it_counts(
    begin: int, *, counts: bool
) -> None:
    """Files that had left the row and were still on the disk at the stop are back in it."""
    known = cp.Checkpoint(flushed_offset=64)
    assert QueueList(seal_of(known), 32, b"").counts(known, begin) is counts


@pytest.mark.parametrize(
    "changed",
    [
        cp.Checkpoint(1, flushed_offset=64, begin_offset=32),
        cp.Checkpoint(flushed_offset=65, begin_offset=32),
        cp.Checkpoint(flushed_offset=None, begin_offset=32),
        cp.Checkpoint(flushed_offset=64, begin_offset=33), cp.Checkpoint(flushed_offset=64),
    ],
)  # fmt: skip
def test_seal_when_the_checkpoint_says_something_else_of_the_log_then_it_is_another(
    changed: cp.Checkpoint,
) -> None:
    known = cp.Checkpoint(flushed_offset=64, begin_offset=32)
    assert seal_of(known) != seal_of(changed)
    known.indexed_offset = 7
    assert seal_of(known) == seal_of(cp.Checkpoint(flushed_offset=64, begin_offset=32))


def test_list_when_written_then_it_reads_as_it_was() -> None:
    """Topics may hold blanks, and what is no ASCII."""
    wanted = [
        ListedQueue(b"Orders", 0, False, 0, 20),
        ListedQueue("Bücher und mehr".encode(), 12, True, 6_000_000, 6_000_046),
    ]
    body = b"".join(map(queue_list.encode_row, wanted))
    data = queue_list.encode(7, -1, body)
    found = queue_list.decode(data)
    assert found is not None
    assert (found.seal, found.log_begin, [*queue_list.rows(found)]) == (7, -1, wanted)
    for damaged in (b"", b"2" + data[1:], data[:-1], data.replace(b"7", b"x", 1), b"\xff" * 99):
        assert queue_list.decode(damaged) is None


@pytest.mark.costly
@pytest.mark.parametrize("damaged", ["/0/", "/1/", f"{0:020d}", f"{3 * QUEUE_FILE:020d}"])
def test_queue_when_the_start_that_mends_it_dies_then_the_next_one_does(damaged: str) -> None:
    """With the list, or by what the start has noted before the queue changes."""

    async def story(loop: SimLoop, disk: SimDisk, seed: int) -> None:
        await written(sim_store(loop, disk))
        disk.lose(lambda path: damaged in path and "/consumequeue/" in path)
        await start_that_dies(loop, disk, seed % 23, power=seed % 3 > 0)
        store = sim_store(loop, disk)
        await store.open()
        await store.wait_dispatched(store.max_offset)
        assert {queue: bodies(store, queue) for queue in WANTED} == WANTED
        assert store.append(message(queue_id=1)).queue_offset == 200
        await store.close()

    simulate_seeds(story, 46)


async def test_list_when_the_disk_is_full_then_the_stop_is_in_order_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(_: SystemDisk, path: str, data: bytes) -> None:
        raise DiskFull(path)

    store = real_store(tmp_path)
    await store.open()
    store.append(message())
    monkeypatch.setattr(SystemDisk, "write_atomic", full)
    await store.close()
    assert store.failed is None
    assert not (tmp_path / cp.ABORT).exists()
    assert not (tmp_path / FILE).exists()


async def test_listed_queue_when_nobody_would_make_it_anew_then_it_is_not_needed(
    tmp_path: Path,
) -> None:
    """Light queues, of Java's brokers alone; and a topic's queues of the kind that it has no more."""
    await written(real_store(tmp_path))
    store = real_store(tmp_path)
    await store.open()
    for one in (
        ListedQueue(b"%LMQ%a", 0, False, 0, 20), ListedQueue(TOPIC.encode(), 0, True, 0, 46_000),
    ):  # fmt: skip
        store.queues.need(one)
        assert store.queues.lost_from is None
    store.queues.need(ListedQueue(b"Other", 0, False, 0, 20))
    assert store.queues.lost_from == 0
    await store.close()
