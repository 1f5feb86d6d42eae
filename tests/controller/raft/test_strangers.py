"""What somebody who reaches the port can do to a group, and what the secret takes from him."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from rmqha.base.ids import ConnectionId
from rmqha.controller.raft import hello as greeting
from rmqha.controller.raft import messages as m
from rmqha.controller.raft.hello import Hello, Proofs
from rmqha.controller.raft.members import MEMBERS_MAX, Member
from rmqha.controller.raft.settings import RaftSettings
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import FLAG_ONEWAY, RemotingCommand
from rmqha.remoting.settings import RemotingSettings
from rmqha.sim.clock import SimClock
from rmqha.sim.loop import HOST
from tests.controller.raft.cluster import PORT, Cluster

SECRET = "a secret of the group"
STRANGER = "10.0.0.99"


class Stranger:
    """A connection to a node's port, made by hand."""

    def __init__(self, cluster: Cluster, to: str) -> None:
        self.cluster = cluster
        self.answers: list[RemotingCommand] = []
        self.closed = False
        context = cluster.lives[to].context.copy()
        context.run(HOST.set, STRANGER)
        network = cluster.net.boot(STRANGER, context)
        self.connection = Connection(
            ConnectionId(10**6),
            SimClock(cluster.loop),
            RemotingSettings(),
            on_commands=lambda _, commands: self.answers.extend(commands),
            on_closed=self._ended,
        )
        dial = network.connect(to, PORT, lambda: self.connection, timeout_ms=500)
        cluster.loop.run_until_complete(cluster.loop.create_task(dial, context=context))

    def _ended(self, connection: Connection, error: Exception | None) -> None:
        self.closed = True

    def say(self, code: int, body: bytes, flag: int = 0) -> None:
        async def send() -> None:
            self.connection.send(RemotingCommand(code, flag=flag, opaque=1, body=body))

        self.cluster.loop.run_until_complete(send())
        self.cluster.run(20)

    def hello(
        self, claims: str, challenge: bytes = bytes(16), proof: bytes = b"", address: str = ""
    ) -> None:
        said = Hello(greeting.PROTOCOL_VERSION, "group", claims, challenge, proof, address)
        self.say(RequestCode.RAFT_HELLO, greeting.pack_hello(said))

    def guest(self, number: int) -> int:
        """Say that a node of a newer group listens at a port of ours; returns the answer's code."""
        self.hello(f"x{number}", address=f"{STRANGER}:{number}")
        return self.answers[-1].code

    def leave(self) -> None:
        self.connection.close()
        self.cluster.run(100)

    def raft(self, message: Any) -> None:
        body = message if isinstance(message, bytes) else m.encode_message(message)
        self.say(RequestCode.RAFT_MESSAGE, body, FLAG_ONEWAY)


def group(**secrets: str) -> tuple[Cluster, str, str, str]:
    cluster = Cluster(3, lazy=True)
    cluster.secrets = secrets
    for one in cluster.members:
        cluster.start(one, wait=False)
    leader = cluster.wait_leader()
    cluster.run(300)
    other, third = (one for one in cluster.members if one != leader)
    return cluster, leader, other, third


def leads_on(cluster: Cluster, leader: str) -> None:
    """The group decides as before, and would after a restart of all."""
    cluster.propose(b"after")
    cluster.run(1_000)
    assert all(b"after" in records for records in cluster.applied.values())
    term = cluster.cores[leader].node.term
    assert term < 10
    for one in cluster.members:
        cluster.crash(one)
    for one in cluster.members:
        cluster.start(one, wait=False)
    cluster.wait_leader()


def guests(cluster: Cluster, name: str) -> frozenset[str]:
    """Whom a node believes to know a newer group: its shell and its core think the same."""
    found = cluster.cores[name].node.guests
    peers = cluster.lives[name].node.peers
    assert {*peers._guests} == found == {*peers._links} - {*cluster.members}
    return found


def test_guests_when_strangers_have_gone_then_who_comes_takes_the_place_of_the_first() -> None:
    """Nine hellos without a secret kept every node of a newer group out, until a restart."""
    cluster, leader, other, _ = group()
    for number in range(1, MEMBERS_MAX + 1):
        stranger = Stranger(cluster, other)
        assert stranger.guest(number) == ResponseCode.SUCCESS
        stranger.leave()
    first = cluster.lives[other].node.peers._links["x1"]
    for newer in (100, 101):
        assert Stranger(cluster, other).guest(newer) == ResponseCode.SUCCESS
    assert first.is_over, "nobody dials it any more"
    assert guests(cluster, other) == {"x100", "x101", *(f"x{n}" for n in range(3, 10))}
    leads_on(cluster, leader)


def test_guests_when_all_are_connected_then_nobody_takes_their_place() -> None:
    """Nor does one whose address nobody can dial."""
    cluster, leader, other, _ = group()
    came = [Stranger(cluster, other) for _ in range(MEMBERS_MAX)]
    for number, stranger in enumerate(came, 1):
        assert stranger.guest(number) == ResponseCode.SUCCESS
    late = Stranger(cluster, other)
    assert late.guest(100) == ResponseCode.NO_PERMISSION
    assert late.closed
    came[4].leave()
    nowhere = Stranger(cluster, other)
    nowhere.hello("x100", address="nowhere")
    assert nowhere.closed
    assert guests(cluster, other) == {f"x{n}" for n in range(1, 10)}
    assert Stranger(cluster, other).guest(100) == ResponseCode.SUCCESS
    assert guests(cluster, other) == {"x100", *(f"x{n}" for n in range(1, 10) if n != 5)}
    leads_on(cluster, leader)


@pytest.mark.parametrize(
    "term", [(1 << 64) - 1, 1 << 63, m.TERM_MAX + 1, m.TERM_MAX, m.TERM_JUMP_MAX + 100]
)
def test_vote_request_when_its_term_is_far_ahead_then_the_group_goes_on(term: int) -> None:
    """Two frames without any secret made it durable everywhere: no node ever started again (C5)."""
    cluster, leader, other, third = group()
    stranger = Stranger(cluster, other)
    stranger.hello(third)
    stranger.raft(msgpack.packb([2, term, third, 10**6, term, True]))
    leads_on(cluster, leader)


def test_append_when_an_entry_cannot_be_applied_then_it_is_not_stored() -> None:
    """Once durable and committed it would end every node at every start."""
    cluster, leader, other, _ = group()
    node = cluster.cores[other].node
    stranger = Stranger(cluster, other)
    stranger.hello(leader)
    last, term = node.log.last_index, node.log.last_term
    junk = m.Entry(last + 1, node.term, cluster.poison)
    request = m.AppendRequest(node.term, leader, last, term, (junk,), last + 1, 10**6)
    stranger.raft(request)
    assert stranger.closed
    assert any("raft_frame_refused" in line and "poison" in line for line in cluster.lines)
    assert cluster.poison not in cluster.applied[other]
    leads_on(cluster, leader)


def test_secret_when_all_know_it_then_they_work_together() -> None:
    """Both sides prove it, on each connection, before anything else is said."""
    cluster, leader, *_ = group(n0=SECRET, n1=SECRET, n2=SECRET)
    leads_on(cluster, leader)


@pytest.mark.parametrize("known", ["", "another secret of 20"])
def test_secret_when_one_node_does_not_know_it_then_it_takes_no_part(known: str) -> None:
    """Also the other way round: it is not believed, and believes nobody."""
    cluster = Cluster(3)
    cluster.wait_leader()
    cluster.run(300)
    for one in cluster.members:
        cluster.crash(one)
    cluster.secrets = {"n0": SECRET, "n1": SECRET, "n2": known}
    for one in cluster.members:
        cluster.start(one, wait=False)
    cluster.wait_leader()
    cluster.propose(b"two are enough")
    cluster.run(1_000)
    assert b"two are enough" in cluster.applied["n0"]
    assert b"two are enough" not in cluster.applied["n2"]
    assert cluster.cores["n2"].leader_id is None
    assert any("does not know the raftSecret" in line for line in cluster.lines)


def test_stranger_when_the_group_has_a_secret_then_nothing_he_says_is_looked_at() -> None:
    """A hello is not believed, an answer of the group is no proof of his, nor is a made-up one."""
    cluster, leader, other, third = group(n0=SECRET, n1=SECRET, n2=SECRET)
    before = cluster.cores[other].node.term
    vote = m.VoteRequest(before + 1, third, 10**6, before, True)

    unproven = Stranger(cluster, other)
    unproven.hello(third)
    (answer,) = unproven.answers
    assert answer.code == ResponseCode.SUCCESS
    unproven.raft(vote)
    assert unproven.closed

    mirror = Stranger(cluster, other)
    mirror.hello(third)
    answered, proof = greeting.unpack_answer(mirror.answers[0].body)
    mirror.hello(third, proof=proof)
    assert mirror.answers[1].code == ResponseCode.NO_PERMISSION
    assert mirror.closed

    guesser = Stranger(cluster, other)
    guesser.hello(third)
    answered, _ = greeting.unpack_answer(guesser.answers[0].body)
    wrong = Proofs("a guess of 16 letters", "group", third, other, bytes(16), answered)
    guesser.hello(third, proof=wrong.of_dialler())
    assert guesser.closed

    unasked = Stranger(cluster, other)
    right = Proofs(SECRET, "group", third, other, bytes(16), bytes(16))
    unasked.hello(third, proof=right.of_dialler())
    assert unasked.closed

    assert cluster.cores[other].node.term == before
    leads_on(cluster, leader)


def test_snapshot_when_a_chunk_was_damaged_on_its_way_then_it_is_not_installed() -> None:
    """What became durable was "valid" to its checksum, and no start could load it (C10)."""
    settings = RaftSettings(trailing_entries=0, snapshot_chunk_bytes=64)
    cluster = Cluster(3, settings=settings, snapshot_every=10)
    leader = cluster.wait_leader()
    behind = next(one for one in cluster.members if one != leader)
    cluster.crash(behind)
    for number in range(40):
        cluster.propose(b"r%d" % number)
        cluster.run(10)
    cluster.start(behind, wait=True)
    receive = cluster.lives[behind].node.snapshots.receive
    damaged: list[int] = []

    def damage_once(offset: int, data: bytes) -> None:
        if offset > 0 and not damaged:
            damaged.append(offset)
            data = bytes([data[0] ^ 1]) + data[1:]
        receive(offset, data)

    cluster.lives[behind].node.snapshots.receive = damage_once  # type: ignore[method-assign]  # a fault
    cluster.run_until(lambda: any("snapshot_refused" in line for line in cluster.lines), 3_000)
    cluster.run_until(lambda: cluster.applied[behind] == cluster.applied[leader], 3_000)
    assert damaged


def test_guests_when_the_members_change_then_all_places_are_free_and_nobody_is_one() -> None:
    """Whom the group does not name is not heard any more, however long its connection stays."""
    cluster, _, other, _ = group()
    came = [Stranger(cluster, other) for _ in range(MEMBERS_MAX)]
    for number, stranger in enumerate(came, 1):
        stranger.guest(number)
    change = cluster.change(Member("n9", "nowhere", PORT), joins=True)
    cluster.run_until(lambda: change.answer is not None)
    cluster.run_until(lambda: "n9" in cluster.cores[other].node.members)
    assert Stranger(cluster, other).guest(100) == ResponseCode.SUCCESS
    term = cluster.cores[other].node.term
    assert not came[0].closed
    came[0].raft(m.VoteRequest(term + 1, "x1", 10**6, term, True))
    assert came[0].closed
    assert cluster.cores[other].node.term == term


def test_member_when_it_speaks_as_another_then_it_is_not_heard() -> None:
    """One that has proved who it is could make another one's promises."""
    cluster, leader, other, third = group()
    stranger = Stranger(cluster, other)
    stranger.hello(third)
    term = cluster.cores[other].node.term
    stranger.raft(m.VoteRequest(term + 1, leader, 10**6, term, True))
    assert stranger.closed
    assert any(f"{third} speaks as {leader}" in line for line in cluster.lines)
    assert cluster.cores[other].node.term == term
