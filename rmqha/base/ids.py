"""Names for the integers and strings that must not be mixed up."""

from __future__ import annotations

from typing import NewType

NodeId = NewType("NodeId", str)
"""A controller's id in its peer list, such as ``n0``."""

Term = NewType("Term", int)
"""A Raft term, from 0."""

LogIndex = NewType("LogIndex", int)
"""A position in the Raft log; the first entry has 1, 0 means "before the log"."""

BrokerId = NewType("BrokerId", int)
"""A broker's persistent controller id, from 1 (persistent-broker-id design)."""

MasterEpoch = NewType("MasterEpoch", int)
"""Grows by one with each election of a broker set; 0 before the first one."""

ConnectionId = NewType("ConnectionId", int)
"""A connection's number within one process; never reused."""

MASTER_ID = 0
"""Whom name servers list and clients ask as a set's master, whichever ``BrokerId`` it has."""
