"""A slave copies how far its master has delivered delayed messages (45) and timers (60).

Source: SlaveSynchronize of RocketMQ 5.1.1 to 5.5 (reference ha-store 7.5).
"""

from __future__ import annotations

from collections.abc import Callable

from rmqha.base.errors import RmqhaError
from rmqha.broker.aio.services import MasterServices
from rmqha.broker.aio.slave_sync import fast_address
from rmqha.broker.delay_offsets import DelayOffsets
from rmqha.broker.timers import TimerMark
from rmqha.remoting import fastjson
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import Clock


class DelaySync:
    """Copies while this broker is a slave, so that it can go on when it is elected.

    Args:
        master: the service address of the master that this slave follows; None when there is none.
        period_ms: between two looks.
    """

    def __init__(
        self,
        *,
        client: RemotingClient,
        clock: Clock,
        log: Logger,
        master: Callable[[], str | None],
        services: MasterServices,
        period_ms: int,
    ) -> None:
        self._client = client
        self._clock = clock
        self._log = log
        self._master = master
        self._services = services
        self._period_ms = period_ms

    async def run(self) -> None:
        """Look for ever; raises DiskFailed."""
        while True:
            master = self._master()
            if master is not None:
                await self._copy(master)
            await self._clock.sleep(self._period_ms)

    async def _copy(self, master: str) -> None:
        services = self._services
        try:
            delays = fastjson.loads(await self._ask(master, RequestCode.GET_ALL_DELAY_OFFSET))
            offsets = DelayOffsets.of(delays if isinstance(delays, dict) else {})
            mark = None
            if services.rules.timers:
                answer = await self._ask(master, RequestCode.GET_TIMER_CHECK_POINT)
                mark = TimerMark.decode(answer, services.rules.precision_ms)
        except RmqhaError as error:
            self._log.log("warning", "delays_not_copied", master=master, reason=str(error))
            return
        # The role may have changed while the answer was on its way.
        if self._master() != master:
            return
        services.delay_offsets.copy(offsets)
        if mark is not None:
            services.timer_mark.mark = mark
        await services.save()

    async def _ask(self, master: str, code: RequestCode) -> bytes:
        answer = await self._client.invoke(fast_address(master), RemotingCommand(code))
        if answer.code != ResponseCode.SUCCESS:
            raise RmqhaError(f"{code.name} was answered {answer.code}: {answer.remark}")
        return bytes(answer.body)
