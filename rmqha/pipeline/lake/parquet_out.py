"""A Parquet file that grows group by group, and is open only while it does."""

from __future__ import annotations

import io
import os
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

CODEC = "zstd"
_MAP = "properties"
_REPEATED = (
    "replica", "brokerId", "epoch", "queueId", "tags", "bornHost", "storeHost", "flag", "sysFlag",
    "reconsumeTimes", "preparedTransactionOffset", "bodySize", "cluster", "brokerName",
    f"{_MAP}.key_value.key",
)  # fmt: skip
"""Columns in which values come again and again."""
_SETTLED = {
    "replica", "brokerId", "epoch", "queueId", "storeHost", "flag", "sysFlag", "reconsumeTimes", "bodyCrc",
    "crcOk", "cluster", "brokerName",
}  # fmt: skip
"""Columns that a codec cannot shorten: checksums, and few values that come each many times in a row.
To set up a compressor takes longer than everything else about so short a page."""
_UNTOLD = {"body", _MAP}
"""Columns whose least and greatest value nobody asks for."""
SINK_BYTES = 16 << 10
"""Of a file, gathered before they are written: most of a group's pages are short."""


class ParquetOut:
    """One of the files that are written side by side: a cell may have thousands.

    Args:
        path: the file; its folder is made.
        schema: of all that is written.
    """

    def __init__(self, path: str, schema: pa.Schema) -> None:
        self.path = path
        self.messages = 0
        self.log_bytes = 0
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self._file = _Growing(path)
        self._sink = pa.BufferedOutputStream(pa.PythonFile(self._file, "w"), SINK_BYTES)
        self._writer = pq.ParquetWriter(
            self._sink, schema, compression=_codecs(schema), store_schema=False,
            use_dictionary=[one for one in _REPEATED if one.split(".")[0] in schema.names],
            write_statistics=[one for one in schema.names if one not in _UNTOLD],
        )  # fmt: skip
        self._let_go()

    def write(self, rows: pa.Table) -> None:
        """Append a group of rows."""
        self._writer.write_table(rows, row_group_size=max(1, len(rows)))
        self.messages += len(rows)
        self.log_bytes += pc.sum(rows.column("size")).as_py()
        self._let_go()

    def close(self) -> None:
        """Write the end, without which it is no file."""
        self._writer.close()
        self._let_go()

    def _let_go(self) -> None:
        self._sink.flush()
        self._file.let_go()


def _codecs(schema: pa.Schema) -> dict[str, str]:
    """The codec of each column that has one, by its path in the file."""
    names = [one for one in schema.names if one not in _SETTLED | {_MAP}]
    return dict.fromkeys([*names, *(f"{_MAP}.key_value.{one}" for one in ("key", "value"))], CODEC)


class _Growing(io.RawIOBase):
    """A file that is appended to, and opened again when it was let go."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        self._open: io.BufferedWriter | None = None
        self._at = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def write(self, data: Any) -> int:
        if self._open is None:
            self._open = open(self._path, "ab")  # noqa: SIM115 - until it is let go
        self._at += len(data)
        return self._open.write(data)

    def let_go(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None
