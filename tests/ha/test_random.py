"""Random histories of a broker set: crashes, power cuts, cuts, elections, lost answers.

After every step of every replica the properties of ``rmqha.verify`` hold; at the end everybody
agrees. Elections are clean, and every put needs all of the SyncStateSet.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)  # fmt: skip

from rmqha.base.errors import InvariantBroken
from rmqha.ha import events as ev
from rmqha.ha.events import PutStatus
from rmqha.ha.frames import MasterFrame, TransferHeader
from rmqha.ha.membership import Membership
from rmqha.ha.settings import HaSettings
from rmqha.ha.slave_session import SlaveSession
from rmqha.verify.logs import check_converged
from tests.ha.cluster import Cluster

pytestmark = pytest.mark.slow

IDS = st.sampled_from([1, 2, 3])
COUNTS: Counter[str] = Counter()
KINDS = frozenset({
    "power took bytes of a master", "power took bytes of a slave", "a put outlived its reign",
    "a master that lost power was elected", "an heir was elected", "a log was cut",
})  # fmt: skip


class BrokerSet(RuleBasedStateMachine):
    """A set of three under everything that may happen to it."""

    @initialize(
        seed=st.integers(0, 2**16), flushed=st.booleans(), flush_ms=st.sampled_from([0, 300])
    )
    def begin(self, seed: int, flushed: bool, flush_ms: int) -> None:
        self.cluster = Cluster(
            3,
            settings=HaSettings(all_ack_in_sync_state_set=True, ack_flushed_data=flushed),
            file_size=2_000,
            seed=seed,
            flush_ms=flush_ms,
        )
        self.cluster.keeps_confirmed = True
        self.count = 0
        self.cluster.elect(1)

    @rule(count=st.integers(1, 12), size=st.integers(1, 400), flushed=st.booleans())
    def put(self, count: int, size: int, flushed: bool) -> None:
        for _ in range(count):
            self.count += 1
            for replica in self.cluster.replicas.values():
                if replica.up and replica.core.is_serving:
                    body = b"%d/%d " % (replica.id, self.count) + b"." * size
                    replica.put(body, flushed=flushed)

    @rule(duration_ms=st.integers(1, 3_000))
    def run(self, duration_ms: int) -> None:
        self.cluster.run(duration_ms)

    @rule(times=st.integers(1, 10), limit=st.integers(1, 500))
    def move_some_bytes(self, times: int, limit: int) -> None:
        for _ in range(times):
            for pipe in list(self.cluster.pipes):
                if pipe.open:
                    self.cluster.deliver(pipe, limit)

    @rule(broker_id=IDS, steps=st.integers(1, 3))
    def run_lane(self, broker_id: int, steps: int) -> None:
        for _ in range(steps):
            self.cluster[broker_id].run_lane()

    @rule(broker_id=IDS)
    def flush(self, broker_id: int) -> None:
        replica = self.cluster[broker_id]
        if replica.up:
            replica.flush()

    @rule(broker_id=IDS, power=st.booleans())
    def crash(self, broker_id: int, power: bool) -> None:
        cluster = self.cluster
        replica = cluster[broker_id]
        if not replica.up:
            return
        if power and not cluster.settings.ack_flushed_data:
            replica.log.flush_now()  # promises nothing about a power cut
        cluster.crash(broker_id, power=power)

    @rule(broker_id=IDS, size=st.integers(1, 400), limit=st.integers(1, 500))
    def lose_power_under_way(self, broker_id: int, size: int, limit: int) -> None:
        """Right after a put that is on its way to the disks."""
        self.put(2, size, flushed=False)
        self.move_some_bytes(2, limit)
        self.crash(broker_id, power=True)

    @rule(broker_id=IDS)
    def restart(self, broker_id: int) -> None:
        if not self.cluster[broker_id].up:
            self.cluster.restart(broker_id)

    @rule(broker_id=IDS)
    def elect(self, broker_id: int) -> None:
        """Clean: out of the SyncStateSet, among those that are up."""
        cluster = self.cluster
        reachable = cluster[broker_id].up and broker_id not in cluster.cut
        if reachable and broker_id in cluster.sync_state_set:
            cluster.elect(broker_id)

    @rule(broker_id=IDS, duration_ms=st.integers(1, 1_000))
    def elect_during_a_flush(self, broker_id: int, duration_ms: int) -> None:
        """Whoever put waits for the disk, and the log may be cut meanwhile."""
        before = self.cluster.master
        assert before is not None
        self.put(1, 100, flushed=False)
        self.elect(broker_id)
        self.run(duration_ms)
        self.flush(before)

    @rule(broker_id=IDS)
    def cut_off(self, broker_id: int) -> None:
        self.cluster.cut.add(broker_id)

    @precondition(lambda self: self.cluster.cut)
    @rule()
    def heal(self) -> None:
        cluster = self.cluster
        cluster.cut.clear()
        for broker_id in cluster.replicas:
            cluster.tell(broker_id)

    @rule(index=st.integers(0, 5))
    def reset_a_connection(self, index: int) -> None:
        pipes = self.cluster.pipes
        if pipes:
            self.cluster.close(pipes[index % len(pipes)])

    @rule(broker_id=IDS, applied=st.booleans())
    def lose_an_answer(self, broker_id: int, applied: bool) -> None:
        """The controller may have applied the alteration all the same."""
        cluster, replica = self.cluster, self.cluster[broker_id]
        if not replica.alters or not replica.up:
            return
        effect = replica.alters.pop(0)
        if applied and effect.epoch == cluster.set_epoch and broker_id == cluster.master:
            cluster.set_epoch += 1
            cluster.sync_state_set = effect.ids
        replica.give(ev.AlterLost())

    @rule(broker_id=IDS)
    def poll(self, broker_id: int) -> None:
        cluster, replica = self.cluster, self.cluster[broker_id]
        if replica.up and broker_id == cluster.master and broker_id not in cluster.cut:
            replica.give(ev.SyncStateSetConfirmed(cluster.sync_state_set, cluster.set_epoch))

    @invariant()
    def nothing_is_lost(self) -> None:
        if hasattr(self, "cluster"):
            self.cluster.verify()

    def teardown(self) -> None:
        if hasattr(self, "cluster"):
            converge(self.cluster)
            COUNTS.update(self.cluster.counts)


def converge(cluster: Cluster) -> None:
    """Heal everything; all replicas must end up equal, and in the set."""
    cluster.cut.clear()
    for broker_id, replica in cluster.replicas.items():
        if not replica.up:
            cluster.restart(broker_id)
        else:
            cluster.tell(broker_id)
    master = cluster.master
    assert master is not None
    for replica in cluster.replicas.values():
        replica.flush()
    for _ in range(12):
        cluster.run(1_000)
        cluster.replicas[master].give(
            ev.SyncStateSetConfirmed(cluster.sync_state_set, cluster.set_epoch)
        )
    cluster.replicas[master].put(b"last")
    cluster.run(8_000)
    cluster.verify()
    for broker_id, replica in cluster.replicas.items():
        if broker_id != master:
            check_converged(cluster[master].snapshot(), replica.snapshot())
    assert cluster.sync_state_set == {1, 2, 3}
    assert cluster[master].log.confirm_offset == cluster[master].log.max_offset


def test_set_when_anything_happens_then_nothing_acknowledged_is_lost() -> None:
    """And what the rules are about has happened."""
    COUNTS.clear()
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        BrokerSet,
        settings=settings(
            max_examples=600,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert all(COUNTS[kind] for kind in KINDS), COUNTS


def elected_again_after_a_power_cut() -> Cluster:
    """With SYNC_FLUSH: a slave holds and was told of more than the master's disk did."""
    settings = HaSettings(all_ack_in_sync_state_set=True, ack_flushed_data=True)
    cluster = Cluster(2, settings=settings)
    cluster.keeps_confirmed = True
    cluster.elect(1)
    cluster[1].put(b"a" * 100)
    cluster.run(6_000)
    cluster[1].put(b"b" * 100, flushed=False)
    cluster.run(6_000)
    assert cluster[2].log.flushed_offset == cluster[2].log.max_offset == 216
    cluster.cut.add(2)
    cluster.crash(1, power=True)
    cluster.restart(1)
    assert cluster[1].log.max_offset == 108
    assert not cluster[1].core.is_serving, "it does not go on in its epoch"
    cluster.elect(1)
    cluster.cut.clear()
    cluster.tell(2)
    cluster[1].put(b"c" * 100)
    cluster.run(6_000)
    cluster.verify()
    return cluster


def test_master_when_it_lost_power_and_is_elected_then_nothing_confirmed_is_cut() -> None:
    """Consumers of the slave may have read what is confirmed, whoever confirmed it."""
    cluster = elected_again_after_a_power_cut()
    assert cluster[2].log.records() == [b"a" * 100, b"c" * 100]


def test_mutant_confirmed_beyond_the_master_s_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A master that confirms what only its slaves have made durable."""

    def by_slaves_alone(self: Membership) -> None:
        self._ha.set_confirm(min([self._ha.log.max_offset, *self.acks().values()]))

    monkeypatch.setattr(Membership, "move_confirm", by_slaves_alone)
    with pytest.raises(InvariantBroken, match="cut below its confirmOffset"):
        elected_again_after_a_power_cut()


def test_mutant_acknowledged_in_a_later_reign(monkeypatch: pytest.MonkeyPatch) -> None:
    """A put that waits for the disk over two elections meets another record in its place."""

    def story() -> Cluster:
        settings = HaSettings(all_ack_in_sync_state_set=True, ack_flushed_data=True)
        cluster = Cluster(2, settings=settings)
        cluster.elect(1)
        cluster.run(6_000)
        assert cluster.sync_state_set == {1, 2}
        cluster.cut.add(2)
        cluster[1].put(b"a" * 100, flushed=False)
        cluster.cut.clear()
        cluster.elect(2)
        cluster.run(6_000)
        assert cluster[1].log.max_offset == 0
        cluster.elect(1)
        cluster[1].put(b"b" * 100, flushed=False)
        cluster[1].flush()
        cluster.run(6_000)
        return cluster

    cluster = story()
    assert cluster[1].done == {1: PutStatus.FLUSH_SLAVE_TIMEOUT, 2: PutStatus.PUT_OK}
    honest = Membership.wait

    def forgetful(
        self: Membership, now_ms: int, token: int, end_offset: int, *, reigning: bool
    ) -> None:
        honest(self, now_ms, token, end_offset, reigning=True)

    monkeypatch.setattr(Membership, "wait", forgetful)
    with pytest.raises(InvariantBroken, match="two records were acknowledged at one offset"):
        story()


def test_mutant_confirm_offset_of_connected_slaves_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """#6662 as a mutant: the properties must see it."""

    def connected_only(self: Membership) -> None:
        log = self._ha.log
        self._ha.set_confirm(min([log.max_offset, *self.acks().values()]))

    monkeypatch.setattr(Membership, "move_confirm", connected_only)
    cluster = Cluster(3)
    cluster.elect(1)
    cluster.run(500)
    cluster[1].put(b"a")
    cluster.run(1_500)
    assert cluster.sync_state_set == {1, 2, 3}
    cluster.answer_alters = False
    cluster.crash(3)

    def go_on() -> None:
        for _ in range(3):
            cluster[1].put(b"b")
            cluster.run(200)

    with pytest.raises(InvariantBroken, match="a member of the SyncStateSet"):
        go_on()


def test_mutant_acknowledge_before_append(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slave that acknowledges a header makes the master count bytes that may never come."""
    honest = SlaveSession.received

    def eager(self: SlaveSession, now_ms: int, frame: MasterFrame) -> None:
        honest(self, now_ms, frame)
        if isinstance(frame, TransferHeader) and frame.body_size:
            self._ack(now_ms, frame.offset + frame.body_size)

    monkeypatch.setattr(SlaveSession, "received", eager)
    cluster = Cluster(2)
    cluster.elect(1)
    cluster[1].put(b"a" * 100)
    cluster.run(1_500)
    assert cluster.sync_state_set == {1, 2}
    cluster[1].put(b"b" * 100)
    cluster.deliver(cluster.pipes[0], 40)
    cluster.deliver(cluster.pipes[0], 12)
    cluster.answer_alters = False
    cluster.crash(1)
    cluster.elect(2)
    cluster.run(500)
    with pytest.raises(InvariantBroken, match="acknowledged record is lost"):
        cluster.verify()


def test_mutant_epoch_entry_dropped_on_reconnect(monkeypatch: pytest.MonkeyPatch) -> None:
    """New data under an old epoch's number; the epoch files no longer agree."""

    def forgetful(self: SlaveSession, now_ms: int) -> None:
        self._reply = None
        self._ha.epochs.drop_beyond(self._ha.log.max_offset - 1)
        self._pending_epochs = []
        self._waiting_seq = None
        self._begin_transfer(now_ms)

    cluster = Cluster(2)
    cluster.elect(1)
    cluster[1].put(b"a" * 100)
    cluster.run(1_000)
    cluster.elect(1)
    cluster.run(6_000)
    assert cluster[2].core.ha.epochs.last_epoch == 2
    monkeypatch.setattr(SlaveSession, "_adopt_epochs", forgetful)
    monkeypatch.setattr(SlaveSession, "_learn", lambda self, header: None)
    cluster.close(cluster.pipes[0])
    cluster.run(1_000)
    cluster[1].put(b"b" * 100)
    cluster.run(1_000)
    with pytest.raises(InvariantBroken, match="epoch files agree"):
        check_converged(cluster[1].snapshot(), cluster[2].snapshot())
