"""Who is asked: name servers in turn, the master of a broker set, the leader of a logical queue.

Whoever is master may be another one a moment later. What is known is kept until an answer shows
that it is out of date; then the name servers are asked again.

Source: RocketMQ's protocol as observed.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from rmqha.base.errors import ConnectFailed, ConnectionLost, RequestTimeout
from rmqha.client.aio.exchanges import ExchangeClient
from rmqha.client.brokers import cluster_info, masters_by_set, topic_route
from rmqha.client.exchange import Exchange, Refused, Unreachable, ask_any
from rmqha.client.logical import Leaders, is_logical
from rmqha.client.routes import QueueKey, TopicRoute, decode_names
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.codes import RequestCode, ResponseCode, request_name
from rmqha.remoting.command import RemotingCommand
from rmqha.runtime.ports import Clock

RETRY_MS = 50
PASSING: frozenset[int] = frozenset(
    {
        ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY, ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.NOT_LEADER_FOR_QUEUE,
    }
)  # fmt: skip
"""Answers of a broker that another moment, or another master, may not give. The three in the middle
say that a message is stored, but not as safely as the broker's settings promise."""

T = TypeVar("T")


def succeeded(answer: RemotingCommand) -> bool:
    """Whether an answer says that all went well."""
    return answer.code == ResponseCode.SUCCESS


class Masters:
    """Finds whom to ask, and asks until somebody answers.

    Args:
        name_servers: addresses, asked in turn.
        timeout_ms: of one request to a broker.
        failover_timeout_ms: of all attempts of one request together.
    """

    def __init__(
        self,
        name_servers: Sequence[str],
        remoting: RemotingClient,
        clock: Clock,
        *,
        timeout_ms: int,
        failover_timeout_ms: int,
    ) -> None:
        self._name_servers = tuple(name_servers)
        self._remoting = remoting
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._failover_timeout_ms = failover_timeout_ms
        self._exchanges = ExchangeClient(remoting)
        self._masters: dict[str, str] = {}
        self._leaders: dict[str, Leaders] = {}

    # -- name servers ------------------------------------------------------------------------------

    async def topics(self) -> tuple[list[str], frozenset[str]]:
        """All topics, and those of them that the brokers keep for themselves.

        Raises:
            Unreachable, Refused: no name server tells.
        """
        listed = await self._topic_list(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        internal = await self._topic_list(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
        return sorted(listed), frozenset(internal)

    async def _topic_list(self, code: RequestCode) -> list[str]:
        _, answer = await self._named(lambda: ask_any(self._name_servers, code))
        return decode_names(answer.body, "topicList")

    async def find_route(self, topic: str, *, is_patient: bool = True) -> TopicRoute | None:
        """Where a topic is; None when nobody has it.

        Args:
            is_patient: ask again while no name server answers, or those that do are not ready.

        Raises:
            Unreachable, Refused: no name server tells.
        """
        wait_ms = self._failover_timeout_ms if is_patient else 0
        try:
            route = await self._named(lambda: topic_route(self._name_servers, topic), wait_ms)
        except Refused as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            raise
        self._leaders[topic] = Leaders.of(topic, route)
        return route

    async def _named(self, make: Callable[[], Exchange[T]], wait_ms: int | None = None) -> T:
        """Ask the name servers, again while none of them answers, or those that do are not ready."""
        deadline_ms = self._clock.now_ms() + (
            self._failover_timeout_ms if wait_ms is None else wait_ms
        )
        while True:
            try:
                return await self._exchanges.run(make())
            except (Refused, Unreachable) as error:
                is_final = isinstance(error, Refused) and not error.is_for_now
                if is_final or self._clock.now_ms() >= deadline_ms:
                    raise
            await self._clock.sleep(RETRY_MS)

    # -- masters -----------------------------------------------------------------------------------

    async def on_master(
        self,
        broker_name: str,
        make: Callable[[], RemotingCommand],
        accepts: Callable[[RemotingCommand], bool] = succeeded,
    ) -> RemotingCommand:
        """Ask whoever is master of a broker set, until one gives an answer that it accepts.

        Args:
            make: makes the request anew for each attempt.
            accepts: whether an answer is one; by default success alone.

        Raises:
            Refused: an answer that will not change.
            Unreachable: no master gave one in time; what the last one said is in the message.
        """
        return await self._until_accepted(
            f"broker set {broker_name}", lambda: self._master(broker_name), make, accepts
        )

    async def on_queue(
        self,
        queue: QueueKey,
        make: Callable[[], RemotingCommand],
        accepts: Callable[[RemotingCommand], bool] = succeeded,
    ) -> RemotingCommand:
        """Ask whoever is master for a queue as ``on_master`` does; whoever leads a logical one."""
        if not is_logical(queue):
            return await self.on_master(queue.broker_name, make, accepts)
        return await self._until_accepted(
            f"the leader of {queue}", lambda: self.master_for(queue), make, accepts
        )

    async def _until_accepted(
        self,
        who: str,
        find: Callable[[], Coroutine[Any, Any, str | None]],
        make: Callable[[], RemotingCommand],
        accepts: Callable[[RemotingCommand], bool],
    ) -> RemotingCommand:
        deadline_ms = self._clock.now_ms() + self._failover_timeout_ms
        while True:
            address = await find()
            problem: Exception = Unreachable("no master is known")
            if address is not None:
                try:
                    return await self.ask(address, make(), accepts)
                except (ConnectFailed, ConnectionLost, RequestTimeout) as error:
                    problem = error
                except Refused as error:
                    if error.code not in PASSING:
                        raise
                    problem = error
            self.forget()
            await self.before_next(deadline_ms, f"{who} gave no answer", problem)

    async def before_next(self, deadline_ms: int, what: str, problem: Exception) -> None:
        """Wait a moment before the next attempt; raises Unreachable when there shall be none."""
        if self._clock.now_ms() >= deadline_ms:
            raise Unreachable(
                f"{what} for {self._failover_timeout_ms} ms (failoverTimeoutMs): {problem}"
            ) from problem
        await self._clock.sleep(RETRY_MS)

    def forget(self) -> None:
        """Ask the name servers again who is master, or leads a logical queue.

        One that was may answer as a slave, or for a queue that has moved away.
        """
        self._masters.clear()
        self._leaders.clear()

    async def ask(
        self,
        address: str,
        command: RemotingCommand,
        accepts: Callable[[RemotingCommand], bool] = succeeded,
    ) -> RemotingCommand:
        """Ask one broker once.

        Raises:
            ConnectFailed, ConnectionLost, RequestTimeout: it gave no answer.
            Refused: it gave one that is not accepted.
        """
        answer = await self._remoting.invoke(address, command, self._timeout_ms)
        if not accepts(answer):
            raise Refused(address, answer.code, answer.remark or request_name(command.code))
        return answer

    async def _master(self, broker_name: str) -> str | None:
        if broker_name not in self._masters:
            info = await self._named(lambda: cluster_info(self._name_servers))
            self._masters = masters_by_set(info)
        return self._masters.get(broker_name)

    async def leader(self, queue: QueueKey) -> str | None:
        """The broker set of a queue; None for a logical one that nobody leads now."""
        if not is_logical(queue):
            return queue.broker_name
        if queue.topic not in self._leaders and await self.find_route(queue.topic) is None:
            return None
        return self._leaders[queue.topic].names.get(queue)

    async def master_for(self, queue: QueueKey) -> str | None:
        """The address of who is master for a queue; None while nobody is."""
        name = await self.leader(queue)
        return None if name is None else await self._master(name)

    def led_queues(self, topic: str, perm: int) -> list[QueueKey]:
        """The logical queues of a topic whose route was just found, where they allow ``perm``."""
        return self._leaders[topic].allowing(perm)
