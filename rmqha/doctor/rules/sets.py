"""Broker sets as the leading controller has them: master, SyncStateSet, who is alive."""

from __future__ import annotations

from collections.abc import Iterator

from rmqha.doctor.advice import (
    CONTROLLER,
    answers,
    clean_broker,
    controllers_behind,
    dns_entry,
    ha_status,
    update_broker,
    who,
)
from rmqha.doctor.diagnosis import NAMED_MAX, Found
from rmqha.doctor.facts import (
    BrokerFacts,
    Facts,
    HaFacts,
    controlled_sets,
    replicas_of,
)
from rmqha.doctor.rules.replication import parted
from rmqha.remoting.bodies import ReplicaIdentity, ReplicasInfo


def no_such_set(facts: Facts) -> Iterator[Found]:
    """Nobody knows the broker set that was asked for."""
    name = facts.set_name
    asked = [one.address for one in facts.name_servers if one.answers]
    if not name or facts.conf is not None or not (asked or facts.has_sets):
        return
    if name in facts.sets or any(name in one.sets for one in facts.name_servers):
        return
    others = {one for server in facts.controllers if server.view for one in server.view.sets}
    yield Found(
        name,
        f"neither the controllers nor the name servers that answer know a broker set {name}",
        f"Nothing was looked at but {'these' if asked else 'the controllers'}."
        f" The controllers know {', '.join(sorted(others)[:NAMED_MAX]) or 'no set by name here'}.",
        "Correct --broker-name; without it all broker sets are looked at.",
    )


def replica_not_heard(facts: Facts) -> Iterator[Found]:
    """A broker answers, and the leading controller does not hear its heartbeats."""
    for name, info in controlled_sets(facts):
        for replica in replicas_of(info):
            if replica.alive or not answers(facts, replica):
                continue
            broker = facts.broker(replica.broker_address)
            named = broker.config.get("controllerAddr", "") if broker is not None else ""
            yield Found(
                f"{name} {replica.broker_id}",
                f"broker {replica.broker_address} works, and the leading controller does not hear"
                " its heartbeats",
                f"It cannot be elected, and counts as dead. It heartbeats to {named or 'nobody'}.",
                "Check that the leader is in its controllerAddr and reachable from the broker's"
                " machine. If not all are named: " + _all_controllers(facts, broker),
            )


def _all_controllers(facts: Facts, broker: BrokerFacts | None) -> str:
    members = list(dict.fromkeys(a for one in facts.leaders for a in one.peers.values()))
    if broker is None:
        return ""
    if behind := controllers_behind(broker.config):
        return f"{dns_entry(behind, members or [CONTROLLER], 'updateControllerAddrPeriod')}."
    line = update_broker(broker, "controllerAddr", ";".join(members) or CONTROLLER)
    return f"{line}; an older release of rmqha takes it at its start only."


def _is_gone(broker: BrokerFacts | None) -> bool:
    """Whether nobody listens there: one that only hangs is told by broker-hangs, and not started."""
    return (
        broker is not None
        and broker.silent is not None
        and not broker.is_there
        and not broker.silent.connected
    )


def _reason(broker: BrokerFacts | None) -> str:
    return broker.silent.reason if broker is not None and broker.silent is not None else ""


def replica_down(facts: Facts) -> Iterator[Found]:
    """A slave outside the SyncStateSet is neither heard nor reached."""
    for name, info in controlled_sets(facts):
        for replica in info.not_in_sync_replicas:
            broker = facts.broker(replica.broker_address)
            if replica.alive or not _is_gone(broker):
                continue
            yield Found(
                f"{name} {replica.broker_id}",
                f"replica {replica.broker_id} at {replica.broker_address} is down:"
                f" {_reason(broker)}",
                "The set has a copy less of every message.",
                "Start it; it catches up by itself. If it is gone for good:"
                f" {clean_broker(facts, name, replica.broker_id)}.",
            )


def dead_in_sync_replica(facts: Facts) -> Iterator[Found]:
    """A dead broker is still in the SyncStateSet, and writes may wait for it."""
    for name, info in controlled_sets(facts):
        for replica in info.in_sync_replicas:
            broker = facts.broker(replica.broker_address)
            if replica.alive or info.master_broker_id in (None, replica.broker_id):
                continue
            if not _is_gone(broker):
                continue
            yield Found(
                f"{name} {replica.broker_id}",
                f"replica {replica.broker_id} at {replica.broker_address} is dead"
                f" ({_reason(broker)}) and in the SyncStateSet",
                "The master should have taken it out within haMaxTimeSlaveNotCatchup; with"
                " allAckInSyncStateSet=true every write waits for it (FLUSH_SLAVE_TIMEOUT).",
                "Start it, or look for CONTROLLER_ALTER_SYNC_STATE_SET failures in the master's"
                " log: it cannot reach the leading controller, or its epoch is an old one.",
            )


def _is_no_member(one: BrokerFacts) -> bool:
    """Whether it cannot be in a SyncStateSet now: it never shall be, or it is not there."""
    return one.is_learner or not one.is_there


def sync_state_set_of_one(facts: Facts) -> Iterator[Found]:
    """The master is alone in the SyncStateSet although slaves read from it."""
    for name, info in controlled_sets(facts):
        master = facts.master_of(name)
        if len(info.in_sync_replicas) != 1 or master is None or master.ha is None:
            continue
        if parted(facts, name):
            continue  # epochs-conflict says why they stay out, and a restart is not what they need
        outside = [facts.broker(one.broker_address) for one in info.not_in_sync_replicas]
        if not master.ha.lags or all(one is not None and _is_no_member(one) for one in outside):
            continue
        yield Found(
            name,
            f"the master is alone in the SyncStateSet while {len(master.ha.lags)} slaves read from"
            f" it, {min(master.ha.lags)} to {max(master.ha.lags)} bytes behind",
            "If the master fails now, nobody may take over. Slaves are taken in when they reach"
            " the confirm offset and the leading controller agrees.",
            "Wait while the figures fall. If they stand at 0, look for CONTROLLER_ALTER_SYNC_STATE_"
            "SET in the master's log; a restart of a slave has it taken in anew.",
        )


def slave_not_in_sync(facts: Facts) -> Iterator[Found]:
    """A living slave is outside the SyncStateSet."""
    for name, info in controlled_sets(facts):
        master = facts.master_of(name)
        alone = len(info.in_sync_replicas) == 1
        if master is None or master.ha is None or (alone and master.ha.lags):
            continue
        apart = [one.address for one, _ in parted(facts, name)]
        for replica in info.not_in_sync_replicas:
            slave = facts.broker(replica.broker_address)
            if not replica.alive or slave is None or slave.ha is None or not slave.ha.transfers:
                continue
            lag = (master.log_end or 0) - (slave.log_end or 0)
            # epochs-conflict and slave-longer-than-master say more.
            if slave.is_learner or slave.address in apart or lag < 0:
                continue
            gap = master.config.get("haMaxGapNotInSync", "268435456")
            late_ms = master.config.get("haMaxTimeSlaveNotCatchup", "15000")
            yield Found(
                f"{name} {replica.broker_id}",
                f"slave {replica.broker_id} follows the master, {lag} bytes behind, and is not in"
                " the SyncStateSet",
                "It may not be elected. A slave is in sync while it has caught up within"
                f" haMaxTimeSlaveNotCatchup={late_ms} ms (haMaxGapNotInSync={gap} bytes without"
                " controllers).",
                "Wait if it has just started. If the lag grows, its disk or the network is slower"
                f" than the writes: {ha_status(master)}, repeated, shows it.",
            )


def sync_state_set_differs(facts: Facts) -> Iterator[Found]:
    """Master and controllers do not mean the same SyncStateSet."""
    for name, info in controlled_sets(facts):
        master = facts.master_of(name)
        if master is None or master.ha is None or not master.acts_as_master:
            continue
        own, theirs = master.ha.in_sync_slaves + 1, len(info.in_sync_replicas)
        missing, strange = _others_in_sync(facts, info, master.ha)
        if own != theirs:
            yield _differs(name, info, f"the master counts {own} in sync, the controllers {theirs}")
        elif missing and strange:
            yield _differs(
                name, info,
                f"the master counts {who(strange)} in sync and not {who(missing)}, the controllers"
                " the other way round",
            )  # fmt: skip


def _others_in_sync(
    facts: Facts, info: ReplicasInfo, ha: HaFacts
) -> tuple[list[ReplicaIdentity], list[ReplicaIdentity]]:
    """Slaves in the SyncStateSet that the master does not count, and others that it counts.

    Only where slaves can be told apart by the hosts from which they are connected.
    """
    connected = {host for one in ha.in_sync_from for host in facts.hosts(one)}
    members = [r for r in info.in_sync_replicas if r.broker_id != info.master_broker_id]
    inside = {host for one in info.in_sync_replicas for host in facts.hosts(one.broker_address)}
    missing = [r for r in members if not facts.hosts(r.broker_address) & connected]
    strange = [
        r for r in info.not_in_sync_replicas
        if facts.hosts(r.broker_address) & (connected - inside)
    ]  # fmt: skip
    return missing, strange


def _differs(name: str, info: ReplicasInfo, what: str) -> Found:
    return Found(
        name,
        f"{what} ({who(list(info.in_sync_replicas))})",
        "The acknowledgement follows the master's set and an election the controllers':"
        " who is in theirs alone may be elected and was not waited for.",
        "Look again in some seconds: it differs for a moment while the set changes. If it"
        " stays, restart a slave that only one of them counts.",
    )
