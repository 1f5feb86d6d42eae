"""Real Java consumers of every kind against one broker of ours.

``RMQHA_INTEROP_JAVA_BROKER=1`` runs the same against Java's name server and broker as well.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from rmqha.testing.real import wire
from rmqha.testing.real.java import BOOT_TIMEOUT_S, JavaBroker
from rmqha.testing.real.mqadmin import mqadmin
from rmqha.testing.real.processes import wait_until
from tests.interop import required
from tests.interop.alone import BROKER, KINDS, Alone, new_topic
from tests.interop.client_peer import ClientPeer
from tests.interop.peers import PeerError

QUEUES = 4
NOT_SERVING = 14
SHARE_S = 40.0
"""Two members find each other by request 40; without it they would within 20 s."""

_numbers = itertools.count(1)


@dataclass
class Stage:
    """One broker, its name server, and clients of one release."""

    broker: JavaBroker
    servers: str
    clients: ClientPeer

    def topic(self, queues: int = QUEUES) -> str:
        """A topic of its own for a test."""
        name = f"Consumed{next(_numbers)}"
        new_topic(self.broker, self.servers, name, queues)
        return name

    def send(self, topic: str, count: int, prefix: str, *, queue: int = -1, tag: str = "") -> None:
        """Send messages by a producer that all tests share."""
        self.clients.ask(f"send P {topic} {queue} {count} {prefix} {tag}")

    def wait_for(self, name: str, count: int, timeout_s: float = 30.0) -> list[str]:
        """Wait until a push consumer has received so many different bodies; returns them all."""
        wait_until(
            lambda: len(set(self.clients.bodies(f"got {name}"))) >= count,
            timeout_s,
            f"{count} messages at {name}",
        )
        return self.clients.bodies(f"got {name}")

    def queues_of(self, name: str) -> set[str]:
        """The queues that a push consumer holds."""
        return set(filter(None, self.clients.ask(f"queues {name}").split(",")))


@pytest.fixture(scope="module", params=KINDS)
def alone(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Alone]:
    """All of one kind but the clients."""
    required.require_classpath()
    with Alone(request.param, tmp_path_factory.mktemp("consumers")) as running:
        yield running


@pytest.fixture(scope="module", params=["5.3.3", "4.9.8"])
def stage(
    alone: Alone, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    """Clients of one release."""
    version = request.param
    required.require_classpath(version)
    with ClientPeer(tmp_path_factory.mktemp("clients"), version) as clients:
        clients.ask(f"producer P PG {alone.servers}")
        yield Stage(alone.broker, alone.servers, clients)


def expected(prefix: str, count: int) -> set[str]:
    """The bodies that were sent."""
    return {f"{prefix}-{number}" for number in range(count)}


def push(stage: Stage, name: str, group: str, topic: str, *rest: str) -> None:
    """Start a push consumer; what is not said is ``* clustering concurrent first``."""
    words = list(rest) + ["*", "clustering", "concurrent", "first"][len(rest) :]
    stage.clients.ask(f"push {name} {group} {stage.servers} {topic} {' '.join(words)}")


def test_two_push_consumers_when_one_leaves_then_the_other_takes_its_queues(stage: Stage) -> None:
    """The life of a group: share, lose a member, go on; every message once."""
    topic = stage.topic()
    push(stage, "A", f"G-{topic}", topic)
    wait_until(lambda: stage.queues_of("A") == {"0", "1", "2", "3"}, SHARE_S, "all queues at A")
    push(stage, "B", f"G-{topic}", topic)
    wait_until(
        lambda: len(stage.queues_of("A")) == len(stage.queues_of("B")) == QUEUES // 2,
        SHARE_S,
        "two queues each",
    )
    assert not stage.queues_of("A") & stage.queues_of("B")
    stage.send(topic, 40, "shared")

    def both() -> list[str]:
        return stage.clients.bodies("got A") + stage.clients.bodies("got B")

    wait_until(lambda: set(both()) == expected("shared", 40), 30.0, "all messages at A and B")
    assert len(both()) == 40, "a message came twice"
    assert stage.clients.bodies("got A")
    assert stage.clients.bodies("got B")
    began = time.monotonic()
    stage.clients.ask("stop A")
    wait_until(lambda: len(stage.queues_of("B")) == QUEUES, SHARE_S, "all queues at B")
    assert time.monotonic() - began < 15.0, "request 40 was not what told B"
    stage.clients.ask("forget B")
    stage.send(topic, 20, "after")
    assert set(stage.wait_for("B", 20)) == expected("after", 20)
    stage.clients.ask("stop B")


def test_broadcasting_when_two_consume_then_both_get_everything(stage: Stage) -> None:
    """Each keeps its offsets itself; the broker shares nothing out."""
    topic = stage.topic()
    for name in "AB":
        push(stage, name, f"G-{topic}", topic, "*", "broadcasting")
    for name in "AB":
        wait_until(lambda n=name: len(stage.queues_of(n)) == QUEUES, SHARE_S, f"queues at {name}")
    stage.send(topic, 20, "all")
    for name in "AB":
        assert sorted(stage.wait_for(name, 20)) == sorted(expected("all", 20))
        stage.clients.ask(f"stop {name}")


def test_orderly_when_consumed_then_each_queue_is_in_order_and_locks_move(stage: Stage) -> None:
    """41 and 42: one member at a time, and the next one goes on where the last one was."""
    topic = stage.topic(2)
    group = f"G-{topic}"
    push(stage, "A", group, topic, "*", "clustering", "orderly")
    for queue in (0, 1):
        stage.send(topic, 15, f"q{queue}", queue=queue)
    stage.wait_for("A", 30)
    first = stage.clients.messages("got A")
    for queue in (0, 1):
        ours = [one.body for one in first if one.queue_id == queue]
        assert ours == [f"q{queue}-{number}" for number in range(15)]
    stage.clients.ask("stop A")
    push(stage, "B", group, topic, "*", "clustering", "orderly")
    stage.send(topic, 15, "next", queue=0)
    stage.wait_for("B", 15, SHARE_S)
    assert stage.clients.bodies("got B") == [f"next-{number}" for number in range(15)]
    stage.clients.ask("stop B")


def test_tags_when_subscribed_then_only_they_come_and_what_waits_is_woken(stage: Stage) -> None:
    """The filter is the broker's: a pull must pass over what is not wanted without getting stuck."""
    topic = stage.topic(1)
    push(stage, "A", f"G-{topic}", topic, "TagA~||~TagB")
    for tag in ("TagA", "Other", "TagB", "Other"):
        stage.send(topic, 50, tag.lower(), tag=tag)
    wanted = expected("taga", 50) | expected("tagb", 50)
    assert sorted(stage.wait_for("A", 100)) == sorted(wanted)
    stage.clients.ask("forget A")
    stage.send(topic, 5, "late", tag="TagB")
    assert set(stage.wait_for("A", 5, 5.0)) == expected("late", 5)
    stage.clients.ask("stop A")


def test_pull_consumer_when_it_drains_then_it_has_everything_and_its_offset_is_kept(
    stage: Stage,
) -> None:
    """DefaultMQPullConsumer: 11 with its own subscription, 29 to 31, 14 and 15."""
    topic = stage.topic(2)
    stage.send(topic, 70, "first")
    time_between = int(time.time() * 1000) + 1
    wait_until(lambda: time.time() * 1000 > time_between + 5, 5.0, "a later millisecond")
    stage.send(topic, 30, "second", tag="T")
    stage.clients.ask(f"puller A G-{topic} {stage.servers}")
    everything = stage.clients.bodies(f"drain A {topic} *")
    assert sorted(everything) == sorted(expected("first", 70) | expected("second", 30))
    assert set(stage.clients.bodies(f"drain A {topic} T")) == expected("second", 30)
    middle = int(stage.clients.ask(f"bytime A {topic} 0 {time_between}"))
    assert middle == 35
    stage.clients.ask(f"commit A {topic} 0 17")
    # Java's client hands a oneway request from thread to thread before it is written: since 5.1 the
    # question may get there first.
    wait_until(
        lambda: stage.clients.ask(f"committed A {topic} 0") == "17", 5.0, "the offset at the broker"
    )
    stage.clients.ask("stop A")


def test_lite_pull_when_it_commits_then_the_next_one_goes_on_there(stage: Stage) -> None:
    """DefaultLitePullConsumer: 361 where the client has it, long polling, seek and commit."""
    topic = stage.topic(1)
    stage.send(topic, 20, "lite")
    stage.clients.ask(f"lite A G-{topic} {stage.servers} {topic} * first")
    assert set(stage.clients.bodies("poll A 20 30000")) == expected("lite", 20)
    stage.clients.ask("litecommit A")
    stage.clients.ask("seek A 5")
    again = stage.clients.bodies("poll A 15 30000")
    assert set(again) == {f"lite-{number}" for number in range(5, 20)}
    stage.clients.ask("litecommit A")
    stage.clients.ask("stop A")
    stage.clients.ask(f"lite B G-{topic} {stage.servers} {topic} * first")
    stage.send(topic, 3, "more")
    assert set(stage.clients.bodies("poll B 3 30000")) == expected("more", 3)
    stage.clients.ask("stop B")


def test_offsets_when_the_broker_is_killed_then_a_consumer_goes_on_where_it_was(
    stage: Stage,
) -> None:
    """consumerOffset.json is all that says where a group was."""
    topic = stage.topic(1)
    group = f"G-{topic}"
    push(stage, "A", group, topic)
    stage.send(topic, 25, "before")
    stage.wait_for("A", 25)
    stage.clients.ask("stop A")
    path = stage.broker.store / "config" / "consumerOffset.json"
    wait_until(
        lambda: path.exists() and f"{topic}@{group}" in path.read_text()
        and wire.loads(path.read_bytes())["offsetTable"][f"{topic}@{group}"].get("0") == 25,
        10.0, "the offset in its file",
    )  # fmt: skip
    stage.broker.child.kill()
    stage.broker.start()
    with wire.Connection(stage.broker.address) as connection:
        wait_until(
            lambda: stage.broker.child.alive and _serves(connection, topic),
            BOOT_TIMEOUT_S,
            "the broker",
        )
    # A client notices at its next request that its connection is gone.
    other = stage.topic(1)
    wait_until(lambda: _sends(stage, other), 20.0, "the producer")
    push(stage, "B", group, topic)
    stage.send(topic, 5, "after")
    # A concurrent listener's threads finish in any order; nothing from before may come again.
    assert sorted(stage.wait_for("B", 5)) == sorted(expected("after", 5))
    stage.clients.ask("stop B")


def _sends(stage: Stage, topic: str) -> bool:
    try:
        stage.send(topic, 1, "canary")
    except PeerError:
        return False
    return True


def _serves(connection: wire.Connection, topic: str) -> bool:
    try:
        # Until its role is known a broker answers pulls with 14.
        return connection.invoke(11, {"topic": topic, "queueId": 0}).code != NOT_SERVING
    except OSError:
        connection.close()
        return False


def test_reset_when_mqadmin_moves_a_group_then_its_consumer_reads_again(stage: Stage) -> None:
    """222: a consumer that is running goes back without a restart."""
    topic = stage.topic(1)
    group = f"G-{topic}"
    push(stage, "A", group, topic)
    stage.send(topic, 10, "again")
    stage.wait_for("A", 10)
    wait_until(lambda: _consumed(stage, group, topic) == 10, 15.0, "the offset at the broker")
    stage.clients.ask("forget A")
    out = mqadmin("resetOffsetByTime", "-g", group, "-t", topic, "-s", "0", "-n", stage.servers)
    assert BROKER in out
    assert set(stage.wait_for("A", 10, 60.0)) == expected("again", 10)
    stage.clients.ask("stop A")


def _consumed(stage: Stage, group: str, topic: str, queue: int = 0) -> int:
    ext = {"consumerGroup": group, "topic": topic, "queueId": queue}
    answer = wire.invoke(stage.broker.address, 14, ext)
    return int(answer.ext["offset"]) if answer.code == wire.SUCCESS else -1


def test_mqadmin_when_it_asks_then_progress_and_connections_are_told(stage: Stage) -> None:
    """208, 203 and 202 in the form that fastjson reads."""
    topic = stage.topic(2)
    group = f"G-{topic}"
    push(stage, "A", group, topic)
    stage.send(topic, 10, "seen")
    stage.wait_for("A", 10)
    for queue in (0, 1):
        wait_until(
            lambda q=queue: _consumed(stage, group, topic, q) == 5, 15.0, f"queue {queue}'s offset"
        )
    servers = ("-n", stage.servers)
    progress = mqadmin("consumerProgress", "-g", group, *servers)
    rows = [line.split() for line in progress.splitlines() if line.startswith(topic)]
    assert [row[2:6] for row in rows] == [["0", "5", "5", "0"], ["1", "5", "5", "0"]]
    connections = mqadmin("consumerConnection", "-g", group, *servers)
    assert "ConsumeType: CONSUME_PASSIVELY" in connections
    assert topic in connections
    status = mqadmin("topicStatus", "-t", topic, *servers)
    assert [line.split()[1:4] for line in status.splitlines() if line.startswith(BROKER)] == [
        ["0", "0", "5"], ["1", "0", "5"],
    ]  # fmt: skip
    stage.clients.ask("stop A")
