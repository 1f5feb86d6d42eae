"""What a name server's metrics are made of: one look at its tables."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import NamedTuple

from rmqha.base.ids import MASTER_ID
from rmqha.namesrv.machine import NamesrvMachine
from rmqha.namesrv.route_table import BrokerAddr

SETS_A_TURN = 500
"""So many are looked at, by metrics and by the status page, in one turn of the loop, some milliseconds."""


class SetFigures(NamedTuple):
    """One broker set.

    Attributes:
        brokers: how many are registered.
        masters: how many of them as master: 0 or 1.
        silent_ms: how long the most silent of them has been; 0 without one.
        topics: that it is registered with.
    """

    cluster_name: str
    broker_name: str
    brokers: int
    masters: int
    silent_ms: int
    topics: int


class NamesrvFigures(NamedTuple):
    """Of one name server.

    Attributes:
        sets: sorted by cluster and name.
        topics: that are listed.
        routes: pairs of topic and brokerName.
        kv_bytes: of the KV configuration.
    """

    sets: tuple[SetFigures, ...]
    topics: int
    routes: int
    kv_bytes: int


class Scrape(NamedTuple):
    """What one scrape shows.

    Attributes:
        requests: taken, by code.
        connections: open now.
        protocol_errors: connections that were closed for what they sent.
        notifications_lost: 905s that were not sent.
    """

    figures: NamesrvFigures
    requests: Mapping[int, int]
    connections: int
    protocol_errors: int
    notifications_lost: int


def figures(machine: NamesrvMachine, now_ms: int) -> Generator[None, None, NamesrvFigures]:
    """Look at the tables, a part at a time; ``now_ms`` on their clock."""
    table = machine.table
    sets: list[SetFigures] = []
    for at, name in enumerate(table.names_by_cluster(), 1):
        if at % SETS_A_TURN == 0:
            yield
        one = table.sets.get(name)
        if one is None:
            continue  # it has left meanwhile
        live = (table.live.get(BrokerAddr(one.cluster_name, addr)) for addr in one.addrs.values())
        heard_ms = [broker.last_update_ms for broker in live if broker is not None]
        silent_ms = max(0, now_ms - min(heard_ms, default=now_ms))
        masters = int(MASTER_ID in one.addrs)
        topics = len(table.topics_of.get(name, ()))
        sets.append(
            SetFigures(
                one.cluster_name, one.broker_name, len(one.addrs), masters, silent_ms, topics
            )
        )
    return NamesrvFigures(
        tuple(sets), len(table.topics), table.route_count, machine.kv.content_bytes
    )
