"""Any order of brokers' doings, closes, deaths and leader changes keeps the safety rules."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rmqha.base.ids import BrokerId
from rmqha.controller.machine import (
    Committed,
    ControllerMachine,
    LeadershipChanged,
    SnapshotLoaded,
)
from rmqha.controller.metadata.events import (
    BrokerDataCleaned,
    BrokerSetImported,
    MasterElected,
    SyncStateSetAltered,
    from_proposal,
)
from rmqha.remoting.broker_set_state import BrokerSetState, RegisteredReplica
from rmqha.verify.masters import MastersProperty
from tests.controller.metadata.driving import CLUSTER, NAME, Driver

BROKERS = st.integers(1, 3)
PAUSES = st.sampled_from([0, 50, 100, 400, 3_000, 11_000])


class ControllerModel(RuleBasedStateMachine):
    """One leader at a time; every commit is checked before it counts."""

    @initialize()
    def start(self) -> None:
        self.driver = Driver()
        self.masters = MastersProperty()
        self.connections = {1: 1, 2: 2, 3: 3}
        self.last_connection = 3
        self.term = 1
        self.seen = 0
        self.replayed = ControllerMachine()

    @rule(broker=BROKERS)
    def register(self, broker: int) -> None:
        on = self.connections[broker]
        ext = {"clusterName": CLUSTER, "brokerName": NAME}
        self.driver.send(1013, on, **ext, appliedBrokerId=broker, registerCheckCode=f"h:{broker};1")
        self.driver.send(1003, on, **ext, brokerId=broker, brokerAddress=f"h:{broker}")

    @rule(broker=BROKERS, epoch=st.integers(-1, 3), offset=st.integers(0, 2**40))
    def beat(self, broker: int, epoch: int, offset: int) -> None:
        self.driver.beat(broker, self.connections[broker], epoch=epoch, maxOffset=offset)

    @rule(broker=BROKERS)
    def reconnect(self, broker: int) -> None:
        self.driver.close(self.connections[broker])
        self.last_connection += 1
        self.connections[broker] = self.last_connection

    @rule(broker=st.sampled_from([-1, 1, 2, 3, 7]), designate=st.booleans())
    def elect(self, broker: int, designate: bool) -> None:
        self.driver.send(
            1002, self.connections.get(broker, 99), clusterName=CLUSTER, brokerName=NAME,
            brokerId=broker, designateElect=designate,
        )  # fmt: skip

    @rule(ids=st.sets(st.integers(1, 4), min_size=1), back=st.integers(0, 1))
    def alter(self, ids: set[int], back: int) -> None:
        one = self.driver.machine.state.sets.get(NAME)
        if one is None or one.master_broker_id is None:
            return
        body = f'{{"syncStateSet":{sorted(ids)},"syncStateSetEpoch":{one.sync_state_set_epoch}}}'
        self.driver.send(
            1001, self.connections[one.master_broker_id], body.encode(), brokerName=NAME,
            masterBrokerId=one.master_broker_id, masterEpoch=one.master_epoch - back,
        )  # fmt: skip

    @rule(broker=BROKERS, living=st.booleans())
    def clean(self, broker: int, living: bool) -> None:
        self.driver.send(
            1011, 99, clusterName=CLUSTER, brokerName=NAME, brokerControllerIdsToClean=broker,
            isCleanLivingBroker=living,
        )  # fmt: skip

    @rule(master=st.sampled_from([None, 1, 2]), epoch=st.integers(1, 3))
    def import_set(self, master: int | None, epoch: int) -> None:
        replicas = tuple(RegisteredReplica(one, f"h:{one}") for one in (1, 2, 3))
        said = BrokerSetState(CLUSTER, NAME, 4, master, epoch, (1, 2), 5, replicas)
        self.driver.send(60013, 99, said.encode(), brokerName=NAME)

    @rule(pause_ms=PAUSES)
    def wait(self, pause_ms: int) -> None:
        self.driver.pass_time(pause_ms)

    @rule(lost=st.booleans())
    def change_leader(self, lost: bool) -> None:
        self.term += 1
        if lost:
            self.driver.step(LeadershipChanged(False, self.term))
            self.term += 1
        self.driver.held.clear()
        self.driver.step(LeadershipChanged(True, self.term))

    @rule(hold=st.booleans())
    def hold_commits(self, hold: bool) -> None:
        self.driver.hold = hold
        self.driver.carry_out([])

    @invariant()
    def committed_events_are_safe(self) -> None:
        for record in self.driver.log[self.seen :]:
            self.seen += 1
            self._check(record)

    def _check(self, record: bytes) -> None:
        event = from_proposal(record)[2]
        before = self.replayed.state.sets.get(NAME)
        members = () if before is None else before.sync_state_set
        epoch = 0 if before is None else before.master_epoch
        if isinstance(event, SyncStateSetAltered):
            assert before is not None
            assert set(event.new_sync_state_set) <= set(before.replicas)
        self.replayed.step(0, Committed(self.seen, record))
        after = self.replayed.state.sets.get(NAME)
        if after is None:
            self.masters.forget(NAME)
            return
        if isinstance(event, MasterElected):
            assert after.master_epoch > epoch, "each election spends an epoch"
            self.masters.observe(
                NAME, after.master_epoch, after.master_broker_id, sync_state_set_before=members
            )
        elif isinstance(event, BrokerSetImported) and before is None:
            assert after.master_epoch == event.master_epoch
        elif not isinstance(event, BrokerDataCleaned):
            assert after.master_epoch == epoch
        self.masters.observe(NAME, after.master_epoch, after.master_broker_id)

    @invariant()
    def replay_and_snapshot_equal_the_state(self) -> None:
        machine = self.driver.machine
        assert self.replayed.state == machine.state
        joined = ControllerMachine()
        joined.step(0, SnapshotLoaded(machine.applied_index, machine.snapshot()))
        assert joined.state == machine.state

    @invariant()
    def nothing_waits_when_everything_committed(self) -> None:
        if not self.driver.hold:
            assert len(self.driver.replies) == self.driver.token

    @invariant()
    def cached_answers_equal_fresh_ones(self) -> None:
        one = self.driver.machine.state.sets.get(NAME)
        if one is None:
            return
        answer = self.driver.machine.read(self.driver.now_ms, 99, 1004, {"brokerName": NAME})
        assert answer.ext_fields["masterEpoch"] == str(one.master_epoch)
        one.changed()
        fresh = self.driver.machine.read(self.driver.now_ms, 99, 1004, {"brokerName": NAME})
        assert answer == fresh


def test_alter_when_a_member_died_just_now_then_never_added() -> None:
    """The model cannot look back in time, so this one is spelled out: 2006, no event."""
    driver = Driver()
    driver.pair()
    driver.register(3)
    driver.beat(3)
    driver.close(3)
    driver.now_ms += 100
    events = len(driver.log)
    assert driver.alter(1, 1, [1, 2, BrokerId(3)], 2).code == 2006
    assert len(driver.log) == events


TestControllerModel = ControllerModel.TestCase
TestControllerModel.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, derandomize=True
)
