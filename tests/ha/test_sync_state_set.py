"""A master and a controller that knows three replicas: strangers must not freeze the set."""

from __future__ import annotations

import pytest

from rmqha.base.machine import Ticked
from rmqha.ha import events as ev
from rmqha.ha.frames import Ack
from rmqha.ha.ha_core import HaCore
from rmqha.ha.settings import HaSettings
from rmqha.ha.sync_state_set import (
    ASIDE_MS_MAX,
    ASKED_MAX,
    RETRY_MS,
    STRANGERS_MAX,
    SyncStateSet,
)
from tests.ha.test_sessions import joined, reigning

KNOWN = frozenset({1, 2, 3})
STEP_MS = 100
END = 4_000


class Group:
    """A reigning core, its slaves, and the controller; time passes in steps.

    Attributes:
        refused: how many requests the controller refused.
    """

    def __init__(self, settings: HaSettings | None = None) -> None:
        self.core: HaCore = reigning(settings)
        self.now_ms = 0
        self.epoch = 1
        self.ids = frozenset({1})
        self.refused = 0
        self._waiting: list[ev.Effect] = []

    def connect(self, slave_id: int) -> None:
        """A slave that holds everything; its connection has its number."""
        self._waiting += joined(self.core, slave_id, slave_id, END)

    def disconnect(self, slave_id: int) -> None:
        """Its connection ends."""
        self._waiting += self.core.step(self.now_ms, ev.SlaveClosed(slave_id, "gone"))

    def run(self, ms: int) -> None:
        """Let time pass; slaves go on acknowledging what they have."""
        for _ in range(ms // STEP_MS):
            self.now_ms += STEP_MS
            for conn in list(self.core.sessions):
                self._waiting += self.core.step(self.now_ms, ev.SlaveSent(conn, Ack(END)))
            self._waiting += self.core.step(self.now_ms, Ticked())
            self._answer()

    def _answer(self) -> None:
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not isinstance(one, ev.AlterSyncStateSet):
                continue
            if one.ids <= KNOWN:
                self.epoch, self.ids = self.epoch + 1, one.ids
                answer: ev.Event = ev.SyncStateSetConfirmed(self.ids, self.epoch)
            else:
                self.refused += 1
                answer = ev.AlterRefused(for_a_member=True)
            self._waiting += self.core.step(self.now_ms, answer)


@pytest.mark.costly
@pytest.mark.parametrize("all_ack", [False, True])
def test_set_when_a_stranger_connects_then_others_still_join_and_leave(all_ack: bool) -> None:
    """One connection with an id that nobody registered froze the set, and with it all puts."""
    group = Group(HaSettings(all_ack_in_sync_state_set=all_ack))
    group.connect(99)
    group.connect(98)
    group.run(500)
    group.connect(2)
    group.connect(3)
    group.run(15_000)
    assert group.ids == KNOWN
    group.disconnect(2)
    group.run(20_000)
    assert group.ids == {1, 3}
    before = group.refused
    group.run(120_000)
    # Each of the two strangers is tried again once a minute, no oftener.
    assert group.refused - before <= 6


def test_set_when_it_was_asked_for_before_then_a_refusal_does_not_settle_it() -> None:
    """The first request may be applied although the second was never sent: the slave may be elected.

    Puts were acknowledged without it, and lost when it was.
    """
    one = SyncStateSet(3)
    one.confirmed(0, {3}, 1, 0)
    assert one.ask(0, frozenset({2, 3}))
    one.lost()
    assert one.ask(2_000, frozenset({2, 3}))
    one.refused(2_000)
    assert one.union == {2, 3}
    # Another wish that was surely not applied leaves no trace, and does not settle the first.
    assert one.ask(4_000, frozenset({3, 4}))
    one.refused(4_000)
    assert one.union == {2, 3}
    # Only the controller's own word does.
    assert one.confirmed(9_000, {3}, 1, 0)
    assert one.union == {3}


def test_a_slave_that_is_registered_later_joins() -> None:
    """Its first heartbeat may come after its first acknowledgement."""
    one = SyncStateSet(1)
    one.confirmed(0, {1}, 1, 0)
    for now_ms in (0, 2_000, 5_000):
        assert one.ask(now_ms, frozenset({1, 2}))
        one.refused(now_ms, for_a_member=True)
    assert one.ask(20_000, frozenset({1, 2}))
    assert one.confirmed(20_000, {1, 2}, 2, 0)
    assert not one._aside


def test_refused_ids_are_bounded() -> None:
    """A stranger may come with another id each time."""
    one = SyncStateSet(1)
    one.confirmed(0, {1}, 1, 0)
    for number in range(3 * STRANGERS_MAX):
        assert one.ask(number * ASIDE_MS_MAX, frozenset({1, number + 2}))
        one.refused(number * ASIDE_MS_MAX, for_a_member=True)
    assert len(one._aside) == STRANGERS_MAX


def test_set_when_it_is_asked_for_again_and_again_then_others_can_be_asked_for() -> None:
    """Answers that are lost for ten seconds would fill the room, and leave the set as it is."""
    members = SyncStateSet(1)
    members.adopt({1}, 1)
    wished = frozenset({1, 2})
    for number in range(2 * ASKED_MAX):
        assert members.ask(number * RETRY_MS, wished)
        members.lost()
    assert members.asked == [wished]
    assert members.ask(2 * ASKED_MAX * RETRY_MS, KNOWN)
    assert members.asked == [wished, KNOWN]


def test_set_when_a_member_has_left_then_who_joins_holds_what_that_one_had_acknowledged() -> None:
    """Puts of two replicas were acknowledged; with one of them gone, a slave of less could be elected."""
    core = reigning(HaSettings(in_sync_replicas=2))
    joined(core, 1, 2, END)
    core.step(0, ev.SyncStateSetConfirmed(frozenset({1, 2}), 2))
    joined(core, 2, 3, END - 1_000)
    for end in (END + 500, END + 1_000):
        core.step(100, ev.Appended(end))
        for conn in (1, 2):
            core.step(100, ev.SlaveWritable(conn))
        core.step(100, ev.SlaveSent(1, Ack(end)))
    # It is a little behind, as slaves under load are.
    core.step(200, ev.SlaveSent(2, Ack(END)))
    core.step(200, ev.SlaveClosed(1, "gone"))
    behind = core.step(200, ev.SyncStateSetConfirmed(frozenset({1}), 3)) + core.step(900, Ticked())
    assert not [one for one in behind if isinstance(one, ev.AlterSyncStateSet)]
    held = core.step(900, ev.SlaveSent(2, Ack(END + 1_000)))
    wished = [one.ids for one in held if isinstance(one, ev.AlterSyncStateSet)]
    assert wished == [frozenset({1, 3})]
