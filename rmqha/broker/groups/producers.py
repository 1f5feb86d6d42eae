"""Producer groups and their live channels: who can be asked what became of a transaction.

Source: ProducerManager of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rmqha.base.ids import ConnectionId
from rmqha.broker.groups.client_names import ClientNames
from rmqha.broker.groups.memberships import Client, Memberships


class ProducerTable:
    """The producers that are connected to this broker.

    Args:
        memberships_max: see ``Memberships``.
    """

    def __init__(self, memberships_max: int) -> None:
        self._members = Memberships(memberships_max)
        self._turns: dict[str, int] = {}
        self._names = ClientNames(memberships_max)

    @property
    def groups(self) -> list[str]:
        """The groups that have a producer, sorted."""
        return self._members.groups

    def clients(self, group: str) -> list[Client]:
        """A group's producers, oldest first."""
        return self._members.clients(group)

    def size(self, group: str) -> int:
        """How many producers a group has."""
        return self._members.size(group)

    def members(self, wall_ms: int, now_ms: int) -> dict[str, list[dict[str, str | int]]]:
        """All producers by group, as the answer to 328 shows them.

        Args:
            wall_ms: what the time is that the clock of heartbeats calls ``now_ms``.
        """
        seen_ms = self._members.seen_ms
        return {
            group: [
                {
                    "clientId": client.client_id,
                    "language": client.language,
                    "lastUpdateTimestamp": wall_ms - now_ms + seen_ms(group, client.connection),
                    "remoteIP": f"/{client.address}",
                    "version": client.version,
                }
                for client in self.clients(group)
            ]
            for group in self.groups
        }

    def register(self, now_ms: int, group: str, client: Client) -> bool:
        """Take a heartbeat; False when there is no room for one more membership."""
        if not self._members.has_room(group, client.connection):
            return False
        self._members.put(now_ms, group, client)
        self._names.heard(now_ms, client)
        return True

    def unregister(self, now_ms: int, group: str, connection: ConnectionId) -> bool:
        """A producer leaves its group; whether it was in it."""
        gone = self._members.drop(group, connection) is not None
        if not self._members.size(group):
            self._turns.pop(group, None)
        if not self._members.groups_of(connection):
            self._names.left(now_ms, connection)
        return gone

    def closed(self, now_ms: int, connection: ConnectionId) -> None:
        """A connection has ended."""
        for group in self._members.groups_of(connection):
            self.unregister(now_ms, group, connection)

    def expire(self, now_ms: int, count_max: int) -> list[ConnectionId]:
        """Forget so many of the silent; returns the connections to close, as Java does."""
        silent = self._members.expired(now_ms, count_max)
        for connection, group in silent:
            self.unregister(now_ms, group, connection)
        return list(dict.fromkeys(connection for connection, _ in silent))

    def turns(self, group: str) -> Iterator[Client]:
        """Each of a group's producers once, from that one on whose turn it is.

        Who takes one leaves the turn with the next. Producers that have gone meanwhile are left out.
        """
        clients = self._members.clients(group)
        turn = self._turns.get(group, 0)
        for at in range(turn, turn + len(clients)):
            client = clients[at % len(clients)]
            if self._members.get(group, client.connection) is not None:
                self._turns[group] = at + 1
                yield client

    def find(
        self, now_ms: int, client_id: str, is_enabled: Callable[[str], bool] = lambda _: True
    ) -> Client | None:
        """The newest connection of the producer that is ``client_id``, for its replies.

        Args:
            is_enabled: whether a user's signatures count.
        """
        return self._names.find(now_ms, client_id, is_enabled)
