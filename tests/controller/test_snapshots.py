"""Snapshot files that are written at the same time: the newest one stays."""

from __future__ import annotations

import asyncio
import random

from rmqha.base.ids import Term
from rmqha.controller.aio.snapshots import Snapshots
from rmqha.controller.raft import wal_layout as layout
from rmqha.controller.raft.events import SnapshotMeta
from rmqha.sim.disk import SimDisk
from tests.controller.test_wal import STORE, simulate


class SlowDisk(SimDisk):
    """A disk on which one file is written only when the gate opens."""

    gate: asyncio.Event
    slow = ""

    async def write_atomic(self, path: str, data: bytes) -> None:
        """Wait, if it is that file, then write."""
        if path.endswith(self.slow):
            await self.gate.wait()
        await super().write_atomic(path, data)


def test_own_snapshot_when_a_newer_one_was_installed_meanwhile_then_that_one_stays() -> None:
    """The log begins behind the newer one: with the older the next start would find a gap."""

    async def story() -> None:
        disk = SlowDisk(random.Random(1))
        disk.gate, disk.slow = asyncio.Event(), "5.snapshot"
        snapshots = Snapshots(disk, STORE, cluster="group")
        await snapshots.open()
        own = asyncio.create_task(snapshots.save(5, Term(1), b"own"))
        await asyncio.sleep(0.1)
        sent = SnapshotMeta(10, Term(2), 4, layout.digest(b"sent"))
        snapshots.receive(0, b"sent")
        await snapshots.install(sent, lambda data: None)
        disk.gate.set()
        assert await own == sent
        assert (snapshots.meta, snapshots.data) == (sent, b"sent")
        assert [path for path in disk.files if path.endswith(".snapshot")] == [
            f"{STORE}/{10:020}.snapshot"
        ]
        again = Snapshots(disk, STORE, cluster="group")
        assert await again.open() == sent

    simulate(story())
