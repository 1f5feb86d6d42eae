"""Ways to begin a walk farther on: moves that are made one after another, without looking aside."""

from __future__ import annotations

from collections.abc import Callable

from rmqha.base.invariants import invariant
from rmqha.sim.explore.bounds import BOUNDED
from rmqha.sim.explore.group import Group
from rmqha.sim.explore.moves import Move
from rmqha.sim.explore.walk import State

SETTLE_MAX = 10_000


def settle(group: Group, state: State, cut_off: frozenset[int] = frozenset()) -> State:
    """Write and deliver all there is; nothing comes from or to nodes that are cut off."""
    for _ in range(SETTLE_MAX):
        move = _next(group, state, cut_off)
        if move is None:
            return state
        state = group.after(state, move)
    invariant(False, "a group does not settle")
    return state


def _next(group: Group, state: State, cut_off: frozenset[int]) -> Move | None:
    for node in range(group.count):
        if group.member(state, node).writing:
            return Move("persist", node)
        for sender in range(group.count):
            if group.link(state, sender, node):
                kind = "drop" if {sender, node} & cut_off else "deliver"
                return Move(kind, node, sender)
    return None


def unspent(group: Group, state: State) -> State:
    """The state with all budgets as at the start."""
    return (*state[: -len(BOUNDED)], *([0] * len(BOUNDED)))


def fresh(group: Group) -> State:
    """Nobody has done anything; whether a group is founded is in the bounds."""
    return group.start


def led(group: Group) -> State:
    """The first node leads; everything is durable, applied and told everywhere."""
    state = settle(group, group.after(group.start, Move("timeout", 0)))
    state = settle(group, group.after(state, Move("heartbeat", 0)))
    return unspent(group, state)


def behind(group: Group) -> State:
    """As ``led``; the last node missed a record that the leader has only in its snapshot."""
    invariant(group.count > 2, "to be behind a majority takes three nodes")
    last = group.count - 1
    state = group.after(led(group), Move("propose", 0))
    state = settle(group, state, frozenset({last}))
    for kind in ("snapshot", "snapshot_saved"):
        state = group.after(state, Move(kind, 0))
    state = settle(group, group.after(state, Move("reset", last, 0)))
    return unspent(group, state)


STARTS: dict[str, Callable[[Group], State]] = {
    "new": fresh,
    "fresh": fresh,
    "led": led,
    "behind": behind,
}
"""Where a walk can begin, by name."""
