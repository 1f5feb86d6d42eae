"""Members that come and go while the group decides (dissertation, chapter 4)."""

from __future__ import annotations

import pytest

from rmqha.base.errors import StoreCorrupted
from rmqha.controller.raft import events as ev
from rmqha.controller.raft import membership
from rmqha.controller.raft.members import (
    MARK,
    MEMBERS_MAX,
    Member,
    Members,
    decode_members,
    encode_members,
    from_snapshot,
    is_members,
    to_snapshot,
)
from rmqha.controller.raft.messages import AppendRequest, Entry
from rmqha.controller.raft.node import RECOVERING, VOTER
from rmqha.controller.raft.settings import RaftSettings
from tests.controller.raft.cluster import PORT, Cluster
from tests.controller.raft.test_standing import damage_last_frame

AWAY = Member("n9", "nowhere", PORT)


def node(name: str) -> Member:
    return Member(name, name, PORT)


def proposes(cluster: Cluster, record: bytes) -> None:
    """A record is committed and applied by everybody who lives and belongs to the group."""
    cluster.wait_leader()
    cluster.propose(record)
    cluster.run_until(
        lambda: all(
            record in records
            for name, records in cluster.applied.items()
            if name in cluster.cores[name].node.members
        )
    )


# -- what entries and snapshots hold ---------------------------------------------------------------


def test_entry_when_written_and_read_then_the_same_group() -> None:
    group = Members((node("a"), Member("b", "::1", 1, votes=False)))
    data = encode_members(group)
    assert data.startswith(MARK)
    assert is_members(data)
    assert decode_members(data) == group
    assert group.voters == ("a",)
    assert group.ids == ("a", "b")


@pytest.mark.parametrize(
    "group",
    [
        Members(()),
        Members((Member("a", "a", 1, votes=False),)),
        Members((node("b"), node("a"))),
        Members((node("a"), node("a"))),
        Members(tuple(node(f"m{n:02}") for n in range(MEMBERS_MAX + 1))),
    ],
    ids=["nobody", "no voter", "out of order", "twice", "too many"],
)
def test_entry_when_it_names_no_group_then_refused(group: Members) -> None:
    with pytest.raises(StoreCorrupted, match="not a group"):
        decode_members(encode_members(group))


def test_snapshot_when_the_log_has_named_a_group_then_it_is_in_front_of_the_state() -> None:
    group = Members((node("a"), node("b")))
    assert from_snapshot(to_snapshot(group, b"state")) == (group, b"state")
    assert to_snapshot(None, b"state") == b"state"
    assert from_snapshot(b"state") == (None, b"state")
    with pytest.raises(StoreCorrupted):
        from_snapshot(to_snapshot(group, b"")[:-3])


def entries_of(cluster: Cluster, name: str) -> tuple[Entry, ...]:
    """What a node's log holds."""
    log = cluster.cores[name].node.log
    return log.between(log.base_index + 1, log.last_index)


# -- joining ---------------------------------------------------------------------------------------


@pytest.mark.costly
def test_node_when_added_then_it_is_fed_before_it_votes() -> None:
    """An empty node that voted at once could elect a leader that lacks what was committed."""
    cluster = Cluster(3, spare=1)
    cluster.wait_leader()
    for number in range(50):
        cluster.propose(b"r%d" % number)
    change = cluster.change(node("n3"), joins=True)
    cluster.run_until(lambda: change.answer == "")
    cluster.run(2_000)
    assert set(cluster.voters().values()) == {("n0", "n1", "n2")}  # it is not there yet
    assert all(core.node.members == ("n0", "n1", "n2", "n3") for core in cluster.cores.values())
    cluster.start("n3")
    leader = cluster.wait_leader()
    cluster.run_until(lambda: "n3" in cluster.cores[leader].node.voters)
    assert b"r49" in [entry.data for entry in entries_of(cluster, "n3")]
    proposes(cluster, b"four")


@pytest.mark.costly
def test_node_when_it_was_started_before_it_was_added_then_it_waits_outside() -> None:
    cluster = Cluster(3, spare=1)
    cluster.wait_leader()
    cluster.start("n3")
    cluster.run(2_000)
    assert any("raft_peer_refused_us" in line for line in cluster.lines)
    cluster.joins("n3")
    proposes(cluster, b"four")


@pytest.mark.costly
def test_node_when_it_joins_behind_the_compacted_log_then_by_snapshot() -> None:
    cluster = Cluster(3, spare=2, snapshot_every=20, settings=RaftSettings(trailing_entries=1))
    cluster.wait_leader()
    cluster.joins("n3")
    for number in range(100):
        proposes(cluster, b"r%d" % number)
    cluster.joins("n4")
    assert any("raft_snapshot_installed" in line for line in cluster.lines)
    assert b"r0" in cluster.applied["n4"]
    # The snapshot named the group: n4 knows all of it without an entry of the log.
    assert cluster.cores["n4"].node.groups[0][0] > 0
    proposes(cluster, b"five")


def test_group_when_it_grows_from_one_then_to_three() -> None:
    """A majority of two is both: the second votes only when it has everything."""
    cluster = Cluster(1, spare=2)
    cluster.wait_leader()
    proposes(cluster, b"alone")
    cluster.joins("n1")
    cluster.joins("n2")
    proposes(cluster, b"three")
    cluster.crash("n0")
    cluster.wait_leader()
    proposes(cluster, b"two of three")


# -- leaving ---------------------------------------------------------------------------------------


def test_node_when_removed_then_it_knows_and_disturbs_nobody() -> None:
    cluster = Cluster(3)
    leader = cluster.wait_leader()
    gone = next(one for one in cluster.members if one != leader)
    cluster.leaves(gone)
    cluster.run_until(lambda: cluster.cores[gone].node.is_removed)
    term, told = cluster.cores[leader].node.term, len(cluster.lines)
    cluster.run(5_000)
    assert cluster.leader() == leader
    assert cluster.cores[leader].node.term == term
    assert cluster.cores[gone].node.role.value == "follower"
    assert not any("pre_candidate" in line for line in cluster.lines[told:])
    proposes(cluster, b"two")
    # Not even a restart makes it one again.
    cluster.crash(gone)
    cluster.start(gone)
    cluster.run(3_000)
    assert cluster.cores[leader].node.term == term


@pytest.mark.costly
def test_node_when_removed_while_it_is_down_then_it_disturbs_nobody_when_it_is_back() -> None:
    """It knows nothing of it: its log still names it (dissertation 4.2.3)."""
    cluster = Cluster(3, spare=1)
    leader = cluster.wait_leader()
    cluster.joins("n3")
    gone = next(one for one in cluster.members if one != leader)
    cluster.crash(gone)
    cluster.leaves(gone)
    cluster.run(3_000)
    term = cluster.cores[leader].node.term
    cluster.start(gone)
    cluster.run(5_000)
    assert cluster.leader() == leader
    assert cluster.cores[leader].node.term == term
    assert not cluster.cores[gone].is_leader


def test_leader_when_removed_then_it_goes_on_until_that_is_committed_and_another_follows() -> None:
    cluster = Cluster(3)
    leader = cluster.wait_leader()
    cluster.leaves(leader)
    cluster.run_until(lambda: cluster.leader() not in (None, leader))
    assert any("raft_removed_leader" in line for line in cluster.lines)
    proposes(cluster, b"two")
    assert b"two" not in cluster.applied[leader]


@pytest.mark.costly
def test_all_three_when_replaced_one_by_one_then_nothing_is_lost() -> None:
    cluster = Cluster(3, spare=3)
    cluster.wait_leader()
    for old, new in (("n0", "n3"), ("n1", "n4"), ("n2", "n5")):
        proposes(cluster, f"before {new}".encode())
        cluster.joins(new)
        cluster.leaves(old)
        cluster.run_until(lambda old=old: cluster.cores[old].node.is_removed)  # type: ignore[misc]  # bound here
        cluster.crash(old)
    proposes(cluster, b"after")
    for name in ("n3", "n4", "n5"):
        assert [r for r in cluster.applied[name] if r] == [
            b"before n3",
            b"before n4",
            b"before n5",
            b"after",
        ]
    # Also from the disks alone: their files name the founders, the log knows better.
    for name in ("n3", "n4", "n5"):
        cluster.crash(name)
    for name in ("n3", "n4", "n5"):
        cluster.start(name, wait=False)
    cluster.wait_leader()
    proposes(cluster, b"restarted")


def test_node_when_removed_and_added_again_with_its_store_then_it_votes_again() -> None:
    cluster = Cluster(3)
    leader = cluster.wait_leader()
    gone = next(one for one in cluster.members if one != leader)
    cluster.leaves(gone)
    cluster.run_until(lambda: cluster.cores[gone].node.is_removed)
    cluster.crash(gone)
    proposes(cluster, b"without")
    cluster.joins(gone)
    assert b"without" in cluster.applied[gone]


# -- what is refused -------------------------------------------------------------------------------


def refused(cluster: Cluster, member: Member, *, joins: bool, at: str | None = None) -> str:
    change = cluster.change(member, joins=joins, at=at)
    cluster.run_until(lambda: change.answer is not None)
    assert change.answer
    return change.answer


def test_change_when_another_is_under_way_then_refused() -> None:
    """Two at a time need not share a node: two groups could both decide."""
    cluster = Cluster(3, spare=2)
    leader = cluster.wait_leader()
    others = [one for one in cluster.members if one != leader]
    for other in others:
        cluster.cut(leader, other)  # nothing more is committed
    cluster.change(node("n3"), joins=True, at=leader)
    cluster.run(5)
    assert refused(cluster, node("n4"), joins=True, at=leader) == membership.UNDER_WAY


def test_change_when_asked_of_a_follower_then_refused() -> None:
    cluster = Cluster(3)
    leader = cluster.wait_leader()
    other = next(one for one in cluster.members if one != leader)
    assert refused(cluster, AWAY, joins=True, at=other) == membership.NOT_LEADER


def test_change_when_the_leader_has_committed_nothing_of_its_term_then_refused() -> None:
    """The mistake of the first version of single-server changes (2015)."""
    cluster = Cluster(3)
    leader = cluster.wait_leader()
    cluster.cores[leader].node.ready = False
    assert refused(cluster, AWAY, joins=True, at=leader) == membership.NOT_LEADER


def test_removal_when_those_who_stay_could_decide_nothing_then_refused() -> None:
    """The group would take the change, and never anything else."""
    cluster = Cluster(3)
    leader = cluster.wait_leader()
    dead, living = (one for one in cluster.members if one != leader)
    cluster.crash(dead)
    cluster.run(1_000)
    reason = refused(cluster, node(living), joins=False)
    assert f"only {leader} answers" in reason
    proposes(cluster, b"as before")
    cluster.leaves(dead)  # which is what the operator wanted
    proposes(cluster, b"two")


def test_change_when_it_makes_no_sense_then_refused() -> None:
    cluster = Cluster(1, spare=1)
    cluster.wait_leader()
    assert "last member" in refused(cluster, node("n0"), joins=False)
    assert "is a member at" in refused(cluster, Member("n0", "elsewhere", PORT), joins=True)
    assert "address of another" in refused(cluster, Member("n1", "n0", PORT), joins=True)


@pytest.mark.costly
def test_change_when_it_is_so_already_then_done() -> None:
    cluster = Cluster(3, spare=1)
    cluster.joins("n3")
    proposes(cluster, b"settled")
    index = cluster.cores["n3"].node.log.last_index
    for member, joins in ((node("n3"), True), (AWAY, False)):
        change = cluster.change(member, joins=joins)
        cluster.run_until(lambda change=change: change.answer is not None)  # type: ignore[misc]  # bound here
        assert change.answer == ""
    assert cluster.cores["n3"].node.log.last_index == index


# -- what goes wrong meanwhile ---------------------------------------------------------------------


def test_change_when_its_leader_is_cut_off_then_taken_back() -> None:
    """A change that was not committed is cut like any other entry, and the group of before counts."""
    cluster = Cluster(3, spare=1)
    leader = cluster.wait_leader()
    cluster.isolate(leader)
    change = cluster.change(node("n3"), joins=True, at=leader)
    cluster.run(20)
    assert cluster.cores[leader].node.members == ("n0", "n1", "n2", "n3")
    cluster.run_until(lambda: cluster.leader() not in (None, leader))
    proposes_without = cluster.leader()
    assert proposes_without is not None
    cluster.propose(b"meanwhile")
    cluster.run(500)
    cluster.heal()
    cluster.run_until(lambda: b"meanwhile" in cluster.applied[leader])
    assert change.answer == membership.LOST
    assert cluster.cores[leader].node.members == ("n0", "n1", "n2")


def test_snapshot_when_saved_during_a_change_then_it_names_the_group_of_its_entry() -> None:
    """Cut later, the change would come back with the next start, and another majority decide."""
    cluster = Cluster(3, snapshot_every=5)
    leader = cluster.wait_leader()
    behind, other = (one for one in cluster.members if one != leader)
    cluster.propose(b"1", b"2", b"3")
    cluster.run(100)
    core = cluster.cores[behind].node
    term, last = core.term, core.commit_index
    assert last == 4
    cluster.isolate(behind)
    cluster.propose(b"fifth")
    cluster.run_until(lambda: b"fifth" in cluster.applied[other])
    # What its leader had sent it as well, and then lost with its power.
    alone = encode_members(core.group.without(other))
    sent = (Entry(last + 1, term, b"fifth"), Entry(last + 2, term, alone))
    request = AppendRequest(term, leader, last, term, sent, last + 1, 10**6)
    cluster.give(behind, ev.Received(request))
    cluster.run_until(lambda: cluster.lives[behind].node.snapshots.meta.last_index == last + 1)
    assert core.group_uncommitted
    assert other not in core.voters
    cluster.crash(leader, power=True)
    cluster.start(leader)
    cluster.wait_leader()
    cluster.heal()
    proposes(cluster, b"without the change")
    assert core.voters == cluster.members
    cluster.crash(behind)
    cluster.start(behind)
    assert cluster.cores[behind].node.voters == cluster.members


def test_node_when_only_it_has_its_removal_then_it_stands_and_commits_it() -> None:
    """Nobody else could win, for its log is longer: without it the group has no leader any more."""
    cluster = Cluster(4)
    leader = cluster.wait_leader()
    cluster.run(300)
    *stay, leaves = (one for one in cluster.members if one != leader)
    for one in stay:
        cluster.cut(leader, one)
    cluster.change(node(leaves), joins=False, at=leader)
    cluster.run_until(lambda: leaves not in cluster.cores[leaves].node.voters, 100)
    cluster.run(20)
    assert cluster.cores[leaves].node.group_uncommitted
    cluster.crash(leader)
    cluster.heal()
    cluster.run_until(lambda: cluster.leader() in stay)
    assert cluster.cores[leaves].node.is_removed
    assert any(line.split()[1:3] == [leaves, "leader"] for line in cluster.lines)
    proposes(cluster, b"without it")


@pytest.mark.costly
def test_leader_when_unknown_to_a_node_that_lagged_then_followed() -> None:
    """n0 sleeps through all of it, and wakes in a group whose leader it has never heard of."""
    cluster = Cluster(3, spare=2)
    cluster.wait_leader()
    sleeper = next(one for one in cluster.members if one != cluster.leader())
    cluster.crash(sleeper)
    cluster.joins("n3")
    cluster.joins("n4")
    for name in [one for one in cluster.members if one != sleeper]:
        cluster.run_until(lambda: cluster.leader() is not None)
        cluster.leaves(name)
        cluster.run_until(lambda name=name: cluster.cores[name].node.is_removed)  # type: ignore[misc]  # bound here
        cluster.crash(name)
    assert cluster.wait_leader() in ("n3", "n4")
    cluster.start(sleeper)
    proposes(cluster, b"awake")
    assert b"awake" in cluster.applied[sleeper]
    assert cluster.cores[sleeper].node.members == tuple(sorted((sleeper, "n3", "n4")))


def test_lease_when_the_group_changes_then_asked_for_again() -> None:
    """What old voters have answered says little of what new ones will."""
    cluster = Cluster(3, spare=1)
    leader = cluster.wait_leader()
    cluster.run(500)
    core = cluster.cores[leader]
    clock = cluster.lives[leader].clock
    assert core.lease_valid(clock.now_ms())
    for other in cluster.members:
        if other != leader:
            cluster.cut(other, leader)  # nobody's answer arrives
    cluster.change(node("n3"), joins=True, at=leader)
    cluster.run(1)
    assert not core.lease_valid(clock.now_ms())


def test_store_when_its_log_names_the_group_then_the_file_may_name_another() -> None:
    """Operators add a node to the file when it has joined: the store's founders are fewer."""
    cluster = Cluster(3, spare=1)
    cluster.wait_leader()
    cluster.joins("n3")
    cluster.members = cluster.names
    cluster.crash("n0")
    cluster.start("n0")
    proposes(cluster, b"four")
    assert b"four" in cluster.applied["n0"]


@pytest.mark.parametrize("snapshot_every", [0, 5], ids=["by the log", "by the snapshot"])
def test_damaged_store_when_the_group_has_grown_from_one_then_it_is_caught_up(
    snapshot_every: int,
) -> None:
    """Its file names it alone. It refused to start, and once emptied it voted at once."""
    settings = RaftSettings(trailing_entries=0)
    cluster = Cluster(1, spare=2, snapshot_every=snapshot_every, settings=settings)
    cluster.wait_leader()
    cluster.joins("n1")
    cluster.joins("n2")
    for number in range(12):
        proposes(cluster, b"r%d" % number)
    cluster.crash("n0")
    damage_last_frame(cluster, "n0")
    cluster.start("n0")
    assert cluster.cores["n0"].node.standing.kind == RECOVERING
    cluster.run_until(lambda: cluster.cores["n0"].node.standing.kind == VOTER)
    proposes(cluster, b"after")
    assert b"after" in cluster.applied["n0"]


def test_damaged_store_when_the_group_has_shrunk_to_one_then_it_is_refused() -> None:
    """Its file names three. It was set aside, and waited for ever for somebody to catch it up."""
    cluster = Cluster(3)
    stays = cluster.wait_leader()
    cluster.run(300)
    for gone in (one for one in cluster.members if one != stays):
        cluster.leaves(gone)
        cluster.run_until(lambda gone=gone: cluster.cores[gone].node.is_removed)  # type: ignore[misc]  # bound here
        cluster.crash(gone)
    proposes(cluster, b"alone")
    cluster.crash(stays)
    damage_last_frame(cluster, stays)
    before = {path for path in cluster.disks[stays].files if path.endswith(".wal")}
    with pytest.raises(StoreCorrupted, match="the last frame is damaged"):
        cluster.start(stays)
    assert {path for path in cluster.disks[stays].files if path.endswith(".wal")} == before
    cluster.lives.clear()
    cluster.errors.clear()
