"""The roles of a Raft node, as a table; what Raft promises, and where each promise is kept.

Terms. Time is cut into terms, numbers that only grow. Each has one leader at most. A message of
a higher term ends whatever a node was: it follows. A message of a lower term changes nothing but
tells its sender that it is late (Raft 5.1).

Invariants, by the names of Raft's figure 3, with the place that keeps each:

- Election safety: one leader a term at most. A node votes once a term, and its vote is on the
  disk before it leaves (``votes.on_vote_request``; ``Node.take_effects`` lists ``Persist`` before
  the answer). Its own vote counts when it is durable, not before (``votes.own_vote_durable``).
- Leader append-only: a leader never cuts its log. Only ``append._merge`` cuts, on a follower.
- Log matching: two logs with the same entry at an index are equal up to it. A follower takes
  entries only behind an entry that agrees (``append.on_append_request``, Raft 5.3).
- Leader completeness: a committed entry is in the log of every later leader. Who votes compares
  logs first (``RaftLog.is_up_to_date``, Raft 5.4.1), and only an entry of the leader's own term is
  committed by counting (``Node.advance_commit``, Raft 5.4.2, figure 8). That is why a new leader
  begins its term with an empty entry.
- State machine safety: what is committed is never cut (an invariant in ``Node.truncate_from``).

Three things are not in the paper's core, and each is there because something broke without it:

- The pre-vote (dissertation 9.6). A node that was cut off would come back with a high term and
  end a leader that everybody hears. So it asks first whether it could win, and changes nothing by
  asking: neither its own term nor anybody's vote.
- The check of the quorum (dissertation 6.2). A leader that hears no majority steps down, or its
  clients would wait for it while another leads.
- The vote guard and the read lease (dissertation 4.2.3 and 6.4.1; ADR 0002). A node that has
  just heard a leader helps nobody else to be elected, which lets that leader answer reads alone.

Whether a node may vote at all is another matter: ``standing.py`` has that table and its proof.

Source: Ongaro and Ousterhout, "In Search of an Understandable Consensus Algorithm" (2014), cited
as Raft; Ongaro, "Consensus: Bridging Theory and Practice" (2014), cited as dissertation.
"""

from __future__ import annotations

from rmqha.base.transitions import StateTable, Transition

_F, _P, _C, _L, _S = "follower", "pre_candidate", "candidate", "leader", "stopped"
_HIGHER = "its term is higher"


def _all(states: tuple[str, ...], event: str, to: str, when: str, source: str) -> list[Transition]:
    """The same row for several states."""
    return [Transition(state, event, to, when, source) for state in states]


TABLE: tuple[Transition, ...] = (
    Transition(_F, "Ticked", _P, "no leader was heard for an election timeout", "dissertation 9.6"),
    Transition(_F, "Ticked", _C, "the same in a group of one, which asks nobody", "Raft 5.2"),
    Transition(_F, "TimeoutNow", _C, "the leader of this term hands over", "dissertation 3.10"),
    Transition(_P, "PreVoteResponse", _C, "a majority would vote for it", "dissertation 9.6"),
    Transition(_C, "VoteResponse", _L, "a majority has voted, its own vote durable", "Raft 5.2"),
    Transition(
        _C, "Persisted", _L, "its own vote is durable and the others' are there", "Raft 5.2"
    ),
    Transition(_C, "Ticked", _P, "nobody won; it asks before it opens another term", "Raft 5.2"),
    Transition(_L, "Ticked", _F, "no majority has answered for long", "dissertation 6.2"),
    # Somebody leads this term or a later one.
    *_all((_P, _C), "AppendRequest", _F, "its term is not lower: a leader is there", "Raft 5.2"),
    *_all((_P, _C), "SnapshotRequest", _F, "its term is not lower: a leader is there", "Raft 7"),
    Transition(_L, "AppendRequest", _F, _HIGHER, "Raft 5.1"),
    Transition(_L, "SnapshotRequest", _F, _HIGHER, "Raft 5.1"),
    # Any other message of a later term.
    Transition(_P, "PreVoteResponse", _F, "it is refused by a higher term", "Raft 5.1"),
    *_all((_P, _C, _L), "VoteRequest", _F, f"{_HIGHER} and no leader is heard", "Raft 5.1"),
    *_all((_P, _C, _L), "VoteResponse", _F, _HIGHER, "Raft 5.1"),
    *_all((_P, _C, _L), "AppendResponse", _F, _HIGHER, "Raft 5.1"),
    *_all((_P, _C, _L), "SnapshotResponse", _F, _HIGHER, "Raft 5.1"),
    # A node that cannot remember its votes must not cast any.
    *_all((_F, _P, _C, _L), "DiskBroken", _S, "always; the process ends", "Raft 5.1, figure 2"),
)

PICTURE = StateTable(
    "The roles of a Raft node",
    (
        (_F, "takes entries, votes"),
        (_P, "asks whether it could win"),
        (_C, "asks for votes"),
        (_L, "takes proposals"),
        (_S, "its disk failed"),
    ),
    TABLE,
)
