"""Delivers once more what was popped and not acknowledged in time.

It runs while this broker is a serving master, and reads all queues of the revive topic.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from rmqha.base.errors import MessageIllegal, RemoteProtocolError
from rmqha.broker.common.aio.writer import Writer
from rmqha.broker.common.refusal import Refusal
from rmqha.broker.deferred.aio.timer_service import TimerService
from rmqha.broker.deferred.delays import DelayRules, place
from rmqha.broker.pop.check_points import (
    REVIVE_GROUP,
    REVIVE_TOPIC,
    Acks,
    CheckPoint,
    Due,
    ReviveQueue,
    read_record,
)
from rmqha.broker.pull.aio.ports import Broker
from rmqha.broker.topics.topic_table import TopicConfig
from rmqha.remoting.topic_names import retry_topic_of
from rmqha.runtime.logs import Logger
from rmqha.store import properties as props
from rmqha.store.aio.cold_reads import NotInMemory
from rmqha.store.aio.record_walk import LOOKS_A_TURN, RecordWalk, places
from rmqha.store.aio.room import Stretch
from rmqha.store.record import Message, Record, pack_host

LOOK_MS = 200
REVIVE_MAX = 64
"""Check points whose rest is written at once."""

PUT_OFF_MS = 60_000
"""Until messages are tried once more whose retry topic could not be made."""

FIRST_POP_TIME = b"1ST_POP_TIME"


class ReviveService:
    """Revives messages that nobody acknowledged.

    Attributes:
        revived: how many since the start.
    """

    def __init__(
        self, broker: Broker, writer: Writer, timers: TimerService, rules: DelayRules, log: Logger
    ) -> None:
        config = broker.config
        self._broker = broker
        self._writer = writer
        self._timers = timers
        self._rules = rules
        self._log = log
        self._topic = REVIVE_TOPIC + config.cluster_name
        self._own_name = config.broker_name
        self._host = pack_host(config.host, config.port)
        self._open_max = config.integer("popCheckPointsMax")
        self._queues: list[ReviveQueue] = []
        self._walk = RecordWalk(broker.store)
        self.revived = 0

    @property
    def open_count(self) -> int:
        """Check points that have been read and wait for the last acknowledgements."""
        return sum(len(queue) for queue in self._queues)

    async def run(self) -> None:
        """Revive until cancelled.

        Raises:
            DiskFailed: the store has stopped.
        """
        count = self._broker.config.integer("reviveQueueNum")
        self._queues = [self._begin(number) for number in range(count)]
        self._walk = RecordWalk(self._broker.store)
        while True:
            # Taken before the queues are read: they hold everything that was due by then.
            delivered_ms = self._timers.delivered_ms
            more = False
            for number, queue in enumerate(self._queues):
                is_unread = await self._walk.turns(partial(self._read, number, queue))
                if is_unread and not queue.is_full:
                    more = True
                    continue
                if self._writer.is_open:
                    more = await self._revive_due(queue, delivered_ms) or more
                    self._keep(number, queue)
                # In one that is full still nothing was over, and nothing can be read before.
                more = more or (is_unread and not queue.is_full)
            waited = await self._walk.fetch()
            await self._broker.clock.sleep(0 if more or waited else LOOK_MS)

    def _begin(self, number: int) -> ReviveQueue:
        kept = self._broker.offsets.table.query(REVIVE_GROUP, self._topic, number)
        store = self._broker.store
        low = store.reader.min_offset(self._topic, number)
        # An offset beyond the queue would pass over all that is to come. What the dispatcher has not
        # come to counts: it was read before.
        end = store.queues.next_offsets[self._topic.encode(), number]
        first = 0 if kept is None else min(kept + 1, end)
        # The maximum is shared, so that no queue starves the others.
        count = self._broker.config.integer("reviveQueueNum")
        return ReviveQueue(max(first, low, 0), max(1, self._open_max // count))

    def _read(self, number: int, queue: ReviveQueue) -> bool:
        """Read stored records; whether there may be more."""
        reader = self._broker.store.reader
        high = reader.max_offset(self._topic, number)
        for _ in range(LOOKS_A_TURN):
            if queue.position >= high:
                return False
            if queue.is_full:
                return True
            unit = reader.unit(self._topic, number, queue.position)
            try:
                record = None if unit is None else self._walk.look(unit.physical_offset)
            except NotInMemory:
                self._walk.ahead(places(reader, self._topic, number, queue.position))
                return True
            if record is None:
                queue.skip(max(queue.position + 1, reader.min_offset(self._topic, number)))
            else:
                queue.add(self._understood(record), record.store_timestamp)
        return True

    def _understood(self, record: Record) -> CheckPoint | Acks | None:
        reason = "of no kind that is known"
        try:
            found = read_record(record.properties, record.body, self._own_name)
        except RemoteProtocolError as error:
            found, reason = None, str(error)
        if found is None:
            self._skipped("revive_record_illegal", record.physical_offset, reason)
        return found

    def _skipped(self, event: str, offset: int, reason: str) -> None:
        self._broker.statistics.records_skipped += 1
        self._log.log("error", event, offset=offset, reason=reason)

    async def _revive_due(self, queue: ReviveQueue, delivered_ms: int) -> bool:
        """Write what is left of check points that are over, which are done when that is safe.

        Returns:
            Whether there may be more.
        """
        due = queue.due(delivered_ms, REVIVE_MAX)
        written: list[Due] = []
        end, more = await self._writer.batches(
            lambda stretch: self._revive_some(due, written, stretch)
        )
        while end and not await self._writer.settle(end):
            await self._broker.clock.sleep(LOOK_MS)
        for one in written:
            queue.done(one)
        return more or len(written) == REVIVE_MAX

    def _revive_some(
        self, found: list[Due], written: list[Due], stretch: Stretch
    ) -> tuple[int, bool]:
        """Write what is left of check points, as far as there is room.

        Args:
            written: those of ``found`` of which nothing is left, from its begin; more are added.

        Returns:
            Where the last record ends that was written, 0 for none; and whether there was no room
            for more.
        """
        end = 0
        if not self._writer.is_open:
            return end, False
        for due in found[len(written) :]:
            try:
                end = max(end, self._revive(due, stretch))
            except NotInMemory:
                left = found[len(written) :]
                self._walk.ahead(place for one in left for place in self._places(one))
                break
            if stretch.refused:
                break
            written.append(due)
        return end, stretch.refused > 0

    def _places(self, due: Due) -> Iterator[int]:
        """Where the messages are that are left of a check point."""
        reader, point = self._broker.store.reader, due.point
        for offset in due.offsets:
            unit = reader.unit(point.topic, point.queue_id, offset)
            if unit is not None and point.holds(unit.physical_offset):
                yield unit.physical_offset

    def _revive(self, due: Due, stretch: Stretch) -> int:
        """Write the messages once more, if there is room; where the last one ends, 0 for none.

        Raises:
            NotInMemory: one of them is not; none is written then.
        """
        point, broker = due.point, self._broker
        if not due.offsets:
            return 0
        # A slave that took over may not have copied a young topic or group yet: what can be read
        # is delivered.
        group = broker.groups.find(point.group, may_write=True)
        if group is None or point.broker_name != self._own_name:
            self._log.log(
                "warning", "check_point_dropped", topic=point.topic, group=point.group,
                broker=point.broker_name, messages=len(due.offsets),
            )  # fmt: skip
            return 0
        records = [(offset, self._popped(point, offset)) for offset in due.offsets]
        found = [(offset, record) for offset, record in records if record is not None]
        if found and not stretch.takes(sum(one.size for _, one in found), len(found)):
            return 0
        if len(found) < len(records):
            gone = [offset for offset, record in records if record is None]
            self._log.log("warning", "popped_messages_gone", topic=point.topic, offsets=gone)
        if not found:
            return 0
        topic = self._retry_topic(point)
        if topic is None:
            return self._put_off(point._replace(offsets=tuple(offset for offset, _ in found)))
        return max(self._write(point, offset, record, topic) for offset, record in found)

    def _put_off(self, point: CheckPoint) -> int:
        """Write a check point once more, which is over later; where that ends.

        Nobody looks for messages in a retry topic that there is not, and the check points behind this
        one are not to wait until it can be made.
        """
        wall_ms = self._broker.clock.wall_ms()
        later = point._replace(
            invisible_ms=max(0, wall_ms + PUT_OFF_MS - point.pop_ms), repeated=point.repeated + 1
        )
        self._log.log(
            "warning", "revival_put_off", topic=point.topic, group=point.group,
            messages=len(point.offsets), times=later.repeated,
        )  # fmt: skip
        message = later.message(self._topic, 0, self._host, wall_ms)
        placed = place(message, self._rules, wall_ms)
        # Without timers it waits in the revive topic itself.
        return self._writer.append(message if isinstance(placed, Refusal) else placed).end

    def _popped(self, point: CheckPoint, offset: int) -> Record | None:
        unit = self._broker.store.reader.unit(point.topic, point.queue_id, offset)
        if unit is None or not point.holds(unit.physical_offset):
            return None
        return self._walk.look(unit.physical_offset)

    def _write(self, point: CheckPoint, offset: int, record: Record, topic: str) -> int:
        message = revived_message(record, topic, point.pop_ms, self._host)
        try:
            try:
                result = self._writer.append(message)
            except MessageIllegal:
                # There is no room for one property more.
                old = record.message().properties
                result = self._writer.append(message._replace(properties=old))
        except MessageIllegal as error:
            self._skipped("popped_message_illegal", offset, str(error))
            return 0
        self.revived += 1
        self._broker.statistics.put(topic, 1, result.size)
        return result.end

    def _retry_topic(self, point: CheckPoint) -> str | None:
        """The group's retry topic of the topic, made where it misses, read from its start.

        Returns:
            None when it cannot be made now: there is no room, or its old queues are not gone yet.
        """
        broker, name = self._broker, retry_topic_of(point.topic, point.group)
        if broker.topics.table.get(name) is None:
            wall_ms = broker.clock.wall_ms()
            if broker.metadata.make_topic(TopicConfig(name, 1, 1)) is None:
                return None
            if broker.offsets.table.query(point.group, name, 0) is None:
                broker.offsets.table.commit(point.group, name, 0, 0, wall_ms)
                broker.offsets.changed()
        return name

    def _keep(self, number: int, queue: ReviveQueue) -> None:
        offsets = self._broker.offsets
        known = offsets.table.query(REVIVE_GROUP, self._topic, number)
        # Back as well: a reign begins where the queue ends if what is kept is beyond that.
        if queue.kept != known and (queue.kept >= 0 or known is not None):
            wall_ms = self._broker.clock.wall_ms()
            offsets.table.commit(REVIVE_GROUP, self._topic, number, queue.kept, wall_ms)
            offsets.changed()


def revived_message(record: Record, topic: str, pop_ms: int, store_host: bytes) -> Message:
    """A popped message for its next delivery."""
    message = record.message()
    properties = message.properties
    if not record.reconsume_times or props.find(properties, FIRST_POP_TIME) is None:
        properties = props.put(properties, FIRST_POP_TIME, b"%d" % pop_ms)
    return message._replace(
        topic=topic, queue_id=0, properties=properties, store_host=store_host,
        reconsume_times=record.reconsume_times + 1, prepared_transaction_offset=0,
    )  # fmt: skip
