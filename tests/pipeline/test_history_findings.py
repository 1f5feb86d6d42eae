"""What is found in small histories, and what is not: a log that was cut, and clusters that are well."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pytest

from rmqha.pipeline.jobs.history_check import rows_of
from rmqha.pipeline.jobs.history_findings import findings
from rmqha.verify.client_history import Consume, HistoryWriter, Send
from tests.pipeline.test_client_history import Write, ack, consume, end, fail, write_history

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]
A, B, C, GHOST = 1, 2, 3, 66

Told = tuple[str, str | None, int | None, str]
"""Kind, key, offset and detail of a finding."""


def shown_and_cut(writer: HistoryWriter) -> None:
    """A, whose send failed, was shown; then another message stood at its place."""
    fail(writer, A, 1000, 1100)
    consume(writer, A, 0, 0, client="c1")
    ack(writer, B, 0, 0, 2000)
    consume(writer, B, 0, 0, client="c2")


def acked_and_another_shown(writer: HistoryWriter) -> None:
    """A was acknowledged and shown; then B, whose send failed, stood there."""
    ack(writer, A, 0, 0, 1000)
    consume(writer, A, 0, 0, client="c1")
    fail(writer, B, 2000, 2100)
    consume(writer, B, 0, 0, client="c2")


def another_to_one_reader(writer: HistoryWriter) -> None:
    """One consumer got both, which is no redelivery."""
    ack(writer, A, 0, 0, 1000)
    fail(writer, B, 2000, 2100)
    consume(writer, A, 0, 0)
    consume(writer, B, 0, 0)


def shown_and_ended(writer: HistoryWriter) -> None:
    """A was acknowledged and shown; then the queue ended in front of it."""
    ack(writer, A, 0, 0, 1000)
    consume(writer, A, 0, 0, client="c1")
    end(writer, 0, 0)


def ended_behind(writer: HistoryWriter) -> None:
    """Nobody read A, and the queue ended behind its place."""
    ack(writer, A, 0, 0, 1000)
    end(writer, 0, 1)


def ghost(writer: HistoryWriter) -> None:
    """Read, and nobody sent it."""
    ack(writer, A, 0, 0, 1000)
    consume(writer, A, 0, 0)
    consume(writer, GHOST, 0, 1)


@pytest.mark.parametrize(
    ("tell", "told"),
    [
        (shown_and_cut, {("conflict", None, 0, "1 2")}),
        (acked_and_another_shown, {("conflict", None, 0, "1 2")}),
        (another_to_one_reader, {("conflict", None, 0, "1 2")}),
        (shown_and_ended, {("lost", "1", 0, "ended")}),
        (ended_behind, {("lost", "1", 0, "passed")}),
        (ghost, {("unsent", "66", 1, "nobody tells of having sent it")}),
    ],
)  # fmt: skip
def test_history_when_a_log_was_cut_after_it_was_shown_then_found(
    found: Mapping[str, set[Told]], tell: Write, told: set[Told]
) -> None:
    """Whoever read what, and whatever became of the send."""
    assert found[tell.__name__] == told


def readers_only(writer: HistoryWriter) -> None:
    """Who sent wrote no history."""
    consume(writer, A, 0, 0)
    consume(writer, B, 0, 1)
    end(writer, 0, 2)


def without_keys(writer: HistoryWriter) -> None:
    """Another client's messages, which have no keys, among one's own."""
    ack(writer, A, 0, 0, 1000)
    consume(writer, A, 0, 0)
    writer.add(Consume, "c", topic="T", key="at 0:1", broker="b", queue=0, offset=1, end_ms=9000)


def stored_though_it_failed(writer: HistoryWriter) -> None:
    """Nobody promised that it would not be; nor of a send without an end."""
    fail(writer, A, 1000, 1100)
    writer.add(Send, "p", topic="T", key=str(B), start_ms=1200)
    consume(writer, A, 0, 0)
    consume(writer, B, 0, 1)
    end(writer, 0, 2)


def ended_too_early(writer: HistoryWriter) -> None:
    """A reader took for the end what was none: the messages were read afterwards."""
    ack(writer, A, 0, 0, 1000)
    end(writer, 0, 0, end_ms=2000)
    consume(writer, A, 0, 0, end_ms=3000)


def ended_and_sent_on(writer: HistoryWriter) -> None:
    """The end was where it was, and then went on; each reader begins anew."""
    end(writer, 0, 0, end_ms=500)
    ack(writer, A, 0, 0, 1000)
    consume(writer, A, 0, 0, end_ms=2000, client="c1")
    end(writer, 0, 1, end_ms=2000)
    ack(writer, B, 0, 1, 3000)
    for key in (A, B):
        consume(writer, key, 0, key - A, end_ms=4000, client="c2")
    end(writer, 0, 2, end_ms=4000)


def expired(writer: HistoryWriter) -> None:
    """Read, then deleted by retention: who reads now begins behind it, and ends where it ended."""
    for key in (A, B, C):
        ack(writer, key, 0, key, 1000 * key)
        consume(writer, key, 0, key, end_ms=5000, client="c1")
    consume(writer, C, 0, C, end_ms=8000, client="c2")
    end(writer, 0, C + 1)


def deferred(writer: HistoryWriter) -> None:
    """Acknowledged at a place of the queue where it waited, and read where it came in time."""
    ack(writer, A, 0, 1000, 1000)
    consume(writer, A, 0, 0)
    end(writer, 0, 1)


def stored_twice_and_cut(writer: HistoryWriter) -> None:
    """The copy that was acknowledged was shown and is gone; the other one is there."""
    ack(writer, A, 0, 9, 1000)
    for offset in (4, 9):
        consume(writer, A, 0, offset, client=f"c{offset}")
    end(writer, 0, 5)


def key_in_the_body(writer: HistoryWriter) -> None:
    """Who sends has a key, which who reads does not see."""
    ack(writer, A, 0, 5, 1000)
    writer.add(Consume, "c", topic="T", key="at 0:5", broker="b", queue=0, offset=5, end_ms=9000)
    consume(writer, A, 0, 5, client="c2")


@pytest.mark.parametrize("tell", [deferred, stored_twice_and_cut, key_in_the_body])
def test_history_when_a_message_can_be_read_then_it_is_neither_lost_nor_another(
    found: Mapping[str, set[Told]], tell: Write
) -> None:
    """It may be there twice, which is told as that."""
    assert {one[0] for one in found[tell.__name__]} <= {"duplicated", "redelivered"}


@pytest.mark.parametrize(
    "tell",
    [
        readers_only, without_keys, stored_though_it_failed, ended_too_early, ended_and_sent_on,
        expired,
    ],
)  # fmt: skip
def test_history_when_it_is_sound_then_nothing_is_found(
    found: Mapping[str, set[Told]], tell: Write
) -> None:
    """Whoever is told of losses that are none looks away at the next one."""
    assert found[tell.__name__] == set()


def redelivered(writer: HistoryWriter) -> None:
    """A group's members change: the next one begins where the last one had said it was."""
    ack(writer, A, 0, 0, 1000)
    consume(writer, A, 0, 0)
    consume(writer, A, 0, 0)
    consume(writer, A, 0, 0, client="c2")
    end(writer, 0, 1)


def test_history_when_one_message_comes_again_then_that_is_all(
    found: Mapping[str, set[Told]],
) -> None:
    """It is the same one."""
    assert found[redelivered.__name__] == {("redelivered", "1", 0, "2 times")}


TALES = (
    shown_and_cut, acked_and_another_shown, another_to_one_reader, shown_and_ended, ended_behind,
    ghost, readers_only, without_keys, stored_though_it_failed, ended_too_early, ended_and_sent_on,
    expired, redelivered,
    deferred, stored_twice_and_cut, key_in_the_body,
)  # fmt: skip


@pytest.fixture(scope="module")
def found(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, set[Told]]:
    """What is found in each, but for times without an acknowledgement: all by one query, in which
    each is a topic."""
    folder = tmp_path_factory.mktemp("histories")
    paths = [write_history(folder / tell.__name__, tell) for tell in TALES]
    named = [(path.name, str(path)) for path in paths]
    events = rows_of(spark.createDataFrame(named, "history string, path string").coalesce(1))
    events = events.drop("_corrupt").withColumn("topic", events["history"]).cache()
    told: dict[str, set[Told]] = {tell.__name__: set() for tell in TALES}
    for row in findings(events, longer_than_ms=1 << 40).collect():
        told[row.topic].add((row.kind, row.key, row.offset, row.detail))
    events.unpersist()
    return told
