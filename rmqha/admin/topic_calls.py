"""What commands ask one broker about one topic."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from rmqha.client.exchange import Exchange, Refused, ask
from rmqha.client.offsets import TopicOffset, decode_topic_stats
from rmqha.client.routes import QueueKey
from rmqha.remoting import fastjson
from rmqha.remoting.asked_queues import asked_fields
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import ext_fields
from rmqha.remoting.values import as_object

Offsets = dict[QueueKey, TopicOffset]


def topic_stats(
    address: str, topic: str, queue_ids: Collection[int] = ()
) -> Exchange[tuple[Offsets, float]]:
    """Ask one broker for the ends of a topic's queues (202).

    Args:
        queue_ids: which are of interest; empty for all. Java's brokers always tell of all.
    """
    fields = {**ext_fields(topic=topic), **asked_fields(queue_ids)}
    answer = yield from ask(
        address, RemotingCommand(RequestCode.GET_TOPIC_STATS_INFO, ext_fields=fields)
    )
    return decode_topic_stats(answer.body)


def mapped_config(address: str, topic: str) -> Exchange[Mapping[str, Any] | None]:
    """Ask a broker for a topic with its mapping (351); None where it has no such topic."""
    fields = ext_fields(topic=topic, lo=True)
    try:
        request = RemotingCommand(RequestCode.GET_TOPIC_CONFIG, ext_fields=fields)
        answer = yield from ask(address, request)
    except Refused as error:
        if error.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        return None
    return as_object(fastjson.loads(answer.body))
