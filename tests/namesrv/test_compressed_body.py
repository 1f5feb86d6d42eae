"""The compressed body of a registration: what a small frame may stand for."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Generator

import pytest

from rmqha.base.errors import RemoteProtocolError
from rmqha.namesrv import compressed_body
from rmqha.namesrv.compressed_body import BLOCK_BYTES_MAX, INFLATED_PART, PART, read_compressed
from rmqha.namesrv.registration_members import Body
from rmqha.namesrv.settings import RouteSettings
from rmqha.runtime.parts import at_once
from tests.namesrv.node import VERSION, mapping_info
from tests.namesrv.node import compressed_body as compressed

RECORD = b"T%d 3 4 6 SINGLE_TAG"


def work(body: bytes, **settings: int) -> Generator[None, None, Body]:
    """Read a body of broker ``b``."""
    return read_compressed(VERSION, body, "b", RouteSettings(**settings))


def turns(reading: Generator[None, None, Body]) -> int:
    """How often others have their turn."""
    count = 0
    for _ in reading:
        count += 1
    return count


def test_topics_when_more_are_named_than_may_be_then_none_is_read() -> None:
    """4.8 million records came out of 127 KiB, and were refused when all were read."""
    record = struct.pack(">i", 10) + b"a 8 8 6 SI"
    count = 2 * PART
    body = zlib.compress(struct.pack(">i", 2) + b"{}" + struct.pack(">i", count) + record * count)
    with pytest.raises(RemoteProtocolError, match="more than 9999 topics"):
        next(work(body, routes_max=count - 1))
    reading = work(body, routes_max=count)
    with pytest.raises(RemoteProtocolError, match="too early"):
        turns(reading)


def test_infos_when_more_are_named_than_may_be_then_none_is_read() -> None:
    """As for topics."""
    infos = [json.dumps(mapping_info(f"T{n}")).encode() for n in range(3)]
    body = compressed([], infos=infos)
    assert len(at_once(work(body, routes_max=3)).mapping_infos) == 3
    with pytest.raises(RemoteProtocolError, match="more than 2 mapping infos"):
        at_once(work(body, routes_max=2))


def test_topics_when_they_have_the_same_queues_then_they_share_one_value() -> None:
    """40,000 of them took three times as long as in the other form, and the memory of as many."""
    records = [RECORD % n for n in range(20)] + [b"other 3 4 2 SINGLE_TAG {}"]
    topics = at_once(work(compressed(records))).topics
    assert len(topics) == 21
    assert len({id(one) for one in topics.values()}) == 2
    assert topics["other"] == ("b", 2, 3, 0, 4)


def test_topics_when_no_two_have_the_same_queues_then_few_values_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is remembered is bounded, and what is read is not."""
    monkeypatch.setattr(compressed_body, "PART", 3)
    records = [b"T%d %d 4 6 SINGLE_TAG" % (n, n) for n in range(10)]
    topics = at_once(work(compressed(records))).topics
    assert [one.read_queue_nums for one in topics.values()] == list(range(10))
    again = at_once(work(compressed([*records, b"again 0 4 6 SINGLE_TAG"]))).topics
    assert again["again"] == again["T0"]
    assert again["again"] is not again["T0"], "what was remembered is forgotten once it is full"


def test_body_when_it_is_large_then_it_is_read_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inflating, topics and infos, each a part at a time."""
    blanks = b" " * (INFLATED_PART - 100)
    infos = [json.dumps(mapping_info(f"T{n}")).encode() for n in range(8)]
    body = compressed([b"A 3 4 6 SINGLE_TAG" + blanks] * 3)
    assert turns(work(body)) >= 2
    monkeypatch.setattr(compressed_body, "PART", 4)
    assert turns(work(compressed([RECORD % n for n in range(8)]))) == 2
    assert turns(work(compressed([], infos=infos))) == 8


@pytest.mark.parametrize("size", [BLOCK_BYTES_MAX + 1, -1])
def test_block_when_its_length_is_none_of_a_record_then_it_is_refused(size: int) -> None:
    """A JSON text of 64 MiB would be read in one go."""
    body = zlib.compress(struct.pack(">i", size) + b" " * (size + 100))
    with pytest.raises(RemoteProtocolError, match=f"a length of {size}"):
        at_once(work(body))
    head = struct.pack(">i", 2) + b"{}" + struct.pack(">ii", 1, BLOCK_BYTES_MAX)
    fits = zlib.compress(head + b"T 3 4 6 S ".ljust(BLOCK_BYTES_MAX))
    with pytest.raises(RemoteProtocolError, match="too early"):
        at_once(work(fits))


@pytest.mark.parametrize("count", [-1, -(2**31)])
def test_count_when_it_is_negative_then_it_is_refused(count: int) -> None:
    """Not taken for none."""
    body = zlib.compress(struct.pack(">i", 2) + b"{}" + struct.pack(">i", count))
    with pytest.raises(RemoteProtocolError, match=f"a length of {count}"):
        at_once(work(body))


@pytest.mark.parametrize(
    "record", [b" 3 4 6 S", b"T\xff 3 4 6 S", b"T 3 4 \xff S", b"T 3 4 6", b"T"]
)
def test_record_when_it_is_none_then_it_is_refused(record: bytes) -> None:
    """A name, three numbers and a kind of filter."""
    with pytest.raises(RemoteProtocolError, match="topic record"):
        at_once(work(compressed([record])))


def test_info_when_java_wrote_its_keys_bare_then_it_is_read() -> None:
    """In this form, too."""
    info = b'{"bname":"b","topic":"A","currIdMap":{0:0,1:5},"totalQueues":2}'
    assert at_once(work(compressed([], infos=[info]))).mapping_infos["A"].curr_id_map == (
        (0, 0), (1, 5),
    )  # fmt: skip
