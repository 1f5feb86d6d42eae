"""resetOffsetByTime: set a group to what was stored at a time, or one queue to an offset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import click

from rmqha.admin.commands.consume_stats import stats_at
from rmqha.admin.commands.message_calls import offset_at
from rmqha.admin.java_text import clipped, parse_time, yes_no
from rmqha.admin.report import Report, Table
from rmqha.admin.spec import (
    CommandSpec,
    Here,
    broker_address_option,
    name_servers_option,
    need_name_servers,
    number_option,
    parent_option,
    switch_option,
    text_option,
    topic_option,
)
from rmqha.admin.topic_calls import topic_stats
from rmqha.client.brokers import topic_route
from rmqha.client.exchange import Exchange, Refused, ask
from rmqha.client.offsets import decode_reset
from rmqha.client.routes import QueueKey, TopicRoute
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import INT32_MAX, ext_fields

_OFFLINE = 206
_NONE = -1  # the field's value for "not given"
_FORMAT = "%-40s  %-40s  %-40s\n"
_COLUMNS = ("brokerName", "queueId", "offset")
_OLD_FORMAT = "%-20s  %-20s  %-20s  %-20s  %-20s  %-20s\n"
_OLD_COLUMNS = (
    "brokerName", "queueId", "brokerOffset", "consumerOffset", "timestampOffset", "resetOffset",
)  # fmt: skip


class _Wish(NamedTuple):
    """What is to be reset, and the words for it."""

    group: str
    topic: str
    force: bool
    typed: str
    stamp_ms: int

    @property
    def words(self) -> str:
        return f"timestamp(string)[{self.typed}], timestamp(long)[{self.stamp_ms}]"


def run(
    name_servers: tuple[str, ...] | None,
    group: str,
    topic: str,
    timestamp: str,
    force: bool,
    broker_address: str | None,
    queue_id: int | None,
    offset: int | None,
    cluster_name: str | None,
    here: Here,
) -> Exchange[Report]:
    """Ask every broker set of the topic (222); where it wants a member online, set offsets (15).

    Raises:
        click.UsageError: no name server where one is needed; a time that is none; a broker without
            a queue or the other way round, an offset without both.
    """
    stamp_ms = here.now_ms if timestamp == "now" else parse_time(timestamp)
    if stamp_ms is None:
        raise click.UsageError(
            f"-s {timestamp!r} is neither now, milliseconds, nor yyyy-MM-dd#HH:mm:ss:SSS"
        )
    if (broker_address is None) != (queue_id is None) or (offset is not None and queue_id is None):
        # The Java tool then resets every queue of every broker.
        raise click.UsageError("-b and -q belong together, and -o needs both")
    wish = _Wish(group, topic, force, timestamp, stamp_ms)
    if broker_address is not None and queue_id is not None:
        return (yield from _one_queue(wish, broker_address, queue_id, offset))
    route = yield from topic_route(need_name_servers(name_servers), cluster_name or topic)
    try:
        return (yield from _online(wish, route))
    except Refused as error:
        if error.code != _OFFLINE:
            raise
    return (yield from _offline(wish, route))


def _online(wish: _Wish, route: TopicRoute) -> Exchange[Report]:
    """Have every broker set of the topic set the group, and tell its members."""
    found: dict[QueueKey, int] = {}
    for _, address in route.brokers():
        fields = ext_fields(
            topic=wish.topic, group=wish.group, timestamp=wish.stamp_ms, isForce=wish.force,
            queueId=_NONE, offset=_NONE,
        )  # fmt: skip
        request = RemotingCommand(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext_fields=fields)
        answer = yield from ask(address, request)
        found |= decode_reset(answer.body)
    rows = [
        (clipped(key.broker_name, 32), key.queue_id, value) for key, value in sorted(found.items())
    ]
    plain = (
        f"start reset consumer offset by specified, group[{wish.group}], topic[{wish.topic}], "
        f"force[{yes_no(wish.force)}], {wish.words}\n"
        + _FORMAT % tuple(f"#{column}" for column in _COLUMNS)
        + "".join(_FORMAT % row for row in rows)
    )
    return _report(wish, plain, _COLUMNS, rows)


def _report(
    wish: _Wish, plain: str, columns: tuple[str, ...], rows: Sequence[tuple[object, ...]]
) -> Report:
    data = {
        "group": wish.group, "topic": wish.topic, "timestamp": wish.stamp_ms, "force": wish.force,
        "queues": [dict(zip(columns, row, strict=True)) for row in rows],
    }  # fmt: skip
    return Report(plain, data, (Table(f"{wish.group}: {wish.topic}", columns, rows),))


def _one_queue(wish: _Wish, address: str, queue_id: int, offset: int | None) -> Exchange[Report]:
    """Set one queue, also for members that are online (15 and 222)."""
    if offset is None:
        search = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
        offset = yield from offset_at(address, search, wish.topic, queue_id, wish.stamp_ms)
    yield from _commit(address, wish.group, wish.topic, queue_id, offset)
    fields = ext_fields(
        topic=wish.topic, group=wish.group, timestamp=0, isForce=True, queueId=queue_id,
        offset=offset,
    )  # fmt: skip
    request = RemotingCommand(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext_fields=fields)
    yield from ask(address, request)
    plain = (
        f"start reset consumer offset by specified, group[{wish.group}], topic[{wish.topic}], "
        f"queueId[{queue_id}], broker[{address}], {wish.words}\n"
        f"reset consumer offset to {offset}\n"
    )
    return _report(wish, plain, ("brokerAddr", "queueId", "offset"), [(address, queue_id, offset)])


def _commit(
    address: str, group: str, topic: str, queue_id: int, offset: int, name: str | None = None
) -> Exchange[None]:
    fields = ext_fields(
        consumerGroup=group, topic=topic, queueId=queue_id, commitOffset=offset, bname=name
    )
    yield from ask(address, RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext_fields=fields))


def _offline(wish: _Wish, route: TopicRoute) -> Exchange[Report]:
    """Set the offsets one by one: brokers before 5.2 reset through a member, and none is online.

    Without ``force`` a queue is only ever set back.
    """
    rows: list[tuple[object, ...]] = []
    for name, address in route.brokers():
        stats = yield from stats_at(address, wish.group, None)
        ends = {
            key: (offset.broker_offset, offset.consumer_offset)
            for key, offset in stats.offset_table.items()
            if key.topic == wish.topic
        }
        if not ends:
            offsets, _ = yield from topic_stats(address, wish.topic)
            ends = {key: (one.max_offset, one.min_offset) for key, one in offsets.items()}
        for key, (end, consumed) in sorted(ends.items()):
            search = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
            at = yield from offset_at(address, search, wish.topic, key.queue_id, wish.stamp_ms)
            moved = wish.force or at <= consumed
            if moved:
                yield from _commit(address, wish.group, wish.topic, key.queue_id, at, name)
            rows.append(
                (clipped(key.broker_name, 32), key.queue_id, end, consumed, at,
                 at if moved else consumed)
            )  # fmt: skip
    plain = (
        f"reset consumer offset by specified consumerGroup[{wish.group}], topic[{wish.topic}], "
        f"force[{yes_no(wish.force)}], {wish.words}\n"
        + _OLD_FORMAT % tuple(f"#{column}" for column in _OLD_COLUMNS)
        + "".join(_OLD_FORMAT % row for row in rows)
    )
    return _report(wish, plain, _OLD_COLUMNS, rows)


def _options() -> list[click.Option]:
    return [
        name_servers_option(),
        text_option("-g", "--group", "group", required=True, help="Consumer group."),
        topic_option(),
        text_option("-s", "--timestamp", "timestamp", required=True,
                    help="now, milliseconds, or yyyy-MM-dd#HH:mm:ss:SSS."),
        switch_option("-f", "--force", "force", default=True,
                      help="Also forwards (default true)."),
        broker_address_option("--broker"),
        number_option("-q", "--queue", "queue_id", high=INT32_MAX, help="One queue of -b."),
        number_option("-o", "--offset", "offset", help="Its new offset, instead of the time's."),
        parent_option(),
    ]  # fmt: skip


SPEC = CommandSpec(
    "resetOffsetByTime", "Set a group back or forth in a topic.", _options, run, needs_here=True
)
