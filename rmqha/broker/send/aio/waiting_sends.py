"""Messages that are written and not answered: they wait for the disk, or for replicas.

None of them has a task of its own: those that wait for the disk share one, and replication calls back
for each that enough replicas have, or whose time is over.
"""

from __future__ import annotations

from functools import partial

import orjson
from msgspec import Struct

from rmqha.base.errors import DiskFailed
from rmqha.broker.groups.aio.ports import Broker
from rmqha.ha.aio.service import HaService
from rmqha.ha.events import PutStatus
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.command import RemotingCommand

_HEADER_AT = 8
"""Where a frame's header begins."""


class Waiting(Struct):
    """One message that is not yet answered.

    Attributes:
        ha: replication.
        reign: in which it was written.
        end: where its record ends.
        answer: the frame of success, or the fields of any answer.
        begun_ms: since when.
    """

    connection: Connection
    request: RemotingCommand
    ha: HaService
    reign: int
    end: int
    answer: bytes | dict[str, str]
    begun_ms: int = 0

    def fields(self) -> dict[str, str]:
        """The fields of any answer."""
        if isinstance(self.answer, dict):
            return self.answer
        fields: dict[str, str] = orjson.loads(self.answer[_HEADER_AT:])["extFields"]
        return fields


class WaitingSends:
    """Answers each message when its record is safe, or surely is not."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._sync_flush = broker.config.store.sync_flush
        self._all: dict[int, Waiting] = {}
        self._unflushed: list[int] = []
        self._flushes = False
        self._count = 0

    def __len__(self) -> int:
        return len(self._all)

    @property
    def oldest_ms(self) -> int:
        """How long the oldest one has waited."""
        oldest = next(iter(self._all.values()), None)
        return 0 if oldest is None else self._broker.clock.now_ms() - oldest.begun_ms

    def add(self, one: Waiting) -> None:
        """Wait for a message's record."""
        one.begun_ms = self._broker.clock.now_ms()
        self._count += 1
        self._all[self._count] = one
        if not self._sync_flush:
            one.ha.when_put(one.end, one.reign, partial(self._ended, self._count))
            return
        self._unflushed.append(self._count)
        if not self._flushes:
            self._flushes = True
            self._broker.tasks.start(self._flush(), name="sends")

    async def _flush(self) -> None:
        """Have the disk take all that are there, again and again until none are."""
        try:
            while self._unflushed:
                group, self._unflushed = self._unflushed, []
                try:
                    await self._broker.store.flush(self._all[group[-1]].end)
                except DiskFailed as error:
                    for number in group:
                        self._answer(
                            number, ResponseCode.SERVICE_NOT_AVAILABLE, str(error), has_fields=False
                        )
                    continue
                for number in group:
                    one = self._all[number]
                    one.ha.when_put(one.end, one.reign, partial(self._ended, number))
        finally:
            self._flushes = False

    def _ended(self, number: int, status: PutStatus) -> None:
        if status is PutStatus.SERVICE_NOT_AVAILABLE:
            # This replica stopped before anybody could say what has become of the record.
            status = PutStatus.FLUSH_SLAVE_TIMEOUT
        one = self._all[number]
        if status is PutStatus.PUT_OK and isinstance(one.answer, bytes):
            self._forget(number)
            if not one.request.is_oneway:
                one.connection.send_frame(one.answer)
        else:
            self._answer(number, status.response_code, status.remark, has_fields=True)

    def _answer(self, number: int, code: int, remark: str | None, *, has_fields: bool) -> None:
        one = self._forget(number)
        if not one.request.is_oneway:
            fields = one.fields() if has_fields else None
            one.connection.send(one.request.reply(code, remark, fields))

    def _forget(self, number: int) -> Waiting:
        one = self._all.pop(number)
        self._broker.statistics.puts.took(self._broker.clock.now_ms() - one.begun_ms)
        return one
