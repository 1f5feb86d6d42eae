"""What all connections of a server keep in memory together is bounded."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import cast

from rmqha.base.errors import ConnectionLost
from rmqha.base.ids import ConnectionId
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.aio.room import FLOORS_BYTES, SPARE_PART, Room
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.frame import encode
from rmqha.remoting.settings import FRAME_BYTES_MAX, RemotingSettings
from rmqha.runtime.aio.clock import SystemClock
from tests.remoting.harness import pair

MIB = 1 << 20


class Holder:
    """A connection that notes its end."""

    def __init__(self, host: str = "10.0.0.1") -> None:
        self.is_closed = False
        self.host = host
        self.kept_bytes = 1 << 30

    def abort(self, error: Exception | None = None) -> None:
        assert isinstance(error, ConnectionLost)
        assert error.rejected == "room"
        self.is_closed = True


def test_whoever_keeps_most_goes_when_the_room_is_used_up() -> None:
    """And no more than are needed."""
    room, holders = Room(100), [Holder() for _ in range(4)]
    for holder, size in zip(holders, (20, 50, 30, 0), strict=True):
        room.hold(holder, size)
    assert room.held_bytes == 100
    assert not any(one.is_closed for one in holders)
    room.hold(holders[3], 1)
    assert [one.is_closed for one in holders] == [False, True, False, False]
    assert room.held_bytes == 51
    room.hold(holders[1], 0)  # its end is told later
    assert room.held_bytes == 51
    for holder in holders:
        room.hold(holder, 0)
    assert room.held_bytes == 0


def test_address_that_keeps_most_pays_and_not_the_one_large_connection_of_another() -> None:
    """A thousand connections that keep a little each."""
    room, honest = Room(100), Holder("10.0.0.2")
    room.hold(honest, 40)
    crowd = [Holder() for _ in range(9)]
    for one in crowd:
        room.hold(one, 8)
    assert not honest.is_closed
    assert sum(one.is_closed for one in crowd) == 2
    assert room.held_bytes == 96


def test_one_that_grows_beyond_the_room_by_itself_goes() -> None:
    """Also when it is the only one."""
    room, holder = Room(100), Holder()
    room.hold(holder, 60)
    room.hold(holder, 101)
    assert holder.is_closed
    assert room.held_bytes == 0


def test_crowd_when_it_goes_on_then_all_are_seldom_looked_at() -> None:
    """To look for the largest of 65,536 connections takes milliseconds, and any newcomer asked for it."""

    class Counting(Room):
        looks = 0

        def _close_largest(self) -> None:
            self.looks += 1
            super()._close_largest()

    limit, size = MIB, 1_024
    room, crowd = Counting(limit), [Holder(f"10.0.{n % 8}.1") for n in range(4_096)]
    for one in crowd:
        room.hold(one, size)
        assert room.held_bytes <= limit
    closed = sum(one.is_closed for one in crowd)
    assert closed * size <= len(crowd) * size - limit + limit // SPARE_PART + size
    assert room.looks <= closed // (limit // SPARE_PART // size) + 1


def test_addresses_when_several_have_to_go_then_whoever_keeps_most_by_then_is_next() -> None:
    """The first one's honest connections would pay for all others."""
    limit = 6_400
    room = Room(limit)
    first, second = ([Holder(host) for _ in range(41)] for host in ("10.0.0.1", "10.0.0.2"))
    for one in (*first[:40], *second[:40]):
        room.hold(one, 80)
    room.hold(first[40], 10)
    assert [sum(one.is_closed for one in them) for them in (first, second)] == [1, 1]
    assert room.held_bytes == 6_250


def test_one_whose_peer_has_read_meanwhile_is_counted_anew_and_stays() -> None:
    """Nobody hears of it where less than 64 KiB were unsent: it would go for what it no longer has."""
    room, reader, other = Room(100), Holder(), Holder()
    room.hold(reader, 60)
    room.hold(other, 40)
    reader.kept_bytes = 10
    room.hold(other, 50)
    assert not reader.is_closed
    assert not other.is_closed
    assert room.held_bytes == 60


def test_floor_when_many_are_open_then_those_that_are_not_counted_keep_half_of_the_limit() -> None:
    """65,536 connections with a little less than 64 KiB each kept 4 GiB beside a limit of 512 MiB."""
    limit = 64 * MIB
    room = Room(limit)
    for connections in (*range(0, 70_000, 7), *range(70_000, 0, -7)):
        floor = room.floor_bytes
        assert room.crowd(connections) == (room.floor_bytes < floor)
        assert connections * (room.floor_bytes - 1) <= limit // 2
        if not connections:
            assert room.floor_bytes == FLOORS_BYTES[0]
    assert room.floor_bytes == FLOORS_BYTES[0]
    assert room.crowd(10_000_000)
    assert room.floor_bytes == FLOORS_BYTES[-1]


def test_floor_when_one_connection_comes_and_goes_then_nobody_is_counted_again() -> None:
    """Each time would cost a look at all others."""
    room = Room(64 * MIB)
    most = 32 * MIB // FLOORS_BYTES[0]
    assert [room.crowd(most + more) for more in (0, 1, 0, 1, 0, 1)] == [
        False, True, False, False, False, False,
    ]  # fmt: skip


SETTINGS = RemotingSettings(held_bytes_max=8 * MIB)


async def test_frames_that_are_never_whole_are_bounded_together() -> None:
    """Three hundred sockets with a megabyte each of a frame of 16 MiB took 350 MB."""
    async with pair(settings=SETTINGS) as under_test:
        part = struct.pack(">I", FRAME_BYTES_MAX - 100) + bytes(MIB)
        loop, sockets = asyncio.get_running_loop(), []
        for _ in range(20):
            one = socket.create_connection(("127.0.0.1", under_test.server.port))
            one.setblocking(False)
            sockets.append(one)
            await loop.sock_sendall(one, part)
        room, rejected = under_test.server.room, under_test.server.rejected
        async with asyncio.timeout(10):
            while rejected["room"] < 20 - SETTINGS.held_bytes_max // MIB:
                await under_test.handler.closes.get()
                assert room.held_bytes <= SETTINGS.held_bytes_max
        answer = await under_test.client.invoke(under_test.address, RemotingCommand(1005))
        assert answer.code == 0
        for one in sockets:
            one.close()
        while under_test.server.connections[1:]:
            await under_test.handler.closes.get()
        assert room.held_bytes == 0


async def test_answers_that_nobody_reads_are_bounded_together() -> None:
    """Fifty connections that pulled and never read took a gigabyte."""
    body = bytes(MIB)

    def react(connection: Connection, command: RemotingCommand) -> None:
        connection.send(command.reply(0, body=body if command.code == 11 else b""))

    async with pair(react, SETTINGS) as under_test:
        loop, sockets = asyncio.get_running_loop(), []
        asked = encode(RemotingCommand(11)) * 16  # more than the kernel keeps
        for _ in range(6):
            one = socket.create_connection(("127.0.0.1", under_test.server.port))
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.setblocking(False)
            sockets.append(one)
            await loop.sock_sendall(one, asked)
        room, rejected = under_test.server.room, under_test.server.rejected
        async with asyncio.timeout(10):
            while not rejected["room"]:
                await under_test.handler.closes.get()
        assert room.held_bytes <= SETTINGS.held_bytes_max
        answer = await under_test.client.invoke(under_test.address, RemotingCommand(1005))
        assert answer.code == 0
        for one in sockets:
            one.close()


def kept(connections: tuple[Connection, ...]) -> int:
    """What these keep, counted or not."""
    return sum(one.kept_bytes for one in connections)


async def test_frames_of_many_that_keep_a_little_each_are_bounded_together() -> None:
    """Who kept less than 64 KiB was not counted, however many there were."""
    limit, count = 4 * MIB, 200
    async with pair(settings=RemotingSettings(held_bytes_max=limit)) as under_test:
        part = struct.pack(">I", FRAME_BYTES_MAX - 100) + bytes(63_000)
        loop, sockets = asyncio.get_running_loop(), []
        server = under_test.server
        for _ in range(count):
            one = socket.create_connection(("127.0.0.1", server.port))
            one.setblocking(False)
            sockets.append(one)
            await loop.sock_sendall(one, part)
        async with asyncio.timeout(10):
            while server.rejected["room"] + server.room.held_bytes // len(part) < count:
                assert server.room.held_bytes <= limit
                await asyncio.sleep(0)
        assert kept(server.connections) <= limit * 3 // 2
        for one in sockets:
            one.close()
        while server.connections:
            await under_test.handler.closes.get()
        assert server.room.held_bytes == 0
        assert server.room.floor_bytes == FLOORS_BYTES[0]


class Unread:
    """A transport whose peer reads when it is told."""

    def __init__(self) -> None:
        self.unread_bytes = 0
        self.is_aborted = False

    def get_extra_info(self, name: str) -> tuple[str, int]:
        """One address for all."""
        return "10.0.0.1", 1

    def is_closing(self) -> bool:
        """Whether it was cut off."""
        return self.is_aborted

    def get_write_buffer_size(self) -> int:
        """What waits."""
        return self.unread_bytes

    def write(self, data: bytes) -> None:
        """Nothing is read of it."""
        self.unread_bytes += len(data)

    def writelines(self, parts: list[bytes]) -> None:
        """Nothing is read of them."""
        self.unread_bytes += sum(map(len, parts))

    def resume_reading(self) -> None:
        """Nothing comes in."""

    def abort(self) -> None:
        """It is over."""
        self.is_aborted, self.unread_bytes = True, 0


def kept_in(room: Room, transport: Unread, number: int = 1) -> Connection:
    """A connection that tells the room what it keeps."""
    connection = Connection(
        ConnectionId(number), SystemClock(), RemotingSettings(idle_timeout_ms=0),
        on_commands=lambda _, commands: None, on_closed=lambda _, error: None, room=room,
    )  # fmt: skip
    connection.connection_made(cast(asyncio.Transport, transport))
    return connection


async def test_answers_of_many_that_leave_a_little_unread_each_are_bounded_together() -> None:
    """A transport says that it is full from 64 KiB on only, and nothing below was counted."""
    room, limit, transports = Room(MIB), MIB, list[Unread]()
    connections = list[Connection]()
    for number in range(100):
        transports.append(Unread())
        connections.append(kept_in(room, transports[-1], number))
        room.crowd(len(connections))
    for connection in connections:
        connection.send_bytes(bytes(40_000))
        connection.flush()
        assert sum(one.unread_bytes for one in transports) <= limit
    assert sum(one.is_aborted for one in transports) == 100 - limit // 40_000
    # What was read meanwhile counts no more, also where nobody said so.
    left = [one for one in transports if not one.is_aborted]
    for transport in left[1:]:
        transport.unread_bytes = 0
    connections[0].connection_lost(None)
    fresh = connections[transports.index(left[1])]
    for _ in range(20):
        fresh.send_bytes(bytes(40_000))
        fresh.flush()
    assert not any(one.is_aborted for one in left)


async def test_connection_when_its_peer_has_read_then_it_is_counted_no_more() -> None:
    """It would be closed for what it no longer keeps."""
    room, transport = Room(MIB), Unread()
    connection = kept_in(room, transport)
    connection.pause_writing()
    connection.send_bytes(bytes(100_000))
    connection.flush()
    assert room.held_bytes == 100_000
    transport.unread_bytes = 0
    connection.resume_writing()
    assert room.held_bytes == 0


async def test_connection_when_it_keeps_as_much_again_as_it_has_told_then_it_counts_again() -> None:
    """The room had looked meanwhile, and counted nothing of it any more."""
    room, other, transport = Room(MIB), Holder("10.0.0.2"), Unread()
    room.crowd(1_000)
    connection = kept_in(room, transport)
    connection.send_bytes(bytes(600_000))
    connection.flush()
    transport.unread_bytes = 0
    room.hold(other, MIB // 2)  # too much together: it looks
    assert room.held_bytes == MIB // 2
    connection.send_bytes(bytes(600_000))
    connection.flush()
    assert transport.is_aborted
    assert not other.is_closed


async def test_connection_when_it_has_ended_then_nothing_counts_any_more() -> None:
    """What a transport says after the end would be kept for ever."""
    room, transport = Room(MIB), Unread()
    connection = kept_in(room, transport)
    connection.data_received(struct.pack(">I", FRAME_BYTES_MAX - 100) + bytes(100_000))
    assert room.held_bytes == 100_004
    connection.connection_lost(None)
    connection.resume_writing()
    assert room.held_bytes == 0
