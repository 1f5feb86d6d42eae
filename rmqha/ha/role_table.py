"""The roles of a replica, as a table; what replication promises, and where each promise is kept.

Epochs. Each election of a broker set begins a master epoch, a number that only grows. A replica
notes at which offset of its log each epoch began. Two logs agree as far as their epochs do, so
where they part is found by comparing these lists (RIP-44, "Election Truncation Algorithm";
``epochs.find_consistent_point``), and not by comparing bytes.

Invariants, with the place that keeps each:

- A role is announced only when its epoch is on the disk. A master that forgot the epoch in which
  it wrote could not be told from the one before it. So "recording" comes before "master".
- The log is cut before the epochs are. After a crash between the two the log is shorter than its
  epochs say, which ``EpochCache.drop_beyond`` mends; the other way round, bytes of one epoch would
  be taken for those of another (RIP-44, "Epoch file updates and corrections").
- A master serves nothing before its queues have reached the end of what is confirmed
  ("dispatching"): numbers of queue offsets are given out from there (RIP-44, "Switching process").
- A command of an older epoch than the log knows changes nothing (``role.refuses``): its election
  has been overtaken, and to follow it would cut what a newer master has had acknowledged.
- One change at a time. A command that comes meanwhile waits, and is carried out after it; so the
  last of a wait leads wherever the next command does.
- confirmOffset never passes what any member of the SyncStateSet holds, and a put is complete when
  every member of each set that the controller may hold has it (``sync_state_set.py``,
  ``confirm_offset.py``; RIP-44, "ConfirmOffset" and "A solution without losing messages").

What happens on a connection (handshake, cut, transfer) is in ``slave_session.py`` and
``master_session.py``; here it is one state, "following".

Source: RIP-44, sections as named; AutoSwitchHAService of RocketMQ 5.1.1 to 5.5 for what the RIP
leaves open. "ours" marks what Java does otherwise; ``docs/PARITY.md`` has the tests.
"""

from __future__ import annotations

from rmqha.base.transitions import StateTable, Transition

_NONE, _FOLLOWS, _CUTS = "unassigned", "following", "cutting"
_RECORDS, _DISPATCHES, _MASTER, _RENEWS = "recording", "dispatching", "master", "renewing"
_EPOCHS = "RIP-44, Epoch file updates"
_NEW = "the epoch is not older than the log's"

TABLE: tuple[Transition, ...] = (
    Transition(_NONE, "ChangedToSlave", _FOLLOWS, _NEW, "RIP-44, Master-slave relationship"),
    Transition(_NONE, "ChangedToMaster", _CUTS, _NEW, "RIP-44, Master-slave relationship"),
    Transition(_FOLLOWS, "ChangedToMaster", _CUTS, _NEW, "RIP-44, Switching process"),
    Transition(_CUTS, "TailCut", _RECORDS, "the log ends at a whole record", _EPOCHS),
    Transition(_RECORDS, "EpochsWritten", _DISPATCHES, "the new epoch is on the disk", _EPOCHS),
    Transition(
        _DISPATCHES, "DispatchReached", _MASTER, "no command waits", "RIP-44, Switching process"
    ),
    Transition(_DISPATCHES, "DispatchReached", _FOLLOWS, "another was elected meanwhile", "ours"),
    Transition(_DISPATCHES, "DispatchReached", _RENEWS, "it was elected again meanwhile", "ours"),
    Transition(_MASTER, "ChangedToSlave", _FOLLOWS, _NEW, "RIP-44, Switching process"),
    Transition(
        _MASTER, "ChangedToMaster", _RENEWS, "it has written in its old epoch", "ours, #6344"
    ),
    Transition(_RENEWS, "EpochsWritten", _MASTER, "no command waits", _EPOCHS),
    Transition(_RENEWS, "EpochsWritten", _FOLLOWS, "another was elected meanwhile", "ours"),
)

PICTURE = StateTable(
    "The roles of a replica",
    (
        (_NONE, "knows no master"),
        (_FOLLOWS, "copies the log"),
        (_CUTS, "drops a torn end"),
        (_RECORDS, "notes its epoch"),
        (_DISPATCHES, "fills its queues"),
        (_MASTER, "takes writes"),
        (_RENEWS, "notes a new epoch"),
    ),
    TABLE,
)
