"""One Java and two Python replicas, all else ours: ten random kills under live clients.

``RMQHA_INTEROP_SEED`` repeats the choice of victims and moments of an earlier run (what the
processes make of it is theirs); without it every run takes other ones, and prints its seed.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqha.testing.real import wire
from rmqha.testing.real.cluster import FAST_BROKER, JOIN_TIMEOUT_S, Cluster
from rmqha.testing.real.java import JavaBroker
from rmqha.testing.real.name_servers import PythonNameServer
from rmqha.testing.real.processes import allocate_ports, wait_until
from rmqha.testing.real.producer import PAYLOAD, QUEUES, Producer, read_commit_log
from rmqha.testing.real.python import PythonBroker
from tests.interop import required
from tests.interop.client_peer import ClientPeer, Received
from tests.interop.test_python_replica import epochs, max_offset

NAME = "broker-a"
POP_SOURCE = Path(__file__).parent / "java" / "PopPeer.java"
MASTER, SLAVE, LEADER = "master", "slave", "controller leader"
VICTIMS = [MASTER] * 7 + [SLAVE] * 2 + [LEADER]
ACKS_BETWEEN = (20, 150)
PAUSE_S = 0.005
SET_TIMEOUT_S = JOIN_TIMEOUT_S
CONSUME_TIMEOUT_S = 60.0
FILE_SIZE = 1 << 20
"""Several files, so that the padding at their ends is compared as well."""


class Consumer:
    """A Java push consumer that remembers what it was given, and how often."""

    def __init__(self, clients: ClientPeer, cluster: Cluster, topic: str) -> None:
        self._clients = clients
        self._servers = cluster.name_server.address
        self._topic = topic
        self._starts = 0
        self.times: Counter[Received] = Counter()
        self.bodies: set[bytes] = set()
        self._start()

    def _start(self) -> None:
        self._starts += 1
        self._clients.ask(
            f"push C{self._starts} G-{self._topic} {self._servers} {self._topic} "
            "* clustering concurrent first"
        )

    def restart(self) -> None:
        """Shut it down and start another of its group; the master may be away meanwhile."""
        self._clients.ask(f"stop C{self._starts}", SET_TIMEOUT_S)
        self.take()
        self._start()

    def take(self) -> None:
        """Fetch what came since the last call."""
        new = self._clients.messages(f"take C{self._starts}")
        self.times.update(new)
        self.bodies.update(one.body.encode() for one in new)

    def wait_for(self, bodies: set[bytes]) -> None:
        """Wait until it has been given all of these.

        Raises:
            AssertionError: it has not in time; names how many are missing and the first of them.
        """

        def all_given() -> bool:
            self.take()
            return bodies <= self.bodies

        with contextlib.suppress(AssertionError):
            wait_until(all_given, CONSUME_TIMEOUT_S, "the consumer", interval_s=0.1)
        lost = sorted(body.removesuffix(PAYLOAD) for body in bodies - self.bodies)
        assert not lost, f"{len(lost)} of {len(bodies)} acked never came: {lost[:3]}"


@pytest.fixture(scope="module")
def shared_cluster(folder: Path) -> Iterator[Cluster]:
    """A Java 5.3.3 broker and two of ours, on our controllers and our name server."""
    required.require_classpath()
    settings = {**FAST_BROKER, "mappedFileSizeCommitLog": FILE_SIZE, "timerWheelEnable": True}
    with Cluster(folder, "rmqha", brokers=0, broker_settings=settings) as cluster:
        cluster.name_server = PythonNameServer(folder / "namesrv", allocate_ports()[0])  # type: ignore[assignment]  # same interface
        cluster.add_broker()
        cluster.brokers += [PythonBroker.of(cluster, number, **settings) for number in (2, 3)]
        cluster.start()
        yield cluster


def create_everywhere(cluster: Cluster, topic: str) -> None:
    """Create a topic and wait until whoever is master next knows it, and clients find it."""
    with wire.Connection(cluster.master().address) as master:
        wire.create_topic(master, topic, QUEUES)
    for broker in cluster.brokers:
        wait_until(
            lambda b=broker: wire.invoke(b.address, 351, {"topic": topic}).code == wire.SUCCESS,
            SET_TIMEOUT_S, f"{broker.child.name} to know {topic}",
        )  # fmt: skip
    with wire.Connection(cluster.name_server.address) as name_server:
        wait_until(
            lambda: wire.broker_addresses(name_server, topic, NAME), SET_TIMEOUT_S, "its route"
        )


def kill_master(cluster: Cluster, producer: Producer, rng: random.Random) -> str:
    """kill -9 it; half of the time it starts again without waiting for an election."""
    before = cluster.controllers.wait_for_master(NAME)
    master = cluster.broker(before.master_id)
    at_once = rng.random() < 0.5
    master.child.kill()
    if not at_once:
        cluster.controllers.wait_for_master(NAME, other_than=before.master_id)
        producer.wait_for_acks(1)
    master.start()
    return f"{MASTER} {master.child.name}{', restarted at once' if at_once else ''}"


def kill_slave(cluster: Cluster, rng: random.Random) -> str:
    """kill -9 a slave; half of the time it starts again before the set has shrunk."""
    before = cluster.controllers.wait_for_master(NAME)
    slave = rng.choice(cluster.slaves())
    at_once = rng.random() < 0.5
    slave.child.kill()
    if not at_once:
        left = before.sync_state_set - {slave.controller_id}
        cluster.controllers.wait_for_sync_state_set(NAME, left)
    slave.start()
    return f"{SLAVE} {slave.child.name}{', restarted at once' if at_once else ''}"


def kill_leader(cluster: Cluster) -> str:
    """kill -9 the leading controller; it returns after another leads."""
    leader = cluster.controllers.wait_for_leader()
    cluster.controllers.kill(leader)
    cluster.controllers.wait_for_leader(other_than=leader)
    cluster.controllers.start([leader])
    return f"{LEADER} {leader}"


def log_end(broker: JavaBroker) -> int:
    """Where its log ends by its own word; -1 while it does not serve."""
    with contextlib.suppress(OSError, ValueError, AssertionError):
        return max_offset(broker)
    return -1


def wait_caught_up(cluster: Cluster) -> None:
    """Wait until all are in the SyncStateSet and hold what the master holds at this moment.

    The SyncStateSet alone does not tell: who is back before it was missed was never out of it.
    """
    end = wait_until(
        lambda: max(0, log_end(cluster.master())), SET_TIMEOUT_S, "the master to serve"
    )
    for broker in cluster.brokers:
        wait_until(
            lambda b=broker: log_end(b) >= end,
            SET_TIMEOUT_S, f"{broker.child.name} to have the first {end} bytes",
        )  # fmt: skip
    cluster.wait_in_sync(SET_TIMEOUT_S)


def commit_log_files(broker: JavaBroker) -> list[Path]:
    """The files in their order."""
    return sorted((broker.store / "commitlog").glob("[0-9]*"))


def assert_logs_are_equal(cluster: Cluster) -> int:
    """The same files with the same bytes up to the same end, and the same epochs.

    Returns:
        The end, which the confirm offset has reached: all are in sync, nobody writes.
    """
    wait_caught_up(cluster)
    wait_until(lambda: len({log_end(b) for b in cluster.brokers}) == 1, SET_TIMEOUT_S, "equal ends")
    master, *others = cluster.brokers
    end = max_offset(master)
    assert end > FILE_SIZE
    for other in others:
        for mine, theirs in zip(commit_log_files(master), commit_log_files(other), strict=False):
            start = int(mine.name)
            assert mine.name == theirs.name
            length = max(0, end - start)
            assert mine.read_bytes()[:length] == theirs.read_bytes()[:length], (other, start)
        covered = (int(commit_log_files(b)[-1].name) + FILE_SIZE for b in (master, other))
        assert min(covered) >= end
        assert epochs(master) == epochs(other)
    return end


@pytest.mark.timeout(900)
def test_mixed_set_when_ten_are_killed_then_everything_acked_is_consumed_and_logs_are_equal(
    cluster: Cluster, topic: str, folder: Path
) -> None:
    """The master mostly, of either kind; each time all must be in one log again.

    After one of the kills the consumer is restarted as well.
    """
    seed = int(os.environ.get("RMQHA_INTEROP_SEED") or random.randrange(1 << 32))
    print(f"RMQHA_INTEROP_SEED={seed}")
    rng = random.Random(seed)
    victims = rng.sample(VICTIMS, len(VICTIMS))
    create_everywhere(cluster, topic)
    servers = cluster.name_server.address
    with (
        ClientPeer(folder / "clients") as clients,
        Producer(servers, topic, pause_s=PAUSE_S) as producer,
    ):
        consumer = Consumer(clients, cluster, topic)
        restarted = rng.randrange(len(victims))
        for number, victim in enumerate(victims):
            producer.wait_for_acks(rng.randint(*ACKS_BETWEEN))
            moment = time.monotonic()
            if victim == MASTER:
                what = kill_master(cluster, producer, rng)
            else:
                what = kill_slave(cluster, rng) if victim == SLAVE else kill_leader(cluster)
            if number == restarted:
                consumer.restart()
                what += ", the consumer restarted"
            producer.wait_for_write_after(time.monotonic())
            wait_caught_up(cluster)
            in_sync = time.monotonic()
            # A consumer that got stuck must not be saved by the next change of masters.
            consumer.wait_for({one.body for one in list(producer.acked)})
            print(
                f"{what}: {producer.longest_gap_s(moment - 1.0):.1f} s without writes, "
                f"in sync after {in_sync - moment:.1f} s, "
                f"consumed after {time.monotonic() - in_sync:.1f} s more; "
                f"master is {cluster.master().child.name}"
            )
        producer.stop()
        acked = {one.body for one in producer.acked}
        consumer.wait_for(acked)
        end = assert_logs_are_equal(cluster)
        assert_given_is_in_the_log(cluster, consumer, topic)
        again = sum(consumer.times.values()) - len(consumer.times)
        print(
            f"{len(acked)} acked, all consumed, {again} times one of them again; "
            f"{len(consumer.bodies - acked)} consumed without an answer; log {end} bytes"
        )


POP_KILLS = 3
POP_TIMEOUT_S = 90.0
INVISIBLE_MS = 5_000


@pytest.mark.timeout(600)
def test_mixed_set_when_masters_are_killed_then_a_pop_consumer_gets_everything_acked(
    cluster: Cluster, folder: Path
) -> None:
    """Check points of a Java master are revived by a Python one and the other way round."""
    seed = int(os.environ.get("RMQHA_INTEROP_SEED") or random.randrange(1 << 32))
    print(f"RMQHA_INTEROP_SEED={seed}")
    rng = random.Random(seed)
    topic = "Popped"
    create_everywhere(cluster, topic)
    pop_everywhere(cluster, topic)
    servers = cluster.name_server.address
    given: Counter[bytes] = Counter()
    with (
        ClientPeer(folder / "pops", name="pops", source=POP_SOURCE) as clients,
        Producer(servers, topic, pause_s=PAUSE_S) as producer,
    ):
        for name in ("A", "B"):
            clients.ask(f"pop {name} {topic} {servers} {topic} ok {INVISIBLE_MS}")
        for _ in range(POP_KILLS):
            producer.wait_for_acks(rng.randint(*ACKS_BETWEEN))
            print(kill_master(cluster, producer, rng))
            producer.wait_for_write_after(time.monotonic())
            cluster.wait_in_sync(SET_TIMEOUT_S)
        producer.stop()
        acked = {one.body for one in producer.acked}

        def missing() -> set[bytes]:
            given.clear()
            given.update(b for name in "AB" for b in map(str.encode, clients.bodies(f"got {name}")))
            return acked - given.keys()

        with contextlib.suppress(AssertionError):
            wait_until(lambda: not missing(), POP_TIMEOUT_S, "the pop consumers", interval_s=0.3)
        lost = sorted(missing())
        stored = {*read_commit_log(cluster.master(), topic).values()}
        assert not lost, (
            f"{len(lost)} of {len(acked)} acked were never popped: "
            f"{[body.removesuffix(PAYLOAD) for body in lost[:3]]}; {cluster.master().child.name} "
            f"is master and has {len(stored.intersection(lost))} of them in its log"
        )
        again = sum(given.values()) - len(given)
        print(f"{len(acked)} acked, all popped, {again} times one of them again")


def pop_everywhere(cluster: Cluster, topic: str) -> None:
    """Make a group of the topic's name that pops, and wait until all replicas assign so."""
    mode = {"topic": topic, "consumerGroup": topic, "mode": "POP", "popShareQueueNum": 0}
    with wire.Connection(cluster.master().address) as master:
        master.ask(200, {}, json.dumps({"groupName": topic}).encode())
        master.ask(401, {}, json.dumps(mode).encode())
    for broker in cluster.brokers:
        wait_until(
            lambda b=broker: topic.encode() in wire.invoke(b.address, 402).body,
            SET_TIMEOUT_S, f"{broker.child.name} to pop {topic}",
        )  # fmt: skip


def assert_given_is_in_the_log(cluster: Cluster, consumer: Consumer, topic: str) -> None:
    """Nothing was given to the consumer that a later master did not know or knew elsewhere."""
    stored = read_commit_log(cluster.master(), topic)
    strange = [
        one for one in consumer.times
        if stored.get((one.queue_id, one.queue_offset)) != one.body.encode()
    ]  # fmt: skip
    assert not strange, f"{len(strange)} given, but not in the log: {strange[:3]}"
