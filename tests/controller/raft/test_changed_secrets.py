"""``raftSecret`` comes, changes and goes while the group works: one node at a time, docs/SECURITY.md."""

from __future__ import annotations

import pytest

from rmqha.base.errors import ConfigInvalid
from rmqha.base.proofs import Secrets, check_secrets
from rmqha.controller.raft import hello as greeting
from rmqha.controller.raft import messages as m
from rmqha.controller.raft.hello import Proofs
from rmqha.remoting.codes import ResponseCode
from tests.controller.raft.cluster import Cluster
from tests.controller.raft.test_strangers import Stranger, group

OLD, NEW, WRONG = "a secret of the group", "another one of the group", "a guess of 20 letters"
NONE = Secrets()
COMES = (NONE, Secrets(OLD, is_optional=True), Secrets(OLD))
CHANGES = (Secrets(OLD), Secrets(OLD, NEW), Secrets(NEW, OLD), Secrets(NEW))
GOES = COMES[::-1]


def begun(secrets: Secrets) -> Cluster:
    """Three nodes that lead and decide."""
    cluster = Cluster(3, lazy=True)
    cluster.secrets = dict.fromkeys(cluster.members, secrets)
    for one in cluster.members:
        cluster.start(one, wait=False)
    cluster.wait_leader()
    cluster.run(300)
    return cluster


def decided(cluster: Cluster, record: bytes, by: list[str]) -> None:
    """The group decides this, and these nodes hear of it."""
    cluster.wait_leader()
    cluster.propose(record)
    cluster.run_until(lambda: all(record in cluster.applied[one] for one in by), 3_000)


def are_linked(cluster: Cluster) -> bool:
    """Each node has a proven connection to each other."""
    return all(len(one.node.peers.connected()) == 2 for one in cluster.lives.values())


@pytest.mark.parametrize("course", [COMES, CHANGES, GOES], ids=["comes", "changes", "goes"])
def test_secret_when_it_is_rolled_through_then_a_majority_decides_at_every_moment(
    course: tuple[Secrets, ...],
) -> None:
    """Each node is restarted alone, and then hears the others and is heard; nobody refuses anybody."""
    cluster = begun(course[0])
    for stage, secrets in enumerate(course[1:], 1):
        for one in cluster.members:
            cluster.crash(one)
            decided(cluster, b"%d without %s" % (stage, one.encode()),
                    [other for other in cluster.members if other != one])  # fmt: skip
            cluster.secrets = {**cluster.secrets, one: secrets}
            cluster.start(one)
            decided(cluster, b"%d with %s" % (stage, one.encode()), cluster.members)
            cluster.run_until(lambda: are_linked(cluster), 3_000)
    assert not [line for line in cluster.lines if "refused" in line]


@pytest.mark.parametrize(
    ("course", "unproven"), [(COMES[1:], False), (CHANGES, False), (COMES[:2], True)]
)
def test_secret_when_every_node_proves_one_then_nobody_is_counted_as_unproven(
    course: tuple[Secrets, ...], unproven: bool
) -> None:
    """By the count an operator sees that a secret may be demanded now."""
    cluster = begun(course[0])
    one = cluster.members[0]
    cluster.crash(one)
    cluster.secrets = {**cluster.secrets, one: course[1]}
    cluster.start(one)
    decided(cluster, b"again", cluster.members)
    counts = [life.node.peers.unproven for life in cluster.lives.values()]
    assert any(counts) is unproven
    assert any("raft_peer_unproven" in line for line in cluster.lines) is unproven


@pytest.mark.parametrize(
    "secrets", [Secrets(OLD, NEW), Secrets(OLD, is_optional=True)], ids=["two", "optional"]
)
def test_proof_when_it_is_of_a_third_secret_then_it_is_refused_in_a_transition_as_well(
    secrets: Secrets,
) -> None:
    """Who has a secret, and the wrong one, is a stranger or a typing error."""
    cluster = begun(secrets)
    leader = cluster.wait_leader()
    other, third = (one for one in cluster.members if one != leader)
    stranger = Stranger(cluster, other)
    stranger.hello(third)
    answered, shown = greeting.unpack_answer(stranger.answers[0].body)
    proofs = Proofs(WRONG, "group", third, other, bytes(16), answered)
    assert not proofs.prove_listener(shown, Secrets(WRONG))
    stranger.hello(third, proof=proofs.of_dialler())
    assert stranger.answers[1].code == ResponseCode.NO_PERMISSION
    assert stranger.closed


@pytest.mark.parametrize(
    ("secrets", "listens"), [(Secrets(OLD, NEW), False), (Secrets(OLD, is_optional=True), True)]
)
def test_frame_when_its_sender_proved_nothing_then_it_is_taken_only_where_proof_is_optional(
    secrets: Secrets, listens: bool
) -> None:
    """A second secret opens nothing; that proof is optional is said each time it counts."""
    cluster = begun(secrets)
    leader = cluster.wait_leader()
    other, third = (one for one in cluster.members if one != leader)
    stranger = Stranger(cluster, other)
    stranger.hello(third)
    stranger.raft(m.VoteRequest(1, third, 0, 0, True))
    assert stranger.closed is not listens
    assert cluster.lives[other].node.peers.unproven == listens


def test_node_when_it_has_another_secret_while_proof_is_optional_then_it_takes_no_part() -> None:
    """It is not taken for one that has none."""
    cluster, leader, other, third = group(n0=OLD, n1=OLD, n2=OLD)
    del leader, other, third
    for one in cluster.members:
        cluster.crash(one)
    optional = Secrets(OLD, is_optional=True)
    cluster.secrets = {"n0": optional, "n1": optional, "n2": Secrets(WRONG, is_optional=True)}
    for one in cluster.members:
        cluster.start(one, wait=False)
    decided(cluster, b"two are enough", ["n0", "n1"])
    cluster.run(1_000)
    assert b"two are enough" not in cluster.applied["n2"]
    assert any("does not know the raftSecret" in line for line in cluster.lines)


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"raftSecret": "short"}, "raftSecret must have 16"),
        ({"raftSecret": OLD, "raftSecretAccepted": "short"}, "raftSecretAccepted must have 16"),
        ({"raftSecretAccepted": NEW}, "raftSecretAccepted needs raftSecret"),
        ({"raftProofOptional": "true"}, "raftProofOptional=true needs raftSecret"),
    ],
)
def test_keys_when_they_say_nothing_together_then_they_are_refused(
    keys: dict[str, str], says: str
) -> None:
    """A transition that is none would be found out when the next node is restarted."""
    values = {"raftSecret": "", "raftSecretAccepted": "", "raftProofOptional": "false", **keys}
    with pytest.raises(ConfigInvalid, match=says):
        check_secrets(values, "raft")


def test_keys_when_read_then_they_are_what_a_node_goes_by() -> None:
    values = {"raftSecret": OLD, "raftSecretAccepted": NEW, "raftProofOptional": "TRUE"}
    check_secrets(values, "raft")
    assert Secrets.of(values, "raft") == Secrets(OLD, NEW, is_optional=True)
    assert Secrets(OLD, NEW).accepted == (OLD, NEW)
