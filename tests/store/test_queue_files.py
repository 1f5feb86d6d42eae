"""Which unit of a consume queue is the first that still has its record, whatever happened before."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rmqha.runtime.aio.disk import SystemDisk
from rmqha.store.aio.queue_files import QueueFiles
from rmqha.store.consume_queue import UNIT

UNITS_A_FILE = 4
SIZE = 10
STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "put", "put", "log", "cut", "expire", "skip"]), st.integers(0, 9)),
    max_size=40,
)  # fmt: skip


@pytest.mark.costly
@settings(max_examples=150, deadline=None)
@given(steps=STEPS)
@example(  # a file's last record is the first that is left
    steps=[*[("put", 0)] * 5, ("log", 3), ("expire", 0)]
)
@example(  # a file ends with fillers, behind a record that is left
    steps=[("skip", 0), ("put", 0), ("skip", 9), ("put", 0), ("log", 1), ("expire", 0)]
)
def test_first_live_unit_when_the_log_loses_its_ends_then_as_counted_one_by_one(
    steps: list[tuple[str, int]],
) -> None:
    """It is remembered from one read to the next: a cut, or files that go, must end that."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_play(Path(folder), steps))


async def _play(folder: Path, steps: list[tuple[str, int]]) -> None:
    queue = QueueFiles(SystemDisk(), str(folder), UNITS_A_FILE * UNIT.size, batch=False)
    # Physical offset by queue offset, where the log's records begin, and where the log ends.
    units: dict[int, int] = {}
    log_end = next_offset = 0
    log_min = -1  # a log without files
    for what, how_far in steps:
        if what == "put":
            queue.put(log_end, SIZE, 0, next_offset)
            units[next_offset] = log_end
            log_end, next_offset = log_end + SIZE, next_offset + 1
        elif what == "skip":
            log_end += SIZE
            next_offset += how_far // 3 if units else 0
        elif what == "log":
            log_min = min(max(0, log_min) + how_far * SIZE, log_end)
        elif what == "cut" and log_end:
            log_end = max(log_min, log_end - how_far * SIZE)
            await queue.cut(log_end)
            units = {at: place for at, place in units.items() if place < log_end}
            # Fillers of a gap may stay in front of what was cut.
            next_offset = queue.max_offset
        elif what == "expire":
            queue.expire(log_min)
            await queue.files.remove_left()
        live = [at for at, place in units.items() if place >= log_min]
        assert queue.min_offset(log_min) == min(live, default=queue.max_offset)
        assert all(queue.unit(at).physical_offset == units[at] for at in live)
    queue.close()
