"""Queues' ends and groups' offsets, as files have them: without Spark."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from rmqha.pipeline import read
from rmqha.pipeline.commitlog.progress import (
    GroupOffset,
    QueueEnd,
    configured_topics,
    group_offsets,
    queue_ends,
)
from rmqha.store.consume_queue import FILLER, UNIT
from tests.pipeline.synthetic import SyntheticStore

UNITS_A_FILE = 10


def write_queue(
    root: Path, topic: str, queue_id: int, count: int, *, first: int = 0, files_ahead: int = 0
) -> Path:
    """Units from ``first`` on, in files of ten, of which the last ones are made ahead."""
    folder = root / "consumequeue" / topic / str(queue_id)
    folder.mkdir(parents=True, exist_ok=True)
    stop = first + count
    last = max(first, stop - 1) // UNITS_A_FILE + files_ahead
    for number in range(first // UNITS_A_FILE, last + 1):
        base = number * UNITS_A_FILE
        units = [
            UNIT.pack(at * 100, 100, 7) if first <= at < stop else FILLER if at < first else b""
            for at in range(base, base + UNITS_A_FILE)
        ]
        data = b"".join(units).ljust(UNITS_A_FILE * UNIT.size, b"\0")
        (folder / f"{base * UNIT.size:020d}").write_bytes(data)
    return folder


def write_offsets(root: Path, table: object, name: str = "consumerOffset.json") -> Path:
    path = root / "config" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(table if isinstance(table, str) else json.dumps({"offsetTable": table}))
    return path


def ends(root: Path) -> list[QueueEnd]:
    return list(queue_ends(str(root), "a"))


def offsets(root: Path) -> list[GroupOffset]:
    return list(group_offsets(str(root), "a"))


@pytest.mark.parametrize(
    ("count", "first", "ahead", "low", "end"),
    [
        (0, 0, 0, 0, 0), (3, 0, 0, 0, 3), (10, 0, 0, 0, 10), (10, 0, 1, 0, 10), (25, 0, 1, 0, 25),
        (8, 20, 0, 20, 28), (8, 23, 0, 23, 31), (30, 40, 2, 40, 70),
    ],
)  # fmt: skip
def test_queue_when_read_then_its_first_and_end_offset(
    tmp_path: Path, count: int, first: int, ahead: int, low: int, end: int
) -> None:
    """Over files, with files made ahead, with fillers where a queue begins in the middle of one."""
    write_queue(tmp_path, "t", 3, count, first=first, files_ahead=ahead)
    assert ends(tmp_path) == [QueueEnd("a", "t", 3, low, end)]


def test_queue_when_it_has_a_hole_then_told(tmp_path: Path) -> None:
    """The end is before the hole, as for the broker; what lies behind is not passed over."""
    folder = write_queue(tmp_path, "t", 0, 8)
    path = folder / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[5 * UNIT.size : 6 * UNIT.size] = bytes(UNIT.size)
    path.write_bytes(data)
    (one,) = ends(tmp_path)
    assert (one.min_offset, one.end_offset) == (0, 5)
    assert "behind a hole" in (one.corrupt or "")


def test_files_when_foreign_then_told_and_the_others_count(tmp_path: Path) -> None:
    """Among topics, among queues, among a queue's files."""
    folder = write_queue(tmp_path, "t", 0, 4)
    (tmp_path / "consumequeue" / "notes.txt").write_text("x")
    (tmp_path / "consumequeue" / "t" / "zero").mkdir()
    (folder / "00000000000000000007").write_bytes(b"x" * 40)
    found = ends(tmp_path)
    assert [one.end_offset for one in found if one.topic and one.queue_id == 0] == [4]
    assert len([one for one in found if one.corrupt]) == 3


def test_file_when_its_length_is_odd_then_whole_units_count(tmp_path: Path) -> None:
    """A copy that was cut short."""
    folder = write_queue(tmp_path, "t", 0, 10)
    path = folder / f"{0:020d}"
    path.write_bytes(path.read_bytes()[:-7])
    assert ends(tmp_path)[0].end_offset == 9


def test_offsets_when_read_then_by_group_and_queue(tmp_path: Path) -> None:
    """Also with the bare number keys that fastjson writes."""
    write_offsets(tmp_path, '{"offsetTable":{"t@g":{0:5,1:7},"%RETRY%g@g":{"0":1}}}')
    assert offsets(tmp_path) == [
        GroupOffset("a", "t", "g", 0, 5),
        GroupOffset("a", "t", "g", 1, 7),
        GroupOffset("a", "%RETRY%g", "g", 0, 1),
    ]


def test_offsets_when_entries_are_wrong_then_these_are_told(tmp_path: Path) -> None:
    """The good ones count."""
    table = {
        "t@g": {"0": 5, "x": 1, "1": "7", "2": -1, "3": 1 << 63, "4": True},
        "nogroup": {"0": 1},
        "u@g": [1],
    }
    write_offsets(tmp_path, table)
    found = offsets(tmp_path)
    assert [one for one in found if one.corrupt is None] == [GroupOffset("a", "t", "g", 0, 5)]
    assert len([one for one in found if one.corrupt]) == 7


def test_offsets_when_the_file_is_damaged_then_the_backup_serves(tmp_path: Path) -> None:
    """As in the broker; both are told when neither can be read."""
    path = write_offsets(tmp_path, '{"offsetTable":{"t@')
    write_offsets(tmp_path, {"t@g": {"0": 4}}, "consumerOffset.json.bak")
    found = offsets(tmp_path)
    assert found[0].corrupt is not None
    assert found[0].is_served
    assert found[1:] == [GroupOffset("a", "t", "g", 0, 4)]
    path.with_name("consumerOffset.json.bak").unlink()
    path.unlink()
    told = [(one.corrupt is not None, one.is_served) for one in offsets(tmp_path)]
    assert told == [(True, False), (True, False)]
    write_offsets(tmp_path, '{"offsetTable": 5}')
    assert "no object" in (offsets(tmp_path)[0].corrupt or "")


def test_topics_when_read_then_those_that_are_configured(tmp_path: Path) -> None:
    """None is not the same as no topic at all: who cannot tell calls none deleted."""
    assert configured_topics(str(tmp_path)) is None
    for name, text, found in (
        ("topics.json", "{", None),
        ("topics.json.bak", '{"topicConfigTable":{"t":{},"u":{}}}', {"t", "u"}),
        ("topics.json", '{"topicConfigTable":[]}', set()),
        ("topics.json", '{"topicConfigTable":[1]}', None),
    ):
        path = tmp_path / "config" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        assert configured_topics(str(tmp_path)) == found


@pytest.mark.parametrize("units", [300_000, 2_000])
def test_queue_when_the_log_begins_later_then_at_the_first_message_that_is_there(
    tmp_path: Path, units: int
) -> None:
    """A queue's file stays as long as it has one: what had expired of it was told as none. What is packed is
    there."""
    store = SyntheticStore(tmp_path, 1 << 20, units)
    for number in range(20_000):
        store.add("t", number % 2, bytes(50))
    store.close()
    first, second, third, *_ = sorted((tmp_path / "commitlog").iterdir())
    first.unlink(), second.unlink()
    third.with_name(third.name + ".gz").write_bytes(gzip.compress(third.read_bytes()))
    third.unlink()
    table = read(tmp_path, columns=["queueId", "queueOffset"]).to_table().to_pylist()
    for one in ends(tmp_path):
        left = [row["queueOffset"] for row in table if row["queueId"] == one.queue_id]
        assert (one.min_offset, one.end_offset) == (min(left), 10_000)
    for path in (tmp_path / "commitlog").iterdir():
        path.unlink()
    (tmp_path / "commitlog" / f"{1 << 40:020d}").write_bytes(b"")
    assert {(one.min_offset, one.end_offset) for one in ends(tmp_path)} == {(10_000, 10_000)}
