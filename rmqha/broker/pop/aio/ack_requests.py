"""Requests 200051, 200151 and 200053: popped messages are done, or wanted later than was said.

Each becomes a message of the revive topic; the answer waits until that is safe. What was popped in
order has no check point: the group's offset moves, and the table of what is in flight.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from rmqha.base.errors import DiskFailed, MessageIllegal, RemoteProtocolError
from rmqha.broker.common.aio.ports import Handlers
from rmqha.broker.common.refusal import Refusal
from rmqha.broker.deferred.aio.master_services import MasterServices
from rmqha.broker.deferred.delays import place
from rmqha.broker.pop.aio.ordered import OrderedPops
from rmqha.broker.pop.check_points import REVIVE_TOPIC, Acks, CheckPoint
from rmqha.broker.pop.request import (
    ORDER_REVIVE_QUEUE,
    AckRequest,
    BatchAck,
    batch_acks,
    check_ack,
    parse_ack,
    read_batch,
)
from rmqha.broker.pull.aio.ports import Broker
from rmqha.ha.events import Role
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import ext_fields
from rmqha.store.record import Message, pack_host

READ_A_TURN = 512
ACKS_A_TURN = 64
"""Of a batch, before others have their turn: each may be a record."""

NOT_WRITING = "this broker cannot be written to now"


class AckProcessor:
    """Writes what consumers say of messages that they have popped."""

    def __init__(self, broker: Broker, services: MasterServices, orders: OrderedPops) -> None:
        config = broker.config
        self._broker = broker
        self._orders = orders
        self._services = services
        self._revive_topic = REVIVE_TOPIC + config.cluster_name
        self._revive_queues = config.integer("reviveQueueNum")
        self._host = pack_host(config.host, config.port)

    def handlers(self) -> Handlers:
        """By request code."""
        return {
            RequestCode.ACK_MESSAGE: self.ack,
            RequestCode.BATCH_ACK_MESSAGE: self.batch_ack,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self.change,
        }

    # -- requests ----------------------------------------------------------------------------------

    def ack(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """Acknowledge a popped message (200051)."""
        ack = self._parsed(request)
        if isinstance(ack, Refusal):
            return request.reply(ack.code, ack.remark)
        if ack.key.revive_queue == ORDER_REVIVE_QUEUE:
            refusal = self._in_order(ack.topic, ack.consumer_group, ack.queue_id, ack.key.pop_ms,
                                     (ack.offset,))  # fmt: skip
            return request.reply(*(refusal or (ResponseCode.SUCCESS, None)))
        return self._write(connection, request, [self._ack_message(ack)])

    def batch_ack(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """200151: offsets that do not exist are passed over, as in Java."""
        try:
            name, entries = read_batch(bytes(request.body))
        except RemoteProtocolError as error:
            return request.reply(ResponseCode.SYSTEM_ERROR, str(error))
        if not entries:
            return request.reply(ResponseCode.NO_MESSAGE)
        work = self._batch(connection, request, name, entries)
        return self._broker.answers.finish(work, connection, request)

    def _batch(
        self, connection: Connection, request: RemotingCommand, name: str, read: list[Any]
    ) -> Generator[None, None, RemotingCommand | None]:
        """Acknowledge some in each turn; cut off in between, the rest comes again."""
        entries: list[BatchAck] = []
        try:
            for first in range(0, len(read), READ_A_TURN):
                if first:
                    yield
                entries += batch_acks(read[first : first + READ_A_TURN])
        except RemoteProtocolError as error:
            return request.reply(ResponseCode.SYSTEM_ERROR, str(error))
        end = 0
        for first in range(0, len(entries), ACKS_A_TURN):
            if first:
                yield
            part = entries[first : first + ACKS_A_TURN]
            refusal = self._batch_in_order(part)
            if refusal is not None:
                return request.reply(*refusal)
            if all(one.revive_queue == ORDER_REVIVE_QUEUE for one in part):
                continue
            found = [self._batch_message(entry, name) for entry in part]
            written = self._append([one for one in found if one is not None])
            if isinstance(written, Refusal):
                return request.reply(*written)
            end = max(end, written)
        if not end:
            return request.reply(ResponseCode.SUCCESS)
        self._services.writer.answer_when_safe(connection, request, end)
        return None

    def _batch_in_order(self, entries: list[BatchAck]) -> Refusal | None:
        for entry in entries:
            if entry.revive_queue != ORDER_REVIVE_QUEUE:
                continue
            refusal = self._in_order(entry.topic, entry.consumer_group, entry.queue_id,
                                     entry.pop_ms, self._existing(entry))  # fmt: skip
            if refusal is not None:
                return refusal
        return None

    def change(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """200053: a check point of its own for this message, and it leaves the old one."""
        ack = self._parsed(request)
        if isinstance(ack, Refusal):
            return request.reply(ack.code, ack.remark)
        wall_ms, most_ms = self._broker.clock.wall_ms(), self._services.rules.delay_max_ms
        if not 0 <= ack.invisible_ms <= most_ms:
            return request.reply(
                ResponseCode.INVALID_PARAMETER,
                f"an invisible time of {ack.invisible_ms} ms is not from 0 to {most_ms}",
            )
        if ack.key.revive_queue == ORDER_REVIVE_QUEUE:
            return self._change_in_order(request, ack)
        # By its time alone the new check point differs from the old one, which is acknowledged.
        pop_ms = max(wall_ms, ack.key.pop_ms + 1)
        point = CheckPoint(
            ack.topic, ack.consumer_group, ack.queue_id, ack.offset, pop_ms, ack.invisible_ms,
            ack.key.broker_name, (ack.offset,), log_end=self._broker.store.max_offset,
        )  # fmt: skip
        revive_queue = ack.key.revive_queue
        later = point.message(self._revive_topic, revive_queue, self._host, wall_ms)
        fields = ext_fields(popTime=pop_ms, invisibleTime=ack.invisible_ms, reviveQid=revive_queue)
        # In this order: cut off between the two it comes twice, never not at all.
        return self._write(connection, request, [later, self._ack_message(ack)], fields)

    # -- parts of them -----------------------------------------------------------------------------

    def _parsed(self, request: RemotingCommand) -> AckRequest | Refusal:
        try:
            ack = parse_ack(request.ext_fields)
        except RemoteProtocolError as error:
            return Refusal(ResponseCode.SYSTEM_ERROR, str(error))
        broker = self._broker
        topic = broker.topics.table.get(ack.topic)
        low, high = self._ends(ack.topic, ack.queue_id)
        refusal = check_ack(ack, topic, low, high, self._revive_queues)
        return ack if refusal is None else refusal

    def _ends(self, topic: str, queue_id: int) -> tuple[int, int]:
        """A queue's first offset, and its end; a new master has not dispatched all of its log yet."""
        store, reader = self._broker.store, self._broker.store.reader
        end = store.queues.next_offsets.get((topic.encode(), queue_id), 0)
        high = max(reader.max_offset(topic, queue_id), end)
        return max(0, reader.min_offset(topic, queue_id)), high

    def _ack_message(self, ack: AckRequest) -> Message:
        key = ack.key
        acks = Acks(
            ack.topic, ack.consumer_group, ack.queue_id, key.start_offset, key.pop_ms,
            key.broker_name, (ack.offset,),
        )  # fmt: skip
        return self._message(acks, key.revive_queue, key.invisible_ms)

    def _batch_message(self, entry: BatchAck, name: str) -> Message | None:
        offsets = self._existing(entry)
        if not offsets or not 0 <= entry.revive_queue < self._revive_queues:
            return None
        acks = Acks(
            entry.topic, entry.consumer_group, entry.queue_id, entry.start_offset, entry.pop_ms,
            name or self._broker.config.broker_name, offsets,
        )  # fmt: skip
        return self._message(acks, entry.revive_queue, entry.invisible_ms)

    def _existing(self, entry: BatchAck) -> tuple[int, ...]:
        low, high = self._ends(entry.topic, entry.queue_id)
        return tuple(one for one in entry.offsets if low <= one < high)

    def _in_order(
        self, topic: str, group: str, queue_id: int, pop_ms: int, offsets: tuple[int, ...]
    ) -> Refusal | None:
        """Acknowledge what was popped in order; why the last that counts for nothing does so."""
        refusal = self._not_master()
        for offset in () if refusal is not None else offsets:
            acked = self._orders.acknowledge((topic, group, queue_id), offset, pop_ms)
            if acked.illegal:
                refusal = Refusal(
                    ResponseCode.MESSAGE_ILLEGAL,
                    f"offset is illegal, key:{topic}@{group}@{queue_id}, commit:{offset}",
                )
        return refusal

    def _change_in_order(self, request: RemotingCommand, ack: AckRequest) -> RemotingCommand:
        refusal = self._not_master()
        if refusal is not None:
            return request.reply(refusal.code, refusal.remark)
        visible_ms = self._orders.change(ack)
        pop_ms = ack.key.pop_ms
        if visible_ms is None:  # it is done: Java's zeros
            visible_ms = pop_ms = 0
        fields = ext_fields(
            popTime=pop_ms, invisibleTime=visible_ms - pop_ms,
            reviveQid=ORDER_REVIVE_QUEUE if pop_ms else 0,
        )  # fmt: skip
        return request.reply(ResponseCode.SUCCESS, None, fields)

    def _not_master(self) -> Refusal | None:
        if self._broker.role is Role.MASTER:
            return None
        return Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, NOT_WRITING)

    def _message(self, acks: Acks, revive_queue: int, invisible_ms: int) -> Message:
        wall_ms = self._broker.clock.wall_ms()
        return acks.message(self._revive_topic, revive_queue, invisible_ms, self._host, wall_ms)

    def _write(
        self,
        connection: Connection,
        request: RemotingCommand,
        messages: list[Message],
        fields: dict[str, str] | None = None,
    ) -> RemotingCommand | None:
        """Write all, and answer when they are safe."""
        end = self._append(messages)
        if isinstance(end, Refusal):
            return request.reply(end.code, end.remark)
        if not end:
            return request.reply(ResponseCode.SUCCESS, None, fields)
        self._services.writer.answer_when_safe(connection, request, end, fields)
        return None

    def _append(self, messages: list[Message]) -> int | Refusal:
        """Write all; where the last one ends, 0 for none."""
        writer, rules = self._services.writer, self._services.rules
        if not writer.is_open:
            return Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, NOT_WRITING)
        wall_ms, end = self._broker.clock.wall_ms(), 0
        try:
            for message in messages:
                placed = place(message, rules, wall_ms)
                if isinstance(placed, Refusal):
                    return placed
                end = writer.append(placed).end
        except (MessageIllegal, DiskFailed) as error:
            return Refusal(ResponseCode.SYSTEM_ERROR, str(error))
        return end
