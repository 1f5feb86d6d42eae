"""Faults that wait for a moment, and stores of another release."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from rmqha.controller.raft import wal_layout as layout
from rmqha.controller.raft.events import HardState, Standing
from rmqha.controller.raft.messages import Entry
from rmqha.controller.raft.wal_layout import Record, Recovery
from rmqha.sim import ambush
from rmqha.sim.cluster import SimCluster, SimOptions
from rmqha.sim.disk import SimDisk, SimFile
from rmqha.sim.liveness import QUIET_MS
from rmqha.sim.releases import to_format_1
from rmqha.sim.swarm import make_swarm
from rmqha.sim.traps import AMBUSHES

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


def drawn(seed: int, share: float, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What a story draws besides the rare ambushes, where this share of stories has one."""
    monkeypatch.setattr(ambush, "RARE_SHARE", share)
    monkeypatch.setattr(ambush, "STANDSTILL_SHARE", 0)
    swarm = make_swarm(seed)
    swarm.cluster.close()
    assert swarm.ambushes is not None
    laid = swarm.ambushes._laid
    ordinary = [one for one in laid if one.acts is AMBUSHES.get(one.name)]
    assert len(laid) == len(ordinary) + share
    kept = [(one.name, one.not_before_ms, one.stage.rng.getstate()) for one in ordinary]
    return [swarm.rng.getstate(), *kept]


@pytest.mark.parametrize("seed", range(1, 9))
def test_rare_ambush_when_one_is_laid_then_nothing_else_is_drawn_otherwise(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A further one would change every story, and with it the seeds that find the mutants."""
    assert drawn(seed, 0, monkeypatch) == drawn(seed, 1, monkeypatch)


@pytest.mark.slow
def test_two_down_and_a_bridge_when_sprung_then_left_alone_until_it_may_be_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each fault begins the wait for a leader anew, and a story has one every half second."""
    name = "two down and a bridge"
    monkeypatch.setattr(ambush, "RARE_SHARE", 1)
    monkeypatch.setattr(ambush, "RARE_WEIGHTS", {size: Counter([name]) for size in (1, 3, 5)})
    gaps_ms = []
    for seed in range(1, 31):
        swarm = make_swarm(seed)
        if len(swarm.cluster.controller_hosts) < 5:
            swarm.cluster.close()
            continue
        sprung = swarm.tell(seed).counts.get(f"ambush: {name}", 0)
        laid = [
            (bridge.at_ms, [later.at_ms for later in swarm.script if later.at_ms > bridge.at_ms])
            for first, second, bridge in zip(
                swarm.script, swarm.script[1:], swarm.script[2:], strict=False
            )
            if (first.kind, second.kind) == ("kill controller", "kill controller")
            if bridge.kind == "bridge" and first.at_ms == bridge.at_ms
        ]
        assert len(laid) == sprung
        gaps_ms += [min([*after, swarm.phase_ms]) - at for at, after in laid]
    assert len([gap for gap in gaps_ms if gap >= QUIET_MS]) >= 5
    assert not [gap for gap in gaps_ms if gap < QUIET_MS]


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
