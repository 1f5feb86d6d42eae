"""Batches of acknowledgements (200151) as Java's client makes them: a bit for each offset of the queue
from the check point's start on, however far apart the messages are that a filter let through."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from rmqha.base.errors import RemoteProtocolError
from rmqha.broker.pop.bit_sets import ACKED_MAX, ALL_BYTES_MAX, SET_BYTES_MAX
from rmqha.broker.pop.request import batch_acks, parse_key, read_batch
from rmqha.broker.pull.request import SCAN_MAX
from tests.broker.replicas import NAME, TOPIC, ReplicaCluster, master_of, send_fields
from tests.broker.test_pop_in_simulator import GROUP, INVISIBLE_MS, Popped, pop


@pytest.fixture
def cluster() -> Iterator[ReplicaCluster]:
    """One replica."""
    one = ReplicaCluster(seed=21, replicas=1)
    one.boot_all()
    yield one
    one.close()


def bit_set(bits: Iterable[int]) -> bytes:
    """The bytes of a Java BitSet."""
    number = sum(1 << bit for bit in bits)
    return number.to_bytes((number.bit_length() + 7) // 8, "little")


def entry(bits: bytes | list[int], start: int = 0, **more: Any) -> dict[str, Any]:
    """One of the request's, in Base64 or as numbers."""
    text = base64.b64encode(bits).decode() if isinstance(bits, bytes) else bits
    return {"c": GROUP, "t": TOPIC, "r": "0", "so": start, "q": 0, "rq": 0, "pt": 1, "it": 1,
            "b": text, **more}  # fmt: skip


def body_of(*entries: dict[str, Any]) -> bytes:
    """The request's."""
    return json.dumps({"brokerName": NAME, "acks": entries}).encode()


def offsets(*entries: dict[str, Any]) -> list[tuple[int, ...]]:
    """What each says is done."""
    return [one.offsets for one in batch_acks(read_batch(body_of(*entries))[1])]


def test_batch_when_a_filter_spread_the_messages_then_every_bit_counts() -> None:
    """A read looks at so many offsets for the messages of one check point."""
    far = [0, 255, 256, 3_000, SCAN_MAX]
    assert offsets(entry(bit_set(far), 70)) == [tuple(70 + bit for bit in far)]
    assert offsets(entry(list(bit_set(far)))) == [tuple(far)]
    assert offsets(entry([-128, 1])) == [(7, 8)], "bytes of Java have a sign"
    assert offsets(entry(b""), entry([])) == [(), ()]


@pytest.mark.parametrize(
    "bad",
    [bit_set([8 * SET_BYTES_MAX]), bit_set(range(ACKED_MAX + 1)), [1] * (SET_BYTES_MAX + 1)],
    ids=["too far", "too many", "too far in numbers"],
)
def test_batch_when_an_entry_is_beyond_all_measure_then_the_others_count(
    bad: bytes | list[int],
) -> None:
    """Refused with all others, messages came again that were done; Java passes such offsets over."""
    assert offsets(entry(b"\1"), entry(bad), entry(b"\2")) == [(0,), (), (1,)]


def test_batch_when_an_entry_is_as_large_as_may_be_then_it_counts() -> None:
    """The bounds themselves are within."""
    last = 8 * SET_BYTES_MAX - 1
    assert offsets(entry(bit_set([last])), entry(bit_set(range(ACKED_MAX)))) == [
        (last,), tuple(range(ACKED_MAX)),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "bad", [[0] * (ALL_BYTES_MAX + 1), ["x"] * (SET_BYTES_MAX + 3)], ids=["huge", "of no numbers"]
)
def test_batch_when_an_entry_is_passed_over_then_it_is_not_even_looked_at(bad: list[Any]) -> None:
    """It is no work, so that it does not count to what a request may hold either."""
    assert offsets(entry(bad), entry(b"\2")) == [(), (1,)]


def test_batch_when_all_entries_together_are_too_large_then_it_is_refused() -> None:
    """They are looked through at once, before anybody else is heard."""
    whole, left = divmod(ALL_BYTES_MAX, SET_BYTES_MAX)
    most = [entry([0] * SET_BYTES_MAX)] * whole + [entry([0] * left)]
    assert offsets(*most) == [()] * len(most)
    with pytest.raises(RemoteProtocolError, match="bytes"):
        read_batch(body_of(*most, entry([0])))


def batch_of(found: list[Popped], **more: Any) -> dict[str, Any]:
    """As Java's client acknowledges the messages of one check point."""
    key = parse_key(found[0].key)
    bits = bit_set(one.offset - key.start_offset for one in found)
    return entry(bits, key.start_offset, q=key.queue_id, rq=key.revive_queue, pt=key.pop_ms,
                 it=key.invisible_ms, **more)  # fmt: skip


def test_batch_ack_when_filtered_messages_are_far_apart_then_none_comes_again(
    cluster: ReplicaCluster,
) -> None:
    """A gap of 256 offsets was refused, with the acknowledgements of all other check points."""
    address, gap = master_of(cluster).config.address, 300
    for number in range(gap + 1):
        tag = "Mine" if number in (0, gap) else "Other"
        fields = {
            **send_fields(number),
            "e": "0",
            "i": f"UNIQ_KEY\x01U{number}\x02TAGS\x01{tag}\x02",
        }
        assert cluster.ask(address, 310, fields, b"body").code == 0
    found = pop(cluster, exp="Mine")[1]
    assert [one.offset for one in found] == [0, gap]
    hostile = entry(bit_set([8 * SET_BYTES_MAX]), pt=parse_key(found[0].key).pop_ms)
    answer = cluster.ask(address, 200151, {}, body_of(hostile, batch_of(found)))
    assert (answer.code, answer.remark) == (0, None)
    cluster.run_for(2 * INVISIBLE_MS)
    assert master_of(cluster).pop.revive.revived == 0
