"""What the verbs wait for: every name server that lives and can be reached lists the master."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from rmqha.remoting.bodies import ClusterInfo
from rmqha.remoting.codes import RequestCode
from rmqha.runtime.aio.clock import SystemClock
from rmqha.runtime.aio.net import TcpNetwork
from rmqha.testing.client import ClusterClient, NotYet, SetInfo
from rmqha.testing.cluster import RmqCluster
from rmqha.testing.nodes import Node
from rmqha.testing.plugin import Factory
from rmqha.testing.settings import Place, Plan
from tests.testing.asking import ask

pytestmark = pytest.mark.slow


def listed(cluster: RmqCluster, server: Node) -> str | None:
    """The master that a name server tells clients."""
    answer = ask(cluster, RequestCode.GET_BROKER_CLUSTER_INFO, at=server.address)
    found = ClusterInfo.decode(answer.body).broker_addr_table.get("broker-a")
    return None if found is None else found.broker_addrs.get(0)


@pytest.mark.parametrize("replicas", [1, 3])
def test_cluster_when_started_then_every_name_server_lists_its_master(
    rmq_cluster_factory: Factory, replicas: int
) -> None:
    """A client that asks at once gets a route."""
    cluster = rmq_cluster_factory(controllers=1, replicas=replicas, namesrv=2)
    master = cluster.brokers[0].address
    assert [listed(cluster, one) for one in cluster.name_servers] == [master, master]


@pytest.mark.parametrize("way", ["heal", "restart"])
def test_name_server_when_it_died_and_is_back_then_it_lists_the_master(
    rmq_cluster_factory: Factory, way: str
) -> None:
    """It knew no broker for seconds, and the verbs had returned."""
    cluster = rmq_cluster_factory(controllers=1, replicas=2, namesrv=2)
    server = cluster.kill("namesrv-0")
    if way == "heal":
        cluster.heal()
    else:
        cluster.restart(server)
    assert listed(cluster, server) == cluster.brokers[0].address


@pytest.mark.parametrize("verb", ["wait_for_master", "wait_in_sync"])
def test_waiting_when_a_name_server_lists_nobody_then_it_goes_on(
    rmq_cluster_factory: Factory, verb: str
) -> None:
    """A list of nothing is no agreement."""
    cluster = rmq_cluster_factory(controllers=1, replicas=1, namesrv=2)
    server = cluster.kill("namesrv-1")
    getattr(cluster, verb)()  # one that is dead is not waited for
    cluster.partition(server, "broker-0")
    cluster.restart(server)  # nobody can register there, so it waits for nobody
    with pytest.raises(NotYet, match=f"{server.address} lists no master"):
        getattr(cluster, verb)(timeout_s=0.3)
    cluster.heal()
    assert listed(cluster, server) == cluster.brokers[0].address


def test_waiting_when_a_name_server_is_dead_stopped_or_cut_off_then_it_is_not_asked(
    rmq_cluster_factory: Factory,
) -> None:
    """Nobody would ever return otherwise."""
    cluster = rmq_cluster_factory(controllers=1, replicas=1, namesrv=4)
    cluster.kill("namesrv-1")
    cluster.stop("namesrv-2")
    cluster.isolate("namesrv-3")
    cluster.wait_for_master(timeout_s=5)
    cluster.wait_in_sync(timeout_s=5)


@pytest.mark.parametrize("verb", ["kill", "stop"])
def test_name_server_when_restarted_without_any_master_then_nobody_is_waited_for(
    rmq_cluster_factory: Factory, verb: str
) -> None:
    """The only broker is dead, or hangs and is the master still: there is nobody to be listed."""
    settings = {"controllerHeartBeatTimeoutMills": 60_000}
    cluster = rmq_cluster_factory(controllers=1, replicas=1, broker_settings=settings)
    getattr(cluster, verb)("broker-0")
    started = time.monotonic()
    cluster.restart(cluster.kill("namesrv-0"))
    assert time.monotonic() - started < 5


async def test_master_when_a_name_server_is_silent_then_who_asks_says_whether_that_counts() -> None:
    """One that should answer may be slow for a moment, and then list nobody."""

    class Half(ClusterClient):
        """Of two name servers, one answers."""

        async def set_info(self) -> SetInfo:
            return SetInfo(1, "m:1", 1, frozenset((1,)))

        async def listed(self, name_server: str) -> dict[int, str] | None:
            return {0: "m:1"} if name_server == servers[0].address else None

    servers = tuple(Place(f"namesrv-{n}", "namesrv", Path(), n, (n,)) for n in (1, 2))
    client = Half(Plan((), servers, ()), TcpNetwork(), SystemClock())
    assert await client.master() == "m:1"
    assert await client.agreed_master([servers[0].address]) == "m:1"
    assert await client.agreed_master([servers[1].address]) is None
    assert client.last_look == f"m:1 is master, {servers[1].address} does not answer"


def test_node_when_it_lives_and_is_restarted_then_it_ends_in_order_and_begins_anew(
    rmq_cluster_factory: Factory,
) -> None:
    """Nothing happened, and the test went on as if it had."""
    cluster = rmq_cluster_factory(controllers=1, replicas=1)
    cluster.produce(3)
    broker = cluster.stop("broker-0")
    assert cluster.restart(broker) is broker
    assert broker.is_alive
    assert not broker.is_stopped
    assert "node_ended" in broker.log.read_text()
    cluster.wait_in_sync()
    cluster.assert_nothing_lost()
