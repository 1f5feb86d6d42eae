"""Disks that are full, hang, or cannot write a snapshot: what a group goes on doing."""

from __future__ import annotations

import pytest

from rmqha.base.errors import DiskFailed
from rmqha.base.machine import Note, Ticked
from rmqha.controller.raft import events as ev
from rmqha.controller.raft.core import RaftCore
from rmqha.controller.raft.messages import (
    AppendResponse,
    PreVoteResponse,
    TimeoutNow,
    VoteResponse,
)
from rmqha.controller.raft.settings import RaftSettings
from rmqha.sim.disk import SimDisk
from tests.controller.raft.cluster import Cluster


def fill(cluster: Cluster, *nodes: str) -> None:
    for one in nodes:
        cluster.disks[one].mood.full = True


def empty(cluster: Cluster) -> None:
    for disk in cluster.disks.values():
        disk.mood.full = False


def flood(cluster: Cluster, first: int, count: int = 40) -> None:
    for number in range(first, first + count):
        cluster.propose(b"%d " % number * 200)
        cluster.run(10)


@pytest.mark.costly
def test_disk_when_full_on_all_nodes_then_reads_go_on_and_writes_come_back_with_space() -> None:
    """Brokers must be told who is master also while nobody can write (row C11)."""
    cluster = Cluster(3)
    leader = cluster.wait_leader()
    cluster.run(300)
    fill(cluster, *cluster.members)
    flood(cluster, 0)
    assert len(cluster.lives) == 3
    assert cluster.records_refused
    leader = cluster.wait_leader()
    cluster.give(leader, ev.ReadRequested(7))
    cluster.run_until(lambda: 7 in cluster.reads_done)
    empty(cluster)
    cluster.run(3_000)
    cluster.propose(b"again")
    cluster.run(500)
    assert all(records[-1] == b"again" for records in cluster.applied.values())
    assert sum("space_again" in line for line in cluster.lines) == 3


@pytest.mark.costly
def test_disk_when_full_on_the_leader_then_another_leads_and_takes_writes() -> None:
    """One full disk of three is a matter for its operator, not for the brokers."""
    cluster = Cluster(3)
    leader = cluster.wait_leader()
    cluster.run(300)
    fill(cluster, leader)
    flood(cluster, 0, 60)
    other = cluster.wait_leader()
    assert other != leader
    before = len(cluster.applied[other])
    flood(cluster, 100, 10)
    assert len(cluster.applied[other]) >= before + 10
    assert leader in cluster.lives


def test_disk_when_full_on_two_of_three_then_a_new_leader_can_still_be_elected() -> None:
    """Terms and votes have a reserve."""
    cluster = Cluster(3)
    leader = cluster.wait_leader()
    cluster.run(300)
    others = [one for one in cluster.members if one != leader]
    fill(cluster, *others)
    flood(cluster, 0)
    assert {"no_space" in " ".join(cluster.lines)} == {True}
    cluster.crash(leader)
    cluster.wait_leader(3_000)


def test_space_when_it_runs_out_then_nothing_that_counted_is_lost() -> None:
    """What was in the log when the disk became full is there after a loss of power."""
    cluster = Cluster(3, segment_bytes=6_000)
    cluster.wait_leader()
    flood(cluster, 0, 20)
    fill(cluster, *cluster.members)
    flood(cluster, 20, 30)
    held = max((list(records) for records in cluster.applied.values()), key=len)
    for one in cluster.members:
        cluster.crash(one, power=True)
    empty(cluster)
    for one in cluster.members:
        cluster.start(one, wait=False)
    leader = cluster.wait_leader()
    cluster.run_until(lambda: cluster.applied[leader][: len(held)] == held)


@pytest.mark.costly
def test_sync_when_it_hangs_on_the_leader_then_it_hands_over() -> None:
    """A leader that cannot write answers nothing, and nobody would ever notice."""
    cluster = Cluster(3)
    leader = cluster.wait_leader()
    cluster.run(300)
    disk = cluster.disks[leader]
    disk.mood.sync_min_ms = disk.mood.sync_max_ms = 60_000
    cluster.propose(b"hangs")
    cluster.run_until(lambda: cluster.leader() not in (None, leader), 3_000)
    cluster.run(200)
    assert any("disk_hangs" in line for line in cluster.lines)
    other = cluster.wait_leader()
    assert b"hangs" in cluster.applied[other]


def leading_core() -> RaftCore:
    """The first of three nodes leads term 1; its own disk has not finished the first entry yet."""
    core = RaftCore(node_id="n0", members=("n0", "n1", "n2"), settings=RaftSettings())
    core.step(1_000, Ticked())
    core.step(1_000, ev.Received(PreVoteResponse(1, "n1", True)))
    core.step(1_000, ev.Persisted(1))
    core.step(1_000, ev.Received(VoteResponse(1, "n1", True)))
    assert core.is_leader
    return core


def hangs(effects: list[ev.Effect]) -> list[object]:
    """How long the disk has hung, by the notes of a step."""
    notes = [one for one in effects if isinstance(one, Note)]
    return [note.facts["hung_ms"] for note in notes if note.event == "disk_hangs"]


def test_disk_when_a_leader_waits_three_timeouts_for_it_then_it_hands_over() -> None:
    """A core that is told too early, or not at all, changes leaders for nothing or never."""
    core = leading_core()
    patience_ms = 3 * RaftSettings().election_max_ms
    assert hangs(core.step(2_000, ev.DiskWaited(patience_ms))) == []
    assert core.node.transfer_target is None
    assert hangs(core.step(2_001, ev.DiskWaited(patience_ms + 1))) == [patience_ms + 1]
    assert core.node.transfer_target == "n2"
    told = core.step(2_002, ev.Received(AppendResponse(1, "n2", True, 1, 0, 1)))
    assert ev.Send("n2", TimeoutNow(1, "n0")) in told


def test_disk_when_it_goes_on_hanging_then_a_leader_hands_over_once_in_three_timeouts() -> None:
    """Every heartbeat would begin another hand-over, and none would come to its end."""
    core = leading_core()
    patience_ms = 3 * RaftSettings().election_max_ms
    core.step(2_000, ev.DiskWaited(5_000))
    assert hangs(core.step(2_000 + patience_ms, ev.DiskWaited(6_000))) == []
    assert hangs(core.step(2_001 + patience_ms, ev.DiskWaited(6_001))) == [6_001]


def test_disk_when_a_follower_waits_for_it_then_nothing_is_said() -> None:
    """Followers hand over nothing; their leader counts them when they are done."""
    core = RaftCore(node_id="n0", members=("n0", "n1", "n2"), settings=RaftSettings())
    assert core.step(60_000, ev.DiskWaited(59_000)) == []
    assert core.node.transfer_target is None


class NoSnapshots(SimDisk):
    """A disk on which no whole file can be written."""

    async def write_atomic(self, path: str, data: bytes) -> None:
        """Fail, as without a free descriptor."""
        raise DiskFailed("too many open files")


@pytest.mark.costly
def test_snapshot_when_it_cannot_be_written_then_the_node_goes_on_and_tries_again() -> None:
    """The log has everything: a snapshot only makes it shorter (rows C7, C11)."""
    cluster = Cluster(3, snapshot_every=10)
    leader = cluster.wait_leader()
    for disk in cluster.disks.values():
        disk.__class__ = NoSnapshots
    for number in range(30):
        cluster.propose(b"%d" % number)
        cluster.run(20)
    failed = sum("snapshot_failed" in line for line in cluster.lines)
    assert failed >= 6
    assert cluster.leader() == leader
    for disk in cluster.disks.values():
        disk.__class__ = SimDisk
    for number in range(10):
        cluster.propose(b"%d" % number)
        cluster.run(20)
    assert sum("snapshot_saved" in line for line in cluster.lines) >= 3
