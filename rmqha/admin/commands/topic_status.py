"""topicStatus: the ends of every queue of a topic."""

from __future__ import annotations

import click

from rmqha.admin.java_text import clipped, decimal, time_of
from rmqha.admin.report import Report, Table
from rmqha.admin.spec import (
    CommandSpec,
    name_servers_option,
    need_name_servers,
    parent_option,
    topic_option,
)
from rmqha.client.brokers import topic_route
from rmqha.client.exchange import Exchange, NotFound, ask
from rmqha.client.offsets import TopicOffset, decode_topic_stats
from rmqha.client.routes import QueueKey, TopicRoute
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import ext_fields

_HEAD = "%-32s  %-4s  %-20s  %-20s    %s\n"
_ROW = "%-32s  %-4d  %-20d  %-20d    %s\n"
_COLUMNS = ("Broker Name", "QID", "Min Offset", "Max Offset", "Last Updated")

Offsets = dict[QueueKey, TopicOffset]


def topic_stats(address: str, topic: str) -> Exchange[tuple[Offsets, float]]:
    """Ask one broker for the ends of a topic's queues (202)."""
    fields = ext_fields(topic=topic)
    answer = yield from ask(
        address, RemotingCommand(RequestCode.GET_TOPIC_STATS_INFO, ext_fields=fields)
    )
    return decode_topic_stats(answer.body)


def run(
    name_servers: tuple[str, ...] | None, topic: str, cluster_name: str | None
) -> Exchange[Report]:
    """Ask every broker set of the topic, or of ``cluster_name`` as a topic, for its queues.

    Raises:
        click.UsageError: no name server.
        NotFound: no broker has a queue of it.
    """
    servers = need_name_servers(name_servers)
    route: TopicRoute = yield from topic_route(servers, cluster_name or topic)
    found: Offsets = {}
    tps = 0.0
    for _, address in route.brokers():
        offsets, rate = yield from topic_stats(address, topic)
        found |= offsets
        tps += rate
    if not found and not cluster_name:
        raise NotFound(f"no broker has a queue of topic {topic}")
    rows = [
        (
            clipped(key.broker_name, 32), key.queue_id, offset.min_offset, offset.max_offset,
            time_of(offset.last_update_timestamp) if offset.last_update_timestamp > 0 else "",
        )
        for key, offset in sorted(found.items())
    ]  # fmt: skip
    plain = (
        _HEAD % tuple(f"#{column}" for column in _COLUMNS)
        + "".join(_ROW % row for row in rows)
        + f"\nTopic Put TPS: {decimal(tps)}\n"
    )
    data = {
        "topic": topic,
        "topicPutTps": tps,
        "queues": [
            {
                "brokerName": key.broker_name, "queueId": key.queue_id,
                "minOffset": offset.min_offset, "maxOffset": offset.max_offset,
                "lastUpdateTimestamp": offset.last_update_timestamp,
            }
            for key, offset in sorted(found.items())
        ],
    }  # fmt: skip
    return Report(plain, data, (Table(f"{topic}: {decimal(tps)} puts/s", _COLUMNS, rows),))


def _options() -> list[click.Option]:
    return [name_servers_option(), topic_option(), parent_option()]


SPEC = CommandSpec("topicStatus", "Show the ends of a topic's queues.", _options, run)
