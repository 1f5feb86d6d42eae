"""What a leader sends to a follower that takes nothing, or answers late: little, and not for ever."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from rmqha.base.ids import Term
from rmqha.controller.aio.snapshot_saving import SENDING_TIMES
from rmqha.controller.raft import events as ev
from rmqha.controller.raft.core import RaftCore
from rmqha.controller.raft.messages import (
    AppendRequest,
    Message,
    SnapshotRequest,
    SnapshotResponse,
    encode_message,
)
from rmqha.controller.raft.progress import REST_MAX, Mode, Progress
from rmqha.controller.raft.settings import RaftSettings
from tests.controller.raft.cluster import Cluster

TEN_S, HEARTBEATS = 10_000, 10_000 // RaftSettings().heartbeat_ms
RECORD = b"y" * 1_000
CHUNK_BYTES = 5_000


def sent_to(cluster: Cluster, leader: str, follower: str) -> Counter[str]:
    """Counts what the leader sends to it from now on: bytes, chunks, and snapshots begun."""
    peers, found = cluster.lives[leader].node.peers, Counter[str]()
    send = peers.send

    def count(to: str, message: Message) -> None:
        if to == follower and isinstance(message, AppendRequest | SnapshotRequest):
            found["bytes"] += len(encode_message(message))
        if to == follower and isinstance(message, SnapshotRequest):
            found["chunk bytes"] += len(message.data)
            found["begun"] += message.offset == 0
        send(to, message)

    peers.send = count  # type: ignore[method-assign]
    return found


def full_follower(cluster: Cluster) -> tuple[str, str]:
    """Leader, and a follower whose disk takes nothing more."""
    leader = cluster.wait_leader()
    cluster.run(300)
    follower = next(name for name in cluster.names if name != leader)
    cluster.disks[follower].mood.full = True
    while not cluster.lives[follower].node.no_space:
        cluster.propose(b"z" * 200)
        cluster.run(20)
    return leader, follower


@pytest.mark.costly
@pytest.mark.parametrize("entries_max", [512, 64])
def test_follower_when_it_has_no_space_then_it_is_sent_little_and_catches_up_when_it_has(
    entries_max: int,
) -> None:
    """It took a part of what was sent and said so; the rest was sent ahead, refused and sent again at
    the speed of the link: 2.6 GB a second, in a group in which nothing happened."""
    settings = RaftSettings(entries_per_request_max=entries_max)
    cluster = Cluster(3, seed=2, segment_bytes=3_000, settings=settings, delay_ms=(0.1, 0.3))
    leader, follower = full_follower(cluster)
    for _ in range(1_000):
        cluster.propose(RECORD)
    cluster.run(3_000)
    behind = cluster.cores[leader].node.log.last_index
    assert cluster.cores[follower].node.log.last_index < behind
    found = sent_to(cluster, leader, follower)
    cluster.run(TEN_S)
    tries = HEARTBEATS / (REST_MAX + 1) + 2
    assert found["bytes"] < tries * settings.bytes_per_request_max + 100 * HEARTBEATS
    cluster.disks[follower].mood.full = False
    cluster.run_until(lambda: cluster.cores[follower].node.durable_index >= behind, TEN_S)


def behind_a_snapshot(settings: RaftSettings, every: int, records: int) -> tuple[Cluster, str, str]:
    """A group, its leader, and a follower that was away while the log was compacted."""
    cluster = Cluster(3, seed=3, snapshot_every=every, settings=settings)
    leader = cluster.wait_leader()
    cluster.run(200)
    follower = next(name for name in cluster.names if name != leader)
    cluster.crash(follower)
    for number in range(records):
        cluster.propose(b"%6d" % number + RECORD[:200])
        if number % 10 == 0:
            cluster.run(5)
    cluster.run(1_000)
    return cluster, leader, follower


@pytest.mark.costly
@pytest.mark.parametrize("read_often", [False, True])
def test_snapshot_when_answers_take_longer_than_heartbeats_then_it_is_not_sent_many_times(
    *, read_often: bool
) -> None:
    """Each heartbeat sent the chunk again, each copy was answered, and each answer brought the next
    chunk: 187 KB became 14.8 MB. So did each read that needed a round."""
    settings = RaftSettings(
        snapshot_chunk_bytes=CHUNK_BYTES, trailing_entries=10, lease_reads=not read_often
    )
    cluster, leader, follower = behind_a_snapshot(settings, 300, 900)
    cluster.net.lags[leader, follower] = cluster.net.lags[follower, leader] = 100
    found = sent_to(cluster, leader, follower)
    cluster.start(follower)
    tokens = itertools.count(1)
    size = cluster.cores[leader].node.snapshot.size
    limit_ms = cluster.now_ms + 30_000
    while cluster.lives[follower].node.applied_index < cluster.lives[leader].node.applied_index:
        if read_often:
            cluster.give(leader, ev.ReadRequested(next(tokens)))
        cluster.run(5)
        assert cluster.now_ms < limit_ms
    assert size <= found["chunk bytes"] < 1.5 * size


@pytest.mark.costly
def test_snapshot_when_the_log_grows_meanwhile_then_it_arrives() -> None:
    """Each newer snapshot had it begin anew, for as long as the group was busy."""
    settings = RaftSettings(snapshot_chunk_bytes=CHUNK_BYTES, trailing_entries=75)
    cluster, leader, follower = behind_a_snapshot(settings, 300, 900)
    cluster.net.lags[leader, follower] = cluster.net.lags[follower, leader] = 100
    found = sent_to(cluster, leader, follower)
    cluster.start(follower)
    before, limit_ms = cluster.cores[leader].node.snapshot.last_index, cluster.now_ms + 30_000
    while cluster.lives[follower].node.applied_index < before + 300:
        cluster.propose(b"busy")
        cluster.run(5)
        assert cluster.now_ms < limit_ms
    assert found["begun"] <= 4
    # What was put off is made once nobody waits for the last one.
    cluster.run_until(lambda: cluster.cores[leader].node.snapshot.last_index > before, TEN_S)


@pytest.mark.costly
def test_snapshot_when_the_follower_has_no_space_for_it_then_it_is_seldom_sent() -> None:
    """It was sent whole with every heartbeat, and refused."""
    settings = RaftSettings(snapshot_chunk_bytes=20_000, trailing_entries=10)
    cluster = Cluster(
        3, seed=2, segment_bytes=3_000, snapshot_every=300, settings=settings, delay_ms=(0.1, 0.3)
    )
    leader, follower = full_follower(cluster)
    for _ in range(700):
        cluster.propose(RECORD)
        cluster.run(1)
    cluster.run(2_000)
    found = sent_to(cluster, leader, follower)
    cluster.run(TEN_S)
    assert 1 <= found["begun"] <= HEARTBEATS / (REST_MAX + 1) + 5
    cluster.disks[follower].mood.full = False
    behind = cluster.cores[leader].node.log.last_index
    cluster.run_until(lambda: cluster.cores[follower].node.durable_index >= behind, TEN_S)


def test_progress_when_a_follower_takes_nothing_then_it_is_asked_less_and_less_often() -> None:
    """Up to once in ``REST_MAX`` heartbeats, and as before once it has taken something."""
    progress, rests = Progress(next_index=5), []
    for _ in range(8):
        progress.offered()
        assert progress.takes_nothing(4)
        assert progress.takes_nothing(
            4
        )  # a heartbeat's answer says the same, and counts for nothing
        rests.append(progress.rest)
        while progress.waiting:
            progress.heartbeat_due()
    assert rests == [0, 1, 3, 7, 15, REST_MAX, REST_MAX, REST_MAX]
    progress.offered()
    assert not progress.takes_nothing(5)
    assert progress.matched(5)
    progress.replicate()
    assert (progress.mode, progress.declined, progress.rest) == (Mode.REPLICATE, 0, 0)


def test_progress_when_its_connection_is_lost_then_whoever_comes_back_is_offered_at_once() -> None:
    """It may have restarted with space on its disk, or by another way."""
    progress = Progress(next_index=5)
    for _ in range(REST_MAX):
        progress.offered()
        assert progress.takes_nothing(4)
    assert progress.rest == REST_MAX
    progress.patience = REST_MAX
    progress.connection_lost(9)
    assert (progress.declined, progress.rest, progress.patience) == (0, 0, 0)
    assert not progress.waiting
    assert not progress.takes_nothing(4)


def test_progress_when_an_empty_request_was_answered_then_that_declines_nothing() -> None:
    """A new leader asks where the logs agree before it has anything to offer."""
    progress = Progress(next_index=5)
    assert not progress.takes_nothing(4)


def test_snapshot_when_its_first_chunk_comes_again_then_what_came_since_is_kept() -> None:
    """Copies of it arrive behind other chunks on a slow link: each had the follower begin anew."""
    core = RaftCore(node_id="n1", members=("n0", "n1", "n2"), settings=RaftSettings())
    answers = []
    for offset in (0, 10, 0, 20, 0):
        chunk = SnapshotRequest(Term(1), "n0", 5, Term(1), offset, 100, b"x" * 10, 1, 0)
        answers += [
            effect.message.next_offset for effect in core.step(0, ev.Received(chunk))
            if isinstance(effect, ev.Send) and isinstance(effect.message, SnapshotResponse)
        ]  # fmt: skip
    assert answers == [10, 20, 20, 30, 30]
    other = SnapshotRequest(Term(1), "n0", 6, Term(1), 0, 100, b"x" * 10, 1, 0)
    core.step(0, ev.Received(other))
    assert core.node.incoming_offset == 10


def test_snapshot_when_one_is_being_sent_for_very_long_then_the_next_is_made_all_the_same() -> None:
    """The log must not grow for ever because of one follower."""
    every = 20
    cluster = Cluster(3, seed=3, snapshot_every=every)
    leader = cluster.wait_leader()
    life = cluster.lives[leader].node
    life._saving._is_sending = lambda: True
    for number in range(every * (SENDING_TIMES - 1)):
        cluster.propose(b"%d" % number)
        cluster.run(2)
    assert life.snapshots.meta.last_index == 0
    for number in range(2 * every):
        cluster.propose(b"more %d" % number)
        cluster.run(2)
    cluster.run_until(lambda: life.snapshots.meta.last_index >= every * SENDING_TIMES)
