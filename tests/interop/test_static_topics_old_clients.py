"""Clients that know no static topics, Java's of 4.9.8 and Go's, through remaps of one.

On sets of ours, and where one of two is Java's, they produce and consume in order, beside clients of
5.3.3 and with them in one group. On sets of Java's alone nobody translates: there our name server
shows them the topic without queues, so that they refuse it and misplace nothing.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rmqha.testing.real import wire
from rmqha.testing.real.java import JavaBroker
from rmqha.testing.real.name_servers import PythonNameServer
from rmqha.testing.real.processes import allocate_ports, assert_holds, wait_until
from tests.interop import required
from tests.interop.alone import AloneBroker, JavaAlone, new_topic
from tests.interop.client_peer import ClientPeer, Received
from tests.interop.go_peer import GoPeer, build
from tests.interop.our_mqadmin import our_mqadmin
from tests.interop.peers import PeerError

pytestmark = pytest.mark.timeout(600)

OLD = "4.9.8"
QUEUES = 4
SENT = 5
"""Messages in each logical queue, after each move."""
A, B = "broker-a", "broker-b"
KINDS: dict[str, tuple[type[JavaBroker], type[JavaBroker]]] = {
    "python": (AloneBroker, AloneBroker),
    "mixed": (JavaAlone, AloneBroker),
}
MOVES = ("", B, A, f"{A},{B}")
BLOCK = 10_000
LISTED_S = 40.0
CONSUMED_S = 45.0
"""A Java set that is given a queue looks every 30 s where the segments before are, and answers 1 until
then; clients ask again after 3 s. Less than the 60 s for which a lock that nobody gave back lasts."""
REFUSED_S = 12.0
"""A refusal comes sooner than a client's own timeout, after its retries."""
QUIET_S = 4.0
"""Longer than clients take to look at the route (1 s), and to rebalance after it."""

_numbers = itertools.count(1)


@dataclass
class Stage:
    """Two broker sets of one broker each, and a name server of ours."""

    servers: str
    brokers: list[JavaBroker]

    def static_topic(self) -> str:
        """A topic of four logical queues on the first set."""
        topic = f"Static{next(_numbers)}"
        our_mqadmin(
            "updateStaticTopic", "-n", self.servers, "-t", topic, "-b", A, "-qn", str(QUEUES)
        )
        self.wait_led(topic, A)
        return topic

    def move(self, topic: str, to: str) -> None:
        """Remap all queues."""
        our_mqadmin("remappingStaticTopic", "-n", self.servers, "-t", topic, "-b", to)
        self.wait_led(topic, to)

    def wait_led(self, topic: str, names: str) -> None:
        """Wait until the name server has every logical queue at these sets."""

        def led() -> bool:
            with wire.Connection(self.servers) as connection:
                route = connection.ask(105, {"topic": topic}).json()
            found = {
                int(queue): name
                for name, info in (route.get("topicQueueMappingByBroker") or {}).items()
                for queue in info.get("currIdMap") or {}
            }
            return len(found) == QUEUES and {*found.values()} == {*names.split(",")}

        wait_until(led, 20.0, f"{topic} at {names}")


def run(folder: Path, kinds: tuple[type[JavaBroker], ...]) -> Iterator[Stage]:
    """Start a cluster; end it afterwards."""
    required.require_classpath()
    required.require_classpath(OLD)
    server = PythonNameServer(folder / "namesrv", allocate_ports()[0])
    brokers: list[JavaBroker] = []
    try:
        server.start()
        server.wait_ready()
        for name, make in zip((A, B), kinds, strict=False):
            brokers.append(make(folder / name, server.address, name))
            brokers[-1].start()
        with wire.Connection(server.address) as connection:
            for one in brokers:
                one.wait_ready()
                wait_until(
                    lambda one=one: wire.broker_addresses(
                        connection, one.broker_name, one.broker_name
                    ),
                    LISTED_S, one.broker_name,
                )  # fmt: skip
        yield Stage(server.address, brokers)
    finally:
        for one in brokers:
            one.child.kill()
        server.child.kill()


@pytest.fixture(scope="module", params=list(KINDS))
def stage(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    """A cluster with a set of ours."""
    yield from run(tmp_path_factory.mktemp("served"), KINDS[request.param])


def java(servers: str, folder: Path, version: str) -> Iterator[ClientPeer]:
    """Java's clients of one release, with a producer."""
    with ClientPeer(folder, version) as peer:
        peer.ask(f"producer P PG {servers}")
        yield peer


def golang(servers: str, folder: Path) -> Iterator[GoPeer]:
    """Go's clients."""
    with GoPeer(build(folder), folder / "clients") as peer:
        peer.ask(f"start {servers}")
        yield peer


@pytest.fixture(scope="module")
def new(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientPeer]:
    """Clients of 5.3.3, which know static topics."""
    yield from java(stage.servers, tmp_path_factory.mktemp("new"), "5.3.3")


@pytest.fixture(scope="module")
def old(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientPeer]:
    """Java's clients of 4.9.8."""
    yield from java(stage.servers, tmp_path_factory.mktemp("java-old"), OLD)


@pytest.fixture(scope="module")
def go(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GoPeer]:
    """Go's clients."""
    yield from golang(stage.servers, tmp_path_factory.mktemp("go"))


# -- served ------------------------------------------------------------------------------------


class Story:
    """What was sent to a topic, queue by queue, and what a consumer must have got of it."""

    def __init__(self) -> None:
        self.sent: dict[int, list[str]] = {queue: [] for queue in range(QUEUES)}
        self._rounds = 0

    def send(self, peer: ClientPeer, topic: str) -> None:
        """So many to each queue, to chosen ones."""
        for queue, bodies in self.sent.items():
            prefix = f"r{self._rounds}q{queue}"
            peer.ask(f"send P {topic} {queue} {SENT} {prefix}")
            bodies += [f"{prefix}-{number}" for number in range(SENT)]
        self._rounds += 1

    def send_by_go(self, peer: GoPeer, topic: str) -> None:
        """So many to each queue, in turns: which is whose is told by the answers."""
        for number in range(SENT * QUEUES):
            body = f"r{self._rounds}-{number}"
            queue, offset, _ = peer.ask(f"sync {topic} {body}").split(":")
            bodies = self.sent[int(queue)]
            bodies.append(body)
            assert int(offset) // BLOCK <= self._rounds
        self._rounds += 1

    @property
    def count(self) -> int:
        """Of all messages."""
        return sum(map(len, self.sent.values()))

    def check(self, got: list[Received]) -> None:
        """Each queue's messages in the order in which they were sent, under offsets that grow."""
        for queue, bodies in self.sent.items():
            mine = [one for one in got if one.queue_id == queue]
            offsets = [one.queue_offset for one in mine]
            assert [one.body for one in mine] == bodies, f"queue {queue}"
            assert offsets == sorted({*offsets}), f"queue {queue}: {offsets}"
            assert offsets[0] == 0, f"queue {queue}: {offsets}"
            # Whoever has moved goes on at a whole block.
            assert len({one // BLOCK for one in offsets}) > 1, f"queue {queue}: {offsets}"


def plain_bodies(got: list[Received]) -> list[Received]:
    """Without what the Go program adds to each body."""
    return [one._replace(body=one.body.partition("|")[0]) for one in got]


def await_count(peer: ClientPeer, name: str, count: int, when: str) -> list[Received]:
    """What a consumer has received since it was started, once that is so much."""
    wait_until(
        lambda: len(peer.messages(f"got {name}")) >= count, CONSUMED_S, f"{count} messages {when}"
    )
    return plain_bodies(peer.messages(f"got {name}"))


def through_moves(
    stage: Stage, topic: str, story: Story, send: Callable[[], None],
    peer: ClientPeer, name: str, start: str,
) -> None:  # fmt: skip
    """Two moves and a third that divides the queues; the consumer is another one after the first two.

    So no lock may be left at a set that the queues come back to.
    """
    got: list[Received] = []
    peer.ask(start.format(name))
    for number, to in enumerate(MOVES):
        if to:
            stage.move(topic, to)
        send()
        new_ones = await_count(peer, name, story.count - len(got), f"after move {number}")
        if number in (1, 2):
            got += new_ones
            peer.ask(f"stop {name}")
            name = f"{name}-again"
            peer.ask(start.format(name))
    got += await_count(peer, name, story.count - len(got), "in the end")
    peer.ask(f"stop {name}")
    story.check(got)


@pytest.mark.parametrize("listener", ["orderly", "concurrent"])
def test_queues_when_remapped_then_javas_old_clients_go_on_in_order(
    stage: Stage, old: ClientPeer, listener: str
) -> None:
    """Producer and consumer of 4.9.8, without a change on their side."""
    topic, story = stage.static_topic(), Story()
    name = f"C-{topic}"
    start = f"push {{}} G-{topic} {stage.servers} {topic} * clustering {listener} first"
    if listener == "orderly":
        through_moves(stage, topic, story, lambda: story.send(old, topic), old, name, start)
        return
    # Concurrent listeners get each message once, and in the order of their pulls.
    old.ask(start.format(name))
    for to in MOVES[:3]:
        if to:
            stage.move(topic, to)
        story.send(old, topic)
    got = await_count(old, name, story.count, "in the end")
    old.ask(f"stop {name}")
    story.check(sorted(got))


@pytest.mark.parametrize("listener", ["orderly", "concurrent"])
def test_queues_when_remapped_then_gos_clients_go_on_in_order(
    stage: Stage, go: GoPeer, listener: str
) -> None:
    """Go's producer and push consumer."""
    topic, story = stage.static_topic(), Story()
    name = f"C-{topic}"
    start = f"push {{}} G-{topic} {topic} * clustering {listener} 0"
    if listener == "orderly":
        through_moves(stage, topic, story, lambda: story.send_by_go(go, topic), go, name, start)
        return
    go.ask(start.format(name))
    for to in MOVES[:3]:
        if to:
            stage.move(topic, to)
        story.send_by_go(go, topic)
    got = await_count(go, name, story.count, "in the end")
    go.ask(f"stop {name}")
    story.check(sorted(got))


def test_group_when_old_and_new_clients_share_it_then_each_message_comes_once(
    stage: Stage, old: ClientPeer, new: ClientPeer
) -> None:
    """They divide the queues between them: each set knows all members, under one order of queues."""
    topic, story = stage.static_topic(), Story()
    words = f"G-{topic} {stage.servers} {topic} * clustering orderly first"
    names = {"old": old, "new": new}
    for name, peer in names.items():
        peer.ask(f"push {name}-{topic} {words}")

    def held() -> bool:
        queues = [peer.ask(f"queues {name}-{topic}").split(",") for name, peer in names.items()]
        return [len(one) for one in queues] == [2, 2] and len({*queues[0], *queues[1]}) == QUEUES

    wait_until(held, CONSUMED_S, "a half of the queues for each")
    for number, to in enumerate(MOVES[:3]):
        if to:
            stage.move(topic, to)
        story.send(old if number % 2 else new, topic)
        wait_until(
            lambda: sum(len(p.messages(f"got {n}-{topic}")) for n, p in names.items())
            >= story.count,
            CONSUMED_S, f"the messages after move {number}",
        )  # fmt: skip
    got = [one for name, peer in names.items() for one in peer.messages(f"got {name}-{topic}")]
    for name, peer in names.items():
        peer.ask(f"stop {name}-{topic}")
    story.check(got)


def test_everything_when_pulled_plainly_by_javas_old_client_then_both_segments_are_read(
    stage: Stage, old: ClientPeer
) -> None:
    """A pull consumer asks for queues and ends, and stores an offset of its own."""
    topic, story = stage.static_topic(), Story()
    story.send(old, topic)
    stage.move(topic, B)
    story.send(old, topic)
    name = f"L-{topic}"
    old.ask(f"puller {name} G-{topic} {stage.servers}")
    wait_until(
        lambda: len(old.messages(f"drain {name} {topic} *")) >= story.count, CONSUMED_S, "all of it"
    )
    story.check(old.messages(f"drain {name} {topic} *"))
    old.ask(f"commit {name} {topic} 2 {BLOCK + 1}")
    assert old.ask(f"committed {name} {topic} 2") == str(BLOCK + 1)
    old.ask(f"stop {name}")


def test_sends_when_gos_of_every_kind_then_each_message_is_read(
    stage: Stage, go: GoPeer, old: ClientPeer
) -> None:
    """Asynchronous, one-way, batches, by a key's hash, and transactions, after a move."""
    topic = stage.static_topic()
    stage.move(topic, B)
    name = f"C-{topic}"
    old.ask(f"push {name} G-{topic} {stage.servers} {topic} * clustering concurrent first")
    for line in (
        f"async {topic} 3 async", f"oneway {topic} 3 oneway", f"batch {topic} 3 batch",
        f"ordered {topic} 2 2", f"transaction {topic} yes commit", f"transaction {topic} no rollback",
    ):  # fmt: skip
        go.ask(line)
    expected = {
        *(f"{kind}-{number}" for kind in ("async", "oneway", "batch") for number in range(3)),
        *(f"{order}/{step}" for order in range(2) for step in range(2)), "yes",
    }  # fmt: skip
    wait_until(lambda: set(old.bodies(f"got {name}")) >= expected, CONSUMED_S, "all kinds")
    assert sorted(old.bodies(f"got {name}")) == sorted(expected)
    old.ask(f"stop {name}")


def test_messages_when_gos_consumer_fails_then_they_come_again(stage: Stage, go: GoPeer) -> None:
    """It sends them back to the set that it knows, not to the one that has them."""
    topic = stage.static_topic()
    stage.move(topic, B)
    stage.move(topic, A)
    name = f"C-{topic}"
    go.ask(f"push {name} G-{topic} {topic} * clustering concurrent 1")
    go.ask(f"batch {topic} 3 again")
    wait_until(
        lambda: sum("|1|" in one for one in go.bodies(f"got {name}")) >= 3, CONSUMED_S, "again"
    )
    got = [one.split("|")[:2] for one in go.bodies(f"got {name}")]
    assert sorted(got) == sorted(
        [f"again-{number}", times] for number in range(3) for times in ("0", "1")
    )
    go.ask(f"stop {name}")


# -- refused -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def javas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """One set, of Java's, under a name server of ours."""
    yield from run(tmp_path_factory.mktemp("refused"), (JavaAlone,))


def ends(stage: Stage, topic: str) -> dict[int, int]:
    """How many messages the broker has in each physical queue, logical numbers aside (30)."""
    with wire.Connection(stage.brokers[0].address) as connection:
        return {
            queue: int(
                connection.ask(30, {"topic": topic, "queueId": queue, "lo": False}).ext["offset"]
            )
            for queue in range(QUEUES)
        }


def refusal(peer: ClientPeer, line: str) -> str:
    """What a client says when it refuses; it must not wait for anything."""
    begun = time.monotonic()
    with pytest.raises(PeerError) as caught:
        peer.ask(line, REFUSED_S)
    assert time.monotonic() - begun < REFUSED_S
    return str(caught.value)


def test_topic_when_all_its_sets_are_javas_then_old_clients_refuse_it(
    javas: Stage, tmp_path: Path
) -> None:
    """Sends, pulls, consumers; an ordinary topic works before and after, and nothing is misplaced."""
    topic, plain = javas.static_topic(), f"Plain{next(_numbers)}"
    new_topic(javas.brokers[0], javas.servers, plain, QUEUES)
    for new in java(javas.servers, tmp_path / "new", "5.3.3"):
        for queue in range(QUEUES):
            new.ask(f"send P {topic} {queue} {SENT} q{queue}")
    for old in java(javas.servers, tmp_path / "old", OLD):
        old.ask(f"send P {plain} -1 4 before")
        assert "No route info of this topic" in refusal(old, f"send P {topic} -1 1 x")
        assert "No route info for this topic" in refusal(old, f"send P {topic} 2 1 x")
        old.ask(f"push C G-{topic} {javas.servers} {topic} * clustering orderly first")
        old.ask(f"puller L G-{topic} {javas.servers}")
        lacks = "Can not find Message Queue for this topic"
        assert lacks in refusal(old, f"drain L {topic} *")
        assert_holds(lambda old=old: old.ask("queues C") == "", QUIET_S, "it holds no queue")
        assert old.ask("count C") == "0"
        old.ask(f"send P {plain} -1 4 after")
    for go in golang(javas.servers, tmp_path / "go"):
        for line in (
            f"sync {topic} x", f"async {topic} 3 x", f"oneway {topic} 3 x", f"batch {topic} 3 x",
            f"ordered {topic} 2 2", f"transaction {topic} x commit",
        ):  # fmt: skip
            assert "the topic=" in refusal(go, line), line
        go.ask(f"push C G-{topic} {topic} * clustering concurrent 0")
        assert_holds(lambda go=go: go.ask("got C") == "", QUIET_S, "nothing is consumed")
        go.ask(f"sync {plain} after")
    wait_until(lambda: sum(ends(javas, plain).values()) == 9, 10.0, "the ordinary messages")
    assert ends(javas, topic) == dict.fromkeys(range(QUEUES), SENT)
