"""Replication between brokers: whom slaves follow, epochs, and what messages are nothing without."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rmqha.doctor.advice import (
    EMPTYING,
    broker_epochs,
    elect_master,
    ha_status,
    successor,
    switch_master,
)
from rmqha.doctor.diagnosis import NAMED_MAX, Found
from rmqha.doctor.facts import BrokerFacts, Facts, controlled_sets
from rmqha.ha.epochs import EpochEntry, find_consistent_point


def slaves_of(facts: Facts, name: str) -> list[BrokerFacts]:
    """The brokers of a set that answer and are slaves."""
    master = facts.master_of(name)
    return [
        one
        for one in facts.brokers_of(name)
        if one is not master and one.ha is not None and not one.acts_as_master
    ]


def slave_of_old_master(facts: Facts) -> Iterator[Found]:
    """A slave reads from another broker than the master."""
    for name, _ in controlled_sets(facts):
        master = facts.master_of(name)
        if master is None or not master.ha_address:
            continue
        for one in slaves_of(facts, name):
            followed = one.ha.master_address if one.ha is not None else ""
            if not followed or facts.is_same(followed, master.ha_address):
                continue
            yield Found(
                f"{name} {one.address}",
                f"the slave reads from {followed}, and the master serves slaves at"
                f" {master.ha_address}",
                "It was told an old master, or the master's address has changed. What it copies"
                " there may have to be cut off; what the master writes does not reach it.",
                "Check that it reaches the controllers (it asks them for the master every few"
                " seconds). Restarting it is safe.",
            )


def slave_not_replicating(facts: Facts) -> Iterator[Found]:
    """A slave has no working connection to a master."""
    for name, _ in controlled_sets(facts):
        master = facts.master_of(name)
        if master is None or not master.acts_as_master:
            continue
        for one in slaves_of(facts, name):
            if one.ha is None or one.ha.transfers:
                continue
            yield Found(
                f"{name} {one.address}",
                "the slave copies nothing: "
                + (f"no transfer from {one.ha.master_address}" if one.ha.master_address
                   else "it has no master"),
                f"Its master {master.address} works. Either the HA port {master.ha_address} is not"
                " reachable from the slave, or the two find no common epoch and part again.",
                "Test the HA port from the slave's machine; look for the handshake in its log; and"
                f" compare the epochs of both: {broker_epochs(facts, name)}.",
            )  # fmt: skip


def too_many_ha_connections(facts: Facts) -> Iterator[Found]:
    """A master has more connections of slaves than there are slaves."""
    for name, info in controlled_sets(facts):
        master = facts.master_of(name)
        slaves = len(info.in_sync_replicas) + len(info.not_in_sync_replicas) - 1
        if master is None or master.ha is None or not 0 <= slaves < len(master.ha.lags):
            continue
        yield Found(
            name,
            f"the master has {len(master.ha.lags)} HA connections for {slaves} slaves",
            "Old connections were not closed (Java has leaked them: #8875), and their acknowledgements"
            " count, or somebody else reads the log.",
            f"{ha_status(master)} names their addresses. Those that are no broker's:"
            " close them by a firewall; old ones go with a restart of their slave.",
        )


def _entries(one: BrokerFacts) -> list[EpochEntry]:
    found = () if one.epochs is None else one.epochs.epoch_list
    return [EpochEntry(entry.epoch, entry.start_offset) for entry in found]


def master_epoch_missing(facts: Facts) -> Iterator[Found]:
    """The master has no record of the epoch in which it is master."""
    for name, info in controlled_sets(facts):
        master = facts.master_of(name)
        if master is None or not master.acts_as_master or master.epochs is None:
            continue
        entries = _entries(master)
        last = entries[-1].epoch if entries else 0
        if last < info.master_epoch:
            yield Found(
                name,
                f"the master's newest epoch is {last}, the controllers' is {info.master_epoch}",
                "Slaves that ask for the current epoch are sent away (Failed to find epochEntry),"
                " and never get in sync.",
                _new_epoch(facts, name),
            )


def _new_epoch(facts: Facts, name: str) -> str:
    target = successor(facts, name)
    if target is None:
        return (
            "No slave is in sync, so restart the master: it is elected again, in an epoch that is"
            " recorded. Delete no epoch file."
        )
    return (
        f"{switch_master(facts, name, target.broker_id)} begins an epoch that is recorded. If it does"
        f" not come to it: {elect_master(facts, name, target.broker_id)}, during which sends fail."
        " Delete no epoch file."
    )


def epoch_ahead_of_controllers(facts: Facts) -> Iterator[Found]:
    """A broker knows epochs that the controllers have not reached: theirs is the older memory."""
    for name, info in controlled_sets(facts):
        seen = {one.address: entry for one in facts.brokers_of(name) for entry in _entries(one)}
        conf, store = facts.conf, facts.store
        if conf is not None and conf.text("brokerName") == name and store is not None:
            for entry in store.epochs or ():
                seen[store.path] = entry
        for who, (epoch, _) in seen.items():
            if epoch > info.master_epoch:
                yield Found(
                    f"{name} {who}",
                    f"the log has epoch {epoch}, and the controllers are at {info.master_epoch}",
                    "The controllers lost their data or were replaced. A broker refuses masters of"
                    " an older epoch than its own, so that the set comes to no agreement.",
                    "Delete nothing on the brokers. With our controllers, electMaster begins above"
                    " every epoch they hear of: OPERATIONS, Replacing Java controllers.",
                )


class Parting(NamedTuple):
    """How a slave's log and the master's part.

    Attributes:
        what: where they differ.
        common: where they begin to; -1 where nothing is common.
        agreeing: other slaves whose logs are one with this slave's.
        doubts: what speaks for the slave's log and against the master's.
    """

    what: str
    common: int
    agreeing: tuple[str, ...]
    doubts: tuple[str, ...]


def parted(facts: Facts, name: str) -> list[tuple[BrokerFacts, Parting]]:
    """The slaves whose logs are not the master's beginning, nor it theirs."""
    master = facts.master_of(name)
    if master is None or not _entries(master):
        return []
    apart = [(one, _difference(one, master)) for one in slaves_of(facts, name)]
    away = [(one, *found) for one, found in apart if found is not None]
    slaves = [one for one, *_ in away]
    return [(one, _parting(one, what, common, master, slaves)) for one, what, common in away]


def _difference(one: BrokerFacts, master: BrokerFacts) -> tuple[str, int] | None:
    """What two logs differ in, and where they part; None of equal ones."""
    mine, theirs = _entries(one), _entries(master)
    if not mine or not theirs:
        return None
    known = dict(theirs)
    other = next((e for e in mine if known.get(e.epoch, e.start) != e.start), None)
    common = find_consistent_point(mine, _end(one), theirs, _end(master))
    if other is None:
        return None if common >= 0 else (
            "the slave's log and the master's have no epoch in common", common
        )  # fmt: skip
    return (
        f"epoch {other.epoch} begins at {other.start} in the slave's log and at"
        f" {known[other.epoch]} in the master's",
        common,
    )


def _end(one: BrokerFacts) -> int:
    return 0 if one.epochs is None else one.epochs.max_offset


def _parting(
    one: BrokerFacts, what: str, common: int, master: BrokerFacts, slaves: list[BrokerFacts]
) -> Parting:
    agreeing = tuple(
        other.address for other in slaves if other is not one and _difference(one, other) is None
    )
    mine, theirs = _entries(one)[0], _entries(master)[0]
    doubts = []
    if agreeing:
        doubts.append(f"it agrees with that of {', '.join(agreeing)}, against the master's")
    if _end(one) > _end(master):
        doubts.append(f"it ends at {_end(one)}, the master's at {_end(master)}")
    if common < 0 and mine.epoch < theirs.epoch and mine.start <= theirs.start:
        doubts.append(f"it begins with epoch {mine.epoch}, the master's with {theirs.epoch}")
    return Parting(what, common, agreeing, tuple(doubts))


def epochs_conflict(facts: Facts) -> Iterator[Found]:
    """A slave's log and the master's have no common epoch, or differ in one that both know."""
    for name, _ in controlled_sets(facts):
        for one, parting in parted(facts, name):
            follows = (
                f"To follow, the slave has to cut its log off at {parting.common}."
                if parting.common >= 0
                else "The slave cannot follow."
            )
            yield Found(
                f"{name} {one.address}",
                parting.what,
                f"Both were written by masters that did not know of each other. {follows}"
                + (f" Of the slave's log: {'; '.join(parting.doubts)}." if parting.doubts else ""),
                _doubtful(facts, name) if parting.doubts else _of_the_older(facts, name),
            )


def _doubtful(facts: Facts, name: str) -> str:
    """What to do where the master's log may be the one that lost messages."""
    return (
        "The MASTER may be the wrong one: one whose store was emptied and that was elected has this"
        " look. Empty no store and restart no broker of the set: the slaves' logs may be the only"
        " copies. Stop the producers, and copy the stores of all replicas. Compare the epochs"
        f" ({broker_epochs(facts, name)}), and the messages: mqdoctor show of the newest file in"
        " commitlog of each. Where the slaves have what the master lacks, the master's is the store"
        f" that is emptied in the end, not theirs ({EMPTYING})."
    )


def _of_the_older(facts: Facts, name: str) -> str:
    return (
        "Copy the slave's store before it is restarted, and compare the epochs"
        f" ({broker_epochs(facts, name)}). If it does not follow then, and what it alone has is not"
        f" needed or is kept in the copy, empty it ({EMPTYING}): it copies the log anew."
    )


def topics_missing(facts: Facts) -> Iterator[Found]:
    """A slave lacks topics of its master, and a failover would lose them."""
    for name, _ in controlled_sets(facts):
        master = facts.master_of(name)
        if master is None or master.topics is None:
            continue
        for one in slaves_of(facts, name):
            lacking = [] if one.topics is None else sorted(master.topics - one.topics)
            if not lacking:
                continue
            more = f" and {len(lacking) - NAMED_MAX} more" if len(lacking) > NAMED_MAX else ""
            yield Found(
                f"{name} {one.address}",
                f"the slave lacks {len(lacking)} topics of its master:"
                f" {', '.join(lacking[:NAMED_MAX])}{more}",
                "Java's slaves copy topics every few seconds, apart from messages. As master it"
                " would answer No topic in this broker.",
                "Wait some seconds and look again; do not elect this slave meanwhile. If they stay"
                " away, look for SlaveSynchronize in its log, or make them (updateTopic).",
            )
