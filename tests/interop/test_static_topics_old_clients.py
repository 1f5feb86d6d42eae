"""Clients that know no static topics: Java's of 4.9.8 and Go's refuse one, and misplace nothing.

To them physical queues would be logical ones. Our name server shows them the topic without queues.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqha.testing.real import wire
from rmqha.testing.real.mqadmin import mqadmin
from rmqha.testing.real.processes import assert_holds, wait_until
from tests.interop import required
from tests.interop.alone import BROKER, Alone, new_topic
from tests.interop.client_peer import ClientPeer
from tests.interop.go_peer import GoPeer, build
from tests.interop.peers import PeerError

OLD = "4.9.8"
QUEUES = 4
SENT = 5
"""Messages of a new client in each logical queue."""
REFUSED_S = 12.0
"""A refusal comes sooner than a client's own timeout, after its retries."""
QUIET_S = 4.0
"""Longer than clients take to look at the route (1 s), and to rebalance after it."""

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alone]:
    """Our name server and broker."""
    required.require_classpath()
    required.require_classpath(OLD)
    with Alone("python", tmp_path_factory.mktemp("old")) as running:
        yield running


@pytest.fixture(scope="module")
def new(alone: Alone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientPeer]:
    """Clients of 5.3.3, which know static topics."""
    with ClientPeer(tmp_path_factory.mktemp("new")) as peer:
        peer.ask(f"producer P PG {alone.servers}")
        yield peer


@pytest.fixture(scope="module")
def old(alone: Alone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientPeer]:
    """Java's clients of 4.9.8."""
    with ClientPeer(tmp_path_factory.mktemp("java-old"), OLD) as peer:
        peer.ask(f"producer P PG {alone.servers}")
        yield peer


@pytest.fixture(scope="module")
def go(alone: Alone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GoPeer]:
    """Go's clients."""
    folder: Path = tmp_path_factory.mktemp("go")
    with GoPeer(build(folder), folder / "clients") as peer:
        peer.ask(f"start {alone.servers}")
        yield peer


@pytest.fixture
def static(alone: Alone, new: ClientPeer) -> str:
    """A static topic with messages of a client that may send them."""
    topic = f"Static{next(_numbers)}"
    text = mqadmin(
        "updateStaticTopic", "-n", alone.servers, "-t", topic, "-b", BROKER, "-qn", str(QUEUES)
    )
    assert "Exception" not in text, text
    with wire.Connection(alone.servers) as connection:
        wait_until(lambda: wire.broker_addresses(connection, topic, BROKER), 20.0, topic)
    for queue in range(QUEUES):
        new.ask(f"send P {topic} {queue} {SENT} q{queue}")
    return topic


def ends(alone: Alone, topic: str) -> dict[int, int]:
    """How many messages the broker has in each physical queue, logical numbers aside (30)."""
    with wire.Connection(alone.broker.address) as connection:
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


UNTOUCHED = dict.fromkeys(range(QUEUES), SENT)


def test_sends_when_java_knows_no_static_topics_then_they_are_refused(
    alone: Alone, static: str, old: ClientPeer
) -> None:
    """To any queue or a chosen one; an ordinary topic works before and after."""
    plain = f"Plain{next(_numbers)}"
    new_topic(alone.broker, alone.servers, plain, QUEUES)
    old.ask(f"send P {plain} -1 4 before")
    assert "No route info of this topic" in refusal(old, f"send P {static} -1 1 x")
    assert "No route info for this topic" in refusal(old, f"send P {static} 2 1 x")
    old.ask(f"send P {plain} -1 4 after")
    # What came before it is in its queue by then.
    wait_until(lambda: sum(ends(alone, plain).values()) == 8, 10.0, "the ordinary messages")
    assert ends(alone, static) == UNTOUCHED


@pytest.mark.parametrize("listener", ["concurrent", "orderly"])
def test_consumer_when_java_knows_no_static_topics_then_it_gets_no_queue(
    alone: Alone, static: str, old: ClientPeer, new: ClientPeer, listener: str
) -> None:
    """Nothing consumed, nothing stored for its group: a new client begins where it should."""
    name, group = f"C{next(_numbers)}", f"G-{static}"
    old.ask(f"push {name} {group} {alone.servers} {static} * clustering {listener} first")
    assert_holds(lambda: old.ask(f"queues {name}") == "", QUIET_S, "it holds no queue")
    assert old.ask(f"count {name}") == "0"
    old.ask(f"stop {name}")
    new.ask(f"push {name} {group} {alone.servers} {static} * clustering {listener} first")
    expected = {f"q{queue}-{number}" for queue in range(QUEUES) for number in range(SENT)}
    wait_until(lambda: set(new.bodies(f"got {name}")) == expected, 40.0, "all messages")
    new.ask(f"stop {name}")
    assert ends(alone, static) == UNTOUCHED


def test_pulls_when_java_knows_no_static_topics_then_they_are_refused(
    alone: Alone, static: str, old: ClientPeer
) -> None:
    """A plain pull consumer asks for the queues first."""
    name = f"L{next(_numbers)}"
    old.ask(f"puller {name} G-{static} {alone.servers}")
    assert "Can not find Message Queue for this topic" in refusal(old, f"drain {name} {static} *")
    old.ask(f"stop {name}")


def test_sends_when_gos_then_they_are_refused(alone: Alone, static: str, go: GoPeer) -> None:
    """Every kind of send; an ordinary topic works before and after."""
    plain = f"Plain{next(_numbers)}"
    new_topic(alone.broker, alone.servers, plain, QUEUES)
    go.ask(f"sync {plain} before")
    for line in (
        f"sync {static} x", f"async {static} 3 x", f"oneway {static} 3 x", f"batch {static} 3 x",
        f"ordered {static} 2 2", f"transaction {static} x commit",
    ):  # fmt: skip
        assert "the topic=" in refusal(go, line), line
    go.ask(f"sync {plain} after")
    # What came before it is in its queue by then.
    wait_until(lambda: sum(ends(alone, plain).values()) == 2, 10.0, "the ordinary messages")
    assert ends(alone, static) == UNTOUCHED


def test_consumer_when_gos_then_it_gets_nothing(alone: Alone, static: str, go: GoPeer) -> None:
    """A push consumer starts, and stays without a queue."""
    name = f"C{next(_numbers)}"
    go.ask(f"push {name} G-{static} {static} * clustering concurrent 0")
    assert_holds(lambda: go.ask(f"got {name}") == "", QUIET_S, "nothing is consumed")
    go.ask(f"stop {name}")
    assert ends(alone, static) == UNTOUCHED
