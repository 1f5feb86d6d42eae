"""Bugs put in on purpose: a walk of every interleaving must find them, or it shows nothing.

Bugs of the Raft core are those of ``tests/sim/mutants``, where there is one; what is put in here is
in the walk's own shell, or is only to be met in orders that the simulator does not come to.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from rmqha.controller.raft import append, standing, votes
from rmqha.controller.raft import events as ev
from rmqha.controller.raft.messages import (
    AppendRequest,
    AppendResponse,
    Readmitted,
    VoteResponse,
)
from rmqha.controller.raft.node import NEW, VOTER, Node
from rmqha.controller.raft.progress import Progress
from rmqha.sim.explore import group as explored
from rmqha.sim.explore import member as explored_member
from rmqha.sim.explore.bounds import Bounds
from rmqha.sim.explore.group import Group
from rmqha.sim.explore.member import Member
from rmqha.sim.explore.moves import Move
from rmqha.sim.explore.prefix import STARTS, led, settle, unspent
from rmqha.sim.explore.trace import tell
from rmqha.sim.explore.walk import Limits, State, Walk
from tests.sim.mutants import raft as bugs
from tests.sim.mutants.mutant import Patch

pytestmark = [pytest.mark.sim, pytest.mark.slow]

SECONDS_MAX = 120

Prefix = Callable[[Group], State]

# -- in the walk's shell --------------------------------------------------------------------------


def _sent_too_early(patch: pytest.MonkeyPatch, kind: type) -> None:
    honest = Member._hold_or_send

    def hasty(self: Member, effect: ev.Send | ev.SendSnapshot, persisting: bool) -> None:
        if isinstance(effect, ev.Send) and isinstance(effect.message, kind):
            self._transmit(effect)
        else:
            honest(self, effect, persisting)

    patch.setattr(Member, "_hold_or_send", hasty)


def vote_answered_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    """A voter that loses power forgets its vote and gives another."""
    _sent_too_early(patch, VoteResponse)


def acknowledged_before_durable(patch: pytest.MonkeyPatch) -> None:
    """A follower acknowledges entries that its disk does not hold yet."""
    _sent_too_early(patch, AppendResponse)


def late_installs_roll_back(patch: pytest.MonkeyPatch) -> None:
    """A node stands while it installs, and loads a snapshot that its state has passed meanwhile."""
    bugs.stands_while_it_installs(patch)
    patch.setattr(Member, "is_newer", lambda self, meta: True)


def overtaken_snapshots_are_told(patch: pytest.MonkeyPatch) -> None:
    """The end of an own snapshot tells the core of one that is not loaded yet."""
    honest = Member.save_snapshot

    def talkative(self: Member) -> None:
        honest(self)
        self.give(ev.SnapshotTaken(self.disk.snapshot))

    patch.setattr(Member, "save_snapshot", talkative)


# -- in the core ----------------------------------------------------------------------------------


def recovering_nodes_vote(patch: pytest.MonkeyPatch) -> None:
    """A node that lost its store gives votes before it is readmitted."""
    honest = votes.on_vote_request

    def willing(target: Node, now_ms: int, message: Any) -> None:
        own = target.standing
        target.standing = own._replace(kind=VOTER)
        honest(target, now_ms, message)
        target.standing = own

    patch.setattr(votes, "on_vote_request", willing)


def recovering_nodes_hide_it(patch: pytest.MonkeyPatch) -> None:
    """A node that does not count does not say so, and nobody remembers it."""
    patch.setattr(standing, "follower_answered", lambda target, progress, message: None)
    patch.setattr(Node, "recovering_id", property(lambda self: ""))


def marks_of_recovering_nodes_are_overlooked(patch: pytest.MonkeyPatch) -> None:
    """A leader counts the answers of a node that says that it does not count."""
    patch.setattr(standing, "follower_answered", lambda target, progress, message: None)


def readmitted_before_it_is_committed(patch: pytest.MonkeyPatch) -> None:
    """A leader readmits whoever holds the entry, committed or not."""

    def hasty(target: Node, peer: str, progress: Progress) -> None:
        if progress.recovering and progress.held_index >= progress.readmit_index:
            own = target.standing.founders
            target.send(peer, Readmitted(target.term, target.id, progress.recovering, own))

    patch.setattr(standing, "readmit_if_caught_up", hasty)


def founded_by_a_majority(patch: pytest.MonkeyPatch) -> None:
    """A new group does not wait for all its members."""
    honest = standing._found_if_agreed

    def hasty(target: Node, now_ms: int) -> None:
        if target.standing.kind == NEW and len(target.stores_agreed) >= len(target.peers) // 2:
            target.stores_agreed = set(target.peers)
        honest(target, now_ms)

    patch.setattr(standing, "_found_if_agreed", hasty)


def acknowledges_what_had_no_space(patch: pytest.MonkeyPatch) -> None:
    """A follower with a full disk answers for all that it was sent."""
    honest = append._response

    def rash(target: Node, request: AppendRequest, **told: Any) -> AppendResponse:
        if told["success"] and request.entries:
            told["match_index"] = request.entries[-1].log_index
        return honest(target, request, **told)

    patch.setattr(append, "_response", rash)


# -- where a walk begins --------------------------------------------------------------------------


def figure_8(group: Group) -> State:
    """The first node leads term 3, and its record of term 1 is nowhere else.

    The last led term 2, holds another entry at that place, and is down.
    """
    first, last = 0, 2
    state = group.after(led(group), Move("propose", first))
    state = group.after(state, Move("persist", first))
    state = settle(group, group.after(state, Move("crash", first)), frozenset({first}))
    state = group.after(_elected(group, state, last), Move("persist", last))
    state = settle(group, group.after(state, Move("crash", last)), frozenset({last}))
    state = group.after(state, Move("restart", first))
    return unspent(group, _elected(group, state, first))


def _elected(group: Group, state: State, node: int) -> State:
    """The state in which a node has just won, and nobody has got anything from it."""
    while not leads(group, state, node):
        quiet = (move for move in group.moves(state) if move.kind in ("persist", "deliver"))
        state = group.after(state, next(quiet, Move("timeout", node)))
    return state


def leads(group: Group, state: State, node: int) -> bool:
    core = group.member(state, node).core
    return core is not None and core.is_leader


def _settled_between(group: Group, state: State, *nodes: int) -> State:
    """All is written and delivered that concerns these nodes alone; the rest is on its way."""
    while True:
        for move in group.moves(state):
            within = move.node in nodes and (move.kind == "persist" or move.peer in nodes)
            if move.kind in ("persist", "deliver") and within:
                state = group.after(state, move)
                break
        else:
            return state


def late_install(group: Group) -> State:
    """The last node holds all that the snapshot holds, which it is about to load; its leader died.

    It got the snapshot after an entry that was sent before and that it takes for uncommitted.
    """
    leader, other, last = 0, 1, 2

    def delivered(state: State, to: int, sender: int) -> State:
        while group.link(state, sender, to):
            state = group.after(state, Move("deliver", to, sender))
            while group.member(state, to).writing:
                state = group.after(state, Move("persist", to))
        return state

    state = group.after(led(group), Move("propose", leader))
    state = group.after(state, Move("persist", leader))
    state = group.after(state, Move("drop", last, leader))
    state = group.after(state, Move("heartbeat", leader))
    state = delivered(state, last, leader)  # it misses the entry
    state = delivered(state, leader, last)  # and gets it again, still uncommitted
    state = delivered(state, other, leader)
    state = delivered(state, leader, other)  # now a majority holds it
    for kind in ("snapshot", "snapshot_saved", "heartbeat"):
        state = group.after(state, Move(kind, leader))  # and only the snapshot has it
    state = delivered(state, last, leader)
    assert group.member(state, last).installing is not None
    state = group.after(state, Move("crash", leader))
    return unspent(group, settle(group, state, frozenset({leader})))


def forgotten_leader(group: Group) -> State:
    """The last node leads term 2 by the second one's vote, who has lost its store since.

    The first still leads term 1 and has heard nothing of it.
    """
    state = group.after(led(group), Move("timeout", 2))
    state = _settled_between(group, state, 1, 2)
    assert leads(group, state, 0)
    assert leads(group, state, 2)
    for kind in ("damage", "restart"):
        state = group.after(state, Move(kind, 1))
    return unspent(group, state)


def forgotten_vote(group: Group) -> State:
    """The second node's vote for the first is on its way, and its store is lost.

    It had promised the last one its vote too, who is about to ask for it in the same term.
    """
    state = group.start
    for candidate in (0, 2):
        state = group.after(state, Move("timeout", candidate))
        for to, sender in ((1, candidate), (candidate, 1)):  # the pre-vote
            state = group.after(state, Move("deliver", to, sender))
    for kind, *where in (
        ("persist", 0), ("deliver", 1, 0), ("persist", 1), ("damage", 1), ("restart", 1),
    ):  # fmt: skip
        state = group.after(state, Move(kind, *where))
    return unspent(group, state)


# -- each is found --------------------------------------------------------------------------------


class Hunt(NamedTuple):
    """A bug, where to look for it, and the rule that it breaks.

    ``blind``: without the rules of ``sim/explore/standings.py``, to see what they are good for.
    """

    bug: Patch
    bounds: Bounds
    expected: str
    prefix: Prefix | None = None
    blind: bool = False


LOST = "a leader was elected without all committed entries"
TWO = "two leaders in one term"
DURABLE = "a committed entry is not durable on a majority"
READ = "a read was answered from an old state"
DIFFER = "two different entries committed at one index"
VOTES = "a node that does not count votes"

BEHIND = Bounds(elections=0, heartbeats=1, snapshots=1, start="behind")
LOST_STORE = Bounds(elections=0, heartbeats=1, damages=1, start="led")
PROPOSAL = Bounds(elections=0, proposals=1)
TWO_EMPTIED = Bounds(elections=0, asks=2, wipes=2, start="led")

HUNTS = (
    Hunt(bugs.two_votes_a_term, Bounds(elections=2, symmetry=True), TWO),
    Hunt(bugs.one_vote_less_is_enough, Bounds(elections=2, symmetry=True), TWO),
    Hunt(vote_answered_before_it_is_durable, Bounds(elections=2, crashes=1, symmetry=True), TWO),
    Hunt(acknowledged_before_durable, Bounds(elections=1, symmetry=True), DURABLE),
    Hunt(bugs.leader_counts_itself_before_fsync, Bounds(elections=1, symmetry=True), DURABLE),
    Hunt(bugs.one_node_is_a_quorum, Bounds(elections=1, symmetry=True), DURABLE),
    Hunt(bugs.old_logs_win_elections, Bounds(elections=1, proposals=1, start="led"), LOST),
    Hunt(
        bugs.old_terms_commit_by_counting,
        Bounds(elections=2, entries_per_request=1),
        LOST,
        figure_8,
    ),
    Hunt(late_installs_roll_back, Bounds(elections=1), "a node's applied_index fell", late_install),
    Hunt(overtaken_snapshots_are_told, BEHIND, "compaction past the end"),
    Hunt(bugs.reads_without_a_round, Bounds(elections=1, reads=1, start="led"), READ),
    Hunt(
        bugs.answers_of_old_rounds_count,
        Bounds(elections=1, heartbeats=1, reads=1, start="led"),
        READ,
    ),
    Hunt(bugs.wiped_stores_vote, Bounds(elections=1, damages=1, start="led"), VOTES),
    Hunt(recovering_nodes_vote, Bounds(elections=1, damages=1, start="led"), VOTES),
    Hunt(recovering_nodes_vote, Bounds(elections=0), TWO, forgotten_vote, blind=True),
    Hunt(
        recovering_nodes_hide_it,
        LOST_STORE,
        "a node that does not count takes part as if it counted",
    ),
    Hunt(recovering_nodes_hide_it, PROPOSAL, DIFFER, forgotten_leader, blind=True),
    Hunt(bugs.recovering_nodes_count, LOST_STORE, "a leader counts a node that does not count"),
    Hunt(
        marks_of_recovering_nodes_are_overlooked,
        LOST_STORE,
        "a leader counts a node that does not count",
    ),
    Hunt(marks_of_recovering_nodes_are_overlooked, PROPOSAL, DIFFER, forgotten_leader, blind=True),
    Hunt(
        readmitted_before_it_is_committed,
        PROPOSAL,
        "a node counts again without what was committed when it lost its store",
        forgotten_leader,
    ),
    Hunt(readmitted_before_it_is_committed, PROPOSAL, DURABLE, forgotten_leader, blind=True),
    Hunt(founded_by_a_majority, TWO_EMPTIED, "a group was founded without a member"),
    Hunt(founded_by_a_majority, TWO_EMPTIED, DURABLE, blind=True),
    Hunt(
        acknowledges_what_had_no_space,
        Bounds(elections=0, full=1, proposals=2, start="led"),
        DURABLE,
    ),
)


@pytest.mark.turns(3)
@pytest.mark.parametrize(
    "hunt", HUNTS, ids=lambda hunt: hunt.bug.__name__ + (" blind" if hunt.blind else "")
)
def test_a_bug_put_in_on_purpose_is_found_for_the_rule_that_it_breaks(
    hunt: Hunt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A walk that misses the bug would show nothing about the core without it."""
    hunt.bug(monkeypatch)
    if hunt.blind:
        for where, rule in (
            (explored_member, "check_said"),
            (explored_member, "check_counted"),
            (explored, "check_became"),
        ):
            monkeypatch.setattr(where, rule, lambda *_: None)
    group = Group(hunt.bounds)
    start = (hunt.prefix or STARTS[hunt.bounds.start])(group)
    report = Walk(group, start, Limits(seconds=SECONDS_MAX), time.process_time).run()
    assert report.violation is not None, f"{report.states} states and nothing found"
    lines = tell(group, start, report.trace)
    assert hunt.expected in report.violation, "\n".join(lines)
    assert lines[-1].strip().startswith("VIOLATION")


@pytest.mark.parametrize("prefix", [forgotten_leader, forgotten_vote])
def test_the_core_as_it_is_when_a_vote_is_forgotten_then_nothing_breaks(prefix: Prefix) -> None:
    """Where bugs are found from, the core itself must stand, or the prefix breaks the rule."""
    group = Group(Bounds(elections=1, proposals=1) if prefix is forgotten_leader else Bounds())
    report = Walk(group, prefix(group), Limits(seconds=SECONDS_MAX), time.process_time).run()
    assert report.violation is None
    assert report.exhausted
