"""Replicas go on: a master whatever becomes of what a slave asks for, and both on a full disk."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any, cast

import pytest

from rmqha.base.errors import DiskFailed, DiskFull
from rmqha.ha import events as ev
from rmqha.ha.aio import service
from rmqha.ha.epochs import EpochEntry
from rmqha.ha.frames import (
    TRANSFER_HEADER_BYTES,
    HandshakeRequest,
    TransferHeader,
    encode_ack,
    encode_handshake_request,
)
from rmqha.store.aio import cold_reads
from rmqha.store.aio.message_store import MessageStore
from tests.ha.memory_log import MemoryLog
from tests.ha.test_loopback import ALL_ACK, Node, until
from tests.store.harness import message, real_store

COUNT = 400
REPLY_BYTES = 20 + 12
TRANSFER = struct.Struct(">iiqiqq")


class Master:
    """One that serves a log of several files, and whoever copies from it by hand."""

    def __init__(self, node: Node, store: MessageStore) -> None:
        self.node = node
        self.store = store
        self.writers: list[asyncio.StreamWriter] = []

    async def slave(self, acked: int = 0) -> asyncio.StreamReader:
        """A slave that has said how far it is."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.node.port)
        self.writers.append(writer)
        writer.write(encode_handshake_request(HandshakeRequest(2)))
        async with asyncio.timeout(5):
            await reader.readexactly(REPLY_BYTES)
        writer.write(encode_ack(acked))
        return reader

    def expire(self) -> asyncio.Task[int]:
        """Have the oldest files go."""
        return asyncio.create_task(self.store.expiring.expire(is_asked=True))


async def header(reader: asyncio.StreamReader) -> TransferHeader:
    """The next one that a slave is sent, with its body."""
    async with asyncio.timeout(10):
        data = await reader.readexactly(TRANSFER_HEADER_BYTES)
        found = TransferHeader(*TRANSFER.unpack(data)[1:])
        await reader.readexactly(found.body_size)
    return found


@pytest.fixture
async def master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Master]:
    monkeypatch.setattr(cold_reads, "COLD_BYTES", 16_384)
    store = real_store(
        tmp_path, enable_controller_mode=True, file_reserved_time=0, expire_interval_ms=1 << 30,
        unchecked_tail_bytes=0,
    )  # fmt: skip
    await store.open()
    node = Node(1, tmp_path, ALL_ACK, cast(Any, store))
    store.expiring._on_prefix_cut = lambda offset: node.service.give(ev.Trimmed(offset))
    await node.start()
    assert await node.service.change_to_master(1, frozenset({1}), 1)
    for number in range(COUNT):
        store.append(message(number))
    node.service.appended()
    await until(lambda: store.confirm_offset == store.max_offset)
    await store.wait_dispatched(store.max_offset)
    await store.flush_all()
    assert len(store.commit_log.files.files) == 4
    made = Master(node, store)
    yield made
    for writer in made.writers:
        writer.close()
    await node.service.close()
    await store.close()
    assert node.failed == []


async def test_slave_when_it_comes_while_files_go_then_it_gets_the_log_from_its_new_beginning(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To delete a file takes a while; who asked for it meanwhile ended the broker."""
    gate, remove = asyncio.Event(), master.store._disk.remove

    async def slow(path: str) -> None:
        await gate.wait()
        await remove(path)

    monkeypatch.setattr(master.store._disk, "remove", slow)
    expiring = master.expire()
    await until(lambda: master.store.min_offset > 0)
    try:
        first = await header(await master.slave())
    finally:
        gate.set()
        assert await expiring == 3
    assert (first.offset, first.body_size > 0) == (master.store.min_offset, True)


async def test_batch_when_its_file_is_gone_then_its_slave_is_hung_up_on(
    master: Master, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever let the core believe that the log still had it, the others have their master still."""
    files = master.store.commit_log.files
    files.leave_before(files.first + 2 * files.size)
    reader = await master.slave()
    async with asyncio.timeout(5):
        assert await reader.read() == b""
    await until(lambda: not master.node.core.sessions)
    assert "ha_batch_gone" in capsys.readouterr().out
    assert (await header(await master.slave(files.first))).offset == files.first


def cold(monkeypatch: pytest.MonkeyPatch, file: Any) -> tuple[asyncio.Event, asyncio.Event]:
    """Have a file be in no memory until it was read, which takes until the second event is set."""
    reading, gate, fetch, is_cached = asyncio.Event(), asyncio.Event(), file.fetch, file.is_cached

    async def slow(low: int, high: int) -> None:
        reading.set()
        await gate.wait()
        await fetch(low, high)

    monkeypatch.setattr(file, "is_cached", lambda low, high: gate.is_set() and is_cached(low, high))
    monkeypatch.setattr(file, "fetch", slow)
    return reading, gate


async def test_batch_when_its_file_goes_while_it_is_read_then_its_slave_is_hung_up_on(
    master: Master, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may not be sent, for nobody can say any more whether it is whole."""
    reading, gate = cold(monkeypatch, master.store.commit_log.files.files[0])
    reader = await master.slave()
    async with asyncio.timeout(5):
        await reading.wait()
    assert await master.expire() == 3
    gate.set()
    async with asyncio.timeout(5):
        assert await reader.read() == b""
    assert "ha_batch_gone" in capsys.readouterr().out
    first = await header(await master.slave())
    assert first.offset == master.store.min_offset


async def test_batch_when_the_disk_cannot_read_it_then_only_its_slave_is_hung_up_on(
    master: Master, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sector of an old file ended the broker each time that a slave came for it."""
    file = master.store.commit_log.files.files[0]

    async def fetch(low: int, high: int) -> None:
        raise DiskFailed("Input/output error")

    monkeypatch.setattr(file, "is_cached", lambda low, high: False)
    monkeypatch.setattr(file, "fetch", fetch)
    reader = await master.slave()
    async with asyncio.timeout(5):
        assert await reader.read() == b""
    assert "ha_batch_unreadable" in capsys.readouterr().out
    await until(lambda: not master.node.core.sessions)
    # Who needs another part of the log has its master still.
    assert (await header(await master.slave(file.size))).offset == file.size
    assert master.store.failed is None


async def test_slave_when_there_is_no_room_for_the_next_file_then_it_comes_back_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended, and with it went the deletion of what had expired there."""
    one, two = (Node(number, tmp_path, ALL_ACK, MemoryLog(1_000)) for number in (1, 2))
    await one.start()
    await two.start()
    assert await one.service.change_to_master(1, frozenset({1}), 1)
    tried, reserve = 0, two.log.reserve

    def full(offset: int, length: int) -> memoryview:
        nonlocal tried
        tried += 1
        if tried <= 2:
            raise DiskFull("no space left")
        return reserve(offset, length)

    monkeypatch.setattr(two.log, "reserve", full)
    for _ in range(10):
        one.log.append(b"b" * 400)
    one.service.appended()
    assert await two.service.change_to_slave(1, 1, one.address)
    await until(lambda: two.log.max_offset == one.log.max_offset)
    assert two.log.records() == one.log.records()
    for node in (one, two):
        await node.service.close()
        assert node.failed == []
    assert tried > 2


async def test_epochs_when_there_is_no_room_for_them_then_the_role_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A master that has not written its epoch down is none; a broker that ends cannot become one."""
    monkeypatch.setattr(service, "SPACE_PAUSE_MS", 1)
    node = Node(1, tmp_path, ALL_ACK, MemoryLog())
    await node.start()
    write, is_full, tried, count = node.epoch_file.write, True, asyncio.Event(), 0

    async def full(entries: Iterable[EpochEntry]) -> None:
        nonlocal count
        if is_full:
            count += 1
            if count == 3:
                tried.set()
            raise DiskFull("no space left")
        await write(entries)

    monkeypatch.setattr(node.epoch_file, "write", full)
    changing = asyncio.create_task(node.service.change_to_master(1, frozenset({1}), 1))
    async with asyncio.timeout(5):
        await tried.wait()
    assert not changing.done()
    assert not (await node.epoch_file.load()).epochs.entries
    is_full = False
    assert await changing
    assert capsys.readouterr().out.count("epochs_lack_space") == 1
    assert len((await node.epoch_file.load()).epochs.entries) == 1
    await node.service.close()
    assert node.failed == []
