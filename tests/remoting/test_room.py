"""What all connections of a server keep in memory together is bounded."""

from __future__ import annotations

import asyncio
import socket
import struct

from rmqha.base.errors import ConnectionLost
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.aio.room import Room
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.frame import encode
from rmqha.remoting.settings import FRAME_BYTES_MAX, RemotingSettings
from tests.remoting.harness import pair

MIB = 1 << 20


class Holder:
    """A connection that notes its end."""

    def __init__(self, host: str = "10.0.0.1") -> None:
        self.is_closed = False
        self.host = host

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
