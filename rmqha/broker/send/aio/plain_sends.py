"""The quick way through the broker for what nearly every message is.

Request 310 for a topic that exists and has nothing special, with plain numbers, and with no property
that means something to the broker but its UNIQ_KEY. What does not depend on the single message is
worked out once: the topic's bytes, the answer but for its numbers, and whether the other properties
are harmless. Everything else, and everything that is to be refused, goes the long way
(``send_requests.py``), which gives the same records and the same answers; a test holds the two equal.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct

from rmqha.broker.groups.aio.ports import Broker
from rmqha.broker.send.plain_request import PlainSend
from rmqha.broker.send.request import (
    LITE_TOPIC,
    PRIORITY,
    Stamps,
    name_refusal,
    promise_refusal,
    stored_fields,
    waits_for_store,
)
from rmqha.broker.topics.topic_table import TopicConfig
from rmqha.remoting.codec_json import success_format
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.topic_names import RETRY_PREFIX
from rmqha.statictopic.mapping import TopicQueueMappingDetail
from rmqha.statictopic.translate import led_by
from rmqha.store.aio.consume_queues import Key
from rmqha.store.properties import by_name
from rmqha.store.record import (
    BORN_HOST_V6,
    INNER_BATCH,
    JOINED_MAX,
    PROPERTIES_MAX,
    STORE_HOST_V6,
    TRANSACTION_MASK,
    Plain,
    topic_field,
)

HOST_V4_SIZE = 8
TOPICS_KEPT_MAX = 4096
RESTS_KEPT_MAX = 1024
REST_SIZE_MAX = 256
BORN_DIGITS_MAX = 18
"""Numbers of so many digits surely fit into 64 bits."""

_PAIR_END = 2
_UNIQUE = b"UNIQ_KEY\x01"
_UNIQUE_SIZE = len(_UNIQUE)
_FLAGS = {
    str(flag): flag
    for flag in range(1 << 12)
    if not flag & (TRANSACTION_MASK | BORN_HOST_V6 | STORE_HOST_V6 | INNER_BATCH)
}
"""Of the producer's sys flags those that change nothing but how consumers read the body."""
_SPECIAL = b"DELAY", b"TIMER_", b"TRAN_MSG", b"POP_CK", b"INNER_", LITE_TOPIC, PRIORITY, b"\0"
"""Any property with one of these in its name may mean that a message goes somewhere else; one with a
zero byte may be refused by the store."""
_PREFIX = struct.Struct(">II")


class _Queue(Struct, gc=False):
    """One queue of a topic, by the number that producers have for it.

    Attributes:
        answer: its header, with places for four numbers.
        delta: from the physical offset to the one that is answered.
    """

    key: Key
    answer: bytes
    delta: int


class _Topic(Struct):
    """A topic that takes plain messages, as long as its configuration is this very one.

    Attributes:
        mapping: of a static topic, whose queues are logical ones; None for any other.
    """

    config: TopicConfig
    mapping: TopicQueueMappingDetail | None
    name: str
    magic: int
    encoded: bytes
    with_size: bytes
    queues: dict[str, _Queue]


class Taken(Plain, gc=False):
    """A message that goes the quick way: what is written of it, and what its answer needs.

    Attributes:
        kept: its topic.
        queue, unique, opaque: the queue with its answer's header, and what belongs there.
    """

    kept: _Topic
    queue: _Queue
    unique: bytes
    opaque: int


class PlainSends:
    """Writes plain messages, as many at a time as have come together.

    Args:
        store_host: of the records.
        stamps: what the broker adds to all properties.
    """

    def __init__(self, broker: Broker, store_host: bytes, stamps: Stamps) -> None:
        self._broker = broker
        self._append_all = broker.store.plain.append_all
        self._statistics = broker.statistics
        self._store_host = store_host
        self._stamps = stamps
        self._stamps_after = b"\x02" + stamps.encoded
        self._body_max = min(broker.config.store.max_message_size, JOINED_MAX)
        self._properties_max = PROPERTIES_MAX - len(stamps.encoded) - 1
        self._usable = (
            len(store_host) == HOST_V4_SIZE and not broker.config.store.enabled_append_prop_crc
        )
        self._topics: dict[str, _Topic] = {}
        self._rests: set[bytes] = set()

    def take_all(self, commands: Sequence[RemotingCommand], begin: int, most: int) -> list[Taken]:
        """The messages like most that stand next in a chunk, up to any other request.

        Args:
            commands, begin: the chunk, and where in it to begin.
            most: messages to take at most.
        """
        found: list[Taken] = []
        if not self._usable:
            return found
        for at in range(begin, min(len(commands), begin + most)):
            request = commands[at]
            taken = self._taken(request) if type(request) is PlainSend else None
            if taken is None:
                break
            found.append(taken)
        return found

    def write_all(self, messages: Sequence[Taken], born_host: bytes) -> list[tuple[int, bytes]]:
        """Write messages, one at least.

        Args:
            born_host: the producer's address as records carry it.

        Returns:
            Of each that was written: where its record ends, and the frame of the answer if enough
            hold it.

        Raises:
            MessageIllegal, DiskFailed, LocalProtocolError: nothing was written.
        """
        if len(born_host) != HOST_V4_SIZE:
            return []
        places = self._append_all(messages, born_host, self._store_host)
        written: list[tuple[int, bytes]] = []
        counted, count, size = messages[0].kept, 0, 0
        for one, (offset, end, queue_offset) in zip(messages, places, strict=False):
            if one.kept is not counted:
                self._statistics.put(counted.name, count, size)
                counted, count, size = one.kept, 0, 0
            count += 1
            size += end - offset
            queue = one.queue
            header = queue.answer % (offset, queue_offset + queue.delta, one.unique, one.opaque)
            length = len(header)
            written.append((end, _PREFIX.pack(length + 4, length) + header))
        self._statistics.put(counted.name, count, size)
        return written

    def _taken(self, request: PlainSend) -> Taken | None:
        """A request's message, if it is one like most."""
        sent, body = request.sent, request.body
        if sent is None:
            return None
        # First what the message says of itself: what goes the long way asks for no topic here.
        flags, born = _FLAGS.get(sent.f), sent.g
        plain = sent.h == "0" == sent.j and sent.m == "false" and born.isdigit() and born.isascii()
        if flags is None or not plain or len(born) > BORN_DIGITS_MAX:
            return None
        properties = sent.i.encode("utf-8", "replace")
        at = properties.rfind(_UNIQUE)
        stop = properties.find(b"\x02", at)
        unique = properties[at + _UNIQUE_SIZE : stop]
        if at < 0 or stop < 0 or (at and properties[at - 1] != _PAIR_END) or not unique.isalnum():
            return None
        rest = properties[:at] + properties[stop:]
        if rest not in self._rests and not self._is_harmless(rest):
            return None
        # The key itself may be of any length.
        if len(properties) > self._properties_max or not 0 < len(body) <= self._body_max:
            return None
        topic, broker = self._topics.get(sent.b), self._broker
        if (
            topic is None
            or topic.config is not broker.topics.table.topics.get(sent.b)
            or topic.mapping is not broker.mappings.table.items.get(sent.b)
        ):
            topic = self._look_at(sent.b)
            if topic is None:
                return None
        if sent.lo is not None and topic.mapping is not None:
            return None
        queue = topic.queues.get(sent.e) or self._queue(topic, sent.e)
        if queue is None:
            return None
        stamps = self._stamps.encoded if properties[-1] == _PAIR_END else self._stamps_after
        return Taken(
            queue.key, topic.magic, flags, int(born), body, topic.with_size, properties + stamps,
            topic, queue, unique, request.opaque,
        )  # fmt: skip

    def _is_harmless(self, rest: bytes) -> bool:
        """Whether the properties beside UNIQ_KEY mean nothing to the broker."""
        if any(word in rest for word in _SPECIAL):
            return False
        waits = b"WAIT\x01true" in rest or b"WAIT" not in rest
        if not waits and not waits_for_store(rest, by_name(rest)):
            return False
        if len(rest) <= REST_SIZE_MAX:
            if len(self._rests) >= RESTS_KEPT_MAX:
                self._rests.clear()
            self._rests.add(rest)
        return True

    def _look_at(self, name: str) -> _Topic | None:
        """Keep what can be known of a topic; None for one of which nothing can."""
        self._topics.pop(name, None)
        config = self._broker.topics.table.topics.get(name)
        if (
            config is None
            or config.order
            or config.topic_filter_type != "SINGLE_TAG"
            or name.startswith(RETRY_PREFIX)
            or name_refusal(name) is not None
            or promise_refusal(config) is not None
        ):
            return None
        if len(self._topics) >= TOPICS_KEPT_MAX:
            self._topics.clear()
        magic, encoded, with_size = topic_field(name)
        mapping = self._broker.mappings.table.items.get(name)
        topic = _Topic(config, mapping, name, magic, encoded, with_size, {})
        self._topics[name] = topic
        return topic

    def _queue(self, topic: _Topic, text: str) -> _Queue | None:
        """A queue by the text of its number, if that is how the number is written."""
        config, mapping = topic.config, topic.mapping
        queues = max(config.read_queue_nums, config.write_queue_nums)
        if mapping is not None:
            queues = mapping.total_queues
        if not text.isdecimal() or len(text) > len(str(queues)) or not int(text) < queues:
            return None
        if text != str(int(text)):
            return None
        number = physical = int(text)
        delta = 0
        if mapping is not None:
            segments = led_by(mapping, number)
            if segments is None or not segments[-1].is_decided:
                return None
            physical, delta = segments[-1].queue_id, segments[-1].delta
        queue = _Queue((topic.encoded, physical), self._answer(number), delta)
        topic.queues[text] = queue
        return queue

    def _answer(self, queue_id: int) -> bytes:
        """The header of the answer to a message of this queue, to be filled in with %."""
        host = self._store_host.hex().upper().encode()
        return success_format({
            **stored_fields("", queue_id, 0, "", self._stamps),
            "msgId": host + b"%016X", "queueOffset": b"%d", "transactionId": b"%b",
        })  # fmt: skip
