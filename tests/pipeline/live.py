"""Topics of a test cluster, filled message by message, for the tests of ``rocketmq``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rmqha.store import properties as props
from rmqha.testing.cluster import RmqCluster
from rmqha.testing.real import wire
from rmqha.testing.real.processes import wait_until

GET_MAX_OFFSET = 30
DELETE_TOPIC_IN_BROKER, DELETE_TOPIC_IN_NAMESRV = 215, 216
BROKER = "broker-a"
BORN_MS = 1_700_000_000_123
REGISTERED_S = 30.0


class Topic:
    """A topic of a cluster, and what was sent to it.

    Args:
        queues: how many it has.

    Attributes:
        name: its name.
    """

    def __init__(self, cluster: RmqCluster, name: str, queues: int = 2) -> None:
        self._cluster = cluster
        self.name = name
        self._queues = queues
        wait_until(self._create, REGISTERED_S, "a master that makes topics")
        with wire.Connection(cluster.name_servers[0].address) as server:
            wait_until(lambda: 0 in wire.broker_addresses(server, name, BROKER), REGISTERED_S, name)

    def _create(self) -> bool:
        """Not at a master that is only taking over."""
        try:
            with wire.Connection(self._cluster.wait_for_master().address) as master:
                wire.create_topic(master, self.name, self._queues)
        except wire.Refused:
            return False
        return True

    def send(
        self, queue_id: int, body: bytes, pairs: Mapping[str, str] | None = None, sys_flag: int = 0
    ) -> int:
        """Send one message; its queue offset. It can be read when this returns."""
        fields = {
            "producerGroup": "tests", "topic": self.name, "defaultTopic": "TBW102",
            "defaultTopicQueueNums": 4, "queueId": queue_id, "sysFlag": sys_flag,
            "bornTimestamp": BORN_MS, "flag": 7, "properties": props.encode(pairs or {}).decode(),
            "reconsumeTimes": 0, "unitMode": False, "batch": False,
        }  # fmt: skip

        def sent() -> wire.Answer | None:
            """Not by a master that is only taking over."""
            address = self._cluster.wait_for_master().address
            answer = wire.invoke(address, wire.SEND_MESSAGE, fields, body)
            return answer if answer.code == wire.SUCCESS else None

        answer = wait_until(sent, REGISTERED_S, "a master that takes messages")
        offset = int(answer.ext["queueOffset"])
        self._wait(queue_id, offset)
        return offset

    def fill(self, count: int, first: int = 0) -> None:
        """Send numbered messages to the queues in turn."""
        for number in range(first, first + count):
            self.send(number % self._queues, b"%s %d" % (self.name.encode(), number))

    def end(self, queue_id: int) -> int:
        """The offset behind a queue's last message."""
        master = self._cluster.wait_for_master().address
        found = wire.invoke(master, GET_MAX_OFFSET, {"topic": self.name, "queueId": queue_id})
        return int(found.ext["offset"])

    def _wait(self, queue_id: int, offset: int) -> None:
        """Consume queues trail the log by a moment."""

        wait_until(
            lambda: self.end(queue_id) > offset, REGISTERED_S, f"offset {offset} of {self.name}"
        )

    def delete(self) -> None:
        """Delete it at all brokers and at the name server."""
        for node in self._cluster.brokers:
            wire.invoke(node.address, DELETE_TOPIC_IN_BROKER, {"topic": self.name})
        server = self._cluster.name_servers[0].address
        wire.invoke(server, DELETE_TOPIC_IN_NAMESRV, {"topic": self.name})

    def options(self, **more: str) -> dict[str, Any]:
        """What a reader needs."""
        return {"nameServer": self._cluster.namesrv_addr, "topic": self.name, **more}
