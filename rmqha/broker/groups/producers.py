"""Producer groups and their live channels: who can be asked what became of a transaction.

Source: ProducerManager of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

from collections.abc import Callable

from rmqha.base.ids import ConnectionId
from rmqha.broker.groups.memberships import Client, Memberships


class ProducerTable:
    """The producers that are connected to this broker.

    Args:
        memberships_max: see ``Memberships``.
    """

    def __init__(self, memberships_max: int) -> None:
        self._members = Memberships(memberships_max)
        self._turns: dict[str, int] = {}
        # The connections of each client, in the order in which they said that they are its, and how
        # it calls itself on each of them.
        self._of_client: dict[str, dict[ConnectionId, Client]] = {}
        self._client_of: dict[ConnectionId, str] = {}

    @property
    def groups(self) -> list[str]:
        """The groups that have a producer, sorted."""
        return self._members.groups

    def clients(self, group: str) -> list[Client]:
        """A group's producers, oldest first."""
        return self._members.clients(group)

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
        if self._client_of.get(client.connection) != client.client_id:
            self._forget(client.connection)
            self._client_of[client.connection] = client.client_id
        connections = self._of_client.setdefault(client.client_id, {})
        known = connections.get(client.connection)
        if known is not None and known.user != client.user:
            del connections[client.connection]  # another user's: behind those that were there
        connections[client.connection] = client
        return True

    def unregister(self, group: str, connection: ConnectionId) -> bool:
        """A producer leaves its group; whether it was in it."""
        gone = self._members.drop(group, connection) is not None
        if not self._members.size(group):
            self._turns.pop(group, None)
        if not self._members.groups_of(connection):
            self._forget(connection)
        return gone

    def _forget(self, connection: ConnectionId) -> None:
        """A connection is no producer's, or another one's than before."""
        client_id = self._client_of.pop(connection, None)
        if client_id is None:
            return
        connections = self._of_client[client_id]
        del connections[connection]
        if not connections:
            del self._of_client[client_id]

    def closed(self, connection: ConnectionId) -> None:
        """A connection has ended."""
        for group in self._members.groups_of(connection):
            self.unregister(group, connection)

    def expire(self, now_ms: int, count_max: int) -> list[ConnectionId]:
        """Forget so many of the silent; returns the connections to close, as Java does."""
        silent = self._members.expired(now_ms, count_max)
        for connection, group in silent:
            self.unregister(group, connection)
        return list(dict.fromkeys(connection for connection, _ in silent))

    def pick(
        self, group: str, may_take: Callable[[Client], bool] = lambda _: True
    ) -> Client | None:
        """One of a group's producers, in turn; None when there is none.

        Args:
            may_take: whether one may have what the group is asked about. Whoever says so is a
                member of a producer group, for groups of producers need no permission.
        """
        clients = self._members.clients(group)
        turn = self._turns.get(group, 0)
        for at in range(turn, turn + len(clients)):
            client = clients[at % len(clients)]
            if may_take(client):
                self._turns[group] = at + 1
                return client
        return None

    def find(self, client_id: str) -> Client | None:
        """The newest connection of a producer that calls itself ``client_id``, for its replies.

        A name is of the user who had it first, for as long as a connection of his is open: anybody
        can call himself as another does, and would be given the replies to him.
        """
        connections = self._of_client.get(client_id)
        if connections is None:
            return None
        user = next(iter(connections.values())).user
        return connections[max(one for one, client in connections.items() if client.user == user)]
