"""How far queues reach, and groups in them, as brokers tell it.

Source: TopicStatsTable, ConsumeStats and ResetOffsetBody, RocketMQ remoting; fastjson's maps with
object keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from msgspec import Struct

from rmqha.client.routes import QueueKey, queue_key
from rmqha.remoting import fastjson
from rmqha.remoting.values import as_float, as_number, as_object


class Edge(NamedTuple):
    """The first offset of a queue, and the one after its last."""

    low: int
    high: int


class TopicOffset(NamedTuple):
    """A queue's ends; the timestamp is 0 while nothing is stored."""

    min_offset: int
    max_offset: int
    last_update_timestamp: int


def decode_topic_stats(body: bytes) -> tuple[dict[QueueKey, TopicOffset], float]:
    """Read 202's body: the queues of one broker, and its puts per second.

    Raises:
        RemoteProtocolError: not such a body.
    """
    members = as_object(fastjson.loads(body))
    table: dict[QueueKey, TopicOffset] = {}
    for key, value in _queue_table(members).items():
        offset = as_object(value)
        table[key] = TopicOffset(
            as_number(offset.get("minOffset")),
            as_number(offset.get("maxOffset")),
            as_number(offset.get("lastUpdateTimestamp")),
        )
    return table, as_float(members.get("topicPutTps"))


class ConsumeOffset(NamedTuple):
    """How far a group is in a queue."""

    broker_offset: int
    consumer_offset: int
    pull_offset: int
    last_timestamp: int

    @property
    def diff(self) -> int:
        """Messages that the group has yet to consume."""
        return self.broker_offset - self.consumer_offset

    @property
    def inflight(self) -> int:
        """Messages that were pulled and are not yet consumed."""
        return self.pull_offset - self.consumer_offset


class ConsumeStats(Struct, frozen=True):
    """How far a group is in all its queues."""

    offset_table: Mapping[QueueKey, ConsumeOffset]
    consume_tps: float

    @classmethod
    def decode(cls, body: bytes) -> ConsumeStats:
        """Read 208's body.

        Raises:
            RemoteProtocolError: not such a body.
        """
        return cls.of(fastjson.loads(body))

    @classmethod
    def of(cls, value: object) -> ConsumeStats:
        """Read the JSON members.

        Raises:
            RemoteProtocolError: not such an object.
        """
        members = as_object(value)
        table = {key: _consume_offset(offset) for key, offset in _queue_table(members).items()}
        return cls(table, as_float(members.get("consumeTps")))


def _consume_offset(value: object) -> ConsumeOffset:
    members = as_object(value)
    return ConsumeOffset(
        as_number(members.get("brokerOffset")),
        as_number(members.get("consumerOffset")),
        as_number(members.get("pullOffset")),
        as_number(members.get("lastTimestamp")),
    )


def decode_reset(body: bytes) -> dict[QueueKey, int]:
    """Read 222's body: the new offset of each queue; an absent body is empty.

    Raises:
        RemoteProtocolError: not such a body.
    """
    members = as_object(fastjson.loads(body)) if body else {}
    return {key: as_number(value) for key, value in _queue_table(members).items()}


def _queue_table(members: Mapping[str, Any]) -> dict[QueueKey, object]:
    return {
        queue_key(fastjson.loads(key.encode())): value
        for key, value in as_object(members.get("offsetTable")).items()
    }
