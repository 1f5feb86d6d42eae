"""The client history of a test cluster, written while it happens (``verify/client_history.py``).

Every line is in the file, as far as the kernel is concerned, before the next one is made: what a
killed process did is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from rmqha.store import properties as props
from rmqha.testing.real.wire import Stored
from rmqha.testing.settings import BROKER_NAME
from rmqha.verify.client_history import Ack, Consume, End, Fail, HistoryWriter, Send

PRODUCER = "producer"


class ClusterHistory:
    """What a cluster's client does, into a file; an old one is replaced.

    Args:
        path: the file; its directory must be there.
        run: a name for people.

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(self, path: Path, run: str = "") -> None:
        self._file = path.open("wb", buffering=0)
        self._writer = HistoryWriter(self._file.write, run)
        self._readings = 0

    def close(self) -> None:
        """No more records."""
        self._file.close()

    def sending(self, topic: str, number: int, attempt: int, start_ms: int) -> None:
        """An attempt begins."""
        self._writer.add(
            Send, PRODUCER, topic=topic, key=str(number), attempt=attempt, start_ms=start_ms
        )

    def acked(
        self, topic: str, number: int, attempt: int, span_ms: tuple[int, int], at: tuple[int, int]
    ) -> None:
        """It was acknowledged: from when to when, queue and offset."""
        self._writer.add(
            Ack, PRODUCER, topic=topic, key=str(number), attempt=attempt, start_ms=span_ms[0],
            end_ms=span_ms[1], broker=BROKER_NAME, queue=at[0], offset=at[1],
        )  # fmt: skip

    def failed(
        self, topic: str, number: int, attempt: int, span_ms: tuple[int, int], reason: str
    ) -> None:
        """It was not acknowledged."""
        self._writer.add(
            Fail, PRODUCER, topic=topic, key=str(number), attempt=attempt, start_ms=span_ms[0],
            end_ms=span_ms[1], reason=reason,
        )  # fmt: skip

    def consumed(self, client: str, messages: Iterable[Stored], end_ms: int) -> None:
        """A consumer got messages."""
        for one in messages:
            self._writer.add(
                Consume, client, topic=one.topic, key=key_of(one), broker=BROKER_NAME,
                queue=one.queue_id, offset=one.queue_offset, end_ms=end_ms,
            )  # fmt: skip

    def ended(self, client: str, topic: str, ends: Mapping[int, int], end_ms: int) -> None:
        """Nobody sends any more, and a consumer has read each queue up to its end."""
        for queue, offset in sorted(ends.items()):
            self._writer.add(
                End, client, topic=topic, broker=BROKER_NAME, queue=queue, offset=offset,
                end_ms=end_ms,
            )  # fmt: skip

    def next_reader(self) -> str:
        """A name for a consumer that begins anew."""
        self._readings += 1
        return f"reader-{self._readings}"


def key_of(one: Stored) -> str:
    """The key that a message was sent with; of another client's message its place."""
    key = props.decode(one.properties).get("KEYS", "")
    return key or f"at {one.queue_id}:{one.queue_offset}"
