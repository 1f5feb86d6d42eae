"""The machine's settings, from the configuration's keys."""

from __future__ import annotations

from rmqha.controller.metadata.messages import MachineSettings
from rmqha.controller.settings import PROBE_ALL, ControllerConfig


def machine_settings(config: ControllerConfig) -> MachineSettings:
    """What the configuration says now: a running controller changes some of it."""
    return MachineSettings(
        enable_elect_unclean_master=config.boolean("enableElectUncleanMaster"),
        notify_broker_role_changed=config.boolean("notifyBrokerRoleChanged"),
        elect_master_max_retry_count=config.integer("electMasterMaxRetryCount"),
        scan_inactive_master_interval_ms=config.integer("scanInactiveMasterInterval"),
        close_grace_ms=config.integer("brokerCloseGraceMs"),
        slave_notify_delay_ms=config.integer("slaveNotifyDelayMs"),
        slave_notify_open_delay_ms=config.integer("slaveNotifyOpenDelayMs"),
        slave_notify_open_margin_ms=config.integer("slaveNotifyOpenMarginMs"),
        watch_name_server_route=config.boolean("watchNameServerRoute"),
        cold_start_grace_ms=config.integer("coldStartGraceMs"),
        heartbeat_timeout_ms_max=config.integer("heartbeatTimeoutMaxMs"),
        adopt_unknown_brokers=config.boolean("adoptUnknownBrokers"),
        elections_per_set=config.integer("electionHistoryPerSet"),
        elections_in_all=config.integer("electionHistoryMax"),
        active_probe_timeout_ms=config.integer("activeProbeTimeoutMillis"),
        active_probe_only_leased=config.values["activeProbeMasters"] != PROBE_ALL,
        digest_every=config.integer("raftDigestEveryEntries"),
    )
