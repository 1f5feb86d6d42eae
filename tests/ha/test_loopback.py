"""The shells over real sockets: Python to Python, and one strange peer."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import uvloop

from rmqha.base.errors import DiskFailed
from rmqha.ha import events as ev
from rmqha.ha.aio.epoch_file import EpochFile
from rmqha.ha.aio.service import HaService
from rmqha.ha.epochs import EpochEntry
from rmqha.ha.events import PutStatus
from rmqha.ha.frames import HandshakeRequest, encode_ack, encode_handshake_request
from rmqha.ha.ha_core import HaCore
from rmqha.ha.settings import SLAVES_MAX, HaSettings
from rmqha.ha.state import LogFacts
from rmqha.runtime.aio.clock import SystemClock
from rmqha.runtime.aio.disk import SystemDisk
from rmqha.runtime.aio.net import TcpNetwork
from rmqha.runtime.logs import Logger
from tests.ha.memory_log import MemoryLog

ALL_ACK = HaSettings(all_ack_in_sync_state_set=True, slave_timeout_ms=1_000)


class Node:
    """A replica; the test is its controller, which agrees to everything."""

    def __init__(self, broker_id: int, root: Path, settings: HaSettings, log: MemoryLog) -> None:
        self.id = broker_id
        self.log = log
        self.settings = settings
        self.epoch_file = EpochFile(SystemDisk(), str(root / f"epochs-{broker_id}"))
        self.set_epoch = 1
        self.ids: frozenset[int] = frozenset()
        self.failed: list[Exception] = []
        self.port = 0
        self.answers = True

    async def start(self) -> None:
        facts = LogFacts(
            self.log.file_size, self.log.min_offset, self.log.max_offset, self.log.flushed_offset,
            self.log.confirm_offset,
        )  # fmt: skip
        clock = SystemClock()
        epochs = (await self.epoch_file.load()).epochs
        self.core = HaCore(
            own_id=self.id, settings=self.settings, log=facts, epochs=epochs,
            now_ms=clock.now_ms(),
        )  # fmt: skip
        self.service = HaService(
            core=self.core,
            log=self.log,
            epoch_file=self.epoch_file,
            settings=self.settings,
            clock=clock,
            network=TcpNetwork(),
            listener=self,
            logger=Logger(broker=self.id),
        )
        self.port = await self.service.start("127.0.0.1", self.port)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def alter_sync_state_set(self, ids: frozenset[int], epoch: int) -> None:
        if not self.answers:
            return
        assert epoch == self.set_epoch
        self.set_epoch += 1
        self.ids = ids
        asyncio.get_running_loop().call_soon(
            self.service.give, ev.SyncStateSetConfirmed(ids, self.set_epoch)
        )

    def ha_failed(self, error: Exception) -> None:
        self.failed.append(error)

    async def put(self, body: bytes) -> PutStatus:
        status = self.service.check_put()
        if status is not PutStatus.PUT_OK:
            return status
        offset, record = self.log.append(body)
        self.service.appended()
        return await self.service.wait_put(offset + len(record), self.service.reign_number)


async def until(condition: Callable[[], bool], timeout_s: float = 10) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - the shells offer no event for this
            await asyncio.sleep(0.002)


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[Callable[..., Node]]:
    made: list[Node] = []

    def make(broker_id: int, settings: HaSettings = ALL_ACK, file_size: int = 1 << 20) -> Node:
        node = Node(broker_id, tmp_path, settings, MemoryLog(file_size))
        made.append(node)
        return node

    yield make
    for node in made:
        await node.service.close()
        assert node.failed == []


async def pair(make: Callable[..., Node], **options: object) -> tuple[Node, Node]:
    one, two = make(1, **options), make(2, **options)
    await one.start()
    await two.start()
    assert await one.service.change_to_master(1, frozenset({1}), 1)
    assert await two.service.change_to_slave(1, 1, one.address)
    return one, two


async def test_a_slave_catches_up_joins_and_acknowledges(nodes: Callable[..., Node]) -> None:
    """The plain case over TCP, many files, many sizes."""
    one, two = await pair(nodes, file_size=100_000)
    for size in (1, 100, 5_000, 60_000, 99_000):
        assert await one.put(bytes([1 + size % 251]) * size) is PutStatus.PUT_OK
    await until(lambda: one.ids == {1, 2})
    results = await asyncio.gather(*(one.put(b"%d" % number * 50) for number in range(300)))
    assert set(results) == {PutStatus.PUT_OK}
    assert two.log.max_offset == one.log.max_offset
    assert two.log.records() == one.log.records()
    await until(lambda: two.log.confirm_offset == one.log.max_offset)
    assert len(two.log.dispatched) == 305


async def test_a_put_when_its_record_goes_out_then_the_core_looks_at_the_log_once(
    nodes: Callable[..., Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has written and who waits both told it in the same turn of the loop."""
    one, _ = await pair(nodes)
    assert await one.put(b"first") is PutStatus.PUT_OK
    await until(lambda: one.ids == {1, 2})
    seen: list[type] = []
    step = one.service.core.step

    def stepped(now_ms: int, event: ev.Event) -> list[ev.Effect]:
        seen.append(type(event))
        return step(now_ms, event)

    monkeypatch.setattr(one.service.core, "step", stepped)
    assert await one.put(b"second") is PutStatus.PUT_OK
    assert seen.count(ev.Appended) == 1
    assert seen.index(ev.Appended) < seen.index(ev.PutWaited)


async def test_master_when_it_is_elected_then_its_queues_ends_are_made_anew_first(
    nodes: Callable[..., Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without, it gives its next message a number that an older one has, which hides it."""
    one, done = nodes(1), list[str]()
    one.log.append(b"of an older reign")
    await one.start()

    async def dispatched(offset: int) -> None:
        done.append(f"dispatched to {offset}")

    async def rebuilt() -> None:
        await asyncio.sleep(0)
        done.append(f"made anew, {one.service.check_put().name}")

    monkeypatch.setattr(one.log, "wait_dispatched", dispatched)
    monkeypatch.setattr(one.log, "rebuild_queue_offsets", rebuilt)
    assert await one.service.change_to_master(1, frozenset({1}), 1)
    assert done == [f"dispatched to {one.log.max_offset}", "made anew, SERVICE_NOT_AVAILABLE"]
    assert one.service.check_put() is PutStatus.PUT_OK


async def test_batches_that_are_cold_go_in_order_once_they_were_read(
    nodes: Callable[..., Node],
) -> None:
    """A mapped slice that is in no memory makes the whole master wait for its disk."""
    one, two = nodes(1, file_size=100_000), nodes(2, file_size=100_000)
    await one.start()
    await two.start()
    assert await one.service.change_to_master(1, frozenset({1}), 1)
    for number in range(400):
        one.log.append(bytes([1 + number % 251]) * 997)
    one.service.appended()
    read: set[int] = set()
    asked: list[int] = []
    gate = asyncio.Event()

    async def fetch(offset: int, length: int) -> None:
        asked.append(offset)
        await gate.wait()
        read.update(range(offset // 1000, (offset + length) // 1000 + 1))

    one.log.is_cold = lambda offset, length: offset // 1000 not in read  # type: ignore[method-assign]
    one.log.fetch = fetch  # type: ignore[method-assign]
    assert await two.service.change_to_slave(1, 1, one.address)
    await until(lambda: bool(asked))
    # What else is said meanwhile waits its turn: bytes of a frame are not to be torn.
    one.log.append(b"new")
    one.service.appended()
    await asyncio.sleep(0.05)
    assert two.log.max_offset == 0
    gate.set()
    await until(lambda: two.log.max_offset == one.log.max_offset)
    assert two.log.records() == one.log.records()
    assert len(asked) >= 2


async def test_connection_that_ends_while_a_batch_is_read_sends_nothing(
    nodes: Callable[..., Node],
) -> None:
    """A role may have ended meanwhile, and the log been cut."""
    one, two = await pair(nodes)
    gate = asyncio.Event()
    asked: list[int] = []

    async def fetch(offset: int, length: int) -> None:
        asked.append(offset)
        await gate.wait()

    one.log.is_cold = lambda offset, length: True  # type: ignore[method-assign]
    one.log.fetch = fetch  # type: ignore[method-assign]
    one.log.append(b"of this role")
    one.service.appended()
    await until(lambda: bool(asked))
    assert await one.service.change_to_slave(2, 3, "127.0.0.1:1")
    gate.set()
    await asyncio.sleep(0.05)
    assert two.log.max_offset == 0


async def test_bodies_are_never_copied_into_the_core(nodes: Callable[..., Node]) -> None:
    """Received bytes go from the connection's buffer to the log, each once, as views."""
    one, two = await pair(nodes)
    written: list[tuple[int, int]] = []
    honest = two.log.write

    def write(offset: int, data: memoryview) -> None:
        assert isinstance(data, memoryview)
        written.append((offset, len(data)))
        honest(offset, data)

    two.log.write = write  # type: ignore[method-assign]
    await one.put(b"." * 300_000)
    await until(lambda: two.log.max_offset == one.log.max_offset)
    ends = [offset + length for offset, length in written]
    assert [offset for offset, _ in written] == [0, *ends[:-1]]
    assert ends[-1] == two.log.max_offset


async def test_connections_that_are_turned_away_are_counted_by_reason(
    nodes: Callable[..., Node],
) -> None:
    """One that speaks no replication, and the oldest silent one of a full port."""
    one = nodes(1)
    await one.start()
    _, stranger = await asyncio.open_connection("127.0.0.1", one.port)
    # A frame is 16 bytes, or 8; the state that this one names is none.
    stranger.write(b"\xff" * 64)
    await until(lambda: one.service.rejected == {"broken": 1})
    crowd = [await asyncio.open_connection("127.0.0.1", one.port) for _ in range(SLAVES_MAX + 1)]
    await until(lambda: one.service.rejected == {"broken": 1, "connections": 1})
    assert await crowd[0][0].read() == b""
    for _, writer in [(None, stranger), *crowd]:
        writer.close()


@pytest.mark.slow
async def test_roles_swap_and_a_dirty_tail_is_cut(nodes: Callable[..., Node]) -> None:
    """Failover by hand: the old master comes back with a record that nobody else has."""
    one, two = await pair(nodes)
    await one.put(b"first")
    await until(lambda: one.ids == {1, 2})
    one.answers = False
    await two.service.close()
    assert await one.put(b"dirty") is PutStatus.FLUSH_SLAVE_TIMEOUT
    before = one.log.max_offset
    await one.service.close()
    await two.start()
    assert await two.service.change_to_master(2, frozenset({2}), 5)
    two.set_epoch = 5
    assert await two.put(b"second, longer") is PutStatus.PUT_OK
    await one.start()
    assert not await one.service.change_to_slave(0, 2, two.address)
    assert await one.service.change_to_slave(2, 2, two.address)
    await until(lambda: one.log.records() == [b"first", b"second, longer"])
    assert before != one.log.max_offset == two.log.max_offset
    loaded = await one.epoch_file.load()
    assert loaded.epochs.entries == two.core.ha.epochs.entries


async def test_a_put_of_a_lost_slave_times_out_and_the_next_does_not(
    nodes: Callable[..., Node],
) -> None:
    """A stuck put delays nobody, and the set shrinks when the connection closes (#9897)."""
    one, two = await pair(nodes)
    await one.put(b"a")
    await until(lambda: one.ids == {1, 2})
    await two.service.close()
    async with asyncio.timeout(1):
        assert await one.put(b"b") is PutStatus.PUT_OK
    assert one.ids == {1}


async def test_a_master_that_restarts_is_found_again(nodes: Callable[..., Node]) -> None:
    """The slave reconnects by itself, soon, and goes on where it was."""
    one, two = await pair(nodes)
    await one.put(b"a")
    await until(lambda: two.log.max_offset == one.log.max_offset)
    await one.service.close()
    await one.start()
    one.set_epoch = 9
    assert await one.service.change_to_master(1, frozenset({1}), 9)
    assert await one.put(b"b") is PutStatus.PUT_OK
    await until(lambda: two.log.records() == [b"a", b"b"])


async def test_g10_a_port_scanner_moves_nothing(nodes: Callable[..., Node]) -> None:
    """#3015: bytes that make no sense, an early and an impossible acknowledgement."""
    one, _ = await pair(nodes)
    await one.put(b"a")
    hello = encode_handshake_request(HandshakeRequest(7))
    for data in (b"GET / HTTP/1.1\r\n\r\n", encode_ack(0), hello + encode_ack(1 << 40)):
        reader, writer = await asyncio.open_connection("127.0.0.1", one.port)
        writer.write(data)
        try:
            while await reader.read(100):
                pass
        except ConnectionResetError:
            pass
        writer.close()
    await until(lambda: one.ids == {1, 2})


@pytest.mark.costly
async def test_a_slave_that_does_not_read_costs_bounded_memory(nodes: Callable[..., Node]) -> None:
    """Flow control: the transport holds at most its high-water mark and one frame."""
    one = nodes(1, file_size=64 << 20)
    await one.start()
    assert await one.service.change_to_master(1, frozenset({1}), 1)
    for _ in range(40):
        await one.put(b"." * (1 << 20))
    with socket.create_connection(("127.0.0.1", one.port)) as lazy:
        lazy.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(lazy, encode_handshake_request(HandshakeRequest(2)))
        await loop.sock_recv(lazy, 32)
        await loop.sock_sendall(lazy, encode_ack(0))
        await until(lambda: bool(one.service._slaves))
        (connection,) = one.service._slaves.values()
        await until(lambda: connection._paused)
        held = connection._transport.get_write_buffer_size()
        frame = one.settings.transfer_body_bytes + 36
        assert held <= one.settings.in_flight_bytes_max + frame
        got = 0
        while got < 40 << 20:
            got += len(await loop.sock_recv(lazy, 1 << 20))


async def test_a_full_disk_stops_the_slave(nodes: Callable[..., Node]) -> None:
    """Nothing is acknowledged afterwards."""
    one, two = await pair(nodes)

    def refuse(offset: int, length: int) -> memoryview:
        raise DiskFailed("no space left")

    two.log.reserve = refuse  # type: ignore[method-assign]
    await one.put(b"a")
    await until(lambda: bool(two.failed))
    assert isinstance(two.failed.pop(), DiskFailed)


async def test_acknowledging_only_flushed_data(nodes: Callable[..., Node]) -> None:
    """With strict durability an acknowledged byte is on the slave's disk."""
    settings = HaSettings(all_ack_in_sync_state_set=True, ack_flushed_data=True)
    one, two = await pair(nodes, settings=settings)
    await one.put(b"a")
    await until(lambda: one.ids == {1, 2})
    for number in range(20):
        assert await one.put(b"%d" % number) is PutStatus.PUT_OK
        assert two.log.flushed_offset == one.log.max_offset


async def test_the_epoch_file_and_its_backup(tmp_path: Path) -> None:
    """CheckpointFileTest on a real disk; without entries both files go."""
    path = tmp_path / "epochFileCheckpoint"
    file = EpochFile(SystemDisk(), str(path))
    first, second = EpochEntry(7, 7000), EpochEntry(8, 8000)
    await file.write([first])
    await file.write([first, second])
    assert (await file.load()).epochs.entries == (first, second)
    path.unlink()
    loaded = await file.load()
    assert loaded.epochs.entries == (first,)
    assert loaded.damage == "epoch file is missing"
    await file.write([first, second])
    path.write_bytes(b"half")
    assert (await file.load()).epochs.entries == (first,)
    await file.write([])
    assert sorted(tmp_path.iterdir()) == []


@pytest.mark.costly
def test_the_fast_path_on_uvloop(tmp_path: Path) -> None:
    """Production's event loop: 96 MiB in files of 16, byte for byte, while puts go on."""

    async def main() -> None:
        one = Node(1, tmp_path, ALL_ACK, MemoryLog(16 << 20))
        two = Node(2, tmp_path, ALL_ACK, MemoryLog(16 << 20))
        await one.start()
        await two.start()
        assert await one.service.change_to_master(1, frozenset({1}), 1)
        for number in range(96):
            assert await one.put(bytes([1 + number]) * 1_000_000) is PutStatus.PUT_OK
        assert await two.service.change_to_slave(1, 1, one.address)
        while one.ids != {1, 2}:
            status = await one.put(b"while it catches up")
            assert status is PutStatus.PUT_OK
            await asyncio.sleep(0.001)
        assert await one.put(b"last") is PutStatus.PUT_OK
        assert two.log.files == one.log.files
        for node in (one, two):
            await node.service.close()
            assert node.failed == []

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
