"""Requests 200051, 200151 and 200053: popped messages are done, or wanted later than was said.

Each becomes a message of the revive topic; the answer waits until that is safe. What was popped in
order has no check point: the group's offset moves, and the table of what is in flight.
"""

from __future__ import annotations

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
    check_ack,
    parse_ack,
    parse_batch,
)
from rmqha.broker.pull.aio.ports import Broker
from rmqha.ha.events import Role
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import ext_fields
from rmqha.store.record import Message, pack_host


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
            name, entries = parse_batch(bytes(request.body))
        except RemoteProtocolError as error:
            return request.reply(ResponseCode.SYSTEM_ERROR, str(error))
        if not entries:
            return request.reply(ResponseCode.NO_MESSAGE)
        ordered = [one for one in entries if one.revive_queue == ORDER_REVIVE_QUEUE]
        for entry in ordered:
            refusal = self._in_order(entry.topic, entry.consumer_group, entry.queue_id,
                                     entry.pop_ms, self._existing(entry))  # fmt: skip
            if refusal is not None:
                return request.reply(*refusal)
        if len(ordered) == len(entries):
            return request.reply(ResponseCode.SUCCESS)
        found = [self._batch_message(entry, name) for entry in entries]
        return self._write(connection, request, [one for one in found if one is not None])

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
        reader = self._broker.store.reader
        return max(0, reader.min_offset(topic, queue_id)), reader.max_offset(topic, queue_id)

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
        return Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "this broker cannot be written to now")

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
        writer, rules = self._services.writer, self._services.rules
        if not writer.is_open:
            return request.reply(
                ResponseCode.SERVICE_NOT_AVAILABLE, "this broker cannot be written to now"
            )
        wall_ms = self._broker.clock.wall_ms()
        end = 0
        try:
            for message in messages:
                placed = place(message, rules, wall_ms)
                if isinstance(placed, Refusal):
                    return request.reply(placed.code, placed.remark)
                end = writer.append(placed).end
        except (MessageIllegal, DiskFailed) as error:
            return request.reply(ResponseCode.SYSTEM_ERROR, str(error))
        if not end:
            return request.reply(ResponseCode.SUCCESS, None, fields)
        self._services.writer.answer_when_safe(connection, request, end, fields)
        return None
