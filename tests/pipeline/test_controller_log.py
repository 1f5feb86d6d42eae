"""A controller's store read as rows, and the state made of them: without Spark."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgpack
import pytest

from rmqha.base.errors import ConfigInvalid
from rmqha.base.ids import BrokerId
from rmqha.controller.metadata.apply import apply
from rmqha.controller.metadata.events import (
    BrokerIdTaken,
    Event,
    MasterElected,
    StateCompared,
    StateMarked,
    SyncStateSetAltered,
    to_mark,
    to_proposal,
)
from rmqha.controller.metadata.snapshot import to_snapshot
from rmqha.controller.metadata.state import MetadataState
from rmqha.controller.raft import wal_layout as layout
from rmqha.controller.raft.events import HardState
from rmqha.controller.raft.members import Member, Members, encode_members
from rmqha.controller.raft.members import to_snapshot as to_snapshot_of_group
from rmqha.pipeline.controller_log.records import TORN, Row, event_of, find_store, read_store
from rmqha.pipeline.controller_log.state import Known, facts

GROUP, NODE = "group1", "n0"
ONE, TWO = BrokerId(1), BrokerId(2)
STORY: tuple[Event | None, ...] = (
    None,
    BrokerIdTaken("c", "broker-a", "127.0.0.1:10", ONE, "code1"),
    MasterElected("broker-a", ONE, 1, "broker", "first", unclean=False),
    BrokerIdTaken("c", "broker-a", "127.0.0.1:20", TWO, "code2"),
    SyncStateSetAltered("broker-a", (ONE, TWO), 2),
    MasterElected("broker-a", TWO, 2, "controller", "master_inactive", unclean=False),
)
"""What entries 1 to 6 hold; the first one opens the term."""


def _snapshot(group: str, index: int, term: int, data: bytes) -> bytes:
    """A snapshot file, made at once."""
    encoder = layout.SnapshotEncoder(group, index, term, data)
    for _ in encoder.slices():
        pass
    return encoder.content()


def frame(seq: int, *records: tuple[object, ...]) -> bytes:
    return layout.encode_frame(layout.WAL_MAGIC, seq, layout.encode_records(list(records)))


def entry(index: int, term: int = 1, event: Event | None = None) -> tuple[object, ...]:
    return (layout.ENTRY, index, term, b"" if event is None else to_proposal(term, index, event))


def opening(node: str = NODE) -> tuple[object, ...]:
    return layout.open_record(GROUP, node, HardState(1, NODE))


def story_frames() -> list[bytes]:
    """An opening frame and one frame an entry."""
    return [
        frame(1, opening()),
        *(frame(at + 1, entry(at, 1, event)) for at, event in enumerate(STORY, 1)),
    ]


def write_segment(folder: Path, frames: Sequence[bytes], first_seq: int = 1) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{first_seq:020d}.wal"
    path.write_bytes(b"".join(frames))
    return path


def state_at(index: int) -> MetadataState:
    state = MetadataState()
    for event in STORY[:index]:
        if event is not None:
            apply(state, event, tell=False)
    return state


def write_snapshot(folder: Path, index: int, state: MetadataState | None = None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    data = to_snapshot(index, state_at(index) if state is None else state)
    (folder / f"{index:020d}.snapshot").write_bytes(_snapshot(GROUP, index, 1, data))


def rows(folder: Path) -> list[Row]:
    return list(read_store(str(folder), "n0"))


def known(found: Sequence[Row]) -> Iterator[Known]:
    chosen = [one for one in found if one.index is not None and one.kind not in (None, "Reset")]
    for one in sorted(chosen, key=lambda row: (row.index or 0, row.kind == "Snapshot")):
        assert one.index is not None
        assert one.kind is not None
        yield Known(one.index, one.kind, one.fields)


def values(folder: Path, at: int) -> dict[str, str | None]:
    """The state of broker-a; a reason when it is not known."""
    found = list(facts(known(rows(folder)), [at]))
    return {fact.key or "unknown": fact.value if fact.key else fact.unknown for fact in found}


def test_log_when_whole_then_each_entry_is_a_row(tmp_path: Path) -> None:
    """Index, term, kind, set and fields; and the event can be made of them again."""
    write_segment(tmp_path, story_frames())
    found = rows(tmp_path)
    assert [one.kind for one in found] == [
        "Open", "Leader", "ApplyBrokerId", "ElectMaster", "ApplyBrokerId", "AlterSyncStateSet",
        "ElectMaster",
    ]  # fmt: skip
    assert [one.index for one in found[1:]] == [1, 2, 3, 4, 5, 6]
    assert {one.broker_set for one in found[2:]} == {"broker-a"}
    assert not any(one.corrupt for one in found)
    again = [event_of(one.kind or "", one.fields or "") for one in found[2:]]
    assert again == list(STORY[1:])


@pytest.mark.parametrize(
    ("at", "master", "epoch", "members"),
    [(3, "1", "1", "[1]"), (4, "1", "1", "[1]"), (5, "1", "1", "[1,2]"), (6, "2", "2", "[2]")],
)
def test_state_when_asked_at_an_index_then_as_it_was(
    tmp_path: Path, at: int, master: str, epoch: str, members: str
) -> None:
    """Entry by entry."""
    write_segment(tmp_path, story_frames())
    found = values(tmp_path, at)
    assert (found["masterBrokerId"], found["masterEpoch"]) == (master, epoch)
    assert found["syncStateSet"] == members
    assert found["broker 1"] == "127.0.0.1:10"
    assert ("broker 2" in found) == (at >= 4)


def test_state_when_the_log_begins_behind_a_snapshot_then_known_from_there(tmp_path: Path) -> None:
    """What lies before the snapshot and is gone is not known, and said so."""
    write_segment(tmp_path, [frame(1, opening()), *story_frames()[5:]])
    write_snapshot(tmp_path, 4)
    assert values(tmp_path, 5)["syncStateSet"] == "[1,2]"
    assert values(tmp_path, 4)["masterBrokerId"] == "1"
    assert values(tmp_path, 3) == {"unknown": "entry 1 is missing"}
    assert values(tmp_path, 7) == {"unknown": "the log ends at 6"}
    assert values(tmp_path, 0) == {"brokerSets": "0"}


def test_snapshot_when_it_is_not_what_the_log_makes_then_said(tmp_path: Path) -> None:
    """Two nodes whose states parted show here."""
    write_segment(tmp_path, story_frames())
    write_snapshot(tmp_path, 5, state_at(4))
    found = list(facts(known(rows(tmp_path)), [6]))
    assert found[0].unknown == "the snapshot at 5 is not what the log makes"
    assert found[0].at == 5


@pytest.mark.parametrize("wrong", [False, True])
def test_state_records_when_in_the_log_then_rows_of_their_own(tmp_path: Path, wrong: bool) -> None:
    """Taken for damage they would end what is known of the state; a digest is a proof of it."""
    digest = "0" * 16 if wrong else state_at(len(STORY)).packed.digest()
    records = [to_mark(StateMarked(1)), to_mark(StateCompared(7, digest))]
    extra = [frame(at + 1, (layout.ENTRY, at, 1, one)) for at, one in enumerate(records, 7)]
    change = MasterElected("broker-a", ONE, 9, "admin", "", unclean=False)
    write_segment(tmp_path, [*story_frames(), *extra, frame(10, entry(9, 1, change))])
    marked, compared, _ = rows(tmp_path)[-3:]
    assert (marked.kind, marked.broker_set, marked.fields) == ("StateMarked", None, '{"term":1}')
    assert (compared.kind, compared.broker_set, compared.index) == ("StateCompared", None, 8)
    assert compared.fields == f'{{"log_index":7,"digest":"{digest}"}}'
    told = [one.unknown for one in facts(known(rows(tmp_path)), [9]) if one.unknown]
    assert told == ["entry 8 says that the leader's state at 7 was not what the log makes"] * wrong
    assert values(tmp_path, 9)["masterEpoch"] == "9"


def test_members_when_the_group_has_changed_then_a_row_and_the_state_goes_on(
    tmp_path: Path,
) -> None:
    """Taken for damage, the first change of the group would end what is known of the state."""
    group = Members((Member("n0", "h", 1), Member("n9", "h", 9, False)))
    change = MasterElected("broker-a", ONE, 9, "admin", "", unclean=False)
    named = frame(8, (layout.ENTRY, 7, 1, encode_members(group)))
    write_segment(tmp_path, [*story_frames(), named, frame(9, entry(8, 1, change))])
    row = rows(tmp_path)[-2]
    assert (row.kind, row.broker_set, row.index) == ("Members", None, 7)
    assert json.loads(row.fields or "") == {
        "members": [
            {"id": "n0", "host": "h", "port": 1, "votes": True},
            {"id": "n9", "host": "h", "port": 9, "votes": False},
        ]
    }
    assert values(tmp_path, 8)["masterEpoch"] == "9"
    data = to_snapshot_of_group(group, to_snapshot(8, state_at(4)))
    (tmp_path / f"{8:020d}.snapshot").write_bytes(_snapshot(GROUP, 8, 1, data))
    kept = rows(tmp_path)[-1]
    assert (kept.kind, kept.index, kept.corrupt) == ("Snapshot", 8, None)


def test_tail_when_torn_then_it_is_told_apart_from_damage(tmp_path: Path) -> None:
    """A frame half written was never acknowledged; zeros written ahead are nothing at all."""
    whole = story_frames()
    path = write_segment(tmp_path, [*whole, frame(8, entry(7))[: layout.ALIGNMENT + 3]])
    found = rows(tmp_path)
    assert [one.corrupt for one in found if one.corrupt] == [TORN]
    assert found[-1].position == sum(map(len, whole))
    path.write_bytes(b"".join(whole) + bytes(4096))
    assert not any(one.corrupt for one in rows(tmp_path))


def test_frame_when_flipped_in_the_middle_then_told_and_the_rest_is_read(tmp_path: Path) -> None:
    """The controller refuses such a store; a reader shows what is left, and does not guess."""
    whole = story_frames()
    path = write_segment(tmp_path, whole)
    data = bytearray(path.read_bytes())
    at = sum(map(len, whole[:4]))
    data[at + layout.ALIGNMENT + 3] ^= 0x40
    path.write_bytes(data)
    found = rows(tmp_path)
    (bad,) = [one for one in found if one.corrupt]
    assert (bad.position, bad.size) == (at, len(whole[4]))
    assert [one.index for one in found if one.kind and one.index] == [1, 2, 3, 5, 6]
    assert values(tmp_path, 3)["masterEpoch"] == "1"
    assert values(tmp_path, 6) == {"unknown": "entry 4 is missing"}


def test_frames_when_missing_between_segments_then_told(tmp_path: Path) -> None:
    """A segment that was taken away leaves a gap in the numbers of frames."""
    whole = story_frames()
    write_segment(tmp_path, whole[:3])
    write_segment(tmp_path, [frame(6, opening()), *whole[6:]], first_seq=6)
    assert [one.corrupt for one in rows(tmp_path) if one.corrupt] == [
        "frame 6 follows: frame 4 is missing"
    ]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ((9, "what"), "unknown record"),
        ((layout.OPEN, 3, "x"), "format 3"),
        ((layout.OPEN, 1, "other", "n7", 1, None), "node n7 of group other"),
        ((layout.ENTRY, 9, 1, b"\x93\x01\x02"), "not a proposal"),
        ((layout.ENTRY, 9, 1, b"\xff" * 40), "not a proposal"),
    ],
)
def test_record_when_foreign_then_told(
    tmp_path: Path, record: tuple[object, ...], reason: str
) -> None:
    """Good checksums around something that is none of ours."""
    write_segment(tmp_path, [*story_frames(), frame(8, record)])
    (bad,) = [one for one in rows(tmp_path) if one.corrupt]
    assert reason in (bad.corrupt or "")
    assert values(tmp_path, 6)["masterBrokerId"] == "2"


def test_snapshot_when_damaged_then_told(tmp_path: Path) -> None:
    """Or another group's."""
    write_segment(tmp_path, story_frames())
    write_snapshot(tmp_path, 5)
    path = tmp_path / f"{5:020d}.snapshot"
    data = bytearray(path.read_bytes())
    data[-12] ^= 1
    path.write_bytes(data)
    (bad,) = [one for one in rows(tmp_path) if one.corrupt]
    assert "damaged" in (bad.corrupt or "")
    path.write_bytes(_snapshot("other", 5, 1, to_snapshot(5, state_at(5))))
    (bad,) = [one for one in rows(tmp_path) if one.corrupt]
    assert "group other" in (bad.corrupt or "")


@pytest.mark.parametrize("payload", [[1, GROUP], 5, [1, GROUP, "x", 1, b""], {"a": 1}, [1]])
def test_snapshot_when_its_checksum_is_right_and_nothing_else_then_told(
    tmp_path: Path, payload: object
) -> None:
    """A foreign writer's file ends no job."""
    tmp_path.joinpath("5.snapshot").write_bytes(
        layout.encode_frame(layout.SNAPSHOT_MAGIC, 5, msgpack.packb(payload))
    )
    (bad,) = rows(tmp_path)
    assert bad.corrupt


def test_store_when_read_then_nothing_in_it_changes(tmp_path: Path) -> None:
    """Not even where it could be mended; a directory without a right to write serves, too."""
    write_segment(tmp_path, [*story_frames(), b"torn"])
    before = {one.name: (one.read_bytes(), one.stat().st_mtime_ns) for one in tmp_path.iterdir()}
    rows(tmp_path)
    after = {one.name: (one.read_bytes(), one.stat().st_mtime_ns) for one in tmp_path.iterdir()}
    assert before == after


def test_path_when_no_controllers_store_then_said(tmp_path: Path) -> None:
    """Missing, or something else."""
    with pytest.raises(ConfigInvalid, match="no such directory"):
        find_store(os.fspath(tmp_path / "none"))
    write_segment(tmp_path / "store" / "rmqha", story_frames())
    assert find_store(os.fspath(tmp_path / "store")) == os.fspath(tmp_path / "store" / "rmqha")
    (tmp_path / "x.wal").write_bytes(b"")
    with pytest.raises(ConfigInvalid, match="no controller's store"):
        find_store(os.fspath(tmp_path))


def test_digest_when_of_another_index_than_the_mark_then_it_contradicts_nothing(
    tmp_path: Path,
) -> None:
    """Its mark is not in what is left of the log; the state at another one is another."""
    records = [to_mark(StateMarked(1)), to_mark(StateCompared(6, "0" * 16))]
    extra = [frame(at + 1, (layout.ENTRY, at, 1, one)) for at, one in enumerate(records, 7)]
    write_segment(tmp_path, [*story_frames(), *extra])
    assert not [one.unknown for one in facts(known(rows(tmp_path)), [8]) if one.unknown]


def test_tail_when_of_an_older_segment_then_damage(tmp_path: Path) -> None:
    """Only the last segment's was never acknowledged: others went on behind this one."""
    whole = story_frames()
    write_segment(tmp_path, [*whole[:3], whole[3][: layout.ALIGNMENT + 3]])
    write_segment(tmp_path, [frame(5, opening()), *whole[5:]], first_seq=5)
    told = [one.corrupt for one in rows(tmp_path) if one.corrupt]
    assert told[:1] == ["damaged frames"]
