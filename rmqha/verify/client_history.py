"""What clients of a cluster did and were told: one JSON object a line, for judging afterwards.

The first line of a file says what it is::

    {"op":"history","version":1,"run":"demo"}

Each further line is one record of one client, numbered by ``n`` from 1, so that a line that is
missing shows. All times are wall clock milliseconds::

    {"op":"send","client":"p","n":1,"topic":"T","key":"17","attempt":1,"start_ms":1000}
    {"op":"ack","client":"p","n":2,"topic":"T","key":"17","attempt":1,"broker":"broker-a",
     "queue":0,"offset":5,"start_ms":1000,"end_ms":1003}
    {"op":"fail","client":"p","n":3,"topic":"T","key":"18","attempt":1,"start_ms":1004,
     "end_ms":1009,"reason":"no route"}
    {"op":"consume","client":"c","n":1,"topic":"T","key":"17","broker":"broker-a","queue":0,
     "offset":5,"end_ms":1010}
    {"op":"end","client":"c","n":2,"topic":"T","broker":"broker-a","queue":0,"offset":6,
     "end_ms":1020}

``key`` names one message for good: all attempts to send it, and every reading of it. ``broker`` is
the name of the broker set. ``fail`` means not acknowledged: the message may be stored or not. A
``send`` without ``ack`` or ``fail`` has an unknown end. ``end`` says that the queue held nothing
from this offset on when all senders had stopped: what was acknowledged there before is lost, also
when it was read before. A queue whose messages have expired ends where it ended, not at 0. Whoever
reads a message without a key gives it the key ``at queue:offset``.

What does not live here: files and clocks; judging is the pipeline's (``history-check``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from msgspec import Struct

from rmqha.base.errors import RemoteProtocolError

FORMAT_VERSION = 1
LINE_BYTES_MAX = 1 << 20
NATURAL_MAX = (1 << 63) - 1
Natural = Annotated[int, msgspec.Meta(ge=0, le=NATURAL_MAX)]


class Header(Struct, frozen=True, tag="history", tag_field="op", forbid_unknown_fields=True):
    """The first line."""

    version: Natural
    run: str = ""


class Send(Struct, frozen=True, tag="send", tag_field="op"):
    """An attempt begins."""

    client: str
    n: Natural
    topic: str
    key: str
    start_ms: Natural
    attempt: Natural = 1


class Ack(Struct, frozen=True, tag="ack", tag_field="op"):
    """An attempt ended with the broker's word that the message is stored."""

    client: str
    n: Natural
    topic: str
    key: str
    broker: str
    queue: Natural
    offset: Natural
    start_ms: Natural
    end_ms: Natural
    attempt: Natural = 1


class Fail(Struct, frozen=True, tag="fail", tag_field="op"):
    """An attempt ended without that word."""

    client: str
    n: Natural
    topic: str
    key: str
    start_ms: Natural
    end_ms: Natural
    reason: str = ""
    attempt: Natural = 1


class Consume(Struct, frozen=True, tag="consume", tag_field="op"):
    """A consumer got a message."""

    client: str
    n: Natural
    topic: str
    key: str
    broker: str
    queue: Natural
    offset: Natural
    end_ms: Natural


class End(Struct, frozen=True, tag="end", tag_field="op"):
    """A consumer found the end of a queue when nobody sent any more."""

    client: str
    n: Natural
    topic: str
    broker: str
    queue: Natural
    offset: Natural
    end_ms: Natural


Record = Send | Ack | Fail | Consume | End

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Header | Send | Ack | Fail | Consume | End).decode


def decode_line(line: bytes) -> Header | Record:
    """Read one line.

    Raises:
        RemoteProtocolError: no record of this format, or too long.
    """
    if len(line) > LINE_BYTES_MAX:
        raise RemoteProtocolError(f"a line of {len(line)} bytes")
    try:
        record: Header | Record = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteProtocolError(str(error)) from error
    return record


class HistoryWriter:
    """Numbers records client by client and hands on their lines.

    Args:
        write: takes whole lines, in order.
        run: a name for people.
    """

    def __init__(self, write: Callable[[bytes], object], run: str = "") -> None:
        self._write = write
        self._numbers: dict[str, int] = {}
        write(_encode(Header(FORMAT_VERSION, run)) + b"\n")

    def add(self, kind: type[Record], client: str, **fields: Any) -> None:
        """Write one record of a client; ``fields`` are its others but ``n``."""
        number = self._numbers[client] = self._numbers.get(client, 0) + 1
        self._write(_encode(kind(client=client, n=number, **fields)) + b"\n")
