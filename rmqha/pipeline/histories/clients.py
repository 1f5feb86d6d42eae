"""Client histories as rows, and the times in which nothing was acknowledged.

The format is ``verify/client_history.py``. Lines that are none of it are told, never skipped
silently.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from msgspec import Struct

from rmqha.base.errors import ConfigInvalid, RemoteProtocolError
from rmqha.verify.client_history import (
    FORMAT_VERSION,
    LINE_BYTES_MAX,
    Header,
    Record,
    decode_line,
)

LONGER_THAN_MS = 1000
"""A time without an acknowledgement that is worth telling, where nobody says another."""
OPEN_ATTEMPTS_MAX = 1_000_000
"""Attempts of one topic under way at a time; more means that the history is none."""


class Event(Struct, frozen=True):
    """One line of a history.

    Attributes:
        history: the file.
        line: from 1.
        op: send, ack, fail, consume or end; None for a line that is no record.
        n: the record's number among its client's.
        corrupt: why the line is no record.
    """

    history: str
    line: int
    op: str | None = None
    client: str | None = None
    n: int | None = None
    topic: str | None = None
    key: str | None = None
    attempt: int | None = None
    broker: str | None = None
    queue: int | None = None
    offset: int | None = None
    start_ms: int | None = None
    end_ms: int | None = None
    reason: str | None = None
    corrupt: str | None = None


def check_history(path: str) -> None:
    """Look whether a file is a history that can be read.

    Raises:
        ConfigInvalid: it is not there, is something else, or of a newer version.
    """
    try:
        with open(path, "rb") as file:
            first = file.readline(LINE_BYTES_MAX)
    except OSError as error:
        raise ConfigInvalid(f"{path}: {error.strerror or error}") from error
    try:
        header = decode_line(first)
    except RemoteProtocolError:
        header = None
    if not isinstance(header, Header):
        raise ConfigInvalid(f"{path}: no client history, for its first line does not say so")
    if header.version > FORMAT_VERSION:
        raise ConfigInvalid(
            f"{path}: history of version {header.version}; this release reads {FORMAT_VERSION}"
        )


def read_history(path: str, name: str) -> Iterator[Event]:
    """All lines behind the first; lines over ``LINE_BYTES_MAX`` in pieces that are told.

    Raises:
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        number = 0
        while line := file.readline(LINE_BYTES_MAX):
            number += 1
            event = _event(line, name, number)
            if event is not None:
                yield event


def _event(line: bytes, name: str, number: int) -> Event | None:
    if not line.endswith(b"\n"):
        return Event(name, number, corrupt="the line has no end")
    try:
        record = decode_line(line)
    except RemoteProtocolError as error:
        return Event(name, number, corrupt=str(error)[:200])
    if isinstance(record, Header):
        return None if number == 1 else Event(name, number, corrupt="a second header")
    return _row(record, name, number)


def _row(record: Record, name: str, number: int) -> Event:
    return Event(
        history=name,
        line=number,
        op=str(record.__struct_config__.tag),
        **{field: getattr(record, field) for field in record.__struct_fields__},
    )


class Attempt(Struct, frozen=True, order=True):
    """One attempt to send, by its start.

    Attributes:
        end_ms: None when its end is not known.
    """

    start_ms: int
    end_ms: int | None
    acked: bool


class Window(Struct, frozen=True):
    """A time in which senders tried and nothing was acknowledged.

    Attributes:
        start_ms: the first attempt that was not acknowledged in it began, or the last
            acknowledgement before it came while that attempt was under way.
        end_ms: the next acknowledgement; else when the last attempt was given up.
        attempts: that were under way in it.
        came_back: whether an acknowledgement ended it.
    """

    start_ms: int
    end_ms: int
    attempts: int
    came_back: bool


def windows(attempts: Iterable[Attempt], longer_than_ms: int) -> Iterator[Window]:
    """Times without an acknowledgement while attempts were made.

    A pause of the senders is none: when no attempt is under way for longer than
    ``longer_than_ms``, a window ends with the last that was.

    Args:
        attempts: of one topic, by ``start_ms``.
        longer_than_ms: shorter windows are not told.

    Raises:
        OverflowError: more than ``OPEN_ATTEMPTS_MAX`` attempts are under way at once.
    """
    watch = _Watch(longer_than_ms)
    for one in attempts:
        yield from watch.started(one)
    yield from watch.finished()


class _Watch:
    """Follows time over attempts that begin in order and end in any."""

    def __init__(self, longer_than_ms: int) -> None:
        self._longer_than_ms = longer_than_ms
        self._ends: list[tuple[int, bool]] = []
        self._begun: int | None = None
        self._attempts = 0
        self._last_ms = 0

    def started(self, one: Attempt) -> Iterator[Window]:
        yield from self._until(one.start_ms)
        idle = not self._ends and one.start_ms - self._last_ms > self._longer_than_ms
        if self._begun is not None and idle:
            yield from self._close(self._last_ms, came_back=False)
        if self._begun is None:
            self._begun, self._attempts = one.start_ms, 0
        self._attempts += 1
        self._last_ms = max(self._last_ms, one.start_ms)
        if one.end_ms is not None:
            heapq.heappush(self._ends, (max(one.end_ms, one.start_ms), one.acked))
        if len(self._ends) > OPEN_ATTEMPTS_MAX:
            raise OverflowError(f"more than {OPEN_ATTEMPTS_MAX} sends under way at once")

    def finished(self) -> Iterator[Window]:
        yield from self._until(None)
        if self._begun is not None:
            yield from self._close(self._last_ms, came_back=False)

    def _until(self, moment_ms: int | None) -> Iterator[Window]:
        """Let attempts end that did before a moment."""
        while self._ends and (moment_ms is None or self._ends[0][0] <= moment_ms):
            end_ms, acked = heapq.heappop(self._ends)
            self._last_ms = max(self._last_ms, end_ms)
            if acked:
                yield from self._close(end_ms, came_back=True)
                if self._ends:
                    # Others are under way: the wait for the next acknowledgement begins.
                    self._begun, self._attempts = end_ms, len(self._ends)

    def _close(self, end_ms: int, *, came_back: bool) -> Iterator[Window]:
        begun, self._begun = self._begun, None
        if begun is not None and end_ms - begun > self._longer_than_ms:
            yield Window(begun, end_ms, self._attempts, came_back)
