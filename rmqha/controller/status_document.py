"""What a controller shows on its status page."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import NamedTuple

from rmqha.controller.metadata.elections import Election
from rmqha.controller.metadata.status import SETS_A_TURN, BrokerSetStatus, ReplicaStatus, Status
from rmqha.controller.settings import ControllerConfig, Peer
from rmqha.remoting.broker_figures import UNKNOWN, Figures
from rmqha.web.document import (
    BrokerSetView,
    ControllerView,
    ElectionView,
    NodeView,
    ReplicaView,
    Sentence,
    StatusDocument,
    gaps,
)
from rmqha.web.links import page_link


class NodeFacts(NamedTuple):
    """What the document needs besides the machine's figures.

    Attributes:
        role, term: of Raft.
        leader_id: whom this node follows; None when it knows of none.
        commit_index: of the Raft log.
        time_ms, started_ms: since 1970.
        peers: the group as it is now.
        no_space, may_vote: of this node.
    """

    role: str
    term: int
    leader_id: str | None
    commit_index: int
    version: str
    time_ms: int
    started_ms: int
    peers: tuple[Peer, ...]
    no_space: bool = False
    may_vote: bool = True


def addresses(status: Status) -> Iterable[str]:
    """Whom to ask for rates: every replica that is alive."""
    for broker_set in status["broker_sets"]:
        for replica in broker_set["replicas"]:
            if replica["alive"]:
                yield replica["address"]


def _troubles(facts: NodeFacts) -> Iterator[Sentence]:
    """What nobody else can see of this node."""
    if facts.no_space:
        text = "The disk of this controller is full: it takes no changes."
        yield Sentence("bad", text, "own/disk")
    if not facts.may_vote:
        text = "This controller does not vote yet: its store is new, or it has to be caught up."
        yield Sentence("warn", text, "own/vote")


def document(
    config: ControllerConfig,
    facts: NodeFacts,
    status: Status,
    elections: Iterable[Election],
    figures: Mapping[str, Figures],
    pages: Mapping[str, str | None],
) -> Generator[None, None, StatusDocument]:
    """Make it, in parts; ``figures`` by broker address, ``pages`` of controllers as they say it."""
    here = config.this.address
    sets: list[BrokerSetView] = []
    for at, one in enumerate(status["broker_sets"], 1):
        sets.append(_set(one, figures, here))
        if at % SETS_A_TURN == 0:
            yield
    return StatusDocument(
        facts.time_ms,
        NodeView(
            "controller",
            here,
            facts.version,
            facts.started_ms,
            facts.role,
            {
                "group": config.group,
                "term": facts.term,
                "commit index": facts.commit_index,
                "applied": status["applied_index"],
                "waiting": status["work_queued"],
            },
            tuple(_troubles(facts)),
        ),
        tuple(
            ControllerView(
                peer.id,
                peer.address,
                peer.id == facts.leader_id,
                peer.id == config.self_id,
                page_link(pages.get(peer.address), peer.address, here),
            )
            for peer in facts.peers
        ),
        tuple(sets),
        tuple(ElectionView(*one) for one in elections),
    )


def _set(status: BrokerSetStatus, figures: Mapping[str, Figures], here: str) -> BrokerSetView:
    replicas = status["replicas"]
    known = [figures.get(one["address"], UNKNOWN) for one in replicas]
    # Heartbeats and the brokers' own words are both a little old, and nobody knows which is older.
    ends = [
        max((end for end in (mine.max_offset, _known(one["max_offset"])) if end is not None),
            default=None)
        for one, mine in zip(replicas, known, strict=True)
    ]  # fmt: skip
    links = [
        page_link(mine.status_page, one["address"], here)
        for one, mine in zip(replicas, known, strict=True)
    ]
    shown = tuple(map(_replica, replicas, known, ends, gaps(ends), links))
    return BrokerSetView(
        status["cluster"],
        status["broker_name"],
        shown,
        status["master_epoch"],
        status["sync_state_set_epoch"],
        tuple(status["sync_state_set"]),
    )


def _replica(
    status: ReplicaStatus,
    figures: Figures,
    max_offset: int | None,
    gap: int | None,
    page: str | None,
) -> ReplicaView:
    alive = status["alive"]
    return ReplicaView(
        status["broker_id"],
        status["address"],
        status["role"],
        alive,
        status["in_sync"],
        _known(status["epoch"]),
        max_offset,
        _known(status["confirm_offset"]),
        gap,
        figures.put_tps if alive else None,
        figures.pull_tps if alive else None,
        status["heard_ms_ago"],
        page,
    )


def _known(number: int | None) -> int | None:
    """Heartbeats say -1 for what a broker does not know."""
    return None if number is None or number < 0 else number
