"""Whether the confirm offset of a checkpoint is one to read up to."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from rmqha.pipeline import read
from rmqha.pipeline.commitlog.confirmed import WRITTEN_WITHIN_MS, confirmed_offset
from rmqha.pipeline.commitlog.store_folder import StoreFolder, open_replica
from rmqha.store import checkpoint
from tests.pipeline.synthetic import SyntheticStore, Written
from tests.store.harness import BORN_MS

FILE_BYTES = 8192


class Java:
    """A store of 70 records as Java leaves it; a record's time is that of its place."""

    def __init__(self, root: Path, *, epochs: bool = True) -> None:
        self.root = root
        made = SyntheticStore(root, FILE_BYTES, 16)
        self.records: list[Written] = [made.add("t", 0, bytes(number)) for number in range(70)]
        self.end = made.close(grown=True)
        self.epochs = ((0, 1),) if epochs else ()

    def confirm(self, offset: int, *, newest_ms: int = BORN_MS, ours: bool = False) -> StoreFolder:
        """Write the checkpoint, and open the store."""
        found = checkpoint.Checkpoint(newest_ms, newest_ms, 0, 0, offset)
        if ours:
            found.flushed_offset = self.end
        data = bytearray(checkpoint.SIZE)
        checkpoint.write_into(data, found)
        (self.root / "checkpoint").write_bytes(data)
        found_store = open_replica(str(self.root))
        return replace(found_store, epochs=self.epochs)

    def run(self) -> None:
        """A broker has it open."""
        (self.root / "abort").write_text("")


@pytest.fixture(params=[20, 45])
def behind(request: pytest.FixtureRequest) -> int:
    """How many records are confirmed: in the first file, and in another one."""
    number: int = request.param
    return number


def test_offset_when_ours_wrote_it_then_it_is_believed(tmp_path: Path, behind: int) -> None:
    """Each second; a set that stands still has confirmed no more, however old what follows is."""
    java = Java(tmp_path)
    at = java.records[behind].at
    java.run()
    store = java.confirm(at, ours=True)
    assert confirmed_offset(store, lambda: BORN_MS + 10 * WRITTEN_WITHIN_MS) == at


def test_offset_when_a_running_java_broker_has_not_written_for_long_then_it_is_none(
    tmp_path: Path, behind: int
) -> None:
    """A master alone in its set: what it stored since its start was never read, without a word."""
    java = Java(tmp_path)
    at = java.records[behind].at
    java.run()
    store = java.confirm(at)
    stored_ms = BORN_MS + at
    assert confirmed_offset(store, lambda: stored_ms + WRITTEN_WITHIN_MS) == at
    assert confirmed_offset(store, lambda: stored_ms + WRITTEN_WITHIN_MS + 1) is None


def test_offset_when_java_confirmed_all_there_is_then_it_is_believed(tmp_path: Path) -> None:
    """Nothing waits behind it."""
    java = Java(tmp_path)
    java.run()
    store = java.confirm(java.end)
    assert confirmed_offset(store, lambda: BORN_MS + 10 * WRITTEN_WITHIN_MS) == java.end


def test_offset_when_it_is_at_a_files_end_then_the_next_files_first_record_says(
    tmp_path: Path,
) -> None:
    """Nothing but a blank stands behind it in its own."""
    java = Java(tmp_path)
    last = max(one.at + one.size for one in java.records if one.at < FILE_BYTES)
    java.run()
    store = java.confirm(last)
    late_ms = BORN_MS + FILE_BYTES + WRITTEN_WITHIN_MS + 1
    assert confirmed_offset(store, lambda: late_ms - 1) == last
    assert confirmed_offset(store, lambda: late_ms) is None


def test_offset_when_a_java_broker_has_no_controllers_then_it_is_none(tmp_path: Path) -> None:
    """It writes where its recovery ended, and never again: seen with 5.3.3."""
    java = Java(tmp_path, epochs=False)
    java.run()
    assert confirmed_offset(java.confirm(java.records[9].at), lambda: BORN_MS) is None
    assert read(str(tmp_path)).to_table().num_rows == len(java.records)


def test_offset_when_a_java_store_is_closed_then_its_newest_record_says(tmp_path: Path) -> None:
    """An audit of closed stores compared the log up to the last start, and called it equal."""
    java = Java(tmp_path)
    at = java.records[20].at
    newest_ms = BORN_MS + at + WRITTEN_WITHIN_MS
    assert confirmed_offset(java.confirm(at, newest_ms=newest_ms)) == at
    assert confirmed_offset(java.confirm(at, newest_ms=newest_ms + 1)) is None


@pytest.mark.parametrize("offset", [-1, 0])
def test_offset_when_there_is_none_then_none(tmp_path: Path, offset: int) -> None:
    """Of a store that is new, or without a checkpoint."""
    java = Java(tmp_path)
    assert confirmed_offset(open_replica(str(tmp_path))) is None
    assert confirmed_offset(java.confirm(offset, ours=True)) is None
