"""Links of the loopback with a proxy in each: what is held back, what is late, whose a connection is."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.chaos.aio.hosts import HostsUnavailable
from rmqha.chaos.aio.nodes import Kinds, Nodes
from rmqha.chaos.aio.owner import MARK, Owners
from rmqha.chaos.aio.proxies import Proxies
from rmqha.chaos.scenarios import BY_NAME, Fault, Kind, Members, draw
from rmqha.chaos.wire import DOUBLINGS_MAX, RTO_MS, WHOLE, Wire, wire

ROOT = Path(__file__).resolve().parents[2]
THREE = Members(("b0", "b1", "b2"), ("c0", "c1", "c2"), "b0", "c0")
PORT = 9_877
"""Of addresses that are the rig's alone."""
LIMIT_S = 60
SILENT_S = 0.3


@given(
    st.integers(0, 2**32),
    st.sampled_from([n for n in BY_NAME if n.startswith(("loss", "partition", "cut"))]),
)
def test_wire_when_a_fault_takes_links_then_those_and_no_others(seed: int, name: str) -> None:
    """A partition holds everything back, loss makes it late, and the rest is as ever."""
    fault = draw(BY_NAME[name], random.Random(seed), THREE)
    assert fault is not None
    everybody = (*THREE.brokers, *THREE.controllers, "")
    for link in ((a, b) for a in everybody for b in everybody):
        found = wire(fault, {}, *link)
        if link not in fault.links:
            assert found == WHOLE
        else:
            assert (found.is_cut, found.loss_percent) == (
                (False, 80) if fault.kind is Kind.LOSS else (True, 0)
            )


def test_late_when_links_are_slow_or_lossy_then_within_what_was_said() -> None:
    """A slow host at either end adds its delay; what is lost takes a timeout that doubles."""
    rng = random.Random(1)
    slow = {"a": (60, 120)}
    assert {wire(None, slow, "a", "b"), wire(None, slow, "c", "a")} == {Wire(delays=((60, 120),))}
    both = wire(None, {**slow, "b": (60, 120)}, "a", "b")
    late = [both.late_ms(rng) for _ in range(300)]
    assert (min(late) >= 120, max(late) <= 360, len(set(late)) > 50) == (True, True, True)
    lossy = [Wire(loss_percent=80).late_ms(rng) for _ in range(2_000)]
    assert set(lossy) == {RTO_MS * (2**n - 1) for n in range(DOUBLINGS_MAX + 1)}
    assert 300 < lossy.count(0) < 500, "a fifth is not lost"
    assert WHOLE.late_ms(rng) == 0


class Rig:
    """Node ``a`` says what it is told to a server of this test, which stands for ``b``."""

    def __init__(self, links: Proxies) -> None:
        self.links = links
        links.add("a", ())
        self.address = links.add("b", (PORT,))
        self.heard: asyncio.Queue[str] = asyncio.Queue()
        self.peer: asyncio.StreamWriter | None = None
        self.node: Process | None = None

    async def open(self) -> asyncio.Server:
        """Listen as ``b``."""
        return await asyncio.start_server(self._serve, self.links.bind_address("b"), PORT)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.peer = writer
        with contextlib.suppress(OSError):
            while line := await reader.readline():
                self.heard.put_nowait(line.decode().strip())
                writer.write(b"heard " + line)
        writer.close()

    async def start(self) -> None:
        """Have ``a`` dial."""
        self.node = await asyncio.create_subprocess_exec(
            *self.links.prefix("a"), sys.executable, "-m", "tests.chaos.proxy_story", self.address,
            str(PORT), stdin=PIPE, stdout=PIPE, cwd=ROOT,
        )  # fmt: skip

    async def say(self, word: str) -> None:
        """Have ``a`` send it."""
        assert self.node is not None
        assert self.node.stdin is not None
        self.node.stdin.write(word.encode() + b"\n")
        await self.node.stdin.drain()

    async def told(self) -> str:
        """What ``a`` hears next."""
        assert self.node is not None
        assert self.node.stdout is not None
        line = await asyncio.wait_for(self.node.stdout.readline(), LIMIT_S)
        return line.decode().strip()

    async def hear(self) -> str:
        """What ``b`` hears next."""
        return await asyncio.wait_for(self.heard.get(), LIMIT_S)

    async def is_silent(self) -> bool:
        """Whether ``b`` hears nothing for a while."""
        await asyncio.sleep(SILENT_S)  # for what must not come there is nothing to wait for
        return self.heard.empty()


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    """Two nodes and the relay between them; ``a`` has not dialled yet."""
    one = Rig(Proxies())
    server = await one.open()
    yield one
    if one.node is not None:
        with contextlib.suppress(ProcessLookupError):
            one.node.kill()
        await one.node.communicate()
    server.close()
    if one.peer is not None:
        one.peer.transport.abort()
    one.links.close()


def cut(*links: tuple[str, str]) -> Fault:
    """A partition of these directions."""
    return Fault(Kind.PARTITION, links=frozenset(links))


@pytest.mark.costly
@pytest.mark.timeout(120)
async def test_link_when_a_direction_is_cut_then_its_bytes_wait_and_the_other_ones_pass(
    rig: Rig,
) -> None:
    """Nothing is lost of what a kernel would send again, and nothing overtakes."""
    await rig.start()
    assert (await rig.hear(), await rig.told()) == ("hello", "heard hello")
    rig.links.apply(cut(("b", "a")))
    await rig.say("one")
    assert await rig.hear() == "one", "that direction is whole"
    rig.links.apply(cut(("a", "b")))
    assert await rig.told() == "heard one", "healed, with the other one cut"
    await rig.say("two")
    await rig.say("three")
    assert await rig.is_silent()
    rig.links.apply(None)
    assert [await rig.hear(), await rig.hear()] == ["two", "three"]
    assert [await rig.told(), await rig.told()] == ["heard two", "heard three"]


@pytest.mark.costly
@pytest.mark.timeout(120)
async def test_link_when_it_is_others_then_it_passes(rig: Rig) -> None:
    """The relay knows who dialled: a link of somebody else with the same node is no link of ours."""
    rig.links.apply(cut(("c", "b"), ("b", "c")))
    await rig.start()
    assert await rig.told() == "heard hello"


@pytest.mark.costly
@pytest.mark.timeout(120)
async def test_connection_when_its_way_is_cut_then_it_comes_when_that_is_healed(rig: Rig) -> None:
    """And the end of one is passed on in its turn."""
    rig.links.apply(cut(("a", "b"), ("b", "a")))
    await rig.start()
    assert await rig.is_silent()
    assert rig.peer is None
    rig.links.apply(None)
    assert await rig.told() == "heard hello"
    rig.links.apply(cut(("b", "a")))
    assert rig.peer is not None
    rig.peer.write(b"last words\n")
    rig.peer.close()
    await rig.say("anybody?")
    rig.links.apply(None)
    assert [await rig.told(), await rig.told()] == ["last words", "closed"]


@pytest.mark.costly
@pytest.mark.timeout(120)
async def test_link_when_a_node_is_slow_then_its_bytes_are_late_until_it_is_restored(
    rig: Rig,
) -> None:
    await rig.start()
    assert await rig.told() == "heard hello"
    loop = asyncio.get_running_loop()
    rig.links.delay("a", 200, 50, 1)
    begun_s = loop.time()
    await rig.say("late")
    assert await rig.told() == "heard late"
    assert loop.time() - begun_s >= 0.4, "there and back"
    rig.links.restore("a")
    await rig.say("soon")
    assert await rig.told() == "heard soon"


@pytest.mark.costly
@pytest.mark.timeout(120)
async def test_dialling_when_nobody_listens_then_the_connection_ends(rig: Rig) -> None:
    """A dead node's clients must hear of it."""
    rig.address = rig.links.add("d", (PORT,))
    await rig.start()
    assert await rig.told() == "closed"


def test_owner_when_a_process_has_no_name_then_it_is_nobody() -> None:
    """The clients of the command."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = server.getsockname()
        with socket.create_connection(here) as client:
            assert Owners(7).of(client.getsockname(), here) == ""
        assert Owners(7).of(("127.0.0.1", 1), here) == "", "there is no such connection"


def test_nodes_when_some_are_javas_then_proxies_have_no_place_for_them(tmp_path: Path) -> None:
    """They listen at all addresses of a port: that of the proxy would be taken."""
    links = Proxies()
    try:
        with pytest.raises(HostsUnavailable, match="need network namespaces"):
            Nodes(tmp_path, links, Kinds(brokers="java"), None)
    finally:
        links.close()


@pytest.mark.costly
def test_relay_when_its_address_is_taken_then_the_reason_is_told() -> None:
    """Two commands by one number; and one whose relay was killed."""
    one, other = Proxies(7), Proxies(7)
    try:
        one.add("a", (PORT,))
        with pytest.raises(HostsUnavailable, match="address already in use"):
            other.add("a", (PORT,))
        one._relay.kill()
        one._relay.wait()
        with pytest.raises(HostsUnavailable, match="proxies"):
            one.apply(None)
    finally:
        one.close()
        other.close()


def test_names_when_given_then_they_are_in_the_environment_of_the_node() -> None:
    links = Proxies(7)
    try:
        assert links.prefix("broker-0") == ["env", f"{MARK}=7/broker-0"]
    finally:
        links.close()
    assert MARK not in os.environ
