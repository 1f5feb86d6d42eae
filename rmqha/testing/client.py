"""The cluster's own client: who is master, sending with a memory, and reading everything back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from msgspec import Struct

from rmqha.base.errors import RmqhaError
from rmqha.client.pull import Pulled, is_pulled, pull_request
from rmqha.client.routes import QueueKey
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.bodies import (
    BrokerReplicasInfo,
    ClusterInfo,
    ReplicasInfo,
    SyncStateSet,
    encode_names,
)
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import int_field, text_field
from rmqha.remoting.settings import RemotingSettings
from rmqha.runtime.ports import Clock, Network
from rmqha.testing.histories import ClusterHistory
from rmqha.testing.real.wire import Stored, parse_messages, shown
from rmqha.testing.sends import GROUP, QUEUES, send_parts
from rmqha.testing.settings import BROKER_NAME, Plan

ASK_TIMEOUT_MS = 500
SEND_TIMEOUT_MS = 1_500
RETRY_S = 0.005
PULL_MESSAGES_MAX = 32


class NotYet(AssertionError):
    """Something did not come true in time."""


class RefusedForGood(NotYet):
    """A request that no master will ever take: a topic's name that cannot be, a body too large."""


class Acked(Struct, frozen=True):
    """A message that was acknowledged; times are milliseconds of the cluster's clock.

    Attributes:
        message_id: the offset message id that the broker gave.
        address: of the master that acknowledged it.
        attempts: sends of this body; with more than one there may be duplicates.
    """

    topic: str
    body: bytes
    queue_id: int
    queue_offset: int
    message_id: str
    address: str
    attempts: int
    sent_ms: int
    acked_ms: int

    def __repr__(self) -> str:
        place = f"{self.topic}/{self.queue_id}/{self.queue_offset}"
        times = f" in {self.attempts} attempts" if self.attempts > 1 else ""
        return f"<acked {shown(self.body)} at {place} by {self.address}{times}>"


class SetInfo(Struct, frozen=True):
    """A broker set by the controllers' word (1004).

    Attributes:
        master_address: None without a master.
    """

    master_id: int | None
    master_address: str | None
    master_epoch: int
    sync_state_set: frozenset[int]


class ClusterClient:
    """Speaks the remoting protocol as any client.

    Args:
        plan: where everybody is.
        network, clock: the ports.
        history: takes everything that is sent and read; None keeps none.
    """

    def __init__(
        self, plan: Plan, network: Network, clock: Clock, history: ClusterHistory | None = None
    ) -> None:
        self._plan = plan
        self._broker_name = BROKER_NAME
        self.clock = clock
        self.history = history
        self._remoting = RemotingClient(
            network, clock, RemotingSettings(connect_timeout_ms=ASK_TIMEOUT_MS)
        )
        self._leader: str | None = None
        self._master: str | None = None
        self._topics: dict[str, set[str]] = {}
        self._sent = 0
        self.acked: list[Acked] = []
        self.last_refusal = "nothing was tried"

    async def close(self) -> None:
        """Close all connections."""
        await self._remoting.close()
        if self.history is not None:
            self.history.close()
            self.history = None

    def queues_of(self, topic: str) -> int:
        """How many queues a topic has, once it was sent to or read."""
        del topic
        return QUEUES

    async def ask(
        self,
        address: str,
        code: int,
        fields: dict[str, str] | None = None,
        body: bytes = b"",
        timeout_ms: int = ASK_TIMEOUT_MS,
    ) -> RemotingCommand:
        """Send one request and wait for its answer.

        Raises:
            RmqhaError: no answer.
        """
        command = RemotingCommand(code, ext_fields=fields, body=body)
        return await self._remoting.invoke(address, command, timeout_ms)

    # -- who is what -------------------------------------------------------------------------

    async def leader(self) -> str | None:
        """Address of the controller that answers as the leader."""
        await self._ask_leader(
            RequestCode.CONTROLLER_GET_REPLICA_INFO, {"brokerName": self._broker_name}
        )
        return self._leader

    async def set_info(self) -> SetInfo | None:
        """What the controllers' leader says; None without a leader or before a broker joined."""
        fields = {"brokerName": self._broker_name}
        answer = await self._ask_leader(RequestCode.CONTROLLER_GET_REPLICA_INFO, fields)
        if answer is None or answer.code != ResponseCode.SUCCESS:
            return None
        got = answer.ext_fields
        master_id = int_field(got, "masterBrokerId", -1)
        members = SyncStateSet.decode(answer.body).broker_ids if answer.body else ()
        return SetInfo(
            master_id=None if master_id < 0 else master_id,
            master_address=text_field(got, "masterAddress", "") or None,
            master_epoch=int_field(got, "masterEpoch", 0),
            sync_state_set=frozenset(members),
        )

    async def replicas(self) -> ReplicasInfo | None:
        """Every replica by the controllers' word (1006); None without a leader or such a set."""
        code = RequestCode.CONTROLLER_GET_SYNC_STATE_DATA
        answer = await self._ask_leader(code, {}, encode_names([self._broker_name]))
        if answer is None or answer.code != ResponseCode.SUCCESS:
            return None
        return BrokerReplicasInfo.decode(answer.body).replicas_info_table.get(self._broker_name)

    async def _ask_leader(
        self, code: int, fields: dict[str, str], body: bytes = b""
    ) -> RemotingCommand | None:
        """Ask whoever led last, and then everybody at once."""
        if self._leader is not None:
            answer = await self._ask_as_leader(self._leader, code, fields, body)
            if answer is not None:
                return answer
            self._leader = None
        addresses = [one.address for one in self._plan.controllers]
        answers = await asyncio.gather(
            *(self._ask_as_leader(one, code, fields, body) for one in addresses)
        )
        for address, answer in zip(addresses, answers, strict=True):
            if answer is not None:
                self._leader = address
                return answer
        return None

    async def _ask_as_leader(
        self, address: str, code: int, fields: dict[str, str], body: bytes
    ) -> RemotingCommand | None:
        try:
            answer = await self.ask(address, code, fields, body)
        except RmqhaError:
            return None
        return None if answer.code == ResponseCode.CONTROLLER_NOT_LEADER else answer

    async def routed(self, name_server: str) -> dict[int, str]:
        """Broker ids and addresses that a name server lists; 0 is the master."""
        try:
            answer = await self.ask(name_server, RequestCode.GET_BROKER_CLUSTER_INFO)
            if answer.code != ResponseCode.SUCCESS:
                return {}
            found = ClusterInfo.decode(answer.body).broker_addr_table.get(self._broker_name)
            return {} if found is None else dict(found.broker_addrs)
        except RmqhaError:
            return {}

    async def master(self) -> str | None:
        """The master that clients find: the controllers' word, and every reachable name server's."""
        info = await self.set_info()
        if info is None or info.master_address is None:
            return None
        servers = [one.address for one in self._plan.name_servers]
        for listed in await asyncio.gather(*(self.routed(one) for one in servers)):
            if listed and listed.get(0) != info.master_address:
                return None
        return info.master_address

    async def until(
        self,
        found: Callable[[], Awaitable[object]],
        what: str,
        timeout_s: float,
        detail: Callable[[], str] = lambda: "",
    ) -> None:
        """Ask until something holds.

        Raises:
            NotYet: it did not within ``timeout_s``.
        """
        deadline_ms = self.clock.now_ms() + timeout_s * 1000
        while not await found():
            if self.clock.now_ms() >= deadline_ms:
                raise NotYet(f"no {what} within {timeout_s:g} s{detail()}")
            await asyncio.sleep(RETRY_S)

    # -- sending -----------------------------------------------------------------------------

    async def produce(
        self, bodies: Sequence[bytes], topic: str, timeout_s: float, in_flight: int
    ) -> list[Acked]:
        """Send each body until it is acknowledged; at most ``in_flight`` wait at a time.

        Raises:
            NotYet: some were not acknowledged within ``timeout_s``.
        """
        deadline_ms = self.clock.now_ms() + timeout_s * 1000
        results: list[Acked | None] = [None] * len(bodies)
        waiting = iter(range(len(bodies)))

        async def work() -> None:
            for index in waiting:
                results[index] = await self.send(bodies[index], topic, deadline_ms)

        await asyncio.gather(*(work() for _ in range(max(1, min(in_flight, len(bodies))))))
        return [one for one in results if one is not None]

    async def send(self, body: bytes, topic: str, deadline_ms: float) -> Acked:
        """Send one body, again and again, until it is acknowledged.

        Raises:
            NotYet: it was not before ``deadline_ms``.
            RefusedForGood: no master would ever take it.
        """
        self._sent += 1
        number, attempts = self._sent, 0
        while True:
            attempts += 1
            acked = await self.send_once(number, body, topic, attempts)
            if acked is not None:
                self.acked.append(acked)
                return acked
            if self.clock.now_ms() >= deadline_ms:
                raise NotYet(
                    f"message {number} was not acknowledged in {attempts} attempts;"
                    f" the last one: {self.last_refusal}"
                )
            await asyncio.sleep(RETRY_S)

    async def send_once(self, number: int, body: bytes, topic: str, attempt: int) -> Acked | None:
        """Send to the master; None when it was not acknowledged (``last_refusal`` says why)."""
        acked = await self.send_together(number, (body,), topic, attempt)
        return acked[0] if acked else None

    async def send_together(
        self, number: int, bodies: Sequence[bytes], topic: str, attempt: int
    ) -> list[Acked]:
        """Send messages to the master in one request, to one queue.

        Args:
            number: of the first; the others count on.

        Returns:
            One for each message; none when they were not acknowledged (``last_refusal`` says why).
        """
        history = self.history
        if history is None:
            return await self._attempt(number, bodies, topic, attempt)
        start_ms = self.clock.wall_ms()
        numbers = range(number, number + len(bodies))
        for one in numbers:
            history.sending(topic, one, attempt, start_ms)
        acked = await self._attempt(number, bodies, topic, attempt)
        span_ms = (start_ms, self.clock.wall_ms())
        for one, found in zip(numbers, acked, strict=False):
            history.acked(topic, one, attempt, span_ms, (found.queue_id, found.queue_offset))
        for one in numbers[len(acked) :]:
            history.failed(topic, one, attempt, span_ms, self.last_refusal)
        return acked

    async def _attempt(
        self, number: int, bodies: Sequence[bytes], topic: str, attempt: int
    ) -> list[Acked]:
        address = self._master or await self.master()
        if address is None:
            self.last_refusal = "nobody is master"
            return []
        self._master = address
        sent_ms = self.clock.now_ms()
        try:
            await self.create_topic(address, topic)
            place = (self._broker_name, number // len(bodies) % self.queues_of(topic))
            code, fields, body = send_parts(topic, number, bodies, self.clock.wall_ms(), place)
            answer = await self.ask(address, code, fields, body, SEND_TIMEOUT_MS)
        except RmqhaError as error:
            self._refused(str(error))
            return []
        got = answer.ext_fields or {}
        if answer.code != ResponseCode.SUCCESS:
            self._refused(f"{address} answered {answer.code}: {answer.remark}")
            if answer.code == ResponseCode.MESSAGE_ILLEGAL:
                raise RefusedForGood(f"message {number} for {topic!r}: {self.last_refusal}")
            return []
        return [
            Acked(
                topic, body, int(got["queueId"]), int(got["queueOffset"]) + behind, message_id,
                address, attempt, sent_ms, self.clock.now_ms(),
            )
            for behind, (body, message_id) in enumerate(
                zip(bodies, got["msgId"].split(","), strict=True)
            )
        ]  # fmt: skip

    def _refused(self, reason: str) -> None:
        self.last_refusal = reason
        self._master = None

    async def create_topic(self, address: str, topic: str, queues: int = QUEUES) -> None:
        """Create a topic at a master, once.

        Raises:
            RmqhaError: it did not answer.
            RefusedForGood: no master makes such a topic.
        """
        known = self._topics.setdefault(address, set())
        if topic in known:
            return
        fields = {
            "topic": topic, "defaultTopic": "TBW102", "readQueueNums": str(queues),
            "writeQueueNums": str(queues), "perm": "6", "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0", "order": "false",
        }  # fmt: skip
        answer = await self.ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
        if answer.code == ResponseCode.SUCCESS:
            known.add(topic)
        elif answer.code == ResponseCode.INVALID_PARAMETER:
            raise RefusedForGood(f"topic {topic!r}: {answer.remark}")

    # -- reading -----------------------------------------------------------------------------

    async def consume(self, topic: str, timeout_s: float) -> list[Stored]:
        """Every message of a topic that a consumer of the master gets, queue by queue.

        Raises:
            NotYet: there was no master to read from.
        """
        deadline_ms = self.clock.now_ms() + timeout_s * 1000
        while True:
            try:
                address = await self.master()
                if address is not None:
                    # A slave copies topics every so often; its log may know one before it does.
                    await self.create_topic(address, topic)
                    numbers = range(self.queues_of(topic))
                    queues = (self._read(address, topic, queue) for queue in numbers)
                    found = await asyncio.gather(*queues)
                    return [one for queue in found for one in queue]
            except RmqhaError as error:
                self.last_refusal = str(error)
            if self.clock.now_ms() >= deadline_ms:
                raise NotYet(f"{topic} could not be read: {self.last_refusal}")
            await asyncio.sleep(RETRY_S)

    async def _read(self, address: str, topic: str, queue: int) -> list[Stored]:
        found: list[Stored] = []
        offset = 0
        while True:
            part, following = await self.pull(address, topic, queue, offset)
            found += part
            if following == offset or (not part and following < offset):
                return found
            offset = following

    async def pull(
        self, address: str, topic: str, queue: int, offset: int, count: int = PULL_MESSAGES_MAX
    ) -> tuple[list[Stored], int]:
        """One pull that does not wait; the messages, and where to go on.

        Raises:
            RmqhaError: no answer, or a refusal.
        """
        key = QueueKey(topic, self._broker_name, queue)
        request = pull_request(GROUP, key, offset, count)
        answer = await self._remoting.invoke(address, request, SEND_TIMEOUT_MS)
        if not is_pulled(answer):
            raise RmqhaError(f"{address} answered a pull with {answer.code}: {answer.remark}")
        pulled = Pulled.of(answer, offset)
        return parse_messages(pulled.body), pulled.next_offset

    async def first_offset(self, address: str, topic: str, queue: int) -> int:
        """The oldest offset that a queue has.

        Raises:
            RmqhaError: no answer, or a refusal.
        """
        fields = {"topic": topic, "queueId": str(queue), "brokerName": self._broker_name}
        answer = await self.ask(address, RequestCode.GET_MIN_OFFSET, fields)
        if answer.code != ResponseCode.SUCCESS:
            raise RmqhaError(f"{address} does not tell where a queue begins: {answer.remark}")
        return int((answer.ext_fields or {})["offset"])


def missing(acked: Iterable[Acked], found: Iterable[Stored]) -> list[Acked]:
    """Acknowledged messages that are not where the acknowledgement said."""
    there = {(one.topic, one.queue_id, one.queue_offset): one.body for one in found}
    return [
        one for one in acked if there.get((one.topic, one.queue_id, one.queue_offset)) != one.body
    ]
