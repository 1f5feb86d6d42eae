"""Pulls from logical queues: which segment is read, also at another broker set, and where it goes on.

Source: PullMessageProcessor.rewriteRequestForStaticTopic of RocketMQ 5.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import NamedTuple

from rmqha.auth.signature import without_signature
from rmqha.base.errors import RmqhaError
from rmqha.broker.logical.aio.forwarding import Forwarding
from rmqha.broker.logical.aio.segments import Later, SegmentAccess
from rmqha.broker.logical.place import LOGICAL_FIELD, is_of_old_client
from rmqha.broker.pull.aio.ports import Broker
from rmqha.broker.pull.old_clients import answer_of_leader, logical_records
from rmqha.broker.pull.request import (
    FLAG_COMMIT,
    FLAG_SUBSCRIPTION,
    FLAG_SUSPEND,
    PullRequest,
    shortened,
)
from rmqha.ha.events import Role
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import ext_fields, long_field
from rmqha.statictopic.mapping import LogicQueueMappingItem, Segments, TopicQueueMappingDetail
from rmqha.statictopic.translate import (
    PullAnswer,
    led_by,
    logical_answer,
    next_decided,
    segment_at,
)
from rmqha.store.aio.pulling import Pulled

_PULL_CODES = frozenset({
    ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
})  # fmt: skip


class Place(NamedTuple):
    """A segment of a logical queue that is read.

    Attributes:
        wanted: the pull as its consumer sent it, or as it goes on behind a segment: logically.
    """

    segments: Segments
    item: LogicQueueMappingItem
    wanted: PullRequest

    def again(self, offset: int, *, may_wait: bool = True) -> PullRequest:
        """The pull once more, from a logical offset; what it commits is stored already."""
        flags = self.wanted.sys_flag & ~FLAG_COMMIT & (-1 if may_wait else ~FLAG_SUSPEND)
        return self.wanted._replace(queue_offset=offset, sys_flag=flags)


Local = Callable[[Connection, RemotingCommand, PullRequest, Place | None], RemotingCommand | None]


def is_read_through(place: Place, physical: int, found: Pulled) -> bool:
    """Whether a segment has nothing more, and it is known where the next one begins."""
    if found.messages or physical < found.max_offset:
        return False
    return next_decided(place.segments, place.item) is not None


def answer_fields(suggested: int, answer: PullAnswer, place: Place | None) -> dict[str, str]:
    """The fields of an answer; a consumer adds ``offsetDelta`` to the offsets of its messages."""
    fields = ext_fields(
        suggestWhichBrokerId=suggested,
        nextBeginOffset=answer.next_offset,
        minOffset=answer.min_offset,
        maxOffset=answer.max_offset,
    )
    if place is not None:
        fields["offsetDelta"] = str(place.item.delta)
    return fields


class LogicalPulls:
    """Of a broker.

    Args:
        local: reads a physical queue of this broker.
        hold: keeps a pull until the mapping changes; whether it does.
    """

    def __init__(
        self,
        broker: Broker,
        access: SegmentAccess,
        forwarding: Forwarding,
        local: Local,
        hold: Callable[[Connection, RemotingCommand, Place], bool],
    ) -> None:
        self._broker = broker
        self._access = access
        self._forwarding = forwarding
        self._local = local
        self._hold = hold

    def pull(
        self, connection: Connection, request: RemotingCommand, pull: PullRequest
    ) -> RemotingCommand | None:
        """Serve a pull by the mapping of this moment."""
        mapping = self._broker.mappings.table.items.get(pull.topic)
        if mapping is None:
            # The topic was deleted while the pull was held, or read elsewhere.
            return request.reply(ResponseCode.TOPIC_NOT_EXIST, f"topic[{pull.topic}] not exist")
        segments = led_by(mapping, pull.queue_id)
        if segments is None:
            return self._pass_on(connection, request, mapping, pull)
        item = segment_at(segments, pull.queue_offset)
        if item is None:
            answer = PullAnswer(ResponseCode.PULL_NOT_FOUND, pull.queue_offset, 0, 0)
            return request.reply(answer.code, None, answer_fields(0, answer, None))
        place = Place(segments, item, pull)
        if not self._access.is_here(item):
            work = self._there(connection, request, place)
            self._broker.answers.start(work, connection, request, name="pull elsewhere")
            return None
        physical = pull._replace(
            queue_id=item.queue_id, queue_offset=item.physical(pull.queue_offset),
            sys_flag=pull.sys_flag & ~FLAG_COMMIT,
        )  # fmt: skip
        return self._local(connection, request, physical, place)

    def _pass_on(
        self,
        connection: Connection,
        request: RemotingCommand,
        mapping: TopicQueueMappingDetail,
        pull: PullRequest,
    ) -> RemotingCommand | None:
        wait_ms = pull.suspend_timeout_ms if pull.may_suspend else 0
        # One that was held here has had its offset stored: it may be an old one by now.
        place = {
            "sysFlag": str(pull.sys_flag), "queueOffset": str(pull.queue_offset),
            "suspendTimeoutMillis": str(pull.suspend_timeout_ms),
        }  # fmt: skip

        def remapped(waited_ms: int) -> RemotingCommand | None:
            left_ms = pull.suspend_timeout_ms - waited_ms
            return self.pull(connection, request, shortened(pull, left_ms))

        if not is_of_old_client(request.version, request.ext_fields):
            return self._forwarding.pass_on(
                connection, request, mapping, pull.queue_id, wait_ms,
                changed=place, remapped=remapped,
            )  # fmt: skip
        # Its heartbeats reach every set of the topic, but a new one only with the next of them.
        flags, wanted = pull.sys_flag, self._subscription(pull)
        if wanted:
            flags |= FLAG_SUBSCRIPTION
        return self._forwarding.pass_on(
            connection, request, mapping, pull.queue_id, wait_ms,
            adapt=lambda answer, _: answer_of_leader(answer, pull.queue_id),
            changed={**place, **wanted, "sysFlag": str(flags)},
            again={"sysFlag": str(flags & ~FLAG_COMMIT)},
            remapped=remapped,
        )  # fmt: skip

    def go_on(
        self, connection: Connection, request: RemotingCommand, place: Place
    ) -> RemotingCommand | None:
        """A segment is read through: the consumer need not ask again for the next one."""
        following = next_decided(place.segments, place.item)
        offset = place.wanted.queue_offset if following is None else following.logic_offset
        return self.pull(connection, request, place.again(offset))

    def commit(self, connection: Connection, request: RemotingCommand, place: Place) -> None:
        """The offset that comes with a pull is stored where its segment is.

        Unlike 15 it has no other set forget later places: the group's next 15 does. It is for when
        the pull was checked: a stranger's offset would be in the table for good.
        """
        pull = place.wanted
        item = segment_at(place.segments, pull.commit_offset) if pull.commits else None
        if item is None or pull.commit_offset < 0:
            return
        group, topic, offsets = pull.consumer_group, pull.topic, self._broker.offsets
        physical = max(0, item.physical(pull.commit_offset))
        later = self._access.later(topic, group, place.segments, item)
        if not self._access.is_here(item):
            work = self._commit_there(item, topic, group, physical, later)
            self._broker.answers.start(work, connection, request, name="commit elsewhere")
        elif offsets.table.commit(
            group, topic, item.queue_id, physical, self._broker.clock.wall_ms()
        ):
            offsets.changed()
            self._access.forget(topic, group, later)

    async def _commit_there(
        self, item: LogicQueueMappingItem, topic: str, group: str, physical: int, later: Later
    ) -> None:
        with contextlib.suppress(RmqhaError):  # the next pull says it again
            await self._access.commit(topic, item, group, physical)
            self._access.forget(topic, group, later)

    async def _there(self, connection: Connection, request: RemotingCommand, place: Place) -> None:
        """Read a segment of another broker set, and go on behind it."""
        pull, item = place.wanted, place.item
        physical = item.physical(pull.queue_offset)
        fields = self._forwarded_fields(request, pull) | {
            "queueOffset": str(physical), "sysFlag": str(self._forwarded_flags(pull)),
        }  # fmt: skip
        answer = await self._access.ask(item, request.code, pull.topic, **fields)
        told = answer.ext_fields or {}
        if answer.code not in _PULL_CODES:
            connection.send(request.reply(answer.code, answer.remark, told, answer.body))
            return
        self._commit_checked_there(connection, request, place)
        found = PullAnswer(
            answer.code, long_field(told, "nextBeginOffset", 0),
            long_field(told, "minOffset", 0), long_field(told, "maxOffset", 0),
        )  # fmt: skip
        is_through = answer.code != ResponseCode.SUCCESS and physical >= found.max_offset
        if is_through and next_decided(place.segments, item) is not None:
            reply = self.go_on(connection, request, place)
        elif is_through and self._hold(connection, request, place):
            reply = None
        else:
            found = logical_answer(place.segments, item, physical, found)
            # A consumer goes on asking here, not at the replica that the other set suggests.
            fields = told | answer_fields(0, found, place)
            body = answer.body
            if found.code == ResponseCode.SUCCESS:
                body = self.shown(request, place, body)
            reply = request.reply(found.code, answer.remark, fields, body)
        if reply is not None and not request.is_oneway:
            connection.send(reply)

    def _commit_checked_there(
        self, connection: Connection, request: RemotingCommand, place: Place
    ) -> None:
        """The set of the segment has let the group read it; this one may know less of it."""
        broker, pull = self._broker, place.wanted
        group = broker.groups.find(pull.consumer_group, may_write=broker.role is Role.MASTER)
        if group is not None and broker.topics.table.get(pull.topic) is not None:
            self.commit(connection, request, place)

    @staticmethod
    def shown(request: RemotingCommand, place: Place, records: bytes) -> bytes:
        """Messages of a segment as a client is given them; unchanged for all that know the offsetDelta."""
        if not is_of_old_client(request.version, request.ext_fields):
            return records
        return logical_records(records, place.wanted.queue_id, place.item.delta)

    def _subscription(self, pull: PullRequest) -> dict[str, str]:
        """What the group wants, which another set may not have been told yet."""
        online = self._broker.consumers.get(pull.consumer_group)
        wanted = None if online is None else online.subscriptions.get(pull.topic)
        if pull.sys_flag & FLAG_SUBSCRIPTION or wanted is None:
            return {}
        return ext_fields(
            subscription=wanted.sub_string,
            subVersion=wanted.sub_version,
            expressionType=wanted.expression_type,
        )

    def _forwarded_fields(self, request: RemotingCommand, pull: PullRequest) -> dict[str, str]:
        kept = {
            name: value
            for name, value in without_signature(request.ext_fields).items()
            if name not in ("topic", "queueId", "bname", "commitOffset", LOGICAL_FIELD)
        }
        return kept | {"commitOffset": "0"} | self._subscription(pull)

    def _forwarded_flags(self, pull: PullRequest) -> int:
        flags = pull.sys_flag & ~(FLAG_COMMIT | FLAG_SUSPEND)
        return flags | FLAG_SUBSCRIPTION if self._subscription(pull) else flags
