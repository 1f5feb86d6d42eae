"""sendMessage: send one message."""

from __future__ import annotations

from datetime import UTC, datetime

import click
from msgspec import Struct

from rmqha.admin.report import Report, Table
from rmqha.admin.spec import (
    CommandSpec,
    Here,
    name_servers_option,
    need_name_servers,
    number_option,
    switch_option,
    text_option,
    topic_option,
)
from rmqha.base.errors import MessageIllegal
from rmqha.client.brokers import topic_route
from rmqha.client.exchange import Call, Exchange, NotFound, Refused
from rmqha.client.logical import Leaders
from rmqha.client.routes import TopicRoute
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import INT32_MAX, ext_fields, int_field, long_field
from rmqha.remoting.topic_names import AUTO_CREATE_TOPIC, TEMPLATE_QUEUES
from rmqha.store import properties as props

_PERM_WRITE = 2
_WAIT = "WAIT"
_FORMAT = "%-32s  %-4s  %-20s    %s\n"
_COLUMNS = ("Broker Name", "QID", "Send Result", "MsgId")
_STATUS = {
    ResponseCode.SUCCESS.value: "SEND_OK",
    10: "FLUSH_DISK_TIMEOUT",
    11: "SLAVE_NOT_AVAILABLE",
    12: "FLUSH_SLAVE_TIMEOUT",
}
"""In all of these the message is stored."""


class Outgoing(Struct, frozen=True):
    """A message to be sent."""

    topic: str
    body: bytes
    properties: dict[str, str]
    group: str
    flag: int = 0


def send(
    name_servers: tuple[str, ...],
    message: Outgoing,
    broker_name: str | None,
    queue_id: int | None,
    here: Here,
) -> Exchange[Report]:
    """Send to the given queue, else to any writable one of the broker set, or of the topic (310).

    Of a static topic these are the logical queues that the set leads.

    Raises:
        click.UsageError: the message cannot be written as properties.
        NotFound: nobody takes writes of the topic, or not the broker set; it does not lead the
            logical queue.
        Refused: the broker did not store it.
    """
    route, queues = yield from _queues(name_servers, message.topic)
    chosen = [queue for queue in queues if broker_name in {None, queue[0]}]
    if not chosen:
        where = f"broker set {broker_name}" if broker_name else "no broker set"
        raise NotFound(
            f"{where} {'does not take' if broker_name else 'takes'} writes of {message.topic}"
        )
    if route.is_mapped and queue_id is not None:
        chosen = [queue for queue in chosen if queue[1] == queue_id]
        if not chosen:
            words = f"broker set {broker_name} does not lead logical queue {queue_id}"
            raise NotFound(f"{words} of {message.topic}")
    name, picked = chosen[here.number % len(chosen)]
    queue = picked if queue_id is None else queue_id
    address = route.address_of(name) or ""
    unique = message_id(here)
    answer = yield Call(address, _request(message, name, queue, unique, here))
    status = _STATUS.get(answer.code)
    if status is None:
        raise Refused(address, answer.code, answer.remark or "")
    fields = answer.ext_fields or {}
    stored_in = int_field(fields, "queueId", queue)
    row = (name, stored_in, status, unique)
    plain = _FORMAT % tuple(f"#{column}" for column in _COLUMNS) + _FORMAT % row
    data = {
        "brokerName": name, "queueId": stored_in, "sendStatus": status, "msgId": unique,
        "offsetMsgId": fields.get("msgId"), "queueOffset": long_field(fields, "queueOffset", None),
    }  # fmt: skip
    return Report(plain, data, (Table("Sent", _COLUMNS, [row]),))


def message_id(here: Here) -> str:
    """A producer's id: random but for its time, by which old tools narrow their search."""
    now = datetime.fromtimestamp(here.now_ms / 1000, UTC)
    month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    since_ms = (here.now_ms - int(month.timestamp() * 1000)) & 0xFFFFFFFF
    number = here.number & 0xFFFFFFFFFFFFFFFF
    return f"{number:016X}{0:04X}{since_ms:08X}{number & 0xFFFF:04X}"


def _queues(
    name_servers: tuple[str, ...], topic: str
) -> Exchange[tuple[TopicRoute, list[tuple[str, int]]]]:
    """The writable queues, and whose they are; a topic that nobody has yet gets those of the template."""
    try:
        route = yield from topic_route(name_servers, topic)
        most = INT32_MAX
    except Refused as error:
        if error.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        try:
            route = yield from topic_route(name_servers, AUTO_CREATE_TOPIC)
        except Refused:
            # No broker creates topics by itself: what was asked for is what is missing.
            raise error from None
        most = TEMPLATE_QUEUES
    living = dict(route.brokers())
    if route.is_mapped:
        led = Leaders.of(topic, route)
        places = [(led.names[one], one.queue_id) for one in led.allowing(_PERM_WRITE)]
        return route, [place for place in places if place[0] in living]
    queues = [
        (queue.broker_name, number)
        for queue in route.queues
        if queue.perm & _PERM_WRITE and queue.broker_name in living
        for number in range(min(queue.write_queue_nums, most))
    ]
    return route, queues


def _request(
    message: Outgoing, broker_name: str, queue_id: int, unique: str, here: Here
) -> RemotingCommand:
    pairs = {**message.properties, props.UNIQ_KEY: unique, _WAIT: "true"}
    try:
        encoded = props.encode(pairs).decode()
    except MessageIllegal as error:
        raise click.UsageError(str(error)) from error
    fields = ext_fields(
        a=message.group, b=message.topic, c=AUTO_CREATE_TOPIC, d=TEMPLATE_QUEUES, e=queue_id, f=0,
        g=here.now_ms, h=message.flag, i=encoded, j=0, k=False, m=False, n=broker_name,
    )  # fmt: skip
    return RemotingCommand(RequestCode.SEND_MESSAGE_V2, ext_fields=fields, body=message.body)


def run(
    name_servers: tuple[str, ...] | None,
    topic: str,
    body: str,
    keys: str | None,
    tags: str | None,
    broker_name: str | None,
    queue_id: int | None,
    trace: bool,
    here: Here,
) -> Exchange[Report]:
    """Send one message.

    Raises:
        click.UsageError: no name server; a queue without a broker set; a trace is wanted.
        NotFound: nobody takes writes of the topic.
        Refused: the broker did not store it.
    """
    servers = need_name_servers(name_servers)
    if queue_id is not None and broker_name is None:
        raise click.UsageError("-i needs a broker set with -b")
    if trace:
        raise click.UsageError("-m: this tool writes no message traces")
    pairs = {props.KEYS: keys, props.TAGS: tags}
    properties = {name: value for name, value in pairs.items() if value is not None}
    typed = body.encode(errors="surrogateescape")  # bytes that are no UTF-8, as they were typed
    message = Outgoing(topic, typed, properties, group=str(here.now_ms))
    return (yield from send(servers, message, broker_name, queue_id, here))


def _options() -> list[click.Option]:
    return [
        name_servers_option(),
        topic_option(),
        text_option("-p", "--body", "body", required=True, help="The body."),
        text_option("-k", "--key", "keys", help="Keys, separated by blanks."),
        text_option("-c", "--tags", "tags", help="Tag."),
        text_option("-b", "--broker", "broker_name", help="Broker set's name (default: any)."),
        number_option("-i", "--qid", "queue_id", high=INT32_MAX, help="Queue of that broker set."),
        switch_option("-m", "--msgTraceEnable", "trace", default=False,
                      help="Message trace; false only."),
    ]  # fmt: skip


SPEC = CommandSpec("sendMessage", "Send a message.", _options, run, needs_here=True)
