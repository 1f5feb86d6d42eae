"""The states of a write lease, as a table; what it promises, and on what the promise rests.

The question. A master that is cut off goes on taking writes while the controllers elect another,
and all that it takes is cut when the network heals (#7017). Until when may it say "stored" by
itself? RIP-44 does not say; Java's master does so for ever.

The bound. A controller elects in a silent master's place only when the timeout T is over that the
master's own heartbeats name. Let an answered heartbeat have left the broker at s, by its clock;
it reached the controller at s or later, so that controller waits until s + T at least, by its own
clock. The lease ends at s + T less a margin: with T = 10 s and a margin of a fifth at s + 8 s.
Clocks whose rates differ by less than 1/0.8 cannot bring the two in the wrong order.

Invariants:

- While the lease is held, no other master can have been elected by a controller that keeps its
  timeout. Of a majority of the controllers each has promised, so whoever leads next has promised
  or asks one that has; and the one that leads now has, because it elects alone.
- A gap ends the proof. Between two promises that do not touch, another may have been elected and
  this one's heartbeats still be answered: an answer does not say who is master. So only one row
  leads into "held", from "asking" by ``Confirmed``: the leader's own word, given to a question
  that was sent after promises that still hold.
- Who the controllers are may change (``Named``). A majority is needed of those that the configuration
  names and of those that the leader names: such promises meet every majority that an election can
  have, while the one names nodes that are no members, or the other is one change old. What was held
  goes on if the promises of both new groups hold at that moment, and the leader has said who its
  members are; a proof under way begins anew.
- The lease is judged by the clock at the moment of the write, never by a timer: a process that
  was stopped wakes up without it. ``Ticked`` only tells logs and figures what has happened.

What the bound does not cover is listed in ADR 0016: a connection whose end only the controller
sees, an operator's election, a clock that is set, a machine that is suspended.

Source: ADR 0016; the promise is that of Gray and Cheriton, "Leases" (1989), with the controllers'
timeout in place of a term that was asked for. RIP-44, "Elect Master", for who elects and when.
"""

from __future__ import annotations

from rmqha.base.transitions import StateTable, Transition

_SLAVE, _BARE, _ASKING, _HELD, _FENCED = "slave", "unpromised", "asking", "held", "fenced"
_OVER = "the oldest promise that matters is over"
_LEFT = "a connection ended; too few promises are left"
_LED = "the new leader has promised nothing"
_NAMED = "too few of those that count now have promised"

TABLE: tuple[Transition, ...] = (
    Transition(_SLAVE, "Reigned", _BARE, "too few controllers have promised", "ADR 0016"),
    Transition(_SLAVE, "Reigned", _ASKING, "a majority and the leader have promised", "ADR 0016"),
    Transition(_SLAVE, "Reigned", _FENCED, "somebody asks for an election", "ADR 0024"),
    Transition(_BARE, "Vouched", _ASKING, "this promise completes a majority", "ADR 0016"),
    Transition(_BARE, "Led", _ASKING, "the leader is one that has promised", "ADR 0016"),
    Transition(_BARE, "Named", _ASKING, "those that count now have promised", "ADR 0016"),
    Transition(_ASKING, "Confirmed", _HELD, "the answer is to this question", "ADR 0016"),
    # A promise ends: by time, with its connection, or because it was not the leader's.
    Transition(_ASKING, "Ticked", _BARE, _OVER, "ADR 0016, the bound"),
    Transition(_ASKING, "Left", _BARE, _LEFT, "ADR 0016"),
    Transition(_ASKING, "Led", _BARE, _LED, "ADR 0016"),
    Transition(_ASKING, "Named", _BARE, _NAMED, "ADR 0016"),
    Transition(_HELD, "Ticked", _BARE, _OVER, "ADR 0016, the bound"),
    Transition(_HELD, "Left", _BARE, _LEFT, "ADR 0016"),
    Transition(_HELD, "Led", _BARE, _LED, "ADR 0016"),
    Transition(_HELD, "Named", _BARE, _NAMED, "ADR 0016"),
    Transition(_HELD, "Named", _ASKING, "nobody has said who the members are", "ADR 0016"),
    # The watcher of a broker that stands still is about to have another elected.
    Transition(_BARE, "Fenced", _FENCED, "always", "ADR 0024"),
    Transition(_ASKING, "Fenced", _FENCED, "always", "ADR 0024"),
    Transition(_HELD, "Fenced", _FENCED, "always", "ADR 0024"),
    Transition(_FENCED, "Unfenced", _BARE, "too few promises", "ADR 0024"),
    Transition(_FENCED, "Unfenced", _ASKING, "promises hold; the proof begins anew", "ADR 0024"),
    # Another reigns.
    Transition(_BARE, "Deposed", _SLAVE, "always", "RIP-44, Elect Master"),
    Transition(_ASKING, "Deposed", _SLAVE, "always", "RIP-44, Elect Master"),
    Transition(_HELD, "Deposed", _SLAVE, "always", "RIP-44, Elect Master"),
    Transition(_FENCED, "Deposed", _SLAVE, "always", "RIP-44, Elect Master"),
)

PICTURE = StateTable(
    "The states of a write lease",
    (
        (_SLAVE, "not the master"),
        (_BARE, "too few promises"),
        (_ASKING, "am I still master?"),
        (_HELD, "writes by itself"),
        (_FENCED, "an election is asked for"),
    ),
    TABLE,
)
