"""Broker sets as the leading controller has them: master, SyncStateSet, who is alive."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rmqha.doctor.diagnosis import NAMED_MAX, Found
from rmqha.doctor.facts import (
    BrokerFacts,
    Facts,
    controlled_sets,
    registered_master,
    replicas_of,
)
from rmqha.remoting.bodies import ReplicaIdentity, ReplicasInfo

ACK_KEYS = ("allAckInSyncStateSet", "inSyncReplicas", "minInSyncReplicas", "haMaxGapNotInSync")


def _master(info: ReplicasInfo) -> ReplicaIdentity | None:
    return next((r for r in replicas_of(info) if r.broker_id == info.master_broker_id), None)


def _slaves(info: ReplicasInfo) -> list[ReplicaIdentity]:
    return [r for r in replicas_of(info) if r.broker_id != info.master_broker_id]


def _answers(facts: Facts, replica: ReplicaIdentity) -> bool:
    broker = facts.broker(replica.broker_address)
    return broker is not None and broker.is_there


def _who(replicas: list[ReplicaIdentity]) -> str:
    return ", ".join(f"{r.broker_id} ({r.broker_address})" for r in replicas) or "nobody"


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


def set_without_master(facts: Facts) -> Iterator[Found]:
    """A broker set has no master: nobody can write to it."""
    for name, info in controlled_sets(facts):
        if info.master_broker_id is not None or not replicas_of(info):
            continue
        alive = [r for r in info.in_sync_replicas if r.alive]
        others = [r for r in info.not_in_sync_replicas if r.alive]
        yield Found(
            name,
            f"the set has no master since epoch {info.master_epoch}",
            f"Of its SyncStateSet, {_who(list(info.in_sync_replicas))}, the controllers hear"
            f" {_who(alive)}; outside it they hear {_who(others)}. Only a member may be elected"
            " without losing messages.",
            f"mqadmin electMaster -bn {name} -b ID --dry-run says what an election would do."
            if alive
            else "Start a broker of the SyncStateSet; it is elected by itself. Electing another one"
            " (enableElectUncleanMaster) loses what it lacks.",
        )
    for name, registered in _registered_without_master(facts):
        if _stands_in(facts, registered) is not None or _are_learners(facts, registered):
            continue
        acting = [one.address for one in facts.brokers_of(name) if one.acts_as_master]
        yield Found(
            name,
            "the name servers have no master of the set, and no controller tells of it here",
            f"They have {_registered(registered)}. Clients find nobody to write to."
            + (f" {' and '.join(acting)} acts as master, unregistered." if acting else ""),
            "Start its master again. Where controllers decide, name them with --controllers: one that"
            " leads elects a slave by itself. Without controllers a slave becomes master only by its"
            " file (brokerRole), and lacks what it had not copied.",
        )


def slave_acts_for_master(facts: Facts) -> Iterator[Found]:
    """A set has no master, and a slave serves for it, without taking writes."""
    for name, registered in _registered_without_master(facts):
        acting = _stands_in(facts, registered)
        if acting is None:
            continue
        yield Found(
            name,
            f"the set has no master, and {acting.address} serves for it (enableSlaveActingMaster)",
            f"The name servers have {_registered(registered)}. Consumers go on, and delayed messages"
            " and transactions are looked after; what producers send goes to other sets.",
            "Start its master again; it takes over by itself.",
        )


def _registered_without_master(facts: Facts) -> Iterator[tuple[str, dict[int, str]]]:
    """Sets that no controller tells of, with who is registered; none of them as master, anywhere."""
    groups = [pair for one in facts.name_servers if one.answers for pair in one.sets.items()]
    for name in sorted({name for name, _ in groups} - facts.sets.keys()):
        here = [group for known, group in groups if known == name]
        if all(registered_master(group) is None for group in here):
            yield name, {k: one for group in here for k, one in sorted(group.broker_addrs.items())}


def _registered(registered: Mapping[int, str]) -> str:
    return ", ".join(f"{k} ({one})" for k, one in registered.items()) or "nobody"


def _stands_in(facts: Facts, registered: Mapping[int, str]) -> BrokerFacts | None:
    """Who serves for the master: the living one with the smallest id, if it is configured to."""
    known = (facts.broker(address) for _, address in sorted(registered.items()))
    first = next((one for one in known if one is not None and one.silent is None), None)
    return first if first is not None and first.stands_in else None


def _are_learners(facts: Facts, registered: Mapping[int, str]) -> bool:
    """Whether only those are registered that shall never be master: theirs is registered elsewhere."""
    known = [facts.broker(address) for address in registered.values()]
    return bool(known) and all(one is not None and one.is_learner for one in known)


def master_not_alive(facts: Facts) -> Iterator[Found]:
    """The controllers' master is one that they do not hear."""
    for name, info in controlled_sets(facts):
        master = _master(info)
        if master is None or master.alive:
            continue
        says = "answers here" if _answers(facts, master) else "does not answer here either"
        yield Found(
            name,
            f"master {master.broker_id} at {master.broker_address} sends no heartbeats to the"
            " leading controller and is master still",
            f"It {says}. Either no slave of the SyncStateSet is alive to replace it, or the"
            " controllers do not look (Java's JRaft controllers of 5.5.0 do not).",
            "Start the slaves of the SyncStateSet; then mqadmin electMaster --dry-run, and"
            " electMaster if nobody was elected by itself.",
        )


def replica_not_heard(facts: Facts) -> Iterator[Found]:
    """A broker answers, and the leading controller does not hear its heartbeats."""
    for name, info in controlled_sets(facts):
        for replica in replicas_of(info):
            if replica.alive or not _answers(facts, replica):
                continue
            broker = facts.broker(replica.broker_address)
            named = broker.config.get("controllerAddr", "") if broker is not None else ""
            yield Found(
                f"{name} {replica.broker_id}",
                f"broker {replica.broker_address} works, and the leading controller does not hear"
                " its heartbeats",
                f"It cannot be elected, and counts as dead. It heartbeats to {named or 'nobody'}.",
                "Check that the leader is in its controllerAddr and reachable from the broker's"
                " machine. It takes another controllerAddr by updateBrokerConfig; one of ours of an"
                " older release at its start.",
            )


def replica_down(facts: Facts) -> Iterator[Found]:
    """A slave outside the SyncStateSet is neither heard nor reached."""
    for name, info in controlled_sets(facts):
        for replica in info.not_in_sync_replicas:
            broker = facts.broker(replica.broker_address)
            if replica.alive or broker is None or broker.silent is None or broker.is_there:
                continue
            yield Found(
                f"{name} {replica.broker_id}",
                f"replica {replica.broker_id} at {replica.broker_address} is down:"
                f" {broker.silent.reason}",
                "The set has a copy less of every message.",
                "Start it; it catches up by itself. If it is gone for good:"
                f" mqadmin cleanBrokerMetadata -bn {name} -b {replica.broker_id}.",
            )


def dead_in_sync_replica(facts: Facts) -> Iterator[Found]:
    """A dead broker is still in the SyncStateSet, and writes may wait for it."""
    for name, info in controlled_sets(facts):
        for replica in info.in_sync_replicas:
            broker = facts.broker(replica.broker_address)
            if replica.alive or info.master_broker_id in (None, replica.broker_id):
                continue
            if broker is None or broker.silent is None or broker.is_there:
                continue
            yield Found(
                f"{name} {replica.broker_id}",
                f"replica {replica.broker_id} at {replica.broker_address} is dead"
                f" ({broker.silent.reason}) and in the SyncStateSet",
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
        end = _number(master.runtime, "commitLogMaxOffset", 0)
        for replica in info.not_in_sync_replicas:
            slave = facts.broker(replica.broker_address)
            if not replica.alive or slave is None or slave.ha is None or not slave.ha.transfers:
                continue
            if slave.is_learner:
                continue
            lag = max(0, end - _number(slave.runtime, "commitLogMaxOffset", 0))
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
                " than the writes: mqadmin haStatus -b MASTER, repeated, shows it.",
            )


def writes_impossible(facts: Facts) -> Iterator[Found]:
    """The acknowledgement that the master's configuration asks for cannot be given now."""
    for name, info in controlled_sets(facts):
        master = facts.master_of(name)
        if master is None:
            continue
        yield from _impossible(name, info, master.config)


def _impossible(name: str, info: ReplicasInfo, values: Mapping[str, str]) -> Iterator[Found]:
    in_sync, known = len(info.in_sync_replicas), len(replicas_of(info))
    wanted = {"minInSyncReplicas": _number(values, "minInSyncReplicas")}
    adapts = values.get("enableAutoInSyncReplicas") == "true"
    if values.get("allAckInSyncStateSet") != "true" and not adapts:
        wanted["inSyncReplicas"] = _number(values, "inSyncReplicas")
    for key, count in wanted.items():
        if count <= in_sync:
            continue
        yield Found(
            f"{name} {key}",
            f"{key}={count}, and the SyncStateSet has {in_sync} members: no write is acknowledged",
            f"The set has {known} replicas in all"
            + (", so that this can never be satisfied." if count > known else "."),
            f"Bring {count - in_sync} more replicas into sync (start them; mqadmin getSyncStateSet"
            f" shows when they are). Lowering {key} lets writes in and lets them be lost with"
            " fewer disks: updateBrokerConfig on every broker of the set.",
        )


def _number(values: Mapping[str, str], key: str, default: int = 1) -> int:
    text = values.get(key, "").strip()
    return int(text) if text.isdecimal() else default


def acknowledged_by_master_alone(facts: Facts) -> Iterator[Found]:
    """Messages are acknowledged before a slave has them."""
    for name, info in controlled_sets(facts):
        master = facts.master_of(name)
        if master is None or len(replicas_of(info)) < 2 or not master.config:
            continue
        all_ack = master.config.get("allAckInSyncStateSet") == "true"
        if all_ack or _number(master.config, "inSyncReplicas") > 1:
            continue
        yield Found(
            name,
            "allAckInSyncStateSet=false and inSyncReplicas=1: the master acknowledges alone",
            "What it acknowledged last is lost when it fails; and a Java master that is cut off"
            " from the controllers goes on acknowledging what nobody else will ever have.",
            "For messages that must not be lost: allAckInSyncStateSet=true and minInSyncReplicas=2"
            " on every broker of the set (updateBrokerConfig, and the files).",
        )


def replicas_configured_differently(facts: Facts) -> Iterator[Found]:
    """The brokers of a set promise different things, so that a failover changes the promise."""
    for name, _ in controlled_sets(facts):
        configs = [one for one in facts.brokers_of(name) if one.config]
        for key in ACK_KEYS:
            values = {one.address: one.config[key] for one in configs if key in one.config}
            if len(set(values.values())) > 1:
                yield Found(
                    f"{name} {key}",
                    f"{key} differs: {', '.join(f'{k} has {v}' for k, v in values.items())}",
                    "The master's value counts, so the next failover silently changes what an"
                    " acknowledgement means.",
                    f"Choose one value and set it on all: updateBrokerConfig -k {key}, and the"
                    " files.",
                )


def sync_state_set_differs(facts: Facts) -> Iterator[Found]:
    """Master and controllers do not mean the same SyncStateSet."""
    for name, info in controlled_sets(facts):
        master = facts.master_of(name)
        if master is None or master.ha is None or not master.acts_as_master:
            continue
        own, theirs = master.ha.in_sync_slaves + 1, len(info.in_sync_replicas)
        if own != theirs:
            yield Found(
                name,
                f"the master counts {own} in sync, the controllers {theirs}"
                f" ({_who(list(info.in_sync_replicas))})",
                "The acknowledgement follows the master's set and an election the controllers':"
                " where theirs is larger, somebody may be elected who was not waited for.",
                "Look again in some seconds: it differs for a moment while the set changes. If it"
                " stays, restart a slave that only one of them counts.",
            )
