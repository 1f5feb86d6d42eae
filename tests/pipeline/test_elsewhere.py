"""Logs in an object store, by fsspec, and packed in archives: the rows are those of the store."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import fs

from rmqha.base.errors import ConfigInvalid, StoreDamaged
from rmqha.pipeline.commitlog import elsewhere
from rmqha.pipeline.commitlog.arrow_reader import read
from rmqha.pipeline.commitlog.compare import log_end
from rmqha.pipeline.commitlog.pages import mapped
from rmqha.pipeline.commitlog.store_folder import open_replica, open_store, split_store
from rmqha.store.record import Record
from tests.pipeline.stores import identify, messages, written
from tests.pipeline.test_reading import FILE_BYTES, flip

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore")
WITH_DAMAGE = ("physicalOffset", "size", "_corrupt")
NAMES = ("topic", "queueId", "queueOffset", "physicalOffset", "size", "storeTimestamp", "body")


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """An S3 server with one bucket: what a URL asks of it, with a user in front of the bucket."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    asked = f"endpoint_override=127.0.0.1%3A{port}&scheme=http&allow_bucket_creation=true"
    system, _ = fs.FileSystem.from_uri(f"s3://user:secret@logs?{asked}")
    system.create_dir("logs")
    yield "s3://user:secret@logs/%s?" + asked.replace("%", "%%") + "&region=us-east-1"
    server.stop()


@pytest.fixture
async def store(tmp_path: Path) -> tuple[Path, list[Record]]:
    """A store of some files."""
    records = await written(tmp_path / "a" / "store", messages(150))
    assert len(list((tmp_path / "a" / "store" / "commitlog").iterdir())) > 3
    return identify(tmp_path / "a" / "store", "broker-a"), records


def rows(path: str | Path, **changes: Any) -> pa.Table:
    """What ``read`` gives."""
    return read(path, columns=changes.pop("columns", NAMES), **changes).to_table()


def upload(store: Path, url: str) -> str:
    """Copy a directory; its URL."""
    system, inside = elsewhere.file_system(url)
    fs.copy_files(str(store), inside, fs.LocalFileSystem(), system)
    return url


@pytest.mark.slow
def test_log_when_in_an_object_store_then_read_as_here(
    s3: str, store: tuple[Path, list[Record]]
) -> None:
    """Rows, identity, times, damage; and a file that has changed since is read anew."""
    here, _ = store
    url = upload(here, s3 % "one/store")
    assert rows(url).equals(rows(here))
    assert rows(url, topic="orders").equals(rows(here, topic="orders"))
    middle = rows(here).column("storeTimestamp")[70].as_py()
    assert rows(url, since=middle).equals(rows(here, since=middle))
    found, real = open_replica(url), open_replica(str(here))
    assert (found.broker_id, found.name, found.epochs) == (1, "store", real.epochs)
    assert log_end(found) == log_end(real)
    flip(here, FILE_BYTES + 5)
    upload(here, url)
    columns = ["physicalOffset", "size", "_corrupt"]
    assert rows(url, columns=columns).equals(rows(here, columns=columns))
    assert rows(url, columns=columns).column("_corrupt").null_count < len(rows(here))


@pytest.mark.costly
def test_log_when_only_fsspec_opens_it_then_read_as_here(store: tuple[Path, list[Record]]) -> None:
    """``memory://`` stands for the many that it has and pyarrow has not."""
    here, _ = store
    url = upload(here, "memory://kept/store")
    assert rows(url).equals(rows(here))
    for wrong in ("memory://none", "nobody://x/y"):
        with pytest.raises(ConfigInvalid, match=wrong):
            open_replica(wrong)


@pytest.mark.costly
@pytest.mark.parametrize("ending", elsewhere.PACKED)
def test_log_when_its_files_are_packed_then_read_as_before(
    tmp_path: Path, store: tuple[Path, list[Record]], ending: str
) -> None:
    """Archived by a nightly job: in a directory of its own, some still as they were."""
    here, _ = store
    before = rows(here)
    archive = tmp_path / "archive"
    archive.mkdir()
    for number, path in enumerate(sorted((here / "commitlog").iterdir())):
        if number == 1:
            shutil.copy(path, archive)
        else:
            pack(path, archive / f"{path.name}{ending}")
    assert rows(archive).equals(before)
    (archive / "README").write_text("of July")
    assert open_replica(str(archive)).foreign == ("README",)
    assert rows(archive, topic="orders").num_rows == rows(here, topic="orders").num_rows


def pack(source: Path, target: Path) -> None:
    """As the tools of a shell do."""
    with pa.output_stream(target, compression="detect") as out:
        out.write(source.read_bytes())


def test_archive_when_cut_then_said(tmp_path: Path, store: tuple[Path, list[Record]]) -> None:
    """A whole archive of half a file, and half an archive: neither is a shorter log in silence."""
    here, records = store
    first = min((here / "commitlog").iterdir())
    data = first.read_bytes()
    target = first.with_name(first.name + ".gz")
    first.unlink()
    target.write_bytes(gzip.compress(data[: len(data) // 2]))
    found = rows(here, columns=WITH_DAMAGE)
    (missing,) = (one for one in gaps(found) if "no file has" in one["_corrupt"])
    assert missing["physicalOffset"] == len(data) // 2
    assert missing["physicalOffset"] + missing["size"] == len(data)
    assert found.num_rows - len(gaps(found)) >= len(records) - len(data) // 1000
    packed = gzip.compress(data)
    target.write_bytes(packed[: len(packed) // 2])
    with pytest.raises((OSError, StoreDamaged), match="Truncated"):
        rows(here)
    target.write_bytes(packed)
    assert sum(rows(here).column("size").to_pylist()) > len(data) // 2


@pytest.mark.costly
def test_packed_file_when_not_there_then_its_bytes_are_a_gap(
    tmp_path: Path, store: tuple[Path, list[Record]]
) -> None:
    """The sizes of packed files are known by the next one's name: it was an error for all of the log."""
    here, records = store
    archive = tmp_path / "archive"
    archive.mkdir()
    files = sorted((here / "commitlog").iterdir())
    size = files[0].stat().st_size
    for number, path in enumerate(files):
        if number != 2:
            pack(path, archive / f"{path.name}.zst")
    some: tuple[dict[str, Any], ...] = ({}, {"topic": ["orders"]})
    for asked in some:
        found = rows(archive, columns=WITH_DAMAGE, **asked)
        (gap,) = gaps(found)
        assert (gap["physicalOffset"], gap["size"]) == (2 * size, size)
        there = [one for one in records if not 2 * size <= one.physical_offset < 3 * size]
        there = [one for one in there if not asked or one.topic == "orders"]
        assert found.num_rows - 1 == len(there) < len(records)


def gaps(found: pa.Table) -> list[dict[str, Any]]:
    """The rows of damage."""
    return [one for one in found.to_pylist() if one["_corrupt"] is not None]


@pytest.mark.slow
def test_copies_when_read_range_by_range_then_made_once(
    s3: str, store: tuple[Path, list[Record]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An audit takes 64 ranges of a file; only the last file is kept, and nothing has a name."""
    here, _ = store
    url = upload(here, s3 % "two/store")
    paths = [one.path for one in open_replica(url).files[:2]]
    copied = []
    copy_of = elsewhere.copy_of

    def counted(path: str, bytes_max: int | None = None) -> Any:
        copied.append(path)
        return copy_of(path, bytes_max)

    monkeypatch.setattr(elsewhere, "copy_of", counted)
    for path in (*paths, paths[1], paths[1], paths[0]):
        with mapped(path) as buffer:
            assert len(buffer) > 0
    assert copied == [paths[0], paths[1], paths[0]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/data/store", ("", "/data/store")),
        ("a=/data/store", ("a", "/data/store")),
        ("c/a=/data/day=1/store", ("c/a", "/data/day=1/store")),
        ("/data/day=1/store", ("", "/data/day=1/store")),
        ("../day=1/store", ("", "../day=1/store")),
        ("s3://b/store?scheme=http", ("", "s3://b/store?scheme=http")),
        ("a=s3://b/store?scheme=http", ("a", "s3://b/store?scheme=http")),
    ],
)
def test_store_when_its_path_has_signs_of_equality_then_they_are_its_own(
    text: str, expected: tuple[str, str]
) -> None:
    """A folder of Hive's, and what a URL asks, were taken for names."""
    assert split_store(text) == expected


@pytest.mark.spark
async def test_jobs_when_stores_are_in_an_object_store_then_as_here(
    spark: SparkSession, s3: str, store: tuple[Path, list[Record]], tmp_path: Path
) -> None:
    """The source, an export and an audit, each by workers that have no such directory."""
    from rmqha.pipeline.jobs import audit, export
    from tests.pipeline.test_export import of, places

    here, records = store
    url = upload(here, s3 % "three/store")
    assert spark.read.format("rocketmq-commitlog").load(url).count() == len(records)
    done = export.run(spark, [url], str(tmp_path / "lake"))
    assert str(done.sets[0].name) == "broker-a of main"
    assert places(spark, tmp_path / "lake") == of(records)
    flip(here, records[90].physical_offset + 100)
    found = audit.run(spark, [f"s3={url}", f"here={here}"])
    assert [one.physical_offset for one in found.differences] == [records[90].physical_offset]
    assert open_store(f"s3={url}").name == "s3"


@pytest.mark.costly
def test_file_when_it_is_there_both_packed_and_plain_then_the_plain_one_counts(
    store: tuple[Path, list[Record]],
) -> None:
    """A job that packs old files was ended midway: the archive is cut, and the file is whole."""
    here, _ = store
    before = rows(here)
    for path in sorted((here / "commitlog").iterdir())[:2]:
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes())[:100])
    assert rows(here).equals(before)
    assert open_replica(str(here)).foreign == ()
