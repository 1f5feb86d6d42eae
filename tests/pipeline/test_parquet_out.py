"""A Parquet file that grows group by group."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmqha.pipeline.lake import parquet_out
from rmqha.pipeline.lake.parquet_out import ParquetOut


def test_groups_when_their_pages_are_short_then_each_is_written_at_once_and_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write a page cost a twentieth of an export; and nothing waits while the file is let go."""
    writes: list[int] = []
    write = parquet_out._Growing.write

    def counted(file: io.RawIOBase, data: bytes) -> int:
        writes.append(len(data))
        return write(file, data)  # type: ignore[arg-type]

    monkeypatch.setattr(parquet_out._Growing, "write", counted)
    rows = pa.table({"size": pa.array(range(100), pa.int32()), "flag": pa.array([7] * 100)})
    path = tmp_path / "topic" / "part.parquet"
    out = ParquetOut(str(path), rows.schema)
    sizes = []
    for _ in range(3):
        out.write(rows)
        sizes.append(path.stat().st_size)
    out.close()
    # The first has the file's beginning with it, and the last one is its end.
    assert len(writes) == 5
    assert sizes == sorted(set(sizes)), "a group was on disk when it was written"
    file = pq.ParquetFile(path)
    assert file.num_row_groups == 3
    assert file.read() == pa.concat_tables([rows] * 3)
    assert (out.messages, out.log_bytes) == (300, 3 * sum(range(100)))
