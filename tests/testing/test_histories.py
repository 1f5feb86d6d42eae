"""A cluster's client history: what happened is in the file, line by line."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqha.base.errors import RemoteProtocolError
from rmqha.testing.plugin import Factory
from rmqha.verify.client_history import (
    LINE_BYTES_MAX,
    Ack,
    Consume,
    End,
    Fail,
    Header,
    HistoryWriter,
    Record,
    Send,
    decode_line,
)


def read(path: Path) -> list[Record]:
    """All records; the first line must be the header."""
    first, *rest = [decode_line(line) for line in path.read_bytes().splitlines()]
    assert isinstance(first, Header)
    assert not any(isinstance(one, Header) for one in rest)
    return [one for one in rest if not isinstance(one, Header)]


def test_records_when_written_then_read_again_with_their_numbers() -> None:
    """Each client counts for itself."""
    lines: list[bytes] = []
    writer = HistoryWriter(lines.append, "run 1")
    writer.add(Send, "p", topic="T", key="1", start_ms=5)
    writer.add(Fail, "p", topic="T", key="1", start_ms=5, end_ms=7, reason="no route")
    writer.add(End, "c", topic="T", broker="b", queue=0, offset=3, end_ms=9)
    assert [decode_line(line) for line in lines] == [
        Header(1, "run 1"),
        Send("p", 1, "T", "1", 5),
        Fail("p", 2, "T", "1", 5, 7, "no route"),
        End("c", 1, "T", "b", 0, 3, 9),
    ]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"[1]",
        b'{"op":"fly","client":"p","n":1}',
        b'{"op":"send","client":"p","n":1,"topic":"T"}',
        b'{"op":"send","client":"p","n":"1","topic":"T","key":"1","start_ms":5}',
        b'{"op":"send","client":"\xff","n":1,"topic":"T","key":"1","start_ms":5}',
        b" " * (LINE_BYTES_MAX + 1),
    ],
)
def test_line_when_it_is_none_of_ours_then_refused(line: bytes) -> None:
    """Never half a record."""
    with pytest.raises(RemoteProtocolError):
        decode_line(line)


@pytest.mark.slow
def test_cluster_when_its_master_dies_then_the_history_has_all_of_it(
    rmq_cluster_factory: Factory, tmp_path: Path
) -> None:
    """Acknowledgements where they were said to be, the refusals between, and the reading."""
    path = tmp_path / "history.jsonl"
    cluster = rmq_cluster_factory(history=path)
    cluster.produce(20)
    cluster.kill(cluster.wait_for_master())
    acked = cluster.produce(20)
    found = cluster.consume()
    cluster.close()
    records = read(path)
    acks = [one for one in records if isinstance(one, Ack)]
    assert [one.key for one in acks] == [str(number) for number in range(1, 41)]
    assert [(one.queue, one.offset) for one in acks[20:]] == [
        (one.queue_id, one.queue_offset) for one in acked
    ]
    sends = [one for one in records if isinstance(one, Send)]
    fails = [one for one in records if isinstance(one, Fail)]
    assert len(sends) == len(acks) + len(fails)
    assert fails
    read_again = [one for one in records if isinstance(one, Consume)]
    assert [(one.queue, one.offset) for one in read_again] == [
        (one.queue_id, one.queue_offset) for one in found
    ]
    assert {one.key for one in acks} <= {one.key for one in read_again}
    ends = {one.queue: one.offset for one in records if isinstance(one, End)}
    assert sum(ends.values()) == len(found)


@pytest.mark.slow
def test_workload_when_it_ends_then_its_history_does(
    rmq_cluster_factory: Factory, tmp_path: Path
) -> None:
    """Every acknowledged message is read, and the queues' ends are noted once."""
    path = tmp_path / "history.jsonl"
    cluster = rmq_cluster_factory(history=path)
    workload = cluster.workload("Steady")
    workload.wait_for_acks(50)
    ledger = workload.stop()
    cluster.close()
    records = read(path)
    assert len([one for one in records if isinstance(one, Ack)]) == ledger.acknowledged
    assert len([one for one in records if isinstance(one, Consume)]) == ledger.consumed
    assert len([one for one in records if isinstance(one, End)]) == 4
