"""A client that knows no static topics, on the simulated hosts of ``broker_sets``."""

from __future__ import annotations

import struct
from typing import NamedTuple

from rmqha.base.errors import RequestTimeout
from rmqha.remoting import fastjson
from rmqha.remoting.command import RemotingCommand
from tests.broker.broker_sets import GROUP, STATIC, SetsCluster
from tests.broker.replicas import NAME_SERVER, send_fields

JAVA_4_9_8, GO = 409, 317
SHOWN = "__syslo__global__" + STATIC
"""The broker name of all queues, as name servers tell it."""
_BODY_SIZE_AT = 84


class Got(NamedTuple):
    """One message as its record says it, which is all that such a client looks at."""

    queue_id: int
    queue_offset: int
    body: bytes
    physical_offset: int


def read_records(body: bytes) -> list[Got]:
    """The records of a pull's answer, with addresses of IPv4."""
    found, at = [], 0
    while at < len(body):
        size, _, _, queue_id, _, offset, physical = struct.unpack_from(">iIIiiqq", body, at)
        (length,) = struct.unpack_from(">i", body, at + _BODY_SIZE_AT)
        start = at + _BODY_SIZE_AT + 4
        found.append(Got(queue_id, offset, body[start : start + length], physical))
        at += size
    return found


class OldClient:
    """Asks one broker set for all queues of ``STATIC``.

    Args:
        version, language: of its requests.
    """

    def __init__(
        self, cluster: SetsCluster, version: int = JAVA_4_9_8, language: str = "JAVA"
    ) -> None:
        self._cluster = cluster
        self._version = version
        self._language = language

    def ask(
        self, name: str, code: int, fields: dict[str, str] | None = None, body: bytes = b"",
        *, timeout_ms: int = 20_000,
    ) -> RemotingCommand:  # fmt: skip
        """Ask a set's master, or whoever has an address."""
        found = self.collect(name, code, fields, body, timeout_ms=timeout_ms)
        self._cluster.until(lambda: found, "an answer", limit_ms=timeout_ms + 1_000)
        if isinstance(found[0], Exception):
            raise found[0]
        return found[0]

    def collect(
        self, name: str, code: int, fields: dict[str, str] | None = None, body: bytes = b"",
        *, timeout_ms: int = 20_000,
    ) -> list[RemotingCommand | Exception]:  # fmt: skip
        """Send a request; its answer, or that there was none, is in the list once it is known."""
        cluster = self._cluster
        address = name if ":" in name else cluster.address(name)
        command = RemotingCommand(
            code, language=self._language, version=self._version, ext_fields=fields, body=body
        )
        found: list[RemotingCommand | Exception] = []

        async def ask() -> None:
            try:
                found.append(await cluster._client.invoke(address, command, timeout_ms))
            except RequestTimeout as error:
                found.append(error)

        cluster.loop.create_task(ask(), context=cluster._client_context.copy())
        return found

    def route(self) -> tuple[str, int]:
        """The address that it would ask, and how many queues it sees there; of 0 none is served."""
        answer = self.ask(f"{NAME_SERVER}:9876", 105, {"topic": STATIC})
        members = fastjson.loads(answer.body)
        (queues,) = members["queueDatas"][:1]
        if not queues["perm"]:
            return "", 0
        assert queues["brokerName"] == SHOWN
        (addrs,) = [
            one["brokerAddrs"] for one in members["brokerDatas"] if one["brokerName"] == SHOWN
        ]
        return addrs.get("0", ""), queues["writeQueueNums"]

    def put(self, name: str, number: int, queue: int, **fields: str) -> RemotingCommand:
        """Send one message to a logical queue."""
        more = send_fields(number, STATIC) | {"e": str(queue)} | fields
        return self.ask(name, 310, more, b"body-%d" % number)

    def heartbeat(self, *names: str) -> None:
        """Tell sets that it consumes the topic."""
        data = {
            "clientID": "old", "producerDataSet": [],
            "consumerDataSet": [{
                "groupName": GROUP, "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING", "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                "unitMode": False,
                "subscriptionDataSet": [{
                    "topic": STATIC, "subString": "*", "tagsSet": [], "codeSet": [],
                    "subVersion": 1, "classFilterMode": False, "expressionType": "TAG",
                }],
            }],
        }  # fmt: skip
        for name in names:
            assert self.ask(name, 34, None, fastjson.dumps(data)).code == 0

    def pull_fields(self, queue: int, offset: int, **fields: str) -> dict[str, str]:
        """Of a pull whose subscription was told by heartbeats."""
        return {
            "consumerGroup": GROUP, "topic": STATIC, "queueId": str(queue),
            "queueOffset": str(offset), "maxMsgNums": "32", "sysFlag": "0", "commitOffset": "0",
            "suspendTimeoutMillis": "0", "subVersion": "1", **fields,
        }  # fmt: skip

    def consume(self, name: str, queue: int, offset: int = 0) -> list[tuple[int, int, bytes]]:
        """Read a queue until there is nothing; what the records say: queue, offset, body."""
        return [(one.queue_id, one.queue_offset, one.body) for one in self.got(name, queue, offset)]

    def got(self, name: str, queue: int, offset: int = 0) -> list[Got]:
        """The same with the messages' places."""
        found: list[Got] = []
        while True:
            answer = self.ask(name, 11, self.pull_fields(queue, offset))
            fields = answer.ext_fields or {}
            if answer.code == 19:
                return found
            assert answer.code in (0, 20, 21), answer
            assert fields["suggestWhichBrokerId"] == "0"
            found += read_records(answer.body)
            offset = int(fields["nextBeginOffset"])

    def lock(self, name: str, client_id: str, *queues: int, code: int = 41) -> list[int]:
        """Lock queues, or give them back (42); those that the client holds then."""
        members = {
            "consumerGroup": GROUP, "clientId": client_id,
            "mqSet": [
                {"topic": STATIC, "brokerName": SHOWN, "queueId": queue} for queue in queues
            ],
        }  # fmt: skip
        answer = self.ask(name, code, None, fastjson.dumps(members))
        assert answer.code == 0
        held = fastjson.loads(answer.body)["lockOKMQSet"] if answer.body else []
        assert {(one["topic"], one["brokerName"]) for one in held} <= {(STATIC, SHOWN)}
        return sorted(one["queueId"] for one in held)
