"""Answers of any bytes: of controllers, name servers, masters and clients. None ends or blocks a broker.

What is answered here, nobody could take for true: a controller that lies well is believed, for brokers
have nobody else to ask.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import SERIALIZE_JSON, SERIALIZE_ROCKETMQ, RemotingCommand
from rmqha.sim.loop import HOST
from tests.broker.replicas import TOPIC, ReplicaCluster, master_of
from tests.broker.subscriber import Subscriber

GROUP = "G"
LYING_MS = 5_000
SLOW = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate], report_multiple_bugs=False,
)  # fmt: skip
"""Stories that wait for what never comes are too slow to be shrunk."""

NUMBERS = st.sampled_from((-1, -(1 << 31), 1 << 31, 1 << 63, -(1 << 63), 10**40))
TEXTS = NUMBERS.map(str) | st.sampled_from(("", "x", "²", "a:b:c", ":", "null", "é" * 400, "-"))
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=5,
)
MEMBERS = (
    "topicConfigTable", "dataVersion", "mappingDataVersion", "offsetTable", "subscriptionGroupTable",
    "forbiddenTable", "table", "counter", "stateVersion", "timestamp", "syncStateSet",
    "syncStateSetEpoch", "messageQueueTable", "queueDatas", "brokerDatas", "rmqhaChanges",
    "rmqhaAppliedOffset",
)  # fmt: skip
FIELDS = (
    "masterAddress", "masterBrokerId", "masterEpoch", "syncStateSetEpoch", "brokerId", "nextBrokerId",
    "controllerLeaderAddress", "isLeader", "masterAddr", "haServerAddr", "clusterName", "brokerName",
    "registerCheckCode",
)  # fmt: skip
BODIES = (
    st.binary(max_size=60)
    | VALUES.map(lambda value: json.dumps(value).encode())
    | st.dictionaries(st.sampled_from(MEMBERS), VALUES, max_size=4).map(
        lambda members: json.dumps(members).encode()
    )
)


class Lie(NamedTuple):
    """An answer."""

    code: int
    fields: dict[str, str] | None
    remark: str | None
    body: bytes

    def answer(self, request: RemotingCommand) -> RemotingCommand:
        """To a request."""
        fields = None if self.fields is None else dict(self.fields)
        return request.reply(self.code, self.remark, fields, self.body)


LIES = st.builds(
    Lie,
    st.sampled_from((0, 0, 0, 0, 1, 2007, 2012, -1, (1 << 31) - 1)),
    st.none() | st.dictionaries(st.sampled_from(FIELDS), TEXTS, max_size=5),
    st.none() | TEXTS,
    BODIES,
)
ASKED = tuple(
    int(code) for code in (
        RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, RequestCode.CONTROLLER_ELECT_MASTER,
        RequestCode.CONTROLLER_REGISTER_BROKER, RequestCode.CONTROLLER_GET_REPLICA_INFO,
        RequestCode.CONTROLLER_GET_METADATA_INFO, RequestCode.CONTROLLER_GET_NEXT_BROKER_ID,
        RequestCode.CONTROLLER_APPLY_BROKER_ID, RequestCode.BROKER_HEARTBEAT,
        RequestCode.REGISTER_BROKER,
        RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.GET_ALL_CONSUMER_OFFSET, RequestCode.GET_ALL_DELAY_OFFSET,
        RequestCode.GET_TIMER_CHECK_POINT, RequestCode.GET_BROKER_RUNTIME_INFO,
    )
)  # fmt: skip
"""What brokers ask controllers, name servers and masters."""


class LiedTo(ReplicaCluster):
    """Two replicas that are told lies, as long as there are some.

    Attributes:
        lies: by request code.
        told: how often one was, by request code.
    """

    def __init__(self) -> None:
        super().__init__(seed=61, replicas=2, syncSlaveMetadataPeriod=300, slaveTimeout=1_000)
        self.lies: dict[int, Lie] = {}
        self.told: Counter[int] = Counter()

    def _broker(self, host: str, ports: dict[str, Any]) -> Any:
        replica = super()._broker(host, ports)
        client = replica._client
        honest: Callable[..., Awaitable[RemotingCommand]] = client.invoke

        async def invoke(
            address: str, command: RemotingCommand, timeout_ms: int | None = None
        ) -> RemotingCommand:
            answer = await honest(address, command, timeout_ms)
            lie = self.lies.get(int(command.code))
            if lie is None:
                return answer
            self.told[int(command.code)] += 1
            return lie.answer(command)

        client.invoke = invoke  # type: ignore[method-assign]  # the wire, as it were
        return replica

    def go_on(self) -> None:
        """Both are in sync, a message is taken, and the slave has it."""
        self.until(self.in_sync, "both in sync", 120_000)
        self.send_many(1)
        master = master_of(self)
        self.until(
            lambda: {one.store.max_offset for one in self.replicas.values()}
            == {master.store.max_offset},
            "equal logs",
        )


@pytest.mark.slow
def test_answers_of_any_bytes_when_brokers_take_them_then_they_go_on_when_these_end() -> None:
    """Of controllers, name servers and masters; to a pair at work, and to one that begins."""
    told: Counter[int] = Counter()

    @SLOW
    @given(
        lies=st.dictionaries(st.sampled_from(ASKED), LIES, min_size=1, max_size=6),
        is_new=st.booleans(),
    )
    def play(lies: dict[int, Lie], is_new: bool) -> None:
        with LiedTo() as cluster:
            lied_to(cluster, lies, is_new=is_new)
            told.update(cluster.told)

    # The first answers of a new broker's life come to it only when those before them were true.
    for code in ASKED:
        play = example(lies={code: Lie(0, {}, None, b"\xff{")}, is_new=True)(play)
    play()
    assert [code for code in ASKED if not told[code]] == []


def lied_to(cluster: LiedTo, lies: dict[int, Lie], *, is_new: bool) -> None:
    """Tell lies for some time, and see both go on with the truth."""
    if is_new:
        cluster.lies = lies
        for host in [*cluster.controller_hosts, *cluster.broker_hosts]:
            cluster.boot(host)
    else:
        cluster.boot_all()
        cluster.go_on()
        cluster.lies = lies
    cluster.run_for(LYING_MS)
    # A role begins what a pair at work does not ask.
    for host in cluster.broker_hosts:
        cluster.kill(host)
        cluster.boot(host)
        cluster.run_for(LYING_MS / 2)
    cluster.lies = {}
    cluster.go_on()


@pytest.mark.slow
@SLOW
@given(lie=LIES, serialize=st.sampled_from((SERIALIZE_JSON, SERIALIZE_ROCKETMQ)))
def test_answers_of_any_bytes_when_clients_give_them_then_who_asked_is_answered(
    lie: Lie, serialize: int
) -> None:
    """307, 309, 223 and 325 go to clients, and what they say goes back."""
    with ReplicaCluster(seed=62, replicas=1) as cluster:
        cluster.boot_all()
        address = master_of(cluster).config.address
        clients = [Subscriber(cluster, address, name) for name in ("c1", "c2")]
        for one in clients:
            one.reply = lie.answer
            assert one.beat(GROUP, TOPIC, producers=(one.client_id,)).code == 0
        asking = Subscriber(cluster, address, "asking")
        asked = {"consumerGroup": GROUP, "clientId": "c1", "group": GROUP, "topic": TOPIC}
        reply = {
            "a": "P", "b": TOPIC, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0",
            "i": "REPLY_TO_CLIENT\x01c1\x02",
        }  # fmt: skip
        requests = ((307, asked), (309, asked), (223, asked), (325, reply))
        for opaque, (code, fields) in enumerate(requests, 1):
            asking.connection.send(
                RemotingCommand(code, opaque, ext_fields=dict(fields), serialize_type=serialize)
            )
        cluster.until(lambda: len(asking.answers) == len(requests), "all answers", 30_000)
        assert sum(len(one.heard) for one in clients) >= len(requests)
        cluster.send_many(1)


CHUNKS = st.lists(
    st.binary(max_size=50)
    | st.tuples(
        st.sampled_from((1, 2)), NUMBERS.map(lambda n: n & 0xFFFFFFFF), st.binary(max_size=40)
    ).map(lambda found: found[0].to_bytes(4, "big") + found[1].to_bytes(4, "big") + found[2]),
    max_size=5,
)


@pytest.mark.slow
@SLOW
@given(chunks=CHUNKS, is_master=st.booleans())
def test_replication_of_any_bytes_when_a_peer_sends_it_then_only_that_connection_ends(
    chunks: list[bytes], is_master: bool
) -> None:
    """Of a slave to the master's port, and of what a slave was told is its master."""
    with LiedTo() as cluster:
        cluster.boot_all()
        cluster.go_on()
        master = master_of(cluster)
        (slave,) = [one for one in cluster.replicas.values() if one is not master]
        peer = Peer(cluster, chunks)
        context = cluster.net.contexts[slave.config.host]
        if is_master:
            cluster.loop.call_soon(slave.follow_master, f"{peer.host}:10912", context=context)
            cluster.run_for(2_000)
            real = f"{master.config.host}:10912"
            cluster.loop.call_soon(slave.follow_master, real, context=context)
        else:
            peer.connect(master.config.host)
            cluster.run_for(2_000)
        assert peer.connections
        cluster.go_on()
        assert set(cluster.replicas.values()) == {master, slave}


class Peer:
    """Somebody with a port for replication, who sends what it was given to whoever it meets.

    Attributes:
        connections: how many there were.
    """

    _hosts = itertools.count(1)

    def __init__(self, cluster: ReplicaCluster, chunks: list[bytes]) -> None:
        self.cluster = cluster
        self.chunks = chunks
        self.connections = 0
        self.host = f"10.0.9.{next(self._hosts)}"
        self._context = contextvars.copy_context()
        self._context.run(HOST.set, self.host)
        self._network = cluster.net.boot(self.host, self._context)
        listen = self._network.listen("", 10912, self._protocol)
        cluster.loop.run_until_complete(cluster.loop.create_task(listen, context=self._context))

    def connect(self, host: str) -> None:
        """Meet a master."""
        work = self._network.connect(host, 10912, self._protocol, timeout_ms=1_000)
        self.cluster.loop.create_task(work, context=self._context)

    def _protocol(self) -> Any:
        return _Talker(self)


class _Talker(asyncio.Protocol):
    """One connection of a peer."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    def connection_made(self, transport: Any) -> None:
        """Say everything."""
        self._peer.connections += 1
        for chunk in self._peer.chunks:
            transport.write(chunk)
