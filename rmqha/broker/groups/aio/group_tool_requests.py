"""What tools ask about a group and its queues: 303 (ages), 308 (where several groups are), 314 (offsets
copied to another group), 321 (the units of a queue)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from rmqha.broker.common.aio.cold_answers import patient
from rmqha.broker.common.aio.ports import Handlers, unwritable
from rmqha.broker.common.json_members import MessageQueue
from rmqha.broker.groups.aio.ports import Broker
from rmqha.broker.groups.offset_questions import correction_offsets, time_span
from rmqha.broker.topics.group_table import own_group_refusal
from rmqha.ha.events import Role
from rmqha.remoting import fastjson
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import bool_field, int_field, long_field, text_field
from rmqha.store.aio.reader import Looks

UNITS_MAX = 10_000
"""Of a queue in one answer to 321: less than a megabyte."""

UNITS_ASKED = 10
"""Units that mqadmin asks for where nobody says how many."""

STAMPS = ("minTimeStamp", "maxTimeStamp", "consumeTimeStamp")
"""Of a row of 303; each is there as a text as well."""


class GroupToolProcessor:
    """Answers single actions of mqadmin and the dashboard."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> Handlers:
        """By request code."""
        return {
            RequestCode.QUERY_CONSUME_TIME_SPAN: patient(self._broker, self.time_spans),
            RequestCode.QUERY_CORRECTION_OFFSET: self.corrections,
            RequestCode.CLONE_GROUP_OFFSET: self.clone_offsets,
            RequestCode.QUERY_CONSUME_QUEUE: self.queue_units,
        }

    def time_spans(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer how old the messages are that a group has come to (303)."""
        broker = self._broker
        name = text_field(request.ext_fields, "topic", "")
        group = text_field(request.ext_fields, "group", "")
        topic = broker.topics.table.get(name)
        if topic is None:
            return request.reply(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
        reader, looks, rows = broker.store.reader, Looks(), []
        for queue_id in range(topic.write_queue_nums):
            consumed = broker.offsets.table.query(group, name, queue_id)
            span = time_span(
                self._stamps(looks, name, queue_id),
                low=reader.min_offset(name, queue_id),
                high=reader.max_offset(name, queue_id),
                consumed=-1 if consumed is None else consumed,
                wall_ms=broker.clock.wall_ms(),
            )
            texts = {f"{key}Str": _readable(span[key]) for key in STAMPS}
            queue = MessageQueue(name, broker.config.broker_name, queue_id)
            rows.append({**span, **texts, "messageQueue": queue.members()})
        looks.end()
        return request.reply(
            ResponseCode.SUCCESS, body=fastjson.dumps({"consumeTimeSpanSet": rows})
        )

    def _stamps(self, looks: Looks, topic: str, queue_id: int) -> Callable[[int], int]:
        reader = self._broker.store.reader

        def stamp(offset: int) -> int:
            return -1 if offset < 0 else looks.timestamp(reader, topic, queue_id, offset)

        return stamp

    def corrections(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer how far the last of a topic's groups is (308)."""
        fields, table = request.ext_fields, self._broker.offsets.table
        topic = text_field(fields, "topic", "")
        reader = self._broker.store.reader
        found = correction_offsets(
            ((group, table.stored(group, topic)) for group in table.groups_of(topic)),
            table.stored(text_field(fields, "compareGroup", ""), topic),
            frozenset(text_field(fields, "filterGroups", "").split(",")),
            lambda queue_id: reader.min_offset(topic, queue_id),
        )
        body = fastjson.dumps_bare({"correctionOffsets": found})
        return request.reply(ResponseCode.SUCCESS, body=body)

    def clone_offsets(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """Give a group the offsets of another, of one topic or of all (314)."""
        broker, fields = self._broker, request.ext_fields
        if broker.role is not Role.MASTER:
            return request.reply(
                ResponseCode.SYSTEM_ERROR, "offsets are changed at the master only"
            )
        source, target = text_field(fields, "srcGroup", ""), text_field(fields, "destGroup", "")
        refusal = own_group_refusal(target)
        refused = unwritable(broker, request) or (refusal and request.reply(*refusal))
        if refused is not None:
            return refused
        if broker.groups.find(target, may_write=True) is None:
            return request.reply(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {target} not exist!"
            )
        named = text_field(fields, "topic", "").strip()
        online = None
        if not bool_field(fields, "offline", default=False):
            online = broker.consumers.get(source)
        for topic in [named] if named else broker.offsets.table.topics_of(source):
            if broker.topics.table.get(topic) is None:
                continue
            if online is not None and online.subscriptions and topic not in online.subscriptions:
                continue
            for queue_id, offset in sorted(broker.offsets.table.stored(source, topic).items()):
                if not broker.offsets.table.commit(
                    target, topic, queue_id, offset, broker.clock.wall_ms()
                ):
                    # What was copied before stays, so it is kept, too.
                    broker.offsets.changed()
                    return request.reply(
                        ResponseCode.SYSTEM_BUSY, "too many offsets, consumerOffsetsMax"
                    )
        broker.offsets.changed()
        return request.reply(ResponseCode.SUCCESS)

    def queue_units(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer with units of a queue, as they lie in its file (321)."""
        fields, reader = request.ext_fields, self._broker.store.reader
        topic, queue_id = text_field(fields, "topic", ""), int_field(fields, "queueId", -1)
        index = long_field(fields, "index", None) or 0
        count = min(int_field(fields, "count", UNITS_ASKED), UNITS_MAX)
        if not reader.has_queue(topic, queue_id):
            return request.reply(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
        low, high = reader.min_offset(topic, queue_id), reader.max_offset(topic, queue_id)
        if not low <= index < high:
            remark = f"Index {index} of {queue_id}@{topic} is not exist!"
            return request.reply(ResponseCode.SUCCESS, remark)
        units = [
            {
                "eval": False,
                "physicOffset": unit.physical_offset,
                "physicSize": unit.size,
                "tagsCode": unit.tags_code,
            }
            for offset in range(index, min(high, index + count))
            if (unit := reader.unit(topic, queue_id, offset)) is not None
        ]
        body: dict[str, object] = {
            "maxQueueIndex": high, "minQueueIndex": low, "queueData": units,
            **self._subscribed(text_field(fields, "consumerGroup", ""), topic),
        }  # fmt: skip
        return request.reply(ResponseCode.SUCCESS, body=fastjson.dumps(body))

    def _subscribed(self, group: str, topic: str) -> dict[str, object]:
        """How a group that is asked for subscribes to the topic."""
        if not group:
            return {}
        online = self._broker.consumers.get(group)
        if online is None or topic not in online.subscriptions:
            return {"filterData": f"{group}@{topic} is not online!"}
        return {"filterData": "null", "subscriptionData": online.subscriptions[topic].members()}


def _readable(stamp_ms: int) -> str:
    """A moment of the local clock as Java writes it here."""
    moment = datetime.fromtimestamp(stamp_ms // 1000, tz=UTC).astimezone()
    return f"{moment:%Y-%m-%d#%H:%M:%S}:{stamp_ms % 1000:03d}"
