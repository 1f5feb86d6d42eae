"""Offsets of logical queues: of groups (14, 15), and where a queue begins and ends (29 to 32).

What a group has stored is stored in physical offsets, at the broker set of the segment, as Java's
brokers do: where sets of both kinds have segments of one queue, they find each other's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from rmqha.broker.common.aio.ports import Handler, Handlers
from rmqha.broker.groups.aio.ports import Broker
from rmqha.broker.groups.offset_rules import BOUNDARY_UPPER
from rmqha.broker.logical.aio.forwarding import Forwarding
from rmqha.broker.logical.aio.segments import Elsewhere, Later, SegmentAccess
from rmqha.broker.logical.furthest import Key, Seen
from rmqha.broker.logical.place import mapping_for
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import ext_fields, int_field, long_field, text_field
from rmqha.statictopic.mapping import LogicQueueMappingItem, Segments, TopicQueueMappingDetail
from rmqha.statictopic.translate import first_decided, last_decided, led_by, segment_at

NOT_FOUND = "Not found, maybe this group consumer boot first"
UNDECIDED = "where the queue begins is being decided"

Find = Callable[[str, Segments, RemotingCommand], Awaitable[int | None]]


class _Back(NamedTuple):
    """A group's commit to a segment.

    Attributes:
        later: what it had stored here for later ones.
        may_be_elsewhere: something may be stored for later ones at other sets.
        key, before: what is known of the group when the commit comes.
    """

    topic: str
    group: str
    segments: Segments
    item: LogicQueueMappingItem
    later: Later
    may_be_elsewhere: bool
    key: Key
    before: Seen


class LogicalOffsets:
    """Answers for static topics, and leaves all others to who answers for ordinary ones.

    Args:
        ordinary: handlers of the same requests.
    """

    def __init__(
        self, broker: Broker, access: SegmentAccess, forwarding: Forwarding, ordinary: Handlers
    ) -> None:
        self._broker = broker
        self._access = access
        self._forwarding = forwarding
        self._ordinary = ordinary

    def handlers(self) -> Handlers:
        """By request code."""
        finders: dict[int, tuple[Find, str]] = {
            RequestCode.QUERY_CONSUMER_OFFSET: (self._group_offset, "offset"),
            RequestCode.GET_MAX_OFFSET: (self._max_offset, "offset"),
            RequestCode.GET_MIN_OFFSET: (self._min_offset, "offset"),
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: (self._by_time, "offset"),
            RequestCode.GET_EARLIEST_MSG_STORETIME: (self._earliest, "timestamp"),
        }
        return {
            RequestCode.UPDATE_CONSUMER_OFFSET: self.commit,
            **{code: self._found_by(code, *one) for code, one in finders.items()},
        }

    def _place(
        self, connection: Connection, request: RemotingCommand, mapping: TopicQueueMappingDetail
    ) -> Segments | RemotingCommand | None:
        """The queue's history if it is led here; else the answer, None for one that comes later."""
        logical_id = int_field(request.ext_fields, "queueId", -1)
        segments = led_by(mapping, logical_id)
        if segments is not None:
            return segments
        return self._forwarding.pass_on(connection, request, mapping, logical_id)

    def _found_by(self, code: int, find: Find, name: str) -> Handler:
        """The handler of a request that is answered with one number."""

        def handle(connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
            topic = text_field(request.ext_fields, "topic", "")
            mapping = mapping_for(self._broker.mappings.table, topic, request.ext_fields)
            if mapping is None:
                return self._ordinary[code](connection, request)
            segments = self._place(connection, request, mapping)
            if not isinstance(segments, tuple):
                return segments
            if code == RequestCode.QUERY_CONSUMER_OFFSET and self._is_as_physical(segments):
                return self._as_physical(connection, request, segments[0])
            work = self._answer(connection, request, find(topic, segments, request), name)
            self._broker.answers.start(work, connection, request, name="logical offset")
            return None

        return handle

    async def _answer(
        self,
        connection: Connection,
        request: RemotingCommand,
        found: Awaitable[int | None],
        name: str,
    ) -> None:
        number = await found
        if number is None:
            answer = request.reply(ResponseCode.QUERY_NOT_FOUND, NOT_FOUND)
        else:
            answer = request.reply(ResponseCode.SUCCESS, None, ext_fields(**{name: number}))
        if not request.is_oneway:
            connection.send(answer)

    # -- groups ------------------------------------------------------------------------------------

    def commit(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """15: the offset is stored where its segment is."""
        fields = request.ext_fields or {}
        topic = text_field(fields, "topic", "")
        mapping = mapping_for(self._broker.mappings.table, topic, fields)
        ordinary = self._ordinary[RequestCode.UPDATE_CONSUMER_OFFSET]
        if mapping is None:
            return ordinary(connection, request)
        segments = self._place(connection, request, mapping)
        if not isinstance(segments, tuple):
            return segments
        offset = long_field(fields, "commitOffset", -1)
        item = segment_at(segments, offset)
        if offset < 0:
            return request.reply(
                ResponseCode.INVALID_PARAMETER, "commitOffset is missing or negative"
            )
        if item is None:
            return request.reply(ResponseCode.SYSTEM_BUSY, UNDECIDED)
        group = text_field(fields, "consumerGroup", "")
        physical = max(item.physical(offset), 0)
        later = self._access.later(topic, group, segments, item)
        key = self._access.key(topic, group, segments)
        is_asked = self._access.may_be_elsewhere(key, segments, item)
        if self._access.is_here(item):
            # Read by the handler at once; the frame's own fields are nobody else's.
            request.ext_fields = {
                **fields, "queueId": str(item.queue_id), "commitOffset": str(physical),
            }  # fmt: skip
            if not is_asked:
                answer = ordinary(connection, request)
                if answer is not None and answer.code == ResponseCode.SUCCESS:
                    self._access.forget(topic, group, later)
                return answer
        before = self._access.furthest.watch(key, self._access.reign, item.gen)
        back = _Back(topic, group, segments, item, later, is_asked, key, before)
        work = self._commit_back(connection, request, back, physical)
        self._broker.answers.start(work, connection, request, name="logical commit")
        return None

    async def _commit_back(
        self, connection: Connection, request: RemotingCommand, back: _Back, physical: int
    ) -> None:
        """15 that is not done at once: something is asked of other sets.

        A group that has gone back is looked for in the newest segments first. Where another set does
        not forget its later place the group stays there, and is not told that it went back. One that
        cannot say what it has keeps nobody from storing: it is asked again by the next commit.
        """
        topic, group, segments, item = back[:4]
        access = self._access
        elsewhere = Elsewhere()
        if back.may_be_elsewhere:
            elsewhere = await access.later_elsewhere(topic, group, segments, item)
        answer = (
            self._ordinary[RequestCode.UPDATE_CONSUMER_OFFSET](connection, request)
            if access.is_here(item)
            else await access.ask(
                item, RequestCode.UPDATE_CONSUMER_OFFSET, topic,
                consumerGroup=group, commitOffset=physical,
            )
        )  # fmt: skip
        if answer is not None and answer.code == ResponseCode.SUCCESS:
            # Not before: where nothing was stored there, the group would be nowhere.
            await self._forget_later(back, elsewhere)
        if answer is not None and not request.is_oneway:
            connection.send(request.reply(answer.code, answer.remark))

    async def _forget_later(self, back: _Back, elsewhere: Elsewhere) -> None:
        """Forget places behind this commit, unless the group has gone forth again meanwhile.

        It may be at the very same place; what is behind that is forgotten by the newer commit.
        """
        access, furthest = self._access, self._access.furthest
        if not furthest.is_forth(back.key, back.before):
            await access.forget_elsewhere(back.topic, back.group, elsewhere)
        if not furthest.is_forth(back.key, back.before):
            access.forget(back.topic, back.group, back.later)
        if elsewhere.away:
            furthest.passed_over(back.key, back.before)
        elif back.may_be_elsewhere:
            furthest.cleared(back.key, back.before, back.item.gen)

    def _is_as_physical(self, segments: Segments) -> bool:
        """Whether a queue has never moved: Java's brokers then take it for its physical queue."""
        return len(segments) == 1 and segments[0].logic_offset == 0

    def _as_physical(
        self, connection: Connection, request: RemotingCommand, item: LogicQueueMappingItem
    ) -> RemotingCommand | None:
        """14 as for an ordinary queue: a new group begins with the first messages of a fresh one."""
        request.ext_fields = {**(request.ext_fields or {}), "queueId": str(item.queue_id)}
        answer = self._ordinary[RequestCode.QUERY_CONSUMER_OFFSET](connection, request)
        offset = None if answer is None else long_field(answer.ext_fields, "offset", None)
        if answer is not None and offset is not None:
            answer.ext_fields = ext_fields(offset=item.logical(offset))
        return answer

    async def _group_offset(
        self, topic: str, segments: Segments, request: RemotingCommand
    ) -> int | None:
        """From the newest segment to the oldest, until the group has been in one.

        One that went back while the set of a later one was away is looked for where it went.
        """
        group, access = text_field(request.ext_fields, "consumerGroup", ""), self._access
        place = access.furthest.place(access.key(topic, group, segments), access.reign)
        newest_first = [*reversed(segments)]
        for item in sorted(newest_first, key=lambda item: item.gen != place):
            if not item.is_decided:
                continue
            offset = await access.group_offset(topic, item, group)
            if offset is not None:
                return item.logical(offset)
        return None

    # -- queues ------------------------------------------------------------------------------------

    async def _max_offset(self, topic: str, segments: Segments, _: RemotingCommand) -> int | None:
        item = last_decided(segments)
        return None if item is None else item.logical(await self._access.max_offset(topic, item))

    async def _min_offset(self, topic: str, segments: Segments, _: RemotingCommand) -> int | None:
        item = first_decided(segments)
        return None if item is None else item.logical(await self._access.min_offset(topic, item))

    async def _earliest(self, topic: str, segments: Segments, _: RemotingCommand) -> int | None:
        for item in segments:
            if item.is_decided:
                stamp = await self._access.earliest_ms(topic, item)
                if stamp >= 0:
                    return stamp
        return -1

    async def _by_time(
        self, topic: str, segments: Segments, request: RemotingCommand
    ) -> int | None:
        """29: the first message at or after a moment, or with UPPER the last at or before it."""
        moment_ms = long_field(request.ext_fields, "timestamp", 0)
        boundary = text_field(request.ext_fields, "boundaryType", "LOWER").upper()
        decided = [one for one in segments if one.is_decided]
        if boundary == BOUNDARY_UPPER:
            return await self._last_before(topic, decided, moment_ms)
        for item in decided:
            offset = await self._access.offset_by_time(topic, item, moment_ms)
            if item is decided[-1] or offset < await self._access.max_offset(topic, item):
                return item.logical(offset)
        return None

    async def _last_before(
        self, topic: str, decided: list[LogicQueueMappingItem], moment_ms: int
    ) -> int | None:
        for item in reversed(decided):
            after = await self._access.offset_by_time(topic, item, moment_ms + 1)
            low = await self._access.min_offset(topic, item)
            if after > low or item is decided[0]:
                return item.logical(max(after - 1, low))
        return None
