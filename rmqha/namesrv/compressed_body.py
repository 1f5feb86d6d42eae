"""The compressed body of a registration: a few KiB that may stand for 64 MiB of records.

So nothing of it is believed before it is there, and it is read in parts, between which others have
their turn.

Source: RegisterBrokerBody.decode, RocketMQ remoting.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Generator, Iterator

from rmqha.base.errors import RemoteProtocolError
from rmqha.namesrv.messages import MappingInfo, QueueData
from rmqha.namesrv.registration_members import (
    MEMBERS_MAX,
    PART,
    Body,
    check_count,
    filter_servers_of,
    infos_max,
    mapping_info_of,
    members_in,
    object_of,
    short,
    small,
    text_of,
    topics_max,
)
from rmqha.namesrv.settings import RouteSettings
from rmqha.namesrv.usual_body import QUEUE_NUMS_MAX
from rmqha.remoting import fastjson
from rmqha.remoting.data_version import DataVersion
from rmqha.remoting.headers import parse_number
from rmqha.remoting.old_clients import knows_static_topics

INFLATED_PART = 1 << 20
"""So many bytes are inflated in one turn of the loop, some milliseconds."""

BLOCK_BYTES_MAX = 2 << 20
"""A mapping info of 65,536 queues has half of that, and no record has more."""

INFO_BYTES_PART = 128 * 1024
"""Of mapping infos, so many bytes are read in one turn at most, but for one that is larger."""

_TEXT_RECORD_FIELDS = 5
_LENGTH = struct.Struct(">i")
_TOO_EARLY = "the compressed body ends too early"


def read_compressed(
    version: int, body: bytes, broker_name: str, settings: RouteSettings
) -> Generator[None, None, Body]:
    """Read it part by part.

    Raises:
        RemoteProtocolError: it is no compressed registration, or stands for more than may be.
    """
    reader = _Reader((yield from _inflate(body, settings.registration_bytes_max)))
    members = yield from fastjson.reading(small(reader.block(), "dataVersion"))
    data_version = DataVersion.of(object_of(members, "dataVersion"))
    topics = yield from _topics(reader, broker_name, settings)
    listed = yield from fastjson.reading(small(reader.block(), "filterServerList"))
    servers = filter_servers_of(listed, settings)
    # Older brokers end here.
    infos = (yield from _infos(reader, settings)) if knows_static_topics(version) else {}
    return Body(data_version, topics, servers, infos)


class _Reader:
    """Lengths and blocks of an inflated body."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def block(self) -> bytes:
        """A length and as many bytes."""
        (found,) = self._blocks(1)
        return found

    def blocks(self, what: str, limit: int) -> Iterator[bytes]:
        """A count and as many blocks; each is a record, of which there cannot be any number."""
        count = self._count()
        check_count(count, what, limit)
        if count < 0:
            raise RemoteProtocolError(f"the compressed body has a length of {count}")
        return self._blocks(count)

    def _blocks(self, count: int) -> Iterator[bytes]:
        # Of records there are hundreds of thousands: no call for each of them.
        data, at, size, length_at = self._data, self._at, len(self._data), _LENGTH.unpack_from
        for _ in range(count):
            begin = at + _LENGTH.size
            if begin > size:
                raise RemoteProtocolError(_TOO_EARLY)
            (length,) = length_at(data, at)
            if not 0 <= length <= BLOCK_BYTES_MAX:
                raise RemoteProtocolError(f"the compressed body has a length of {length}")
            self._at = at = begin + length
            if at > size:
                raise RemoteProtocolError(_TOO_EARLY)
            yield data[begin:at]

    def _count(self) -> int:
        if self._at + _LENGTH.size > len(self._data):
            raise RemoteProtocolError(_TOO_EARLY)
        (count,) = _LENGTH.unpack_from(self._data, self._at)
        self._at += _LENGTH.size
        return int(count)


def _inflate(body: bytes, limit: int) -> Generator[None, None, bytes]:
    inflater, parts, size, left = zlib.decompressobj(), list[bytes](), 0, body
    while True:
        try:
            part = inflater.decompress(left, min(INFLATED_PART, limit - size))
        except zlib.error as error:
            raise RemoteProtocolError(f"the body cannot be inflated: {error}") from error
        parts.append(part)
        size += len(part)
        left = inflater.unconsumed_tail
        full = size >= limit and (left or not inflater.eof)
        if full:
            raise RemoteProtocolError(f"the body is larger than {limit} bytes once inflated")
        if inflater.eof or not part:
            return b"".join(parts)
        yield


def _topics(
    reader: _Reader, broker_name: str, settings: RouteSettings
) -> Generator[None, None, dict[str, QueueData]]:
    """``name readNums writeNums perm filterType [attributes]``; the flags are lost in this form."""
    topics: dict[str, QueueData] = {}
    # Most topics have the same queues: what was read of one counts for all of them.
    seen: dict[bytes, QueueData] = {}
    for at, block in enumerate(reader.blocks("topics", topics_max(settings)), 1):
        if at % PART == 0:
            yield
        name_bytes, _, rest = block.partition(b" ")
        queues = seen.get(rest)
        if queues is None:
            if len(seen) >= PART:
                seen.clear()  # no broker has so many kinds of topics
            queues = seen[rest] = _queues(rest, broker_name)
        try:
            name = name_bytes.decode()
        except UnicodeDecodeError as error:
            raise RemoteProtocolError("a topic record is no UTF-8") from error
        if not name:
            raise RemoteProtocolError("a topic record without a name")
        topics[short(name, "a topic's name", settings)] = queues
    return topics


def _queues(rest: bytes, broker_name: str) -> QueueData:
    try:
        parts = rest.decode().split(" ", _TEXT_RECORD_FIELDS - 1)
    except UnicodeDecodeError as error:
        raise RemoteProtocolError("a topic record is no UTF-8") from error
    if len(parts) < _TEXT_RECORD_FIELDS - 1:
        raise RemoteProtocolError(f"a topic record has {1 + len(parts)} fields")
    read, write, perm = (parse_number(text, QUEUE_NUMS_MAX) for text in parts[:3])
    if read is None or write is None or perm is None or min(read, write, perm) < 0:
        raise RemoteProtocolError("a topic record has numbers that are none")
    return QueueData(broker_name, perm, read, 0, write)


def _infos(
    reader: _Reader, settings: RouteSettings
) -> Generator[None, None, dict[str, MappingInfo]]:
    infos: dict[str, MappingInfo] = {}
    count = size = parts = 0
    for block in reader.blocks("mapping infos", infos_max(settings)):
        count += members_in(block)
        check_count(count, "members in mapping infos", MEMBERS_MAX)
        size += len(block)
        parts += 1
        if parts >= PART // 4 or size >= INFO_BYTES_PART:
            parts = size = 0
            yield
        members = object_of((yield from fastjson.reading(block)), "a mapping info")
        topic = text_of(members.get("topic"), "")
        infos[topic] = mapping_info_of(topic, members, settings)
    return infos
