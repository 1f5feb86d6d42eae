"""SQL92 filters: the language, without and with a broker. Java is the judge in tests/interop."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.broker.groups.consumers import subscription
from rmqha.broker.pull.filters import (
    CHARACTERS_MAX,
    SCAN_FILTERED_MAX,
    SELECTORS_MAX,
    SQL92,
    STEPS_MAX,
    Matches,
    Selectors,
    properties_of,
)
from rmqha.broker.pull.sql92 import DEPTH_MAX, TEXT_MAX, SelectorIllegal, compile_selector
from rmqha.remoting import fastjson
from rmqha.store import properties as props
from rmqha.store.record import Message, encode_into, encoded_size, pack_host
from tests.broker.replicas import TOPIC, ReplicaCluster, send_fields
from tests.broker.subscriber import Subscriber, heartbeat, pull_fields
from tests.broker.test_pop_in_simulator import ack, pop, pop_until

GROUP = "G"


@pytest.mark.parametrize(
    ("selector", "properties", "wanted"),
    [
        ("a = 'x'", {"a": "x"}, True), ("a = 'x'", {"a": "X"}, False), ("a = 'x'", {}, False),
        ("a <> 'x'", {"a": "y"}, True), ("a <> 'x'", {}, False), ("A = 'x'", {"a": "x"}, False),
        ("a > 3", {"a": "4"}, True), ("a > 3", {"a": "4.5"}, False), ("a > 3.0", {"a": "4.5"}, True),
        ("a > 3", {"a": "4000000000"}, False), ("a > 3000000000", {"a": "4000000000"}, True),
        ("3 < a", {"a": "4"}, True), ("a < b", {"a": "9", "b": "10"}, True), ("a < b", {"a": "9"}, False),
        ("a between 1 AND 3", {"a": "3"}, True), ("a NOT BETWEEN 1 and 3", {"a": "3"}, False),
        ("a IN ('x','y''z')", {"a": "y'z"}, True), ("a NOT IN ('x')", {"a": "y"}, True),
        ("a NOT IN ('x')", {}, False), ("a IS NULL", {}, True), ("a IS NOT NULL", {"a": "0"}, True),
        ("a CONTAINS 'b'", {"a": "abc"}, True), ("a NOT CONTAINS 'b'", {"a": "abc"}, False),
        ("a STARTSWITH 'ab'", {"a": "abc"}, True), ("a ENDSWITH 'bc'", {"a": "abc"}, True),
        ("a NOT CONTAINS 'b'", {}, False), ("a = TRUE", {"a": "True"}, True), ("a", {"a": "true"}, False),
        ("NOT (a = 'x')", {"a": "y"}, True), ("NOT (a = 'x')", {}, False),
        ("a = 'x' OR b = 'y'", {"b": "y"}, True), ("a = 'x' AND b = 'y'", {"b": "y"}, False),
        ("a = 'x' OR b = 'y' AND c = 'z'", {"a": "x"}, True),
        ("a > 1 OR b = 'y'", {"a": "no number", "b": "y"}, False),
        ("b = 'y' OR a > 1", {"a": "no number", "b": "y"}, True),
        ("a > -3 -- the least\n AND /* and */ a < +5", {"a": "-2"}, True), ("TRUE", {}, True),
    ],
)  # fmt: skip
def test_selector_when_asked_of_a_message_then_as_java_says(
    selector: str, properties: dict[str, str], wanted: bool
) -> None:
    """Unknown is not wanted; a text that is no number ends the whole evaluation."""
    assert compile_selector(selector)(properties) is wanted


@pytest.mark.parametrize(
    "selector",
    [
        "", " ", "a >", "a > 'x'", "a > TRUE", "1", "'a'", "-a", "a = NULL", "a BETWEEN 3 AND 1",
        "a BETWEEN 'x' AND 'y'", "a IN ()", "a IN (1)", "'a' IN ('a')", "a LIKE 'x'", "a > 0.0",
        "a > 9223372036854775808", "a > 1e400", "TRUE = 1", "a = 'x", "a # 1", "a = 1 b", "a = 1)",
        "(a = 1", "NOT", "a IS", "a IS NOT", "a + 1 = 2", "a CONTAINS b", "a > 1 > 2", "007 < a",
        "/* a = 1", "(" * (DEPTH_MAX + 1) + "a = 1" + ")" * (DEPTH_MAX + 1), "a = 1" + " = a" * DEPTH_MAX,
        "a = '" + "x" * TEXT_MAX + "'",
    ],
)  # fmt: skip
def test_text_when_it_is_no_selector_then_it_is_refused(selector: str) -> None:
    """A consumer that gets other messages than it meant would be worse."""
    with pytest.raises(SelectorIllegal):
        compile_selector(selector)


@settings(max_examples=40)
@given(text=st.text(st.sampled_from("aAb1.0'()=<>-+*/ eENTORDIS\n,$_\"é"), max_size=30) | st.text())
def test_garbage_when_compiled_then_it_is_a_selector_or_refused(text: str) -> None:
    """Whatever it is; nothing else comes out of a client's text."""
    with contextlib.suppress(SelectorIllegal):
        assert compile_selector(text)({"a": "1", "A": "x"}) in (True, False)


@pytest.mark.costly
@settings(max_examples=40)
@given(data=st.data())
def test_logic_when_random_then_it_is_sqls(data: st.DataObject) -> None:
    """Three values: min, max and the opposite of false < unknown < true."""
    known = {"t": "1", "f": "0"}

    def make(depth: int) -> tuple[str, int]:
        kind = data.draw(st.sampled_from(("leaf", "and", "or", "not") if depth else ("leaf",)))
        if kind == "leaf":
            return data.draw(st.sampled_from((("t = 1", 1), ("f = 1", -1), ("u = 1", 0))))
        text, value = make(depth - 1)
        if kind == "not":
            return f"NOT ({text})", -value
        other, more = make(depth - 1)
        joined = f"({text}) {kind} ({other})"
        return joined, min(value, more) if kind == "and" else max(value, more)

    text, value = make(4)
    assert compile_selector(text)(known) is (value == 1)


@given(
    topic=st.sampled_from(["T", "t" * 127, "r" * 200]), body=st.binary(max_size=50),
    pairs=st.dictionaries(
        st.text("abz_", min_size=1, max_size=5), st.text("xyz é1", min_size=1, max_size=9), max_size=5
    ), v6=st.booleans(),
)  # fmt: skip
@settings(max_examples=20)
def test_record_when_looked_at_then_its_properties_are_found(
    topic: str, body: bytes, pairs: dict[str, str], v6: bool
) -> None:
    """Behind hosts of both sizes, and names of both widths."""
    host = pack_host("::1" if v6 else "127.0.0.1", 1)
    message = Message(topic, 0, body, props.encode(pairs), 1, host, host)
    size = encoded_size(message, property_crc=False)
    buffer = bytearray(size)
    encode_into(buffer, 0, message, size=size, queue_offset=0, physical_offset=0, store_timestamp=1)
    assert properties_of(memoryview(buffer)) == pairs


def test_selectors_when_there_are_too_many_then_the_oldest_go() -> None:
    """Texts come from clients."""
    selectors = Selectors()
    for number in range(SELECTORS_MAX + 5):
        assert callable(selectors.find(f"a = {number}"))
    assert len(selectors) == SELECTORS_MAX
    assert selectors.matches(subscription("T", "a || b")) is None
    assert isinstance(selectors.matches(subscription("T", "a", "XPATH")), str)
    assert isinstance(selectors.find("a ="), str)


def test_selectors_when_their_texts_are_long_then_few_are_kept() -> None:
    """A thousand texts of megabytes, each refused, must not stay."""
    selectors = Selectors()
    for number in range(40):
        assert isinstance(selectors.find(f"{number}" + "x" * (1 << 20)), str)
    assert sum(map(len, selectors._known)) <= CHARACTERS_MAX
    assert isinstance(selectors.find("x" * (CHARACTERS_MAX + 1)), str)
    assert len(selectors) <= 4


@pytest.mark.parametrize(
    "text",
    ["-" * TEXT_MAX, "--" * 30_000 + "\na = 1", "-- \n" * 16_000 + "a = 1", "/*" * 30_000,
     "a = 1 AND " * 6_500 + "a = 1", "'" * TEXT_MAX, "a IN (" + "'b'," * 16_000 + "'c')"],
)  # fmt: skip
def test_text_of_a_stranger_costs_no_more_than_its_length(text: str) -> None:
    """One pull with 64 KB of signs took 20 s, and its broker's mastership."""
    began = time.process_time()
    with contextlib.suppress(SelectorIllegal):
        compile_selector(text)
    assert time.process_time() - began < 1.0


def test_selector_when_a_message_costs_much_then_a_pull_looks_at_few() -> None:
    """6,500 ANDs are 9.5 ms a record, and a pull looks at a thousand."""
    with pytest.raises(SelectorIllegal, match="steps"):
        compile_selector("a = 1 AND " * 2_000 + "a = 1")
    assert compile_selector("a IN (" + "'b'," * 4_000 + "'c')")({"a": "c"})
    selectors = Selectors()
    cheap = selectors.matches(subscription("T", "a = 1", SQL92))
    dear = selectors.matches(subscription("T", "a = 1 AND " * 240 + "a = 1", SQL92))
    assert isinstance(cheap, Matches)
    assert isinstance(dear, Matches)
    assert (cheap.scan_max, dear.scan_max) == (SCAN_FILTERED_MAX, STEPS_MAX // 964)
    properties = {"a": "1"}
    began = time.process_time()
    for _ in range(dear.scan_max):
        assert dear.selector(properties)
    assert time.process_time() - began < 0.1


# -- with a broker ---------------------------------------------------------------------------------


@pytest.fixture
def cluster() -> Iterator[ReplicaCluster]:
    """A replica with ``enablePropertyFilter``, and ten messages numbered by the property n."""
    one = ReplicaCluster(seed=61, replicas=1, enablePropertyFilter="true")
    one.boot_all()
    for number in range(10):
        put(one, number)
    yield one
    one.close()


def put(cluster: ReplicaCluster, number: int) -> None:
    """A message in queue 0."""
    properties = f"{send_fields(0)['i']}n\x01{number}\x02"
    assert cluster.send(4 * number, i=properties) is not None
    cluster.run_for(20)


def connect(cluster: ReplicaCluster) -> Subscriber:
    """A client of the master."""
    master = cluster.master()
    assert master is not None
    return Subscriber(cluster, master.config.address)


def bodies(body: bytes) -> list[int]:
    """The numbers of the messages in an answer."""
    found, at = [], 0
    while at < len(body):
        size = int.from_bytes(body[at : at + 4])
        found.append(int(properties_of(memoryview(body)[at : at + size])["n"]))
        at += size
    return found


def sql(text: str, **more: object) -> dict[str, object]:
    """A pull that carries its selector."""
    return pull_fields(
        GROUP, TOPIC, **{"expressionType": "SQL92", "subscription": text, "sysFlag": 4, **more}
    )


def test_pull_when_it_carries_a_selector_then_only_what_it_wants_comes(
    cluster: ReplicaCluster,
) -> None:
    """And the place moves over the rest, as with tags."""
    client = connect(cluster)
    assert bodies(client.ask(11, sql("n BETWEEN 3 AND 5 OR n = 9")).body) == [3, 4, 5, 9]
    none = client.ask(11, sql("n > 100"))
    assert (none.code, (none.ext_fields or {})["nextBeginOffset"]) == (20, "10")
    bad = client.ask(11, sql("n >"))
    assert (bad.code, bad.remark) == (23, "parse the consumer's subscription failed")
    assert client.ask(11, sql("n > 1", expressionType="XPATH")).code == 23


@pytest.mark.costly
def test_pull_when_its_selector_came_by_heartbeat_then_the_newest_counts(
    cluster: ReplicaCluster,
) -> None:
    """A selector that was replaced must not be served; a wrong one is Java's 27."""
    client = connect(cluster)

    def beat(text: str, version: int) -> None:
        body = heartbeat("c1", GROUP, TOPIC, expression=text, version=version, kind="SQL92")
        assert client.ask(34, body=body).code == 0

    beat("n < 2", 1)
    asked = {"sysFlag": 0, "subVersion": 1}
    assert bodies(client.ask(11, sql("", **asked)).body) == [0, 1]
    assert client.ask(11, sql("", sysFlag=0, subVersion=2)).code == 25
    beat("n > 7", 2)
    assert bodies(client.ask(11, sql("", sysFlag=0, subVersion=2)).body) == [8, 9]
    beat("n >", 3)
    wrong = client.ask(11, sql("", sysFlag=0, subVersion=3))
    assert wrong.code == 27
    assert "Your expression may be wrong" in (wrong.remark or "")


def test_pull_when_held_then_only_a_wanted_message_wakes_it(cluster: ReplicaCluster) -> None:
    """Long polling by properties."""
    client = connect(cluster)
    number = client.tell(11, sql("n = 99", queueOffset=10, sysFlag=6))
    # A pull that comes after the message is answered at once: it may ask further on.
    master = cluster.master()
    assert master is not None
    cluster.until(lambda: len(master._pull.waiting) == 1, "the pull to be held", 2_000)
    put(cluster, 50)
    cluster.run_for(200)
    assert number not in client.answers
    put(cluster, 99)
    cluster.until(lambda: number in client.answers, "the answer", 2_000)
    assert bodies(client.answers[number].body) == [99]


@pytest.mark.costly
def test_check_when_asked_then_the_reason_is_told(cluster: ReplicaCluster) -> None:
    """46, before a client starts."""
    client = connect(cluster)

    def check(text: str) -> tuple[int, str | None]:
        body = {"clientId": "c", "group": GROUP, "subscriptionData": {
            "topic": TOPIC, "subString": text, "expressionType": "SQL92", "subVersion": 1,
        }}  # fmt: skip
        answer = client.ask(46, body=fastjson.dumps(body))
        return answer.code, answer.remark

    assert check("n > 1") == (0, None)
    code, remark = check("n > 'x'")
    assert (code, "compares numbers" in (remark or "")) == (23, True)


def test_filter_when_it_is_not_enabled_then_javas_text() -> None:
    """The default: ``enablePropertyFilter=false``; 25 turns it on while the broker runs."""
    with ReplicaCluster(seed=62, replicas=1) as cluster:
        cluster.boot_all()
        put(cluster, 0)
        client = connect(cluster)
        refused = client.ask(11, sql("n = 0"))
        text = "The broker does not support consumer to filter message by SQL92"
        assert (refused.code, refused.remark) == (1, text)
        assert client.ask(25, body=b"enablePropertyFilter=true\n").code == 0
        assert bodies(client.ask(11, sql("n = 0")).body) == [0]


@pytest.mark.costly
def test_pop_when_it_has_a_selector_then_the_rest_is_passed_and_retries_come(
    cluster: ReplicaCluster,
) -> None:
    """Java pops by selectors whatever ``enablePropertyFilter`` says."""
    _, found = pop(cluster, expType="SQL92", exp="n > 6")
    assert sorted(one.offset for one in found) == [7, 8, 9]
    assert ack(cluster, found[0]) == 0
    again = pop_until(cluster)
    cluster.run_for(500)
    again += pop(cluster)[1]
    assert sorted(one.body for one in again) == sorted(one.body for one in found[1:])


def test_pop_when_much_is_passed_over_then_it_finds_what_is_behind(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pop looks at so many at a time, and goes on by itself."""
    monkeypatch.setattr("rmqha.broker.pull.filters.SCAN_FILTERED_MAX", 3)
    before = cluster.loop.time()
    code, found = pop(cluster, expType="SQL92", exp="n = 9", pollTime=10_000)
    assert (code, [one.offset for one in found]) == (0, [9])
    assert cluster.loop.time() - before < 1
