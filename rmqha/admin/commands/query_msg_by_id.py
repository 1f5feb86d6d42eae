"""queryMsgById: one message by its id, to be shown, sent again, or pushed to a consumer."""

from __future__ import annotations

import click

from rmqha.admin.commands import message_tracks
from rmqha.admin.commands.message_calls import by_key, by_place
from rmqha.admin.commands.send_message import Outgoing, send
from rmqha.admin.java_text import null, yes_no
from rmqha.admin.messages import StoredMessage, parse_offset_id
from rmqha.admin.report import Report, Table
from rmqha.admin.spec import (
    CommandSpec,
    Here,
    name_servers_option,
    need_name_servers,
    parent_option,
    switch_option,
    text_option,
    topic_option,
)
from rmqha.client.brokers import cluster_info, topic_route
from rmqha.client.exchange import Exchange, NotFound, Refused, ask
from rmqha.remoting import fastjson
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import ext_fields
from rmqha.remoting.values import as_number, as_object, as_text

_CANDIDATES = 32
_CONSUME_TIMEOUT_MS = 30_000
_RESEND_GROUP = "ReSendMsgById"


def find(
    name_servers: tuple[str, ...], topic: str, message_id: str, cluster_name: str | None = None
) -> Exchange[StoredMessage]:
    """Find a message by the producer's id, else by the place that an offset id names.

    Both look alike. The Java tool takes every one for a place first, and dials the address in it.

    Raises:
        NotFound: no broker has it.
        Refused: the broker of the place has no message there.
    """
    place = parse_offset_id(message_id)
    try:
        route = yield from topic_route(name_servers, topic)
        addresses = [address for _, address in route.brokers(cluster_name)]
        found, failures = yield from by_key(
            addresses, topic, message_id, count=_CANDIDATES, unique=True
        )
    except Refused as error:
        if place is None or error.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        found, failures = [], []
    if found:
        return found[0]
    if place is not None:
        cluster = yield from cluster_info(name_servers)
        groups = cluster.broker_addr_table.values()
        # A producer's id names some address, too: nobody is dialled who is no broker.
        if any(place[0] in group.broker_addrs.values() for group in groups):
            return (yield from by_place(place[0], topic, place[1]))
    if failures:
        raise failures[0]
    raise NotFound(f"no message of topic {topic} has the id {message_id}")


def run(
    name_servers: tuple[str, ...] | None,
    topic: str,
    ids: str,
    group: str | None,
    client_id: str | None,
    resend: bool,
    charset: str | None,
    cluster_name: str | None,
    here: Here,
) -> Exchange[Report]:
    """Show each message (12, 33); or send it again (310); or have a consumer consume it (309).

    Raises:
        click.UsageError: no name server; a group without a client, or the other way round.
        NotFound: no broker has it.
    """
    servers = need_name_servers(name_servers)
    if (group is None) != (client_id is None):
        raise click.UsageError("-g and -d belong together")
    reports = []
    for message_id in filter(None, (part.strip() for part in ids.split(","))):
        message = yield from find(servers, topic, message_id, cluster_name)
        if group and client_id:
            report = yield from push(message, group, client_id)
        elif resend:
            report = yield from _resend(servers, message, here)
        else:
            report = yield from message_tracks.described(servers, message, charset)
        reports.append(report)
    return message_tracks.merged(reports)


def push(message: StoredMessage, group: str, client_id: str) -> Exchange[Report]:
    """Have one consumer consume the message now; its broker passes it on."""
    fields = ext_fields(
        consumerGroup=group, clientId=client_id, msgId=message.offset_message_id,
        topic=message.stored.topic,
    )  # fmt: skip
    request = RemotingCommand(RequestCode.CONSUME_MESSAGE_DIRECTLY, ext_fields=fields)
    answer = yield from ask(message.store_address, request, _CONSUME_TIMEOUT_MS)
    result = as_object(fastjson.loads(answer.body))
    outcome = as_text(result.get("consumeResult")) or None
    remark = as_text(result.get("remark")) or None
    spent_ms = as_number(result.get("spentTimeMills"))
    plain = (
        f"ConsumeMessageDirectlyResult [order={yes_no(result.get('order') is True)}, "
        f"autoCommit={yes_no(result.get('autoCommit') is not False)}, "
        f"consumeResult={null(outcome)}, remark={null(remark)}, spentTimeMills={spent_ms}]\n"
    )
    row = (message.message_id, client_id, outcome, remark, spent_ms)
    table = Table("Consumed", ("Message", "Client", "Result", "Remark", "ms"), [row])
    return Report(plain, {"msgId": message.message_id, "clientId": client_id, **result}, (table,))


def _resend(name_servers: tuple[str, ...], message: StoredMessage, here: Here) -> Exchange[Report]:
    outgoing = Outgoing(
        message.stored.topic, message.body, dict(message.properties), group=_RESEND_GROUP,
        flag=message.stored.flag,
    )  # fmt: skip
    report = yield from send(name_servers, outgoing, None, None, here)
    plain = f"prepare resend msg. originalMsgId={message.message_id}\n{report.plain}"
    return Report(plain, {"originalMsgId": message.message_id, **report.data}, report.tables)


def _options() -> list[click.Option]:
    return [
        name_servers_option(),
        topic_option(),
        text_option("-i", "--msgId", "ids", required=True, help="Message id, or several with ','."),
        text_option("-g", "--consumerGroup", "group", help="With -d: have a consumer consume it."),
        text_option("-d", "--clientId", "client_id", help="The consumer, of the group -g."),
        switch_option("-s", "--sendMessage", "resend", default=False, help="Send it again."),
        click.Option(["-u", "--unitName", "_unit_name"], hidden=True, expose_value=False),
        message_tracks.charset_option(),
        parent_option(),
    ]


SPEC = CommandSpec("queryMsgById", "Show a message by its id.", _options, run, needs_here=True)
