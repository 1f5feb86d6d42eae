"""Rows to messages and messages to requests: properties, limits, batches by topic, turns. Pure.

Source: RocketMQ's protocol as observed: request 320's body is one message behind the
other, each as size, magic, checksum, flag, body and properties.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple
from zlib import crc32

from msgspec import Struct

from rmqha.admin.commands.send_message import message_id
from rmqha.admin.spec import Here
from rmqha.base.errors import MessageIllegal
from rmqha.client.routes import QueueKey
from rmqha.pipeline.live import earlier_life
from rmqha.pipeline.live.earlier_life import DEDUP_ID
from rmqha.pipeline.live.options import WriteOptions
from rmqha.remoting.topic_names import topic_error
from rmqha.store import properties as props
from rmqha.store.batches import OVERHEAD_BYTES, join_client_batch
from rmqha.store.record import PROPERTIES_MAX

SHARDING_KEY = "__SHARDINGKEY"
"""Java's; proxies and consumers read it."""
DELAY_LEVEL_MAX = 18
WAITING_FACTOR = 8
"""Messages of all topics together wait for at most so many full requests."""
_ADDED_MAX = 512
"""Bytes of properties that are left to the broker."""


class Outgoing(NamedTuple):
    """A message as it will be sent: encoded properties, and whether it must go alone.

    Attributes:
        is_delayed: it has a delay level or a time: brokers store a batch as it is, without a look
            at the properties of its messages.
        queue: the only one that it may be stored in; None for any.
    """

    topic: str
    body: bytes
    properties: bytes
    is_delayed: bool
    queue: QueueKey | None = None

    @property
    def size(self) -> int:
        """Its bytes in a batch."""
        return OVERHEAD_BYTES + len(self.body) + len(self.properties)


class RowId(NamedTuple):
    """Which row of a query it is: the same in every attempt to write it."""

    query_id: str
    batch_id: str
    partition_id: int
    row: int

    def __str__(self) -> str:
        return f"{self.query_id}/{self.batch_id}/{self.partition_id}/{self.row}"


class Turns:
    """Which of a topic's queues is next: one after the other, as RocketMQ's producers take them.

    These begin anywhere. Here each task of a batch begins one queue behind the task before, and each
    batch of a stream one behind the batch before, so that tasks with a single request share a topic
    evenly, too.

    Args:
        query_id, batch_id, partition_id: as in ``RowId``.
    """

    def __init__(self, query_id: str, batch_id: str, partition_id: int) -> None:
        self._first = crc32(query_id.encode()) + int(batch_id) + partition_id
        self._taken: Counter[str] = Counter()

    def take(self, topic: str) -> int:
        """The next turn of a topic, to be taken modulo its queues; other topics are not moved on."""
        turn = self._first + self._taken[topic]
        self._taken[topic] += 1
        return turn


class Row(Struct, frozen=True):
    """The columns of a row, as far as it has them."""

    body: bytes | str | None
    topic: str | None = None
    tags: str | None = None
    keys: str | None = None
    properties: Mapping[str, str | None] = {}
    delay_level: int | None = None
    sharding_key: str | None = None
    broker_name: str | None = None
    queue_id: int | None = None


def to_message(row: Row, row_id: RowId, options: WriteOptions, wall_ms: int) -> Outgoing:
    """The message of a row.

    Raises:
        MessageIllegal: no body, or half a character in it, no or no legal topic, a property that is
            not the user's to set, or something that is too large; it says which row.
    """
    try:
        return _message(row, row_id, options, wall_ms)
    except MessageIllegal as error:
        raise MessageIllegal(f"row {row_id}: {error}") from error


def _message(row: Row, row_id: RowId, options: WriteOptions, wall_ms: int) -> Outgoing:
    topic = row.topic or options.topic
    if topic is None:
        raise MessageIllegal("no topic, neither in the column topic nor as an option")
    error = topic_error(topic)
    if error is not None:
        raise MessageIllegal(error)
    if not row.body:
        raise MessageIllegal("the body is null or empty, and no broker takes that")
    body = _encoded(row.body) if isinstance(row.body, str) else row.body
    pairs = _pairs(row, row_id, wall_ms)
    properties = props.encode(pairs)
    is_delayed = props.DELAY in pairs or not earlier_life.TIMES.isdisjoint(pairs)
    message = Outgoing(topic, body, properties, is_delayed)
    if len(properties) > PROPERTIES_MAX - _ADDED_MAX:
        raise MessageIllegal(f"{len(properties)} bytes of properties are too many")
    if message.size > options.message_bytes_max:
        raise MessageIllegal(
            f"a message of {message.size} bytes is over maxMessageBytes={options.message_bytes_max}"
        )
    return message


def _encoded(body: str) -> bytes:
    try:
        return body.encode()
    except UnicodeEncodeError as error:
        raise MessageIllegal(f"the body is no text that UTF-8 can carry: {error}") from error


def _pairs(row: Row, row_id: RowId, wall_ms: int) -> dict[str, str]:
    _check_properties(row)
    level = earlier_life.level(row.properties) if row.delay_level is None else row.delay_level
    if not 0 <= level <= DELAY_LEVEL_MAX:
        raise MessageIllegal(f"delayLevel {level} is not 0 to {DELAY_LEVEL_MAX}")
    more = {
        props.TAGS: row.tags, props.KEYS: row.keys, props.DELAY: str(level) if level else None,
        DEDUP_ID: str(row_id), props.UNIQ_KEY: unique_key(row_id, wall_ms),
        SHARDING_KEY: row.sharding_key,
    }  # fmt: skip
    pairs = earlier_life.kept(row.properties)
    return pairs | {name: text for name, text in more.items() if text}


def _check_properties(row: Row) -> None:
    """What is read has tags and keys among its properties, too; these may not say anything else."""
    columns = (
        (props.TAGS, "tags", row.tags), (props.KEYS, "keys", row.keys),
        (SHARDING_KEY, "shardingKey", row.sharding_key),
    )  # fmt: skip
    for name, column, text in columns:
        if (row.properties.get(name) or text) != text:
            raise MessageIllegal(f"property {name} is not what the column {column} says")
    if row.properties.get(props.INNER_NUM):
        raise MessageIllegal(f"property {props.INNER_NUM}: an inner batch cannot be written")


def unique_key(row_id: RowId, wall_ms: int) -> str:
    """A producer's id: made of the row, and of the time by which old tools narrow their search."""
    digest = hashlib.blake2b(str(row_id).encode(), digest_size=8).digest()
    return message_id(Here(wall_ms, int.from_bytes(digest)))


class Batch(Struct, frozen=True):
    """What one request carries: messages of one topic, and of one queue if that matters."""

    topic: str
    messages: tuple[Outgoing, ...]
    queue: QueueKey | None = None

    @property
    def size(self) -> int:
        """Bytes of all messages."""
        return sum(one.size for one in self.messages)

    @property
    def is_single(self) -> bool:
        """A message that goes alone: a batch cannot be delayed."""
        return len(self.messages) == 1

    def body(self) -> bytes:
        """The request's body."""
        if self.is_single:
            return self.messages[0].body
        return join_client_batch((one.body, one.properties) for one in self.messages)


class _Heap(NamedTuple):
    topic: str
    queue: QueueKey | None


class Batcher:
    """Collects messages by topic, and queue where that matters, until a request is full.

    Args:
        options: the limits.
    """

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._waiting: dict[_Heap, list[Outgoing]] = {}
        self._sizes: dict[_Heap, int] = {}
        self._size = 0

    def add(self, message: Outgoing) -> Iterator[Batch]:
        """Take a message; what is full comes out."""
        options, heap = self._options, _Heap(message.topic, message.queue)
        if message.is_delayed or message.size > options.batch_bytes:
            if not message.is_delayed:
                yield from self._take(heap)
            yield Batch(heap.topic, (message,), heap.queue)
            return
        if self._sizes.get(heap, 0) + message.size > options.batch_bytes:
            yield from self._take(heap)
        self._waiting.setdefault(heap, []).append(message)
        self._sizes[heap] = self._sizes.get(heap, 0) + message.size
        self._size += message.size
        if len(self._waiting[heap]) >= options.batch_messages:
            yield from self._take(heap)
        if self._size > WAITING_FACTOR * options.batch_bytes:
            # Many topics, and none of them full.
            yield from self.rest()

    def rest(self) -> Iterator[Batch]:
        """All that waits."""
        for heap in sorted(self._waiting, key=lambda one: (one.topic, one.queue or ())):
            yield from self._take(heap)

    def _take(self, heap: _Heap) -> Iterator[Batch]:
        messages = self._waiting.pop(heap, [])
        self._size -= self._sizes.pop(heap, 0)
        if messages:
            yield Batch(heap.topic, tuple(messages), heap.queue)
