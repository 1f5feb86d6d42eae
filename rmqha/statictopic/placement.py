"""Which broker set gets which logical queue: as few moves as possible, and nobody much more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rmqha.statictopic.known import Known, PlanRefused, histories


def leaders_by_queue(known: Known) -> dict[int, str | None]:
    """Who leads each logical queue; None where that broker is away, or nobody knows the queue."""
    newest = histories(known)
    return {logical: known.leader(newest.get(logical)) for logical in range(known.total_queues)}


def new_queues(known: Known, count: int, targets: Sequence[str]) -> dict[int, str]:
    """Brokers for the queues from the present number up to ``count``, each to who has fewest."""
    leading = leaders_by_queue(known)
    return _fill(range(known.total_queues, count), _loads(leading, targets))


def balancing_moves(known: Known, targets: Sequence[str]) -> dict[int, str]:
    """The moves after which only ``targets`` lead, none of them two queues more than another."""
    leading = leaders_by_queue(known)
    loads = _loads(leading, targets)
    each, rest = divmod(len(leading), len(loads))
    # Whoever leads most may keep one more: it saves a move.
    favoured = sorted(loads, key=lambda name: (-loads[name], name))[:rest]
    kept = dict.fromkeys(loads, 0)
    moving = []
    for logical, leader in leading.items():
        if leader in loads and kept[leader] < each + (leader in favoured):
            kept[leader] += 1
        else:
            moving.append(logical)
    found = {}
    for logical in moving:
        name = min(
            (name for name in loads if kept[name] < each + (name in favoured)),
            key=lambda name: (kept[name], name),
        )
        kept[name] += 1
        found[logical] = name
    return found


def draining_moves(known: Known, source: str, targets: Sequence[str]) -> dict[int, str]:
    """The moves after which ``source`` leads nothing; other queues stay where they are.

    A source that is away leads the queues whose newest segment it has.
    """
    newest = histories(known)
    leading = leaders_by_queue(known)
    moving = [logical for logical, history in newest.items() if history[-1].broker_name == source]
    return _fill(moving, _loads(leading, [name for name in targets if name != source]))


def _loads(leading: Mapping[int, str | None], targets: Sequence[str]) -> dict[str, int]:
    """How many queues each target leads, by name; raises PlanRefused if there is no target."""
    if not targets:
        raise PlanRefused("no broker set is there that could lead the queues")
    return {name: sum(one == name for one in leading.values()) for name in sorted({*targets})}


def _fill(queues: Sequence[int], loads: dict[str, int]) -> dict[int, str]:
    found = {}
    for logical in queues:
        name = min(loads, key=lambda one: (loads[one], one))
        loads[name] += 1
        found[logical] = name
    return found
