"""Whether a group does what it is there for: that somebody leads is not enough, he must commit.

A leader without space, one that hands over for ever, and one that hears nobody lead as well, and
take nothing. So while a majority is healthy, has space and hears each other, proposals must be
committed. Clients make some all along; when none has been committed for a while, this watch
proposes itself, to whoever leads.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import TYPE_CHECKING

from rmqha.base.errors import InvariantBroken
from rmqha.controller.raft.events import Proposed
from rmqha.controller.raft.messages import Entry
from rmqha.sim.liveness import PATIENCE, healthy, is_calm

if TYPE_CHECKING:
    from rmqha.controller.raft.node import Node
    from rmqha.sim.cluster import SimCluster

IDLE_MS = 300.0
"""Before, nobody looks whether there is a majority: it costs time."""

PROBE_AFTER_MS = 1500.0
PROBE_EVERY_MS = 500.0

PROBE = b""
"""What a leader opens its term with: it changes no state."""


class ProgressWatch:
    """Looks at a cluster as often as ``LivenessWatch`` does.

    Args:
        cluster: all its controllers.
    """

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._since_s = 0.0
        self._probed_s = 0.0
        self._probes: set[tuple[int, int]] = set()

    def disturbed(self) -> None:
        """Something happened that may cost an election: count from here."""
        self._since_s = self._cluster.loop.time()

    def committed(self, entry: Entry) -> None:
        """An entry is committed; those with which leaders open their terms prove nothing."""
        if entry.data or (entry.log_index, entry.term) in self._probes:
            self._since_s = self._cluster.loop.time()
            self._probes.clear()

    def look(self, now_s: float) -> None:
        """Compare the time since the last commit with what it may take."""
        waited_ms = (now_s - self._since_s) * 1000
        if waited_ms < IDLE_MS:
            return
        cluster = self._cluster
        able = next(self._majorities(now_s), None) if is_calm(cluster.net.weather) else None
        if able is None:
            self._since_s = now_s
        elif waited_ms > self._patience_ms():
            error = InvariantBroken(
                f"nothing is committed although a majority could (majority={' '.join(able)},"
                f" leader={cluster.leader()}, since_ms={self._since_s * 1000:.0f})"
            )
            cluster.loop.errors.append(error)
            self._since_s = now_s
        elif waited_ms > PROBE_AFTER_MS and (now_s - self._probed_s) * 1000 > PROBE_EVERY_MS:
            self._probed_s = now_s
            self._probe()

    def _majorities(self, now_s: float) -> Iterator[tuple[str, ...]]:
        """Healthy controllers that hear each other, and are one by what each of them knows."""
        nodes = healthy(self._cluster, now_s)
        for hub in nodes:
            group = nodes[hub].voters
            voters = [host for host in nodes if f"n{host[1:]}" in group]
            for chosen in combinations(voters, len(group) // 2 + 1):
                if chosen[0] == hub and self._is_whole(chosen, nodes):
                    yield chosen

    def _is_whole(self, hosts: tuple[str, ...], nodes: dict[str, Node]) -> bool:
        group = nodes[hosts[0]].voters
        return all(nodes[host].voters == group for host in hosts) and all(
            self._cluster.net.is_linked(one, other) for one, other in combinations(hosts, 2)
        )

    def _patience_ms(self) -> float:
        """How long it may take to find out that a leader is none, and to have another."""
        usual_ms = self._cluster.election_max_ms
        widest_ms = usual_ms
        for service in self._cluster.controllers.values():
            if service.raft.core is not None:
                patience = service.raft.core.node.patience
                widest_ms = max(widest_ms, patience.quorum_ms, patience.election_max_ms)
        return PATIENCE * usual_ms + 2 * (widest_ms - usual_ms)

    def _probe(self) -> None:
        """Propose to whoever leads, or believes to."""
        cluster = self._cluster
        for host, service in sorted(cluster.controllers.items()):
            if service.raft.leads() and not cluster.loop.is_paused(host):
                context = cluster.net.contexts[host].copy()
                cluster.loop.call_soon(self._propose, host, context=context)

    def _propose(self, host: str) -> None:
        service = self._cluster.controllers.get(host)
        core = None if service is None else service.raft.core
        if service is None or core is None or not core.is_leader:
            return
        before = core.node.log.last_index
        self._cluster.counts["leader probed"] += 1
        service.raft.give(Proposed((PROBE,)))
        if core.node.log.last_index > before:
            self._probes.add((core.node.log.last_index, core.node.term))
