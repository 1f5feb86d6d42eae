"""The rules of pop in order without a broker: what is in flight, what comes next, Java's file."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.base.errors import RemoteProtocolError
from rmqha.broker.pop.order import FORGET_AFTER_MS, AckOutcome, InFlight, Key, OrderTable
from rmqha.remoting import fastjson

KEY: Key = ("T", "G", 2)
POP_MS, INVISIBLE_MS = 1_000_000, 30_000
END_MS = POP_MS + INVISIBLE_MS

FROM_JAVA = (
    b'{"table":{"T@G":{2:{"cm":1,"i":30000,"l":1000003,"o":[10,1,4],"oc":{10:2},'
    b'"ot":{11:1060000},"popTime":1000000}},"U@H":{}}}'
)
"""In the form of a Java 5.3.3 broker: the first offset, then distances from it; bare keys."""


def table_of(*offsets: int, attempt_id: str | None = None, queues_max: int = 100) -> OrderTable:
    """A table with one queue in flight."""
    table = OrderTable(queues_max)
    table.handed(KEY, attempt_id, POP_MS, INVISIBLE_MS, offsets)
    return table


def test_queue_when_something_is_in_flight_then_it_waits_for_the_last_of_it() -> None:
    """Order: the next messages may only go out behind these."""
    table = table_of(5, 6, 7)
    assert table.blocked_until(KEY) == END_MS
    assert table.blocked_until(("T", "Other", 2)) == 0
    assert table.acknowledge(KEY, 5, POP_MS, 5) == AckOutcome(6)
    assert table.change(KEY, 6, POP_MS, END_MS - 10_000)
    assert table.blocked_until(KEY) == END_MS, "the third still has its time"
    assert table.change(KEY, 7, POP_MS, END_MS + 10_000)
    assert table.blocked_until(KEY) == END_MS + 10_000
    assert table.acknowledge(KEY, 7, POP_MS, 6) == AckOutcome(6), (
        "the offset waits for the one before"
    )
    assert table.blocked_until(KEY) == END_MS - 10_000
    assert table.acknowledge(KEY, 6, POP_MS, 6) == AckOutcome(8)
    assert table.blocked_until(KEY) == 0


def test_attempt_when_it_asks_again_then_it_is_let_in_and_counts_nothing() -> None:
    """A client whose answer was lost asks by the same attempt id."""
    table = table_of(5, 6, attempt_id="one")
    assert table.blocked_until(KEY, "one") == 0
    assert table.blocked_until(KEY, "two") == table.blocked_until(KEY) == END_MS
    assert table.handed(KEY, "one", POP_MS + 1, INVISIBLE_MS, (5, 6)) == "0 2 0"
    assert table_of(5).blocked_until(KEY, None) == END_MS, "no attempt is nobody's"


def test_messages_when_they_go_out_again_then_they_are_counted() -> None:
    """``orderCountInfo``, in Java's form: by offset, then the least for clients of queues."""
    table = table_of(5, 6)
    assert table.handed(KEY, None, END_MS, INVISIBLE_MS, (5, 6)) == "0 qo2%5 1;0 qo2%6 1;0 2 1"
    assert table.handed(KEY, None, END_MS, INVISIBLE_MS, (6, 7)) == "0 qo2%6 2;0 2 0"
    assert table.handed(KEY, None, END_MS, INVISIBLE_MS, (8,)) == "0 2 0"


def test_acknowledgement_when_it_is_late_or_wrong_then_it_moves_nothing() -> None:
    """Only who holds a message may say that it is done."""
    table = table_of(5, 7)
    assert table.acknowledge(KEY, 4, POP_MS, 5) == AckOutcome(None), "done already"
    assert table.acknowledge(KEY, 5, POP_MS - 1, 5) == AckOutcome(None), "popped again since"
    assert table.acknowledge(KEY, 6, POP_MS, 5) == AckOutcome(None, illegal=True)
    assert not table.change(KEY, 6, POP_MS, END_MS)
    assert not table.change(KEY, 5, POP_MS - 1, END_MS)
    assert table.blocked_until(KEY) == END_MS


def test_acknowledgement_when_nothing_is_known_then_no_message_is_skipped() -> None:
    """A new master does not know what is in flight; Java moves the offset over the ones before."""
    table = OrderTable(10)
    assert table.acknowledge(KEY, 5, POP_MS, 5) == AckOutcome(6)
    assert table.acknowledge(KEY, 7, POP_MS, 5) == AckOutcome(None)
    assert table.acknowledge(KEY, 7, POP_MS, None) == AckOutcome(None)


def test_queue_when_the_group_has_passed_what_was_in_flight_then_it_is_open() -> None:
    """Another master has seen the acknowledgements: the offset tells of them, and nothing else does."""
    table = table_of(5, 7, 9)
    assert table.change(KEY, 9, POP_MS, END_MS + 1)
    assert table.change(KEY, 7, POP_MS, END_MS + 2)
    assert [table.blocked_until(KEY, kept=kept) for kept in (None, 5, 7, 8, 9, 10)] == [
        END_MS + 2, END_MS + 2, END_MS + 2, END_MS + 1, END_MS + 1, 0,
    ]  # fmt: skip


def test_acknowledgement_when_the_group_is_farther_then_its_offset_never_goes_back() -> None:
    """What was in flight before another master had its turn is partly done."""
    table = table_of(5, 6, 7, 8)
    assert table.acknowledge(KEY, 8, POP_MS, 7) == AckOutcome(7)
    assert table.acknowledge(KEY, 7, POP_MS, 7) == AckOutcome(9)


def test_acknowledgement_when_all_that_is_known_is_passed_then_it_counts_as_without_it() -> None:
    """Another master has handed the message out, whose time this table does not know."""
    table = table_of(5, 6)
    assert table.acknowledge(KEY, 8, POP_MS + 1, 7) == AckOutcome(None)
    assert table.acknowledge(KEY, 7, POP_MS + 1, 7) == AckOutcome(8)


def test_table_when_full_then_newcomers_have_no_room_until_it_is_cleaned() -> None:
    """popOrderQueuesMax; queues that are gone or idle for a day make room."""
    table = table_of(5, queues_max=1)
    other: Key = ("T", "G", 3)
    assert table.has_room(KEY)
    assert not table.has_room(other)
    assert table.clean(POP_MS + FORGET_AFTER_MS, lambda _: True) == 0
    assert table.clean(POP_MS + FORGET_AFTER_MS + 1, lambda _: True) == 1
    assert table.has_room(other)
    table = table_of(5)
    assert table.clean(POP_MS, lambda key: key != KEY) == 1
    assert len(table) == 0


def test_file_when_it_is_javas_then_it_is_read_and_written_back() -> None:
    """``consumerOrderInfo.json`` changes hands with the store."""
    table = OrderTable(10)
    table.load(fastjson.loads(FROM_JAVA))
    assert len(table) == 1, "queues without anything in flight are not kept"
    assert table.blocked_until(KEY) == 1_060_000
    assert table.acknowledge(KEY, 11, POP_MS, 11) == AckOutcome(14)
    assert table.handed(KEY, None, END_MS, 1, (10,)) == "0 qo2%10 3;0 2 3"
    members = table_of(10, 11, 14, attempt_id="a").members()
    assert members == {
        "table": {
            "T@G": {
                "2": {
                    "a": "a", "cm": 0, "i": INVISIBLE_MS, "l": POP_MS, "o": [10, 1, 4],
                    "popTime": POP_MS,
                }
            }
        }
    }  # fmt: skip


@pytest.mark.parametrize(
    "table",
    [
        "[1]", '{"T":{}}', '{"T@G":[]}', '{"T@G":{"x":{"o":[1]}}}', '{"T@G":{"-1":{"o":[1]}}}',
        '{"T@G":{"1":{"o":["1"]}}}', '{"T@G":{"1":{"o":[-1]}}}', '{"T@G":{"1":{"o":5}}}',
        '{"T@G":{"1":{"o":[1],"popTime":"x"}}}', '{"T@G":{"1":{"o":[1],"ot":{"x":1}}}}',
        '{"T@G":{"1":{"o":[1],"a":7}}}', json.dumps({"T@G": {"1": {"o": [1] * 33}}}),
    ],
)  # fmt: skip
def test_file_when_it_is_garbage_then_it_is_refused_whole(table: str) -> None:
    """A damaged file is no empty file."""
    known = table_of(1)
    with pytest.raises(RemoteProtocolError):
        known.load(json.loads(f'{{"table":{table}}}'))
    assert known.blocked_until(KEY) == END_MS


OFFSETS = st.lists(st.integers(0, 1 << 40), min_size=1, max_size=32, unique=True).map(sorted)


@settings(max_examples=50)
@given(offsets=OFFSETS, data=st.data())
def test_offset_when_acknowledged_in_any_order_then_it_never_passes_what_is_left(
    offsets: list[int], data: st.DataObject
) -> None:
    """What is not acknowledged is at or behind the group's offset, and comes again."""
    table = table_of(*offsets)
    done: set[int] = set()
    kept = offsets[0]
    for offset in data.draw(st.permutations(offsets)):
        acked = table.acknowledge(KEY, offset, POP_MS, kept)
        done.add(offset)
        left = [one for one in offsets if one not in done]
        assert acked.next_offset == (left[0] if left else offsets[-1] + 1)
        assert table.blocked_until(KEY) == (END_MS if left else 0)
        kept = acked.next_offset


@pytest.mark.slow
@settings(max_examples=20)
@given(
    one=st.builds(
        InFlight, st.none() | st.text(max_size=5), st.integers(0, 1 << 50),
        st.integers(0, 1 << 40), OFFSETS.map(tuple), st.integers(0, (1 << 32) - 1),
        st.dictionaries(st.integers(0, 1 << 40), st.integers(0, 1 << 50), max_size=3),
        st.dictionaries(st.integers(0, 1 << 40), st.integers(1, 100), max_size=3),
        st.integers(0, 1 << 50),
    )
)  # fmt: skip
def test_what_is_in_flight_when_it_was_written_then_it_is_read_as_it_was(one: InFlight) -> None:
    """A restart forgets nothing."""
    assert InFlight.of(fastjson.loads(fastjson.dumps(one.members()))) == one
