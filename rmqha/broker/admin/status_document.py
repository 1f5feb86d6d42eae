"""What a broker shows on its status page: itself and, as a master, the slaves it feeds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from msgspec.structs import replace

from rmqha.broker.common.statistics import SHORT, Statistics
from rmqha.ha.events import Role
from rmqha.ha.ha_core import HaCore
from rmqha.web.document import (
    BrokerSetView,
    NodeView,
    OtherView,
    ReplicaView,
    Sentence,
    StaticTopicView,
    StatusDocument,
    gaps,
)


class NodeFacts(NamedTuple):
    """What the document needs besides the cores; positions in bytes.

    Attributes:
        role: None while the replica is fenced or not registered yet.
        broker_id: the controller's id; None before it is known.
        master: id and address of the current master, if known.
        time_ms, started_ms: since 1970.
        master_page: the link to the master's page, where the master says that it has one.
        others: controllers and name servers.
        troubles: as in the document.
    """

    cluster: str
    broker_name: str
    address: str
    role: Role | None
    broker_id: int | None
    master: tuple[int, str] | None
    min_offset: int
    max_offset: int
    confirm_offset: int
    version: str
    time_ms: int
    started_ms: int
    records_damaged: int = 0
    master_page: str | None = None
    others: tuple[OtherView, ...] = ()
    troubles: tuple[Sentence, ...] = ()


def document(
    facts: NodeFacts,
    core: HaCore | None,
    statistics: Statistics,
    static_topics: Iterable[StaticTopicView] = (),
) -> StatusDocument:
    """Make it; ``core`` is None before the replica knows its id."""
    role = "fenced" if facts.role is None else facts.role.value
    node = NodeView(
        "broker",
        facts.address,
        facts.version,
        facts.started_ms,
        role,
        {
            "first byte": max(0, facts.min_offset),
            "messages put": statistics.totals.put,
            "messages pulled": statistics.totals.got,
            "damaged records": facts.records_damaged,
        },
        facts.troubles,
    )
    own = _own(facts, core, statistics)
    leads = facts.role is Role.MASTER
    replicas = [own, *(_slaves(core) if core is not None and leads else _master(facts))]
    shown = tuple(sorted(replicas, key=lambda one: one.broker_id))
    if core is None or not leads:
        view = BrokerSetView(facts.cluster, facts.broker_name, shown)
    else:
        members = core.members.sync_state_set
        view = BrokerSetView(
            facts.cluster,
            facts.broker_name,
            _with_gaps(shown),
            core.ha.epochs.last_epoch,
            members.epoch,
            tuple(sorted(members.ids)),
        )
    return StatusDocument(
        facts.time_ms, node, broker_sets=(view,), static_topics=tuple(static_topics),
        others=facts.others,
    )  # fmt: skip


def _own(facts: NodeFacts, core: HaCore | None, statistics: Statistics) -> ReplicaView:
    in_sync = None
    if core is not None and facts.role is Role.MASTER:
        in_sync = facts.broker_id in core.members.sync_state_set.ids
    return ReplicaView(
        facts.broker_id or 0,
        facts.address,
        "master" if facts.role is Role.MASTER else "slave",
        alive=True,
        in_sync=in_sync,
        epoch=None if core is None else core.ha.epochs.last_epoch,
        max_offset=facts.max_offset,
        confirm_offset=max(0, facts.confirm_offset),
        put_tps=statistics.rate("put", SHORT),
        pull_tps=statistics.rate("got", SHORT),
        heard_ms_ago=0,
    )


def _slaves(core: HaCore) -> list[ReplicaView]:
    """One line a slave: the newest session of those that presented its id."""
    newest = {
        session.slave_id: session
        for session in core.sessions.values()
        if session.slave_id is not None
    }
    members = core.members.sync_state_set.ids
    return [
        ReplicaView(
            slave_id,
            session.address,
            "slave",
            alive=True,
            in_sync=slave_id in members,
            max_offset=session.ack_offset,
        )
        for slave_id, session in newest.items()
    ]


def _master(facts: NodeFacts) -> list[ReplicaView]:
    """A slave knows who its master is, and not how far that is."""
    if facts.master is None or facts.role is not Role.SLAVE:
        return []
    master_id, address = facts.master
    return [ReplicaView(master_id, address, "master", page=facts.master_page)]


def _with_gaps(replicas: tuple[ReplicaView, ...]) -> tuple[ReplicaView, ...]:
    behind = gaps([one.max_offset for one in replicas])
    return tuple(replace(one, gap_bytes=gap) for one, gap in zip(replicas, behind, strict=True))
