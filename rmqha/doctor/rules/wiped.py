"""A store that is empty while others know that its broker had messages: whoever starts it may lose them."""

from __future__ import annotations

from collections.abc import Iterator

from rmqha.doctor.advice import EMPTYING, clean_broker, newness, sync_state_set
from rmqha.doctor.diagnosis import Found
from rmqha.doctor.facts import ConfFacts, Facts, IdentityFacts, StoreFacts, replicas_of
from rmqha.remoting.bodies import ReplicaIdentity, ReplicasInfo


def store_wiped(facts: Facts) -> Iterator[Found]:
    """The controllers know a broker at this address whose store is empty."""
    one, store, conf = facts.identity, facts.store, facts.conf
    if one is None or store is None or conf is None or not conf.controller_mode:
        return
    if store.has_data or one.temporary is not None or one.damage:
        return
    name = conf.text("brokerName") if one.final is None else one.final.broker_name
    info = facts.sets.get(name)
    for replica in () if info is None else sorted(replicas_of(info), key=lambda r: r.broker_id):
        if info is None:
            continue
        if one.final is None and facts.is_same(replica.broker_address, conf.address):
            yield _without_identity(facts, one, conf, info, replica)
        if one.final is not None and one.final.broker_id == replica.broker_id:
            yield from _with_identity(facts, one, conf, info, replica, store)


def _without_identity(
    facts: Facts, one: IdentityFacts, conf: ConfFacts, info: ReplicasInfo, replica: ReplicaIdentity
) -> Found:
    broker_id, name = replica.broker_id, conf.text("brokerName")
    alone = [r.broker_id for r in info.in_sync_replicas] == [broker_id]
    forget = clean_broker(facts, name, broker_id, is_only=alone)
    return Found(
        one.path,
        f"the controllers know broker {broker_id} at {conf.address}, and its store is empty",
        "It was wiped on one side. The broker will get a new id and stay a slave"
        + (
            f", for {broker_id} alone is in the SyncStateSet and nobody else may be elected."
            if alone
            else f" until {broker_id} is forgotten."
        ),
        f"If its messages are gone for good: {forget}"
        + (", which gives up what it had acknowledged." if alone else ".")
        + " Else restore the store with its identity file first.",
    )


def _with_identity(
    facts: Facts,
    one: IdentityFacts,
    conf: ConfFacts,
    info: ReplicasInfo,
    replica: ReplicaIdentity,
    store: StoreFacts,
) -> Iterator[Found]:
    """It keeps its id, and in the SyncStateSet it may be elected: its empty log is the set's then."""
    broker = facts.broker(conf.address)
    if broker is not None and broker.is_there:
        return  # what it does now, the rules about replication tell
    fuller = _with_messages(facts, info, replica)
    is_member = any(r.broker_id == replica.broker_id for r in info.in_sync_replicas)
    is_bare = store.checkpoint is None and not store.epochs and not store.checkpoint_damage
    if not (fuller or (is_member and is_bare)):
        return  # a set in which nobody has written
    yield Found(
        one.path,
        f"the broker is {replica.broker_id} of {replica.broker_name}, as the controllers know it, and"
        " its store has no message",
        _evidence(facts, info, fuller, is_member=is_member),
        _next_step(facts, info, replica, fuller, is_member=is_member),
    )


def _with_messages(facts: Facts, info: ReplicasInfo, but: ReplicaIdentity) -> list[ReplicaIdentity]:
    """The other replicas that say that they have messages, the newest log first."""
    others = [one for one in replicas_of(info) if one.broker_id != but.broker_id]
    found = [one for one in others if newness(facts, one)[1] > 0]
    return sorted(found, key=lambda one: newness(facts, one), reverse=True)


def _evidence(
    facts: Facts, info: ReplicasInfo, fuller: list[ReplicaIdentity], *, is_member: bool
) -> str:
    said = [
        f"{one.broker_id} ({one.broker_address}) has a log up to {newness(facts, one)[1]}"
        for one in fuller
    ] or [f"The set is in epoch {info.master_epoch}, and this store knows no epoch"]
    stands = (
        "It is in the SyncStateSet: started alone it may be elected, and what the others acknowledged"
        " is cut off from their logs."
        if is_member
        else "It is not in the SyncStateSet, and is not elected before it has caught up."
    )
    return f"{'; '.join(said)}. {stands}"


def _next_step(
    facts: Facts,
    info: ReplicasInfo,
    replica: ReplicaIdentity,
    fuller: list[ReplicaIdentity],
    *,
    is_member: bool,
) -> str:
    name = replica.broker_name
    master = facts.master_of(name)
    if not is_member and master is not None and master.acts_as_master:
        return f"Start it while {master.address} is master: it copies the log ({EMPTYING})."
    others = fuller or [r for r in info.in_sync_replicas if r.broker_id != replica.broker_id]
    named = ", ".join(f"{r.broker_id} ({r.broker_address})" for r in others)
    shown = sync_state_set(facts, name)
    if not named:
        return (
            "Do not start it: nobody else is in the SyncStateSet. Bring its store back, from the disk"
            " that may not be mounted or from a copy. Started as it is, it may be elected with nothing."
        )
    return (
        f"Do not start it now. Start {named} before it, and wait until {shown} shows another master"
        " and this broker outside the SyncStateSet; then start it, and it copies the log. If the disk"
        f" is only not mounted, mount it instead ({EMPTYING})."
    )
