"""A whole cluster that speaks TLS alone: controllers and their Raft, name server, replication."""

from __future__ import annotations

import socket
from functools import partial
from pathlib import Path

import pytest

from rmqha.ha.frames import HandshakeRequest, encode_handshake_request
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.frame import encode
from rmqha.testing.certificates import Authority, tls_properties
from rmqha.testing.cluster import RmqCluster
from rmqha.testing.plugin import Factory
from rmqha.testing.real.processes import wait_until

MESSAGES = 20


@pytest.mark.slow
@pytest.mark.parametrize("processes", [False, True])
def test_cluster_when_every_port_asks_for_a_certificate_then_it_fails_over(
    rmq_cluster_factory: Factory, processes: bool
) -> None:
    """Heartbeats, elections, copies of the log and clients all go through it."""
    cluster = rmq_cluster_factory(tls=True, processes=processes, controllers=3, replicas=2)
    cluster.produce(MESSAGES)
    master = cluster.kill(cluster.wait_for_master())
    cluster.produce(MESSAGES)
    cluster.restart(master)
    cluster.wait_in_sync()
    cluster.assert_nothing_lost()
    assert who_answers_plain_text(cluster) == set()


def test_cluster_without_certificates_answers_plain_text(
    rmq_cluster_factory: Factory,
) -> None:
    """What the test above relies on: every kind of port would have been seen."""
    cluster = rmq_cluster_factory(controllers=1, replicas=2)
    assert who_answers_plain_text(cluster) == {"controller", "namesrv", "broker", "ha"}


def who_answers_plain_text(cluster: RmqCluster) -> set[str]:
    """Kinds of ports that answer a request, or a slave that presents itself, without TLS."""
    found = set()
    master = cluster.wait_for_master()
    for node in cluster.nodes:
        asked = encode(RemotingCommand(-1, opaque=7))
        ports = node.place.ports[:-1] if node.place.kind == "broker" else node.place.ports
        found |= {node.place.kind for port in ports if _answers(port, asked)}
    if _answers(master.place.ports[-1], encode_handshake_request(HandshakeRequest(77))):
        found.add("ha")
    return found


def _answers(port: int, asked: bytes) -> bool:
    with socket.create_connection(("127.0.0.1", port), timeout=5) as one:
        one.sendall(asked)
        try:
            return one.recv(1) != b""
        except ConnectionResetError:
            return False


@pytest.mark.slow
def test_cluster_when_it_goes_from_open_to_enforcing_then_no_send_fails(
    rmq_cluster_factory: Factory, tmp_path: Path
) -> None:
    """One file, three steps, no restart; producer and consumer go on all the while."""
    path, authority = tmp_path / "tls.properties", Authority(tmp_path)
    settings = {"tls.config.file": str(path)}
    cluster = rmq_cluster_factory(
        processes=True, controllers=3, replicas=2, controller_settings=settings,
        namesrv_settings=settings, broker_settings=settings,
    )  # fmt: skip
    keys = tls_properties(authority, "node")
    work = cluster.workload()
    steps = (("permissive", "false"), ("permissive", "true"), ("enforcing", "true"))
    for number, (mode, dials) in enumerate(steps, 1):
        work.wait_for_acks(50)
        now = {**keys, "tls.server.mode": mode, "tls.enable": dials}
        fresh = path.with_suffix(".new")
        fresh.write_text("".join(f"{key}={value}\n" for key, value in now.items()))
        fresh.replace(path)
        for node in cluster.nodes:
            wait_until(
                partial(_has_reloaded, node.log, number), 20.0, f"{node.name} to see step {number}"
            )
    work.wait_for_acks(200)
    assert who_answers_plain_text(cluster) == set()
    ledger = work.stop()
    assert ledger.refused == 0
    assert ledger.lost == []
    assert ledger.acknowledged >= 350


def _has_reloaded(log: Path, times: int) -> bool:
    text = log.read_text()
    assert "tls_not_reloaded" not in text
    return text.count('"tls_reloaded"') >= times


def test_cluster_keeps_its_certificates_where_they_are_looked_for(
    rmq_cluster_factory: Factory, tmp_path: Path
) -> None:
    """A test may give them to clients of its own."""
    cluster = rmq_cluster_factory(tls=True, controllers=1, replicas=0, namesrv=1)
    assert (cluster.folder / "certificates" / "authority.pem").is_file()
