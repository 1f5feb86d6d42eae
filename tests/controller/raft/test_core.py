"""The Raft core, rule by rule, on the group of ``cluster.py``."""

from __future__ import annotations

import pytest

from rmqha.base.errors import ConfigInvalid
from rmqha.base.machine import Ticked
from rmqha.controller.raft import events as ev
from rmqha.controller.raft.core import RaftCore
from rmqha.controller.raft.messages import AppendRequest, AppendResponse, Entry
from rmqha.controller.raft.settings import RaftSettings
from tests.controller.raft.cluster import Cluster


def records(cluster: Cluster, node: str) -> list[bytes]:
    return [data for data in cluster.applied[node] if data]


def test_three_nodes_elect_a_leader_within_one_second() -> None:
    """Start to leader is a promise to operators (Java needs 7 to 10 s)."""
    cluster = Cluster(3)
    cluster.wait_leader(1_000)


def test_one_node_leads_itself() -> None:
    """A stand-alone controller has nobody to ask."""
    cluster = Cluster(1)
    assert cluster.wait_leader(1_000) == "n0"
    cluster.propose(b"a")
    cluster.run(20)
    assert records(cluster, "n0") == [b"a"]
    cluster.give("n0", ev.ReadRequested(1))
    assert 1 in cluster.reads_done


def test_a_record_is_applied_everywhere_in_order() -> None:
    """The log is the same on every node."""
    cluster = Cluster(3)
    cluster.wait_leader()
    for number in range(50):
        cluster.propose(b"%d" % number)
    cluster.run(200)
    expected = [b"%d" % number for number in range(50)]
    assert [expected] * 3 == [records(cluster, node) for node in cluster.members]


def test_nothing_commits_before_a_quorum_is_durable() -> None:
    """An acknowledged record must survive the loss of a minority."""
    cluster = Cluster(3)
    leader = cluster.wait_leader()
    cluster.run(50)
    cluster.isolate(leader)
    cluster.propose(b"lost")
    cluster.run(100)
    assert b"lost" not in records(cluster, leader)


def test_a_leader_without_a_quorum_steps_down() -> None:
    """Check-quorum: an isolated leader must not keep its clients."""
    cluster = Cluster(3)
    leader = cluster.wait_leader()
    cluster.isolate(leader)
    cluster.run(450)
    assert not cluster.cores[leader].is_leader
    assert any("raft_quorum_lost" in line for line in cluster.lines)


def test_a_leader_that_was_not_scheduled_asks_again_before_it_steps_down() -> None:
    """A busy machine must not cost the group its leader when the followers still wait."""
    cluster = Cluster(3)
    leader = cluster.wait_leader()
    cluster.run(100)
    core = cluster.cores[leader]
    core.node.round_started_ms.clear()
    core.step(cluster.now_ms + 400, Ticked())
    assert core.is_leader
    assert not core.lease_valid(cluster.now_ms + 400)


def test_an_isolated_follower_does_not_disturb_when_it_returns() -> None:
    """Pre-vote: terms do not grow in the dark (dledger #25)."""
    cluster = Cluster(3)
    leader = cluster.wait_leader()
    cluster.run(100)
    term = cluster.cores[leader].node.term
    follower = next(node for node in cluster.members if node != leader)
    cluster.isolate(follower)
    cluster.run(3_000)
    cluster.heal()
    cluster.run(1_000)
    assert cluster.leader() == leader
    assert cluster.cores[leader].node.term == term


def test_an_asymmetric_partition_does_not_change_the_leader() -> None:
    """A follower that can send but not hear keeps asking; nobody listens (dledger #25)."""
    cluster = Cluster(3)
    leader = cluster.wait_leader()
    cluster.run(100)
    deaf = next(node for node in cluster.members if node != leader)
    cluster.cut(leader, deaf)
    cluster.run(3_000)
    assert cluster.leader() == leader
    cluster.heal()
    cluster.run(1_000)
    assert cluster.leader() == leader


@pytest.mark.costly
def test_a_reset_connection_shortens_the_wait_after_a_crash() -> None:
    """kill -9 of the leader closes its connections: a new one leads within 250 ms."""
    for seed in range(20):
        cluster = Cluster(3, seed=seed)
        leader = cluster.wait_leader()
        cluster.run(500)
        start = cluster.now_ms
        cluster.crash(leader)
        cluster.wait_leader(1_000)
        assert cluster.now_ms - start <= 260, "\n".join(cluster.lines)


def test_a_reset_connection_alone_elects_nobody() -> None:
    """The hint proves nothing: with a live leader every voter refuses."""
    cluster = Cluster(3)
    leader = cluster.wait_leader()
    cluster.run(300)
    term = cluster.cores[leader].node.term
    for _ in range(10):
        for node in cluster.members:
            cluster.give(node, ev.PeerLost(leader))
        cluster.run(120)
    assert cluster.leader() == leader
    assert cluster.cores[leader].node.term == term


def test_leadership_moves_on_request() -> None:
    """SIGTERM hands over instead of making the group wait."""
    cluster = Cluster(3)
    leader = cluster.wait_leader()
    cluster.run(200)
    start = cluster.now_ms
    cluster.give(leader, ev.TransferRequested())
    cluster.run_until(lambda: cluster.leader() not in (None, leader))
    assert cluster.now_ms - start < 60


def test_a_leader_that_handed_over_never_uses_its_lease_again() -> None:
    """TimeoutNow elects in spite of the vote guard, so the lease is worth nothing after it."""
    cluster = Cluster(3)
    leader = cluster.wait_leader()
    cluster.run(200)
    assert cluster.cores[leader].lease_valid(cluster.now_ms)
    target = next(node for node in cluster.members if node != leader)
    cluster.cut(leader, target)
    cluster.cut(target, leader)
    cluster.give(leader, ev.TransferRequested(target))
    cluster.run(700)
    assert cluster.cores[leader].is_leader
    assert not cluster.cores[leader].lease_valid(cluster.now_ms)


@pytest.mark.costly
def test_the_lease_ends_before_another_leader_can_exist() -> None:
    """A leader that is cut off stops answering reads before anyone else can be elected."""
    for seed in range(30):
        cluster = Cluster(3, seed=seed)
        leader = cluster.wait_leader()
        cluster.run(173)
        cluster.isolate(leader)
        for other in cluster.members:
            if other != leader:
                cluster.give(other, ev.PeerLost(leader))
        while all(not c.is_leader for n, c in cluster.cores.items() if n != leader):
            cluster.run(1)
        assert not cluster.cores[leader].lease_valid(cluster.now_ms)


def test_a_read_without_a_lease_waits_for_a_round() -> None:
    """The read index: one round trip, no log entry."""
    cluster = Cluster(3, settings=RaftSettings(heartbeat_ms=80))
    leader = cluster.wait_leader()
    cluster.run(100)
    cluster.isolate(leader)
    cluster.run(95)
    assert not cluster.cores[leader].lease_valid(cluster.now_ms)
    cluster.give(leader, ev.ReadRequested(7))
    assert 7 not in cluster.reads_done
    cluster.heal()
    cluster.run_until(lambda: 7 in cluster.reads_done or 7 in cluster.reads_refused)
    assert 7 in cluster.reads_done


def test_reads_of_a_deposed_leader_are_refused() -> None:
    """A stale answer would name a master that is none any more."""
    cluster = Cluster(3)
    leader = cluster.wait_leader()
    cluster.isolate(leader)
    cluster.run(95)
    cluster.give(leader, ev.ReadRequested(7))
    cluster.run(1_000)
    assert 7 in cluster.reads_refused
    assert 7 not in cluster.reads_done


def test_read_when_an_old_leader_leads_again_then_rounds_of_before_confirm_nothing() -> None:
    """Cut off, it would answer at once: the rounds of its first term have higher numbers."""
    cluster = Cluster(3)
    leader = cluster.wait_leader()
    cluster.run(2_000)
    other = next(node for node in cluster.members if node != leader)
    cluster.give(leader, ev.TransferRequested(other))
    cluster.run_until(lambda: cluster.leader() == other)
    cluster.run(200)
    cluster.give(other, ev.TransferRequested(leader))
    cluster.run_until(lambda: cluster.leader() == leader)
    cluster.run(80)
    cluster.isolate(leader)
    cluster.run(100)
    cluster.give(leader, ev.ReadRequested(7))
    assert cluster.cores[leader].is_leader
    assert 7 not in cluster.reads_refused
    assert 7 not in cluster.reads_done
    cluster.heal()
    cluster.run_until(lambda: 7 in cluster.reads_done or 7 in cluster.reads_refused)


@pytest.mark.costly
def test_a_follower_behind_the_compacted_log_gets_the_snapshot() -> None:
    """dledger #319: INSTALL_SNAPSHOT and COMPARE must not go round in circles."""
    settings = RaftSettings(trailing_entries=5, snapshot_chunk_bytes=64)
    cluster = Cluster(3, settings=settings, snapshot_every=20)
    leader = cluster.wait_leader()
    follower = next(node for node in cluster.members if node != leader)
    cluster.crash(follower)
    for number in range(200):
        cluster.propose(b"record-%d" % number)
        cluster.run(5)
    assert cluster.cores[leader].node.log.base_index > 100
    cluster.start(follower)
    cluster.run(1_500)
    assert records(cluster, follower) == records(cluster, leader)
    assert sum("raft_snapshot_installed" in line for line in cluster.lines) == 1


@pytest.mark.costly
def test_a_node_that_lost_its_disk_is_filled_again_by_the_same_leader() -> None:
    """The leader must not stick to what it knew of the node before."""
    for snapshot_every in (0, 20):
        settings = RaftSettings(trailing_entries=5)
        cluster = Cluster(3, settings=settings, snapshot_every=snapshot_every)
        leader = cluster.wait_leader()
        for number in range(60):
            cluster.propose(b"r%d" % number)
            cluster.run(5)
        follower = next(node for node in cluster.members if node != leader)
        cluster.crash(follower)
        cluster.run(20)
        cluster.wipe(follower)
        cluster.start(follower)
        cluster.run(1_000)
        assert cluster.leader() == leader
        assert records(cluster, follower) == records(cluster, leader)


def test_a_broken_disk_stops_the_node_and_another_leads() -> None:
    """dledger #287: a leader whose fsync fails must make room."""
    cluster = Cluster(3)
    leader = cluster.wait_leader()
    cluster.give(leader, ev.DiskBroken())
    cluster.run(1_000)
    assert cluster.leader() not in (None, leader)
    assert cluster.cores[leader].next_deadline_ms is None


def test_a_full_backlog_is_refused_and_not_forgotten() -> None:
    """The bound on uncommitted entries is reached, reported and left again."""
    cluster = Cluster(3, settings=RaftSettings(uncommitted_entries_max=3))
    leader = cluster.wait_leader()
    cluster.isolate(leader)
    effects = []
    for number in range(5):
        effects += cluster.cores[leader].step(cluster.now_ms, ev.Proposed((b"%d" % number,)))
    refused = [e.records for e in effects if isinstance(e, ev.Refused)]
    assert [(b"3",), (b"4",)] == refused


def test_a_restarted_node_helps_nobody_within_the_vote_guard() -> None:
    """It may have acknowledged the leader's last round just before it stopped."""
    cluster = Cluster(3)
    leader = cluster.wait_leader()
    cluster.run(200)
    voter = next(node for node in cluster.members if node != leader)
    cluster.crash(voter)
    cluster.start(voter)
    from rmqha.controller.raft.messages import PreVoteRequest, PreVoteResponse

    other = next(node for node in cluster.members if node not in (leader, voter))
    effects = cluster.cores[voter].step(
        cluster.now_ms, ev.Received(PreVoteRequest(99, other, 1_000, 99))
    )
    answers = [e.message for e in effects if isinstance(e, ev.Send)]
    assert [PreVoteResponse(cluster.cores[voter].node.term, voter, False)] == answers


def test_a_vote_leaves_only_when_it_is_durable_and_is_remembered() -> None:
    """Two votes in one term after a restart could make two leaders.

    Every answer that arrives is held against the disk of who sent it (``cluster.py``).
    """
    cluster = Cluster(3, fsync_ms=(50, 50))
    cluster.wait_leader()
    checked = cluster.messages_checked
    voted = {one: cluster.durable(one).hard_state for one in cluster.members}
    voted = {one: held for one, held in voted.items() if held.vote is not None}
    for node, hard_state in voted.items():
        cluster.crash(node, power=True)
        cluster.start(node)
        assert cluster.cores[node].node.vote == hard_state.vote
        assert cluster.cores[node].node.term == hard_state.term
    assert len(voted) >= 2
    assert checked >= 2


def test_settings_that_break_the_lease_are_refused() -> None:
    """A lease longer than the vote guard would allow stale reads."""
    with pytest.raises(ConfigInvalid, match="raftLeaseMs=120 must be below raftVoteGuardMs=100"):
        RaftSettings(lease_ms=120)


def persisted(effects: list[ev.Effect]) -> int:
    """The number of a step's persist."""
    (seq,) = (one.seq for one in effects if isinstance(one, ev.Persist))
    return seq


def acknowledged(effects: list[ev.Effect]) -> list[int]:
    """Up to which entries a step's answers say that this node's disk holds the log."""
    messages = [one.message for one in effects if isinstance(one, ev.Send)]
    return [one.match_index for one in messages if isinstance(one, AppendResponse)]


def test_entry_when_an_older_one_at_its_index_is_durable_then_not_acknowledged() -> None:
    """A leader would commit what is on no disk but its own, and a power cut would take it."""
    core = RaftCore(node_id="n0", members=("n0", "n1", "n2"), settings=RaftSettings())

    def hears(now_ms: int, request: AppendRequest) -> list[ev.Effect]:
        return core.step(now_ms, ev.Received(request))

    old = tuple(Entry(index, 1, b"old") for index in (1, 2, 3))
    first = persisted(hears(10, AppendRequest(1, "n1", 0, 0, old, 0, 1)))
    entry = Entry(2, 2, b"new")
    second = persisted(hears(20, AppendRequest(2, "n2", 1, 1, (entry,), 0, 1)))
    core.step(30, ev.Persisted(first))  # the disk holds 1 to 3, all of term 1
    entry = Entry(3, 2, b"new")
    third = persisted(hears(31, AppendRequest(2, "n2", 2, 2, (entry,), 0, 2)))
    core.step(32, ev.Persisted(second))
    # A heartbeat's answer waits for no disk.
    assert acknowledged(hears(33, AppendRequest(2, "n2", 3, 2, (), 0, 3))) == [2]
    core.step(34, ev.Persisted(third))
    assert acknowledged(hears(35, AppendRequest(2, "n2", 3, 2, (), 0, 4))) == [3]
