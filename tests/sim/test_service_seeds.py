"""Seeds of a broker set whose services are used all along: delays, timers, transactions, pops, locks."""

from __future__ import annotations

from collections import Counter

import pytest

from rmqha.sim.service_swarm import run_service_seed

SEEDS = 24
SEEDS_PER_TEST = 12
# Seeds that once found a bug: 1 (a check point of a changed invisible time was ended by the old one's
# acknowledgement), 4 (a producer was asked about a half message before its answer could be taken).
SERVED = (
    "delayed message acknowledged", "timer acknowledged", "half message left open",
    "half message asked about", "transaction committed", "transaction rolled back",
    "message popped", "pop acknowledged", "invisible time changed", "queue locked",
    "messages read in order", "services checked",
)  # fmt: skip
KINDS = ("set of 2", "set of 3", "set of 4", "set of 5", "learners", "minInSyncReplicas of 2",
         "set that waits for two")  # fmt: skip


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.parametrize("first", range(1, SEEDS, SEEDS_PER_TEST))
def test_faults_when_services_are_used_then_all_that_they_promised_comes(first: int) -> None:
    """Acknowledged, by a rule that survives the faults: delivered, not early, in order where promised,
    and never what was rolled back."""
    happened: Counter[str] = Counter()
    reigns = 0
    for seed in range(first, first + SEEDS_PER_TEST):
        outcome = run_service_seed(seed)
        happened.update(outcome.counts)
        reigns += outcome.elections
    assert reigns > 2 * SEEDS_PER_TEST
    # A story in which nothing happens proves nothing.
    assert [what for what in SERVED if happened[what] < SEEDS_PER_TEST] == []
    assert [kind for kind in KINDS if not happened[kind]] == []
