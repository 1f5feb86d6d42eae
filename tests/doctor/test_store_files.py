"""A store that is drawn by the layouts, whole and damaged, as ``mqdoctor check`` reads it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import rmqha.broker
from rmqha.doctor.aio.store_files import CONFIG_FILES, read_identity, read_store
from rmqha.doctor.facts import QueueFacts, StoreFacts
from rmqha.ha.epochs import EpochEntry, format_epochs
from rmqha.store.checkpoint import SIZE, Checkpoint, write_into
from rmqha.store.consume_queue import UNIT
from rmqha.store.identity import Identity
from tests.doctor.test_show import record

FILE_SIZE = 4096
EPOCHS = (EpochEntry(1, 0), EpochEntry(2, 200))


def read(root: Path, files_max: int = 0) -> StoreFacts:
    """The store of a folder."""
    return read_store(root, root / "commitlog", root / "epochFileCheckpoint", files_max)


def write_checkpoint(root: Path, flushed: int | None, confirm: int = -1) -> None:
    """A checkpoint with our mark, or without it as Java writes it."""
    data = bytearray(SIZE)
    write_into(data, Checkpoint(1, 1, 1, 0, confirm, flushed))
    (root / "checkpoint").write_bytes(data)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two files of a log with two records each, a queue, epochs, offsets: all of it fits."""
    for start in (0, FILE_SIZE):
        first = record(start)
        second = record(start + len(first))
        rest = FILE_SIZE - len(first) - len(second)
        blank = rest.to_bytes(4) + bytes.fromhex("cbd43194") if start == 0 else b""
        path = tmp_path / "commitlog" / f"{start:020d}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes((first + second + blank).ljust(FILE_SIZE, b"\x00"))
    queue = tmp_path / "consumequeue" / "Orders" / "3"
    queue.mkdir(parents=True)
    size = len(record(0))
    units = [UNIT.pack(at, size, 0) for at in (0, size, FILE_SIZE, FILE_SIZE + size)]
    (queue / f"{0:020d}").write_bytes(b"".join(units).ljust(200, b"\x00"))
    (tmp_path / "epochFileCheckpoint").write_bytes(format_epochs(EPOCHS))
    (tmp_path / "config").mkdir()
    offsets = {"offsetTable": {"Orders@group": {"3": 4}}}
    (tmp_path / "config" / "consumerOffset.json").write_text(json.dumps(offsets))
    write_checkpoint(tmp_path, end_of(tmp_path), end_of(tmp_path))
    return tmp_path


def end_of(_: Path) -> int:
    """Where the log of ``root`` ends."""
    return FILE_SIZE + 2 * len(record(0))


def test_store_when_it_is_whole_then_its_parts_fit(root: Path) -> None:
    facts = read(root)
    assert (facts.min_offset, facts.end_offset) == (0, end_of(root))
    assert (facts.damage, facts.missing_before, facts.later_record) == ("", "", None)
    assert facts.epochs == EPOCHS
    assert facts.queues == (QueueFacts("Orders", 3, 4, end_of(root)),)
    assert facts.consumer_offsets == {("Orders", "group", 3): 4}
    assert facts.checkpoint is not None
    assert facts.checkpoint.flushed_offset == end_of(root)
    assert not facts.abort


def test_store_when_only_the_newest_file_is_read_then_the_end_is_the_same(root: Path) -> None:
    """A log of a terabyte is not read for a question about its end."""
    log = root / "commitlog" / f"{0:020d}"
    log.write_bytes(b"\xff" * FILE_SIZE)
    assert read(root, 1).end_offset == end_of(root)
    assert read(root, 1).damage == ""
    assert "damaged at offset 0" in read(root, 0).damage


@pytest.mark.parametrize("mark", [True, False])
def test_store_when_a_durable_record_is_damaged_then_it_is_told(root: Path, mark: bool) -> None:
    """By our mark, or by the confirm offset that Java's checkpoint has."""
    write_checkpoint(root, end_of(root) if mark else None, end_of(root))
    size = len(record(0))
    log = root / "commitlog" / f"{FILE_SIZE:020d}"
    data = bytearray(log.read_bytes())
    data[size + 90] ^= 1
    log.write_bytes(data)
    facts = read(root)
    assert facts.end_offset == FILE_SIZE + size
    assert f"damaged at offset {FILE_SIZE + size}" in facts.damage
    assert f"durable up to {end_of(root)}" in facts.damage


def test_store_when_an_old_tail_stands_behind_the_end_then_it_is_found(root: Path) -> None:
    """What a truncation leaves that moves positions only."""
    log = root / "commitlog" / f"{FILE_SIZE:020d}"
    size = len(record(0))
    data = bytearray(log.read_bytes())
    data[size : size + 8] = bytes(8)
    data[2 * size + 40 : 3 * size + 40] = record(FILE_SIZE + 2 * size + 40)
    log.write_bytes(data)
    write_checkpoint(root, FILE_SIZE + size)
    (root / "abort").touch()
    facts = read(root)
    assert (facts.end_offset, facts.damage) == (FILE_SIZE + size, "")
    assert facts.later_record == FILE_SIZE + 2 * size + 40
    assert facts.abort


def test_store_when_a_file_is_missing_then_the_gap_is_told(root: Path) -> None:
    log = root / "commitlog"
    (log / f"{FILE_SIZE:020d}").rename(log / f"{2 * FILE_SIZE:020d}")
    facts = read(root)
    assert facts.end_offset == FILE_SIZE
    assert "is missing" in facts.missing_before


def test_store_when_all_files_are_missing_then_the_checkpoint_tells_of_them(root: Path) -> None:
    for path in (root / "commitlog").iterdir():
        path.unlink()
    assert f"durable up to {end_of(root)}" in read(root).damage


def test_store_when_it_was_never_used_then_there_is_nothing_wrong(tmp_path: Path) -> None:
    assert read(tmp_path) == StoreFacts(str(tmp_path))
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(bytes(FILE_SIZE))
    assert not read(tmp_path).has_data


@pytest.mark.parametrize("backup", [True, False])
def test_epochs_when_the_file_is_damaged_then_its_backup_serves(root: Path, backup: bool) -> None:
    path = root / "epochFileCheckpoint"
    if backup:
        (root / "epochFileCheckpoint.bak").write_bytes(path.read_bytes())
    path.write_bytes(path.read_bytes().replace(b"2-200", b"2-201"))
    facts = read(root)
    assert "CRC" in facts.epoch_damage
    assert facts.epochs == (EPOCHS if backup else None)


@pytest.mark.parametrize("text", ['{"offsetTable":{"Orders@group":{"x":', "{", ""])
def test_offsets_when_the_table_is_damaged_then_its_copy_serves(root: Path, text: str) -> None:
    """As brokers have it: a diagnosis of offsets needs whole ones."""
    path = root / "config" / "consumerOffset.json"
    whole = path.read_text()
    path.write_text(text)
    facts = read(root)
    assert facts.consumer_offsets == {}
    assert list(facts.config_damages) == [str(path)]
    Path(f"{path}.bak").write_text(whole)
    facts = read(root)
    assert facts.consumer_offsets == {("Orders", "group", 3): 4}
    assert facts.config_damages == {}
    path.unlink()
    assert read(root).consumer_offsets == {("Orders", "group", 3): 4}


def test_offsets_when_the_table_has_another_shape_then_it_is_damaged(root: Path) -> None:
    """The broker takes its copy for files that are no JSON, and none for what is in them."""
    path = root / "config" / "consumerOffset.json"
    Path(f"{path}.bak").write_text(path.read_text())
    path.write_text('{"offsetTable":{"Orders@group":{"x":1}}}')
    assert "'Orders@group' in offsetTable holds 'x'" in read(root).config_damages[str(path)]


@pytest.mark.parametrize("name", CONFIG_FILES)
def test_config_when_a_file_is_damaged_then_it_is_named(root: Path, name: str) -> None:
    """A broker ended with exit code 3 over a store of which nothing was said to be wrong."""
    path = root / "config" / name
    path.write_text("{")
    assert list(read(root).config_damages) == [str(path)]


def test_config_when_the_broker_has_a_table_then_it_is_looked_at() -> None:
    """A table that is new in the broker and unknown here would be damaged without a word."""
    sources = Path(rmqha.broker.__file__).parent.rglob("*.py")
    named = re.compile(r'path\("config", "([^"]+\.json)"\)')
    assert {name for one in sources for name in named.findall(one.read_text())} == {*CONFIG_FILES}


@pytest.mark.parametrize(
    ("size", "damaged"), [(0, False), (2, True), (SIZE, False), (SIZE + 1, True)]
)
def test_checkpoint_when_its_length_is_another_then_it_is_damaged(
    root: Path, size: int, damaged: bool
) -> None:
    """Counted as filled up with zeros, it had nothing wrong; the broker ends for it."""
    path = root / "checkpoint"
    path.write_bytes(path.read_bytes().ljust(SIZE + 1, b"\x00")[:size])
    facts = read(root)
    assert bool(facts.checkpoint_damage) is damaged
    assert (facts.checkpoint is None) is (size != SIZE)


def test_log_when_a_file_has_another_length_then_each_is_told(root: Path) -> None:
    path = root / "commitlog" / f"{FILE_SIZE:020d}"
    with path.open("ab") as file:
        file.write(b"x" * 10)
    (root / "commitlog" / f"{2 * FILE_SIZE:020d}").touch()
    assert list(read(root).log_sizes.values()) == [FILE_SIZE, FILE_SIZE + 10]


def test_queue_when_its_newest_file_is_empty_then_the_one_before_counts(root: Path) -> None:
    queue = root / "consumequeue" / "Orders" / "3"
    (queue / f"{200:020d}").write_bytes(bytes(200))
    whole = (queue / f"{0:020d}").read_bytes()
    (queue / f"{0:020d}").write_bytes((whole[: 4 * UNIT.size] * 3)[:200])
    assert read(root).queues == (QueueFacts("Orders", 3, 4, end_of(root)),)


def test_identity_when_read_then_both_files_and_damage_are_told(tmp_path: Path) -> None:
    path = tmp_path / "brokerIdentity"
    assert read_identity(path).final is None
    path.write_text("C#broker-a#2")
    (tmp_path / "brokerIdentity-temp").write_text("C#broker-a#3#10.0.0.1:10911;7")
    found = read_identity(path)
    assert found.final == Identity("C", "broker-a", 2)
    assert found.temporary == Identity("C", "broker-a", 3, "10.0.0.1:10911;7")
    path.write_text("C#broker-a")
    assert "is not the identity of a broker" in read_identity(path).damage
