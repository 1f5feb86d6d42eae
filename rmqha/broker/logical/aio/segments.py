"""What a segment of a logical queue has, wherever it is: here, or at another broker set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rmqha.base.errors import RmqhaError
from rmqha.broker.groups.aio.offset_requests import NO_ROOM
from rmqha.broker.groups.aio.ports import Broker
from rmqha.broker.groups.offset_rules import (
    FIRST_FIELD,
    FORGOTTEN_FIELD,
    MASTER_FIELD,
    NOWHERE,
)
from rmqha.broker.logical.furthest import Furthest, Key
from rmqha.broker.logical.place import LOGICAL_FIELD
from rmqha.broker.naming.aio.other_sets import OtherSets, SetUnreachable
from rmqha.remoting import fastjson
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import FieldValue, ext_fields, long_field
from rmqha.remoting.values import as_array, as_object, as_text
from rmqha.statictopic.mapping import LogicQueueMappingItem, Segments

Later = Mapping[int, int]
"""What a group has stored here for segments behind one, by their physical queue."""

FORWARD_TIMEOUT_MS = 3_000
"""Java's ``forwardTimeout``."""


class SegmentRefused(RmqhaError):
    """Another broker set has refused a request about its segment.

    Attributes:
        code, remark: of its answer.
    """

    def __init__(self, broker_name: str, code: int, remark: str | None) -> None:
        super().__init__(f"{broker_name}: {remark or f'code {code}'}")
        self.code = code
        self.remark = remark


class Elsewhere(NamedTuple):
    """The same at other sets.

    Attributes:
        away: whether there are sets that could not be asked.
    """

    stored: Sequence[tuple[LogicQueueMappingItem, int]] = ()
    away: bool = False


class SegmentAccess:
    """Reads queues, and groups' offsets in them. All offsets are physical.

    Every method raises ``SetUnreachable`` or ``SegmentRefused`` for a segment that is elsewhere.

    Attributes:
        furthest: behind which segments groups have stored nothing at other sets.
    """

    def __init__(self, broker: Broker, sets: OtherSets) -> None:
        self._broker = broker
        self._sets = sets
        self._name = broker.config.broker_name
        self.furthest = Furthest()

    def is_here(self, item: LogicQueueMappingItem) -> bool:
        """Whether a segment is one of this broker set."""
        return item.broker_name == self._name

    async def ask(
        self, item: LogicQueueMappingItem, code: int, topic: str, **fields: FieldValue
    ) -> RemotingCommand:
        """Ask the master of a segment's set for something about it; whatever it answers."""
        return await self._sets.ask(
            item.broker_name,
            code,
            {
                **ext_fields(topic=topic, queueId=item.queue_id, bname=item.broker_name, **fields),
                LOGICAL_FIELD: "false",
                MASTER_FIELD: "true",
            },
            timeout_ms=FORWARD_TIMEOUT_MS,
        )

    async def _number(
        self, item: LogicQueueMappingItem, code: int, topic: str, name: str, **fields: FieldValue
    ) -> int:
        answer = await self.ask(item, code, topic, **fields)
        value = long_field(answer.ext_fields, name, None)
        if answer.code != ResponseCode.SUCCESS or value is None:
            raise SegmentRefused(item.broker_name, answer.code, answer.remark)
        return value

    async def min_offset(self, topic: str, item: LogicQueueMappingItem) -> int:
        """The first offset that can be read."""
        if self.is_here(item):
            return self._broker.store.reader.min_offset(topic, item.queue_id)
        return await self._number(item, RequestCode.GET_MIN_OFFSET, topic, "offset")

    async def max_offset(self, topic: str, item: LogicQueueMappingItem) -> int:
        """The offset behind the last message."""
        if self.is_here(item):
            return self._broker.store.reader.max_offset(topic, item.queue_id)
        return await self._number(item, RequestCode.GET_MAX_OFFSET, topic, "offset")

    async def offset_by_time(self, topic: str, item: LogicQueueMappingItem, moment_ms: int) -> int:
        """The first offset at or after a moment; the end where there is none."""
        if self.is_here(item):
            store = self._broker.store
            return await store.cold.look(
                lambda: store.reader.offset_by_time(topic, item.queue_id, moment_ms)
            )
        code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
        return await self._number(item, code, topic, "offset", timestamp=moment_ms)

    async def earliest_ms(self, topic: str, item: LogicQueueMappingItem) -> int:
        """When the first message was stored; -1 without one."""
        if self.is_here(item):
            store, reader = self._broker.store, self._broker.store.reader
            first = reader.min_offset(topic, item.queue_id)
            return await store.cold.look(
                lambda: reader.store_timestamp(topic, item.queue_id, first)
            )
        return await self._number(item, RequestCode.GET_EARLIEST_MSG_STORETIME, topic, "timestamp")

    async def groups(self, topic: str, item: LogicQueueMappingItem) -> list[str]:
        """Groups that may have stored how far they are in a segment (300, which Java's answer, too)."""
        if self.is_here(item):
            return self._broker.offsets.table.groups_of(topic)
        answer = await self.ask(item, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic)
        if answer.code != ResponseCode.SUCCESS:
            raise SegmentRefused(item.broker_name, answer.code, answer.remark)
        members = as_object(fastjson.loads(answer.body))
        return [as_text(group) for group in as_array(members.get("groupList"))]

    async def group_offset(self, topic: str, item: LogicQueueMappingItem, group: str) -> int | None:
        """How far a group is; None where it has stored nothing."""
        if self.is_here(item):
            stored = self._broker.offsets.table.query(group, topic, item.queue_id)
            return None if stored == NOWHERE else stored
        code = RequestCode.QUERY_CONSUMER_OFFSET
        try:
            stored = await self._number(
                item, code, topic, "offset", consumerGroup=group, setZeroIfNotFound=False
            )
            return None if stored == NOWHERE else stored
        except SegmentRefused as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise

    async def commit(
        self,
        topic: str,
        item: LogicQueueMappingItem,
        group: str,
        offset: int,
        *,
        is_first: bool = False,
    ) -> None:
        """Store how far a group is; with ``is_first`` where nothing is stored alone.

        Java's brokers do not know that, and take the offset in any case.
        """
        if self.is_here(item):
            if is_first and await self.group_offset(topic, item, group) is not None:
                return
            offsets, wall_ms = self._broker.offsets, self._broker.clock.wall_ms()
            if not offsets.table.commit(group, topic, item.queue_id, offset, wall_ms):
                raise SegmentRefused(self._name, ResponseCode.SYSTEM_BUSY, NO_ROOM)
            offsets.changed()
            return
        code = RequestCode.UPDATE_CONSUMER_OFFSET
        more: dict[str, FieldValue] = {FIRST_FIELD: True} if is_first else {}
        answer = await self.ask(item, code, topic, consumerGroup=group, commitOffset=offset, **more)
        if answer.code != ResponseCode.SUCCESS:
            raise SegmentRefused(item.broker_name, answer.code, answer.remark)

    # -- a group that goes back ----------------------------------------------------------------------

    def later(
        self, topic: str, group: str, segments: Segments, item: LogicQueueMappingItem
    ) -> Later:
        """What a group has stored here for segments behind the one that it commits to."""
        self.furthest.stored(self.key(topic, group, segments), item.gen)
        query = self._broker.offsets.table.query
        found = {
            one.queue_id: query(group, topic, one.queue_id)
            for one in segments
            if one.gen > item.gen and self.is_here(one)
        }
        return {queue: offset for queue, offset in found.items() if offset not in (None, NOWHERE)}

    def forget(self, topic: str, group: str, later: Later) -> None:
        """The group is stored further back: it is looked for in the newest segments first.

        It is stored as -1, which Java takes for nothing as well, so that slaves hear of it. What has
        been stored since it was looked at is newer, and stays.
        """
        offsets, wall_ms = self._broker.offsets, self._broker.clock.wall_ms()
        for queue_id, offset in later.items():
            if offsets.table.query(group, topic, queue_id) == offset:
                offsets.table.commit(group, topic, queue_id, NOWHERE, wall_ms)
                offsets.changed()

    @property
    def reign(self) -> int:
        """Of this master."""
        core = self._broker.ha_core
        return -1 if core is None else core.ha.epochs.last_epoch

    def key(self, topic: str, group: str, segments: Segments) -> Key:
        """What ``furthest`` knows of a group in a queue is kept by this, until the topic is remapped."""
        mapping = self._broker.mappings.table.items.get(topic)
        return topic, group, segments[-1].queue_id, 0 if mapping is None else mapping.epoch

    def may_be_elsewhere(self, key: Key, segments: Segments, item: LogicQueueMappingItem) -> bool:
        """Whether a group may have stored something at other sets for later segments."""
        return not self.furthest.is_behind(key, self.reign, item.gen) and any(
            one.gen > item.gen and not self.is_here(one) for one in segments
        )

    async def later_elsewhere(
        self, topic: str, group: str, segments: Segments, item: LogicQueueMappingItem
    ) -> Elsewhere:
        """What a group has stored at other sets for segments behind the one that it commits to.

        A set that is away is asked once, and again for the group's next commit.
        """
        found, away = [], set[str]()
        for one in segments:
            if one.gen <= item.gen or self.is_here(one) or one.broker_name in away:
                continue
            try:
                offset = await self.group_offset(topic, one, group)
            except (SetUnreachable, SegmentRefused):
                away.add(one.broker_name)
                continue
            if offset is not None:
                found.append((one, offset))
        return Elsewhere(found, bool(away))

    async def forget_elsewhere(self, topic: str, group: str, later: Elsewhere) -> None:
        """The same as ``forget`` at other sets; one that does not know the group refuses it.

        Java's take -1 whatever they have stored since: this is for what is still the newest.
        """
        for item, offset in later.stored:
            answer = await self.ask(
                item, RequestCode.UPDATE_CONSUMER_OFFSET, topic, consumerGroup=group,
                commitOffset=NOWHERE, **{FORGOTTEN_FIELD: offset},
            )  # fmt: skip
            if answer.code != ResponseCode.SUCCESS:
                raise SegmentRefused(item.broker_name, answer.code, answer.remark)
