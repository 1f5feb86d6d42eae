"""When a master acknowledges a message: what its configuration asks for, and what can be given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rmqha.doctor.advice import change_keys, sync_state_set
from rmqha.doctor.diagnosis import Found
from rmqha.doctor.facts import BrokerFacts, Facts, controlled_sets, replicas_of
from rmqha.doctor.rules.replication import parted
from rmqha.doctor.values import is_true, meant
from rmqha.remoting.bodies import ReplicasInfo

ACK_KEYS = ("allAckInSyncStateSet", "inSyncReplicas", "minInSyncReplicas", "haMaxGapNotInSync")
SAFE = {"allAckInSyncStateSet": "true", "minInSyncReplicas": "2"}
"""With these no message is acknowledged that one disk alone has."""


def writes_impossible(facts: Facts) -> Iterator[Found]:
    """The acknowledgement that the master's configuration asks for cannot be given now."""
    for name, info in controlled_sets(facts):
        master = facts.master_of(name)
        if master is None:
            continue
        for key, count in _wanted(master.config).items():
            if count > len(info.in_sync_replicas):
                yield _impossible(facts, name, info, key, count)


def _wanted(values: Mapping[str, str]) -> dict[str, int]:
    """How many replicas have to have a message, by the key that says so."""
    wanted = {"minInSyncReplicas": _number(values, "minInSyncReplicas")}
    adapts = is_true(values, "enableAutoInSyncReplicas")
    if not is_true(values, "allAckInSyncStateSet") and not adapts:
        wanted["inSyncReplicas"] = _number(values, "inSyncReplicas")
    return wanted


def _impossible(facts: Facts, name: str, info: ReplicasInfo, key: str, count: int) -> Found:
    in_sync, known = len(info.in_sync_replicas), len(replicas_of(info))
    brokers = facts.brokers_of(name)
    lower = (
        "Not while logs part (epochs-conflict): the master may be the wrong one."
        if parted(facts, name)
        else change_keys(facts, name, brokers, {key: str(max(in_sync, 1))})
    )
    return Found(
        f"{name} {key}",
        f"{key}={count}, and the SyncStateSet has {in_sync} members: no write is acknowledged",
        f"The set has {known} replicas in all"
        + (", so that this can never be satisfied." if count > known else "."),
        f"Bring {count - in_sync} more replicas into sync: start them, and"
        f" {sync_state_set(facts, name)} shows when they are. A lower {key} lets writes in, and lets"
        f" them be lost with fewer disks. {lower}",
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
        all_ack = is_true(master.config, "allAckInSyncStateSet")
        if all_ack or _number(master.config, "inSyncReplicas") > 1:
            continue
        yield Found(
            name,
            "allAckInSyncStateSet=false and inSyncReplicas=1: the master acknowledges alone",
            "What it acknowledged last is lost when it fails; and a Java master that is cut off"
            " from the controllers goes on acknowledging what nobody else will ever have.",
            "For messages that must not be lost: "
            + change_keys(facts, name, facts.brokers_of(name), SAFE),
        )


def replicas_configured_differently(facts: Facts) -> Iterator[Found]:
    """The brokers of a set promise different things, so that a failover changes the promise."""
    for name, _ in controlled_sets(facts):
        configs = [one for one in facts.brokers_of(name) if one.config]
        for key in ACK_KEYS:
            values = {one.address: one.config[key] for one in configs if key in one.config}
            if len(set(map(meant, values.values()))) > 1:
                yield Found(
                    f"{name} {key}",
                    f"{key} differs: {', '.join(f'{k} has {v}' for k, v in values.items())}",
                    "The master's value counts, so the next failover silently changes what an"
                    " acknowledgement means.",
                    f"Choose one value for all. {_equal(facts, name, configs, key)}",
                )


def _equal(facts: Facts, name: str, configs: list[BrokerFacts], key: str) -> str:
    """How the others get the value that counts now: the master's."""
    master = facts.master_of(name)
    known = [one for one in configs if key in one.config]
    value = (master if master in known and master is not None else known[0]).config[key]
    others = [one for one in known if meant(one.config[key]) != meant(value)]
    return f"For {value}: {change_keys(facts, name, others, {key: value})}"
