"""Requests that nobody waits for: they are done, and not answered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rmqha.base.ids import ConnectionId
from rmqha.controller.aio.service import READ_CODES, WRITE_CODES
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import FLAG_ONEWAY, RemotingCommand
from rmqha.sim.cluster import SimOptions
from tests.controller.test_service import Cluster

UNKNOWN_CODE = 4_711
FIELDS = {"clusterName": "SimCluster", "brokerName": "set-0", "brokerId": "1", "action": "none"}
CODES = sorted(
    READ_CODES
    | WRITE_CODES
    | {
        int(RequestCode.BROKER_HEARTBEAT),
        int(RequestCode.CONTROLLER_GET_METADATA_INFO),
        int(RequestCode.GET_BROKER_SILENCE),
        int(RequestCode.CHANGE_CONTROLLER_MEMBERS),
        int(RequestCode.GET_CONTROLLER_VIEW),
        int(RequestCode.GET_CONTROLLER_CONFIG),
        int(RequestCode.UPDATE_CONTROLLER_CONFIG),
        UNKNOWN_CODE,
    }
)


BODIES = {
    int(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA): b'["set-0"]',
    int(RequestCode.UPDATE_CONTROLLER_CONFIG): b"notifyBrokerRoleChanged=true",
}


class Heard:
    """A connection that keeps what is said on it."""

    id = ConnectionId(10**6)
    peer = "10.0.0.99:1"
    is_closing = False

    def __init__(self) -> None:
        self.said: list[object] = []

    def send(self, answer: object, *_: object) -> None:
        self.said.append(answer)

    def send_frames(self, frames: list[bytes]) -> None:
        self.said += frames

    def answer(self, request: object, answer: object) -> None:
        self.said.append(answer)

    send_pieces = send


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Three controllers, one set of three brokers, all well."""
    one = Cluster(1, SimOptions(broker_sets=1))
    yield one
    one.finish()


def answers(cluster: Cluster, host: str, code: int, flag: int) -> int:
    """How often a controller answers a request."""
    service, connection = cluster.controllers[host], Heard()
    body = BODIES.get(code, b"")
    asked = RemotingCommand(code, flag=flag, opaque=7, ext_fields=dict(FIELDS), body=body)

    async def bring() -> None:
        given: Any = connection
        service.on_commands(given, [asked])

    context = cluster.net.contexts[host].copy()
    cluster.loop.run_until_complete(cluster.loop.create_task(bring(), context=context))
    cluster.run_for(500)
    return len(connection.said)


@pytest.mark.costly
@pytest.mark.parametrize("lease", [True, False], ids=["by the lease", "by a round"])
def test_request_when_it_is_one_way_then_it_is_not_answered(cluster: Cluster, lease: bool) -> None:
    """Java's client logs a warning for each answer that it has no request for."""
    leader = cluster.the_leader()
    core = cluster.controllers[leader].raft.core
    assert core is not None
    core.use_lease(lease)
    follower = next(one for one in cluster.controller_hosts if one != leader)
    for host in (leader, follower):
        assert [answers(cluster, host, code, 0) for code in CODES] == [1] * len(CODES)
        assert [answers(cluster, host, code, FLAG_ONEWAY) for code in CODES] == [0] * len(CODES)
