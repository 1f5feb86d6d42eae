"""What happened, line by line; the same seed must write the same lines."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from rmqha.runtime.logs import Logger
from rmqha.sim.loop import SimLoop

QUIET = frozenset({"debug"})


class Trace:
    """Collects lines with their virtual time."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self.lines: list[str] = []

    def say(self, who: str, what: str, /, **facts: object) -> None:
        """Write one line."""
        shown = " ".join(f"{key}={facts[key]}" for key in sorted(facts))
        self.lines.append(f"{self._loop.time() * 1000:12.3f} {who:<4} {what} {shown}".rstrip())

    def digest(self) -> str:
        """A short name of the whole story."""
        return hashlib.blake2b("\n".join(self.lines).encode(), digest_size=8).hexdigest()


class TraceLogger(Logger):
    """A Logger that writes into a trace instead of a stream.

    Args:
        trace: takes the lines.
        host: whose they are.
        on_event: told (host, event, facts) of each line.
    """

    def __init__(
        self,
        trace: Trace,
        host: str,
        on_event: Callable[[str, str, dict[str, object]], None] | None = None,
    ) -> None:
        self._trace = trace
        self._host = host
        self._on_event = on_event

    def log(self, level: str, event: str, **facts: object) -> None:
        """Write one line, unless it is for debugging."""
        if level in QUIET:
            return
        self._trace.say(self._host, event, **facts)
        if self._on_event is not None:
            self._on_event(self._host, event, facts)
