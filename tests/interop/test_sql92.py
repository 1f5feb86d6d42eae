"""SQL92 filters: Java's own filter library as the judge of ours, and Java's clients with both brokers.

``RMQHA_INTEROP_SEED`` repeats the random selectors of an earlier run. ``RMQHA_INTEROP_JAVA_BROKER=1``
runs the client's test against a Java broker as well, unchanged.
"""

from __future__ import annotations

import base64
import itertools
import os
import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from rmqha.broker.pull.sql92 import SelectorIllegal, compile_selector
from rmqha.testing.real import wire
from rmqha.testing.real.processes import wait_until
from tests.interop import required
from tests.interop.alone import KINDS, Alone, new_topic
from tests.interop.client_peer import ClientPeer
from tests.interop.peers import PeerError

FILTERS = Path(__file__).parent / "java" / "FilterPeer.java"
ROUNDS = 3_000

NAMES = ("a", "b", "A", "_x$1", "empty")
TEXTS = (
    "", "0", "1", "5", "-3", "+7", "3.5", "1e3", "-0.0", "0.0", " 4 ", "4f", "0x1p3", "NaN",
    "Infinity", "true", "TRUE", "false", "abc", "a'b", "é", "2147483648", "9223372036854775808",
    "1_000", "٣", "x y",
)  # fmt: skip
NUMBERS = (
    "0", "1", "5", "7", "10", "2147483647", "2147483648", "9223372036854775807", "3.5", "1e3",
    ".5", "5.", "5L", "0.0", "1e400", "9223372036854775808", "007", "1E-3",
)  # fmt: skip
WORDS = (
    "NOT", "AND", "or", "Between", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH",
    "ENDSWITH", "=", "<>", "<", ">", "<=", ">=", "(", ")", ",", "+", "-", "/* c */", "-- c\n", ";",
    "!", "like", "''",
)  # fmt: skip


ARRIVED_S = 40.0
_numbers = itertools.count(1)


class Maker:
    """Random selectors: mostly by the grammar, sometimes of any words."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def selector(self) -> str:
        """One selector; one in ten is noise, which Java reads up to where it makes sense."""
        if self.rng.random() < 0.1:
            words = (*WORDS, *NAMES, *NUMBERS, "'x'", "'a''b'")
            return " ".join(self.rng.choices(words, k=self.rng.randint(1, 6)))
        return self._boolean(self.rng.randint(1, 4))

    def properties(self) -> dict[str, str]:
        """A message's; some names miss. Values are never empty on the wire, nor here."""
        chosen = [name for name in NAMES if self.rng.random() < 0.7]
        return {name: self.rng.choice(TEXTS[1:]) for name in chosen}

    def _boolean(self, depth: int) -> str:
        pick = self.rng.choice
        if depth <= 0:
            return self._simple()
        one, other = self._boolean(depth - 1), self._boolean(depth - 2)
        return pick(
            (
                f"{one} AND {other}", f"{one} or {other}", f"NOT {one}", f"({one})",
                f"({one}) = {pick(('TRUE', 'false', self._value()))}", f"({one}) IS NULL",
                f"{pick(NAMES)} <> ({one})", self._simple(),
            )
        )  # fmt: skip

    def _simple(self) -> str:
        pick, value = self.rng.choice, self._value
        text = pick(TEXTS).replace("'", "''")
        no = pick(("", "", "NOT "))
        return pick(
            (
                f"{value()} {pick(('=', '<>', '<', '>', '<=', '>='))} {value()}",
                f"{pick(NAMES)} {pick(('=', '<>', '<', '>', '<=', '>='))} {pick(NUMBERS)}",
                f"{pick(NAMES)} {no}BETWEEN {value()} AND {value()}",
                f"{pick(NAMES)} {no}BETWEEN {pick(NUMBERS)} AND {pick(NUMBERS)}",
                f"{pick(NAMES)} {no}IN ('{text}', 'abc','5')",
                f"{value()} {no}{pick(('CONTAINS', 'STARTSWITH', 'endswith'))} '{text[:2]}'",
                f"{value()} IS {pick(('', 'NOT '))}NULL",
                pick(NAMES), pick(("TRUE", "FALSE", "NULL")),
            )
        )  # fmt: skip

    def _value(self) -> str:
        pick = self.rng.choice
        text = pick(TEXTS).replace("'", "''")
        number = pick(NUMBERS)
        return pick((pick(NAMES), pick(NAMES), number, f"-{number}", f"+{number}", f"'{text}'"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For all processes."""
    return tmp_path_factory.mktemp("sql92")


@pytest.fixture(scope="module")
def java(folder: Path) -> Iterator[ClientPeer]:
    """Java's filter library."""
    required.require_classpath("5.3.3")
    with ClientPeer(folder / "filters", "5.3.3", "filters", FILTERS) as peer:
        yield peer


def said_by_java(java: ClientPeer, selector: str, properties: Mapping[str, str]) -> str:
    """``illegal``, ``true`` or ``false``."""
    words = [selector, *(word for pair in properties.items() for word in pair)]
    coded = (base64.b64encode(word.encode()).decode() or "=" for word in words)
    return java.ask(f"is {' '.join(coded)}")


def said_by_us(selector: str, properties: Mapping[str, str]) -> str:
    """The same words."""
    try:
        return str(compile_selector(selector)(properties)).lower()
    except SelectorIllegal:
        return "illegal"


def test_selectors_when_random_then_both_say_the_same_of_every_message(java: ClientPeer) -> None:
    """Legal or not, and what is delivered; only what Java leaves unread is refused here."""
    seed = int(os.environ.get("RMQHA_INTEROP_SEED") or random.randrange(1 << 32))
    print(f"RMQHA_INTEROP_SEED={seed}")
    maker = Maker(seed)
    seen: Counter[str] = Counter()
    for _ in range(ROUNDS):
        selector, properties = maker.selector(), maker.properties()
        theirs, ours = said_by_java(java, selector, properties), said_by_us(selector, properties)
        if theirs != "illegal" and ours == "illegal":
            # Java stops reading where nothing fits any more, and says nothing of the rest.
            with pytest.raises(SelectorIllegal, match=r"expected the end|begins nothing"):
                compile_selector(selector)
            seen["unread"] += 1
            continue
        assert ours == theirs, f"{selector!r} of {properties}"
        seen[ours] += 1
    print(dict(seen))
    assert min(seen["true"], seen["false"], seen["illegal"]) > ROUNDS // 20
    assert seen["unread"] < ROUNDS // 10


# -- clients ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=KINDS)
def alone(request: pytest.FixtureRequest, folder: Path) -> Iterator[Alone]:
    """A broker that filters by properties, and its name server."""
    required.require_classpath("5.3.3")
    settings = {"enablePropertyFilter": True, "timerWheelEnable": True}
    with Alone(request.param, folder / request.param, **settings) as one:
        yield one


@pytest.fixture(scope="module")
def clients(folder: Path, alone: Alone) -> Iterator[ClientPeer]:
    """Java's clients."""
    with ClientPeer(folder / f"clients-{alone.kind}", "5.3.3") as peer:
        peer.ask(f"producer P PG {alone.servers}")
        yield peer


def numbered(alone: Alone, clients: ClientPeer, count: int) -> str:
    """A new topic with ``m-0``, ``m-1``, ... whose property ``n`` counts as they do.

    All of them are in their queues: a single pull finds what is there a moment after the answer
    to a send, which need not be all.
    """
    topic = f"Selected{next(_numbers)}"
    new_topic(alone.broker, alone.servers, topic, 2)
    clients.ask(f"send P {topic} -1 {count} m Red n")
    with wire.Connection(alone.broker.address) as connection:

        def dispatched() -> bool:
            ends = [connection.ask(30, {"topic": topic, "queueId": n}).ext for n in range(2)]
            return sum(int(end["offset"]) for end in ends) == count

        wait_until(dispatched, ARRIVED_S, "messages in their queues")
    return topic


def test_clients_when_they_subscribe_by_sql_then_they_get_what_they_asked_for(
    alone: Alone, clients: ClientPeer
) -> None:
    """Push, whose broker was told by heartbeat, and lite pull, whose requests say it; then more."""
    topic = numbered(alone, clients, 20)
    selector = "sql:n~BETWEEN~5~AND~7~OR~n~>~17~AND~TAGS~=~'Red'"
    clients.ask(f"push A G{topic} {alone.servers} {topic} {selector} clustering concurrent first")
    wanted = {f"m-{number}" for number in (5, 6, 7, 18, 19)}
    wait_until(lambda: set(clients.bodies("got A")) >= wanted, ARRIVED_S, "the selected")
    clients.ask(f"send P {topic} -1 7 more Red n")
    wanted |= {"more-5", "more-6"}
    wait_until(lambda: set(clients.bodies("got A")) >= wanted, ARRIVED_S, "the later ones")
    assert sorted(clients.bodies("got A")) == sorted(wanted)
    clients.ask(f"lite L L{topic} {alone.servers} {topic} {selector} first")
    found: list[str] = []

    def polled() -> bool:
        found.extend(clients.bodies("poll L 10 1000"))
        return set(found) >= wanted

    wait_until(polled, ARRIVED_S, "what the lite consumer wants")
    assert sorted(found) == sorted(wanted)
    clients.ask("stop A")
    clients.ask("stop L")


def test_client_when_its_selector_is_none_then_it_is_told_before_it_starts(
    alone: Alone, clients: ClientPeer
) -> None:
    """46; the client does not start."""
    topic = numbered(alone, clients, 1)
    with pytest.raises(PeerError, match="23"):
        clients.ask(f"push B G{topic} {alone.servers} {topic} sql:n~> clustering concurrent first")


def test_requests_when_they_carry_selectors_then_both_answer_alike(
    alone: Alone, clients: ClientPeer
) -> None:
    """11 and 200050 by hand: what is wanted, nothing, and no selector at all."""
    topic = numbered(alone, clients, 10)
    pull = {
        "consumerGroup": topic, "topic": topic, "queueId": 0, "queueOffset": 0, "maxMsgNums": 32,
        "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subVersion": 0,
        "expressionType": "SQL92",
    }  # fmt: skip
    pop = {
        "consumerGroup": topic, "topic": topic, "queueId": -1, "maxMsgNums": 32,
        "invisibleTime": 60_000, "pollTime": 0, "initMode": 0, "expType": "SQL92",
    }  # fmt: skip
    with wire.Connection(alone.broker.address) as connection:

        def pulled(selector: str) -> tuple[int, list[int]]:
            answer = connection.invoke(11, {**pull, "subscription": selector})
            found = wire.parse_messages(answer.body) if answer.code == 0 else []
            return answer.code, [one.queue_offset for one in found]

        # Turns put every other message into queue 0.
        code, offsets = pulled("n >= 0")
        assert (code, offsets) == (0, list(range(5)))
        assert len(pulled("n > 7")[1]) == 1
        assert pulled("n = 'x'") == (20, [])
        popped: list[bytes] = []

        def two() -> bool:
            fields = {**pop, "exp": "n IN ('3', '4')", "bornTime": int(time.time() * 1000)}
            answer = connection.invoke(200050, fields)
            popped.extend(one.body for one in wire.parse_messages(answer.body))
            return len(popped) == 2

        wait_until(two, ARRIVED_S, "two messages")
        assert sorted(popped) == [b"m-3", b"m-4"]
        bad = connection.invoke(200050, {**pop, "exp": "n >", "bornTime": int(time.time() * 1000)})
        assert (bad.code, bad.remark) == (23, "parse the consumer's subscription failed")
