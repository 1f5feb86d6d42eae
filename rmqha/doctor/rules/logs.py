"""How far the logs of slaves go, beside their master's.

A slave that stands still, or is longer, has the end of its log in the subject of its diagnosis: a
check tells of what every look found, so of a log that has not moved.
"""

from __future__ import annotations

from collections.abc import Iterator

from rmqha.doctor.advice import broker_epochs, ha_status
from rmqha.doctor.diagnosis import Found
from rmqha.doctor.facts import BrokerFacts, Facts, controlled_sets
from rmqha.doctor.rules.replication import parted, slaves_of

BEHIND_BYTES_MAX = 4_096
"""What a slave that copies may lack at any moment, while little is written."""


def slave_stands_still(facts: Facts) -> Iterator[Found]:
    """A slave in the SyncStateSet is behind, and its log does not move."""
    for name, info in controlled_sets(facts):
        members = {one.broker_address: one.broker_id for one in info.in_sync_replicas}
        for master, one, lag in _behind(facts, name):
            if lag <= BEHIND_BYTES_MAX or one.address not in members:
                continue
            if one.ha is None or not one.ha.transfers:
                continue  # slave-not-replicating says more
            yield Found(
                f"{name} {one.address} at {one.log_end}",
                f"slave {members[one.address]} is in the SyncStateSet, and stands still {lag} bytes"
                " behind the master",
                "With allAckInSyncStateSet=true every send waits for it and times out"
                " (FLUSH_SLAVE_TIMEOUT), until the master takes it out after"
                " haMaxTimeSlaveNotCatchup.",
                "Look at its disk (dmesg, iostat) and at ha_ lines in its log;"
                f" {ha_status(master)}, repeated, shows whether it moves. If it does not, restart it:"
                " it is taken in again when it has caught up.",
            )


def slave_longer_than_master(facts: Facts) -> Iterator[Found]:
    """A slave's log is longer than its master's."""
    for name, _ in controlled_sets(facts):
        apart = [one.address for one, _ in parted(facts, name)]
        for master, one, lag in _behind(facts, name):
            if lag >= 0 or one.address in apart:
                continue  # epochs-conflict says more
            yield Found(
                f"{name} {one.address} at {one.log_end}",
                f"the slave's log ends at {one.log_end}, the master's at {master.log_end}: {-lag}"
                " bytes of the slave's are not in it",
                "The master has lost the end of its log (power, a store that was put back or"
                " emptied), or was elected without it. The slave cuts off what it has beyond, as"
                " soon as it follows.",
                "Copy the slave's store before it is restarted, and empty nothing. Compare the epochs"
                f" ({broker_epochs(facts, name)}). If the messages are wanted, stop the producers"
                " before the master's log grows over them.",
            )


def _behind(facts: Facts, name: str) -> Iterator[tuple[BrokerFacts, BrokerFacts, int]]:
    """Master, slave, and how many bytes the slave lacks of the master's log."""
    master = facts.master_of(name)
    if master is None or not master.acts_as_master or master.log_end is None:
        return
    for one in slaves_of(facts, name):
        if one.log_end is not None:
            yield master, one, master.log_end - one.log_end
