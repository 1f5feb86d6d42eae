"""Rows to messages: what no broker would take is found here, and batches are what brokers read."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from rmqha.base.errors import ConfigInvalid, MessageIllegal
from rmqha.pipeline.live.earlier_life import DEDUP_ID
from rmqha.pipeline.live.messages import (
    WAITING_FACTOR,
    Batch,
    Batcher,
    Outgoing,
    Row,
    RowId,
    Turns,
    to_message,
)
from rmqha.pipeline.live.options import write_options
from rmqha.pipeline.live.sink import LiveStreamWriter, LiveWriter
from rmqha.store import properties as props
from rmqha.store.batches import split_client_batch
from tests.store.harness import message as stored_message

ROW_ID = RowId("q", "7", 2, 41)
NOW_MS = 1_700_000_000_000
GIVEN = {"nameServer": "a:1", "topic": "usual"}
OPTIONS = write_options(GIVEN)


def made(row: Row, **options: str) -> Outgoing:
    """The message of a row."""
    return to_message(row, ROW_ID, write_options(GIVEN | options), NOW_MS)


def test_row_when_whole_then_all_of_it_is_in_the_message() -> None:
    """And the id by which a second copy is known."""
    row = Row("Köln", "orders", "TagA", "k1 k2", {"city": "Köln", "none": None}, 3, "kind")
    found = made(row)
    assert (found.topic, found.body.decode(), found.is_delayed) == ("orders", "Köln", True)
    pairs = props.decode(found.properties)
    unique = pairs.pop("UNIQ_KEY")
    assert len(unique) == 32
    assert pairs == {
        "city": "Köln", "TAGS": "TagA", "KEYS": "k1 k2", "DELAY": "3", DEDUP_ID: "q/7/2/41",
        "__SHARDINGKEY": "kind",
    }  # fmt: skip
    assert made(row) == found, "an attempt that is repeated sends the same"


def test_row_when_it_has_only_a_body_then_the_option_s_topic() -> None:
    """Delay level 0 is none."""
    found = made(Row(b"\x00", delay_level=0))
    assert (found.topic, found.body, found.is_delayed) == ("usual", b"\x00", False)
    assert set(props.decode(found.properties)) == {DEDUP_ID, "UNIQ_KEY"}


@pytest.mark.parametrize(
    ("row", "what"),
    [
        (Row(None), "body is null"),
        (Row(b""), "body is null or empty"),
        (Row(b"x", "or ders"), "or ders"),
        (Row(b"x", "t" * 128), "longer than 127"),
        (Row(b"x", properties={"TAGS": "a"}), "property TAGS"),
        (Row(b"x", properties={"__SHARDINGKEY": "a"}), "property __SHARDINGKEY"),
        (
            Row(b"x", tags="b", properties={"TAGS": "a"}),
            "property TAGS is not what the column tags",
        ),
        (Row(b"x", properties={"INNER_NUM": "2"}), "inner batch"),
        (Row(b"x", properties={"DELAY": "19"}), "delayLevel 19"),
        (Row(b"x", properties={"a\x01": "b"}), "separator"),
        (Row(b"x", tags="a\x02b"), "separator"),
        (Row(b"x", properties={"a": "b" * 33_000}), "properties are too many"),
        (Row(b"x" * 2000), "maxMessageBytes=1000"),
        (Row("half a \ud83d"), "the body is no text"),
        (Row(b"x", tags="\ud83d"), "properties are not text"),
        (Row(b"x", delay_level=19), "delayLevel 19"),
        (Row(b"x", delay_level=-1), "delayLevel -1"),
    ],
)
def test_row_when_it_cannot_be_a_message_then_said_which(row: Row, what: str) -> None:
    """The place of the row is in the text: a job of a million rows is to be mended."""
    options = {"maxMessageBytes": "1000"} if row.body and len(row.body) > 1000 else {}
    with pytest.raises(MessageIllegal, match=f"row q/7/2/41: .*{what}"):
        made(row, **options)


def test_row_when_its_properties_leave_no_room_for_the_broker_then_refused() -> None:
    """A broker adds some of its own, and 32,767 bytes is all that a record has room for."""
    usual = len(made(Row(b"x", properties={"a": "b"})).properties) - 1
    room = 32_767 - 512 - usual
    assert len(made(Row(b"x", properties={"a": "b" * room})).properties) == 32_767 - 512
    with pytest.raises(MessageIllegal, match="properties are too many"):
        made(Row(b"x", properties={"a": "b" * (room + 1)}))


READ = {"TAGS": "TagA", "KEYS": "k1", "UNIQ_KEY": "old", DEDUP_ID: "old", "WAIT": "false",
        "MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "c", "city": "Köln"}  # fmt: skip
WAITED = {"REAL_TOPIC": "orders", "REAL_QID": "0"}


@pytest.mark.parametrize(
    "marks",
    [
        {"TRAN_MSG": "true", "PGROUP": "p", "__transactionId__": "t", **WAITED},
        {"TRAN_MSG": "true", "TRANSACTION_CHECK_TIMES": "1", "TRAN_PREPARED_QUEUE_OFFSET": "0"},
        {"DELAY": "3", **WAITED},
        {"TIMER_DELAY_SEC": "10", "TIMER_OUT_MS": "1700000000000", **WAITED},
        {"TIMER_DELIVER_MS": "1", "TIMER_ROLL_TIMES": "2", "TIMER_OUT_MS": "1"},
        {"DELAY": "0", "RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": "id"},
        {"DELAY": "-1", "RECONSUME_TIME": "17", "MAX_RECONSUME_TIMES": "16"},
        {"POP_CK": "0 0 0", "1ST_POP_TIME": "1"},
    ],
)
def test_row_when_it_was_read_then_nothing_of_its_earlier_life_is_written(
    marks: dict[str, str],
) -> None:
    """By TRAN_MSG a broker would take it for a half message, and show it to nobody."""
    found = made(Row(b"x", tags="TagA", keys="k1", properties=READ | marks))
    pairs = props.decode(found.properties)
    assert pairs.pop("UNIQ_KEY") != "old"
    assert pairs == {"TAGS": "TagA", "KEYS": "k1", "city": "Köln", DEDUP_ID: "q/7/2/41"}
    assert not found.is_delayed, "what has waited does not wait again"


@pytest.mark.parametrize(
    "wish",
    [
        {"TIMER_DELAY_SEC": "10"},
        {"TIMER_DELAY_MS": "10"},
        {"TIMER_DELIVER_MS": "1800000000000"},
        {"__STARTDELIVERTIME": "1800000000000"},
        {"DELAY": "3"},
    ],
)
def test_rows_when_they_wish_for_a_later_delivery_then_each_goes_alone(
    wish: dict[str, str],
) -> None:
    """A broker looks for a wish in a message that came alone; of a batch it delivers all at once."""
    message = made(Row(b"x", properties=wish))
    assert wish.items() <= props.decode(message.properties).items()
    batcher = Batcher(OPTIONS)
    sent = [batch for one in (message, message) for batch in batcher.add(one)]
    assert [one.is_single for one in sent] == [True, True]


def test_row_when_nobody_names_a_topic_then_said() -> None:
    """A null in the column, and no option."""
    with pytest.raises(MessageIllegal, match="no topic"):
        to_message(Row(b"x"), ROW_ID, write_options({"nameServer": "a:1"}), NOW_MS)


ROWS = st.lists(
    st.tuples(
        st.sampled_from(["t", "u", "v"]), st.integers(1, 400), st.sampled_from([None, None, 1])
    ),
    max_size=60,
)


@pytest.mark.costly
@settings(max_examples=40)
@given(ROWS, st.integers(200, 900), st.integers(1, 9))
def test_batches_when_made_then_every_message_once_within_the_limits(
    rows: list[tuple[str, int, Any]], most_bytes: int, most: int
) -> None:
    """Of one topic each, in the order of the rows; what is delayed goes alone."""
    options = write_options(GIVEN | {"batchBytes": str(most_bytes), "batchMessages": str(most)})
    batcher, batches, given_rows = Batcher(options), [], []
    for number, (topic, size, level) in enumerate(rows):
        row = Row(b"%04d" % number + b"x" * size, topic, delay_level=level)
        given_rows.append(to_message(row, RowId("q", "0", 0, number), options, NOW_MS))
        batches += batcher.add(given_rows[-1])
        assert batcher._size <= WAITING_FACTOR * most_bytes
    batches += batcher.rest()
    for batch in batches:
        assert {one.topic for one in batch.messages} == {batch.topic}
        assert len(batch.messages) <= most
        assert batch.size <= most_bytes or batch.is_single
        assert batch.is_single or not any(one.is_delayed for one in batch.messages)
    for topic in ("t", "u", "v"):
        for is_delayed in (False, True):
            sent = [
                m
                for b in batches
                for m in b.messages
                if (m.topic, m.is_delayed) == (topic, is_delayed)
            ]
            assert sent == [m for m in given_rows if (m.topic, m.is_delayed) == (topic, is_delayed)]


def test_batch_when_a_broker_takes_it_apart_then_the_same_messages() -> None:
    """By the store's own reader of client batches."""
    messages = tuple(
        to_message(Row(b"b" * n, tags=f"t{n}"), RowId("q", "0", 0, n), OPTIONS, NOW_MS)
        for n in range(1, 5)
    )
    batch = Batch("usual", messages)
    found = split_client_batch(stored_message(0, body=batch.body()), messages_max=10)
    assert [(one.body, one.properties) for one in found] == [
        (one.body, one.properties) for one in messages
    ]
    assert len(batch.body()) == batch.size
    assert Batch("usual", messages[:1]).body() == b"b"


@pytest.mark.parametrize(("tasks", "batches"), [(8, 1), (1, 8), (2, 4)])
def test_queues_when_each_task_sends_once_then_used_evenly(tasks: int, batches: int) -> None:
    """Also by a stream of one task, whose batches would else all go where the first one went."""
    taken = Counter(
        Turns("q", str(batch), task).take("t") % 4
        for batch in range(batches)
        for task in range(tasks)
    )
    if tasks == 2:
        assert set(taken) == set(range(4))
    else:
        assert taken == dict.fromkeys(range(4), 2)


def test_queues_when_topics_alternate_then_each_topic_has_all_of_them() -> None:
    """One turn for both would leave every other queue of each without a message."""
    turns = Turns("q", "0", 0)
    taken = [(topic, turns.take(topic) % 4) for _ in range(4) for topic in ("t", "u")]
    for topic in ("t", "u"):
        assert {queue for name, queue in taken if name == topic} == set(range(4))


TEXT = StringType()
TEXTS = MapType(TEXT, TEXT)


@pytest.mark.parametrize(
    ("columns", "options", "what"),
    [
        ({"topic": TEXT}, {}, "needs a column body, and has topic"),
        ({"body": IntegerType()}, {"topic": "t"}, "column body cannot be int"),
        ({"body": TEXT}, {}, "needs a column topic, or the option"),
        ({"body": TEXT, "city": TEXT}, {"topic": "t"}, "no column city"),
        ({"body": TEXT, "delayLevel": TEXT}, {"topic": "t"}, "column delayLevel cannot be string"),
        (
            {"body": TEXT, "properties": MapType(TEXT, IntegerType())},
            {"topic": "t"},
            "map<string,int>",
        ),
    ],
)
def test_columns_when_they_make_no_message_then_said(
    columns: dict[str, DataType], options: dict[str, str], what: str
) -> None:
    """Before a query runs; a column that is left out without a word would be missed."""
    schema = StructType([StructField(name, kind) for name, kind in columns.items()])
    given = write_options({"nameServer": "a:1", **options})
    with pytest.raises(ConfigInvalid, match=what):
        LiveWriter(given, schema, overwrite=False)
    whole = StructType([StructField("body", BinaryType()), StructField("properties", TEXTS)])
    LiveStreamWriter(write_options({"nameServer": "a:1", "topic": "t"}), whole, overwrite=False)
