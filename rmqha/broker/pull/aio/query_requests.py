"""Requests 12 (messages by key) and 33 (one message by its place), of confirmed messages only."""

from __future__ import annotations

from rmqha.auth.resources import Action
from rmqha.base.errors import DiskFailed
from rmqha.broker.common.aio.cold_answers import patient
from rmqha.broker.common.aio.ports import Handlers
from rmqha.broker.pull.aio.ports import Broker
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import (
    INT64_MAX,
    bool_field,
    ext_fields,
    int_field,
    long_field,
    text_field,
)

RESULTS_MAX = 64
"""Java's maxMsgsNumBatch: messages in one answer."""

BODY_BYTES_MAX = 8 << 20
"""At least one message is answered; a frame holds 16 MiB."""

UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"


class QueryProcessor:
    """Finds messages for people."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._unique_max = broker.config.integer("defaultQueryMaxNum")

    def handlers(self) -> Handlers:
        """By request code."""
        return {
            RequestCode.QUERY_MESSAGE: patient(self._broker, self.query),
            RequestCode.VIEW_MESSAGE_BY_ID: patient(self._broker, self.view),
        }

    def query(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """Find messages by a key (12)."""
        fields, store = request.ext_fields, self._broker.store
        limit = int_field(fields, "maxNum", 0)
        if bool_field(fields, UNIQUE_KEY_QUERY):
            limit = self._unique_max
        try:
            found = store.reader.query(
                text_field(fields, "topic", ""),
                text_field(fields, "key", ""),
                begin_ms=long_field(fields, "beginTimestamp", 0),
                end_ms=long_field(fields, "endTimestamp", INT64_MAX),
                limit=max(0, min(limit, RESULTS_MAX)),
            )
        except DiskFailed as error:
            return request.reply(ResponseCode.SYSTEM_ERROR, str(error))
        timestamp, offset = store.indexes.newest
        answer = ext_fields(indexLastUpdateTimestamp=timestamp, indexLastUpdatePhyoffset=offset)
        if not found:
            remark = "can not find message, maybe time range not correct"
            return request.reply(ResponseCode.QUERY_NOT_FOUND, remark, answer)
        body = b""
        for one in found:
            if body and len(body) + one.size > BODY_BYTES_MAX:
                break
            body += store.view(one.physical_offset, one.size)
        return request.reply(ResponseCode.SUCCESS, None, answer, body)

    def view(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer with the message at a place (33)."""
        offset = long_field(request.ext_fields, "offset", -1)
        record = self._broker.store.reader.look(offset)
        if record is None:
            return request.reply(
                ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}"
            )
        refusal = self._broker.rights.refusal(connection, request, record, Action.GET)
        if refusal is not None:
            return request.reply(refusal.code, refusal.remark)
        body = bytes(self._broker.store.view(offset, record.size))
        return request.reply(ResponseCode.SUCCESS, body=body)
