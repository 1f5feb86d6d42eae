"""resetOffsetByTime: set a group to what was stored at a time, or one queue to an offset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import click
from msgspec.structs import replace

from rmqha.admin.commands.consume_stats import connection_at, stats_at
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
from rmqha.base.errors import RmqhaError
from rmqha.client.brokers import topic_route
from rmqha.client.exchange import Exchange, NotFound, Refused, Unreachable, ask
from rmqha.client.offsets import decode_reset
from rmqha.client.routes import QueueKey, TopicRoute
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import INT32_MAX, ext_fields, long_field

_OFFLINE = 206
_NONE = -1  # the field's value for "not given"
_END = -1  # the timestamp that means the end of each queue
_NO_OFFSET = "THe consumer group <"
"""How 222's refusal begins where a queue has no offset of the group, RocketMQ before 5.2."""
_FORMAT = "%-40s  %-40s  %-40s\n"
_COLUMNS = ("brokerName", "queueId", "offset")
_OLD_FORMAT = "%-20s  %-20s  %-20s  %-20s  %-20s  %-20s\n"
_OLD_COLUMNS = (
    "brokerName", "queueId", "brokerOffset", "consumerOffset", "timestampOffset", "resetOffset",
)  # fmt: skip


class WholeGroups(RmqhaError):
    """A broker sets all queues of a group or none."""


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
    return (yield from _all_sets(wish, route))


def _all_sets(wish: _Wish, route: TopicRoute) -> Exchange[Report]:
    """Have every broker set of the topic set the group, and tell its members (222).

    Raises:
        Refused, Unreachable: the first of them, when none has done anything.
    """
    found: dict[QueueKey, int] = {}
    without_member: list[tuple[str, str]] = []
    failures: list[RmqhaError] = []
    done = 0
    for name, address in route.brokers():
        fields = ext_fields(
            topic=wish.topic, group=wish.group, timestamp=wish.stamp_ms, isForce=wish.force,
            queueId=_NONE, offset=_NONE,
        )  # fmt: skip
        request = RemotingCommand(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext_fields=fields)
        try:
            answer = yield from ask(address, request)
        except (Refused, Unreachable) as error:
            if isinstance(error, Refused) and error.code == _OFFLINE:
                without_member.append((name, address))
            else:
                failures.append(error)
            continue
        found |= decode_reset(answer.body)
        done += 1
    if failures and not done and not without_member:
        raise failures[0]
    reports = [_online(wish, found)] if done or not without_member else []
    if without_member:
        try:
            reports.append((yield from _offline(wish, without_member)))
        except (Refused, Unreachable) as error:
            if not done:
                raise
            failures.append(error)
    return Report(
        "".join(one.plain for one in reports),
        {**reports[0].data, "queues": [row for one in reports for row in one.data["queues"]]},
        tuple(table for one in reports for table in one.tables),
        (*failures, *(failure for one in reports for failure in one.failures)),
    )


def _online(wish: _Wish, found: Mapping[QueueKey, int]) -> Report:
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
    """Set one queue (222); its offset alone where the broker wants a member online for that (15).

    The queue is one that the broker has itself, of a static topic as well: as topicStatus lists them.
    Java's tool sends 15 first, which brokers take for whatever queue and offset.

    Raises:
        NotFound: the broker has no such queue, or not the offset.
        Refused: the broker does not set it, which has changed nothing.
        WholeGroups: it sets all queues or none.
    """
    if offset is None:
        search = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
        offset = yield from offset_at(
            address, search, wish.topic, queue_id, wish.stamp_ms, physical=True
        )
    yield from _need_offset(address, wish.topic, queue_id, offset)
    # Brokers do not look at isForce here.
    stored = None if wish.force else (yield from _stored(address, wish, queue_id))
    words = f"reset consumer offset to {offset}\n"
    if stored is not None and stored < offset:
        words, offset = f"consumer offset stays at {stored}: -f true sets it forwards\n", stored
    else:
        yield from _set_one(wish, address, queue_id, offset)
    plain = (
        f"start reset consumer offset by specified, group[{wish.group}], topic[{wish.topic}], "
        f"queueId[{queue_id}], broker[{address}], {wish.words}\n{words}"
    )
    return _report(wish, plain, ("brokerAddr", "queueId", "offset"), [(address, queue_id, offset)])


def _stored(address: str, wish: _Wish, queue_id: int) -> Exchange[int | None]:
    """Where a group is in a queue (14); None where it has never been."""
    fields = ext_fields(
        consumerGroup=wish.group, topic=wish.topic, queueId=queue_id, setZeroIfNotFound=False,
        lo=False,
    )  # fmt: skip
    try:
        answer = yield from ask(
            address, RemotingCommand(RequestCode.QUERY_CONSUMER_OFFSET, ext_fields=fields)
        )
    except Refused as error:
        if error.code != ResponseCode.QUERY_NOT_FOUND:
            raise
        return None
    return long_field(answer.ext_fields, "offset", None)


def _need_offset(address: str, topic: str, queue_id: int, offset: int) -> Exchange[None]:
    """Make sure that a broker has a queue, and the offset in it (202): Java's take one beyond the end,
    and every offset of a queue that there is not, if it is 0 or 1.

    Raises:
        NotFound: it has not.
    """
    ends, _ = yield from topic_stats(address, topic)
    found = next((one for key, one in ends.items() if key.queue_id == queue_id), None)
    if found is None:
        raise NotFound(f"{address} has no queue {queue_id} of {topic}")
    if not found.min_offset <= offset <= found.max_offset:
        raise NotFound(
            f"offset {offset} is not in queue {queue_id}: {found.min_offset} to {found.max_offset}"
        )


def _set_one(wish: _Wish, address: str, queue_id: int, offset: int) -> Exchange[None]:
    """Set a queue that the broker has, by itself (222), else where nobody is online by storing it (15).

    Java's brokers of 5.1 look past queue and offset while ``useServerSideResetOffset`` is off, as it is
    by default, and tell members all queues of the time that is given. So the one is given, the end and
    only backwards, that has them told where they are.
    """
    fields = ext_fields(
        topic=wish.topic, group=wish.group, timestamp=_END, isForce=False, queueId=queue_id,
        offset=offset,
    )  # fmt: skip
    request = RemotingCommand(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext_fields=fields)
    try:
        answer = yield from ask(address, request)
    except Refused as error:
        if not (yield from _may_store(error, address, wish.group)):
            raise
        yield from _commit(address, wish.group, wish.topic, queue_id, offset)
        return
    done = [(key.queue_id, value) for key, value in decode_reset(answer.body).items()]
    if done != [(queue_id, offset)]:
        raise WholeGroups(
            f"{address} resets whole groups only while members are online: queue {queue_id} of "
            f"{wish.topic} was not set; stop the members and try again"
        )


def _may_store(error: Refused, address: str, group: str) -> Exchange[bool]:
    """Whether an offset can be stored instead: nobody is online who would commit another one.

    Brokers before 5.2 refuse a group that has no offset in some queue, before they look for members.
    """
    if error.code == _OFFLINE:
        return True
    if error.code != ResponseCode.SYSTEM_ERROR or _NO_OFFSET not in error.remark:
        return False
    try:
        yield from connection_at(address, group)
    except NotFound:
        return True
    except Refused as refused:
        return refused.code == _OFFLINE
    return False


def _commit(
    address: str, group: str, topic: str, queue_id: int, offset: int, name: str | None = None
) -> Exchange[None]:
    """Store an offset (15) in a queue that the broker has itself."""
    fields = ext_fields(
        consumerGroup=group, topic=topic, queueId=queue_id, commitOffset=offset, bname=name,
        lo=False,
    )  # fmt: skip
    yield from ask(address, RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext_fields=fields))


def _offline(wish: _Wish, brokers: Sequence[tuple[str, str]]) -> Exchange[Report]:
    """Set the offsets one by one: brokers before 5.2 reset through a member, and none is online.

    Without ``force`` a queue is only ever set back. What was set before a broker failed is told.

    Raises:
        Refused, Unreachable: the first of them, when none was set.
    """
    rows: list[tuple[object, ...]] = []
    failures: list[RmqhaError] = []
    for name, address in brokers:
        try:
            yield from _set_offline(wish, name, address, rows)
        except (Refused, Unreachable) as error:
            failures.append(error)
    if failures and not rows:
        raise failures[0]
    plain = (
        f"reset consumer offset by specified consumerGroup[{wish.group}], topic[{wish.topic}], "
        f"force[{yes_no(wish.force)}], {wish.words}\n"
        + _OLD_FORMAT % tuple(f"#{column}" for column in _OLD_COLUMNS)
        + "".join(_OLD_FORMAT % row for row in rows)
    )
    return replace(_report(wish, plain, _OLD_COLUMNS, rows), failures=tuple(failures))


def _set_offline(
    wish: _Wish, name: str, address: str, rows: list[tuple[object, ...]]
) -> Exchange[None]:
    """Set the offsets of one broker; a row for each queue as soon as that is done."""
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
        at = yield from offset_at(
            address, search, wish.topic, key.queue_id, wish.stamp_ms, physical=True
        )
        moved = wish.force or at <= consumed
        if moved:
            yield from _commit(address, wish.group, wish.topic, key.queue_id, at, name)
        rows.append(
            (clipped(key.broker_name, 32), key.queue_id, end, consumed, at,
             at if moved else consumed)
        )  # fmt: skip


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
        number_option("-q", "--queue", "queue_id", high=INT32_MAX, help="One queue of -b, as topicStatus lists them."),
        number_option("-o", "--offset", "offset", help="Its new offset, instead of the time's."),
        parent_option(),
    ]  # fmt: skip


SPEC = CommandSpec(
    "resetOffsetByTime", "Set a group back or forth in a topic.", _options, run, needs_here=True
)
