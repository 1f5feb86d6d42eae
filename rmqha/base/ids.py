"""Names for the integers and strings that must not be mixed up."""

from __future__ import annotations

from typing import NewType

Term = NewType("Term", int)
"""A Raft term, from 0. Never an index of the log, beside which it stands nearly everywhere."""
NO_TERM = Term(0)
"""The term of a node that has heard of none, and of a log without entries."""

BrokerId = NewType("BrokerId", int)
"""A broker's persistent controller id, from 1 (persistent-broker-id design)."""

MasterEpoch = NewType("MasterEpoch", int)
"""Grows by one with each election of a broker set."""
NEVER_ELECTED = MasterEpoch(0)
"""The epoch before the first election."""

SyncStateSetEpoch = NewType("SyncStateSetEpoch", int)
"""Grows by one with each change of a set's SyncStateSet."""
NEVER_ALTERED = SyncStateSetEpoch(0)
"""The epoch before the first change."""

ConnectionId = NewType("ConnectionId", int)
"""A connection's number within one process; never reused."""

MASTER_ID = 0
"""Whom name servers list and clients ask as a set's master, whichever ``BrokerId`` it has."""
