"""Rules of the core, each in one step: what goes wrong without them takes a rare story to show."""

from __future__ import annotations

import pytest

from rmqha.base.ids import Term
from rmqha.base.machine import Note, Ticked
from rmqha.controller.raft import events as ev
from rmqha.controller.raft import membership
from rmqha.controller.raft.core import RaftCore
from rmqha.controller.raft.events import HardState, SnapshotMeta, Standing
from rmqha.controller.raft.members import Member, Members, encode_members
from rmqha.controller.raft.messages import (
    AppendRequest,
    AppendResponse,
    Entry,
    PreVoteRequest,
    PreVoteResponse,
    Readmitted,
    SnapshotRequest,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from rmqha.controller.raft.node import RECOVERING, VOTER, Node
from rmqha.controller.raft.progress import Mode
from rmqha.controller.raft.settings import RaftSettings
from rmqha.controller.raft.snapshots import installed, on_snapshot_request
from rmqha.controller.raft.standing import on_readmitted
from tests.controller.raft.cluster import Cluster
from tests.controller.raft.test_installs import gated

NAMES = ("n0", "n1", "n2")
VOTERS = Members(tuple(Member(one, one, 9) for one in NAMES))
LEARNER = Member("n3", "n3", 9, votes=False)
SETTINGS = RaftSettings()


def core_of(group: Members = VOTERS, standing: Standing = Standing(VOTER, "s", ())) -> RaftCore:  # noqa: B008 - an immutable tuple
    """A node of term 1, with nothing in its log."""
    return RaftCore(
        node_id="n0", members=NAMES, settings=SETTINGS, group=(0, group),
        hard_state=HardState(Term(1), None, standing),
    )  # fmt: skip


def leader_of(group: Members = VOTERS, *, ready: bool = True) -> RaftCore:
    """A leader that has opened its term; ``ready`` when that is committed."""
    core = core_of(group)
    core.node.become_leader(1_000)
    if ready:
        commit_opening(core)
    return core


def commit_opening(core: RaftCore) -> None:
    """What opens the term is durable on two of three."""
    for one in [*core.step(1_000, Ticked()), *answer(core, "n1", core.node.log.last_index)]:
        if isinstance(one, ev.Persist):
            core.step(1_002, ev.Persisted(one.seq))
    assert core.node.ready


def answer(core: RaftCore, follower: str, match_index: int) -> list[ev.Effect]:
    """A follower says how much it has."""
    node = core.node
    return core.step(
        1_001,
        ev.Received(AppendResponse(node.term, follower, True, match_index, 0, node.round, "")),
    )


def test_learner_when_its_leader_has_committed_nothing_of_its_term_then_it_gets_no_vote() -> None:
    """Two leaders could each begin a change from one group: the mistake that Ongaro reported in 2015."""
    group = Members((*VOTERS.members, LEARNER))
    core = leader_of(group, ready=False)
    node = core.node
    opening = core.step(1_000, Ticked())
    answer(core, "n3", node.log.last_index)
    assert node.progress["n3"].mode is Mode.REPLICATE
    assert node.progress["n3"].match_index == node.log.last_index
    assert "n3" not in node.voters, "it has caught up, and waits for what opens the term"
    answer(core, "n1", node.log.last_index)
    for one in opening:
        if isinstance(one, ev.Persist):
            core.step(1_002, ev.Persisted(one.seq))
    answer(core, "n3", node.log.last_index)
    assert "n3" in node.voters


def test_learner_when_its_store_recovers_then_it_gets_no_vote() -> None:
    """It has forgotten what it voted."""
    group = Members((*VOTERS.members, LEARNER))
    node = leader_of(group).node
    progress = node.progress["n3"]
    progress.mode, progress.match_index, progress.recovering = (
        Mode.REPLICATE,
        node.log.last_index,
        "s3",
    )
    membership.promote_if_caught_up(node, "n3")
    assert "n3" not in node.voters
    progress.recovering = ""
    membership.promote_if_caught_up(node, "n3")
    assert "n3" in node.voters


def test_removal_when_who_would_stay_has_lost_its_store_then_it_is_refused() -> None:
    """It answers, and counts for nothing: the group could decide nothing more."""
    core = leader_of()
    node = core.node
    for name in ("n1", "n2"):
        node.progress[name].answered_ms = 1_000
    node.progress["n2"].recovering = "s2"
    asked = ev.MembersAsked(1, Member("n1", "n1", 9), joins=False)
    membership.asked(node, 1_000, asked)
    (told,) = (one for one in node.immediate if isinstance(one, ev.MembersAnswered))
    assert "only n0 answers" in told.reason
    node.progress["n2"].recovering = ""
    membership.asked(node, 1_000, asked)
    assert node.voters == ("n0", "n2")


def test_transfer_when_the_target_has_lost_its_store_then_refused_at_once() -> None:
    """Proposals would be shut until the time is over."""
    core = leader_of()
    core.node.progress["n1"].recovering = "s1"
    core.step(1_010, ev.TransferRequested("n1"))
    assert core.node.transfer_target is None
    core.step(1_010, ev.TransferRequested("n2"))
    assert core.node.transfer_target == "n2"


def test_transfer_when_its_target_is_removed_then_it_is_over() -> None:
    node = leader_of().node
    node.transfer_target = "n1"
    membership._begin(node, VOTERS.without("n1"))
    assert node.transfer_target is None


def test_leader_when_it_loses_its_leadership_then_it_tells_nobody_of_their_removal() -> None:
    """Who leaves is a leader's to tell."""
    node = leader_of().node
    membership._begin(node, VOTERS.without("n2"))
    assert "n2" in node.leaving
    node.become_follower(2_000, Term(node.term + 1), "n1")
    assert node.leaving == {}


@pytest.mark.parametrize(
    ("sender", "term", "store", "votes"),
    [("n2", 1, "s", False), ("n1", 2, "s", False), ("n1", 1, "other", False), ("n1", 1, "s", True)],
)
def test_readmission_when_it_is_not_its_leaders_then_the_store_does_not_vote(
    sender: str, term: int, store: str, votes: bool
) -> None:
    """Only the leader of this term knows that this store has caught up."""
    node = core_of(standing=Standing(RECOVERING, "s", ())).node
    node.become_follower(0, Term(1), "n1")
    on_readmitted(node, Readmitted(Term(term), sender, store, ()))
    assert (node.standing.kind == VOTER) is votes


def test_chunk_when_it_is_longer_than_the_snapshot_then_it_is_not_kept() -> None:
    """What was announced bounds what is held."""
    node = core_of().node
    chunks = ((b"x" * 6, 6), (b"x" * 5, 6), (b"x" * 4, 10))
    for data, offset in chunks:
        asked = SnapshotRequest(Term(1), "n1", 50, Term(1), node.incoming_offset, 10, data, 1, 0)
        on_snapshot_request(node, 0, asked)
        assert node.incoming_offset == offset


def test_install_when_the_log_agrees_then_groups_before_the_snapshot_are_forgotten() -> None:
    """They would be taken for what the log says behind it."""
    node = core_of().node
    after = VOTERS.without("n2")
    node.append_entries((Entry(1, Term(1), encode_members(after)), Entry(2, Term(1), b"")))
    assert [at for at, _ in node.groups] == [0, 1]
    installed(node, SnapshotMeta(2, Term(1), 5), after)
    assert [group for _, group in node.groups] == [after]


def test_install_when_entries_have_overtaken_it_then_nothing_applied_is_taken_back() -> None:
    node = core_of().node
    node.append_entries(tuple(Entry(at, Term(1), b"") for at in (1, 2, 3)))
    node.commit_to(3)
    installed(node, SnapshotMeta(2, Term(1), 5), None)
    assert (node.commit_index, node.log.last_index, node.log.base_index) == (3, 3, 0)


def test_node_when_it_installs_a_snapshot_then_it_does_not_stand_when_told_to() -> None:
    """It would lead with a log that is about to be replaced."""
    core = core_of()
    core.node.become_follower(0, Term(1), "n1")
    core.node.installing = True
    core.step(10, ev.Received(TimeoutNow(Term(1), "n1")))
    assert core.node.term == 1


def test_node_when_it_installs_a_snapshot_then_its_leader_is_answered() -> None:
    """It takes nothing meanwhile, and claims nothing."""
    core = core_of()
    core.node.become_follower(0, Term(1), "n1")
    core.node.installing = True
    request = AppendRequest(Term(1), "n1", 7, Term(1), (Entry(8, Term(1), b"x"),), 8, 44)
    sent = [one.message for one in core.step(10, ev.Received(request)) if isinstance(one, ev.Send)]
    assert sent == [AppendResponse(Term(1), "n0", True, 0, 0, 44, "")]
    assert (core.node.log.last_index, core.node.commit_index) == (0, 0)


def leads_on(cluster: Cluster, leader: str, node: Node) -> None:
    """The leader of before leads in its term, and reads are answered."""
    token = cluster.now_ms
    cluster.give(leader, ev.ReadRequested(token))
    cluster.run(300)
    assert cluster.cores[leader].node is node
    assert cluster.leader() == leader
    assert token in cluster.reads_done


def test_leader_when_the_only_other_that_lives_installs_a_snapshot_then_it_leads_on() -> None:
    """It lost its majority again and again, for nobody answered its heartbeats."""
    settings = RaftSettings(trailing_entries=0)
    cluster = Cluster(3, settings=settings, snapshot_every=10, seed=5)
    leader = cluster.wait_leader()
    behind, dead = (one for one in cluster.members if one != leader)
    disk = gated(cluster, behind)
    cluster.crash(behind)
    for number in range(25):
        cluster.propose(b"r%d" % number)
        cluster.run(20)
    node = cluster.cores[leader].node
    term = node.term
    disk.gate.set()
    cluster.start(behind)
    disk.gate.clear()
    cluster.run_until(lambda: cluster.cores[behind].node.installing)
    cluster.crash(dead)
    for _ in range(10):
        leads_on(cluster, leader, node)
    assert node.term == term
    assert cluster.cores[behind].node.installing
    disk.gate.set()
    cluster.run_until(lambda: cluster.applied[behind] == cluster.applied[leader])


@pytest.mark.parametrize(("after_ms", "helps"), [(-1, False), (0, True)])
def test_vote_when_the_leader_s_connection_was_reset_then_still_refused_until_the_guard_is_over(
    after_ms: int, helps: bool
) -> None:
    """The leader may be well, and answers reads by its lease: a reset shortens patience, not the guard."""
    for asked in (
        PreVoteRequest(Term(2), "n2", 0, Term(0)),
        VoteRequest(Term(2), "n2", 0, Term(0), False),
    ):
        core = core_of()
        core.step(10_000, ev.Received(AppendRequest(Term(1), "n1", 0, Term(0), (), 0, 1)))
        core.step(10_001, ev.PeerLost("n1"))
        now_ms = 10_000 + SETTINGS.vote_guard_ms + after_ms
        made = core.step(now_ms, ev.Received(asked))
        answers = [one.message for one in made if isinstance(one, ev.Send)]
        granted = [
            isinstance(one, PreVoteResponse | VoteResponse) and one.granted for one in answers
        ]
        assert any(granted) is helps


def test_entry_when_it_is_durable_after_another_took_its_place_then_that_one_is_not() -> None:
    """An acknowledgement of the later leader's entry would be one of nothing on this disk."""
    core = core_of()

    def taken(leader: str, term: int) -> int:
        entry = Entry(1, Term(term), b"x")
        request = AppendRequest(Term(term), leader, 0, Term(0), (entry,), 0, 1)
        (persist,) = (
            one for one in core.step(10, ev.Received(request)) if isinstance(one, ev.Persist)
        )
        return persist.seq

    cut, kept = taken("n1", 1), taken("n2", 2)
    core.step(11, ev.Persisted(cut))
    assert core.node.durable_index == 0
    core.step(12, ev.Persisted(kept))
    assert core.node.durable_index == 1


def test_lease_when_who_answered_its_round_has_lost_its_store_then_that_answer_is_void() -> None:
    """It may have promised its vote to somebody since; two of five and it are no majority."""
    five = Members(tuple(Member(f"n{number}", "h", 9 + number) for number in range(5)))
    core = core_of(five)
    node = core.node
    node.become_leader(1_000)
    core.step(1_000, Ticked())
    number = node.round

    def answers(follower: str, store: str = "") -> None:
        said = AppendResponse(node.term, follower, True, 0, 0, number, store)
        core.step(1_001, ev.Received(said))

    answers("n1")
    answers("n1", "a new store")
    answers("n2")
    assert node.quorum_round < number
    answers("n3")
    assert node.quorum_round == number


def test_install_when_the_log_was_longer_and_another_s_then_nothing_of_it_counts_as_durable() -> (
    None
):
    """As leader it would count its next entries before they are on its disk, and commit with one other."""
    core = RaftCore(
        node_id="n0", members=NAMES, settings=SETTINGS, group=(0, VOTERS),
        hard_state=HardState(Term(2), None, Standing(VOTER, "s", ())),
        entries=[Entry(index, Term(1), b"") for index in range(1, 11)],
    )  # fmt: skip
    node = core.node
    assert node.durable_index == 10
    core.step(999, ev.SnapshotInstalled(SnapshotMeta(5, Term(2), 1, 1)))
    node.become_leader(1_000)
    opening = core.step(1_000, Ticked())
    assert node.log.last_index == 6
    answer(core, "n1", 6)
    assert node.commit_index == 5, "one of three has it"
    for one in opening:
        if isinstance(one, ev.Persist):
            core.step(1_002, ev.Persisted(one.seq))
    assert node.commit_index == 6


@pytest.mark.parametrize("joins", [True, False], ids=["add", "remove"])
def test_change_when_the_leader_s_disk_is_full_then_refused_and_said_why(*, joins: bool) -> None:
    """It would be in the leader's log alone, count there, and never be committed."""
    core = leader_of()
    node = core.node
    for name in ("n1", "n2"):
        node.progress[name].answered_ms = 1_000
    node.no_space = True
    before = node.log.last_index
    asked = ev.MembersAsked(1, LEARNER if joins else VOTERS.members[1], joins)
    told = [one for one in core.step(1_001, asked) if isinstance(one, ev.MembersAnswered)]
    assert [one.reason for one in told] == ["the disk is full"]
    assert (node.log.last_index, node.group) == (before, VOTERS)


def test_space_when_it_is_gone_again_then_the_leader_asks_everybody_anew_and_says_so() -> None:
    """Whom it had asked the last time was full as well, hours ago."""
    core = leader_of()
    node = core.node
    node.handed_to, node.all_asked, node.asked_again_ms = {"n1", "n2"}, True, 10**6
    made = core.step(1_010, ev.SpaceChanged(False))
    assert node.transfer_target == "n1", "the freshest"
    assert node.handed_to == {"n1"}
    assert "raft_transfer_started" in [one.event for one in made if isinstance(one, Note)]
