"""How far groups are: one (208), or all of them (317), a few queues in a turn of the loop.

A group may consume ten thousand topics, and exporters of metrics ask for each group every minute.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from rmqha.broker.common.aio.ports import Handlers
from rmqha.broker.common.json_members import MessageQueue, queue_pair, table_of_pairs
from rmqha.broker.groups.aio.ports import Broker
from rmqha.broker.groups.offset_rules import NOWHERE
from rmqha.broker.topics.topic_table import TopicConfig
from rmqha.remoting import fastjson
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import bool_field, text_field
from rmqha.remoting.topic_names import topics_listed
from rmqha.store.aio.reader import Looks

ROWS_A_TURN = 50
"""Queues looked at before others get their turn; each is a look into the log."""

ASKED_MAX = 1_000
"""Requests that wait for the one before: each table is made alone, for it may take megabytes."""

Row = dict[str, int]
Send = Callable[[Connection, RemotingCommand], Awaitable[None]]


class ConsumeStats:
    """Those of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._asked = 0
        self._making = asyncio.Lock()

    def handlers(self) -> Handlers:
        """By request code."""
        return {
            RequestCode.GET_CONSUME_STATS: self.of_group,
            RequestCode.GET_BROKER_CONSUME_STATS: self.of_all,
        }

    def of_group(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """Answer how far a group is (208)."""
        return self._start(self._send_group, connection, request)

    def of_all(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """317: 208 of all groups; ``isOrder`` leaves out all but ordered topics."""
        return self._start(self._send_all, connection, request)

    def _start(
        self, send: Send, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand | None:
        if self._asked >= ASKED_MAX:
            return request.reply(
                ResponseCode.SYSTEM_BUSY, f"{self._asked} wait already for how far groups are"
            )
        self._asked += 1
        work = self._one_by_one(send, connection, request)
        self._broker.answers.start(work, connection, request, name="consume stats")
        return None

    async def _one_by_one(
        self, send: Send, connection: Connection, request: RemotingCommand
    ) -> None:
        try:
            async with self._making:
                if not connection.is_closing:
                    await send(connection, request)
        finally:
            self._asked -= 1

    async def _send_group(self, connection: Connection, request: RemotingCommand) -> None:
        broker, fields = self._broker, request.ext_fields
        group = text_field(fields, "consumerGroup", "")
        named = text_field(fields, "topic", "").strip()
        asked = topics_listed(fields) or ([named] if named else [])
        pairs, tps, turn = [], 0.0, _Turn()
        for name in asked or broker.offsets.table.topics_of(group):
            topic = broker.topics.table.get(name) if asked else self._counted(group, name)
            if topic is None:
                continue
            async for queue, row in self._rows(group, topic, topic.read_queue_nums, turn):
                pairs.append(queue_pair(queue, row))
            tps += broker.statistics.group_get_tps(name, group)
        if not request.is_oneway:
            body = table_of_pairs(pairs, consumeTps=tps)
            connection.send(request.reply(ResponseCode.SUCCESS, body=body))

    async def _send_all(self, connection: Connection, request: RemotingCommand) -> None:
        broker = self._broker
        ordered = bool_field(request.ext_fields, "isOrder", default=False)
        behind, inflight, listed, turn = 0, 0, [], _Turn()
        for group in sorted(broker.groups.table.groups):
            tables = []
            for name in broker.offsets.table.topics_of(group):
                topic = self._counted(group, name)
                if topic is None or (ordered and not topic.order):
                    continue
                pairs = []
                async for queue, row in self._rows(group, topic, topic.write_queue_nums, turn):
                    behind += row["brokerOffset"] - row["consumerOffset"]
                    inflight += max(0, row["pullOffset"] - row["consumerOffset"])
                    pairs.append(queue_pair(queue, row))
                tps = broker.statistics.group_get_tps(name, group)
                tables.append(table_of_pairs(pairs, consumeTps=tps))
            listed.append(b"{" + fastjson.dumps(group) + b":[" + b",".join(tables) + b"]}")
        address = fastjson.dumps(broker.config.address)
        head = b'{"brokerAddr":%s,"consumeStatsList":[' % address
        tail = b'],"totalDiff":%d,"totalInflightDiff":%d}' % (behind, inflight)
        body = head + b",".join(listed) + tail
        if not request.is_oneway:
            connection.send(request.reply(ResponseCode.SUCCESS, body=body))

    def _counted(self, group: str, name: str) -> TopicConfig | None:
        """A topic, if a group's members still subscribe to it or nobody knows."""
        online = self._broker.consumers.get(group)
        topic = self._broker.topics.table.get(name)
        return topic if online is None or name in online.subscriptions else None

    async def _rows(
        self, group: str, topic: TopicConfig, count: int, turn: _Turn
    ) -> AsyncIterator[tuple[MessageQueue, Row]]:
        """A topic's queues; those of one turn are looked at together."""
        broker_name, at = self._broker.config.broker_name, 0
        while at < count:
            numbers = range(at, min(count, at + turn.left))
            for number, row in await self._rows_read(group, topic.name, numbers):
                yield MessageQueue(topic.name, broker_name, number), row
            at = numbers.stop
            await turn.took(len(numbers))

    async def _rows_read(self, group: str, topic: str, numbers: range) -> list[tuple[int, Row]]:
        def rows() -> list[tuple[int, Row]]:
            looks = Looks()
            found = [(number, self._row(group, topic, number, looks)) for number in numbers]
            looks.end()
            return found

        return await self._broker.store.cold.look(rows)

    def _row(self, group: str, topic: str, queue_id: int, looks: Looks) -> Row:
        reader, offsets = self._broker.store.reader, self._broker.offsets.table
        broker_offset = max(0, reader.max_offset(topic, queue_id))
        stored = offsets.query(group, topic, queue_id)
        # Of a static topic there may be nothing here because it is in another segment.
        nothing = NOWHERE if topic in self._broker.mappings.table.items else 0
        consumed = nothing if stored is None else max(nothing, stored)
        pulled = offsets.pull_offset(group, topic, queue_id)
        stamp = looks.timestamp(reader, topic, queue_id, consumed - 1)
        return {
            "brokerOffset": broker_offset,
            "consumerOffset": consumed,
            "lastTimestamp": max(0, stamp),
            "pullOffset": consumed if pulled is None else max(pulled, consumed),
        }


class _Turn:
    """How many rows may be looked at still before others have their turn."""

    def __init__(self) -> None:
        self.left = ROWS_A_TURN

    async def took(self, rows: int) -> None:
        """Some were; let others have their turn if that was all."""
        self.left -= rows
        if self.left <= 0:
            self.left = ROWS_A_TURN
            await asyncio.sleep(0)
