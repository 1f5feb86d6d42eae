"""A broker set in every order of things: nothing breaks, and bugs put in on purpose are found."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from rmqha.cli.explore_replicas import main
from rmqha.ha import events as ev
from rmqha.ha import membership, sync_state_set
from rmqha.ha.frames import HandshakeReply
from rmqha.ha.put_waits import NOTHING
from rmqha.ha.slave_session import SlaveSession
from rmqha.ha.sync_state_set import SyncStateSet
from rmqha.sim.explore import broker_set
from rmqha.sim.explore.broker_set import Controller, Move, Scene
from rmqha.sim.explore.replica import RunningReplica, replica_plain
from rmqha.sim.explore.replicas import Replicas
from rmqha.sim.explore.walk import Limits, Report, Violation, Walk
from tests.sim.mutants.mutant import Patch

pytestmark = [pytest.mark.sim, pytest.mark.slow]

SECONDS_MAX = 120


def walked(scene: Scene) -> Report[Move]:
    space = Replicas(scene)
    return Walk(space, space.start, Limits(seconds=SECONDS_MAX), time.process_time).run()


SCENES = {
    "a record and a power failure": Scene(puts=1, elections=0, crashes=1),
    "a record, a reset and a lost answer": Scene(puts=1, elections=0, resets=1, losses=1),
    "two logs that have parted": Scene(puts=0, elections=0, start="diverged"),
    "two replicas, an election": Scene(replicas=2, puts=1, elections=1),
    "time": Scene(puts=1, elections=0, passes=1),
}


@pytest.mark.parametrize("name", SCENES)
def test_a_broker_set_in_every_order_of_things_keeps_its_promises(name: str) -> None:
    """Some order of frames, cuts, elections and alterations would lose what was acknowledged."""
    scene = SCENES[name]
    report = walked(scene)
    assert report.violation is None, report.trace
    assert report.exhausted, f"{report.frontier} states are left"
    assert report.states > 100
    seldom = {"tell", "connect", "alter", "answered"}  # where nobody is elected or leaves
    assert set(scene.missing(report.moves)) <= seldom


def test_two_logs_that_have_parted_are_walked_down_to_the_cut() -> None:
    """A walk in which nobody ever cuts its log says nothing about cuts."""
    space = Replicas(SCENES["two logs that have parted"])
    assert [space.of(space.start, one).log for one in space.ids] == [(1, 2), (1, 3), (1,)]
    state = space.settled(space.start)
    assert [space.of(state, one).log for one in space.ids] == [(1, 3)] * 3
    assert space.controller(state).ids == (1, 2, 3)


# -- bugs put in on purpose -----------------------------------------------------------------------


def cut_to_the_own_end(patch: pytest.MonkeyPatch) -> None:
    """A slave looks at the lengths of the logs, and not where their epochs part."""

    def point(self: SlaveSession, reply: HandshakeReply) -> int:
        return min(self._ha.log.max_offset, reply.max_offset)

    patch.setattr(SlaveSession, "_consistent_point", point)


def confirmed_by_one_member(patch: pytest.MonkeyPatch) -> None:
    """Consumers see what a majority of the set holds."""

    def majority(**facts: Any) -> int:
        others = [facts["acks"].get(one, 0) for one in facts["union"] if one != facts["own_id"]]
        if not others:
            return int(facts["max_offset"])
        reached = sorted(others, reverse=True)[(len(others) - 1) // 2]
        return int(max(facts["confirm_offset"], reached))

    patch.setattr(membership, "compute_confirm_offset", majority)


def acknowledged_by_a_majority(patch: pytest.MonkeyPatch) -> None:
    """A put is complete when a majority of each set holds it, though any member may be elected."""

    def level(
        *, own_id: int, possible: Any, acks: dict[int, int], max_offset: int, **_: Any
    ) -> int:
        for members in possible:
            held = sorted(
                (acks.get(one, NOTHING) for one in members if one != own_id), reverse=True
            )
            if held:
                max_offset = min(max_offset, held[(len(held) - 1) // 2])
        return max_offset

    patch.setattr(membership, "acked_level", level)


def alterations_of_old_sets_are_applied(patch: pytest.MonkeyPatch) -> None:
    """The controller looks at who asks, and not at the epoch of the set that was meant."""

    def careless(held: Controller, sender: int, asked: ev.AlterSyncStateSet) -> Any:
        return honest(held, sender, asked._replace(epoch=held.set_epoch))

    honest = broker_set.altered
    patch.setattr(broker_set, "altered", careless)


def joined_without_the_log(patch: pytest.MonkeyPatch) -> None:
    """A slave joins as soon as it is connected."""
    patch.setattr(sync_state_set, "_may_join", lambda now_ms, slave, bar: True)


def asked_sets_do_not_count(patch: pytest.MonkeyPatch) -> None:
    """A master goes by the set that it knows, while the controller may hold the one it asked for."""
    patch.setattr(SyncStateSet, "possible", property(lambda self: (self.ids,)))


def acknowledged_before_the_flush(patch: pytest.MonkeyPatch) -> None:
    """A slave acknowledges what a power failure takes away."""
    honest = SlaveSession._report

    def hasty(self: SlaveSession, now_ms: int) -> None:
        log = self._ha.log
        flushed, log.flushed_offset = log.flushed_offset, log.max_offset
        honest(self, now_ms)
        log.flushed_offset = flushed

    patch.setattr(SlaveSession, "_report", hasty)


def old_refusals_are_taken_for_the_newest(patch: pytest.MonkeyPatch) -> None:
    """The shell does not look which alteration was refused (broker/membership/core.py did not)."""

    def careless(self: RunningReplica, _: object) -> None:
        (_, answer), *rest = self.answers
        self.answers = tuple(rest)
        self._events.append(answer)

    patch.setattr(RunningReplica, "_answered", careless)


class Hunt(NamedTuple):
    """A bug, where to look for it, and the rule that it breaks."""

    bug: Patch
    scene: Scene
    expected: str


LOST = "a replica that may be elected lacks what was acknowledged"
UNSEEN = "a replica that may be elected lacks what consumers were shown"
PUT = Scene(puts=1, elections=0)
PARTED = Scene(puts=0, elections=1, start="diverged")

HUNTS = (
    Hunt(cut_to_the_own_end, PARTED, "a slave that follows holds another log than its master"),
    Hunt(confirmed_by_one_member, PUT, UNSEEN),
    Hunt(acknowledged_by_a_majority, PUT, LOST),
    Hunt(
        alterations_of_old_sets_are_applied,
        Scene(puts=1, elections=2, start="asked"),
        LOST,
    ),
    Hunt(joined_without_the_log, Scene(puts=1, elections=1), UNSEEN),
    Hunt(asked_sets_do_not_count, Scene(puts=1, elections=0, start="asked"), LOST),
    Hunt(acknowledged_before_the_flush, PUT, LOST),
    Hunt(
        old_refusals_are_taken_for_the_newest,
        Scene(replicas=2, puts=1, elections=1, crashes=1),
        LOST,
    ),
)


@pytest.mark.turns(3)
@pytest.mark.parametrize("hunt", HUNTS, ids=lambda hunt: hunt.bug.__name__)
def test_a_bug_put_in_on_purpose_is_found_for_the_rule_that_it_breaks(
    hunt: Hunt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A walk that misses the bug would show nothing about the core without it."""
    hunt.bug(monkeypatch)
    try:
        found = walked(hunt.scene).violation
    except Violation as violation:  # on the way to where the walk begins
        found = str(violation)
    assert found is not None
    assert hunt.expected in found


# -- the walk itself ------------------------------------------------------------------------------


def test_a_replica_that_is_played_anew_is_the_one_that_was_there() -> None:
    """A replica is its inputs: if playing them again led elsewhere, states would mean nothing."""
    space = Replicas(Scene(puts=1, elections=1, crashes=1))
    Walk(space, space.start, Limits(states=5_000), time.process_time).run()
    running = [life for life in space.lives.items if life.up]
    assert len(running) > 50
    for life in running:
        once, again = life.played(), life.played()
        assert replica_plain(once) == replica_plain(again)


def test_a_violation_when_found_is_told_move_by_move(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the way to a bug, that there is one helps nobody."""
    cut_to_the_own_end(monkeypatch)
    args = ["--start", "diverged", "--puts", "0", "--elections", "0"]
    result = CliRunner().invoke(main, args)
    assert result.exit_code == 1
    lines = result.output.splitlines()
    assert any("r1: hears of the newest election" in line for line in lines)
    assert "VIOLATION: a slave that follows holds another log than its master" in lines[-1]
