"""A name server that stood still: what brokers sent meanwhile lies in its buffers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqha.base.machine import Note, Ticked
from rmqha.namesrv.messages import Again, TimerRang
from rmqha.runtime.late import PAUSED_MS, READ_MS
from tests.namesrv.node import Node, broker_fields
from tests.namesrv.test_service import BODY, World

TIMEOUT_MS = 10_000


def rang(node: Node, late_ms: int) -> list[object]:
    """The timer comes, and what follows from it at once."""
    return list(node.machine.step(node.now_ms, TimerRang(node.now_ms - late_ms)))


def listed() -> Node:
    """One broker."""
    node = Node()
    node.register(heartbeatTimeoutMillis=TIMEOUT_MS)
    node.effects.clear()
    return node


@pytest.mark.parametrize("late_ms", [0, PAUSED_MS - 1])
def test_broker_when_its_heartbeat_is_not_read_yet_then_it_is_read_first(late_ms: int) -> None:
    """A loop runs its timers before it reads: a moment later what was sent has been read."""
    node = listed()
    node.now_ms += TIMEOUT_MS + 1
    look = Again(Ticked(), READ_MS)
    assert rang(node, late_ms) == [look]
    assert node.addresses()
    node.ask(904, broker_fields())
    node.effects += node.machine.step(node.now_ms + READ_MS, look.event)
    assert node.addresses()
    node.tick(TIMEOUT_MS + 1)
    assert not node.addresses()


def test_broker_when_the_name_server_was_away_then_it_has_its_time_once_more() -> None:
    """Heartbeats may be lost: who was away cannot tell who was silent."""
    node = listed()
    node.now_ms += 60_000
    note, look = rang(node, PAUSED_MS)
    assert note == Note("name_server_was_away", "warning", {"late_ms": PAUSED_MS})
    assert look == Again(Ticked(), READ_MS)
    node.tick(TIMEOUT_MS)
    assert node.addresses()
    node.tick(1)
    assert not node.addresses()


@pytest.fixture
def world() -> Iterator[World]:
    """A network with a name server that looks every 5 s."""
    one = World()
    one.start({"scanNotActiveBrokerInterval": "5000"})
    yield one
    for host, client in one.clients.items():
        one.do(host, client.close())
    one.stop()
    assert one.loop.errors == []
    one.loop.close()


def test_name_server_when_its_timer_comes_late_then_no_broker_leaves_and_the_log_tells(
    world: World,
) -> None:
    """All routes were gone after a pause of 13 s, until the brokers registered anew."""
    world.ask("b1", 103, broker_fields(heartbeatTimeoutMillis=12_000), BODY)
    server = world.server
    assert server is not None
    world.run_for(12_500)  # it was not away: the broker has been silent for so long
    server._on_timer(server._clock.now_ms() - 9_000)
    world.run_for(10)
    assert world.addresses()
    assert any("name_server_was_away late_ms=9000" in line for line in world.trace.lines)
    world.run_for(20_000)
    assert not world.addresses()
