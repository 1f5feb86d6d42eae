"""Bugs put in on purpose: the simulator must find each of them, or its silence means nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from rmqha.base.errors import RmqhaError
from rmqha.controller import machine
from rmqha.controller.aio import wal
from rmqha.controller.metadata import apply, decide_elect
from rmqha.controller.metadata.decision import Context
from rmqha.controller.metadata.state import BrokerSet
from rmqha.controller.raft import node, quorum, votes
from rmqha.controller.raft.core import RaftCore
from rmqha.controller.raft.events import Persist
from rmqha.sim.swarm import run_seed

SEEDS_MAX = 80

Patch = Callable[[pytest.MonkeyPatch], None]


def leader_trusts_itself(patch: pytest.MonkeyPatch) -> None:
    """A leader that is cut off renews its own lease and never steps down."""
    honest = RaftCore._tick

    def vain(self: RaftCore, now_ms: int) -> None:
        self.node.quorum_round_ms = now_ms
        self.node.round_started_ms.clear()
        honest(self, now_ms)

    patch.setattr(RaftCore, "_tick", vain)


def acknowledged_before_durable(patch: pytest.MonkeyPatch) -> None:
    """Entries count before their fdatasync (Java's DLedger: up to 10 ms)."""
    append_durably = wal.Wal.append

    def append_and_claim(self: wal.Wal, persist: Persist, *, may_block: bool = False) -> None:
        append_durably(self, persist)
        self._on_durable(persist.seq)

    patch.setattr(wal.Wal, "append", append_and_claim)


def two_votes_a_term(patch: pytest.MonkeyPatch) -> None:
    """A voter says yes to everyone."""
    honest = votes.on_vote_request

    def generous(target: Any, now_ms: int, message: Any) -> None:
        if message.term == target.term and target.role is not node.Role.LEADER:
            target.vote = None
        honest(target, now_ms, message)

    patch.setattr(votes, "on_vote_request", generous)


def one_node_is_a_quorum(patch: pytest.MonkeyPatch) -> None:
    """The leader commits what it alone holds."""
    patch.setattr(node, "reached_by_majority", max)


def old_logs_win_elections(patch: pytest.MonkeyPatch) -> None:
    """Votes do not look at the candidate's log."""
    from rmqha.controller.raft.log import RaftLog

    patch.setattr(RaftLog, "is_up_to_date", lambda self, index, term: True)


def anyone_alive_becomes_master(patch: pytest.MonkeyPatch) -> None:
    """The SyncStateSet is not asked."""
    honest = decide_elect.elect_master

    def loose(state: Any, context: Context, request: Any) -> Any:
        return honest(state, replace(context, enable_elect_unclean_master=True), request)

    patch.setattr(machine, "elect_master", loose)


def epochs_stand_still(patch: pytest.MonkeyPatch) -> None:
    """An election forgets to open a new epoch."""
    honest = apply._elect_master

    def lazy(broker_set: BrokerSet, event: Any) -> Any:
        before = broker_set.master_epoch
        applied = honest(broker_set, event)
        if before > 0:
            broker_set.master_epoch = before
        return applied

    patch.setattr(apply, "_elect_master", lazy)


def state_depends_on_the_node(patch: pytest.MonkeyPatch) -> None:
    """Applying an event reads something that is not in the log."""
    honest = apply._alter_sync_state_set
    counter = iter(range(1 << 40))

    def moody(broker_set: BrokerSet, event: Any, tell: bool) -> Any:
        applied = honest(broker_set, event, tell)
        broker_set.sync_state_set_epoch += next(counter) % 2
        return applied

    patch.setattr(apply, "_alter_sync_state_set", moody)


MUTANTS: tuple[tuple[Patch, str], ...] = (
    (leader_trusts_itself, "a stale master epoch was read"),
    (acknowledged_before_durable, ""),
    (two_votes_a_term, "two leaders in one term"),
    (one_node_is_a_quorum, ""),
    (old_logs_win_elections, ""),
    (anyone_alive_becomes_master, "an elected master was in the SyncStateSet"),
    (epochs_stand_still, ""),
    (state_depends_on_the_node, "differ"),
)


def failure(seed: int) -> str | None:
    try:
        run_seed(seed)
    except RmqhaError as error:
        return str(error)
    return None


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.parametrize(("mutant", "expected"), MUTANTS, ids=lambda m: getattr(m, "__name__", ""))
def test_the_simulator_finds_a_bug_put_in_on_purpose(
    mutant: Patch, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each mutant breaks a safety property within a few dozen seeds."""
    mutant(monkeypatch)
    for seed in range(1, SEEDS_MAX):
        found = failure(seed)
        if found is not None:
            assert expected in found, f"seed {seed}: {found}"
            return
    pytest.fail(f"{SEEDS_MAX} seeds found nothing wrong with {mutant.__name__}")


def test_quorum_arithmetic_is_what_the_mutant_replaces() -> None:
    """If the name moved, the mutant above would change nothing."""
    assert node.reached_by_majority is quorum.reached_by_majority
