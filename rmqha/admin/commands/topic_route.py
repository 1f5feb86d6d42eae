"""topicRoute: where a topic is."""

from __future__ import annotations

import click

from rmqha.admin.java_text import pretty
from rmqha.admin.report import Report, Table
from rmqha.admin.spec import CommandSpec, name_servers_option, need_name_servers, topic_option
from rmqha.client import brokers
from rmqha.client.exchange import Exchange
from rmqha.client.routes import TopicRoute

_ROW = "%-45s %-32s %-50s %-10s %-11s %-5s\n"
_COLUMNS = ("ClusterName", "BrokerName", "BrokerAddrs", "ReadQueue", "WriteQueue", "Perm")
_RULE = "-" * 158 + "\n"


def run(name_servers: tuple[str, ...] | None, topic: str, as_list: bool) -> Exchange[Report]:
    """Ask the name server (105).

    Raises:
        click.UsageError: no name server.
        Refused: 17, nobody has the topic.
    """
    route = yield from brokers.topic_route(need_name_servers(name_servers), topic)
    rows = _rows(route)
    plain = _list(rows, len(route.queues)) if as_list else pretty(route.raw) + "\n"
    return Report(plain, route.raw, (Table(topic, _COLUMNS, rows),))


def _rows(route: TopicRoute) -> list[tuple[object, ...]]:
    """A row a broker set; one that has addresses but no queues is left out."""
    queues = {queue.broker_name: queue for queue in route.queues}
    return [
        (
            group.cluster,
            group.broker_name,
            "{" + ", ".join(f"{key}={value}" for key, value in group.broker_addrs.items()) + "}",
            queue.read_queue_nums,
            queue.write_queue_nums,
            queue.perm,
        )
        for group in sorted(route.groups, key=lambda group: group.broker_name)
        if (queue := queues.get(group.broker_name)) is not None
    ]


def _list(rows: list[tuple[object, ...]], sets: int) -> str:
    reads, writes = (sum(int(str(row[at])) for row in rows) for at in (3, 4))
    return (
        _ROW % tuple(f"#{column}" for column in _COLUMNS)
        + "".join(_ROW % row for row in rows)
        + _RULE
        + _ROW % ("Total:", sets, "", reads, writes, "")
    )


def _options() -> list[click.Option]:
    return [
        name_servers_option(),
        topic_option(),
        click.Option(["-l", "--list", "as_list"], is_flag=True, help="As a list with totals."),
    ]


SPEC = CommandSpec("topicRoute", "Show which brokers have a topic.", _options, run)
