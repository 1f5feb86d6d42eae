"""Whether a controller does what it is there for, so that a rolling restart may go on."""

from __future__ import annotations


def not_ready(
    *, leader_id: str | None, may_vote: bool, is_removed: bool = False, votes: bool = True
) -> str | None:
    """What is missing, in a sentence; None of a node that takes part.

    A node without a vote holds less than a majority may rely on: to stop another one then leaves a
    group of three without a majority.

    Args:
        leader_id: whom the node knows as leader; None for nobody.
        may_vote: whether its store is one that votes (ADR 0018).
        is_removed: whether it knows that it is no member any more.
        votes: whether the group counts it; not while it joins.
    """
    if is_removed:
        return "it was removed from the group"
    if leader_id is None:
        return "no leader is known"
    if not may_vote:
        return "its store is new or was damaged, and is being caught up: it has no vote yet"
    if not votes:
        return "it joins the group: it has no vote yet"
    return None
