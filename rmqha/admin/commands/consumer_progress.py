"""consumerProgress: how far one group is in every queue, or how far behind all groups are."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import click
from msgspec import Struct

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
_ALL_ROW = "%-64s  %-6s  %-24s %-5s  %-14s  %-7s  %s\n"
_ALL_COLUMNS = ("Group", "Count", "Version", "Type", "Model", "TPS", "Diff Total")
_AT_LEAST = "+"
"""Behind a sum in which the part of a broker misses that did not answer."""
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
        return (yield from _asking_the_dead_once(_all_groups(servers)))
    stats, failures = yield from consume_stats(servers, group, topic, cluster_name)
    stats, silent = yield from as_members_see(servers, stats)
    owners = (yield from _owners(servers, group)) if show_client_ip else {}
    return _one_group(group, stats, owners, show_client_ip, _joined(failures, silent))


def _joined(failures: Sequence[RmqhaError], more: Sequence[RmqhaError]) -> list[RmqhaError]:
    """Both; a broker that is asked twice is down once."""
    known = {str(one) for one in failures}
    return [*failures, *(one for one in more if str(one) not in known)]


def _one_group(
    group: str,
    stats: ConsumeStats,
    owners: dict[QueueKey, str],
    with_ip: bool,
    failures: Sequence[RmqhaError],
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
    more = _AT_LEAST if failures else ""
    diff = sum(offset.diff for offset in stats.offset_table.values())
    inflight = sum(offset.inflight for offset in stats.offset_table.values())
    columns, head, row = (_IP_COLUMNS, _IP_HEAD, _IP_ROW) if with_ip else (_COLUMNS, _HEAD, _ROW)
    plain = (
        head % tuple(f"#{column}" for column in columns)
        + "".join(row % one for one in rows)
        + f"\nConsume TPS: {stats.consume_tps:.2f}{more}\nConsume Diff Total: {diff}{more}\n"
        + f"Consume Inflight Total: {inflight}{more}\n"
    )
    totals = {"consumeTps": stats.consume_tps, "diffTotal": diff, "inflightTotal": inflight}
    title = (
        f"{group}: {stats.consume_tps:.2f}{more} messages/s, {diff}{more} behind, "
        f"{inflight}{more} in flight"
    )
    whole = {"group": group, **totals, "complete": not failures, "queues": data}
    return Report(plain, whole, (Table(title, columns, rows),), tuple(failures))


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


def _asking_the_dead_once(exchange: Exchange[Report]) -> Exchange[Report]:
    """Carry it out, and ask nobody again who did not answer: each question waits for its timeout."""
    dead: dict[str, Unreachable] = {}
    try:
        call = next(exchange)
        while True:
            try:
                known = dead.get(call.address)
                if known is not None:
                    raise known
                answer = yield call
            except Unreachable as error:
                dead[call.address] = error
                call = exchange.throw(error)
            else:
                call = exchange.send(answer)
    except StopIteration as end:
        report: Report = end.value
        return report


def _all_groups(name_servers: tuple[str, ...]) -> Exchange[Report]:
    topics = yield from all_topics(name_servers)
    rows, data = [], []
    failures: list[RmqhaError] = []
    for name in hash_order(topics):
        if not name.startswith(RETRY_PREFIX):
            continue
        found = yield from _group(name_servers, name.removeprefix(RETRY_PREFIX))
        failures = _joined(failures, found.failures)
        rows.append(found.row())
        data.append(found.data())
    plain = _ALL_HEAD % tuple(f"#{column}" for column in _ALL_COLUMNS)
    plain += "".join(_ALL_ROW % tuple("-" if one is None else one for one in row) for row in rows)
    data.sort(key=lambda one: str(one["group"]))
    shown = sorted(rows, key=lambda row: str(row[0]))
    return Report(plain, data, (Table("Groups", _ALL_COLUMNS, shown),), tuple(failures))


class _Group(Struct):
    """What was found out about one of all groups.

    Attributes:
        stats: None where nobody answered.
        connection: None where nobody is online, or ``is_hidden``: nobody knows.
        failures: of brokers whose part misses in ``stats``, or who did not name members.
    """

    name: str
    stats: ConsumeStats | None
    connection: ConsumerConnection | None
    is_hidden: bool
    is_whole: bool
    failures: list[RmqhaError]

    def row(self) -> tuple[object, ...]:
        """What is shown; a sum in which somebody's part misses says that it is one at least."""
        found, more = self._facts(), "" if self.is_whole else _AT_LEAST
        sums = [None if one is None else f"{one}{more}" for one in found[5:]]
        return (clipped(self.name, 64), *found[1:5], *sums)

    def data(self) -> dict[str, object]:
        """The same for ``--json``."""
        names = ("group", "count", "version", "type", "model", "consumeTps", "diffTotal")
        found = dict(zip(names, self._facts(), strict=True))
        return {**found, "complete": self.is_whole}

    def _facts(self) -> tuple[object, ...]:
        stats, connection = self.stats, self.connection
        tps = None if stats is None else int(stats.consume_tps)
        diff = None
        if stats is not None:
            diff = sum(offset.diff for offset in stats.offset_table.values())
        if self.is_hidden:
            return self.name, None, None, None, None, tps, diff
        count = len(connection.clients) if connection else 0
        version, kind, model = "OFFLINE", "", ""
        if connection and count:
            version = version_name(min(client.version for client in connection.clients))
            kind = "PULL" if connection.consume_type == _ACTIVELY else "PUSH"
            model = connection.message_model if connection.consume_type == _PASSIVELY else ""
        return self.name, count, version, kind, model, tps, diff


def _group(name_servers: tuple[str, ...], name: str) -> Exchange[_Group]:
    """Ask for one group's offsets and members; whoever fails costs its own part alone."""
    found = _Group(name, None, None, is_hidden=False, is_whole=True, failures=[])
    try:
        stats, found.failures = yield from consume_stats(name_servers, name)
        found.stats, silent = yield from as_members_see(name_servers, stats)
        found.failures = _joined(found.failures, silent)
    except NotFound:
        found.stats = ConsumeStats({}, 0.0)
    except (Refused, Unreachable) as error:
        found.failures.append(error)
    found.is_whole = not found.failures
    try:
        _, found.connection = yield from consumer_connection(name_servers, name)
    except (Refused, NotFound):
        pass  # offline is what the row says then
    except Unreachable as error:
        found.is_hidden = True
        found.failures = _joined(found.failures, [error])
    return found


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
