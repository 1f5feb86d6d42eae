"""Clients: heartbeat (34), leaving (35), who belongs to a group (38, 203, 204, 328), locks
(41, 42), and what is asked of one consumer through the broker (221, 307, 309)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Generator, Iterable, Sequence

from rmqha.auth.resources import Action
from rmqha.auth.signature import without_signature
from rmqha.base.errors import (
    ConnectionLost,
    LocalProtocolError,
    RemoteProtocolError,
    RequestTimeout,
)
from rmqha.broker.common.aio.ports import Handlers
from rmqha.broker.common.refusal import Refusal
from rmqha.broker.groups.aio.lock_requests import LockProcessor
from rmqha.broker.groups.aio.member_notices import MemberNotices
from rmqha.broker.groups.aio.ports import Broker
from rmqha.broker.groups.consumers import ConsumerData
from rmqha.broker.groups.heartbeat import Heartbeat
from rmqha.broker.groups.memberships import Client
from rmqha.broker.topics.group_table import GroupConfig
from rmqha.broker.topics.metadata import Change
from rmqha.broker.topics.topic_table import TopicConfig
from rmqha.ha.events import Role
from rmqha.remoting import fastjson
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import ext_fields, text_field
from rmqha.remoting.topic_names import UNIT_SUB_FLAG
from rmqha.runtime.logs import Logger
from rmqha.store.consume_queue import name_error

EXPIRED_A_TURN = 64
_MESSAGE_ID = re.compile("(?:[0-9A-Fa-f]{24})?[0-9A-Fa-f]{32}")
"""Address and port of a broker, by IPv4 or IPv6, and the place in its log."""
PROXY_TIMEOUT_MS = 10_000
"""How long a consumer may take to answer what mqadmin asks it; Java's value."""

ASKED_AT_A_TIME = 16
"""Members that mqadmin asks through the broker (223): one that is silent holds up none of the others."""

ALL_ASKED_MS = 3 * PROXY_TIMEOUT_MS
"""So long mqadmin waits for all of them: with 10,000 that are silent it would be hours."""

MADE_MAX = 50
"""Groups, and retry topics, that one record makes: some 30 KB. So many members are taken in a turn."""


class ClientProcessor:
    """Keeps producers, consumers and their locks up to date, and answers who they are."""

    def __init__(self, broker: Broker, log: Logger) -> None:
        self._broker = broker
        self._log = log
        self._notices = MemberNotices(broker)
        self._locks = LockProcessor(broker)

    def handlers(self) -> Handlers:
        """By request code."""
        return {
            RequestCode.HEART_BEAT: self.heartbeat,
            RequestCode.UNREGISTER_CLIENT: self.unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.consumer_ids,
            RequestCode.LOCK_BATCH_MQ: self._locks.handle,
            RequestCode.UNLOCK_BATCH_MQ: self._locks.handle,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.consumer_connections,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.producer_connections,
            RequestCode.GET_ALL_PRODUCER_INFO: self.all_producers,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self.consumer_status,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.ask_consumer,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.ask_consumer,
        }

    # -- life signs --------------------------------------------------------------------------------

    def heartbeat(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """34: nothing counts unless the whole body can be read."""
        try:
            beat = Heartbeat.decode(request.body)
        except RemoteProtocolError as error:
            return request.reply(ResponseCode.SYSTEM_ERROR, str(error))
        work = self._beat(connection, request, beat)
        return self._broker.answers.finish(work, connection, request)

    def _beat(
        self, connection: Connection, request: RemotingCommand, beat: Heartbeat
    ) -> Generator[None, None, RemotingCommand]:
        broker = self._broker
        client = Client(
            connection.id, beat.client_id, request.language, request.version, connection.peer,
            broker.rights.signer(request),
        )  # fmt: skip
        full = unknown = False
        for first in range(0, max(len(beat.consumers), len(beat.producers), 1), MADE_MAX):
            if first:
                yield
            if connection.is_closing:
                break  # it may have ended already, and nobody would take its members away
            broker.clients.learn(connection)
            part = slice(first, first + MADE_MAX)
            is_full, is_unknown = self._take_consumers(client, beat, beat.consumers[part])
            full, unknown = full or is_full, unknown or is_unknown
            now_ms = broker.clock.now_ms()
            for name in beat.producers[part]:
                full = not broker.producers.register(now_ms, name, client) or full
        if full:
            self._log.log("warning", "client_refused", client_id=beat.client_id)
            return request.reply(ResponseCode.SYSTEM_BUSY, "too many clients, clientMembershipsMax")
        # A client that sends fingerprints leaves its subscriptions out from now on, until it is
        # told that they are not known here; Java tells those without a fingerprint "true" too.
        changed = unknown or not beat.fingerprint
        fields = ext_fields(IS_SUPPORT_HEART_BEAT_V2=True, IS_SUB_CHANGE=changed)
        return request.reply(ResponseCode.SUCCESS, None, fields)

    def _take_consumers(
        self, client: Client, beat: Heartbeat, consumers: Sequence[ConsumerData]
    ) -> tuple[bool, bool]:
        """Whether there was no room for one, and whether of one no subscriptions are known."""
        broker, now_ms = self._broker, self._broker.clock.now_ms()
        full = unknown = False
        changed_groups: list[str] = []
        if not beat.without_sub:
            self._make_missing(consumers)
        for data in consumers:
            if beat.without_sub:
                done = broker.consumers.renew(now_ms, client, data.group, beat.fingerprint)
            else:
                group = self._prepare(data)
                if group is None:
                    continue
                done = broker.consumers.register(now_ms, client, data, fingerprint=beat.fingerprint)
                if done.changed and group.notify_consumer_ids_changed_enable:
                    changed_groups.append(data.group)
            full = full or done.refused
            unknown = unknown or done.unknown
        self._notices.changed(changed_groups)
        return full, unknown

    def _make_missing(self, consumers: Sequence[ConsumerData]) -> None:
        """Make the groups and retry topics of some consumers with one record."""
        broker = self._broker
        if broker.role is not Role.MASTER:
            return
        groups: list[GroupConfig] = []
        topics: list[TopicConfig] = []
        for data in consumers:
            group = broker.groups.table.get(data.group) or broker.groups.new(data.group)
            if group is None:
                continue
            if broker.groups.table.get(group.name) is None:
                groups.append(group)
            name = group.retry_topic
            if broker.topics.table.get(name) is None and name_error(name.encode()) is None:
                topics.append(_retry_topic(group, data))
        if groups or topics:
            broker.metadata.commit(Change(groups=tuple(groups), topics=tuple(topics)))

    def _prepare(self, data: ConsumerData) -> GroupConfig | None:
        """A group's settings; its retry topic, too, where many at a time could not be made."""
        broker = self._broker
        is_master = broker.role is Role.MASTER
        group = broker.groups.find(data.group, may_write=is_master)
        if group is not None and is_master:
            broker.metadata.make_topic(_retry_topic(group, data))
        return group

    def unregister(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand | None:
        """Take a client off (35); not before its heartbeat is through, which would bring it back."""
        return self._broker.answers.in_order(self._leave, connection, request)

    def _leave(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        broker, fields = self._broker, request.ext_fields
        producers = text_field(fields, "producerGroup", "")
        consumers = text_field(fields, "consumerGroup", "")
        if producers:
            broker.producers.unregister(broker.clock.now_ms(), producers, connection.id)
        if consumers and broker.consumers.unregister(consumers, connection.id):
            self._tell_others([consumers])
        return request.reply(ResponseCode.SUCCESS)

    def closed(self, connection: Connection) -> None:
        """A connection has ended: the others share its queues at once."""
        broker = self._broker
        broker.producers.closed(broker.clock.now_ms(), connection.id)
        told = broker.consumers.closed(connection.id)
        broker.clients.on_closed(connection.id)
        self._tell_others(told)

    def close(self) -> None:
        """Tell clients nothing any more."""
        self._notices.close()

    def expire(self) -> Generator[None, None, None]:
        """Close the connections of silent clients, as Java does, and forget leases; in parts."""
        broker, now_ms = self._broker, self._broker.clock.now_ms()
        while True:
            silent, told = broker.consumers.expire(now_ms, EXPIRED_A_TURN)
            silent += broker.producers.expire(now_ms, EXPIRED_A_TURN)
            for connection in dict.fromkeys(silent):
                self._log.log("info", "client_silent", connection=connection)
                broker.clients.close(connection)
            self._tell_others(told)
            if not silent:
                break
            yield
        yield from broker.locks.expire(now_ms)

    def _tell_others(self, groups: Iterable[str]) -> None:
        """Members of these groups are gone."""
        table = self._broker.groups.table
        self._notices.changed(
            name for name in groups
            if (config := table.get(name)) is None or config.notify_consumer_ids_changed_enable
        )  # fmt: skip

    # -- questions ---------------------------------------------------------------------------------

    def consumer_ids(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer with a group's client ids (38)."""
        group = text_field(request.ext_fields, "consumerGroup", "")
        ids = self._broker.consumers.client_ids(group)
        if not ids:
            return request.reply(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}")
        return request.reply(ResponseCode.SUCCESS, body=fastjson.dumps({"consumerIdList": ids}))

    def consumer_connections(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer with a group's consumers (203)."""
        name = text_field(request.ext_fields, "consumerGroup", "")
        group = self._broker.consumers.get(name)
        if group is None:
            return request.reply(
                ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online"
            )
        body = {
            "connectionSet": [client.members() for client in self._broker.consumers.clients(name)],
            "consumeFromWhere": group.consume_from_where,
            "consumeType": group.consume_type,
            "messageModel": group.message_model,
            "subscriptionTable": {
                topic: one.members() for topic, one in sorted(group.subscriptions.items())
            },
        }
        return request.reply(ResponseCode.SUCCESS, body=fastjson.dumps(body))

    def producer_connections(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer with a group's producers (204)."""
        name = text_field(request.ext_fields, "producerGroup", "")
        clients = self._broker.producers.clients(name)
        if not clients:
            return request.reply(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        body = {"connectionSet": [client.members() for client in clients]}
        return request.reply(ResponseCode.SUCCESS, body=fastjson.dumps(body))

    def all_producers(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer with all groups' producers (328)."""
        clock = self._broker.clock
        data = self._broker.producers.members(clock.wall_ms(), clock.now_ms())
        return request.reply(ResponseCode.SUCCESS, body=fastjson.dumps({"data": data}))

    # -- asked of one consumer ---------------------------------------------------------------------

    def consumer_status(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand | None:
        """223: which offsets the members of a group hold; each is asked by 221."""
        broker, fields = self._broker, request.ext_fields or {}
        group, wanted = fields.get("group", ""), fields.get("clientAddr", "")
        clients = [
            client for client in broker.consumers.clients(group)
            if not wanted or client.client_id == wanted
        ]  # fmt: skip
        if not clients:
            return request.reply(
                ResponseCode.SYSTEM_ERROR,
                f"No Any Consumer online in the consumer group: [{group}]",
            )
        work = self._ask_status(connection, request, clients)
        broker.answers.start(work, connection, request, name="consumer status")
        return None

    async def _ask_status(
        self, connection: Connection, request: RemotingCommand, clients: list[Client]
    ) -> None:
        fields = request.ext_fields or {}
        asked = ext_fields(topic=fields.get("topic", ""), group=fields.get("group", ""))
        parts: list[bytes] = []
        until_ms = self._broker.clock.now_ms() + ALL_ASKED_MS
        for first in range(0, len(clients), ASKED_AT_A_TIME):
            if self._broker.clock.now_ms() >= until_ms:
                self._log.log("warning", "consumers_not_asked", count=len(clients) - first)
                break
            some = clients[first : first + ASKED_AT_A_TIME]
            parts += filter(None, await asyncio.gather(*(self._status(one, asked) for one in some)))
        body = b'{"consumerTable":{' + b",".join(parts) + b"}}"
        connection.send(request.reply(ResponseCode.SUCCESS, body=body))

    async def _status(self, client: Client, asked: dict[str, str]) -> bytes:
        """A member's part of the answer; empty for one that gives none."""
        command = RemotingCommand(
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, ext_fields=dict(asked)
        )
        try:
            answer = await self._broker.clients.invoke(client.connection, command, PROXY_TIMEOUT_MS)
        except (ConnectionLost, RequestTimeout, LocalProtocolError) as error:
            self._log.log("info", "consumer_silent", client=client.client_id, reason=str(error))
            return b""
        table = offset_table(answer.body)
        if answer.code != ResponseCode.SUCCESS or table is None:
            return b""
        return fastjson.dumps(client.client_id) + b":" + table

    def ask_consumer(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand | None:
        """307 and 309: fields and body go to the consumer, and its answer comes back."""
        broker, fields = self._broker, request.ext_fields or {}
        group, client_id = fields.get("consumerGroup", ""), fields.get("clientId", "")
        client = broker.consumers.find(group, client_id)
        if client is None:
            return request.reply(
                ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online"
            )
        work = self._ask(connection, request, client)
        broker.answers.start(work, connection, request, name="ask consumer")
        return None

    async def _ask(self, connection: Connection, request: RemotingCommand, client: Client) -> None:
        fields, body = without_signature(request.ext_fields), request.body
        if request.code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
            fields, body = fields | {"brokerName": self._broker.config.broker_name}, b""
        command = RemotingCommand(request.code, ext_fields=fields, body=body)
        if request.code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
            refusal = await self._broker.store.cold.look(
                lambda: self._put_message(connection, request, command)
            )
            if refusal is not None:
                connection.send(request.reply(refusal.code, refusal.remark))
                return
        try:
            answer = await self._broker.clients.invoke(client.connection, command, PROXY_TIMEOUT_MS)
        except RequestTimeout:
            remark = f"consumer <{client.client_id}> did not answer within {PROXY_TIMEOUT_MS} ms"
            connection.send(request.reply(ResponseCode.CONSUME_MSG_TIMEOUT, remark))
        except (ConnectionLost, LocalProtocolError) as error:
            connection.send(request.reply(ResponseCode.SYSTEM_ERROR, str(error)))
        else:
            connection.send(
                request.reply(answer.code, answer.remark, answer.ext_fields, answer.body)
            )

    def _put_message(
        self, connection: Connection, request: RemotingCommand, command: RemotingCommand
    ) -> Refusal | None:
        """309 names a message by its id: the consumer is sent the bytes of the log, and no others."""
        message_id = text_field(request.ext_fields, "msgId", "")
        if not _MESSAGE_ID.fullmatch(message_id):
            return Refusal(ResponseCode.SYSTEM_ERROR, "msgId is not the id of a stored message")
        offset = int(message_id[-16:], 16)
        record = self._broker.store.reader.look(offset)
        if record is None:
            return Refusal(
                ResponseCode.SYSTEM_ERROR, f"there is no message with the id {message_id}"
            )
        group = text_field(request.ext_fields, "consumerGroup", "")
        refusal = self._broker.rights.refusal(connection, request, record, Action.SUB, group=group)
        if refusal is None:
            command.body = bytes(self._broker.store.view(offset, record.size))
        return refusal


def _retry_topic(group: GroupConfig, data: ConsumerData) -> TopicConfig:
    queues, flag = max(1, group.retry_queue_nums), UNIT_SUB_FLAG if data.unit_mode else 0
    return TopicConfig(group.retry_topic, queues, queues, topic_sys_flag=flag)


def offset_table(body: bytes) -> bytes | None:
    """The value of ``messageQueueTable`` as a client wrote it, object keys and all."""
    mark = b'"messageQueueTable":'
    data = bytes(body).strip()
    at = data.find(mark)
    return data[at + len(mark) : -1] if at >= 0 and data.endswith(b"}") else None
