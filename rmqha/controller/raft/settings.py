"""Timings and limits of the Raft core, for a local network."""

from __future__ import annotations

from msgspec import Struct

from rmqha.base.errors import ConfigInvalid


class RaftSettings(Struct, frozen=True):
    """All durations are milliseconds.

    Attributes:
        heartbeat_ms: a leader speaks at least this often.
        election_min_ms, election_max_ms: a follower that hears nothing for a time between
            these asks for votes.
        vote_guard_ms: no node helps to elect another within this time of hearing the leader,
            not even after its connection was reset.
        lease_ms: a leader answers reads by itself for this long after a round that a quorum
            answered. ``vote_guard_ms / lease_ms`` is the clock drift that is tolerated (11 %).
        lease_reads: false lets every read wait for a round, for clocks that are not trusted; it may
            be changed while the node runs (``RaftCore.use_lease``).
        reset_jitter_ms: after a reset connection the wait is ``vote_guard_ms`` plus at most
            this.
        entries_per_request_max, bytes_per_request_max: size of one AppendRequest.
        requests_in_flight_max: requests sent ahead of their answers, per follower.
        snapshot_chunk_bytes: size of one SnapshotRequest.
        snapshot_bytes_max: a larger incoming snapshot is refused.
        uncommitted_entries_max: proposals beyond this are refused until some commit.
        trailing_entries: entries kept before a snapshot for followers that are a little behind.
        reads_pending_max: reads that may wait for a round.
    """

    heartbeat_ms: int = 50
    election_min_ms: int = 150
    election_max_ms: int = 300
    vote_guard_ms: int = 100
    lease_ms: int = 90
    lease_reads: bool = True
    reset_jitter_ms: int = 60
    entries_per_request_max: int = 512
    bytes_per_request_max: int = 256 * 1024
    requests_in_flight_max: int = 64
    snapshot_chunk_bytes: int = 256 * 1024
    snapshot_bytes_max: int = 1 << 30
    uncommitted_entries_max: int = 50_000
    trailing_entries: int = 2_000
    reads_pending_max: int = 50_000

    def __post_init__(self) -> None:
        """Check the relations that safety and liveness rest on.

        Raises:
            ConfigInvalid: naming the two values that do not fit.
        """
        ordered = (
            ("raftHeartbeatMs", self.heartbeat_ms, "raftLeaseMs", self.lease_ms),
            ("raftLeaseMs", self.lease_ms, "raftVoteGuardMs", self.vote_guard_ms),
            ("raftVoteGuardMs", self.vote_guard_ms, "raftElectionMinMs", self.election_min_ms),
            ("raftElectionMinMs", self.election_min_ms, "raftElectionMaxMs", self.election_max_ms),
        )
        for low_name, low, high_name, high in ordered:
            if not 0 < low < high:
                raise ConfigInvalid(f"{low_name}={low} must be below {high_name}={high}")
        positive = (
            ("raftEntriesPerRequestMax", self.entries_per_request_max),
            ("raftBytesPerRequestMax", self.bytes_per_request_max),
            ("raftRequestsInFlightMax", self.requests_in_flight_max),
            ("raftSnapshotChunkBytes", self.snapshot_chunk_bytes),
        )
        for name, value in positive:
            if value < 1:
                raise ConfigInvalid(f"{name}={value} must be at least 1")
