"""Installing snapshots: what may happen to a node while one is being written."""

from __future__ import annotations

import asyncio

import pytest

from rmqha.controller.raft import events as ev
from rmqha.controller.raft.messages import AppendRequest, Entry
from rmqha.controller.raft.settings import RaftSettings
from rmqha.sim.disk import SimDisk
from tests.controller.raft.cluster import Cluster


class GatedDisk(SimDisk):
    """A disk on which whole files are not written before the gate opens."""

    gate: asyncio.Event

    async def write_atomic(self, path: str, data: bytes) -> None:
        """Wait, then write."""
        await self.gate.wait()
        await super().write_atomic(path, data)


def gated(cluster: Cluster, name: str) -> GatedDisk:
    """Give a node a disk whose gate is closed."""
    disk = cluster.disks[name]
    disk.__class__ = GatedDisk
    assert isinstance(disk, GatedDisk)
    disk.gate = asyncio.Event()
    return disk


def begin_an_install_on_a_node_that_can_win() -> tuple[Cluster, str, GatedDisk, list[bytes]]:
    """A node whose log goes one entry past a snapshot that it is sent, and the sender is dead.

    The snapshot ends at ``k``. The node holds ``k``, but was not yet told that it is committed,
    and ``k + 1``, which its leader had sent ahead and then lost with its power. The next leader
    differs at ``k + 1``, the conflict hint skips the whole term, so a snapshot comes.
    """
    cluster = Cluster(3, settings=RaftSettings(trailing_entries=0), snapshot_every=10, seed=5)
    first = cluster.wait_leader()
    behind, other = (one for one in cluster.members if one != first)
    disk = gated(cluster, behind)
    for number in range(8):
        cluster.propose(b"r%d" % number)
        cluster.run(80)
    last = cluster.cores[first].node.log.last_index
    cluster.propose(b"k")
    cluster.run_until(lambda: cluster.cores[behind].node.log.last_index == last + 1)
    cluster.isolate(behind)
    core = cluster.cores[behind].node
    assert core.commit_index == last
    ahead = Entry(last + 2, core.term, b"ahead")
    sent = AppendRequest(core.term, first, last + 1, core.term, (ahead,), last, 10**6)
    cluster.give(behind, ev.Received(sent))
    cluster.run_until(lambda: cluster.cores[first].node.log.base_index == last + 1)
    cluster.run_until(lambda: cluster.cores[other].node.log.base_index == last + 1)
    held = list(cluster.applied[other])

    cluster.crash(first, power=True)
    cluster.start(first)
    cluster.set_weather(delay_ms=(6, 8))
    cluster.run_until(lambda: any(c.is_leader for n, c in cluster.cores.items() if n != behind))
    sender = next(n for n, c in cluster.cores.items() if c.is_leader and n != behind)
    for one in (first, other):
        cluster.cut(sender, one)
    cluster.net.reset_between(sender, behind)
    cluster.run(20)
    cluster.net.cuts -= {(sender, behind), (behind, sender)}
    cluster.run_until(lambda: cluster.cores[behind].node.installing, 1_000)
    cluster.crash(sender)
    cluster.heal()
    return cluster, behind, disk, held


@pytest.mark.costly
def test_install_when_it_ends_late_then_no_applied_entry_is_taken_back() -> None:
    """A leader would give out epochs again that it had already given out (row C1)."""
    cluster, behind, disk, held = begin_an_install_on_a_node_that_can_win()
    before = len(cluster.applied[behind])
    for _ in range(20):
        cluster.run(100)
        cluster.propose(b"later")
        assert len(cluster.applied[behind]) >= before
        before = len(cluster.applied[behind])
    disk.gate.set()
    for _ in range(20):
        cluster.run(50)
        now = cluster.lives[behind].node
        assert len(cluster.applied[behind]) >= before, "\n".join(cluster.lines[-30:])
        assert now.core is not None
        assert now.applied_index == now.core.node.commit_index
        before = len(cluster.applied[behind])
    cluster.wait_leader()
    assert cluster.applied[behind][: len(held)] == held
