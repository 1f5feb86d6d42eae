"""JSON bodies of clients and administration: strict reading, and Java's maps with object keys.

A body that is not what its request needs raises ``RemoteProtocolError`` before anything is changed.

Source: HeartbeatData, LockBatchRequestBody, TopicStatsTable, ConsumeStats and ResetOffsetBody of
RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from rmqha.base.errors import RemoteProtocolError
from rmqha.remoting import fastjson
from rmqha.remoting.headers import parse_number

INT64_LIMIT = 1 << 63


class MessageQueue(NamedTuple):
    """A queue as clients name it."""

    topic: str
    broker_name: str
    queue_id: int

    def members(self) -> dict[str, Any]:
        """The JSON members."""
        return {"brokerName": self.broker_name, "queueId": self.queue_id, "topic": self.topic}

    @classmethod
    def of(cls, value: object) -> MessageQueue:
        """Read the JSON members; raises RemoteProtocolError."""
        members = json_object(value, "a message queue")
        return cls(
            text(members, "topic"), text(members, "brokerName"), number(members, "queueId", 0)
        )


def read_object(body: bytes, what: str) -> dict[str, Any]:
    """Read a body that must be a JSON object; raises RemoteProtocolError."""
    return json_object(fastjson.loads(bytes(body)), what)


def json_object(value: object, what: str) -> dict[str, Any]:
    """The members of an object; raises RemoteProtocolError for anything else."""
    if not isinstance(value, dict):
        raise RemoteProtocolError(f"{what} is no JSON object")
    return value


def json_array(value: object, what: str) -> list[Any]:
    """The items of an array; null is empty; raises RemoteProtocolError for anything else."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise RemoteProtocolError(f"{what} is no JSON array")
    return value


def text(members: Mapping[str, Any], name: str, default: str | None = None) -> str:
    """A text member.

    Args:
        default: for one that misses; None makes it required.

    Raises:
        RemoteProtocolError: it misses, or is no text.
    """
    value = members.get(name)
    if value is None:
        value = default
    if not isinstance(value, str):
        raise RemoteProtocolError(f"{name} is no text")
    return value


def number(members: Mapping[str, Any], name: str, default: int) -> int:
    """A 64-bit number member; raises RemoteProtocolError for anything else."""
    value = members.get(name)
    return default if value is None else whole_number(value, name)


def whole_number(value: object, name: str) -> int:
    """A 64-bit number, also in quotes: fastjson reads such, and Go clients write codeSet so.

    Raises:
        RemoteProtocolError: it is none.
    """
    if isinstance(value, str):
        parsed = parse_number(value, INT64_LIMIT - 1)
        if parsed is None:
            raise RemoteProtocolError(f"{name} is no whole number")
        return parsed
    if not isinstance(value, int) or isinstance(value, bool):
        raise RemoteProtocolError(f"{name} is no whole number")
    if not -INT64_LIMIT <= value < INT64_LIMIT:
        raise RemoteProtocolError(f"{name} has more than 64 bits")
    return value


def boolean(members: Mapping[str, Any], name: str, *, default: bool) -> bool:
    """A truth member; raises RemoteProtocolError for anything else."""
    value = members.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise RemoteProtocolError(f"{name} is neither true nor false")
    return value


def queue_table(entries: Iterable[tuple[MessageQueue, object]], **more: object) -> bytes:
    """Write ``offsetTable`` by queue, and further members.

    Java's form has objects for keys, which is not JSON; it is also the only one that all clients
    read: fastjson 2 refuses a key that is text with JSON in it.
    """
    return table_of_pairs([queue_pair(key, value) for key, value in entries], **more)


def queue_pair(key: MessageQueue, value: object) -> bytes:
    """One entry of ``offsetTable``."""
    return fastjson.dumps(key.members()) + b":" + fastjson.dumps(value)


def table_of_pairs(pairs: Iterable[bytes], **more: object) -> bytes:
    """What :func:`queue_table` writes, of entries that are written already."""
    rest = b"".join(
        b',"%s":%s' % (name.encode(), fastjson.dumps(value)) for name, value in more.items()
    )
    return b'{"offsetTable":{' + b",".join(pairs) + b"}" + rest + b"}"
