"""Masters that are cut off, over seeds: no election while a lease is held, no late acknowledgement."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rmqha.base.errors import InvariantBroken
from rmqha.broker.membership.write_lease import WriteLease
from rmqha.ha.membership import Membership
from rmqha.sim.replica_swarm import run_lease_seed

SEEDS = 16
SEEDS_PER_TEST = 8
# Seeds that once found a bug: 27 (a master that was heard again during the election of another
# had its lease confirmed by a poll, which does not see elections under way).
REGRESSIONS = (27,)

Patch = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.parametrize("first", range(1, SEEDS, SEEDS_PER_TEST))
def test_masters_when_cut_off_then_nobody_is_elected_while_they_hold_the_lease(first: int) -> None:
    """Clocks are up to 4 % wrong, links slow and lossy; the margin is 20 %."""
    reigns = 0
    for seed in range(first, first + SEEDS_PER_TEST):
        outcome = run_lease_seed(seed)
        reigns += outcome.elections
    assert reigns > SEEDS_PER_TEST, "a story without failovers proves nothing"


@pytest.mark.slow
@pytest.mark.parametrize("seed", REGRESSIONS)
def test_lease_seeds_that_once_failed_pass(seed: int) -> None:
    """Each found a bug; see the list above."""
    run_lease_seed(seed)


def lease_never_expires(patch: pytest.MonkeyPatch) -> None:
    """An answered heartbeat counts for ever."""
    promised = WriteLease._promised_ms
    patch.setattr(WriteLease, "_promised_ms", lambda self: promised(self) and 1 << 60)


def one_controller_is_enough(patch: pytest.MonkeyPatch) -> None:
    """No majority: #7017."""
    make = WriteLease.__init__

    def careless(self: WriteLease, controllers: tuple[str, ...], lease_ms: int) -> None:
        make(self, controllers, lease_ms)
        self._majority = 1

    patch.setattr(WriteLease, "__init__", careless)


def nobody_confirms(patch: pytest.MonkeyPatch) -> None:
    """After a gap answered heartbeats alone begin a lease."""
    look = WriteLease._look_for_proof

    def believe(self: WriteLease, now_ms: int, promised_ms: int) -> None:
        self._proved = True
        look(self, now_ms, promised_ms)

    patch.setattr(WriteLease, "_look_for_proof", believe)


def puts_do_not_look_at_it(patch: pytest.MonkeyPatch) -> None:
    """Replication believes that it always holds the lease."""
    patch.setattr(Membership, "is_leased", lambda self, now_ms: True)


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.parametrize(
    "mutant",
    [lease_never_expires, one_controller_is_enough, nobody_confirms, puts_do_not_look_at_it],
    ids=lambda one: str(one.__name__),
)
def test_the_simulator_finds_a_broken_lease(mutant: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checker that finds nothing may be blind."""
    mutant(monkeypatch)

    def play_all() -> None:
        for seed in range(1, SEEDS):
            run_lease_seed(seed)

    with pytest.raises(InvariantBroken, match="elected"):
        play_all()
