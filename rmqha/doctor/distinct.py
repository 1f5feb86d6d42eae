"""One node under two addresses is one: two would seem to be two leaders, or two masters.

A controller is given by the name of its machine and named by its peers by an address; a broker of
several addresses is registered by one and asked by another. Two that have one id are two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from rmqha.doctor.facts import BrokerFacts, ControllerFacts, Facts


def distinct_controllers(
    found: Sequence[ControllerFacts], resolved: Mapping[str, tuple[str, ...]]
) -> tuple[ControllerFacts, ...]:
    """Each controller once, by the address that the members know it by.

    Args:
        resolved: addresses of host names.
    """
    places = Facts(resolved=resolved)
    named = {address for one in found for address in one.peers.values()}
    kept: list[ControllerFacts] = []
    for one in sorted(found, key=lambda one: one.address not in named):
        if not any(_is_one_controller(one, other, places) for other in kept):
            kept.append(one)
    order = [one.address for one in found]
    return tuple(sorted(kept, key=lambda one: order.index(one.address)))


def _is_one_controller(one: ControllerFacts, other: ControllerFacts, places: Facts) -> bool:
    if places.is_same(one.address, other.address):
        return True
    # By a way that no resolver knows, as a forwarded port: what it says of itself is the same.
    return (
        one.view is not None
        and other.view is not None
        and one.view.node_id == other.view.node_id
        and one.peers == other.peers
        and bool(one.peers)
        and replace(one.view, applied_index=0, commit_index=0, sets={})
        == replace(other.view, applied_index=0, commit_index=0, sets={})
    )


def controllers_of_one_group(facts: Facts) -> tuple[str, ...]:
    """The controllers that the brokers name, if these are of one group.

    A name server may have clusters of several groups, of which each has its leader by right; to ask
    them all would be to find many leaders, and members that differ.
    """
    lists = list(dict.fromkeys(one.named_controllers for one in facts.brokers))
    group: list[str] = []
    waiting = [one for one in lists if one]
    while waiting:
        at = next(
            (
                at for at, named in enumerate(waiting)
                if not group or any(facts.is_same(one, other) for one in named for other in group)
            ),
            None,
        )  # fmt: skip
        if at is None:
            return ()
        group.extend(one for one in waiting.pop(at) if one not in group)
    return tuple(group)


def distinct_brokers(found: Sequence[BrokerFacts]) -> tuple[BrokerFacts, ...]:
    """Each broker process once, by the address that it is registered by, which comes first.

    Two that have one id and one name began in different milliseconds, if they are two.
    """
    kept: dict[object, BrokerFacts] = {}
    for one in found:
        began = one.runtime.get("bootTimestamp", "")
        of = one.epochs
        is_known = of is not None and began and one.listed_as == of.broker_name
        key = (of.broker_name, of.broker_id, began) if of is not None and is_known else one.address
        kept.setdefault(key, one)
    return tuple(kept.values())


def ids_twice(facts: Facts, name: str) -> dict[int, list[str]]:
    """The ids of a set that several brokers have, with the addresses of these."""
    by_id: dict[int, list[str]] = {}
    for one in facts.brokers_of(name):
        broker_id = _id_of(facts, name, one)
        if broker_id is not None:
            by_id.setdefault(broker_id, []).append(one.address)
    return {broker_id: found for broker_id, found in sorted(by_id.items()) if len(found) > 1}


def _id_of(facts: Facts, name: str, one: BrokerFacts) -> int | None:
    """Who a broker is, by its own word; a master says 0, and is who was known at its address."""
    if one.epochs is None:
        return None
    if one.epochs.broker_id > 0:
        return one.epochs.broker_id
    info = facts.sets.get(name)
    if info is None or info.master_broker_id is None or info.master_address is None:
        return None
    known = (info.master_address, *facts.moved.get((name, info.master_broker_id), ()))
    is_known = any(facts.is_same(one.address, address) for address in known)
    return info.master_broker_id if is_known else None
