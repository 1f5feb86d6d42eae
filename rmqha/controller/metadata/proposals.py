"""What this leader has proposed and not seen committed yet, by the record that the log will hold."""

from __future__ import annotations

from rmqha.base.ids import Term
from rmqha.controller.metadata.events import Event, Said, from_entry, to_proposal
from rmqha.controller.metadata.lanes import Work

READ_MAX = 10_000
"""Records of others that are kept until they are committed."""


class Proposals:
    """Matches committed records to the work that waits for them."""

    def __init__(self) -> None:
        self._last_token = 0
        self._under_way: dict[bytes, tuple[Work, Event]] = {}
        self._read: dict[bytes, Said] = {}

    def add(self, term: Term, work: Work, event: Event) -> bytes:
        """Remember a decision's event; returns the record to propose, which no other equals."""
        self._last_token += 1
        record = to_proposal(term, self._last_token, event)
        self._under_way[record] = (work, event)
        return record

    def check(self, record: bytes) -> None:
        """Read another node's record, before this one takes it into its log.

        What it says is kept until it is committed, so that nobody reads it twice.

        Raises:
            StoreCorrupted: it cannot be read.
        """
        if len(self._read) >= READ_MAX:
            self._read.clear()
        self._read[record] = from_entry(record)

    def committed(self, record: bytes) -> tuple[Work | None, Said]:
        """What a record says, and this node's work that waits for it.

        Raises:
            StoreCorrupted: another node's record cannot be read.
        """
        own = self._under_way.pop(record, None)
        if own is None:
            return None, self._read.pop(record, None) or from_entry(record)
        return own  # no need to read what was just written

    def dropped(self, record: bytes) -> Work | None:
        """Forget a proposal that will never commit; returns its work."""
        found = self._under_way.pop(record, None)
        return None if found is None else found[0]

    def clear(self) -> None:
        """Forget all: the outcome is another leader's business. Tokens are not used again."""
        self._under_way.clear()
