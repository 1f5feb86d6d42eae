"""One look for all lines of a process's log, whoever writes them."""

from __future__ import annotations

import contextlib
import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from rmqha.runtime.logs import (
    LINES_PER_SECOND_MAX,
    STRANGERS_LINES_PER_SECOND_MAX,
    LineLimit,
    Logger,
    configure_logs,
)


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Other tests keep the logging that they had."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def lines_of(stream: io.StringIO) -> list[dict[str, object]]:
    """Every line, parsed."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_librarys_error_is_one_line_of_json_with_its_trace() -> None:
    """asyncio reports failed callbacks through logging; a collector drops plain text."""
    stream = io.StringIO()
    configure_logs(stream=stream)
    try:
        raise RuntimeError("broken")
    except RuntimeError:
        logging.getLogger("asyncio").exception("callback %s failed", "tick")
    Logger(node="n0").log("info", "raft_role_changed", role="leader")
    theirs, ours = lines_of(stream)
    assert ("callback tick failed", "error") == (theirs["event"], theirs["level"])
    assert "RuntimeError: broken" in str(theirs["exception"])
    assert theirs.keys() >= {"event", "level", "timestamp"}
    assert ours.keys() >= {"event", "level", "timestamp", "node", "role"}


@pytest.mark.parametrize(("level", "expected"), [("debug", 4), ("info", 3), ("error", 1)])
def test_lines_below_the_level_are_left_out(level: str, expected: int) -> None:
    """debug lines come per message."""
    stream = io.StringIO()
    configure_logs(level=level, stream=stream)
    log = Logger()
    for one in ("debug", "info", "warning", "error"):
        log.log(one, "something_happened")
    assert expected == len(lines_of(stream))


def test_console_lines_are_for_people() -> None:
    """logStyle=console on a machine without a collector."""
    stream = io.StringIO()
    configure_logs(style="console", stream=stream)
    Logger(node="n0").log("warning", "master_elected", epoch=3)
    assert "master_elected" in stream.getvalue()
    assert not stream.getvalue().startswith("{")


def test_lines_that_strangers_cause_are_few() -> None:
    """Ten a second of each, and the next one says how many were left out."""
    limit = LineLimit()
    written: list[dict[str, object]] = []

    def log(event: str, second: int, times: int) -> None:
        for _ in range(times):
            line = {"event": event, "timestamp": f"2026-01-01T00:00:{second:02}.000000Z"}
            with contextlib.suppress(structlog.DropEvent):
                written.append(dict(limit(None, "warning", line)))

    for event, most in (
        ("request_refused", STRANGERS_LINES_PER_SECOND_MAX),
        ("ha_peer_refused", STRANGERS_LINES_PER_SECOND_MAX),
        ("frame_refused", STRANGERS_LINES_PER_SECOND_MAX),
        ("raft_frame_before_hello", STRANGERS_LINES_PER_SECOND_MAX),
        ("broker_registered", LINES_PER_SECOND_MAX),
    ):
        written.clear()
        log(event, 1, 500)
        assert len(written) == most
        log(event, 2, 1)
        assert written[-1]["lines_left_out"] == 500 - most


def test_values_that_json_does_not_know_are_written_as_text() -> None:
    """A log line must never be the reason why an effect is not carried out."""
    stream = io.StringIO()
    configure_logs(stream=stream)
    Logger().log("info", "peer_seen", peers={1, 2}, error=ValueError("x"), text="ü\n")
    (line,) = lines_of(stream)
    assert "ü\n" == line["text"]
