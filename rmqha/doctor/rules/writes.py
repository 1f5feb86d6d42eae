"""Masters that take no writes, or soon may take none, though everybody lives."""

from __future__ import annotations

from collections.abc import Iterator

from rmqha.doctor.advice import change_keys, update_broker
from rmqha.doctor.diagnosis import Found
from rmqha.doctor.facts import BrokerFacts, Facts, HaFacts
from rmqha.remoting.topic_names import PERM_WRITE

KEPT_HOURS = 72
"""Fallback of fileReservedTime, as of Java's brokers."""
WARNING_PERCENT = 90
"""Java's diskSpaceWarningLevelRatio, where a broker does not tell its own."""


def _without_lease(facts: Facts) -> Iterator[tuple[BrokerFacts, HaFacts]]:
    for one in facts.brokers:
        if one.ha is not None and one.ha.is_master and one.runtime.get("writeLeaseHeld") == "false":
            yield one, one.ha


def write_lease_lost(facts: Facts) -> Iterator[Found]:
    """A master hears neither the controllers nor all its slaves in sync, and refuses writes."""
    for one, ha in _without_lease(facts):
        away = ha.in_sync_slaves - ha.connected_in_sync
        if away > 0:
            yield Found(
                f"{one.listed_as} {one.address}",
                f"the master has lost its write lease, {away} of its {ha.in_sync_slaves} slaves in"
                " sync are not connected, and it refuses writes (14)",
                "It has heard no majority of controllers for controllerHeartBeatTimeoutMills, and"
                " cannot know whether one of those slaves was elected.",
                "Bring back a majority of the controllers, or the slaves, or mend the network to"
                " them. Do not switch writeLeaseEnable off: another master may be there already.",
            )


def write_lease_missing(facts: Facts) -> Iterator[Found]:
    """A master hears no majority of controllers, and writes only while all slaves in sync answer."""
    for one, ha in _without_lease(facts):
        if ha.in_sync_slaves > ha.connected_in_sync:
            continue
        who = (
            f"all {ha.in_sync_slaves} slaves in sync acknowledge them"
            if ha.in_sync_slaves
            else "it is alone in sync, so that nobody else can be elected"
        )
        yield Found(
            f"{one.listed_as} {one.address}",
            f"the master has lost its write lease, and takes writes as long as {who}",
            "It has heard no majority of controllers for controllerHeartBeatTimeoutMills. If a slave"
            " in sync fails or hangs now, it refuses writes, and nobody replaces a master that dies.",
            "Bring back a majority of the controllers, or mend the network to them; stop no broker of"
            " the set meanwhile.",
        )


def disk_full(facts: Facts) -> Iterator[Found]:
    """A broker's disk is so full that it refuses messages."""
    for one in facts.brokers:
        if not _is_full(one):
            continue
        used = one.runtime.get("commitLogDiskRatio", "")
        yield Found(
            f"{one.listed_as} {one.address}",
            "its disk is too full, and "
            + ("sends are refused" if one.acts_as_master else "it would refuse sends as master")
            + (f" (commitLogDiskRatio={used})" if used else ""),
            "It refuses them above diskSpaceWarningLevelRatio, before files cannot be written any"
            " more. Files that expired go at deleteWhen, or sooner above diskMaxUsedSpaceRatio.",
            "Make room on that disk, of other things than the store. Delete no file of the store by"
            " hand. Or let old files go sooner, with a lower fileReservedTime (hours)."
            f" {change_keys(facts, one.listed_as, [one], {'fileReservedTime': _sooner(one)})}",
        )


def _sooner(one: BrokerFacts) -> str:
    """Half of the hours for which files are kept now."""
    kept = one.config.get("fileReservedTime", "")
    return str(max((int(kept) if kept.isdecimal() else KEPT_HOURS) // 2, 1))


def _is_full(one: BrokerFacts) -> bool:
    """By the word of ours; Java's tells only how full its disk is."""
    said = one.runtime.get("diskFull")
    if said is not None:
        return said == "true"
    level = one.config.get("diskSpaceWarningLevelRatio", "")
    try:
        used = float(one.runtime.get("commitLogDiskRatio", "0"))
    except ValueError:
        return False
    return used * 100 > (int(level) if level.isdigit() else WARNING_PERCENT)


def writes_closed(facts: Facts) -> Iterator[Found]:
    """A master is configured to take no writes, so that clients are sent elsewhere."""
    for one in facts.brokers:
        text = one.config.get("brokerPermission", "").strip()
        if not one.acts_as_master or not text.isdigit() or int(text) & PERM_WRITE:
            continue
        yield Found(
            f"{one.listed_as} {one.address}",
            f"brokerPermission={text}: the master takes no writes",
            "It is registered without the right to write. Clients send to other broker sets, and"
            " find nobody for a topic that is on this one alone.",
            "If it is not being emptied by intention:"
            f" {update_broker(one, 'brokerPermission', '6')}, and the same in its file.",
        )
