"""All rules, and what they find: facts in, diagnoses out, the gravest first."""

from __future__ import annotations

from collections.abc import Iterable

from rmqha.doctor.diagnosis import Diagnosis, Rule, Severity, code_of
from rmqha.doctor.facts import Facts
from rmqha.doctor.rules import (
    acknowledging,
    brokers,
    config,
    controllers,
    doors,
    identity,
    logs,
    masters,
    name_servers,
    replication,
    sets,
    standings,
    store,
    wiped,
    writes,
)

_ERROR, _WARNING, _NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE
RULES: dict[Rule, Severity] = {
    doors.credentials_refused: _ERROR,
    doors.tls_differs: _ERROR,
    doors.answer_unreadable: _ERROR,
    controllers.no_controller_answers: _ERROR,
    controllers.no_controller_leader: _ERROR,
    standings.controllers_not_founded: _ERROR,
    standings.controllers_lost_majority: _ERROR,
    controllers.two_controller_leaders: _ERROR,
    controllers.controller_views_differ: _ERROR,
    controllers.controller_members_differ: _ERROR,
    controllers.controller_loopback: _ERROR,
    controllers.not_a_controller: _ERROR,
    controllers.controller_unreachable: _WARNING,
    controllers.controller_follows_another: _WARNING,
    controllers.controller_addr_differs: _WARNING,
    controllers.controller_behind: _WARNING,
    standings.controller_without_vote: _WARNING,
    standings.controller_removed: _WARNING,
    standings.controller_joins: _NOTE,
    controllers.unclean_elections_allowed: _NOTE,
    sets.no_such_set: _ERROR,
    masters.set_without_master: _ERROR,
    masters.slave_acts_for_master: _WARNING,
    masters.master_not_alive: _ERROR,
    acknowledging.writes_impossible: _ERROR,
    sets.dead_in_sync_replica: _ERROR,
    sets.replica_not_heard: _ERROR,
    sets.replica_down: _WARNING,
    sets.sync_state_set_of_one: _WARNING,
    sets.sync_state_set_differs: _WARNING,
    sets.slave_not_in_sync: _WARNING,
    acknowledging.replicas_configured_differently: _WARNING,
    acknowledging.acknowledged_by_master_alone: _NOTE,
    name_servers.not_a_name_server: _ERROR,
    name_servers.name_server_names_another_master: _ERROR,
    name_servers.broker_not_registered: _ERROR,
    name_servers.name_server_unreachable: _WARNING,
    name_servers.name_server_empty: _WARNING,
    name_servers.address_under_two_ids: _WARNING,
    name_servers.name_servers_differ: _ERROR,
    brokers.two_masters: _ERROR,
    brokers.wrong_broker_acts_as_master: _ERROR,
    brokers.broker_id_twice: _ERROR,
    brokers.broker_address_changes: _WARNING,
    brokers.broker_hangs: _ERROR,
    brokers.address_not_reachable: _ERROR,
    brokers.loopback_advertised: _ERROR,
    brokers.address_of_another_broker: _ERROR,
    writes.write_lease_lost: _ERROR,
    writes.write_lease_missing: _WARNING,
    writes.disk_full: _ERROR,
    writes.writes_closed: _WARNING,
    brokers.disk_stuck: _ERROR,
    brokers.records_damaged: _ERROR,
    brokers.controller_mode_mixed: _ERROR,
    brokers.set_unknown_to_controllers: _ERROR,
    brokers.clock_skew: _WARNING,
    replication.slave_of_old_master: _ERROR,
    replication.slave_not_replicating: _ERROR,
    replication.epochs_conflict: _ERROR,
    logs.slave_longer_than_master: _ERROR,
    logs.slave_stands_still: _WARNING,
    replication.epoch_ahead_of_controllers: _ERROR,
    replication.master_epoch_missing: _ERROR,
    replication.topics_missing: _WARNING,
    replication.too_many_ha_connections: _WARNING,
    config.slave_without_id: _ERROR,
    config.no_controllers_named: _ERROR,
    config.name_not_resolved: _ERROR,
    config.port_taken: _ERROR,
    config.broker_not_running: _WARNING,
    config.config_refused: _WARNING,
    config.controllers_without_mode: _WARNING,
    config.role_in_config: _NOTE,
    config.keys_unknown: _NOTE,
    identity.identity_damaged: _ERROR,
    identity.identity_missing: _ERROR,
    identity.identity_of_another: _ERROR,
    identity.id_unknown_to_controllers: _ERROR,
    wiped.store_wiped: _ERROR,
    identity.identity_unfinished: _WARNING,
    identity.address_changed: _WARNING,
    store.commit_log_damaged: _ERROR,
    store.commit_log_file_missing: _ERROR,
    store.commit_log_file_size_differs: _ERROR,
    store.checkpoint_damaged: _ERROR,
    store.config_file_damaged: _ERROR,
    store.confirm_offset_beyond_log: _ERROR,
    store.queue_damaged: _ERROR,
    store.messages_out_of_reach: _ERROR,
    store.queue_lost: _WARNING,
    store.epoch_file_damaged: _ERROR,
    store.epoch_file_missing: _ERROR,
    store.epoch_beyond_log: _ERROR,
    store.epoch_begins_late: _WARNING,
    store.queue_beyond_log: _WARNING,
    store.consumer_offset_beyond_queue: _WARNING,
    store.records_behind_end: _WARNING,
    store.checkpoint_missing: _WARNING,
    store.unclean_stop: _NOTE,
}
"""How bad each is, in the order in which diagnoses of one severity are told."""


def diagnose(facts: Facts) -> list[Diagnosis]:
    """What is wrong, the gravest first."""
    found = [
        Diagnosis(severity, code_of(rule), one)
        for rule, severity in RULES.items()
        for one in rule(facts)
    ]
    return sorted(found, key=lambda one: one.severity)


PROVEN_AT_ONCE = frozenset(map(code_of, (brokers.broker_id_twice, brokers.broker_address_changes)))
"""Codes of what one look proves, and the next one need not see: tables change in between."""


def lasting(looks: Iterable[list[Diagnosis]]) -> list[Diagnosis]:
    """What every look found, in the words of the last: failovers and restarts end by themselves.

    What one look proves stays.
    """
    found: list[Diagnosis] | None = None
    proven: dict[tuple[str, str], Diagnosis] = {}
    for look in looks:
        keys = None if found is None else {one.key for one in found}
        found = [one for one in look if keys is None or one.key in keys]
        proven |= {one.key: one for one in look if one.code in PROVEN_AT_ONCE}
    kept = {one.key: one for one in found or []}
    return sorted((proven | kept).values(), key=lambda one: one.severity)


def is_wrong(diagnoses: Iterable[Diagnosis]) -> bool:
    """Whether there is anything but notes."""
    return any(one.severity is not Severity.NOTE for one in diagnoses)
