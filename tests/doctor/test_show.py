"""``bin/mqdoctor show``: files that are drawn by the layouts, whole and damaged."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from click.testing import CliRunner

from rmqha.cli.mqdoctor import main
from rmqha.controller.raft import wal_layout
from rmqha.controller.raft.events import HardState
from rmqha.doctor.kinds import Kind, kind_of
from rmqha.ha.epochs import EpochEntry, format_epochs
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.frame import encode
from rmqha.store import layout
from rmqha.store.checkpoint import SIZE, Checkpoint, write_into
from rmqha.store.consume_queue import FILLER
from rmqha.store.index_file import file_size
from rmqha.store.record import MAGIC_V1

BASE = 1 << 30
NAME = f"{BASE:020d}"
HOST = {"ip": bytes([127, 0, 0, 1]), "port": 10911}
STORED_MS = 1_700_000_000_123


def record(offset: int, body: bytes = b"hello") -> bytes:
    """One record, drawn."""
    fields = {
        "total_size": 0, "magic": MAGIC_V1, "body_crc": crc32(body) & 0x7FFFFFFF, "queue_id": 3,
        "flag": 0, "queue_offset": 7, "physical_offset": offset, "sys_flag": 0,
        "born_timestamp": STORED_MS - 1, "born_host": HOST, "store_timestamp": STORED_MS,
        "store_host": HOST, "reconsume_times": 0, "prepared_transaction_offset": 0,
        "body_length": len(body), "body": body, "topic_length": 6, "topic": b"Orders",
        "properties_length": 8, "properties": b"KEYS\x01k1\x02",
    }  # fmt: skip
    size = len(layout.RECORD.build(fields))
    return layout.RECORD.build({**fields, "total_size": size})


def show(path: Path, *arguments: str) -> tuple[int, list[dict[str, Any]]]:
    """The exit code and the rows."""
    done = CliRunner().invoke(main, ["show", str(path), "--json", *arguments])
    if done.exit_code == 2:
        return 2, [{"says": done.output}]
    return done.exit_code, [json.loads(one) for one in done.stdout.splitlines()]


def commit_log(tmp_path: Path) -> tuple[Path, bytes, bytes]:
    """A file with two records and much that was not written."""
    path = tmp_path / "commitlog" / NAME
    path.parent.mkdir()
    first = record(BASE)
    second = record(BASE + len(first), b"x" * 100)
    path.write_bytes(first + second + bytes(4096))
    return path, first, second


def test_commit_log_when_shown_then_its_records_and_its_end(tmp_path: Path) -> None:
    """From its beginning, or from a record; as JSON or for people."""
    path, first, second = commit_log(tmp_path)
    code, rows = show(path)
    assert code == 0
    assert rows[0] == {
        "offset": BASE, "size": len(first), "topic": "Orders", "queue": 3, "queue_offset": 7,
        "message_id": f"7F00000100002A9F{BASE:016X}", "store_timestamp": STORED_MS,
        "born_timestamp": STORED_MS - 1, "store_host": "127.0.0.1:10911", "sys_flag": 0, "flag": 0,
        "properties": {"KEYS": "k1"}, "body_size": 5, "body": "hello",
    }  # fmt: skip
    assert (rows[1]["body_size"], rows[1]["body"]) == (100, "x" * 64)
    end = BASE + len(first) + len(second)
    assert rows[2:] == [{"end": end, "why": "nothing was written here"}]
    assert show(path, "--from", str(BASE + len(first)))[1] == rows[1:]
    assert show(path, "--limit", "1") == (0, rows[:1])
    text = CliRunner().invoke(main, ["show", str(path)]).stdout.splitlines()
    assert "store_timestamp=2023-11-14T22:13:20.123Z" in text[0]
    assert 'properties={"KEYS":"k1"}' in text[0]
    assert show(path, "--from", "5")[0] == 2


def test_commit_log_when_a_byte_is_another_then_damage_and_1(tmp_path: Path) -> None:
    """Behind it nobody knows where a record begins."""
    path, first, second = commit_log(tmp_path)
    data = bytearray(path.read_bytes())
    data[len(first) + len(second) - 30] ^= 1
    path.write_bytes(data)
    code, rows = show(path)
    assert code == 1
    assert rows[1:] == [{"damage": BASE + len(first), "why": "CRC of the body does not match"}]
    path.write_bytes(first[:-10])
    assert show(path)[0] == 1
    path.write_bytes(b"")
    assert show(path) == (0, [])


def test_commit_log_when_it_has_a_gigabyte_then_only_what_is_shown_is_read(tmp_path: Path) -> None:
    """A broker's file is as long as it will ever be, and mostly empty."""
    path, _, _ = commit_log(tmp_path)
    rows = show(path)[1]
    with path.open("r+b") as file:
        file.truncate(1 << 30)
    assert show(path, "--limit", "0") == (0, rows)
    tracemalloc.start()
    try:
        assert show(path)[0] == 0
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_queues_when_shown_then_their_units(tmp_path: Path) -> None:
    """What was not written is not shown; a filler is one."""
    path = tmp_path / "consumequeue" / "Orders" / "3" / f"{40:020d}"
    path.parent.mkdir(parents=True)
    unit = layout.CONSUME_QUEUE_UNIT.build({"physical_offset": 900, "size": 120, "tags_code": -5})
    path.write_bytes(FILLER + unit + bytes(200))
    rows = [
        {"unit": 2, "filler": "the queue began behind it"},
        {"unit": 3, "offset": 900, "size": 120, "tags_code": -5},
    ]
    assert show(path) == (0, rows)
    assert show(path, "--from", "3") == (0, rows[1:])
    assert show(path, "--limit", "1") == (0, rows[:1])
    batch = tmp_path / "batch"
    fields = {
        "physical_offset": 900, "size": 120, "tags_code": 1, "store_timestamp": STORED_MS,
        "base_offset": 10, "batch_size": 4, "compacted_offset": -1, "reserved": 0,
    }  # fmt: skip
    batch.write_bytes(layout.BATCH_CONSUME_QUEUE_UNIT.build(fields))
    assert show(batch, "--as", "batch-consume-queue") == (0, [{"unit": 0, **fields}])


def test_index_when_shown_then_header_and_units(tmp_path: Path) -> None:
    """With the slots that it was written with; another number does not fit its length."""
    path = tmp_path / "20261124000000000"
    header = {
        "begin_timestamp": STORED_MS, "end_timestamp": STORED_MS + 5_000,
        "begin_physical_offset": 0, "end_physical_offset": 900, "used_slot_count": 1,
        "index_count": 2,
    }  # fmt: skip
    unit = {"key_hash": 77, "physical_offset": 900, "seconds": 5, "previous": 0}
    data = bytearray(file_size(8, 4))
    data[:40] = layout.INDEX_HEADER.build(header)
    data[40 + 32 + 20 : 40 + 32 + 40] = layout.INDEX_UNIT.build(unit)
    path.write_bytes(data)
    shown = {"unit": 1, "key_hash": 77, "physical_offset": 900, "previous": 0}
    assert show(path, "--slots", "8") == (
        0, [header, {**shown, "store_timestamp": STORED_MS + 5_000}]
    )  # fmt: skip
    code, (row,) = show(path)
    assert (code, "--slots" in row["why"]) == (1, True)


def test_small_files_when_shown_then_what_they_say(tmp_path: Path) -> None:
    """Checkpoint, epochs, identities and tables; damaged ones say why."""
    checkpoint = tmp_path / "checkpoint"
    data = bytearray(SIZE)
    write_into(data, Checkpoint(STORED_MS, 2, 3, 0, 900, 950))
    checkpoint.write_bytes(data)
    _, (row,) = show(checkpoint)
    assert (row["physic_msg_timestamp"], row["flushed_offset"]) == (STORED_MS, 950)

    epochs = tmp_path / "epochFileCheckpoint.bak"
    epochs.write_bytes(format_epochs([EpochEntry(1, 0), EpochEntry(3, 500)]))
    assert show(epochs) == (
        0,
        [
            {"epoch": 1, "start_offset": 0, "end_offset": 500},
            {"epoch": 3, "start_offset": 500},
        ],
    )
    epochs.write_bytes(epochs.read_bytes().replace(b"500", b"501"))
    code, (row,) = show(epochs)
    assert (code, "CRC" in row["why"]) == (1, True)

    identity = tmp_path / "brokerIdentity"
    identity.write_text("DefaultCluster#broker-a#2")
    names = {"cluster_name": "DefaultCluster", "broker_name": "broker-a", "broker_id": 2}
    assert show(identity) == (0, [names])
    identity.write_text("DefaultCluster#broker-a")
    assert show(identity)[0] == 1
    temporary = tmp_path / "brokerIdentity-temp"
    temporary.write_text("DefaultCluster#broker-a#2#a:1;5")
    assert show(temporary) == (0, [{**names, "check_code": "a:1;5"}])

    table = tmp_path / "topics.json"
    table.write_text('{"dataVersion":{"counter":4},"topicConfigTable":{"A":{"perm":6}}}')
    code, rows = show(table)
    assert rows[0] == {"dataVersion": "1 entries", "topicConfigTable": "1 entries"}
    assert rows[2] == {"member": "topicConfigTable", "key": "A", "value": {"perm": 6}}
    table.write_text("{")
    assert show(table)[0] == 1


UNIT = layout.CONSUME_QUEUE_UNIT.build({"physical_offset": 900, "size": 120, "tags_code": -5})
UNITS = 20


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("checkpoint", b"abc", "3 bytes are no checkpoint, which has 4096"),
        ("checkpoint", b"", "0 bytes are no checkpoint"),
        ("checkpoint", b"\xff" * SIZE, None),
        ("checkpoint", b"\x80" * SIZE, "physic_msg_timestamp is -"),
        ("consumerOffset.json", b"[1,2]", "a table is an object, and this is a list"),
        ("topics.json", b"7", "this is a number"),
        (
            "topics.json",
            b'{"topicConfigTable":[]}',
            "topicConfigTable is an object, and here a list",
        ),
        ("consumerOffset.json", b'{"offsetTable":{"t@g":{0:"x"}}}', 't@g has {"0":"x"}'),
        ("consumerOffset.json", b'{"offsetTable":{"t@g":"x"}}', 't@g has "x"'),
        ("delayOffset.json", b'{"offsetTable":{1:5}}', None),
        ("consumequeue/t/0/" + NAME, b"abc", "3 bytes are no unit, which has 20"),
        ("consumequeue/t/0/" + NAME, UNIT + UNIT[:7], "7 bytes are no unit"),
        ("consumequeue/t/0/" + NAME, UNIT + b"\xff" * UNITS, "no record has -1 bytes at -1"),
        ("consumequeue/t/0/" + NAME, UNIT + bytes(UNITS) + b"abc", None),
    ],
)
def test_file_when_it_is_too_short_or_of_another_shape_then_1_and_nothing_is_made_up(
    tmp_path: Path, name: str, data: bytes, why: str | None
) -> None:
    """A time that nobody wrote is worse than none."""
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    code, rows = show(path)
    assert code == (0 if why is None else 1)
    hurt = [row for row in rows if "damage" in row]
    assert hurt == ([] if why is None else rows[-1:])
    assert all(str(why) in row["why"] for row in hurt)
    if why is not None:
        assert rows[:-1] == ([] if not data.startswith(UNIT) else [rows[0]])


def test_batch_units_and_index_when_cut_then_damage(tmp_path: Path) -> None:
    """An index counts its units in its header."""
    batch = tmp_path / "batch"
    batch.write_bytes(b"abc")
    code, (row,) = show(batch, "--as", "batch-consume-queue")
    assert (code, row["why"]) == (1, "3 bytes are no unit, which has 46")
    path = tmp_path / "20261124000000000"
    header = {
        "begin_timestamp": STORED_MS, "end_timestamp": STORED_MS, "begin_physical_offset": 0,
        "end_physical_offset": 900, "used_slot_count": 1, "index_count": 9,
    }  # fmt: skip
    data = bytearray(file_size(8, 4))
    data[:40] = layout.INDEX_HEADER.build(header)
    path.write_bytes(data)
    code, rows = show(path, "--slots", "8")
    assert (code, len(rows)) == (1, 1 + 3 + 1)
    assert "counts units up to 8" in rows[-1]["why"]
    data[:40] = layout.INDEX_HEADER.build({**header, "index_count": -1})
    path.write_bytes(data)
    assert show(path, "--slots", "8")[0] == 1


def test_frames_when_captured_then_what_they_ask(tmp_path: Path) -> None:
    """One that is not whole is said to be, behind those that are."""
    path = tmp_path / "captured"
    ask = encode(RemotingCommand(105, ext_fields={"topic": "Orders"}, opaque=9))
    path.write_bytes(ask + ask[:-3])
    code, rows = show(path, "--as", "frames")
    assert code == 1
    assert rows[0]["what"] == "GET_ROUTEINFO_BY_TOPIC"
    assert (rows[0]["opaque"], rows[0]["fields"]) == (9, {"topic": "Orders"})
    assert rows[1] == {"damage": len(ask), "why": "a frame that is not whole"}


def test_controllers_store_when_shown_then_its_records(tmp_path: Path) -> None:
    """The whole store by its directory, one file by its name."""
    folder = tmp_path / "rmqha"
    folder.mkdir()
    payload = wal_layout.encode_records([wal_layout.open_record("group1", "n0", HardState())])
    frame = wal_layout.encode_frame(wal_layout.WAL_MAGIC, 1, payload)
    segment = folder / f"{1:020d}.wal"
    segment.write_bytes(frame)
    code, (row,) = show(segment)
    assert (code, row["kind"], "group1" in row["fields"]) == (0, "Open", True)
    assert show(tmp_path) == (0, [row])
    at = frame.index(b"group1")
    more = wal_layout.encode_frame(
        wal_layout.WAL_MAGIC, 2, wal_layout.encode_records([wal_layout.hard_record(HardState(1))])
    )
    segment.write_bytes(frame[:at] + b"?" + frame[at + 1 :] + more)
    code, rows = show(tmp_path)
    assert code == 1
    assert rows[0]["damage"] == 0


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (f"/s/commitlog/{NAME}", Kind.COMMIT_LOG),
        (f"/disk1/{NAME}", Kind.COMMIT_LOG),
        (f"/s/consumequeue/T/0/{NAME}", Kind.CONSUME_QUEUE),
        ("/s/index/20261124010203004", Kind.INDEX),
        ("/s/epochFileCheckpoint", Kind.EPOCHS),
        ("/s/checkpoint", Kind.CHECKPOINT),
        ("/s/config/topics.json.bak", Kind.CONFIG),
        (f"/s/rmqha/{NAME}.snapshot", Kind.CONTROLLER),
    ],
)
def test_kind_when_the_name_is_a_brokers_or_controllers_then_known(path: str, kind: Kind) -> None:
    """As both of them name their files."""
    assert kind_of(path) is kind


def test_file_when_nobody_knows_it_then_2_and_the_kinds(tmp_path: Path) -> None:
    """``--as`` says what it is."""
    path = tmp_path / "unknown"
    path.write_bytes(b"?")
    code, (row,) = show(path)
    assert code == 2
    assert "commit-log" in row["says"]
    assert show(tmp_path)[0] == 2
