"""What all connections of a server keep in memory together: frames that are not whole, answers that
nobody reads. Each connection has limits of its own; thousands of them together had none."""

from __future__ import annotations

from collections import Counter
from heapq import heapify, heappop, heapreplace
from itertools import islice
from typing import Protocol

from rmqha.base.errors import ConnectionLost

FLOORS_BYTES = (64 * 1024, 4 * 1024, 1)
"""A connection that keeps less than the first is not counted: honest ones do so all the time. Where so
many are open that all that are not counted could keep half of the limit together, the next one holds."""

SPARE_CONNECTIONS = 2
"""A larger floor comes back when it would do for so many times as many connections."""


SPARE_PART = 64
"""So small a part of the limit is made free at a time."""

LOOKS = 16
"""So many connections are counted anew before one of them is closed."""


class Holder(Protocol):
    """A connection that keeps bytes."""

    @property
    def host(self) -> str:
        """The address of its peer."""

    @property
    def kept_bytes(self) -> int:
        """What it keeps by now, which may be less than it has told."""

    def abort(self, error: Exception | None = None) -> None:
        """Close now; what it keeps is given up."""


class Room:
    """The room of one server.

    When it is used up, the connection is closed that keeps most of those of the address that keeps
    most: a thousand connections that keep a little each are not better than one that keeps much.

    Args:
        limit_bytes: for all connections together that keep as much as ``floor_bytes``; all others
            have half of it at most.

    Attributes:
        held_bytes: what is kept at present by those that are counted.
        floor_bytes: who keeps less is not counted at present.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._held: dict[str, dict[Holder, int]] = {}
        self._of_host: Counter[str] = Counter()
        self.held_bytes = 0
        self.floor_bytes = FLOORS_BYTES[0]

    def crowd(self, connections: int) -> bool:
        """So many connections are open; tells whether the others have to be counted anew.

        Whoever is not counted says nothing until something comes or goes.
        """
        most, at = self._limit_bytes // 2, FLOORS_BYTES.index(self.floor_bytes)
        if connections * self.floor_bytes > most and at + 1 < len(FLOORS_BYTES):
            self.floor_bytes = FLOORS_BYTES[at + 1]
            self.crowd(connections)
            return True
        if at and SPARE_CONNECTIONS * connections * FLOORS_BYTES[at - 1] <= most:
            self.floor_bytes = FLOORS_BYTES[at - 1]
        return False

    def hold(self, holder: Holder, size: int) -> None:
        """A connection keeps so many bytes now."""
        self._keep(holder, size)
        while self.held_bytes > self._limit_bytes:
            if not self._look_again(max(self._of_host, key=self._of_host.__getitem__)):
                self._close_largest()

    def _close_largest(self) -> None:
        """Close connections until a little more than what is needed is free.

        To find the largest takes a look at all of them: each new one of a crowd would cost that.
        """
        enough_bytes = self._limit_bytes - self._limit_bytes // SPARE_PART
        hosts = [(-size, host) for host, size in self._of_host.items()]
        heapify(hosts)
        by_size: dict[str, list[Holder]] = {}
        while self.held_bytes > enough_bytes:
            host = hosts[0][1]
            if host not in by_size:
                held = self._held[host]
                by_size[host] = sorted(held, key=held.__getitem__)
            largest = by_size[host].pop()
            self._keep(largest, 0)
            text = f"all connections together keep over {self._limit_bytes} bytes"
            largest.abort(ConnectionLost(text, "room"))
            if host in self._of_host:
                heapreplace(hosts, (-self._of_host[host], host))
            else:
                heappop(hosts)

    def _look_again(self, host: str) -> bool:
        """Count those anew that said something longest ago; tells whether any keeps less by now.

        Of what a peer reads nobody hears, where so little waits that its connection is not paused.
        """
        before_bytes = self.held_bytes
        for holder in list(islice(self._held[host], LOOKS)):
            self._keep(holder, min(holder.kept_bytes, self._held[host][holder]))
        return self.held_bytes < before_bytes

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
