"""A master drops from its mappings what has expired with its messages, at the hour of ``deleteWhen``.

Source: TopicQueueMappingCleanService of RocketMQ 5.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from rmqha.base.errors import RmqhaError
from rmqha.broker.common.refusal import Refusal
from rmqha.broker.groups.aio.ports import Broker
from rmqha.broker.logical.aio.segments import SegmentAccess, SegmentRefused
from rmqha.broker.naming.aio.other_sets import SetUnreachable
from rmqha.broker.topics.metadata_change import Change
from rmqha.ha.events import Role
from rmqha.runtime.logs import Logger
from rmqha.statictopic.expiry import Dropped, Expiry, Place, expire
from rmqha.statictopic.mapping import LogicQueueMappingItem, TopicQueueMappingDetail
from rmqha.store.aio.expired import is_delete_hour

PERIOD_MS = 300_000
"""Between two looks at the clock, as Java has it."""

QUEUES_A_COMMIT = 64
COMMIT_MS = 1_000
"""What was found is dropped after so many queues, and so much time: a change of others throws away what
is not dropped yet, and each record has the whole mapping."""

PAUSE_MS = 1
"""After each queue: where all positions are here, nothing else gives others a turn."""

Found = TypeVar("Found")


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
        detail = self._broker.mappings.table.get(topic)
        if detail is None:
            return
        look, clock = _Look(detail, self._access), self._broker.clock
        found = expire(detail, await self._empty(look))
        dropped: dict[int, list[Dropped]] = {logical: [] for logical in found.lists}
        for one in found.segments:
            dropped.setdefault(one.logical_id, []).append(one)
        stay, since_ms = set(dropped), clock.now_ms()
        for count, (logical, segments) in enumerate(dropped.items(), start=1):
            if await self._is_moved(look, logical, segments):
                stay.discard(logical)
            is_due = count % QUEUES_A_COMMIT == 0 or clock.now_ms() - since_ms >= COMMIT_MS
            if is_due or count == len(dropped):
                if not self._drop(look, found.but_for(stay, detail)):
                    return
                since_ms = clock.now_ms()
            await clock.sleep(PAUSE_MS)

    def _drop(self, look: _Look, found: Expiry) -> bool:
        """Let the mapping lose what is found by now; whether the rest may follow."""
        table, done, topic = self._broker.mappings.table, look.done, look.topic
        # Others had turns meanwhile; what they have changed is looked at next time.
        if table.get(topic) is not look.current:
            return False
        segments = len(found.segments) - len(done.segments)
        lists = [one for one in found.lists if one not in done.lists]
        if not segments and not lists:
            return True
        end = self._broker.metadata.commit(Change(mappings=(found.detail,)))
        if isinstance(end, Refusal):
            self._log.log("warning", "mapping_not_cleaned", topic=topic, reason=end.remark)
            return False
        look.done, look.current = found, self._broker.mappings.table.get(topic)
        self.dropped += segments + len(lists)
        self._log.log("info", "mapping_cleaned", topic=topic, segments=segments, lists=lists)
        return True

    async def _empty(self, look: _Look) -> set[Place]:
        """The physical queues without a message: those here, and first segments of what is led here.

        Where a set cannot be asked, what it has stays, and with it what comes behind that.
        """
        empty: set[Place] = set()
        detail = look.detail
        led = detail.curr_id_map
        for logical, segments in detail.hosted_queues.items():
            for item in segments:
                if not self._access.is_here(item) and logical not in led:
                    continue
                if item.broker_name not in look.away and await self._is_empty(look, item):
                    empty.add((item.broker_name, item.queue_id))
                elif item is segments[0]:
                    # What comes behind a segment with messages stays, whatever it has.
                    break
        return empty

    async def _is_empty(self, look: _Look, item: LogicQueueMappingItem) -> bool:
        try:
            low = await look.ask(self._access.min_offset, item)
            return low >= await look.ask(self._access.max_offset, item)
        except (SetUnreachable, SegmentRefused) as error:
            self._log.log("warning", "mapping_not_cleaned", topic=look.topic, reason=str(error))
            return False

    async def _is_moved(self, look: _Look, logical: int, dropped: Iterable[Dropped]) -> bool:
        """Have groups go on behind what a queue is to lose; whether they all do.

        Else it stays as it is: a set that does not know a group, as one that is new to the cluster
        while the group is away, takes no position of it, and one that is away takes none at all.
        """
        try:
            for one in dropped:
                await self._move_groups(look, one)
        except (SetUnreachable, SegmentRefused) as error:
            self._log.log(
                "warning", "mapping_not_cleaned", topic=look.topic, logical_id=logical,
                reason=str(error),
            )  # fmt: skip
            return False
        return True

    async def _move_groups(self, look: _Look, one: Dropped) -> None:
        """Groups that have read all of a segment go on where the next one begins.

        Wherever both are: their sets may have dropped their lists already, or do it later.
        """
        access, following = self._access, one.following
        for group in await look.groups(one.item):
            if await look.ask(access.group_offset, one.item, group) is None:
                continue
            try:
                # Brokers of Java take what is sent in any case.
                if await look.ask(access.group_offset, following, group) is None:
                    offset = following.start_offset
                    await look.ask(access.commit, following, group, offset, is_first=True)
            except (SetUnreachable, SegmentRefused):
                if not await self._is_further(look, one, group):
                    raise

    async def _is_further(self, look: _Look, one: Dropped, group: str) -> bool:
        """Whether a group has a position behind the next segment: it never looks for one there again."""
        for item in reversed(look.detail.hosted_queues[one.logical_id]):
            if item.gen <= one.following.gen or not item.is_decided:
                continue
            with contextlib.suppress(SetUnreachable, SegmentRefused):
                if await look.ask(self._access.group_offset, item, group) is not None:
                    return True
        return False


class _Look:
    """What a pass has learned about one topic.

    Attributes:
        detail: the mapping as the pass began with it.
        away: sets that could not be asked; they are not asked again.
        done: what was dropped so far.
        current: the mapping since then.
    """

    def __init__(self, detail: TopicQueueMappingDetail, access: SegmentAccess) -> None:
        self.detail = detail
        self.topic = detail.topic
        self.away: set[str] = set()
        self.done = Expiry(detail)
        self.current: TopicQueueMappingDetail | None = detail
        self._access = access
        self._groups: dict[str, list[str]] = {}

    async def ask(
        self,
        question: Callable[..., Awaitable[Found]],
        item: LogicQueueMappingItem,
        *args: object,
        **more: object,
    ) -> Found:
        """Ask a segment's set; raises SetUnreachable, SegmentRefused."""
        name = item.broker_name
        if name in self.away:
            raise SetUnreachable(f"{name} was away a moment ago")
        try:
            return await question(self.topic, item, *args, **more)
        except SetUnreachable:
            self.away.add(name)
            raise

    async def groups(self, item: LogicQueueMappingItem) -> list[str]:
        """Groups of the topic at a segment's set; there may be thousands, and it is asked once."""
        name = item.broker_name
        if name not in self._groups:
            self._groups[name] = await self.ask(self._access.groups, item)
        return self._groups[name]
