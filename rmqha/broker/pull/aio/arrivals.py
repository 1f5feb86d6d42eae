"""Who waits for messages of which queue: several may wait for one, each hears of its own."""

from __future__ import annotations

from collections.abc import Callable

from rmqha.broker.pull.held import Key
from rmqha.store.aio.message_store import MessageStore

Told = Callable[[list[Key]], None]


class Arrivals:
    """Tells of queues that have grown. The store watches only those that somebody waits for."""

    def __init__(self, store: MessageStore) -> None:
        self._watched = store.queues.watched
        self._told: dict[Key, dict[Told, None]] = {}
        store.dispatcher.on_arrived = self._arrived

    def watch(self, key: Key, told: Told) -> None:
        """Tell of a queue from now on; twice is once."""
        self._told.setdefault(key, {})[told] = None
        self._watched.add(key)

    def unwatch(self, key: Key, told: Told) -> None:
        """Tell no more."""
        those = self._told.get(key)
        if those is None:
            return
        those.pop(told, None)
        if not those:
            del self._told[key]
            self._watched.discard(key)

    def _arrived(self, keys: list[Key]) -> None:
        by_whom: dict[Told, list[Key]] = {}
        for key in keys:
            for told in self._told.get(key, ()):
                by_whom.setdefault(told, []).append(key)
        for told, grown in by_whom.items():
            told(grown)
