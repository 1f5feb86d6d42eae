"""A node whose state is not what the log makes of it stops, and says so."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from rmqha.base.errors import InvariantBroken, StoreCorrupted
from rmqha.base.ids import BrokerId
from rmqha.controller.machine import (
    Committed,
    ControllerMachine,
    LeadershipChanged,
    MachineSettings,
    ProposalDropped,
    Propose,
    SnapshotLoaded,
)
from rmqha.controller.metadata import events as ev
from rmqha.controller.metadata import state as state_module
from rmqha.controller.metadata.apply import apply
from rmqha.controller.metadata.digests import Digests
from rmqha.controller.metadata.state import BrokerSet, MetadataState
from tests.controller.metadata.driving import CLUSTER, NAME, Driver

EVERY = 10
SETTINGS = MachineSettings(digest_every=EVERY)


class Group:
    """A leader, and a follower that applies what the leader's log holds."""

    def __init__(self, every: int = EVERY) -> None:
        self.leader = Driver(MachineSettings(digest_every=every))
        self.follower = ControllerMachine(MachineSettings(digest_every=every))
        self.leader.pair()

    def alter(self, times: int) -> None:
        """Change the set so often."""
        for _ in range(times):
            one = self.leader.machine.state.sets[NAME]
            ids = [1] if len(one.sync_state_set) > 1 else [1, 2]
            assert self.leader.alter(1, 1, ids, one.sync_state_set_epoch).code == 0

    def follow(self) -> None:
        """Let the follower apply what it has not yet."""
        first = self.follower.applied_index
        for index, record in enumerate(self.leader.log[first:], first + 1):
            effects = self.follower.step(0, Committed(index, record))
            assert not any(isinstance(one, Propose) for one in effects)

    def install(self) -> None:
        """Let the follower load the leader's snapshot."""
        data = self.leader.machine.snapshot()
        self.follower.step(0, SnapshotLoaded(self.leader.machine.applied_index, data))


def said(log: list[bytes]) -> list[ev.Said]:
    return [ev.from_entry(record) for record in log]


@pytest.mark.parametrize("record", [ev.StateMarked(7), ev.StateCompared(9, "00ff00ff00ff00ff")])
def test_state_record_when_read_back_then_the_same(
    record: ev.StateMarked | ev.StateCompared,
) -> None:
    """A digest that is read wrong stops a good node."""
    assert ev.from_entry(ev.to_mark(record)) == record
    with pytest.raises(StoreCorrupted):
        ev.from_proposal(ev.to_mark(record))
    with pytest.raises(StoreCorrupted):
        ev.from_entry(ev.to_mark(record)[:-1])


def test_states_when_equal_then_compared_every_so_many_entries() -> None:
    """Without a mark nothing is compared; marks that count as entries would never end."""
    group = Group()
    group.alter(5 * EVERY)
    group.follow()
    found = said(group.leader.log)
    marks = [i for i, one in enumerate(found, 1) if isinstance(one, ev.StateMarked)]
    compared = [one.log_index for one in found if isinstance(one, ev.StateCompared)]
    assert marks == compared
    assert {after - before for before, after in itertools.pairwise(marks)} == {EVERY + 1}
    assert group.follower.digests.compared == group.leader.machine.digests.compared == len(marks)
    assert len(marks) >= 4
    assert group.follower.state == group.leader.machine.state


def test_states_when_every_is_1_then_the_log_rests_with_its_brokers() -> None:
    """Records about the state must not call for more of them."""
    group = Group(every=1)
    before = len(group.leader.log)
    group.alter(1)
    assert [type(one) for one in said(group.leader.log[before:])] == [
        ev.SyncStateSetAltered, ev.StateMarked, ev.StateCompared,
    ]  # fmt: skip


def test_states_when_every_is_0_then_never_compared() -> None:
    """An operator can turn it off."""
    group = Group(every=0)
    group.alter(3_000)
    assert {type(one) for one in said(group.leader.log[5:])} == {ev.SyncStateSetAltered}


def test_state_when_it_differs_from_the_leaders_then_stops_within_so_many_entries() -> None:
    """A node that answers otherwise than the others would make two masters."""
    group = Group()
    group.alter(EVERY)
    group.follow()
    apply(group.follower.state, ev.BrokerIdTaken("c", NAME, "h:3", BrokerId(3), "h:3;1"))
    before = len(group.leader.log)
    group.alter(EVERY)
    own = "[0-9a-f]{16}"
    with pytest.raises(
        InvariantBroken, match=f"differs from its leader's: at entry .* {own}, .* {own}"
    ):
        group.follow()
    assert group.follower.applied_index <= before + EVERY + 2


def test_state_when_changed_behind_its_back_then_stops_within_so_many_entries() -> None:
    """What changes without an event shows in answers at once, and in no packed byte."""
    group = Group()
    group.alter(EVERY)
    group.follow()
    group.follower.state.sets[NAME].last_issued_id = 9
    group.alter(1)
    group.follower.state.packed.changed("another")
    before = len(group.leader.log)
    group.alter(EVERY)
    with pytest.raises(InvariantBroken):
        group.follow()
    assert group.follower.applied_index <= before + EVERY + 2


def test_state_when_a_set_nobody_uses_changed_behind_its_back_then_it_is_named() -> None:
    """Only a look at the set itself finds it, and it is this node that is wrong, leader or not."""
    group = Group()
    quiet = ev.BrokerIdTaken("c", "quiet", "h:1", BrokerId(1), "h:1;1")
    record = ev.to_proposal(1, 1 << 40, quiet)
    group.leader.log.append(record)
    group.leader.step(Committed(len(group.leader.log), record))
    group.alter(2 * EVERY)
    group.follow()
    group.leader.machine.state.sets["quiet"].replicas.clear()
    with pytest.raises(InvariantBroken, match="broker set quiet of this node"):
        group.alter(EVERY + 1)
    group.follow()
    assert group.follower.digests.compared >= 2


@pytest.mark.parametrize(("sets", "marks"), [(100, 1), (200, 2)])
def test_state_when_any_of_many_quiet_sets_changed_then_found_within_a_mark_a_hundred(
    sets: int, marks: int
) -> None:
    """An operator who has so many sets is told how long a wrong one may answer (ADR 0019)."""
    state, digests = MetadataState(), Digests()
    names = [f"s{number:03}" for number in range(sets)]
    for name in names:
        apply(state, ev.BrokerIdTaken("c", name, "h:1", BrokerId(1), "h:1;1"))
    index = itertools.count(1)

    def mark(times: int) -> None:
        for _ in range(times):
            digests.committed(next(index), ev.StateMarked(1), state)

    for name in (names[0], names[-1], names[sets // 2]):
        mark(1)
        before, state.sets[name].master_epoch = state.sets[name].master_epoch, 7
        with pytest.raises(InvariantBroken, match=f"broker set {name} of this node"):
            mark(marks)
        state.sets[name].master_epoch = before


def test_state_when_changed_after_a_snapshot_was_installed_then_stops() -> None:
    """A node that joined by a snapshot is held against its leader as the others are."""
    group = Group()
    group.alter(EVERY + 3)
    group.install()
    group.alter(2 * EVERY)
    group.follow()
    assert group.follower.digests.compared >= 1
    group.install()
    apply(group.follower.state, ev.BrokerDataCleaned(NAME, (BrokerId(2),)))
    before = len(group.leader.log)
    group.alter(EVERY + 1)
    with pytest.raises(InvariantBroken, match="differs from its leader's"):
        group.follow()
    assert group.follower.applied_index <= before + EVERY + 2


def test_state_when_its_snapshot_forgot_a_field_then_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    """All nodes' snapshots forget it alike, so only a digest of the fields themselves shows it."""
    whole = state_module._set_to_plain

    def forget(one: BrokerSet) -> list[object]:
        return whole(dataclasses.replace(one, retired_ids=()))

    monkeypatch.setattr(state_module, "_set_to_plain", forget)
    group = Group()
    group.leader.register(3)
    group.leader.ask(
        1011, 99, clusterName=CLUSTER, brokerName=NAME, brokerControllerIdsToClean=3,
        isCleanLivingBroker=True,
    )  # fmt: skip
    group.install()
    assert group.leader.machine.state.sets[NAME].retired_ids == (3,)
    assert group.follower.state.sets[NAME].retired_ids == ()
    assert group.follower.snapshot() == group.leader.machine.snapshot()
    group.alter(EVERY + 1)
    with pytest.raises(InvariantBroken, match="differs from its leader's"):
        group.follow()


def test_mark_when_it_was_dropped_then_marked_later() -> None:
    """A leader without space drops proposals; it must not stop to compare for ever."""
    group = Group()
    leader = group.leader
    leader.hold = True
    ids, epoch = [1], 2
    mark = ev.StateMarked(1)
    while not (leader.held and ev.from_entry(leader.held[0].record) == mark):
        body = f'{{"syncStateSet":{ids},"syncStateSetEpoch":{epoch}}}'.encode()
        leader.send(1001, 1, body, brokerName=NAME, masterBrokerId=1, masterEpoch=1)
        ids, epoch = ([1, 2] if ids == [1] else [1]), epoch + 1
        leader.step(Committed(leader.machine.applied_index + 1, leader.held.popleft().record))
    leader.step(ProposalDropped(leader.held.popleft().record))
    before = leader.machine.applied_index
    leader.log = [b""] * before
    leader.hold = False
    for times, marked in ((EVERY - 1, False), (1, True)):
        group.alter(times)
        found = said(leader.log[before:])
        assert any(isinstance(one, ev.StateMarked) for one in found) == marked


def test_leader_when_new_then_it_goes_on_marking() -> None:
    """Leaders change; what the old one marked and did not tell is left."""
    group = Group()
    group.alter(EVERY)
    group.follow()
    group.leader.step(LeadershipChanged(False, 2))
    group.leader.step(LeadershipChanged(True, 3))
    before = group.follower.digests.compared
    group.alter(2 * EVERY)
    group.follow()
    assert group.follower.digests.compared > before
    marks = [one for one in said(group.leader.log) if isinstance(one, ev.StateMarked)]
    assert {one.term for one in marks} == {1, 3}
