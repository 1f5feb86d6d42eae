"""Server and connection on loopback: batches, limits, and ends of connections."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import struct
import weakref
from typing import cast

import pytest

from rmqha.base.errors import (
    ConnectionLost,
    FrameTooLarge,
    HeaderMalformed,
    LocalProtocolError,
)
from rmqha.base.ids import ConnectionId
from rmqha.remoting.aio.connection import COMMANDS_A_LOOK, HANDLING_MS_MAX, Connection
from rmqha.remoting.aio.server import RemotingServer, unsupported
from rmqha.remoting.aio.turns import Turns
from rmqha.remoting.command import FLAG_ONEWAY, RemotingCommand
from rmqha.remoting.frame import FrameDecoder, encode
from rmqha.remoting.settings import FRAME_BYTES_MAX, RemotingSettings
from rmqha.runtime.aio.clock import SystemClock
from rmqha.runtime.aio.net import TcpNetwork
from rmqha.runtime.late import LATE_MS, READ_MS
from tests.remoting.harness import Pair, RecordingHandler, pair


async def read_answers(reader: asyncio.StreamReader, count: int) -> list[RemotingCommand]:
    """Read until ``count`` commands have come."""
    decoder, answers = FrameDecoder(), list[RemotingCommand]()
    while len(answers) < count:
        data = await reader.read(65_536)
        assert data, "the server closed the connection"
        answers += decoder.feed(data)
    return answers


async def raw(under_test: Pair) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A plain TCP connection to the server."""
    return await asyncio.open_connection("127.0.0.1", under_test.server.port)


async def test_pipelined_requests_arrive_as_one_batch_and_leave_as_one_write() -> None:
    """One Python call per chunk, not per request, is what makes the controller fast."""
    writes: list[int] = []

    def react(connection: Connection, command: RemotingCommand) -> None:
        connection.send(command.reply(0))
        writes.append(connection.bytes_out)

    async with pair(react) as under_test:
        reader, writer = await raw(under_test)
        writer.write(b"".join(encode(RemotingCommand(1005, opaque=n)) for n in range(50)))
        answers = await read_answers(reader, 50)
        assert list(range(50)) == [answer.opaque for answer in answers]
        batch = under_test.handler.batches.get_nowait()
        assert len(batch) == 50
        assert [0] * 50 == writes
        (connection,) = under_test.server.connections
        assert (50, 50) == (connection.frames_in, connection.frames_out)
        assert connection.bytes_out > 50 * 60
        writer.close()
        assert None is await under_test.handler.closes.get()


async def test_answers_sent_later_are_flushed() -> None:
    """Most controller answers come after a commit, outside of data_received."""

    def react(connection: Connection, command: RemotingCommand) -> None:
        asyncio.get_running_loop().call_soon(connection.send, command.reply(0))

    async with pair(react) as under_test:
        reader, writer = await raw(under_test)
        writer.write(encode(RemotingCommand(1005, opaque=3)))
        assert [3] == [answer.opaque for answer in await read_answers(reader, 1)]
        writer.close()


async def test_an_answer_that_makes_no_frame_is_told_in_one_that_does() -> None:
    """A list that has grown too long ended without an answer, and with the connection."""

    def react(connection: Connection, command: RemotingCommand) -> None:
        connection.answer(command, command.reply(0, body=bytes(FRAME_BYTES_MAX)))

    async with pair(react) as under_test:
        answer = await under_test.client.invoke(under_test.address, RemotingCommand(206))
        assert answer.code == 1
        assert "over the limit" in (answer.remark or "")


async def test_malformed_input_closes_that_connection_only() -> None:
    """One broken peer must not take the others' liveness with it."""
    async with pair() as under_test:
        reader, writer = await raw(under_test)
        bad_reader, bad_writer = await raw(under_test)
        bad_writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"" == await bad_reader.read()
        assert isinstance(await under_test.handler.errors.get(), FrameTooLarge)
        assert isinstance(await under_test.handler.closes.get(), FrameTooLarge)
        assert under_test.server.rejected == {"broken": 1}
        writer.write(encode(RemotingCommand(1005, opaque=1)))
        assert 1 == len(await read_answers(reader, 1))
        for each in (writer, bad_writer):
            each.close()


async def test_request_before_malformed_bytes_is_answered() -> None:
    """What was legal when it came stays legal."""
    async with pair() as under_test:
        reader, writer = await raw(under_test)
        writer.write(encode(RemotingCommand(1005, opaque=1)) + bytes.fromhex("0000000400000001"))
        data = await reader.read()
        assert [1] == [answer.opaque for answer in FrameDecoder().feed(data)]
        assert isinstance(await under_test.handler.closes.get(), HeaderMalformed)
        writer.close()


class Sink:
    """A transport that takes everything."""

    def get_extra_info(self, name: str) -> None:
        """Nobody in particular."""

    def is_closing(self) -> bool:
        """It is open."""
        return False

    def get_write_buffer_size(self) -> int:
        """Nothing waits."""
        return 0

    def close(self) -> None:
        """Nothing to close."""


@pytest.mark.parametrize("before", [b"", encode(RemotingCommand(1005, opaque=1))])
@pytest.mark.parametrize("header", [b'{"a":' * 40_000, b"[" * 200_000, b"\xff" * 200_000])
async def test_connection_that_broke_the_protocol_keeps_nothing_until_the_collector_comes(
    before: bytes, header: bytes
) -> None:
    """The error held the stack, that the connection and the frame, and the connection the error: a
    server under such frames kept hundreds of MiB of them, for its collector seldom looks."""
    reasons: list[str] = []
    connection = Connection(
        ConnectionId(1), SystemClock(), RemotingSettings(idle_timeout_ms=0),
        on_commands=lambda _, commands: None, on_closed=lambda _, error: None,
        on_protocol_error=lambda _, error: reasons.append(str(error)),
    )  # fmt: skip
    kept = weakref.ref(connection)
    gc.disable()
    try:
        connection.connection_made(cast(asyncio.Transport, Sink()))
        connection.data_received(before + struct.pack(">II", 4 + len(header), len(header)) + header)
        connection.connection_lost(None)
        del connection
        assert reasons
        assert kept() is None
    finally:
        gc.enable()


async def test_handler_may_abort_within_a_batch() -> None:
    """Answers after the end are dropped quietly."""

    def react(connection: Connection, command: RemotingCommand) -> None:
        connection.abort(ConnectionLost("enough"))
        connection.send(command.reply(0))
        connection.close()

    async with pair(react) as under_test:
        _, writer = await raw(under_test)
        writer.write(encode(RemotingCommand(1005)) * 3)
        assert "enough" == str(await under_test.handler.closes.get())
        writer.close()


async def test_peer_that_does_not_read_is_cut_off() -> None:
    """Without the limit one stalled broker grows the controller's memory for ever."""
    settings = RemotingSettings(write_buffer_bytes_max=100_000)

    def react(connection: Connection, command: RemotingCommand) -> None:
        connection.send_bytes(bytes(2_000_000))

    async with pair(react, settings) as under_test:
        with socket.socket() as silent:
            silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            silent.connect(("127.0.0.1", under_test.server.port))
            for _ in range(4):
                silent.send(encode(RemotingCommand(1005)))
            error = await under_test.handler.closes.get()
        assert isinstance(error, ConnectionLost)
        assert "100000 bytes" in str(error)


async def test_unsent_bytes_never_pass_the_bound_whether_gathered_or_in_the_transport() -> None:
    """What is gathered comes on top of what the transport holds already: one bound for both."""
    bound, held = 1_000_000, list[int]()
    settings = RemotingSettings(write_buffer_bytes_max=bound)

    def react(connection: Connection, command: RemotingCommand) -> None:
        asyncio.get_running_loop().call_soon(pour, connection)

    def pour(connection: Connection) -> None:
        if not connection.is_closing:
            for _ in range(7):  # one turn of the loop gathers these
                connection.send_parts(RemotingCommand(11), [memoryview(bytes(90_000))])
                held.append(connection.unsent_bytes)
            asyncio.get_running_loop().call_soon(pour, connection)

    async with pair(react, settings) as under_test:
        with socket.socket() as silent:
            silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            silent.connect(("127.0.0.1", under_test.server.port))
            silent.send(encode(RemotingCommand(1005)))
            assert isinstance(await under_test.handler.closes.get(), ConnectionLost)
        assert bound - 100_000 < max(held) <= bound


async def test_requests_wait_while_the_peer_does_not_read() -> None:
    """Reading on would queue answers up to the cut-off; waiting lets a slow peer recover."""
    paused = asyncio.Event()

    def react(connection: Connection, command: RemotingCommand) -> None:
        connection.send(command.reply(0, body=bytes(8_000_000)))
        asyncio.get_running_loop().call_soon(
            lambda: paused.set() if connection.is_write_paused else None
        )

    async with pair(react) as under_test:
        reader, writer = await raw(under_test)
        writer.write(encode(RemotingCommand(1005, opaque=1)))
        await paused.wait()
        writer.write(encode(RemotingCommand(1005, opaque=2)))
        answers = await read_answers(reader, 2)
        assert [1, 2] == [answer.opaque for answer in answers]
        writer.close()


async def test_silent_connection_is_closed_when_idle() -> None:
    """Half-open connections of crashed hosts would pile up."""
    async with pair(settings=RemotingSettings(idle_timeout_ms=30)) as under_test:
        reader, writer = await raw(under_test)
        assert b"" == await reader.read()
        error = await under_test.handler.closes.get()
        assert "idle for 30 ms" == str(error)
        assert () == under_test.server.connections
        writer.close()


class SteppedClock(SystemClock):
    """A clock that moves when told; timers are kept for the test to fire."""

    def __init__(self) -> None:
        self.time_ms = 0
        self.timers: list[tuple[float, object]] = []

    def now_ms(self) -> int:
        return self.time_ms

    def call_later(self, delay_ms, callback, *args):  # type: ignore[no-untyped-def]
        self.timers.append((delay_ms, callback))
        return asyncio.get_running_loop().call_later(3600, callback, *args)


async def test_activity_postpones_the_idle_close_without_new_timers() -> None:
    """Brokers heartbeat every second; moving a timer each time would cost more than the request."""
    clock, handler = SteppedClock(), RecordingHandler()
    server = RemotingServer(TcpNetwork(), clock, RemotingSettings(), handler)
    await server.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    for time_ms in (40_000, 80_000):
        clock.time_ms = time_ms
        writer.write(encode(RemotingCommand(1005)))
        await read_answers(reader, 1)
    assert [120_000] == [delay for delay, _ in clock.timers]
    clock.time_ms = 120_000
    _, check_idle = clock.timers.pop()
    assert callable(check_idle)
    check_idle()
    # The last sign of life was at 80 s, so 80 s remain.
    assert [80_000] == [delay for delay, _ in clock.timers]
    assert len(server.connections) == 1
    writer.close()
    await handler.closes.get()
    await server.close()


class Taking(Sink):
    """A transport that takes all that is written."""

    def write(self, data: bytes) -> None:
        """It has left."""

    def pause_reading(self) -> None:
        """Nothing comes by itself."""

    def resume_reading(self) -> None:
        """Nothing comes by itself."""


class Pausing(Taking):
    """One that knows whether it is read, and ends its connection when that is aborted."""

    def __init__(self, connection: Connection | None = None) -> None:
        super().__init__()
        self.reads = True
        self._connection = connection

    def pause_reading(self) -> None:
        """Read nothing."""
        self.reads = False

    def resume_reading(self) -> None:
        """Read on."""
        self.reads = True

    def abort(self) -> None:
        """It has ended."""
        if self._connection is not None:
            self._connection.connection_lost(None)


async def test_connection_when_it_only_sends_then_it_is_not_idle() -> None:
    """A long answer to a peer that says nothing meanwhile; one-way messages of a client."""
    clock, closes = SteppedClock(), list[Exception | None]()
    connection = Connection(
        ConnectionId(1), clock, RemotingSettings(),
        on_commands=lambda _, commands: None, on_closed=lambda _, error: closes.append(error),
    )  # fmt: skip
    connection.connection_made(cast(asyncio.Transport, Taking()))
    clock.time_ms = 80_000
    connection.send(RemotingCommand(904, flag=FLAG_ONEWAY))
    connection.flush()
    assert connection.active_ms == 80_000
    clock.time_ms = 120_000
    _, check_idle = clock.timers.pop()
    assert callable(check_idle)
    check_idle()
    assert [80_000] == [delay for delay, _ in clock.timers]


async def test_commands_when_a_chunk_comes_while_others_wait_their_turn_then_in_order() -> None:
    """A request would overtake those that its sender sent before, and be answered first."""
    clock, handled = SteppedClock(), list[int]()

    def slowly(_: Connection, commands: list[RemotingCommand]) -> None:
        handled.extend(command.opaque for command in commands)
        clock.time_ms += HANDLING_MS_MAX

    connection = Connection(
        ConnectionId(1), clock, RemotingSettings(), on_commands=slowly,
        on_closed=lambda _, error: None, turns=Turns(),
    )  # fmt: skip
    connection.connection_made(cast(asyncio.Transport, Taking()))
    count = 2 * COMMANDS_A_LOOK
    frames = [encode(RemotingCommand(904, n, FLAG_ONEWAY)) for n in range(count + 1)]
    connection.data_received(b"".join(frames[:count]))
    assert handled == list(range(COMMANDS_A_LOOK))
    connection.data_received(frames[count])
    await asyncio.sleep(0)  # its turn
    await asyncio.sleep(0)
    assert handled == list(range(count + 1))


async def test_commands_when_they_wait_in_front_of_a_malformed_frame_then_they_are_handled() -> (
    None
):
    """What was legal when it came stays legal, also where it takes long."""
    clock, handled, errors = SteppedClock(), list[int](), list[Exception]()

    def slowly(_: Connection, commands: list[RemotingCommand]) -> None:
        assert not errors
        handled.extend(command.opaque for command in commands)
        clock.time_ms += HANDLING_MS_MAX

    connection = Connection(
        ConnectionId(1), clock, RemotingSettings(), on_commands=slowly,
        on_closed=lambda _, error: None, turns=Turns(),
        on_protocol_error=lambda _, error: errors.append(error),
    )  # fmt: skip
    connection.connection_made(cast(asyncio.Transport, Taking()))
    count = 3 * COMMANDS_A_LOOK
    frames = [encode(RemotingCommand(904, n, FLAG_ONEWAY)) for n in range(count)]
    connection.data_received(b"".join(frames) + b"GET / HTTP/1.1")
    assert len(handled) == COMMANDS_A_LOOK
    connection.data_received(b"more of it")
    for _ in range(3):  # its turns
        await asyncio.sleep(0)
    assert handled == list(range(count))
    assert [type(error) for error in errors] == [FrameTooLarge]


async def test_connections_over_the_maximum_are_refused() -> None:
    """Descriptors run out for the log files too."""
    async with pair(settings=RemotingSettings(connections_max=1)) as under_test:
        reader, writer = await raw(under_test)
        writer.write(encode(RemotingCommand(1005)))
        await read_answers(reader, 1)
        refused_reader, refused_writer = await raw(under_test)
        # Cut off with a reset or in order, as the platform likes.
        try:
            assert b"" == await refused_reader.read()
        except ConnectionError:
            pass
        assert {"connections": 1} == under_test.server.rejected
        writer.write(encode(RemotingCommand(1005)))
        await read_answers(reader, 1)
        assert under_test.handler.closes.empty()
        writer.close()
        refused_writer.close()


async def test_address_that_has_all_places_gives_one_up_for_another_address() -> None:
    """A crowd from one host keeps nobody else out, and nobody keeps it from an idle server."""
    async with pair(settings=RemotingSettings(connections_max=4)) as under_test:
        port, rejected = under_test.server.port, under_test.server.rejected
        crowd = [await raw(under_test) for _ in range(4)]
        for number, (reader, writer) in enumerate(crowd):
            writer.write(encode(RemotingCommand(1005, opaque=number)))
            await read_answers(reader, 1)
        others = []
        for count in (1, 2):
            one = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
            one[1].write(encode(RemotingCommand(1005)))
            await read_answers(one[0], 1)
            others.append(one)
            assert rejected == {"share": count}
        # Two each is fair: the next of either goes.
        third = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
        with contextlib.suppress(ConnectionError):
            assert await third[0].read() == b""
        assert rejected == {"share": 2, "connections": 1}
        for reader, writer in (*crowd[:2], *others):
            writer.write(encode(RemotingCommand(1005)))
            await read_answers(reader, 1)
        for _, writer in (*crowd, *others, third):
            writer.close()
        while under_test.server.connections:
            await under_test.handler.closes.get()


async def test_address_when_all_have_a_share_then_nobody_gives_up_a_place_for_one_more() -> None:
    """The newcomer would take the only connection of another, which would take it back, for ever."""
    async with pair(settings=RemotingSettings(connections_max=3)) as under_test:
        port, rejected = under_test.server.port, under_test.server.rejected
        known = []
        for number in range(1, 4):
            one = await asyncio.open_connection(
                "127.0.0.1", port, local_addr=(f"127.0.0.{number}", 0)
            )
            one[1].write(encode(RemotingCommand(1005)))
            await read_answers(one[0], 1)
            known.append(one)
        fourth = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.4", 0))
        with contextlib.suppress(ConnectionError):
            assert await fourth[0].read() == b""
        assert rejected == {"connections": 1}
        for reader, writer in known:
            writer.write(encode(RemotingCommand(1005)))
            await read_answers(reader, 1)
        for _, writer in (*known, fourth):
            writer.close()


async def test_address_when_it_has_its_share_exactly_then_it_gets_no_place_of_another() -> None:
    """Of six places and two addresses, with one that may come: two each, however many others have."""
    async with pair(settings=RemotingSettings(connections_max=6)) as under_test:
        port, rejected = under_test.server.port, under_test.server.rejected
        known = []
        for number in (1, 1, 1, 1, 2, 2):
            one = await asyncio.open_connection(
                "127.0.0.1", port, local_addr=(f"127.0.0.{number}", 0)
            )
            one[1].write(encode(RemotingCommand(1005)))
            await read_answers(one[0], 1)
            known.append(one)
        third = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
        with contextlib.suppress(ConnectionError):
            assert await third[0].read() == b""
        assert rejected == {"connections": 1}
        for reader, writer in known:
            writer.write(encode(RemotingCommand(1005)))
            await read_answers(reader, 1)
        for _, writer in (*known, third):
            writer.close()


async def test_close_lets_answers_leave_and_cuts_off_the_deaf() -> None:
    """A restart should neither lose answers nor hang on a stopped peer."""

    def react(connection: Connection, command: RemotingCommand) -> None:
        connection.send_bytes(bytes(30_000_000))

    async with pair(react) as under_test:
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.connect(("127.0.0.1", under_test.server.port))
            deaf.send(encode(RemotingCommand(1005)))
            await under_test.handler.batches.get()
            await under_test.server.close(grace_ms=10)
        assert () == under_test.server.connections
        with pytest.raises(LocalProtocolError):
            _ = under_test.server.port


async def test_connection_knows_its_peer() -> None:
    """Logs without the peer's address help nobody."""
    async with pair() as under_test:
        reader, writer = await raw(under_test)
        writer.write(encode(RemotingCommand(1005)))
        await read_answers(reader, 1)
        (connection,) = under_test.server.connections
        host, port = writer.get_extra_info("sockname")
        assert f"{host}:{port}" == connection.peer
        assert not connection.is_closing
        writer.close()


def test_unsupported_code_is_refused_in_javas_words() -> None:
    """Java clients print the remark."""
    answer = unsupported(RemotingCommand(1014, opaque=9))
    assert (3, 9, " request type 1014 not supported") == (
        answer.code, answer.opaque, answer.remark,
    )  # fmt: skip


async def test_oneway_requests_reach_the_handler_marked() -> None:
    """An answer to a one-way request would be matched with something else."""
    async with pair() as under_test:
        reader, writer = await raw(under_test)
        writer.write(encode(RemotingCommand(904, opaque=1, flag=FLAG_ONEWAY)))
        writer.write(encode(RemotingCommand(1005, opaque=2)))
        assert [2] == [answer.opaque for answer in await read_answers(reader, 1)]
        writer.close()


async def connected(under_test: Pair) -> tuple[asyncio.StreamWriter, Connection]:
    """A client's end and the server's end of one connection."""
    reader, writer = await raw(under_test)
    writer.write(encode(RemotingCommand(1005)))
    await read_answers(reader, 1)
    (connection,) = under_test.server.connections
    return writer, connection


async def test_listeners_when_the_peer_reads_again_then_each_is_told_once() -> None:
    """Whoever passed a full connection over looks at it again, and asks anew where it is full again."""
    told: list[str] = []
    async with pair() as under_test:
        writer, connection = await connected(under_test)
        connection.pause_writing()

        def again(_: Connection) -> None:
            told.append("again")
            connection.pause_writing()
            connection.when_writable(again)

        connection.when_writable(lambda one: told.append(one.peer))
        connection.when_writable(again)
        connection.resume_writing()
        assert told == [connection.peer, "again"]
        connection.resume_writing()
        assert told == [connection.peer, "again", "again"]
        writer.close()


async def test_listeners_when_the_connection_ends_then_none_is_told_or_kept() -> None:
    """A request that was put off would keep its connection in memory, and be answered into nothing."""
    told: list[Connection] = []
    async with pair() as under_test:
        writer, connection = await connected(under_test)
        connection.pause_writing()
        connection.when_writable(told.append)
        connection.abort()
        await under_test.handler.closes.get()
        connection.resume_writing()
        assert told == []
        writer.close()


async def test_connection_when_who_answers_has_it_wait_then_the_rest_comes_behind_in_order() -> (
    None
):
    """A registration that is read in turns must not be overtaken by what its broker says next."""
    clock, handled = SteppedClock(), list[int]()

    def waits_at_2(one: Connection, commands: list[RemotingCommand]) -> None:
        for at, command in enumerate(commands):
            handled.append(command.opaque)
            if command.opaque == 2:
                one.wait(commands[at + 1 :])
                return

    errors = list[Exception]()
    transport = Pausing()
    turns = Turns()
    connection = Connection(
        ConnectionId(1), clock, RemotingSettings(), on_commands=waits_at_2,
        on_closed=lambda _, error: None, turns=turns,
        on_protocol_error=lambda _, error: errors.append(error),
    )  # fmt: skip
    connection.connection_made(cast(asyncio.Transport, transport))
    count = 2 * COMMANDS_A_LOOK
    frames = [encode(RemotingCommand(904, n, FLAG_ONEWAY)) for n in range(count + 2)]
    connection.data_received(b"".join(frames[:count]))
    assert (handled, transport.reads) == ([0, 1, 2], False)
    connection.data_received(frames[count])
    turns.wait(connection)
    await asyncio.sleep(0)  # its turn, which changes nothing
    connection.data_received(frames[count + 1] + b"GET / HTTP/1.1")
    assert (handled, transport.reads, errors) == ([0, 1, 2], False, [])
    connection.resume()
    assert handled == list(range(count + 2))
    assert [type(error) for error in errors] == [FrameTooLarge]


async def test_connection_when_it_waits_with_nothing_behind_then_what_comes_is_kept_until_then() -> (
    None
):
    """Also a malformed frame, which ends it; and one that waits for its turn as well goes on then."""
    handled, errors = list[int](), list[Exception]()

    def waits(one: Connection, commands: list[RemotingCommand]) -> None:
        handled.extend(command.opaque for command in commands)
        if handled == [0]:
            one.wait([])

    transport, turns = Pausing(), Turns()
    connection = Connection(
        ConnectionId(1), SteppedClock(), RemotingSettings(), on_commands=waits,
        on_closed=lambda _, error: None, turns=turns,
        on_protocol_error=lambda _, error: errors.append(error),
    )  # fmt: skip
    connection.connection_made(cast(asyncio.Transport, transport))
    connection.data_received(encode(RemotingCommand(904, 0, FLAG_ONEWAY)))
    turns.wait(connection)
    connection.resume()
    assert not transport.reads, "it is not its turn yet"
    await asyncio.sleep(0)
    assert transport.reads
    handled.clear()
    connection.data_received(encode(RemotingCommand(904, 0, FLAG_ONEWAY)))
    connection.data_received(encode(RemotingCommand(904, 5, FLAG_ONEWAY)) + b"GET / HTTP/1.1")
    assert (handled, errors) == ([0], [])
    connection.resume()
    assert handled == [0, 5]
    assert [type(error) for error in errors] == [FrameTooLarge]


async def test_connection_when_it_is_told_to_wait_late_then_what_waits_for_its_turn_is_kept() -> (
    None
):
    """By who was asked before, and took a while to see that it takes long."""
    clock, handled = SteppedClock(), list[int]()

    def slowly(_: Connection, commands: list[RemotingCommand]) -> None:
        handled.extend(command.opaque for command in commands)
        clock.time_ms += HANDLING_MS_MAX

    connection = Connection(
        ConnectionId(1), clock, RemotingSettings(), on_commands=slowly,
        on_closed=lambda _, error: None, turns=Turns(),
    )  # fmt: skip
    connection.connection_made(cast(asyncio.Transport, Pausing()))
    count = 3 * COMMANDS_A_LOOK
    connection.data_received(
        b"".join(encode(RemotingCommand(904, n, FLAG_ONEWAY)) for n in range(count))
    )
    assert 0 < len(handled) < count
    last = handled[-1]
    connection.wait([RemotingCommand(904, last, FLAG_ONEWAY)])
    connection.resume()
    for _ in range(5):
        await asyncio.sleep(0)
    assert handled == [*range(last + 1), *range(last, count)], "what was not dealt with comes first"


async def test_connection_when_it_waits_then_a_malformed_frame_alone_ends_it_behind_its_answer() -> (
    None
):
    """What was asked before it is answered."""
    errors = list[Exception]()
    connection = Connection(
        ConnectionId(1), SteppedClock(), RemotingSettings(),
        on_commands=lambda one, _: one.wait([]), on_closed=lambda _, error: None, turns=Turns(),
        on_protocol_error=lambda _, error: errors.append(error),
    )  # fmt: skip
    connection.connection_made(cast(asyncio.Transport, Pausing()))
    connection.data_received(encode(RemotingCommand(103, 0)))
    connection.data_received(b"GET / HTTP/1.1")
    assert errors == []
    connection.resume()
    assert [type(error) for error in errors] == [FrameTooLarge]


async def test_connection_when_it_waits_for_its_answer_then_it_is_not_idle() -> None:
    """A broker whose registration waited for two minutes was cut off, for it said nothing more."""
    clock, ends = SteppedClock(), list[Exception | None]()
    connection = Connection(
        ConnectionId(1), clock, RemotingSettings(idle_timeout_ms=120_000),
        on_commands=lambda one, _: one.wait([]), on_closed=lambda _, error: ends.append(error),
    )  # fmt: skip
    connection.connection_made(cast(asyncio.Transport, Pausing(connection)))
    connection.data_received(encode(RemotingCommand(103, 0, FLAG_ONEWAY)))

    def pass_time(ms: int) -> None:
        clock.time_ms += ms
        _, check = clock.timers.pop()
        assert callable(check)
        check()

    for _ in range(3):
        pass_time(120_000)
    clock.time_ms += 100_000
    connection.resume()
    pass_time(20_000)
    assert ends == [], "its silence begins with its answer"
    pass_time(100_000)
    assert [type(error) for error in ends] == [ConnectionLost]


async def test_connection_when_it_ends_while_commands_wait_then_they_are_not_handled_any_more() -> (
    None
):
    """Its owner has been told that it is gone, and has taken its broker off."""
    clock, handled = SteppedClock(), list[int]()

    def slowly(_: Connection, commands: list[RemotingCommand]) -> None:
        handled.extend(command.opaque for command in commands)
        clock.time_ms += HANDLING_MS_MAX

    connection = Connection(
        ConnectionId(1), clock, RemotingSettings(), on_commands=slowly,
        on_closed=lambda _, error: handled.append(-1), turns=Turns(),
    )  # fmt: skip
    connection.connection_made(cast(asyncio.Transport, Taking()))
    count = 2 * COMMANDS_A_LOOK
    frames = [encode(RemotingCommand(904, n, FLAG_ONEWAY)) for n in range(count)]
    connection.data_received(b"".join(frames))
    connection.connection_lost(None)
    await asyncio.sleep(0)  # what would have been its turn
    await asyncio.sleep(0)
    assert handled == [*range(COMMANDS_A_LOOK), -1]


async def test_connection_when_its_process_stood_still_then_it_is_read_before_it_is_idle() -> None:
    """A loop runs its timers before it reads: all brokers were cut off after a long pause."""
    clock, ends = SteppedClock(), list[Exception | None]()

    def opened() -> Connection:
        connection = Connection(
            ConnectionId(1), clock, RemotingSettings(idle_timeout_ms=120_000),
            on_commands=lambda *_: None, on_closed=lambda _, error: ends.append(error),
        )  # fmt: skip
        transport = Pausing(connection)
        connection.connection_made(cast(asyncio.Transport, transport))
        return connection

    def check() -> list[float]:
        _, check_idle = clock.timers.pop()
        assert callable(check_idle)
        check_idle()
        return [delay for delay, _ in clock.timers]

    connection = opened()
    clock.time_ms = 120_000 + LATE_MS + 1
    assert check() == [READ_MS]
    connection.data_received(encode(RemotingCommand(904, 0, FLAG_ONEWAY)))
    assert check() == [120_000]
    clock.time_ms += 500_000
    assert check() == [READ_MS]
    clock.time_ms += 500_000  # late again: nobody is waited for twice
    assert check() == []
    assert ["idle for 120000 ms"] == [str(one) for one in ends]
    clock.time_ms = 0
    opened()
    clock.time_ms = 120_000 + LATE_MS
    assert check() == []
    assert len(ends) == 2
