"""Damaged records are mended once, whoever meets them, and nobody who goes on is forgotten."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rmqha.runtime.aio.clock import SystemClock
from rmqha.runtime.logs import Logger
from rmqha.store.aio import mending as mending_module
from rmqha.store.aio.mending import Mending
from tests.store.harness import message, real_store

AT, OTHER = 4096, 8192


class Mender:
    """Another replica's whole copy, which comes when the test says so."""

    def __init__(self, mending: Mending) -> None:
        self._mending = mending
        self.answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.asked: list[int] = []

    async def mend(self, offset: int) -> bool:
        """Answer as the test says."""
        self.asked.append(offset)
        if await self.answer:
            self._mending.whole(offset, "of a test")
            return True
        return False


def damaged() -> Mending:
    """A store that has met two damaged records."""
    mending = Mending(SystemClock(), Logger())
    mending.met(AT, "of a test")
    mending.met(OTHER, "of a test")
    return mending


def test_behind_when_one_is_on_its_way_then_no_other_begins() -> None:
    """Each pop of a busy queue would start a task of its own that waits for the same copy."""

    async def play() -> None:
        mending, told = damaged(), []
        mender = Mender(mending)
        mending.mender = mender.mend
        first = mending.behind(AT, lambda: told.append("first"))
        assert first is not None
        assert mending.behind(AT, lambda: told.append("second")) is None, "before it even runs"
        other = mending.behind(OTHER, lambda: told.append("other"))
        assert other is not None, "another record waits for nobody"
        mender.answer.set_result(True)
        await asyncio.gather(first, other)
        assert told == ["first", "other"]
        assert mender.asked == [AT, OTHER]
        assert not mending.damaged

    asyncio.run(play())


def test_behind_when_it_has_ended_in_vain_then_it_may_begin_again_and_nobody_is_told() -> None:
    """A copy may come later; whoever was told of a record that is still damaged would read it again."""

    async def play() -> None:
        mending, told = damaged(), []
        mender = Mender(mending)
        mending.mender = mender.mend
        mender.answer.set_result(False)
        work = mending.behind(AT, lambda: told.append("whole"))
        assert work is not None
        await work
        assert told == []
        again = mending.behind(AT, lambda: told.append("whole"))
        assert again is not None
        again.close()

    asyncio.run(play())


def test_behind_when_nobody_can_mend_then_nothing_begins() -> None:
    """A broker without other replicas would start tasks that end at once, one for each pop."""
    assert damaged().behind(AT, lambda: None) is None


def test_record_when_too_many_are_damaged_to_note_it_then_it_does_not_count_as_mended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was not noted was taken for whole: who had met it read it again, for ever."""
    monkeypatch.setattr("rmqha.store.aio.mending.DAMAGED_MAX", 2)

    async def play() -> None:
        mending = damaged()
        mender = Mender(mending)
        mending.mender = mender.mend
        mending.met(3 * AT, "of a test")
        assert mending.found == 2
        assert not await mending.mend(3 * AT)
        assert mender.asked == []
        mender.answer.set_result(True)
        assert await mending.mend(AT)
        mending.met(3 * AT, "of a test")
        assert await mending.mend(3 * AT), "there is room for it now"

    asyncio.run(play())


async def test_slave_when_a_mended_record_is_no_better_then_nobody_goes_on_mending_it(
    tmp_path: Path,
) -> None:
    """A disk that gives back something else than was written to it would keep the loop busy."""
    store = real_store(tmp_path, unchecked_tail_bytes=0)
    await store.open()
    results = [store.append(message(number)) for number in range(5)]
    await store.flush_all()
    file, within = store.commit_log.files.at(results[2].offset + 90)
    file.buffer[within] ^= 0xFF
    asked: list[int] = []

    async def in_vain(offset: int) -> bool:
        asked.append(offset)
        assert len(asked) < 10
        return True

    store.mending.mender = in_vain
    assert not await store.prove(0, results[-1].end)
    assert asked == [results[2].offset]
    await store.close()


async def test_slave_when_too_many_records_are_damaged_then_the_loop_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A master with ten thousand of them stood still for good when a slave came to the next one."""
    monkeypatch.setattr("rmqha.store.aio.mending.DAMAGED_MAX", 2)
    store = real_store(tmp_path, unchecked_tail_bytes=0)
    await store.open()
    results = [store.append(message(number)) for number in range(5)]
    await store.flush_all()
    file, within = store.commit_log.files.at(results[2].offset + 90)
    file.buffer[within] ^= 0xFF
    for number in range(2):
        store.mending.met(-number - 1, "another")

    async def nobody(offset: int) -> bool:
        return False

    store.mending.mender = nobody
    assert not await store.prove(0, results[-1].end)
    await store.close()


def test_oversized_when_very_many_are_passed_over_then_the_first_are_let_go_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each is told once, and what was told is remembered of so many."""
    assert mending_module.DAMAGED_MAX == 10_000
    monkeypatch.setattr(mending_module, "DAMAGED_MAX", 2)
    mending = Mending(SystemClock(), Logger())
    for offset in (1, 2, 3, 3, 2, 1):
        assert not mending.oversized(offset, 99)
    assert list(mending._oversized) == [3, 1]
    told = [one for one in capsys.readouterr().out.splitlines() if "record_oversized" in one]
    assert len(told) == 4
