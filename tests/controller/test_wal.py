"""The write-ahead log and snapshots: what a crash may take, and what is refused."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.base.errors import DiskFailed, DiskFull, StoreCorrupted, StoreMismatch
from rmqha.controller.aio.snapshots import Snapshots
from rmqha.controller.aio.wal import Wal, WalContent
from rmqha.controller.raft import wal_layout as layout
from rmqha.controller.raft.events import HardState, Persist, SnapshotMeta
from rmqha.controller.raft.messages import Entry
from rmqha.runtime.aio.disk import SystemDisk
from rmqha.runtime.ports import Disk
from rmqha.sim.disk import SimDisk
from rmqha.sim.loop import SimLoop

STORE = "/store"


def simulate(work: Coroutine[Any, Any, Any]) -> Any:
    loop = SimLoop()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


class Bench:
    """A log on a disk, with what it has reported."""

    def __init__(self, disk: Disk, directory: str = STORE, *, segment_bytes: int = 1 << 20) -> None:
        self.durable = 0
        self.failed: list[DiskFailed] = []
        self.refused = 0
        self.changed = asyncio.Event()
        self.wal = Wal(
            disk,
            directory,
            cluster="group",
            node="n0",
            segment_bytes=segment_bytes,
            on_durable=self.on_durable,
            on_failed=self.on_failed,
            on_full=self.on_full,
        )

    def on_durable(self, seq: int) -> None:
        self.durable = seq
        self.changed.set()

    def on_failed(self, error: DiskFailed) -> None:
        self.failed.append(error)
        self.changed.set()

    def on_full(self, error: DiskFull) -> None:
        self.refused += 1
        self.changed.set()

    async def wait_durable(self, seq: int) -> None:
        while self.durable < seq and not self.failed:
            await self.changed.wait()
            self.changed.clear()


def entries(first: int, last: int, term: int = 1) -> tuple[Entry, ...]:
    return tuple(Entry(i, term, b"data-%d" % i) for i in range(first, last + 1))


async def write(disk: Disk, *persists: Persist, segment_bytes: int = 1 << 20) -> None:
    bench = Bench(disk, segment_bytes=segment_bytes)
    await bench.wal.open(SnapshotMeta())
    for persist in persists:
        bench.wal.append(persist)
        await bench.wait_durable(persist.seq)
    await bench.wal.close()


async def reopen(disk: Disk, snapshot: SnapshotMeta = SnapshotMeta()) -> WalContent:  # noqa: B008
    bench = Bench(disk)
    content = await bench.wal.open(snapshot)
    await bench.wal.close()
    return content


def test_what_was_durable_comes_back() -> None:
    """Term, vote and entries, and an overwritten suffix is gone."""
    disk = SimDisk(random.Random(1))

    async def story() -> WalContent:
        await write(
            disk,
            Persist(1, HardState(1, "n0"), entries(1, 5)),
            Persist(2, HardState(2, None), ()),
            Persist(3, None, entries(4, 6, term=2)),
        )
        return await reopen(disk)

    content = simulate(story())
    assert content.hard_state == HardState(2, None)
    assert content.entries == [*entries(1, 3), *entries(4, 6, term=2)]
    assert not content.torn_bytes_cut


def test_it_works_on_the_real_disk(tmp_path: Any) -> None:
    """The same code on real files, with segments and reopening."""

    async def story() -> WalContent:
        disk = SystemDisk()
        for start in (1, 11, 21):
            bench = Bench(disk, str(tmp_path), segment_bytes=200)
            await bench.wal.open(SnapshotMeta())
            for seq, index in enumerate(range(start, start + 10), 1):
                bench.wal.append(Persist(seq, HardState(index, None), entries(index, index)))
                await bench.wait_durable(seq)
            await bench.wal.close()
        bench = Bench(disk, str(tmp_path))
        content = await bench.wal.open(SnapshotMeta())
        assert await bench.wal.compact(15) > 2
        await bench.wal.close()
        return content

    content = asyncio.run(story())
    assert content.entries == list(entries(1, 30))
    assert content.hard_state == HardState(30, None)
    assert len(list(tmp_path.glob("*.wal"))) > 3


def test_zeros_written_ahead_are_no_damage(tmp_path: Any) -> None:
    """A killed process leaves them behind its last frame; the next one cuts them and goes on."""

    async def story() -> tuple[list[int], WalContent]:
        disk = SystemDisk()
        lengths = []
        for index in range(1, 4):
            bench = Bench(disk, str(tmp_path), segment_bytes=1 << 16)
            content = await bench.wal.open(SnapshotMeta())
            assert content.entries == list(entries(1, index - 1))
            assert not content.torn_bytes_cut
            bench.wal.append(Persist(1, None, entries(index, index)))
            await bench.wait_durable(1)
            # Not closed: as after kill -9.
            (file,) = tmp_path.glob("*.wal")
            lengths.append(file.stat().st_size)
        bench = Bench(disk, str(tmp_path))
        content = await bench.wal.open(SnapshotMeta())
        await bench.wal.close()
        lengths.append(file.stat().st_size)
        return lengths, content

    lengths, content = asyncio.run(story())
    assert content.entries == list(entries(1, 3))
    assert lengths[:3] == [1 << 16] * 3
    assert lengths[3] < 1000


def test_a_missing_frame_before_the_zeros_of_an_older_segment_is_refused() -> None:
    """Zeros may be behind the last frame; where a frame was, the next one's number tells."""
    disk = SimDisk(random.Random(1))
    persists = [Persist(i, None, entries(i, i)) for i in range(1, 12)]
    simulate(write(disk, *persists, segment_bytes=300))
    first = disk.files[sorted(disk.files)[0]]
    whole = first.durable
    first.durable = whole + bytes(64)
    assert simulate(reopen(disk)).entries == list(entries(1, 11))
    last_frame = whole.rindex(layout.WAL_MAGIC)
    first.durable = whole[:last_frame] + bytes(len(whole) - last_frame + 64)
    with pytest.raises(StoreCorrupted, match="is missing"):
        simulate(reopen(disk))


@pytest.mark.costly
@given(st.integers(0, 10_000), st.integers(1, 6))
@settings(max_examples=60)
def test_a_power_cut_takes_nothing_durable(seed: int, batches: int) -> None:
    """Whatever part of the last write survives, everything acknowledged is there."""
    disk = SimDisk(random.Random(seed))

    async def story() -> tuple[int, WalContent]:
        bench = Bench(disk, segment_bytes=300)
        await bench.wal.open(SnapshotMeta())
        for seq in range(1, batches + 1):
            bench.wal.append(Persist(seq, HardState(seq, "n1"), entries(seq * 3 - 2, seq * 3)))
            if seq < batches:
                await bench.wait_durable(seq)
        while not any(file.cached for file in disk.files.values()) and bench.durable < batches:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.0001)
        durable = bench.durable
        disk.power_cut()
        for task in asyncio.all_tasks():
            if task.get_name() in {"append", "new segment"}:
                task.cancel()
        content = await reopen(disk)
        again = await reopen(disk)
        assert (again.entries, again.hard_state) == (content.entries, content.hard_state)
        return durable, content

    durable, content = simulate(story())
    assert content.hard_state.term >= durable
    assert content.entries[: durable * 3] == list(entries(1, durable * 3))


def flip(disk: SimDisk, name: str, position: int) -> None:
    file = disk.files[f"{STORE}/{name}"]
    data = bytearray(file.durable)
    data[position] ^= 0x40
    file.durable = bytes(data)


def test_a_damaged_middle_is_refused_and_nothing_is_changed() -> None:
    """Cutting there would drop acknowledged entries without a word."""
    disk = SimDisk(random.Random(1))
    simulate(write(disk, *(Persist(i, None, entries(i, i)) for i in range(1, 6))))
    (name,) = [path.rpartition("/")[2] for path in disk.files]
    length = len(disk.files[f"{STORE}/{name}"].durable)
    refused = 0
    for position in range(0, length - 60, 7):
        flip(disk, name, position)
        before = disk.files[f"{STORE}/{name}"].durable
        try:
            content = simulate(reopen(disk))
        except StoreCorrupted:
            refused += 1
        else:
            # Only padding may change without being noticed.
            assert content.entries == list(entries(1, 5))
        assert disk.files[f"{STORE}/{name}"].durable == before
        flip(disk, name, position)
    assert refused > 20
    assert simulate(reopen(disk)).entries == list(entries(1, 5))


def test_a_missing_segment_is_refused() -> None:
    """A deleted file in the middle is damage too."""
    disk = SimDisk(random.Random(1))
    persists = [Persist(i, None, entries(i, i)) for i in range(1, 30)]
    simulate(write(disk, *persists, segment_bytes=200))
    names = sorted(path for path in disk.files)
    del disk.files[names[2]]
    with pytest.raises(StoreCorrupted, match="is missing"):
        simulate(reopen(disk))


def test_another_nodes_store_is_refused() -> None:
    """A directory mounted at the wrong node would vote with another's memory."""
    disk = SimDisk(random.Random(1))
    simulate(write(disk, Persist(1, None, entries(1, 1))))
    bench = Bench(disk)
    bench.wal._node = "n1"
    with pytest.raises(StoreMismatch, match="node n0 of group group, this is node n1"):
        simulate(bench.wal.open(SnapshotMeta()))


def test_a_newer_format_is_refused() -> None:
    """A downgrade must not misread what it does not know."""
    disk = SimDisk(random.Random(1))
    simulate(write(disk, Persist(1, None, entries(1, 1))))
    path = next(iter(disk.files))
    frame = layout.encode_frame(
        layout.WAL_MAGIC,
        1,
        layout.encode_records([(layout.OPEN, layout.FORMAT + 1, "group", "n0", 0, None)]),
    )
    disk.files[path].durable = frame
    with pytest.raises(StoreMismatch, match="format 3; this release reads up to 2"):
        simulate(reopen(disk))


def test_a_failed_write_is_reported_once_and_ends_the_log() -> None:
    """After a failed fsync nobody knows what the disk holds."""
    disk = SimDisk(random.Random(1))

    async def story() -> Bench:
        bench = Bench(disk)
        await bench.wal.open(SnapshotMeta())
        bench.wal.append(Persist(1, None, entries(1, 1)))
        await bench.wait_durable(1)
        disk.mood.failing = True
        bench.wal.append(Persist(2, None, entries(2, 2)))
        await bench.wait_durable(2)
        return bench

    bench = simulate(story())
    assert bench.durable == 1
    assert len(bench.failed) == 1


def test_many_waiting_persists_share_one_sync() -> None:
    """Group commit: what arrives during a sync goes out with the next one."""
    disk = SimDisk(random.Random(1))

    async def story() -> Bench:
        bench = Bench(disk)
        await bench.wal.open(SnapshotMeta())
        for seq in range(1, 101):
            bench.wal.append(Persist(seq, None, entries(seq, seq)))
        await bench.wait_durable(100)
        await bench.wal.close()
        return bench

    bench = simulate(story())
    assert bench.wal.frames_written <= 3
    assert simulate(reopen(disk)).entries == list(entries(1, 100))


def test_the_log_restarts_behind_an_installed_snapshot() -> None:
    """Entries that conflict with the snapshot must not come back after a restart."""
    disk = SimDisk(random.Random(1))

    async def story() -> WalContent:
        bench = Bench(disk)
        await bench.wal.open(SnapshotMeta())
        bench.wal.append(Persist(1, None, entries(1, 8, term=1)))
        await bench.wal.reset(5, 3)
        bench.wal.append(Persist(2, None, entries(6, 7, term=3)))
        await bench.wait_durable(2)
        await bench.wal.close()
        return await reopen(disk, SnapshotMeta(5, 3, 10))

    content = simulate(story())
    assert (content.base_index, content.base_term) == (5, 3)
    assert content.entries == list(entries(6, 7, term=3))


def test_a_snapshot_that_reached_the_disk_before_the_log_wins() -> None:
    """A crash between the two writes leaves a log that conflicts: it is dropped."""
    disk = SimDisk(random.Random(1))

    async def story() -> tuple[WalContent, WalContent]:
        await write(disk, Persist(1, None, entries(1, 8, term=1)))
        first = await reopen(disk, SnapshotMeta(5, 3, 10))
        return first, await reopen(disk, SnapshotMeta(5, 3, 10))

    for content in simulate(story()):
        assert (content.base_index, content.base_term, content.entries) == (5, 3, [])


@pytest.mark.parametrize("held", [3, 8], ids=["it ends before", "it differs"])
def test_log_when_the_snapshot_reached_the_disk_before_it_then_what_follows_is_kept(
    held: int,
) -> None:
    """Entries behind the snapshot would be dropped at the next start, or the store set aside."""
    disk = SimDisk(random.Random(1))
    snapshot = SnapshotMeta(5, 3, 10)

    async def story() -> WalContent:
        await write(disk, Persist(1, HardState(3, None), entries(1, held, term=1)))
        bench = Bench(disk)
        content = await bench.wal.open(snapshot)
        assert (content.base_index, content.base_term, content.entries) == (5, 3, [])
        bench.wal.append(Persist(1, None, entries(6, 7, term=3)))
        await bench.wait_durable(1)
        disk.power_cut()
        return await reopen(disk, snapshot)

    content = simulate(story())
    assert (content.base_index, content.base_term) == (5, 3)
    assert content.entries == list(entries(6, 7, term=3))
    assert content.hard_state == HardState(3, None)


def test_a_gap_between_snapshot_and_log_is_refused() -> None:
    """The snapshot file was deleted or is too old: the state cannot be rebuilt."""
    disk = SimDisk(random.Random(1))
    simulate(write(disk, Persist(1, None, entries(10, 12))))
    with pytest.raises(StoreCorrupted, match="starts at entry 10, but the snapshot ends at 4"):
        simulate(reopen(disk, SnapshotMeta(4, 1, 10)))


@pytest.mark.parametrize("size", [0, 1, 255, 256, 65_535, 65_536, (1 << 20) + 1, 3 << 20])
def test_snapshot_when_encoded_in_slices_then_the_bytes_of_one_frame(size: int) -> None:
    """Nodes of before could not read another file, and a leader's digest is that of the data."""
    data = random.Random(size).randbytes(size)
    encoder = layout.SnapshotEncoder("group", 1 << 40, 3, data)
    pauses = len(list(encoder.slices()))
    assert pauses == max(0, -(-size // layout.SLICE_BYTES) - 1)
    payload = msgpack.packb((1, "group", 1 << 40, 3, data), use_bin_type=True)
    assert encoder.content() == layout.encode_frame(layout.SNAPSHOT_MAGIC, 1 << 40, payload)
    assert encoder.digest == layout.digest(data)
    assert layout.decode_snapshot("x", encoder.content(), "group") == (1 << 40, 3, data)


class NotingDisk(SimDisk):
    """Tells when a file is to be written."""

    writing = False

    async def write_atomic(self, path: str, data: bytes) -> None:
        self.writing = True
        await super().write_atomic(path, data)


def test_snapshot_when_saved_then_others_get_turns_between_its_slices() -> None:
    """Checksums of a large state would keep heartbeats waiting."""
    disk = NotingDisk(random.Random(1))
    data = bytes(8 * layout.SLICE_BYTES)

    async def save() -> tuple[SnapshotMeta, int]:
        snapshots = Snapshots(disk, STORE, cluster="group")
        await snapshots.open()
        saving = asyncio.ensure_future(snapshots.save(5, 1, data))
        turns = 0
        while not disk.writing:
            turns += 1
            await asyncio.sleep(0)
        return await saving, turns

    meta, turns = simulate(save())
    assert meta == SnapshotMeta(5, 1, len(data), layout.digest(data))
    assert turns == 8


def test_a_damaged_snapshot_is_refused() -> None:
    """It is the only copy of everything before it."""
    disk = SimDisk(random.Random(1))

    async def save() -> None:
        snapshots = Snapshots(disk, STORE, cluster="group")
        await snapshots.open()
        await snapshots.save(7, 2, b"state")

    async def load(cluster: str) -> SnapshotMeta:
        return await Snapshots(disk, STORE, cluster=cluster).open()

    simulate(save())
    assert simulate(load("group")) == SnapshotMeta(7, 2, 5, layout.digest(b"state"))
    with pytest.raises(StoreMismatch, match="belongs to group group, this is group other"):
        simulate(load("other"))
    flip(disk, f"{7:020d}.snapshot", 30)
    with pytest.raises(StoreCorrupted, match="damaged"):
        simulate(load("group"))


@pytest.mark.parametrize(
    "payload", [7, [], "text", {}, [1, "group", 5, 1], [1, "group", "5", 1, b""], [None] * 5]
)
def test_a_snapshot_of_another_program_is_refused(payload: object) -> None:
    """Its checksum is right, its content is not ours."""
    content = layout.encode_frame(layout.SNAPSHOT_MAGIC, 5, msgpack.packb(payload))
    with pytest.raises(StoreCorrupted, match=r"5\.snapshot"):
        layout.decode_snapshot("5.snapshot", content, "group")


@pytest.mark.costly
@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 900))
@settings(max_examples=80)
def test_a_flipped_bit_anywhere_is_seen_and_never_cut_in_silence(
    seed: int, batches: int, size: int
) -> None:
    """Others may have been told of the last frame, too: cutting it would lose what counted (C2)."""
    disk = SimDisk(random.Random(seed))
    persists = [
        Persist(seq, None, (Entry(seq, 1, random.Random(seed + seq).randbytes(size)),))
        for seq in range(1, batches + 1)
    ]
    simulate(write(disk, *persists))
    (path,) = disk.files
    whole = disk.files[path].durable
    rng = random.Random(seed)
    for _ in range(8):
        position = rng.randrange(len(whole))
        content = bytearray(whole)
        content[position] ^= 1 << rng.randrange(8)
        disk.files[path].durable = bytes(content)
        try:
            found = simulate(reopen(disk))
        except StoreCorrupted:
            assert disk.files[path].durable == bytes(content)
        else:
            # Only what is outside of headers and payloads may change without being noticed.
            assert [one.data for one in found.entries] == [p.entries[0].data for p in persists]


@pytest.mark.costly
@given(st.integers(0, 10_000), st.integers(1, 6000))
@settings(max_examples=60)
def test_a_frame_that_power_cut_short_is_always_cut(seed: int, size: int) -> None:
    """A node that took a torn frame for damage would stop voting after each power cut."""
    rng = random.Random(seed)
    disk = SimDisk(random.Random(seed))
    simulate(write(disk, Persist(1, None, entries(1, rng.randint(1, 40)))))
    (path,) = disk.files
    whole = disk.files[path].durable
    frame = layout.encode_frame(
        layout.WAL_MAGIC, 3, layout.encode_records([(layout.ENTRY, 41, 1, rng.randbytes(size))])
    )
    sectors = range(len(whole) // 512, -(-(len(whole) + len(frame)) // 512))
    written = bytearray(whole + frame)
    lost = [one for one in sectors if rng.random() < 0.5] or [rng.choice(sectors)]
    for sector in lost:
        low, high = max(len(whole), sector * 512), min(len(written), (sector + 1) * 512)
        written[low:high] = bytes(max(0, high - low))
    disk.files[path].durable = bytes(written) + bytes(rng.choice((0, 700)))
    found = simulate(reopen(disk))
    assert found.entries[-1].log_index in (41, len(found.entries))
    assert disk.files[path].durable.startswith(whole)


def test_a_damaged_last_frame_is_cut_when_the_operator_says_so() -> None:
    """The last resort where no other node can catch this one up."""
    disk = SimDisk(random.Random(1))
    simulate(write(disk, *(Persist(i, None, entries(i, i)) for i in range(1, 4))))
    (path,) = disk.files
    flip(disk, path.rpartition("/")[2], disk.files[path].durable.rindex(layout.WAL_MAGIC) + 40)
    with pytest.raises(StoreCorrupted, match="the last frame is damaged, not torn"):
        simulate(reopen(disk))

    async def forgive() -> WalContent:
        bench = Bench(disk)
        bench.wal._forgiving = True
        content = await bench.wal.open(SnapshotMeta())
        await bench.wal.close()
        return content

    assert simulate(forgive()).entries == list(entries(1, 2))


def test_a_frame_of_a_killed_process_is_durable_once_it_counts() -> None:
    """It was written and not synced; the next life answers for it, and may begin a new segment."""
    disk = SimDisk(random.Random(1))

    async def story() -> WalContent:
        first = Bench(disk, segment_bytes=100)
        await first.wal.open(SnapshotMeta())
        first.wal.append(Persist(1, None, entries(1, 2)))
        while not any(file.cached for file in disk.files.values()):  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.0001)
        for task in asyncio.all_tasks():
            if task.get_name() == "append":
                task.cancel()  # kill -9 before the sync: the page cache keeps what was written
        second = Bench(disk, segment_bytes=100)
        found = await second.wal.open(SnapshotMeta())
        assert found.entries == list(entries(1, 2))
        second.wal.append(Persist(1, None, entries(3, 3)))
        await second.wait_durable(1)
        disk.power_cut()
        return await reopen(disk)

    assert simulate(story()).entries == list(entries(1, 3))


def test_compactions_that_overlap_delete_each_segment_once_and_in_order() -> None:
    """Two at a time took a segment too many out of the list, and its file stayed: a hole in the log."""
    disk = SimDisk(random.Random(1))

    async def story() -> WalContent:
        bench = Bench(disk, segment_bytes=200)
        await bench.wal.open(SnapshotMeta())
        for index in range(1, 30):
            bench.wal.append(Persist(index, None, entries(index, index)))
            await bench.wait_durable(index)
        await asyncio.gather(bench.wal.compact(8), bench.wal.compact(20), bench.wal.compact(14))
        listed = [f"{STORE}/{segment.name}" for segment in bench.wal._segments]
        assert listed == sorted(disk.files)
        await bench.wal.close()
        return await reopen(disk, SnapshotMeta(20, 1, 1))

    content = simulate(story())
    assert content.entries[-1].log_index == 29
    assert content.base_index <= 20


def test_a_frame_without_its_padding_is_torn() -> None:
    """Taken for whole, what is appended behind it stands where no frame can begin."""
    disk = SimDisk(random.Random(1))
    simulate(write(disk, *(Persist(i, None, entries(i, i)) for i in range(1, 4))))
    (path,) = disk.files
    whole = disk.files[path].durable
    assert whole.endswith(bytes(3))
    disk.files[path].durable = whole[:-3]

    async def story() -> WalContent:
        bench = Bench(disk)
        content = await bench.wal.open(SnapshotMeta())
        assert content.torn_bytes_cut
        assert content.entries == list(entries(1, 2))
        bench.wal.append(Persist(1, None, entries(3, 4)))
        await bench.wait_durable(1)
        await bench.wal.close()
        return await reopen(disk)

    assert simulate(story()).entries == list(entries(1, 4))


@pytest.mark.parametrize("segment_bytes", [0, 64])
def test_log_when_a_segment_is_smaller_than_its_opening_frame_then_it_still_takes_entries(
    segment_bytes: int,
) -> None:
    """A new segment was as full as the one before it: files without end, and nothing was durable."""
    disk = SimDisk(random.Random(1))

    async def story() -> WalContent:
        bench = Bench(disk, segment_bytes=segment_bytes)
        await bench.wal.open(SnapshotMeta())
        for seq in (1, 2, 3):
            bench.wal.append(Persist(seq, None, entries(seq, seq)))
            async with asyncio.timeout(1):
                await bench.wait_durable(seq)
        await bench.wal.close()
        assert len(await disk.list_dir(STORE)) == 3
        return await reopen(disk)

    assert simulate(story()).entries == [*entries(1, 3)]
