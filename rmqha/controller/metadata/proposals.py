"""What this leader has proposed and not seen committed yet, by token and by record."""

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
        self._works: dict[int, tuple[Work, Event, bytes]] = {}
        self._tokens: dict[bytes, int] = {}
        self._read: dict[bytes, Said] = {}

    def add(self, term: Term, work: Work, event: Event) -> tuple[int, bytes]:
        """Remember a decision's event; returns its token and the record to propose."""
        self._last_token += 1
        token = self._last_token
        record = to_proposal(term, token, event)
        self._works[token] = (work, event, record)
        self._tokens[record] = token
        return token, record

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
        token = self._tokens.pop(record, None)
        if token is None:
            return None, self._read.pop(record, None) or from_entry(record)
        work, event, _ = self._works.pop(token)
        return work, event  # no need to read what was just written

    def dropped(self, token: int) -> Work | None:
        """Forget a proposal that will never commit; returns its work."""
        found = self._works.pop(token, None)
        if found is None:
            return None
        del self._tokens[found[2]]
        return found[0]

    def clear(self) -> None:
        """Forget all: the outcome is another leader's business. Tokens are not used again."""
        self._works.clear()
        self._tokens.clear()
