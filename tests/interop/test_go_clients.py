"""Real Go clients (rocketmq-client-go v2) against our name server and broker, and Java's.

The same program and the same tests run against both.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

from rmqha.testing.real import wire
from rmqha.testing.real.java import JavaBroker
from rmqha.testing.real.processes import WaitTimeout, wait_until
from tests.interop import required
from tests.interop.alone import Alone, new_topic
from tests.interop.go_peer import GoPeer, build

QUEUES = 4
SETTINGS: dict[str, object] = {
    "messageDelayLevel": "1s 2s 3s 4s", "transactionTimeOut": 1000,
    "transactionCheckInterval": 2000,
}  # fmt: skip
SHARE_S = 40.0

_numbers = itertools.count(1)


class Consumed(NamedTuple):
    """One message as a consumer saw it."""

    queue_id: int
    queue_offset: int
    body: str
    reconsume_times: int
    received_ms: int


@dataclass
class Stage:
    """A name server and a broker, Java's or ours, and Go's clients."""

    broker: JavaBroker
    servers: str
    peer: GoPeer

    def topic(self, queues: int = QUEUES) -> str:
        """A topic of its own for a test."""
        name = f"Go{next(_numbers)}"
        new_topic(self.broker, self.servers, name, queues)
        return name

    def push(
        self, topic: str, *, group: str = "", expression: str = "*", model: str = "clustering",
        listener: str = "concurrent", failures: int = 0,
    ) -> str:  # fmt: skip
        """Start a push consumer; its name."""
        name = f"C{next(_numbers)}"
        words = f"{expression} {model} {listener} {failures}"
        self.peer.ask(f"push {name} {group or 'G-' + name} {topic} {words}")
        return name

    def got(self, name: str) -> list[Consumed]:
        """What a consumer has received."""
        found = []
        for one in self.peer.messages(f"got {name}"):
            body, times, moment = one.body.rsplit("|", 2)
            found.append(Consumed(one.queue_id, one.queue_offset, body, int(times), int(moment)))
        return found

    def wait_for(self, name: str, count: int, timeout_s: float = SHARE_S) -> list[Consumed]:
        """Wait until a consumer has received so many messages; returns them."""
        wait_until(lambda: len(self.got(name)) >= count, timeout_s, f"{count} messages at {name}")
        return self.got(name)


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program."""
    return build(tmp_path_factory.mktemp("go"))


@pytest.fixture(scope="module", params=["python", "java"])
def stage(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, binary: Path
) -> Iterator[Stage]:
    """Everything of one kind but the clients."""
    required.require_classpath()
    folder = tmp_path_factory.mktemp(f"go-{request.param}")
    with (
        Alone(request.param, folder, **SETTINGS) as alone,
        GoPeer(binary, folder / "clients") as peer,
    ):
        peer.ask(f"start {alone.servers}")
        yield Stage(alone.broker, alone.servers, peer)


def bodies(consumed: list[Consumed]) -> list[str]:
    """Sorted."""
    return sorted(one.body for one in consumed)


def expected(prefix: str, count: int) -> list[str]:
    """What was sent, sorted."""
    return sorted(f"{prefix}-{number}" for number in range(count))


@pytest.mark.parametrize("kind", ["async", "oneway", "batch"])
def test_many_when_sent_then_each_is_consumed_once(stage: Stage, kind: str) -> None:
    """Go writes its own headers: numbers as texts, version 317."""
    topic = stage.topic()
    stage.peer.ask(f"{kind} {topic} 60 m")
    name = stage.push(topic)
    assert bodies(stage.wait_for(name, 60)) == expected("m", 60)
    stage.peer.ask(f"stop {name}")


def test_sync_when_sent_then_the_answer_names_where_it_is(stage: Stage) -> None:
    """Queue and offset of the answer are those that the consumer sees."""
    topic = stage.topic()
    sent = [stage.peer.ask(f"sync {topic} body{n}").split(":") for n in range(8)]
    name = stage.push(topic)
    got = {one.body: one for one in stage.wait_for(name, 8)}
    for number, (queue, offset, _) in enumerate(sent):
        seen = got[f"body{number}"]
        assert (seen.queue_id, seen.queue_offset) == (int(queue), int(offset))
    stage.peer.ask(f"stop {name}")


def test_ordered_when_consumed_then_each_order_keeps_its_steps(stage: Stage) -> None:
    """The hash's queue, and an orderly consumer that holds the broker's locks."""
    topic = stage.topic()
    name = stage.push(topic, listener="orderly")
    stage.peer.ask(f"ordered {topic} 5 6")
    got = stage.wait_for(name, 30)
    for order in range(5):
        own = [one for one in got if one.body.startswith(f"{order}/")]
        assert [one.body for one in own] == [f"{order}/{step}" for step in range(6)]
        assert len({one.queue_id for one in own}) == 1
    stage.peer.ask(f"stop {name}")


def test_delayed_when_sent_then_not_before_its_level(stage: Stage) -> None:
    """Level 2 is 2 s here."""
    topic = stage.topic()
    name = stage.push(topic)
    began_ms = time.time() * 1000
    stage.peer.ask(f"sync {topic} later delay=2")
    (one,) = stage.wait_for(name, 1)
    assert one.received_ms - began_ms >= 2_000
    stage.peer.ask(f"stop {name}")


def test_tags_when_subscribed_then_only_they_come(stage: Stage) -> None:
    """Hashed as Java hashes them."""
    topic = stage.topic(1)
    for number, tag in enumerate(("TagA", "Other", "TagB", "Other", "TagA")):
        stage.peer.ask(f"sync {topic} m-{number} tag={tag}")
    name = stage.push(topic, expression="TagA~||~TagB")
    assert bodies(stage.wait_for(name, 3)) == ["m-0", "m-2", "m-4"]
    stage.peer.ask(f"stop {name}")


def test_broadcasting_when_two_consume_then_both_get_everything(stage: Stage) -> None:
    """Each keeps its offsets itself."""
    topic = stage.topic()
    names = [stage.push(topic, group=f"G-{topic}-{n}", model="broadcasting") for n in range(2)]
    stage.peer.ask(f"async {topic} 20 all")
    for name in names:
        assert bodies(stage.wait_for(name, 20)) == expected("all", 20)
        stage.peer.ask(f"stop {name}")


def test_transactions_when_decided_then_committed_ones_only(stage: Stage) -> None:
    """At once, or when the broker asks."""
    topic = stage.topic()
    name = stage.push(topic)
    for body, first in (("good", "commit"), ("bad", "rollback"), ("yes1", "unknown"),
                        ("no1", "unknown")):  # fmt: skip
        stage.peer.ask(f"transaction {topic} {body}-{topic} {first}")
    got = stage.wait_for(name, 2)
    wait_until(
        lambda: int(stage.peer.ask(f"checks no1-{topic}")) > 0, SHARE_S, "the question about no1"
    )
    assert bodies(got) == [f"good-{topic}", f"yes1-{topic}"]
    assert int(stage.peer.ask(f"checks yes1-{topic}")) == 1
    stage.peer.ask(f"stop {name}")


def test_retries_when_consuming_fails_then_it_comes_back_and_ends_as_a_dead_letter(
    stage: Stage,
) -> None:
    """36 with the client's own maximum of two."""
    topic = stage.topic(1)
    group = f"G-{topic}"
    name = stage.push(topic, group=group, failures=9)
    stage.peer.ask(f"sync {topic} bad")
    got = stage.wait_for(name, 3, 60.0)
    assert [one.reconsume_times for one in got] == [0, 1, 2]
    dead = f"%DLQ%{group}"

    def letters() -> int:
        with wire.Connection(stage.broker.address) as connection:
            return len(wire.pull_queue(connection, dead, 0))

    wait_until(lambda: letters() == 1, SHARE_S, "the dead letter")
    stage.peer.ask(f"stop {name}")


def committed(stage: Stage, topic: str, group: str) -> int:
    """How many messages of a topic with two queues a group has behind it, as its broker knows."""
    found = 0
    for queue in range(2):
        fields = {
            "consumerGroup": group, "topic": topic, "queueId": str(queue),
            "setZeroIfNotFound": "false",
        }  # fmt: skip
        answer = wire.invoke(stage.broker.address, 14, fields)
        found += int(answer.ext["offset"]) if answer.code == wire.SUCCESS else 0
    return found


def test_pull_when_polled_then_the_next_one_goes_on_there(stage: Stage) -> None:
    """Go's pull consumer commits what was acknowledged."""
    topic = stage.topic(2)
    group = f"G-{topic}"
    stage.peer.ask(f"async {topic} 30 first")
    stage.peer.ask(f"pull L{topic} {group} {topic} *")
    polled = stage.peer.messages(f"poll L{topic} 30 40000")
    assert sorted(one.body.partition("|")[0] for one in polled) == expected("first", 30)
    # The client commits every five seconds, and when it stops; it wants no answer, and closes the
    # connection with what a busy broker has not read yet.
    with contextlib.suppress(WaitTimeout):
        wait_until(lambda: committed(stage, topic, group) == 30, 15.0, "the commits")
    stage.peer.ask(f"stop L{topic}")
    wait_until(lambda: committed(stage, topic, group) == 30, 20.0, "the commits")
    stage.peer.ask(f"async {topic} 10 next")
    stage.peer.ask(f"pull N{topic} {group} {topic} *")
    polled = stage.peer.messages(f"poll N{topic} 10 40000")
    assert sorted(one.body.partition("|")[0] for one in polled) == expected("next", 10)
    stage.peer.ask(f"stop N{topic}")


def test_two_push_consumers_when_one_leaves_then_the_other_goes_on(stage: Stage) -> None:
    """Rebalance by 40 and 38; nothing is lost when a member goes."""
    topic = stage.topic()
    names = [stage.push(topic, group=f"G-{topic}") for _ in range(2)]
    stage.peer.ask(f"async {topic} 40 shared")

    def both() -> list[Consumed]:
        return [one for name in names for one in stage.got(name)]

    wait_until(lambda: set(bodies(both())) == set(expected("shared", 40)), 60.0, "all messages")
    stage.peer.ask(f"stop {names[0]}")
    stage.peer.ask(f"async {topic} 20 after")
    wait_until(
        lambda: set(expected("after", 20)) <= set(bodies(stage.got(names[1]))), 60.0, "the rest"
    )
    stage.peer.ask(f"stop {names[1]}")
