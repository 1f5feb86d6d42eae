"""Raft's safety as checks of one state: what has been seen so far, and what the nodes hold now.

The rules over time are ``verify.raft.RaftWatch``'s own: its memory is a part of the state. Those of
a single moment are here: logs match, committed entries are durable on a majority, and every state
machine holds what was committed. Source: Raft paper, figure 3.
"""

from __future__ import annotations

from typing import NamedTuple

from rmqha.base.invariants import invariant
from rmqha.controller.raft.messages import Entry
from rmqha.controller.raft.quorum import majority
from rmqha.sim.explore.member import Led, Member, Read, Seen
from rmqha.verify.raft import RaftWatch


class Past(NamedTuple):
    """What ``RaftWatch`` remembers.

    Attributes:
        leaders: (term, node), ascending.
        committed: (term, data) of each index from 1 on.
        committed_max: (term, highest index committed by its leader), ascending.
        lost: (node, how many entries were committed then) of each node that has lost a store that
            counted and does not count again, ascending.
    """

    leaders: tuple[tuple[int, str], ...] = ()
    committed: tuple[tuple[int, bytes], ...] = ()
    committed_max: tuple[tuple[int, int], ...] = ()
    lost: tuple[tuple[str, int], ...] = ()

    def with_seen(self, node: str, seen: tuple[Seen, ...]) -> Past:
        """After what one node did in one step.

        Raises:
            InvariantBroken: a rule does not hold.
        """
        watch = RaftWatch()
        watch.leaders = dict(self.leaders)
        watch.applied = dict(enumerate(self.committed, 1))
        watch.committed_max = dict(self.committed_max)
        for one in seen:
            match one:
                case Led(term, base_index, entries):
                    watch.leader_elected(node, term, base_index + len(entries))
                    self._check_complete(node, one, watch)
                case Entry(log_index, term, data):
                    watch.entry_applied(node, log_index, term, data)
                case Read(applied_index, index_min):
                    invariant(
                        applied_index >= index_min,
                        "a read was answered from an old state",
                        node=node,
                        applied_index=applied_index,
                        committed_before=index_min,
                    )
        return Past(
            tuple(sorted(watch.leaders.items())),
            tuple(watch.applied[i] for i in sorted(watch.applied)),
            tuple(sorted(watch.committed_max.items())),
            self.lost,
        )

    def with_lost(self, node: str) -> Past:
        """After a node lost a store that counted."""
        lost = {**dict(self.lost), node: len(self.committed)}
        return self._replace(lost=tuple(sorted(lost.items())))

    def with_back(self, node: str) -> Past:
        """After a node counts again."""
        return self._replace(lost=tuple(one for one in self.lost if one[0] != node))

    def _check_complete(self, node: str, led: Led, watch: RaftWatch) -> None:
        before = max((i for t, i in watch.committed_max.items() if t < led.term), default=0)
        for entry in led.entries:
            if entry.log_index <= before:
                invariant(
                    watch.applied[entry.log_index] == (entry.term, entry.data),
                    "a leader was elected without all committed entries",
                    node=node,
                    term=led.term,
                    index=entry.log_index,
                )


def check_logs_match(one: Member, other: Member) -> None:
    """Entries of one index and term are one entry, and so are all before them (log matching).

    Raises:
        InvariantBroken: they differ.
    """
    if one.core is None or other.core is None:
        return
    mine, theirs = one.core.node.log, other.core.node.log
    first = max(mine.base_index, theirs.base_index) + 1
    last = min(mine.last_index, theirs.last_index)
    if first > last:
        return  # what they have in common is committed and compacted
    agree = False
    ours = zip(mine.between(first, last), theirs.between(first, last), strict=True)
    for a, b in reversed(list(ours)):
        agree = agree or a.term == b.term
        invariant(
            not agree or a == b,
            "two logs agree in an entry and differ in or before it",
            index=a.log_index,
            nodes=(one.node_id, other.node_id),
        )


def check_state_machine(member: Member, past: Past) -> None:
    """What a node has applied is what was committed, in order (state machine safety).

    Raises:
        InvariantBroken: it is not.
    """
    expected = tuple(data for _, data in past.committed[: member.applied_index] if data)
    invariant(
        member.applied_index <= len(past.committed) and member.records == expected,
        "a state machine holds something that was not committed",
        node=member.node_id,
        applied_index=member.applied_index,
        holds=member.records,
        committed=expected,
    )


def held_count(member: Member, past: Past) -> int:
    """How many of the committed entries, from the first on, are on this node's disk."""
    for index, (term, _) in enumerate(past.committed, 1):
        if not member.disk.holds(index, term):
            return index - 1
    return len(past.committed)


def check_durable(held: list[int], past: Past) -> None:
    """Every committed entry is on the disks of a majority.

    A node that does not count (``raft/standing.py``) holds nothing that counts, and can elect
    nobody: all that its copies were good for is that no majority is without them, which holds as
    long as it has no vote. So it stands here as one that holds all, and no more than it.

    Args:
        held: of each node, how many of the committed entries are on its disk; all of them where
            its disk says that it does not count.

    Raises:
        InvariantBroken: one is not.
    """
    safe = sorted(held, reverse=True)[majority(len(held)) - 1]
    invariant(
        safe >= len(past.committed),
        "a committed entry is not durable on a majority",
        committed=len(past.committed),
        durable=tuple(held),
    )
