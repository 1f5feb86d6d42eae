"""Connections that bring much are read in turn, so that those that bring little wait for nobody.

A loop reads from a socket as long as there is something, up to megabytes at a time: eight
connections that only send would keep everybody else waiting for hundreds of milliseconds, heartbeats
and controllers' own messages too. So a connection that has brought a large chunk is not read until
its turn comes again, and each turn of the loop lets one of them go on, of each address in turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

LARGE_BYTES = 32 * 1024
"""A chunk of this size waits its turn; a thousand heartbeats have some 300 KiB."""

TURN_BYTES = 256 * 1024
"""Once all connections together have brought so much in a turn, ``SMALL_BYTES`` count as large."""

COUNTED_BYTES = TURN_BYTES // 2
"""From here on turns are told apart: less than that comes in several turns of a busy loop, and to
be called in each of them costs a controller some of its rate."""

SMALL_BYTES = 2 * 1024
"""What is shorter is always heard at once."""

FULL_S = 0.002
"""Until a server that had enough to do is asked again."""


class Reader(Protocol):
    """A connection that can wait."""

    @property
    def host(self) -> str:
        """The address of its peer."""

    def hold(self) -> None:
        """Read nothing until told to go on."""

    def go_on(self) -> None:
        """Read whatever comes next."""


class Turns:
    """The order in which a server reads its connections.

    Args:
        is_full: whether so many requests wait for their answers that no more are wanted from
            connections that bring much.

    Attributes:
        held: how often a connection had to wait.
    """

    def __init__(self, is_full: Callable[[], bool] = bool) -> None:
        self._is_full = is_full
        self._bytes = 0
        self._is_marked = False
        self._waiting: dict[str, deque[Reader]] = {}
        self._is_scheduled = False
        self.held = 0

    def took(self, reader: Reader, size: int) -> None:
        """A connection has brought a chunk of so many bytes, and it is dealt with."""
        self._bytes += size
        if size < SMALL_BYTES:
            return
        if size < LARGE_BYTES and self._bytes < TURN_BYTES:
            self._mark()
            return
        self.wait(reader)

    def wait(self, reader: Reader) -> None:
        """A connection has to wait for its turn."""
        self.held += 1
        reader.hold()
        self._waiting.setdefault(reader.host, deque()).append(reader)
        self._schedule()

    def _mark(self) -> None:
        """Have the count begin anew with the next turn."""
        if not self._is_marked and self._bytes >= COUNTED_BYTES:
            self._is_marked = True
            asyncio.get_running_loop().call_soon(self._begin_turn)

    def _begin_turn(self) -> None:
        self._is_marked = False
        self._bytes = 0

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        """One that waits may go on; the next one after the loop has looked at all others."""
        self._is_scheduled = False
        self._bytes = 0
        if self._waiting and self._is_full():
            self._is_scheduled = True
            asyncio.get_running_loop().call_later(FULL_S, self._next)
            return
        host = next(iter(self._waiting), None)
        if host is None:
            return
        readers = self._waiting.pop(host)
        reader = readers.popleft()
        if readers:
            self._waiting[host] = readers  # behind the other addresses
        try:
            reader.go_on()
        finally:  # whatever it raised is its own: the others wait for their turns
            if self._waiting:
                self._schedule()
