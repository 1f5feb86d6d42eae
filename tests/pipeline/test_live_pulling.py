"""A range of a queue to Arrow, by the answers that brokers give."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqha.base.errors import RemoteProtocolError
from rmqha.client.aio.master_client import (
    Pulled,
)
from rmqha.client.offsets import Edge
from rmqha.client.routes import QueueKey
from rmqha.pipeline.live import pulling
from rmqha.pipeline.live.losing import WAS_REMOVING
from rmqha.pipeline.live.offsets import DataLost, QueueRange
from rmqha.pipeline.live.options import read_options
from rmqha.pipeline.live.pulling import SCHEMA, RangeReader, record_positions
from rmqha.remoting.codes import ResponseCode
from rmqha.store import properties as props
from rmqha.store.record import Record
from tests.pipeline.stores import BORN_MS, written
from tests.store.harness import message

QUEUE = QueueKey("t", "broker-a", 0)
COUNT = 20


class Scripted:
    """A cluster whose queue answers as it is told; time passes while one waits.

    Attributes:
        asked: the offsets of pulls, those of one moment together.
        answer_ms: what each answer takes.
        answered_max: how many pulls of one moment are answered.
        is_sparse: whether it is of a compacted topic.
        asked_about: how often that was asked.
    """

    failover_timeout_ms = 1000

    def __init__(self, answer: Callable[[int, int], Pulled]) -> None:
        self._answer = answer
        self._now_ms = 0
        self.asked: list[list[int]] = []
        self.answer_ms = 0
        self.answered_max = 100
        self.is_sparse = False
        self.asked_about = 0

    @property
    def clock(self) -> Scripted:
        """Itself."""
        return self

    def now_ms(self) -> int:
        """As far as it was waited."""
        return self._now_ms

    def sleep(self, delay_ms: float) -> None:
        """Wait."""
        self._now_ms += int(delay_ms)

    def forget_masters(self) -> None:
        """There is one."""

    def is_compacted(self, queue: QueueKey) -> bool:
        """Whether holes are to be expected."""
        assert queue == QUEUE
        self.asked_about += 1
        return self.is_sparse

    def pulls(
        self, queue: QueueKey, ranges: Sequence[tuple[int, int]], expression: str
    ) -> list[Pulled]:
        """Answer, up to where that fails."""
        assert queue == QUEUE
        self.asked.append([at for at, _ in ranges])
        self._now_ms += self.answer_ms * len(ranges)
        return [self._answer(*wanted) for wanted in ranges[: self.answered_max]]


@pytest.fixture
async def log(tmp_path: Path) -> tuple[bytes, list[Record]]:
    """A log of one queue: tags Aa and BB in turn, which have one hash."""
    made = [
        message(
            number, topic="t", queue_id=0, body=b"%d" % number,
            properties=props.encode({"TAGS": ("Aa", "BB")[number % 2]}),
        )
        for number in range(COUNT)
    ]  # fmt: skip
    records = await written(tmp_path, made)
    return (tmp_path / "commitlog" / f"{0:020d}").read_bytes(), records


def found(log: tuple[bytes, list[Record]], offset: int, count: int) -> Pulled:
    """What a broker answers that has all of it."""
    data, records = log
    if offset >= COUNT:
        return Pulled(
            ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", offset, Edge(0, COUNT), b""
        )
    some = records[offset : offset + count]
    start, stop = some[0].physical_offset, some[-1].physical_offset + some[-1].size
    return Pulled(
        ResponseCode.SUCCESS, "FOUND", offset + len(some), Edge(0, COUNT), data[start:stop]
    )


def read(
    cluster: Scripted,
    start: int = 0,
    stop: int = COUNT,
    warnings: list[str] | None = None,
    **options: str,
) -> list[int]:
    """The queue offsets of what is read."""
    given = {"nameServer": "a:1", "topic": "t", **options}
    if warnings is not None:
        given["failOnDataLoss"] = "false"
    reader = RangeReader(
        cluster,  # type: ignore[arg-type]
        read_options(given),
        tuple(SCHEMA.names),
        (warnings if warnings is not None else []).append,
    )
    rows: list[dict[str, Any]] = [
        row for batch in reader.read(QueueRange(QUEUE, start, stop)) for row in batch.to_pylist()
    ]
    for row in rows:
        assert row["body"] == b"%d" % row["queueOffset"]
        assert row["bornTimestamp"].timestamp() >= BORN_MS / 1000
    return [row["queueOffset"] for row in rows]


async def test_range_when_read_then_exactly_that(log: tuple[bytes, list[Record]]) -> None:
    """Also when the broker brings more than was asked for, or begins earlier."""
    assert read(Scripted(lambda at, count: found(log, at, count))) == list(range(COUNT))
    wide = Scripted(lambda at, _: found(log, max(0, at - 3), 9)._replace(next_offset=at + 6))
    assert read(wide, 4, 8) == [4, 5, 6, 7]
    assert read(Scripted(lambda at, count: found(log, at, count)), 3, 3) == []


async def test_range_when_answers_are_full_then_ever_more_are_asked_for_at_once(
    log: tuple[bytes, list[Record]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other, each would wait for the network once."""
    monkeypatch.setattr(pulling, "PULLS_AT_ONCE", 6)
    cluster = Scripted(lambda at, count: found(log, at, count))
    assert read(cluster, pullBatchSize="1") == list(range(COUNT))
    assert cluster.asked == [[0], [1, 2], [3, 4, 5, 6], [*range(7, 13)], [*range(13, 19)], [19]]


async def test_range_when_answers_are_large_then_few_are_asked_for_at_once(
    log: tuple[bytes, list[Record]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They wait in a worker's memory."""
    monkeypatch.setattr(pulling, "AHEAD_BYTES", 3 * max(one.size for one in log[1]))
    cluster = Scripted(lambda at, count: found(log, at, count))
    assert read(cluster, pullBatchSize="1") == list(range(COUNT))
    assert max(len(one) for one in cluster.asked) == 3
    monkeypatch.setattr(pulling, "AHEAD_BYTES", 1)
    cluster = Scripted(lambda at, count: found(log, at, count))
    assert read(cluster, pullBatchSize="1") == list(range(COUNT))
    assert cluster.asked == [[at] for at in range(COUNT)]


async def test_range_when_the_network_is_slow_then_few_are_asked_for_at_once(
    log: tuple[bytes, list[Record]],
) -> None:
    """Answers wait for each other: with too many of them, all would come too late, for ever."""
    cluster = Scripted(lambda at, count: found(log, at, count))
    cluster.answer_ms = 100
    assert read(cluster, pullBatchSize="1", pullTimeoutMs="1200") == list(range(COUNT))
    assert [len(one) for one in cluster.asked] == [1, 2, 4, 2, 4, 2, 4, 1]


async def test_range_when_pulls_ahead_fail_then_as_many_are_asked_for_as_were_answered(
    log: tuple[bytes, list[Record]],
) -> None:
    """Those that failed are asked for again when it is their turn."""
    cluster = Scripted(lambda at, count: found(log, at, count))
    cluster.answered_max = 3
    assert read(cluster, pullBatchSize="1") == list(range(COUNT))
    assert [len(one) for one in cluster.asked] == [1, 2, 4, 3, 6, 3, 5, 2]


async def test_range_when_answers_have_little_room_then_less_is_asked_for_at_once(
    log: tuple[bytes, list[Record]],
) -> None:
    """A broker ends an answer after so many bytes: what was asked for behind it is of no use."""
    cluster = Scripted(lambda at, count: found(log, at, min(count, 4)))
    assert read(cluster, pullBatchSize="8") == list(range(COUNT))
    assert cluster.asked[:2] == [[0], [4, 7]]
    assert sum(len(one) for one in cluster.asked) <= 1 + math.ceil(COUNT / 3)


async def test_range_when_a_filter_passes_over_messages_then_one_is_asked_for_at_a_time(
    log: tuple[bytes, list[Record]],
) -> None:
    """Nobody knows where the next pull begins."""
    cluster = Scripted(lambda at, count: found(log, at, count)._replace(next_offset=at + 5))
    offsets = read(cluster, pullBatchSize="2", subExpression="Aa || BB")
    assert offsets == [at for at in range(COUNT) if at % 5 < 2]
    assert cluster.asked[0] == [0]
    assert [one[0] for one in cluster.asked] == [0, 5, 10, 15]
    assert sum(len(one) for one in cluster.asked) <= 2 * len(cluster.asked)


@pytest.mark.slow
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kinds=st.lists(st.integers(0, 7)),
    batch=st.integers(1, 9),
    start=st.integers(0, COUNT),
    answered_max=st.integers(1, 9),
)
def test_range_when_answers_differ_then_every_message_once(
    log: tuple[bytes, list[Record]], kinds: list[int], batch: int, start: int, answered_max: int
) -> None:
    """Short ones, wide ones, empty ones of a new master: whatever was asked for ahead of them."""
    left = iter(kinds)

    def answer(at: int, count: int) -> Pulled:
        match next(left, 7):
            case 0:
                return Pulled(ResponseCode.PULL_NOT_FOUND, "", at, Edge(0, 0), b"")
            case 1:
                return found(log, at, COUNT)
            case 2 | 3:
                return found(log, at, max(1, count // 2))
            case _:
                return found(log, at, count)

    cluster = Scripted(answer)
    cluster.failover_timeout_ms = 1 << 40
    cluster.answered_max = answered_max
    assert read(cluster, start, pullBatchSize=str(batch)) == list(range(start, COUNT))


async def test_tags_when_their_hashes_are_equal_then_told_apart(
    log: tuple[bytes, list[Record]],
) -> None:
    """A broker passes both."""
    cluster = Scripted(lambda at, count: found(log, at, count))
    assert read(cluster, subExpression="BB") == list(range(1, COUNT, 2))


async def test_end_when_it_comes_late_then_waited_for(log: tuple[bytes, list[Record]]) -> None:
    """A new master says that there is nothing, or sends back; then it has it all."""
    for code, following in (
        (ResponseCode.PULL_NOT_FOUND, 5),
        (ResponseCode.PULL_OFFSET_MOVED, 2),
        (ResponseCode.PULL_OFFSET_MOVED, 9),
        (ResponseCode.PULL_RETRY_IMMEDIATELY, 5),
    ):
        said: list[int] = []

        def answer(
            at: int,
            count: int,
            code: int = code,
            following: int = following,
            said: list[int] = said,
        ) -> Pulled:
            said.append(at)
            if at == 5 and said.count(5) < 4:
                return Pulled(code, "", following, Edge(0, 2), b"")
            return found(log, at, min(count, 5 - at if at < 5 else count))

        assert read(Scripted(answer)) == list(range(COUNT))
        assert said.count(5) == 4


@pytest.mark.parametrize(
    "gap",
    [
        Pulled(ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", 8, Edge(8, COUNT), b""),
        Pulled(ResponseCode.PULL_RETRY_IMMEDIATELY, WAS_REMOVING, 8, Edge(0, COUNT), b""),
        Pulled(ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE", 8, Edge(0, COUNT), b""),
    ],
    ids=["before the first", "file deleted", "passed over"],
)
async def test_messages_when_deleted_then_lost_and_the_rest_is_read(
    log: tuple[bytes, list[Record]], gap: Pulled
) -> None:
    """Between the plan and the task; a pull that passes over them is no filter at work."""

    def answer(at: int, count: int) -> Pulled:
        return gap if at < 8 else found(log, at, count)

    with pytest.raises(DataLost, match="before 8 have been deleted; offset 0 was next, 8 is"):
        read(Scripted(answer))
    warnings: list[str] = []
    assert read(Scripted(answer), warnings=warnings) == list(range(8, COUNT))
    assert len(warnings) == 1
    by_tag = gap.code == ResponseCode.PULL_RETRY_IMMEDIATELY and gap.status != WAS_REMOVING
    if by_tag:
        assert read(Scripted(answer), subExpression="Aa") == list(range(8, COUNT, 2))


async def test_messages_when_deleted_and_a_filter_is_given_then_lost(
    log: tuple[bytes, list[Record]],
) -> None:
    """A Java broker says that it was no filter: what the messages were nobody knows any more."""
    code = ResponseCode.PULL_RETRY_IMMEDIATELY
    gap = Pulled(code, WAS_REMOVING, 8, Edge(0, COUNT), b"")

    def answer(at: int, count: int) -> Pulled:
        return gap if at < 8 else found(log, at, count)

    with pytest.raises(DataLost, match="before 8 have been deleted; offset 0 was next, 8 is"):
        read(Scripted(answer), subExpression="Aa")


async def test_end_when_it_comes_late_twice_then_waited_for_each_time(
    log: tuple[bytes, list[Record]],
) -> None:
    """Each time for as long as may be; what came between was progress."""
    since: dict[int, int] = {}

    def answer(at: int, count: int) -> Pulled:
        now_ms, is_next = cluster.now_ms(), cluster.asked[-1][0] == at
        # What is asked for ahead of its turn does not begin a stall.
        if at in (5, 10) and (not is_next or now_ms - since.setdefault(at, now_ms) < stall_ms):
            return Pulled(ResponseCode.PULL_NOT_FOUND, "", at, Edge(0, at), b"")
        return found(log, at, min(count, 5))

    cluster = Scripted(answer)
    stall_ms = cluster.failover_timeout_ms * 3 // 5
    assert read(cluster, pullBatchSize="5") == list(range(COUNT))
    assert cluster.now_ms() > cluster.failover_timeout_ms


async def test_end_when_it_never_comes_then_lost(log: tuple[bytes, list[Record]]) -> None:
    """After ``failoverTimeoutMs``, and with everything before it read."""
    cluster = Scripted(lambda at, count: found(log, at, count))
    with pytest.raises(DataLost, match="ends at 20, before 25"):
        read(cluster, 0, 25)
    assert cluster.now_ms() >= cluster.failover_timeout_ms
    warnings: list[str] = []
    assert read(Scripted(lambda at, count: found(log, at, count)), 0, 25, warnings) == list(
        range(COUNT)
    )


async def test_answers_when_they_bring_nothing_and_the_end_is_far_then_resumed_where_it_stood(
    log: tuple[bytes, list[Record]],
) -> None:
    """Whoever is told where reading goes on would else pass over what was never read."""
    stuck = Pulled(ResponseCode.PULL_NOT_FOUND, "", 7, Edge(0, COUNT), b"")
    cluster = Scripted(lambda at, count: found(log, at, min(count, 7 - at)) if at < 7 else stuck)
    warnings: list[str] = []
    assert read(cluster, 0, COUNT, warnings) == list(range(7))
    (told,) = warnings
    assert told.endswith("offset 7 was next, 7 is")


async def test_answer_when_it_is_no_row_of_records_then_refused(
    log: tuple[bytes, list[Record]],
) -> None:
    """Cut off, foreign, or of lengths that do not fit: no row is made of it."""
    data, records = log
    one = data[: records[0].size]
    assert record_positions(one * 2) == [0, len(one)]
    for wrong in (one[:-1], one + b"x", bytes(200), one[:4] + b"\0" + one[5:], b"\0" * 3):
        with pytest.raises(RemoteProtocolError, match="no record"):
            record_positions(wrong)
    hurt = bytearray(one)
    hurt[84:88] = (70_000).to_bytes(4)
    with pytest.raises(RemoteProtocolError, match="wrong lengths"):
        read(
            Scripted(
                lambda at, _: Pulled(
                    ResponseCode.SUCCESS, "FOUND", at + 1, Edge(0, 20), bytes(hurt)
                )
            )
        )
