"""Raft's safety, watched from outside: one leader a term, one log, nothing committed is lost.

Source: Raft paper, figure 3 (election safety, state machine safety, leader completeness), and
section 5.4.2 for what a commit promises; dissertation 6.4 for leases.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from rmqha.base.invariants import invariant


class OnDisk(Protocol):
    """What a node would know if it lost power now and started again."""

    @property
    def term(self) -> int:
        """The term that it would stand in."""

    @property
    def vote(self) -> str | None:
        """Whom it voted for in that term."""

    @property
    def last(self) -> tuple[int, int]:
        """Term and index of its last entry, in the order in which logs are compared."""

    def holds(self, index: int, term: int) -> bool:
        """Whether it has this entry, or a snapshot that covers it."""


class Log(Protocol):
    """A node's log."""

    def term_at(self, index: int) -> int | None:
        """Term of an entry; None when it is compacted away or not there."""


class RaftWatch:
    """Feed it what every node of one group does, in any order.

    A node that restarts applies again from its snapshot on; that is checked too, for the same
    index must always bring the same record.

    Attributes:
        index_max: the highest index that any node has applied, so the newest that is committed.
    """

    def __init__(self) -> None:
        self.leaders: dict[int, str] = {}
        self.applied: dict[int, tuple[int, bytes]] = {}
        self.terms: dict[str, int] = {}
        self.votes: dict[tuple[str, int], str] = {}
        self.index_max = 0
        # The highest index that was committed by the leader of each term.
        self.committed_max: dict[int, int] = {}
        # How far each life of a node has applied.
        self._positions: dict[str, int] = {}

    # -- elections ---------------------------------------------------------------------------

    def leader_elected(self, node: str, term: int, last_index: int, log: Log | None = None) -> None:
        """A node says that it leads ``term``; its log ends at ``last_index``.

        It has what leaders of earlier terms committed; one that wins late, when another term has
        begun, need not have what that one commits (Raft 5.4, leader completeness). A log that is
        as long may hold other entries: with ``log`` the newest of the committed ones is compared.

        Raises:
            InvariantBroken: a second leader in the term, or a log that lacks what was committed
                before.
        """
        known = self.leaders.setdefault(term, node)
        invariant(known == node, "two leaders in one term", term=term, first=known, second=node)
        committed_max = max((i for t, i in self.committed_max.items() if t < term), default=0)
        held = log.term_at(committed_max) if log is not None and committed_max else None
        invariant(
            last_index >= committed_max
            and (held is None or held == self.applied[committed_max][0]),
            "a leader was elected without all committed entries",
            node=node,
            term=term,
            last_index=last_index,
            committed_max=committed_max,
            held_term=held,
        )

    def lease_held(self, holder: str, holder_term: int, elected: str, term: int) -> None:
        """At the moment of an election another node believes in the lease of its own term.

        Whoever is elected late, for a term that is over, harms nobody.

        Raises:
            InvariantBroken: that term is an older one.
        """
        invariant(
            holder_term > term,
            "a leader was elected while another held a lease",
            holder=holder,
            holder_term=holder_term,
            elected=elected,
            term=term,
        )

    def vote_left(self, node: str, term: int, candidate: str, disk: OnDisk) -> None:
        """A vote leaves a node.

        Raises:
            InvariantBroken: a crash would let the node forget it, or it has voted otherwise.
        """
        invariant(
            disk.term > term or (disk.term == term and disk.vote == candidate),
            "a vote left before it was durable",
            node=node,
            term=term,
            candidate=candidate,
            on_disk=(disk.term, disk.vote),
        )
        known = self.votes.setdefault((node, term), candidate)
        invariant(
            known == candidate,
            "a node voted twice in one term",
            node=node,
            term=term,
            first=known,
            second=candidate,
        )

    def term_seen(self, node: str, term: int) -> None:
        """A term that a node has found on its disk.

        Raises:
            InvariantBroken: it went back, over a restart.
        """
        invariant(
            term >= self.terms.get(node, 0),
            "a node's term went back",
            node=node,
            term=term,
            before=self.terms.get(node, 0),
        )
        self.terms[node] = term

    def forget(self, node: str) -> None:
        """A node's disk was damaged or replaced: it may have forgotten its term."""
        self.terms.pop(node, None)

    # -- the log -----------------------------------------------------------------------------

    def entry_applied(
        self, node: str, index: int, term: int, data: bytes, *, life: str = ""
    ) -> bool:
        """A node gives a committed entry to its state machine.

        Args:
            life: names one run of the node, whose position never falls; empty to leave that out.

        Returns:
            Whether nobody had applied this index before.

        Raises:
            InvariantBroken: another entry was committed at this index, or the node has already
                applied it.
        """
        if life:
            self.positioned(life, index, applied=True)
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
            return False
        self.index_max = max(self.index_max, index)
        # Committed by the newest leader at the latest; an entry's own term may be older.
        by_term = max([term, *self.leaders])
        self.committed_max[by_term] = max(self.committed_max.get(by_term, 0), index)
        return True

    def positioned(self, life: str, index: int, *, applied: bool = False) -> None:
        """A life of a node now stands at ``index``, after an entry or after a snapshot.

        Raises:
            InvariantBroken: it was further.
        """
        before = self._positions.get(life, -1)
        invariant(
            index > before or (index == before and not applied),
            "a node's applied index fell",
            life=life,
            before=before,
            now=index,
        )
        invariant(
            not applied or before < 0 or index == before + 1,
            "an entry was passed over",
            life=life,
            before=before,
            now=index,
        )
        self._positions[life] = index

    def acknowledged(self, node: str, index: int, term: int | None, disk: OnDisk) -> None:
        """A follower tells its leader that it holds everything up to ``index``.

        Raises:
            InvariantBroken: its disk does not hold that entry.
        """
        invariant(
            term is None or disk.holds(index, term),
            "a follower acknowledged an entry that is not on its disk",
            node=node,
            index=index,
            term=term,
            on_disk=disk.last,
        )

    def committed(self, index: int, term: int, disks: Mapping[str, OnDisk]) -> None:
        """An entry was committed; ``disks`` are those of all members, living or not.

        Whatever happens next, also if all of them lose power now: who does not hold the entry
        must find too few who would vote for it.

        Raises:
            InvariantBroken: one such node could win.
        """
        majority = len(disks) // 2 + 1
        for node, disk in disks.items():
            if disk.holds(index, term):
                continue
            voters = [other for other, one in disks.items() if one.last <= disk.last]
            invariant(
                len(voters) < majority,
                "a node without a committed entry could be elected",
                index=index,
                term=term,
                node=node,
                voters=voters,
            )

    def leader_committed(self, node: str, term_start_index: int, commit_index: int) -> None:
        """A leader was the first to commit something.

        Raises:
            InvariantBroken: by counting copies of entries of earlier terms, before one of its own
                term was committed (Raft 5.4.2, figure 8).
        """
        invariant(
            commit_index >= term_start_index,
            "a leader committed entries of earlier terms by counting",
            node=node,
            term_start_index=term_start_index,
            commit_index=commit_index,
        )

    # -- reads -------------------------------------------------------------------------------

    def read_served(self, node: str, applied_index: int, floor: int, *, by: str) -> None:
        """A node answers from its state; ``floor`` was committed before it was asked.

        Raises:
            InvariantBroken: its state is older.
        """
        invariant(
            applied_index >= floor,
            "a read missed what was committed before it was asked",
            node=node,
            by=by,
            applied_index=applied_index,
            committed=floor,
        )
