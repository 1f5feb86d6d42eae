"""Java's bugs in the group of controllers: DLedger's Raft, its log, its reads."""

from __future__ import annotations

from typing import Any

import pytest

from rmqha.controller.aio.snapshot_saving import SnapshotSaving
from rmqha.controller.raft import snapshots, votes
from rmqha.controller.raft.core import RaftCore
from rmqha.controller.raft.progress import Progress
from tests.javabugs.mutant import Mutant
from tests.sim.mutants import raft


def broken_disks_keep_their_office(patch: pytest.MonkeyPatch) -> None:
    """dledger #287: a leader that can write no more goes on being one."""
    patch.setattr(RaftCore, "_stop", lambda self: None)


def nobody_asks_before_it_stands(patch: pytest.MonkeyPatch) -> None:
    """dledger #25: who hears no leader opens one term after another."""

    def stand(node: Any, now_ms: int) -> None:
        votes.start_election(node, now_ms, transfer=False)

    patch.setattr(votes, "start_pre_vote", stand)


def installs_are_asked_for_again(patch: pytest.MonkeyPatch) -> None:
    """dledger #319: a snapshot's receiver does not say that it has it, and gets it once more."""
    installed, requested = snapshots.installed, snapshots.on_snapshot_request

    def untold(node: Any, *facts: Any) -> None:
        leader, node.leader_id = node.leader_id, None
        installed(node, *facts)
        node.leader_id = leader

    def from_the_start(node: Any, now_ms: int, message: Any) -> None:
        if message.term == node.term and message.last_index <= node.commit_index:
            snapshots._answer(node, message, 0)
        else:
            requested(node, now_ms, message)

    def at_once(progress: Any) -> None:
        progress.waiting = False

    patch.setattr(snapshots, "installed", untold)
    # Where a chunk has time for its way, the heartbeats meanwhile find out that the snapshot is there.
    patch.setattr(Progress, "heartbeat_due", at_once)
    patch.setattr(snapshots, "on_snapshot_request", from_the_start)


def logs_grow_for_ever(patch: pytest.MonkeyPatch) -> None:
    """#5585, #5808: no snapshot is made, and nothing is cut."""
    patch.setattr(SnapshotSaving, "applied", lambda self, index, term: None)


def leaders_read_from_memory(patch: pytest.MonkeyPatch) -> None:
    """A leader that was cut off answers as if nothing had happened."""
    raft.reads_without_a_round(patch)


def leaders_never_look_back(patch: pytest.MonkeyPatch) -> None:
    """A leader without a quorum lets its clients wait."""
    honest = RaftCore._tick

    def content(self: RaftCore, now_ms: int) -> None:
        self.node.round_started_ms.clear()
        honest(self, now_ms)

    patch.setattr(RaftCore, "_tick", content)


def stopped_leaders_leave_a_gap(patch: pytest.MonkeyPatch) -> None:
    """#4835: nobody is told to take over."""
    patch.setattr(RaftCore, "_transfer", lambda self, now_ms, target: None)


def behind_nodes_are_elected(patch: pytest.MonkeyPatch) -> None:
    """dledger #52, #2178: votes do not look at the candidate's log."""
    raft.old_logs_win_elections(patch)


CORE = "controller/raft/test_core.py"

MUTANTS = (
    Mutant(31, broken_disks_keep_their_office, CORE,
           "test_a_broken_disk_stops_the_node_and_another_leads",
           "cluster.leader() not in (None, leader)"),
    Mutant(32, behind_nodes_are_elected, "controller/test_java_bugs.py",
           "test_controller_when_it_is_behind_then_it_is_not_elected",
           "cluster.wait_leader() == other"),
    Mutant(33, nobody_asks_before_it_stands, CORE,
           "test_an_isolated_follower_does_not_disturb_when_it_returns",
           "cluster.leader() == leader"),
    Mutant(34, installs_are_asked_for_again, CORE,
           "test_a_follower_behind_the_compacted_log_gets_the_snapshot",
           "records(cluster, follower) == records(cluster, leader)"),
    Mutant(35, logs_grow_for_ever, CORE,
           "test_a_follower_behind_the_compacted_log_gets_the_snapshot", "log.base_index > 100"),
    Mutant(36, leaders_read_from_memory, CORE,
           "test_reads_of_a_deposed_leader_are_refused", "7 in cluster.reads_refused"),
    Mutant(37, leaders_never_look_back, "controller/test_service.py",
           "test_writes_to_a_leader_that_lost_its_quorum_are_answered_in_time",
           "cluster.run_until(", given={"seed": 1}),
    Mutant(38, stopped_leaders_leave_a_gap, CORE, "test_leadership_moves_on_request",
           "cluster.run_until("),
)  # fmt: skip
