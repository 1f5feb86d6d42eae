"""An empty log that begins where its master's does: whatever ends the process, the store opens."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqha.store.aio.message_store import MessageStore
from rmqha.store.checkpoint import read
from tests.store.harness import message, put, real_store

NEVER_MS = 10**8


async def masters_bytes(root: Path, start: int, length_max: int) -> bytes:
    """What a master has from the file at ``start`` files on, whole records only."""
    master = real_store(root)
    await master.open()
    begin = start * master.file_size
    while master.max_offset < begin + length_max:
        master.append(message(1, body=bytes(500)))
    end = master.valid_end(begin, min(master.max_offset, begin + length_max))
    data = bytes(master.view(begin, end - begin))
    await master.close()
    return data


def copy(slave: MessageStore, offset: int, data: bytes) -> None:
    """As the slave's side of HA stores what it was sent."""
    slave.reserve(offset, len(data))
    slave.write(offset, memoryview(data))
    slave.received(offset, len(data))


def slave_at(root: Path) -> MessageStore:
    """A slave's store that writes nothing by itself."""
    return real_store(
        root, enable_controller_mode=True, flush_interval_commit_log=NEVER_MS,
        flush_checkpoint_interval_ms=NEVER_MS,
    )  # fmt: skip


async def test_file_that_a_broken_transfer_left_is_the_next_masters(tmp_path: Path) -> None:
    """It was deleted by the first flush, with what had been acknowledged in it."""
    data = await masters_bytes(tmp_path / "master", 0, 2_000)
    slave = slave_at(tmp_path / "slave")
    await slave.open()
    copy(slave, 0, data)
    await slave.flush_all()
    await slave.truncate(0)
    # The first master's log begins later; its connection breaks before any byte of it.
    slave.reserve(3 * slave.file_size, 100)
    await slave.truncate(0)
    copy(slave, 0, data)
    assert await slave.flush(len(data)) == len(data)
    assert [one.name for one in (tmp_path / "slave/commitlog").iterdir()] == ["0" * 20]
    await slave.close()
    again = slave_at(tmp_path / "slave")
    await again.open()
    assert again.max_offset == len(data)
    await again.close()


async def test_log_when_it_begins_anew_while_its_begin_is_written_then_that_is_written_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is acknowledged next would lie behind a begin that recovery has never heard of."""
    data = await masters_bytes(tmp_path / "master", 3, 2_000)
    slave = slave_at(tmp_path / "slave")
    await slave.open()
    copy(slave, 3 * slave.file_size, data)
    real = slave._checkpoint._write

    async def write(confirm_offset: int, durable_end: int, indexed_end: int) -> None:
        await real(confirm_offset, durable_end, indexed_end)
        monkeypatch.undo()
        slave._checkpoint.started_at(5 * slave.file_size)

    monkeypatch.setattr(slave._checkpoint, "_write", write)
    await slave._write_checkpoint()
    assert slave._checkpoint.start_unsaved
    await slave._write_checkpoint()
    assert not slave._checkpoint.start_unsaved
    await slave.close()


@pytest.mark.parametrize("kept", [0, 1])
@pytest.mark.parametrize("by", ["flush", "checkpoint"])
async def test_process_that_ends_while_the_log_begins_anew_leaves_what_opens(
    tmp_path: Path, kept: int, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recovery missed files between those of before and the new begin.

    The store is copied whenever something about to happen on the disk has happened.
    """
    data = await masters_bytes(tmp_path / "master", 5, 2_000)
    root = tmp_path / "slave"
    slave = slave_at(root)
    await slave.open()
    while slave.max_offset < 2 * slave.file_size:
        await put(slave, message(1, body=bytes(500)))
    if kept:
        slave.set_confirm_offset(slave.max_offset)
        await slave.wait_dispatched(slave.max_offset)
        slave.commit_log.files.leave_before(slave.file_size)
        await slave.commit_log.files.remove_left()
    await slave.truncate(kept * slave.file_size)
    moments: list[Path] = []

    def moment() -> None:
        moments.append(tmp_path / f"moment{len(moments)}")
        shutil.copytree(root, moments[-1])

    for place, name in ((slave.commit_log._disk, "remove"), (slave._checkpoint, "_write")):
        real = getattr(place, name)

        async def noted(*args: object, real=real) -> None:  # type: ignore[no-untyped-def]
            moment()
            await real(*args)
            moment()

        monkeypatch.setattr(place, name, noted)
    begin = 5 * slave.file_size
    copy(slave, begin, data)
    moment()
    await (slave.flush_all() if by == "flush" else slave._write_checkpoint())
    assert not slave._checkpoint.start_unsaved
    monkeypatch.undo()
    await slave.close()
    assert len(moments) >= 7, "a checkpoint without promises, a file that goes, the new begin"
    for place in [*moments, root]:
        again = slave_at(place)
        await again.open()
        assert (again.min_offset, again.max_offset) in {(-1, 0), (begin, begin + len(data))} or (
            again.commit_log.empty
        )
        await again.close()
    assert again.max_offset == begin + len(data)


@pytest.mark.parametrize("torn", [False, True])
async def test_slave_when_killed_before_its_mark_knows_where_the_log_begins_then_what_is_whole_stays(
    tmp_path: Path, *, torn: bool
) -> None:
    """It had acknowledged it: all of a new slave's log went at its start, and it could be elected so."""
    data = await masters_bytes(tmp_path / "master", 3, 2_000)
    slave = slave_at(tmp_path / "slave")
    await slave.open()
    begin = 3 * slave.file_size
    copy(slave, begin, data[:100] if torn else data)
    assert slave._checkpoint.start_unsaved
    shutil.copytree(tmp_path / "slave", tmp_path / "killed")
    await slave.close()
    again = slave_at(tmp_path / "killed")
    await again.open()
    expected = (-1, 0) if torn else (begin, begin + len(data))
    assert (again.min_offset, again.max_offset) == expected
    await again.close()


async def test_file_when_the_power_took_the_one_before_it_then_it_is_no_log_that_begins_there(
    tmp_path: Path,
) -> None:
    """Nothing of it was ever flushed; a log that begins at 0 must not come back without its beginning."""
    store = slave_at(tmp_path / "store")
    await store.open()
    while store.max_offset < 2 * store.file_size:
        store.append(message(1, body=bytes(500)))
    shutil.copytree(tmp_path / "store", tmp_path / "left")
    await store.close()
    (tmp_path / "left" / "commitlog" / ("0" * 20)).unlink()
    again = slave_at(tmp_path / "left")
    await again.open()
    assert (again.min_offset, again.max_offset) == (-1, 0)
    await again.close()


async def test_note_of_where_a_log_begins_when_that_is_cut_then_it_goes_too(tmp_path: Path) -> None:
    """It would speak for a file of a later log that lost those before it."""
    data = await masters_bytes(tmp_path / "master", 3, 2_000)
    slave = slave_at(tmp_path / "slave")
    await slave.open()
    copy(slave, 3 * slave.file_size, data)
    path = tmp_path / "slave" / "checkpoint"
    assert read(path.read_bytes()).begin_offset == 3 * slave.file_size
    assert read(path.read_bytes()).flushed_offset == 0
    await slave.truncate(0)
    assert read(path.read_bytes()).begin_offset is None
    await slave.close()
