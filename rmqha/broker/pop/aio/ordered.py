"""Groups that pop in order: the table of what is in flight, its file, and who is told when it ends."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any

from rmqha.base.errors import MessageIllegal
from rmqha.broker.common.aio.config_file import ConfigFile, content_of
from rmqha.broker.pop.order import AckOutcome, Key, OrderTable
from rmqha.broker.pop.request import AckRequest, PopRequest
from rmqha.broker.pull.aio.ports import Broker
from rmqha.runtime.ports import Disk, TimerHandle


class OrderedPops:
    """Of one broker.

    Attributes:
        table: what is in flight.
        file: ``config/consumerOrderInfo.json``.
        on_free: told the topic and the queue that may be popped again.
    """

    def __init__(self, broker: Broker, disk: Disk) -> None:
        config = broker.config
        self._broker = broker
        self._queues_max = config.integer("popOrderQueuesMax")
        self.table = OrderTable(self._queues_max)
        path = config.store.path("config", "consumerOrderInfo.json")
        self.file = ConfigFile(
            disk, broker.clock, path, content_of(self._members), broker.troubles,
            period_ms=config.integer("flushConsumerOffsetInterval"),
        )  # fmt: skip
        self.on_free: Callable[[str, int], None] = _nobody
        self._timers: dict[Key, TimerHandle] = {}

    async def load(self) -> None:
        """Read the file; raises as ``ConfigFile.read``."""
        await self.file.read(self.table.load)

    def close(self) -> None:
        """Tell nobody any more."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    # -- pops --------------------------------------------------------------------------------------

    def is_blocked(self, key: Key, pop: PopRequest) -> bool:
        """Whether a pop gets nothing of a queue now; then the end of that is watched for.

        Raises:
            MessageIllegal: what it would get could not be remembered.
        """
        if self._blocked_until(key, pop.attempt_id) > self._broker.clock.wall_ms():
            self._watch(key)
            return True
        if not self.table.has_room(key) and not self._clean():
            raise MessageIllegal(f"popOrderQueuesMax={self._queues_max} queues are popped in order")
        return False

    def _blocked_until(self, key: Key, attempt_id: str | None = None) -> int:
        return self.table.blocked_until(key, attempt_id, kept=self._kept(key))

    def _kept(self, key: Key) -> int | None:
        topic, group, queue_id = key
        return self._broker.offsets.table.query(group, topic, queue_id)

    def handed(self, key: Key, pop: PopRequest, pop_ms: int, offsets: Sequence[int]) -> str:
        """Messages go out; their part of ``orderCountInfo``."""
        counts = self.table.handed(key, pop.attempt_id, pop_ms, pop.invisible_ms, offsets)
        self._changed(key)
        return counts

    def forget(self, key: Key) -> None:
        """The group was moved by an operator."""
        self.table.forget(key)
        self._changed(key)

    def ended(self, topics: Container[str], groups: Container[str]) -> None:
        """Topics and groups are gone: nothing of theirs is in flight any more."""
        for key in self.table.of_ended(topics, groups):
            self.forget(key)

    # -- acknowledgements --------------------------------------------------------------------------

    def acknowledge(self, key: Key, offset: int, pop_ms: int) -> AckOutcome:
        """A message is done; the group's offset follows."""
        topic, group, queue_id = key
        offsets, wall_ms = self._broker.offsets, self._broker.clock.wall_ms()
        acked = self.table.acknowledge(key, offset, pop_ms, self._kept(key))
        if acked.next_offset is not None:
            if offsets.table.commit(group, topic, queue_id, acked.next_offset, wall_ms):
                offsets.changed()
            self._changed(key)
        return acked

    def change(self, ack: AckRequest) -> int | None:
        """Another invisible time; when the message is visible again, None if it is done."""
        key = (ack.topic, ack.consumer_group, ack.queue_id)
        kept = self._kept(key)
        if kept is not None and ack.offset < kept:
            return None
        visible_ms = self._broker.clock.wall_ms() + ack.invisible_ms
        if self.table.change(key, ack.offset, ack.key.pop_ms, visible_ms):
            self._changed(key)
        return visible_ms

    # -- who waits ---------------------------------------------------------------------------------

    def _changed(self, key: Key) -> None:
        self.file.changed()
        self._watch(key)

    def _watch(self, key: Key) -> None:
        """Tell when a queue may be popped again: soon, or when its time is over."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        clock = self._broker.clock
        # Never from within: whoever changed something is not done with it yet.
        left_ms = max(0, self._blocked_until(key) - clock.wall_ms())
        self._timers[key] = clock.call_later(left_ms, lambda: self._free(key))

    def _free(self, key: Key) -> None:
        self._timers.pop(key, None)
        topic, _, queue_id = key
        self.on_free(topic, queue_id)

    # -- the file ----------------------------------------------------------------------------------

    def _members(self) -> dict[str, Any]:
        self._clean()
        return self.table.members()

    def _clean(self) -> int:
        return self.table.clean(self._broker.clock.wall_ms(), self._exists)

    def _exists(self, key: Key) -> bool:
        topic, group, queue_id = key
        known = self._broker.topics.table.get(topic)
        return (
            known is not None
            and queue_id < known.read_queue_nums
            and self._broker.groups.table.get(group) is not None
        )


def _nobody(topic: str, queue_id: int) -> None:
    """The callback where nobody waits."""
