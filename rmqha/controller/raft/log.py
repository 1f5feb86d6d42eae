"""The part of the log that a node holds in memory: every entry after the compacted prefix."""

from __future__ import annotations

from rmqha.base.ids import NO_TERM, Term
from rmqha.base.invariants import invariant
from rmqha.controller.raft.messages import Entry


class RaftLog:
    """Entries ``base_index + 1 .. last_index``; the base's own term is still known.

    Args:
        entries: contiguous, starting at ``base_index + 1``.
        base_index: last compacted index, 0 when nothing was.
        base_term: its term.
    """

    def __init__(
        self, entries: list[Entry], base_index: int = 0, base_term: Term = NO_TERM
    ) -> None:
        for position, entry in enumerate(entries, base_index + 1):
            if entry.log_index != position:  # seldom asked otherwise: a log may be long
                invariant(False, "the log has a gap", found=entry.log_index, at=position)
        self._entries = entries
        self.base_index = base_index
        self.base_term = base_term

    @property
    def last_index(self) -> int:
        """Index of the newest entry, or of the base."""
        return self.base_index + len(self._entries)

    @property
    def last_term(self) -> Term:
        """Term of the newest entry, or of the base."""
        return self._entries[-1].term if self._entries else self.base_term

    def term_at(self, index: int) -> Term | None:
        """Term of an entry; None when it is compacted away or not there yet."""
        if index == self.base_index:
            return self.base_term
        if self.base_index < index <= self.last_index:
            return self._entries[index - self.base_index - 1].term
        return None

    def entries_from(self, index: int, count_max: int, bytes_max: int) -> tuple[Entry, ...]:
        """Entries from ``index`` on: at least one if there is any, within both limits."""
        start = index - self.base_index - 1
        invariant(start >= 0, "entries before the base were asked for", index=index)
        taken: list[Entry] = []
        size = 0
        for entry in self._entries[start : start + count_max]:
            size += len(entry.data)
            if taken and size > bytes_max:
                break
            taken.append(entry)
        return tuple(taken)

    def between(self, first: int, last: int) -> tuple[Entry, ...]:
        """Entries ``first .. last``, both included."""
        return tuple(self._entries[first - self.base_index - 1 : last - self.base_index])

    def append(self, entries: tuple[Entry, ...]) -> None:
        """Add entries right after the last one."""
        invariant(
            entries[0].log_index == self.last_index + 1,
            "an append must follow the last entry",
            first=entries[0].log_index,
            last=self.last_index,
        )
        self._entries.extend(entries)

    def truncate_from(self, index: int) -> None:
        """Drop ``index`` and everything after it."""
        del self._entries[index - self.base_index - 1 :]

    def is_up_to_date(self, last_index: int, last_term: Term) -> bool:
        """Whether a log that ends so is at least as new as this one (Raft 5.4.1)."""
        return (last_term, last_index) >= (self.last_term, self.last_index)

    def conflict_hint(self, prev_index: int) -> int:
        """Where a leader should try next after a mismatch at ``prev_index``.

        Skips the whole conflicting term, so that one round trip a term is enough (Raft 5.3).
        """
        if prev_index > self.last_index:
            return self.last_index
        term = self.term_at(prev_index)
        index = prev_index - 1
        while index > self.base_index and self.term_at(index) == term:
            index -= 1
        return index

    def compact_to(self, index: int) -> None:
        """Forget entries up to ``index``."""
        if index <= self.base_index:
            return
        term = self.term_at(index)
        invariant(term is not None, "compaction past the end", index=index, last=self.last_index)
        del self._entries[: index - self.base_index]
        self.base_index = index
        self.base_term = term or NO_TERM

    def reset_to(self, index: int, term: Term) -> None:
        """Replace everything by a snapshot that ends at ``index``."""
        self._entries.clear()
        self.base_index = index
        self.base_term = term
