"""A slave copies its master's topics and groups, to serve them when it is elected.

Source: SlaveSynchronize of RocketMQ 5.1.1 to 5.5 (reference ha-store 7.5).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rmqha.base.errors import RmqhaError
from rmqha.broker.aio.consumer_files import GroupFile
from rmqha.broker.aio.topics import TopicFile
from rmqha.broker.groups import GroupTable
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
        topics, groups: what to keep up to date.
        period_ms: between two looks.
        more: what else to ask for: request code, what it is called, and who takes the answer and
            says how much of it was new.
    """

    def __init__(
        self,
        *,
        client: RemotingClient,
        clock: Clock,
        log: Logger,
        master: Callable[[], str | None],
        topics: TopicFile,
        groups: GroupFile,
        period_ms: int,
        more: tuple[tuple[int, str, Callable[[dict[str, Any]], int]], ...] = (),
    ) -> None:
        self._client = client
        self._clock = clock
        self._log = log
        self._master = master
        self._topics = topics
        self._groups = groups
        self._period_ms = period_ms
        self._copies: tuple[tuple[int, str, Callable[[dict[str, Any]], int]], ...] = (
            (RequestCode.GET_ALL_TOPIC_CONFIG, "topics", self._take_topics),
            (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "groups", self._take_groups),
            *more,
        )

    async def run(self) -> None:
        """Look for ever."""
        while True:
            for code, what, take in self._copies:
                master = self._master()
                if master is not None:
                    await self._copy(master, code, what, take)
            await self._clock.sleep(self._period_ms)

    async def _copy(
        self, master: str, code: int, what: str, take: Callable[[dict[str, Any]], int]
    ) -> None:
        try:
            answer = await self._client.invoke(fast_address(master), RemotingCommand(code))
            if answer.code != ResponseCode.SUCCESS:
                raise RmqhaError(f"answered {answer.code}: {answer.remark}")
            value = fastjson.loads(answer.body)
            # The role may have changed while the answer was on its way.
            if self._master() != master:
                return
            count = take(value if isinstance(value, dict) else {})
        except RmqhaError as error:
            self._log.log("warning", "not_copied", what=what, master=master, reason=str(error))
            return
        if count:
            self._log.log("info", "copied", what=what, master=master, count=count)

    def _take_topics(self, value: dict[str, Any]) -> int:
        table = TopicTable.of(value)
        if not table.topics or table.version == self._topics.table.version:
            return 0
        self._topics.table = table
        self._topics.changed()
        return len(table.topics)

    def _take_groups(self, value: dict[str, Any]) -> int:
        table = GroupTable.of(value)
        if not table.groups or table.version == self._groups.table.version:
            return 0
        self._groups.table = table
        self._groups.changed()
        return len(table.groups)
