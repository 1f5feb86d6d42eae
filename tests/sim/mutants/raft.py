"""Bugs in elections, replication, leases and reads."""

from __future__ import annotations

from typing import Any

import pytest

from rmqha.controller.aio import raft_node
from rmqha.controller.raft import append, core, events, log, node, progress, reads, votes
from rmqha.controller.raft.core import RaftCore
from rmqha.controller.raft.held_sends import HeldSends
from rmqha.controller.raft.messages import AppendResponse, VoteRequest, VoteResponse
from rmqha.controller.raft.quorum import reached_by_majority
from tests.sim.mutants.mutant import Mutant


def _sent_at_once(patch: pytest.MonkeyPatch, kind: type) -> None:
    honest = HeldSends.may_leave

    def hasty(self: HeldSends, send: Any) -> bool:
        if isinstance(send, events.Send) and isinstance(send.message, kind):
            return True
        return honest(self, send)

    patch.setattr(HeldSends, "may_leave", hasty)


def vote_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    """A voter answers while its vote is on the way to the disk."""
    _sent_at_once(patch, VoteResponse)


def candidacy_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    """A candidate asks while its own vote is on the way to the disk."""
    _sent_at_once(patch, VoteRequest)


def follower_acknowledges_before_fsync(patch: pytest.MonkeyPatch) -> None:
    """A follower's answer does not wait for its disk."""
    _sent_at_once(patch, AppendResponse)


def leader_counts_itself_before_fsync(patch: pytest.MonkeyPatch) -> None:
    """The leader's own copy counts as soon as it is in memory (Java's DLedger: up to 10 ms)."""

    def advance_commit(self: node.Node) -> bool:
        held = [self.log.last_index, *(p.match_index for p in self.progress.values())]
        index = reached_by_majority(held)
        if index <= self.commit_index or self.log.term_at(index) != self.term:
            return False
        self.commit_to(index)
        return True

    patch.setattr(node.Node, "advance_commit", advance_commit)


def old_terms_commit_by_counting(patch: pytest.MonkeyPatch) -> None:
    """Entries of earlier terms commit when a majority holds them (Raft, figure 8)."""

    def advance_commit(self: node.Node) -> bool:
        held = [self.durable_index, *(p.match_index for p in self.progress.values())]
        index = reached_by_majority(held)
        if index <= self.commit_index:
            return False
        self.commit_to(index)
        return True

    patch.setattr(node.Node, "advance_commit", advance_commit)


def two_votes_a_term(patch: pytest.MonkeyPatch) -> None:
    """A voter says yes to everyone."""
    honest = votes.on_vote_request

    def generous(target: Any, now_ms: int, message: Any) -> None:
        if message.term == target.term and target.role is not node.Role.LEADER:
            target.vote = None
        honest(target, now_ms, message)

    patch.setattr(votes, "on_vote_request", generous)


def one_node_is_a_quorum(patch: pytest.MonkeyPatch) -> None:
    """The leader commits what it alone holds."""
    patch.setattr(node, "reached_by_majority", max)


def one_vote_less_is_enough(patch: pytest.MonkeyPatch) -> None:
    """Half of the votes win an election."""
    patch.setattr(node, "majority", lambda members: max(1, members // 2))


def old_logs_win_elections(patch: pytest.MonkeyPatch) -> None:
    """Votes do not look at the candidate's log."""
    patch.setattr(log.RaftLog, "is_up_to_date", lambda self, index, term: True)


def longer_logs_win_elections(patch: pytest.MonkeyPatch) -> None:
    """Votes compare lengths before terms."""
    patch.setattr(
        log.RaftLog,
        "is_up_to_date",
        lambda self, index, term: (index, term) >= (self.last_index, self.last_term),
    )


def nobody_guards_the_leader(patch: pytest.MonkeyPatch) -> None:
    """Votes are given while a leader is heard."""
    patch.setattr(votes, "hears_a_leader", lambda target, now_ms: False)


def leader_trusts_itself(patch: pytest.MonkeyPatch) -> None:
    """A leader that is cut off renews its own lease and never steps down."""
    honest = RaftCore._tick

    def vain(self: RaftCore, now_ms: int) -> None:
        self.node.quorum_round_ms = now_ms
        self.node.round_started_ms.clear()
        honest(self, now_ms)

    patch.setattr(RaftCore, "_tick", vain)


def _lease_times(patch: pytest.MonkeyPatch, factor: float) -> None:
    def lease_valid(target: node.Node, now_ms: int) -> bool:
        if not target.peers:
            return target.ready
        return (
            target.ready
            and not target.lease_given_up
            and target.quorum_round > 0
            and now_ms - target.quorum_round_ms < target.settings.lease_ms * factor
        )

    patch.setattr(reads, "lease_valid", lease_valid)


def lease_of_one_and_a_fifth(patch: pytest.MonkeyPatch) -> None:
    """A lease a little longer than the vote guard."""
    _lease_times(patch, 1.2)


def lease_of_four(patch: pytest.MonkeyPatch) -> None:
    """A lease longer than an election takes."""
    _lease_times(patch, 4)


def lease_kept_while_handing_over(patch: pytest.MonkeyPatch) -> None:
    """The leader reads by its lease although its successor may stand at any time."""
    honest = append.transfer_if_caught_up

    def keep(target: node.Node) -> None:
        honest(target)
        target.lease_given_up = False

    patch.setattr(append, "transfer_if_caught_up", keep)


def reads_without_a_round(patch: pytest.MonkeyPatch) -> None:
    """A read that the lease does not cover is served at once."""

    def request(target: node.Node, now_ms: int, token: int) -> bool:
        if target.role is not node.Role.LEADER:
            target.immediate.append(events.Refused((), (token,)))
        else:
            target.immediate.append(events.ReadReady((token,)))
        return False

    patch.setattr(reads, "request", request)


def answers_of_old_rounds_count(patch: pytest.MonkeyPatch) -> None:
    """Any answer confirms the newest round."""
    honest = reads.round_answered

    def careless(target: node.Node, *answered: Any) -> None:
        *before, _ = answered
        honest(target, *before, target.round)

    patch.setattr(reads, "round_answered", careless)


def wiped_stores_vote(patch: pytest.MonkeyPatch) -> None:
    """A node that lost its store votes at once."""
    patch.setattr(node.Node, "may_vote", property(lambda self: True))


def recovering_nodes_count(patch: pytest.MonkeyPatch) -> None:
    """A leader counts what a node holds that has not been readmitted."""
    matched, round_answered = progress.Progress.matched, reads.round_answered

    def counted(self: progress.Progress, index: int) -> bool:
        recovering, self.recovering = self.recovering, ""
        news = matched(self, index)
        self.recovering = recovering
        self.held_index = self.match_index if recovering else self.held_index
        return news

    def answered(target: node.Node, now_ms: int, one: progress.Progress, number: int) -> None:
        recovering, one.recovering = one.recovering, ""
        round_answered(target, now_ms, one, number)
        one.recovering = recovering

    patch.setattr(progress.Progress, "matched", counted)
    patch.setattr(reads, "round_answered", answered)


def rivals_refuse_for_ever(patch: pytest.MonkeyPatch) -> None:
    """A pre-candidate with the smaller id never gives way."""
    honest = votes._gives_way

    def stubborn(target: node.Node, message: Any) -> bool:
        target.put_off.discard(message.sender)
        return honest(target, message)

    patch.setattr(votes, "_gives_way", stubborn)


def stands_while_it_installs(patch: pytest.MonkeyPatch) -> None:
    """A node is elected while a snapshot is on its way to its disk."""
    honest = votes.start_pre_vote

    def eager(target: node.Node, now_ms: int) -> None:
        installing, target.installing = target.installing, False
        honest(target, now_ms)
        target.installing = installing

    patch.setattr(votes, "start_pre_vote", eager)


def installs_whatever_happens(patch: pytest.MonkeyPatch) -> None:
    """Nothing keeps a node from leading while it installs, and nobody looks when the install ends."""
    stands_while_it_installs(patch)
    honest = votes.on_timeout_now

    def eager(target: node.Node, now_ms: int, message: Any) -> None:
        installing, target.installing = target.installing, False
        honest(target, now_ms, message)
        target.installing = installing

    patch.setattr(votes, "on_timeout_now", eager)
    patch.setattr(raft_node, "invariant", lambda *args, **facts: None)


def terms_jump(patch: pytest.MonkeyPatch) -> None:
    """A node believes a message of any term."""
    patch.setattr(core, "TERM_JUMP_MAX", 1 << 62)


def entries_taken_without_the_check(patch: pytest.MonkeyPatch) -> None:
    """A follower takes entries whatever stands before them."""
    honest = append.on_append_request

    def trusting(target: node.Node, now_ms: int, message: Any) -> None:
        term = target.log.term_at(message.prev_index)
        if term is not None and term != message.prev_term:
            message = type(message)(
                message.term, message.sender, message.prev_index, term, message.entries,
                message.commit_index, message.round,
            )  # fmt: skip
        honest(target, now_ms, message)

    patch.setattr(append, "on_append_request", trusting)


def commits_what_it_was_not_sent(patch: pytest.MonkeyPatch) -> None:
    """A follower commits up to the leader's index, with whatever its own log holds there."""
    honest = append.on_append_request

    def rash(target: node.Node, now_ms: int, message: Any) -> None:
        honest(target, now_ms, message)
        if target.role is node.Role.FOLLOWER and message.term == target.term:
            target.commit_to(min(message.commit_index, target.log.last_index))

    patch.setattr(append, "on_append_request", rash)


def no_entry_opens_a_term(patch: pytest.MonkeyPatch) -> None:
    """A new leader is ready before it knows what is committed."""
    honest = node.Node.become_leader

    def at_once(self: node.Node, now_ms: int) -> None:
        honest(self, now_ms)
        self.ready = True
        self.immediate.append(events.LeaderReady(self.term))

    patch.setattr(node.Node, "become_leader", at_once)


RULE_LIVE = "no leader although a quorum can talk through one node"
RULE_DISK = "a node without a committed entry could be elected"
RULE_LEASE = "a leader was elected while another held a lease"
RULE_READ = "a read missed what was committed before it was asked"
RULE_LOST = "a leader was elected without all committed entries"

MUTANTS = (
    Mutant(vote_before_it_is_durable, "a vote left before it was durable", 1),
    Mutant(candidacy_before_it_is_durable, "a vote left before it was durable", 1),
    Mutant(
        follower_acknowledges_before_fsync,
        "a follower acknowledged an entry that is not on its disk",
        14,
    ),
    Mutant(leader_counts_itself_before_fsync, RULE_DISK, 2),
    Mutant(
        old_terms_commit_by_counting, "a leader committed entries of earlier terms by counting", 1
    ),
    Mutant(two_votes_a_term, "a node voted twice in one term", 3),
    Mutant(one_node_is_a_quorum, RULE_DISK, 1),
    Mutant(one_vote_less_is_enough, "two leaders in one term", 3),
    Mutant(old_logs_win_elections, RULE_LOST, 6),
    Mutant(nobody_guards_the_leader, RULE_LEASE, 55),
    Mutant(leader_trusts_itself, RULE_LEASE, 6),
    Mutant(lease_of_four, RULE_LEASE, 9),
    Mutant(lease_kept_while_handing_over, RULE_LEASE, 94),
    Mutant(reads_without_a_round, RULE_READ, 9),
    Mutant(wiped_stores_vote, RULE_LOST, 28),
    Mutant(entries_taken_without_the_check, "two different entries committed at one index", 6),
    Mutant(commits_what_it_was_not_sent, "two different entries committed at one index", 25),
    Mutant(no_entry_opens_a_term, RULE_READ, 1),
    Mutant(longer_logs_win_elections, RULE_LOST, 101),
    Mutant(lease_of_one_and_a_fifth, RULE_LEASE, 89),
    Mutant(answers_of_old_rounds_count, RULE_LEASE, 32),
    Mutant(recovering_nodes_count, RULE_LOST, 667),
    Mutant(stands_while_it_installs, "the applied state never goes back", 68),
    Mutant(installs_whatever_happens, "a node's applied index fell", 68),
    Mutant(terms_jump, RULE_LIVE, 143),
    Mutant(rivals_refuse_for_ever, RULE_LIVE, 25),
)
