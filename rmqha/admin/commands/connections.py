"""consumerConnection and producerConnection: who of a group is connected, and with which release."""

from __future__ import annotations

from collections.abc import Sequence

import click

from rmqha.admin.bodies import Client, ConsumerConnection, decode_producers
from rmqha.admin.commands.consume_stats import connection_at, consumer_connection
from rmqha.admin.java_text import hash_order
from rmqha.admin.java_versions import version_name
from rmqha.admin.report import Report, Table
from rmqha.admin.spec import (
    CommandSpec,
    broker_address_option,
    name_servers_option,
    need_name_servers,
    text_option,
    topic_option,
)
from rmqha.client.brokers import topic_route
from rmqha.client.exchange import Exchange, NotFound, Refused, Unreachable, ask
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import ext_fields

_COLUMNS = ("Client", "Address", "Language", "Version")
_CLIENT = "%-36s %-22s %-10s %s\n"
_SUBSCRIPTION = "%-20s %s\n"
_PRODUCER = "%04d  %-32s %-22s %-8s %s\n"


def run_consumers(
    name_servers: tuple[str, ...] | None, group: str, broker_address: str | None
) -> Exchange[Report]:
    """Ask one broker of the group, or the one that is named, for its members (203).

    Raises:
        click.UsageError: neither a name server nor a broker.
        Refused: the group is not online, or has no retry topic.
        NotFound: the group is not online, by an older broker's word.
    """
    if broker_address:
        found = yield from connection_at(broker_address, group)
    else:
        _, found = yield from consumer_connection(need_name_servers(name_servers), group)
    rows = [_row(client) for client in found.clients]
    topics = [(topic, found.expressions[topic]) for topic in hash_order(found.expressions)]
    facts = [
        ("ConsumeType", found.consume_type), ("MessageModel", found.message_model),
        ("ConsumeFromWhere", found.consume_from_where),
    ]  # fmt: skip
    tables = (
        Table(f"Consumers of {group}", _COLUMNS, rows),
        Table("Subscriptions", ("Topic", "Expression"), topics),
        Table(group, ("What", "Value"), facts),
    )
    return Report(_consumers_text(rows, topics, facts), _consumers_data(group, found), tables)


def _consumers_text(
    rows: Sequence[tuple[str, str, str, str]], topics: Sequence[tuple[str, str]],
    facts: Sequence[tuple[str, str]],
) -> str:  # fmt: skip
    return (
        _CLIENT % ("#ClientId", "#ClientAddr", "#Language", "#Version")
        + "".join(_CLIENT % row for row in rows)
        + "\nBelow is subscription:\n"
        + _SUBSCRIPTION % ("#Topic", "#SubExpression")
        + "".join(_SUBSCRIPTION % pair for pair in topics)
        + "\n"
        + "".join(f"{name}: {value}\n" for name, value in facts)
    )


def _consumers_data(group: str, found: ConsumerConnection) -> dict[str, object]:
    return {
        "group": group, "clients": [_data(client) for client in found.clients],
        "subscriptions": dict(sorted(found.expressions.items())),
        "consumeType": found.consume_type, "messageModel": found.message_model,
        "consumeFromWhere": found.consume_from_where,
    }  # fmt: skip


def run_producers(name_servers: tuple[str, ...] | None, group: str, topic: str) -> Exchange[Report]:
    """Ask the brokers of a topic for the members of a producer group (204), until one has some.

    The Java tool asks one of them by chance, to which the producer need not have sent yet.

    Raises:
        click.UsageError: no name server.
        Refused: the topic has no route, or the last broker knows no such group.
        NotFound: nobody is connected.
        Unreachable: no broker answered.
    """
    route = yield from topic_route(need_name_servers(name_servers), topic)
    why: Refused | Unreachable | NotFound = NotFound(f"producer group {group} is not online")
    clients: tuple[Client, ...] = ()
    for _, address in route.brokers():
        fields = ext_fields(producerGroup=group)
        request = RemotingCommand(RequestCode.GET_PRODUCER_CONNECTION_LIST, ext_fields=fields)
        try:
            answer = yield from ask(address, request)
        except (Refused, Unreachable) as error:
            why = error
            continue
        clients = decode_producers(answer.body)
        if clients:
            break
    if not clients:
        raise why
    rows = [_row(client) for client in clients]
    plain = "".join(_PRODUCER % (number, *row) for number, row in enumerate(rows, 1))
    data = {"group": group, "clients": [_data(client) for client in clients]}
    return Report(plain, data, (Table(f"Producers of {group}", _COLUMNS, rows),))


def _row(client: Client) -> tuple[str, str, str, str]:
    return client.id, client.address, client.language, version_name(client.version)


def _data(client: Client) -> dict[str, object]:
    return {
        "clientId": client.id, "clientAddr": client.address, "language": client.language,
        "version": version_name(client.version),
    }  # fmt: skip


def _consumer_options() -> list[click.Option]:
    return [
        name_servers_option(),
        text_option("-g", "--consumerGroup", "group", required=True, help="Consumer group."),
        broker_address_option(),
    ]


def _producer_options() -> list[click.Option]:
    return [
        name_servers_option(),
        text_option("-g", "--producerGroup", "group", required=True, help="Producer group."),
        topic_option(),
    ]


CONSUMERS = CommandSpec(
    "consumerConnection", "Show who of a consumer group is connected.", _consumer_options,
    run_consumers,
)  # fmt: skip
PRODUCERS = CommandSpec(
    "producerConnection", "Show who of a producer group is connected.", _producer_options,
    run_producers,
)  # fmt: skip
