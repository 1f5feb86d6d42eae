"""The quick loop accepts only what the careful check accepts, and makes the same units."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.store import consume_queue as cq
from rmqha.store import record as rec
from rmqha.store.scan import QueueRun, Run, scan
from tests.store.harness import BORN, BORN_MS, message

PIECES = st.sampled_from(
    [b"TAGS\x01one\x02", b"TAGS\x01two\x02", b"TAGS\x01\x02", b"MYTAGS\x01no\x02", b"KEYS\x01a b\x02",
     b"DELAY\x013\x02", b"\x02", b"TAGS\x01last", b"x" * 300 + b"\x01y\x02"]
)  # fmt: skip
PROPERTIES = st.lists(PIECES, max_size=5).map(b"".join)
V6 = BORN.ljust(20, b"\x07")
MESSAGES = st.builds(
    lambda topic, queue_id, size, properties, born, flag: message(
        queue_id=queue_id, body=b"b" * size, topic=topic, properties=properties, born_host=born,
        sys_flag=flag,
    ),
    st.sampled_from(["T", "TAGS", "another-topic", "x" * 127, "y" * 130]),
    st.integers(0, 1), st.integers(0, 5_000), PROPERTIES,
    st.sampled_from([BORN, BORN, BORN, V6]), st.sampled_from([0, 0, 0, 1, 4, 8, 0x80]),
)  # fmt: skip
LEVELS = (1_000, 5_000)


def log_of(messages: list[rec.Message]) -> tuple[bytearray, list[int]]:
    """A log of the messages, each with the next offset of its queue, and where each begins."""
    log, starts, offsets = bytearray(), [], dict[tuple[str, int], int]()
    for msg in messages:
        size = rec.encoded_size(msg, property_crc=False)
        starts.append(len(log))
        log += bytes(size)
        key = (msg.topic, msg.queue_id)
        rec.encode_into(
            log, starts[-1], msg, size=size, queue_offset=offsets.get(key, 0),
            physical_offset=starts[-1], store_timestamp=BORN_MS,
        )  # fmt: skip
        offsets[key] = offsets.get(key, 0) + 1
    return log, starts


def run_over(log: bytearray, *, check_crc: bool = True, count_max: int = 1_000) -> Run:
    """Pass what comes first, for queues that are empty."""
    return scan(
        memoryview(log), 0, len(log), 0, check_crc=check_crc, check_pages=True, count_max=count_max,
        open_queue_run=lambda topic, queue_id: QueueRun(0, 0),
    )  # fmt: skip


def careful(log: bytearray, end: int, *, check_crc: bool) -> dict[tuple[bytes, int], bytes]:
    """The units of all records before ``end``, by the careful way; each record must be good."""
    units: dict[tuple[bytes, int], bytes] = {}
    position = 0
    while position < end:
        head = rec.check_record(log, position, len(log), position, check_crc=check_crc)
        assert head.size > 0, head
        assert not (check_crc and rec.lost_page(log, head))
        properties = bytes(log[head.properties_at : head.properties_at + head.properties_size])
        code = cq.unit_tags_code(head.topic, properties, head.store_timestamp, LEVELS)
        key = (head.topic, head.queue_id)
        units[key] = units.get(key, b"") + cq.UNIT.pack(position, head.size, code)
        position += head.size
    return units


def units_of(run: Run) -> dict[tuple[bytes, int], bytes]:
    return {
        (t[1:], q): b"".join(queue_run.units)
        for (t, q), queue_run in run.queue_runs.items()
        if queue_run.units
    }


@given(st.lists(MESSAGES, max_size=8), st.booleans())
def test_units_equal_those_of_the_careful_way(messages: list[rec.Message], check: bool) -> None:
    """Another unit here would send consumers to a wrong place, or filter by a wrong tag."""
    log, starts = log_of(messages)
    run = run_over(log, check_crc=check)
    assert units_of(run) == careful(log, run.position, check_crc=check)
    assert run.position in [*starts, len(log)]
    ordinary = 0
    for msg in messages:
        unusual = msg.sys_flag & ~rec.COMPRESSED or msg.born_host == V6 or len(msg.topic) > 127
        if unusual or (check and not msg.properties):
            break
        ordinary += 1
    assert run.records == ordinary


@given(
    st.lists(MESSAGES, min_size=1, max_size=4), st.floats(0, 0.9999),
    st.one_of(st.integers(0, 7).map(lambda bit: bytes([1 << bit])), st.binary(min_size=1, max_size=9)),
)  # fmt: skip
def test_what_is_damaged_is_never_passed(
    messages: list[rec.Message], place: float, noise: bytes
) -> None:
    """The quick loop must not let through a record that the careful check would stop at."""
    log, _ = log_of(messages)
    at = int(len(log) * place)
    for number, byte in enumerate(noise[: len(log) - at]):
        log[at + number] ^= byte
    for check in (True, False):
        run = run_over(log, check_crc=check)
        assert units_of(run) == careful(log, run.position, check_crc=check)


@pytest.mark.parametrize("gone", [1, 2])
def test_a_missing_page_behind_the_body_ends_the_run(gone: int) -> None:
    """A power cut can take a page that no CRC covers."""
    properties = b"K\x01" + b"v" * 9_000 + b"\x02"
    log, _ = log_of([message(body=b"b" * 3_900, properties=properties)])
    assert run_over(log).records == 1
    log[gone * 4096 : (gone + 1) * 4096] = bytes(4096)
    assert run_over(log).records == 0
    assert run_over(log, check_crc=False).records == 1
    assert scan(memoryview(log), 0, len(log), 0, check_crc=True, count_max=9).records == 1


def test_a_run_ends_at_its_bound_and_at_a_jump_of_the_queue() -> None:
    """The dispatcher's turn is bounded; a gap is the careful way's to fill."""
    log, starts = log_of([message(number) for number in range(6)])
    assert run_over(log, count_max=4).position == starts[4]
    log[starts[3] + 20 : starts[3] + 28] = (9).to_bytes(8)
    assert run_over(log).position == starts[3]
    known = scan(
        memoryview(log), 0, len(log), 0, check_crc=True, count_max=9,
        open_queue_run=lambda topic, queue_id: QueueRun(10, len(log)),
    )  # fmt: skip
    assert (known.records, units_of(known)) == (6, {})
