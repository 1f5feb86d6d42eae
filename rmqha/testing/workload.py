"""A producer and a consumer that run while a cluster is broken, and a ledger of what became of it.

The producer sends numbered messages one after another, each until it is acknowledged. The consumer
reads every queue from where it stands. The ledger knows at any time what is lost: acknowledged, and
yet not there when the consumer passes its place.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Sequence

from rmqha.base.errors import RmqhaError
from rmqha.testing.client import PULL_MESSAGES_MAX, Acked, ClusterClient, NotYet
from rmqha.testing.ledger import Ledger as Ledger  # who starts a workload takes it from here
from rmqha.testing.ledger import body_of, number_of

CONSUMER = "workload consumer"
RETRY_S = 0.005
ACKS_KEPT = 20_000
"""The newest acknowledged sends, for questions about times."""


class Workload:
    """The producer, the consumer and their ledger, in the cluster's event loop.

    Args:
        client: of the cluster.
        topic: of nobody else.
        pause_ms: of the producer, between two messages.
        read_ms: of the consumer, when there was nothing to read.
        batch: so many messages go in one request, which are acknowledged together.
    """

    def __init__(
        self, client: ClusterClient, topic: str, pause_ms: float, read_ms: float, batch: int = 1
    ) -> None:
        self.ledger = Ledger()
        self.topic = topic
        self._client = client
        self._pause_s = pause_ms / 1000
        self._read_s = read_ms / 1000
        self._batch = batch
        self._acks: deque[Acked] = deque(maxlen=ACKS_KEPT)
        self._sending: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._is_ending = False
        self._singly: dict[int, int] = {}

    def start(self) -> None:
        """Start the writers' tasks."""
        loop = asyncio.get_running_loop()
        self._sending = loop.create_task(self._send(), name="workload producer")
        self._reading = loop.create_task(self._read(), name="workload consumer")

    def now_ms(self) -> int:
        """The clock of all times."""
        return self._client.clock.now_ms()

    def first_ack_after(self, moment_ms: int, not_by: str) -> Acked | None:
        """See ``RunningWorkload``; called from other threads."""
        recent = list(self._acks)
        return next((a for a in recent if a.sent_ms >= moment_ms and a.address != not_by), None)

    def acks_since(self, moment_ms: int) -> list[Acked]:
        """Each send that was acknowledged from then on, of the newest ones that are kept."""
        return [one for one in self._acks if one.acked_ms >= moment_ms]

    async def wait_for_acks(self, more: int, timeout_s: float) -> None:
        """See ``RunningWorkload`` for what it does."""
        goal = self.ledger.acknowledged + more

        async def there() -> bool:
            return self.ledger.acknowledged >= goal

        await self._client.until(there, f"{more} more acknowledged messages", timeout_s)

    async def stop(self, drain_s: float) -> None:
        """Stop sending, read the rest, stop reading; what broke either of them is raised here."""
        self._is_ending = True
        if self._sending is not None and drain_s > 0:
            # The message that is on its way: it may be stored already, and wants its answer.
            await asyncio.wait([self._sending], timeout=drain_s)
        try:
            await _cancelled(self._sending)
        finally:
            self._sending = None
            await self._read_rest(drain_s)

    async def _read_rest(self, drain_s: float) -> None:
        async def drained() -> bool:
            return self.ledger.pending == 0 or self._reading is None or self._reading.done()

        is_read = False
        try:
            if drain_s > 0:
                await self._client.until(drained, "end of the topic", drain_s)
                is_read = self.ledger.pending == 0 and self._reading is not None
        except NotYet:
            self.ledger.give_up()
        finally:
            await _cancelled(self._reading)
            self._reading = None
        history = self._client.history
        if history is not None and is_read:
            ends = dict(enumerate(self.ledger.ends))
            history.ended(CONSUMER, self.topic, ends, self._client.clock.wall_ms())

    @property
    def is_sending(self) -> bool:
        """Whether more messages may come."""
        return self._sending is not None

    async def _send(self) -> None:
        number = 0
        while not self._is_ending:
            bodies = [body_of(one) for one in range(number, number + self._batch)]
            attempts = 1
            while not (acked := await self._try(number, bodies, attempts)):
                attempts += 1
                self.ledger.refused += 1
                await asyncio.sleep(RETRY_S)
            self._acks.append(acked[0])
            for one in acked:
                self.ledger.acked(number, one.queue_id, one.queue_offset)
                number += 1
            await asyncio.sleep(self._pause_s)

    async def _try(self, number: int, bodies: Sequence[bytes], attempt: int) -> list[Acked]:
        return await self._client.send_together(number, bodies, self.topic, attempt)

    async def _read(self) -> None:
        while True:
            found = 0
            try:
                address = await self._client.master()
                if address is not None:
                    queues = await self._client.create_topic(address, self.topic)
                    for queue in range(queues.read):
                        found += await self._read_queue(address, queue)
            except RmqhaError:
                found = 0
            if not found:
                await asyncio.sleep(self._read_s)

    async def _read_queue(self, address: str, queue: int) -> int:
        """Read on in a queue; what cannot be taken apart is asked for again, message by message."""
        position = self.ledger.position(queue)
        count = 1 if self._singly.get(queue) else PULL_MESSAGES_MAX
        try:
            messages, following = await self._client.pull(
                address, self.topic, queue, position, count
            )
        except (ValueError, struct.error):
            messages, following = [], position + count
        if count > 1 and len(messages) < following - position:
            self._singly[queue] = PULL_MESSAGES_MAX
            return 1
        if count == 1:
            self._singly[queue] -= 1
            self.ledger.damaged += not messages and following == position + 1
        if self._client.history is not None:
            wall_ms = self._client.clock.wall_ms()
            self._client.history.consumed(CONSUMER, messages, wall_ms)
        for message in messages:
            number = number_of(message.body)
            if number is None or message.body != body_of(number):
                self.ledger.damaged += 1
            else:
                self.ledger.read(number, queue, message.queue_offset)
        if following > position:
            self.ledger.passed(queue, following)
        return max(len(messages), following - position)


async def stop_all(loads: Sequence[Workload], drain_s: float) -> list[str]:
    """Stop several at the same time, so that all of them together wait for ``drain_s`` at most.

    Returns:
        What broke any of them, with its topic; whoever judges goes on, and has more to tell.
    """
    ends = await asyncio.gather(*(load.stop(drain_s) for load in loads), return_exceptions=True)
    broken = []
    for load, error in zip(loads, ends, strict=True):
        if isinstance(error, Exception):
            words = isinstance(error, RmqhaError | OverflowError | AssertionError)
            broken.append(f"{load.topic}: the workload broke: {error if words else repr(error)}")
        elif error is not None:
            raise error
    return broken


async def _cancelled(task: asyncio.Task[None] | None) -> None:
    """Cancel a task and wait for it; its own error is raised."""
    if task is None:
        return
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        if not task.cancelled():
            raise
