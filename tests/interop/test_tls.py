"""TLS with real Java: its clients, its mqadmin and its brokers on our ports, and ours on its ports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from rmqha.testing.cluster import RmqCluster
from rmqha.testing.real.java import BOOT_TIMEOUT_S, JavaBroker, NameServer
from rmqha.testing.real.mqadmin import mqadmin
from rmqha.testing.real.processes import allocate_ports, wait_until
from rmqha.testing.settings import BROKER_NAME, CLUSTER_NAME
from tests.interop import required
from tests.interop.client_peer import ClientPeer
from tests.interop.our_mqadmin import run_our_mqadmin
from tests.interop.peers import PeerError

TOPIC = "Sealed"
JAVA_ENDS = ("keyPath", "certPath", "trustCertPath", "authServer")


def java_options(keys: Mapping[str, str]) -> list[str]:
    """What a JVM is given to dial as ``keys`` say."""
    client = [f"-Dtls.client.{end}={keys[f'tls.client.{end}']}" for end in JAVA_ENDS]
    return ["-Dtls.enable=true", "-Dtls.test.mode.enable=false", *client]


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RmqCluster, list[str]]]:
    """A cluster of ours that takes TLS with certificates alone; and options of a JVM that has one.

    Replication is plain: Java has no TLS there, and a Java replica joins below.
    """
    required.require_classpath()
    folder = tmp_path_factory.mktemp("sealed")
    with RmqCluster(
        folder, tls=True, processes=True, controllers=3, replicas=2,
        broker_settings={"haTlsEnable": False},
    ) as cluster:  # fmt: skip
        yield cluster, java_options(_keys_of(cluster))


def _keys_of(cluster: RmqCluster) -> dict[str, str]:
    directory = cluster.folder / "certificates"
    return {
        "tls.client.keyPath": str(directory / "node.key"),
        "tls.client.certPath": str(directory / "node.pem"),
        "tls.client.trustCertPath": str(directory / "authority.pem"),
        "tls.client.authServer": "true",
    }


@pytest.mark.parametrize("version", ["5.3.3", "4.9.8"])
def test_java_clients_when_they_have_certificates_then_they_go_on_through_a_failover(
    sealed: tuple[RmqCluster, list[str]], tmp_path: Path, version: str
) -> None:
    """Producer and consumer, in front of name server and brokers."""
    cluster, options = sealed
    servers, topic = cluster.namesrv_addr, f"{TOPIC}{version.replace('.', '')}"
    cluster.produce(1, topic=topic)
    with ClientPeer(tmp_path, version, options=options) as clients:
        clients.ask(f"producer P {topic} {servers}")
        clients.ask(f"push C {topic}G {servers} {topic} * clustering concurrent first")
        clients.ask(f"send P {topic} -1 20 before")
        dead = cluster.kill(cluster.wait_for_master())
        cluster.wait_for_master()
        wait_until(lambda: _sends(clients, f"send P {topic} -1 20 after"), 60.0, "sends to go on")
        wanted = {f"{word}-{n}" for word in ("before", "after") for n in range(20)}
        wait_until(lambda: wanted <= {*clients.bodies("got C")}, 60.0, "all messages")
        cluster.restart(dead)
        cluster.wait_in_sync()


def _sends(clients: ClientPeer, line: str) -> bool:
    try:
        clients.ask(line)
    except PeerError:
        return False
    return True


def test_java_client_without_tls_is_sent_away(
    sealed: tuple[RmqCluster, list[str]], tmp_path: Path
) -> None:
    """It finds no route: nobody talks to it."""
    cluster, _ = sealed
    with ClientPeer(tmp_path) as clients:
        clients.ask(f"producer P G {cluster.namesrv_addr}")
        with pytest.raises(PeerError):
            clients.ask(f"send P {TOPIC} -1 1 nobody")


def test_java_mqadmin_asks_controllers_and_brokers_by_tls(
    sealed: tuple[RmqCluster, list[str]],
) -> None:
    """And is told nothing without."""
    cluster, options = sealed
    address = cluster.wait_for_leader().address
    asked = ("getSyncStateSet", "-a", address, "-b", BROKER_NAME)
    assert "#MasterBrokerId\t" in mqadmin(*asked, jvm=options)
    assert "#MasterBrokerId" not in mqadmin(*asked)
    listed = mqadmin("clusterList", "-n", cluster.namesrv_addr, jvm=options)
    assert cluster.wait_for_master().address in listed


def test_java_broker_joins_controllers_of_ours_by_tls(
    sealed: tuple[RmqCluster, list[str]], tmp_path: Path
) -> None:
    """It registers, heartbeats and copies the log; and is told by them who the master is."""
    cluster, options = sealed
    keys = _keys_of(cluster)
    server = [
        "-Dtls.server.mode=permissive",
        f"-Dtls.server.keyPath={keys['tls.client.keyPath']}",
        f"-Dtls.server.certPath={keys['tls.client.certPath']}",
    ]
    java = JavaBroker(
        tmp_path / "java", allocate_ports(), 3, cluster.namesrv_addr, cluster.controller_addr,
        broker_name=BROKER_NAME, jvm=[*options, *server],
        settings={
            "brokerClusterName": CLUSTER_NAME, "mappedFileSizeCommitLog": 8_388_608,
            "syncBrokerMetadataPeriod": 500, "syncControllerMetadataPeriod": 1000,
            "allAckInSyncStateSet": True, "haSendHeartbeatInterval": 300,
            "controllerHeartBeatTimeoutMills": 3000,
        },
    )  # fmt: skip
    cluster.produce(10)
    java.start()
    try:
        cluster.wait_in_sync(3, BOOT_TIMEOUT_S)
        cluster.produce(10)
        cluster.kill(cluster.wait_for_master())
        cluster.produce(10)
        cluster.assert_nothing_lost()
    finally:
        java.child.kill()
    cluster.heal(timeout_s=60)


def test_our_mqadmin_and_brokers_use_a_java_name_server_by_tls(tmp_path: Path) -> None:
    """Java's test mode: its certificate is nobody's, and not checked."""
    required.require_classpath()
    port = allocate_ports()[0]
    server = NameServer(tmp_path / "namesrv", port, jvm=["-Dtls.server.mode=enforcing"])
    server.start()
    try:
        server.wait_ready()
        with RmqCluster(
            tmp_path / "ours", controllers=1, replicas=1, namesrv=0, processes=True,
            controller_settings={"tls.test.mode.enable": True},
            broker_settings={
                "namesrvAddr": server.address, "tls.enable": True, "tls.test.mode.enable": True,
            },
        ) as cluster:  # fmt: skip
            del cluster
            listed = wait_until(lambda: _cluster_list(server.address), 60.0, "a registration")
        assert CLUSTER_NAME in listed
    finally:
        server.child.kill()


def _cluster_list(address: str) -> str:
    done = run_our_mqadmin("--tls", "clusterList", "-n", address)
    return done.stdout if CLUSTER_NAME in done.stdout else ""
