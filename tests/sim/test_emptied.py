"""A replica that somebody empties while it is down: it is not elected while others may have more."""

from __future__ import annotations

import pytest

from rmqha.base.errors import InvariantBroken
from rmqha.controller.metadata import decide_elect
from rmqha.ha import slave_session
from rmqha.ha.frames import HandshakeRequest
from rmqha.sim.emptied_swarm import EMPTIED_MEMBER, EMPTIED_REPLICA, run_emptied_seed
from rmqha.sim.replica_options import ReplicaOptions
from rmqha.sim.story import Outcome
from tests.sim.old_stops import without_lists

PLAIN = ReplicaOptions()
TELLING, SEEDS_MAX = 125, 20
"""A seed in which the emptied one is back first."""
FORGOTTEN = 1_100_330
"""A seed in which the master lost power, its only heir was emptied, and all controllers restarted."""
OLD_ENTRIES = 1_101_167
"""A controller started at the same time, and read again how the emptied one had once been taken in."""


def play() -> list[Outcome]:
    """All seeds of this file."""
    return [run_emptied_seed(seed, PLAIN) for seed in range(TELLING, TELLING + SEEDS_MAX)]


@pytest.mark.sim
@pytest.mark.slow
def test_replica_when_it_was_emptied_then_nothing_that_was_acknowledged_is_lost() -> None:
    found = play()
    assert sum(one.counts.get(EMPTIED_MEMBER, 0) for one in found) > 0
    assert max(one.counts.get(EMPTIED_REPLICA, 0) for one in found) == 1, (
        "two may take all there is"
    )


@pytest.mark.sim
@pytest.mark.slow
def test_heir_when_it_was_emptied_and_no_controller_remembers_it_then_it_is_not_elected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its master lost power and named it, and had not said what it has itself."""
    without_lists(monkeypatch)
    for seed, synced in (FORGOTTEN, True), (OLD_ENTRIES, False):
        kind = ReplicaOptions(sync_flush=synced)
        assert run_emptied_seed(seed, kind).counts[EMPTIED_MEMBER] == 1


@pytest.mark.sim
@pytest.mark.slow
def test_simulator_when_emptied_replicas_may_be_elected_then_it_finds_what_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever of the SyncStateSet is back first reigns, whatever became of its log."""
    monkeypatch.setattr(decide_elect, "held_back", lambda *_, **__: frozenset())
    with pytest.raises(InvariantBroken, match="an acknowledged record is lost"):
        play()


@pytest.mark.sim
@pytest.mark.slow
def test_simulator_when_an_emptied_replica_takes_the_last_file_alone_then_it_finds_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All that it has is the master's, so only where its log begins tells it."""
    request = slave_session.HandshakeRequest

    def late(own_id: int, _: bool, async_learner: bool) -> HandshakeRequest:
        return request(own_id, True, async_learner)

    monkeypatch.setattr(slave_session, "HandshakeRequest", late)
    with pytest.raises(InvariantBroken, match="a log lacks its beginning"):
        run_emptied_seed(1, PLAIN)
