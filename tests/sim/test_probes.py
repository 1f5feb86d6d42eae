"""Silent masters over seeds: the slow ones stay, the stopped ones acknowledge nothing more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from rmqha.base.errors import InvariantBroken
from rmqha.broker.membership.aio.manager import ReplicasManager
from rmqha.broker.membership.write_lease import Vouched
from rmqha.controller.aio.prober import Prober
from rmqha.controller.metadata.probe_messages import PeersHeard
from rmqha.controller.probing import Probing
from rmqha.sim.probe_swarm import SLOW_WANTED, STOPPED_WANTED, run_slow_seed, run_stopped_seed
from rmqha.sim.story import Outcome

SEEDS = 6
MUTANT_SEEDS = 30

Patch = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.sim
@pytest.mark.slow
def test_slow_brokers_when_probed_then_nobody_is_given_up() -> None:
    """``finish`` of the story says so; here that it was tried."""
    happened: Counter[str] = Counter()
    for seed in range(SEEDS):
        happened.update(run_slow_seed(seed).counts)
    assert happened["note: master_probed"] > SEEDS
    assert not [name for name in SLOW_WANTED if not happened[name]]


@pytest.mark.sim
@pytest.mark.slow
def test_stopped_masters_when_they_go_on_then_they_acknowledge_nothing_alone() -> None:
    """Nor does one that is cut off; all logs become equal again."""
    happened: Counter[str] = Counter()
    for seed in range(SEEDS - 2):
        happened.update(run_stopped_seed(seed).counts)
    assert not [name for name in STOPPED_WANTED if not happened[name]]


def probe_never_sent(patch: pytest.MonkeyPatch) -> None:
    """Silence alone decides."""
    patch.setattr(Prober, "probe", lambda self, effect: None)


def answers_ignored(patch: pytest.MonkeyPatch) -> None:
    """The master answers, and is given up."""
    patch.setattr(Probing, "answered", lambda self, number: None)


def reports_ignored(patch: pytest.MonkeyPatch) -> None:
    """What followers hear does not count."""
    heard = Probing.peers_heard

    def deaf(self: Probing, now_ms: int, event: PeersHeard) -> object:
        reports = tuple(replace(one, silent_ms=-1, promised_ms=0) for one in event.reports)
        return heard(self, now_ms, replace(event, reports=reports))

    patch.setattr(Probing, "peers_heard", deaf)


def promise_ignored(patch: pytest.MonkeyPatch) -> None:
    """A master believes that controllers wait for the timeout that it named."""

    def believe(self: ReplicasManager, address: str, sent_ms: int, fields: object) -> None:
        self._lease(Vouched(address, sent_ms))

    patch.setattr(ReplicasManager, "_promised", believe)


MUTANTS: tuple[tuple[Patch, Callable[[int], Outcome], str], ...] = (
    (probe_never_sent, run_slow_seed, "a living master was given up"),
    (answers_ignored, run_slow_seed, "a living master was given up"),
    (reports_ignored, run_slow_seed, "a living master was given up"),
    (promise_ignored, run_stopped_seed, "write lease was held"),
)


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.turns(3)
@pytest.mark.parametrize(
    ("mutant", "run", "found"), MUTANTS, ids=[one[0].__name__ for one in MUTANTS]
)
def test_the_stories_find(
    mutant: Patch, run: Callable[[int], Outcome], found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of these bugs is found, for the reason that one expects."""
    mutant(monkeypatch)

    def play() -> None:
        for seed in range(MUTANT_SEEDS):
            run(seed)

    with pytest.raises(InvariantBroken, match=found):
        play()
