"""Applying committed events: the only code that changes the replicated state.

Deterministic: a function of state and event alone. An event that does not fit the state (its
set is gone, or its epoch is not newer) changes nothing and leaves a note.

Source: Java 5.3.3 ReplicasInfoManager#applyEvent, without its two tables that could part.
"""

from __future__ import annotations

from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from rmqha.base.ids import BrokerId, MasterEpoch, SyncStateSetEpoch
from rmqha.base.invariants import invariant
from rmqha.base.machine import Note
from rmqha.controller.metadata.election_records import ElectionRecord, Why
from rmqha.controller.metadata.events import (
    BrokerAddressUpdated,
    BrokerDataCleaned,
    BrokerIdTaken,
    BrokerSetImported,
    Event,
    MasterElected,
    SyncStateSetAltered,
    kind_of,
)
from rmqha.controller.metadata.imported import imported_set
from rmqha.controller.metadata.state import BrokerSet, MetadataState, Replica
from rmqha.controller.metadata.why_elected import passed_over


class Applied(Struct, frozen=True):
    """Whether an event took effect, and what to tell people about it, if anything."""

    changed: bool
    note: Note | None


_UNTOLD = Applied(True, None)


def apply(state: MetadataState, event: Event, *, tell: bool = True) -> Applied:
    """Let one committed event take effect.

    Args:
        state: changed in place.
        event: the next one of the log.
        tell: false leaves out the note of a change that happens often, which costs more than the
            change.

    Raises:
        InvariantBroken: when the result would break a safety rule.
    """
    match event:
        case SyncStateSetAltered() | MasterElected() | BrokerDataCleaned() | BrokerAddressUpdated():
            broker_set = state.sets.get(event.broker_name)
            if broker_set is None:
                return _ignored(event, "unknown broker set")
            applied = _apply_to_set(state, broker_set, event, tell)
            state.changed(broker_set)
            if event.broker_name in state.sets:
                _check(broker_set)
            return applied
        case BrokerIdTaken():
            return _apply_broker_id(state, event)
        case BrokerSetImported():
            return _import_broker_set(state, event)
        case _:
            assert_never(event)


def _apply_to_set(
    state: MetadataState,
    broker_set: BrokerSet,
    event: SyncStateSetAltered | MasterElected | BrokerDataCleaned | BrokerAddressUpdated,
    tell: bool,
) -> Applied:
    match event:
        case SyncStateSetAltered():
            return _alter_sync_state_set(broker_set, event, tell)
        case MasterElected():
            old_master = broker_set.master_broker_id
            applied = _elect_master(broker_set, event)
            if applied.changed and event.why is not None:
                _remember(state, broker_set, event, event.why, old_master)
            return applied
        case BrokerDataCleaned():
            return _clean(state, broker_set, event)
        case BrokerAddressUpdated():
            return _update_address(broker_set, event)
        case _:
            assert_never(event)


def _apply_broker_id(state: MetadataState, event: BrokerIdTaken) -> Applied:
    broker_set = state.sets.get(event.broker_name)
    if broker_set is None:
        broker_set = BrokerSet(event.cluster_name, event.broker_name)
        state.sets[event.broker_name] = broker_set
    broker_id = event.new_broker_id
    if broker_id in broker_set.replicas:
        return _ignored(event, "id already taken")
    broker_set.replicas[broker_id] = Replica(event.broker_address, event.register_check_code)
    broker_set.last_issued_id = max(broker_set.last_issued_id, broker_id)
    broker_set.retired_ids = tuple(one for one in broker_set.retired_ids if one != broker_id)
    state.changed(broker_set)
    facts = {
        "cluster": broker_set.cluster_name,
        "broker_name": event.broker_name,
        "broker_id": broker_id,
        "address": event.broker_address,
    }
    return Applied(True, Note("broker_registered", facts=facts))


def _import_broker_set(state: MetadataState, event: BrokerSetImported) -> Applied:
    if event.broker_name in state.sets:
        return _ignored(event, "known broker set")
    broker_set = imported_set(event)
    _check(broker_set)
    state.sets[event.broker_name] = broker_set
    state.changed(broker_set)
    facts = {
        "cluster": event.cluster_name,
        "broker_name": event.broker_name,
        "broker_ids": list(broker_set.replicas),
        "last_issued_id": event.last_issued_id,
        "master_broker_id": event.master_broker_id,
        "master_epoch": event.master_epoch,
        "sync_state_set": list(event.sync_state_set),
        "sync_state_set_epoch": event.sync_state_set_epoch,
    }
    return Applied(True, Note("broker_set_imported", "warning", facts))


def _alter_sync_state_set(broker_set: BrokerSet, event: SyncStateSetAltered, tell: bool) -> Applied:
    if event.sync_state_set_epoch <= broker_set.sync_state_set_epoch:
        return _ignored(event, "stale SyncStateSet epoch")
    old = broker_set.sync_state_set
    broker_set.sync_state_set = event.new_sync_state_set
    broker_set.sync_state_set_epoch = event.sync_state_set_epoch
    if not tell:
        return _UNTOLD
    facts = {
        "broker_name": event.broker_name,
        "old_sync_state_set": list(old),
        "new_sync_state_set": list(event.new_sync_state_set),
        "sync_state_set_epoch": event.sync_state_set_epoch,
        "master_broker_id": broker_set.master_broker_id,
        "master_epoch": broker_set.master_epoch,
    }
    return Applied(True, Note("sync_state_set_changed", facts=facts))


def _elect_master(broker_set: BrokerSet, event: MasterElected) -> Applied:
    if event.master_epoch <= broker_set.master_epoch:
        return _ignored(event, "stale master epoch")
    elected = event.new_master_broker_id
    if elected is not None and elected not in broker_set.replicas:
        return _ignored(event, "unknown broker id")
    facts = {
        "broker_name": event.broker_name,
        "old_master_broker_id": broker_set.master_broker_id,
        "new_master_broker_id": elected,
        "master_address": broker_set.address(elected),
        "old_master_epoch": broker_set.master_epoch,
        "master_epoch": event.master_epoch,
        "old_sync_state_set": list(broker_set.sync_state_set),
        "trigger": event.trigger,
        "reason": event.reason,
    }
    if event.why is not None:
        facts["passed_over"] = passed_over(event.why.candidates)
    broker_set.master_broker_id = elected
    broker_set.master_epoch = event.master_epoch
    if elected is None:
        return Applied(True, Note("master_lost", "error", facts))
    broker_set.sync_state_set = (elected,)
    broker_set.sync_state_set_epoch = SyncStateSetEpoch(broker_set.sync_state_set_epoch + 1)
    if event.unclean:
        return Applied(True, Note("master_elected_unclean", "error", facts))
    return Applied(True, Note("master_elected", facts=facts))


def _remember(
    state: MetadataState,
    broker_set: BrokerSet,
    event: MasterElected,
    why: Why,
    old_master: BrokerId | None,
) -> None:
    """Keep the election, and of the older ones as many as it says."""
    record = ElectionRecord(
        state.election_order.next_number(),
        old_master,
        event.new_master_broker_id,
        event.master_epoch,
        event.trigger,
        event.reason,
        event.unclean,
        why,
    )
    broker_set.elections = (*broker_set.elections, record)
    state.election_order.add(record.number, broker_set.broker_name)
    _forget_elections(state, broker_set, len(broker_set.elections) - max(why.kept_per_set, 1))
    while len(state.election_order) > max(why.kept_in_all, 1):
        older = state.sets[state.election_order.oldest()]
        _forget_elections(state, older, 1)
        state.changed(older)


def _forget_elections(state: MetadataState, broker_set: BrokerSet, count: int) -> None:
    count = max(count, 0)
    state.election_order.forget(broker_set.elections[:count])
    broker_set.elections = broker_set.elections[count:]


def _clean(state: MetadataState, broker_set: BrokerSet, event: BrokerDataCleaned) -> Applied:
    if event.broker_ids is None:
        gone = tuple(sorted(broker_set.replicas))
    else:
        gone = tuple(one for one in event.broker_ids if one in broker_set.replicas)
    if not gone and event.broker_ids is not None:
        return _ignored(event, "unknown broker ids")
    master_cleaned = broker_set.master_broker_id in gone
    for broker_id in gone:
        del broker_set.replicas[broker_id]
    if broker_set.replicas:
        _forget_members(broker_set, gone, master_cleaned)
    else:
        del state.sets[event.broker_name]
        state.election_order.forget(broker_set.elections)
    facts = {
        "broker_name": event.broker_name,
        "broker_ids": list(gone),
        "set_removed": event.broker_name not in state.sets,
        "master_cleaned": master_cleaned,
        "master_epoch": broker_set.master_epoch,
    }
    return Applied(True, Note("broker_cleaned", "warning", facts))


def _forget_members(
    broker_set: BrokerSet, gone: tuple[BrokerId, ...], master_cleaned: bool
) -> None:
    broker_set.retired_ids = tuple(sorted({*broker_set.retired_ids, *gone}))
    left = tuple(one for one in broker_set.sync_state_set if one not in gone)
    if left != broker_set.sync_state_set:
        # Without a new epoch a living master would keep its old set for ever (#6342).
        broker_set.sync_state_set = left
        broker_set.sync_state_set_epoch = SyncStateSetEpoch(broker_set.sync_state_set_epoch + 1)
    if master_cleaned:
        broker_set.master_broker_id = None
        broker_set.master_epoch = MasterEpoch(broker_set.master_epoch + 1)


def _update_address(broker_set: BrokerSet, event: BrokerAddressUpdated) -> Applied:
    replica = broker_set.replicas.get(event.broker_id)
    if replica is None:
        return _ignored(event, "unknown broker id")
    broker_set.replicas[event.broker_id] = replace(replica, address=event.broker_address)
    facts = {
        "broker_name": event.broker_name,
        "broker_id": event.broker_id,
        "old_address": replica.address,
        "address": event.broker_address,
    }
    return Applied(True, Note("broker_address_changed", facts=facts))


def _ignored(event: Event, why: str) -> Applied:
    facts = {"type": kind_of(event), "broker_name": event.broker_name, "why": why}
    return Applied(False, Note("event_ignored", "warning", facts))


def _check(broker_set: BrokerSet) -> None:
    master = broker_set.master_broker_id
    invariant(
        master is None or (master in broker_set.sync_state_set and master in broker_set.replicas),
        "the master is a registered member of its SyncStateSet",
        broker_name=broker_set.broker_name,
        master=master,
        sync_state_set=broker_set.sync_state_set,
    )
