"""What has to happen in a batch of stories for its silence to mean something.

Counted from what nodes log (``LOGGED``) and from what the simulator sees itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

LOGGED = {
    "raft_snapshot_sending": "snapshot sent",
    "raft_snapshot_installed": "snapshot installed",
    "snapshot_saved": "snapshot taken",
    "raft_quorum_lost": "leader gave up",
    "raft_transfer_started": "transfer started",
    "raft_transfer_failed": "transfer failed",
    "master_elected": "master elected",
    "master_lost": "master lost",
    "broker_cleaned": "broker cleaned",
    "broker_address_changed": "broker moved",
    "store_damaged": "damaged store found",
}

REFUSED = (
    "alter fenced: master epoch", "alter fenced: set epoch", "alter refused: not alive",
    "cleaned id refused", "id of an older cleaning refused",
)  # fmt: skip
"""What out-of-date requests are answered (``late_requests``)."""

SEARCHES = "calls of a set put in order"
GIVEN_UP = "search given up"
ALL_ENDED = "each search for an order of calls at its end"

HAPPENINGS = frozenset(
    {
        *LOGGED.values(), *REFUSED, SEARCHES, "entry committed", "leader elected",
        "leader lost", "leader probed", "log compacted", "log reset", "log truncated", "read index served", "set adopted",
        "reads without leases",
        "restarted from snapshot", "stopped itself", "store of format 1", "torn tail cut", "transfer done", "two disks full",
    }
)  # fmt: skip


def happenings(event: str, facts: Mapping[str, object]) -> list[str]:
    """What a node's log line tells of."""
    if event != "raft_store_opened":
        return [LOGGED[event]] if event in LOGGED else []
    found = ["torn tail cut"] if facts.get("torn_tail_cut") else []
    return [*found, "restarted from snapshot"] if facts.get("snapshot_index") else found


def missing(
    counts: Mapping[str, int], faults: Iterable[str], ambushes: Iterable[str] = ()
) -> list[str]:
    """Happenings, kinds of faults and ambushes that did not occur, in order; and searches' ends."""
    wanted = [*HAPPENINGS, *(f"fault: {name}" for name in faults)]
    wanted += [f"ambush: {name}" for name in ambushes]
    return sorted(name for name in wanted if not counts.get(name)) + unended(counts)


def unended(counts: Mapping[str, int]) -> list[str]:
    """What a batch lacks in which a search was given up: it says nothing of those calls."""
    return [ALL_ENDED] if counts.get(GIVEN_UP) else []
