"""Whether calls that overlapped can be put in one order that a sequential model explains.

Each call takes effect at one moment between its start and its end; one whose end nobody saw may take
effect at any later moment, or never. The search goes depth first over (calls done, state) and never
visits such a pair twice. Source: Wing and Gong 1993; Lowe 2017 for the memory of visited pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

from rmqha.base.invariants import invariant

StateT = TypeVar("StateT")
CallT = TypeVar("CallT")

STEPS_MAX = 50_000
"""States looked at before a search is given up."""


class Timed(NamedTuple, Generic[CallT]):
    """A call with its times by one clock; ``ended`` None when nobody saw its end."""

    call: CallT
    started: float
    ended: float | None = None


class Verdict(NamedTuple, Generic[CallT]):
    """What a search found.

    Attributes:
        linearizable: None when the search was given up.
        steps: states looked at.
        order: the calls in an order that explains them, or the longest such beginning.
        stuck: where no order exists, a call that cannot follow that beginning.
    """

    linearizable: bool | None
    steps: int
    order: tuple[CallT, ...] = ()
    stuck: CallT | None = None


def check(
    history: Iterable[Timed[CallT]],
    initial: StateT,
    after: Callable[[StateT, CallT], Iterable[StateT]],
    *,
    steps_max: int = STEPS_MAX,
) -> Verdict[CallT]:
    """Look for an order.

    Args:
        history: in any order.
        initial: the model's state before all calls; hashable.
        after: the states in which a call, with the answer that it got, can leave the model; none
            when the answer is wrong. For a call without an end: every effect that it may have.
        steps_max: when to give up.
    """
    return _Search(sorted(history, key=lambda one: one.started), after, steps_max).run(initial)


class _Search(Generic[StateT, CallT]):
    def __init__(
        self,
        calls: Sequence[Timed[CallT]],
        after: Callable[[StateT, CallT], Iterable[StateT]],
        steps_max: int,
    ) -> None:
        self.calls = calls
        self.after = after
        self.steps_max = steps_max
        # Those that must be done: the others need not be.
        self.wanted = sum(1 << i for i, one in enumerate(calls) if one.ended is not None)

    def run(self, initial: StateT) -> Verdict[CallT]:
        """Depth first, without recursion: a path may be as long as the history."""
        seen = {(0, initial)}
        path: list[int] = []
        best: tuple[int, ...] = ()
        trail = [self._next(0, initial)]
        masks = [0]
        if not self.wanted:
            return Verdict(True, 0)
        while trail:
            found = next(trail[-1], None)
            if found is None:
                trail.pop()
                masks.pop()
                if path:
                    path.pop()
                continue
            number, state = found
            mask = masks[-1] | 1 << number
            if (mask, state) in seen:
                continue
            seen.add((mask, state))
            path.append(number)
            if len(path) > len(best):
                best = tuple(path)
            if mask & self.wanted == self.wanted:
                return Verdict(True, len(seen), self._calls(best))
            if len(seen) > self.steps_max:
                return Verdict(None, len(seen), self._calls(best))
            trail.append(self._next(mask, state))
            masks.append(mask)
        stuck = next(self._open(sum(1 << number for number in best) & self.wanted), None)
        return Verdict(
            False, len(seen), self._calls(best), None if stuck is None else self.calls[stuck].call
        )

    def _calls(self, order: tuple[int, ...]) -> tuple[CallT, ...]:
        return tuple(self.calls[number].call for number in order)

    def _next(self, mask: int, state: StateT) -> Iterator[tuple[int, StateT]]:
        """Calls that may be the next, seen ones first: those without an end mostly did nothing."""
        unseen: list[int] = []
        for number in self._open(mask):
            if self.calls[number].ended is None:
                unseen.append(number)
                continue
            for state_after in self.after(state, self.calls[number].call):
                yield number, state_after
        for number in unseen:
            for state_after in self.after(state, self.calls[number].call):
                if state_after != state:
                    yield number, state_after

    def _open(self, mask: int) -> Iterator[int]:
        """Calls that are not done, and began before all that are not done ended."""
        first = (~mask & (mask + 1)).bit_length() - 1  # the lowest that is not done
        earliest_end = float("inf")
        open_calls: list[int] = []
        for number in range(first, len(self.calls)):
            one = self.calls[number]
            if one.started > earliest_end:
                break
            if mask >> number & 1:
                continue
            open_calls.append(number)
            if one.ended is not None:
                earliest_end = min(earliest_end, one.ended)
        for number in open_calls:
            if self.calls[number].started <= earliest_end:
                yield number


class Tally:
    """Searches of one run: how many, and how many were given up."""

    def __init__(self) -> None:
        self.checked = 0
        self.calls = 0
        self.given_up = 0

    def take(self, name: str, count: int, verdict: Verdict[CallT]) -> None:
        """Count a verdict.

        Raises:
            InvariantBroken: no order explains the answers.
        """
        self.checked += 1
        self.calls += count
        self.given_up += verdict.linearizable is None
        invariant(
            verdict.linearizable is not False,
            "no order of the calls explains their answers",
            name=name,
            explained=len(verdict.order),
            calls=count,
            stuck=verdict.stuck,
            before=verdict.order[-3:],
        )
