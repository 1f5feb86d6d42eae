"""A producer and a consumer that run while a cluster is broken, and a ledger of what became of it.

The producer sends numbered messages one after another, each until it is acknowledged. The consumer
reads every queue from where it stands. The ledger knows at any time what is lost: acknowledged, and
yet not there when the consumer passes its place.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from rmqha.base.errors import RmqhaError
from rmqha.testing.client import Acked, ClusterClient, NotYet

CONSUMER = "workload consumer"
PAYLOAD = b"x" * 200
RETRY_S = 0.005
ACKS_KEPT = 20_000
"""The newest acknowledged sends, for questions about times."""
NUMBERS_AHEAD_MAX = 100_000
"""Numbers that were read before one below them; more mean that reading has gone wrong."""


def body_of(number: int) -> bytes:
    """What the message of a number holds."""
    return b"%d:" % number + PAYLOAD


def number_of(body: bytes) -> int | None:
    """Which message this is; None where that cannot be read."""
    digits = body.partition(b":")[0]
    return int(digits) if digits.isdigit() else None


class Ledger:
    """What was sent, acknowledged and read. Numbers begin with 0 and have no gaps.

    Attributes:
        acknowledged: messages that a master took.
        consumed: different messages that were read.
        duplicates: messages that were read again: sent twice, for the first answer never came.
        refused: sends that were not acknowledged.
        out_of_order: messages that were read, for the first time, after a later one of their queue.
        lost: numbers of messages that are acknowledged and not where they should be.
    """

    def __init__(self) -> None:
        self.acknowledged = self.consumed = self.duplicates = self.refused = 0
        self.out_of_order = 0
        self.lost: list[int] = []
        self._seen_below = 0
        self._seen: set[int] = set()
        self._pending: list[dict[int, int]] = []
        self._positions: list[int] = []
        self._newest: list[int] = []

    def __repr__(self) -> str:
        return (
            f"<{self.acknowledged} acknowledged, {self.consumed} read, {self.duplicates} twice,"
            f" {self.refused} refused, {self.out_of_order} out of order, {len(self.lost)} lost>"
        )

    @property
    def ends(self) -> tuple[int, ...]:
        """How far each queue was read."""
        return tuple(self._positions)

    @property
    def pending(self) -> int:
        """Acknowledged and not read yet."""
        return sum(map(len, self._pending))

    def position(self, queue: int) -> int:
        """How far a queue was read; one that is new begins at 0."""
        while len(self._positions) <= queue:
            self._pending.append({})
            self._newest.append(-1)
            self._positions.append(0)
        return self._positions[queue]

    def acked(self, number: int, queue: int, offset: int) -> None:
        """A message is safe, the master says."""
        self.acknowledged += 1
        if self._was_seen(number):
            return
        if offset < self.position(queue):
            self.lost.append(number)
        else:
            self._pending[queue][offset] = number

    def read(self, number: int, queue: int, offset: int) -> None:
        """A message was read.

        Raises:
            OverflowError: too many numbers are missing below it.
        """
        self.position(queue)
        if self._was_seen(number):
            self.duplicates += 1
        else:
            self.consumed += 1
            self._see(number)
            # The next message of a queue is sent when the one before it is acknowledged.
            self.out_of_order += number < self._newest[queue]
            self._newest[queue] = max(self._newest[queue], number)
        if self._pending[queue].get(offset) == number:
            del self._pending[queue][offset]

    def passed(self, queue: int, position: int) -> None:
        """The consumer has read a queue up to here: what was to be there and was not is lost."""
        self._positions[queue] = max(self.position(queue), position)
        pending = self._pending[queue]
        for offset in [one for one in pending if one < position]:
            number = pending.pop(offset)
            if not self._was_seen(number):
                self.lost.append(number)

    def give_up(self) -> None:
        """What is still pending will not come."""
        for pending in self._pending:
            self.lost += [number for number in pending.values() if not self._was_seen(number)]
            pending.clear()

    def _was_seen(self, number: int) -> bool:
        return number < self._seen_below or number in self._seen

    def _see(self, number: int) -> None:
        if len(self._seen) >= NUMBERS_AHEAD_MAX:
            raise OverflowError(f"message {self._seen_below} is missing, {number} is here")
        self._seen.add(number)
        while self._seen_below in self._seen:
            self._seen.discard(self._seen_below)
            self._seen_below += 1


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
        await _cancelled(self._sending)
        self._sending = None

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
        position = self.ledger.position(queue)
        messages, following = await self._client.pull(address, self.topic, queue, position)
        if self._client.history is not None:
            wall_ms = self._client.clock.wall_ms()
            self._client.history.consumed(CONSUMER, messages, wall_ms)
        for message in messages:
            number = int(message.body.partition(b":")[0])
            self.ledger.read(number, queue, message.queue_offset)
        if following > position:
            self.ledger.passed(queue, following)
        return len(messages)


async def stop_all(loads: Sequence[Workload], drain_s: float) -> list[str]:
    """Stop several at the same time, so that all of them together wait for ``drain_s`` at most.

    Returns:
        What broke any of them, with its topic.
    """
    ends = await asyncio.gather(*(load.stop(drain_s) for load in loads), return_exceptions=True)
    broken = []
    for load, error in zip(loads, ends, strict=True):
        if isinstance(error, RmqhaError | OverflowError):
            broken.append(f"{load.topic}: the workload broke: {error}")
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
