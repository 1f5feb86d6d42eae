"""A broker's place in its set, as a table: from no name to master or slave, and back.

Two questions are answered one after the other. Which replica is this? A broker gets a number once
and keeps it for good, in a file, so that a SyncStateSet can name it whatever its address is. And
who reigns? The controllers say so, in answers (1002, 1003, 1004). A notification (1008), which
anybody can send, only makes this broker ask.

Invariants, with the place that keeps each:

- An id is never taken by two brokers. What is applied for is on the disk before it is asked for,
  with a check code by which the controller knows a second question of the same broker; so a crash
  between the grant and the file costs no id (``identity.py``; persistent-broker-id design).
- Only a higher master epoch changes a role (``Place.adopt`` in ``place.py``). Answers and notifications
  overtake each other on the way; the epoch, and not the time of arrival, says which is newer.
- Nothing is served before the first role is complete, and between two roles nothing is served
  either: "changing" lies between any two (RIP-44, "Switching process"). The one row into "master"
  is the word of replication that log and epoch are in order.
- A role that replication refuses, since its log knows a later epoch, is not taken up by trying
  again: only a newer epoch leads out of "refused".
- A master that lost power does not resume its epoch, of which slaves may hold more than it does
  (``handing_over.py``, ADR 0013): it hands over, or waits to be missed.

``agenda.py`` has what is due when, ``leader_search.py`` who is asked. "Answered (1003)" is the
answer to request 1003, "Told" an answer to a master that asked whether it still reigns.

Source: RIP-44, "Detailed design of broker"; persistent-broker-id design; ReplicasManager of
RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

from rmqha.base.transitions import StateTable, Transition

_NAMELESS, _APPLIES, _KNOWN, _REGISTERED = "nameless", "applying", "identified", "registered"
_CHANGES, _REFUSED, _MASTER, _SLAVE = "changing", "refused", "master", "slave"
_ID = "persistent-broker-id"
_ONLINE = "RIP-44, Online process"
_SWITCH = "RIP-44, Switching process"
_POLL = "RIP-44, Master-slave relationship"
_LEASE = "ADR 0016, confirmation"
_NEWER = "it names a master of a higher epoch"

TABLE: tuple[Transition, ...] = (
    # Which replica is this?
    Transition(_NAMELESS, "Started", _APPLIES, "the temporary file is there", _ID),
    Transition(_NAMELESS, "Started", _KNOWN, "the final file is there", _ID),
    Transition(_NAMELESS, "TemporaryWritten", _APPLIES, "the id to apply for is kept", _ID),
    Transition(_APPLIES, "IdentityWritten", _KNOWN, "it was granted and is kept", _ID),
    Transition(_APPLIES, "TemporaryRemoved", _NAMELESS, "it belongs to another (2014)", _ID),
    # Who reigns?
    Transition(_KNOWN, "Answered (1003)", _REGISTERED, "there is no master", _ONLINE),
    Transition(_KNOWN, "Answered (1003)", _CHANGES, "it names the master", _ONLINE),
    Transition(_KNOWN, "Answered (1004)", _CHANGES, "1008 was sent, and it names a master", _SWITCH),
    Transition(_REGISTERED, "Answered (1002)", _CHANGES, "an election has ended", "RIP-44, Elect Master"),
    Transition(_REGISTERED, "Answered (1004)", _CHANGES, "it names a master", _POLL),
    # The role is taken up, or cannot be.
    Transition(_CHANGES, "RoleSettled", _MASTER, "this broker was named", _SWITCH),
    Transition(_CHANGES, "RoleSettled", _SLAVE, "another was named", _SWITCH),
    Transition(_CHANGES, "RoleSettled", _REFUSED, "the log knows a later epoch", _POLL),
    # Another election.
    Transition(_MASTER, "Answered (1002)", _CHANGES, "a planned switch, and it names the heir", "#3747"),
    Transition(_MASTER, "Answered (1004)", _CHANGES, _NEWER, _POLL),
    Transition(_MASTER, "Told", _CHANGES, _NEWER, _LEASE),
    Transition(_SLAVE, "Answered (1004)", _CHANGES, _NEWER, _POLL),
    Transition(_SLAVE, "Told", _CHANGES, _NEWER, _LEASE),
    Transition(_REFUSED, "Answered (1004)", _CHANGES, _NEWER, _POLL),
    Transition(_REFUSED, "Told", _CHANGES, _NEWER, _LEASE),
)  # fmt: skip

PICTURE = StateTable(
    "A broker's place in its set",
    (
        (_NAMELESS, "has no id"),
        (_APPLIES, "asks for one"),
        (_KNOWN, "has its id for good"),
        (_REGISTERED, "knows no master"),
        (_CHANGES, "takes up a role"),
        (_MASTER, "takes writes"),
        (_SLAVE, "follows"),
        (_REFUSED, "waits for an epoch"),
    ),
    TABLE,
)
