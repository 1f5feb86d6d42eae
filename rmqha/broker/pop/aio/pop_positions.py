"""Where each group's next pop begins: found, moved, and kept once check points are safe.

What may be kept when is decided in ``broker/pop/offsets.py``, and where a group begins that has no
offset in ``broker/pop/queue_choice.py``.
"""

from __future__ import annotations

from collections.abc import Container

from rmqha.broker.deferred.aio.master_services import MasterServices
from rmqha.broker.pop.aio.ordered import OrderedPops
from rmqha.broker.pop.offsets import Key, PopOffsets
from rmqha.broker.pop.queue_choice import begins_with_oldest, known_offset, newest_start
from rmqha.broker.pull.aio.ports import Broker
from rmqha.ha.events import Role

SETTLE_PAUSE_MS = 50


class PopPositions:
    """Of all groups of one broker."""

    def __init__(self, broker: Broker, services: MasterServices, orders: OrderedPops) -> None:
        self._broker = broker
        self._writer = services.writer
        self._orders = orders
        self._offsets = PopOffsets()
        self._settling = False

    def popped_to(self, key: Key) -> int | None:
        """Where the next pop of a queue begins; None where the kept offset says so."""
        return self._offsets.at(key)

    def clear(self) -> None:
        """A role was taken up: kept offsets count again."""
        self._offsets.clear()

    def ended(self, topics: Container[str], groups: Container[str]) -> None:
        """Topics and groups are gone: what was popped of them moves nobody any more."""
        self._offsets.ended(topics, groups)

    def next_offset(self, key: Key, init_mode: int) -> int:
        """Where this pop begins: where an operator wants it, where the last one ended, or anew."""
        group, topic, queue_id = key
        moved = self._broker.offsets.table.take_reset(group, topic, queue_id)
        if moved is not None:
            self._orders.forget((topic, group, queue_id))
            self.set(key, moved)
            return moved
        known = self._known(key)
        if known is not None:
            return known
        first = self._first(topic, queue_id, init_mode)
        self._keep(key, first)
        return first

    def would_begin(self, key: Key, init_mode: int) -> int:
        """The same for who only asks whether there is something: nothing is kept of it."""
        group, topic, queue_id = key
        moved = self._broker.offsets.table.pending_reset(group, topic, queue_id)
        known = self._known(key) if moved is None else moved
        return self._first(topic, queue_id, init_mode) if known is None else known

    def _known(self, key: Key) -> int | None:
        return known_offset(self._offsets.at(key), self._broker.offsets.table.query(*key))

    def set(self, key: Key, offset: int) -> None:
        """Go on somewhere else; what was popped before moves the group no more."""
        self._offsets.reset(key)
        self._keep(key, offset)

    def move(self, key: Key, offset: int, end: int) -> None:
        """A pop has passed everything before ``offset``; its check point ends at ``end`` or is none."""
        if self._offsets.moved(key, offset, end):
            self._keep(key, offset)
        elif not self._settling:
            self._settling = True
            self._broker.tasks.start(self._settle(), name="pop offsets")

    def _first(self, topic: str, queue_id: int, init_mode: int) -> int:
        """Where a group begins that has no offset."""
        store = self._broker.store
        low = max(0, store.reader.min_offset(topic, queue_id))
        if begins_with_oldest(topic, init_mode):
            return low
        place_of_first = store.pulling.place(topic, queue_id, 0)
        lag = None if place_of_first is None else store.max_offset - place_of_first
        high = store.reader.max_offset(topic, queue_id)
        return newest_start(low, high, lag, self._broker.near_bytes)

    def _keep(self, key: Key, offset: int) -> None:
        offsets = self._broker.offsets
        if offsets.table.commit(*key, offset, self._broker.clock.wall_ms()):
            offsets.changed()

    async def _settle(self) -> None:
        """Keep offsets as their check points become safe; raises DiskFailed."""
        broker, offsets = self._broker, self._offsets
        try:
            while len(offsets) and broker.role is Role.MASTER:
                end = offsets.end
                if not await self._writer.settle(end):
                    await broker.clock.sleep(SETTLE_PAUSE_MS)
                    continue
                for key, offset in offsets.settled(end):
                    self._keep(key, offset)
        finally:
            self._settling = False
