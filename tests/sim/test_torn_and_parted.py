"""What the simulator's disks and network do to what was written at once, or faster than it is read."""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Iterator
from typing import Any

import pytest

from rmqha.controller.raft.wal_layout import SECTOR
from rmqha.sim.loop import HOST, SimLoop
from rmqha.sim.net import JOINED, PARTED, PAUSED, SimNet, SimTransport
from rmqha.sim.pages import PAGE, Outcome

OLD, NEW = b"o" * PAGE, b"n" * PAGE


def test_page_when_the_power_is_cut_then_each_sector_is_old_or_new() -> None:
    """Whole pages of either kind, pages of which the front was written back, and any others."""
    outcome = Outcome(random.Random(1), random.Random(2))
    pages = [outcome.page(OLD, NEW) for _ in range(400)]
    kinds = set()
    for page in pages:
        sectors = [page[at : at + SECTOR] for at in range(0, PAGE, SECTOR)]
        assert len(page) == PAGE
        assert {*sectors} <= {OLD[:SECTOR], NEW[:SECTOR]}
        kinds.add("".join("n" if one == NEW[:SECTOR] else "o" for one in sectors))
    assert {"nnnnnnnn", "oooooooo", "nnnooooo"} <= kinds
    assert any("on" in kind for kind in kinds)
    assert outcome.torn > 100


class Receiver(asyncio.Protocol):
    """Writes down what comes, and when."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.came: list[tuple[float, bytes]] = []

    def data_received(self, data: bytes) -> None:
        self.came.append((self.loop.time(), data))


def send(seed: int, share: float, *, cut: bool = False) -> tuple[Receiver, SimNet]:
    """Ten writes of a hundred bytes over one connection, each a while after the one before."""
    loop = SimLoop()
    net = SimNet(loop, random.Random(seed))
    net.segments.parted = net.segments.joined = share
    receiver = Receiver(loop)
    networks = {}
    for host in ("a", "b"):
        context = contextvars.copy_context()
        context.run(HOST.set, host)
        networks[host] = net.boot(host, context)

    async def play() -> None:
        HOST.set("a")
        await networks["b"].listen("", 1, lambda: receiver)
        transport: Any = await networks["a"].connect("b", 1, asyncio.Protocol, timeout_ms=100)
        for number in range(10):
            transport.write(bytes([number]) * 100)
            await asyncio.sleep(0.0005)
            if cut and number == 4:
                net.cut("a", "b")
        await asyncio.sleep(1)
        if cut:
            net.heal()
        await asyncio.sleep(1)

    loop.run_until_complete(play())
    loop.close()
    return receiver, net


def test_writes_when_they_come_in_parts_then_in_order_and_no_later() -> None:
    """So a story in which they do is otherwise the same."""
    parted = joined = 0
    for seed in range(30):
        whole, _ = send(seed, 0.0)
        parts, net = send(seed, 0.6)
        expected = b"".join(bytes([number]) * 100 for number in range(10))
        assert b"".join(data for _, data in whole.came) == expected
        assert b"".join(data for _, data in parts.came) == expected
        assert ended(parts) == ended(whole)
        parted += net.segments.counts[PARTED]
        joined += net.segments.counts[JOINED]
    assert parted > 100
    assert joined > 10


def ended(receiver: Receiver) -> list[float]:
    """When each hundred bytes were there."""
    times, have = [], 0
    for when, data in receiver.came:
        times += [when] * ((have + len(data)) // 100 - have // 100)
        have += len(data)
    return times


def test_writes_when_the_way_is_cut_amid_one_then_its_rest_comes_afterwards() -> None:
    """A receiver may sit on half of a write for as long as the cut lasts."""
    halves = 0
    for seed in range(30):
        receiver, _ = send(seed, 0.9, cut=True)
        assert len(b"".join(data for _, data in receiver.came)) == 1_000
        before = sum(len(data) for when, data in receiver.came if when < 0.5)
        halves += before % 100 != 0
    assert halves > 0


class Sender(asyncio.Protocol):
    """Writes down when it was told to pause, and to go on."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def pause_writing(self) -> None:
        self.told.append("pause")

    def resume_writing(self) -> None:
        self.told.append("go on")


class Window:
    """One connection between two hosts, whose window is 100 bytes."""

    def __init__(self) -> None:
        self.loop = SimLoop()
        self.net = SimNet(self.loop, random.Random(1))
        self.net.window_bytes = 100
        self.receiver, self.sender = Receiver(self.loop), Sender()
        networks = {}
        for host in ("a", "b"):
            context = contextvars.copy_context()
            networks[host] = self.net.boot(host, context)

        async def connect() -> SimTransport:
            await networks["b"].listen("", 1, lambda: self.receiver)
            found = await networks["a"].connect("b", 1, lambda: self.sender, timeout_ms=100)
            assert isinstance(found, SimTransport)
            return found

        context = self.net.contexts["a"].copy()
        self.near = self.loop.run_until_complete(self.loop.create_task(connect(), context=context))
        assert self.near.peer is not None
        self.far = self.near.peer

    def run(self, seconds: float = 1.0) -> None:
        """Let time pass."""
        self.loop.run_until_complete(asyncio.sleep(seconds))

    def take(self) -> int:
        """How many bytes have come."""
        return sum(len(data) for _, data in self.receiver.came)


@pytest.fixture
def window() -> Iterator[Window]:
    """Connected."""
    found = Window()
    yield found
    found.loop.close()


def test_sender_when_more_is_on_its_way_than_the_window_then_it_is_told(window: Window) -> None:
    """At once, as by asyncio; and again when most of it was read."""
    window.near.write(bytes(100))
    assert window.sender.told == []
    window.near.write(b"x")
    assert window.sender.told == ["pause"]
    assert window.near.get_write_buffer_size() == 1
    window.near.write(b"y")
    assert window.sender.told == ["pause"]
    window.run()
    assert window.sender.told == ["pause", "go on"]
    assert window.near.get_write_buffer_size() == 0
    assert window.take() == 102
    assert window.net.segments.counts[PAUSED] == 1


def test_sender_when_the_other_end_does_not_read_then_it_waits(window: Window) -> None:
    """What has arrived in the other's socket is not read yet."""
    window.far.pause_reading()
    window.near.write(bytes(300))
    window.run()
    assert window.sender.told == ["pause"]
    assert window.take() == 0
    window.far.resume_reading()
    assert window.sender.told == ["pause", "go on"]
    assert window.take() == 300


def test_sender_when_a_host_stands_still_then_nobody_is_told_before_it_goes_on(
    window: Window,
) -> None:
    """Neither who does not read, nor who could not hear that there is room."""
    window.net.pause("b")
    window.near.write(bytes(300))
    window.run()
    assert window.sender.told == ["pause"]
    window.net.resume("b")
    window.net.pause("a")
    window.run()
    assert window.take() == 300
    assert window.sender.told == ["pause"]
    window.net.resume("a")
    window.run()
    assert window.sender.told == ["pause", "go on"]


def test_sender_when_it_has_ended_then_it_hears_nothing(window: Window) -> None:
    """Its process may be gone."""
    window.near.write(bytes(300))
    window.net.kill("a", power=True)
    window.loop.end_host("a")
    window.run()
    assert window.sender.told == ["pause"]
