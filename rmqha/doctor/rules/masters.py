"""Broker sets without a master, or with one that is gone: who may be elected, and what to start first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rmqha.doctor.advice import answers, elect_master, newness, successor, who
from rmqha.doctor.diagnosis import Found
from rmqha.doctor.facts import (
    BrokerFacts,
    Facts,
    controlled_sets,
    registered_master,
    replicas_of,
)
from rmqha.remoting.bodies import ReplicaIdentity, ReplicasInfo


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
            f"Of its SyncStateSet, {who(list(info.in_sync_replicas))}, the controllers hear"
            f" {who(alive)}; outside it they hear {who(others)}. Only a member may be elected"
            " without losing messages.",
            _of_the_living(facts, name, alive) if alive else _of_the_dead(facts, name, info),
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


def _of_the_living(facts: Facts, name: str, alive: list[ReplicaIdentity]) -> str:
    newest = max(alive, key=lambda one: newness(facts, one))
    line = elect_master(facts, name, newest.broker_id, dry_run=True)
    return (
        f"{line} says what an election would do."
        f" {_newest_log(facts, alive)} Elect no member whose store was emptied."
    )


def _of_the_dead(facts: Facts, name: str, info: ReplicasInfo) -> str:
    """What to start first: whoever of the SyncStateSet comes is elected, an emptied one, too."""
    known = _newest_log(facts, list(replicas_of(info)))
    return (
        "Start a broker of the SyncStateSet whose store is whole, the newest log first: the first"
        f" that comes is elected by itself, and what its log lacks is lost. {known} Where the store"
        f" of one was emptied or replaced, start the others before it: mqdoctor check -c, on each"
        " machine, tells (store-wiped). Electing a broker outside the SyncStateSet"
        " (enableElectUncleanMaster) loses what it lacks."
    )


def _newest_log(facts: Facts, replicas: list[ReplicaIdentity]) -> str:
    """Which of these tells of the newest log."""
    told = [one for one in replicas if newness(facts, one) > (-1, -1)]
    if not told:
        return "None of them tells here how far its log goes."
    newest = max(told, key=lambda one: newness(facts, one))
    epoch, end = newness(facts, newest)
    return (
        f"The newest log that is told of here is that of {newest.broker_id}"
        f" ({newest.broker_address}): epoch {epoch}, end {end}."
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
        master = next((r for r in replicas_of(info) if r.broker_id == info.master_broker_id), None)
        if master is None or master.alive:
            continue
        says = "answers here" if answers(facts, master) else "does not answer here either"
        yield Found(
            name,
            f"master {master.broker_id} at {master.broker_address} sends no heartbeats to the"
            " leading controller and is master still",
            f"It {says}. Either no slave of the SyncStateSet is alive to replace it, or the"
            " controllers do not look (Java's JRaft controllers of 5.5.0 do not).",
            _without_the_master(facts, name, info, master),
        )


def _without_the_master(
    facts: Facts, name: str, info: ReplicasInfo, master: ReplicaIdentity
) -> str:
    """What brings back a master: itself, or who is in sync with it."""
    first = (
        "See that its heartbeats reach the leading controller (controllerAddr, the network)."
        if answers(facts, master)
        else f"Start broker {master.broker_id} at {master.broker_address} again; if it runs and does"
        " not answer, look at the process first."
    )
    slaves = [one for one in info.in_sync_replicas if one.broker_id != master.broker_id]
    if not slaves:
        return f"{first} Nobody else is in the SyncStateSet, so nobody else has all its messages."
    target = successor(facts, name)
    if target is None:
        return f"{first} Or start one of the slaves in the SyncStateSet: {who(slaves)}."
    line = elect_master(facts, name, target.broker_id, dry_run=True)
    return (
        f"{first} If nobody is elected by itself meanwhile: {line} says what an election would do,"
        " and without --dry-run it is made."
    )
