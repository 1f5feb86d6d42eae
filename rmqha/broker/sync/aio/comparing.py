"""Request 60051, of our own: whether this replica's log has the same bytes, and which if not."""

from __future__ import annotations

from rmqha.broker.common.aio.ports import Broker, Handlers
from rmqha.broker.sync.scrub import RANGE_BYTES, RECORD_BYTES_MAX, digest, is_whole
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import ext_fields, long_field, text_field


def epoch_of(broker: Broker, offset: int) -> int:
    """The epoch that a byte of the log belongs to; 0 where no epochs are known."""
    span = None if broker.ha_core is None else broker.ha_core.ha.epochs.find(offset)
    return 0 if span is None else span.epoch


def epoch_end(broker: Broker, offset: int) -> int:
    """Where that epoch ends."""
    span = None if broker.ha_core is None else broker.ha_core.ha.epochs.find(offset)
    return broker.store.max_offset if span is None else span.end


class CompareProcessor:
    """Answers other replicas of the set; nothing is changed by it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> Handlers:
        """By request code."""
        return {RequestCode.COMPARE_LOG: self.compare}

    def compare(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """Compare a range by its digest, or give the record at ``begin`` (60051)."""
        work = self._answer(connection, request)
        self._broker.answers.start(work, connection, request, name="comparing")
        return None

    async def _answer(self, connection: Connection, request: RemotingCommand) -> None:
        fields, store = request.ext_fields, self._broker.store
        begin, end = long_field(fields, "begin", -1), long_field(fields, "end", 0)
        size = await self._size(begin, end)
        lacks = self._lacks(begin, size, long_field(fields, "epoch", 0))
        if lacks:
            connection.send(request.reply(ResponseCode.SYSTEM_ERROR, lacks))
            return
        if not store.is_cold(begin, size):
            data = store.view(begin, size)
        else:
            await store.fetch(begin, size)
            # It may have been cut meanwhile.
            lacks = self._lacks(begin, size, long_field(fields, "epoch", 0))
            if lacks:
                connection.send(request.reply(ResponseCode.SYSTEM_ERROR, lacks))
                return
            data = store.view(begin, size)
        if not end and not is_whole(data, begin):
            connection.send(request.reply(ResponseCode.SYSTEM_ERROR, "it is not whole here"))
            return
        same = digest(data) == text_field(fields, "digest", "")
        answer = request.reply(ResponseCode.SUCCESS, None, ext_fields(same=same))
        if not same:
            answer.body = bytes(data)
        connection.send(answer)

    async def _size(self, begin: int, end: int) -> int:
        """Bytes that are asked for; of a record as long as it says."""
        store = self._broker.store
        if end:
            return end - begin if end - begin <= RANGE_BYTES or begin < 0 else -1
        if not 0 <= begin < store.limit() or begin < store.min_offset:
            return -1
        await store.fetch(begin, 1)
        return store.commit_log.check(begin)[1].size

    def _lacks(self, begin: int, size: int, epoch: int) -> str:
        """Why it cannot be compared; empty if it can."""
        store = self._broker.store
        if not 0 < size <= RECORD_BYTES_MAX or begin < max(0, store.min_offset):
            return "no such range is here"
        if begin + size > store.limit() or store.readable(begin, size) < size:
            return "it is not confirmed here, or lies in two files"
        ours = epoch_of(self._broker, begin)
        if ours != epoch or epoch_end(self._broker, begin) < begin + size:
            return f"it is of epoch {ours} here"
        return ""
