"""Asking brokers for stored messages: by key (12), by place in the log (33), by queue (11)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from rmqha.admin.messages import StoredMessage, decode_messages
from rmqha.base.errors import RemoteProtocolError, RmqhaError
from rmqha.client.exchange import TIMEOUT_MS, Call, Exchange, Refused, Unreachable, ask
from rmqha.client.routes import QueueKey
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import INT64_MAX, ext_fields, long_field

TOOLS_GROUP = "TOOLS_CONSUMER"

_QUERY_TIMEOUT_MS = 3 * TIMEOUT_MS
_PULL_TIMEOUT_MS = 10_000
_PULL_WITH_SUBSCRIPTION = 4
_NO_NEW_MESSAGE, _RETRY_IMMEDIATELY, _OFFSET_MOVED = 19, 20, 21
_STATUS = {
    ResponseCode.SUCCESS.value: "FOUND",
    _NO_NEW_MESSAGE: "NO_NEW_MSG",
    _RETRY_IMMEDIATELY: "NO_MATCHED_MSG",
    _OFFSET_MOVED: "OFFSET_ILLEGAL",
}


class Pulled(NamedTuple):
    """A pull's answer in a Java client's words."""

    status: str
    next_offset: int
    messages: list[StoredMessage]


def by_key(
    addresses: Iterable[str],
    topic: str,
    key: str,
    *,
    count: int,
    begin_ms: int = 0,
    end_ms: int = INT64_MAX,
    unique: bool = False,
) -> Exchange[tuple[list[StoredMessage], list[RmqhaError]]]:
    """Ask brokers for the messages of a key, or of a producer's id (``unique``).

    The index knows hashes: what has the hash but not the key is dropped here.

    Returns:
        The messages, and the failures of brokers; to have none is no failure.
    """
    found: list[StoredMessage] = []
    failures: list[RmqhaError] = []
    fields = ext_fields(
        topic=topic, key=key, maxNum=count, beginTimestamp=begin_ms, endTimestamp=end_ms
    )
    fields["_UNIQUE_KEY_QUERY"] = "true" if unique else "false"
    for address in addresses:
        request = RemotingCommand(RequestCode.QUERY_MESSAGE, ext_fields=dict(fields))
        try:
            answer = yield from ask(address, request, _QUERY_TIMEOUT_MS)
        except Refused as error:
            if error.code != ResponseCode.QUERY_NOT_FOUND:
                failures.append(error)
            continue
        except Unreachable as error:
            failures.append(error)
            continue
        found += [
            message for message in decode_messages(answer.body) if _has(message, topic, key, unique)
        ]
    return found, failures


def _has(message: StoredMessage, topic: str, key: str, unique: bool) -> bool:
    if unique:
        return message.message_id == key
    return message.stored.topic == topic and key in (message.keys or "").split(" ")


def by_place(address: str, topic: str, offset: int) -> Exchange[StoredMessage]:
    """Ask one broker for the message at an offset of its log.

    Raises:
        Refused: no message begins there.
    """
    fields = ext_fields(topic=topic, offset=offset)
    answer = yield from ask(
        address, RemotingCommand(RequestCode.VIEW_MESSAGE_BY_ID, ext_fields=fields)
    )
    messages = decode_messages(answer.body)
    if not messages:
        raise RemoteProtocolError(f"{address} answered without a message")
    return messages[0]


def pull(
    address: str, broker_name: str, group: str, key: QueueKey, offset: int, count: int
) -> Exchange[Pulled]:
    """Ask one broker for messages of a queue; nobody waits for new ones, no offset is stored.

    Args:
        broker_name: the broker's set; a logical queue's key does not name it.

    Raises:
        Refused: any code but the four of a pull.
    """
    fields = ext_fields(
        consumerGroup=group, topic=key.topic, queueId=key.queue_id, queueOffset=offset,
        maxMsgNums=count, sysFlag=_PULL_WITH_SUBSCRIPTION, commitOffset=0, suspendTimeoutMillis=0, subscription="*",
        subVersion=0, expressionType="TAG", bname=broker_name,
    )  # fmt: skip
    request = RemotingCommand(RequestCode.PULL_MESSAGE, ext_fields=fields)
    answer = yield Call(address, request, _PULL_TIMEOUT_MS)
    status = _STATUS.get(answer.code)
    if status is None:
        raise Refused(address, answer.code, answer.remark or "")
    after = long_field(answer.ext_fields, "nextBeginOffset", offset)
    if answer.code != ResponseCode.SUCCESS:
        return Pulled(status, after, [])
    ends, delta = answer.ext_fields or {}, long_field(answer.ext_fields, "offsetDelta", 0)
    edge = ends.get("minOffset", "0"), ends.get("maxOffset", "0")
    messages = [
        message.pulled(key.broker_name, key.queue_id, delta, *edge)
        for message in decode_messages(answer.body)
    ]
    return Pulled(status, after, messages)


def offset_at(
    address: str,
    code: RequestCode,
    topic: str,
    queue_id: int,
    stamp_ms: int | None = None,
    *,
    physical: bool = False,
) -> Exchange[int]:
    """Ask for a queue's lowest offset (31), its end (30), or the first of a time (29).

    Args:
        physical: of a static topic, too, a queue that the broker has itself is meant.
    """
    lo = False if physical else None
    fields = ext_fields(topic=topic, queueId=queue_id, timestamp=stamp_ms, lo=lo)
    answer = yield from ask(address, RemotingCommand(code, ext_fields=fields))
    offset = long_field(answer.ext_fields, "offset", None)
    if offset is None:
        raise RemoteProtocolError(f"{address} answered without an offset")
    return offset
