"""queryMsgByKey: the messages of a topic that have a key."""

from __future__ import annotations

import click

from rmqha.admin.commands.message_calls import by_key
from rmqha.admin.report import Report, Table
from rmqha.admin.spec import (
    CommandSpec,
    name_servers_option,
    need_name_servers,
    number_option,
    parent_option,
    text_option,
    topic_option,
)
from rmqha.client.brokers import topic_route
from rmqha.client.exchange import Exchange, NotFound
from rmqha.remoting.headers import INT32_MAX, INT64_MAX

_HEAD = "%-50s %4s %40s\n"
_ROW = "%-50s %4d %40d\n"
_COUNT = 64


def run(
    name_servers: tuple[str, ...] | None,
    topic: str,
    key: str,
    begin_ms: int,
    end_ms: int,
    count: int,
    cluster_name: str | None,
) -> Exchange[Report]:
    """Ask every broker set of the topic for the messages of a key (12).

    Raises:
        click.UsageError: no name server; an end before the beginning.
        NotFound: no broker has one.
    """
    if begin_ms > end_ms:
        raise click.UsageError("-b is later than -e")
    route = yield from topic_route(need_name_servers(name_servers), topic)
    addresses = [address for _, address in route.brokers(cluster_name)]
    found, failures = yield from by_key(
        addresses, topic, key, count=count, begin_ms=begin_ms, end_ms=end_ms
    )
    if not found and not failures:
        raise NotFound(f"no message of topic {topic} has the key {key}")
    rows = [(one.message_id, one.stored.queue_id, one.stored.queue_offset) for one in found]
    plain = _HEAD % ("#Message ID", "#QID", "#Offset") + "".join(_ROW % row for row in rows)
    table = Table(f"{topic}: {key}", ("Message ID", "QID", "Offset"), rows)
    data = [one.data() for one in found]
    return Report(plain if found else "", data, (table,) if found else (), tuple(failures))


def _options() -> list[click.Option]:
    return [
        name_servers_option(),
        topic_option(),
        text_option("-k", "--msgKey", "key", required=True, help="The key."),
        number_option("-b", "--beginTimestamp", "begin_ms", default=0, help="From, in ms."),
        number_option("-e", "--endTimestamp", "end_ms", default=INT64_MAX, help="To, in ms."),
        number_option("-m", "--maxNum", "count", low=1, high=INT32_MAX, default=_COUNT,
                      help="At most so many of each broker (default 64)."),
        parent_option(),
    ]  # fmt: skip


SPEC = CommandSpec("queryMsgByKey", "List the messages that have a key.", _options, run)
