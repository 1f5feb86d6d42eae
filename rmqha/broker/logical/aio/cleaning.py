"""A master drops from its mappings what has expired with its messages, at the hour of ``deleteWhen``.

Source: TopicQueueMappingCleanService of RocketMQ 5.
"""

from __future__ import annotations

from collections.abc import Iterable

from rmqha.base.errors import RmqhaError
from rmqha.broker.common.refusal import Refusal
from rmqha.broker.groups.aio.ports import Broker
from rmqha.broker.logical.aio.segments import SegmentAccess, SegmentRefused
from rmqha.broker.naming.aio.other_sets import SetUnreachable
from rmqha.broker.topics.metadata_change import Change
from rmqha.ha.events import Role
from rmqha.runtime.logs import Logger
from rmqha.statictopic.expiry import Dropped, Place, expire
from rmqha.statictopic.mapping import LogicQueueMappingItem, TopicQueueMappingDetail
from rmqha.store.aio.expired import is_delete_hour

PERIOD_MS = 300_000
"""Between two looks at the clock, as Java has it."""


class MappingCleaning:
    """Of one broker; it works while the broker is the master.

    Attributes:
        dropped: segments and lists, since the start.
    """

    def __init__(self, broker: Broker, access: SegmentAccess, log: Logger) -> None:
        self._broker = broker
        self._access = access
        self._log = log
        self.dropped = 0

    async def run(self) -> None:
        """Look every five minutes, for ever, and clean when it is the hour."""
        broker = self._broker
        while True:
            await broker.clock.sleep(PERIOD_MS)
            if is_delete_hour(broker.config.store, broker.clock.wall_ms()):
                await self.clean()

    async def clean(self) -> None:
        """Drop what is of no use any more; a topic that cannot be looked at is left for later."""
        for topic in sorted(self._broker.mappings.table.items):
            if self._broker.role is not Role.MASTER:
                return
            try:
                await self._clean(topic)
            except RmqhaError as error:
                self._log.log("warning", "mapping_not_cleaned", topic=topic, reason=str(error))

    async def _clean(self, topic: str) -> None:
        table = self._broker.mappings.table
        detail = table.get(topic)
        if detail is None:
            return
        found = expire(detail, await self._empty(detail))
        found = found.but_for(await self._not_moved(topic, found.segments), detail)
        # Others had turns meanwhile; what they have changed is looked at next time.
        if found.detail is detail or table.get(topic) is not detail:
            return
        end = self._broker.metadata.commit(Change(mappings=(found.detail,)))
        if isinstance(end, Refusal):
            self._log.log("warning", "mapping_not_cleaned", topic=topic, reason=end.remark)
            return
        self.dropped += len(found.segments) + len(found.lists)
        self._log.log(
            "info", "mapping_cleaned", topic=topic, segments=len(found.segments),
            lists=list(found.lists),
        )  # fmt: skip

    async def _empty(self, detail: TopicQueueMappingDetail) -> set[Place]:
        """The physical queues without a message: those here, and first segments of what is led here.

        Where a set cannot be asked, what it has stays, and with it what comes behind that.
        """
        empty: set[Place] = set()
        away: set[str] = set()
        led = detail.curr_id_map
        for logical, segments in detail.hosted_queues.items():
            for item in segments:
                if not self._access.is_here(item) and logical not in led:
                    continue
                if item.broker_name not in away and await self._is_empty(detail.topic, item, away):
                    empty.add((item.broker_name, item.queue_id))
                elif item is segments[0]:
                    # What comes behind a segment with messages stays, whatever it has.
                    break
        return empty

    async def _is_empty(self, topic: str, item: LogicQueueMappingItem, away: set[str]) -> bool:
        try:
            low = await self._access.min_offset(topic, item)
            return low >= await self._access.max_offset(topic, item)
        except SetUnreachable as error:
            away.add(item.broker_name)
            self._log.log("warning", "mapping_not_cleaned", topic=topic, reason=str(error))
            return False

    async def _not_moved(self, topic: str, dropped: Iterable[Dropped]) -> set[int]:
        """Have groups go on behind what is dropped; the logical queues where that is refused.

        These stay as they are: a set that does not know a group, as one that is new to the cluster
        while the group is away, takes no position of it.
        """
        refused: set[int] = set()
        for one in dropped:
            if one.logical_id in refused:
                continue
            try:
                await self._move_groups(topic, one)
            except SegmentRefused as error:
                refused.add(one.logical_id)
                self._log.log(
                    "warning", "mapping_not_cleaned", topic=topic, logical_id=one.logical_id,
                    reason=str(error),
                )  # fmt: skip
        return refused

    async def _move_groups(self, topic: str, one: Dropped) -> None:
        """Groups that have read all of a segment go on where the next one begins.

        Wherever both are: their sets may have dropped their lists already, or do it later.
        """
        for group in await self._access.groups(topic, one.item):
            if await self._access.group_offset(topic, one.item, group) is None:
                continue
            if await self._access.group_offset(topic, one.following, group) is None:
                await self._access.commit(topic, one.following, group, one.following.start_offset)
