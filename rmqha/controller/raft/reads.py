"""Linearizable reads without a log entry: a lease, and the read index where it has run out.

Each heartbeat opens a numbered round; followers echo the number. When a quorum has answered
round r, this node was certainly the leader when r was opened, and no other can be elected
within ``vote_guard_ms`` of it, so for ``lease_ms`` (shorter by the tolerated clock drift) reads
need nothing. Otherwise a read opens a round and waits for it. Source: dissertation 6.4.
"""

from __future__ import annotations

from operator import attrgetter

from rmqha.controller.raft.events import ReadReady, Refused
from rmqha.controller.raft.node import Node, Role
from rmqha.controller.raft.progress import Progress

_answered = attrgetter("acked_round")


def lease_valid(node: Node, now_ms: int) -> bool:
    """Whether this leader may answer reads at once."""
    if node.voters == (node.id,):
        return node.ready
    return (
        node.ready
        and node.settings.lease_reads
        and not node.lease_given_up  # the successor's voters ignore the guard (dissertation 3.10)
        and node.quorum_round > 0
        and now_ms - node.quorum_round_ms < node.settings.lease_ms
    )


def open_round(node: Node, now_ms: int) -> None:
    """Number the requests that leave from now on."""
    node.round += 1
    node.round_started_ms.append((node.round, now_ms))
    if node.voters == (node.id,):
        _quorum_reached(node, now_ms, node.round)


def round_answered(node: Node, now_ms: int, progress: Progress, number: int) -> None:
    """A follower has answered a request of this round."""
    if number <= progress.acked_round or progress.recovering:
        # A node that lost its store may have promised its vote to somebody before.
        return
    progress.acked_round, progress.answered_ms = number, now_ms
    reached = node.reached(node.round, _answered)
    if reached > node.quorum_round:
        _quorum_reached(node, now_ms, reached)


def _quorum_reached(node: Node, now_ms: int, number: int) -> None:
    node.quorum_round = number
    while node.round_started_ms and node.round_started_ms[0][0] <= number:
        node.quorum_round_ms = node.round_started_ms.popleft()[1]
    node.patience.round_took(now_ms - node.quorum_round_ms)
    release(node)


def release(node: Node) -> None:
    """Let the reads go whose round a quorum has answered."""
    if not node.ready:
        # Dissertation 6.4, step 1: before its no-op is committed a leader does not know what is.
        return
    tokens: list[int] = []
    while node.reads and node.reads[0][0] <= node.quorum_round:
        tokens.append(node.reads.popleft()[1])
    if tokens:
        node.immediate.append(ReadReady(tuple(tokens)))


def request(node: Node, now_ms: int, token: int) -> bool:
    """Serve a read now, or queue it; whether a new round must be sent for it."""
    if node.role is not Role.LEADER or len(node.reads) >= node.settings.reads_pending_max:
        node.immediate.append(Refused((), (token,)))
        return False
    if lease_valid(node, now_ms):
        node.immediate.append(ReadReady((token,)))
        return False
    # Dissertation 6.4: the round must begin after the question, so one under way is not enough.
    node.reads.append((node.round + 1, token))
    return True


def refuse_all(node: Node) -> None:
    """This node leads no more: none of the waiting reads can be served here."""
    if node.reads:
        node.immediate.append(Refused((), tuple(token for _, token in node.reads)))
        node.reads.clear()
