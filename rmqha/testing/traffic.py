"""Sending and reading with a memory, in the cluster's event loop; whose cluster it is, is elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable

from rmqha.testing.client import Acked, ClusterClient, missing
from rmqha.testing.real.wire import Stored
from rmqha.testing.workload import Workload

TIMEOUT_S = 30.0
TOPIC = "TestTopic"
READ_AGAIN_S = 0.02
SETTLE_S = 2.0
LOST_SHOWN = 3


Body = bytes | bytearray | memoryview


def _body(given: object) -> bytes:
    """A body as it is now: what it was given as may change."""
    if not isinstance(given, Body):
        raise TypeError(f"a body is bytes, not {given!r}; a text is text.encode()")
    return bytes(given)


def raise_first(ends: Iterable[object]) -> None:
    """Raise the first error among what ``gather`` returned."""
    for error in ends:
        if isinstance(error, BaseException):
            raise error


class AioMessages:
    """What a test sends and reads.

    Args:
        client: of the cluster.
        topic: where no other is named.
    """

    def __init__(self, client: ClusterClient, topic: str = TOPIC) -> None:
        self.client = client
        self.topic = topic
        self._workloads: list[Workload] = []

    async def end_workloads(self, kept: Collection[Workload] = ()) -> None:
        """End what still sends and reads; what broke one of them is raised when all have ended.

        Args:
            kept: goes on.
        """
        ending = [one for one in self._workloads if one not in kept]
        self._workloads = [one for one in self._workloads if one in kept]
        ends = (one.stop(drain_s=0) for one in ending)
        raise_first(await asyncio.gather(*ends, return_exceptions=True))

    def workloads(self) -> tuple[Workload, ...]:
        """What was begun and not ended with the cluster, or with a test."""
        return tuple(self._workloads)

    async def close_client(self) -> None:
        """End what still sends, and close the client's connections."""
        try:
            await self.end_workloads()
        finally:
            await self.client.close()

    def named(self, topic: str | None) -> str:
        """The topic, or the one that is meant where none is named."""
        return self.topic if topic is None else topic

    async def produce(
        self,
        messages: int | Body | Iterable[Body] = 1,
        topic: str | None = None,
        in_flight: int = 1,
        timeout_s: float = TIMEOUT_S,
    ) -> list[Acked]:
        """Send until acknowledged.

        Raises:
            TypeError: a body is no bytes.
            ValueError: a number below 0 of messages, or nobody in flight.
            RefusedForGood: no master would ever take one.
            NotYet: some were not acknowledged in time.
        """
        topic = self.named(topic)
        if in_flight < 1 or (isinstance(messages, int) and messages < 0):
            raise ValueError(f"messages={messages!r}, in_flight={in_flight}: too few")
        if isinstance(messages, Body | str | bool):  # a text is refused, whole; True is no number
            bodies = [_body(messages)]
        elif isinstance(messages, int):
            first = len(self.client.acked)
            bodies = [f"{topic} {first + number}".encode() for number in range(messages)]
        else:
            bodies = [_body(one) for one in messages]
        return await self.client.produce(bodies, topic, timeout_s, in_flight)

    async def workload(
        self, topic: str | None = None, pause_ms: float = 1.0, queues_read_ms: float = 5.0
    ) -> Workload:
        """Begin to send and to read without an end."""
        workload = Workload(self.client, self.named(topic), pause_ms, queues_read_ms)
        self._workloads.append(workload)
        workload.start()
        return workload

    async def consume(
        self, topic: str | None = None, settle_s: float = SETTLE_S, timeout_s: float = TIMEOUT_S
    ) -> list[Stored]:
        """Read a whole topic."""
        topic, acked = self.named(topic), self.acked_in(topic)
        deadline_ms = self.client.clock.now_ms() + settle_s * 1000
        while True:
            found = await self.client.consume(topic, timeout_s)
            if not missing(acked, found) or self.client.clock.now_ms() >= deadline_ms:
                self._note_reading(topic, found)
                return found
            await asyncio.sleep(READ_AGAIN_S)

    def _note_reading(self, topic: str, found: list[Stored]) -> None:
        """A consumer that began at the beginning and has come to the end."""
        history = self.client.history
        if history is None:
            return
        reader, now_ms = history.next_reader(), self.client.clock.wall_ms()
        history.consumed(reader, found, now_ms)
        if not any(one.is_sending for one in self._workloads):
            history.ended(reader, topic, self.client.ends_of(topic), now_ms)

    def acked_in(self, topic: str | None) -> list[Acked]:
        """What was acknowledged in a topic so far."""
        return [one for one in self.client.acked if one.topic == self.named(topic)]

    async def missing(self, topic: str | None = None, timeout_s: float = 10.0) -> list[Acked]:
        """Read until nothing is missing, or the time is up."""
        acked = self.acked_in(topic)
        return missing(acked, await self.consume(topic, timeout_s, timeout_s))

    async def assert_nothing_lost(self, topic: str | None = None, timeout_s: float = 10.0) -> None:
        """Fail when an acknowledged message cannot be read back."""
        acked = self.acked_in(topic)
        assert acked, f"nothing was ever acknowledged in {self.named(topic)}"
        lost = await self.missing(topic, timeout_s)
        shown = "".join(f"\n  {one!r}" for one in lost[:LOST_SHOWN])
        assert not lost, f"{len(lost)} of {len(acked)} acknowledged messages lost:{shown}"
