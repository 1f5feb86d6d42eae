"""A scripted broker's port."""

from __future__ import annotations

import pytest

from rmqha.testing.real import wire
from tests.reproduce.door import Door


def test_door_when_asked_then_it_answers_each_connection() -> None:
    """Whoever looks whether the broker lives finds that it does."""
    with Door() as door, wire.Connection(door.address) as one, wire.Connection(door.address) as two:
        one.oneway(1008, {"masterBrokerId": 1})
        assert [peer.invoke(28).code for peer in (one, two, one)] == [0, 0, 0]


def test_door_when_closed_then_nobody_answers() -> None:
    """As of a process that has ended."""
    with Door() as door:
        peer = wire.Connection(door.address)
        peer.invoke(28)
    with pytest.raises(OSError, match=r".+"):
        peer.invoke(28)
    with pytest.raises(OSError, match=r".+"):
        wire.invoke(door.address, 28)
