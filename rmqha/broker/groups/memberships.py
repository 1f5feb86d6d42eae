"""Which client speaks for which group on which connection; producers and consumers share the rules.

A membership lives as long as its connection, and at most ``CHANNEL_EXPIRED_MS`` after its last
heartbeat. What the members of a group are for is decided next door (``producers.py``,
``consumers.py``).

Source: ClientChannelInfo, ProducerManager and ConsumerManager of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from rmqha.base.ids import ConnectionId

CHANNEL_EXPIRED_MS = 120_000
"""Java's limit: a client that has not sent a heartbeat for so long is gone."""


class Client(NamedTuple):
    """One client on one connection.

    Attributes:
        client_id: what it calls itself; the same on all its connections.
        address: ``host:port`` of its end of the connection.
        user: who signed its heartbeat; empty where permissions are not looked at.
    """

    connection: ConnectionId
    client_id: str
    language: str
    version: int
    address: str
    user: str = ""

    def members(self) -> dict[str, str | int]:
        """The JSON members of an entry of ``connectionSet``."""
        return {
            "clientAddr": self.address,
            "clientId": self.client_id,
            "language": self.language,
            "version": self.version,
        }


class Memberships:
    """Clients by group and connection, oldest first.

    Args:
        memberships_max: of all groups together; whoever comes later is refused.
    """

    def __init__(self, memberships_max: int) -> None:
        self._max = memberships_max
        self._groups: dict[str, dict[ConnectionId, Client]] = {}
        # The longest silent first.
        self._seen_ms: OrderedDict[tuple[ConnectionId, str], int] = OrderedDict()
        self._of_connection: dict[ConnectionId, dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._seen_ms)

    @property
    def groups(self) -> list[str]:
        """The groups that have a member, sorted."""
        return sorted(self._groups)

    def clients(self, group: str) -> list[Client]:
        """A group's members."""
        return list(self._groups.get(group, {}).values())

    def size(self, group: str) -> int:
        """How many members a group has."""
        return len(self._groups.get(group, ()))

    def get(self, group: str, connection: ConnectionId) -> Client | None:
        """A group's member on a connection."""
        return self._groups.get(group, {}).get(connection)

    def seen_ms(self, group: str, connection: ConnectionId) -> int:
        """When a member sent its last heartbeat."""
        return self._seen_ms[connection, group]

    def groups_of(self, connection: ConnectionId) -> list[str]:
        """The groups that a connection speaks for."""
        return list(self._of_connection.get(connection, {}))

    def has_room(self, group: str, connection: ConnectionId) -> bool:
        """Whether a membership exists, or one more may."""
        return (connection, group) in self._seen_ms or len(self._seen_ms) < self._max

    def put(self, now_ms: int, group: str, client: Client) -> bool:
        """Take a sign of life; whether the membership is a new one."""
        members = self._groups.setdefault(group, {})
        is_new = client.connection not in members
        members[client.connection] = client
        self._seen_ms[client.connection, group] = now_ms
        self._seen_ms.move_to_end((client.connection, group))
        self._of_connection.setdefault(client.connection, {})[group] = None
        return is_new

    def drop(self, group: str, connection: ConnectionId) -> Client | None:
        """End one membership; returns who it was."""
        members = self._groups.get(group, {})
        client = members.pop(connection, None)
        if client is None:
            return None
        if not members:
            del self._groups[group]
        del self._seen_ms[connection, group]
        groups = self._of_connection[connection]
        del groups[group]
        if not groups:
            del self._of_connection[connection]
        return client

    def expired(self, now_ms: int, count_max: int) -> list[tuple[ConnectionId, str]]:
        """Memberships that were silent for too long, the longest silent first."""
        limit = now_ms - CHANNEL_EXPIRED_MS
        found: list[tuple[ConnectionId, str]] = []
        for pair, seen_ms in self._seen_ms.items():
            if seen_ms >= limit or len(found) >= count_max:
                break
            found.append(pair)
        return found
