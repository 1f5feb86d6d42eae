"""Load with a memory: every acknowledged message is recorded, and later looked for.

The producer asks the name server for the master, sends one message at a time and after any failure
asks again. ``assert_nothing_lost`` then reads the topic back from the master by pulling, and from
the replicas by reading their commit-log files, and compares.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Self

from msgspec import Struct

from rmqha.testing.real import wire
from rmqha.testing.real.cluster import Cluster
from rmqha.testing.real.java import JavaBroker
from rmqha.testing.real.processes import wait_until

QUEUES = 4
SEND_TIMEOUT_S = 1.0
ROUTE_TIMEOUT_S = 0.5
RETRY_INTERVAL_S = 0.02
PAYLOAD = b"x" * 200
WRITES_BACK_TIMEOUT_S = 60.0
ARRIVAL_TIMEOUT_S = 15.0


class Acked(Struct, frozen=True):
    """One acknowledged message; times are ``time.monotonic`` seconds.

    ``physical_offset`` is the place in the broker's log that the answer's message id names; -1 where
    nobody asked for it.
    """

    body: bytes
    queue_id: int
    queue_offset: int
    sent_at: float
    acked_at: float
    broker: str
    physical_offset: int = -1


class Producer:
    """A thread that keeps writing to one topic of a broker set."""

    def __init__(
        self,
        name_server: str,
        topic: str,
        broker_name: str = "broker-a",
        *,
        pause_s: float = 0.001,
        send_timeout_s: float = SEND_TIMEOUT_S,
    ) -> None:
        self.topic = topic
        self.acked: list[Acked] = []
        self.failures = 0
        self.reasons: Counter[str] = Counter()
        self.unclear = 0
        self._broker_name = broker_name
        self._pause_s = pause_s
        self._send_timeout_s = send_timeout_s
        self._name_server = wire.Connection(name_server, ROUTE_TIMEOUT_S)
        self._broker: wire.Connection | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"producer-{topic}", daemon=True)
        self._error: BaseException | None = None

    def start(self) -> Self:
        """Start writing in a thread."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop writing and close the connections; idempotent."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=SEND_TIMEOUT_S * 5)
        self._forget_broker()
        self._name_server.close()
        if self._error is not None:
            raise self._error

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def wait_for_acks(self, more: int, timeout_s: float = WRITES_BACK_TIMEOUT_S) -> None:
        """Wait until ``more`` further messages are acknowledged."""
        goal = len(self.acked) + more
        wait_until(lambda: len(self.acked) >= goal, timeout_s, f"{more} more acknowledged messages")

    def wait_for_write_after(
        self, moment: float, timeout_s: float = WRITES_BACK_TIMEOUT_S, *, not_by: str = ""
    ) -> float:
        """Wait for the first message sent after ``moment`` that was acknowledged.

        Returns:
            Seconds from ``moment`` to its acknowledgement.
        """

        def found() -> Acked | None:
            recent = reversed(self.acked[-2000:])
            after = [a for a in recent if a.sent_at > moment and a.broker != not_by]
            return after[-1] if after else None

        first = wait_until(found, timeout_s, "writes to be back", interval_s=0.005)
        return first.acked_at - moment

    def longest_gap_s(self, since: float = 0.0) -> float:
        """The longest time without an acknowledgement since a moment."""
        times = [a.acked_at for a in self.acked if a.acked_at >= since]
        gaps = (later - earlier for earlier, later in itertools.pairwise(times))
        return max(gaps, default=0.0)

    def _run(self) -> None:
        try:
            self._loop()
        except BaseException as error:  # noqa: BLE001 - handed to the test's thread by stop()
            self._error = error

    def _loop(self) -> None:
        number = 0
        while not self._stopping.is_set():
            body = f"{self.topic}-{number:08d}-".encode() + PAYLOAD
            number += 1
            try:
                self._send(number, body)
            except (OSError, ValueError) as error:
                self.failures += 1
                self.reasons[str(error)] += 1
                self._forget_broker()
                self._stopping.wait(RETRY_INTERVAL_S)
            if self._pause_s:
                self._stopping.wait(self._pause_s)

    def _send(self, number: int, body: bytes) -> None:
        broker = self._connected_broker()
        queue = number % QUEUES
        sent_at = time.monotonic()
        answer = wire.send_message(
            broker,
            self.topic,
            queue,
            body,
            keys=f"{self.topic}{number}",
            default_queues=QUEUES,
            timeout_s=self._send_timeout_s,
        )
        if answer.code == wire.SUCCESS:
            offset = int(answer.ext["queueOffset"])
            physical = physical_offset(answer.ext["msgId"])
            moment = time.monotonic()
            acked = Acked(body, queue, offset, sent_at, moment, broker.address, physical)
            self.acked.append(acked)
            return
        # Codes 10 to 12 mean stored, but not as safely as asked: such a message may vanish.
        if answer.code in (10, 11, 12):
            self.unclear += 1
        raise ConnectionError(f"{broker.address} answered {answer.code}: {answer.remark}")

    def _connected_broker(self) -> wire.Connection:
        if self._broker is None:
            routed = wire.broker_addresses(self._name_server, self._broker_name, self._broker_name)
            if 0 not in routed:
                raise ConnectionError("the route names no master")
            self._broker = wire.Connection(routed[0], SEND_TIMEOUT_S)
        return self._broker

    def _forget_broker(self) -> None:
        if self._broker is not None:
            self._broker.close()
            self._broker = None


def physical_offset(message_id: str) -> int:
    """Where an offset message id says that its message lies: behind the broker's host, in hex."""
    return int(message_id[-16:], 16)


def read_back(
    address: str, topic: str, begins: Mapping[int, int] | None = None
) -> dict[tuple[int, int], bytes]:
    """Pull a topic from one broker: (queue, offset) to body.

    Args:
        address: the broker's.
        topic: its name.
        begins: the queues that are read and from which offset; None for all of the topic.
    """
    found: dict[tuple[int, int], bytes] = {}
    with wire.Connection(address, 5.0) as broker:
        for queue, offset in (
            dict.fromkeys(range(QUEUES), 0) if begins is None else begins
        ).items():
            for message in wire.pull_queue(broker, topic, queue, offset):
                found[(message.queue_id, message.queue_offset)] = message.body
    return found


def read_commit_log(
    broker: JavaBroker, topic: str, begins: Mapping[int, int] | None = None
) -> dict[tuple[int, int], bytes]:
    """The same from the commit-log files on disk, whatever state the broker is in.

    ``begins`` is not looked at: files are read as a whole.
    """
    return {(one.queue_id, one.queue_offset): one.body for one in logged(broker, topic)}


def logged(broker: JavaBroker, topic: str) -> Iterator[wire.Stored]:
    """Every message of a topic in the commit-log files, as they follow each other."""
    for path in sorted((broker.store / "commitlog").glob("[0-9]*")):
        for message in wire.parse_messages(path.read_bytes()):
            if message.topic == topic:
                yield message


def missing(acked: Iterable[Acked], found: dict[tuple[int, int], bytes]) -> list[Acked]:
    """The acknowledged messages that are not where the acknowledgement said."""
    return [a for a in acked if found.get((a.queue_id, a.queue_offset)) != a.body]


def assert_nothing_lost(
    cluster: Cluster, producer: Producer, *, replicas: Iterable[JavaBroker] = ()
) -> None:
    """Stop the producer; every acknowledged message is on the master and on ``replicas``.

    Raises:
        AssertionError: names the first messages that are missing and how many there are.
    """
    producer.stop()
    acked = list(producer.acked)
    assert acked, "nothing was ever acknowledged"
    master = cluster.master()
    # The consume queues trail the commit log by a moment; and a replica that a busy machine kept
    # out of the SyncStateSet for a while is still catching up.
    lost = missing_at_last(acked, partial(read_back, master.address, producer.topic))
    assert not lost, f"{len(lost)} of {len(acked)} acked missing on {master.child.name}: {lost[:3]}"
    for replica in replicas:
        lost = missing_at_last(acked, partial(read_commit_log, replica, producer.topic))
        assert not lost, f"{len(lost)} of {len(acked)} missing on {replica.child.name}: {lost[:3]}"


def missing_at_last(
    acked: list[Acked], read: Callable[[Mapping[int, int]], dict[tuple[int, int], bytes]]
) -> list[Acked]:
    """What is missing when all was read once, and then what was missing for ``ARRIVAL_TIMEOUT_S``.

    A pull that finds nothing ends the reading of its queue, though a broker may answer so for a
    moment in the middle of one; and reading millions takes longer than the index trails the log.

    Args:
        acked: what is looked for.
        read: reads queues from an offset each on.
    """
    lost = acked

    def all_there() -> bool:
        nonlocal lost
        # A master of a second's age refuses: "system busy, start flow control for a while".
        with contextlib.suppress(OSError, wire.Refused):
            lost = missing(lost, read(_begins(lost)))
        return not lost

    all_there()
    with contextlib.suppress(AssertionError):
        wait_until(all_there, ARRIVAL_TIMEOUT_S, "every acknowledged message", interval_s=0.2)
    return lost


def _begins(lost: Iterable[Acked]) -> dict[int, int]:
    """The first missing offset of each queue that misses one."""
    first: dict[int, int] = {}
    for one in lost:
        first[one.queue_id] = min(one.queue_offset, first.get(one.queue_id, one.queue_offset))
    return first
