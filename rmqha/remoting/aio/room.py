"""What all connections of a server keep in memory together: frames that are not whole, answers that
nobody reads. Each connection has limits of its own; thousands of them together had none."""

from __future__ import annotations

from typing import Protocol

from rmqha.base.errors import ConnectionLost

HELD_BYTES_MIN = 64 * 1024
"""A connection that keeps less is not counted: honest ones do so all the time."""


class Holder(Protocol):
    """A connection that keeps bytes."""

    def abort(self, error: Exception | None = None) -> None:
        """Close now; what it keeps is given up."""


class Room:
    """The room of one server; who keeps most is closed when it is used up.

    Args:
        limit_bytes: for all connections together.

    Attributes:
        held_bytes: what is kept at present.
        closed_count: connections that were closed for it.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._held: dict[Holder, int] = {}
        self.held_bytes = 0
        self.closed_count = 0

    def hold(self, holder: Holder, size: int) -> None:
        """A connection keeps so many bytes now."""
        self.held_bytes += size - self._held.pop(holder, 0)
        if size:
            self._held[holder] = size
        while self.held_bytes > self._limit_bytes:
            largest = max(self._held, key=self._held.__getitem__)
            self.held_bytes -= self._held.pop(largest)
            self.closed_count += 1
            largest.abort(
                ConnectionLost(f"all connections together keep over {self._limit_bytes} bytes")
            )
