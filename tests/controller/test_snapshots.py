"""Snapshot files that are written at the same time: the newest one stays."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Generator

import pytest

from rmqha.base.errors import StoreCorrupted
from rmqha.base.ids import BrokerId, Term
from rmqha.controller.aio.snapshots import Snapshots
from rmqha.controller.metadata.packed import DIGESTS_A_PART
from rmqha.controller.metadata.snapshot import join_snapshot, reading, to_snapshot
from rmqha.controller.metadata.state import SETS_A_PART, BrokerSet, MetadataState, Replica
from rmqha.controller.raft import wal_layout as layout
from rmqha.controller.raft.events import SnapshotMeta
from rmqha.runtime.parts import at_once
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
        await snapshots.install(sent, lambda data: (_ for _ in ()))
        disk.gate.set()
        assert await own == sent
        assert (snapshots.meta, snapshots.data) == (sent, b"sent")
        assert [path for path in disk.files if path.endswith(".snapshot")] == [
            f"{STORE}/{10:020}.snapshot"
        ]
        again = Snapshots(disk, STORE, cluster="group")
        assert await again.open() == sent

    simulate(story())


def test_install_when_the_state_is_looked_at_then_in_parts_and_nothing_is_written_before_its_end() -> (
    None
):
    """One of 20,000 sets took the loop for as long as a leader's lease, and its group with it."""

    async def story() -> None:
        disk = SimDisk(random.Random(1))
        snapshots = Snapshots(disk, STORE, cluster="group")
        await snapshots.open()
        turns: list[str] = []

        def others() -> None:
            turns.append("others")

        def check(data: bytes) -> Generator[None, None, None]:
            for _ in range(3):
                asyncio.get_running_loop().call_soon(others)
                turns.append("part")
                yield
            raise StoreCorrupted("the last part")

        snapshots.receive(0, b"sent")
        with pytest.raises(StoreCorrupted, match="the last part"):
            await snapshots.install(SnapshotMeta(10, Term(2), 4, layout.digest(b"sent")), check)
        assert turns == ["part", "others"] * 3
        assert snapshots.meta == SnapshotMeta()
        assert not any(path.endswith(".snapshot") for path in disk.files)

    simulate(story())


def test_state_when_read_then_no_part_is_of_very_many_sets_and_all_are_there() -> None:
    """Sets are read first, then their digests are made."""
    sets = {
        name: BrokerSet("c", name, 1, (), {BrokerId(1): Replica(f"{name}:1", "code")})
        for name in (f"broker-{number:04}" for number in range(2 * SETS_A_PART + 1))
    }
    state = MetadataState(sets)
    data = to_snapshot(7, state)
    parts = len(list(reading(data)))
    index, found = at_once(reading(data))
    assert (index, found) == (7, state)
    assert found.packed.digest() == state.packed.digest()
    assert join_snapshot(7, found) == data
    assert parts == len(sets) // SETS_A_PART + len(sets) // DIGESTS_A_PART == 3
