"""Who may vote: founding a group, and coming back with a damaged or an empty store."""

from __future__ import annotations

import orjson
import pytest

from rmqha.base.errors import StoreMismatch
from rmqha.base.machine import Note, Ticked
from rmqha.controller.raft import events as ev
from rmqha.controller.raft import wal_layout as layout
from rmqha.controller.raft.core import RaftCore
from rmqha.controller.raft.events import HardState, Standing
from rmqha.controller.raft.messages import (
    AppendRequest,
    Entry,
    PreVoteRequest,
    Readmitted,
    StandingTold,
)
from rmqha.controller.raft.settings import RaftSettings
from rmqha.controller.raft.standing import standing_found
from rmqha.controller.view import controller_view
from rmqha.sim.disk import SimFile
from rmqha.verify.raft import RaftWatch
from tests.controller.raft.cluster import STORE, Cluster


def standing(cluster: Cluster, name: str) -> str:
    return cluster.cores[name].node.standing.kind


def settle(cluster: Cluster) -> str:
    """A leader that has what it needs, and everybody in step."""
    leader = cluster.wait_leader()
    cluster.run(300)
    return leader


def forget_one_commit(cluster: Cluster) -> tuple[str, str, str]:
    """Commit a record on two nodes only; returns (leader, the other that has it, who has not)."""
    leader = settle(cluster)
    has, lacks = (one for one in cluster.members if one != leader)
    cluster.isolate(lacks)
    cluster.propose(b"precious")
    cluster.run_until(lambda: b"precious" in cluster.applied[leader])
    cluster.run(20)
    return leader, has, lacks


def damage_last_frame(cluster: Cluster, name: str) -> None:
    """Turn a bit of the last frame that the node's disk holds durably."""
    path = max(p for p in cluster.disks[name].files if p.endswith(".wal"))
    file = cluster.disks[name].files[path]
    assert isinstance(file, SimFile)
    content = bytearray(file.durable)
    content[content.rindex(layout.WAL_MAGIC) + layout.ALIGNMENT + 3] ^= 0x10
    file.durable = bytes(content)


def empty_store(cluster: Cluster, name: str) -> None:
    cluster.wipe(name)


@pytest.mark.parametrize("count", [1, 3, 5])
def test_new_group_when_all_members_are_there_then_it_leads_at_once(count: int) -> None:
    """The first start of a controller group is a matter of a few round trips."""
    cluster = Cluster(count)
    cluster.wait_leader(400)
    cluster.run(100)
    founders = {core.node.standing.founders for core in cluster.cores.values()}
    assert [standing(cluster, one) for one in cluster.members] == ["voter"] * count
    assert len(founders) == 1
    assert [node for node, _ in founders.pop()] == list(cluster.members)


def test_new_group_when_one_member_is_missing_then_it_waits_and_says_for_whom() -> None:
    """Two empty stores cannot know whether the third one holds everything."""
    cluster = Cluster(3, lazy=True)
    cluster.start("n0")
    cluster.start("n2")
    cluster.run(8_000)
    assert cluster.leader() is None
    assert any("raft_group_not_founded" in line and "['n1']" in line for line in cluster.lines)
    cluster.start("n1")
    cluster.wait_leader(1_000)


@pytest.mark.costly
@pytest.mark.parametrize("lose", [damage_last_frame, empty_store])
def test_store_when_it_has_lost_a_commit_then_its_node_elects_nobody_without_it(lose) -> None:  # type: ignore[no-untyped-def]  # two functions above
    """A vote of a node that has forgotten makes a leader that lacks what was committed (C2, C3)."""
    for seed in range(3):
        cluster = Cluster(3, seed=seed)
        leader, has, lacks = forget_one_commit(cluster)
        for one in (leader, has):
            cluster.crash(one)
        lose(cluster, has)
        cluster.heal()
        cluster.start(has)
        cluster.run(5_000)
        assert cluster.leader() is None, f"{cluster.leader()} leads without the record"
        assert standing(cluster, has) == "recovering"
        cluster.start(leader)
        assert cluster.wait_leader() == leader
        cluster.run_until(lambda c=cluster, h=has: standing(c, h) == "voter", 2_000)  # type: ignore[misc]  # its defaults
        cluster.run_until(lambda c=cluster, h=has: b"precious" in c.applied[h])  # type: ignore[misc]
        cluster.crash(leader)
        cluster.wait_leader()
        cluster.run(200)
        assert b"precious" in cluster.applied[lacks]


def test_recovering_node_when_a_majority_holds_all_without_it_then_it_is_filled_and_votes() -> None:
    """An operator who puts a new disk in has nothing else to do."""
    settings = RaftSettings(trailing_entries=2, snapshot_chunk_bytes=64)
    cluster = Cluster(3, settings=settings, snapshot_every=10)
    leader = settle(cluster)
    empty = next(one for one in cluster.members if one != leader)
    cluster.crash(empty)
    for number in range(60):
        cluster.propose(b"r%d" % number)
        cluster.run(10)
    cluster.wipe(empty)
    cluster.start(empty)
    cluster.run_until(lambda: standing(cluster, empty) == "voter", 2_000)
    assert cluster.leader() == leader
    cluster.run(100)
    assert cluster.applied[empty] == cluster.applied[leader]
    cluster.crash(empty, power=True)
    cluster.start(empty)
    assert standing(cluster, empty) == "voter", "it has forgotten that it was readmitted"


def test_recovering_node_when_its_help_is_needed_then_nothing_commits() -> None:
    """It holds what a leader sends, but its word counts for nothing before it is readmitted."""
    cluster = Cluster(3)
    leader = settle(cluster)
    empty, other = (one for one in cluster.members if one != leader)
    cluster.crash(empty)
    cluster.wipe(empty)
    cluster.crash(other)
    cluster.start(empty)
    cluster.propose(b"alone")
    cluster.run(60)
    committed = cluster.cores[leader].node.commit_index
    cluster.run(2_000)
    assert standing(cluster, empty) == "recovering"
    assert cluster.leader() is None
    assert cluster.cores[leader].node.commit_index == committed
    cluster.start(other)
    cluster.run_until(lambda: standing(cluster, empty) == "voter", 3_000)


def test_majority_when_it_is_emptied_at_once_then_it_does_not_found_another_group() -> None:
    """Two new stores beside an old one are no new group: that would forget all it has."""
    cluster = Cluster(3)
    leader = settle(cluster)
    emptied = [one for one in cluster.members if one != leader]
    for one in emptied:
        cluster.crash(one)
        cluster.wipe(one)
    for one in emptied:
        cluster.start(one)
    cluster.run(3_000)
    assert [standing(cluster, one) for one in emptied] == ["recovering"] * 2
    assert cluster.leader() is None


def test_group_when_all_stores_are_emptied_then_it_is_founded_anew() -> None:
    """An operator may begin again."""
    cluster = Cluster(3)
    settle(cluster)
    for one in cluster.members:
        cluster.crash(one)
        cluster.wipe(one)
    cluster.watch = RaftWatch()
    for one in cluster.members:
        cluster.start(one, wait=False)
    cluster.wait_leader(1_000)


def test_store_of_an_older_release_when_opened_then_it_votes_and_an_emptied_one_does_not() -> None:
    """Format 1 has no standings: such a store is a voter's."""
    cluster = Cluster(3, lazy=True)
    for one in cluster.members:
        cluster.disks[one].files[f"{STORE}/{1:020d}.wal"] = old_segment(one)
    for one in ("n0", "n1"):
        cluster.start(one, wait=False)
    cluster.wait_leader(2_000)
    cluster.run(100)
    assert cluster.applied["n0"][:2] == [b"old 1", b"old 2"]
    cluster.wipe("n2")
    cluster.start("n2")
    cluster.run_until(lambda: "recovering" in "".join(cluster.lines), 1_000)
    cluster.run_until(lambda: standing(cluster, "n2") == "voter", 2_000)


def old_segment(name: str) -> SimFile:
    """A segment as format 1 wrote it, with two entries of term 3."""
    records: list[layout.Record] = [(layout.OPEN, 1, "group", name, 0, None)]
    second: list[layout.Record] = [
        (layout.HARD, 3, "n0"),
        (layout.ENTRY, 1, 3, b"old 1"),
        (layout.ENTRY, 2, 3, b"old 2"),
    ]
    file = SimFile()
    for seq, content in enumerate((records, second), 1):
        payload = layout.encode_records(content)
        file.durable += layout.encode_frame(layout.WAL_MAGIC_1, seq, payload)
    return file


def test_store_when_opened_by_another_group_of_members_then_it_is_refused() -> None:
    """A list of peers with a mistake in it would let a node lead itself with the group's log."""
    cluster = Cluster(3)
    settle(cluster)
    cluster.crash("n0")
    cluster.members = ("n0", "n1")
    with pytest.raises(StoreMismatch, match=r"group of n0, n1, n2, but the configuration names n0"):
        cluster.start("n0")


def test_readmitted_node_when_its_disk_is_slow_then_it_is_called_a_voter_once_written() -> None:
    """An operator empties the next store when this one votes: a crash must not undo that."""
    founders = (("n0", "a"), ("n1", "b"), ("n2", "c"))
    recovering = HardState(3, None, Standing("recovering", "new-a", founders))
    core = RaftCore(
        node_id="n0", members=("n0", "n1", "n2"), settings=RaftSettings(), hard_state=recovering
    )
    core.step(0, ev.Received(AppendRequest(3, "n1", 0, 0, (), 0, 1)))
    effects = core.step(1, ev.Received(Readmitted(3, "n1", "new-a", ())))
    (persist,) = (one for one in effects if isinstance(one, ev.Persist))
    assert not [one for one in effects if isinstance(one, Note)]
    assert (core.node.may_vote, core.node.standing_on_disk) == (True, "recovering")
    view = orjson.loads(b"".join(controller_view("group", core.node, core.leader_id, 0, {})))
    assert (view["mayVote"], view["standing"]) == (False, "recovering")
    assert core.step(2, ev.Persisted(persist.seq - 1)) == []  # what was written before it
    assert core.node.standing_on_disk == "recovering"
    (note,) = (one for one in core.step(3, ev.Persisted(persist.seq)) if isinstance(one, Note))
    assert note.event == "raft_standing_changed"
    assert note.facts == {"before": "recovering", "now": "voter"}
    assert core.node.standing_on_disk == "voter"


def test_answer_when_it_belongs_to_an_earlier_round_then_it_founds_nothing() -> None:
    """Who said so before may have worked with others, and been emptied, since."""
    members = ("n0", "n1", "n2")
    own = Standing("new", "a")
    core = RaftCore(
        node_id="n0", members=members, settings=RaftSettings(), hard_state=HardState(0, None, own)
    )

    def told(sender: str, store_id: str, answers: int) -> None:
        core.step(1, ev.Received(StandingTold(0, sender, "new", store_id, (), 0, answers)))

    core.step(0, Ticked())
    told("n1", "b", 1)
    told("n2", "c", 1)  # all are known now: a second round begins
    told("n1", "b", 1)
    told("n2", "c", 1)
    assert core.node.standing == own
    told("n1", "b", 2)
    told("n2", "d", 2)  # another store than was known when the round began
    assert core.node.standing == own
    told("n2", "c", 2)
    assert core.node.standing == Standing("voter", "a", (("n0", "a"), ("n1", "b"), ("n2", "c")))


def test_answer_when_it_was_asked_for_before_the_first_round_then_it_founds_nothing() -> None:
    """It says what its sender was before the round began, and may have founded a group since."""
    members = ("n0", "n1", "n2")
    own = Standing("new", "a")
    core = RaftCore(
        node_id="n0", members=members, settings=RaftSettings(), hard_state=HardState(0, None, own)
    )

    def told(sender: str, store_id: str, answers: int) -> None:
        core.step(1, ev.Received(StandingTold(0, sender, "new", store_id, (), 0, answers)))

    # The last words of a voter whose store is new now: it is asked, outside of any round.
    (asked,) = core.step(0, ev.Received(PreVoteRequest(2, "n1", 1, 1)))
    assert isinstance(asked, ev.Send)
    assert isinstance(asked.message, StandingTold)
    before = asked.message.round
    told("n1", "b", 0)
    told("n2", "c", 0)  # all are known now: a round begins
    told("n1", "b", before)
    told("n2", "c", core.node.standing_round)
    assert core.node.standing == own
    told("n1", "b", core.node.standing_round)
    assert core.node.standing.kind == "voter"


FRESH = Standing("new", "fresh")
UNKNOWN = Standing("voter", "", (("n0", ""),))
OWN = Standing("recovering", "own")
SEGMENT = layout.Segment("1.wal", 0)


@pytest.mark.parametrize(
    ("found", "snapshot_index", "wanted"),
    [
        (layout.Recovered(), 0, FRESH),
        (layout.Recovered(HardState(0, None, OWN), segments=[SEGMENT]), 0, OWN),
        (layout.Recovered(HardState(3, "n1", OWN), segments=[SEGMENT]), 9, OWN),
        (layout.Recovered(HardState(0), segments=[SEGMENT]), 0, FRESH),
        (layout.Recovered(HardState(1), segments=[SEGMENT]), 0, UNKNOWN),
        (layout.Recovered(HardState(0), segments=[SEGMENT]), 1, UNKNOWN),
        (layout.Recovered(HardState(0), base=(1, 1), segments=[SEGMENT]), 0, UNKNOWN),
        (
            layout.Recovered(HardState(0), entries=[Entry(1, 1, b"")], segments=[SEGMENT]),
            0,
            UNKNOWN,
        ),
    ],
)
def test_standing_when_a_store_is_opened_then_new_only_if_nothing_ever_counted_on_it(
    found: layout.Recovered, snapshot_index: int, wanted: Standing
) -> None:
    """Taken for a voter, an unused store keeps its group from being founded; a used one taken for
    new forgets what it promised."""
    assert standing_found(found, snapshot_index, FRESH, UNKNOWN) == wanted
