"""Stories of logs as users have them: offsets beyond 2 and 4 GiB, and files of 1 GiB."""

from __future__ import annotations

import asyncio
import random
import resource
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from rmqha.base.errors import RmqhaError
from rmqha.ha.aio import client
from rmqha.sim.disk import SimDisk
from rmqha.sim.huge_pages import HUGE_BYTES, HugePages
from rmqha.sim.pages import PAGE, Outcome, SimPages
from rmqha.sim.replica_options import LOG_SHAPES, LogShape, ReplicaOptions, log_of
from rmqha.sim.replica_swarm import run_replica_seed
from rmqha.store.aio.queue_files import QueueFiles
from rmqha.store.consume_queue import UNIT
from rmqha.store.scan import QueueRun

SEEDS = 1, 10, 12
"""The second and the third cut logs."""
PASSED_2, PASSED_4, FILES_OF_USERS = LOG_SHAPES
Patch = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "counted"),
    [
        (PASSED_2, ["log passed 2 GiB"]), (PASSED_4, ["log passed 4 GiB"]),
        (FILES_OF_USERS, ["log in files of 1 GiB", "log cut in a file of 1 GiB"]),
    ],
)  # fmt: skip
def test_faults_when_the_log_is_far_from_its_begin_then_nothing_is_lost(
    shape: LogShape, counted: list[str]
) -> None:
    """Small logs near 0 never show what 32 bits cannot hold; a story that passes nothing counts nothing."""
    found: Counter[str] = Counter()
    for seed in SEEDS:
        kind = ReplicaOptions(sync_flush=seed % 2 == 0, log=shape)
        found.update(run_replica_seed(seed, kind).counts)
    assert [what for what in counted if not found[what]] == []
    # Files of 1 GiB for three replicas take memory for what is in them.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 3 << 20


def test_seeds_when_they_follow_each_other_then_each_kind_of_log_is_among_them() -> None:
    """The swarm plays them all, and mostly the small ones."""
    drawn = [log_of(seed) for seed in range(1, 17)]
    assert [drawn.count(shape) for shape in LOG_SHAPES] == [2, 2, 2]
    assert drawn.count(LogShape()) == 10


@pytest.mark.sim
@pytest.mark.slow
def test_slave_when_power_fails_right_after_it_copied_the_tables_then_it_has_them() -> None:
    """It joined the set while they were in memory only, and was elected without them."""
    run_replica_seed(111, log=LogShape(begin=3 << 30))


def acknowledged_in_32_bits(patch: pytest.MonkeyPatch) -> None:
    """What a slave acknowledges wraps around at 4 GiB."""
    encode = client.encode_ack
    patch.setattr(client, "encode_ack", lambda offset: encode(offset & 0xFFFFFFFF))


def places_in_31_bits(patch: pytest.MonkeyPatch) -> None:
    """Where a queue's messages are wraps around at 2 GiB."""
    put = QueueFiles.put_run

    def short(self: QueueFiles, lane: QueueRun) -> None:
        units = UNIT.iter_unpack(b"".join(lane.units))
        lane.units = [UNIT.pack(place & 0x7FFFFFFF, size, tags) for place, size, tags in units]
        put(self, lane)

    patch.setattr(QueueFiles, "put_run", short)


def failures(shape: LogShape, seeds: Sequence[int]) -> list[str]:
    """What went wrong."""
    found = []
    for seed in seeds:
        try:
            run_replica_seed(seed, ReplicaOptions(log=shape))
        except RmqhaError as error:
            found.append(str(error))
    return found


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.turns(3)
@pytest.mark.parametrize(
    ("mutant", "shape"),
    [
        (acknowledged_in_32_bits, PASSED_4), (places_in_31_bits, PASSED_2),
        (places_in_31_bits, FILES_OF_USERS),
    ],
)  # fmt: skip
def test_a_number_that_is_too_short_when_the_log_is_far_then_it_is_found_and_else_not(
    mutant: Patch, shape: LogShape, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only such logs show it: the same seeds with small ones find nothing."""
    mutant(monkeypatch)
    assert failures(LogShape(), [1, 2]) == []
    assert failures(shape, [1, 2])


# -- files


@pytest.mark.slow
def test_huge_file_when_it_is_written_and_cut_off_then_it_is_as_a_small_one() -> None:
    """Page by page it keeps what was synced, and of the rest what chance leaves."""
    for seed in range(20):
        huge, small = HugePages(HUGE_BYTES), SimPages(HUGE_BYTES)
        for pages in (huge, small):
            pages.cached[5 : 5 + 3] = b"one"
            pages.cached[9 * PAGE : 9 * PAGE + 3] = b"two"
            pages.snapshot()()
            pages.entry_durable = True
            pages.cached[9 * PAGE : 9 * PAGE + 3] = b"\0\0\0"
            pages.cached[11 * PAGE - 1 : 11 * PAGE + 3] = b"four"
        before = memoryview(huge.cached)
        assert huge.power_cut(outcome(seed)) is small.power_cut(outcome(seed)) is True
        assert huge.content == small.content
        before[5:8] = b"old"  # a dead process writes into nothing
        assert huge.content == small.content
        huge.cached[0:1] = b"x"
        huge.power_cut(outcome(seed))
        assert bytes(huge.cached[5:8]) == b"one"
        before.release()


def outcome(seed: int) -> Outcome:
    """What a power cut leaves, by chance."""
    return Outcome(random.Random(seed), random.Random(-seed))


def test_huge_file_when_its_name_alone_was_durable_then_it_is_gone_or_empty_or_whole() -> None:
    """The same three ends as a small one has."""
    ends = set()
    for seed in range(60):
        pages = HugePages(HUGE_BYTES)
        if not pages.power_cut(outcome(seed)):
            ends.add("gone")
        else:
            ends.add(len(pages.cached))
    assert ends == {"gone", 0, HUGE_BYTES}


def test_huge_file_when_erased_then_only_what_was_written_is_looked_at() -> None:
    """A gigabyte of zeros would be read, and take its place in memory."""

    async def play() -> tuple[int, bytes]:
        disk = SimDisk(random.Random(1))
        disk.place("/a", 1 << 30, b"head")
        file = disk.map_file("/a", 1 << 30, create=False)
        file.buffer[8 << 20 : (8 << 20) + 4] = b"tail"
        erased = await file.erase(PAGE, 1 << 30)
        assert await disk.file_size("/a") == 1 << 30
        return erased, bytes(file.buffer[:4]) + bytes(file.buffer[8 << 20 : (8 << 20) + 4])

    assert asyncio.run(play()) == (PAGE, b"head\0\0\0\0")
