"""Planned switches of real replicas under sends from a client that never asks for a new route."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from rmqha.admin.commands.switch_master import NotReady
from rmqha.base.errors import RmqhaError
from rmqha.broker.aio.replica import BrokerReplica
from rmqha.broker.membership.planned_switch import PlannedSwitch
from rmqha.broker.send.aio.handovers import FLAG_PASSED_ON
from rmqha.client.exchange import Refused
from rmqha.ha.events import Role
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import RemotingCommand
from rmqha.sim.cluster import CONTROLLER_PORT
from tests.admin.driving import start
from tests.broker.replicas import NAME, Acked, ReplicaCluster, master_of, send_fields

PAUSE_MS = 2


class Load:
    """Sends to one address, whoever reigns, and keeps what becomes of each send."""

    def __init__(self, cluster: ReplicaCluster, address: str, senders: int = 4) -> None:
        self.cluster, self.address = cluster, address
        self.failed: list[str] = []
        self.acked_ms: list[int] = []
        self.number = 0
        self.is_over = False
        self.tasks = [
            cluster.loop.create_task(self._send(), context=cluster._client_context.copy())
            for _ in range(senders)
        ]

    async def _send(self) -> None:
        cluster = self.cluster
        clock = cluster._client._clock
        while not self.is_over:
            self.number += 1
            body = f"load-{self.number:06}".encode()
            command = RemotingCommand(310, ext_fields=send_fields(self.number), body=body)
            try:
                answer = await cluster._client.invoke(self.address, command, 3_000)
            except RmqhaError as error:
                self.failed.append(repr(error))
                continue
            if answer.code == 0:
                self.acked_ms.append(clock.now_ms())
                got = answer.ext_fields or {}
                cluster.acked.append(
                    Acked(body, int(got["queueId"]), int(got["queueOffset"]), self.address)
                )
            else:
                self.failed.append(f"{answer.code} {answer.remark}")
            await clock.sleep(PAUSE_MS)

    def stop(self) -> None:
        """Take every answer that is still to come."""
        self.is_over = True
        self.cluster.until(lambda: all(one.done() for one in self.tasks), "answers")

    def longest_gap_ms(self) -> int:
        """Between two acknowledgements."""
        return max(b - a for a, b in zip(self.acked_ms, self.acked_ms[1:], strict=False))


def switch(cluster: ReplicaCluster, target: int, hold_ms: int = 1_000) -> dict[str, object]:
    """Run the command as mqadmin does."""
    controllers = ";".join(f"{host}:{CONTROLLER_PORT}" for host in cluster.controller_hosts)
    line = f"switchMaster -a {controllers} -bn {NAME} -b {target} -c DefaultCluster"
    exchange = start([*line.split(), "--hold", str(hold_ms), "-w", "5"])
    call = next(exchange)
    try:
        while True:
            answer = cluster.ask(
                call.address, call.command.code, call.command.ext_fields, call.command.body,
                call.timeout_ms,
            )  # fmt: skip
            call = exchange.send(answer)
    except StopIteration as end:
        return dict(end.value.data)


def electing(
    cluster: ReplicaCluster, master: BrokerReplica, target: int
) -> asyncio.Task[RemotingCommand]:
    """Ask a master to have its heir elected, and do not wait."""
    fields = {"brokerId": str(target), "elect": "true", "holdMs": "2000"}
    command = RemotingCommand(RequestCode.HAND_OVER, ext_fields=fields)
    return cluster.loop.create_task(
        cluster._client.invoke(master.config.address, command),
        context=cluster._client_context.copy(),
    )


@pytest.fixture(params=[1, pytest.param(2, marks=pytest.mark.slow)])
def cluster(request: pytest.FixtureRequest) -> Iterator[ReplicaCluster]:
    """Three replicas in sync."""
    with ReplicaCluster(request.param) as one:
        one.boot_all()
        one.send_many(5)
        one.until(one.in_sync, "replicas in sync")
        yield one


def another(cluster: ReplicaCluster, master: BrokerReplica) -> int:
    """The id of somebody who is not the master."""
    ids = {one.replicas.broker_id for one in cluster.replicas.values()}
    return min(one for one in ids - {master.replicas.broker_id} if one is not None)


def finished(cluster: ReplicaCluster, load: Load) -> None:
    """No send failed, and everything acknowledged is on the master where it was said to be."""
    cluster.run_for(300)
    load.stop()
    assert load.failed == []
    master = master_of(cluster)
    cluster.until(lambda: master.store.confirm_offset == master.store.max_offset, "confirmed")
    cluster.run_for(200)
    assert cluster.missing_on(master) == []


@pytest.mark.costly
def test_switch_under_load_then_no_send_fails_with_the_old_route(cluster: ReplicaCluster) -> None:
    """Old clients ask for a route every 30 s; until then the old master passes their sends on."""
    old = master_of(cluster)
    load = Load(cluster, old.config.address)
    cluster.run_for(200)
    target = another(cluster, old)
    done = switch(cluster, target)
    assert done["newMaster"] == target
    cluster.until(lambda: master_of(cluster) is not old, "another master")
    before = len(load.acked_ms)
    cluster.until(lambda: len(load.acked_ms) > before + 50, "sends passed on")
    finished(cluster, load)
    assert old.statistics.sends_passed_on >= 50
    assert old.statistics.planned_switches == 1
    assert load.longest_gap_ms() < 300, "the simulator's controllers and disks are slow"


def test_switch_when_the_target_dies_midway_then_the_old_master_goes_on(
    cluster: ReplicaCluster,
) -> None:
    """Between holding and election: sends are written by the old master, none fails."""
    old = master_of(cluster)
    load = Load(cluster, old.config.address)
    cluster.run_for(100)
    target = another(cluster, old)
    asked = cluster.ask(
        old.config.address, RequestCode.HAND_OVER, {"brokerId": str(target), "holdMs": "300"}
    )
    assert asked.code == 0
    assert old._send.handovers.holds
    host = next(h for h, one in cluster.replicas.items() if one.replicas.broker_id == target)
    cluster.kill(host)
    with pytest.raises((Refused, NotReady)):
        switch(cluster, target)
    cluster.until(lambda: not old._send.handovers.holds, "sends written again")
    assert master_of(cluster) is old
    # Acknowledgements need the others until the dead one has left the SyncStateSet.
    cluster.until(lambda: len(cluster.controller_set()) == 2, "a smaller set")
    load.stop()
    assert cluster.missing_on(old) == []


@pytest.mark.costly
def test_switch_when_the_controllers_leader_dies_midway_then_the_old_master_goes_on(
    cluster: ReplicaCluster,
) -> None:
    """Nobody elects: sends wait for the deadline and go on, none fails."""
    old = master_of(cluster)
    load = Load(cluster, old.config.address)
    cluster.run_for(100)
    target = another(cluster, old)
    leader = cluster.leader()
    assert leader is not None
    asked = cluster.ask(
        old.config.address, RequestCode.HAND_OVER, {"brokerId": str(target), "holdMs": "200"}
    )
    assert asked.code == 0
    cluster.kill(leader)
    cluster.run_for(250)
    assert not old._send.handovers.holds
    before = len(load.acked_ms)
    cluster.until(lambda: len(load.acked_ms) > before + 20, "sends acknowledged again")
    assert master_of(cluster) is old
    finished(cluster, load)
    assert load.longest_gap_ms() < 300


@pytest.mark.costly
def test_switch_by_the_master_when_the_leader_dies_meanwhile_then_it_ends_either_way(
    cluster: ReplicaCluster,
) -> None:
    """With an answer: the heir reigns, by the next leader's word, or the old master does."""
    old = master_of(cluster)
    load = Load(cluster, old.config.address)
    cluster.run_for(100)
    target = another(cluster, old)
    leader = cluster.leader()
    assert leader is not None
    task = electing(cluster, old, target)
    cluster.until(lambda: old._send.handovers.holds, "sends held")
    cluster.kill(leader)
    cluster.until(task.done, "an answer")
    answer = task.result()
    if answer.code == 0:
        assert (answer.ext_fields or {})["elected"] == "true"
        assert master_of(cluster).replicas.broker_id == target
    else:
        assert not old._send.handovers.holds
    finished(cluster, load)


@pytest.mark.costly
def test_switch_by_the_master_when_the_controllers_refuse_then_it_goes_on_at_once(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks for an heir that they do not know; nobody waits for a deadline of two seconds."""
    wanted = PlannedSwitch.wanted
    monkeypatch.setattr(
        PlannedSwitch, "wanted", lambda self, now_ms, heir: wanted(self, now_ms, heir and 77)
    )
    old = master_of(cluster)
    load = Load(cluster, old.config.address)
    cluster.run_for(100)
    task = electing(cluster, old, another(cluster, old))
    cluster.until(task.done, "an answer")
    assert task.result().code == 1
    assert "the controllers: " in (task.result().remark or "")
    assert master_of(cluster) is old
    finished(cluster, load)
    assert load.longest_gap_ms() < 300


def test_switch_when_the_controllers_refuse_then_it_is_taken_back_at_once(
    cluster: ReplicaCluster,
) -> None:
    """An id that is not there is refused before anything is held."""
    old = master_of(cluster)
    with pytest.raises(RmqhaError, match="not registered"):
        switch(cluster, 77)
    target = another(cluster, old)
    assert (
        cluster.ask(old.config.address, RequestCode.HAND_OVER, {"brokerId": str(target)}).code == 0
    )
    assert old._send.handovers.holds
    again = cluster.ask(old.config.address, RequestCode.HAND_OVER, {"brokerId": "1"})
    assert again.code == 1
    assert cluster.ask(old.config.address, RequestCode.HAND_OVER, {"brokerId": "0"}).code == 0
    assert not old._send.handovers.holds
    slave = next(one for one in cluster.replicas.values() if one is not old)
    assert cluster.ask(slave.config.address, RequestCode.HAND_OVER, {"brokerId": "1"}).code == 1
    assert cluster.ask(old.config.address, RequestCode.HAND_OVER, {}).code == 1
    cluster.send_many(3)


@pytest.mark.slow
def test_switches_to_and_fro_when_two_old_masters_pass_on_then_neither_waits_for_the_other(
    cluster: ReplicaCluster,
) -> None:
    """A passes on to B, and B, elected again and not knowing it yet, must not pass it back to A."""
    old = master_of(cluster)
    load = Load(cluster, old.config.address)
    for _ in range(6):
        cluster.until(cluster.in_sync, "replicas in sync")
        cluster.run_for(50)
        switch(cluster, another(cluster, master_of(cluster)))
    cluster.until(cluster.in_sync, "replicas in sync")
    finished(cluster, load)
    assert load.longest_gap_ms() < 300


@pytest.mark.costly
def test_switch_when_it_is_the_second_since_a_client_asked_then_its_first_master_need_not_hear_of_it(
    cluster: ReplicaCluster,
) -> None:
    """A slave is told when name servers name the new master; the old one, that refuses, knows it."""
    first = master_of(cluster)
    load = Load(cluster, first.config.address)
    cluster.run_for(50)
    switch(cluster, another(cluster, first))
    cluster.until(cluster.in_sync, "replicas in sync")
    second = master_of(cluster)
    third = next(one for one in cluster.replicas.values() if one not in (first, second))
    assert third.replicas.broker_id is not None
    task = electing(cluster, second, third.replicas.broker_id)
    cluster.until(lambda: third.role is Role.MASTER, "a third master")
    before = len(load.acked_ms)
    cluster.until(lambda: len(load.acked_ms) > before, "a send taken by it")
    assert first.replicas.place.master_address == second.config.address, "it has not heard of it"
    cluster.until(task.done, "an answer")
    finished(cluster, load)


def test_send_when_it_was_passed_on_then_a_broker_that_passes_on_refuses_it(
    cluster: ReplicaCluster,
) -> None:
    """Two that each hold the other for the master would wait for each other."""
    old = master_of(cluster)
    switch(cluster, another(cluster, old))
    cluster.until(lambda: master_of(cluster) is not old, "another master")
    command = RemotingCommand(310, flag=FLAG_PASSED_ON, ext_fields=send_fields(1), body=b"x")
    task = cluster.loop.create_task(
        cluster._client.invoke(old.config.address, command), context=cluster._client_context.copy()
    )
    cluster.until(task.done, "an answer")
    assert task.result().code == 2
    assert cluster.ask(old.config.address, 310, send_fields(2), b"y").code == 0


@pytest.mark.costly
def test_election_when_the_only_other_one_is_a_learner_then_it_is_never_master() -> None:
    """It says so in its heartbeats; an operator's choice is refused, too."""
    with ReplicaCluster(3, replicas=2, inSyncReplicas="1") as cluster:
        keys = cluster._keys_of
        cluster._keys_of = lambda host: {  # type: ignore[method-assign]  # the second one learns
            **keys(host), "asyncLearner": str(host == cluster.broker_hosts[1]).lower(),
        }  # fmt: skip
        cluster.boot_all()
        master = master_of(cluster)
        cluster.run_for(2_000)
        leader = cluster.leader()
        assert leader is not None
        fields = {"clusterName": "DefaultCluster", "brokerName": NAME, "brokerId": "2"}
        address = f"{leader}:{CONTROLLER_PORT}"
        why = cluster.ask(address, 60012, {**fields, "designateElect": "true"})
        assert b'"verdict":"a learner"' in why.body
        assert cluster.ask(address, 1002, {**fields, "designateElect": "true"}).code == 2012
        cluster.kill(cluster.host_of(master))
        cluster.run_for(8_000)
        assert cluster.master() is None
