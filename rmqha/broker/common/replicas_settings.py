"""Who a broker is among its replicas, and how often it speaks to controllers."""

from __future__ import annotations

from msgspec import Struct


class ReplicasSettings(Struct, frozen=True):
    """Who the broker is and how often it speaks; the defaults are Java's where Java has the period.

    Attributes:
        controllers: of ``controllerAddr`` when the broker starts; others may be named while it runs.
            None where they are looked up first.
        retry_ms, retry_ms_max: pauses after a failure, growing.
        check_gap_ms: between two questions whether what 1008 says is so.
        busy_retry_ms: after SYSTEM_BUSY: the controller asked for patience, not for silence.
        find_master_ms_max: longest pause while the master's HA address is unknown.
        refresh_master_ms: between two questions for an address that is known.
        write_lease_ms: how long an answered heartbeat lets a master write by itself; 0 for
            masters that never stop, as Java's.
        async_learner: asyncLearner: this broker asks for no election, for the first of a set goes
            to whoever asks, and nothing on the wire marks a learner (#10013).
        slave_start_over_enable: slaveStartOverEnable: replication has to know whether this slave is
            in the SyncStateSet.
        slaves_must_acknowledge: allAckInSyncStateSet, or more than one inSyncReplicas: somebody was
            promised what slaves hold.
    """

    cluster_name: str
    broker_name: str
    broker_address: str
    controllers: tuple[str, ...]
    broker_heartbeat_interval_ms: int = 1_000
    controller_heart_beat_timeout_ms: int = 10_000
    broker_election_priority: int = 2_147_483_647
    sync_broker_metadata_period_ms: int = 5_000
    sync_controller_metadata_period_ms: int = 10_000
    invoke_timeout_ms: int = 3_000
    retry_ms: int = 100
    retry_ms_max: int = 5_000
    check_gap_ms: int = 50
    busy_retry_ms: int = 300
    first_poll_ms_max: int = 3_000
    elect_retry_ms_max: int = 2_000
    find_master_ms_max: int = 1_000
    refresh_master_ms: int = 30_000
    write_lease_ms: int = 0
    async_learner: bool = False
    slave_start_over_enable: bool = False
    slaves_must_acknowledge: bool = False
