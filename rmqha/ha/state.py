"""What all parts of a replica's core share: its log as last heard of, its epochs, its effects."""

from __future__ import annotations

from msgspec import Struct

from rmqha.base.invariants import invariant
from rmqha.base.machine import Note
from rmqha.ha.epochs import EpochCache
from rmqha.ha.events import CutInvalidTail, Effect, SetConfirmOffset, WriteEpochs
from rmqha.ha.settings import HaSettings


class LogFacts(Struct):
    """The log as events have told it.

    Attributes:
        file_size: ``mappedFileSizeCommitLog``; no range crosses a multiple of it.
        min_offset: first byte of the first file; -1 without a file.
        max_offset: the next byte to be written.
        flushed_offset: everything before it is durable.
        confirm_offset: consumers may see what is before it; -1 when it was never known.
        acknowledged: where a body came damaged: no master was told of more than this; None elsewhere.
    """

    file_size: int
    min_offset: int = -1
    max_offset: int = 0
    flushed_offset: int = 0
    confirm_offset: int = 0
    acknowledged: int | None = None

    @property
    def is_empty(self) -> bool:
        """No byte is in it. A log whose files all expired is not empty: it still has its end."""
        return self.max_offset == 0

    def file_end(self, offset: int) -> int:
        """Where the file that holds ``offset`` ends."""
        return offset - offset % self.file_size + self.file_size


class HaState:
    """One replica's shared state.

    Args:
        own_id: the persistent controller id, from 1.
        settings: of this replica.
        log: what was recovered.
        epochs: what the epoch file held.
    """

    def __init__(
        self, own_id: int, settings: HaSettings, log: LogFacts, epochs: EpochCache
    ) -> None:
        self.own_id = own_id
        self.settings = settings
        self.log = log
        self.epochs = epochs
        self._effects: list[Effect] = []
        self._seq = 0
        self._epochs_asked = 0
        self._epochs_written = 0

    def emit(self, effect: Effect) -> None:
        """Add to the effects of this step."""
        self._effects.append(effect)

    def note(self, event: str, level: str = "info", **facts: object) -> None:
        """Leave a note for the log."""
        self._effects.append(Note(event, level, facts))

    def take_effects(self) -> list[Effect]:
        """The effects of this step, once."""
        effects, self._effects = self._effects, []
        return effects

    def next_seq(self) -> int:
        """A number for an effect that waits, or for a connection to a master."""
        self._seq += 1
        return self._seq

    def damaged(self, place: int, acknowledged: int, address: str | None) -> None:
        """A body of the master at ``address`` came damaged; all but what is acknowledged may go."""
        if self.log.acknowledged is None:
            self.log.acknowledged = acknowledged
        self.note("ha_body_damaged", "error", address=address, offset=place)

    def cut_invalid_tail(self) -> int:
        """Ask for a log that ends at a whole record."""
        seq = self.next_seq()
        self.emit(CutInvalidTail(seq, self.log.acknowledged))
        return seq

    def write_epochs(self) -> int:
        """Ask for a durable epoch file."""
        self._epochs_asked = self.next_seq()
        self.emit(WriteEpochs(self._epochs_asked, self.epochs.entries))
        return self._epochs_asked

    def epochs_written(self, seq: int) -> None:
        """An epoch file became durable; they do so in order."""
        self._epochs_written = max(self._epochs_written, seq)

    @property
    def epochs_durable(self) -> bool:
        """Whether the file holds what the cache holds."""
        return self._epochs_asked <= self._epochs_written

    def log_cut(self, max_offset: int) -> None:
        """The log ends at ``max_offset`` now, which is not beyond where it ended."""
        log = self.log
        invariant(
            max_offset <= log.max_offset,
            "a cut does not lengthen a log",
            before=log.max_offset,
            after=max_offset,
        )
        log.max_offset, log.acknowledged = max_offset, None
        log.flushed_offset = min(log.flushed_offset, max_offset)
        if max_offset == 0:
            log.min_offset = -1
        log.confirm_offset = min(log.confirm_offset, max_offset)

    def set_confirm(self, offset: int) -> None:
        """Move confirmOffset; it never passes the end of the log."""
        log = self.log
        invariant(
            offset <= log.max_offset,
            "confirmOffset is not beyond the log",
            confirm_offset=offset,
            max_offset=log.max_offset,
        )
        if offset != log.confirm_offset:
            log.confirm_offset = offset
            self.emit(SetConfirmOffset(offset))
