"""Consume queues that lack units, and a log that cannot be walked for them: nothing else is lost."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from rmqha.base.errors import DiskFull, StoreDamaged
from rmqha.runtime.aio.clock import SystemClock
from rmqha.sim.disk import SimDisk
from rmqha.sim.loop import SimLoop
from rmqha.store import checkpoint as cp
from rmqha.store.aio import consume_queues
from rmqha.store.aio.loading import Loader, Opening
from rmqha.store.aio.message_store import MessageStore
from rmqha.store.aio.queue_files import QueueFiles
from rmqha.store.consume_queue import FILLER_SIZE
from rmqha.store.queue_list import FILE, ListedQueue
from rmqha.store.segments import file_name
from tests.store.harness import (
    ROOT,
    TOPIC,
    bodies,
    message,
    real_store,
    sim_store,
    simulate_seeds,
)
from tests.store.test_missing_queue_files import start_that_dies
from tests.store.test_queue_lists import (
    QUEUE_FILE,
    WANTED,
    first_gone,
    folder,
    folder_gone,
    last_gone,
    two_at_the_end_gone,
    written,
)

LOG_FILE = 16_384
NEWEST = range(172, 200)
"""What queue 1 has in the newest file of the log."""


class SlowClock(SystemClock):
    """Half a second passes with each look: all but the newest messages are durable by their times."""

    def __init__(self) -> None:
        self._at_ms = 1_700_000_000_000

    def wall_ms(self) -> int:
        self._at_ms += 500
        return self._at_ms


def damage(root: Path, offset: int) -> None:
    """Overwrite a part of the log that no start after a stop in order reads."""
    path = root / "commitlog" / file_name(offset - offset % LOG_FILE)
    data = bytearray(path.read_bytes())
    data[offset % LOG_FILE : offset % LOG_FILE + 40] = b"\xff" * 40
    path.write_bytes(data)


def numbers(store: MessageStore, queue: int) -> list[int]:
    """Of the messages that a queue has; each unit names the record that it is of."""
    found = store.queues.queues[TOPIC.encode(), queue]
    units = [found.unit(number) for number in range(found.first_index, found.count_end)]
    there = [n for n, one in enumerate(units, found.first_index) if one.size != FILLER_SIZE]
    for number in there:
        offset = found.unit(number).physical_offset
        _, head = store.commit_log.check(offset)
        assert head.size < 0 or (head.queue_id, head.queue_offset) == (queue, number)
    return there


def second_gone(root: Path) -> None:
    (folder(root) / f"{QUEUE_FILE:020d}").unlink()


def second_and_third_gone(root: Path) -> None:
    second_gone(root)
    (folder(root) / f"{2 * QUEUE_FILE:020d}").unlink()


def contents(root: Path) -> dict[str, bytes]:
    """All that is in a store."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file()
    }  # fmt: skip


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize(
    ("lose", "number", "left"),
    [
        (first_gone, 0, range(64, 200)), (second_gone, 2, [*range(64), *range(128, 200)]),
        (second_and_third_gone, 3, [*range(64), *range(192, 200)]), (folder_gone, 0, NEWEST),
        (two_at_the_end_gone, 4, [*range(128), *NEWEST]),
    ],
)  # fmt: skip
async def test_queue_when_the_log_is_damaged_where_its_units_are_missing_then_what_it_has_is_kept(
    tmp_path: Path, lose: Callable[[Path], None], number: int, left: Sequence[int], *, is_killed: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """The broker started never again, and good files of the queue were gone."""
    await written(real_store(tmp_path, SlowClock()))
    damage(tmp_path, LOG_FILE * number + 600)
    lose(tmp_path)
    if is_killed:
        (tmp_path / cp.ABORT).touch()
    store = real_store(tmp_path)
    found = await store.open()
    assert found.clean is not is_killed
    assert [numbers(store, queue) for queue in (0, 2)] == [[*range(200)]] * 2
    rest = numbers(store, 1)
    assert rest == [*left]
    told = [line for line in capsys.readouterr().out.splitlines() if "queue_not_mended" in line]
    assert len(told) == 1, told
    assert "queue_id=1" in told[0]
    assert "damaged at offset" in told[0]
    assert store.append(message(queue_id=1)).queue_offset == 200
    await store.close()
    again = real_store(tmp_path)
    assert (await again.open()).clean
    assert numbers(again, 1) == [*rest, 200]
    await again.close()
    out = capsys.readouterr().out
    assert "queue_not_mended" not in out, "it is told once"
    assert "queue_file_missing" not in out


async def test_queue_when_the_log_is_damaged_before_its_missing_units_then_it_is_made_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of two queues that lack units, one lacks those of records that can be walked over."""
    await written(real_store(tmp_path))
    damage(tmp_path, 600)
    last_gone(tmp_path)
    (folder(tmp_path, 2) / f"{0:020d}").unlink()
    store = real_store(tmp_path)
    await store.open()
    assert numbers(store, 0) == numbers(store, 1) == [*range(200)]
    assert numbers(store, 2) == [*range(64, 200)]
    told = [line for line in capsys.readouterr().out.splitlines() if "queue_not_mended" in line]
    assert len(told) == 1
    assert "queue_id=2" in told[0]
    await store.close()


async def test_queues_when_very_many_cannot_be_made_anew_then_not_each_has_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consume_queues, "TOLD_MAX", 1)
    await written(real_store(tmp_path))
    damage(tmp_path, 600)
    folder_gone(tmp_path)
    shutil.rmtree(folder(tmp_path, 2))
    store = real_store(tmp_path)
    await store.open()
    await store.close()
    out = capsys.readouterr().out
    assert out.count("queue_not_mended") == 1
    assert [line for line in out.splitlines() if "queues_not_mended" in line and "queues=2" in line]


@pytest.mark.parametrize("lose", [first_gone, second_gone])
async def test_start_when_the_end_of_the_log_is_damaged_then_it_changes_no_queue(
    tmp_path: Path, lose: Callable[[Path], None]
) -> None:
    """It is refused with and without the queue; what is there of it may be needed still."""
    await written(real_store(tmp_path))
    newest = max(int(path.name) for path in (tmp_path / "commitlog").iterdir())
    damage(tmp_path, newest + 600)
    lose(tmp_path)
    before = contents(tmp_path)
    store = real_store(tmp_path)
    with pytest.raises(StoreDamaged, match="the log was durable up to"):
        await store.open()
    await store.close()
    assert contents(tmp_path) == before


async def test_batch_queue_when_it_has_a_gap_that_cannot_be_mended_then_the_start_is_refused(
    tmp_path: Path,
) -> None:
    """Nothing stands for a missing unit there, as a filler does in a plain queue."""
    await written(real_store(tmp_path))
    damage(tmp_path, 600)
    folder_gone(tmp_path)
    there, size = tmp_path / "batchconsumequeue" / TOPIC / "1", 46 * 16
    there.mkdir(parents=True)
    for number in (0, 2):
        (there / f"{number * size:020d}").write_bytes(bytes(size))
    before = contents(tmp_path)
    store = real_store(tmp_path)
    with pytest.raises(StoreDamaged, match="the log was durable up to"):
        await store.open()
    await store.close()
    changed = {name for name, data in contents(tmp_path).items() if data != before.get(name)}
    assert changed == set()


async def test_queues_when_the_log_is_damaged_twice_then_each_is_left_once_and_looked_for_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look may read the whole log: it is made for all that begin before the same damage."""
    await written(real_store(tmp_path))
    damage(tmp_path, 600)
    damage(tmp_path, LOG_FILE * 2 + 600)
    for queue, number in ((0, 0), (1, 1), (2, 1)):
        (folder(tmp_path, queue) / file_name(number * QUEUE_FILE)).unlink()
    looks, look = [], Loader._look

    async def counted(
        loader: Loader, opening: Opening, first: int
    ) -> tuple[int, StoreDamaged | None]:
        looks.append(first)
        return await look(loader, opening, first)

    monkeypatch.setattr(Loader, "_look", counted)
    store = real_store(tmp_path)
    await store.open()
    assert looks == [5, 0, 1]
    out = capsys.readouterr().out
    assert [out.count(f"queue_id={queue} ") for queue in range(3)] == [2, 2, 2], (
        "missing, not mended"
    )
    assert out.count("queue_not_mended") == 3
    await store.close()


async def test_queue_when_the_file_before_its_gap_is_torn_then_nothing_between_looks_like_its_end(
    tmp_path: Path,
) -> None:
    await written(real_store(tmp_path))
    damage(tmp_path, LOG_FILE * 2 + 600)
    second_gone(tmp_path)
    path = folder(tmp_path) / file_name(0)
    path.write_bytes(path.read_bytes()[:400] + bytes(QUEUE_FILE - 400))
    store = real_store(tmp_path)
    await store.open()
    assert numbers(store, 1) == [*range(20), *range(128, 200)]
    await store.close()


async def test_queue_when_a_full_disk_kept_units_out_then_its_end_is_not_filled_before_they_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fillers would stand where they go."""
    await written(real_store(tmp_path))
    last_gone(tmp_path)
    store = real_store(tmp_path)

    def full(*_: object) -> None:
        raise DiskFull("queues")

    with monkeypatch.context() as patched:
        patched.setattr(consume_queues.ConsumeQueues, "put_queue_runs", full)
        await store.open()
    await store.wait_dispatched(store.max_offset)
    assert numbers(store, 1) == [*range(200)]
    await store.close()


async def test_queue_when_there_is_no_log_then_its_files_behind_a_gap_go_as_well(
    tmp_path: Path,
) -> None:
    there = folder(tmp_path)
    there.mkdir(parents=True)
    for number in (0, 2):
        (there / file_name(number * QUEUE_FILE)).write_bytes(bytes(QUEUE_FILE))
    store = real_store(tmp_path)
    await store.open()
    assert [*there.iterdir()] == []
    await store.close()


async def test_listed_end_when_the_queue_is_no_plain_one_then_it_gets_no_fillers(
    tmp_path: Path,
) -> None:
    """Places of batch units are no queue offsets."""
    store = real_store(tmp_path)
    await store.open()
    queues = store.queues
    for topic, is_batch in ((b"Batch", True), (b"Other", False), (b"Plain", False)):
        queues.need(ListedQueue(topic, 0, is_batch, 0, 460))
    queues.queues[b"Other", 0] = other = queues._new((b"Other", 0), batch=True)
    await queues.end_as_listed()
    assert {*queues.queues} == {(b"Other", 0), (b"Plain", 0)}
    assert (other.end, queues.queues[b"Plain", 0].end) == (0, 460)
    assert (b"Plain", 0) in queues.dirty, "to be synced"
    await store.close()


async def written_slowly(store: MessageStore) -> None:
    """By their times all but the newest messages are durable: a start after a crash looks at few."""
    await store.open()
    for number in range(200):
        if number == 190:
            await asyncio.sleep(6)
        for queue, wanted in WANTED.items():
            store.append(message(body=wanted[number], queue_id=queue))
    await store.wait_dispatched(store.max_offset)
    await store.close()


@pytest.mark.costly
@pytest.mark.parametrize(
    ("gone", "is_torn"),
    [((1,), False), ((1,), True), ((1, 2), False), ((0,), False), ((0, 1, 2, 3), False), ((3,), False)],
)  # fmt: skip
def test_queue_when_the_start_that_leaves_it_as_it_is_dies_then_the_next_one_has_as_much(
    gone: tuple[int, ...], *, is_torn: bool
) -> None:
    """What stands for missing units is durable before files behind it count."""

    async def story(loop: SimLoop, disk: SimDisk, seed: int) -> None:
        await written_slowly(sim_store(loop, disk))
        path = f"{ROOT}/commitlog/{file_name(LOG_FILE * 4)}"
        data = bytearray(disk.map_file(path, LOG_FILE, create=False).buffer)
        data[600:640] = b"\xff" * 40
        disk.place(path, LOG_FILE, bytes(data))
        names = [f"/{TOPIC}/1/{file_name(number * QUEUE_FILE)}" for number in gone]
        disk.lose(lambda path: path.endswith(tuple(names)))
        if is_torn:
            path = f"{ROOT}/consumequeue/{TOPIC}/1/{file_name(0)}"
            head = bytes(disk.map_file(path, QUEUE_FILE, create=False).buffer[:400])
            disk.place(path, QUEUE_FILE, head + bytes(QUEUE_FILE - 400))
        await start_that_dies(loop, disk, seed, power=seed % 3 > 0)
        store = sim_store(loop, disk)
        await store.open()
        await store.wait_dispatched(store.max_offset)
        assert numbers(store, 0) == numbers(store, 2) == [*range(200)]
        lost = {number for one in gone for number in range(one * 64, one * 64 + 64)}
        lost |= {*range(20, 64)} if is_torn else set()
        # The log's newest file is walked in any case, and units at the end can be added.
        added = NEWEST if max(gone) == 3 else range(0)
        assert numbers(store, 1) == [n for n in range(200) if n not in lost or n in added]
        assert store.append(message(queue_id=1)).queue_offset == 200
        await store.close()

    simulate_seeds(story, 24)


async def expired_but_for_the_newest(root: Path) -> None:
    """Queue 1 has 70 messages, of which the log has none any more; the rest is of queue 0."""
    store = real_store(root, file_reserved_time=0, expire_interval_ms=1 << 30)
    await store.open()
    for number in range(70):
        store.append(message(number, queue_id=1))
    for number in range(400):
        store.append(message(number, queue_id=0))
    await store.wait_dispatched(store.max_offset)
    await store.flush_all()
    assert await store.expiring.expire(is_asked=True)
    await store.close()


async def test_queue_when_all_its_messages_have_expired_then_its_numbers_go_on(
    tmp_path: Path,
) -> None:
    """It began at 0, and a group that was at 70 was not given what came next."""
    await expired_but_for_the_newest(tmp_path)
    folder_gone(tmp_path)
    store = real_store(tmp_path, expire_interval_ms=1 << 30)
    await store.open()
    assert (store.reader.min_offset(TOPIC, 1), store.reader.max_offset(TOPIC, 1)) == (70, 70)
    await store.close()
    for number in (70, 71):
        store = real_store(tmp_path, expire_interval_ms=1 << 30)
        await store.open()
        assert store.append(message(body=b"%d" % number, queue_id=1)).queue_offset == number
        await store.wait_dispatched(store.max_offset)
        assert bodies(store, 1) == [b"70", b"71"][: number - 69]
        await store.close()


async def test_queue_when_the_disk_has_no_room_for_its_end_then_the_store_opens_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only an open store deletes what has expired."""
    await expired_but_for_the_newest(tmp_path)
    folder_gone(tmp_path)

    made = QueueFiles.end_at

    def full(queue: QueueFiles, position: int) -> None:
        made(queue, position)
        raise DiskFull("fillers")

    store = real_store(tmp_path, expire_interval_ms=1 << 30)
    monkeypatch.setattr(QueueFiles, "end_at", full)
    await store.open()
    assert (TOPIC.encode(), 1) not in store.queues.queues
    assert [*folder(tmp_path).iterdir()] == [], "of what was begun nothing is left"
    assert store.append(message(queue_id=1)).queue_offset == 0
    await store.close()


async def test_queue_when_it_ends_far_before_its_listed_end_then_the_gap_is_not_filled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins anew with its next message, as wherever a number is far ahead."""
    await expired_but_for_the_newest(tmp_path)
    (folder(tmp_path) / f"{QUEUE_FILE:020d}").unlink(missing_ok=True)
    path = folder(tmp_path) / f"{0:020d}"
    path.write_bytes(
        b"".join([b"\0" * 8 + (0x7FFFFFFF).to_bytes(4) + b"\0" * 8] * 5).ljust(QUEUE_FILE, b"\0")
    )
    monkeypatch.setattr("rmqha.store.aio.queue_files.GAP_MAX", 64)
    store = real_store(tmp_path, expire_interval_ms=1 << 30)
    await store.open()
    assert store.reader.max_offset(TOPIC, 1) == 5
    await store.close()


async def test_store_when_it_is_copied_again_after_a_refused_start_then_a_lost_queue_is_noticed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The refused start has left a mark of a crash beside the list, which says what is there all the same."""
    root, source = tmp_path / "copy", tmp_path / "source"
    source.mkdir()
    await written(real_store(source))
    shutil.copytree(source, root)
    folder_gone(root)
    (root / cp.ABORT).touch()
    capsys.readouterr()
    store = real_store(root)
    found = await store.open()
    assert not found.clean
    assert {queue: bodies(store, queue) for queue in WANTED} == WANTED
    assert "queue_file_missing" in capsys.readouterr().out
    assert not (root / FILE).exists()
    await store.close()
