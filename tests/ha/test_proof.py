"""The proof before replication: by itself, on real sockets, and in a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from rmqha.base.errors import RemoteProtocolError
from rmqha.ha.aio.proven_network import UNPROVEN, UNPROVEN_MAX, ProvenNetwork
from rmqha.ha.frames import HandshakeRequest, encode_handshake_request
from rmqha.ha.proof import MAGIC, MasterProof, SlaveProof
from rmqha.runtime.aio.clock import SystemClock, SystemRng
from rmqha.runtime.aio.net import TcpNetwork
from rmqha.runtime.logs import Logger
from rmqha.testing.cluster import RmqCluster
from rmqha.testing.plugin import Factory
from rmqha.testing.real.processes import wait_until

SECRET, OTHER = "a secret of the set", "another secret, as long"
ONE, TWO = b"1" * 16, b"2" * 16
SETTINGS = {"haSecret": SECRET}


def meet(slave: SlaveProof, master: MasterProof, cuts: list[int]) -> None:
    """Let both ends talk, in pieces of any size, until neither has anything to say."""
    to_master, to_slave = slave.begin(), b""
    sizes = iter(cuts)
    while to_master or to_slave:
        size = next(sizes, 1 << 20)
        piece, to_master = to_master[:size], to_master[size:]
        to_slave += master.feed(piece)
        piece, to_slave = to_slave[:size], to_slave[size:]
        to_master += slave.feed(piece)


@pytest.mark.costly
@given(st.lists(st.integers(1, 60)), st.binary(max_size=40))
def test_both_ends_of_one_secret_find_each_other_in_any_pieces(
    cuts: list[int], behind: bytes
) -> None:
    """And what comes behind the proof is whole."""
    slave, master = SlaveProof(SECRET, "broker-a", ONE), MasterProof(SECRET, "broker-a", TWO)
    meet(slave, master, cuts)
    assert slave.is_done
    assert master.is_done
    master.feed(behind)
    assert master.rest == behind


@pytest.mark.parametrize(("secret", "name"), [(OTHER, "broker-a"), (SECRET, "broker-b")])
def test_another_secret_or_set_proves_nothing(secret: str, name: str) -> None:
    """The slave notices first: it is shown a proof before it makes its own."""
    slave, master = SlaveProof(SECRET, "broker-a", ONE), MasterProof(secret, name, TWO)
    with pytest.raises(RemoteProtocolError, match="another haSecret"):
        meet(slave, master, [])
    assert not master.is_done


def test_a_proof_is_worth_nothing_on_another_connection() -> None:
    """A recorded slave is played to a master with another challenge."""
    slave, master = SlaveProof(SECRET, "broker-a", ONE), MasterProof(SECRET, "broker-a", TWO)
    answer = slave.feed(master.feed(slave.begin()))
    again = MasterProof(SECRET, "broker-a", b"3" * 16)
    again.feed(slave.begin())
    with pytest.raises(RemoteProtocolError):
        again.feed(answer)


def test_a_masters_proof_sent_back_proves_nothing() -> None:
    """The directions have words of their own."""
    master = MasterProof(SECRET, "broker-a", TWO)
    said = master.feed(MAGIC + TWO)
    with pytest.raises(RemoteProtocolError):
        master.feed(said[16:])


def test_a_slave_of_java_is_told_apart_by_its_first_byte() -> None:
    """Not after half a minute."""
    with pytest.raises(RemoteProtocolError, match="no haSecret"):
        MasterProof(SECRET, "broker-a", TWO).feed(b"\0")


@given(st.lists(st.binary(min_size=1, max_size=80), max_size=5))
def test_any_bytes_are_refused_or_waited_for(pieces: list[bytes]) -> None:
    """And prove nothing."""
    master = MasterProof(SECRET, "broker-a", TWO)
    try:
        for piece in pieces:
            master.feed(piece)
    except RemoteProtocolError:
        pass
    assert not master.is_done


# -- a cluster -------------------------------------------------------------------------------------


@pytest.mark.costly
@pytest.mark.parametrize("tls", [False, True])
def test_set_with_a_secret_replicates_and_fails_over(
    rmq_cluster_factory: Factory, tls: bool
) -> None:
    """Also through TLS, where the same proof goes first."""
    cluster = rmq_cluster_factory(controllers=1, replicas=3, tls=tls, broker_settings=SETTINGS)
    cluster.produce(20)
    dead = cluster.kill(cluster.wait_for_master())
    cluster.produce(20)
    cluster.restart(dead)
    cluster.wait_in_sync()
    cluster.assert_nothing_lost()


def stand_in(cluster: RmqCluster, slave_id: int) -> socket.socket:
    """A stranger who presents a slave's id, and acknowledges everything for ever."""
    port = cluster.wait_for_master().place.ports[-1]
    one = socket.create_connection(("127.0.0.1", port), timeout=5)
    one.sendall(encode_handshake_request(HandshakeRequest(slave_id)))
    return one


@pytest.mark.parametrize(("settings", "is_answered"), [({}, True), (SETTINGS, False)])
def test_stranger_in_a_slaves_name_learns_and_acknowledges_nothing(
    rmq_cluster_factory: Factory, settings: dict[str, str], is_answered: bool
) -> None:
    """Without a secret it is answered with the epochs, and then with the log."""
    cluster = rmq_cluster_factory(controllers=1, replicas=1, broker_settings=settings)
    cluster.produce(3)
    with stand_in(cluster, 2) as one:
        try:
            said = one.recv(64)
        except ConnectionResetError:
            said = b""
        assert bool(said) is is_answered
    counts = cluster.wait_for_master().service.refusals.counts  # type: ignore[attr-defined]
    wait_until(lambda: counts[UNPROVEN] == (not is_answered), 5.0, "its count")


def test_dial_when_broken_off_before_the_proof_then_the_master_hears_the_end() -> None:
    """A replica that became master itself would else hold a connection that nobody owns."""

    async def play() -> bytes:
        with socket.create_server(("127.0.0.1", 0)) as master:
            master.setblocking(False)
            network = ProvenNetwork(
                TcpNetwork(), SECRET, "broker-a", SystemClock(), SystemRng(), Logger()
            )
            dial = asyncio.create_task(
                network.connect(
                    "127.0.0.1", master.getsockname()[1], asyncio.Protocol, timeout_ms=60_000
                )
            )
            loop = asyncio.get_running_loop()
            accepted, _ = await loop.sock_accept(master)
            with accepted:
                said = await loop.sock_recv(accepted, 100)
                dial.cancel()
                await asyncio.gather(dial, return_exceptions=True)
                with contextlib.suppress(ConnectionResetError):
                    said += await asyncio.wait_for(loop.sock_recv(accepted, 100), 5)
            return said

    assert uvloop.run(play()).startswith(MAGIC)


@pytest.mark.costly
def test_idle_connections_keep_no_slave_out(rmq_cluster_factory: Factory) -> None:
    """Seventy of them filled all places of a port with a secret or without."""
    for settings in ({}, SETTINGS):
        cluster = rmq_cluster_factory(controllers=1, replicas=2, broker_settings=settings)
        master = cluster.wait_for_master()
        port = master.place.ports[-1]
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(UNPROVEN_MAX + 6)]
        (slave,) = [one for one in cluster.brokers if one is not master]
        cluster.kill(slave)
        cluster.restart(slave)
        cluster.wait_in_sync()
        for one in idle:
            one.close()


@pytest.mark.slow
def test_replica_with_another_secret_stays_out(rmq_cluster_factory: Factory) -> None:
    """And the log of both says why."""
    cluster = rmq_cluster_factory(controllers=1, replicas=2, broker_settings=SETTINGS, start=False)
    plan = cluster.brokers[1]._plan  # type: ignore[attr-defined]
    other = {**plan.broker_settings, "haSecret": OTHER}
    cluster.brokers[1]._plan = plan.__class__(  # type: ignore[attr-defined]
        **{
            name: getattr(plan, name)
            for name in plan.__struct_fields__
            if name != "broker_settings"
        },
        broker_settings=other,
    )
    with pytest.raises(Exception, match="no whole SyncStateSet"):
        cluster.start(timeout_s=4)
    texts = [node.log.read_text() for node in cluster.brokers]
    assert any("ha_peer_refused" in text or "proves nothing" in text for text in texts)
    assert cluster.wait_for_master() is not None
