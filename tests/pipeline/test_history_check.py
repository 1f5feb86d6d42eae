"""Histories judged: every kind of wrong in a small one (a real failover's: test_docs.py)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from rmqha.cli.pipeline import main
from rmqha.verify.client_history import HistoryWriter, Send
from tests.pipeline.test_client_history import ack, consume, end, fail, write_history

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]


def run(*arguments: object, code: int = 0) -> str:
    done = CliRunner().invoke(main, ["history-check", *map(str, arguments)])
    assert done.exit_code == code, done.output
    return done.output


def good(writer: HistoryWriter) -> None:
    """Ten messages, each acknowledged, read once, in order."""
    for key in range(10):
        ack(writer, key, 0, key, 1000 + 10 * key)
    for key in range(10):
        consume(writer, key, 0, key)
    end(writer, 0, 10)


def bad(writer: HistoryWriter) -> None:
    """One of each."""
    ack(writer, 0, 0, 0, 1000)
    ack(writer, 1, 0, 1, 1010)  # lost: its place holds another message
    fail(writer, 2, 1020, 1500)
    fail(writer, 2, 1505, 2600, attempt=2)
    ack(writer, 2, 0, 3, 2610)  # duplicated: the first attempt was stored, too
    ack(writer, 3, 1, 5, 2620)
    ack(writer, 4, 1, 4, 2630)  # reordered: sent later than 3, stored before it
    ack(writer, 5, 2, 0, 2640)  # lost: its queue ended before it
    ack(writer, 6, 3, 9, 2650)  # not read to there
    ack(writer, 7, 0, 1, 2660)  # conflict: where 1 was
    writer.add(Send, "p", topic="T", key="8", start_ms=2670)
    for key, queue, offset in (
        (0, 0, 0), (7, 0, 1), (2, 0, 2), (2, 0, 3), (4, 1, 4), (3, 1, 5),
    ):  # fmt: skip
        consume(writer, key, queue, offset)
    consume(writer, 3, 1, 5)  # redelivered
    consume(writer, 4, 1, 4)  # redelivered, and behind
    end(writer, 2, 0)


def test_history_when_every_kind_of_wrong_is_in_it_then_each_is_named(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Where, which message, whose, when; and the exit code tells of the loss."""
    path, out = write_history(tmp_path / "h.jsonl", bad), tmp_path / "out"
    lines = path.read_bytes().splitlines(keepends=True)
    dropped = lines.index(next(one for one in lines if b'"consume"' in one and b'"key":"0"' in one))
    lines[dropped] = b'{"op":"consume","client":"c"\n'
    path.write_bytes(b"".join(lines))
    told = run(path, "-o", out, "--unread-ok", code=1)
    rows = spark.read.parquet(str(out / "findings"))
    found = {
        (row.kind, row.key, row.queue, row.offset, row.detail)
        for row in rows.where("kind NOT IN ('unavailable', 'incomplete')").collect()
    }
    assert found == {
        ("lost", "0", 0, 0, "passed"),
        ("lost", "1", 0, 1, "passed"),
        ("lost", "5", 2, 0, "ended"),
        ("lost", "6", 3, 9, "unread"),
        ("duplicated", "2", None, None, "b:0:2 b:0:3"),
        ("redelivered", "3", 1, 5, "2 times"),
        ("redelivered", "4", 1, 4, "2 times"),
        ("reordered", "4", 1, 4, "stored before what was sent earlier"),
        ("reordered", "4", 1, 4, "read after offset 5"),
        ("reordered", "7", 0, 1, "stored before what was sent earlier"),
        ("conflict", None, 0, 1, "1 7"),
    }
    (gap,) = rows.where("kind = 'unavailable'").collect()
    assert (gap.topic, gap.startMs, gap.endMs) == ("T", 1020, 2612)
    assert gap.detail == "1592 ms, 3 attempts"
    (missing,) = rows.where("kind = 'incomplete'").collect()
    assert (missing.client, missing.detail) == ("c", "1 records missing in h.jsonl")
    assert f"h.jsonl line {dropped + 1}: " in told
    assert told.rstrip().endswith("; 1 damaged lines")
    assert rows.count() == 13
    assert "h.jsonl" in (out / "_report.html").read_text()


def test_history_of_two_files_when_only_its_end_is_unread_then_that_may_be_pardoned(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Of a producer and a consumer with a file each; nothing else is found in it."""
    whole = write_history(tmp_path / "whole", good)
    lines = whole.read_bytes().splitlines(keepends=True)
    first, second = tmp_path / "first", tmp_path / "second"
    more = write_history(tmp_path / "more", lambda writer: ack(writer, 99, 0, 10, 2000))
    unread = more.read_bytes().splitlines(keepends=True)[1:]
    unread = [one.replace(b'"client":"p"', b'"client":"q"') for one in unread]
    first.write_bytes(b"".join([one for one in lines if b'"consume"' not in one] + unread))
    second.write_bytes(lines[0] + b"".join(one for one in lines if b'"consume"' in one))
    first.write_bytes(first.read_bytes().replace(lines[-1], b""))
    told = run(first, f"reader={second}", "-o", tmp_path / "out", "--unread-ok")
    when = "from 1970-01-01 00:00:02.000 to 1970-01-01 00:00:02.002"
    assert f"lost T b queue 0 offset 10 key 99 by q {when}: unread" in told
    assert "findings: 1 lost; 0 damaged lines" in told


def test_file_when_no_history_then_said(tmp_path: Path) -> None:
    """Before Spark is started."""
    path = tmp_path / "log.json"
    path.write_text('{"event":"started"}\n')
    assert "no client history" in run(path, "-o", tmp_path, code=2)
