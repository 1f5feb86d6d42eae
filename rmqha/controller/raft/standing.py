"""Who may vote: a new group's founders, and whoever lost its store and was caught up again.

A node that lost its store, or a part of it, has forgotten votes and entries that others may have
counted. States of a node::

    new --(all members are new)--> voter --(store damaged)--> recovering --(readmitted)--> voter
    new --(some member is not)---> recovering

Founding. Each store draws an id when it is made. A new node asks all others for their standing;
it knows all ids after one round, and asks again. When in one round every other node says that it
is new and names the id that was known when the round began, the group is founded, by the list of
all ids. Whoever is new and finds its own id in such a list is a voter; whoever does not has
replaced a store that was counted on, and recovers. That a whole round must agree keeps out a node
that was emptied after others had already worked with it: somebody in that round is a voter.

Readmission. A recovering node stores what a leader sends and says so, and counts for nothing: not
for commits, not for reads, not for elections. A leader that hears a recovering store appends an
entry of its own term. When that entry is committed by a majority without the recovering node, and
the node holds it too, the leader readmits the store. Why this is enough: let a candidate still
hold a vote that the node cast before it lost its store, in a term above the leader's. It needs
as many further votes among the other nodes as make a majority with it, and so at least one of
those that stored the entry. That one either voted before it stored the entry, and would then have
refused the entry for its term, or it votes afterwards, and refuses a candidate without the entry.
A candidate that has the entry began its term after the node had lost its store.

Source: the argument is ours; the faults are those of Alagappan and others, "Protocol-Aware
Recovery for Consensus-Based Storage" (FAST 2018), and of Michael and others, "Recovering Shared
Objects Without Stable Storage" (DISC 2017). ADR 0018.
"""

from __future__ import annotations

from rmqha.controller.raft.events import Standing
from rmqha.controller.raft.messages import (
    AppendResponse,
    Entry,
    Readmitted,
    SnapshotResponse,
    StandingTold,
)
from rmqha.controller.raft.node import NEW, RECOVERING, VOTER, Node, Role
from rmqha.controller.raft.progress import Progress
from rmqha.controller.raft.wal_layout import Recovered

NOTE_ROUNDS = 100
"""So often a group that is not founded yet says whom it waits for."""


def standing_found(
    found: Recovered, snapshot_index: int, fresh: Standing, unknown: Standing
) -> Standing:
    """What a node is by what it finds on its disk when it starts.

    Args:
        found: what its log says; a store of format 1 says nothing of standings.
        snapshot_index: the last index of its snapshot, 0 when it has none.
        fresh: the standing of a store that is made here and now.
        unknown: the standing of a store of format 1 that was used.
    """
    if not found.segments:
        return fresh
    if found.hard_state.standing != Standing():
        return found.hard_state.standing
    # What never had a term has neither voted nor taken anything: its group is yet to be.
    empty = not found.entries and found.base is None and snapshot_index == 0
    unused = found.hard_state.term == 0 and empty
    return fresh if unused else unknown


def ask(node: Node, now_ms: int) -> None:
    """Ask every other node what it is, and say what this one is."""
    missing = [peer for peer in node.peers if peer not in node.stores_seen]
    if node.standing_round % NOTE_ROUNDS == NOTE_ROUNDS - 1:
        # A new group needs all its members once, so that none of them is an old one emptied.
        node.note("raft_group_not_founded", "warning", waiting_for=missing)
    pause_ms = node.settings.heartbeat_ms if missing else node.settings.election_max_ms
    node.election_deadline_ms = now_ms + pause_ms
    node.standing_round += 1
    node.stores_asked = dict(node.stores_seen)
    node.stores_agreed = set()
    for peer in node.peers:
        _tell(node, peer, round=node.standing_round)
    _found_if_agreed(node, now_ms)


def ask_one(node: Node, peer: str) -> None:
    """A message came that only voters can judge: its sender knows the group."""
    # Also the first number is used up: an answer to it is none of the round that begins next.
    node.standing_round = max(1, node.standing_round)
    _tell(node, peer, round=node.standing_round)


def on_told(node: Node, now_ms: int, message: StandingTold) -> None:
    """Learn what a peer is; answer when it asked."""
    if message.round > 0:
        _tell(node, message.sender, answers=message.round)
    if node.standing.kind != NEW:
        return
    if message.founders:
        _join(node, now_ms, message.founders)
        return
    if message.kind == RECOVERING:
        return  # It has forgotten who founded the group, if anybody has.
    if message.kind != NEW:
        _become(node, Standing(RECOVERING, node.standing.store_id, ()))
        return
    if message.answers == node.standing_round and (
        node.stores_asked.get(message.sender) == message.store_id
    ):
        node.stores_agreed.add(message.sender)
    knew_all = len(node.stores_seen) == len(node.peers)
    node.stores_seen[message.sender] = message.store_id
    if not knew_all and len(node.stores_seen) == len(node.peers):
        ask(node, now_ms)
    else:
        _found_if_agreed(node, now_ms)


def on_readmitted(node: Node, message: Readmitted) -> None:
    """The leader of this term has caught this store up: vote again."""
    if (
        node.standing.kind == RECOVERING
        and message.term == node.term
        and message.sender == node.leader_id
        and message.store_id == node.standing.store_id
    ):
        founders = message.founders or node.standing.founders
        _become(node, Standing(VOTER, node.standing.store_id, founders))


def on_persisted(node: Node, seq: int) -> None:
    """Tell of a standing that is on disk: an operator empties the next store when this one votes."""
    if node.standing_was and seq >= node.standing_seq:
        level = "warning" if node.standing.kind == RECOVERING else "info"
        before, node.standing_was, node.standing_seq = node.standing_was, "", 0
        node.note("raft_standing_changed", level, before=before, now=node.standing.kind)


def follower_answered(
    node: Node, progress: Progress, message: AppendResponse | SnapshotResponse
) -> None:
    """Note whether a follower counts; make sure that a recovering one can be readmitted."""
    if message.recovering == progress.recovering:
        return
    progress.recovering = message.recovering
    progress.acked_round = 0
    progress.match_index = 0
    if message.recovering:
        node.append_entries((Entry(node.log.last_index + 1, node.term, b""),))
        progress.readmit_index = node.log.last_index
        node.note(
            "raft_recovering_heard", "warning", peer=message.sender, at=progress.readmit_index
        )


def readmit_if_caught_up(node: Node, peer: str, progress: Progress) -> None:
    """Readmit a follower that holds what a majority committed without it."""
    if (
        progress.recovering
        and node.commit_index >= progress.readmit_index
        and progress.held_index >= progress.readmit_index
    ):
        node.send(peer, Readmitted(node.term, node.id, progress.recovering, node.standing.founders))


def _tell(node: Node, peer: str, *, round: int = 0, answers: int = 0) -> None:  # noqa: A002 - its name on the wire
    kind, store_id, founders = node.standing
    node.send(peer, StandingTold(node.term, node.id, kind, store_id, founders, round, answers))


def _join(node: Node, now_ms: int, founders: tuple[tuple[str, str], ...]) -> None:
    """The group exists: this store is one of its founders' or has replaced one."""
    mine = dict(founders).get(node.id) == node.standing.store_id
    _become(node, Standing(VOTER if mine else RECOVERING, node.standing.store_id, founders))
    if mine:
        _forget_guard(node, now_ms)


def _found_if_agreed(node: Node, now_ms: int) -> None:
    if node.standing.kind != NEW or len(node.stores_agreed) < len(node.peers):
        return
    stores = {**node.stores_asked, node.id: node.standing.store_id}
    _become(node, Standing(VOTER, node.standing.store_id, tuple(sorted(stores.items()))))
    for peer in node.peers:
        _tell(node, peer)
    _forget_guard(node, now_ms)
    node.election_deadline_ms = now_ms


def _forget_guard(node: Node, now_ms: int) -> None:
    """A store that was never a voter's has promised nobody a lease."""
    node.last_leader_contact_ms = now_ms - node.settings.election_min_ms
    node.reset_election_timer(now_ms)


def _become(node: Node, standing: Standing) -> None:
    node.standing_was = node.standing_on_disk
    node.standing_seq = node.persist_seq + 1
    node.standing = standing
    node.hard_dirty = True
    if node.role is not Role.FOLLOWER:
        node.role = Role.FOLLOWER
