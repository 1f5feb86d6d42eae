"""Properties that hold a page of NULs, or end in one: Java's brokers store them, a lost page looks so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmqha.store import checkpoint as cp
from rmqha.store.aio.message_store import MessageStore
from rmqha.store.properties import with_crc_room
from rmqha.store.record import INNER_BATCH, Message, encode_into
from rmqha.store.transfer import Transfer
from tests.store.harness import BORN_MS, TOPIC, bodies, message, real_store

PAGES = b"TAGS\x01TAG1\x02blob\x01" + bytes(8192) + b"\x02"
LAST = b"TAGS\x01TAG1\x02blob\x01abc\0"
SETTINGS: dict[str, Any] = {
    "enable_controller_mode": True, "mapped_file_size_commit_log": 1 << 17,
    "unchecked_tail_bytes": 0,
}  # fmt: skip
COUNT, ODD = 30, 10
WANTED = [b"%d" % number for number in range(COUNT)]


def raw(store: MessageStore, one: Message, number: int) -> bytes:
    """The record of a message as a master of Java's has it."""
    size = 74 + 16 + len(one.body) + 1 + len(one.topic) + len(one.properties)
    data = bytearray(size)
    encode_into(
        data, 0, one, size=size, queue_offset=number, physical_offset=store.max_offset,
        store_timestamp=BORN_MS + number,
    )  # fmt: skip
    return bytes(data)


async def copied(root: Path, properties: bytes, **changes: Any) -> MessageStore:
    """The store of a slave that has copied some messages, one of them with these properties."""
    store = real_store(root, **SETTINGS)
    await store.open()
    for number in range(COUNT):
        one = message(number, body=WANTED[number])
        if number == ODD:
            one = one._replace(properties=properties, **changes)
        data, at = raw(store, one, number), store.max_offset
        store.reserve(at, len(data))
        store.write(at, memoryview(data))
        store.received(at, len(data))
    return store


async def confirmed(store: MessageStore) -> None:
    """All is durable, confirmed and dispatched."""
    await store.flush_all()
    store.set_confirm_offset(store.max_offset)
    await store.wait_dispatched(store.max_offset)


@pytest.mark.parametrize("properties", [PAGES, LAST])
async def test_message_when_its_properties_hold_nuls_then_consumers_and_slaves_get_it(
    tmp_path: Path, properties: bytes
) -> None:
    """It counted as damaged from there on, though every byte was as the master had sent it."""
    store = await copied(tmp_path, properties)
    await confirmed(store)
    found = store.pulling.whole(
        store.pulling.read(
            TOPIC, 0, 0, None, count_max=99, bytes_max=1 << 20, scan_max=99,
            transfer=Transfer(1 << 30, 99, 1 << 20, 99, 1 << 20),
        )
    )  # fmt: skip
    assert (found.status, found.messages) == ("FOUND", COUNT)
    assert await store.prove(0, store.max_offset)
    assert bodies(store) == WANTED
    await store.close()


@pytest.mark.parametrize("properties", [PAGES, LAST])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("java", [True, False])
async def test_store_when_a_message_with_nuls_was_durable_then_it_opens_and_has_it(
    tmp_path: Path, properties: bytes, *, clean: bool, java: bool
) -> None:
    """It could not be started again, for good."""
    store = await copied(tmp_path, properties)
    await confirmed(store)
    await store.close()
    if not clean:
        (tmp_path / cp.ABORT).touch()
    if java:
        # Java's stop in order says of no time that it was durable.
        write_longs(tmp_path, BORN_MS if clean else BORN_MS + ODD + cp.SLACK_MS)
    again = real_store(tmp_path, **SETTINGS)
    await again.open()
    await confirmed(again)
    assert bodies(again) == WANTED
    await again.close()


def write_longs(root: Path, physic_msg_timestamp: int) -> None:
    """The checkpoint as Java writes it: no mark of ours fits any more."""
    path = root / "checkpoint"
    content = bytearray(path.read_bytes())
    known = cp.read(content)
    known.physic_msg_timestamp = physic_msg_timestamp
    known.flushed_offset = known.indexed_offset = known.begin_offset = None
    cp.write_into(content, known)
    path.write_bytes(content)


@pytest.mark.parametrize("java", [True, False])
@pytest.mark.parametrize("sys_flag", [0, INNER_BATCH])
async def test_store_when_nobody_knows_that_nuls_were_durable_then_the_log_ends_before_them(
    tmp_path: Path, sys_flag: int, *, java: bool
) -> None:
    """A power cut that takes a page leaves the same, and no CRC tells of it."""
    store = await copied(tmp_path, PAGES, sys_flag=sys_flag)
    store.set_confirm_offset(store.max_offset)
    await store.wait_dispatched(store.max_offset)
    unit = store.reader.unit(TOPIC, 0, ODD - 1) if not sys_flag else None
    end = unit.physical_offset + unit.size if unit is not None else None
    await store.close()
    (tmp_path / cp.ABORT).touch()
    write_longs(tmp_path, BORN_MS + ODD + cp.SLACK_MS - 1)
    if not java:
        content = bytearray((tmp_path / "checkpoint").read_bytes())
        known = cp.read(content)
        known.flushed_offset = 1_000
        cp.write_into(content, known)
        (tmp_path / "checkpoint").write_bytes(content)
    again = real_store(tmp_path, **SETTINGS)
    found = await again.open()
    assert found.records == ODD
    assert end in (None, again.max_offset)
    await again.close()


async def test_store_when_a_record_carries_its_own_crc_then_nuls_are_no_lost_page(
    tmp_path: Path,
) -> None:
    """That covers all of it, so nothing has to be guessed."""
    settings = {**SETTINGS, "force_verify_prop_crc": True}
    store = real_store(tmp_path, **settings)
    await store.open()
    one = message(properties=PAGES)
    size = 74 + 16 + len(one.body) + 1 + len(one.topic) + len(with_crc_room(one.properties))
    data = bytearray(size)
    encode_into(
        data, 0, one, size=size, queue_offset=0, physical_offset=0, store_timestamp=BORN_MS,
        property_crc=True,
    )  # fmt: skip
    store.reserve(0, size)
    store.write(0, memoryview(data))
    store.received(0, size)
    await store.close()
    (tmp_path / cp.ABORT).touch()
    write_longs(tmp_path, BORN_MS)
    again = real_store(tmp_path, **settings)
    assert (await again.open()).records == 1
    await again.close()
