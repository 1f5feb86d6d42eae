"""Where a log ends for who reads it: behind it may stand what is cut at the next election."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rmqha.base.errors import ConfigInvalid
from rmqha.ha.epochs import OFFSET_MAX
from rmqha.pipeline import read
from rmqha.pipeline.commitlog.store_folder import StoreFolder, open_replica
from rmqha.pipeline.commitlog.up_to import UpTo
from rmqha.pipeline.jobs import export
from rmqha.store import checkpoint
from tests.pipeline.stores import messages, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFIRMED_AT = 40


def _sizes(store: StoreFolder) -> list[int]:
    table = read(store.root, columns=["physicalOffset"], up_to="end").to_table()
    return [one.as_py() for one in table.column(0)]


@pytest.fixture
async def store(tmp_path: Path) -> StoreFolder:
    """A closed store of many messages."""
    await written(tmp_path / "store", messages(80))
    return open_replica(str(tmp_path / "store"))


def _confirm(store: StoreFolder, offset: int) -> None:
    """As a broker of ours writes it."""
    path = Path(store.root) / "checkpoint"
    found = checkpoint.read(path.read_bytes())
    found.confirm_offset = offset
    assert found.flushed_offset is not None
    data = bytearray(checkpoint.SIZE)
    checkpoint.write_into(data, found)
    path.write_bytes(data)


def _run(store: StoreFolder) -> None:
    (Path(store.root) / "abort").write_text("1")


@pytest.mark.parametrize("text", ["now", "-1", "1.5", "confirmed,end", "9" * 20])
def test_up_to_when_it_is_nothing_known_then_refused(text: str) -> None:
    """A misspelt word would read what nobody wanted."""
    with pytest.raises(ConfigInvalid, match="must be end, confirmed, or a physical offset"):
        UpTo.parse(text)


def test_limit_when_the_store_is_closed_then_all_unless_asked(store: StoreFolder) -> None:
    """Nobody cuts a log that nobody has open, until its broker starts again."""
    starts = _sizes(store)
    _confirm(store, starts[CONFIRMED_AT])
    assert UpTo.parse(None).limit(store) == OFFSET_MAX
    assert UpTo.parse("Confirmed ").limit(store) == starts[CONFIRMED_AT]
    assert UpTo.parse("77").limit(store) == 77


def test_read_when_the_store_is_running_then_what_is_confirmed(store: StoreFolder) -> None:
    """And everything of it, however often it is asked for."""
    starts = _sizes(store)
    assert len(starts) > CONFIRMED_AT + 10
    _confirm(store, starts[CONFIRMED_AT])
    _run(store)
    assert read(store.root).to_table().num_rows == CONFIRMED_AT
    assert read(store.root, up_to="end").to_table().num_rows == len(starts)
    assert read(store.root, up_to=starts[7]).to_table().num_rows == 7
    assert read(store.root, up_to=starts[7] + 1).to_table().num_rows == 8


def test_read_when_nothing_is_known_to_be_confirmed_then_all_or_a_reason(
    store: StoreFolder,
) -> None:
    """A broker without a controller never confirms: its running store is read as before."""
    every = len(_sizes(store))
    _confirm(store, 0)
    _run(store)
    assert read(store.root).to_table().num_rows == every
    with pytest.raises(ConfigInvalid, match="upTo=end reads all of it"):
        read(store.root, up_to="confirmed")


def test_reading_when_the_log_grows_then_each_reading_has_its_own_end(
    store: StoreFolder,
) -> None:
    """A reading is planned once: its end is in its parts, not looked up by them."""
    starts = _sizes(store)
    _run(store)
    _confirm(store, starts[10])
    log = read(store.root, columns=["physicalOffset"])
    first = log.to_reader()
    _confirm(store, starts[20])
    assert sum(batch.num_rows for batch in first) == 10
    assert log.to_table().num_rows == 20


@pytest.mark.spark
def test_source_when_the_store_is_running_then_as_read(
    spark: SparkSession, store: StoreFolder
) -> None:
    """The same words, the same rows; a word that is none is refused when it is loaded."""
    starts = _sizes(store)
    _confirm(store, starts[CONFIRMED_AT])
    _run(store)
    source = spark.read.format("rocketmq-commitlog")
    assert source.load(store.root).count() == CONFIRMED_AT
    assert source.option("upTo", "end").load(store.root).count() == len(starts)
    assert source.option("upTo", str(starts[7])).load(store.root).count() == 7
    with pytest.raises(Exception, match="upTo=now must be end, confirmed"):
        source.option("upTo", "now").load(store.root).count()


@pytest.mark.spark
def test_export_when_the_store_is_running_then_the_rest_comes_the_next_time(
    spark: SparkSession, store: StoreFolder, tmp_path: Path
) -> None:
    """Nothing is exported that an election may cut, nothing twice, and nothing is left out for good."""
    starts, lake = _sizes(store), str(tmp_path / "lake")
    _confirm(store, starts[CONFIRMED_AT])
    _run(store)
    named = f"broker-a={store.root}"
    assert export.run(spark, [named], lake).rows == CONFIRMED_AT
    _confirm(store, starts[-1])
    export.run(spark, [named], lake)
    assert spark.read.parquet(lake).count() == len(starts) - 1
    done = export.run(spark, [named], lake, up_to="end")
    assert done.rows == spark.read.parquet(lake).count() == len(starts)
