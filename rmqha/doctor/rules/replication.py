"""Replication between brokers: whom slaves follow, epochs, and what messages are nothing without."""

from __future__ import annotations

from collections.abc import Iterator

from rmqha.doctor.diagnosis import NAMED_MAX, Found
from rmqha.doctor.facts import BrokerFacts, Facts, controlled_sets
from rmqha.ha.epochs import EpochEntry, find_consistent_point


def _slaves(facts: Facts, name: str) -> list[BrokerFacts]:
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
        for one in _slaves(facts, name):
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
        for one in _slaves(facts, name):
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
                " compare mqadmin getBrokerEpoch of both.",
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
            "mqadmin haStatus -b MASTER names their addresses. Those that are no broker's:"
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
                f"mqadmin electMaster -bn {name} -b OTHER begins an epoch that is recorded; choose"
                " a slave of the SyncStateSet. Delete no epoch file.",
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


def epochs_conflict(facts: Facts) -> Iterator[Found]:
    """A slave's log and the master's have no common epoch, or differ in one that both know."""
    for name, _ in controlled_sets(facts):
        master = facts.master_of(name)
        if master is None or master.epochs is None:
            continue
        theirs = _entries(master)
        known = dict(theirs)
        for one in _slaves(facts, name):
            mine = _entries(one)
            if not mine or not theirs or one.epochs is None:
                continue
            other = [e for e in mine if known.get(e.epoch, e.start) != e.start]
            common = find_consistent_point(
                mine, one.epochs.max_offset, theirs, master.epochs.max_offset
            )
            if not other and common >= 0:
                continue
            yield Found(
                f"{name} {one.address}",
                f"epoch {other[0].epoch} begins at {other[0].start} in the slave's log and at"
                f" {known[other[0].epoch]} in the master's"
                if other
                else "the slave's log and the master's have no epoch in common",
                "Both were written by masters that did not know of each other. The slave has to"
                f" cut its log off at {max(common, 0)}, or cannot follow at all.",
                "Keep a copy of the slave's store before it is restarted. If it does not follow"
                " then, empty it (identity included) and let it copy the log anew.",
            )


def topics_missing(facts: Facts) -> Iterator[Found]:
    """A slave lacks topics of its master, and a failover would lose them."""
    for name, _ in controlled_sets(facts):
        master = facts.master_of(name)
        if master is None or master.topics is None:
            continue
        for one in _slaves(facts, name):
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
                " away, look for SlaveSynchronize in its log, or make them: mqadmin updateTopic.",
            )
