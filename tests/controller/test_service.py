"""The controller service among brokers and faults, in virtual time."""

from __future__ import annotations

import asyncio
import contextvars
import re
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

from rmqha.base.errors import InvariantBroken, RmqhaError
from rmqha.base.ids import BrokerId
from rmqha.base.machine import Note
from rmqha.controller import machine
from rmqha.controller.aio import service
from rmqha.controller.aio.note_log import NoteLog
from rmqha.controller.metadata import snapshot
from rmqha.controller.metadata.apply import apply
from rmqha.controller.metadata.events import BrokerIdTaken
from rmqha.controller.metadata.state import MetadataState
from rmqha.controller.raft.events import Persist
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.settings import RemotingSettings
from rmqha.runtime.aio.driver import Driver
from rmqha.runtime.parts import at_once
from rmqha.sim.broker_agent import BrokerAgent
from rmqha.sim.clock import HOST, SimClock
from rmqha.sim.cluster import CONTROLLER_PORT, SimCluster, SimOptions

SEEDS = (1, 2, 3)
SETTLED_MS_MAX = 30_000
NOTIFY_DELAY_MS = 300
# Simulated clocks run up to 4 % wrong.
DRIFT = 0.05


class Cluster(SimCluster):
    """A cluster of one broker set that has settled, and how to wait for things in it."""

    def __init__(self, seed: int, options: SimOptions) -> None:
        super().__init__(seed, options)
        for host in [*self.controller_hosts, *self.broker_hosts]:
            self.boot(host)
        self.run_until(self.is_settled, SETTLED_MS_MAX, step_ms=100)
        self._context = contextvars.copy_context()
        self._context.run(HOST.set, "t0")
        network = self.net.boot("t0", self._context)
        self._client = RemotingClient(
            network, SimClock(self.loop), RemotingSettings(), connection_ids=self.ids
        )

    @property
    def now_ms(self) -> float:
        """Virtual milliseconds."""
        return self.loop.time() * 1000

    def run_until(self, done: Callable[[], object], limit_ms: float, step_ms: float = 1) -> float:
        """Let time pass until it is so; returns how long that took."""
        start_ms = self.now_ms
        while not done():
            tail = "\n".join(self.trace.lines[-40:])
            assert self.now_ms - start_ms <= limit_ms, f"not within {limit_ms} ms:\n{tail}"
            self.run_for(step_ms)
        return self.now_ms - start_ms

    def the_leader(self) -> str:
        """The leading controller's host."""
        leader = self.leader()
        assert leader is not None
        return leader

    def master(self) -> BrokerAgent:
        """The broker that is master in the newest epoch that any broker knows."""
        return max(
            (a for a in self.brokers.values() if a.role == "master"), key=lambda a: a.master_epoch
        )

    def has_master_after(self, epoch: int) -> bool:
        """Whether a living broker has become master in a later epoch."""
        return any(a.role == "master" and a.master_epoch > epoch for a in self.brokers.values())

    def epoch(self) -> int:
        """The set's master epoch at the leader."""
        return self.controllers[self.the_leader()].machine.state.sets["set-0"].master_epoch

    def cut_off(self, host: str, *others: str) -> None:
        """Nothing passes between a host and these, in both directions."""
        for other in others:
            self.net.cut(host, other)
            self.net.cut(other, host)

    def times(self, pattern: str, since_ms: float = 0) -> list[tuple[float, str]]:
        """Lines of the trace that match, each with its virtual time."""
        found = []
        for line in self.trace.lines:
            at, _, text = line.strip().partition(" ")
            if float(at) >= since_ms and re.search(pattern, text):
                found.append((float(at), text.strip()))
        return found

    def send(
        self, host: str, code: RequestCode, ext: dict[str, str], body: bytes = b""
    ) -> asyncio.Task[RemotingCommand]:
        """Send a request from a host that is nobody's broker; run the loop for its answer."""
        request = RemotingCommand(code, ext_fields=ext, body=body)
        work = self._client.invoke(f"{host}:{CONTROLLER_PORT}", request, 10_000)
        return self.loop.create_task(work, context=self._context.copy())

    def ask(self, host: str, code: RequestCode, ext: dict[str, str]) -> RemotingCommand:
        """Ask, and let time pass until the answer is there."""
        task = self.send(host, code, ext)
        self.run_until(task.done, 10_000)
        return task.result()

    def finish(self) -> None:
        """End it; nothing may have gone wrong unseen."""
        work = self.loop.create_task(self._client.close(), context=self._context.copy())
        self.loop.run_until_complete(work)
        self.close()


@pytest.fixture(params=SEEDS)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Three controllers, one set of three brokers, all well."""
    one = Cluster(request.param, SimOptions(broker_sets=1))
    yield one
    one.finish()


REPLICA_INFO = {"brokerName": "set-0"}


# -- answers ---------------------------------------------------------------------------------


def test_answer_when_a_change_is_committed_then_it_leaves_before_the_log_line(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for a line to be written, to a disk that may be slow."""
    seen: list[str] = []
    leader = cluster.controllers[cluster.the_leader()]
    flush, note = Connection._flush, NoteLog._write
    own_log = leader._notes

    def flushed(self: Connection) -> None:
        if self._out and self.host == "t0":
            seen.append("answer")
        flush(self)

    def noted(self: NoteLog, one: Note) -> None:
        if self is own_log:
            seen.append(one.event)
        note(self, one)

    names = {"clusterName": "DefaultCluster", "brokerName": "set-9"}
    apply = {**names, "appliedBrokerId": "1", "registerCheckCode": "x:1"}
    cluster.ask(cluster.the_leader(), RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, names)
    monkeypatch.setattr(Connection, "_flush", flushed)
    monkeypatch.setattr(NoteLog, "_write", noted)
    answer = cluster.ask(cluster.the_leader(), RequestCode.CONTROLLER_APPLY_BROKER_ID, apply)
    assert answer.code == ResponseCode.SUCCESS
    cluster.run_until(lambda: len(seen) > 1, 1_000)
    assert seen == ["answer", "broker_registered"]


def test_change_when_it_is_written_then_it_is_on_its_way_to_the_followers_first(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waking the leader's disk takes its processor; followers would begin to write so much later."""
    leader = cluster.controllers[cluster.the_leader()]
    links = leader.raft.peers._links.values()
    append = leader.raft.wal.append
    unsent: list[int] = []

    def appended(persist: Persist, *, may_block: bool = False) -> None:
        if persist.entries:
            unsent.extend(link._connection._out_bytes for link in links if link._connection)
        append(persist, may_block=may_block)

    monkeypatch.setattr(leader.raft.wal, "append", appended)
    names = {"clusterName": "DefaultCluster", "brokerName": "set-9"}
    apply = {**names, "appliedBrokerId": "1", "registerCheckCode": "x:1"}
    answer = cluster.ask(cluster.the_leader(), RequestCode.CONTROLLER_APPLY_BROKER_ID, apply)
    assert answer.code == ResponseCode.SUCCESS
    assert unsent == [0, 0]


# -- who is told what, and when --------------------------------------------------------------


def test_the_new_master_is_told_before_the_slaves(cluster: Cluster) -> None:
    """A slave that comes first finds nobody at the new master's HA port and waits 5 s."""
    old, start_ms = cluster.master(), cluster.now_ms
    cluster.kill(old.host)
    cluster.run_until(lambda: cluster.has_master_after(old.master_epoch), 1000)
    new = cluster.master()
    (slave,) = [a for a in cluster.brokers.values() if a is not new]
    cluster.run_until(lambda: slave.master_epoch == new.master_epoch, 1000)
    told = cluster.times(rf"broker_notified .*masterEpoch={new.master_epoch}", start_ms)
    assert [new.address, slave.address] == [
        re.findall(r"address=(\S+)", text)[0] for _, text in told
    ]
    (became_master, _), (became_slave, _) = cluster.times(
        rf"is (master|slave) epoch={new.master_epoch}", start_ms
    )
    assert became_master < became_slave
    assert new.address == slave.master_address


def test_slaves_are_told_by_the_masters_heartbeat_and_not_by_the_delay(cluster: Cluster) -> None:
    """The new master's first heartbeat in its epoch means that it serves."""
    old = cluster.master()
    cluster.kill(old.host)
    cluster.run_until(lambda: cluster.has_master_after(old.master_epoch), 1000, step_ms=0.2)
    epoch = cluster.master().master_epoch
    waited_ms = cluster.run_until(
        lambda: all(a.master_epoch == epoch for a in cluster.brokers.values()), 1000
    )
    assert waited_ms < NOTIFY_DELAY_MS / 2


def test_slaves_are_told_after_the_delay_when_the_master_is_not_heard(cluster: Cluster) -> None:
    """A lost heartbeat of the new master must not leave its slaves with the old one."""
    old, leader, start_ms = cluster.master(), cluster.the_leader(), cluster.now_ms
    cluster.kill(old.host)
    cluster.run_until(lambda: cluster.times("master_elected", start_ms), 1000, step_ms=0.05)
    ((elected_ms, text),) = cluster.times("master_elected", start_ms)
    new = re.findall(r"master_address=([^\s:]+)", text)[0]
    cluster.cut_off(new, leader)
    (slave,) = [h for h in cluster.brokers if h != new]
    told = f"broker_notified address={slave}:"
    cluster.run_until(lambda: cluster.times(told, start_ms), 1000)
    waited_ms = cluster.times(told, start_ms)[0][0] - elected_ms
    assert NOTIFY_DELAY_MS * (1 - DRIFT) <= waited_ms <= NOTIFY_DELAY_MS * (1 + DRIFT) + 10


def test_brokers_are_told_by_the_next_leader_when_the_old_one_died_before(cluster: Cluster) -> None:
    """Elected, committed, and nobody ever heard of it: the set would wait for its next poll."""
    old, leader, start_ms = cluster.master(), cluster.the_leader(), cluster.now_ms
    cluster.kill(old.host)
    cluster.run_until(lambda: cluster.times("master_elected", start_ms), 1000, step_ms=0.05)
    cluster.kill(leader)
    assert not cluster.has_master_after(old.master_epoch)
    outage_ms = cluster.run_until(lambda: cluster.has_master_after(old.master_epoch), 1000)
    new = cluster.master()
    cluster.run_until(
        lambda: all(a.master_epoch == new.master_epoch for a in cluster.brokers.values()), 1000
    )
    told = cluster.times(f"broker_notified address={new.address}", start_ms)
    assert told, f"{outage_ms} ms, but by polling"
    assert all(text.startswith(cluster.the_leader()) for _, text in told)
    assert old.master_epoch + 1 == new.master_epoch == cluster.epoch()


# -- outages ---------------------------------------------------------------------------------


@pytest.mark.costly
def test_leader_and_master_dying_together_are_one_outage_below_a_second(cluster: Cluster) -> None:
    """They share a machine in small clusters; Java needs both timeouts, one after the other."""
    old = cluster.master()
    cluster.kill(cluster.the_leader())
    cluster.kill(old.host)
    outage_ms = cluster.run_until(lambda: cluster.has_master_after(old.master_epoch), 1000)
    assert outage_ms < 1000
    assert old.master_epoch + 1 == cluster.epoch()


def test_a_masters_death_is_an_outage_of_a_fraction_of_a_second(cluster: Cluster) -> None:
    """Its connection is reset: nobody needs to wait for the heartbeat timeout."""
    old = cluster.master()
    cluster.kill(old.host)
    assert cluster.run_until(lambda: cluster.has_master_after(old.master_epoch), 1000) < 250


@pytest.mark.costly
def test_a_slaves_death_leaves_the_master_epoch(cluster: Cluster) -> None:
    """An election without need interrupts every producer."""
    before = cluster.master()
    slave = next(h for h, a in sorted(cluster.brokers.items()) if a.role == "slave")
    cluster.kill(slave)
    one = cluster.controllers[cluster.the_leader()].machine.state.sets["set-0"]
    cluster.run_until(lambda: len(one.sync_state_set) == 2, 10_000, step_ms=20)
    cluster.run_for(10_000)
    assert before.master_epoch == cluster.epoch()
    assert before is cluster.master()


@pytest.mark.costly
def test_a_silent_master_is_replaced_after_its_heartbeat_timeout(cluster: Cluster) -> None:
    """SIGSTOP or a pulled cable: no reset comes, so only the timeout the broker asked for counts."""
    old = cluster.master()
    cluster.cut_off(old.host, *(h for h in [*cluster.clocks, "t0"] if h != old.host))
    epoch = old.master_epoch
    timeout_ms = cluster.options.heartbeat_timeout_ms

    def replaced() -> bool:
        """Another broker, for the old one still believes in itself."""
        return any(
            a.role == "master" and a.master_epoch > epoch
            for a in cluster.brokers.values()
            if a is not old
        )

    outage_ms = cluster.run_until(replaced, 2 * timeout_ms)
    heartbeat_ms = 300  # of the simulated agents
    assert timeout_ms * (1 - DRIFT) - heartbeat_ms <= outage_ms <= timeout_ms * (1 + DRIFT) + 100
    assert "master" == old.role
    cluster.net.heal()
    cluster.run_until(cluster.is_settled, SETTLED_MS_MAX, step_ms=100)
    assert "slave" == old.role
    assert epoch + 1 == cluster.epoch()


def test_a_reset_connection_that_is_made_again_fails_nothing_over(cluster: Cluster) -> None:
    """A middlebox resets connections; a broker that speaks again within the grace never died."""
    master, leader = cluster.master(), cluster.the_leader()
    epoch, start_ms = master.master_epoch, cluster.now_ms
    for _ in range(5):
        cluster.net.reset_between(master.host, leader)
        cluster.run_for(1)
        context = cluster.net.contexts[master.host].copy()
        cluster.loop.create_task(master._heartbeat(), context=context)
        cluster.run_for(500)
    assert [] == cluster.times(rf"{leader} broker_inactive", start_ms)
    assert epoch == cluster.epoch()
    assert "master" == master.role


# -- answers ---------------------------------------------------------------------------------


@pytest.mark.costly
def test_a_leader_in_a_minority_never_answers_from_the_past(cluster: Cluster) -> None:
    """A broker that asks the old leader would follow a master that has been replaced."""
    leader, old = cluster.the_leader(), cluster.master()
    others = [h for h in cluster.controller_hosts if h != leader]
    cluster.cut_off(leader, *others)
    cluster.kill(old.host)
    answers: list[tuple[float, asyncio.Task[RemotingCommand]]] = []
    start_ms = cluster.now_ms
    replaced_ms: float | None = None
    while cluster.now_ms - start_ms < 2500:
        sent = cluster.send(leader, RequestCode.CONTROLLER_GET_REPLICA_INFO, REPLICA_INFO)
        answers.append((cluster.now_ms, sent))
        cluster.run_for(2)
        if replaced_ms is None and cluster.has_master_after(old.master_epoch):
            replaced_ms = cluster.now_ms
    assert replaced_ms is not None
    cluster.run_until(lambda: all(task.done() for _, task in answers), 10_000)
    late = [task.result() for sent_ms, task in answers if sent_ms >= replaced_ms]
    assert late
    assert {ResponseCode.CONTROLLER_NOT_LEADER} == {answer.code for answer in late}
    for _, task in answers:
        fields = task.result().ext_fields or {}
        assert int(fields.get("masterEpoch", old.master_epoch)) == old.master_epoch


@pytest.mark.costly
@pytest.mark.parametrize("seed", SEEDS)
def test_writes_to_a_leader_that_lost_its_quorum_are_answered_in_time(seed: int) -> None:
    """Clients give up after 3 s; an answer after that is a request that was done twice."""
    cluster = Cluster(seed, SimOptions(broker_sets=1))
    leader = cluster.the_leader()
    cluster.cut_off(leader, *(h for h in cluster.controller_hosts if h != leader))
    names = {"clusterName": "SimCluster", "brokerName": "new-set"}
    asked = [
        cluster.send(
            leader,
            RequestCode.CONTROLLER_APPLY_BROKER_ID,
            {**names, "appliedBrokerId": "1", "registerCheckCode": "h:1;1"},
        ),
        cluster.send(leader, RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, names),
        cluster.send(leader, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, {}, b'["set-0"]'),
    ]
    cluster.run_until(lambda: all(task.done() for task in asked), 3000)
    assert ResponseCode.CONTROLLER_NOT_LEADER == asked[0].result().code
    # The next leader cuts it off: nothing would ever take it from what waits to be committed.
    assert cluster.controllers[leader]._proposed_ms == {}
    cluster.finish()


@pytest.mark.costly
def test_requests_during_an_election_are_answered_in_time(cluster: Cluster) -> None:
    """Nobody may hang: a broker asks the next controller only after an answer."""
    leader = cluster.the_leader()
    cluster.kill(leader)
    others = [h for h in cluster.controller_hosts if h != leader]
    names = {"clusterName": "SimCluster", "brokerName": "set-0"}
    slowest_ms = 0.0
    for _ in range(30):
        for host in others:
            for code in (
                RequestCode.CONTROLLER_GET_REPLICA_INFO,
                RequestCode.CONTROLLER_GET_NEXT_BROKER_ID,
                RequestCode.CONTROLLER_GET_METADATA_INFO,
            ):
                start_ms = cluster.now_ms
                answer = cluster.ask(host, code, names)
                slowest_ms = max(slowest_ms, cluster.now_ms - start_ms)
                assert answer.code in (ResponseCode.SUCCESS, ResponseCode.CONTROLLER_NOT_LEADER)
    assert slowest_ms < 3000
    cluster.run_until(lambda: cluster.leader() is not None, 1000)


# -- restarts --------------------------------------------------------------------------------


@pytest.mark.costly
@pytest.mark.few
@pytest.mark.parametrize("power", [False, True], ids=["kill", "power"])
def test_a_restart_of_all_controllers_keeps_master_and_epoch(
    cluster: Cluster, *, power: bool
) -> None:
    """Brokers went on serving; controllers that come back must not elect for the fun of it."""
    old, elections = cluster.master(), set(cluster.elections)
    for host in cluster.controller_hosts:
        cluster.kill(host, power=power)
    cluster.run_for(3000)
    for host in cluster.controller_hosts:
        cluster.boot(host)
    cluster.run_until(lambda: cluster.leader() is not None, 5000)
    cluster.run_for(20_000)
    assert old is cluster.master()
    assert old.master_epoch == cluster.epoch()
    assert elections == cluster.elections
    assert cluster.is_settled()


@pytest.mark.costly
def test_a_master_that_is_heard_later_than_its_slaves_stays_master_after_a_restart(
    cluster: Cluster,
) -> None:
    """Controllers that start know nobody: the first heartbeat says nothing about the others."""
    old = cluster.master()
    for host in cluster.controller_hosts:
        cluster.kill(host)
    cluster.cut_off(old.host, *cluster.controller_hosts)
    for host in cluster.controller_hosts:
        cluster.boot(host)
    cluster.run_for(5000)
    assert cluster.leader() is not None
    cluster.net.heal()
    cluster.run_for(10_000)
    assert "master" == old.role
    assert old.master_epoch == cluster.epoch()


@pytest.mark.costly
def test_a_master_that_never_comes_back_is_replaced_after_the_cold_start(cluster: Cluster) -> None:
    """Sparing it for ever would leave the set without a master."""
    old = cluster.master()
    for host in [*cluster.controller_hosts, old.host]:
        cluster.kill(host)
    for host in cluster.controller_hosts:
        cluster.boot(host)
    grace_ms = 10_000
    cluster.run_until(lambda: cluster.has_master_after(old.master_epoch), 2 * grace_ms, step_ms=10)
    assert old.master_epoch + 1 == cluster.epoch()


@pytest.mark.costly
def test_a_leader_that_stops_in_order_hands_over_at_once(cluster: Cluster) -> None:
    """A rolling restart costs no election timeout and no master."""
    leader, old = cluster.the_leader(), cluster.master()
    service = cluster.controllers[leader]
    context = cluster.net.contexts[leader].copy()
    stopping = cluster.loop.create_task(service.stop(), context=context)
    outage_ms = cluster.run_until(lambda: cluster.leader() not in (None, leader), 1000, step_ms=0.5)
    assert outage_ms < 100
    cluster.run_until(stopping.done, 2000)
    cluster.kill(leader)
    cluster.run_for(15_000)
    assert old.master_epoch == cluster.epoch()


def test_controller_when_it_closes_then_its_last_lines_are_written(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines are written a turn later, and a process that ends has no later turn."""
    leader = cluster.the_leader()
    service, lines = cluster.controllers[leader], list[str]()
    close = Driver.close

    def closed(self: Any) -> None:
        close(self)
        if self is service._driver:
            service._notes.write(Note("last_words"))

    monkeypatch.setattr(Driver, "close", closed)
    monkeypatch.setattr(NoteLog, "_write", lambda _, one: lines.append(one.event))

    async def end() -> list[str]:
        await service.close()
        return [*lines]

    context = cluster.net.contexts[leader].copy()
    ending = cluster.loop.create_task(end(), context=context)
    cluster.run_until(ending.done, 2_000)
    assert "last_words" in ending.result()


def test_a_dead_controller_is_an_error_of_the_connection(cluster: Cluster) -> None:
    """The test's client sees what a broker sees, or the tests above would prove nothing."""
    leader = cluster.the_leader()
    cluster.kill(leader)
    task = cluster.send(leader, RequestCode.CONTROLLER_GET_METADATA_INFO, {})
    cluster.run_until(task.done, 5000)
    assert isinstance(task.exception(), RmqhaError)


def test_snapshot_when_checked_and_loaded_then_read_once(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading a large one takes longer than an election timeout; it is checked before it is
    durable, and loaded afterwards."""
    read: list[bytes] = []

    def reading(data: bytes) -> Generator[None, None, tuple[int, MetadataState]]:
        read.append(data)
        return snapshot.reading(data)

    monkeypatch.setattr(service, "reading", reading)
    monkeypatch.setattr(machine, "from_snapshot", lambda data: at_once(reading(data)))
    one = cluster.controllers[cluster.the_leader()]
    index, data = one.machine.applied_index, one.snapshot()
    known = MetadataState(dict(one.machine.state.sets))
    at_once(one.check_snapshot(data))
    one.restore(index, data)
    assert read == [data]
    assert one.machine.state == known
    assert one.snapshot() == data
    later = index + 10**6  # an index that no other node has a state of
    other = snapshot.to_snapshot(later, MetadataState())
    at_once(one.check_snapshot(data))
    one.restore(later, other)
    assert read[2:] == [other]
    assert one.machine.state == MetadataState()


@pytest.mark.costly
def test_state_when_a_node_has_another_then_it_stops_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Were it to lead, it would answer otherwise than the others did."""
    cluster = Cluster(1, SimOptions(broker_sets=1, digest_every=1))
    leader = cluster.the_leader()
    host, other = (one for one in cluster.controller_hosts if one != leader)
    wrong = cluster.controllers[host].machine
    assert wrong.digests.compared > 0
    monkeypatch.setattr(cluster.states, "applied", lambda *_: None)  # It would be the first to see.
    apply(wrong.state, BrokerIdTaken("SimCluster", "set-0", "b99:10911", BrokerId(99), "code"))
    epoch = cluster.epoch()
    cluster.kill(cluster.master().host)
    with pytest.raises(InvariantBroken, match="this node's state differs from its leader's"):
        cluster.run_for(SETTLED_MS_MAX)
    cluster.loop.errors.clear()
    cluster.run_until(lambda: cluster.has_master_after(epoch), SETTLED_MS_MAX)
    cluster.run_for(1000)
    assert set(cluster.controllers) == {leader, other}
    assert cluster.the_leader() == leader
    cluster.finish()
