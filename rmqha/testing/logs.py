"""What the nodes of a test cluster say: JSON lines in a file a node, and the last of them at hand."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from rmqha.base.machine import Note
from rmqha.runtime.logs import LEVELS, Logger

LINES_KEPT = 200
LINES_READ = 10_000
WIDTH = 140
STORY = frozenset(
    (
        "controller_role_changed", "master_elected", "node_continued", "node_ended", "node_killed",
        "node_stopped", "role_taken_up", "sync_state_set_changed",
    )
)  # fmt: skip
"""What is no warning, and yet what the author of a test asks about first."""
CHATTER = frozenset(("raft_slow",))
"""Warnings that a busy machine gives by itself."""


class NodeLog(Logger):
    """A node's log, instead of the process's own: several nodes share this process.

    Args:
        path: of the file; lines are added to what earlier runs left.
        wall_ms: of the clock port.
        level: what is written from.
    """

    def __init__(self, path: Path, wall_ms: Callable[[], int], level: str = "info") -> None:
        self._wall_ms = wall_ms
        self._least = LEVELS[level]
        self._file = path.open("ab", buffering=0)

    def note(self, note: Note) -> None:
        """Write a core's note."""
        self.log(note.level, note.event, **note.facts)

    def log(self, level: str, event: str, **facts: object) -> None:
        """Write one line."""
        if LEVELS[level] < self._least or self._file.closed:
            return
        stamp = datetime.fromtimestamp(self._wall_ms() / 1000, tz=UTC)
        line = {
            **facts, "event": event, "level": level,
            "timestamp": stamp.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        }  # fmt: skip
        self._file.write(orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS) + b"\n")

    def close(self) -> None:
        """Write no more."""
        self._file.close()


def merged_tail(logs: dict[str, Path], lines: int = LINES_KEPT) -> str:
    """The last lines of several logs, by time, each with its node's name."""
    found: deque[tuple[str, int, str]] = deque()
    width = max(map(len, logs), default=0)
    for name, path in sorted(logs.items()):
        if not path.exists():
            continue
        for number, text in enumerate(path.read_text(errors="replace").splitlines()[-lines:]):
            found.append((_stamp(text), number, f"{name:<{width}}  {_readable(text)}"))
    return "\n".join(text for *_, text in sorted(found)[-lines:])


def telling_tail(logs: dict[str, Path], lines: int) -> str:
    """The last lines of all logs that tell what became of a cluster, each on one line of a screen.

    Those are roles and who is in sync, what a test did to a node, warnings, errors, and what is no
    log line at all, such as a traceback.
    """
    telling = [line for line in merged_tail(logs, LINES_READ).splitlines() if _is_telling(line)]
    return "\n".join(
        line[: WIDTH - 1] + "…" if len(line) > WIDTH else line for line in telling[-lines:]
    )


def _is_telling(line: str) -> bool:
    words = line.split(maxsplit=4)
    if len(words) < 4 or words[2] not in LEVELS:
        return True
    return words[3] in STORY or (words[2] in ("warning", "error") and words[3] not in CHATTER)


def _parsed(text: str) -> dict[str, Any] | None:
    if not text.startswith("{"):
        return None
    try:
        line = json.loads(text)
    except ValueError:
        return None
    return line if isinstance(line, dict) else None


def _stamp(text: str) -> str:
    """When; what has no stamp, such as a traceback, comes last."""
    line = _parsed(text)
    return "~" if line is None else str(line.get("timestamp", "~"))[:23].rstrip("Z")


def _readable(text: str) -> str:
    line = _parsed(text)
    if line is None:
        return text
    stamp, level, event = (str(line.pop(key, "")) for key in ("timestamp", "level", "event"))
    facts = " ".join(f"{key}={value}" for key, value in line.items())
    return f"{stamp[11:23]} {level:<7} {event} {facts}"
