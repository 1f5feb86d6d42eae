"""Breadth first over every state within the bounds; the first violation has a shortest trace."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable

from msgspec import Struct, field

from rmqha.sim.explore.bounds import BOUNDED, FREE, Bounds
from rmqha.sim.explore.group import Group, State, Violation
from rmqha.sim.explore.moves import Move
from rmqha.sim.explore.prefix import STARTS


class Limits(Struct, frozen=True):
    """When to stop although states are left; 0 is no limit."""

    depth: int = 0
    states: int = 0
    seconds: float = 0


class Report(Struct):
    """What a walk came to.

    Attributes:
        states: different ones, the first included.
        transitions: moves made; most lead to a state that was known.
        depth: moves to the farthest state.
        frontier: states seen and not walked on from; 0 when the space is exhausted.
        moves, delivered: how often each kind of move, and of message, occurred.
        violation: what broke.
        trace: the moves that lead there.
    """

    states: int = 0
    transitions: int = 0
    depth: int = 0
    frontier: int = 0
    seconds: float = 0.0
    moves: Counter[str] = field(default_factory=Counter)
    delivered: Counter[str] = field(default_factory=Counter)
    violation: str | None = None
    trace: tuple[Move, ...] = ()

    @property
    def exhausted(self) -> bool:
        """Whether every state within the bounds was seen."""
        return self.frontier == 0 and self.violation is None

    def missing(self, bounds: Bounds) -> list[str]:
        """Kinds of moves that the bounds allow and that never occurred: they prove nothing."""
        needs = {"restart": "crash", "snapshot_saved": "snapshot", "install_saved": "snapshot",
                 "installed": "snapshot"}  # fmt: skip
        allowed = {kind for kind, most in zip(BOUNDED, bounds.budgets, strict=True) if most}
        wanted = allowed | {kind for kind in FREE if needs.get(kind, kind) in {kind, *allowed}}
        if bounds.nodes == 1:
            wanted -= NEEDS_TWO
        return sorted(kind for kind in wanted if not self.moves[kind])


NEEDS_TWO = {"deliver", "drop", "duplicate", "transfer", "reset", "install_saved", "installed",
             "quorum_lost"}  # fmt: skip
"""Moves that a node alone cannot make."""


class Walk:
    """One walk.

    Args:
        bounds: the space.
        limits: how much of it.
        clock: seconds, for the time limit and the report.
        prefix: moves made before the walk begins, for what lies too deep.
    """

    def __init__(
        self,
        bounds: Bounds,
        limits: Limits,
        clock: Callable[[], float],
        prefix: Callable[[Group], State] | None = None,
    ) -> None:
        self.group = Group(bounds)
        self.limits = limits
        self._clock = clock
        self.start = (prefix or STARTS[bounds.start])(self.group)
        self._parents = array("q", [-1])
        self._made: list[Move | None] = [None]

    def run(self) -> Report:
        """Walk until all is seen, a property breaks, or a limit is reached."""
        report = Report(states=1)
        began = self._clock()
        visited = {self.group.key(self.start)}
        level: list[tuple[int, State]] = [(0, self.start)]
        moves: Counter[str] = Counter()
        try:
            while level and not self._over(report, began):
                level = self._level(level, visited, report, moves, began)
        except _Found as found:
            report.violation = str(found.violation)
            report.trace = (*self._moves_to(found.number), found.violation.move)
            report.depth = len(report.trace)
        report.frontier = len(level)
        report.seconds = self._clock() - began
        report.moves = moves
        return report

    def _over(self, report: Report, began: float) -> bool:
        limits = self.limits
        return bool(
            (limits.depth and report.depth >= limits.depth)
            or (limits.states and report.states >= limits.states)
            or (limits.seconds and self._clock() - began >= limits.seconds)
        )

    def _level(
        self,
        level: list[tuple[int, State]],
        visited: set[bytes],
        report: Report,
        moves: Counter[str],
        began: float,
    ) -> list[tuple[int, State]]:
        group, following = self.group, list[tuple[int, State]]()
        for place, (number, state) in enumerate(level):
            if place % 1024 == 1023 and self._over(report, began) and not self.limits.depth:
                # The rest of this level is left, and counts as frontier.
                return [*level[place:], *following]
            for move in group.moves(state):
                moves[move.kind] += 1
                report.transitions += 1
                try:
                    after = group.after(state, move)
                except Violation as violation:
                    raise _Found(number, violation) from violation
                if move.kind == "deliver":
                    report.delivered[group.kind_of(state, move)] += 1
                key = group.key(after)
                if key in visited:
                    continue
                visited.add(key)
                self._parents.append(number)
                self._made.append(move)
                following.append((report.states, after))
                report.states += 1
        report.depth += 1 if following else 0
        return following

    def _moves_to(self, number: int) -> tuple[Move, ...]:
        moves: list[Move] = []
        while number > 0:
            move = self._made[number]
            assert move is not None
            moves.append(move)
            number = self._parents[number]
        return tuple(reversed(moves))


class _Found(Exception):
    def __init__(self, number: int, violation: Violation) -> None:
        super().__init__(number)
        self.number = number
        self.violation = violation
