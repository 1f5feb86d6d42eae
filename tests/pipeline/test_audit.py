"""Replicas compared: one byte is found and named; what is not there yet is no difference."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from rmqha.cli.pipeline import main
from rmqha.pipeline.commitlog.compare import plan_ranges
from rmqha.pipeline.commitlog.store_folder import open_replica
from rmqha.pipeline.jobs import audit
from rmqha.store.record import Record
from tests.pipeline.stores import messages, written
from tests.pipeline.test_reading import FILE_BYTES, body_start, flip

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]
RANGE_BYTES = 6000


@pytest.fixture
async def replicas(tmp_path: Path) -> tuple[list[str], list[Record]]:
    """Three equal stores, in two epochs."""
    records = await written(tmp_path / "a", messages(120))
    second = records[70].physical_offset
    (tmp_path / "a" / "epochFileCheckpoint").write_text(f"2\n0\n1-0\n2-{second}\n")
    for name in ("b", "c"):
        shutil.copytree(tmp_path / "a", tmp_path / name)
    return [str(tmp_path / name) for name in "abc"], records


def confirm(store: str, offset: int) -> None:
    """Write a confirm offset into a store's checkpoint."""
    path = Path(store) / "checkpoint"
    data = bytearray(path.read_bytes().ljust(4096, b"\0"))
    data[32:40] = struct.pack(">q", offset)
    path.write_bytes(data)


def test_equal_replicas_when_compared_then_no_difference(
    spark: SparkSession, replicas: tuple[list[str], list[Record]]
) -> None:
    """Every byte was looked at."""
    stores, records = replicas
    end = records[-1].physical_offset + records[-1].size
    found = audit.run(spark, stores, range_bytes=RANGE_BYTES)
    assert (found.plan.low, found.plan.high) == (0, end)
    assert found.ranges_different == ()
    for index in range(3):
        mine = [one for one in found.plan.ranges if one.replica == index]
        assert sum(one.stop - one.start for one in mine) == end
    assert found.ranges_compared == len(found.plan.ranges) // 3


@pytest.mark.parametrize("number", [30, 100], ids=["epoch 1", "epoch 2"])
def test_byte_when_flipped_then_the_message_is_named(
    spark: SparkSession, replicas: tuple[list[str], list[Record]], number: int, tmp_path: Path
) -> None:
    """Topic, queue, queue offset and epoch, by the command; the exit code says it, too."""
    stores, records = replicas
    hurt = next(one for one in records[number:] if len(one.body) > 100)
    flip(Path(stores[1]), body_start(hurt) + 50)
    page = tmp_path / "report.html"
    done = CliRunner().invoke(main, ["replica-audit", *stores, "--report", str(page)])
    assert done.exit_code == 1, done.output
    epoch = 1 if number == 30 else 2
    lines = done.output.splitlines()
    assert lines[-2].startswith(
        f"{hurt.physical_offset}: {hurt.topic} queue {hurt.queue_id}"
        f" offset {hurt.queue_offset} epoch {epoch}"
    )
    assert lines[-1].endswith("1 differ")
    assert "The replicas differ" in page.read_text()
    (one,) = audit.run(spark, stores, range_bytes=RANGE_BYTES).differences
    assert (one.physical_offset, one.size) == (hurt.physical_offset, hurt.size)


def test_byte_when_behind_the_edge_of_a_range_then_the_message_is_named(
    spark: SparkSession, replicas: tuple[list[str], list[Record]]
) -> None:
    """The message begins in a range that is equal and ends in the one that is not; once each."""
    stores, records = replicas
    crossing = [
        one
        for one in records
        if (one.physical_offset // RANGE_BYTES + 1) * RANGE_BYTES < body_start(one) + len(one.body)
        and body_start(one) < (one.physical_offset // RANGE_BYTES + 1) * RANGE_BYTES
    ]
    hurt, both = crossing[0], crossing[-1]
    flip(Path(stores[1]), (hurt.physical_offset // RANGE_BYTES + 1) * RANGE_BYTES)
    flip(Path(stores[1]), body_start(both))
    flip(Path(stores[1]), (both.physical_offset // RANGE_BYTES + 1) * RANGE_BYTES)
    found = audit.run(spark, stores, range_bytes=RANGE_BYTES)
    assert len(found.ranges_different) == 3
    named = [(one.physical_offset, one.topic, one.queue_offset) for one in found.differences]
    assert named == [(one.physical_offset, one.topic, one.queue_offset) for one in (hurt, both)]


def test_ranges_when_enough_differences_are_known_then_nothing_is_said_of_those_not_looked_into(
    spark: SparkSession,
    replicas: tuple[list[str], list[Record]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That no message in them differs was told of ranges in which nobody had looked for one."""
    stores, records = replicas
    long = [one for one in records if len(one.body) > 100]
    for hurt in (long[0], long[-1]):
        flip(Path(stores[0]), body_start(hurt) + 50)
    found = audit.run(spark, stores, range_bytes=RANGE_BYTES)
    assert (len(found.ranges_different), len(found.differences), found.nameless) == (2, 2, ())
    monkeypatch.setattr(audit, "SHOWN_MAX", 1)
    found = audit.run(spark, stores, range_bytes=RANGE_BYTES)
    assert (len(found.ranges_different), len(found.differences), found.nameless) == (2, 1, ())


def test_header_when_flipped_then_the_good_replica_names_it(
    spark: SparkSession, replicas: tuple[list[str], list[Record]]
) -> None:
    """The damaged one can only say where."""
    stores, records = replicas
    hurt = next(one for one in records[40:] if one.physical_offset % FILE_BYTES)
    flip(Path(stores[0]), hurt.physical_offset + 5)
    (one,) = audit.run(spark, stores, range_bytes=RANGE_BYTES).differences
    assert (one.physical_offset, one.topic) == (hurt.physical_offset, hurt.topic)
    assert "a: damaged" in one.what


def test_replica_when_behind_then_its_end_is_no_difference(
    spark: SparkSession, replicas: tuple[list[str], list[Record]]
) -> None:
    """The others are compared to where two of them reach."""
    stores, records = replicas
    cut = records[60].physical_offset
    for path in sorted((Path(stores[2]) / "commitlog").iterdir()):
        base = int(path.name)
        if base >= cut:
            path.unlink()
        elif base + FILE_BYTES > cut:
            path.write_bytes(path.read_bytes()[: cut - base].ljust(FILE_BYTES, b"\0"))
    found = audit.run(spark, stores, range_bytes=RANGE_BYTES)
    assert found.ranges_different == ()
    assert found.plan.high == records[-1].physical_offset + records[-1].size


def test_difference_when_behind_the_confirm_offset_then_not_looked_at(
    spark: SparkSession, replicas: tuple[list[str], list[Record]]
) -> None:
    """What nobody was told is safe may differ; ``--up-to`` looks further."""
    stores, records = replicas
    for store in stores:
        confirm(store, records[80].physical_offset)
    flip(Path(stores[1]), body_start(records[90]))
    found = audit.run(spark, stores, range_bytes=RANGE_BYTES)
    assert found.ranges_different == ()
    assert found.plan.high == records[80].physical_offset
    end = records[-1].physical_offset
    assert audit.run(spark, stores, up_to=end, range_bytes=RANGE_BYTES).ranges_different


def test_epochs_when_unlike_then_a_difference(
    spark: SparkSession, replicas: tuple[list[str], list[Record]]
) -> None:
    """The same bytes under another epoch are another history."""
    stores, records = replicas
    second, third = records[70].physical_offset, records[80].physical_offset
    text = f"2\n0\n1-0\n3-{second}\n"
    (Path(stores[1]) / "epochFileCheckpoint").write_text(text)
    found = audit.run(spark, stores, range_bytes=RANGE_BYTES)
    assert found.ranges_different[0][0] == second
    assert found.differences[0].physical_offset == second
    assert third in {one.physical_offset for one in found.differences}


def test_replicas_when_nothing_is_compared_then_that_is_no_success(
    spark: SparkSession, replicas: tuple[list[str], list[Record]]
) -> None:
    """Nor is an offset that no log has."""
    stores, _ = replicas
    done = CliRunner().invoke(main, ["replica-audit", *stores, "--up-to", "0"])
    assert done.exit_code == 2, done.output
    assert "0 ranges compared" in done.stdout
    assert (
        "pipeline: nothing was compared: no two stores have bytes in common before 0" in done.stderr
    )
    done = CliRunner().invoke(main, ["replica-audit", *stores, "--up-to", "-5"])
    assert done.exit_code == 2, done.output
    assert "-5 is not in the range" in done.output


def test_page_when_it_cannot_be_written_then_the_differences_are_told_all_the_same(
    spark: SparkSession, replicas: tuple[list[str], list[Record]], tmp_path: Path
) -> None:
    """They took hours."""
    stores, records = replicas
    flip(Path(stores[1]), body_start(records[40]))
    (tmp_path / "page.html").symlink_to(tmp_path / "none" / "page.html")
    page = str(tmp_path / "page.html")
    done = CliRunner().invoke(main, ["replica-audit", *stores[:2], "--report", page])
    assert done.exit_code == 2, done.output
    assert f"{records[40].physical_offset}: " in done.stdout
    assert "1 differ" in done.stdout
    assert page in done.stderr


def test_stores_when_fewer_than_two_then_said(tmp_path: Path) -> None:
    """And logs without a file in common have nothing to compare."""
    (tmp_path / "commitlog").mkdir()
    done = CliRunner().invoke(main, ["replica-audit", str(tmp_path)])
    assert done.exit_code == 2
    assert "at least two" in done.output
    empty = open_replica(str(tmp_path))
    assert plan_ranges([empty, empty]).ranges == ()
