"""structlog, set up once a process: JSON lines, or colours on a terminal.

Cores leave Notes; shells write them here. One rich line per transition. structlog is loaded by what
writes a line of the process's own log: a test's cluster, whose nodes have logs of their own, starts
40 ms sooner without it.
"""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import MutableMapping
from typing import Any, TextIO, cast

import orjson

from rmqha.base.machine import Note

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
LINES_PER_SECOND_MAX = 200
"""Of one kind of event; the next second's first line says how many were left out."""

STRANGERS_LINES_PER_SECOND_MAX = 10
OF_STRANGERS = frozenset(
    {"request_refused", "ha_peer_refused", "frame_refused", "raft_frame_before_hello"}
)
"""Events that whoever reaches a port can cause: few lines of them say as much as many."""


_least = LEVELS["debug"]


def set_level(level: str) -> None:
    """Have lines below this level left out, of loggers that exist as well."""
    global _least  # noqa: PLW0603 - a process has one log
    _least = LEVELS[level]
    logging.getLogger().setLevel(_least)


class LossyStream(io.TextIOBase):
    """A stream that drops what it cannot write.

    A full disk or a closed pipe behind the log must cost lines, never the effects that come
    after a Note.

    Attributes:
        lines_lost: writes that failed.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.lines_lost = 0

    def write(self, text: str) -> int:
        """Write if it can be done; always says that it was."""
        try:
            return self._stream.write(text)
        except OSError:
            self.lines_lost += 1
            return len(text)

    def flush(self) -> None:
        """Flush if it can be done."""
        try:
            self._stream.flush()
        except OSError:
            self.lines_lost += 1


class LineLimit:
    """A structlog processor that keeps a storm of one event from filling the disk.

    It reads the second from the stamp that is in the line already, so it needs no clock.
    """

    def __init__(self, lines_per_second_max: int = LINES_PER_SECOND_MAX) -> None:
        self._max = lines_per_second_max
        self._second = ""
        self._counts: dict[str, int] = {}

    def __call__(
        self, logger: object, method: str, line: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        """Pass the line on, or drop it."""
        event = str(line["event"])
        second = line["timestamp"][:19]
        if second != self._second:
            self._second = second
            # A count below zero remembers what to report with the event's next line.
            self._counts = {
                name: self._limit(name) - count
                for name, count in self._counts.items()
                if count > self._limit(name)
            }
        count = self._counts.get(event, 0)
        if count < 0:
            line["lines_left_out"] = -count
            count = 0
        self._counts[event] = count + 1
        if count >= self._limit(event):
            from rmqha.runtime.structlog_alone import structlog

            raise structlog.DropEvent
        return line

    def _limit(self, event: str) -> int:
        few = event in OF_STRANGERS
        return min(self._max, STRANGERS_LINES_PER_SECOND_MAX) if few else self._max


def _json(line: Any, **_: object) -> str:
    return orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def configure_logs(
    *, level: str = "info", style: str = "auto", stream: TextIO | None = None
) -> None:
    """Choose level and look of the log.

    Args:
        level: debug, info, warning or error.
        style: json, console, or auto (console on a terminal).
        stream: where lines go; stderr by default, so that stdout keeps Java's boot line.
    """
    from rmqha.runtime.structlog_alone import structlog

    out = stream or _stderr()
    console = style == "console" or (style == "auto" and out.isatty())
    lossy = cast(TextIO, LossyStream(out))
    stamps: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        LineLimit(),
    ]
    look: list[Any] = (
        [structlog.dev.ConsoleRenderer(colors=out.isatty())]
        if console
        else [
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(serializer=_json),
        ]
    )
    structlog.configure(
        processors=[*stamps, *look],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS["debug"]),
        logger_factory=structlog.WriteLoggerFactory(file=lossy),
        cache_logger_on_first_use=True,
    )
    # asyncio and the libraries speak through logging: their lines must look the same.
    handler = logging.StreamHandler(lossy)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=stamps,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *look],
        )
    )
    logging.basicConfig(level=LEVELS[level], handlers=[handler], force=True)
    set_level(level)


def _stderr() -> TextIO:
    """Stderr without a buffer: what a full disk refuses must not come up again at the exit."""
    raw = io.FileIO(sys.stderr.fileno(), "wb", closefd=False)
    return io.TextIOWrapper(
        cast(Any, raw), encoding="utf-8", errors="backslashreplace", write_through=True
    )


class Logger:
    """Writes notes with facts that are bound once a scope.

    Args:
        bound: keys for every line, such as ``node="n0"``.
    """

    def __init__(self, **bound: object) -> None:
        from rmqha.runtime.structlog_alone import structlog

        self._log = structlog.get_logger().bind(**bound)

    def note(self, note: Note) -> None:
        """Write a core's note."""
        self.log(note.level, note.event, **note.facts)

    def log(self, level: str, event: str, **facts: object) -> None:
        """Write one line; ``event`` is a snake_case past fact."""
        if LEVELS[level] >= _least:
            getattr(self._log, level)(event, **facts)
