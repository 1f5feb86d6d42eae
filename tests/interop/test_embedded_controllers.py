"""Real Java brokers on our name servers with our controllers inside, through a failover."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from rmqha.testing.real import java, wire
from rmqha.testing.real.cluster import FAST_CONTROLLER, Cluster
from rmqha.testing.real.controllers import Controllers
from rmqha.testing.real.java import JavaBroker
from rmqha.testing.real.name_servers import PythonNameServer
from rmqha.testing.real.processes import Child, allocate_ports, wait_until
from rmqha.testing.real.producer import Producer, assert_nothing_lost
from tests.interop import required

NAME = "broker-a"


class Embedded(Controllers):
    """Three ``bin/mqnamesrv`` with a controller each; the first one's name server port is given."""

    def __init__(self, folder: Path, first_port: int) -> None:
        self.name_ports = [first_port, *allocate_ports()[:2]]
        super().__init__("rmqha", folder, settings=FAST_CONTROLLER)

    def _node(self, index: int, jvm: Sequence[str], version: str) -> Child:
        home = self.folder / f"namesrv{index}"
        config = home / "namesrv.properties"
        properties: Mapping[str, object] = {
            **java.dledger_properties(index, self.ports, home / "store"),
            **self._settings,
            "listenPort": self.name_ports[index],
            "bindAddress": "127.0.0.1",
            "kvConfigPath": home / "kvConfig.json",
            "enableControllerInNamesrv": True,
        }
        java.write_properties(config, properties)
        command = [sys.executable, "-m", "rmqha.cli.mqnamesrv", "-c", str(config)]
        return Child(f"namesrv{index}", command, home / "out.log")

    def start(self, nodes: Iterator[int] | Sequence[int] | None = None) -> None:  # type: ignore[override]  # fewer kinds
        """Start nodes and wait until both of their parts boot."""
        chosen = range(len(self.nodes)) if nodes is None else list(nodes)
        for index in chosen:
            self.nodes[index].start()
        for index in chosen:
            self.nodes[index].wait_for_line("The ControllerManager boot success.", 60.0)


class EmbeddedCluster(Cluster):
    """Brokers that register with all three name servers."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "rmqha", brokers=0)
        port = int(self.name_server.address.rpartition(":")[2])
        self.controllers = Embedded(folder, port)
        self.name_server = PythonNameServer(folder / "unused", port)  # type: ignore[assignment]  # asked for its address only
        for _ in range(3):
            self.add_broker()

    def add_broker(self) -> JavaBroker:
        """Configure one more broker."""
        servers = ";".join(f"127.0.0.1:{port}" for port in self.name_servers)
        number = len(self.brokers) + 1
        broker = JavaBroker(
            self.folder / f"broker{number}", allocate_ports(), number, servers,
            self.controllers.address_list, broker_name=NAME, settings=self._broker_settings,
        )  # fmt: skip
        self.brokers.append(broker)
        return broker

    @property
    def name_servers(self) -> list[int]:
        """Their ports."""
        assert isinstance(self.controllers, Embedded)
        return self.controllers.name_ports

    def start_base(self) -> None:
        """The name servers are the controllers' processes."""
        self.controllers.start()
        self.controllers.wait_for_leader()


@pytest.fixture(scope="module")
def shared_cluster(folder: Path) -> Iterator[Cluster]:
    """Three 5.3.3 brokers under three name servers with controllers in them."""
    required.require_classpath()
    with EmbeddedCluster(folder) as cluster:
        cluster.start()
        yield cluster


def routed(port: int) -> dict[int, str]:
    """The set at one name server."""
    with wire.Connection(f"127.0.0.1:{port}") as connection:
        return wire.broker_addresses(connection, NAME, NAME)


def test_master_when_killed_then_a_java_slave_takes_over_and_every_name_server_shows_it(
    cluster: Cluster, topic: str
) -> None:
    """kill -9 of the master under load: nothing acknowledged is lost, and the old one returns."""
    assert isinstance(cluster, EmbeddedCluster)
    before = cluster.controllers.wait_for_master(NAME)
    old = cluster.master()
    with Producer(cluster.name_server.address, topic) as producer:
        producer.wait_for_acks(200)
        moment = time.monotonic()
        old.child.kill()
        producer.wait_for_write_after(moment, not_by=old.address)
        after = cluster.controllers.wait_for_master(NAME, other_than=before.master_id)
        assert after.master_epoch == before.master_epoch + 1
        for port in cluster.name_servers:
            wait_until(
                lambda p=port: routed(p).get(0) == after.master_address,
                30.0, f"the name server at {port} to show the new master",
            )  # fmt: skip
            assert old.address not in routed(port).values()
        producer.wait_for_acks(200)
        old.start()
        cluster.wait_in_sync()
        producer.wait_for_acks(100)
        assert_nothing_lost(cluster, producer, replicas=cluster.brokers)
    print(f"write gap {producer.longest_gap_s(moment):.2f} s")


def test_leading_process_when_killed_then_writes_go_on(cluster: Cluster, topic: str) -> None:
    """It takes a name server and the leading controller away at once; the master stays."""
    before = cluster.controllers.wait_for_master(NAME)
    leader = cluster.controllers.wait_for_leader()
    with Producer(cluster.name_server.address, topic) as producer:
        producer.wait_for_acks(100)
        cluster.controllers.kill(leader)
        cluster.controllers.wait_for_leader(other_than=leader)
        producer.wait_for_acks(200)
        cluster.controllers.start([leader])
        after = cluster.wait_in_sync()
        assert (before.master_id, before.master_epoch) == (after.master_id, after.master_epoch)
        assert_nothing_lost(cluster, producer, replicas=cluster.brokers)
