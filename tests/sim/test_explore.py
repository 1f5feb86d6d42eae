"""Every interleaving of small Raft groups: nothing breaks, and what is broken on purpose is found."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from rmqha.cli.explore import main
from rmqha.controller.raft import events as ev
from rmqha.controller.raft import node, reads, votes
from rmqha.controller.raft.log import RaftLog
from rmqha.controller.raft.messages import AppendResponse, VoteResponse
from rmqha.controller.raft.node import Node, Role
from rmqha.controller.raft.quorum import reached_by_majority
from rmqha.controller.raft.settings import RaftSettings
from rmqha.sim.explore.bounds import Bounds
from rmqha.sim.explore.group import Group
from rmqha.sim.explore.member import Member, member_plain
from rmqha.sim.explore.moves import Move
from rmqha.sim.explore.prefix import STARTS, led, settle, unspent
from rmqha.sim.explore.trace import tell
from rmqha.sim.explore.walk import Limits, Report, State, Walk

pytestmark = [pytest.mark.sim, pytest.mark.slow]

SECONDS_MAX = 120


def walked(
    bounds: Bounds, prefix: Callable[[Group], State] | None = None, **limits: int
) -> tuple[Report[Move], list[str]]:
    group = Group(bounds)
    start = (prefix or STARTS[bounds.start])(group)
    report = Walk(group, start, Limits(seconds=SECONDS_MAX, **limits), time.monotonic).run()
    return report, tell(group, start, report.trace)


SPACES = {
    "one node": Bounds(nodes=1, elections=2, proposals=2, crashes=2, snapshots=1),
    "two nodes": Bounds(nodes=2, elections=2, proposals=1, crashes=1, symmetry=True),
    "three nodes, two elections": Bounds(elections=2, symmetry=True),
    "a crash": Bounds(elections=1, proposals=1, crashes=1, symmetry=True),
    "bad links": Bounds(elections=1, losses=1, duplicates=1, resets=1, symmetry=True),
    "overtaking": Bounds(elections=0, proposals=1, heartbeats=1, reorder=True, start="led"),
    "reads": Bounds(elections=1, reads=1, start="led"),
    "handing over": Bounds(elections=0, transfers=1, proposals=1, quorum_losses=1, start="led"),
    "behind": Bounds(elections=1, heartbeats=1, start="behind"),
    "behind, with a crash": Bounds(
        elections=0, crashes=1, heartbeats=1, proposals=1, start="behind"
    ),
    "behind, with a snapshot": Bounds(
        elections=0, heartbeats=1, snapshots=1, proposals=1, start="behind"
    ),
}


@pytest.mark.parametrize("name", SPACES)
def test_a_small_space_is_exhausted_and_nothing_breaks(name: str) -> None:
    """Some order of messages, writes and crashes in a small group would break a safety rule."""
    bounds = SPACES[name]
    report, lines = walked(bounds)
    assert report.violation is None, "\n".join(lines)
    assert report.exhausted, f"{report.frontier} states are left"
    assert bounds.missing(report.moves) == []
    assert report.states > 100


# -- bugs put in on purpose -----------------------------------------------------------------------

Patch = Callable[[pytest.MonkeyPatch], None]


def two_votes_a_term(patch: pytest.MonkeyPatch) -> None:
    """A voter says yes to everyone."""
    honest = votes.on_vote_request

    def generous(target: Node, now_ms: int, message: Any) -> None:
        if message.term == target.term and target.role is not Role.LEADER:
            target.vote = None
        honest(target, now_ms, message)

    patch.setattr(votes, "on_vote_request", generous)


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


def one_node_is_a_quorum(patch: pytest.MonkeyPatch) -> None:
    """The leader commits what it alone holds."""
    patch.setattr(node, "reached_by_majority", max)


def old_logs_win_elections(patch: pytest.MonkeyPatch) -> None:
    """Votes do not look at the candidate's log."""
    patch.setattr(RaftLog, "is_up_to_date", lambda self, index, term: True)


def old_terms_commit_by_counting(patch: pytest.MonkeyPatch) -> None:
    """An entry of an earlier term is committed because a majority holds it (Raft, figure 8)."""

    def hasty(self: Node) -> bool:
        held = [self.durable_index, *(p.match_index for p in self.progress.values())]
        index = reached_by_majority(held)
        if index <= self.commit_index:
            return False
        self.commit_to(index)
        return True

    patch.setattr(Node, "advance_commit", hasty)


def late_installs_roll_back(patch: pytest.MonkeyPatch) -> None:
    """A node stands while it installs, and loads a snapshot that its state has passed meanwhile."""
    honest = votes.start_pre_vote

    def eager(target: Node, now_ms: int) -> None:
        installing, target.installing = target.installing, False
        honest(target, now_ms)
        target.installing = installing

    patch.setattr(votes, "start_pre_vote", eager)
    patch.setattr(Member, "is_newer", lambda self, meta: True)


def overtaken_snapshots_are_told(patch: pytest.MonkeyPatch) -> None:
    """The end of an own snapshot tells the core of one that is not loaded yet."""
    honest = Member.save_snapshot

    def talkative(self: Member) -> None:
        honest(self)
        self.give(ev.SnapshotTaken(self.disk.snapshot))

    patch.setattr(Member, "save_snapshot", talkative)


def reads_ask_nobody(patch: pytest.MonkeyPatch) -> None:
    """A leader answers reads without a round, for as long as it believes to lead."""

    def vain(target: Node, now_ms: int, token: int) -> bool:
        target.immediate.append(ev.ReadReady((token,)))
        return False

    patch.setattr(reads, "request", vain)


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


MUTANTS: tuple[tuple[Patch, Bounds, Callable[[Group], State] | None, str], ...] = (
    (two_votes_a_term, Bounds(elections=2, symmetry=True), None, "two leaders in one term"),
    (vote_answered_before_it_is_durable, Bounds(elections=2, crashes=1, symmetry=True), None,
     "two leaders in one term"),
    (acknowledged_before_durable, Bounds(elections=1, symmetry=True), None,
     "a committed entry is not durable on a majority"),
    (one_node_is_a_quorum, Bounds(elections=1, symmetry=True), None,
     "a committed entry is not durable on a majority"),
    (old_logs_win_elections, Bounds(elections=1, proposals=1, start="led"), None,
     "a leader was elected without all committed entries"),
    (old_terms_commit_by_counting,
     Bounds(elections=2, entries_per_request=1), figure_8,
     "a leader was elected without all committed entries"),
    (late_installs_roll_back, Bounds(elections=1), late_install, "a node's applied_index fell"),
    (overtaken_snapshots_are_told,
     Bounds(elections=0, heartbeats=1, snapshots=1, start="behind"), None,
     "compaction past the end"),
    (reads_ask_nobody, Bounds(elections=1, reads=1, start="led"), None,
     "a read was answered from an old state"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("mutant", "bounds", "prefix", "expected"), MUTANTS, ids=lambda m: getattr(m, "__name__", "")
)
def test_a_bug_put_in_on_purpose_is_found_for_the_rule_that_it_breaks(
    mutant: Patch,
    bounds: Bounds,
    prefix: Callable[[Group], State] | None,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A walk that misses the bug would show nothing about the core without it."""
    mutant(monkeypatch)
    report, lines = walked(bounds, prefix)
    assert report.violation is not None, f"{report.states} states and nothing found"
    assert expected in report.violation, "\n".join(lines)
    assert lines[-1].strip().startswith("VIOLATION")


# -- the walk itself ------------------------------------------------------------------------------


def test_members_of_a_walk_never_change_when_others_are_made_from_them() -> None:
    """A copy that shares something would change states that were visited already."""
    group = Group(Bounds(elections=1, proposals=1, snapshots=1, start="behind"))
    walk = Walk(group, STARTS["behind"](group), Limits(states=20_000), time.monotonic)
    before: dict[int, object] = {}
    for _ in range(2):
        names = {name: name for name in group.names}
        for number, one in enumerate(group.members.items):
            now = member_plain(one, names)
            assert before.setdefault(number, now) == now
        walk.run()
    assert len(before) > 3


def test_every_sequence_number_of_a_node_is_brought_into_one_form() -> None:
    """A new number of that kind, kept as it is, would be compared with renumbered ones."""
    one = Member("n0", ("n0", "n1"), RaftSettings())
    assert one.core is not None
    known = {"persist_seq", "voted_for_self_seq"}
    assert {name for name in vars(one.core.node) if name.endswith("_seq")} == known


def test_symmetry_leaves_fewer_states_and_shows_as_much() -> None:
    """Renaming that merged states that differ would hide what only one of them can do."""
    bounds = Bounds(elections=1, crashes=1)
    alone, _ = walked(bounds)
    merged, _ = walked(replace(bounds, symmetry=True))
    assert alone.exhausted
    assert merged.exhausted
    assert alone.states / 6 <= merged.states < alone.states / 4
    assert merged.depth == alone.depth
    assert set(merged.delivered) == set(alone.delivered)


def test_a_violation_when_found_is_told_move_by_move(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the way to a bug, that there is one helps nobody."""
    old_logs_win_elections(monkeypatch)
    args = ["--start", "led", "--proposals", "1", "--elections", "1"]
    result = CliRunner().invoke(main, args)
    assert result.exit_code == 1
    lines = result.output.splitlines()
    assert "n0: a record is proposed" in lines[3]
    assert any("sends n1 AppendRequest(term=1, prev_index=1" in line for line in lines)
    assert "VIOLATION: a leader was elected without all committed entries" in lines[-1]


def test_a_kind_of_move_that_never_occurred_is_said_aloud() -> None:
    """A walk in which nothing was ever installed says nothing about installing."""
    result = CliRunner().invoke(main, ["--nodes", "2", "--elections", "1", "--snapshots", "1"])
    assert result.exit_code == 0
    assert "NEVER OCCURRED, so nothing is shown of it: install_saved, installed" in result.output
    cut = CliRunner().invoke(main, ["--elections", "2", "--depth", "5"])
    assert "not exhausted" in cut.output
    assert "depth 5" in cut.output
