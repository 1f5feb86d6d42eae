"""Where a mastership moves: a set of ours or of Java's brokers, with the clients that send to it.

``PythonStage`` has senders whose route is half a minute old and who never try again: our old master
passes their messages on. Java's old master refuses them, so the clients of ``JavaStage`` ask the name
server after each refusal, as soon as no Java client does.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from rmqha.base.errors import RmqhaError
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.settings import RemotingSettings
from rmqha.runtime.aio.clock import SystemClock
from rmqha.runtime.aio.net import TcpNetwork
from rmqha.testing.client import SetInfo
from rmqha.testing.cluster import RmqCluster
from rmqha.testing.loop_thread import LoopThread
from rmqha.testing.real import java, wire
from rmqha.testing.real.cluster import FAST_BROKER, FAST_CONTROLLER, Cluster
from rmqha.testing.real.controllers import ReplicaInfo
from rmqha.testing.real.producer import (
    Acked,
    Producer,
    logged,
    missing_at_last,
    read_back,
)
from rmqha.testing.settings import BROKER_NAME, CLUSTER_NAME

TOPIC = "Switched"
QUEUES = 4
ROUTE_S = 30.0
BODY = b"x" * 256
FIRST_MESSAGES = 20
SHOWN = 10


class Stage(Protocol):
    """A set of three with its clients."""

    broker_name: str
    cluster_name: str

    @property
    def controller_address(self) -> str:
        """What mqadmin is given."""
        ...

    def wait_in_sync(self) -> SetInfo | ReplicaInfo:
        """Wait until all three are in the SyncStateSet."""
        ...

    def route(self) -> None:
        """Let clients that ask at times ask now, if it is time."""
        ...

    def acked_since(self, moment: float) -> list[float]:
        """When messages were acknowledged, from a moment on, in order; seconds of ``monotonic``."""
        ...

    def failures(self) -> int:
        """How many sends failed so far."""
        ...

    def end(self) -> tuple[int, int]:
        """Stop the clients; how many messages were acknowledged, and how many of those are gone."""
        ...

    def close(self) -> None:
        """End every process."""
        ...


class PythonStage:
    """Our brokers, and clients with a route that is up to half a minute old."""

    broker_name, cluster_name = BROKER_NAME, CLUSTER_NAME

    def __init__(self, folder: Path, count: int) -> None:
        self._cluster = RmqCluster(folder, processes=True)
        self._cluster.start()
        self._cluster.produce(FIRST_MESSAGES, topic=TOPIC)
        self._cluster.wait_in_sync(3)
        self._thread = LoopThread("senders")
        self._acked_s: list[float] = []
        self._failed: dict[str, int] = {}
        self._number = 0
        self._is_over = False
        self._address, self._asked_s = "", 0.0
        self.route()
        self._done = asyncio.run_coroutine_threadsafe(self._run(count), self._thread.loop)

    @property
    def controller_address(self) -> str:
        """Of all three."""
        return self._cluster.controller_addr

    def wait_in_sync(self) -> SetInfo:
        """By the word of our controllers."""
        return self._cluster.wait_in_sync(3)

    def route(self) -> None:
        """Ask who is master, if that is half a minute ago."""
        if not self._address or time.monotonic() - self._asked_s >= ROUTE_S:
            self._address = self._cluster.wait_for_master().address
            self._asked_s = time.monotonic()

    def acked_since(self, moment: float) -> list[float]:
        """Of all senders together."""
        return since(self._acked_s, moment, float)

    def failures(self) -> int:
        """Answers but success, and none at all."""
        return sum(self._failed.values())

    def end(self) -> tuple[int, int]:
        """Take the answers that are still to come, and read the topic back."""
        self._is_over = True
        self._done.result(10)
        self._thread.close()
        print(self._failed)
        stored = self._cluster.consume(TOPIC, settle_s=3.0)
        return len(self._acked_s), max(0, len(self._acked_s) + FIRST_MESSAGES - len(stored))

    def close(self) -> None:
        """End the cluster."""
        self._cluster.close()

    async def _run(self, count: int) -> None:
        client = RemotingClient(TcpNetwork(), SystemClock(), RemotingSettings())
        try:
            await asyncio.gather(*(self._send(client, one) for one in range(count)))
        finally:
            await client.close()

    async def _send(self, client: RemotingClient, one: int) -> None:
        while not self._is_over:
            self._number += 1
            fields = {
                "a": "PG", "b": TOPIC, "c": "TBW102", "d": str(QUEUES), "e": str(one % QUEUES),
                "f": "0", "g": str(time.time_ns() // 1_000_000), "h": "0",
                "i": f"UNIQ_KEY\x01U{self._number:016}\x02WAIT\x01true\x02",
                "j": "0", "k": "false", "m": "false", "n": BROKER_NAME,
            }  # fmt: skip
            command = RemotingCommand(310, ext_fields=fields, body=BODY)
            try:
                answer = await client.invoke(self._address, command, 3_000)
            except RmqhaError as error:
                self._fail(type(error).__name__)
            else:
                if answer.code == 0:
                    self._acked_s.append(time.monotonic())
                else:
                    self._fail(f"{answer.code} {answer.remark}")
            await asyncio.sleep(0.001)

    def _fail(self, reason: str) -> None:
        self._failed[reason] = self._failed.get(reason, 0) + 1


def since(acked: Sequence[Any], moment: float, time_of: Callable[[Any], float]) -> list[float]:
    """The times of the newest acknowledgements, in order, from a moment on.

    From the end backwards: whoever looks at millions of older ones keeps the senders, threads of
    this process, from sending, and measures that.
    """
    found: list[float] = []
    for number in range(len(acked) - 1, -1, -1):
        at = time_of(acked[number])
        if at < moment:
            break
        found.append(at)
    return found[::-1]


def whereabouts(lost: Sequence[Acked], ended_s: float) -> list[str]:
    """Which messages are gone, a line each queue and broker that acknowledged them.

    The oldest of a queue are gone by retention (a full disk), the newest may not have been indexed
    yet, and what a switch lost was acknowledged within moments by one broker.
    """
    by_place: dict[tuple[int, str], list[Acked]] = defaultdict(list)
    for one in lost:
        by_place[one.queue_id, one.broker].append(one)
    return [
        f"queue {queue}, acknowledged by {broker}: {len(some)} gone of offsets"
        f" {min(one.queue_offset for one in some)} to {max(one.queue_offset for one in some)},"
        f" from {min(one.physical_offset for one in some)} in its log on,"
        f" {ended_s - max(one.acked_at for one in some):.1f} to"
        f" {ended_s - min(one.acked_at for one in some):.1f} s before the end"
        for (queue, broker), some in sorted(by_place.items())
    ]


def logged_places(lost: Sequence[Acked], log: Iterable[wire.Stored]) -> list[str]:
    """What a broker's log files have of the missing: nothing, or a message that is not served.

    Two messages may have one queue offset, when a new master counts on from an index that its log
    was ahead of; only one of them can be pulled then. And another may lie where the answer said that
    the missing one lies: then the log was cut there.
    """
    bodies = {one.body: one for one in lost}
    wanted = {(one.queue_id, one.queue_offset) for one in lost}
    seen: dict[tuple[int, int], list[wire.Stored]] = defaultdict(list)
    spots = {one.physical_offset for one in lost}
    around: list[str] = []
    kept, last = 0, -1
    for message in log:
        place = message.queue_id, message.queue_offset
        kept += message.body in bodies
        if place in wanted:
            seen[place].append(message)
        if any(last < spot <= message.physical_offset for spot in spots):
            around.append(f"at {message.physical_offset}: queue {place[0]}, offset {place[1]}")
        last = message.physical_offset
    lines = [f"{kept} of {len(lost)} are in its log files", *around[:SHOWN]]
    for (queue, offset), some in sorted(seen.items())[:SHOWN]:
        what = ", ".join(
            f"{'it' if one.body in bodies else 'another'} at {one.physical_offset}" for one in some
        )
        lines.append(f"queue {queue}, offset {offset}: {what}")
    return lines


class JavaStage:
    """Java's brokers under our controllers, and clients that ask again after each refusal.

    Periods of brokers are those of the tests: with Java's own a slave takes up to 15 seconds to come
    back into the SyncStateSet, which a switch waits for.
    """

    broker_name, cluster_name = "broker-a", java.CLUSTER_NAME

    def __init__(self, folder: Path, count: int) -> None:
        self._cluster = Cluster(
            folder, "rmqha", broker_settings=FAST_BROKER, controller_settings=FAST_CONTROLLER
        )
        try:
            self._cluster.start()
        except BaseException:
            self._cluster.close()
            raise
        address = self._cluster.name_server.address
        self._producers = [Producer(address, f"{TOPIC}{one}").start() for one in range(count)]
        for producer in self._producers:
            producer.wait_for_acks(FIRST_MESSAGES)

    @property
    def controller_address(self) -> str:
        """Of all three."""
        return self._cluster.controllers.address_list

    def wait_in_sync(self) -> ReplicaInfo:
        """By the word of the controllers, and the name server knows the master."""
        return self._cluster.wait_in_sync()

    def route(self) -> None:
        """These clients ask by themselves."""

    def acked_since(self, moment: float) -> list[float]:
        """Of all clients together."""
        return sorted(
            at
            for producer in self._producers
            for at in since(producer.acked, moment, lambda one: one.acked_at)
        )

    def failures(self) -> int:
        """Answers but success, and none at all."""
        return sum(producer.failures for producer in self._producers)

    def end(self) -> tuple[int, int]:
        """Stop the clients, and read their topics back from the master."""
        for producer in self._producers:
            producer.stop()
        address = self._cluster.master().address
        ended_s = time.monotonic()
        print(f"{ended_s:.3f} the end")
        found = 0
        for one in self._producers:
            lost = missing_at_last(list(one.acked), partial(read_back, address, one.topic))
            found += len(lost)
            for line in whereabouts(lost, ended_s):
                print(f"{one.topic}, {line}")
            for broker in self._cluster.brokers if lost else ():
                for line in logged_places(lost, logged(broker, one.topic)):
                    print(f"{one.topic}, {broker.child.name}: {line}")
        return sum(len(one.acked) for one in self._producers), found

    def close(self) -> None:
        """End the cluster."""
        self._cluster.close()


STAGES = {"py": PythonStage, "java": JavaStage}
