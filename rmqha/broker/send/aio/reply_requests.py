"""Replies (324, 325): they go to the connection of whoever asked, and into the reply topic.

Source: ReplyMessageProcessor of RocketMQ 5.1.1 to 5.5, watched; ``storeReplyMessageEnable``.
"""

from __future__ import annotations

from rmqha.auth.resources import Action
from rmqha.base.errors import DiskFailed, MessageIllegal, RmqhaError
from rmqha.broker.common.aio.ports import Handlers
from rmqha.broker.common.refusal import Refusal
from rmqha.broker.deferred.aio.master_services import MasterServices
from rmqha.broker.groups.aio.ports import Broker
from rmqha.broker.send.aio.send_requests import pack_peer
from rmqha.broker.send.request import (
    SendRequest,
    choose_queue,
    content_refusal,
    name_refusal,
    parse_send,
    promise_refusal,
)
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import ext_fields
from rmqha.store import properties as props
from rmqha.store.aio.commit_log import AppendResult
from rmqha.store.record import TRANSACTION_MASK, Message, pack_host

PUSH_TIMEOUT_MS = 3_000
"""For the requester of a reply to take it; Java's callClient waits ten seconds."""


class ReplyProcessor:
    """Brings replies to those who wait for them."""

    def __init__(self, broker: Broker, services: MasterServices) -> None:
        config = broker.config
        self._broker = broker
        self._writer = services.writer
        self._store_host = pack_host(config.host, config.port)
        self._stamps = props.encode({
            "MSG_REGION": config.values["regionId"], "TRACE_ON": config.values["traceOn"].lower(),
        })  # fmt: skip
        self._turn = 0
        self._body_max = config.store.max_message_size
        self._reply_topic = f"{config.cluster_name}_REPLY_TOPIC"

    def handlers(self) -> Handlers:
        """By request code."""
        return {
            RequestCode.SEND_REPLY_MESSAGE: self.reply,
            RequestCode.SEND_REPLY_MESSAGE_V2: self.reply,
        }

    def reply(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """324, 325: a reply goes to the connection of whoever asked."""
        parsed = parse_send(
            request.code if request.code == RequestCode.SEND_REPLY_MESSAGE else 310,
            request.ext_fields,
        )
        refusal = parsed if isinstance(parsed, Refusal) else name_refusal(parsed.topic)
        if isinstance(parsed, Refusal) or refusal is not None:
            found = refusal or Refusal(ResponseCode.SYSTEM_ERROR, "no reply")
            return request.reply(found.code, found.remark)
        work = self._bring(connection, request, parsed)
        self._broker.answers.start(work, connection, request, name="reply")
        return None

    async def _bring(
        self, connection: Connection, request: RemotingCommand, parsed: SendRequest
    ) -> None:
        """Push it, store it, and tell the responder what came of both.

        As with Java it is stored whether or not anybody was there to take it, and the code speaks
        of the push alone.
        """
        code, remark = int(ResponseCode.SUCCESS), None
        properties, failure = await self._pushed(connection, request, parsed)
        if failure is not None:
            code, remark = int(ResponseCode.SYSTEM_ERROR), failure
        config = self._broker.config
        message_id, queue_offset = "0", 0
        stored = self._stored(connection, request, parsed, properties)
        if stored is not None:
            message_id, queue_offset = stored.msg_id, stored.queue_offset
            try:
                await self._writer.settle(stored.offset + stored.size)
            except DiskFailed:
                message_id, queue_offset = "0", 0
        fields = ext_fields(
            msgId=message_id, queueId=max(parsed.queue_id, 0), queueOffset=queue_offset,
            MSG_REGION=config.values["regionId"], TRACE_ON=config.values["traceOn"].lower(),
        )  # fmt: skip
        if not request.is_oneway:
            connection.send(request.reply(code, remark, fields))

    async def _pushed(
        self, connection: Connection, request: RemotingCommand, parsed: SendRequest
    ) -> tuple[bytes, str | None]:
        """Ask the requester to take its reply (326); its properties, and what went wrong."""
        broker, properties = self._broker, parsed.properties
        value = parsed.named.get(b"REPLY_TO_CLIENT")
        if value is None:
            return properties, "reply message properties[REPLY_TO_CLIENT] is null"
        client_id = value.decode("utf-8", "replace")
        client = broker.producers.find(broker.clock.now_ms(), client_id, broker.rights.is_enabled)
        if client is None:
            return properties, f"push reply message fail, channel of <{client_id}> not found."
        wall_ms = broker.clock.wall_ms()
        properties = props.put(properties, b"PUSH_REPLY_TIME", b"%d" % wall_ms)
        fields = ext_fields(
            producerGroup=parsed.producer_group, topic=parsed.topic,
            defaultTopic=parsed.default_topic,
            defaultTopicQueueNums=parsed.default_topic_queue_nums, queueId=parsed.queue_id,
            sysFlag=parsed.sys_flag, bornTimestamp=parsed.born_timestamp, flag=parsed.flag,
            properties=properties.decode("utf-8", "replace"),
            reconsumeTimes=parsed.reconsume_times, unitMode=parsed.unit_mode,
            bornHost=connection.peer, storeHost=broker.config.address, storeTimestamp=wall_ms,
        )  # fmt: skip
        command = RemotingCommand(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, ext_fields=fields, body=request.body
        )
        try:
            answer = await broker.clients.invoke(client.connection, command, PUSH_TIMEOUT_MS)
        except RmqhaError:
            return properties, f"push reply message to {client_id}fail."
        if answer.code == ResponseCode.SUCCESS:
            return properties, None
        return properties, answer.remark or "refused"

    def _stored(
        self, connection: Connection, request: RemotingCommand, parsed: SendRequest,
        properties: bytes,
    ) -> AppendResult | None:  # fmt: skip
        """Write it to its topic; None where that is switched off or cannot be.

        Java writes it also to a topic or a queue that does not exist, where nobody could read it, and
        whatever the user may. Any user may reply, and the cluster's topic of replies is for that; in
        another one it is a message as any other.
        """
        broker = self._broker
        topic = broker.topics.table.get(parsed.topic)
        wanted = broker.config.boolean("storeReplyMessageEnable")
        if not wanted or topic is None or not self._writer.is_open:
            return None
        # A half message would be none here, and read by nobody.
        if parsed.sys_flag & TRANSACTION_MASK:
            return None
        if content_refusal(parsed, len(request.body), self._body_max) or promise_refusal(topic):
            return None
        if parsed.topic != self._reply_topic and self._broker.rights.refusal_of_topic(
            connection, request, parsed.topic, Action.PUB
        ):
            return None
        self._turn += parsed.queue_id < 0
        queue_id = choose_queue(topic, parsed.queue_id, self._turn)
        if isinstance(queue_id, Refusal):
            return None
        if properties and not properties.endswith(b"\x02"):
            properties += b"\x02"
        message = Message(
            parsed.topic, queue_id, request.body, properties + self._stamps,
            parsed.born_timestamp, pack_peer(connection.peer), self._store_host, parsed.sys_flag,
            parsed.flag, parsed.reconsume_times,
        )  # fmt: skip
        try:
            return self._writer.append(message)
        except (MessageIllegal, DiskFailed):
            return None
