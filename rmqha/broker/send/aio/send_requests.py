"""Requests 10, 310 and 320: a message is checked, written, and answered when enough hold it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rmqha.base.errors import DiskFailed, LocalProtocolError, MessageIllegal, RmqhaError
from rmqha.broker.common.aio.ports import Handlers
from rmqha.broker.common.refusal import Refusal
from rmqha.broker.common.unique_ids import UniqueIds
from rmqha.broker.deferred.aio.master_services import MasterServices
from rmqha.broker.deferred.delays import TIMER_TOPIC, delay_level, handle_of, place
from rmqha.broker.deferred.transactions import half_message, is_half
from rmqha.broker.groups.aio.ports import Broker
from rmqha.broker.logical.aio.forwarding import Adapt, Forwarding
from rmqha.broker.logical.place import is_of_old_client, mapping_for
from rmqha.broker.send.aio.handovers import Handovers
from rmqha.broker.send.aio.plain_sends import PlainSends
from rmqha.broker.send.aio.roomy_sends import RoomySends
from rmqha.broker.send.aio.undecided_sends import UndecidedSends
from rmqha.broker.send.aio.waiting_sends import Waiting, WaitingSends
from rmqha.broker.send.plain_request import PlainSend
from rmqha.broker.send.request import (
    PRIORITY,
    LogicalQueue,
    SendRequest,
    Stamps,
    build_message,
    choose_logical,
    choose_queue,
    content_refusal,
    disk_full,
    name_refusal,
    parse_send,
    priority_of,
    priority_queue,
    promise_refusal,
    stored_fields,
    waits_for_store,
)
from rmqha.broker.send.retry import dead_letter_topic, group_refusal, reconsume_max
from rmqha.broker.send.strays import PassedHalves
from rmqha.broker.topics.metadata import Change
from rmqha.broker.topics.topic_table import TopicConfig
from rmqha.ha.aio.service import HaService
from rmqha.ha.events import PutStatus, Role
from rmqha.remoting.address import parse_address
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import FLAG_ONEWAY, RemotingCommand
from rmqha.remoting.topic_names import PERM_WRITE, RETRY_PREFIX
from rmqha.statictopic.mapping import TopicQueueMappingDetail
from rmqha.store import properties as props
from rmqha.store.record import Message, pack_host

NOT_SERVING = "this broker does not know its role yet, or is giving it up"
SLAVE_REFUSES = "this broker is a slave, messages go to its master"


MakeHandovers = Callable[
    [Callable[[Connection, RemotingCommand], object], Callable[[], int], int], Handovers
]
"""Of what takes a message once more, how many wait, and how many may be kept."""


class SendProcessor:
    """Takes messages while the broker is master.

    Attributes:
        row: of those that wait for room in the log.
    """

    def __init__(
        self,
        broker: Broker,
        services: MasterServices,
        unique_ids: UniqueIds,
        forwarding: Forwarding,
        halves: PassedHalves,
        make_handovers: MakeHandovers,
    ) -> None:
        self._broker = broker
        self._forwarding = forwarding
        self._halves = halves
        self._rules = services.rules
        self._unique_ids = unique_ids
        config = broker.config
        self._stamps = Stamps.of(
            config.cluster_name, config.values["regionId"], config.values["traceOn"].lower()
        )
        self._store_host = pack_host(config.host, config.port)
        self._host_text = self._store_host.hex().upper()
        self._body_max = config.store.max_message_size
        self._in_flight_max = config.integer("sendsInFlightMax")
        self._waiting = WaitingSends(broker)
        self._held = UndecidedSends(broker.clock, self._send_alone, self._in_flight_max)
        broker.mappings.on_changed.append(self._held.remapped)
        self.row = RoomySends(broker, self._in_flight_max)
        self.handovers = make_handovers(
            self._send_alone, lambda: len(self._waiting), self._in_flight_max
        )
        self._turn = 0
        self._peers: dict[int, bytes] = {}
        self._plain = PlainSends(broker, self._store_host, self._stamps)
        ha = config.ha
        # A put that needs nobody but this broker is answered at once.
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
            RequestCode.SEND_BATCH_MESSAGE: self.send,
        }

    def send(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """Take one request."""
        ha = self._broker.ha
        if self.handovers.holds:
            return self.handovers.take(connection, request)
        if self.row.holds:
            return self.row.take(connection, request, self.send)
        refusal = self._closed_for(ha)
        if refusal is not None or ha is None:
            return _refused(
                request, refusal or Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, NOT_SERVING)
            )
        if isinstance(request, PlainSend):
            request.general()
        parsed = parse_send(request.code, request.ext_fields)
        if isinstance(parsed, Refusal):
            return _refused(request, parsed)
        mappings = self._broker.mappings.table
        mapping = None
        if mappings.items:
            mapping = mapping_for(mappings, parsed.topic, request.ext_fields)
        if mapping is None:
            return self._send(connection, request, parsed, ha, None)
        self._turn += parsed.queue_id < 0
        queue = choose_logical(mapping, parsed.queue_id, self._turn)
        if isinstance(queue, Refusal):
            return self._pass_on(connection, request, mapping, parsed)
        if not queue.leader.is_decided:
            return self._held.hold(connection, request, parsed.topic, queue.logical_id)
        parsed = parsed._replace(queue_id=queue.leader.queue_id)
        return self._send(connection, request, parsed, ha, queue)

    def _pass_on(
        self,
        connection: Connection,
        request: RemotingCommand,
        mapping: TopicQueueMappingDetail,
        parsed: SendRequest,
    ) -> RemotingCommand | None:
        """Another set leads the queue; a transaction of an old client is ended here all the same."""
        key = parsed.named.get(b"UNIQ_KEY", b"").decode("utf-8", "replace")
        adapt: Adapt | None = None
        if key and is_half(parsed.named) and is_of_old_client(request.version, request.ext_fields):

            def adapt(answer: RemotingCommand, name: str) -> RemotingCommand:
                if answer.code == ResponseCode.SUCCESS:
                    self._halves.passed_on(key, name, parsed.topic)
                return answer

        return self._forwarding.pass_on(connection, request, mapping, parsed.queue_id, adapt=adapt)

    def _send(
        self,
        connection: Connection,
        request: RemotingCommand,
        parsed: SendRequest,
        ha: HaService,
        queue: LogicalQueue | None,
    ) -> RemotingCommand | None:
        """Write a message to a physical queue.

        Args:
            queue: the logical one that it is of; None for an ordinary topic.
        """
        waits = waits_for_store(parsed.properties, parsed.named)
        status = ha.check_put(wait_store_ok=waits)
        if status is not PutStatus.PUT_OK:
            return request.reply(status.response_code, status.remark or NOT_SERVING)
        written = self._write(connection, request, parsed)
        if isinstance(written, Refusal):
            return _refused(request, written)
        end, fields = written
        if queue is not None:
            fields["queueId"] = str(queue.logical_id)
            # Of a half message it is its place in the transactions, by which the producer ends it.
            if not is_half(parsed.named):
                offset = queue.leader.logical_or_bound(int(fields["queueOffset"]))
                fields["queueOffset"] = str(offset)
        reign = ha.appended()
        # Looked at once more: between the check and here the lease may have run out.
        if (self._alone or not waits) and ha.is_leased:
            return request.reply(ResponseCode.SUCCESS, None, fields)
        self._waiting.add(Waiting(connection, request, ha, reign, end, fields))
        return None

    def send_all(
        self, connection: Connection, commands: Sequence[RemotingCommand], begin: int
    ) -> int:
        """Write the message that is there in a chunk, and those like most behind it; answer them.

        Returns:
            How many. One that is not like most goes the long way, alone.
        """
        # First what the messages are: the long way asks the rest itself.
        messages = self._plain.take_all(commands, begin, self._in_flight_max - len(self._waiting))
        ha = self._broker.ha
        if (
            not messages
            or ha is None
            or self.handovers.holds
            or self.row.holds
            or self._closed_for(ha)
            or ha.check_put() is not PutStatus.PUT_OK
        ):
            return self._send_alone(connection, commands[begin])
        born_host = self._peers.get(connection.id) or self._peer(connection)
        try:
            written = self._plain.write_all(messages, born_host)
        except (MessageIllegal, DiskFailed, LocalProtocolError):
            written = []  # what is wrong comes up again there
        if not written:
            return self._send_alone(connection, commands[begin])
        reign = ha.appended()
        if self._alone and ha.is_leased:
            frames = [
                frame for at, (_, frame) in enumerate(written, begin)
                if not commands[at].flag & FLAG_ONEWAY
            ]  # fmt: skip
            if frames:
                connection.send_frames(frames)
            return len(written)
        for at, (end, frame) in enumerate(written, begin):
            self._waiting.add(Waiting(connection, commands[at], ha, reign, end, frame))
        return len(written)

    def _send_alone(self, connection: Connection, request: RemotingCommand) -> int:
        """The long way of one message."""
        answer = self.send(connection, request)
        if answer is not None and not request.flag & FLAG_ONEWAY:
            connection.answer(request, answer)
        return 1

    @property
    def _may_write(self) -> bool:
        return bool(self._broker.config.integer("brokerPermission") & PERM_WRITE)

    @property
    def waiting_count(self) -> int:
        """Messages that wait for the disk, for room, for replicas, or for a remap's end."""
        held = len(self._held) + len(self.row) + len(self.handovers)
        return len(self._waiting) + held

    @property
    def oldest_wait_ms(self) -> int:
        """How long the oldest of these has waited."""
        return self._waiting.oldest_ms

    def close(self) -> None:
        """Forget what is held; connections are closing."""
        self._held.close()
        self.row.close()
        self.handovers.close()

    def closed(self, connection: Connection) -> None:
        """A connection has ended."""
        self._held.closed(connection)
        self.row.closed(connection)
        self.handovers.closed(connection)
        self._peers.pop(connection.id, None)

    def _closed_for(self, ha: HaService | None) -> Refusal | None:
        role = self._broker.role
        if role is Role.SLAVE:
            # Java's says 2, after which its own producers up to 5.2 ask no other broker.
            return Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, SLAVE_REFUSES)
        if role is None or ha is None or self._broker.store.failed is not None:
            return Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, NOT_SERVING)
        if self._broker.store.expiring.is_disk_full:
            return disk_full(*self._broker.store.expiring.ratios)
        if len(self._waiting) >= self._in_flight_max:
            return Refusal(ResponseCode.SYSTEM_BUSY, "too many messages wait for replicas")
        return None

    def _write(
        self, connection: Connection, request: RemotingCommand, parsed: SendRequest
    ) -> tuple[int, dict[str, str]] | Refusal:
        """Check and write; where the last record ends, and what to answer."""
        found = self._accepted(request, parsed)
        if isinstance(found, Refusal):
            return found
        topic, queue_id = found
        if PRIORITY in parsed.named and not parsed.batch:
            parsed, queue_id = self._prioritised(parsed, topic, queue_id)
        named, unique_key = parsed.named, ""
        if b"UNIQ_KEY" not in named:
            unique_key = self._unique_ids.next()
            named = {**named, b"UNIQ_KEY": unique_key.encode()}
        message = build_message(
            parsed, queue_id, request.body, stamps=self._stamps,
            unique_key=unique_key, topic=topic, store_host=self._store_host,
            born_host=self._peers.get(connection.id) or self._peer(connection),
        )  # fmt: skip
        if parsed.topic.startswith(RETRY_PREFIX):
            dead = self._dead_letter(request, parsed, message)
            if isinstance(dead, Refusal):
                return dead
            if dead is not None:
                message, named = dead, {**named, b"DELAY": b"-1"}
        try:
            if parsed.batch:
                return self._put_batch(message, named)
            return self._put(message, queue_id, named)
        except MessageIllegal as error:
            self._broker.statistics.puts_failed += 1
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, str(error))
        except DiskFailed as error:
            self._broker.statistics.puts_failed += 1
            return Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, str(error))

    def _prioritised(
        self, parsed: SendRequest, topic: TopicConfig, queue_id: int
    ) -> tuple[SendRequest, int]:
        """Where a message with a priority goes; it loses one that does not count."""
        priority = priority_of(parsed.named)
        if priority is None:
            return parsed, queue_id
        queue = priority_queue(topic, priority, parsed.named)
        if queue is not None and topic.name not in self._broker.mappings.table.items:
            return parsed, queue
        kept = {name: value for name, value in parsed.named.items() if name != PRIORITY}
        left = props.drop(parsed.properties, PRIORITY)
        return parsed._replace(properties=left, named=kept), queue_id

    def _accepted(
        self, request: RemotingCommand, parsed: SendRequest
    ) -> tuple[TopicConfig, int] | Refusal:
        """Topic and queue, after all checks in Java's order."""
        broker = self._broker
        topic = broker.topics.table.topics.get(parsed.topic)
        may_write = topic is None or not topic.order or self._may_write
        if not may_write:
            return Refusal(ResponseCode.NO_PERMISSION, "sending to this broker is forbidden")
        refusal = name_refusal(parsed.topic)
        if refusal is not None:
            return refusal
        if topic is None:
            made = self._made(parsed)
            if isinstance(made, Refusal):
                return made
            topic = made
        refusal = promise_refusal(topic)
        if refusal is not None:
            return refusal
        if parsed.queue_id < 0:
            self._turn += 1
        queue_id = choose_queue(topic, parsed.queue_id, self._turn)
        if isinstance(queue_id, Refusal):
            return queue_id
        if parsed.batch and parsed.topic.startswith(RETRY_PREFIX):
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, "a batch cannot be sent to a retry topic")
        refusal = content_refusal(parsed, len(request.body), self._body_max)
        return (topic, queue_id) if refusal is None else refusal

    def _made(self, parsed: SendRequest) -> TopicConfig | Refusal:
        """The topic that a message makes; it stands before the message in the log."""
        broker = self._broker
        topic = broker.topics.table.topic_for_send(
            parsed.topic, parsed.default_topic, parsed.default_topic_queue_nums,
            unit_mode=parsed.unit_mode,
        )  # fmt: skip
        if topic is None:
            return Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic {parsed.topic} does not exist")
        end = broker.metadata.commit(Change(topics=(topic,)))
        return end if isinstance(end, Refusal) else topic

    def _dead_letter(
        self, request: RemotingCommand, parsed: SendRequest, message: Message
    ) -> Message | Refusal | None:
        """What becomes of a message that a consumer has sent to its retry topic too often itself.

        None for one that may be tried once more.
        """
        broker = self._broker
        name = parsed.topic.removeprefix(RETRY_PREFIX)
        group = broker.groups.find(name, may_write=True)
        if group is None:
            return group_refusal(name)
        most = reconsume_max(group.retry_max_times, parsed.max_reconsume_times, request.version)
        ordered = broker.locks.has_any(broker.clock.now_ms(), name)
        if parsed.reconsume_times <= most and not ordered:
            return None
        topic = dead_letter_topic(name)
        if broker.metadata.make_topic(topic) is None:
            return Refusal(ResponseCode.SYSTEM_BUSY, f"topic {topic.name} cannot be made now")
        properties = props.put(message.properties, b"DELAY", b"-1")
        return message._replace(topic=topic.name, queue_id=0, properties=properties)

    def _put(
        self, message: Message, queue_id: int, named: Mapping[bytes, bytes]
    ) -> tuple[int, dict[str, str]] | Refusal:
        sent = placed = message
        if b"DELAY" in message.properties or b"TIMER_D" in message.properties:
            found = place(message, self._rules, self._broker.clock.wall_ms(), named)
            if isinstance(found, Refusal):
                return found  # a half message, too: no commit of it could be stored
            placed = found
        if b"TRAN_MSG" in named and self._is_half(message, named):
            if self._broker.config.boolean("rejectTransactionMessage"):
                return Refusal(ResponseCode.NO_PERMISSION, "this broker takes no transactions")
            half = half_message(message, named)
            if isinstance(half, Refusal):
                return half
            message = half
        else:
            message = placed
        result = self._broker.store.append(message)
        self._broker.statistics.put(message.topic, 1, result.size)
        fields = stored_fields(
            f"{self._host_text}{result.offset:016X}", queue_id, result.queue_offset,
            named[b"UNIQ_KEY"].decode("utf-8", "replace"), self._stamps,
        )  # fmt: skip
        if message.topic == TIMER_TOPIC:
            handle = handle_of(sent, message, named, self._broker.config.broker_name)
            if handle is not None:
                fields["recallHandle"] = handle
        return result.offset + result.size, fields

    @staticmethod
    def _is_half(message: Message, named: Mapping[bytes, bytes]) -> bool:
        # Consumers of old clients send a committed message back with TRAN_MSG still in it.
        again = message.reconsume_times > 0 and delay_level(named) > 0
        return is_half(named) and not again

    def _put_batch(
        self, message: Message, named: Mapping[bytes, bytes]
    ) -> tuple[int, dict[str, str]]:
        results = self._broker.store.append_batch(message)
        size = sum(result.size for result in results)
        self._broker.statistics.put(message.topic, len(results), size)
        ids = ",".join(result.msg_id for result in results)
        unique_key = named[b"UNIQ_KEY"].decode("utf-8", "replace")
        fields = stored_fields(
            ids, message.queue_id, results[0].queue_offset, unique_key, self._stamps
        )
        return results[-1].end, fields

    def _peer(self, connection: Connection) -> bytes:
        """The producer's address as records carry it, remembered while it is connected."""
        packed = self._peers[connection.id] = pack_peer(connection.peer)
        return packed


def _refused(request: RemotingCommand, refusal: Refusal) -> RemotingCommand:
    return request.reply(refusal.code, refusal.remark)


def pack_peer(peer: str) -> bytes:
    """A client's address as a record carries it; one without an IP address becomes 0.0.0.0."""
    try:
        host, port = parse_address(peer)
        return pack_host(host.partition("%")[0], port)
    except RmqhaError:
        return pack_host("0.0.0.0", 0)
