"""How a master's own services write messages, and know when these are safe.

What clients send goes through ``send/aio/send_requests.py``; this is for what the broker sends by itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from rmqha.base.errors import DiskFailed, LocalProtocolError
from rmqha.broker.common.aio.ports import Broker
from rmqha.ha.aio.service import HaService
from rmqha.ha.events import PutStatus, Role
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.store.aio.commit_log import AppendResult
from rmqha.store.aio.room import Stretch
from rmqha.store.metadata_records import METADATA_TOPIC
from rmqha.store.record import Message

T = TypeVar("T")
BATCH_BYTES, ROOM_BYTES = 1 << 20, 128 * 1024
"""Written in one turn of the loop; and where writes wait for the disk, for as much as that room is made."""
RECORDS_A_TURN = 32
"""The same by their number: to find, build and append one takes some 60 us, and clients wait for it."""
TURNS = 8
"""After so many turns their safety is waited for, where writes are flushed by one sync for all."""


async def nothing() -> None:
    """Nothing more to wait for."""


class Writer:
    """Appends for as long as this broker reigns.

    Between :attr:`is_open` and :meth:`append` nobody may wait: then no role can end in between.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @property
    def is_open(self) -> bool:
        """Whether this broker is a serving master, and enough replicas are there to write to."""
        broker = self._broker
        if broker.role is not Role.MASTER or broker.ha is None or broker.store.failed is not None:
            return False
        return broker.ha.check_put() is PutStatus.PUT_OK

    def append(self, message: Message) -> AppendResult:
        """Write one message; it is safe when :meth:`settle` says so.

        What is in the log already may be larger than ``maxMessageSize`` is now, or is here; a change of
        tables may not.

        Only the role is asked for here: a lease may end between two records of one change, which belong
        together.

        Raises:
            LocalProtocolError: this broker does not reign; whoever writes asks :attr:`is_open` first.
            MessageIllegal: the store cannot hold it.
            DiskFailed: the store has stopped.
        """
        if self._broker.role is not Role.MASTER:
            raise LocalProtocolError("this broker does not reign: it writes no messages of its own")
        own = message.topic != METADATA_TOPIC
        result = self._broker.store.append(message, own=own)
        if self._broker.ha is not None:
            self._broker.ha.appended()
        return result

    async def batch(self, write: Callable[[Stretch], T]) -> T:
        """Have a service write what it has to, for one turn of the loop (ADR 0048).

        Args:
            write: asks the stretch before each record, and writes no more once one is refused. Where
                writes wait for the disk it is called once to see whether there is anything, and again
                when room for it has been made: nobody makes room for nothing.

        Returns:
            What ``write`` said, the last time.
        """
        room = self._broker.store.room
        if not room.is_short:
            return write(Stretch(room, BATCH_BYTES, RECORDS_A_TURN))
        look = Stretch(room, 0)
        found = write(look)
        if not look.refused:
            return found
        async with room.stretch(max(ROOM_BYTES, look.refused), RECORDS_A_TURN) as stretch:
            return write(stretch)

    async def batches(self, write: Callable[[Stretch], tuple[int, bool]]) -> tuple[int, bool]:
        """The same for several turns, between which others have theirs.

        Args:
            write: says where its last record ends, 0 for none, and whether it has more to write.

        Returns:
            Where the last record of all ends, 0 for none, for :meth:`settle`; and whether there is more.
        """
        end = 0
        for _ in range(TURNS):
            last, more = await self.batch(write)
            end = max(end, last)
            if not more:
                return end, False
            await self._broker.clock.sleep(0)
        return end, True

    def settle(self, end: int, *, durable: bool = False) -> Coroutine[Any, Any, bool]:
        """Whether all before ``end`` is as safe as this broker's configuration asks for.

        Returns when that is so, or when the time for it is over; ask again then. It is for what was
        written in the reign in which this is called, which need not be that in which it is awaited.

        Args:
            durable: it is on this broker's disk, too, whatever flushDiskType says.

        Raises:
            DiskFailed: the store has stopped.
        """
        ha = self._broker.ha
        return self._settled(end, ha, 0 if ha is None else ha.reign_number, durable)

    async def _settled(self, end: int, ha: HaService | None, reign: int, durable: bool) -> bool:
        broker = self._broker
        if durable or broker.store.settings.sync_flush:
            await broker.store.flush(end)
        if ha is None or broker.role is not Role.MASTER:
            return False
        return await ha.wait_put(end, reign) is PutStatus.PUT_OK

    def answer_when_safe(
        self,
        connection: Connection,
        request: RemotingCommand,
        end: int,
        fields: dict[str, str] | None = None,
    ) -> None:
        """Answer a request once what it had written, up to ``end``, is safe, or surely is not."""
        work = self._answer(connection, request, self.settle(end), fields)
        self._broker.answers.start(work, connection, request, name="answer")

    def answer_when_durable(
        self,
        connection: Connection,
        request: RemotingCommand,
        end: int,
        followed: Callable[[], Awaitable[str | None]] = nothing,
    ) -> None:
        """The same for a change that people ask for: it is on this broker's disk as well.

        Args:
            followed: what the answer waits for besides, once that is so; a text is why that did not
                come about.
        """

        async def settled(safe: Awaitable[bool]) -> bool | str:
            if not await safe:
                return False
            return await followed() or True

        work = self._answer(connection, request, settled(self.settle(end, durable=True)), None)
        self._broker.answers.start(work, connection, request, name="change")

    async def _answer(
        self, connection: Connection, request: RemotingCommand, settled: Awaitable[bool | str],
        fields: dict[str, str] | None,
    ) -> None:  # fmt: skip
        code, remark = int(ResponseCode.SUCCESS), None
        try:
            found = await settled
            if found is not True:
                code, remark = int(ResponseCode.SYSTEM_ERROR), found or "FLUSH_SLAVE_TIMEOUT"
        except DiskFailed as error:
            code, remark = ResponseCode.SERVICE_NOT_AVAILABLE, str(error)
        if not request.is_oneway:
            connection.send(request.reply(code, remark, fields))
