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
        # The highest index that was committed by the leader of each term.
        self.committed_max: dict[int, int] = {}

    def leader_elected(self, node: str, term: int, last_index: int) -> None:
        """A node says that it leads ``term``; its log ends at ``last_index``.

        It has what leaders of earlier terms committed; one that wins late, when another term has
        begun, need not have what that one commits (Raft 5.4, leader completeness).

        Raises:
            InvariantBroken: a second leader in the term, or a log that lacks what was committed
                before.
        """
        known = self.leaders.setdefault(term, node)
        invariant(known == node, "two leaders in one term", term=term, first=known, second=node)
        committed_max = max((i for t, i in self.committed_max.items() if t < term), default=0)
        invariant(
            last_index >= committed_max,
            "a leader was elected without all committed entries",
            node=node,
            term=term,
            last_index=last_index,
            committed_max=committed_max,
        )

    def entry_applied(self, node: str, index: int, term: int, data: bytes) -> None:
        """A node gives a committed entry to its state machine.

        Raises:
            InvariantBroken: another entry was committed at this index.
        """
        first_time = index not in self.applied
        known = self.applied.setdefault(index, (term, data))
        invariant(
            known == (term, data),
            "two different entries committed at one index",
            node=node,
            index=index,
            first=known,
            second=(term, data),
        )
        if not first_time:
            return
        # Committed by the newest leader at the latest; an entry's own term may be older.
        by_term = max([term, *self.leaders])
        self.committed_max[by_term] = max(self.committed_max.get(by_term, 0), index)

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
