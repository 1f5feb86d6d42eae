"""queryMsgByUniqueKey: the messages that have a producer's id, to be shown, or pushed to a consumer."""

from __future__ import annotations

import click
from msgspec.structs import replace

from rmqha.admin.commands import message_tracks
from rmqha.admin.commands.message_calls import by_key
from rmqha.admin.commands.query_msg_by_id import push
from rmqha.admin.messages import StoredMessage
from rmqha.admin.report import Report
from rmqha.admin.spec import (
    CommandSpec,
    name_servers_option,
    need_name_servers,
    parent_option,
    text_option,
    topic_option,
)
from rmqha.base.errors import RmqhaError
from rmqha.client.brokers import topic_route
from rmqha.client.exchange import Exchange, NotFound

_COUNT = 32


def run(
    name_servers: tuple[str, ...] | None,
    message_id: str,
    topic: str,
    group: str | None,
    client_id: str | None,
    show_all: bool,
    cluster_name: str | None,
) -> Exchange[Report]:
    """Show the oldest message of an id, or all (12); or have a consumer consume it (309).

    A producer that sends again after a timeout stores two messages of one id. Each track has a line
    of its own, where the Java tool writes all of them into one.

    Raises:
        click.UsageError: no name server; a group without a client, or the other way round.
        NotFound: no broker has one.
    """
    servers = need_name_servers(name_servers)
    if (group is None) != (client_id is None):
        raise click.UsageError("-g and -d belong together")
    found, failures = yield from _find(servers, topic, message_id, cluster_name)
    if group and client_id:
        report = yield from push(found[0], group, client_id)
        return replace(report, failures=tuple(failures))
    reports = []
    for number, message in enumerate(found if show_all else found[:1]):
        report = yield from message_tracks.described(
            servers, message, None, number=number, has_place=False
        )
        reports.append(report)
    whole = message_tracks.merged(reports)
    return replace(whole, failures=(*failures, *whole.failures))


def _find(
    servers: tuple[str, ...], topic: str, message_id: str, cluster_name: str | None
) -> Exchange[tuple[list[StoredMessage], list[RmqhaError]]]:
    """The messages, the oldest first, and the failures of brokers that may have an older one."""
    route = yield from topic_route(servers, topic)
    addresses = [address for _, address in route.brokers(cluster_name)]
    found, failures = yield from by_key(addresses, topic, message_id, count=_COUNT, unique=True)
    if not found:
        raise (
            failures[0] if failures else NotFound(f"no message of {topic} has the id {message_id}")
        )
    return sorted(found, key=lambda message: message.stored.store_timestamp), failures


def _options() -> list[click.Option]:
    return [
        name_servers_option(),
        text_option("-i", "--msgId", "message_id", required=True, help="The producer's id."),
        text_option("-g", "--consumerGroup", "group", help="With -d: have a consumer consume it."),
        text_option("-d", "--clientId", "client_id", help="The consumer, of the group -g."),
        topic_option(),
        click.Option(
            ["-a", "--showAll", "show_all"], is_flag=True, help="All of them, 32 at most."
        ),
        parent_option(),
    ]


SPEC = CommandSpec("queryMsgByUniqueKey", "Show messages by a producer's id.", _options, run)
