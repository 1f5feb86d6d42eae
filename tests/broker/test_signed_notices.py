"""What controllers send to registered addresses: signed only where it is for one of their own.

The text in it is of whoever registered, and a signature covers neither names nor codes: a stranger
who was sent a signature could ask any server for anything as a super user.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqha.auth.signature import Credentials
from rmqha.ha.events import Role
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.aio.server import RemotingServer
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.settings import RemotingSettings
from rmqha.sim.clock import SimClock
from rmqha.sim.cluster import CONTROLLER_PORT
from tests.broker.replicas import ReplicaCluster, master_of
from tests.broker.test_accounts_in_simulator import ANN, CONTROLLER_KEYS, INNER, KEYS, ask, refused

HOST, PORT = "10.0.9.9", 7777
FREE = "1001,1002,1003,1004,1012,1013,904,1005"
"""What Java's old brokers ask controllers, who cannot sign."""


class Listener:
    """A port that hears what is sent there, and answers nothing."""

    def __init__(self, cluster: ReplicaCluster) -> None:
        self.heard: list[RemotingCommand] = []

        def make(network: object, context: object) -> None:
            server = RemotingServer(
                network, SimClock(cluster.loop), RemotingSettings(), self,  # type: ignore[arg-type]
                connection_ids=cluster.ids,
            )  # fmt: skip
            cluster.loop.create_task(server.start("0.0.0.0", PORT), context=context)  # type: ignore[arg-type]

        cluster._on(HOST, make)
        cluster.run_for(100)

    def on_commands(self, _: Connection, commands: list[RemotingCommand]) -> None:
        """Hear them."""
        self.heard += commands

    def on_closed(self, _: Connection, error: Exception | None) -> None:
        """Nothing to do."""


@pytest.fixture
def cluster() -> Iterator[ReplicaCluster]:
    """Three replicas in sync, and controllers that let brokers in that cannot sign."""
    with ReplicaCluster(seed=41, **KEYS) as one:
        one.controller_keys = {**CONTROLLER_KEYS, "authenticationWhitelist": FREE}
        one.boot_all()
        one.until(one.in_sync, "SyncStateSet of three")
        yield one


def leader_of(cluster: ReplicaCluster) -> str:
    """The leading controller."""
    for host in cluster.controller_hosts:
        answer = ask(cluster, 1005, by=None, to=f"{host}:{CONTROLLER_PORT}")
        address = (answer.ext_fields or {}).get("controllerLeaderAddress")
        if address:
            return address
    raise AssertionError("nobody leads")


def reign(cluster: ReplicaCluster, by: Credentials | None) -> None:
    """Register a master that listens, with a slave that is in sync, and let the master fall silent."""
    leader = leader_of(cluster)

    def do(code: int, broker_id: int, body: object = None, **more: str) -> None:
        who = {"clusterName": "C", "brokerName": "evil", "brokerId": str(broker_id)}
        assert ask(cluster, code, {**who, **more}, body, by=by, to=leader).code == 0

    def beat(one: int) -> None:
        do(904, one + 1, brokerAddr=f"{HOST}:{PORT + one}", heartbeatTimeoutMills="60000",
           epoch="1", maxOffset="0", confirmOffset="0", writeLease="true")  # fmt: skip

    for one in (0, 1):
        address, broker_id = f"{HOST}:{PORT + one}", one + 1
        do(1013, broker_id, appliedBrokerId=str(broker_id), registerCheckCode=f"{address};1")
        do(1003, broker_id, brokerAddress=address)
    do(1002, 1)
    members = {"syncStateSet": [1, 2], "syncStateSetEpoch": 1}
    do(1001, 1, members, masterBrokerId="1", masterEpoch="1")
    for _ in range(6):
        beat(0)
        beat(1)
        cluster.run_for(200)
    for _ in range(10):
        beat(1)
        cluster.run_for(200)


@pytest.mark.parametrize("by", [None, ANN, INNER], ids=["nobody", "a user", "one of theirs"])
def test_notice_when_its_address_was_registered_then_only_one_of_theirs_is_sent_a_signature(
    cluster: ReplicaCluster, by: Credentials | None
) -> None:
    """1008 with the master's address, 26 and 906 with nothing: each as good as the password."""
    listener = Listener(cluster)
    reign(cluster, by)
    codes = {one.code for one in listener.heard}
    assert {1008, 26, 906} <= codes
    for one in listener.heard:
        assert INNER.have_signed(one) == (by is INNER)
        assert ("Signature" in (one.ext_fields or {})) == (by is INNER)


def test_hint_when_nobody_has_signed_it_then_a_broker_asks_and_believes_nothing(
    cluster: ReplicaCluster,
) -> None:
    """So that it hears of an election at once from controllers that may not sign for it."""
    master = master_of(cluster)
    slave = next(one for one in cluster.replicas.values() if one is not master)
    epoch = master.manager.core.place.master_epoch
    hint = {"masterBrokerId": "7", "masterEpoch": str(epoch + 9), "masterAddress": "10.9.9.9:1"}
    for one in (slave, master):
        before = cluster_asks(cluster)
        assert ask(cluster, 1008, hint, by=None, to=one).code == 0
        cluster.run_for(200)
        assert cluster_asks(cluster) > before
    cluster.run_for(3_000)
    assert master_of(cluster) is master
    assert (master.role, slave.role) == (Role.MASTER, Role.SLAVE)
    assert master.manager.core.place.master_epoch == epoch
    assert refused(ask(cluster, 28, by=None, to=slave)) == "authentication field is null."


def cluster_asks(cluster: ReplicaCluster) -> int:
    """How often controllers were asked who is master (1004)."""
    return sum(one.metrics.requests[1004] for one in cluster.controllers.values())
