"""A small blocking remoting client: an oracle that shares no line with ``rmqha.remoting``.

Frame: int32 length, int32 (serialize type << 24 | header length), JSON header, body. Only what the
interop tests and benches ask of controllers, brokers and name servers is here.
"""

from __future__ import annotations

import base64
import contextlib
import hmac
import itertools
import json
import re
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from typing import Any, Self

from msgspec import Struct, field

SEND_MESSAGE = 10
PULL_MESSAGE = 11
UPDATE_AND_CREATE_TOPIC = 17
GET_ROUTE = 105
GET_REPLICA_INFO = 1004
GET_METADATA_INFO = 1005
GET_SYNC_STATE_DATA = 1006

SUCCESS = 0
PULL_NOT_FOUND = 19
PULL_RETRY_IMMEDIATELY = 20
PULL_OFFSET_MOVED = 21
TOPIC_NOT_EXIST = 17
NOT_LEADER = 2007

TIMEOUT_S = 3.0
BODY_SHOWN = 40
MESSAGE_MAGIC_V1 = 0xDAA320A7
MESSAGE_MAGIC_V2 = 0xDAA320AB
_MESSAGE_HEAD = struct.Struct(">IIIiiqqiq")  # size magic crc queue flag q-offset p-offset sys born
# fastjson writes maps with Long keys without quotes: {0:"..."}; strings are stepped over.
_UNQUOTED_KEY = re.compile(r'"(?:[^"\\]|\\.)*"|([{,]\s*)(-?\d+)(\s*:)')


def shown(body: bytes) -> str:
    """A body in a line of a report: whole if it is short."""
    if len(body) <= BODY_SHOWN:
        return repr(body)
    return f"{body[:BODY_SHOWN]!r}... ({len(body)} bytes)"


class Answer(Struct, frozen=True):
    """A response frame."""

    code: int
    ext: dict[str, str]
    body: bytes
    remark: str

    def json(self) -> Any:
        """The body as JSON, unquoted number keys tolerated."""
        return loads(self.body)


class Stored(Struct, frozen=True):
    """One message as it lies in a commit log."""

    queue_id: int
    queue_offset: int
    physical_offset: int
    topic: str
    body: bytes
    properties: bytes = b""

    def __repr__(self) -> str:
        place = f"{self.topic}/{self.queue_id}/{self.queue_offset}"
        return f"<stored {shown(self.body)} at {place} {self.texts()}>"

    def texts(self) -> dict[str, str]:
        """The properties by their names, as clients see them: ``KEYS``, ``TAGS``, the sender's own."""
        pairs = self.properties.decode(errors="replace").split("\x02")
        return dict(pair.split("\x01", 1) for pair in pairs if "\x01" in pair)


class Refused(Exception):
    """The peer answered with another code than success."""

    def __init__(self, address: str, code: int, answer: Answer) -> None:
        super().__init__(f"{address} answered request {code} with {answer.code}: {answer.remark}")
        self.answer = answer


def loads(body: bytes) -> Any:
    """Parse JSON as fastjson 1 writes it."""
    text = body.decode()
    return json.loads(_UNQUOTED_KEY.sub(_quote_key, text)) if text else None


_signers: list[tuple[str, str]] = []


@contextlib.contextmanager
def signing(access_key: str, secret_key: str) -> Iterator[None]:
    """All requests of this process are signed meanwhile."""
    _signers.append((access_key, secret_key))
    try:
        yield
    finally:
        _signers.pop()


def _signed(ext: Mapping[str, object], body: bytes) -> dict[str, str]:
    fields = {key: _text(value) for key, value in ext.items() if value is not None}
    if _signers:
        fields["AccessKey"], secret = _signers[-1]
        content = "".join(value for _, value in sorted(fields.items())).encode() + body
        made = hmac.digest(secret.encode(), content, "sha1")
        fields["Signature"] = base64.b64encode(made).decode()
    return fields


def encode(
    code: int, ext: Mapping[str, object], body: bytes = b"", opaque: int = 0, flag: int = 0
) -> bytes:
    """Build a request frame."""
    header: dict[str, object] = {
        "code": code, "flag": flag, "language": "PYTHON", "opaque": opaque,
        "serializeTypeCurrentRPC": "JSON", "version": 479,
    }  # fmt: skip
    fields = _signed(ext, body)
    if fields:
        header["extFields"] = fields
    raw = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack(">II", 4 + len(raw) + len(body), len(raw)) + raw + body


class Connection(Struct):
    """One connection to one address; any failure closes it and the next call opens a new one."""

    address: str
    timeout_s: float = TIMEOUT_S
    _socket: socket.socket | None = None
    _opaques: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def invoke(
        self,
        code: int,
        ext: Mapping[str, object] | None = None,
        body: bytes = b"",
        timeout_s: float | None = None,
    ) -> Answer:
        """Send a request and return its answer.

        Raises:
            OSError: the peer is away, closed the connection or took longer than the timeout.
        """
        deadline = time.monotonic() + (timeout_s or self.timeout_s)
        opaque = next(self._opaques)
        try:
            peer = self._connected(deadline)
            peer.settimeout(_left(deadline))
            peer.sendall(encode(code, ext or {}, body, opaque))
            while True:
                header, answer_body = self._read_frame(peer, deadline)
                if header.get("opaque") == opaque and header.get("flag", 0) & 1:
                    fields = header.get("extFields") or {}
                    return Answer(header["code"], fields, answer_body, header.get("remark") or "")
        except (OSError, ValueError):
            self.close()
            raise

    def send(self, code: int, ext: Mapping[str, object], body: bytes = b"") -> None:
        """Send a request whose answer ``receive`` waits for."""
        peer = self._connected(time.monotonic() + self.timeout_s)
        peer.sendall(encode(code, ext, body, next(self._opaques)))

    def receive(self) -> Answer:
        """The next answer, whatever it answers.

        Raises:
            OSError: as ``invoke``.
        """
        deadline = time.monotonic() + self.timeout_s
        peer = self._connected(deadline)
        while True:
            header, body = self._read_frame(peer, deadline)
            if header.get("flag", 0) & 1:
                fields = header.get("extFields") or {}
                return Answer(header["code"], fields, body, header.get("remark") or "")

    def ask(
        self,
        code: int,
        ext: Mapping[str, object] | None = None,
        body: bytes = b"",
        timeout_s: float | None = None,
    ) -> Answer:
        """Like ``invoke``, but any answer other than success raises ``Refused``."""
        answer = self.invoke(code, ext, body, timeout_s)
        if answer.code != SUCCESS:
            raise Refused(self.address, code, answer)
        return answer

    def oneway(self, code: int, ext: Mapping[str, object], body: bytes = b"") -> None:
        """Send a one-way request."""
        try:
            peer = self._connected(time.monotonic() + self.timeout_s)
            peer.sendall(encode(code, ext, body, next(self._opaques), flag=2))
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _connected(self, deadline: float) -> socket.socket:
        if self._socket is None:
            host, _, port = self.address.rpartition(":")
            self._socket = socket.create_connection((host, int(port)), timeout=_left(deadline))
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._socket

    def _read_frame(self, peer: socket.socket, deadline: float) -> tuple[dict[str, Any], bytes]:
        total, packed = struct.unpack(">II", _read_exactly(peer, 8, deadline))
        header_size = packed & 0xFFFFFF
        if packed >> 24 != 0:
            raise ValueError(f"{self.address} answered in serialize type {packed >> 24}")
        rest = _read_exactly(peer, total - 4, deadline)
        return loads(rest[:header_size]), rest[header_size:]


def invoke(
    address: str,
    code: int,
    ext: Mapping[str, object] | None = None,
    body: bytes = b"",
    timeout_s: float = TIMEOUT_S,
) -> Answer:
    """One request on a connection of its own."""
    with Connection(address, timeout_s) as connection:
        return connection.invoke(code, ext, body)


def send_message(
    broker: Connection,
    topic: str,
    queue_id: int,
    body: bytes,
    *,
    keys: str,
    default_queues: int,
    timeout_s: float | None = None,
    properties: str = "",
) -> Answer:
    """Send one message with the long field names of code 10.

    Args:
        properties: more of them, encoded.
    """
    ext = {
        "producerGroup": "rmqha_interop",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": default_queues,
        "queueId": queue_id,
        "sysFlag": 0,
        "bornTimestamp": int(time.time() * 1000),
        "flag": 0,
        "properties": f"KEYS\x01{keys}\x02UNIQ_KEY\x01{keys}\x02WAIT\x01true\x02{properties}",
        "reconsumeTimes": 0,
        "unitMode": False,
        "maxReconsumeTimes": 0,
        "batch": False,
    }
    return broker.invoke(SEND_MESSAGE, ext, body, timeout_s)


def create_topic(broker: Connection, topic: str, queues: int) -> None:
    """Create a topic on one broker."""
    ext = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": queues,
        "writeQueueNums": queues,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": False,
        "attributes": "",
    }
    broker.ask(UPDATE_AND_CREATE_TOPIC, ext)


def broker_addresses(name_server: Connection, topic: str, broker_name: str) -> dict[int, str]:
    """The route of a topic: broker id (0 is the master) to address; empty when unknown."""
    answer = name_server.invoke(GET_ROUTE, {"topic": topic})
    if answer.code != SUCCESS:
        return {}
    for data in answer.json()["brokerDatas"]:
        if data["brokerName"] == broker_name:
            return {int(key): address for key, address in data["brokerAddrs"].items()}
    return {}


def pull_queue(broker: Connection, topic: str, queue_id: int, offset: int = 0) -> list[Stored]:
    """Every message of a queue, from an offset, or its first behind it, to its end."""
    found: list[Stored] = []
    while True:
        ext = {
            "consumerGroup": "rmqha_interop_reader",
            "topic": topic,
            "queueId": queue_id,
            "queueOffset": offset,
            "maxMsgNums": 32,
            "sysFlag": 4,
            "commitOffset": 0,
            "suspendTimeoutMillis": 1000,
            "subscription": "*",
            "subVersion": 0,
            "expressionType": "TAG",
        }
        answer = broker.invoke(PULL_MESSAGE, ext)
        if answer.code == SUCCESS:
            found += parse_messages(answer.body)
        elif answer.code == PULL_NOT_FOUND or answer.code == TOPIC_NOT_EXIST:
            return found
        elif answer.code not in (PULL_RETRY_IMMEDIATELY, PULL_OFFSET_MOVED):
            raise Refused(broker.address, PULL_MESSAGE, answer)
        following = int(answer.ext["nextBeginOffset"])
        if following == offset:
            return found
        offset = following


def parse_messages(data: bytes) -> list[Stored]:
    """Cut a run of stored messages apart; a blank filler ends a commit-log file."""
    found: list[Stored] = []
    position = 0
    while position + _MESSAGE_HEAD.size <= len(data):
        size, magic, _, queue_id, _, queue_offset, physical, sys_flag, _ = (
            _MESSAGE_HEAD.unpack_from(data, position)
        )
        fits = _MESSAGE_HEAD.size < size <= len(data) - position
        if magic not in (MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2) or not fits:
            break
        hosts = (20 if sys_flag & 0x10 else 8) + (20 if sys_flag & 0x20 else 8)
        at = position + _MESSAGE_HEAD.size + hosts + 8 + 4 + 8
        (body_size,) = struct.unpack_from(">i", data, at)
        body = data[at + 4 : at + 4 + body_size]
        at += 4 + body_size
        wide = magic == MESSAGE_MAGIC_V2
        topic_size = int.from_bytes(data[at : at + (2 if wide else 1)])
        at += 2 if wide else 1
        topic = data[at : at + topic_size].decode()
        properties = data[at + topic_size + 2 : position + size]
        found.append(Stored(queue_id, queue_offset, physical, topic, body, properties))
        position += size
    return found


def _quote_key(match: re.Match[str]) -> str:
    if match.group(2) is None:
        return match.group(0)
    return f'{match.group(1)}"{match.group(2)}"{match.group(3)}'


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the answer did not come in time")
    return left


def _read_exactly(peer: socket.socket, size: int, deadline: float) -> bytes:
    chunks: list[bytes] = []
    while size > 0:
        peer.settimeout(_left(deadline))
        chunk = peer.recv(min(size, 1 << 20))
        if not chunk:
            raise ConnectionResetError("the peer closed the connection")
        chunks.append(chunk)
        size -= len(chunk)
    return b"".join(chunks)
