"""Reading from a cluster whose doors are closed: by TLS, and with a user's signature."""

from __future__ import annotations

from functools import partial

import pytest

from rmqha.base.errors import ConfigInvalid, RmqhaError
from rmqha.pipeline.live.options import read_options, write_options
from rmqha.testing.cluster import RmqCluster
from rmqha.testing.plugin import Factory
from rmqha.testing.real.processes import wait_until
from tests.pipeline.test_master_client import Reader

pytestmark = [pytest.mark.filterwarnings("ignore")]
BODIES = [b"one", b"two", b"three"]
SUPER = '{"username":"reader","password":"a password of ours"}'


def options(cluster: RmqCluster, more: dict[str, str]) -> dict[str, str]:
    """Of a source that reads the test's topic."""
    least = {"nameServer": cluster.namesrv_addr, "topic": "TestTopic", "failoverTimeoutMs": "2000"}
    return least | more


def _reads_all(given: dict[str, str]) -> bool:
    """Queues trail the log by a moment."""
    found = Reader(read_options(given)).read()
    assert set(found) <= set(BODIES)
    return sorted(found) == sorted(BODIES)


@pytest.mark.slow
def test_reader_when_ports_ask_for_certificates_then_it_shows_one(
    rmq_cluster_factory: Factory,
) -> None:
    """And without it reads nothing."""
    cluster = rmq_cluster_factory(tls=True, controllers=1, replicas=1)
    cluster.produce(BODIES)
    folder = cluster.folder / "certificates"
    access = {
        "tls.enable": "true",
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": str(folder / "authority.pem"),
        "tls.client.certPath": str(folder / "node.pem"),
        "tls.client.keyPath": str(folder / "node.key"),
    }
    wait_until(partial(_reads_all, options(cluster, access)), 20.0, "all messages")
    with pytest.raises(RmqhaError):
        Reader(read_options(options(cluster, {}))).read()


@pytest.mark.costly
def test_reader_when_brokers_ask_for_users_then_it_signs(rmq_cluster_factory: Factory) -> None:
    """Sends are let through here; reading is what is asked about."""
    cluster = rmq_cluster_factory(
        controllers=1,
        replicas=1,
        broker_settings={
            "authenticationEnabled": True, "initAuthenticationUser": SUPER,
            "authenticationWhitelist": "17,310,351",
        },
    )  # fmt: skip
    cluster.produce(BODIES)
    access = {"accessKey": "reader", "secretKey": "a password of ours"}
    wait_until(partial(_reads_all, options(cluster, access)), 20.0, "all messages")
    with pytest.raises(RmqhaError):
        Reader(read_options(options(cluster, access | {"secretKey": "another"}))).read()


@pytest.mark.parametrize(
    ("more", "words"),
    [({"accessKey": "reader"}, "belong together"), ({"tls.enable": "perhaps"}, "tls.enable")],
)
def test_access_when_it_cannot_be_used_then_it_is_named(more: dict[str, str], words: str) -> None:
    """For sources and sinks."""
    least = {"nameServer": "a:1", "topic": "t"}
    for read in (read_options, write_options):
        with pytest.raises(ConfigInvalid, match=words):
            read(least | more)
