"""Requests 10, 310 and 320: a message is checked, written, and answered when enough hold it."""

from __future__ import annotations

from rmqha.base.errors import DiskFailed, MessageIllegal, RmqhaError
from rmqha.broker.aio.processors import Broker, Handlers
from rmqha.broker.send import (
    MESSAGE_ILLEGAL,
    SEND_BATCH_MESSAGE,
    SERVICE_NOT_AVAILABLE,
    Refusal,
    SendRequest,
    Stamps,
    build_message,
    check_request,
    choose_queue,
    find_topic,
    parse_send,
    stored_fields,
    waits_for_store,
)
from rmqha.broker.unique_ids import UniqueIds
from rmqha.ha.aio.service import HaService
from rmqha.ha.events import PutStatus, Role
from rmqha.remoting.address import parse_address
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.store.aio.commit_log import AppendResult
from rmqha.store.record import Message, pack_host

NOT_SERVING = "this broker does not know its role yet, or is giving it up"
SLAVE_REFUSES = "[REJECTREQUEST] this broker is a slave, messages go to its master"


class SendProcessor:
    """Takes messages while the broker is master."""

    def __init__(self, broker: Broker, unique_ids: UniqueIds) -> None:
        self._broker = broker
        self._unique_ids = unique_ids
        config = broker.config
        self._stamps = Stamps(
            config.cluster_name, config.values["regionId"], config.values["traceOn"].lower()
        )
        self._store_host = pack_host(config.host, config.port)
        self._body_max = config.store.max_message_size
        self._in_flight_max = config.integer("sendsInFlightMax")
        self._in_flight = 0
        self._turn = 0
        ha = config.ha
        # A put that needs nobody but this broker is answered without a task of its own.
        self._alone = (
            not config.store.sync_flush
            and not ha.all_ack_in_sync_state_set
            and ha.in_sync_replicas <= 1
        )

    def handlers(self) -> Handlers:
        """By request code."""
        return {
            RequestCode.SEND_MESSAGE: self.send,
            RequestCode.SEND_MESSAGE_V2: self.send,
            SEND_BATCH_MESSAGE: self.send,
        }

    def send(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """Take one request."""
        ha = self._broker.ha
        refusal = self._closed_for(ha)
        if refusal is not None or ha is None:
            return _refused(request, refusal or Refusal(SERVICE_NOT_AVAILABLE, NOT_SERVING))
        parsed = parse_send(request.code, request.ext_fields)
        if isinstance(parsed, Refusal):
            return _refused(request, parsed)
        waits = waits_for_store(parsed.properties)
        status = ha.check_put(wait_store_ok=waits)
        if status is not PutStatus.PUT_OK:
            return request.reply(status.response_code, status.remark or NOT_SERVING)
        written = self._write(connection, request, parsed)
        if isinstance(written, Refusal):
            return _refused(request, written)
        message, results = written
        ids = [result.msg_id for result in results]
        fields = stored_fields(message, ids, results[0].queue_offset, self._stamps)
        ha.appended()
        if self._alone or not waits:
            return request.reply(ResponseCode.SUCCESS, None, fields)
        self._in_flight += 1
        self._broker.tasks.start(
            self._finish(connection, request, ha, results[-1].end, fields), name="send"
        )
        return None

    def _closed_for(self, ha: HaService | None) -> Refusal | None:
        role = self._broker.role
        if role is Role.SLAVE:
            return Refusal(ResponseCode.SYSTEM_BUSY, SLAVE_REFUSES)
        if role is None or ha is None or self._broker.store.failed is not None:
            return Refusal(SERVICE_NOT_AVAILABLE, NOT_SERVING)
        if self._in_flight >= self._in_flight_max:
            return Refusal(ResponseCode.SYSTEM_BUSY, "too many messages wait for replicas")
        return None

    def _write(
        self, connection: Connection, request: RemotingCommand, parsed: SendRequest
    ) -> tuple[Message, list[AppendResult]] | Refusal:
        broker = self._broker
        refusal = check_request(parsed, len(request.body), self._body_max)
        if refusal is not None:
            return refusal
        found = find_topic(broker.topics.table, parsed, broker.clock.wall_ms())
        if isinstance(found, Refusal):
            return found
        topic, is_new = found
        if is_new:
            broker.topics_changed()
        self._turn += 1
        queue_id = choose_queue(topic, parsed.queue_id, self._turn)
        if isinstance(queue_id, Refusal):
            return queue_id
        message = build_message(
            parsed,
            queue_id,
            request.body,
            stamps=self._stamps,
            unique_key=self._unique_ids.next(),
            born_host=_pack_peer(connection.peer),
            store_host=self._store_host,
        )
        try:
            if parsed.batch:
                return message, broker.store.append_batch(message)
            return message, [broker.store.append(message)]
        except MessageIllegal as error:
            return Refusal(MESSAGE_ILLEGAL, str(error))
        except DiskFailed as error:
            return Refusal(SERVICE_NOT_AVAILABLE, str(error))

    async def _finish(
        self,
        connection: Connection,
        request: RemotingCommand,
        ha: HaService,
        end: int,
        fields: dict[str, str],
    ) -> None:
        """Answer when the disk and enough replicas have the record, or its time is over."""
        store = self._broker.store
        try:
            if store.settings.sync_flush:
                await store.flush(end)
            status = await ha.wait_put(end)
        except DiskFailed as error:
            connection.send(request.reply(SERVICE_NOT_AVAILABLE, str(error)))
            return
        finally:
            self._in_flight -= 1
        if status is PutStatus.SERVICE_NOT_AVAILABLE:
            # This replica stopped before anybody could say what has become of the record.
            status = PutStatus.FLUSH_SLAVE_TIMEOUT
        if not request.is_oneway:
            connection.send(request.reply(status.response_code, status.remark, fields))


def _refused(request: RemotingCommand, refusal: Refusal) -> RemotingCommand:
    return request.reply(refusal.code, refusal.remark)


def _pack_peer(peer: str) -> bytes:
    """The producer's address as a record carries it; one without an IP address becomes 0.0.0.0."""
    try:
        host, port = parse_address(peer)
        return pack_host(host.partition("%")[0], port)
    except RmqhaError:
        return pack_host("0.0.0.0", 0)
