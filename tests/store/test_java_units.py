"""Units that only a Java broker writes, or leaves, and what a start makes of them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from rmqha.store import checkpoint as cp
from rmqha.store.aio import consume_queues
from rmqha.store.consume_queue import UNIT
from tests.store.harness import TOPIC, bodies, message, real_store

SETTINGS: dict[str, Any] = {"mapped_file_size_consume_queue": 1000 * UNIT.size}
LIGHT = "%LMQ%devices"


def written_by_java(root: Path, *, clean: bool) -> None:
    """The checkpoint has Java's longs only, written when all was durable."""
    path = root / "checkpoint"
    content = bytearray(path.read_bytes())
    known = cp.read(content)
    known.physic_msg_timestamp = known.logics_msg_timestamp = int(time.time() * 1000) + 10_000
    known.flushed_offset = known.indexed_offset = known.begin_offset = None
    cp.write_into(content, known)
    path.write_bytes(content)
    if not clean:
        (root / cp.ABORT).touch()


def queue_file(root: Path, topic: str = TOPIC, queue_id: int = 0) -> Path:
    return root / "consumequeue" / topic / str(queue_id) / f"{0:020}"


async def stopped(root: Path, count: int, **settings: Any) -> list[tuple[int, int]]:
    """A store of so many messages of one queue and as many of another; where those of the other are."""
    store = real_store(root, **(settings or SETTINGS))
    await store.open()
    for number in range(count):
        store.append(message(number, body=b"%d" % number))
    other = [store.append(message(number, queue_id=1)) for number in range(count)]
    await store.wait_dispatched(store.max_offset)
    await store.close()
    return [(one.offset, one.size) for one in other]


@pytest.mark.parametrize("clean", [True, False])
async def test_queue_when_java_cut_the_log_then_the_units_that_it_left_are_no_messages(
    tmp_path: Path, clean: bool
) -> None:
    """After a stop in order they were handed out, as messages of another queue, or as none at all."""
    places = await stopped(tmp_path, 50)
    path = queue_file(tmp_path)
    data = bytearray(path.read_bytes())
    for number, (offset, size) in enumerate(places[:20], 50):
        # What was cut had other lengths than what came in its place.
        UNIT.pack_into(data, number * UNIT.size, offset + number % 2, size, 0)
    path.write_bytes(data)
    written_by_java(tmp_path, clean=clean)
    store = real_store(tmp_path, **SETTINGS)
    await store.open()
    assert bodies(store) == [b"%d" % number for number in range(50)]
    assert store.reader.max_offset(TOPIC, 1) == 50
    assert store.append(message(1)).queue_offset == 50
    await store.close()


async def test_start_when_a_queue_ends_in_many_strange_units_then_it_is_cut_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each was erased and synced for itself."""
    places = await stopped(tmp_path, 50)
    path = queue_file(tmp_path)
    data = bytearray(path.read_bytes())
    for number, (offset, size) in enumerate(places, 50):
        UNIT.pack_into(data, number * UNIT.size, offset, size, 0)
    path.write_bytes(data)
    written_by_java(tmp_path, clean=True)
    cuts: list[int] = []
    real = consume_queues.QueueFiles.keep_to

    async def counted(queue: consume_queues.QueueFiles, index: int) -> None:
        cuts.append(index)
        await real(queue, index)

    monkeypatch.setattr(consume_queues.QueueFiles, "keep_to", counted)
    monkeypatch.setattr(consume_queues, "TURN_ENDS", 7)
    store = real_store(tmp_path, **SETTINGS)
    await store.open()
    assert cuts == [50]
    await store.close()
    cuts.clear()
    again = real_store(tmp_path, **SETTINGS)
    await again.open()
    assert again.loaded is not None
    assert again.loaded.clean
    assert not cuts
    await again.close()


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("count", [50, 200])
async def test_light_queue_when_its_java_broker_was_killed_then_it_has_its_messages(
    tmp_path: Path, clean: bool, count: int
) -> None:
    """Its units name records of other topics: all of them went, one after the other."""
    places = await stopped(tmp_path, count)
    path = queue_file(tmp_path, LIGHT)
    path.parent.mkdir(parents=True)
    units = b"".join(UNIT.pack(offset, size, 7) for offset, size in places)
    if not clean:
        # One that is of no record, and one of a record that the log does not have.
        within, behind = places[-1][0] + 20, sum(places[-1])
        units = units[: -UNIT.size] + UNIT.pack(within, 60, 7) + UNIT.pack(behind, 120, 7)
        places = places[:-1]
    path.write_bytes(units.ljust(1000 * UNIT.size, b"\0"))
    written_by_java(tmp_path, clean=clean)
    store = real_store(tmp_path, **SETTINGS)
    await store.open()
    assert store.reader.max_offset(LIGHT, 0) == len(places)
    assert len(bodies(store, topic=LIGHT)) == len(places)
    assert store.reader.max_offset(TOPIC, 1) == count
    await store.close()


async def test_queue_when_its_units_stand_one_place_too_early_then_a_clean_stop_loses_none(
    tmp_path: Path,
) -> None:
    """Java appends where it finds a queue's order wrong, and nobody makes anew what a start drops."""
    await stopped(tmp_path, 50)
    path = queue_file(tmp_path)
    data = bytearray(path.read_bytes())
    del data[9 * UNIT.size : 10 * UNIT.size]
    path.write_bytes(bytes(data).ljust(1000 * UNIT.size, b"\0"))
    written_by_java(tmp_path, clean=True)
    store = real_store(tmp_path, **SETTINGS)
    await store.open()
    assert bodies(store) == [b"%d" % number for number in range(50) if number != 9]
    await store.close()


async def test_queue_when_its_last_record_is_damaged_then_a_clean_stop_keeps_its_place(
    tmp_path: Path,
) -> None:
    """Its replicas may have a whole copy; and the next message would take its number."""
    await stopped(tmp_path, 150)
    offset = UNIT.unpack_from(queue_file(tmp_path).read_bytes(), 149 * UNIT.size)[0]
    _, older, *_ = sorted((tmp_path / "commitlog").iterdir())
    data = bytearray(older.read_bytes())
    data[offset % len(data) + 4] ^= 0x40  # its magic
    older.write_bytes(data)
    written_by_java(tmp_path, clean=True)
    store = real_store(tmp_path, **SETTINGS)
    await store.open()
    assert store.reader.max_offset(TOPIC, 0) == 150
    assert store.append(message(150)).queue_offset == 150
    await store.close()


@pytest.mark.parametrize("clean", [True, False])
async def test_queue_when_its_records_have_expired_then_it_keeps_its_end(
    tmp_path: Path, clean: bool
) -> None:
    """Whose units name nothing any more, none is a stranger's."""
    await stopped(tmp_path, 150)
    for expired in sorted((tmp_path / "commitlog").iterdir())[:2]:
        expired.unlink()
    written_by_java(tmp_path, clean=clean)
    store = real_store(tmp_path, **SETTINGS)
    await store.open()
    assert store.min_offset > 0
    assert store.reader.max_offset(TOPIC, 0) == 150
    assert store.append(message(150)).queue_offset == 150
    await store.close()


@pytest.mark.parametrize("clean", [True, False])
async def test_light_queue_when_a_file_in_its_midst_is_missing_then_what_is_behind_it_is_not_deleted(
    tmp_path: Path, clean: bool
) -> None:
    """Nobody makes its units anew, so what is read no more is at least there."""
    size = 20 * UNIT.size
    small = {"mapped_file_size_consume_queue": size}
    places = await stopped(tmp_path, 50, **small)
    path = queue_file(tmp_path, LIGHT)
    path.parent.mkdir(parents=True)
    for number in (0, 2):
        units = b"".join(UNIT.pack(*place, 7) for place in places[number * 20 :][:20])
        (path.parent / f"{number * size:020}").write_bytes(units.ljust(size, b"\0"))
    behind = path.parent / f"{2 * size:020}"
    before = behind.read_bytes()
    written_by_java(tmp_path, clean=clean)
    store = real_store(tmp_path, **small)
    await store.open()
    assert store.reader.max_offset(LIGHT, 0) == 20
    assert store.loaded is not None
    assert store.loaded.clean == clean
    await store.close()
    assert behind.read_bytes() == before
