"""The Raft core: one step, one list of effects. Every rule is in the files beside this one.

Begin with ``role_table.py``: the roles, which event leads from which to which, and what Raft
promises. ``standing.py`` has who may vote at all, and why. Then each file is one rule: ``votes``
(Raft 5.2, 5.4.1; dissertation 4.2.3, 9.6), ``append`` (Raft 5.3), ``reads`` (dissertation 6.4),
``snapshots`` (Raft 7), ``log`` and ``progress`` (what a leader knows of a follower).
"""

from __future__ import annotations

from typing import assert_never

from msgspec.structs import replace

from rmqha.base.ids import NO_TERM, Term
from rmqha.base.machine import Ticked
from rmqha.controller.raft import append, membership, reads, snapshots, standing, votes
from rmqha.controller.raft.events import (
    DiskBroken,
    DiskWaited,
    Effect,
    Event,
    HardState,
    MembersAsked,
    PeerLost,
    PeerMet,
    Persisted,
    Proposed,
    ReadRequested,
    Received,
    RoleChanged,
    SnapshotInstalled,
    SnapshotMeta,
    SnapshotTaken,
    SpaceChanged,
    TransferRequested,
)
from rmqha.controller.raft.log import RaftLog
from rmqha.controller.raft.members import Member, Members
from rmqha.controller.raft.messages import (
    TERM_JUMP_MAX,
    AppendRequest,
    AppendResponse,
    Entry,
    Message,
    PreVoteRequest,
    PreVoteResponse,
    Readmitted,
    SnapshotRequest,
    SnapshotResponse,
    StandingTold,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from rmqha.controller.raft.node import NEW, Node, Role
from rmqha.controller.raft.settings import RaftSettings

HUNG_TIMEOUTS = 3
"""A sync that lasts as many election timeouts is one that hangs."""

USELESS_TIMEOUTS = 5
"""So many without an advance are enough for a leader that has committed nothing of its own term, and a
useless one that nobody could relieve asks the others anew after as many."""


class RaftCore:
    """A node of the controller's Raft group.

    Args:
        node_id: this node.
        members: every node of the group, by the configuration.
        group: the same with addresses, or what a snapshot names, and the index at which that was
            so.
        settings: timings and limits.
        hard_state: term and vote found on disk.
        entries: the log found on disk, contiguous after ``base_index``.
        base_index, base_term: where the log on disk begins.
        snapshot: the newest snapshot on disk; the state machine has loaded it.
        seed: makes the election timeouts of nodes differ.
        now_ms: the time of the start.
    """

    def __init__(
        self,
        *,
        node_id: str,
        members: tuple[str, ...],
        settings: RaftSettings,
        hard_state: HardState = HardState(),  # noqa: B008 - an immutable tuple
        entries: list[Entry] | None = None,
        base_index: int = 0,
        base_term: Term = NO_TERM,
        snapshot: SnapshotMeta = SnapshotMeta(),  # noqa: B008 - an immutable tuple
        seed: int = 0,
        now_ms: int = 0,
        group: tuple[int, Members] | None = None,
    ) -> None:
        plain = Members(tuple(Member(one, "", 0) for one in sorted(members)))
        log = RaftLog(entries or [], base_index, base_term)
        self.node = Node(
            node_id, group or (0, plain), settings, hard_state, log, snapshot, seed=seed,
            now_ms=now_ms,
        )  # fmt: skip

    @property
    def is_leader(self) -> bool:
        """Whether this node leads its term (it may not have applied all of the log yet)."""
        return self.node.role is Role.LEADER

    @property
    def is_ready(self) -> bool:
        """Whether this node leads and has applied the first entry of its term."""
        return self.node.ready

    @property
    def leader_id(self) -> str | None:
        """The leader that this node follows, or itself."""
        return self.node.leader_id

    def lease_valid(self, now_ms: int) -> bool:
        """Whether reads of the applied state are linearizable right now, without a round."""
        return reads.lease_valid(self.node, now_ms)

    def is_sending_snapshot(self, now_ms: int) -> bool:
        """Whether a follower that answers is being sent the newest snapshot."""
        return self.is_leader and snapshots.is_under_way(self.node, now_ms)

    def use_lease(self, allowed: bool) -> None:
        """Whether reads may be answered by lease from here on; see ``RaftSettings.lease_reads``."""
        self.node.settings = replace(self.node.settings, lease_reads=allowed)

    @property
    def next_deadline_ms(self) -> int | None:
        """When to send ``Ticked`` next; None when this node has stopped."""
        node = self.node
        if node.role is Role.STOPPED:
            return None
        if node.role is Role.LEADER:
            return node.next_heartbeat_ms
        return node.election_deadline_ms

    def step(self, now_ms: int, event: Event) -> list[Effect]:
        """Take one event.

        Returns:
            What the shell must do; see ``events`` for its contract.

        Raises:
            InvariantBroken: when a safety rule would be violated; the process must stop.
        """
        node = self.node
        if node.role is Role.STOPPED:
            return []
        was_leader = node.role is Role.LEADER
        self._dispatch(now_ms, event)
        if node.role is Role.LEADER:
            membership.after_step(node, now_ms)
        if was_leader and node.role is not Role.LEADER:
            reads.refuse_all(node)
            membership.leadership_lost(node)
        elif node.role is Role.LEADER:
            if not was_leader:
                append.heartbeat(node, now_ms)
            reads.release(node)
        return node.take_effects()

    def _dispatch(self, now_ms: int, event: Event) -> None:  # noqa: C901 - one case an event
        node = self.node
        match event:
            case Received(message):
                self._receive(now_ms, message)
            case Proposed(records):
                append.propose(node, records)
            case Persisted(seq):
                self._persisted(now_ms, seq)
            case Ticked():
                self._tick(now_ms)
            case ReadRequested(token):
                if reads.request(node, now_ms, token):
                    append.ask_all(node, now_ms)
            case PeerLost(peer):
                if peer in node.progress:
                    node.progress[peer].connection_lost(node.log.last_index)
                votes.on_peer_lost(node, now_ms, peer)
            case TransferRequested(target):
                self._transfer(now_ms, target)
            case SnapshotTaken(meta):
                snapshots.taken(node, meta)
            case SnapshotInstalled(meta):
                snapshots.installed(node, meta, event.group)
            case SpaceChanged(enough):
                node.no_space = not enough
                node.spare_bytes = 0 if enough else append.SPARE_BYTES
                node.handed_to, node.all_asked, node.asked_again_ms = set(), False, now_ms
                self._hand_over_if_useless(now_ms)
            case DiskWaited(waited_ms):
                self._hand_over_if_hung(now_ms, waited_ms)
            case DiskBroken():
                self._stop()
            case MembersAsked():
                membership.asked(node, now_ms, event)
            case PeerMet(peer, instead_of):
                node.guests = node.guests - {instead_of} | {peer}
            case _:
                assert_never(event)

    def _receive(self, now_ms: int, message: Message) -> None:  # noqa: C901 - one case a message
        node = self.node
        if message.sender not in node.peers and message.sender not in node.guests:
            node.note("raft_stranger_ignored", "warning", sender=message.sender)
            return
        if node.may_vote and message.term > node.term + TERM_JUMP_MAX:
            node.note(
                "raft_term_refused",
                "error",
                sender=message.sender,
                term=message.term,
                own=node.term,
            )
            return
        if node.standing.kind == NEW and not isinstance(message, StandingTold):
            standing.ask_one(node, message.sender)
            return
        match message:
            case StandingTold():
                standing.on_told(node, now_ms, message)
            case Readmitted():
                standing.on_readmitted(node, message)
            case AppendRequest():
                append.on_append_request(node, now_ms, message)
            case AppendResponse():
                append.on_append_response(node, now_ms, message)
                membership.promote_if_caught_up(node, message.sender)
            case VoteRequest():
                votes.on_vote_request(node, now_ms, message)
            case VoteResponse():
                votes.on_vote_response(node, now_ms, message)
            case PreVoteRequest():
                votes.on_pre_vote_request(node, now_ms, message)
            case PreVoteResponse():
                votes.on_pre_vote_response(node, now_ms, message)
            case SnapshotRequest():
                snapshots.on_snapshot_request(node, now_ms, message)
            case SnapshotResponse():
                snapshots.on_snapshot_response(node, now_ms, message)
            case TimeoutNow():
                votes.on_timeout_now(node, now_ms, message)
            case _:
                assert_never(message)

    def _persisted(self, now_ms: int, seq: int) -> None:
        node = self.node
        node.entries_durable(seq)
        standing.on_persisted(node, seq)
        votes.own_vote_durable(node, now_ms, seq)
        if node.role is Role.LEADER:
            node.advance_commit()
            append.transfer_if_caught_up(node)

    def _tick(self, now_ms: int) -> None:
        node = self.node
        if node.role is Role.LEADER:
            if now_ms < node.next_heartbeat_ms:
                return
            oldest_ms = node.round_started_ms[0][1] if node.round_started_ms else now_ms
            if now_ms - oldest_ms > node.patience.quorum_ms:
                # Check-quorum (dissertation 6.2): a leader that cannot reach a majority makes room. Judged by the
                # oldest unanswered round, so that a process that got no processor time for a
                # while asks again before it gives up.
                node.note("raft_quorum_lost", "warning", term=node.term)
                node.become_follower(now_ms, node.term, None)
                return
            if node.transfer_target is not None and now_ms >= node.transfer_deadline_ms:
                self._note_transfer("raft_transfer_failed", "warning", node.transfer_target)
                node.transfer_target = None
            self._hand_over_if_useless(now_ms)
            append.heartbeat(node, now_ms)
        elif now_ms < node.election_deadline_ms:
            return
        elif node.standing.kind == NEW:
            standing.ask(node, now_ms)
        else:
            votes.start_pre_vote(node, now_ms)

    def _transfer(self, now_ms: int, target: str | None) -> None:
        node = self.node
        others = [voter for voter in node.voters if voter != node.id]
        if node.role is not Role.LEADER or not others:
            return
        if target is None:
            target = max(others, key=lambda peer: (self._freshness(peer), peer))
        if target not in others or node.progress[target].recovering:
            node.note("raft_transfer_failed", "warning", target=target)
            return
        node.transfer_target = target
        node.transfer_sent = False
        node.transfer_deadline_ms = now_ms + node.settings.election_max_ms
        self._note_transfer("raft_transfer_started", "info", target)
        append.transfer_if_caught_up(node)

    def _note_transfer(self, event: str, level: str, target: str) -> None:
        """Once for each voter: a majority without space may be so for hours."""
        node = self.node
        if not node.all_asked:
            node.note(event, level, target=target, term=node.term)

    def _hand_over_if_useless(self, now_ms: int) -> None:
        """A leader that takes no changes asks one after the other to lead instead.

        Who cannot lead either refuses, and says nothing; so does a lost message.
        """
        node = self.node
        if node.role is not Role.LEADER or node.transfer_target is not None:
            return
        if now_ms < node.asked_again_ms:
            return
        if not (node.no_space if node.ready else self._is_stuck(now_ms)):
            return
        others = [
            voter for voter in node.voters
            if voter not in node.handed_to | {node.id} and not node.progress[voter].recovering
        ]  # fmt: skip
        if others:
            target = max(others, key=lambda peer: (self._freshness(peer), peer))
            node.handed_to.add(target)
            self._transfer(now_ms, target)
        else:
            node.handed_to.clear()
            node.all_asked = True
            node.asked_again_ms = now_ms + USELESS_TIMEOUTS * node.settings.election_max_ms

    def _is_stuck(self, now_ms: int) -> bool:
        """Whether what opened the term is not committed, and nobody comes nearer to it.

        A majority may answer a leader of which too few can store what it sends: some are full, others
        still without a vote. Another one may reach more, and until then this one answers nothing.
        """
        patience_ms = USELESS_TIMEOUTS * self.node.settings.election_max_ms
        return now_ms - self.node.advanced_ms > patience_ms

    def _hand_over_if_hung(self, now_ms: int, waited_ms: int) -> None:
        """A leader whose disk hangs makes room: the others have what it sent, and can go on."""
        node = self.node
        patience_ms = HUNG_TIMEOUTS * node.settings.election_max_ms
        since_ms = now_ms - node.handed_over_ms
        if node.role is Role.LEADER and min(waited_ms, since_ms) > patience_ms:
            node.handed_over_ms = now_ms
            node.note("disk_hangs", "warning", hung_ms=waited_ms)
            self._transfer(now_ms, None)

    def _freshness(self, peer: str) -> tuple[int, int]:
        progress = self.node.progress[peer]
        return progress.acked_round, progress.match_index

    def _stop(self) -> None:
        node = self.node
        reads.refuse_all(node)
        node.role = Role.STOPPED
        node.leader_id = None
        node.ready = False
        node.immediate.append(RoleChanged(node.role.value, node.term, None))
