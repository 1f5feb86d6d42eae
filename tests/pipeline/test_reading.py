"""Commit logs to rows: every record once, whatever the parts; damage named, nothing invented."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rmqha.base.errors import ConfigInvalid, StoreCorrupted
from rmqha.pipeline import read
from rmqha.pipeline.commitlog import splits
from rmqha.pipeline.commitlog.batches import Bounds, Wanted, read_part
from rmqha.pipeline.commitlog.columns import SCHEMA
from rmqha.pipeline.commitlog.splits import plan
from rmqha.pipeline.commitlog.store_folder import Queues, open_replica
from rmqha.store.record import Record, check_record, unpack_host
from tests.pipeline.stores import TOPICS, messages, written
from tests.pipeline.synthetic import SyntheticStore

FILE_BYTES = 16_384


@pytest.fixture(autouse=True)
def near_anchors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows as small as these files, so that anchors are looked for in the middle of them."""
    monkeypatch.setattr(splits, "ANCHOR_WINDOWS", (600, 4000))


def rows(root: Path, wanted: Wanted | None = None, part_bytes: int = 5000) -> list[dict[str, Any]]:
    """Every row of every part."""
    found: list[dict[str, Any]] = []
    for part in plan(open_replica(str(root)), part_bytes):
        for batch in read_part(part, wanted or Wanted()):
            found += batch.to_pylist()
    return found


def good(found: list[dict[str, Any]]) -> list[int]:
    """The offsets of rows that are records."""
    return [row["physicalOffset"] for row in found if row["_corrupt"] is None]


def host(packed: bytes) -> str:
    """As the columns show it."""
    name, port = unpack_host(packed)
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


@pytest.mark.costly
@pytest.mark.parametrize("part_bytes", [1500, 5000, FILE_BYTES])
async def test_rows_when_read_in_parts_then_every_record_once(
    tmp_path: Path, part_bytes: int
) -> None:
    """Whatever the edges of the parts."""
    records = await written(tmp_path, messages(120))
    found = rows(tmp_path, part_bytes=part_bytes)
    assert len({path.name for path in (tmp_path / "commitlog").iterdir()}) > 4
    assert good(found) == [one.physical_offset for one in records]
    assert all(row["_corrupt"] is None for row in found)


async def test_columns_when_read_then_they_say_what_the_record_says(tmp_path: Path) -> None:
    """Column by column against the store's own reader."""
    records = await written(tmp_path, messages(80))
    for row, one in zip(rows(tmp_path), records, strict=True):
        pairs = one.property_map()
        expected = {
            "replica": tmp_path.name, "brokerId": None, "epoch": None,
            "physicalOffset": one.physical_offset, "size": one.size, "topic": one.topic,
            "queueId": one.queue_id, "queueOffset": one.queue_offset,
            "tags": pairs.get("TAGS"), "keys": pairs.get("KEYS"),
            "properties": list(pairs.items()), "bornHost": host(one.born_host),
            "storeHost": host(one.store_host), "flag": one.flag, "sysFlag": one.sys_flag,
            "reconsumeTimes": one.reconsume_times,
            "preparedTransactionOffset": one.prepared_transaction_offset,
            "bodySize": len(one.body), "bodyCrc": one.body_crc, "crcOk": True, "body": one.body,
            "_corrupt": None,
        }  # fmt: skip
        for name, at_ms in (
            ("bornTimestamp", one.born_timestamp), ("storeTimestamp", one.store_timestamp),
        ):  # fmt: skip
            assert round(row.pop(name).timestamp() * 1000) == at_ms
        assert row == expected


@pytest.mark.costly
async def test_filters_when_pushed_then_only_such_records(tmp_path: Path) -> None:
    """Each bound, and the topics."""
    records = await written(tmp_path, messages(100))

    def expect(wanted: Wanted, chosen: list[Record]) -> None:
        assert chosen
        assert good(rows(tmp_path, wanted)) == [one.physical_offset for one in chosen]

    expect(Wanted(topics=frozenset([TOPICS[1]])), [r for r in records if r.topic == TOPICS[1]])
    expect(Wanted(queue_id=Bounds(2, 2)), [r for r in records if r.queue_id == 2])
    expect(Wanted(queue_offset=Bounds(low=3)), [r for r in records if r.queue_offset >= 3])
    middle = records[50].physical_offset
    expect(
        Wanted(physical_offset=Bounds(high=middle)),
        [r for r in records if r.physical_offset <= middle],
    )
    moment = records[50].store_timestamp
    expect(
        Wanted(store_timestamp=Bounds(low=moment)),
        [r for r in records if r.store_timestamp >= moment],
    )
    assert good(rows(tmp_path, Wanted(topics=frozenset(["no such"])))) == []


async def test_identity_and_epochs_when_there_then_every_row_has_them(tmp_path: Path) -> None:
    """From the files that brokers in controller mode keep."""
    records = await written(tmp_path, messages(40))
    second = records[25].physical_offset
    (tmp_path / "brokerIdentity").write_text("c#broker-a#2")
    (tmp_path / "epochFileCheckpoint").write_text(f"2\n0\n3-0\n7-{second}\n")
    found = rows(tmp_path)
    assert [row["epoch"] for row in found] == [3] * 25 + [7] * 15
    assert {row["brokerId"] for row in found} == {2}
    (tmp_path / "epochFileCheckpoint").write_text("2\n0\n3-0\n")
    with pytest.raises(StoreCorrupted):
        open_replica(str(tmp_path))


def flip(root: Path, offset: int, size: int = 1) -> None:
    """Turn bits of some bytes of the log."""
    path = root / "commitlog" / f"{offset // FILE_BYTES * FILE_BYTES:020d}"
    data = bytearray(path.read_bytes())
    for at in range(offset % FILE_BYTES, offset % FILE_BYTES + size):
        data[at] ^= 0x55
    path.write_bytes(data)


@pytest.mark.costly
@pytest.mark.few
@pytest.mark.parametrize("queues", [True, False], ids=["with queues", "without queues"])
@pytest.mark.parametrize("part_bytes", [1500, FILE_BYTES])
@pytest.mark.parametrize("field", [0, 5, 30], ids=["size", "magic", "offset"])
async def test_header_when_flipped_then_one_gap_and_all_others(
    tmp_path: Path, field: int, part_bytes: int, queues: bool
) -> None:
    """The log goes on behind it, and the gap is exactly the damaged record."""
    records = await written(tmp_path, messages(60))
    hurt = next(r for r in records[20:] if r.physical_offset % FILE_BYTES)
    if not queues:
        (tmp_path / "consumequeue").rename(tmp_path / "elsewhere")
    flip(tmp_path, hurt.physical_offset + field)
    found = rows(tmp_path, part_bytes=part_bytes)
    assert good(found) == [r.physical_offset for r in records if r is not hurt]
    (gap,) = [row for row in found if row["_corrupt"] is not None]
    assert (gap["physicalOffset"], gap["size"]) == (hurt.physical_offset, hurt.size)
    assert gap["topic"] is None


async def test_body_when_flipped_then_only_its_checksum_is_wrong(tmp_path: Path) -> None:
    """The record stands, and says that it is not what was stored."""
    records = await written(tmp_path, messages(30))
    hurt = next(r for r in records if len(r.body) > 10)
    flip(tmp_path, hurt.physical_offset + hurt.size - len(hurt.properties) - 20)
    found = rows(tmp_path)
    assert good(found) == [r.physical_offset for r in records]
    assert [row["physicalOffset"] for row in found if not row["crcOk"]] == [hurt.physical_offset]


async def test_inner_length_when_flipped_then_the_record_is_damaged_alone(tmp_path: Path) -> None:
    """Its size still leads to the next one."""
    records = await written(tmp_path, messages(30))
    hurt = next(r for r in records if r.sys_flag == 0)
    flip(tmp_path, hurt.physical_offset + 85)
    found = rows(tmp_path)
    assert good(found) == [r.physical_offset for r in records if r is not hurt]
    assert [r["size"] for r in found if r["_corrupt"]] == [hurt.size]


async def hostile(tmp_path: Path) -> tuple[Path, list[Record]]:
    """A store in which two bodies are chains of perfect records for their own places.

    Whoever knows where his message will stand can write that.
    """
    probe = await written(tmp_path / "probe", messages(10))
    bait = probe[3]
    raw = (tmp_path / "probe" / "commitlog" / f"{0:020d}").read_bytes()
    fake = bytearray(raw[bait.physical_offset : bait.physical_offset + bait.size])
    made = messages(12)
    for turn in range(2):  # the first turns show where the bodies will stand
        records = await written(tmp_path / f"turn{turn}", made)
        for number in (5, 6):
            start = body_start(records[number])
            body = bytearray()
            while len(body) + len(fake) < 3000:
                fake[28:36] = (start + len(body)).to_bytes(8)
                body += fake
            made[number] = made[number]._replace(body=bytes(body.ljust(3000, b"\0")))
    return tmp_path / "last", await written(tmp_path / "last", made)


def body_start(one: Record) -> int:
    """The physical offset of a record's body."""
    behind = len(one.properties) + 2 + len(one.topic.encode()) + 1
    return one.physical_offset + one.size - behind - len(one.body)


@pytest.mark.costly
@pytest.mark.parametrize("part_bytes", [700, 1500, 5000])
async def test_bodies_when_they_hold_records_for_their_own_place_then_none_is_invented(
    tmp_path: Path, part_bytes: int
) -> None:
    """Also where a task looks for its anchor in the middle of one."""
    root, records = await hostile(tmp_path)
    data = (root / "commitlog" / f"{0:020d}").read_bytes()
    bait = body_start(records[5])
    assert check_record(data, bait, len(data), bait, check_crc=True).size > 0
    assert good(rows(root, part_bytes=part_bytes)) == [r.physical_offset for r in records]


@pytest.mark.costly
@pytest.mark.parametrize("part_bytes", [1500, FILE_BYTES])
async def test_hostile_record_when_damaged_then_its_body_is_no_way_on(
    tmp_path: Path, part_bytes: int
) -> None:
    """Behind damage the queues say where the log goes on."""
    root, records = await hostile(tmp_path)
    flip(root, records[5].physical_offset + 4)
    found = rows(root, part_bytes=part_bytes)
    assert good(found) == [r.physical_offset for r in records if r is not records[5]]
    assert [row["size"] for row in found if row["_corrupt"]] == [records[5].size]


async def test_tail_when_cut_then_the_rest_is_a_gap(tmp_path: Path) -> None:
    """A file of fewer bytes than its last record wants."""
    records = await written(tmp_path, messages(20))
    last = records[-1]
    path = sorted((tmp_path / "commitlog").iterdir())[-1]
    path.write_bytes(path.read_bytes()[: last.physical_offset % FILE_BYTES + last.size - 5])
    found = rows(tmp_path)
    assert good(found) == [r.physical_offset for r in records[:-1]]
    assert found[-1]["_corrupt"] is not None
    assert found[-1]["size"] == last.size - 5


@pytest.mark.costly
async def test_zeros_when_in_the_middle_then_a_gap(tmp_path: Path) -> None:
    """Pages that never reached the disk, with files behind them."""
    records = await written(tmp_path, messages(60))
    first = sorted((tmp_path / "commitlog").iterdir())[0]
    half = [r for r in records if r.physical_offset < FILE_BYTES // 2]
    end = half[-1].physical_offset + half[-1].size
    first.write_bytes(first.read_bytes()[:end].ljust(FILE_BYTES, b"\0"))
    found = rows(tmp_path)
    behind = [r for r in records if r.physical_offset >= FILE_BYTES]
    assert good(found) == [r.physical_offset for r in half + behind]
    (gap,) = [row for row in found if row["_corrupt"] is not None]
    assert (gap["physicalOffset"], gap["size"]) == (end, FILE_BYTES - end)


@pytest.mark.costly
@pytest.mark.parametrize("kind", ["lost", "empty", "cut at a record"])
async def test_file_when_not_there_or_short_then_its_bytes_are_a_gap(
    tmp_path: Path, kind: str
) -> None:
    """In the middle of a log nothing is missing in silence."""
    records = await written(tmp_path, messages(60))
    second = sorted((tmp_path / "commitlog").iterdir())[1]
    inside = [r for r in records if FILE_BYTES <= r.physical_offset < 2 * FILE_BYTES]
    begin = inside[4].physical_offset if kind == "cut at a record" else FILE_BYTES
    if kind == "lost":
        second.unlink()
    else:
        second.write_bytes(second.read_bytes()[: begin - FILE_BYTES])
    for wanted in (Wanted(), Wanted(topics=frozenset(TOPICS))):
        found = rows(tmp_path, wanted)
        lost = [r.physical_offset for r in inside if r.physical_offset >= begin]
        assert good(found) == [r.physical_offset for r in records if r.physical_offset not in lost]
        (gap,) = [row for row in found if row["_corrupt"] is not None]
        assert (gap["physicalOffset"], gap["size"]) == (begin, 2 * FILE_BYTES - begin)


@pytest.mark.costly
async def test_blank_when_it_ends_not_with_the_file_then_a_gap(tmp_path: Path) -> None:
    """A filler says how many bytes are left; another number is damage."""
    records = await written(tmp_path, messages(60))
    first = sorted((tmp_path / "commitlog").iterdir())[0]
    last = [r for r in records if r.physical_offset < FILE_BYTES][-1]
    flip(tmp_path, last.physical_offset + last.size + 3)
    found = rows(tmp_path)
    assert good(found) == [r.physical_offset for r in records]
    (gap,) = [row for row in found if row["_corrupt"] is not None]
    assert gap["physicalOffset"] == last.physical_offset + last.size
    assert gap["physicalOffset"] + gap["size"] == first.stat().st_size


async def test_file_when_foreign_then_named_and_not_read(tmp_path: Path) -> None:
    """Also one with a number for a name that no offset can be, and a far one with nonsense in it."""
    records = await written(tmp_path, messages(30))
    log = tmp_path / "commitlog"
    (log / ("9" * 20)).write_bytes(b"x" * 100)
    (log / f"{0:020d}.bak").write_bytes((log / f"{0:020d}").read_bytes())
    (log / f"{1 << 20:019d}").mkdir()
    replica = open_replica(str(tmp_path))
    assert replica.foreign == (f"{0:020d}.bak", f"{1 << 20:019d}", "9" * 20)
    assert good(rows(tmp_path)) == [r.physical_offset for r in records]
    far = 1 << 40
    (log / f"{far:020d}").write_bytes(b"nonsense" * 100)
    found = rows(tmp_path)
    assert good(found) == [r.physical_offset for r in records]
    gaps = [(row["physicalOffset"], row["size"]) for row in found if row["_corrupt"] is not None]
    assert gaps[-1] == (far, 800)
    assert gaps[-2][1] == 2**31 - 1


async def test_directory_when_strange_then_said(tmp_path: Path) -> None:
    """No store, foreign files, an empty log."""
    with pytest.raises(ConfigInvalid, match="commitlog"):
        open_replica(str(tmp_path))
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / "notes.txt").write_text("x")
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(b"")
    assert open_replica(str(tmp_path)).foreign == ("notes.txt",)
    assert rows(tmp_path) == []


async def test_batches_when_columns_are_named_then_only_these(tmp_path: Path) -> None:
    """The caller's order, the schema's types."""
    await written(tmp_path, messages(5))
    names = ("queueOffset", "topic", "_corrupt")
    (part,) = plan(open_replica(str(tmp_path)), FILE_BYTES)
    (batch,) = read_part(part, Wanted(columns=names))
    assert batch.schema == pa.schema([SCHEMA.field(name) for name in names])


def test_log_when_queues_name_nothing_of_it_then_each_record_is_asked_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each damaged record had the rest of its file looked through for one that a queue names: the topic
    was deleted, or nothing is dispatched. A thousand of them took hours."""
    store = SyntheticStore(tmp_path, 1 << 20)
    records = [store.add("t", 0, bytes(100), dispatched=False) for _ in range(1_000)]
    store.close()
    (tmp_path / "consumequeue" / "other" / "0").mkdir(parents=True)
    path = tmp_path / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    hurt = records[50::100]
    for one in hurt:
        data[one.at + 4] ^= 0xFF
    path.write_bytes(data)
    asked: list[int] = []
    names = Queues.names
    monkeypatch.setattr(
        Queues, "names", lambda self, *place: asked.append(place[3]) or names(self, *place)
    )
    table = read(tmp_path, columns=["physicalOffset", "_corrupt"]).to_table().to_pylist()
    damage = [row["physicalOffset"] for row in table if row["_corrupt"] is not None]
    assert damage == [one.at for one in hurt]
    assert len(table) == len(records)
    assert len(asked) <= len(records)
