"""Room at the log's end: when it is short, when no more, and what is made writable."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path
from typing import Any, cast

import pytest

from rmqha.base.errors import DiskFailed
from rmqha.runtime.logs import Logger
from rmqha.sim.loop import SimLoop
from rmqha.store.aio.dispatcher import MAKINGS_MAX
from rmqha.store.aio.plain_appends import AT_ONCE_BYTES, AT_ONCE_MAX
from rmqha.store.aio.room import EASED_MS, MADE_SLOWLY_MS, SLOW_MS, TRIED, Room, Stretch
from rmqha.store.aio.writes import Writes
from rmqha.store.record import Plain, topic_field
from tests.store.harness import (
    BORN,
    HOST,
    bodies,
    message,
    new_disk,
    real_store,
    sim_store,
    simulate,
)  # fmt: skip


class Hands:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.time_ms = 0
        self.due: list[tuple[float, Any]] = []

    def now_ms(self) -> int:
        """As it was set."""
        return self.time_ms

    def call_later(self, delay_ms: float, callback: Any, *args: Any) -> Any:
        """Kept until :meth:`go`."""
        entry = (self.time_ms + delay_ms, callback)
        self.due.append(entry)
        return _Timer(self.due, entry)

    def go(self, duration_ms: int) -> None:
        """Let time pass, and fire what falls due."""
        end = self.time_ms + duration_ms
        while self.due and min(self.due, key=lambda one: one[0])[0] <= end:
            entry = min(self.due, key=lambda one: one[0])
            self.due.remove(entry)
            self.time_ms = int(entry[0])
            entry[1]()
        self.time_ms = end


class _Timer:
    def __init__(self, due: list[Any], entry: Any) -> None:
        self._due, self._entry = due, entry

    def cancel(self) -> None:
        """Fire no more."""
        self._due.remove(self._entry)


class Log:
    """Takes its time to make room."""

    def __init__(self, clock: Hands, writes: Writes) -> None:
        self._clock, self._writes = clock, writes
        self.takes_ms = 0
        self.asked: list[int] = []
        self.seen_ms = 0

    async def make_writable(self, length: int, ahead: int) -> int:
        """Let the time pass."""
        self.asked.append(length)
        self._clock.time_ms += self.takes_ms
        self.seen_ms = self._writes.oldest_ms
        return length


class Set:
    """Room with its clock and log."""

    def __init__(self) -> None:
        self.clock = Hands()
        writes = Writes(cast(Any, self.clock))
        self.log = Log(self.clock, writes)
        self.room = Room(cast(Any, self.clock), cast(Any, self.log), writes, Logger())

    def write(self, took_ms: int) -> None:
        """Write something."""
        begun_ms = self.clock.now_ms()
        self.clock.time_ms += took_ms
        self.room.wrote(begun_ms)


def test_room_when_no_write_waits_then_nobody_is_asked_to_make_any() -> None:
    one = Set()
    for _ in range(10):
        one.write(SLOW_MS - 1)
    assert (one.room.is_short, one.room.waited, one.clock.due) == (False, 0, [])


def test_room_when_a_write_has_waited_then_it_is_short_until_none_has_for_some_time() -> None:
    one = Set()
    one.write(SLOW_MS)
    assert one.room.is_short
    one.clock.go(EASED_MS - 1)
    assert one.room.is_short
    one.clock.go(1)
    assert (one.room.is_short, one.room.waited) == (False, 1)


def test_stretch_when_asked_then_it_takes_one_in_any_case_and_then_what_fits() -> None:
    found = Stretch(Set().room, 10)
    assert [found.takes(size) for size in (20, 1)] == [True, False]
    found = Stretch(Set().room, 10)
    assert [found.takes(size) for size in (4, 6, 1)] == [True, True, False]
    assert found.refused == 1


def test_stretch_when_records_are_counted_then_it_takes_so_many_whatever_their_size() -> None:
    """Also what is no record any more takes its time in a turn."""
    found = Stretch(Set().room, 10, 2)
    assert [found.takes(0), found.takes(0), found.takes(0)] == [True, True, False]
    assert found.refused == 1
    found = Stretch(Set().room, 10, 2)
    assert [found.takes(4, 5), found.takes(1)] == [True, False], "the first in any case"


def test_stretch_when_it_has_no_length_then_it_takes_nothing() -> None:
    found = Stretch(Set().room, 0)
    assert (found.takes(5), found.refused) == (False, 5)


def test_stretch_when_a_write_has_waited_then_it_takes_no_more() -> None:
    one = Set()
    found = Stretch(one.room, 10)
    assert found.takes(1)
    one.write(SLOW_MS)
    assert not found.takes(1)


async def test_stretch_when_the_disk_has_failed_then_whoever_writes_learns_why() -> None:
    one = Set()

    async def fails(length: int, ahead: int) -> int:
        raise DiskFailed("closed")

    one.log.make_writable = fails  # type: ignore[method-assign]
    async with one.room.stretch(10) as found:
        assert found.takes(10)


async def test_stretch_when_the_file_ends_then_the_first_record_begins_the_next_one() -> None:
    one = Set()

    async def none(length: int, ahead: int) -> int:
        return 0

    one.log.make_writable = none  # type: ignore[method-assign]
    async with one.room.stretch(10) as found:
        assert [found.takes(5), found.takes(5)] == [True, False]


async def test_stretch_when_somebody_has_one_then_the_next_one_waits() -> None:
    one = Set()
    took: list[int] = []

    async def take(number: int) -> None:
        async with one.room.stretch(10):
            took.append(number)

    async with one.room.stretch(10):
        waits = asyncio.create_task(take(1))
        for _ in range(5):
            await asyncio.sleep(0)
        took.append(0)
    await waits
    assert took == [0, 1]


@pytest.mark.parametrize("again", ["write", "make"])
async def test_room_when_somebody_waits_again_then_the_time_begins_anew(again: str) -> None:
    one = Set()
    one.write(SLOW_MS)
    one.clock.go(EASED_MS - 100)
    if again == "write":
        one.write(SLOW_MS)
    else:
        one.log.takes_ms = SLOW_MS
        await one.room.make(5)
    one.clock.go(EASED_MS - 1)
    assert (one.room.is_short, one.room.waited) == (True, 2)
    one.clock.go(1)
    assert not one.room.is_short


async def test_room_when_it_is_made_quickly_then_writes_are_trusted_in_time() -> None:
    """Whoever makes room for each message would else make it for ever."""
    one = Set()
    one.write(SLOW_MS)
    one.log.takes_ms = MADE_SLOWLY_MS - 1
    for _ in range(EASED_MS // 1_000):
        await one.room.make(7)
        one.clock.go(1_000)
    assert not one.room.is_short
    assert set(one.log.asked) == {7}


async def test_room_when_it_was_made_quickly_some_times_then_writes_are_trusted_at_once() -> None:
    """A process that had lost its core for a moment looks as one that waits for its disk."""
    one = Set()
    one.write(SLOW_MS)
    one.log.takes_ms = MADE_SLOWLY_MS - 1
    for number in range(TRIED):
        assert one.room.is_short, number
        await one.room.make(7)
    assert not one.room.is_short


async def test_room_when_it_is_made_slowly_then_writes_are_not_trusted() -> None:
    """A disk that is always behind lets whoever makes room wait a little each time."""
    one = Set()
    one.write(SLOW_MS)
    one.log.takes_ms = MADE_SLOWLY_MS
    for _ in range(10 * TRIED):
        await one.room.make(7)
        one.clock.go(EASED_MS // TRIED - MADE_SLOWLY_MS)
    assert (one.room.is_short, one.room.waited) == (True, 1)


async def test_room_when_the_disk_was_behind_then_some_quick_makings_say_nothing() -> None:
    """Of twenty of them one waits for 200 ms, on a disk that is behind all the time."""
    one = Set()
    one.write(SLOW_MS)
    for number in range(3 * TRIED):
        one.log.takes_ms = 2 * SLOW_MS if number == 3 else 0
        await one.room.make(7)
    assert one.room.is_short
    one.clock.go(EASED_MS)
    assert not one.room.is_short


async def test_room_when_the_disk_was_behind_once_then_the_next_alarm_is_judged_anew() -> None:
    one = Set()
    one.write(SLOW_MS)
    one.log.takes_ms = 2 * SLOW_MS
    for _ in range(TRIED):
        await one.room.make(7)
    one.clock.go(EASED_MS)
    one.write(SLOW_MS)
    one.log.takes_ms = 0
    for _ in range(TRIED):
        assert one.room.is_short
        await one.room.make(7)
    assert not one.room.is_short


async def test_room_when_it_is_short_anew_then_what_was_made_before_is_not_counted() -> None:
    """A row that is worked off after an alarm says nothing of the next one."""
    one = Set()
    for _ in range(TRIED - 1):
        await one.room.make(7)
    one.write(SLOW_MS)
    await one.room.make(7)
    assert one.room.is_short


async def test_room_while_it_is_made_then_a_write_is_under_way() -> None:
    """A disk that stands still is noticed by that, and mastership moves."""
    one = Set()
    one.log.takes_ms = 3_000
    await one.room.make(1)
    assert one.log.seen_ms == 3_000


def test_room_when_closed_then_no_clock_is_looked_at() -> None:
    one = Set()
    one.write(SLOW_MS)
    one.room.close()
    assert one.clock.due == []


def test_room_when_its_store_is_closed_then_no_clock_is_looked_at() -> None:
    loop = SimLoop()
    store = sim_store(loop, new_disk())

    async def play() -> None:
        await store.open()
        store.room.wrote(-SLOW_MS)
        assert store.room.is_short
        await store.close()

    simulate(play(), loop)
    assert store.room._timer._handle is None
    loop.close()


def test_store_when_anybody_writes_then_the_time_that_it_took_is_looked_at() -> None:
    """One at a time, or many: whoever makes a page dirty may be the one who waits."""
    loop = SimLoop()
    store = sim_store(loop, new_disk())
    told: list[int] = []
    one = struct.pack(">5i", 20 + 3 + 2 + 2, 0, 0, 7, 3) + b"abc" + struct.pack(">h", 2) + b"a\x01"

    async def play() -> None:
        await store.open()
        store.room.wrote = told.append  # type: ignore[method-assign]
        store.append(message(0))
        assert len(told) == 1
        store.append_batch(message(1)._replace(body=one + one))
        assert len(told) == 2
        await store.close()

    simulate(play(), loop)
    loop.close()


async def test_plain_appends_when_one_waits_then_those_behind_it_are_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each page of theirs may wait as long; whoever sends them makes room first."""
    store = real_store(tmp_path, mapped_file_size_commit_log=1 << 20)
    await store.open()
    magic, topic, with_size = topic_field("FooBar")
    plain = Plain((topic, 0), magic, 0, 0, b"body", with_size, b"")
    wrote = store.room.wrote
    with monkeypatch.context() as patch:
        patch.setattr(store.room, "wrote", lambda begun_ms: wrote(begun_ms - SLOW_MS))
        assert len(store.plain.append_all([plain] * 40, BORN, HOST)) == AT_ONCE_MAX
        large = Plain((topic, 0), magic, 0, 0, bytes(AT_ONCE_BYTES // 3), with_size, b"")
        assert len(store.plain.append_all([large] * 40, BORN, HOST)) == 3
    assert store.room.is_short
    assert len(store.plain.append_all([plain] * 40, BORN, HOST)) == 40
    await store.wait_dispatched(store.max_offset)
    assert len(bodies(store)) == AT_ONCE_MAX + 3 + 40
    await store.close()


async def test_queues_when_a_unit_waits_for_the_disk_then_room_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log had room, and what was dispatched waited for the queues' own blocks, unnoticed."""
    store = real_store(tmp_path)
    await store.open()
    put, clock = store.queues.put_queue_runs, store._clock
    late_ms = 0

    def waits(runs: Any) -> None:
        nonlocal late_ms
        put(runs)
        late_ms = SLOW_MS

    now_ms = clock.now_ms
    monkeypatch.setattr(store.queues, "put_queue_runs", waits)
    monkeypatch.setattr(clock, "now_ms", lambda: now_ms() + late_ms)
    store.append(message(0))  # makes the queue
    await store.wait_dispatched(store.max_offset)
    assert not store.room.is_short
    store.append(message(1))
    await store.wait_dispatched(store.max_offset)
    assert store.room.is_short
    await store.close()


async def test_queues_when_writes_wait_then_their_pages_are_made_writable_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that a run goes to, where their units will be; a file that is yet to be made has none."""
    store = real_store(tmp_path)
    await store.open()
    for number in range(4):
        store.append(message(number, queue_id=number % 2))
    await store.wait_dispatched(store.max_offset)
    made: list[tuple[str, tuple[int, int]]] = []

    async def make(file: Any, ranges: Any) -> None:
        made.append((file.path.split("/")[-2], *ranges))

    monkeypatch.setattr(store.room, "make_in", make)
    store.room.wrote(store._clock.now_ms() - SLOW_MS)
    for number in range(4, 9):
        store.append(message(number, queue_id=2 if number == 8 else 0))
    await store.wait_dispatched(store.max_offset)
    assert made[0] == ("0", (40, 120))
    assert [one for one, _ in made] == ["0"]
    assert len(bodies(store)) == 6
    assert len(bodies(store, 2)) == 1
    await store.close()


@pytest.mark.parametrize(("waits", "makings"), [(0, 1), (1, 2), (5, MAKINGS_MAX)])
async def test_queues_when_one_was_waited_for_then_room_is_made_in_all_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: int, makings: int
) -> None:
    """Meanwhile the disk may have taken another's page; but not for ever."""
    store = real_store(tmp_path)
    await store.open()
    for number in range(3):
        store.append(message(number, queue_id=number))
    await store.wait_dispatched(store.max_offset)
    made: list[str] = []

    async def make(file: Any, ranges: Any) -> None:
        made.append(file.path.split("/")[-2])
        # The last of the three is the one that is waited for.
        store.room.waited += len(made) % 3 == 0 and len(made) <= 3 * waits

    monkeypatch.setattr(store.room, "make_in", make)
    store.room.wrote(store._clock.now_ms() - SLOW_MS)
    for number in range(3):
        store.append(message(number, queue_id=number))
    await store.wait_dispatched(store.max_offset)
    assert made == ["0", "1", "2"] * makings
    await store.close()


async def test_queues_when_more_comes_while_they_wait_then_its_pages_are_made_writable_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run is as long as when its pages were asked for, however much the log has grown since."""
    store = real_store(tmp_path)
    await store.open()
    store.append(message(0))
    await store.wait_dispatched(store.max_offset)
    made: list[tuple[int, int]] = []
    waits, may_go = asyncio.Event(), asyncio.Event()

    async def make(file: Any, ranges: Any) -> None:
        (place,) = ranges
        made.append(place)
        waits.set()
        await may_go.wait()

    monkeypatch.setattr(store.room, "make_in", make)
    store.room.wrote(store._clock.now_ms() - SLOW_MS)
    store.append(message(1))
    await waits.wait()
    for number in range(2, 5):
        store.append(message(number))
    may_go.set()
    await store.wait_dispatched(store.max_offset)
    assert made == [(20, 40), (40, 100)]
    assert len(bodies(store)) == 5
    await store.close()


async def test_queues_when_the_log_is_cut_while_they_wait_then_nothing_of_the_tail_is_in_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cut waits for the dispatcher's turn to end."""
    store = real_store(tmp_path)
    await store.open()
    places = [store.append(message(number)) for number in range(4)]
    await store.wait_dispatched(store.max_offset)
    waits, may_go = asyncio.Event(), asyncio.Event()

    async def make(file: Any, ranges: Any) -> None:
        waits.set()
        await may_go.wait()
        raise DiskFailed("closed")

    monkeypatch.setattr(store.room, "make_in", make)
    store.room.wrote(store._clock.now_ms() - SLOW_MS)
    store.append(message(4))
    await waits.wait()
    cut = asyncio.create_task(store.truncate(places[2].offset))
    await asyncio.sleep(0)
    may_go.set()
    await cut
    store.append(message(9))
    await store.wait_dispatched(store.max_offset)
    assert len(bodies(store)) == 3
    await store.close()


async def test_room_when_the_file_ends_then_it_is_as_long_as_the_rest_of_it(tmp_path: Path) -> None:
    store = real_store(tmp_path)
    await store.open()
    size = store.settings.mapped_file_size_commit_log
    assert await store.room.make(size) == 0
    end = store.append(message(0)).end
    assert await store.room.make(size) == size - end
    assert await store.room.make(10) == 10
    assert await store.room.make(size, ahead=100) == size - end - 100
    await store.close()


async def test_room_when_a_part_of_a_body_is_written_then_it_begins_behind_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = real_store(tmp_path)
    await store.open()
    end = store.append(message(0)).end
    made: list[tuple[int, int]] = []
    file, _ = store.commit_log.files.at(0)

    async def make(*ranges: tuple[int, int]) -> None:
        made.extend(ranges)

    monkeypatch.setattr(file, "make_writable", make)
    await store.room.make(50, ahead=100)
    assert made == [(end + 100, end + 150)]
    await store.close()
