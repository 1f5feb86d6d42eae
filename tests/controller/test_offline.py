"""The store of a controller that does not run, read as the controller itself would read it."""

from __future__ import annotations

import os

import pytest

from rmqha.base.errors import StoreCorrupted, StoreMismatch
from rmqha.base.ids import BrokerId
from rmqha.controller.metadata import events as ev
from rmqha.controller.metadata.apply import apply
from rmqha.controller.metadata.snapshot import to_snapshot
from rmqha.controller.metadata.state import MetadataState
from rmqha.controller.offline import StoreRead, read_store
from rmqha.controller.raft import wal_layout as layout
from rmqha.controller.raft.events import HardState, Standing
from rmqha.controller.raft.members import Member, Members, encode_members
from rmqha.controller.raft.members import to_snapshot as to_snapshot_of_group
from rmqha.sim.cluster import SimOptions
from tests.controller.test_service import SETTLED_MS_MAX, Cluster

STORE = "/store/rmqha/"


def files_of(cluster: Cluster, host: str) -> dict[str, bytes]:
    """What a host's disk holds of the store."""
    found = cluster.disks[host].survivors()
    return {os.path.basename(path): data for path, data in found.items() if path.startswith(STORE)}


def state_of(read: StoreRead) -> bytes:
    """The state in the one form that states are compared in."""
    return to_snapshot(0, read.state)


@pytest.mark.costly
@pytest.mark.parametrize("options", [
    SimOptions(broker_sets=1, digest_every=4),
    SimOptions(broker_sets=1, snapshot_every=6, trailing_entries=2, wal_segment_bytes=600),
    SimOptions(broker_sets=1, snapshot_every=6, trailing_entries=100),
], ids=["log alone", "snapshot and short log", "snapshot and long log"])  # fmt: skip
@pytest.mark.parametrize("power", [False, True], ids=["killed", "power cut"])
def test_store_when_read_offline_then_the_state_of_the_node(
    options: SimOptions, power: bool
) -> None:
    """A rescue that read less than the node had would lose what need not be lost."""
    cluster = Cluster(5, options)
    try:
        for _ in range(3):
            before = cluster.epoch()
            host = cluster.master().host
            cluster.kill(host)
            cluster.run_until(lambda n=before: cluster.has_master_after(n), SETTLED_MS_MAX)
            cluster.boot(host)
            cluster.run_until(cluster.is_settled, SETTLED_MS_MAX, step_ms=50)
        for host in cluster.controller_hosts:
            service = cluster.controllers[host]
            core = service.raft.core
            assert core is not None
            node = core.node
            state = to_snapshot(0, service.machine.state)
            end = (node.term, node.log.last_index, node.log.last_term)
            owner = (service.config.group, service.node_id)
            cluster.kill(host, power=power)
            files = files_of(cluster, host)
            assert any(name.endswith(".snapshot") for name in files) == (
                options.snapshot_every < 25
            )
            read = read_store(files)
            assert (read.term, read.last_index, read.last_term) == end
            assert (read.group, read.node, read.standing) == (*owner, "voter")
            assert state_of(read) == state
    finally:
        cluster.close()


def test_store_when_entries_were_never_committed_then_they_count() -> None:
    """The node that is left cannot know that nobody answered for them."""
    cluster = Cluster(7, SimOptions(broker_sets=1))
    try:
        leader = cluster.the_leader()
        others = [host for host in cluster.controller_hosts if host != leader]
        committed = to_snapshot(0, cluster.controllers[leader].machine.state)
        cluster.cut_off(leader, *others)
        cluster.kill(cluster.master().host)
        core = cluster.controllers[leader].raft.core
        assert core is not None
        last = core.node.log.last_index
        cluster.run_until(lambda: core.node.log.last_index > last, SETTLED_MS_MAX)
        cluster.run_for(20)
        assert core.node.commit_index <= last
        cluster.kill(leader)
        read = read_store(files_of(cluster, leader))
        assert read.last_index > last
        assert state_of(read) != committed
    finally:
        cluster.close()


def segment(*records: layout.Record) -> bytes:
    """A log of one frame a record."""
    frames = [
        layout.encode_frame(layout.WAL_MAGIC, number, layout.encode_records([record]))
        for number, record in enumerate(records, 1)
    ]
    return b"".join(frames)


FIRST = f"{1:020d}.wal"
OPEN = layout.open_record("g", "n0", HardState(3, None, Standing("recovering", "id", ())))


def proposal(index: int, event: ev.Event) -> layout.Record:
    """The entry of an event."""
    return (layout.ENTRY, index, 1, ev.to_proposal(1, index, event))


def snapshot(index: int, event: ev.Event, group: Members | None = None) -> tuple[str, bytes]:
    """Name and content of one whose state is what this event makes of nothing."""
    state = MetadataState()
    apply(state, event)
    data = to_snapshot_of_group(group, to_snapshot(index, state))
    encoder = layout.SnapshotEncoder("g", index, 1, data)
    for _ in encoder.slices():
        pass
    return f"{index:020d}.snapshot", encoder.content()


def registered(broker_id: int) -> ev.BrokerIdTaken:
    return ev.BrokerIdTaken("C", "a", f"h:{broker_id}", BrokerId(broker_id), "h;1")


def test_store_when_the_group_has_changed_then_that_is_no_event() -> None:
    """Entries and snapshots that name members are the group's business (ADR 0033)."""
    members = Members((Member("n0", "h", 1), Member("n9", "h", 9)))
    entry = (layout.ENTRY, 2, 1, encode_members(members))
    read = read_store({FIRST: segment(OPEN, proposal(1, registered(1)), entry)})
    assert (read.end, [*read.state.sets["a"].replicas]) == ((1, 2), [1])
    name, content = snapshot(2, registered(1), members)
    read = read_store({FIRST: segment(OPEN, (layout.RESET, 2, 1)), name: content})
    assert (read.end, [*read.state.sets["a"].replicas]) == ((1, 2), [1])


def test_store_when_its_snapshot_holds_entries_of_the_log_then_these_are_not_applied_again() -> (
    None
):
    """The snapshot is what became of them."""
    name, content = snapshot(3, registered(3))
    entries = [proposal(index, registered(index)) for index in (1, 2, 3, 4)]
    read = read_store({FIRST: segment(OPEN, *entries), name: content})
    assert (read.end, [*read.state.sets["a"].replicas]) == ((1, 4), [3, 4])


def test_store_when_a_crash_left_two_snapshots_then_the_newer_one() -> None:
    """As at every start."""
    files = dict([snapshot(2, registered(2)), snapshot(3, registered(3))])
    read = read_store({FIRST: segment(OPEN, (layout.RESET, 3, 1)), **files})
    assert (read.end, [*read.state.sets["a"].replicas]) == ((1, 3), [3])


def test_store_when_nothing_was_decided_then_empty() -> None:
    """Also of a node that had lost its store before: it says so."""
    read = read_store({FIRST: segment(OPEN), "LOCK": b"", "x.damaged": b"?"})
    assert (read.standing, read.end, read.state.sets) == ("recovering", (0, 0), {})


@pytest.mark.parametrize(
    ("files", "error", "words"),
    [
        ({}, StoreCorrupted, "no log"),
        ({FIRST: b"\0" * 64}, StoreCorrupted, "whose log"),
        ({FIRST: segment((layout.HARD, 1, None))}, StoreCorrupted, "whose log"),
        ({FIRST: segment((layout.OPEN, 99, "g", "n0"))}, StoreMismatch, "format 99"),
        ({FIRST: segment(OPEN, (layout.ENTRY, 5, 1, b""))}, StoreCorrupted, "starts"),
        ({FIRST: segment(OPEN, (layout.ENTRY, 1, 1, b"?"))}, StoreCorrupted, "not a proposal"),
        ({FIRST: segment(OPEN), f"{9:020d}.snapshot": b"x"}, StoreCorrupted, "damaged"),
    ],
)  # fmt: skip
def test_store_when_it_cannot_be_read_then_said(
    files: dict[str, bytes], error: type[Exception], words: str
) -> None:
    """Half a state must not pass for what is left."""
    with pytest.raises(error, match=words):
        read_store(files)


def test_store_when_its_last_frame_is_damaged_then_only_on_request() -> None:
    """Others may have been told of it."""
    whole = segment(OPEN, (layout.ENTRY, 1, 1, b""))
    entry = segment(OPEN, (layout.ENTRY, 1, 1, b""), (layout.ENTRY, 2, 1, b""))
    at = len(whole) + layout.ALIGNMENT
    damaged = entry[:at] + bytes([entry[at] ^ 1]) + entry[at + 1 :]
    assert read_store({FIRST: entry}).end == (1, 2)
    with pytest.raises(StoreCorrupted, match="damaged, not torn"):
        read_store({FIRST: damaged})
    assert read_store({FIRST: damaged}, forgiving=True).end == (1, 1)
