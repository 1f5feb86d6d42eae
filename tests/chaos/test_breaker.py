"""What a fault does to processes, links and clocks, and what its healing undoes."""

from __future__ import annotations

from typing import Any, cast

import pytest

from rmqha.chaos.aio.breaker import Breaker
from rmqha.chaos.scenarios import DELAY_MS, JITTER_MS, Fault, Kind

BOTH = ("b0", "c0")
LINKS = frozenset({("b0", "b1")})


class Recorder:
    """Nodes, their children and their links: notes what it is asked for."""

    def __init__(self) -> None:
        self.done: list[tuple[object, ...]] = []
        self.children = {name: Child(name, self.done) for name in BOTH}

    def __getattr__(self, verb: str) -> Any:
        return lambda *given: self.done.append((verb, *given))


class Child(Recorder):
    """One process, which is alive."""

    alive = True

    def __init__(self, name: str, done: list[tuple[object, ...]]) -> None:
        self.done, self._name = done, name

    def __getattr__(self, verb: str) -> Any:
        return lambda: self.done.append((verb, self._name))


def each(verb: str, *given: object) -> list[tuple[object, ...]]:
    """The same of both."""
    return [(verb, name, *given) for name in BOTH]


@pytest.mark.parametrize(
    ("fault", "broken", "healed"),
    [
        (Fault(Kind.CRASH, BOTH), each("kill"), each("start")),
        (Fault(Kind.HANG, BOTH), each("stop"), each("cont")),
        (
            Fault(Kind.DELAY, BOTH, seed=7),
            each("delay", DELAY_MS, JITTER_MS, 7),
            each("restore"),
        ),
        (
            Fault(Kind.CLOCK_JUMP, BOTH, jump_s=-60),
            each("move_clock", -60),
            each("move_clock", 0),
        ),
    ],
)
def test_fault_when_it_is_injected_then_it_is_done_and_when_healed_then_undone(
    fault: Fault, broken: list[object], healed: list[object]
) -> None:
    """A round without its fault loses nothing, and is good."""
    around = Recorder()
    breaker = Breaker(cast(Any, around), cast(Any, around), None)
    breaker.inject(fault)
    assert around.done == broken
    around.done.clear()
    breaker.heal(fault)
    assert around.done == healed


def test_links_when_they_are_cut_then_they_are_whole_when_healed() -> None:
    around = Recorder()
    breaker = Breaker(cast(Any, around), cast(Any, around), None)
    fault = Fault(Kind.PARTITION, links=cast(Any, LINKS))
    breaker.inject(fault)
    breaker.heal(fault)
    assert around.done == [("apply", fault), ("apply", None)]


def test_process_when_it_ended_by_itself_then_healing_starts_it() -> None:
    around = Recorder()
    around.children["c0"].alive = False
    Breaker(cast(Any, around), cast(Any, around), None).heal(Fault(Kind.HANG, BOTH))
    assert around.done == [("cont", "b0"), ("start", "c0")]
