"""Offsets: of groups (14, 15, 43, 208, 222, 317), of queues (29 to 32, 202), and who consumes (300, 343,
345)."""

from __future__ import annotations

from rmqha.broker.common.aio.cold_answers import patient
from rmqha.broker.common.aio.held_answers import send_confirmed
from rmqha.broker.common.aio.ports import Handler, Handlers
from rmqha.broker.common.json_members import MessageQueue, queue_table
from rmqha.broker.groups.aio.consume_stats import ConsumeStats
from rmqha.broker.groups.aio.ports import Broker
from rmqha.broker.groups.offset_rules import (
    BOUNDARY_UPPER,
    FIRST_FIELD,
    FORGOTTEN_FIELD,
    MASTER_FIELD,
    NOWHERE,
    ResetRequest,
    queues_to_reset,
    starts_at_zero,
)
from rmqha.broker.topics.group_table import own_group_refusal
from rmqha.broker.topics.topic_table import TopicConfig
from rmqha.ha.events import Role
from rmqha.remoting import fastjson
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.asked_queues import ASKED_QUEUES, asked_queues
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import (
    INT64_MAX,
    bool_field,
    ext_fields,
    int_field,
    long_field,
    parse_number,
    text_field,
)
from rmqha.store.aio.reader import Looks

SINCE_FIELD = "rmqhaSince"
"""Of request 43: ``CHANGES_MEMBER`` of the answer before, ``SINCE_EVER`` the first time."""

SINCE_EVER = "-"
CHANGES_MEMBER = "rmqhaChanges"
"""Of its answer: this process, and up to which of its changes the answers have told."""

MORE_MEMBER = "rmqhaMore"
"""Of its answer: there is more to ask for at once."""

NO_ROOM = "too many offsets, consumerOffsetsMax"


class OffsetProcessor:
    """Answers where queues begin and end, and where groups are in them."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._life = f"{broker.config.address}/{broker.clock.wall_ms()}"
        store = broker.store
        self._pulling = store.pulling

    def handlers(self) -> Handlers:
        """By request code."""
        broker = self._broker
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: self._of_master(self.query),
            RequestCode.UPDATE_CONSUMER_OFFSET: self._of_master(self.commit),
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: patient(broker, self.by_time),
            RequestCode.GET_MAX_OFFSET: self._of_master(self.max_offset),
            RequestCode.GET_MIN_OFFSET: self._of_master(self.min_offset),
            RequestCode.GET_EARLIEST_MSG_STORETIME: patient(broker, self.earliest),
            RequestCode.GET_ALL_CONSUMER_OFFSET: self.all_offsets,
            RequestCode.GET_TOPIC_STATS_INFO: patient(broker, self.topic_stats),
            **ConsumeStats(broker).handlers(),
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: patient(broker, self.reset),
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self._of_master(self.groups_of_topic),
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self.topics_of_group,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: self.subscription,
        }

    def _of_master(self, handler: Handler) -> Handler:
        """Masters alone answer it, where who asks says so."""

        def handle(connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
            is_asked = MASTER_FIELD in (request.ext_fields or {})
            if is_asked and self._broker.role is not Role.MASTER:
                return request.reply(ResponseCode.SERVICE_NOT_AVAILABLE, "this is no master")
            return handler(connection, request)

        return handle

    # -- a group's offset in a queue ---------------------------------------------------------------

    def query(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer with a group's offset (14)."""
        broker, fields = self._broker, request.ext_fields
        topic, queue_id = _queue(request)
        group = text_field(fields, "consumerGroup", "")
        offset = broker.offsets.table.query(group, topic, queue_id)
        if offset is None or offset == NOWHERE:
            reader = broker.store.reader
            first = self._pulling.place(topic, queue_id, 0)
            zero = starts_at_zero(
                wanted=bool_field(fields, "setZeroIfNotFound", default=True),
                min_offset=reader.min_offset(topic, queue_id),
                first_lag=None if first is None else broker.store.max_offset - first,
                near_bytes=broker.near_bytes,
            )
            if not zero:
                remark = "Not found, maybe this group consumer boot first"
                return request.reply(ResponseCode.QUERY_NOT_FOUND, remark)
            offset = 0
        return _offset(request, offset)

    def commit(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """Take a group's offset (15)."""
        broker, fields = self._broker, request.ext_fields
        if broker.role is None:
            return request.reply(
                ResponseCode.SERVICE_NOT_AVAILABLE, "this broker does not know its role yet"
            )
        topic, queue_id = _queue(request)
        group = text_field(fields, "consumerGroup", "")
        offset = long_field(fields, "commitOffset", None)
        refusal = own_group_refusal(group)
        if refusal is not None:
            return request.reply(refusal.code, refusal.remark)
        # A slave may not have copied a group that its master made a moment ago.
        if broker.groups.find(group, may_write=False) is None or (
            broker.role is Role.MASTER and not broker.groups.is_served(group)
        ):
            return request.reply(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist!"
            )
        if broker.topics.table.get(topic) is None:
            return request.reply(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
        forgotten = long_field(fields, FORGOTTEN_FIELD, None)
        if forgotten is not None and offset == NOWHERE:
            return self._forget(request, group, topic, queue_id, forgotten)
        if queue_id < 0 or offset is None or offset < 0:
            return request.reply(
                ResponseCode.INVALID_PARAMETER,
                f"queueId or commitOffset is missing or negative, topic {topic}",
            )
        is_first = broker.offsets.table.query(group, topic, queue_id) in (None, NOWHERE)
        if FIRST_FIELD in (fields or {}) and not is_first:
            return request.reply(ResponseCode.SUCCESS)
        if not broker.offsets.table.commit(group, topic, queue_id, offset, broker.clock.wall_ms()):
            return request.reply(ResponseCode.SYSTEM_BUSY, NO_ROOM)
        broker.offsets.changed()
        return request.reply(ResponseCode.SUCCESS)

    def _forget(
        self, request: RemotingCommand, group: str, topic: str, queue_id: int, offset: int
    ) -> RemotingCommand:
        """A group has gone back before this segment; what it has stored since then is newer."""
        broker = self._broker
        if broker.role is not Role.MASTER:
            return request.reply(
                ResponseCode.SERVICE_NOT_AVAILABLE, "offsets are forgotten at the master only"
            )
        if broker.offsets.table.query(group, topic, queue_id) == offset:
            broker.offsets.table.commit(group, topic, queue_id, NOWHERE, broker.clock.wall_ms())
            broker.offsets.changed()
        return request.reply(ResponseCode.SUCCESS)

    def all_offsets(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand | None:
        """43: what a slave copies; one of this kind takes some of what is new since it last asked."""
        table, since = self._broker.offsets.table, text_field(request.ext_fields, SINCE_FIELD, "")
        if not since:
            work = self._send_offsets(connection, request)
            self._broker.answers.start(work, connection, request, name="offsets")
            return None
        life, _colon, count = since.rpartition(":")
        changes = parse_number(count, INT64_MAX) if life == self._life else None
        page = table.page(changes or 0)
        # They stand before the table, where they are read without it.
        head: dict[str, object] = {CHANGES_MEMBER: f"{self._life}:{page.changes}"}
        if not page.is_last:
            head[MORE_MEMBER] = True
        return request.reply(ResponseCode.SUCCESS, body=fastjson.dumps({**head, **page.members}))

    async def _send_offsets(self, connection: Connection, request: RemotingCommand) -> None:
        parts = await self._broker.offsets.encoded({})
        await send_confirmed(
            self._broker, connection, request,
            lambda: connection.send_pieces(request.reply(ResponseCode.SUCCESS), parts),
        )  # fmt: skip

    # -- where a queue begins and ends -------------------------------------------------------------

    def max_offset(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer with a queue's end (30)."""
        return _offset(request, self._broker.store.reader.max_offset(*_queue(request)))

    def min_offset(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer with a queue's beginning (31)."""
        return _offset(request, self._broker.store.reader.min_offset(*_queue(request)))

    def by_time(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """29: the first message at or after a moment, or with UPPER the last at or before it."""
        topic, queue_id = _queue(request)
        reader = self._broker.store.reader
        moment = long_field(request.ext_fields, "timestamp", 0)
        boundary = text_field(request.ext_fields, "boundaryType", "LOWER").upper()
        if boundary != BOUNDARY_UPPER:
            return _offset(request, reader.offset_by_time(topic, queue_id, moment))
        after = reader.offset_by_time(topic, queue_id, moment + 1)
        return _offset(request, max(after - 1, reader.min_offset(topic, queue_id)))

    def earliest(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer when the first message was stored (32)."""
        topic, queue_id = _queue(request)
        reader = self._broker.store.reader
        first = reader.min_offset(topic, queue_id)
        fields = ext_fields(timestamp=reader.store_timestamp(topic, queue_id, first))
        return request.reply(ResponseCode.SUCCESS, None, fields)

    # -- tables for people -------------------------------------------------------------------------

    def _queue_of(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic, self._broker.config.broker_name, queue_id)

    def topic_stats(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer with the ends of a topic's queues, or of those that are asked for (202).

        Who asks for some moves a logical queue behind its end, which a slave may not have yet. What
        names none is answered by slaves as well, as Java's do.
        """
        if ASKED_QUEUES in (request.ext_fields or {}) and self._broker.role is not Role.MASTER:
            return request.reply(
                ResponseCode.SYSTEM_ERROR, "where queues end is said at the master only"
            )
        name = text_field(request.ext_fields, "topic", "")
        topic = self._broker.topics.table.get(name)
        if topic is None:
            return request.reply(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
        reader = self._broker.store.reader
        rows, looks = [], Looks()
        count = max(topic.read_queue_nums, topic.write_queue_nums)
        for queue_id in asked_queues(request.ext_fields, count):
            low, high = reader.min_offset(name, queue_id), reader.max_offset(name, queue_id)
            stamp = looks.timestamp(reader, name, queue_id, high - 1)
            row = {
                "lastUpdateTimestamp": max(0, stamp),
                "maxOffset": max(0, high),
                "minOffset": max(0, low),
            }
            rows.append((self._queue_of(name, queue_id), row))
        looks.end()
        tps = self._broker.statistics.topic_put_tps(name)
        return request.reply(ResponseCode.SUCCESS, body=queue_table(rows, topicPutTps=tps))

    def groups_of_topic(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer with the groups of a topic (300)."""
        topic = text_field(request.ext_fields, "topic", "")
        found = {
            *self._broker.consumers.groups_of_topic(topic),
            *self._broker.offsets.table.groups_of(topic),
        }
        body = fastjson.dumps({"groupList": sorted(found)})
        return request.reply(ResponseCode.SUCCESS, body=body)

    def topics_of_group(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer with the topics of a group (343)."""
        group = text_field(request.ext_fields, "group", "")
        body = fastjson.dumps({"topicList": self._broker.offsets.table.topics_of(group)})
        return request.reply(ResponseCode.SUCCESS, body=body)

    def subscription(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer with a group's subscription (345)."""
        group = text_field(request.ext_fields, "group", "")
        topic = text_field(request.ext_fields, "topic", "")
        online = self._broker.consumers.get(group)
        members: dict[str, object] = {"group": group, "topic": topic}
        if online is None:
            return request.reply(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the group {group} is not online"
            )
        if topic in online.subscriptions:
            members["subscriptionData"] = online.subscriptions[topic].members()
        return request.reply(ResponseCode.SUCCESS, body=fastjson.dumps(members))

    # -- an operator moves a group -----------------------------------------------------------------

    def reset(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """222: each queue's offset is set here, or by the members, as useServerSideResetOffset."""
        broker = self._broker
        wanted = ResetRequest.parse(request.ext_fields)
        if broker.role is not Role.MASTER:
            return request.reply(ResponseCode.SYSTEM_ERROR, "offsets are reset at the master only")
        topic = broker.topics.table.get(wanted.topic)
        if topic is None:
            return request.reply(
                ResponseCode.TOPIC_NOT_EXIST, f"topic {wanted.topic} does not exist"
            )
        refusal = own_group_refusal(wanted.group)
        if refusal is not None:
            return request.reply(refusal.code, refusal.remark)
        if broker.groups.table.get(wanted.group) is None:
            return request.reply(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"group {wanted.group} does not exist"
            )
        table = self._reset_table(wanted, topic)
        if isinstance(table, str):
            return request.reply(ResponseCode.INVALID_PARAMETER, table)
        rows = [(self._queue_of(wanted.topic, queue_id), offset) for queue_id, offset in table]
        body = queue_table(rows)
        if broker.config.boolean("useServerSideResetOffset"):
            wall_ms, reset = broker.clock.wall_ms(), broker.offsets.table.reset
            # A queue for which there is no room keeps none behind it from being moved: whoever hears of
            # it cannot tell which they are, and asks again for all.
            fit = [reset(wanted.group, wanted.topic, *row, wall_ms) for row in table]
            broker.offsets.changed()
            if not all(fit):
                return request.reply(ResponseCode.SYSTEM_BUSY, NO_ROOM)
            return request.reply(ResponseCode.SUCCESS, body=body)
        return self._reset_by_members(request, wanted, body)

    def _reset_table(self, wanted: ResetRequest, topic: TopicConfig) -> list[tuple[int, int]] | str:
        reader, offsets = self._broker.store.reader, self._broker.offsets.table
        queues = queues_to_reset(wanted, topic.read_queue_nums)
        if not queues:
            return f"queue {wanted.queue_id} does not exist"
        table = []
        for queue_id in queues:
            low = reader.min_offset(wanted.topic, queue_id)
            high = reader.max_offset(wanted.topic, queue_id)
            if wanted.offset >= 0:
                if not low <= wanted.offset <= high:
                    return f"offset {wanted.offset} is not in queue {queue_id}: {low} to {high}"
                table.append((queue_id, wanted.offset))
                continue
            target = high
            if wanted.timestamp >= 0:
                target = reader.offset_by_time(wanted.topic, queue_id, wanted.timestamp)
            stored = offsets.query(wanted.group, wanted.topic, queue_id)
            if not wanted.is_force and stored is not None:
                target = min(target, stored)
            table.append((queue_id, target))
        return table

    def _reset_by_members(
        self, request: RemotingCommand, wanted: ResetRequest, body: bytes
    ) -> RemotingCommand:
        broker = self._broker
        clients = broker.consumers.clients(wanted.group)
        if not clients:
            return request.reply(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {wanted.group} "
                f"Topic: {wanted.topic} Timestamp: {wanted.timestamp}",
            )
        for client in clients:
            fields = ext_fields(
                topic=wanted.topic, group=wanted.group, timestamp=wanted.timestamp,
            )  # fmt: skip
            command = RemotingCommand(
                RequestCode.RESET_CONSUMER_CLIENT_OFFSET, ext_fields=fields, body=body
            )
            broker.clients.oneway(client.connection, command)
        return request.reply(ResponseCode.SUCCESS, body=body)


def _queue(request: RemotingCommand) -> tuple[str, int]:
    fields = request.ext_fields
    return text_field(fields, "topic", ""), int_field(fields, "queueId", -1)


def _offset(request: RemotingCommand, offset: int) -> RemotingCommand:
    return request.reply(ResponseCode.SUCCESS, None, ext_fields(offset=offset))
