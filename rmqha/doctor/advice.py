"""What an operator types next: whole command lines, and how brokers take another value of a key.

A line stands in backticks and can be typed as it is. Where nothing that was seen tells a name or an
address, a word in capital letters stands for it.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from rmqha.broker.admin.config_changes import LIVE
from rmqha.broker.common.lookup_settings import controllers_are_looked_up
from rmqha.doctor.diagnosis import NAMED_MAX
from rmqha.doctor.facts import BrokerFacts, Facts
from rmqha.remoting.bodies import ReplicaIdentity

LINES_MAX = 2 * NAMED_MAX
"""So many command lines of several stand in a diagnosis."""
CLUSTER = "CLUSTER"
CONTROLLER = "CONTROLLER:9878"
NAME_SERVER = "NAMESERVER:9876"
EMPTYING = "OPERATIONS, Emptying a replica"
"""The one procedure by which a replica's store is emptied."""


def mqadmin(*words: object) -> str:
    """A command line of ``bin/mqadmin``."""
    return f"`bin/mqadmin {shlex.join(map(str, words))}`"


def known_controllers(facts: Facts) -> str:
    """Whom to ask: the leader, else the controllers that answer, else those that were named."""
    answering = [one for one in facts.controllers if one.answers]
    found = [one.address for one in facts.leaders or answering or facts.controllers]
    return ";".join(found) or CONTROLLER


def known_name_servers(facts: Facts) -> str:
    """The name servers that answer, else those that were named."""
    answering = [one.address for one in facts.name_servers if one.answers]
    return ";".join(answering or [one.address for one in facts.name_servers]) or NAME_SERVER


def cluster_of(facts: Facts, name: str) -> str:
    """The cluster of a broker set, by the word of whoever knows it."""
    said = [one.epochs.cluster_name for one in facts.brokers_of(name) if one.epochs is not None]
    said += [one.config.get("brokerClusterName", "") for one in facts.brokers_of(name)]
    said += [one.sets[name].cluster for one in facts.name_servers if name in one.sets]
    if facts.conf is not None and facts.conf.text("brokerName") == name:
        said.append(facts.conf.text("brokerClusterName", "DefaultCluster"))
    return next(filter(None, said), CLUSTER)


def elect_master(facts: Facts, name: str, broker_id: int, *, dry_run: bool = False) -> str:
    """The line that makes a broker master, or says what would come of it."""
    words = _of_set(facts, "electMaster", name, broker_id)
    return mqadmin(*words, "--dry-run") if dry_run else mqadmin(*words)


def switch_master(facts: Facts, name: str, broker_id: int) -> str:
    """The line that moves the mastership, with which a master of ours loses no send."""
    return mqadmin(*_of_set(facts, "switchMaster", name, broker_id))


def clean_broker(facts: Facts, name: str, broker_id: int, *, is_only: bool = False) -> str:
    """The line that makes the controllers forget a broker.

    Args:
        is_only: also where nobody else may be elected, which gives up what it had acknowledged.
    """
    words = _of_set(facts, "cleanBrokerMetadata", name, broker_id)
    return mqadmin(*words, "-l") if is_only else mqadmin(*words)


def _of_set(facts: Facts, command: str, name: str, broker_id: int) -> tuple[object, ...]:
    cluster = cluster_of(facts, name)
    return command, "-a", known_controllers(facts), "-c", cluster, "-bn", name, "-b", broker_id


def sync_state_set(facts: Facts, name: str) -> str:
    """The line that shows a set's SyncStateSet."""
    return mqadmin("getSyncStateSet", "-a", known_controllers(facts), "-b", name)


def broker_epochs(facts: Facts, name: str) -> str:
    """The line that shows the epochs of all brokers of a set."""
    return mqadmin("getBrokerEpoch", "-n", known_name_servers(facts), "-b", name)


def ha_status(broker: BrokerFacts) -> str:
    """The line that shows how a master's slaves stand."""
    return mqadmin("haStatus", "-b", broker.address)


def update_broker(broker: BrokerFacts, key: str, value: str) -> str:
    """The line that gives a running broker another value."""
    return mqadmin("updateBrokerConfig", "-b", broker.address, "-k", key, "-v", value)


def controllers_behind(values: Mapping[str, str]) -> str:
    """The one name in ``controllerAddr`` whose addresses a broker takes for controllers; else empty."""
    return values.get("controllerAddr", "").strip() if controllers_are_looked_up(values) else ""


def dns_entry(name: str, addresses: Sequence[str], period: str) -> str:
    """What makes servers known to brokers that look a name up; a list in its place is refused."""
    return (
        f"give {name} in DNS the addresses of all, {', '.join(addresses)} (all of one port, the name's):"
        f" it is looked up again every {period}"
    )


def successor(facts: Facts, name: str) -> ReplicaIdentity | None:
    """Whom an election may choose instead of the master: the one in sync with the newest log."""
    info = facts.sets.get(name)
    if info is None:
        return None
    living = [r for r in info.in_sync_replicas if r.alive and r.broker_id != info.master_broker_id]
    return max(living, key=lambda one: newness(facts, one), default=None)


def newness(facts: Facts, replica: ReplicaIdentity) -> tuple[int, int]:
    """A replica's newest epoch and the end of its log, by which logs are compared; -1 of none."""
    broker = facts.broker(replica.broker_address)
    if broker is None or broker.silent is not None:
        return -1, -1
    entries = () if broker.epochs is None else broker.epochs.epoch_list
    end = broker.log_end
    return entries[-1].epoch if entries else -1, -1 if end is None else end


def change_keys(
    facts: Facts, name: str, brokers: Sequence[BrokerFacts], values: Mapping[str, str]
) -> str:
    """How these brokers of a set take other values of keys: running, or by a restart."""
    lines, said = [], []
    for one in brokers:
        running = [key for key in values if key in LIVE or one.is_java]
        lines += [update_broker(one, key, values[key]) for key in running]
    if lines:
        more = len(lines) - LINES_MAX
        named = ", ".join(lines[:LINES_MAX]) + (f" and {more} more" if more > 0 else "")
        said.append(f"{named}; and write it into the file.")
    fixed = [f"{key}={value}" for key, value in values.items() if key not in LIVE]
    restarted = [one for one in brokers if not one.is_java]
    if fixed and restarted:
        said.append(_by_restart(facts, name, restarted, " and ".join(fixed)))
    return " ".join(said)


def _by_restart(facts: Facts, name: str, brokers: Sequence[BrokerFacts], line: str) -> str:
    named = ", ".join(one.address for one in brokers[:NAMED_MAX])
    more = len(brokers) - NAMED_MAX
    text = (
        f"Write {line} into the file of {named}{f' and {more} more' if more > 0 else ''}: a broker of"
        " rmqha reads it at its start only. Restart one at a time, slaves first."
    )
    if not any(one.acts_as_master for one in brokers):
        return text
    target = successor(facts, name)
    if target is None:
        return f"{text} The master comes last; nobody takes writes while it restarts."
    move = switch_master(facts, name, target.broker_id)
    return f"{text} Before the master's turn, once the slave is in sync again: {move}."


def answers(facts: Facts, replica: ReplicaIdentity) -> bool:
    """Whether a replica works, by what was seen from here."""
    broker = facts.broker(replica.broker_address)
    return broker is not None and broker.is_there


def who(replicas: Sequence[ReplicaIdentity]) -> str:
    """Replicas by id and address."""
    return ", ".join(f"{one.broker_id} ({one.broker_address})" for one in replicas) or "nobody"
