"""Stands beside every controller and sees what leaves it: votes, acknowledgements, reads, leases.

It wraps the calls of one life of a node; nothing of the node's own code is changed.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from rmqha.base.ids import Term
from rmqha.controller.aio.service import ControllerService
from rmqha.controller.raft.messages import (
    AppendResponse,
    Entry,
    Message,
    VoteRequest,
    VoteResponse,
)
from rmqha.sim.autopsy import Autopsy
from rmqha.sim.disk import SimDisk
from rmqha.verify.raft import RaftWatch

ACKNOWLEDGED_EVERY = 6
"""Of acknowledgements one in so many is checked against the disk: opening a store takes time."""

COMMITTED_EVERY = 12
"""Of commits too, besides the first of every leader."""


class Witness:
    """What is common to all nodes of a group.

    Args:
        watch: judges.
        counts: of what happened, by its name in ``coverage``.
    """

    def __init__(self, watch: RaftWatch, counts: Counter[str]) -> None:
        self._watch = watch
        self._counts = counts
        self._autopsies: dict[str, Autopsy] = {}
        self._services: dict[str, ControllerService] = {}
        self._acknowledged = 0
        self._commits: dict[int, int] = {}

    def node_made(self, service: ControllerService, disk: SimDisk) -> None:
        """A node is about to start."""
        node = service.node_id
        if node not in self._autopsies:
            self._autopsies[node] = Autopsy(service.config, disk)
        self._services[node] = service
        self._watch_messages(service)
        self._watch_reads(service)
        self._watch_log(service)

    def node_opened(self, service: ControllerService) -> None:
        """A node has read its store."""
        core = service.raft.core
        if core is None:
            return
        node, cut = core.node, core.node.truncate_from

        def truncate_from(index: int) -> None:
            if index <= node.log.last_index:
                self._counts["log truncated"] += 1
            cut(index)

        setattr(node, "truncate_from", truncate_from)  # noqa: B010 - methods cannot be assigned

    def node_gone(self, node: str) -> None:
        """A node's process has ended."""
        self._services.pop(node, None)

    # -- what is watched -----------------------------------------------------------------------

    def _watch_messages(self, service: ControllerService) -> None:
        peers, send = service.raft.peers, service.raft.peers.send

        def checked(to: str, message: Message) -> None:
            match message:
                case VoteResponse(term, voter, granted) if granted:
                    self._watch.vote_left(voter, term, to, self._autopsies[voter].remains())
                case VoteRequest(term, candidate):
                    disk = self._autopsies[candidate].remains()
                    self._watch.vote_left(candidate, term, candidate, disk)
                case AppendResponse(_, follower, True, index):
                    self._acknowledges(service, follower, index)
                case _:
                    pass
            send(to, message)

        setattr(peers, "send", checked)  # noqa: B010 - methods cannot be assigned

    def _acknowledges(self, service: ControllerService, follower: str, index: int) -> None:
        self._acknowledged += 1
        if index == 0 or self._acknowledged % ACKNOWLEDGED_EVERY:
            return
        core = service.raft.core
        term = core.node.log.term_at(index) if core is not None else None
        self._watch.acknowledged(follower, index, term, self._autopsies[follower].remains())

    def _watch_reads(self, service: ControllerService) -> None:
        raft, watch, node = service.raft, self._watch, service.node_id
        lease_valid, request_read, reads_ready = (
            raft.lease_valid, raft.request_read, service.reads_ready,
        )  # fmt: skip
        floors: dict[int, int] = {}

        def by_lease(now_ms: int) -> bool:
            held = lease_valid(now_ms)
            if held:
                watch.read_served(node, raft.applied_index, watch.index_max, by="lease")
            return held

        def requested(token: int) -> None:
            floors[token] = watch.index_max
            request_read(token)

        def ready(tokens: tuple[int, ...]) -> None:
            for token in tokens:
                floor = floors.pop(token, 0)
                watch.read_served(node, raft.applied_index, floor, by="read index")
                self._counts["read index served"] += 1
                core = raft.core
                leases = core is None or core.node.settings.lease_reads
                self._counts["reads without leases"] += not leases
            reads_ready(tokens)

        for target, name, wrapped in (
            (raft, "lease_valid", by_lease),
            (raft, "request_read", requested),
            (service, "reads_ready", ready),
        ):
            setattr(target, name, wrapped)

    def _watch_log(self, service: ControllerService) -> None:
        wal, reset, compact = service.raft.wal, service.raft.wal.reset, service.raft.wal.compact

        async def counted_reset(index: int, term: Term) -> None:
            await reset(index, term)
            self._counts["log reset"] += 1

        async def counted_compact(up_to_index: int) -> int:
            removed = await compact(up_to_index)
            self._counts["log compacted"] += removed > 0
            return removed

        for name, wrapped in (("reset", counted_reset), ("compact", counted_compact)):
            setattr(wal, name, wrapped)

    # -- what the cluster tells ------------------------------------------------------------------

    def entry_committed(self, service: ControllerService, entry: Entry, damaged: bool) -> None:
        """A node is the first of all to apply an entry."""
        core = service.raft.core
        if core is not None and core.is_leader:
            node = core.node
            self._watch.leader_committed(node.id, node.term_start_index, node.commit_index)
        if damaged or core is None or not self._autopsies.keys() >= set(core.node.voters):
            return
        term = core.node.term
        count = self._commits[term] = self._commits.get(term, 0) + 1
        if count == 1 or entry.log_index % COMMITTED_EVERY == 0:
            disks = {node: self._autopsies[node].remains() for node in core.node.voters}
            self._watch.committed(entry.log_index, entry.term, disks)

    def leader_elected(self, node: str, term: int, clocks: dict[str, Any]) -> None:
        """A node leads a new term; ``clocks`` are those of all living nodes, by node."""
        for other, service in sorted(self._services.items()):
            if other != node and other in clocks:
                core = service.raft.core
                if core is not None and core.lease_valid(clocks[other].now_ms()):
                    self._watch.lease_held(other, core.node.term, node, term)
