"""What all connections of a server keep in memory together: frames that are not whole, answers that
nobody reads. Each connection has limits of its own; thousands of them together had none."""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from rmqha.base.errors import ConnectionLost

HELD_BYTES_MIN = 64 * 1024
"""A connection that keeps less is not counted: honest ones do so all the time."""


class Holder(Protocol):
    """A connection that keeps bytes."""

    @property
    def host(self) -> str:
        """The address of its peer."""

    def abort(self, error: Exception | None = None) -> None:
        """Close now; what it keeps is given up."""


class Room:
    """The room of one server.

    When it is used up, the connection is closed that keeps most of those of the address that keeps
    most: a thousand connections that keep a little each are not better than one that keeps much.

    Args:
        limit_bytes: for all connections together.

    Attributes:
        held_bytes: what is kept at present.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._held: dict[str, dict[Holder, int]] = {}
        self._of_host: Counter[str] = Counter()
        self.held_bytes = 0

    def hold(self, holder: Holder, size: int) -> None:
        """A connection keeps so many bytes now."""
        self._keep(holder, size)
        while self.held_bytes > self._limit_bytes:
            greedy = max(self._of_host, key=self._of_host.__getitem__)
            largest = max(self._held[greedy], key=self._held[greedy].__getitem__)
            self._keep(largest, 0)
            text = f"all connections together keep over {self._limit_bytes} bytes"
            largest.abort(ConnectionLost(text, "room"))

    def _keep(self, holder: Holder, size: int) -> None:
        host = holder.host
        held = self._held.setdefault(host, {})
        change = size - held.pop(holder, 0)
        if size:
            held[holder] = size
        self.held_bytes += change
        self._of_host[host] += change
        if not held:
            del self._held[host], self._of_host[host]
