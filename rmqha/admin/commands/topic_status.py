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
from rmqha.admin.static_topic_view import known_by_route, logical_offsets
from rmqha.admin.topic_calls import Offsets, topic_stats
from rmqha.base.errors import RmqhaError
from rmqha.client.brokers import topic_route
from rmqha.client.exchange import Exchange, NotFound, Refused, Unreachable
from rmqha.client.routes import TopicRoute

_HEAD = "%-32s  %-4s  %-20s  %-20s    %s\n"
_ROW = "%-32s  %-4d  %-20d  %-20d    %s\n"
_COLUMNS = ("Broker Name", "QID", "Min Offset", "Max Offset", "Last Updated")


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
    failures: dict[str, RmqhaError] = {}
    for name, address in route.brokers():
        try:
            offsets, rate = yield from topic_stats(address, topic)
        except (Refused, Unreachable) as error:
            failures[name] = error
            continue
        found |= offsets
        tps += rate
    if route.is_mapped:
        # As clients see it, beside what the brokers have.
        known, silent = yield from known_by_route(topic, route)
        failures = {**silent, **failures}
        found |= logical_offsets(known, found)
    if not found and failures:
        raise next(iter(failures.values()))
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
    tables = (Table(f"{topic}: {decimal(tps)} puts/s", _COLUMNS, rows),)
    return Report(plain, data, tables, tuple(failures.values()))


def _options() -> list[click.Option]:
    return [name_servers_option(), topic_option(), parent_option()]


SPEC = CommandSpec("topicStatus", "Show the ends of a topic's queues.", _options, run)
