"""Who lost its store does not count, as checks of what nodes say and become (ADR 0018).

A store that counts (``voter``) was founded with all others, or a leader has caught it up. What a
node says is judged by the standing on its disk: nothing leaves while a newer one is on its way.
"""

from __future__ import annotations

from rmqha.base.invariants import invariant
from rmqha.controller.raft.events import HardState, Standing
from rmqha.controller.raft.messages import (
    AppendResponse,
    Message,
    PreVoteRequest,
    PreVoteResponse,
    SnapshotResponse,
    StandingTold,
    VoteRequest,
    VoteResponse,
)
from rmqha.controller.raft.node import NEW, RECOVERING, VOTER, Node, Role


def check_said(standing: Standing, message: Message) -> None:
    """A message leaves a node with this standing on its disk.

    Raises:
        InvariantBroken: a new node says more than what it is, or one that does not count votes,
            leads, or acknowledges without saying what it is.
    """
    if standing.kind == VOTER:
        return
    match message:
        case StandingTold() | VoteResponse(granted=False) | PreVoteResponse(granted=False):
            allowed = standing.kind == RECOVERING or isinstance(message, StandingTold)
        case AppendResponse() | SnapshotResponse():
            allowed = standing.kind == RECOVERING and message.recovering == standing.store_id
        case _:
            allowed = False
    stands = isinstance(message, (VoteRequest, PreVoteRequest, VoteResponse, PreVoteResponse))
    what = "votes" if stands else "takes part as if it counted"
    invariant(
        allowed,
        f"a node that does not count {what}",
        standing=standing.kind,
        said=type(message).__name__,
    )


def check_counted(node: Node, message: Message) -> None:
    """A node has taken a message.

    Raises:
        InvariantBroken: it leads, and counts what a node that does not count has said.
    """
    if not isinstance(message, (AppendResponse, SnapshotResponse)) or not message.recovering:
        return
    progress = node.progress.get(message.sender)
    if node.role is Role.LEADER and message.term == node.term and progress is not None:
        invariant(
            progress.match_index == 0 and progress.acked_round == 0,
            "a leader counts a node that does not count",
            follower=message.sender,
            match_index=progress.match_index,
            acked_round=progress.acked_round,
        )


def check_became(
    before: HardState, now: HardState, members: tuple[str, ...], held: int, lost: int | None
) -> None:
    """A node's hard state has become durable; it may count from here on.

    Args:
        members: of the group.
        held: how many of the committed entries are on its disk.
        lost: how many were committed when it lost a store that counted; None when it lost none.

    Raises:
        InvariantBroken: it must not.
    """
    kinds = (before.standing.kind, now.standing.kind)
    if kinds == (NEW, VOTER):
        founders = tuple(name for name, _ in now.standing.founders)
        invariant(founders == members, "a group was founded without a member", founders=founders)
        invariant(lost is None, "a store that was counted on was replaced by a new voter")
    elif kinds == (RECOVERING, VOTER):
        invariant(
            held >= (lost or 0),
            "a node counts again without what was committed when it lost its store",
            holds=held,
            committed=lost,
        )
