"""What a file that was read again changes, and what needs a restart."""

from __future__ import annotations

import pytest

from rmqha.runtime.logs import Logger, set_level
from rmqha.runtime.reload import Reload, compare

MUTABLE = {"a", "b"}


def test_file_when_nothing_has_changed_then_nothing_is_to_be_done() -> None:
    """What a request changed meanwhile and the file does not name stays."""
    file = {"a": "1", "port": "9"}
    running = {"a": "1", "b": "by request", "port": "9876", "other": "default"}
    assert compare(file, file, running, MUTABLE) == Reload({}, ())


def test_file_when_values_differ_then_what_may_change_does_and_the_rest_is_named() -> None:
    """A changed, a new and a removed key; the file counts where a request had another value."""
    started = {"a": "1", "port": "9", "gone": "x"}
    now = {"a": "2", "b": "3", "port": "10", "new": "y", "same": "default"}
    running = {"a": "5", "b": "4", "port": "9", "gone": "x", "same": "default"}
    assert compare(started, now, running, MUTABLE) == Reload(
        {"a": "2", "b": "3"}, ("gone", "new", "port")
    )


def test_level_when_set_then_loggers_that_exist_follow(capsys: pytest.CaptureFixture[str]) -> None:
    """A logger is bound once, at the start."""
    log = Logger()
    try:
        set_level("error")
        log.log("warning", "left_out")
        log.log("error", "written_first")
        set_level("debug")
        log.log("debug", "written_second")
    finally:
        set_level("debug")
    said = "".join(capsys.readouterr())
    assert "left_out" not in said
    assert said.index("written_first") < said.index("written_second")
