"""The proof before replication: by itself, on real sockets, and in a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import cast

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rmqha.base.errors import ConnectFailed, RemoteProtocolError
from rmqha.base.proofs import Secrets
from rmqha.broker.admin.aio.prometheus import Collector as BrokerCollector
from rmqha.controller.aio.prometheus import Collector as ControllerCollector
from rmqha.ha.aio.proven_network import UNPROVEN, UNPROVEN_MAX, ProvenNetwork
from rmqha.ha.frames import HandshakeRequest, encode_handshake_request
from rmqha.ha.proof import MAGIC, MasterProof, SlaveProof
from rmqha.runtime.aio.clock import SystemClock, SystemRng
from rmqha.runtime.aio.net import TcpNetwork
from rmqha.runtime.logs import Logger
from rmqha.testing.cluster import RmqCluster
from rmqha.testing.nodes import Node
from rmqha.testing.plugin import Factory
from rmqha.testing.real.processes import wait_until
from tests.broker.replicas import ReplicaCluster, master_of

SECRET, OTHER = "a secret of the set", "another secret, as long"
ONE, TWO = b"1" * 16, b"2" * 16
SETTINGS = {"haSecret": SECRET}
ONLY = Secrets(SECRET)


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
    slave, master = SlaveProof(ONLY, "broker-a", ONE), MasterProof(ONLY, "broker-a", TWO)
    meet(slave, master, cuts)
    assert slave.is_done
    assert master.is_done
    master.feed(behind)
    assert master.rest == behind


@pytest.mark.parametrize(("secret", "name"), [(OTHER, "broker-a"), (SECRET, "broker-b")])
def test_another_secret_or_set_proves_nothing(secret: str, name: str) -> None:
    """The slave notices first: it is shown a proof before it makes its own."""
    slave, master = SlaveProof(ONLY, "broker-a", ONE), MasterProof(Secrets(secret), name, TWO)
    with pytest.raises(RemoteProtocolError, match="another haSecret"):
        meet(slave, master, [])
    assert not master.is_done


def test_a_proof_is_worth_nothing_on_another_connection() -> None:
    """A recorded slave is played to a master with another challenge."""
    slave, master = SlaveProof(ONLY, "broker-a", ONE), MasterProof(ONLY, "broker-a", TWO)
    answer = slave.feed(master.feed(slave.begin()))
    again = MasterProof(ONLY, "broker-a", b"3" * 16)
    again.feed(slave.begin())
    with pytest.raises(RemoteProtocolError):
        again.feed(answer)


def test_a_masters_proof_sent_back_proves_nothing() -> None:
    """The directions have words of their own."""
    master = MasterProof(ONLY, "broker-a", TWO)
    said = master.feed(MAGIC + TWO)
    with pytest.raises(RemoteProtocolError):
        master.feed(said[16:])


def test_a_slave_of_java_is_told_apart_by_its_first_byte() -> None:
    """Not after half a minute."""
    with pytest.raises(RemoteProtocolError, match="no haSecret"):
        MasterProof(ONLY, "broker-a", TWO).feed(b"\0")


@given(st.lists(st.binary(min_size=1, max_size=80), max_size=5))
def test_any_bytes_are_refused_or_waited_for(pieces: list[bytes]) -> None:
    """And prove nothing."""
    master = MasterProof(ONLY, "broker-a", TWO)
    try:
        for piece in pieces:
            master.feed(piece)
    except RemoteProtocolError:
        pass
    assert not master.is_done


# -- a secret that comes, changes or goes ------------------------------------------------------------------

BOTH, TURNED, OPTIONAL = Secrets(SECRET, OTHER), Secrets(OTHER, SECRET), Secrets(SECRET, "", True)


@pytest.mark.parametrize(
    ("slaves", "masters"),
    [(ONLY, BOTH), (BOTH, ONLY), (BOTH, TURNED), (TURNED, BOTH), (TURNED, Secrets(OTHER)),
     (Secrets(OTHER), TURNED), (ONLY, OPTIONAL), (OPTIONAL, ONLY)],
)  # fmt: skip
def test_neighbours_of_a_roll_prove_themselves_to_each_other(
    slaves: Secrets, masters: Secrets
) -> None:
    """Each proves by its own secret, and believes by both; any of them may be the master."""
    slave, master = SlaveProof(slaves, "broker-a", ONE), MasterProof(masters, "broker-a", TWO)
    meet(slave, master, [])
    assert (slave.is_proven, master.is_proven) == (True, True)


@pytest.mark.parametrize(
    ("slaves", "masters"),
    [(ONLY, TURNED), (TURNED, ONLY), (Secrets("a third of the secrets"), BOTH),
     (Secrets(OTHER), OPTIONAL), (OPTIONAL, Secrets(OTHER))],
)  # fmt: skip
def test_wrong_secrets_are_refused_in_a_roll_as_well(slaves: Secrets, masters: Secrets) -> None:
    """A secret that only one end accepts is none yet; a wrong one is worse than none."""
    slave, master = SlaveProof(slaves, "broker-a", ONE), MasterProof(masters, "broker-a", TWO)
    with pytest.raises(RemoteProtocolError, match="another haSecret"):
        meet(slave, master, [])
    assert not master.is_done


def test_slave_without_a_secret_is_let_in_only_where_proof_is_optional() -> None:
    """What it said belongs to replication."""
    said = encode_handshake_request(HandshakeRequest(2))
    master = MasterProof(OPTIONAL, "broker-a", TWO)
    assert master.feed(b"") + master.feed(said) == b""
    assert (master.is_done, master.is_proven, master.rest) == (True, False, said)
    with pytest.raises(RemoteProtocolError, match="no haSecret"):
        MasterProof(BOTH, "broker-a", TWO).feed(said)


@pytest.mark.parametrize(
    ("secrets", "talks", "dials"),
    [(ONLY, False, 1), (OPTIONAL, False, 2), (OPTIONAL, True, 1)],
    ids=["demanded", "optional", "optional, and the master has another secret"],
)
def test_master_that_hangs_up_is_dialled_without_proof_only_where_it_is_optional(
    secrets: Secrets, talks: bool, dials: int
) -> None:
    """A master of before the secret closes upon what it cannot read; one with another answers first."""
    network = ProvenNetwork(TcpNetwork(), secrets, "broker-a", SystemClock(), SystemRng(), Logger())
    said: list[bytes] = []
    served = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said.append(await reader.read(24))
        if talks:
            writer.write(bytes(48))
        writer.close()
        if len(said) == dials:
            served.set()

    class Plain(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            cast(asyncio.Transport, transport).write(b"\0\0\0 a slave of RIP-44")

    async def play() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            transport = await network.connect("127.0.0.1", port, Plain, timeout_ms=5_000)
            await served.wait()
            transport.abort()
            await asyncio.sleep(0)
        finally:
            server.close()

    if dials == 1:
        with pytest.raises(ConnectFailed, match="proves nothing"):
            uvloop.run(play())
    else:
        uvloop.run(play())
    assert [one.startswith(MAGIC) for one in said] == [True, False][:dials]
    assert network.let_in == dials - 1


def test_master_counts_whom_it_lets_in_without_proof() -> None:
    """By the count an operator sees whether proof may be demanded now."""
    network = ProvenNetwork(
        TcpNetwork(), OPTIONAL, "broker-a", SystemClock(), SystemRng(), Logger()
    )
    said = encode_handshake_request(HandshakeRequest(2))
    heard: list[bytes] = []
    ended = asyncio.Event()

    class Replication(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            heard.append(data)

        def connection_lost(self, exc: Exception | None) -> None:
            ended.set()

    async def play() -> None:
        listener = await network.listen("127.0.0.1", 0, Replication)
        _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(said)
        writer.close()
        await ended.wait()
        listener.close()

    uvloop.run(play())
    assert (b"".join(heard), network.let_in, network.refused[UNPROVEN]) == (said, 1, 0)


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
                TcpNetwork(), ONLY, "broker-a", SystemClock(), SystemRng(), Logger()
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


ROLLS = {
    "comes": ({}, {"haSecret": SECRET, "haProofOptional": "true"}, SETTINGS),
    "changes": (
        SETTINGS, {"haSecret": SECRET, "haSecretAccepted": OTHER},
        {"haSecret": OTHER, "haSecretAccepted": SECRET}, {"haSecret": OTHER},
    ),
    "goes": (SETTINGS, {"haSecret": SECRET, "haProofOptional": "true"}, {}),
}  # fmt: skip


@pytest.mark.costly
@pytest.mark.parametrize("roll", ROLLS)
def test_secret_is_rolled_through_a_set_one_replica_at_a_time(
    rmq_cluster_factory: Factory, roll: str
) -> None:
    """Slaves and masters of two neighbouring stages copy from each other, whoever reigns."""
    first, *stages = ROLLS[roll]
    cluster = rmq_cluster_factory(controllers=1, replicas=2, broker_settings=first)
    cluster.produce(5)
    for stage in stages:
        for node in cluster.brokers:
            configure(node, stage)
            cluster.shut_down(node)
            cluster.restart(node)
            cluster.wait_in_sync(2)
            cluster.produce(5)
    cluster.assert_nothing_lost()
    unproven = [one.service.peers_unproven for one in cluster.brokers]  # type: ignore[attr-defined]
    assert sum(unproven) == 0, "nobody is let in without proof at the end"
    texts = "".join(node.log.read_text() for node in cluster.brokers)
    assert ("ha_peer_unproven" in texts) is (roll != "changes")


def configure(node: Node, settings: dict[str, str]) -> None:
    """Have a replica start with these about its secret, and none of before."""
    plan = node._plan  # type: ignore[attr-defined]
    kept = {key: value for key, value in plan.broker_settings.items() if not key.startswith("ha")}
    node._plan = replace(plan, broker_settings={**kept, **settings})  # type: ignore[attr-defined]


def test_optional_proof_is_warned_of_at_every_start_and_shown_by_the_metrics() -> None:
    """Who forgets that a change of the secret is under way is reminded, at brokers and controllers."""
    optional = {"haSecret": SECRET, "haProofOptional": "true"}
    with ReplicaCluster(seed=51, replicas=2, **optional) as cluster:
        cluster.controller_keys = {"raftSecret": SECRET, "raftProofOptional": "true"}
        cluster.boot_all()
        cluster.until(cluster.in_sync, "SyncStateSet of two")
        for event, count in (("raft_proof_optional", 3), ("ha_proof_optional", 2)):
            assert sum(f" {event}" in line for line in cluster.trace.lines) == count
        broker = master_of(cluster)
        assert broker.proven is not None
        broker.proven.let_in = 7
        scrape = cluster.loop.run_until_complete(broker.admin.scrape())
        found = {one.name: one for one in BrokerCollector({}, lambda: scrape).collect()}
        assert found["rmqha_ha_unproven_peers"].samples[0].value == 7
        controller = next(iter(cluster.controllers.values()))
        assert controller.raft.peers.unproven == 0, "all of them have proven themselves"
        controller.raft.peers.unproven = 5
        status = cluster.loop.run_until_complete(controller.status())
        shown = ControllerCollector(controller.metrics, {}, lambda: status, lambda: 0).collect()
        figures = {one.name: one for one in shown}
        assert figures["rmqha_raft_unproven_peers"].samples[0].value == 5
