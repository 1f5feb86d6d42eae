"""Whose a producer's ``clientID`` is: anybody can call himself as another does.

A name is of the user who had it first. It stays his while he is away for a moment, for clients
come back after a cut; and it is no longer his when he is silent, or was switched off, for a client
may come back with another user.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from rmqha.base.ids import ConnectionId
from rmqha.broker.groups.memberships import CHANNEL_EXPIRED_MS, Client

SILENT_MS = 45_000
"""Clients send a heartbeat every 30 s: who has left one out may hang on a connection that is dead."""
USERS_SHARE = 8
"""One user keeps at most one of so many names that can be kept without a connection."""


class _Beat(NamedTuple):
    client: Client
    seen_ms: int


class ClientNames:
    """Of one broker's producers.

    Args:
        kept_max: names that are kept for users without a connection.
    """

    def __init__(self, kept_max: int) -> None:
        self._kept_max = kept_max
        self._beats: dict[ConnectionId, _Beat] = {}
        # Whose each name is, who had it first in front; and his connections by it. Who has none is
        # kept for a while.
        self._users: dict[str, dict[str, set[ConnectionId]]] = {}
        self._kept: OrderedDict[tuple[str, str], int] = OrderedDict()  # until when, soonest first
        self._kept_of: Counter[str] = Counter()

    def __len__(self) -> int:
        """How many names are of somebody."""
        return len(self._users)

    def heard(self, now_ms: int, client: Client) -> None:
        """A client says who it is."""
        self._expire(now_ms)
        name, user, connection = client.client_id, client.user, client.connection
        before = self._beats.get(connection)
        if before is not None and (before.client.client_id, before.client.user) != (name, user):
            # It calls itself otherwise, or is another user's: behind those that were there.
            self._take_off(before.client)
        self._beats[connection] = _Beat(client, now_ms)
        self._users.setdefault(name, {}).setdefault(user, set()).add(connection)
        self._unkeep(name, user)

    def left(self, now_ms: int, connection: ConnectionId) -> None:
        """A connection is no producer's any more."""
        self._expire(now_ms)
        beat = self._beats.pop(connection, None)
        if beat is None:
            return
        client = beat.client
        is_first = next(iter(self._users[client.client_id])) == client.user
        may_keep = is_first and now_ms - beat.seen_ms <= SILENT_MS and self._has_room(client.user)
        self._take_off(client, now_ms + CHANNEL_EXPIRED_MS if may_keep else None)

    def find(self, now_ms: int, name: str, is_enabled: Callable[[str], bool]) -> Client | None:
        """The newest connection of whose the name is; None while he is away."""
        self._expire(now_ms)
        enabled = [
            connections for user, connections in self._users.get(name, {}).items()
            if is_enabled(user)
        ]  # fmt: skip
        for connections in enabled:
            if not connections:
                return None
            if any(now_ms - self._beats[one].seen_ms <= SILENT_MS for one in connections):
                return self._newest(connections)
        return self._newest(enabled[0]) if enabled else None

    def _newest(self, connections: set[ConnectionId]) -> Client:
        return self._beats[max(connections)].client

    def _has_room(self, user: str) -> bool:
        """Whether a name is kept for a user; nobody's, as all are without permissions, never is."""
        has_room = len(self._kept) < self._kept_max
        return bool(user) and has_room and self._kept_of[user] < self._kept_max // USERS_SHARE

    def _take_off(self, client: Client, kept_until_ms: int | None = None) -> None:
        """A connection is no longer this user's by this name."""
        users = self._users[client.client_id]
        users[client.user].discard(client.connection)
        if users[client.user]:
            return
        if kept_until_ms is not None:
            self._kept[client.client_id, client.user] = kept_until_ms
            self._kept_of[client.user] += 1
        else:
            self._drop(client.client_id, client.user)

    def _drop(self, name: str, user: str) -> None:
        users = self._users[name]
        del users[user]
        if not users:
            del self._users[name]

    def _unkeep(self, name: str, user: str) -> None:
        if self._kept.pop((name, user), None) is not None:
            self._kept_of[user] -= 1
            if not self._kept_of[user]:
                del self._kept_of[user]

    def _expire(self, now_ms: int) -> None:
        """Names are free whose users have been away for too long."""
        while self._kept:
            (name, user), until_ms = next(iter(self._kept.items()))
            if until_ms > now_ms:
                break
            self._unkeep(name, user)
            self._drop(name, user)
