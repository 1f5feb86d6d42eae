"""DefaultElectPolicy: which replica becomes master.

Source: Java 5.3.3 DefaultElectPolicy#elect, compared over the full width (Java casts an offset
difference to int, so replicas 2^31 bytes apart are ordered wrongly, #10578), and a complete tie
goes to the smallest id. Of those in sync, who says that its disk stands still, or is full, comes last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from rmqha.base.ids import BrokerId
from rmqha.controller.metadata.decision import SOMETHING, LiveInfo

UNKNOWN_PRIORITY = 2**31 - 1
"""Java's default ``brokerElectionPriority``, the least preferred one."""

Alive = Callable[[BrokerId], bool]
InfoOf = Callable[[BrokerId], LiveInfo | None]
Rank = tuple[int, int, int, int]
Order = Callable[[BrokerId, LiveInfo | None], Rank | tuple[bool, Rank]]


def elect(
    sync_state_set: Iterable[BrokerId],
    all_replicas: Iterable[BrokerId] | None,
    *,
    old_master: BrokerId | None,
    prefer: BrokerId | None,
    alive: Alive,
    info: InfoOf,
) -> BrokerId | None:
    """Choose a master, first among the SyncStateSet, then (unclean) among all replicas.

    Args:
        sync_state_set: in-sync ids.
        all_replicas: every registered id when unclean elections are allowed, else None.
        old_master: kept when it is alive and nobody else is preferred.
        prefer: the only id that is acceptable, from an operator.
        alive: whether an id counts as alive now.
        info: what its heartbeats said.

    Returns:
        The new master, which may be the old one; None when there is no candidate.
    """
    chosen = _try(sync_state_set, old_master, prefer, alive, info, _usable_first)
    if chosen is None and all_replicas is not None:
        chosen = _try(all_replicas, old_master, prefer, alive, info, rank)
    return chosen


def held_back(ids: Iterable[BrokerId], alive: Alive, info: InfoOf) -> frozenset[BrokerId]:
    """Who of the SyncStateSet may not be elected yet: others may still have what they lack.

    One that came back with less than it had confirmed waits until all members of the set are there and
    have said what they have: an operator may have emptied it, or its machine lost power. Then nobody has
    more than the best of them. So does one that came with nothing and was not taken in since, unless all
    others are empty as well: who began to listen only now does not know what it had.
    """
    members = tuple(ids)
    said = {one: info(one) for one in members}
    less = frozenset(
        one
        for one, own in said.items()
        if own is not None
        and (
            own.lacks_to > SOMETHING
            or ((own.lacks_to > 0 or own.unsaid) and _may_others_have(one, said))
        )
    )
    complete = all(alive(one) and own is not None and not own.unsaid for one, own in said.items())
    return frozenset() if complete and len(less) == len(members) else less


def _may_others_have(broker_id: BrokerId, said: Mapping[BrokerId, LiveInfo | None]) -> bool:
    others = (own for one, own in said.items() if one != broker_id)
    return any(own is None or own.unsaid or own.max_offset != 0 for own in others)


def is_master_best(
    ids: Iterable[BrokerId], master: BrokerId | None, alive: Alive, info: InfoOf
) -> bool:
    """Whether all of the SyncStateSet are there, and all but the master came back with less.

    A master that must not reign on, for its machine lost power, has no heir then. Who of them has the
    most is for the next election, before which the master says what it has.
    """
    members = frozenset(ids)
    heirs = members - {master}
    there = all(alive(one) and (said := info(one)) is not None and not said.unsaid for one in heirs)
    return bool(heirs) and there and heirs <= held_back(members, alive, info)


def _try(
    ids: Iterable[BrokerId],
    old_master: BrokerId | None,
    prefer: BrokerId | None,
    alive: Alive,
    info: InfoOf,
    order: Order,
) -> BrokerId | None:
    kept = [broker_id for broker_id in ids if alive(broker_id)]
    if old_master in kept and prefer in {None, old_master}:
        return old_master
    if prefer is not None:
        return prefer if prefer in kept else None
    return min(kept, key=lambda broker_id: order(broker_id, info(broker_id)), default=None)


def _usable_first(broker_id: BrokerId, said: LiveInfo | None) -> tuple[bool, Rank]:
    """All of them hold what was acknowledged, so a working disk counts for more than a longer log."""
    return said is not None and said.stalled_ms > 0, rank(broker_id, said)


def rank(broker_id: BrokerId, said: LiveInfo | None) -> Rank:
    """The election order, smallest first: epoch down, max_offset down, priority up, id up."""
    if said is None:
        return 1, 1, UNKNOWN_PRIORITY, broker_id
    return -said.epoch, -said.max_offset, said.priority, broker_id
