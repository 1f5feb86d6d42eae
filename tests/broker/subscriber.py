"""A client of replicas in the simulator that also hears what brokers tell and ask it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

from rmqha.remoting import fastjson
from rmqha.remoting.address import parse_address
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.command import FLAG_ONEWAY, RemotingCommand
from rmqha.remoting.settings import RemotingSettings
from rmqha.sim.clock import SimClock
from tests.broker.replicas import ReplicaCluster

_hosts = itertools.count(1)


class Subscriber:
    """One client on one connection.

    Args:
        cluster: where it lives.
        address: of the broker.
        client_id: what it calls itself.

    Attributes:
        heard: requests of the broker, oneway ones too.
        answers: by opaque.
        reply: what it answers to a request of the broker; None stays silent.
        on_oneway: what it does at one that wants no answer.
    """

    def __init__(self, cluster: ReplicaCluster, address: str, client_id: str = "c1") -> None:
        self.cluster = cluster
        self.client_id = client_id
        self.heard: list[RemotingCommand] = []
        self.answers: dict[int, RemotingCommand] = {}
        self.reply: Callable[[RemotingCommand], RemotingCommand] | None = None
        self.on_oneway: Callable[[RemotingCommand], None] | None = None
        self.closed = False
        self._opaque = random.Random(client_id).randint(1, 1 << 20)
        self.connection: Connection = cluster._on(f"10.0.3.{next(_hosts)}", self._connect(address))
        cluster.until(lambda: not self.connection.is_closing, "a connection")

    def _connect(self, address: str) -> Callable[[Any, Any], Connection]:
        def make(network: Any, context: Any) -> Connection:
            cluster = self.cluster
            connection = Connection(
                next(cluster.ids), SimClock(cluster.loop), RemotingSettings(),
                on_commands=self._on_commands, on_closed=self._on_closed,
            )  # fmt: skip
            host, port = parse_address(address)
            cluster.loop.create_task(
                network.connect(host, port, lambda: connection, timeout_ms=1000), context=context
            )
            return connection

        return make

    def _on_commands(self, connection: Connection, commands: list[RemotingCommand]) -> None:
        for command in commands:
            if command.is_response:
                assert command.opaque not in self.answers, "answered twice"
                self.answers[command.opaque] = command
                continue
            self.heard.append(command)
            if self.reply is not None and not command.is_oneway:
                connection.send(self.reply(command))
            elif self.on_oneway is not None and command.is_oneway:
                self.on_oneway(command)

    def _on_closed(self, _: Connection, error: Exception | None) -> None:
        self.closed = True

    # -- asking ------------------------------------------------------------------------------------

    def tell(
        self, code: int, fields: dict[str, Any] | None = None, body: bytes = b"", flag: int = 0
    ) -> int:
        """Send a request; returns its number."""
        self._opaque += 1
        texts = None if fields is None else {name: _text(value) for name, value in fields.items()}
        command = RemotingCommand(
            code, self._opaque, flag, "JAVA", 479, ext_fields=texts, body=body
        )
        self.connection.send(command)
        return self._opaque

    def oneway(self, code: int, fields: dict[str, Any]) -> None:
        """Send a request that wants no answer, and let it arrive."""
        self.tell(code, fields, flag=FLAG_ONEWAY)
        self.cluster.run_for(20)

    def ask(
        self, code: int, fields: dict[str, Any] | None = None, body: bytes = b""
    ) -> RemotingCommand:
        """Send a request and wait for its answer."""
        number = self.tell(code, fields, body)
        self.cluster.until(lambda: number in self.answers, f"an answer to {code}", 5_000)
        return self.answers[number]

    def beat(self, group: str, *topics: str, **more: Any) -> RemotingCommand:
        """Send a heartbeat as a push consumer."""
        return self.ask(34, body=heartbeat(self.client_id, group, *topics, **more))

    def pull(self, group: str, topic: str, offset: int = 0, **more: Any) -> int:
        """Send a pull that carries its subscription and may wait; returns its number."""
        return self.tell(11, pull_fields(group, topic, offset, **more))

    def told(self, code: int) -> list[RemotingCommand]:
        """What the broker sent of one code."""
        return [command for command in self.heard if command.code == code]


def heartbeat(
    client_id: str, group: str, *topics: str, model: str = "CLUSTERING", expression: str = "*",
    version: int = 1, fingerprint: int = 0, without_sub: bool = False, producers: tuple[str, ...] = (),
    kind: str = "TAG", unit_mode: bool = False,
) -> bytes:  # fmt: skip
    """The body of 34."""
    wanted = [
        {"topic": topic, "subString": expression, "subVersion": version, "expressionType": kind,
         "tagsSet": [], "codeSet": [], "classFilterMode": False}
        for topic in topics
    ]  # fmt: skip
    consumer = {
        "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": model,
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "unitMode": unit_mode,
        "subscriptionDataSet": [] if without_sub else wanted,
    }  # fmt: skip
    return fastjson.dumps(
        {
            "clientID": client_id, "consumerDataSet": [consumer] if group else [],
            "producerDataSet": [{"groupName": name} for name in producers],
            "heartbeatFingerprint": fingerprint, "withoutSub": without_sub,
        }
    )  # fmt: skip


def pull_fields(group: str, topic: str, offset: int = 0, **more: Any) -> dict[str, Any]:
    """The fields of 11; flag 6 carries the subscription and may wait."""
    return {
        "consumerGroup": group, "topic": topic, "queueId": 0, "queueOffset": offset,
        "maxMsgNums": 32, "sysFlag": 6, "commitOffset": 0, "suspendTimeoutMillis": 15_000,
        "subscription": "*", "subVersion": 0, "expressionType": "TAG", **more,
    }  # fmt: skip


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
