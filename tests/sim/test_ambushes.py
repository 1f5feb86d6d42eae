"""Faults that wait for a moment, and stores of another release."""

from __future__ import annotations

import random

import pytest

from rmqha.controller.raft import wal_layout as layout
from rmqha.controller.raft.events import HardState, Standing
from rmqha.controller.raft.messages import Entry
from rmqha.controller.raft.wal_layout import Record, Recovery
from rmqha.sim.cluster import SimCluster, SimOptions
from rmqha.sim.disk import SimDisk, SimFile
from rmqha.sim.releases import to_format_1
from rmqha.sim.swarm import make_swarm

STORE = "/store/rmqha/"


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 9, 89, 101])
def test_story_with_ambushes_when_its_script_is_played_then_it_is_the_same(seed: int) -> None:
    """A failure that only an ambush finds could not be cut down."""
    drawn = make_swarm(seed)
    told = drawn.tell(seed)
    assert [name for name in told.counts if name.startswith("ambush: ")]
    repeated = make_swarm(seed, tuple(drawn.script))
    assert repeated.ambushes is None
    assert repeated.tell(seed).lines == told.lines


def test_run_until_when_interrupted_then_time_stops_there() -> None:
    """A fault would come long after its moment."""
    cluster = SimCluster(1, SimOptions(controllers=1, broker_sets=1, replicas=1))
    cluster.loop.call_at(0.25, cluster.interrupt)
    cluster.run_until(1000.0)
    assert cluster.loop.time() == 0.25
    cluster.run_until(1000.0)
    assert cluster.loop.time() == 1.0
    cluster.close()


def log_of(kind: str) -> SimFile:
    """A segment with a vote and two entries, and zeros behind them."""
    standing = Standing(kind, "id", (("n0", "id"), ("n1", "other")))
    frames: list[list[Record]] = [
        [layout.open_record("group", "n0", HardState(1, None, standing))],
        [layout.hard_record(HardState(3, "n1", standing)), (layout.ENTRY, 1, 2, b"one")],
        [(layout.ENTRY, 2, 3, b"two")],
    ]
    file = SimFile()
    for seq, records in enumerate(frames, 1):
        payload = layout.encode_records(records)
        file.durable += layout.encode_frame(layout.WAL_MAGIC, seq, payload)
    file.reserved = len(file.durable) + 1000
    return file


def test_log_when_it_is_made_one_of_format_1_then_it_says_the_same_but_for_standings() -> None:
    """Seeds with stores of the release before would test a format that never was."""
    disk = SimDisk(random.Random(1))
    disk.files[f"{STORE}1.wal"] = log_of("voter")
    assert to_format_1(disk, STORE)
    file = disk.files[f"{STORE}1.wal"]
    assert file.content.startswith(layout.WAL_MAGIC_1)
    recovery = Recovery("group", "n0")
    recovery.read_segment("1.wal", file.content, is_last=True)
    found = recovery.result
    assert found.hard_state == HardState(3, "n1")
    assert found.entries == [Entry(1, 2, b"one"), Entry(2, 3, b"two")]
    assert (found.next_seq, found.old_last, found.torn) == (4, True, False)


def test_log_of_a_node_that_does_not_vote_then_it_stays_as_it_is() -> None:
    """In format 1 it would be a voter's."""
    disk = SimDisk(random.Random(1))
    file = disk.files[f"{STORE}1.wal"] = log_of("recovering")
    before = file.content
    assert not to_format_1(disk, STORE)
    assert disk.files[f"{STORE}1.wal"].content == before
