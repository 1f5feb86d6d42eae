"""Counters of one controller: plain integers, for counting happens on every request."""

from __future__ import annotations

from bisect import bisect_left

from rmqha.controller.probing import ProbeCounts

BUCKETS_US = (
    1, 3, 5, 10, 30, 50, 100, 300, 500, 1000, 3000, 5000, 10_000, 30_000, 50_000, 100_000,
    300_000, 500_000, 1_000_000, 3_000_000, 5_000_000, 10_000_000,
)  # fmt: skip
CODE_MAX = 2000


class ControllerMetrics:
    """What one node has done.

    Attributes:
        role: this node's Raft role.
        leader_id: whom this node knew as leader last.
        leader_changes: how often that was another one than before.
        may_vote: 0 while this node's store is new or being caught up.
        members, voters: of the group, as this node's log has it.
        unproven: connections between controllers on which the other end proved nothing.
        election_timeout_ms: the shortest silence after which this node asks for votes now.
        no_space: 1 while the disk is full.
        protocol_errors: frames that could not be read.
        appends_failed: proposals that Raft dropped.
        probes: what came of asking silent masters.
        append_latency: counts by bucket of the proposals that were committed.
    """

    def __init__(self) -> None:
        self.role = "follower"
        self.leader_id: str | None = None
        self.leader_changes = 0
        self.may_vote = 0
        self.members = 0
        self.voters = 0
        self.unproven = 0
        self.election_timeout_ms = 0
        self.no_space = 0
        self.requests = [0] * CODE_MAX
        self.unknown_requests = 0
        self.probes = ProbeCounts()
        self.batches = 0
        self.commands = 0
        self.protocol_errors = 0
        self.appends_failed = 0
        self.append_latency = [0] * (len(BUCKETS_US) + 1)
        self.append_latency_sum_us = 0
        self.latencies: dict[int, list[int]] = {}
        self.latency_sums_us: dict[int, int] = {}

    def led_by(self, leader_id: str | None) -> bool:
        """This node knows another leader, or none; whether one has replaced another."""
        if leader_id is None:
            return False
        changed = self.leader_id not in (None, leader_id)
        self.leader_changes += changed
        self.leader_id = leader_id
        return changed

    def count(self, code: int) -> None:
        """A request was taken in."""
        if 0 <= code < CODE_MAX:
            self.requests[code] += 1
        else:
            self.unknown_requests += 1

    def batch(self, size: int) -> None:
        """A chunk with this many commands was handled."""
        self.batches += 1
        self.commands += size

    def appended(self, elapsed_ms: int) -> None:
        """A proposal was committed and applied."""
        self.append_latency[bisect_left(BUCKETS_US, elapsed_ms * 1000)] += 1
        self.append_latency_sum_us += elapsed_ms * 1000

    def latency(self, code: int, elapsed_ms: int) -> None:
        """A request that had to wait for the log or for a round was answered."""
        counts = self.latencies.get(code)
        if counts is None:
            counts = self.latencies[code] = [0] * (len(BUCKETS_US) + 1)
        counts[bisect_left(BUCKETS_US, elapsed_ms * 1000)] += 1
        self.latency_sums_us[code] = self.latency_sums_us.get(code, 0) + elapsed_ms * 1000
