"""Finds the broker set that has what a client without static topics has sent back, or ends."""

from __future__ import annotations

from rmqha.auth.resources import Action
from rmqha.auth.signature import without_signature
from rmqha.base.errors import RmqhaError
from rmqha.broker.common.refusal import Refusal
from rmqha.broker.groups.aio.ports import Broker
from rmqha.broker.logical.aio.segments import FORWARD_TIMEOUT_MS
from rmqha.broker.logical.place import FORWARDED_FIELD, is_of_old_client
from rmqha.broker.naming.aio.other_sets import OtherSets
from rmqha.broker.send.strays import PassedHalves, is_named
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import ext_fields, long_field, text_field
from rmqha.store.record import Record, check_record, decode

NOT_FOUND = "no broker set has the message at this place"
GO = "GO"


class StrayRequests:
    """Of one broker, for its requests 36 and 37.

    Attributes:
        halves: what this broker has passed on of transactions.
    """

    def __init__(self, broker: Broker, sets: OtherSets) -> None:
        self._broker = broker
        self._sets = sets
        self.halves = PassedHalves()

    def _is_concerned(self, request: RemotingCommand) -> bool:
        return bool(self._broker.mappings.table.items) and is_of_old_client(
            request.version, request.ext_fields
        )

    def take_back(self, connection: Connection, request: RemotingCommand) -> bool:
        """Whether 36 is about a message of a static topic that is not in this log; then it is answered."""
        fields = request.ext_fields
        topic = text_field(fields, "originTopic", "")
        if not self._is_concerned(request) or topic not in self._broker.mappings.table.items:
            return False
        offset = long_field(fields, "offset", -1)
        message_id = text_field(fields, "originMsgId", "")
        if is_named(self._broker.store.reader.look(offset), message_id):
            return False
        work = self._sent_back(connection, request, topic, offset, message_id)
        self._broker.answers.start(work, connection, request, name="sent back elsewhere")
        return True

    async def _sent_back(
        self, connection: Connection, request: RemotingCommand, topic: str, offset: int,
        message_id: str,
    ) -> None:  # fmt: skip
        for name in (await self._sets.places(topic)).names:
            if name == self._broker.config.broker_name:
                continue
            record = await self._record(name, offset, message_id)
            if record is not None:
                group = text_field(request.ext_fields, "group", "")
                refusal = self._broker.rights.refusal(
                    connection, request, record, Action.SUB, group=group
                )
                if refusal is not None:
                    connection.send(request.reply(refusal.code, refusal.remark))
                    return
                answer = await self._passed_on(name, request)
                connection.send(request.reply(answer.code, answer.remark))
                return
        self._sets.forget_places(topic)
        # Go takes any answer for a success and forgets the message; without one it tries again by
        # itself. Java's clients send the message to the retry topic.
        if request.language != GO:
            connection.send(request.reply(ResponseCode.SYSTEM_ERROR, NOT_FOUND))

    async def _record(self, name: str, offset: int, message_id: str) -> Record | None:
        """This very message, if another set has it there: Java's would send back any other."""
        fields = ext_fields(offset=offset)
        try:
            answer = await self._sets.ask(
                name, RequestCode.VIEW_MESSAGE_BY_ID, fields, timeout_ms=FORWARD_TIMEOUT_MS
            )
        except RmqhaError:
            return None  # not reached; another one may have it
        body = memoryview(answer.body)
        if answer.code != ResponseCode.SUCCESS:
            return None
        head = check_record(body, 0, len(body), offset, check_crc=False)
        record = decode(body, head) if head.size > 0 else None
        return record if is_named(record, message_id) else None

    async def _passed_on(self, name: str, request: RemotingCommand) -> RemotingCommand:
        fields = {**without_signature(request.ext_fields), FORWARDED_FIELD: "true"}
        return await self._sets.ask(
            name, request.code, fields, request.body, timeout_ms=FORWARD_TIMEOUT_MS
        )

    def end(self, connection: Connection, request: RemotingCommand, offset: int) -> bool:
        """Whether 37 is about a half message that is not in this log; then it is answered.

        A producer whose half message is not found is asked by the set that has it.
        """
        message_id = text_field(request.ext_fields, "msgId", "")
        if not self._is_concerned(request) or not message_id:
            return False
        if is_named(self._broker.store.reader.look(offset), message_id):
            return False
        half = self.halves.find(message_id)
        refusal: Refusal | None = Refusal(ResponseCode.SYSTEM_ERROR, NOT_FOUND)
        if half is not None:
            refusal = self._broker.rights.refusal_of_topic(
                connection, request, half.topic, Action.PUB
            )
        if half is not None and refusal is None:
            self.halves.forget(message_id)
            work = self._ended(connection, request, half.broker_name)
            self._broker.answers.start(work, connection, request, name="ended elsewhere")
        elif refusal is not None and not request.is_oneway:
            connection.send(request.reply(refusal.code, refusal.remark))
        return True

    async def _ended(self, connection: Connection, request: RemotingCommand, name: str) -> None:
        answer = await self._passed_on(name, request)
        if not request.is_oneway:
            connection.send(request.reply(answer.code, answer.remark))
