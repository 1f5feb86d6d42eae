"""queryMsgByOffset: one message by its queue and offset."""

from __future__ import annotations

import click

from rmqha.admin.commands import message_tracks
from rmqha.admin.commands.message_calls import TOOLS_GROUP, pull
from rmqha.admin.report import Report
from rmqha.admin.spec import (
    CommandSpec,
    name_servers_option,
    need_name_servers,
    number_option,
    text_option,
    topic_option,
)
from rmqha.client.brokers import need_broker, topic_route
from rmqha.client.exchange import Exchange, NotFound
from rmqha.client.routes import QueueKey
from rmqha.remoting.headers import INT32_MAX


def run(
    name_servers: tuple[str, ...] | None,
    topic: str,
    broker_name: str,
    queue_id: int,
    offset: int,
    charset: str | None,
) -> Exchange[Report]:
    """Pull it (11).

    Raises:
        click.UsageError: no name server.
        NotFound: the broker set does not have the topic, or the queue no such offset.
    """
    servers = need_name_servers(name_servers)
    route = yield from topic_route(servers, topic)
    address = need_broker(route, topic, broker_name)
    pulled = yield from pull(
        address, broker_name, TOOLS_GROUP, QueueKey(topic, broker_name, queue_id), offset, 1
    )
    if not pulled.messages:
        raise NotFound(
            f"{broker_name}: queue {queue_id} of topic {topic} has no message at offset {offset} "
            f"({pulled.status}, next is {pulled.next_offset})"
        )
    return (yield from message_tracks.described(servers, pulled.messages[0], charset))


def _options() -> list[click.Option]:
    return [
        name_servers_option(),
        topic_option(),
        text_option("-b", "--brokerName", "broker_name", required=True, help="Broker set's name."),
        number_option("-i", "--queueId", "queue_id", high=INT32_MAX, required=True, help="Queue."),
        number_option("-o", "--offset", "offset", required=True, help="Offset in the queue."),
        message_tracks.charset_option(),
    ]


SPEC = CommandSpec("queryMsgByOffset", "Show a message by its queue and offset.", _options, run)
