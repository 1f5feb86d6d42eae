"""What a controller is in the middle of, just after one of its Raft node's steps. Only looks.

A moment is asked with the host and its node; some ask about the others, too.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from rmqha.controller.raft.node import Node, Role
from rmqha.controller.raft.wal_layout import ALIGNMENT, SECTOR, SEGMENT_SUFFIX
from rmqha.sim.cluster import SimCluster


class Stage:
    """A cluster as moments and plans see it; only looks."""

    def __init__(self, cluster: SimCluster, rng: random.Random) -> None:
        self.cluster = cluster
        self.rng = rng

    def node(self, host: str) -> Node | None:
        """A living controller's Raft node."""
        service = self.cluster.controllers.get(host)
        core = None if service is None else service.raft.core
        return None if core is None else core.node

    def others(self, host: str) -> list[str]:
        """All other controllers, dead or alive."""
        return [one for one in self.cluster.controller_hosts if one != host]

    def nodes(self, *without: str) -> list[tuple[str, Node]]:
        """The living ones."""
        found = [(one, self.node(one)) for one in self.cluster.controller_hosts]
        return [(one, node) for one, node in found if node is not None and one not in without]

    def leader(self) -> str | None:
        """Who leads the highest term, ready or not."""
        led = [(node.term, one) for one, node in self.nodes() if node.role is Role.LEADER]
        return max(led)[1] if led else None

    def log_end(self, host: str) -> tuple[int, int]:
        """Bytes of the newest file of a controller's log, and so many are prepared for it."""
        files = self.cluster.disks[host].files
        newest = files[max(path for path in files if path.endswith(SEGMENT_SUFFIX))]
        return len(newest.durable), max(len(newest.content), self.cluster.options.wal_segment_bytes)

    def round_ms(self, node: Node, host: str) -> float:
        """How long ago the newest answered round began, by the node's clock."""
        return self.cluster.clocks[host].now_ms() - node.quorum_round_ms


Moment = Callable[[Stage, str, Node], bool]


def installs(stage: Stage, it: str, node: Node) -> bool:
    """A snapshot is being written."""
    return node.installing


def is_elected(stage: Stage, it: str, node: Node) -> bool:
    """It leads, and its opening entry is not committed."""
    return node.role is Role.LEADER and not node.ready and bool(node.peers)


def reads(stage: Stage, it: str, node: Node) -> bool:
    """A read waits for its round."""
    return bool(node.reads)


def is_confirmed(stage: Stage, it: str, node: Node) -> bool:
    """A quorum has just answered the newest round, and nothing else is on its way."""
    fresh = node.ready and bool(node.peers) and node.quorum_round == node.round
    return fresh and stage.round_ms(node, it) < 8


def hands_over(stage: Stage, it: str, node: Node) -> bool:
    """The successor has been told to stand."""
    return node.role is Role.LEADER and node.transfer_target is not None and node.transfer_sent


def readmits(stage: Stage, it: str, node: Node) -> bool:
    """The entry that readmits a recovering node is proposed and not committed."""
    return node.role is Role.LEADER and any(
        one.recovering and node.commit_index < one.readmit_index for one in node.progress.values()
    )


def is_ahead(stage: Stage, it: str, node: Node) -> bool:
    """A leader holds two entries and more that nobody else has."""
    best = max((one.log.last_index for _, one in stage.nodes(it)), default=0)
    return node.ready and bool(node.peers) and node.log.last_index >= best + 2


def votes(stage: Stage, it: str, node: Node) -> bool:
    """Its vote for another is on the way to the disk."""
    return bool(node.persisting) and node.vote not in (None, node.id) and node.leader_id is None


def leads(stage: Stage, it: str, node: Node) -> bool:
    """It leads and is ready."""
    return node.ready and bool(node.peers)


def is_outgrown(stage: Stage, it: str, node: Node) -> bool:
    """It leads, and another log is longer and of an older term."""
    last = node.log.last_index
    return node.ready and any(
        other.log.last_term < node.term and other.log.last_index > last
        for _, other in stage.nodes(it)
    )


def stands_with_less(stage: Stage, it: str, node: Node) -> bool:
    """It asks for votes, and another log is longer."""
    return node.role is Role.CANDIDATE and bool(longer(stage, it, node))


def is_elected_with_less(stage: Stage, it: str, node: Node) -> bool:
    """The same, when it has just won."""
    return is_elected(stage, it, node) and bool(longer(stage, it, node))


def follows_alone(stage: Stage, it: str, node: Node) -> bool:
    """Only its leader has the newest entry besides, and another has a newer snapshot."""
    leader = stage.leader()
    others = [other for _, other in stage.nodes(it, str(leader))]
    if leader in (None, it) or len(others) < len(node.peers) // 2 + 1 or not node.may_vote:
        return False
    newest = max(other.log.last_index for other in others)
    compacted = max(other.log.base_index for other in others)
    alone = node.durable_index == node.log.last_index > newest and node.log.last_term == node.term
    return alone and compacted > node.snapshot.last_index


def votes_against_a_leader(stage: Stage, it: str, node: Node) -> bool:
    """As ``votes``, while the leader before does not know that it is one no more."""
    leader = stage.leader()
    old = None if leader in (None, it) else stage.node(str(leader))
    return votes(stage, it, node) and old is not None and old.ready and old.term < node.term


def writes_in_parts(stage: Stage, it: str, node: Node) -> bool:
    """Entries are on the way to the disk that may arrive in part: by sectors, or by the length."""
    waiting = node.log.between(node.durable_index + 1, node.log.last_index)
    if not node.persisting or node.installing or not waiting:
        return False
    start, prepared = stage.log_end(it)
    size = ALIGNMENT + sum(len(entry.data) for entry in waiting)
    return start % SECTOR + size > SECTOR or start + size > prepared


def has_compacted(stage: Stage, it: str, node: Node) -> bool:
    """It leads, and only snapshots hold the log's beginning."""
    return leads(stage, it, node) and node.log.base_index > 0


def leads_equals(stage: Stage, it: str, node: Node) -> bool:
    """It leads, all live and vote, and the disks of all hold the same log."""
    nodes = [other for _, other in stage.nodes()]
    ends = {(other.log.last_term, other.log.last_index) for other in nodes}
    durable = all(one.may_vote and one.durable_index == one.log.last_index for one in nodes)
    return leads(stage, it, node) and durable and len(ends) == 1 and len(nodes) > len(node.peers)


def longer(stage: Stage, it: str, node: Node) -> list[str]:
    """Who has another entry where this node's opening entry is, or will be."""
    opening = node.log.last_index + (node.role is not Role.LEADER)
    return [
        one
        for one, other in stage.nodes(it)
        if other.may_vote and other.log.last_term < node.term and other.log.last_index >= opening
    ]


MOMENTS: dict[str, Moment] = {
    "elected": is_elected,
    "handing over": hands_over,
    "installing": installs,
    "reading": reads,
    "readmitting": readmits,
    "voting": votes,
    "ahead": is_ahead,
}
"""Each may be answered by any of ``traps.anything``."""
