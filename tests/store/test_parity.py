"""Where the store differs from Java's on purpose: one test a row of docs/PARITY.md."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from rmqha.runtime.aio.clock import SystemClock
from rmqha.store.consume_queue import FILLER_SIZE
from rmqha.store.record import Plain, topic_field
from tests.store.harness import TOPIC, bodies, message, real_store

FILE_SIZE = 16_384
KEY = (TOPIC.encode(), 0)


class LateClock(SystemClock):
    """Its wall clock can go forward."""

    late_ms = 0

    def wall_ms(self) -> int:
        """The time of day."""
        return super().wall_ms() + self.late_ms


async def test_a_blank_at_the_log_s_end_stays_after_recovery(tmp_path: Path) -> None:
    """Replicas have it already; writing the next record over it would make logs differ."""
    source, target = real_store(tmp_path / "a"), real_store(tmp_path / "b")
    await source.open()
    await target.open()
    for number in range(110):
        source.append(message(number))
    target.reserve(0, FILE_SIZE)[:] = source.view(0, FILE_SIZE)
    target.received(0, FILE_SIZE)
    await target.wait_dispatched(FILE_SIZE)
    kept = len(bodies(target))
    assert 0 < kept < 110
    await target.close()
    again = real_store(tmp_path / "b")
    await again.open()
    assert (again.max_offset, len(bodies(again))) == (FILE_SIZE, kept)
    assert again.append(message()).offset == FILE_SIZE
    await again.close()
    await source.close()


async def test_a_gap_in_queue_offsets_is_filled(tmp_path: Path) -> None:
    """A unit's place is its queue offset, so what consumers committed keeps its meaning."""
    store = real_store(tmp_path)
    await store.open()
    for number in range(3):
        store.append(message(number, body=b"%032d" % number))
    store.queues.next_offsets[KEY] = 10
    last = store.append(message(3, body=b"behind the gap"))
    await store.wait_dispatched(store.max_offset)
    queue = store.queues.queues[KEY]
    assert queue.unit(10)[:2] == (last.offset, last.size)
    assert {queue.unit(index).size for index in range(3, 10)} == {FILLER_SIZE}
    assert store.reader.max_offset(TOPIC, 0) == 11
    found = store.reader.get(TOPIC, 0, 2, count_max=9, bytes_max=1 << 20)
    assert (len(found.records), found.next_begin_offset) == (2, 11)
    await store.close()


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("plain", [False, True])
async def test_timestamps_when_the_clock_was_a_day_ahead_then_only_of_what_was_stored_meanwhile(
    tmp_path: Path, *, plain: bool, restarted: bool
) -> None:
    """Else a delay of an hour was over at once, until the day was over; a small step is smoothed."""
    clock = LateClock()
    store = real_store(tmp_path, clock)
    await store.open()

    def stored() -> int:
        if plain:
            magic, _, topic = topic_field(TOPIC)
            one = Plain(KEY, magic, 0, 0, b"body", topic, b"")
            log = store.commit_log
            offset = log.append_plains([one], {KEY: log.max_offset}, bytes(8), bytes(8))[0][0]
            record = store.reader.look(offset)
            assert record is not None
            return record.store_timestamp
        return store.append(message(0)).store_timestamp

    clock.late_ms = 86_400_000
    assert stored() >= clock.wall_ms() - 1_000
    clock.late_ms = 0
    if restarted:
        await store.close()
        store = real_store(tmp_path, clock)
        await store.open()
    before = stored()
    assert abs(before - clock.wall_ms()) < 1_000
    clock.late_ms = -2_000
    assert stored() >= before
    await store.close()


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("how", ["gone", "empty"])
async def test_queue_when_a_file_between_is_missing_then_all_its_messages_are_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], how: str, *, clean: bool
) -> None:
    """Java keeps what lies behind and does not see the rest; here both were gone, without a word."""
    clock = LateClock()
    store = real_store(tmp_path, clock)
    await store.open()
    wanted = [b"%032d" % number for number in range(400)]
    for number, body in enumerate(wanted):
        # What is an hour old is durable, by its stamp: a start after a crash begins behind it.
        clock.late_ms = 0 if number < 350 else 3_600_000
        store.append(message(0, body=body))
    store.append(message(0, body=b"of another queue", queue_id=1))
    await store.close()
    files = sorted((tmp_path / "consumequeue" / TOPIC / "0").iterdir())
    assert len(files) > 3
    if how == "gone":
        files[1].unlink()
    else:
        files[1].write_bytes(b"")
    if not clean:
        (tmp_path / "abort").touch()
    store = real_store(tmp_path)
    await store.open()
    assert bodies(store) == wanted
    assert store.reader.max_offset(TOPIC, 1) == 1
    assert "queue_file_missing" in capsys.readouterr().out
    assert store.append(message(0)).queue_offset == 400
    await store.close()


@pytest.mark.parametrize("next_offset", [10, 200])
async def test_a_cut_before_a_gap_drops_what_is_before_it_too(
    tmp_path: Path, next_offset: int
) -> None:
    """Within one queue file, and with files of nothing but fillers between (64 units a file)."""
    store = real_store(tmp_path)
    await store.open()
    for number in range(3):
        store.append(message(number, body=b"%032d" % number))
    store.queues.next_offsets[KEY] = next_offset
    store.append(message(3))
    await store.wait_dispatched(store.max_offset)
    await store.truncate(3 * 158)
    assert bodies(store) == [b"%032d" % number for number in range(3)]
    await store.truncate(2 * 158)
    assert store.reader.max_offset(TOPIC, 0) == store.queues.next_offsets[KEY] == 2
    assert bodies(store) == [b"%032d" % number for number in range(2)]
    await store.close()


async def test_the_confirm_offset_of_a_plain_broker_is_the_log_s_end(tmp_path: Path) -> None:
    """Java keeps the start of the last record, which it then dispatches again."""
    store = real_store(tmp_path)
    await store.open()
    for number in range(10):
        store.append(message(number))
    await store.close()
    assert struct.unpack_from(">q", (tmp_path / "checkpoint").read_bytes(), 32) == (1580,)
    again = real_store(tmp_path)
    await again.open()
    assert again.confirm_offset == again.dispatched_offset == 1580
    await again.close()
