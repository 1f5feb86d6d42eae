"""Histories as rows, and times without an acknowledgement: without Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rmqha.base.errors import ConfigInvalid
from rmqha.pipeline.histories.clients import (
    Attempt,
    Window,
    check_history,
    read_history,
    windows,
)
from rmqha.verify.client_history import Ack, Consume, End, Fail, HistoryWriter, Send

Write = Callable[[HistoryWriter], None]


def write_history(path: Path, tell: Write) -> Path:
    with path.open("wb") as file:
        tell(HistoryWriter(file.write, "test"))
    return path


def ack(
    writer: HistoryWriter, key: int, queue: int, offset: int, start_ms: int, **more: int
) -> None:
    """A send and its acknowledgement 2 ms later."""
    end_ms = more.get("end_ms", start_ms + 2)
    writer.add(Send, "p", topic="T", key=str(key), start_ms=start_ms)
    writer.add(
        Ack, "p", topic="T", key=str(key), broker="b", queue=queue, offset=offset,
        start_ms=start_ms, end_ms=end_ms,
    )  # fmt: skip


def fail(writer: HistoryWriter, key: int, start_ms: int, end_ms: int, attempt: int = 1) -> None:
    writer.add(Send, "p", topic="T", key=str(key), start_ms=start_ms, attempt=attempt)
    writer.add(
        Fail, "p", topic="T", key=str(key), start_ms=start_ms, end_ms=end_ms, attempt=attempt,
        reason="nobody is master",
    )  # fmt: skip


def consume(
    writer: HistoryWriter, key: int, queue: int, offset: int, end_ms: int = 9000, client: str = "c"
) -> None:
    writer.add(
        Consume, client, topic="T", key=str(key), broker="b", queue=queue, offset=offset,
        end_ms=end_ms,
    )  # fmt: skip


def end(writer: HistoryWriter, queue: int, offset: int, end_ms: int = 9999) -> None:
    writer.add(End, "c", topic="T", broker="b", queue=queue, offset=offset, end_ms=end_ms)


def test_history_when_read_then_a_row_a_line(tmp_path: Path) -> None:
    """With the line's number, for people."""

    def tell(writer: HistoryWriter) -> None:
        ack(writer, 1, 0, 0, 100)
        consume(writer, 1, 0, 0)

    path = write_history(tmp_path / "h", tell)
    check_history(str(path))
    found = list(read_history(str(path), "h"))
    assert [(one.line, one.op, one.client, one.n) for one in found] == [
        (2, "send", "p", 1), (3, "ack", "p", 2), (4, "consume", "c", 1),
    ]  # fmt: skip
    assert (found[1].key, found[1].queue, found[1].offset, found[1].end_ms) == ("1", 0, 0, 102)


@pytest.mark.parametrize(
    "bad",
    [
        b"garbage\n", b"\n", b'{"op":"send"}\n', b"\xff\xfe\n", b'{"op":"history","version":1}\n',
        b'{"op":"end","client":"c","n":99999999999999999999,"topic":"T","broker":"b","queue":0,'
        b'"offset":1,"end_ms":1}\n',
        b'{"op":"end","client":"\\ud800","n":1,"topic":"T","broker":"b","queue":0,"offset":1,'
        b'"end_ms":-1}\n',
        b"x" * (3 << 20) + b"\n",
    ],
)  # fmt: skip
def test_line_when_damaged_then_told_and_the_others_are_read(tmp_path: Path, bad: bytes) -> None:
    """However long it is."""
    path = write_history(tmp_path / "h", lambda writer: ack(writer, 1, 0, 0, 100))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], bad, *lines[2:]]))
    found = list(read_history(str(path), "h"))
    assert [one.op for one in found if one.corrupt is None] == ["send", "ack"]
    assert [one for one in found if one.corrupt]


def test_line_when_its_end_is_missing_then_told(tmp_path: Path) -> None:
    """A writer that died in the middle of a line; and nobody can know what it would have said."""
    path = write_history(tmp_path / "h", lambda writer: ack(writer, 1, 0, 0, 100))
    path.write_bytes(path.read_bytes()[:-1])
    assert [one.corrupt for one in read_history(str(path), "h")] == [None, "the line has no end"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file"),
        (b"", "no client history"),
        (b'{"event":"started"}\n', "no client history"),
        (b'{"op":"history","version":2}\n', "version 2"),
    ],
)
def test_file_when_it_is_no_history_then_said(
    tmp_path: Path, content: bytes | None, reason: str
) -> None:
    """Before Spark is started."""
    path = tmp_path / "h"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigInvalid, match=reason):
        check_history(str(path))


def acked(start_ms: int, end_ms: int) -> Attempt:
    return Attempt(start_ms, end_ms, acked=True)


def failed(start_ms: int, end_ms: int | None) -> Attempt:
    return Attempt(start_ms, end_ms, acked=False)


@pytest.mark.parametrize(
    ("attempts", "found"),
    [
        ([], []),
        ([acked(0, 5), acked(6, 9)], []),
        # One producer that tries again and again.
        ([acked(0, 5), failed(6, 56), failed(60, 110), acked(120, 150)], [(6, 150, 3, True)]),
        # One attempt that takes long is as bad.
        ([acked(0, 5), acked(10, 250)], [(10, 250, 1, True)]),
        # A pause in which nobody tried is none.
        ([acked(0, 5), acked(9000, 9005)], []),
        # Given up: the window ends with the last attempt, and the next one is its own.
        (
            [failed(0, 80), failed(90, 150), acked(9000, 9002)],
            [(0, 150, 2, False)],
        ),
        # Two producers: the wait begins with the last acknowledgement, for the other was sending.
        ([acked(0, 5), acked(2, 300), acked(6, 8)], [(8, 300, 1, True)]),
        # Nothing was ever acknowledged, and the last attempt has no known end.
        ([failed(0, 60), failed(70, 130), failed(140, None)], [(0, 140, 3, False)]),
        # The clock was set back while it was tried: it ended when it began, at least.
        ([failed(0, 300), acked(250, 20)], [(0, 250, 2, True)]),
        # A short one.
        ([failed(0, 60), acked(65, 90)], []),
    ],
)
def test_windows_when_attempts_are_known_then_exact(
    attempts: list[Attempt], found: list[tuple[int, int, int, bool]]
) -> None:
    """Longer than 100 ms."""
    assert list(windows(attempts, 100)) == [Window(*one) for one in found]
