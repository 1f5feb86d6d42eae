"""Sending and reading with a memory, in the cluster's event loop; whose cluster it is, is elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from rmqha.testing.client import Acked, ClusterClient, missing
from rmqha.testing.real.wire import Stored
from rmqha.testing.workload import Workload

TIMEOUT_S = 30.0
TOPIC = "TestTopic"
READ_AGAIN_S = 0.02
SETTLE_S = 2.0


def _refuse_other_than_bytes(body: object) -> None:
    if not isinstance(body, bytes | bytearray | memoryview):
        raise TypeError(f"a body is bytes, not {body!r}; a text is text.encode()")


class AioMessages:
    """What a test sends and reads.

    Args:
        client: of the cluster.
    """

    def __init__(self, client: ClusterClient) -> None:
        self.client = client
        self._workloads: list[Workload] = []

    async def close_client(self) -> None:
        """End what still sends, and close the client's connections."""
        for workload in self._workloads:
            await workload.stop(drain_s=0)
        await self.client.close()

    async def produce(
        self,
        messages: int | bytes | Iterable[bytes] = 1,
        topic: str = TOPIC,
        in_flight: int = 1,
        timeout_s: float = TIMEOUT_S,
    ) -> list[Acked]:
        """Send until acknowledged.

        Raises:
            TypeError: a body is no bytes.
            RefusedForGood: no master would ever take one.
            NotYet: some were not acknowledged in time.
        """
        if isinstance(messages, int):
            first = len(self.client.acked)
            bodies = [f"{topic} {first + number}".encode() for number in range(messages)]
        elif isinstance(messages, bytes | str):  # a text is refused below, whole
            bodies = [messages]
        else:
            bodies = list(messages)
        for body in bodies:
            _refuse_other_than_bytes(body)
        return await self.client.produce(bodies, topic, timeout_s, in_flight)

    async def workload(
        self, topic: str = TOPIC, pause_ms: float = 1.0, queues_read_ms: float = 5.0
    ) -> Workload:
        """Begin to send and to read without an end."""
        workload = Workload(self.client, topic, pause_ms, queues_read_ms)
        self._workloads.append(workload)
        workload.start()
        return workload

    async def consume(
        self, topic: str = TOPIC, settle_s: float = SETTLE_S, timeout_s: float = TIMEOUT_S
    ) -> list[Stored]:
        """Read a whole topic."""
        acked = [one for one in self.client.acked if one.topic == topic]
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
        ends = dict.fromkeys(range(self.client.queues_of(topic)), 0)
        ends |= {one.queue_id: one.queue_offset + 1 for one in found}
        if not any(one.is_sending for one in self._workloads):
            history.ended(reader, topic, ends, now_ms)

    async def missing(self, topic: str = TOPIC, timeout_s: float = 10.0) -> list[Acked]:
        """Read until nothing is missing, or the time is up."""
        acked = [one for one in self.client.acked if one.topic == topic]
        return missing(acked, await self.consume(topic, timeout_s, timeout_s))
