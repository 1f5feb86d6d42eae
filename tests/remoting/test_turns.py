"""Who brings much waits for a turn; who brings little is heard at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
import uvloop

from rmqha.remoting.address import format_address
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.aio.turns import (
    COUNTED_BYTES,
    FULL_S,
    LARGE_BYTES,
    SMALL_BYTES,
    TURN_BYTES,
    Turns,
)
from rmqha.remoting.command import FLAG_ONEWAY, RemotingCommand
from rmqha.remoting.frame import FrameDecoder, encode
from tests.remoting.harness import pair


class Peer:
    """A connection that notes when it may speak."""

    def __init__(self, name: str, host: str, spoken: list[str]) -> None:
        self.name, self.host, self._spoken = name, host, spoken
        self.is_held = False
        self.has_spoken = asyncio.Event()

    def hold(self) -> None:
        self.is_held = True

    def go_on(self) -> None:
        self.is_held = False
        self._spoken.append(self.name)
        self.has_spoken.set()


async def next_turn() -> None:
    """Let the loop look at everybody once."""
    await asyncio.sleep(0)


async def test_those_that_bring_a_little_in_each_turn_never_wait() -> None:
    """However much they bring in all: bytes count for a turn only, which is not marked each time."""
    turns = Turns()
    peers = [Peer(f"p{n}", "10.0.0.1", []) for n in range(5)]
    chunk = LARGE_BYTES // 4
    for _ in range(4 * TURN_BYTES // (chunk * len(peers))):
        for peer in peers:
            turns.took(peer, chunk)
        await next_turn()
    assert COUNTED_BYTES > chunk * len(peers), "several turns are counted together"
    assert turns.held == 0


async def test_one_large_connection_goes_on_in_each_turn() -> None:
    """In the order in which they came."""
    turns, spoken = Turns(), list[str]()
    peers = [Peer(f"p{n}", "10.0.0.1", spoken) for n in range(3)]
    for peer in peers:
        turns.took(peer, LARGE_BYTES)
    assert all(peer.is_held for peer in peers)
    for count in range(1, 4):
        await next_turn()
        assert spoken == [f"p{n}" for n in range(count)]
    assert turns.held == 3


async def test_addresses_take_turns_and_not_connections() -> None:
    """Two hundred connections of one host are one neighbour."""
    turns, spoken = Turns(), list[str]()
    for n in range(5):
        turns.took(Peer(f"flood{n}", "10.0.0.1", spoken), LARGE_BYTES)
    turns.took(Peer("other", "10.0.0.2", spoken), LARGE_BYTES)
    await next_turn()
    await next_turn()
    assert spoken == ["flood0", "other"]


async def test_small_chunks_never_wait() -> None:
    """Heartbeats, votes and questions, whatever others bring."""
    turns, spoken = Turns(), list[str]()
    turns.took(Peer("flood", "10.0.0.1", spoken), 100 * TURN_BYTES)
    peer = Peer("honest", "10.0.0.2", spoken)
    turns.took(peer, SMALL_BYTES - 1)
    assert not peer.is_held


async def test_middling_chunks_wait_once_a_turn_is_full() -> None:
    """A hundred connections that each stay below the mark are a flood together."""
    turns, spoken = Turns(), list[str]()
    size = LARGE_BYTES - 1
    peers = [Peer(f"p{n}", "10.0.0.1", spoken) for n in range(100)]
    for peer in peers:
        turns.took(peer, size)
    held = [peer for peer in peers if peer.is_held]
    assert len(peers) - len(held) == TURN_BYTES // size
    # The next turn begins anew.
    while any(peer.is_held for peer in peers):
        await next_turn()
    await next_turn()
    turns.took(peers[0], size)
    assert not peers[0].is_held


async def test_count_of_a_turn_is_forgotten_with_it() -> None:
    """Traffic of many turns is no flood, however much it is together."""
    turns, spoken = Turns(), list[str]()
    peer = Peer("steady", "10.0.0.1", spoken)
    for _ in range(100):
        turns.took(peer, LARGE_BYTES - 1)
        assert not peer.is_held
        await next_turn()


async def test_full_server_lets_nobody_go_on_until_it_has_answered() -> None:
    """What waits for an answer is bounded by who may ask more."""
    full = True
    turns, spoken = Turns(lambda: full), list[str]()
    peer = Peer("p", "10.0.0.1", spoken)
    turns.took(peer, LARGE_BYTES)
    await asyncio.sleep(10 * FULL_S)
    assert spoken == []
    full = False
    await peer.has_spoken.wait()


async def _flooded(react: Callable[[Connection, RemotingCommand], None]) -> float:
    """The longest of ten answers beside eight connections that send without an end, in seconds."""
    loop = asyncio.get_running_loop()
    flood = encode(RemotingCommand(904, flag=FLAG_ONEWAY)) * 20_000
    async with pair(react) as under_test:
        port = under_test.server.port
        writers = [(await asyncio.open_connection("127.0.0.1", port))[1] for _ in range(8)]
        for writer in writers:
            writer.write(flood)
        longest = 0.0
        for _ in range(10):
            before = loop.time()
            await under_test.client.invoke(under_test.address, RemotingCommand(1005), 30_000)
            longest = max(longest, loop.time() - before)
        for writer in writers:
            writer.transport.abort()
        assert under_test.server.turns.held > 0
        return longest


@pytest.mark.costly
def test_question_beside_a_flood_is_answered_between_two_chunks() -> None:
    """It waited until the flood paused to breathe: all of it was read first."""
    handled = 0

    def react(connection: Connection, command: RemotingCommand) -> None:
        nonlocal handled
        handled += 1
        if not command.is_oneway:
            waited.append(handled)
            connection.send(command.reply(0))
            handled = 0

    waited: list[int] = []
    uvloop.run(_flooded(react))
    # A chunk of the loop is 256,000 bytes; a question and its answer take a few turns of the loop.
    chunk = 256_000 // len(encode(RemotingCommand(904, flag=FLAG_ONEWAY)))
    assert sorted(waited)[-2] < 12 * chunk, waited


async def test_connection_that_others_depend_on_never_waits() -> None:
    """A controller that has proven itself."""
    brought, everything = 0, asyncio.Event()

    def react(connection: Connection, command: RemotingCommand) -> None:
        nonlocal brought
        brought += 1
        connection.be_read_always()
        if brought == 5_001:
            everything.set()

    async with pair(react) as under_test:
        _, writer = await asyncio.open_connection("127.0.0.1", under_test.server.port)
        writer.write(encode(RemotingCommand(904, flag=FLAG_ONEWAY)))
        await under_test.handler.batches.get()
        writer.write(encode(RemotingCommand(904, flag=FLAG_ONEWAY)) * 5_000)
        await everything.wait()
        assert under_test.server.turns.held == 0
        writer.close()


SLOW_COMMANDS = 1_000


def _slowly() -> None:
    end = time.perf_counter() + 0.0003
    while time.perf_counter() < end:
        pass


@pytest.mark.costly
async def test_chunk_that_takes_long_is_handled_in_turn_with_others() -> None:
    """A thousand new topics in one chunk kept everybody waiting for half a second."""
    handled, waited = 0, -1

    def react(connection: Connection, command: RemotingCommand) -> None:
        nonlocal handled, waited
        if command.code == 1005:
            waited = handled
            connection.send(command.reply(0))
        else:
            _slowly()
            handled += 1

    async with pair(react) as under_test:
        await under_test.client.invoke(under_test.address, RemotingCommand(1005), 30_000)
        await under_test.handler.batches.get()
        _, writer = await asyncio.open_connection("127.0.0.1", under_test.server.port)
        writer.write(encode(RemotingCommand(904, flag=FLAG_ONEWAY)) * SLOW_COMMANDS)
        first = await under_test.handler.batches.get()
        assert len(first) < SLOW_COMMANDS, "not everything at once"
        await under_test.client.invoke(under_test.address, RemotingCommand(1005), 30_000)
        assert waited <= SLOW_COMMANDS // 2
        while handled < SLOW_COMMANDS:
            await under_test.handler.batches.get()
        writer.close()


@pytest.mark.costly
async def test_peer_that_leaves_is_heard_to_the_end_before_it_is_gone() -> None:
    """A broker's last word before it closes."""
    handled = list[int]()

    def react(connection: Connection, command: RemotingCommand) -> None:
        _slowly()
        handled.append(command.opaque)

    async with pair(react) as under_test:
        _, writer = await asyncio.open_connection("127.0.0.1", under_test.server.port)
        frames = (
            encode(RemotingCommand(904, flag=FLAG_ONEWAY, opaque=n)) for n in range(SLOW_COMMANDS)
        )
        writer.write(b"".join(frames))
        writer.close()
        await under_test.handler.closes.get()
        assert handled == list(range(SLOW_COMMANDS))
        assert under_test.server.turns.held > 1


async def test_turn_when_a_connection_raises_then_the_others_go_on() -> None:
    """One request whose handler failed stopped every connection of a server that waited, for ever."""

    class Broken(Peer):
        def go_on(self) -> None:
            super().go_on()
            raise ValueError("a handler's mistake")

    turns, spoken, told = Turns(), list[str](), list[object]()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: told.append(context.get("exception")))
    peers = [kind(f"p{n}", f"10.0.0.{n}", spoken) for n, kind in enumerate((Broken, Peer, Peer))]
    for peer in peers:
        turns.took(peer, LARGE_BYTES)
    for _ in peers:
        await next_turn()
    assert spoken == ["p0", "p1", "p2"]
    assert [str(error) for error in told] == ["a handler's mistake"]


@pytest.mark.costly
async def test_rest_of_a_chunk_when_its_handler_raises_then_that_connection_alone_ends() -> None:
    """As where the handler raises at once: told of, closed, and what came before is answered."""
    count = 300
    told, handled = list[object](), dict[str, int]()

    def react(connection: Connection, command: RemotingCommand) -> None:
        _slowly()
        handled[connection.peer] = handled.get(connection.peer, 0) + 1
        if command.code == 66:
            raise ValueError("a handler's mistake")
        if not command.is_oneway:
            connection.send(command.reply(0))

    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: told.append(context.get("exception"))
    )
    async with pair(react) as under_test:
        port = under_test.server.port
        bad_reader, bad = await asyncio.open_connection("127.0.0.1", port)
        good = [(await asyncio.open_connection("127.0.0.1", port))[1] for _ in range(2)]
        beat = encode(RemotingCommand(904, flag=FLAG_ONEWAY))
        asked = encode(RemotingCommand(1005, opaque=7))
        bad.write(beat * (count - 20) + asked + encode(RemotingCommand(66)) + beat * 18)
        for writer in good:
            writer.write(beat * count)
        error = await under_test.handler.closes.get()
        assert str(error) == "a handler's mistake"
        assert told == [error]
        peers = [format_address(*writer.get_extra_info("sockname")) for writer in (bad, *good)]
        assert handled[peers[0]] == count - 18
        async with asyncio.timeout(10):
            while [handled.get(peer) for peer in peers[1:]] != [count, count]:
                await under_test.handler.batches.get()
        answered = await bad_reader.read()
        assert [7] == [answer.opaque for answer in FrameDecoder().feed(answered)]
        assert len(under_test.server.connections) == 2
        for writer in (bad, *good):
            writer.close()
