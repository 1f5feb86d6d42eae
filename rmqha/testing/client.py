"""The cluster's own client: sending with a memory, and reading everything back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from msgspec import Struct

from rmqha.base.errors import RmqhaError
from rmqha.client.pull import Pulled, is_pulled, pull_request
from rmqha.client.routes import QueueKey
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.runtime.ports import Clock, Network
from rmqha.testing.asker import RETRY_S, Asker
from rmqha.testing.asker import NotYet as NotYet  # who uses the client takes these from here
from rmqha.testing.asker import RefusedForGood as RefusedForGood
from rmqha.testing.asker import SetInfo as SetInfo
from rmqha.testing.histories import ClusterHistory
from rmqha.testing.real.wire import Stored, parse_messages, shown
from rmqha.testing.sends import GROUP, QUEUES, send_parts
from rmqha.testing.settings import Plan
from rmqha.testing.topics import Queues, queues_made, topic_fields

SEND_TIMEOUT_MS = 1_500
PULL_MESSAGES_MAX = 32


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


class ClusterClient(Asker):
    """Speaks the remoting protocol as any client.

    Args:
        plan: where everybody is.
        network, clock: the ports.
        history: takes everything that is sent and read; None keeps none.
    """

    def __init__(
        self, plan: Plan, network: Network, clock: Clock, history: ClusterHistory | None = None
    ) -> None:
        super().__init__(plan, network, clock)
        self.history = history
        self._master: str | None = None
        self._topics: dict[str, set[str]] = {}
        self._queues: dict[str, Queues] = {}
        self._ends: dict[str, dict[int, int]] = {}
        self._group = GROUP
        self._sent = 0
        self.acked: list[Acked] = []
        self.last_refusal = "nothing was tried"

    async def close(self) -> None:
        """Close all connections."""
        await self._remoting.close()
        if self.history is not None:
            self.history.close()
            self.history = None

    def ends_of(self, topic: str) -> dict[int, int]:
        """By queue, from which offset on there was nothing when the topic was read last."""
        return self._ends.get(topic, {})

    # -- sending -----------------------------------------------------------------------------

    async def produce(
        self, bodies: Sequence[bytes], topic: str, timeout_s: float, in_flight: int
    ) -> list[Acked]:
        """Send each body until it is acknowledged; at most ``in_flight`` wait at a time.

        Raises:
            NotYet: one was not acknowledged within ``timeout_s``; nothing is sent any more.
        """
        deadline_ms = self.clock.now_ms() + timeout_s * 1000
        results: list[Acked | None] = [None] * len(bodies)
        waiting = iter(range(len(bodies)))

        async def work() -> None:
            for index in waiting:
                results[index] = await self.send(bodies[index], topic, deadline_ms)

        workers = max(1, min(in_flight, len(bodies)))
        tasks = [asyncio.create_task(work(), name=f"send to {topic}") for _ in range(workers)]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
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
            queues = await self.create_topic(address, topic)
            if queues.write < 1:
                raise RefusedForGood(
                    f"topic {topic!r} has no queue to write to at {self._broker_name}"
                )
            place = (self._broker_name, number // len(bodies) % queues.write)
            wall_ms = self.clock.wall_ms()
            code, fields, body = send_parts(topic, number, bodies, wall_ms, place, self._group)
            answer = await self.ask(address, code, fields, body, SEND_TIMEOUT_MS)
        except RmqhaError as error:
            self._refused(topic, str(error))
            return []
        got = answer.ext_fields or {}
        if answer.code != ResponseCode.SUCCESS:
            self._refused(topic, f"{address} answered {answer.code}: {answer.remark}")
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

    def _refused(self, topic: str, reason: str) -> None:
        """Who is master, and how many queues the topic has, is asked anew."""
        self.last_refusal = reason
        self._master = None
        for known in self._topics.values():
            known.discard(topic)

    async def create_topic(self, address: str, topic: str, queues: int = QUEUES) -> Queues:
        """Create a topic at a master if nobody has; one that is there stays as it is.

        Returns:
            The queues that it has.

        Raises:
            RmqhaError: it did not answer.
            RefusedForGood: no master makes such a topic.
        """
        known = self._topics.setdefault(address, set())
        if topic in known:
            return self._queues[topic]
        found = await self.find_topic(address, topic)
        if found is None:
            found = Queues(queues, queues)
            if not await self.make_topic(address, topic, found):
                return found
        self._queues[topic] = found
        known.add(topic)
        return found

    async def find_topic(self, address: str, topic: str) -> Queues | None:
        """The queues of a topic, by the word of a master; None when there is no such topic.

        Raises:
            RmqhaError: it did not say.
        """
        answer = await self.ask(address, RequestCode.GET_TOPIC_CONFIG, {"topic": topic})
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        if answer.code != ResponseCode.SUCCESS:
            raise RmqhaError(f"{address} does not tell of {topic}: {answer.code} {answer.remark}")
        return queues_made(answer.body)

    async def make_topic(self, address: str, topic: str, queues: Queues) -> bool:
        """Have a master make a topic; whether it did.

        Raises:
            RmqhaError: it did not answer.
            RefusedForGood: no master makes such a topic.
        """
        fields = topic_fields(topic, queues)
        answer = await self.ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
        if answer.code == ResponseCode.INVALID_PARAMETER:
            raise RefusedForGood(f"topic {topic!r}: {answer.remark}")
        return answer.code == ResponseCode.SUCCESS

    # -- reading -----------------------------------------------------------------------------

    async def consume(self, topic: str, timeout_s: float) -> list[Stored]:
        """Every message of a topic that a consumer of the master gets, queue by queue.

        A topic that nobody made holds none, and is not made.

        Raises:
            NotYet: there was no master to read from.
        """
        deadline_ms = self.clock.now_ms() + timeout_s * 1000
        while True:
            try:
                address = await self.master()
                if address is not None:
                    return await self._read_all(address, topic)
            except RmqhaError as error:
                self.last_refusal = str(error)
            if self.clock.now_ms() >= deadline_ms:
                raise NotYet(f"{topic} could not be read: {self.last_refusal}")
            await asyncio.sleep(RETRY_S)

    async def _read_all(self, address: str, topic: str) -> list[Stored]:
        # Asked each time: its author may have given it more queues since.
        queues = await self.find_topic(address, topic)
        if queues is None:
            # A topic that went with all that was in it ends at its beginning.
            gone = self._queues.get(topic, Queues(0, 0))
            self._ends[topic] = dict.fromkeys(range(gone.read), 0)
            return []
        self._queues[topic] = queues
        parts = [self._read(address, topic, queue) for queue in range(queues.read)]
        read = await asyncio.gather(*parts)
        self._ends[topic] = {queue: end for queue, (_, end) in enumerate(read)}
        return [one for part, _ in read for one in part]

    async def _read(self, address: str, topic: str, queue: int) -> tuple[list[Stored], int]:
        """The messages of a queue, and where it ends: behind what has expired, if it has no other."""
        found: list[Stored] = []
        offset = 0
        while True:
            part, following = await self.pull(address, topic, queue, offset)
            found += part
            if following == offset or (not part and following < offset):
                return found, following
            offset = following

    async def pull(
        self, address: str, topic: str, queue: int, offset: int, count: int = PULL_MESSAGES_MAX
    ) -> tuple[list[Stored], int]:
        """One pull that does not wait; the messages, and where to go on.

        Raises:
            RmqhaError: no answer, or a refusal.
        """
        key = QueueKey(topic, self._broker_name, queue)
        request = pull_request(self._group, key, offset, count)
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
