"""Consumers whose connection is full when a message comes: it comes once they have read, and not at
the end of their pull's or pop's time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rmqha.broker.pull.aio.waiting_pulls import FLUSHED_BYTES
from rmqha.remoting.aio.connection import Connection
from rmqha.store import properties as props
from rmqha.store.record import Message, pack_host
from tests.broker.replicas import TOPIC, ReplicaCluster, master_of
from tests.broker.subscriber import Subscriber, pull_fields
from tests.broker.test_crowds import POP
from tests.broker.test_pop_in_simulator import GROUP

HOST = pack_host("10.0.2.9", 1)
AT_ONCE_MS = 100
KINDS = pytest.mark.parametrize("kind", ["pull", "pop"])


@pytest.fixture
def cluster() -> Iterator[ReplicaCluster]:
    """One replica, with a message that nobody waits for."""
    one = ReplicaCluster(seed=21, replicas=1)
    one.boot_all()
    put(one)
    yield one
    one.close()


def put(cluster: ReplicaCluster) -> None:
    """A message for the first queue, from nobody's connection."""
    master = master_of(cluster)

    def write() -> None:
        wall_ms = master.clock.wall_ms()
        message = Message(TOPIC, 0, b"late", props.encode({"UNIQ_KEY": "U"}), wall_ms, HOST, HOST)
        master.services.writer.append(message)

    if master.topics.table.get(TOPIC) is None:
        cluster.send(0)
        return
    cluster.loop.call_soon(write, context=cluster._client_context.copy())
    cluster.run_for(AT_ONCE_MS)


class Waiting:
    """Requests of one client that wait.

    Attributes:
        numbers: of the requests.
        connection: the broker's end.
        waiting: those who wait at the broker.
    """

    def __init__(self, cluster: ReplicaCluster, kind: str, count: int = 1) -> None:
        master = master_of(cluster)
        self.client = Subscriber(cluster, master.config.address)
        self.waiting: Any = master._pull.waiting if kind == "pull" else master.pop.pops._waiting
        if kind == "pop":
            self.client.ask(200050, POP)
            self.client.answers.clear()
        self.numbers = [
            self.client.pull(GROUP, TOPIC, 1) if kind == "pull" else self.client.tell(200050, POP)
            for _ in range(count)
        ]
        cluster.until(lambda: len(self.waiting) == count, "those who wait")
        self.connection: Connection = self.waiting._held.all()[0].asked.connection

    def resume(self) -> None:
        """The consumer has read; as the loop says it."""
        self.client.cluster.loop.call_soon(self.connection.resume_writing)
        self.client.cluster.run_for(0)

    @property
    def codes(self) -> list[int]:
        """Of the answers so far, in the order of the requests."""
        answers = self.client.answers
        return [answers[number].code for number in self.numbers if number in answers]


@KINDS
def test_held_request_when_its_connection_was_full_then_it_is_served_once_there_is_room(
    cluster: ReplicaCluster, kind: str
) -> None:
    """It waited up to 15 s for its own end: nobody looked again."""
    one = Waiting(cluster, kind)
    one.connection.pause_writing()
    put(cluster)
    assert one.codes == []
    one.resume()
    cluster.until(lambda: one.codes, "the answer", AT_ONCE_MS)
    assert one.codes == [0]
    assert len(one.waiting) == len(one.waiting._put_off) == 0


@KINDS
def test_held_requests_when_several_of_a_connection_were_passed_over_then_each_is_looked_at(
    cluster: ReplicaCluster, kind: str
) -> None:
    """A pop takes a message of its own; pulls of one queue get the same."""
    one = Waiting(cluster, kind, 3)
    one.connection.pause_writing()
    for _ in range(3):
        put(cluster)
    assert len(one.waiting._put_off) == 3
    one.resume()
    cluster.until(lambda: len(one.codes) == 3, "the answers", AT_ONCE_MS)
    assert one.codes == [0, 0, 0]


def test_held_pop_when_it_is_passed_over_then_others_that_ask_for_the_same_are_not(
    cluster: ReplicaCluster,
) -> None:
    """It did not look, so it has found out nothing for them."""
    slow, other = Waiting(cluster, "pop"), Subscriber(cluster, master_of(cluster).config.address)
    slow.connection.pause_writing()
    number = other.tell(200050, POP)
    cluster.until(lambda: len(slow.waiting) == 2, "the other pop held")
    put(cluster)
    cluster.until(lambda: number in other.answers, "the answer of the other", AT_ONCE_MS)
    assert (other.answers[number].code, slow.codes) == (0, [])
    slow.resume()
    cluster.run_for(AT_ONCE_MS)
    assert (slow.codes, len(slow.waiting)) == ([], 1), "there was one message"
    put(cluster)
    assert slow.codes == [0]


@KINDS
def test_held_request_when_its_time_is_over_while_it_is_passed_over_then_nothing_is_left_of_it(
    cluster: ReplicaCluster, kind: str
) -> None:
    """Nor is it answered again."""
    one = Waiting(cluster, kind)
    one.connection.pause_writing()
    put(cluster)
    assert len(one.waiting._put_off) == 1
    cluster.until(lambda: one.codes, "the answer at its end", 16_000)
    assert len(one.waiting._put_off) == 0
    one.resume()
    cluster.run_for(AT_ONCE_MS)
    assert len(one.client.answers) == 1


@KINDS
def test_held_request_when_its_full_connection_closes_then_nothing_is_left_of_it(
    cluster: ReplicaCluster, kind: str
) -> None:
    """And who comes next gets the message."""
    one = Waiting(cluster, kind)
    one.connection.pause_writing()
    put(cluster)
    one.client.connection.abort()
    cluster.run_for(AT_ONCE_MS)
    assert len(one.waiting) == len(one.waiting._put_off) == 0
    assert one.waiting._put_off._of == {}
    one.resume()
    cluster.run_for(AT_ONCE_MS)
    next_one = Subscriber(cluster, master_of(cluster).config.address)
    fields = pull_fields(GROUP, TOPIC, 1) if kind == "pull" else POP
    assert next_one.ask(11 if kind == "pull" else 200050, fields).code == 0


@KINDS
def test_held_request_when_its_answer_would_be_one_more_of_many_then_it_waits_until_they_have_left(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Whether a connection is full is known once the kernel was given what waits to be sent: after a
    pause, dozens of answers were made before anything was, and cut the consumer off."""
    one = Waiting(cluster, kind)
    with monkeypatch.context() as unseen:
        unseen.setattr(one.waiting._to_look_at, "add", list)
        put(cluster)
    transport = one.connection._transport
    for name in ("write", "writelines"):  # a kernel that takes nothing
        monkeypatch.setattr(transport, name, lambda _: one.connection.pause_writing())

    def answers_and_a_look() -> None:
        one.connection.send_bytes(b"x" * FLUSHED_BYTES)
        one.waiting._to_look_at.add(one.waiting._held.all())

    cluster.loop.call_soon(answers_and_a_look)
    cluster.run_for(AT_ONCE_MS)
    assert len(one.waiting._put_off) == 1
