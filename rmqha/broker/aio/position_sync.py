"""A slave copies how far its master's consumers (43), delays (45) and timers (60) are.

A position says that something was delivered, and the delivery is a record of the master's log. A
slave that took the position and lacks the record would, elected, deliver it never. So the slave
asks for the end of the master's log *after* it has asked for the positions, and takes them only
once its own log is confirmed that far. A master that dies before has told nothing: what it had
delivered comes once more.

Java's slaves take positions at once (ADR 0021). Source: SlaveSynchronize of RocketMQ 5.1.1 to 5.5
(reference ha-store 7.5).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from rmqha.base.errors import RemoteProtocolError, RmqhaError
from rmqha.broker.aio.consumer_files import OffsetFile
from rmqha.broker.aio.services import MasterServices
from rmqha.broker.aio.slave_sync import fast_address
from rmqha.broker.delay_offsets import DelayOffsets
from rmqha.broker.timers import TimerMark
from rmqha.remoting import fastjson
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.broker_figures import read_figures
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import Clock

FoundT = TypeVar("FoundT")

LOOK_MS = 20
"""Between two looks at how far the own log is confirmed."""


class Confirmed(Protocol):
    """The own log."""

    @property
    def confirm_offset(self) -> int:
        """Bytes before it are on every replica of the SyncStateSet, and here."""


class Positions(Struct, frozen=True):
    """What one look at a master has brought.

    Attributes:
        consumers, delays, timers: the answers to 43, 45 and 60; None where there was none.
        log_end: bytes of the master's log at a later moment; the records of everything that the
            positions tell of end before.
    """

    consumers: dict[str, Any] | None
    delays: DelayOffsets | None
    timers: TimerMark | None
    log_end: int


class PositionSync:
    """Copies while this broker is a slave, so that it can go on when it is elected.

    Args:
        master: the service address of the master that this slave follows; None when there is none.
        store: the own log.
        period_ms: between two looks.
    """

    def __init__(
        self,
        *,
        client: RemotingClient,
        clock: Clock,
        log: Logger,
        master: Callable[[], str | None],
        store: Confirmed,
        offsets: OffsetFile,
        services: MasterServices,
        period_ms: int,
    ) -> None:
        self._client = client
        self._clock = clock
        self._log = log
        self._master = master
        self._store = store
        self._offsets = offsets
        self._services = services
        self._period_ms = period_ms

    async def run(self) -> None:
        """Look for ever."""
        while True:
            master = self._master()
            found = None if master is None else await self._ask_all(master)
            if master is not None and found is not None and await self._reached(master, found):
                self._take(found)
            await self._clock.sleep(self._period_ms)

    async def _ask_all(self, master: str) -> Positions | None:
        rules = self._services.rules
        consumers = await self._ask(master, RequestCode.GET_ALL_CONSUMER_OFFSET, _object)
        delays = await self._ask(master, RequestCode.GET_ALL_DELAY_OFFSET, _delays)
        timers = None
        if rules.timers:
            timers = await self._ask(
                master,
                RequestCode.GET_TIMER_CHECK_POINT,
                lambda body: TimerMark.decode(body, rules.precision_ms),
            )
        # The last question: what the answers above tell of was in the log before.
        log_end = await self._ask(master, RequestCode.GET_BROKER_RUNTIME_INFO, _log_end)
        return None if log_end is None else Positions(consumers, delays, timers, log_end)

    async def _reached(self, master: str, found: Positions) -> bool:
        """Wait for the own log; False when the master is another one meanwhile."""
        while self._master() == master:
            if self._store.confirm_offset >= found.log_end:
                return True
            await self._clock.sleep(LOOK_MS)
        return False

    def _take(self, found: Positions) -> None:
        services = self._services
        try:
            if found.consumers is not None and self._offsets.table.merge(found.consumers):
                self._offsets.changed()
        except RemoteProtocolError as error:
            self._log.log("warning", "position_not_copied", what="43", reason=str(error))
        if found.delays is not None:
            services.delay_offsets.copy(found.delays)
        if found.timers is not None:
            services.timer_mark.mark = found.timers

    async def _ask(
        self, master: str, code: RequestCode, read: Callable[[bytes], FoundT]
    ) -> FoundT | None:
        """What a master answers; None, and a line in the log, when it cannot be used."""
        try:
            answer = await self._client.invoke(fast_address(master), RemotingCommand(code))
            if answer.code != ResponseCode.SUCCESS:
                raise RmqhaError(f"answered {answer.code}: {answer.remark}")
            return read(bytes(answer.body))
        except RmqhaError as error:
            self._log.log(
                "warning", "position_not_copied", what=code.name, master=master, reason=str(error)
            )
            return None


def _object(body: bytes) -> dict[str, Any]:
    value = fastjson.loads(body)
    return value if isinstance(value, dict) else {}


def _delays(body: bytes) -> DelayOffsets:
    return DelayOffsets.of(_object(body))


def _log_end(body: bytes) -> int:
    end = read_figures(body).max_offset
    if end is None:
        raise RemoteProtocolError("the master does not say where its log ends")
    return end
