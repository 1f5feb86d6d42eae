"""Seeds in which controllers join and leave, and bugs in that, which the seeds must find."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from rmqha.base.errors import InvariantBroken
from rmqha.controller.aio.peers import Peers
from rmqha.controller.raft import membership
from rmqha.controller.raft.hello import Hello
from rmqha.controller.raft.members import Member, Members
from rmqha.sim.members_swarm import make_members_swarm, missing_happenings, run_members_seed

pytestmark = [pytest.mark.slow, pytest.mark.sim]

SEEDS = 40
# 208: a removed node went on naming the leader of before to brokers; 374: a node whose log held its
# leader's removal, not committed, refused that leader; 62, 109: a node outside of its group dialled itself.
REGRESSIONS = (62, 109, 208, 374)

Patch = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.timeout(300)
def test_members_when_they_change_among_faults_then_no_property_breaks() -> None:
    """And everything that a change can come to has happened."""
    counts: Counter[str] = Counter()
    for seed in range(1, SEEDS + 1):
        counts.update(run_members_seed(seed).counts)
    swarm = make_members_swarm(1)
    swarm.cluster.close()
    assert missing_happenings(counts, swarm.kinds) == []


@pytest.mark.parametrize("seed", REGRESSIONS)
def test_seeds_that_once_failed_pass(seed: int) -> None:
    run_members_seed(seed)


def two_changes_at_a_time(patch: pytest.MonkeyPatch) -> None:
    """A leader begins a change while another is not committed."""
    patch.setattr(membership, "_may_begin", lambda node: node.ready and not node.transfer_target)


def who_joins_votes_at_once(patch: pytest.MonkeyPatch) -> None:
    """An empty node is part of majorities: it cannot acknowledge, and is not readmitted."""
    joined_by = Members.joined_by

    def with_vote(self: Members, member: Member) -> Members:
        return joined_by(self, Member(member.id, member.host, member.port))

    patch.setattr(Members, "joined_by", with_vote)


def strangers_are_refused(patch: pytest.MonkeyPatch) -> None:
    """A node that slept through changes lets nobody in whom it does not know."""
    check = Peers._check_hello

    def strict(self: Peers, hello: Hello) -> None:
        check(self, Hello(hello.version, hello.group, hello.node, hello.challenge, hello.proof))

    patch.setattr(Peers, "_check_hello", strict)


MUTANTS: tuple[tuple[Patch, int, str], ...] = (
    (two_changes_at_a_time, 8, "a leader was elected without all committed entries"),
    (who_joins_votes_at_once, 1, "the cluster did not recover"),
    (strangers_are_refused, 18, "no leader although a quorum can talk through one node"),
)


@pytest.mark.turns(3)
@pytest.mark.parametrize(
    ("patch", "seed", "rule"), MUTANTS, ids=lambda one: getattr(one, "__name__", "")
)
def test_seed_when_a_rule_of_changes_is_missing_then_found_by_what_it_breaks(
    monkeypatch: pytest.MonkeyPatch, patch: Patch, seed: int, rule: str
) -> None:
    """The same seed passes with the rule."""
    with monkeypatch.context() as patched:
        patch(patched)
        with pytest.raises(InvariantBroken, match=rule):
            run_members_seed(seed)
    run_members_seed(seed)
