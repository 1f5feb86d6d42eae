"""Elections: pre-vote, votes, and who refuses to be disturbed.

Source: Raft 5.2 and 5.4.1; dissertation 4.2.3 (a server that hears a leader ignores votes) and
9.6 (pre-vote). The vote guard makes the leader's read lease safe: within ``vote_guard_ms`` of
hearing a leader a node helps nobody else to be elected, unless the leader itself asked for it.
"""

from __future__ import annotations

from rmqha.base.ids import Term
from rmqha.controller.raft.events import RoleChanged
from rmqha.controller.raft.messages import (
    PreVoteRequest,
    PreVoteResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from rmqha.controller.raft.node import Node, Role


def hears_a_leader(node: Node, now_ms: int) -> bool:
    """Whether this node has reason to believe that a leader is alive."""
    if node.role is Role.LEADER:
        return True
    patience_ms = node.patience.election_min_ms
    if node.leader_lost:
        patience_ms = node.settings.vote_guard_ms
    return now_ms - node.last_leader_contact_ms < patience_ms


def start_pre_vote(node: Node, now_ms: int) -> None:
    """Silence lasted too long: ask whether an election could be won.

    Not while a snapshot is being installed: this node would lead and commit, and then the install
    would put its state back to where the snapshot ends.
    """
    if node.installing or not node.may_stand:
        node.reset_election_timer(now_ms)
        if node.leader_id is not None:
            # Whoever asks this node for the leader must not be sent to one that is gone.
            node.become_follower(now_ms, node.term, None)
        return
    node.role = Role.PRE_CANDIDATE
    node.leader_id = None
    node.votes = {node.id}
    node.immediate.append(RoleChanged(node.role.value, node.term, None))
    node.reset_election_timer(now_ms, asking=True)
    for peer in _other_voters(node):
        node.send(
            peer,
            PreVoteRequest(Term(node.term + 1), node.id, node.log.last_index, node.log.last_term),
        )
    if node.has_majority(node.votes):
        start_election(node, now_ms, transfer=False)


def start_election(node: Node, now_ms: int, *, transfer: bool) -> None:
    """Open a new term and vote for oneself; the own vote counts when it is durable."""
    node.role = Role.CANDIDATE
    node.leader_id = None
    node.term = Term(node.term + 1)
    node.vote = node.id
    node.hard_dirty = True
    node.votes = set()
    node.immediate.append(RoleChanged(node.role.value, node.term, None))
    node.reset_election_timer(now_ms)
    for peer in _other_voters(node):
        node.send(
            peer,
            VoteRequest(node.term, node.id, node.log.last_index, node.log.last_term, transfer),
        )


def own_vote_durable(node: Node, now_ms: int, seq: int) -> None:
    """The disk holds the own vote: count it."""
    if node.role is Role.CANDIDATE and node.voted_for_self_seq <= seq and node.vote == node.id:
        _count(node, now_ms, node.id)


def on_pre_vote_request(node: Node, now_ms: int, message: PreVoteRequest) -> None:
    """Grant when no leader is heard and the asker's log is new enough. Changes nothing here."""
    granted = (
        message.term > node.term
        and node.may_vote
        and not hears_a_leader(node, now_ms)  # dissertation 9.6: as a vote would be refused
        and node.log.is_up_to_date(message.last_index, message.last_term)
        and not _gives_way(node, message)
    )
    term = message.term if granted else node.term
    node.send(message.sender, PreVoteResponse(term, node.id, granted))


def _gives_way(node: Node, message: PreVoteRequest) -> bool:
    """Whether the asker shall let this node go first: it asks too, with an equal log, a smaller id.

    After a reset connection both survivors of three ask within milliseconds; if each granted the
    other, both would stand, split the vote and lose a whole election timeout. An asker is put off
    once only: when it comes again, this node could not win meanwhile, and perhaps the asker is
    the one who can talk to a majority (a partition x-b-y, where only b can).
    """
    rival = (
        node.role is Role.PRE_CANDIDATE
        and node.id < message.sender
        and (message.last_term, message.last_index) == (node.log.last_term, node.log.last_index)
        and message.sender not in node.put_off
    )
    if rival:
        node.put_off.add(message.sender)
    return rival


def on_pre_vote_response(node: Node, now_ms: int, message: PreVoteResponse) -> None:
    """A quorum of promises opens the real election."""
    if node.role is not Role.PRE_CANDIDATE:
        return
    if not message.granted:
        if message.term > node.term:
            node.become_follower(now_ms, message.term, None)
        return
    if message.term == node.term + 1:
        node.votes.add(message.sender)
        if node.has_majority(node.votes):
            start_election(node, now_ms, transfer=False)


def on_vote_request(node: Node, now_ms: int, message: VoteRequest) -> None:
    """One vote a term, for a log at least as new; refused while a leader is heard."""
    if message.term < node.term:
        # Raft 5.1: who asks in an old term learns of the newer one.
        node.send(message.sender, VoteResponse(node.term, node.id, False))
        return
    if not message.transfer and hears_a_leader(node, now_ms):
        # Dissertation 4.2.3: not even the higher term is taken, or a node that was cut off would
        # end a leader that everybody hears. A leader that hands over has asked for it (3.10).
        return
    if message.term > node.term:
        node.become_follower(now_ms, message.term, None)
    granted = (
        node.role is not Role.LEADER
        and node.may_vote
        and node.vote in (None, message.sender)  # Raft 5.2: one vote a term
        # Raft 5.4.1: whoever wins has every entry that a majority holds, and so all committed ones.
        and node.log.is_up_to_date(message.last_index, message.last_term)
    )
    if granted:
        if node.role is Role.PRE_CANDIDATE:
            node.become_follower(now_ms, node.term, None)
        if node.vote is None:
            node.vote = message.sender
            node.hard_dirty = True
        node.reset_election_timer(now_ms)
    node.send(message.sender, VoteResponse(node.term, node.id, granted))


def on_vote_response(node: Node, now_ms: int, message: VoteResponse) -> None:
    """Count votes of the own term."""
    if message.term > node.term:
        node.become_follower(now_ms, message.term, None)
    elif node.role is Role.CANDIDATE and message.term == node.term and message.granted:
        _count(node, now_ms, message.sender)


def on_timeout_now(node: Node, now_ms: int, message: TimeoutNow) -> None:
    """The leader hands over: elect at once, without a pre-vote (dissertation 3.10)."""
    may_stand = node.may_stand and not node.installing and not node.no_space
    if message.term == node.term and node.role is Role.FOLLOWER and may_stand:
        start_election(node, now_ms, transfer=True)


def on_peer_lost(node: Node, now_ms: int, peer: str) -> None:
    """A reset connection from the leader shortens the wait; it proves nothing by itself."""
    if node.role is not Role.FOLLOWER or peer != node.leader_id or node.leader_lost:
        return
    node.leader_lost = True
    wait_ms = node.settings.vote_guard_ms + node.jitter(node.settings.reset_jitter_ms)
    node.election_deadline_ms = min(
        node.election_deadline_ms, max(now_ms, node.last_leader_contact_ms + wait_ms)
    )


def _other_voters(node: Node) -> list[str]:
    """Who can help: not those that join, and not this node."""
    return [voter for voter in node.voters if voter != node.id]


def _count(node: Node, now_ms: int, voter: str) -> None:
    node.votes.add(voter)
    # Its own vote is among them only once it is durable: after a power cut it would vote again.
    if node.has_majority(node.votes) and node.id in node.votes:
        node.become_leader(now_ms)
