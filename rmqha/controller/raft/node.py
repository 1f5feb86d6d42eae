"""A Raft node's state, what a step has decided so far, and the changes of role.

The rules for each message live beside this file (``votes``, ``append``, ``snapshots``,
``reads``); they change the state through the methods here, and ``core`` turns the outcome of a
step into effects.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable
from enum import Enum
from operator import attrgetter

from rmqha.base.ids import NO_TERM, Term
from rmqha.base.invariants import invariant
from rmqha.base.machine import Note
from rmqha.controller.raft.events import (
    Apply,
    Effect,
    HardState,
    LeaderReady,
    MembersAnswered,
    PeersChanged,
    Persist,
    RoleChanged,
    Send,
    SnapshotMeta,
)
from rmqha.controller.raft.log import RaftLog
from rmqha.controller.raft.members import Member, Members, decode_members, is_members
from rmqha.controller.raft.messages import AppendRequest, Entry, Message
from rmqha.controller.raft.patience import Patience
from rmqha.controller.raft.progress import LONG_AGO_MS, Progress
from rmqha.controller.raft.quorum import majority, reached_by_majority
from rmqha.controller.raft.settings import RaftSettings

NEW, VOTER, RECOVERING = "new", "voter", "recovering"

LEAVING_HEARTBEATS = 40
"""So many heartbeats a removed node still gets after its removal was committed."""

_held = attrgetter("match_index")


class Role(Enum):
    """What a node is to its group."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre_candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"
    STOPPED = "stopped"


class Node:
    """State of one node; no method waits, reads a clock or draws a number.

    Args:
        node_id: this node.
        group: all nodes of the group, and the index at which log or snapshot named it, 0 for what
            the configuration says.
        settings: timings and limits.
        hard_state, log, snapshot: what was on disk.
        seed: makes election timeouts differ between nodes; any number.
        now_ms: the time of the start. A node that has just started helps no election before
            the vote guard is over, for it may have promised a lease before it stopped.
    """

    def __init__(
        self,
        node_id: str,
        group: tuple[int, Members],
        settings: RaftSettings,
        hard_state: HardState,
        log: RaftLog,
        snapshot: SnapshotMeta,
        seed: int,
        now_ms: int,
    ) -> None:
        invariant(
            group[0] > 0 or group[1].find(node_id) is not None,
            "a node must be a member",
            node=node_id,
        )
        self.id = node_id
        # Every group that log and snapshot name, by the index from which it counts; see ``members``.
        self.groups: tuple[tuple[int, Members], ...] = (group, *_named_in(log, group[0]))
        self.group = self.groups[-1][1]
        self.members = self.group.ids
        self.voters = self.group.voters
        self.peers: tuple[str, ...] = ()
        self.guests: frozenset[str] = frozenset()  # who knows this node, and is not known here
        self.settings = settings
        self.patience = Patience(settings)
        self.seed = seed
        self.term = hard_state.term
        self.vote = hard_state.vote
        self.standing = hard_state.standing
        self.standing_was, self.standing_seq = "", 0  # while the persist of that number changes it
        self.log = log
        self.snapshot = snapshot
        self.commit_index = snapshot.last_index
        self.durable_index = log.last_index
        self.role = Role.FOLLOWER
        self.leader_id: str | None = None
        self.last_leader_contact_ms = now_ms
        self.heard_from = (0, "")
        self.replaced = ("", 0)  # the leader before, and when it was heard last
        self.leader_lost = False
        self.election_deadline_ms = 0
        self.elections = 0
        self.votes: set[str] = set()
        self.put_off: set[str] = set()  # rivals that were refused a pre-vote once
        self.voted_for_self_seq = 0
        # while this store is new: ids of the others' stores, and who agreed in this round
        self.standing_round = 0
        self.stores_seen: dict[str, str] = {}
        self.stores_asked: dict[str, str] = {}
        self.stores_agreed: set[str] = set()
        self.no_space = False
        self.spare_bytes = 0
        # leader only
        self.progress: dict[str, Progress] = {}
        self.next_heartbeat_ms = 0
        self.round = 0
        self.round_started_ms: deque[tuple[int, int]] = deque()
        self.quorum_round = 0
        self.quorum_round_ms = 0
        self.term_start_index = 0
        self.ready = False
        self.reads: deque[tuple[int, int]] = deque()
        self.transfer_target: str | None = None
        self.transfer_deadline_ms = 0
        self.transfer_sent = False
        self.handed_over_ms = 0  # when its disk hung last
        self.advanced_ms = 0  # when a follower took something that none of its answers had before
        self.handed_to: set[str] = set()  # while it is useless: who was asked to lead instead
        self.asked_again_ms = 0  # and when the next one is
        self.all_asked = False  # without success
        self.lease_given_up = False
        self.asked: tuple[int, int] | None = None  # token and index of the change asked for
        self.leaving: dict[str, tuple[Member, int]] = {}  # removed, and heartbeats left for it
        # incoming snapshot
        self.incoming: SnapshotMeta | None = None
        self.incoming_offset = 0
        self.installing = False
        # persists that are not durable yet: (seq, index and term of the last entry, vote)
        self.persist_seq = 0
        self.persisting: deque[tuple[int, int, int]] = deque()
        # what the step under way has decided
        self.peers = tuple(self._known())
        self.hard_dirty = False
        self.new_entries: list[Entry] = []
        self.sends_first: list[Effect] = []
        self.sends_after: list[Effect] = []
        self.immediate: list[Effect] = []
        self.reset_election_timer(now_ms)
        if self.standing.kind == NEW:
            self.election_deadline_ms = now_ms

    @property
    def may_vote(self) -> bool:
        """Whether this node's votes and acknowledgements count."""
        return self.standing.kind == VOTER

    @property
    def standing_on_disk(self) -> str:
        """The kind of standing that this node would find if it started now."""
        return self.standing_was or self.standing.kind

    @property
    def may_stand(self) -> bool:
        """Whether this node may be elected.

        One whose removal is not committed yet may be needed to commit it (dissertation 4.2.2).
        """
        if not self.may_vote:
            return False
        return self.id in self.voters or self.id in self.group_at(self.commit_index).voters

    @property
    def group_uncommitted(self) -> bool:
        """Whether the newest change of the group could still be cut."""
        return self.groups[-1][0] > self.commit_index

    @property
    def is_removed(self) -> bool:
        """Whether it is certain that this node is no member any more."""
        return self.id not in self.members and not self.group_uncommitted

    def group_at(self, index: int) -> Members:
        """The group as the log up to ``index`` has it."""
        return next(
            (group for at, group in reversed(self.groups) if at <= index), self.groups[0][1]
        )

    def named_group(self, index: int) -> Members | None:
        """The same; None when it is still what the configuration says."""
        return next((group for at, group in reversed(self.groups) if 0 < at <= index), None)

    def has_majority(self, nodes: set[str]) -> bool:
        """Whether these are a majority of those who vote."""
        return sum(voter in nodes for voter in self.voters) >= majority(len(self.voters))

    def reached(self, own: int, of: Callable[[Progress], int]) -> int:
        """What a majority of the voters has reached: ``own`` here, ``of`` its progress elsewhere."""
        progress = self.progress
        return reached_by_majority(
            [own if voter == self.id else of(progress[voter]) for voter in self.voters]
        )

    @property
    def recovering_id(self) -> str:
        """The own store's id while it does not count, else empty."""
        return self.standing.store_id if self.standing.kind == RECOVERING else ""

    # -- output ----------------------------------------------------------------------------

    def send(self, to: str, message: Message) -> None:
        """Queue a message; only a leader's entries may leave before this step's persist."""
        target = self.sends_first if isinstance(message, AppendRequest) else self.sends_after
        target.append(Send(to, message))

    def note(self, event: str, level: str = "info", **facts: object) -> None:
        """Leave a line for the log."""
        self.immediate.append(Note(event, level, facts))

    def take_effects(self) -> list[Effect]:
        """The effects of the step, in the order the shell must carry them out."""
        effects = [*self.immediate, *self.sends_first]
        if self.hard_dirty or self.new_entries:
            self.persist_seq += 1
            hard = HardState(self.term, self.vote, self.standing) if self.hard_dirty else None
            entries = tuple(self.new_entries)
            last = entries[-1] if entries else Entry(0, NO_TERM, b"")
            self.persisting.append((self.persist_seq, last.log_index, last.term))
            if self.hard_dirty and self.vote == self.id:
                self.voted_for_self_seq = self.persist_seq
            effects.append(Persist(self.persist_seq, hard, entries))
        effects += self.sends_after
        self.hard_dirty = False
        self.new_entries = []
        self.sends_first = []
        self.sends_after = []
        self.immediate = []
        return effects

    # -- roles -----------------------------------------------------------------------------

    def reset_election_timer(self, now_ms: int, *, asking: bool = False) -> None:
        """Choose the next time at which silence means an election.

        With ``asking`` it is judged already, so what patience has learnt of silence is no reason to
        wait: a pre-candidate that rivals have put off asks again, which changes nothing elsewhere.
        """
        low, high = self.patience.election_min_ms, self.patience.election_max_ms
        if asking:
            low, high = self.settings.election_min_ms, self.settings.election_max_ms
        self.election_deadline_ms = now_ms + low + self.jitter(high - low)

    def jitter(self, span: int) -> int:
        """A number below ``span + 1`` that differs by node, term and attempt, without chance."""
        self.elections += 1
        text = f"{self.seed}:{self.id}:{self.term}:{self.elections}"
        return zlib.crc32(text.encode()) % (span + 1)

    def heard_leader(self, now_ms: int, leader_id: str) -> None:
        """A message from the leader of this term arrived."""
        if self.heard_from == (self.term, leader_id):
            if self.patience.heard_after(now_ms - self.last_leader_contact_ms):
                self.note(
                    "raft_slow",
                    "warning",
                    silent_ms=now_ms - self.last_leader_contact_ms,
                    election_min_ms=self.patience.election_min_ms,
                )
        elif self.heard_from[1] != leader_id:
            self.replaced = (self.heard_from[1], self.last_leader_contact_ms)
        self.heard_from = (self.term, leader_id)
        self.last_leader_contact_ms = now_ms
        self.leader_lost = False
        self.put_off.clear()
        if self.leader_id != leader_id:
            self.leader_id = leader_id
            self.immediate.append(RoleChanged(self.role.value, self.term, leader_id))
        self.reset_election_timer(now_ms)

    def late_leader_heard(self, now_ms: int, sender: str) -> None:
        """A leader that was taken for dead was only slow; the next one gets more time."""
        leader_id, heard_ms = self.replaced
        if self.heard_from[1] == sender and self.heard_from[0] < self.term:
            leader_id, heard_ms = sender, self.last_leader_contact_ms
        if sender == leader_id:
            self.patience.was_only_late(now_ms - heard_ms)
            self.replaced = ("", 0)

    def become_follower(self, now_ms: int, term: Term, leader_id: str | None) -> None:
        """Follow ``term``; a higher term forgets the vote."""
        invariant(term >= self.term, "terms never go back", term=term, current=self.term)
        if term > self.term:
            self.term = term
            self.vote = None
            self.hard_dirty = True
            self.leader_id = None
            self.leader_lost = False
        was = self.role
        if was is not Role.FOLLOWER or leader_id != self.leader_id:
            self.role = Role.FOLLOWER
            self.leader_id = leader_id
            self.immediate.append(RoleChanged(self.role.value, self.term, leader_id))
        if was is not Role.FOLLOWER:
            self.reset_election_timer(now_ms)
        self.transfer_target = None
        self.ready = False
        self.votes = set()
        if self.leaving:
            self.leaving = {}
            self._regroup()

    def become_leader(self, now_ms: int) -> None:
        """Open the term with a no-op, so that older entries can be committed (Raft 5.4.2)."""
        self.role = Role.LEADER
        self.leader_id = self.id
        self.put_off.clear()
        self.ready = False
        self.lease_given_up = False
        self.handed_to, self.all_asked, self.asked_again_ms = set(), False, now_ms
        self.advanced_ms = now_ms
        last = self.log.last_index
        self.progress = {
            peer: Progress(next_index=last + 1, answered_ms=now_ms) for peer in self.peers
        }
        self.round = 0
        self.round_started_ms.clear()
        self.quorum_round = 0
        self.quorum_round_ms = now_ms
        self.next_heartbeat_ms = now_ms
        self.immediate.append(RoleChanged(self.role.value, self.term, self.id))
        self.term_start_index = self.log.last_index + 1
        self.append_entries((Entry(self.term_start_index, self.term, b""),))

    # -- group -----------------------------------------------------------------------------

    def group_loaded(self, index: int, group: Members | None) -> None:
        """A snapshot replaces the log; None when the group is still the configuration's."""
        self.groups = ((index, group),) if group is not None else self.groups[:1]
        self._regroup()
        if group is not None:
            self.note("raft_members_loaded", index=index, voters=list(self.voters))

    def forget_groups(self, index: int) -> None:
        """Entries up to ``index`` are compacted away: of older groups the last is enough."""
        kept = sum(at <= index for at, _ in self.groups[1:])
        self.groups = self.groups[kept:]

    def leaving_told(self) -> None:
        """One heartbeat has left for those who were removed; whether they are done with now."""
        if self.group_uncommitted:
            return
        self.leaving = {
            peer: (member, left - 1) for peer, (member, left) in self.leaving.items() if left > 1
        }
        if not self.leaving:
            self._regroup()

    def _regroup(self) -> None:
        """The newest group is another one: who counts, who is fed, who is spoken to."""
        before, self.group = self.group, self.groups[-1][1]
        self.members, self.voters = self.group.ids, self.group.voters
        if self.role is Role.LEADER:
            # What old voters have answered says little of what new ones will.
            self.quorum_round_ms = LONG_AGO_MS
            for gone in before.members:
                if gone.id not in self.members and gone.id != self.id:
                    self.leaving[gone.id] = (gone, LEAVING_HEARTBEATS)
            self.leaving = {k: v for k, v in self.leaving.items() if k not in self.members}
        known = self._known()
        self.peers = tuple(known)
        if self.role is Role.LEADER:
            self.progress = {
                peer: self.progress.get(peer) or Progress(next_index=self.log.last_index + 1)
                for peer in self.peers
            }
        if self.transfer_target is not None and self.transfer_target not in self.voters:
            self.transfer_target = None
        silent = self.is_removed and self.role is not Role.LEADER
        self.immediate.append(PeersChanged(() if silent else tuple(known.values())))

    def _known(self) -> dict[str, Member]:
        """Everybody of the group, and of those before that may come back.

        Until a removal is committed it can be taken back, by a leader whom it removes.
        """
        base = next((at for at, _ in reversed(self.groups) if at <= self.commit_index), 0)
        groups = [tuple(member for member, _ in self.leaving.values())]
        groups += [group.members for at, group in self.groups if at >= base]
        known = {one.id: one for group in groups for one in group if one.id != self.id}
        return dict(sorted(known.items()))

    @property
    def peer_members(self) -> tuple[Member, ...]:
        """Whom this node speaks to."""
        return tuple(self._known().values())

    def _group_committed(self) -> None:
        if self.asked is not None and self.asked[1] <= self.commit_index:
            self.immediate.append(MembersAnswered(self.asked[0], ""))
            self.asked = None
        self.note("raft_members_changed", voters=list(self.voters), members=list(self.members))
        if self.is_removed and self.role is not Role.LEADER:
            self.note("raft_removed", "warning", members=list(self.members))
        self._regroup()

    # -- log -------------------------------------------------------------------------------

    def append_entries(self, entries: tuple[Entry, ...]) -> None:
        """Add entries to the log and to this step's persist."""
        self.log.append(entries)
        self.new_entries.extend(entries)
        for entry in entries:
            if is_members(entry.data):
                # Dissertation 4.1: a node uses the newest group of its log, committed or not.
                self.groups += ((entry.log_index, decode_members(entry.data)),)
                self._regroup()

    def truncate_from(self, index: int) -> None:
        """Drop a suffix that conflicts with the leader's log."""
        invariant(
            index > self.commit_index,
            "a committed entry would be cut",
            index=index,
            commit_index=self.commit_index,
        )
        self.log.truncate_from(index)
        self.durable_index = min(self.durable_index, index - 1)
        if self.groups[-1][0] >= index:
            self.groups = tuple(one for one in self.groups if one[0] < index)
            self._regroup()
            self.note("raft_members_taken_back", voters=list(self.voters))

    def entries_durable(self, seq: int) -> None:
        """The disk holds every persist up to ``seq``."""
        while self.persisting and self.persisting[0][0] <= seq:
            _, index, term = self.persisting.popleft()
            if index > self.durable_index and self.log.term_at(index) == term:
                self.durable_index = index

    def durable_index_committed(self) -> int:
        """Durable here and known to agree with every leader to come."""
        return min(self.durable_index, self.commit_index)

    def commit_to(self, index: int) -> None:
        """Everything up to ``index`` is committed: hand it to the state machine."""
        if index <= self.commit_index:
            return
        invariant(index <= self.log.last_index, "commit past the log", index=index, id=self.id)
        self.immediate.append(Apply(self.log.between(self.commit_index + 1, index)))
        changed = self.commit_index < self.groups[-1][0] <= index
        self.commit_index = index
        if changed:
            self._group_committed()
        if self.role is Role.LEADER and not self.ready and index >= self.term_start_index:
            self.ready = True
            self.immediate.append(LeaderReady(self.term))

    def advance_commit(self) -> bool:
        """Commit what a quorum holds durably; only entries of the own term count (Raft 5.4.2)."""
        index = self.reached(self.durable_index, _held)
        if index <= self.commit_index or self.log.term_at(index) != self.term:
            # Figure 8: an older entry on a majority can still be cut by a leader that lacks it.
            return False
        self.commit_to(index)
        return True


def _named_in(log: RaftLog, after: int) -> tuple[tuple[int, Members], ...]:
    """The groups that a log found on disk names, behind the index of what is known."""
    first = max(after, log.base_index) + 1
    return tuple(
        (entry.log_index, decode_members(entry.data))
        for entry in log.between(first, log.last_index)
        if is_members(entry.data)
    )
