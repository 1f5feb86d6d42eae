"""consumeMessage: print messages of a topic, of a queue, or of a stretch of time."""

from __future__ import annotations

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
from rmqha.client.exchange import Exchange
from rmqha.client.routes import QueueKey, TopicRoute
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.headers import INT32_MAX

COUNT = 128
_COLUMNS = ("Broker Name", "QID", "Offset", "Message ID", "Tags", "Keys", "Stored", "Body")


class _Reader(Struct):
    """What has been read so far; the count is over all queues."""

    group: str
    topic: str
    left: int
    begin_ms: int
    end_ms: int
    lines: list[str] = field(default_factory=list)
    messages: list[StoredMessage] = field(default_factory=list)

    def read(self, address: str, key: QueueKey, start: int, of_many: bool) -> Exchange[None]:
        """Read a queue from ``start`` on, or from where it begins."""
        low = yield from self._edge(address, key, self.begin_ms, RequestCode.GET_MIN_OFFSET)
        high = yield from self._edge(address, key, self.end_ms, RequestCode.GET_MAX_OFFSET)
        if start > high:
            self.lines.append(f"{key} no matched msg, offset={start}\n")
            return
        low = max(low, start)
        if high - low > self.left:
            whose = f"The older {self.left} message of the {key.queue_id} queue"
            self.lines.append(
                f"{whose if of_many else f'The oldler {self.left} message'} will be provided\n"
            )
            high = low + self.left - 1
        yield from self._pull(address, key, low, high)

    def _edge(
        self, address: str, key: QueueKey, stamp_ms: int, otherwise: RequestCode
    ) -> Exchange[int]:
        if stamp_ms > 0:
            search = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
            return (yield from offset_at(address, search, self.topic, key.queue_id, stamp_ms))
        return (yield from offset_at(address, otherwise, self.topic, key.queue_id))

    def _pull(self, address: str, key: QueueKey, offset: int, last: int) -> Exchange[None]:
        """Pull until the queue ends; the broker may give less than it is asked for."""
        while offset <= last:
            count = min(last - offset + 1, INT32_MAX)
            pulled = yield from pull(
                address, key.broker_name, self.group, self.topic, key.queue_id, offset, count
            )
            before, offset = offset, pulled.next_offset
            if pulled.status == "FOUND":
                self.lines.append("Consume ok\n")
                self.lines += [_line(message) for message in pulled.messages]
                self.messages += pulled.messages
                self.left -= len(pulled.messages)
            elif pulled.status == "NO_MATCHED_MSG":
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
        NotFound: the broker set does not have the topic.
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
    living = dict(route.brokers())
    for key in _queues(route, topic, broker_name, queue_id):
        if reader.left > 0:
            of_many = queue_id is None
            yield from reader.read(living[key.broker_name], key, offset or 0, of_many=of_many)
    return _report(topic, reader)


def _queues(
    route: TopicRoute, topic: str, broker_name: str | None, queue_id: int | None
) -> list[QueueKey]:
    """The queue that is meant, or all readable ones in order."""
    if broker_name and queue_id is not None:
        return [QueueKey(topic, broker_name, queue_id)]
    living = dict(route.brokers())
    return sorted(
        QueueKey(topic, queue.broker_name, number)
        for queue in route.queues
        if queue.broker_name in living and broker_name in {None, queue.broker_name}
        for number in range(queue.read_queue_nums)
    )


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
