"""Whether a leader leads whenever one could: asked all along, not only in peace.

A quorum is enough that can all talk through one node, whether or not its members reach each
other, as long as that node's log is as new as theirs: it can be elected. When nothing else
happens for ``PATIENCE`` election timeouts, some node has become a leader that is ready.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqha.base.errors import InvariantBroken
from rmqha.sim.net import WIRE, Weather

if TYPE_CHECKING:
    from rmqha.controller.raft.node import Node
    from rmqha.sim.cluster import SimCluster

LOOK_EVERY_MS = 100
PATIENCE = 15
"""In longest election timeouts; broken connections need up to two seconds to be dialled again."""

QUIET_MS = 4800.0
"""Longer than it may take until there is a leader, by the election timeouts of ``cluster``."""

CALM_LOSS_MAX = 0.03


def is_calm(weather: Weather) -> bool:
    """Whether messages mostly arrive within a vote guard."""
    return weather.loss <= CALM_LOSS_MAX


def healthy(cluster: SimCluster, now_s: float) -> dict[str, Node]:
    """Controllers that run and vote, on disks that are quick and have space."""
    return {
        host: service.raft.core.node
        for host, service in sorted(cluster.controllers.items())
        if service.raft.core is not None
        and service.raft.core.node.may_vote
        and host not in cluster.damaged
        and host in cluster.listening
        and not cluster.loop.is_paused(host)
        and cluster.disks[host].mood.is_calm(now_s)
    }


class LivenessWatch:
    """Looks at a cluster every so often.

    Args:
        cluster: all its controllers.
    """

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._since_s = 0.0
        self.waits = 0

    def start(self) -> None:
        """Look from now on."""
        self._cluster.loop.call_later(LOOK_EVERY_MS / 1000, self._look, context=WIRE)

    def disturbed(self, *hosts: str) -> None:
        """Something happened that may cost an election: count from here.

        Args:
            hosts: to whom; none for all. Of what happens to brokers no election comes.
        """
        if hosts and not {*hosts} & {*self._cluster.controller_hosts}:
            return
        self._since_s = self._cluster.loop.time()
        self._cluster.progress.disturbed()

    def _look(self) -> None:
        cluster = self._cluster
        cluster.look_for_recovered()
        now_s = cluster.loop.time()
        hub = None if cluster.leader() is not None else self._hub(now_s)
        if hub is None:
            self._since_s = now_s
        elif now_s - self._since_s > PATIENCE * cluster.election_max_ms / 1000:
            cluster.loop.errors.append(
                InvariantBroken(
                    f"no leader although a quorum can talk through one node (hub={hub!r},"
                    f" since_ms={self._since_s * 1000:.0f})"
                )
            )
            self._since_s = now_s
        # After the question for a leader, which says more where there is none.
        cluster.progress.look(now_s)
        self.start()

    def _hub(self, now_s: float) -> str | None:
        """A node through which a quorum can talk, and that this quorum can elect."""
        cluster = self._cluster
        if not is_calm(cluster.net.weather):
            return None
        logs = {
            host: (node.log.last_term, node.log.last_index)
            for host, node in healthy(cluster, now_s).items()
        }
        for hub in sorted(logs):
            group = {f"c{one[1:]}" for one in cluster.group(hub)}
            voters = [
                other
                for other in logs
                if other in group
                and logs[other] <= logs[hub]
                and (other == hub or cluster.net.is_linked(hub, other))
            ]
            if hub in group and len(voters) > len(group) // 2:
                return hub
        return None
