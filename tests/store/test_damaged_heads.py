"""A slave's record whose head came damaged: what is durable behind it is cut by no start (ADR 0012)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rmqha.base.errors import StoreDamaged
from rmqha.store import checkpoint as cp
from rmqha.store.aio.message_store import MessageStore
from rmqha.store.damaged_head import head_damage
from rmqha.store.record import BLANK_SIZE, encode_into, encoded_size, pack_host, write_blank
from tests.store.harness import HOST, bodies, message, real_store

NEVER_MS = 10**8
RECORDS, DAMAGED = 20, 10

Damage = Callable[[bytearray, int], None]


def flip(at: int, bit: int) -> Damage:
    """Flip a bit of one byte of the record."""

    def work(data: bytearray, record: int) -> None:
        data[record + at] ^= bit

    return work


DAMAGES = {
    "magic": flip(5, 1), "longer than the file": flip(0, 64), "longer": flip(1, 8), "negative": flip(0, 128),
    "shorter": flip(3, 128), "a little longer": flip(3, 1),
}  # fmt: skip


async def masters(root: Path) -> tuple[bytes, list[int]]:
    """A master's log, and where its records begin."""
    master = real_store(root, enable_controller_mode=True)
    await master.open()
    places = [
        master.append(message(number, body=b"%d" % number)).offset for number in range(RECORDS)
    ]
    data = bytes(master.view(0, master.max_offset))
    await master.close()
    return data, places


def slave_at(root: Path) -> MessageStore:
    """A slave's store that writes nothing by itself."""
    return real_store(
        root, enable_controller_mode=True, flush_interval_commit_log=NEVER_MS,
        flush_checkpoint_interval_ms=NEVER_MS, mapped_file_size_commit_log=1 << 20,
    )  # fmt: skip


def copy(slave: MessageStore, data: bytes | bytearray) -> None:
    """As HA stores what it was sent, behind what is there."""
    at = slave.max_offset
    slave.reserve(at, len(data) - at)
    slave.write(at, memoryview(data)[at:])
    slave.received(at, len(data) - at)


async def damaged_slave(root: Path, damage: Damage) -> tuple[MessageStore, bytes, list[int]]:
    """A slave that got a damaged record, and the master's whole log; nothing is flushed yet."""
    data, places = await masters(root / "master")
    wrong = bytearray(data)
    damage(wrong, places[DAMAGED])
    slave = slave_at(root / "slave")
    await slave.open()
    copy(slave, wrong)
    return slave, data, places


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("stop", ["killed", "closed"])
async def test_start_when_what_was_flushed_lies_behind_a_damaged_head_then_it_cuts_nothing(
    tmp_path: Path, damage: Damage, stop: str
) -> None:
    """It cut all that was durable and acknowledged behind it, without a word."""
    slave, data, places = await damaged_slave(tmp_path, damage)
    assert await slave.flush(len(data)) == len(data)
    if stop == "closed":
        await slave.close()
    again = slave_at(tmp_path / "slave")
    with pytest.raises(StoreDamaged, match=f"damaged at offset {places[DAMAGED]}"):
        await again.open()
    await again.close()
    if stop == "killed":
        await slave.close()


async def test_flush_when_a_head_is_damaged_then_the_place_is_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Until consumers came there, nobody knew that the log ended before it."""
    slave, data, places = await damaged_slave(tmp_path, DAMAGES["magic"])
    await slave.flush(len(data))
    copy(slave, data + data[: places[1]])
    await slave.flush_all()
    lines = [one for one in capsys.readouterr().out.splitlines() if "record_damaged" in one]
    assert len(lines) == 1
    assert f"offset={places[DAMAGED]} reason='unknown magic" in lines[0]
    assert slave.damaged_at == places[DAMAGED]
    await slave.close()


async def test_store_when_the_dispatcher_meets_it_first_then_what_is_behind_is_kept_too(
    tmp_path: Path,
) -> None:
    """The broker ends at that moment, with acknowledged records that no flush has seen."""
    slave, data, _ = await damaged_slave(tmp_path, DAMAGES["magic"])
    slave.set_confirm_offset(len(data))
    with pytest.raises(StoreDamaged):
        await slave.wait_dispatched(len(data))
    await slave.close()
    again = slave_at(tmp_path / "slave")
    with pytest.raises(StoreDamaged):
        await again.open()
    await again.close()


@pytest.mark.parametrize("left", [1, 7, 8, 40, 100, 120])
async def test_start_when_the_last_record_is_half_there_then_it_goes(
    tmp_path: Path, left: int
) -> None:
    """On a slave the newest one may always be: that is no damage, and no start may stop at it."""
    data, places = await masters(tmp_path / "master")
    slave = slave_at(tmp_path / "slave")
    await slave.open()
    copy(slave, data[: places[DAMAGED] + left])
    await slave.flush_all()
    assert slave.damaged_at is None
    await slave._write_checkpoint()
    again = slave_at(tmp_path / "slave")
    await again.open()
    assert again.max_offset == places[DAMAGED]
    await again.close()
    await slave.close()


@pytest.mark.parametrize("way", ["mended", "cut"])
async def test_start_when_the_damage_is_gone_then_the_store_opens(
    tmp_path: Path, way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A copy from another replica, or a next master that does not have the record."""
    slave, data, places = await damaged_slave(tmp_path, DAMAGES["magic"])
    half = data + data[: places[1] // 2]
    copy(slave, half)
    await slave.flush_all()
    mark = cp.read((tmp_path / "slave" / "checkpoint").read_bytes()).flushed_offset
    assert mark == places[DAMAGED] + 1
    begin, end = places[DAMAGED], places[DAMAGED + 1]
    if way == "mended":
        await slave.rewrite(begin, data[begin:end])
    else:
        await slave.truncate(begin)
        out = capsys.readouterr().out
        assert "[warning  ] log_truncated" in out
    again = slave_at(tmp_path / "slave")
    await again.open()
    again.set_confirm_offset(again.max_offset)
    await again.wait_dispatched(again.max_offset)
    assert len(bodies(again)) == (RECORDS if way == "mended" else DAMAGED)
    await again.close()
    await slave.close()


@pytest.mark.parametrize("host", [HOST, pack_host("::1", 10_911)], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("body", [b"", b"x" * 5_000])
def test_head_when_only_a_part_of_its_record_is_there_then_it_is_no_damage(
    host: bytes, body: bytes
) -> None:
    """A slave gets records in parts, and what lies behind them in a file may be anything."""
    one = message(body=body)._replace(store_host=host, born_host=host)
    size = encoded_size(one, property_crc=False)
    data = bytearray(b"\xff" * (1 << 16))
    encode_into(
        data,
        0,
        one,
        size=size,
        queue_offset=7,
        physical_offset=0,
        store_timestamp=1_700_000_000_000,
    )
    for written in (*range(200), size):
        part = data[:written] + bytearray(b"\xff" * (len(data) - written))
        assert head_damage(memoryview(part), 0, written, len(part)) == ""
    assert head_damage(memoryview(data), 0, size, size + BLANK_SIZE - 1) != "", "no blank fits"
    write_blank(data, 0, len(data))
    assert head_damage(memoryview(data), 0, len(data), len(data)) == ""
