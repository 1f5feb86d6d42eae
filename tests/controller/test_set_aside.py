"""A damaged store is set aside, and the machine dies amid that: the node votes at no start after it."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Generator

import pytest

from rmqha.base.errors import StoreCorrupted
from rmqha.controller.aio import raft_store
from rmqha.controller.aio.raft_store import SET_ASIDE, Opened, open_store
from rmqha.controller.aio.snapshots import Snapshots
from rmqha.controller.aio.wal import Wal
from rmqha.controller.metadata.snapshot import to_snapshot as state_bytes
from rmqha.controller.metadata.state import MetadataState
from rmqha.controller.offline import read_store
from rmqha.controller.raft import wal_layout as layout
from rmqha.controller.raft.events import HardState, SnapshotMeta, Standing
from rmqha.controller.raft.members import to_snapshot
from rmqha.sim.disk import SimDisk
from tests.controller.test_wal import STORE, simulate

MEMBERS = ("n0", "n1", "n2")
VOTER = Standing("voter", "s-n0", tuple((one, f"s-{one}") for one in MEMBERS))
FIRST, LAST = f"{1:020d}.wal", f"{12:020d}.wal"


class Died(Exception):
    """The machine."""


class MortalDisk(SimDisk):
    """Dies at its n-th change of the directory.

    Attributes:
        lives: so many changes are left; None for any number.
    """

    lives: int | None = None

    async def _spend(self, change: Awaitable[None]) -> None:
        if self.lives == 0:
            change.close()  # type: ignore[attr-defined]
            raise Died
        if self.lives is not None:
            self.lives -= 1
        await change

    async def rename(self, path: str, new_path: str) -> None:
        """Unless it dies."""
        await self._spend(super().rename(path, new_path))

    async def remove(self, path: str) -> None:
        """Unless it dies."""
        await self._spend(super().remove(path))

    async def write_atomic(self, path: str, data: bytes) -> None:
        """Unless it dies."""
        await self._spend(super().write_atomic(path, data))


def segments(*, damaged: bool) -> dict[str, bytes]:
    """Ten entries, and a segment that was begun just now."""

    def opening(term: int) -> layout.Record:
        return layout.open_record("g", "n0", HardState(term, None, VOTER))

    frames = [layout.encode_frame(layout.WAL_MAGIC, 1, layout.encode_records([opening(1)]))]
    frames += [
        layout.encode_frame(
            layout.WAL_MAGIC, 1 + one, layout.encode_records([(layout.ENTRY, one, 1, b"")])
        )
        for one in range(1, 11)
    ]
    first = bytearray(b"".join(frames))
    if damaged:
        first[len(frames[0]) + len(frames[1]) + layout.HEADER.size + 1] ^= 1
    last = layout.encode_frame(layout.WAL_MAGIC, 12, layout.encode_records([opening(3)]))
    return {FIRST: bytes(first), LAST: last}


def whole(_: bytes) -> Generator[None, None, None]:
    """Any state is one."""
    yield


async def opened(disk: SimDisk) -> Opened:
    """As a start does it."""
    wal = Wal(
        disk, STORE, cluster="g", node="n0", segment_bytes=1 << 16, on_durable=lambda _: None,
        on_failed=lambda _: None,
    )  # fmt: skip
    found = await open_store(
        disk, STORE, wal, Snapshots(disk, STORE, cluster="g"), members=MEMBERS, node_id="n0",
        new_store_id="new", check_snapshot=whole,
    )  # fmt: skip
    await wal.close()
    return found


def names(disk: SimDisk) -> set[str]:
    """What the store's folder has."""
    return {path.rpartition("/")[2] for path in disk.files if path.startswith(STORE)}


def dies_and_starts(
    files: dict[str, bytes], lives: int, check: Callable[[MortalDisk, Opened], None]
) -> bool:
    """Die at the n-th change, and start again; whether it died."""
    died = False

    async def story() -> None:
        nonlocal died
        disk = MortalDisk(random.Random(1))
        for name, data in files.items():
            await disk.write_atomic(f"{STORE}/{name}", data)
        disk.lives = lives
        try:
            found = await opened(disk)
        except Died:
            died = True
            disk.lives = None
            found = await opened(disk)
        check(disk, found)

    simulate(story())
    return died


@pytest.mark.parametrize("snapshot", [False, True], ids=["log alone", "behind a snapshot"])
def test_store_when_its_machine_dies_while_it_is_set_aside_then_its_node_recovers(
    *, snapshot: bool
) -> None:
    """Half of it looked whole: a voter in term 3 with no entry, which had forgotten ten."""
    files = segments(damaged=True)
    if snapshot:
        data = to_snapshot(None, state_bytes(4, MetadataState()))
        encoder = layout.SnapshotEncoder("g", 4, 1, data)
        assert list(encoder.slices()) == []
        files[f"{4:020d}.snapshot"] = encoder.content()

    def check(disk: MortalDisk, found: Opened) -> None:
        assert found.content.hard_state.standing == Standing("recovering", "new")
        assert (found.content.entries, found.snapshot) == ([], SnapshotMeta())
        assert FIRST in found.damage
        # What was there is kept, for whoever has to bring back a majority.
        assert names(disk) >= {name + SET_ASIDE for name in files}
        kept = disk.survivors()
        assert {name: kept[f"{STORE}/{name}{SET_ASIDE}"] for name in files} == files
        assert layout.ASIDE_MARK not in names(disk)

    lives = 0
    while dies_and_starts(files, lives, check):
        lives += 1
    assert lives == 2 + len(files), "the mark, a rename each, and the mark's end"


def test_store_when_it_is_half_set_aside_then_no_tool_takes_it_for_whole() -> None:
    """A rescue would go on from what is left of it."""
    files = segments(damaged=False)
    assert read_store(files).last_index == 10
    with pytest.raises(StoreCorrupted, match="half set aside, for it is damaged: a flipped bit"):
        read_store({LAST: files[LAST], layout.ASIDE_MARK: b"a flipped bit"})


def test_log_when_its_first_segments_are_missing_then_it_is_damaged() -> None:
    """Its opening record says which term and that it may vote, and nothing of what it has lost."""

    def check(_: MortalDisk, found: Opened) -> None:
        assert found.content.hard_state.standing.kind == "recovering"
        assert LAST in found.damage

    assert not dies_and_starts({LAST: segments(damaged=False)[LAST]}, 99, check)


def test_files_set_aside_before_when_a_store_is_damaged_again_then_only_the_new_ones_stay() -> None:
    """Stores are as large as they are, and nobody counts the copies."""
    older = f"{7:020d}.wal{SET_ASIDE}"

    def check(disk: MortalDisk, found: Opened) -> None:
        assert found.damage
        assert names(disk) == {FIRST, FIRST + SET_ASIDE, LAST + SET_ASIDE}

    assert not dies_and_starts(segments(damaged=True) | {older: b"old"}, 99, check)


def test_mark_when_it_cannot_be_read_then_that_it_is_there_says_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The node refused at every start; what is left of its log may be whole, and is not taken for that."""

    async def damaged(disk: SimDisk, path: str) -> bytes:
        raise StoreCorrupted(f"{path} cannot be read")

    monkeypatch.setattr(raft_store, "read_durable", damaged)

    def check(disk: MortalDisk, found: Opened) -> None:
        assert found.content.hard_state.standing == Standing("recovering", "new")
        assert "cannot be read" in found.damage
        assert names(disk) >= {FIRST + SET_ASIDE, LAST + SET_ASIDE}

    assert not dies_and_starts(segments(damaged=False) | {layout.ASIDE_MARK: b"x"}, 99, check)
