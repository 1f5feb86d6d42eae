"""Streams of the kernel: what the kernel is asked for on each, at either end."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import cast

import pytest
import uvloop

from rmqha.base.errors import ConnectFailed
from rmqha.runtime.aio.net import (
    RTO_MAX_MS,
    TCP_RTO_MAX_MS,
    TCP_THIN_LINEAR_TIMEOUTS,
    TcpNetwork,
)

WANTED = ((TCP_THIN_LINEAR_TIMEOUTS, 1), (TCP_RTO_MAX_MS, RTO_MAX_MS))


def knows(option: int, value: int) -> bool:
    """Whether this kernel has the option at all."""
    with socket.socket() as one:
        try:
            one.setsockopt(socket.IPPROTO_TCP, option, value)
        except OSError:
            return False
    return True


class Kept(asyncio.Protocol):
    """One of two ends."""

    def __init__(self, ends: list[asyncio.BaseTransport], both: asyncio.Event) -> None:
        self._ends, self._both = ends, both

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep it."""
        self._ends.append(transport)
        if len(self._ends) == 2:
            self._both.set()


async def asked_of_both_ends() -> list[dict[int, int]]:
    """The options of a stream between two ports of ours."""
    network, ends, both = TcpNetwork(), list[asyncio.BaseTransport](), asyncio.Event()
    listener = await network.listen("127.0.0.1", 0, lambda: Kept(ends, both))
    await network.connect("127.0.0.1", listener.port, lambda: Kept(ends, both), timeout_ms=5_000)
    await asyncio.wait_for(both.wait(), 5)
    found = []
    for end in ends:
        with socket.socket(fileno=os.dup(end.get_extra_info("socket").fileno())) as one:
            found.append({
                option: one.getsockopt(socket.IPPROTO_TCP, option)
                for option, value in WANTED if knows(option, value)
            })  # fmt: skip
        end.close()
    listener.close()
    await listener.wait_closed()
    return found


@pytest.mark.skipif(os.uname().sysname != "Linux", reason="options of Linux")
def test_stream_when_opened_then_either_end_sends_again_within_a_second() -> None:
    """A link that was lossy for some seconds would else be silent for as long again."""
    wanted = {option: value for option, value in WANTED if knows(option, value)}
    assert TCP_THIN_LINEAR_TIMEOUTS in wanted, "every kernel of these years has that one"
    assert uvloop.run(asked_of_both_ends()) == [wanted, wanted]
    assert asyncio.run(asked_of_both_ends()) == [wanted, wanted]


def test_stream_when_the_kernel_knows_no_such_option_then_it_is_opened_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before Linux 6.15, and elsewhere."""
    monkeypatch.setattr("rmqha.runtime.aio.net.TCP_RTO_MAX_MS", 9_999)
    assert len(uvloop.run(asked_of_both_ends())) == 2


class Ended(asyncio.Protocol):
    """An end that ends at once, as a full broker ends whom it cannot take."""

    def __init__(self, gone: asyncio.Semaphore) -> None:
        self._gone = gone

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Nothing is said."""
        cast(asyncio.Transport, transport).abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """One of two."""
        self._gone.release()


async def ended_at_once() -> bool:
    """Open a stream whose own end is gone before anybody has it."""
    network, gone = TcpNetwork(), asyncio.Semaphore(0)
    listener = await network.listen("127.0.0.1", 0, lambda: Ended(gone))
    transport = await network.connect(
        "127.0.0.1", listener.port, lambda: Ended(gone), timeout_ms=5_000
    )
    for _ in range(2):
        await asyncio.wait_for(gone.acquire(), 5)
    listener.close()
    await listener.wait_closed()
    return transport.is_closing()


def test_stream_when_it_is_gone_at_once_then_its_owner_hears_so_and_nothing_else() -> None:
    """Whoever opens streams knows of one error, and of the end of a stream."""
    assert uvloop.run(ended_at_once())
    assert asyncio.run(ended_at_once())


@pytest.mark.parametrize("host", ["a" * 64, f"a.{'b' * 64}", "a..b", "\udc80"])
@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_connection_when_the_host_cannot_be_a_name_then_it_is_no_connection(
    host: str, factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """Hosts come from other servers: the codec's own error ended whoever dialled, for good."""

    async def both() -> None:
        network = TcpNetwork()
        with pytest.raises(ConnectFailed):
            await network.connect(host, 9, asyncio.Protocol, timeout_ms=1_000)
        with pytest.raises(OSError, match="is no name of a host"):
            await network.listen(host, 0, asyncio.Protocol)

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(both())
