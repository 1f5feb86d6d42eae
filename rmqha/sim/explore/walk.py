"""Breadth first over every state within the bounds; the first violation has a shortest trace."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct, field

from rmqha.base.errors import RmqhaError

State = tuple[int, ...]


class Kind(Protocol):
    """A move; what else it holds is the space's business."""

    @property
    def kind(self) -> str:
        """What happens in this move."""


MoveT = TypeVar("MoveT", bound=Kind)


class Violation(Exception):
    """A property does not hold after ``move``."""

    def __init__(self, move: Any, error: RmqhaError) -> None:
        super().__init__(str(error))
        self.move = move


class Space(Protocol[MoveT]):
    """What can be walked: states, and what leads from one to the next."""

    def moves(self, state: State) -> Iterable[MoveT]:
        """Everything that can happen next, in a fixed order."""

    def after(self, state: State, move: MoveT) -> State:
        """The state after a move, checked.

        Raises:
            Violation: a property does not hold there.
        """

    def key(self, state: State) -> bytes:
        """What tells states apart."""

    def detail_of(self, state: State, move: MoveT) -> str | None:
        """The kind of message that a move delivers, if it does."""


class Limits(Struct, frozen=True):
    """When to stop although states are left; 0 is no limit."""

    depth: int = 0
    states: int = 0
    seconds: float = 0


class Report(Struct, Generic[MoveT]):
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
    trace: tuple[MoveT, ...] = ()

    @property
    def exhausted(self) -> bool:
        """Whether every state within the bounds was seen."""
        return self.frontier == 0 and self.violation is None


class Walk(Generic[MoveT]):
    """One walk through a space of states.

    Args:
        space: what is walked.
        start: where it begins.
        limits: how much of it.
        clock: seconds, for the time limit and the report.
    """

    def __init__(
        self, space: Space[MoveT], start: State, limits: Limits, clock: Callable[[], float]
    ) -> None:
        self.space = space
        self.start = start
        self.limits = limits
        self._clock = clock
        self._parents = array("q", [-1])
        self._made: list[MoveT | None] = [None]

    def run(self) -> Report[MoveT]:
        """Walk until all is seen, a property breaks, or a limit is reached."""
        report: Report[MoveT] = Report(states=1)
        began = self._clock()
        visited = {self.space.key(self.start)}
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

    def _over(self, report: Report[MoveT], began: float) -> bool:
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
        report: Report[MoveT],
        moves: Counter[str],
        began: float,
    ) -> list[tuple[int, State]]:
        space, following = self.space, list[tuple[int, State]]()
        for place, (number, state) in enumerate(level):
            if place % 1024 == 1023 and self._over(report, began) and not self.limits.depth:
                # The rest of this level is left, and counts as frontier.
                return [*level[place:], *following]
            for move in space.moves(state):
                moves[move.kind] += 1
                report.transitions += 1
                try:
                    after = space.after(state, move)
                except Violation as violation:
                    raise _Found(number, violation) from violation
                detail = space.detail_of(state, move)
                if detail is not None:
                    report.delivered[detail] += 1
                key = space.key(after)
                if key in visited:
                    continue
                visited.add(key)
                self._parents.append(number)
                self._made.append(move)
                following.append((report.states, after))
                report.states += 1
        report.depth += 1 if following else 0
        return following

    def _moves_to(self, number: int) -> tuple[MoveT, ...]:
        moves: list[MoveT] = []
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
