"""Which entry of the live table goes when it is full, and who is heard in a broker set.

A stranger is a broker that is heard and not registered: anybody can claim to be one. Rules:
- Strangers take the places of dead strangers only.
- A registered broker takes the place of a dead stranger, a living one, or a dead broker, in this
  order. Where there is none, the table grows: the replicated state bounds how many are registered.

Source: our own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Generic, TypeVar

from rmqha.base.ids import BrokerId
from rmqha.controller.metadata.registrations import Identity

Entry = TypeVar("Entry")


class LiveRoom:
    """Who makes room for whom; every change is O(1)."""

    def __init__(self) -> None:
        # In the order of coming, and of dying. A plain dict steps over all that have left before it
        # comes to its first.
        self._strangers: OrderedDict[Identity, None] = OrderedDict()
        self._dead_strangers: OrderedDict[Identity, None] = OrderedDict()
        self._dead: OrderedDict[Identity, None] = OrderedDict()

    def added(self, identity: Identity, *, registered: bool) -> None:
        """An entry was made; it is alive in a moment."""
        if not registered:
            self._strangers[identity] = None

    def removed(self, identity: Identity) -> None:
        """An entry is gone."""
        for table in (self._strangers, self._dead_strangers, self._dead):
            table.pop(identity, None)

    def died(self, identity: Identity) -> None:
        """An entry's broker is dead."""
        dead = self._dead_strangers if identity in self._strangers else self._dead
        dead[identity] = None

    def woke(self, identity: Identity) -> None:
        """An entry's broker is alive."""
        self._dead_strangers.pop(identity, None)
        self._dead.pop(identity, None)

    def turned(self, identity: Identity, *, registered: bool) -> None:
        """An entry's broker was registered, or is so no more."""
        dead = identity in self._dead_strangers or identity in self._dead
        self.removed(identity)
        self.added(identity, registered=registered)
        if dead:
            self.died(identity)

    def victim(self, *, registered: bool) -> Identity | None:
        """Whose place a newcomer takes; None when nobody may go for it.

        Args:
            registered: of the newcomer.
        """
        tables = [self._dead_strangers]
        if registered:
            tables += [self._strangers, self._dead]
        return next((identity for table in tables for identity in table), None)


class HeardSets(Generic[Entry]):
    """The entries of the live table by broker set.

    A set is known from its first entry until its last one goes.
    """

    def __init__(self) -> None:
        self._sets: dict[tuple[str, str], tuple[int, dict[BrokerId, Entry]]] = {}

    def add(self, now_ms: int, identity: Identity, entry: Entry) -> None:
        """An entry was made."""
        cluster, name, broker_id = identity
        self._sets.setdefault((cluster, name), (now_ms, {}))[1][broker_id] = entry

    def remove(self, identity: Identity) -> None:
        """An entry is gone."""
        cluster, name, broker_id = identity
        members = self._sets[cluster, name][1]
        del members[broker_id]
        if not members:
            del self._sets[cluster, name]

    def members(self, cluster: str, name: str) -> Iterable[tuple[BrokerId, Entry]]:
        """The set's entries, in the order in which they were made."""
        found = self._sets.get((cluster, name))
        return () if found is None else found[1].items()

    def first_ms(self, cluster: str, name: str) -> int | None:
        """When the set was first heard; None when it is not known."""
        found = self._sets.get((cluster, name))
        return None if found is None else found[0]
