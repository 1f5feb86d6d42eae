"""What looks whether a group goes on, and the client that does not let a leader rest."""

from __future__ import annotations

import pytest

from rmqha.base.errors import InvariantBroken
from rmqha.controller.raft import append
from rmqha.controller.raft.events import Refused
from rmqha.controller.raft.node import Node
from rmqha.sim.cluster import SimCluster, SimOptions
from rmqha.sim.steady import HOST_NAME, SteadyClient


def booted(controllers: int, broker_sets: int) -> SimCluster:
    options = SimOptions(controllers=controllers, broker_sets=broker_sets, replicas=1)
    cluster = SimCluster(1, options)
    for host in (*cluster.controller_hosts, *cluster.broker_hosts):
        cluster.boot(host)
    cluster.liveness.start()
    cluster.run_for(2000)
    return cluster


def test_steady_client_when_nobody_answers_then_it_asks_on() -> None:
    cluster = booted(1, 1)
    cluster.net.cut("c0", HOST_NAME)
    asked = SteadyClient(cluster).ask("c0", 20, 400)
    cluster.start_task(HOST_NAME, asked)
    cluster.run_for(1000)
    cluster.close()
    assert 18 <= cluster.counts["steady request"] <= 21


def test_progress_when_no_client_writes_then_the_watch_does() -> None:
    cluster = booted(3, 0)
    cluster.run_for(8000)
    cluster.close()
    assert cluster.counts["leader probed"] > 1


def test_progress_when_a_leader_takes_nothing_then_it_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A leader is there all along."""
    cluster = booted(3, 0)

    def refuse(node: Node, records: tuple[bytes, ...]) -> None:
        node.immediate.append(Refused(records, ()))

    monkeypatch.setattr(append, "propose", refuse)
    with pytest.raises(InvariantBroken, match="nothing is committed although a majority could"):
        cluster.run_for(8000)
    assert cluster.leader() is not None
    cluster.close()
