"""Streams whose opening is broken off: their owner hears of both ends of them, or of nothing."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
import uvloop

from rmqha.base.errors import ConnectFailed
from rmqha.runtime.aio.net import TcpListener, TcpNetwork
from rmqha.runtime.aio.threshold import opened

TURNS = 12
"""More turns of a loop than opening a stream on loopback takes."""
Run = Callable[[Awaitable[Any]], Any]
both_loops = pytest.mark.parametrize("run", [uvloop.run, asyncio.run], ids=["uvloop", "asyncio"])


class Owner(asyncio.Protocol):
    """What is told of one stream."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.told: list[str] = []
        self.transport: asyncio.Transport | None = None
        self._refuses = refuses
        self.gone = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It begins."""
        self.told.append("made")
        self.transport = cast(asyncio.Transport, transport)
        if self._refuses:
            raise ValueError("not wanted")

    def data_received(self, data: bytes) -> None:
        """It says something."""
        self.told.append(data.decode())

    def eof_received(self) -> None:
        """It says no more."""
        self.told.append("eof")

    def connection_lost(self, exc: Exception | None) -> None:
        """It ends."""
        self.told.append("lost" if exc is None else type(exc).__name__)
        self.gone.set()


async def turns(count: int) -> None:
    """Let the loop go round."""
    for _ in range(count):
        await asyncio.sleep(0)


async def broken_off_after(count: int, listener: TcpListener) -> str:
    """Dial, and change one's mind some turns later; how far it had come."""
    owner = Owner()
    dial = asyncio.create_task(
        TcpNetwork().connect("127.0.0.1", listener.port, lambda: owner, timeout_ms=5_000)
    )
    await turns(count)
    dial.cancel()
    (made,) = await asyncio.gather(dial, return_exceptions=True)
    await turns(TURNS)
    if isinstance(made, BaseException):
        assert isinstance(made, asyncio.CancelledError)
        assert owner.told == [], "nobody would ever tell it of the end"
        return "broken off"
    assert owner.told == ["made"]
    owner.transport.write(b"x")  # type: ignore[union-attr]
    owner.transport.close()  # type: ignore[union-attr]
    await asyncio.wait_for(owner.gone.wait(), 5)
    return "open"


@both_loops
def test_dial_when_broken_off_in_any_turn_then_its_owner_heard_nothing(run: Run) -> None:
    """A controller ended itself by a write to such a stream: its dial was a turn too late."""

    async def play() -> list[str]:
        listener = await TcpNetwork().listen("127.0.0.1", 0, Owner)
        found = [await broken_off_after(count, listener) for count in range(TURNS)]
        listener.close()
        await listener.wait_closed()
        return found

    found = run(play())
    assert found[0] == "broken off"
    assert found[-1] == "open"


@both_loops
def test_dial_when_out_of_time_in_any_turn_then_it_is_open_or_its_owner_heard_nothing(
    run: Run,
) -> None:
    """The same by the clock, which is how it happens: the process stood still in that turn."""

    async def late_after(count: int, listener: TcpListener) -> str:
        owner = Owner()
        dial = asyncio.create_task(
            TcpNetwork().connect("127.0.0.1", listener.port, lambda: owner, timeout_ms=8)
        )
        await turns(count)
        time.sleep(0.012)  # noqa: ASYNC251 - the whole process stands still
        (made,) = await asyncio.gather(dial, return_exceptions=True)
        await turns(TURNS)
        if isinstance(made, BaseException):
            assert isinstance(made, ConnectFailed)
            assert owner.told == []
            return "failed"
        assert owner.told == ["made"]
        owner.transport.abort()  # type: ignore[union-attr]
        await asyncio.wait_for(owner.gone.wait(), 5)
        return "open"

    async def play() -> list[str]:
        listener = await TcpNetwork().listen("127.0.0.1", 0, Owner)
        found = [await late_after(count, listener) for count in range(TURNS)]
        listener.close()
        await listener.wait_closed()
        return found

    assert set(run(play())) == {"failed", "open"}


@both_loops
def test_port_when_closed_in_any_turn_of_an_arrival_then_its_owner_hears_of_both_ends(
    run: Run,
) -> None:
    """Whoever comes in while the port closes is in, or never was."""

    async def closed_after(count: int) -> bool:
        inside: list[Owner] = []
        listener = await TcpNetwork().listen("127.0.0.1", 0, lambda: kept(inside))
        with socket.socket() as peer:
            peer.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                peer.connect(("127.0.0.1", listener.port))
            await turns(count)
            listener.close()
            await listener.wait_closed()
            await turns(TURNS)
            told = [owner for owner in inside if owner.told]
            for owner in told:
                owner.transport.write(b"x")  # type: ignore[union-attr]
        for owner in told:
            await asyncio.wait_for(owner.gone.wait(), 5)
        return bool(told)

    def kept(inside: list[Owner]) -> Owner:
        inside.append(Owner())
        return inside[-1]

    async def play() -> set[bool]:
        return {await closed_after(count) for count in range(TURNS)}

    assert run(play()) == {False, True}


def spoken(run: Run, *calls: tuple[Any, ...]) -> list[str]:
    """What an owner is told of what a stream said before it could listen."""

    async def play() -> list[str]:
        owner, loop = Owner(), asyncio.get_running_loop()

        async def opening(threshold: Any) -> Any:
            ours, theirs = socket.socketpair()
            made = await loop.create_connection(threshold, sock=ours)
            for name, *given in calls:
                getattr(theirs, name)(*given)
                await asyncio.sleep(0.01)
            theirs.close()
            return made

        await opened(lambda: owner, opening)
        await asyncio.wait_for(owner.gone.wait(), 5)
        return owner.told

    return cast(list[str], run(play()))


@both_loops
def test_owner_when_the_stream_spoke_before_it_listened_then_it_hears_all_in_order(
    run: Run,
) -> None:
    """A turn is enough for a request, and for a peer that is gone again."""
    assert spoken(run, ("send", b"one"), ("send", b"two")) == ["made", "onetwo", "eof", "lost"]
    half = ("shutdown", socket.SHUT_WR)
    assert spoken(run, ("send", b"one"), half) == ["made", "one", "eof", "lost"]
    assert spoken(run) == ["made", "eof", "lost"]


@both_loops
def test_owner_when_the_stream_was_lost_before_it_listened_then_it_hears_of_both_ends(
    run: Run,
) -> None:
    """Nobody else would ever tell it: the loop has told the threshold, once."""

    async def play() -> list[str]:
        owner, loop = Owner(), asyncio.get_running_loop()

        async def opening(threshold: Any) -> Any:
            ours, theirs = socket.socketpair()
            stream, protocol = await loop.create_connection(threshold, sock=ours)
            stream.write(b"never read, so closing resets")
            theirs.close()
            async with asyncio.timeout(5):
                while not stream.is_closing():
                    await turns(1)
            await turns(TURNS)
            return stream, protocol

        await opened(lambda: owner, opening)
        await asyncio.wait_for(owner.gone.wait(), 5)
        return owner.told

    assert run(play()) == ["made", "ConnectionResetError"]


@both_loops
def test_owner_when_it_refuses_then_the_stream_is_closed_and_the_opener_knows(run: Run) -> None:
    """As a protocol that raises when it is connected."""

    async def play() -> list[str]:
        owner = Owner(refuses=True)
        listener = await TcpNetwork().listen("127.0.0.1", 0, Owner)
        with pytest.raises(ValueError, match="not wanted"):
            await TcpNetwork().connect("127.0.0.1", listener.port, lambda: owner, timeout_ms=5_000)
        try:
            await asyncio.wait_for(owner.gone.wait(), 5)
        finally:
            owner.transport.abort()  # type: ignore[union-attr] - uvloop waits for it for ever
            listener.close()
            await listener.wait_closed()
        return owner.told

    assert run(play()) == ["made", "lost"]


class Reading(asyncio.BufferedProtocol):
    """An owner that reads into its own buffer."""

    def __init__(self) -> None:
        self.read: list[str] = []
        self.gone = asyncio.Event()
        self._buffer = bytearray(100)

    def get_buffer(self, sizehint: int) -> bytearray:
        """Room for what comes."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """It has come."""
        self.read.append(self._buffer[:nbytes].decode())

    def connection_lost(self, exc: Exception | None) -> None:
        """It ends."""
        self.gone.set()


@both_loops
def test_owner_when_it_has_a_buffer_then_the_stream_is_read_into_that(run: Run) -> None:
    """As a replica reads what its master sends: a copy less for each byte."""

    async def play() -> list[str]:
        owner, loop = Reading(), asyncio.get_running_loop()
        ours, theirs = socket.socketpair()

        async def opening(threshold: Any) -> Any:
            return await loop.create_connection(threshold, sock=ours)

        await opened(lambda: cast(asyncio.Protocol, owner), opening)
        theirs.send(b"bytes")
        theirs.close()
        await asyncio.wait_for(owner.gone.wait(), 5)
        return owner.read

    assert run(play()) == ["bytes"]
