"""A leader that hears nobody, waits for a successor for ever, or has no space makes room for another.

None of these loses anything, and each left a group in which a majority was well without answers.
"""

from __future__ import annotations

import itertools

import pytest

from rmqha.controller.raft import events as ev
from rmqha.controller.raft.append import SPARE_BYTES
from rmqha.controller.raft.core import USELESS_TIMEOUTS, RaftCore
from rmqha.controller.raft.events import SnapshotMeta
from rmqha.controller.raft.members import Member
from rmqha.controller.raft.messages import AppendResponse, Message, SnapshotResponse, TimeoutNow
from rmqha.controller.raft.patience import WIDEN_MAX
from rmqha.controller.raft.settings import RaftSettings
from rmqha.controller.raft.snapshots import on_snapshot_response, send_chunk
from tests.controller.raft.cluster import PORT, Cluster

TOKENS = itertools.count(1)
SETTINGS = RaftSettings()
OFTEN_MS = 5
SOON_MS = SETTINGS.election_max_ms * WIDEN_MAX
"""In which a group finds another leader, however slow it was before."""


@pytest.fixture(params=[3])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """A group that has a leader."""
    cluster = Cluster(request.param, seed=1, segment_bytes=3_000)
    cluster.wait_leader()
    cluster.run(300)
    return cluster


def leader_of(cluster: Cluster) -> str:
    """Who leads."""
    leader = cluster.leader()
    assert leader is not None
    return leader


def others(cluster: Cluster) -> list[str]:
    """Who does not."""
    return [name for name in cluster.names if name != cluster.leader()]


def asked_often(cluster: Cluster, name: str, duration_ms: int) -> None:
    """Reads come, much oftener than heartbeats."""
    for _ in range(duration_ms // OFTEN_MS):
        cluster.give(name, ev.ReadRequested(next(TOKENS)))
        cluster.run(OFTEN_MS)


def fills_up(cluster: Cluster, name: str) -> None:
    """Its disk takes nothing more, and it has noticed."""
    cluster.disks[name].mood.full = True
    while not cluster.lives[name].node.no_space:
        cluster.propose(b"z" * 200)
        cluster.run(20)


def loses_first_transfer(cluster: Cluster, name: str) -> list[Message]:
    """The first TimeoutNow that this node sends does not arrive."""
    peers, lost = cluster.lives[name].node.peers, list[Message]()
    send = peers.send

    def lose(to: str, message: Message) -> None:
        if isinstance(message, TimeoutNow) and not lost:
            lost.append(message)
        else:
            send(to, message)

    peers.send = lose  # type: ignore[method-assign]
    return lost


def takes_proposals(cluster: Cluster, within_ms: int) -> None:
    """A record is taken and committed within this time."""
    ends_ms = cluster.now_ms + within_ms
    for number in itertools.count():
        record = b"taken %d" % number
        if cluster.leader() is not None:
            cluster.propose(record)
        cluster.run(50)
        if any(record in records for records in cluster.applied.values()):
            return
        assert cluster.now_ms < ends_ms, "nobody takes a proposal"


def test_leader_when_it_hears_nobody_and_is_asked_often_then_another_leads(
    cluster: Cluster,
) -> None:
    """Each read put off the heartbeat, and with it the look whether a majority answers: a leader to
    which nothing came, and whose own heartbeats arrived, led on for as long as it was asked."""
    deaf = leader_of(cluster)
    for other in others(cluster):
        cluster.cut(other, deaf)
    asked_often(cluster, deaf, SOON_MS)
    leading = [name for name, core in cluster.cores.items() if core.is_leader]
    assert leading
    assert deaf not in leading


def test_transfer_when_its_message_is_lost_and_reads_go_on_then_it_ends(cluster: Cluster) -> None:
    """The end of the wait hung on the heartbeat as well: all proposals were refused until reads ended,
    and whoever was refused asked again."""
    leader = leader_of(cluster)
    lost = loses_first_transfer(cluster, leader)
    cluster.give(leader, ev.TransferRequested(None))
    asked_often(cluster, leader, 2 * SETTINGS.election_max_ms)
    assert lost
    assert cluster.cores[leader].node.transfer_target is None
    takes_proposals(cluster, SETTINGS.election_max_ms)


def test_removal_when_each_read_opens_a_round_then_who_answers_is_known_by_time() -> None:
    """A follower is always some rounds behind; ten of them took a few milliseconds, and a healthy group
    refused to let anybody go."""
    cluster = Cluster(4, seed=2, settings=RaftSettings(lease_reads=False), delay_ms=(5.0, 6.0))
    leader = cluster.wait_leader()
    cluster.run(1_000)
    for _ in range(200):
        cluster.give(leader, ev.ReadRequested(next(TOKENS)))
        cluster.run(1)
    gone = others(cluster)[0]
    change = cluster.change(Member(gone, gone, PORT), joins=False, at=leader)
    for _ in range(100):
        cluster.give(leader, ev.ReadRequested(next(TOKENS)))
        cluster.run(1)
    assert change.answer == ""


def test_removal_when_who_would_stay_is_silent_for_long_then_it_is_refused(
    cluster: Cluster,
) -> None:
    """The other side of the same rule."""
    leader = leader_of(cluster)
    silent, gone = others(cluster)
    cluster.run(2_000)
    cluster.crash(silent)
    cluster.run(1_000)
    change = cluster.change(Member(gone, gone, PORT), joins=False, at=leader)
    cluster.run(100)
    assert change.answer is not None
    assert f"only {leader} answers" in change.answer


def test_leader_when_it_has_no_space_and_its_message_is_lost_then_it_hands_over_all_the_same(
    cluster: Cluster,
) -> None:
    """It tried once, and then refused every change for as long as it lived."""
    leader = leader_of(cluster)
    lost = loses_first_transfer(cluster, leader)
    fills_up(cluster, leader)
    takes_proposals(cluster, SOON_MS)
    assert lost
    assert cluster.leader() != leader


@pytest.mark.parametrize("cluster", [5], indirect=True)
def test_leader_when_it_and_another_have_no_space_then_one_that_has_some_leads(
    cluster: Cluster,
) -> None:
    """It asked the one with the highest id of those with equal logs, and nobody else."""
    leader = leader_of(cluster)
    full = max(others(cluster))
    fills_up(cluster, full)
    fills_up(cluster, leader)
    takes_proposals(cluster, SOON_MS)
    assert cluster.leader() not in (leader, full)


@pytest.mark.parametrize("cluster", [5], indirect=True)
def test_leader_when_only_it_and_two_without_space_are_left_then_it_asks_again_later(
    cluster: Cluster,
) -> None:
    """A majority without space takes nothing; who gets some first is asked within seconds."""
    leader = leader_of(cluster)
    full = others(cluster)[:2]
    for name in others(cluster)[2:]:
        cluster.crash(name)
    cluster.run(500)
    for name in full:
        fills_up(cluster, name)
    fills_up(cluster, leader)
    core, tries = cluster.cores[leader], list[int]()
    transfer = core._transfer
    core._transfer = lambda now_ms, target: tries.append(now_ms) or transfer(now_ms, target)  # type: ignore[func-returns-value,method-assign]
    cluster.run(2 * SOON_MS)
    cycle_ms = (USELESS_TIMEOUTS + 4) * SETTINGS.election_max_ms  # four are asked, one by one
    assert 4 < len(tries) < 4 * (2 * SOON_MS // cycle_ms + 2)
    assert all(life.node.no_space for life in cluster.lives.values())
    started = [line for line in cluster.lines if "raft_transfer_started" in line]
    assert len(started) == 4, started  # each that lives or has lived once, however long it takes
    for name in full:
        cluster.disks[name].mood.full = False
    cluster.run_until(
        lambda: cluster.leader() in full, USELESS_TIMEOUTS * SETTINGS.election_max_ms + SOON_MS
    )
    takes_proposals(cluster, SOON_MS)


def reaches_too_few(cluster: Cluster) -> tuple[str, str, str]:
    """Somebody leads whom four of five answer, and two can store what it sends: two have no space and lack
    entries, and one does not hear it. Returns it, who could lead, and who does not hear."""
    deaf = leader_of(cluster)
    stuck, able, *full = others(cluster)
    for name in full:
        fills_up(cluster, name)
    for _ in range(40):
        cluster.propose(bytes(SPARE_BYTES // 20))  # more than the reserve of who has no space
        cluster.run(20)
    cluster.cut(stuck, deaf)
    cluster.give(deaf, ev.TransferRequested(stuck))
    cluster.run_until(lambda: cluster.cores[stuck].is_leader, SOON_MS)
    return stuck, able, deaf


@pytest.mark.costly
@pytest.mark.parametrize("cluster", [5], indirect=True)
def test_leader_when_too_few_can_store_what_it_sends_then_one_that_reaches_more_leads(
    cluster: Cluster,
) -> None:
    """A majority answered it, so it led on for ever and answered nothing itself."""
    stuck, able, _ = reaches_too_few(cluster)
    cluster.run(SETTINGS.election_max_ms)
    assert cluster.cores[stuck].is_leader
    assert not cluster.cores[stuck].is_ready
    takes_proposals(cluster, (USELESS_TIMEOUTS + 5) * SETTINGS.election_max_ms)
    assert cluster.leader() == able


@pytest.mark.costly
@pytest.mark.parametrize("cluster", [5], indirect=True)
def test_leader_when_others_come_nearer_all_the_time_then_it_is_not_relieved(
    cluster: Cluster,
) -> None:
    """A snapshot on a slow link takes longer than any patience; the next leader would begin it anew."""
    stuck, _, deaf = reaches_too_few(cluster)
    node = cluster.cores[stuck].node
    term, ends_ms = node.term, cluster.now_ms + 3 * USELESS_TIMEOUTS * SETTINGS.election_max_ms
    for index in itertools.count(1):
        if cluster.now_ms > ends_ms:
            break
        # An answer for an entry further on, as from one that is being caught up.
        assert index < node.log.last_index, "there were entries enough"
        answer = AppendResponse(term, deaf, True, index, 0, 0, "")
        cluster.give(stuck, ev.Received(answer))
        cluster.run(SETTINGS.election_max_ms)
    assert cluster.cores[stuck].is_leader
    assert node.term == term
    cluster.run((USELESS_TIMEOUTS + 5) * SETTINGS.election_max_ms)
    assert not cluster.cores[stuck].is_leader


def test_node_when_it_is_elected_without_space_then_it_hands_over() -> None:
    """A follower without space and with an equal log wins an ordinary election: three nodes, no loss, no
    second fault, and everything was refused."""
    elected = 0
    for seed in range(8):
        cluster = Cluster(3, seed=seed, segment_bytes=3_000)
        leader = cluster.wait_leader()
        cluster.run(300)
        full = others(cluster)[0]
        fills_up(cluster, full)
        cluster.run(500)
        cluster.crash(leader)
        cluster.run_until(lambda cluster=cluster: cluster.leader() is not None, SOON_MS)  # type: ignore[misc]
        elected += cluster.leader() == full
        cluster.start(leader)
        takes_proposals(cluster, SOON_MS)
        assert cluster.leader() != full
    assert elected


def test_leader_when_it_leads_once_more_without_space_then_all_are_asked_anew() -> None:
    """Whom it asked in an earlier reign, and when it wanted to go on, says nothing of this one."""
    now_ms = 1_000
    node = RaftCore(node_id="n0", members=("n0", "n1", "n2"), settings=SETTINGS).node
    node.handed_to, node.all_asked, node.asked_again_ms = {"n1", "n2"}, True, 100 * now_ms
    node.become_leader(now_ms)
    assert (node.handed_to, node.all_asked) == (set(), False)
    assert node.asked_again_ms <= now_ms
    assert node.advanced_ms == now_ms, "or it would be taken for one that gets nowhere at once"


def test_leader_when_a_chunk_of_a_snapshot_was_taken_then_somebody_comes_nearer() -> None:
    """Its follower has the whole only in the end, and its log stays where it is until then."""
    node = RaftCore(node_id="n0", members=("n0", "n1", "n2"), settings=SETTINGS).node
    node.become_leader(1_000)
    node.snapshot = SnapshotMeta(9, node.term, 3 * SETTINGS.snapshot_chunk_bytes, 0)
    progress = node.progress["n1"]
    send_chunk(node, "n1", progress)
    for chunk in (1, 2):
        taken = chunk * SETTINGS.snapshot_chunk_bytes
        message = SnapshotResponse(node.term, "n1", 9, taken, 0)
        on_snapshot_response(node, 1_000 + chunk, message)
        assert node.advanced_ms == 1_000 + chunk
    on_snapshot_response(node, 2_000, message)
    assert node.advanced_ms == 1_002, "said once more it is no news"
