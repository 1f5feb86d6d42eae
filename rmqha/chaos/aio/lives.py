"""Processes of nodes, of which each end is known that the cell did not order."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rmqha.testing.real.processes import TERMINATE_TIMEOUT_S, Child

OBEYED = frozenset({0, 128 + signal.SIGTERM, -signal.SIGTERM, -signal.SIGKILL})
"""After SIGTERM: in order, as a JVM says it, as a shell does, and late."""
NO_ROOM = ("no space", "sigbus")
"""What a node says that ends for want of room, in the kernel's words; and a JVM, whose log's pages have
no blocks until they are written."""

LAST_MAX = 300
"""Characters of a last line that are told, from its end: a log of ours names the event there."""


class End(NamedTuple):
    """An end that nobody ordered.

    Attributes:
        code: of the exit; a signal's number with a minus.
        last: the last line that the process printed.
    """

    name: str
    code: int
    last: str

    @property
    def text(self) -> str:
        """Tell people whose end it was."""
        return f"{self.name} ended by itself with {self.code}: {self.last}"


class Life(Child):
    """A node's process, over all of its lives.

    Attributes:
        ends: those that nobody ordered, and nothing explains.
        is_full: its disk was filled in this life, so it may end, and say why.
    """

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        super().__init__(name, command, log)
        self.ends: list[End] = []
        self.is_full = False
        self._is_over = True

    def start(self) -> None:
        """See ``Child.start``; how the life before ended is noted first."""
        self.look()
        super().start()
        self._is_over = self.is_full = False

    def look(self) -> None:
        """Note that the process has ended, if it has, and nobody ordered it."""
        code = self._process.poll() if self._process is not None else None
        if not self._is_over and code is not None:
            self._note(code)

    def kill(self) -> None:
        """See ``Child.kill``; who was dead already, or died of something else, is noted."""
        self.look()
        super().kill()
        self._ordered(frozenset({-signal.SIGKILL}))

    def terminate(self, timeout_s: float = TERMINATE_TIMEOUT_S) -> bool:
        """See ``Child.terminate``; so is who did not end in order."""
        self.look()
        obeyed = super().terminate(timeout_s)
        self._ordered(OBEYED)
        return obeyed

    def _ordered(self, codes: frozenset[int]) -> None:
        """The life was ended; codes are those of an end by that order."""
        if self._is_over or self._process is None:
            return
        if self._process.returncode in codes:
            self._is_over = True
        else:
            self._note(self._process.returncode)

    def _note(self, code: int) -> None:
        self._is_over = True
        said = self.output()
        if not (self.is_full and any(words in said.lower() for words in NO_ROOM)):
            lines = [line for line in said.splitlines() if line.strip()]
            self.ends.append(End(self.name, code, lines[-1][-LAST_MAX:] if lines else ""))
