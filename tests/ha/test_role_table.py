"""The table of a replica's roles against the core: every row happens, and nothing else does."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from rmqha.base.machine import Ticked
from rmqha.ha import events as ev
from rmqha.ha.epochs import EpochCache, EpochEntry
from rmqha.ha.ha_core import HaCore
from rmqha.ha.role_table import TABLE
from rmqha.ha.settings import HaSettings
from rmqha.ha.state import LogFacts

EPOCH, NOW_MS = 5, 1_000
NOBODYS = 999
"""The number of something that was not asked for."""
WAITS = {
    ev.CutInvalidTail: "cutting", ev.WriteEpochs: "recording", ev.WaitDispatched: "dispatching",
}  # fmt: skip


class Player:
    """A core, and what its role change waits for."""

    def __init__(self) -> None:
        log = LogFacts(1 << 20, 0, 700, 700, 700)
        epochs = EpochCache([EpochEntry(1, 0), EpochEntry(EPOCH, 300)])
        self.core = HaCore(
            own_id=1, settings=HaSettings(), log=log, epochs=epochs, now_ms=NOW_MS
        )  # fmt: skip
        self.waits = ""

    def give(self, event: ev.Event) -> Player:
        for effect in self.core.step(NOW_MS, event):
            if type(effect) in WAITS and effect.seq == self.core._plan_seq:
                self.waits = WAITS[type(effect)]
        return self

    def done(self) -> ev.Event:
        """The disk, or the dispatcher, has done what the role change waits for."""
        seq = self.core._plan_seq
        match self.waits:
            case "cutting":
                return ev.TailCut(seq, 600)
            case "recording":
                return ev.EpochsWritten(seq)
            case _:
                return ev.DispatchReached(seq)

    @property
    def state(self) -> str:
        core = self.core
        if core._plan is not None:
            renews = core._same_master and self.waits == "recording"
            return "renewing" if renews else self.waits
        if core.role is ev.Role.MASTER:
            return "master"
        return "unassigned" if core.client is None else "following"


def master(epoch: int, ids: frozenset[int] = frozenset({1, 2})) -> ev.ChangedToMaster:
    return ev.ChangedToMaster(epoch, ids, epoch)


def ended(player: Player, steps: int = 9) -> Player:
    """So many of the waits are over, or all that there are."""
    for _ in range(steps):
        if player.core._plan is not None:
            player.give(player.done())
    return player


def taking_over(steps: int, *queued: ev.Event) -> Callable[[], Player]:
    """A slave that was elected, some steps on; commands that came meanwhile wait their turn."""

    def begin() -> Player:
        player = ended(Player().give(master(EPOCH + 1)), steps)
        for event in queued:
            player.give(event)
        return player

    return begin


def renewing(*queued: ev.Event) -> Callable[[], Player]:
    """A master that has written since its election, and is elected again."""

    def begin() -> Player:
        player = ended(Player().give(master(EPOCH + 1)))
        for event in (ev.Appended(900), master(EPOCH + 2), *queued):
            player.give(event)
        return player

    return begin


SLAVE_NEXT = ev.ChangedToSlave(EPOCH + 4, 3, "c:1")
BEGINNINGS: tuple[Callable[[], Player], ...] = (
    Player,
    lambda: Player().give(ev.ChangedToSlave(EPOCH, 2, "b:1")),
    lambda: Player().give(ev.ChangedToSlave(EPOCH, None)),
    *(taking_over(steps) for steps in range(4)),
    *(taking_over(steps, SLAVE_NEXT) for steps in range(3)),
    *(taking_over(steps, ev.Appended(900), master(EPOCH + 2)) for steps in range(4)),
    taking_over(3, ev.Appended(900)),
    renewing(),
    renewing(SLAVE_NEXT),
)


def happenings(player: Player) -> list[ev.Event]:
    """Every event that can matter to a role, in terms older, equal and newer."""
    found: list[ev.Event] = [
        *([player.done()] if player.waits else [Ticked()]), Ticked(), ev.MasterFound("c:1"), ev.SyncStateSetConfirmed(frozenset({1}), 9),
        ev.AlterRefused(), ev.AlterLost(), ev.SetHeard(frozenset({2})), ev.LeaseGranted(9_999),
        ev.Appended(900), ev.Flushed(700), ev.Trimmed(0), ev.TailCut(NOBODYS, 600),
        ev.LogTruncated(NOBODYS, 600), ev.EpochsWritten(NOBODYS), ev.DispatchReached(NOBODYS),
        ev.SlaveConnected(1, "d:1"), ev.SlaveClosed(1, "gone"), ev.MasterConnected(1),
        ev.MasterClosed(1, "gone"), ev.PutWaited(1, 700, 0), ev.SlaveWritable(1),
    ]  # fmt: skip
    for epoch in (EPOCH - 1, EPOCH, EPOCH + 1, EPOCH + 3):
        found.append(master(epoch))
        found += [ev.ChangedToSlave(epoch, who, "b:1") for who in (2, 3, None)]
    return found


def seen() -> set[tuple[str, str, str]]:
    """Every change that the core makes, from every beginning."""
    found = set()
    for begin, number in itertools.product(BEGINNINGS, range(len(happenings(Player())))):
        player = begin()
        event, before = happenings(player)[number], player.state
        player.give(event)
        if player.state != before:
            found.add((before, type(event).__name__, player.state))
    return found


@pytest.mark.costly
def test_roles_when_every_event_comes_in_every_role_then_the_table_says_where_it_leads() -> None:
    """A way to "master" that the table lacks is a master with a log that nobody has looked at."""
    rows = {(row.state, row.event, row.to) for row in TABLE}
    assert seen() - rows == set(), "the core does what the table lacks"
    assert rows - seen() == set(), "the table says what the core never does"
    assert len(rows) == len(TABLE), "a row stands twice"
