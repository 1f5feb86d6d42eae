"""consumerProgress: how far one group is in every queue, or how far behind all groups are."""

from __future__ import annotations

from contextlib import suppress

import click

from rmqha.admin.bodies import ConsumerConnection
from rmqha.admin.commands.consume_stats import consume_stats, consumer_connection
from rmqha.admin.commands.topic_list import all_topics
from rmqha.admin.java_text import clipped, hash_order, second_of
from rmqha.admin.java_versions import version_name
from rmqha.admin.report import Report, Table
from rmqha.admin.spec import (
    CommandSpec,
    name_servers_option,
    need_name_servers,
    parent_option,
    switch_option,
    text_option,
)
from rmqha.admin.static_topic_view import as_members_see
from rmqha.base.errors import RmqhaError
from rmqha.client.exchange import Exchange, NotFound, Refused, Unreachable, ask
from rmqha.client.offsets import ConsumeStats
from rmqha.client.routes import QueueKey, queue_key
from rmqha.remoting import fastjson
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import ext_fields
from rmqha.remoting.topic_names import RETRY_PREFIX
from rmqha.remoting.values import as_object

_HEAD = "%-64s  %-32s  %-4s  %-20s  %-20s  %-20s %-20s%s\n"
_ROW = "%-64s  %-32s  %-4d  %-20d  %-20d  %-20d %-20d %s\n"
_COLUMNS = (
    "Topic", "Broker Name", "QID", "Broker Offset", "Consumer Offset", "Diff", "Inflight",
    "LastTime",
)  # fmt: skip
_IP_HEAD = "%-64s  %-32s  %-4s  %-20s  %-20s  %-20s %-20s %-20s%s\n"
_IP_ROW = "%-64s  %-32s  %-4d  %-20d  %-20d  %-20s %-20d %-20d %s\n"
_IP_COLUMNS = (*_COLUMNS[:5], "Client IP", *_COLUMNS[5:])
_ALL_HEAD = "%-64s  %-6s  %-24s %-5s  %-14s  %-7s  %s\n"
_ALL_ROW = "%-64s  %-6d  %-24s %-5s  %-14s  %-7d  %d\n"
_ALL_COLUMNS = ("Group", "Count", "Version", "Type", "Model", "TPS", "Diff Total")
_ACTIVELY, _PASSIVELY = "CONSUME_ACTIVELY", "CONSUME_PASSIVELY"


def run(
    name_servers: tuple[str, ...] | None,
    group: str | None,
    topic: str | None,
    show_client_ip: bool,
    cluster_name: str | None,
) -> Exchange[Report]:
    """Ask for one group's offsets (208), or for all groups that have a retry topic.

    Raises:
        click.UsageError: no name server; a topic without a group.
        NotFound: the group has no offset anywhere.
    """
    servers = need_name_servers(name_servers)
    if group is None:
        if topic or show_client_ip:
            raise click.UsageError("-t and -s need a group with -g")
        return (yield from _all_groups(servers))
    stats = yield from consume_stats(servers, group, topic, cluster_name)
    stats = yield from as_members_see(servers, stats)
    owners = (yield from _owners(servers, group)) if show_client_ip else {}
    return _one_group(group, stats, owners, show_client_ip)


def _one_group(
    group: str, stats: ConsumeStats, owners: dict[QueueKey, str], with_ip: bool
) -> Report:
    rows, data = [], []
    for key, offset in sorted(stats.offset_table.items()):
        last = "N/A" if offset.last_timestamp == 0 else second_of(offset.last_timestamp)
        owner = owners.get(key)
        who = (clipped(key.topic, 64), clipped(key.broker_name, 32), key.queue_id)
        ends = (offset.broker_offset, offset.consumer_offset)
        ip: tuple[str, ...] = (owner or "N/A",) if with_ip else ()
        rows.append((*who, *ends, *ip, offset.diff, offset.inflight, last))
        data.append({
            **key.members(), "brokerOffset": offset.broker_offset,
            "consumerOffset": offset.consumer_offset, "diff": offset.diff,
            "inflight": offset.inflight, "lastTimestamp": offset.last_timestamp,
            **({"clientIP": owner} if with_ip else {}),
        })  # fmt: skip
    diff = sum(offset.diff for offset in stats.offset_table.values())
    inflight = sum(offset.inflight for offset in stats.offset_table.values())
    columns, head, row = (_IP_COLUMNS, _IP_HEAD, _IP_ROW) if with_ip else (_COLUMNS, _HEAD, _ROW)
    plain = (
        head % tuple(f"#{column}" for column in columns)
        + "".join(row % one for one in rows)
        + f"\nConsume TPS: {stats.consume_tps:.2f}\nConsume Diff Total: {diff}\n"
        + f"Consume Inflight Total: {inflight}\n"
    )
    totals = {"consumeTps": stats.consume_tps, "diffTotal": diff, "inflightTotal": inflight}
    title = f"{group}: {stats.consume_tps:.2f} messages/s, {diff} behind, {inflight} in flight"
    return Report(plain, {"group": group, **totals, "queues": data}, (Table(title, columns, rows),))


def _owners(name_servers: tuple[str, ...], group: str) -> Exchange[dict[QueueKey, str]]:
    """Which member holds which queue (203, then 307 to each member); as far as they say."""
    owners: dict[QueueKey, str] = {}
    # An offline group has offsets all the same.
    with suppress(Refused, Unreachable, NotFound):
        address, connection = yield from consumer_connection(name_servers, group)
        for client in connection.clients:
            fields = ext_fields(consumerGroup=group, clientId=client.id, jstackEnable=False)
            request = RemotingCommand(RequestCode.GET_CONSUMER_RUNNING_INFO, ext_fields=fields)
            answer = yield from ask(address, request)
            table = as_object(as_object(fastjson.loads(answer.body)).get("mqTable"))
            for key in table:
                owners[queue_key(fastjson.loads(key.encode()))] = client.id.partition("@")[0]
    return owners


def _all_groups(name_servers: tuple[str, ...]) -> Exchange[Report]:
    topics = yield from all_topics(name_servers)
    rows, data = [], []
    failures: list[RmqhaError] = []
    for name in hash_order(topics):
        if not name.startswith(RETRY_PREFIX):
            continue
        group = name.removeprefix(RETRY_PREFIX)
        stats = ConsumeStats({}, 0.0)
        connection = None
        try:
            stats = yield from consume_stats(name_servers, group)
            stats = yield from as_members_see(name_servers, stats)
        except NotFound:
            pass
        except (Refused, Unreachable) as error:
            failures.append(error)
        # Offline is what the row says then.
        with suppress(Refused, Unreachable, NotFound):
            _, connection = yield from consumer_connection(name_servers, group)
        row = _group_row(group, stats, connection)
        rows.append(row)
        data.append(dict(zip(
            ("group", "count", "version", "type", "model", "consumeTps", "diffTotal"), row,
            strict=True,
        )))  # fmt: skip
    plain = _ALL_HEAD % tuple(f"#{column}" for column in _ALL_COLUMNS)
    plain += "".join(_ALL_ROW % row for row in rows)
    data.sort(key=lambda one: str(one["group"]))
    return Report(plain, data, (Table("Groups", _ALL_COLUMNS, sorted(rows)),), tuple(failures))


def _group_row(
    group: str, stats: ConsumeStats, connection: ConsumerConnection | None
) -> tuple[str, int, str, str, str, int, int]:
    diff = sum(offset.diff for offset in stats.offset_table.values())
    count = len(connection.clients) if connection else 0
    version, kind, model = "OFFLINE", "", ""
    if connection and count:
        version = version_name(min(client.version for client in connection.clients))
        kind = "PULL" if connection.consume_type == _ACTIVELY else "PUSH"
        model = connection.message_model if connection.consume_type == _PASSIVELY else ""
    return clipped(group, 64), count, version, kind, model, int(stats.consume_tps), diff


def _options() -> list[click.Option]:
    return [
        name_servers_option(),
        text_option("-g", "--groupName", "group", help="Consumer group (default: all)."),
        text_option("-t", "--topicName", "topic", help="One topic of the group."),
        switch_option("-s", "--showClientIP", "show_client_ip", default=False,
                      help="Which member holds each queue."),
        parent_option(),
    ]  # fmt: skip


SPEC = CommandSpec("consumerProgress", "Show how far consumer groups are.", _options, run)
