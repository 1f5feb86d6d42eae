"""A slave copies its master's topics, so that it can serve them when it is elected.

Source: SlaveSynchronize of RocketMQ 5.1.1 to 5.5 (reference ha-store 7.5).
"""

from __future__ import annotations

from collections.abc import Callable

from rmqha.base.errors import RmqhaError
from rmqha.broker.aio.topics import TopicFile
from rmqha.broker.settings import FAST_PORT_DISTANCE
from rmqha.broker.topics import TopicTable
from rmqha.remoting import fastjson
from rmqha.remoting.address import format_address, parse_address
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import Clock


def fast_address(address: str) -> str:
    """The second port of a broker, two below the one that it is known by.

    Raises:
        ConfigInvalid: not an address.
    """
    host, port = parse_address(address)
    return format_address(host, port - FAST_PORT_DISTANCE)


class SlaveSync:
    """Copies what is not in the commit log.

    Args:
        master: the service address of the master that this slave follows; None when there is none.
        topics: what to keep up to date.
        period_ms: between two looks.
    """

    def __init__(
        self,
        *,
        client: RemotingClient,
        clock: Clock,
        log: Logger,
        master: Callable[[], str | None],
        topics: TopicFile,
        period_ms: int,
    ) -> None:
        self._client = client
        self._clock = clock
        self._log = log
        self._master = master
        self._topics = topics
        self._period_ms = period_ms

    async def run(self) -> None:
        """Look for ever."""
        while True:
            master = self._master()
            if master is not None:
                await self._copy(master)
            await self._clock.sleep(self._period_ms)

    async def _copy(self, master: str) -> None:
        try:
            answer = await self._client.invoke(
                fast_address(master), RemotingCommand(RequestCode.GET_ALL_TOPIC_CONFIG)
            )
            if answer.code != ResponseCode.SUCCESS:
                raise RmqhaError(f"answered {answer.code}: {answer.remark}")
            value = fastjson.loads(answer.body)
            table = TopicTable.of(value if isinstance(value, dict) else {})
        except RmqhaError as error:
            self._log.log("warning", "topics_not_copied", master=master, reason=str(error))
            return
        # The role may have changed while the answer was on its way.
        if self._master() != master or table.version == self._topics.table.version:
            return
        if table.topics:
            self._topics.table = table
            self._topics.changed()
            self._log.log("info", "topics_copied", master=master, count=len(table.topics))
