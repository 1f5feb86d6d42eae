"""What a name server shows on its status page: who is registered, as it answers clients."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import NamedTuple

from rmqha.base.ids import MASTER_ID
from rmqha.namesrv.figures import SETS_A_TURN
from rmqha.namesrv.route_table import BrokerAddr, BrokerSet, RouteTable
from rmqha.namesrv.static_topics import leaders
from rmqha.remoting.broker_figures import UNKNOWN, Figures
from rmqha.web.document import (
    BrokerSetView,
    LogicalQueueView,
    NodeView,
    ReplicaView,
    StaticTopicView,
    StatusDocument,
    gaps,
)
from rmqha.web.links import page_link

LOGICAL_QUEUES_MAX = 1_000
"""Of all topics together: the page is made anew every second."""


class NodeFacts(NamedTuple):
    """What the document needs besides the tables.

    Attributes:
        now_ms: on the clock of the tables' stamps.
        time_ms, started_ms: since 1970.
    """

    address: str
    version: str
    now_ms: int
    time_ms: int
    started_ms: int


def addresses(table: RouteTable) -> Iterable[str]:
    """Whom to ask for rates and positions: all that are registered."""
    for broker_set in table.sets.values():
        yield from broker_set.addrs.values()


def document(
    facts: NodeFacts, table: RouteTable, figures: Mapping[str, Figures]
) -> Generator[None, None, StatusDocument]:
    """Make it, a part at a time; ``figures`` by broker address."""
    node = NodeView(
        "name server",
        facts.address,
        facts.version,
        facts.started_ms,
        facts={
            "brokers": len(table.live),
            "topics": len(table.topics),
            **({"static topics": len(table.mappings)} if table.mappings else {}),
        },
    )
    sets: list[BrokerSetView] = []
    for at, name in enumerate(table.names_by_cluster(), 1):
        if at % SETS_A_TURN == 0:
            yield
        broker_set = table.sets.get(name)
        if broker_set is not None:  # it may have left meanwhile
            sets.append(_set(facts, table, broker_set, figures))
    return StatusDocument(
        facts.time_ms,
        node,
        broker_sets=tuple(sets),
        static_topics=tuple(_static_topics(table)),
    )


def _static_topics(table: RouteTable) -> Iterable[StaticTopicView]:
    """Static topics by name, until as many queues are shown as may be."""
    left = LOGICAL_QUEUES_MAX
    for topic in sorted(table.mappings):
        if left <= 0:
            return
        infos = table.mappings[topic]
        newest = max(infos.values(), key=lambda one: one.epoch)
        led = leaders(infos)
        shown = range(min(left, newest.total_queues))
        left -= len(shown)
        queues = (LogicalQueueView(one, *led.get(one, (None, None))) for one in shown)
        yield StaticTopicView(topic, newest.epoch, newest.total_queues, tuple(queues))


def _set(
    facts: NodeFacts, table: RouteTable, broker_set: BrokerSet, figures: Mapping[str, Figures]
) -> BrokerSetView:
    registered = sorted(broker_set.addrs.items())
    known = [figures.get(address, UNKNOWN) for _, address in registered]
    behind = gaps([one.max_offset for one in known])
    replicas = []
    for (broker_id, address), mine, gap in zip(registered, known, behind, strict=True):
        live = table.live.get(BrokerAddr(broker_set.cluster_name, address))
        # The version that a replica in controller mode registers with is its master's epoch.
        epoch = None if live is None else live.data_version.state_version or None
        replicas.append(
            ReplicaView(
                broker_id,
                address,
                "master" if broker_id == MASTER_ID else "slave",
                alive=live is not None,
                epoch=epoch,
                max_offset=mine.max_offset,
                gap_bytes=gap,
                put_tps=mine.put_tps,
                pull_tps=mine.pull_tps,
                heard_ms_ago=None if live is None else facts.now_ms - live.last_update_ms,
                page=page_link(mine.status_page, address, facts.address),
            )
        )
    return BrokerSetView(broker_set.cluster_name, broker_set.broker_name, tuple(replicas))
