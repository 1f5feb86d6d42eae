"""Every interleaving of small Raft groups: nothing breaks."""

from __future__ import annotations

import time

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from rmqha.cli.explore import main
from rmqha.controller.raft.settings import RaftSettings
from rmqha.sim.explore.bounds import Bounds
from rmqha.sim.explore.group import Group
from rmqha.sim.explore.member import Member, member_plain
from rmqha.sim.explore.moves import Move
from rmqha.sim.explore.prefix import STARTS
from rmqha.sim.explore.trace import tell
from rmqha.sim.explore.walk import Limits, Report, Walk
from tests.sim.mutants.raft import old_logs_win_elections

pytestmark = [pytest.mark.sim, pytest.mark.slow]

SECONDS_MAX = 120


def walked(bounds: Bounds) -> tuple[Report[Move], list[str]]:
    group = Group(bounds)
    start = STARTS[bounds.start](group)
    report = Walk(group, start, Limits(seconds=SECONDS_MAX), time.process_time).run()
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
    "a new group": Bounds(elections=1, asks=1, start="new"),
    "a new group, with a crash": Bounds(nodes=2, elections=1, asks=1, crashes=1, start="new"),
    "a new group, with an empty store": Bounds(nodes=2, elections=1, asks=2, wipes=1, start="new"),
    "an emptied store": Bounds(elections=0, wipes=1, heartbeats=2, start="led"),
    "a damaged store": Bounds(elections=0, damages=1, heartbeats=1, proposals=1, start="led"),
    "a damaged store, behind": Bounds(elections=0, damages=1, heartbeats=1, start="behind"),
    "all stores emptied": Bounds(nodes=2, elections=1, wipes=2, asks=2, start="led"),
    "a full disk": Bounds(elections=1, full=1, symmetry=True),
    "a full disk, behind": Bounds(elections=0, full=1, proposals=1, start="behind"),
    "a full disk and a record": Bounds(elections=0, full=1, proposals=1, start="led"),
    "a disk that hangs": Bounds(elections=0, hangs=1, proposals=1, start="led"),
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


def test_a_store_that_was_lost_counts_again_after_its_leader_has_filled_it() -> None:
    """A walk in which nobody is ever readmitted says nothing about readmission."""
    for kind in ("wipes", "damages"):
        report, _ = walked(replace(SPACES["an emptied store"], **{"wipes": 0, kind: 1}))
        assert report.exhausted
        assert report.delivered["Readmitted"] > 0


# -- the walk itself ------------------------------------------------------------------------------


def test_members_of_a_walk_never_change_when_others_are_made_from_them() -> None:
    """A copy that shares something would change states that were visited already."""
    group = Group(Bounds(elections=1, proposals=1, snapshots=1, start="behind"))
    walk = Walk(group, STARTS["behind"](group), Limits(states=20_000), time.process_time)
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
    known = {"persist_seq", "voted_for_self_seq", "standing_seq"}
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
