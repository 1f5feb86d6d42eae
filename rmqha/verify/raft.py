"""Raft's safety, watched from outside: one leader a term, one log, nothing committed is lost.

Source: Raft paper, figure 3 (election safety, state machine safety, leader completeness).
"""

from __future__ import annotations

from rmqha.base.invariants import invariant


class RaftWatch:
    """Feed it what every node of one group does, in any order.

    A node that restarts applies again from its snapshot on; that is checked too, for the same
    index must always bring the same record.
    """

    def __init__(self) -> None:
        self.leaders: dict[int, str] = {}
        self.applied: dict[int, tuple[int, bytes]] = {}
        self.terms: dict[str, int] = {}
        self.committed_max = 0

    def leader_elected(self, node: str, term: int, last_index: int) -> None:
        """A node says that it leads ``term``; its log ends at ``last_index``.

        Raises:
            InvariantBroken: a second leader in the term, or a log that lacks what was committed
                before.
        """
        known = self.leaders.setdefault(term, node)
        invariant(known == node, "two leaders in one term", term=term, first=known, second=node)
        invariant(
            last_index >= self.committed_max,
            "a leader was elected without all committed entries",
            node=node,
            term=term,
            last_index=last_index,
            committed_max=self.committed_max,
        )

    def entry_applied(self, node: str, index: int, term: int, data: bytes) -> None:
        """A node gives a committed entry to its state machine.

        Raises:
            InvariantBroken: another entry was committed at this index.
        """
        known = self.applied.setdefault(index, (term, data))
        invariant(
            known == (term, data),
            "two different entries committed at one index",
            node=node,
            index=index,
            first=known,
            second=(term, data),
        )
        self.committed_max = max(self.committed_max, index)

    def term_seen(self, node: str, term: int) -> None:
        """A term that a node has made durable.

        Raises:
            InvariantBroken: it went back, also over a restart.
        """
        invariant(
            term >= self.terms.get(node, 0),
            "a node's term went back",
            node=node,
            term=term,
            before=self.terms.get(node, 0),
        )
        self.terms[node] = term
