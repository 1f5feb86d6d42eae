"""Whatever a cell finds counts: each kind of loss and of damage alone makes it one that is not good."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rmqha.chaos.aio import judge
from rmqha.chaos.aio.cell import WHOLE_S, _Player
from rmqha.chaos.aio.judge import Clients, Judge
from rmqha.chaos.aio.reread import Again
from rmqha.chaos.course import Course
from rmqha.chaos.outcome import Cell, Round
from rmqha.chaos.scenarios import BY_NAME, Fault, Kind
from rmqha.testing.asker import NotYet
from rmqha.testing.ledger import Ledger

ACKNOWLEDGED = 3


class Load:
    """A workload of three messages that were acknowledged and read.

    Args:
        error: is raised when it is stopped.
        broken: rules that it finds not kept.
    """

    topic = "t"

    def __init__(self, error: Exception | None = None, broken: Sequence[str] = ()) -> None:
        self.ledger = Ledger()
        for number in range(ACKNOWLEDGED):
            self.ledger.acked(number, 0, number)
            self.ledger.read(number, 0, number)
        self._error, self._broken = error, list(broken)

    async def stop(self, _: float) -> None:
        """Raise what broke it."""
        if self._error is not None:
            raise self._error

    def broken(self) -> list[str]:
        """What was given."""
        return self._broken


class Reading(Judge):
    """A judge to whom the set is in sync, and the logs are the same."""

    async def _wait_for_sync(self) -> None:
        pass

    async def _compare(self) -> None:
        pass


class Ends:
    """Of nodes, all of them in order; as services nothing was used, and this is broken."""

    happened: dict[str, int] = {}  # noqa: RUF012

    def __init__(self, *broken: str) -> None:
        self.broken = list(broken)

    def ends(self) -> list[str]:
        """Nobody by itself."""
        return []

    async def finish(self, _: float) -> None:
        """At once."""


async def judged(
    monkeypatch: pytest.MonkeyPatch, load: Load, again: Again | None = None, *services: str
) -> Cell:
    """A cell of one round with this load, whose second reading finds this (all that is whole)."""
    found = again or Again(whole=set(range(ACKNOWLEDGED)))

    async def read_again(*_: object) -> Again:
        return found

    async def master() -> str:
        return "m"

    monkeypatch.setattr(judge, "read_again", read_again)
    cell = Cell("crash-both", "py", "py", 1)
    cell.rounds.append(Round(0, "crash", 1, 0, 1, whole_ms=1))
    client = cast(Any, SimpleNamespace(clock=None, master=master))
    used = cast(Any, Ends(*services)) if services else None
    clients = Clients(client, client, cast(Any, [load]), used)
    await Reading(cell, cast(Any, Ends()), clients, cast(Any, None), print).judge()
    return cell


async def test_cell_when_nothing_is_found_then_it_is_good(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = await judged(monkeypatch, Load())
    assert (cell.is_good, cell.acknowledged, cell.consumed) == (True, ACKNOWLEDGED, ACKNOWLEDGED)


async def test_message_when_it_was_lost_along_the_way_then_it_counts_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may be there in the end, or be missed again."""
    for whole in (set(range(ACKNOWLEDGED)), {0, 2}):
        load = Load()
        load.ledger.lost.append(1)
        cell = await judged(monkeypatch, load, Again(whole=whole))
        assert (cell.lost, cell.is_good) == (["t 1"], False)


async def test_message_when_it_is_missed_in_the_end_then_it_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cell = await judged(monkeypatch, Load(), Again(whole={0, 1}))
    assert (cell.lost, cell.is_good) == (["t 2"], False)


@pytest.mark.parametrize(("along", "at_last", "counted"), [(2, 0, 2), (0, 1, 1), (2, 3, 3)])
async def test_messages_when_given_out_damaged_then_they_count_once(
    monkeypatch: pytest.MonkeyPatch, along: int, at_last: int, counted: int
) -> None:
    """What the consumer was given so is so in the end, or was mended meanwhile."""
    load = Load()
    load.ledger.damaged = along
    again = Again(whole=set(range(ACKNOWLEDGED)), damaged=at_last)
    cell = await judged(monkeypatch, load, again)
    assert (cell.damaged, cell.is_good) == (counted, False)


async def test_rules_when_one_does_not_hold_then_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of a workload, its own end, and those of services."""
    assert (await judged(monkeypatch, Load(broken=["out of order"]))).broken == ["out of order"]
    cell = await judged(monkeypatch, Load(NotYet("no master")))
    assert cell.broken == ["t: the workload broke: no master"]
    assert (await judged(monkeypatch, Load(), None, "a delay", "a lock")).broken == [
        "a delay", "a lock",
    ]  # fmt: skip


# -- a cell's rounds ------------------------------------------------------------------------------


class Clock:
    """Time passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.ms = 0

    def now_ms(self) -> int:
        """The time."""
        return self.ms

    wall_ms = now_ms

    async def sleep(self, ms: float) -> None:
        """Have it pass."""
        self.ms += int(ms)


class Around:
    """All that a player has around it: each part does nothing, and is in order.

    Args:
        never: what does not come in a round.
    """

    def __init__(self, never: str = "") -> None:
        self._never = never
        self.clock = Clock()
        self.elected: list[Any] = []
        self.routed: list[Any] = []
        self.broken: list[str] = []
        self.brokers = self.controllers = ()
        self.addresses: dict[str, str] = {}
        self.flipped = 0
        self.ledger = Ledger()
        self.judged = 0

    def start(self) -> None:
        """Nothing to do."""

    def inject(self, _: Fault) -> None:
        """Nothing to do."""

    heal = inject

    async def judge(self) -> None:
        """Find nothing."""
        self.judged += 1

    async def until(self, _: Callable[[], Awaitable[bool]], what: str, timeout_s: float) -> None:
        """It is so at once, or never; before the first round, which may take longer, it is."""
        if what == self._never and timeout_s == WHOLE_S:
            raise NotYet(f"no {what}")

    async def wait_for_acks(self, *_: object) -> None:
        """They are there."""

    def first_ack_after(self, *_: object) -> None:
        """There was none."""

    def acks_since(self, _: int) -> list[Any]:
        """There were none."""
        return []

    def outputs(self) -> list[str]:
        """Nobody said anything."""
        return []


async def played(around: Around, scenario: str, rounds: int = 2) -> Cell:
    """A cell with these parts."""
    player = cast(Any, _Player.__new__(_Player))
    cell = player._cell = Cell(scenario, "py", "py", 1)
    player._clock, player._services, player._say = around.clock, None, lambda _: None
    player._course = Course(rounds, 1_000, 0)
    for part in ("_nodes", "_breaker", "_watch", "_judge", "_outsider"):
        setattr(player, part, around)
    player._loads, player._scenarios = [around], [BY_NAME[scenario]]

    async def draw(*_: object) -> Fault:
        return Fault(BY_NAME[scenario].kind, ("b0",))

    player._draw = draw
    await player.play(random.Random(1))
    return cell


async def test_cell_when_all_goes_well_then_it_has_its_rounds() -> None:
    around = Around()
    cell = await played(around, "hang-brokers")
    assert (len(cell.rounds), cell.broken, around.judged) == (2, [], 1)


@pytest.mark.parametrize("never", ["acknowledgement", "set in sync"])
async def test_cell_when_a_round_does_not_become_whole_then_that_is_its_end_and_is_told(
    never: str,
) -> None:
    around = Around(never)
    cell = await played(around, "hang-brokers")
    assert cell.broken == ["round 0: not whole after 120 s"]
    assert [one.whole_ms for one in cell.rounds] == [None]
    assert around.judged == 1


async def test_cell_when_the_watch_found_a_broken_rule_then_it_is_told() -> None:
    around = Around()
    around.broken = ["two masters in epoch 7"]
    assert (await played(around, "hang-brokers")).broken == ["two masters in epoch 7"]


async def test_round_when_there_was_no_bit_to_flip_then_it_is_told() -> None:
    """A cell that damages nothing shows nothing."""
    around = Around()
    cell = await played(around, "flipped-bits-master", 1)
    assert BY_NAME["flipped-bits-master"].kind is Kind.FLIPPED_BITS
    assert cell.broken == ["round 0: there was no bit to flip"]

    def flip(_: Fault) -> None:
        around.flipped += 16

    around.inject = flip  # type: ignore[method-assign]
    cell = await played(around, "flipped-bits-master", 2)
    assert (cell.broken, cell.flipped_bits) == ([], 32)
