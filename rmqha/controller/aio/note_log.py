"""The machine's notes as lines of the log; of a storm of one kind only as many as people can use.

The log has a bound of its own (``runtime/logs.py``), but a line costs as much as an answer to get
there. ``metadata/telling.py`` bounds one kind of note, since making it costs as much again.
"""

from __future__ import annotations

from rmqha.base.machine import Note
from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import Clock

NOTES_PER_SECOND_MAX = 200


class NoteLog:
    """Writes notes down a turn of the loop later, when the answers of this one have left (ADR 0011).

    What is left out of a second is counted in the next one's first line.
    """

    def __init__(self, clock: Clock, log: Logger) -> None:
        self._clock = clock
        self._log = log
        self._second = 0
        self._counts: dict[str, int] = {}
        self._waiting: list[Note] = []

    def write(self, note: Note) -> None:
        """Have one written down."""
        if not self._waiting:
            self._clock.call_later(0, self.flush)
        self._waiting.append(note)

    def flush(self) -> None:
        """Write down what waits."""
        notes, self._waiting = self._waiting, []
        for note in notes:
            self._write(note)

    def _write(self, note: Note) -> None:
        """Unless so many of its kind were in this second; warnings always."""
        if note.level == "info" and not self._has_room(note.event):
            return
        self._log.note(note)

    def _has_room(self, event: str) -> bool:
        second = self._clock.now_ms() // 1000
        if second != self._second:
            self._second = second
            left_out = {
                kind: count - NOTES_PER_SECOND_MAX
                for kind, count in self._counts.items()
                if count > NOTES_PER_SECOND_MAX
            }
            self._counts.clear()
            if left_out:
                self._log.log("info", "notes_left_out", counts=left_out)
        count = self._counts.get(event, 0) + 1
        self._counts[event] = count
        return count <= NOTES_PER_SECOND_MAX
