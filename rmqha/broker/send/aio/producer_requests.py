"""What else producers ask for: sent-back messages (36), ends of transactions (37), recalls (370).
Consumers send 36; to the store it is one more producer."""

from __future__ import annotations

from rmqha.auth.resources import Action
from rmqha.base.errors import DiskFailed, MessageIllegal
from rmqha.broker.common.aio.cold_answers import patient
from rmqha.broker.common.aio.ports import Handlers
from rmqha.broker.common.refusal import Refusal
from rmqha.broker.deferred.aio.master_services import MasterServices
from rmqha.broker.deferred.delays import check_recall, decode_handle, place, recall_messages
from rmqha.broker.deferred.transactions import COMMIT, ROLLBACK, parse_end
from rmqha.broker.groups.aio.ports import Broker
from rmqha.broker.send.aio.roomy_sends import RoomySends
from rmqha.broker.send.aio.send_requests import NOT_SERVING, pack_peer
from rmqha.broker.send.aio.stray_requests import StrayRequests
from rmqha.broker.send.retry import (
    FIRST_RETRY_LEVEL,
    BackRequest,
    dead_letter_topic,
    first_topic,
    goes_to_dead_letters,
    group_refusal,
    parse_back,
    reconsume_max,
    retry_topic,
    returned_message,
)
from rmqha.broker.topics.topic_table import TopicConfig
from rmqha.ha.events import Role
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import text_field
from rmqha.remoting.topic_names import PERM_WRITE
from rmqha.store.record import Message, Record, pack_host

ENDS_HELD_MAX = 10_000
NOT_KNOWN = "this broker does not know yet which transactions have ended"


class ProducerProcessor:
    """Writes for clients while the broker is master.

    Args:
        row: of those that wait for room in the log.
    """

    def __init__(
        self, broker: Broker, services: MasterServices, strays: StrayRequests, row: RoomySends
    ) -> None:
        config = broker.config
        self._row = row
        self._broker = broker
        self._strays = strays
        self._services = services
        self._store_host = pack_host(config.host, config.port)
        self._turn = 0
        self._ends_held = 0
        self._end = row.behind(patient(broker, self.end_transaction))

    def handlers(self) -> Handlers:
        """By request code."""
        return {
            RequestCode.CONSUMER_SEND_MSG_BACK: self._row.behind(
                patient(self._broker, self.send_back)
            ),
            RequestCode.END_TRANSACTION: self._end,
            RequestCode.RECALL_MESSAGE: self._row.behind(self.recall),
        }

    @property
    def _may_write(self) -> bool:
        return bool(self._broker.config.integer("brokerPermission") & PERM_WRITE)

    # -- 36 ----------------------------------------------------------------------------------------

    def send_back(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """36: deliver a message once more later, or give it up."""
        if self._strays.take_back(connection, request):
            return None
        back = parse_back(request.ext_fields)
        try:
            end = self._send_back(connection, request, back)
        except (MessageIllegal, DiskFailed) as error:
            end = Refusal(ResponseCode.SYSTEM_ERROR, str(error))
        if isinstance(end, Refusal):
            return request.reply(end.code, end.remark)
        if not end:
            return request.reply(ResponseCode.SUCCESS)
        self._services.writer.answer_when_safe(connection, request, end)
        return None

    def _send_back(
        self, connection: Connection, request: RemotingCommand, back: BackRequest
    ) -> int | Refusal:
        """Where the record ends that was written; 0 for a group that wants no retries."""
        broker = self._broker
        if not self._services.writer.is_open:
            return Refusal(ResponseCode.SYSTEM_ERROR, NOT_SERVING)
        if broker.store.expiring.is_disk_full:
            # The name of Java's status; the consumer keeps the message and tries it itself.
            return Refusal(ResponseCode.SYSTEM_ERROR, ResponseCode.SERVICE_NOT_AVAILABLE.name)
        group = broker.groups.find(back.group, may_write=True)
        if group is None:
            return group_refusal(back.group)
        if not self._may_write:
            return Refusal(ResponseCode.NO_PERMISSION, "sending to this broker is forbidden")
        if group.retry_queue_nums <= 0:
            return 0
        topic = broker.metadata.make_topic(
            retry_topic(back.group, group.retry_queue_nums, unit_mode=back.unit_mode)
        )
        if topic is None or not topic.perm & PERM_WRITE:
            return Refusal(
                ResponseCode.NO_PERMISSION,
                f"sending to the retry topic of {back.group} is forbidden",
            )
        record = broker.store.reader.look(back.offset)
        if record is None:
            return Refusal(
                ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {back.offset}"
            )
        refusal = broker.rights.refusal(connection, request, record, Action.SUB, group=back.group)
        if refusal is not None:
            return refusal
        most = reconsume_max(group.retry_max_times, back.max_reconsume_times, request.version)
        message = self._returned(back, record, most, topic)
        if isinstance(message, Refusal):
            return message
        result = self._services.writer.append(message)
        broker.statistics.put(message.topic, 1, result.size)
        broker.statistics.sent_back(first_topic(record), back.group, result.size)
        return result.end

    def _returned(
        self, back: BackRequest, record: Record, most: int, retries: TopicConfig
    ) -> Message | Refusal:
        if goes_to_dead_letters(record.reconsume_times, most, back.delay_level):
            dead = dead_letter_topic(back.group)
            if self._broker.metadata.make_topic(dead) is None:
                return Refusal(ResponseCode.SYSTEM_BUSY, f"topic {dead.name} cannot be made now")
            return returned_message(record, dead.name, 0, 0, self._store_host)
        level = back.delay_level or FIRST_RETRY_LEVEL + record.reconsume_times
        self._turn += 1
        # The group may want more queues than its topic has had since it was made.
        queue_id = self._turn % max(1, min(retries.read_queue_nums, retries.write_queue_nums))
        message = returned_message(record, retries.name, queue_id, level, self._store_host)
        return place(message, self._services.rules, self._broker.clock.wall_ms())

    # -- 37 ----------------------------------------------------------------------------------------

    def end_transaction(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand | None:
        """37: commit or roll back; a producer that does not know yet will be asked."""
        if self._broker.role is not Role.MASTER:
            return request.reply(ResponseCode.SLAVE_NOT_AVAILABLE, NOT_SERVING)
        end = parse_end(request.ext_fields)
        if end.decision not in (COMMIT, ROLLBACK):
            return None
        if self._strays.end(connection, request, end.physical_offset):
            return None
        if not self._services.transactions.is_known and self._services.writer.is_open:
            if self._ends_held >= ENDS_HELD_MAX:
                return request.reply(ResponseCode.SYSTEM_BUSY, NOT_KNOWN)
            self._broker.answers.start(
                self._end_later(connection, request), connection, request, name="end when known"
            )
            return None
        done = self._services.transactions.end(
            end, lambda half: self._broker.rights.refusal(connection, request, half, Action.PUB)
        )
        if isinstance(done, Refusal):
            return request.reply(done.code, done.remark)
        self._services.writer.answer_when_safe(connection, request, done)
        return None

    async def _end_later(self, connection: Connection, request: RemotingCommand) -> None:
        """The same, once this master knows which transactions have ended."""
        self._ends_held += 1
        try:
            is_known = await self._services.transactions.becomes_known()
        finally:
            self._ends_held -= 1
        if is_known:
            reply = self._end(connection, request)
        else:
            reply = request.reply(ResponseCode.SERVICE_NOT_AVAILABLE, NOT_KNOWN)
        if reply is not None and not request.is_oneway:
            connection.send(reply)

    # -- 370 ---------------------------------------------------------------------------------------

    def recall(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """370: take a timer back that is not due yet."""
        written = self._recall(connection, request)
        if isinstance(written, Refusal):
            return request.reply(written.code, written.remark)
        end, key = written
        # Without the last two the client writes no trace of the recall.
        values = self._broker.config.values
        stamps = {"MSG_REGION": values["regionId"], "TRACE_ON": values["traceOn"].lower()}
        fields = {"msgId": key, **stamps}
        self._services.writer.answer_when_safe(connection, request, end, fields)
        return None

    def _recall(
        self, connection: Connection, request: RemotingCommand
    ) -> tuple[int, str] | Refusal:
        """Where the recall's record ends, and the UNIQ_KEY of what it recalls."""
        broker, rules = self._broker, self._services.rules
        if not broker.config.boolean("recallMessageEnable"):
            return Refusal(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
        if broker.role is not Role.MASTER:
            return Refusal(
                ResponseCode.SLAVE_NOT_AVAILABLE, "recall failed, broker service not available"
            )
        if not self._services.writer.is_open or not self._may_write:
            return Refusal(
                ResponseCode.SERVICE_NOT_AVAILABLE, "recall failed, broker service not available"
            )
        topic = text_field(request.ext_fields, "topic", "")
        if broker.topics.table.get(topic) is None:
            return Refusal(
                ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{topic}] not exist"
            )
        handle = decode_handle(text_field(request.ext_fields, "recallHandle", ""))
        if isinstance(handle, Refusal):
            return handle
        wall_ms = broker.clock.wall_ms()
        refusal = check_recall(handle, topic, broker.config.broker_name, rules, wall_ms)
        if refusal is not None:
            return refusal
        group = text_field(request.ext_fields, "producerGroup", "")
        born = pack_peer(connection.peer)
        end = 0
        try:
            for one in recall_messages(handle, group, wall_ms, born, self._store_host):
                message = place(one, rules, wall_ms)
                if isinstance(message, Refusal):
                    return Refusal(ResponseCode.SYSTEM_ERROR, "recall failed, execute error")
                end = self._services.writer.append(message).end
            return end, handle.unique_key
        except (MessageIllegal, DiskFailed) as error:
            return Refusal(ResponseCode.SYSTEM_ERROR, str(error))
