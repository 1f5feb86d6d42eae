"""consumeMessage: print messages of a topic, of a queue, or of a stretch of time."""

from __future__ import annotations

from typing import NamedTuple

import click
from msgspec import Struct, field

from rmqha.admin.commands.message_calls import TOOLS_GROUP, offset_at, pull
from rmqha.admin.java_text import parse_time, time_of
from rmqha.admin.messages import StoredMessage
from rmqha.admin.report import Report, Table
from rmqha.admin.spec import (
    CommandSpec,
    Here,
    name_servers_option,
    need_name_servers,
    number_option,
    text_option,
    topic_option,
)
from rmqha.client.brokers import need_broker, topic_route
from rmqha.client.exchange import Exchange, NotFound
from rmqha.client.logical import Leaders, is_logical
from rmqha.client.routes import QueueKey, TopicRoute
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.headers import INT32_MAX

COUNT = 128
_COLUMNS = ("Broker Name", "QID", "Offset", "Message ID", "Tags", "Keys", "Stored", "Body")


class _Place(NamedTuple):
    """A queue, which broker set it is read from, and that one's address."""

    key: QueueKey
    broker_name: str
    address: str


class _Reader(Struct):
    """What has been read so far; the count is over all queues."""

    group: str
    topic: str
    left: int
    begin_ms: int
    end_ms: int
    lines: list[str] = field(default_factory=list)
    messages: list[StoredMessage] = field(default_factory=list)

    def read(self, place: _Place, start: int, *, of_many: bool) -> Exchange[None]:
        """Read a queue from ``start`` on, or from where it begins."""
        key, address = place.key, place.address
        low = yield from self._edge(address, key, self.begin_ms, RequestCode.GET_MIN_OFFSET)
        high = yield from self._edge(address, key, self.end_ms, RequestCode.GET_MAX_OFFSET)
        if start > high:
            self.lines.append(f"{key} no matched msg, offset={start}\n")
            return
        low = max(low, start)
        if high - low > self.left and not is_logical(key):
            whose = f"The older {self.left} message of the {key.queue_id} queue"
            self.lines.append(
                f"{whose if of_many else f'The oldler {self.left} message'} will be provided\n"
            )
            high = low + self.left - 1
        yield from self._pull(place, low, high)

    def _edge(
        self, address: str, key: QueueKey, stamp_ms: int, otherwise: RequestCode
    ) -> Exchange[int]:
        if stamp_ms > 0:
            search = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
            return (yield from offset_at(address, search, self.topic, key.queue_id, stamp_ms))
        return (yield from offset_at(address, otherwise, self.topic, key.queue_id))

    def _pull(self, place: _Place, offset: int, last: int) -> Exchange[None]:
        """Pull until the queue ends; the broker may give less than it is asked for.

        A logical queue has gaps between its segments. So it is messages that count in it, and not
        offsets, and who is sent on goes on.
        """
        key, logical = place.key, is_logical(place.key)
        while offset <= last and not (logical and self.left <= 0):
            count = min(last - offset + 1, self.left if logical else INT32_MAX)
            pulled = yield from pull(
                place.address, place.broker_name, self.group, key, offset, count
            )
            before, offset = offset, pulled.next_offset
            if pulled.status == "FOUND":
                self.lines.append("Consume ok\n")
                self.lines += [_line(message) for message in pulled.messages]
                self.messages += pulled.messages
                self.left -= len(pulled.messages)
            elif pulled.status == "NO_MATCHED_MSG" or (logical and before < offset <= last):
                self.lines.append(
                    f"{key} no matched msg. status={pulled.status}, offset={offset}\n"
                )
            else:
                self.lines.append(
                    f"{key} print msg finished. status={pulled.status}, offset={offset}\n"
                )
                return
            if offset <= before:
                # A broker that sends us back would have us pull for ever.
                return


def _line(message: StoredMessage) -> str:
    body = message.body.decode("utf-8", "replace")
    return f"MSGID: {message.message_id} {message.java_text()} BODY: {body}\n"


def run(
    name_servers: tuple[str, ...] | None,
    topic: str,
    broker_name: str | None,
    queue_id: int | None,
    offset: int | None,
    group: str | None,
    begin: str | None,
    end: str | None,
    count: int,
    here: Here,
) -> Exchange[Report]:
    """Pull from one queue, or from every readable one in order (11); no offset is stored.

    Raises:
        click.UsageError: no name server; a queue without a broker set, an offset without a queue;
            times that are none, in the future, or the wrong way round.
        NotFound: the broker set does not have the topic, or does not lead the logical queue.
    """
    servers = need_name_servers(name_servers)
    if queue_id is not None and broker_name is None:
        raise click.UsageError("-i needs a broker set with -b")
    if offset is not None and queue_id is None:
        raise click.UsageError("-o needs a queue with -i")
    begin_ms, end_ms = _time("-s", begin, here), _time("-e", end, here)
    if end_ms and begin_ms > end_ms:
        raise click.UsageError("-s is later than -e")
    route = yield from topic_route(servers, topic)
    if broker_name:
        need_broker(route, topic, broker_name)
    reader = _Reader(group or TOOLS_GROUP, topic, count, begin_ms, end_ms)
    find = _logical_queues if route.is_mapped else _queues
    for place in find(route, topic, broker_name, queue_id):
        if reader.left > 0:
            yield from reader.read(place, offset or 0, of_many=queue_id is None)
    return _report(topic, reader)


def _queues(
    route: TopicRoute, topic: str, broker_name: str | None, queue_id: int | None
) -> list[_Place]:
    """The queue that is meant, or all readable ones in order."""
    living = dict(route.brokers())
    keys = sorted(
        QueueKey(topic, queue.broker_name, number)
        for queue in route.queues
        if queue.broker_name in living and broker_name in {None, queue.broker_name}
        for number in range(queue.read_queue_nums)
    )
    if broker_name and queue_id is not None:
        keys = [QueueKey(topic, broker_name, queue_id)]
    return [_Place(key, key.broker_name, living[key.broker_name]) for key in keys]


def _logical_queues(
    route: TopicRoute, topic: str, broker_name: str | None, queue_id: int | None
) -> list[_Place]:
    """The same of a static topic: leaders are asked for their logical queues.

    Raises:
        NotFound: the broker set does not lead the one that is meant.
    """
    living, led = dict(route.brokers()), Leaders.of(topic, route)
    found = [
        _Place(key, name, living[name])
        for key, name in sorted(led.names.items())
        if name in living and broker_name in {None, name} and queue_id in {None, key.queue_id}
    ]
    if queue_id is not None and not found:
        raise NotFound(
            f"broker set {broker_name} does not lead logical queue {queue_id} of {topic}"
        )
    return found


def _report(topic: str, reader: _Reader) -> Report:
    rows = [
        (
            one.broker_name, one.stored.queue_id, one.stored.queue_offset, one.message_id, one.tags,
            one.keys, time_of(one.stored.store_timestamp), one.body.decode("utf-8", "replace"),
        )
        for one in reader.messages
    ]  # fmt: skip
    data = [{"brokerName": one.broker_name, **one.data()} for one in reader.messages]
    return Report("".join(reader.lines), data, (Table(topic, _COLUMNS, rows),))


def _time(flag: str, text: str | None, here: Here) -> int:
    """Milliseconds; 0 where none is given."""
    if text is None:
        return 0
    stamp_ms = parse_time(text)
    if stamp_ms is None or stamp_ms < 0:
        raise click.UsageError(
            f"{flag} {text!r} is neither milliseconds nor yyyy-MM-dd#HH:mm:ss:SSS"
        )
    if stamp_ms > here.now_ms:
        raise click.UsageError(f"{flag} {text} is in the future")
    return stamp_ms


def _options() -> list[click.Option]:
    return [
        name_servers_option(),
        topic_option(),
        text_option("-b", "--brokerName", "broker_name", help="Broker set's name (default: all)."),
        number_option("-i", "--queueId", "queue_id", high=INT32_MAX, help="Queue of that set."),
        number_option("-o", "--offset", "offset", help="First offset in that queue."),
        text_option("-g", "--consumerGroup", "group", help="Group to pull as."),
        text_option("-s", "--beginTimestamp", "begin", help="From: ms, or yyyy-MM-dd#HH:mm:ss:SSS."),
        text_option("-e", "--endTimestamp", "end", help="To: ms, or yyyy-MM-dd#HH:mm:ss:SSS."),
        number_option("-c", "--MessageNumber", "count", low=1, default=COUNT,
                      help="At most so many messages (default 128)."),
    ]  # fmt: skip


SPEC = CommandSpec("consumeMessage", "Print messages of a topic.", _options, run, needs_here=True)
