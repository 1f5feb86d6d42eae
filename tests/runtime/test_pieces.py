"""Who writes pieces hears when it is enough, in each release of Python and on each loop."""

from __future__ import annotations

import asyncio
import socket

import pytest
import uvloop

from rmqha.runtime.aio import pieces
from rmqha.runtime.aio.pieces import forgets_to_pause, write_pieces


@pytest.mark.parametrize(
    ("version", "forgets"),
    [
        ((3, 11, 7), False),
        ((3, 12, 0), True),
        ((3, 12, 8), True),
        ((3, 12, 9), False),
        ((3, 13, 1), True),
        ((3, 13, 2), False),
        ((3, 14, 0), False),
    ],
)
def test_releases_that_forget(version: tuple[int, ...], forgets: bool) -> None:
    """Those before the mending of CVE-2024-12254 and after 3.11, which joins."""
    assert forgets == forgets_to_pause(version)


class Paused(asyncio.Protocol):
    """Notes that it was told to write no more."""

    paused = False

    def pause_writing(self) -> None:
        self.paused = True


async def told_to_pause() -> bool:
    """Write 8 MB to a peer that does not read."""
    near, far = socket.socketpair()
    protocol = Paused()
    transport, _ = await asyncio.get_running_loop().create_connection(lambda: protocol, sock=near)
    write_pieces(transport, [b"head", memoryview(bytes(8_000_000))])
    await asyncio.sleep(0)
    transport.abort()
    far.close()
    await asyncio.sleep(0)
    return protocol.paused


@pytest.mark.parametrize("joins", [pieces._JOINS, True])
@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_pieces_for_who_does_not_read_pause_the_writer(
    loop: type[asyncio.AbstractEventLoop], joins: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept for a peer has a bound on every loop."""
    monkeypatch.setattr(pieces, "_JOINS", joins)
    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(told_to_pause())


async def test_pieces_arrive_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Joined or not."""
    for joins in (False, True):
        monkeypatch.setattr(pieces, "_JOINS", joins)
        near, far = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=far)
        transport, _ = await asyncio.get_running_loop().create_connection(
            asyncio.Protocol, sock=near
        )
        write_pieces(transport, [b"one ", bytearray(b"two "), memoryview(b"three")])
        transport.close()
        assert await reader.read() == b"one two three"
        writer.close()
        await writer.wait_closed()
