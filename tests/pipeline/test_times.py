"""Times of messages that no calendar has: of a producer that counts in nanoseconds, or of turned bits."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rmqha.client.offsets import Edge
from rmqha.client.pull import Pulled
from rmqha.pipeline import read
from rmqha.pipeline.live.offsets import QueueRange
from rmqha.pipeline.live.options import read_options
from rmqha.pipeline.live.pulling import RangeReader
from rmqha.remoting.codes import ResponseCode
from tests.pipeline.stores import BORN_MS, V6, written
from tests.pipeline.test_live_pulling import QUEUE, Scripted
from tests.store.harness import message

LAST_MS = 9_223_372_036_854_775
"""The last millisecond that a timestamp of microseconds has."""
TIMES = {
    BORN_MS: BORN_MS * 1000,
    -1: -1000,
    1_700_000_000_000_000: 1_700_000_000_000_000_000,
    LAST_MS: LAST_MS * 1000,
    LAST_MS + 1: LAST_MS * 1000,
    2**63 - 1: LAST_MS * 1000,
    -LAST_MS - 1: -LAST_MS * 1000,
    -(2**63): -LAST_MS * 1000,
}
"""Milliseconds of a record, and the microseconds of its column."""
COLUMNS = ("bornTimestamp", "storeTimestamp")
STORED_AT = {False: 56, True: 68}
"""Where ``storeTimestamp`` stands in a record, by whether its producer's host is IPv6."""


def micros(rows: pa.Table) -> list[list[int]]:
    """Both times of each row."""
    return [rows.column(name).cast(pa.int64()).to_pylist() for name in COLUMNS]


async def odd_log(root: Path, *, v6: bool) -> bytes:
    """A store with a message of each time, born and stored then; its log."""
    hosts = {"born_host": V6} if v6 else {}
    made = [message(0, born_timestamp=ms, **hosts) for ms in TIMES]
    records = await written(root, made)
    (path,) = (root / "commitlog").iterdir()
    data = bytearray(path.read_bytes())
    for one, ms in zip(records, TIMES, strict=True):
        struct.pack_into(">q", data, one.physical_offset + STORED_AT[v6], ms)
    path.write_bytes(data)
    return bytes(data[: records[-1].physical_offset + records[-1].size])


@pytest.mark.parametrize("v6", [False, True])
async def test_times_when_no_timestamp_has_them_then_the_last_or_the_first(
    tmp_path: Path, v6: bool
) -> None:
    """They came as times of 1969: what was not born yet was the oldest. A log and a pull say the same."""
    log = await odd_log(tmp_path, v6=v6)
    assert micros(read(tmp_path, columns=COLUMNS).to_table()) == [list(TIMES.values())] * 2
    answer = Pulled(ResponseCode.SUCCESS, "", len(TIMES), Edge(0, len(TIMES)), log)
    cluster: Any = Scripted(lambda *_: answer)
    options = read_options({"nameServer": "a:1", "topic": "t"})
    reader = RangeReader(cluster, options, COLUMNS, pytest.fail)
    batches = list(reader.read(QueueRange(QUEUE, 0, len(TIMES))))
    assert micros(pa.Table.from_batches(batches)) == [list(TIMES.values())] * 2


async def test_choice_when_times_are_odd_then_what_the_column_says(tmp_path: Path) -> None:
    """A message is on the side of a bound on which its time is seen to be."""
    await odd_log(tmp_path, v6=False)
    chosen = read(tmp_path, columns=COLUMNS, since=BORN_MS + 1).to_table()
    assert micros(chosen)[1] == [one for one in TIMES.values() if one > BORN_MS * 1000]
    chosen = read(tmp_path, columns=COLUMNS, until=LAST_MS).to_table()
    assert micros(chosen)[1] == [one for one in TIMES.values() if one < LAST_MS * 1000]
