"""Clients that ask for much and stop reading: real sockets, the bound of the settings.

A server reads no further requests of one that does not read its answers, and cuts it off before
more than ``write_buffer_bytes_max`` waits for it; everybody else is served on.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

import pytest

from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.frame import FrameDecoder
from rmqha.remoting.settings import RemotingSettings
from rmqha.testing.cluster import RmqCluster
from rmqha.testing.real import wire
from rmqha.testing.real.processes import wait_until
from rmqha.testing.settings import BROKER_NAME

pytestmark = pytest.mark.slow

TOPIC = "Large"
BODY = b"x" * 60_000
ROUNDS = 4
TOGETHER = 3
HIGH_WATER_BYTES = 64 * 1024
"""Where asyncio tells a connection that its peer does not read."""

BOUND = RemotingSettings().write_buffer_bytes_max


@dataclass
class Watch:
    """The most that ever waited, by the peer it waited for."""

    peaks: dict[str, int] = field(default_factory=dict)
    connections: dict[str, Connection] = field(default_factory=dict)

    def note(self, connection: Connection) -> None:
        """Look at a connection that has just sent."""
        peer = connection.peer
        self.connections[peer] = connection
        self.peaks[peer] = max(self.peaks.get(peer, 0), connection.unsent_bytes)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """Looks at every connection of this process after every send and before every write."""
    watch = Watch()

    def looking(name: str, *, first: bool) -> None:
        real: Callable[..., object] = getattr(Connection, name)

        def call(connection: Connection, *args: object) -> object:
            if first:
                watch.note(connection)
            answer = real(connection, *args)
            watch.note(connection)
            return answer

        monkeypatch.setattr(Connection, name, call)

    looking("send_bytes", first=False)
    looking("_flush", first=True)
    return watch


@pytest.fixture
def cluster(rmq_cluster_factory: Callable[..., RmqCluster]) -> RmqCluster:
    """One of each, with five large messages in each queue."""
    cluster = rmq_cluster_factory(controllers=1, replicas=1, namesrv=1)
    cluster.produce([BODY] * 20, topic=TOPIC)
    assert len(cluster.consume(TOPIC)) == 20
    return cluster


class Stalled:
    """A client that sends one request over and over and reads nothing.

    Attributes:
        sent: whole requests that have left.
    """

    def __init__(self, address: str, frame: bytes) -> None:
        host, port = address.split(":")
        self._frame = frame
        self._rest = b""
        self.sent = 0
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._socket.connect((host, int(port)))
        self._socket.setblocking(False)
        self.name = "{}:{}".format(*self._socket.getsockname())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def push(self) -> None:
        """Send what the kernel takes at once, at most a chunk."""
        try:
            if not self._rest:
                self._rest = self._frame * 2000
            taken = self._socket.send(self._rest)
        except (BlockingIOError, ConnectionError):
            return
        before = -len(self._rest) // len(self._frame)
        self._rest = self._rest[taken:]
        self.sent += -len(self._rest) // len(self._frame) - before

    def is_held(self, watch: Watch) -> bool:
        """Push on; whether the server has stopped to read, or has closed."""
        self.push()
        connection = watch.connections.get(self.name)
        return connection is not None and (connection.is_closing or connection.is_write_paused)

    def read(self, count: int) -> int:
        """Read so many answers, all of them well formed; returns how many came."""
        decoder, answers = FrameDecoder(), 0
        self._socket.settimeout(10.0)
        while answers < count:
            data = self._socket.recv(1 << 20)
            if not data:
                break
            answers += len(decoder.feed(data))
        return answers


def pull_frame() -> bytes:
    """A pull of everything in a queue: about 250 KiB for 300 bytes."""
    ext = {
        "consumerGroup": "Stalled", "topic": TOPIC, "queueId": 0, "queueOffset": 0,
        "maxMsgNums": 32, "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 1000,
        "subscription": "*", "subVersion": 0, "expressionType": "TAG",
    }  # fmt: skip
    return wire.encode(11, ext)


def test_broker_when_pullers_stop_reading_then_bounded_and_others_go_on(
    cluster: RmqCluster, watch: Watch
) -> None:
    """One after the other and several at a time; each alone asks for far more than the bound."""
    address = cluster.brokers[0].address
    for together in [1] * ROUNDS + [TOGETHER]:
        with contextlib.ExitStack() as stack:
            stalled = [stack.enter_context(Stalled(address, pull_frame())) for _ in range(together)]
            for one in stalled:
                wait_until(lambda one=one: one.is_held(watch), 10.0, "the end of reading")
            held = [watch.connections[one.name] for one in stalled]
            seen = [connection.frames_in for connection in held]
            with wire.Connection(address) as other:
                # The broker has one loop: what it could read before these answers, it has read.
                for queue in range(4):
                    assert len(wire.pull_queue(other, TOPIC, queue)) == 5
            for one, connection, frames in zip(stalled, held, seen, strict=True):
                one.push()
                assert connection.frames_in == frames, "it was read from while it did not read"
                assert HIGH_WATER_BYTES < watch.peaks[one.name] <= BOUND
        for connection in held:
            wait_until(lambda c=connection: c.is_closing, 10.0, "the end of the connection")
            # What it holds goes in the same turn of the broker's loop, which this thread may see midway.
            wait_until(lambda c=connection: not c.unsent_bytes, 10.0, "the end of what it held")
    cluster.produce(4, topic="After")
    cluster.assert_nothing_lost("After")


@pytest.mark.parametrize("kind", ["namesrv", "controller"])
def test_answers_when_a_client_stops_reading_then_bounded_and_kept_for_when_it_reads(
    cluster: RmqCluster, watch: Watch, kind: str
) -> None:
    """Routes (105) and masters (1004): small answers, so the pause comes long before the bound."""
    if kind == "namesrv":
        address, frame = cluster.name_servers[0].address, wire.encode(105, {"topic": TOPIC})
    else:
        fields = {"brokerName": BROKER_NAME}
        address, frame = cluster.controllers[0].address, wire.encode(1004, fields)
    with Stalled(address, frame) as one:
        wait_until(lambda: one.is_held(watch), 20.0, "the end of reading")
        connection = watch.connections[one.name]
        frames = connection.frames_in
        with wire.Connection(address) as other:
            for _ in range(5):
                code = 105 if kind == "namesrv" else 1004
                fields = {"topic": TOPIC, "brokerName": BROKER_NAME}
                assert other.invoke(code, fields).code == wire.SUCCESS
        assert connection.frames_in == frames
        assert not connection.is_closing
        assert HIGH_WATER_BYTES < watch.peaks[one.name] <= BOUND
        assert one.read(one.sent) >= one.sent, "an answer is missing"
