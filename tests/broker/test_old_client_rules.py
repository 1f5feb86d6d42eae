"""The rules by which clients that know no static topics are served, without a broker around them."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.base.errors import RemoteProtocolError
from rmqha.broker.common.json_members import MessageQueue
from rmqha.broker.logical.aio.lock_requests import logical_queue
from rmqha.broker.logical.place import FORWARDED_FIELD, is_of_old_client
from rmqha.broker.pull.old_clients import answer_of_leader, logical_records
from rmqha.broker.send import strays
from rmqha.broker.send.strays import PassedHalves, is_named
from rmqha.remoting.codes import VERSION_CURRENT
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.old_clients import serves_old_clients, serving_fields
from rmqha.statictopic.mapping import TopicQueueMappingDetail, old_clients_broker_name
from rmqha.store.record import (
    Message,
    Record,
    check_record,
    decode,
    encode_into,
    encoded_size,
    message_id,
    pack_host,
)

GO, JAVA_4_9_8, JAVA_5_0_0 = 317, 409, 413
HOSTS = {4: pack_host("10.0.0.1", 10911), 6: pack_host("fd00::1", 10911)}


def record(
    body: bytes, queue_id: int, queue_offset: int, *, at: int = 0, key: str = "", host: int = 4
) -> bytes:
    """A message as a log has it."""
    properties = f"UNIQ_KEY\x01{key}\x02".encode() if key else b""
    message = Message("T", queue_id, body, properties, 5, HOSTS[host], HOSTS[host])
    size = encoded_size(message, property_crc=False)
    buffer = bytearray(size)
    encode_into(
        buffer, 0, message, size=size, queue_offset=queue_offset, physical_offset=at,
        store_timestamp=6,
    )  # fmt: skip
    return bytes(buffer)


def read(data: bytes, at: int = 0) -> Record:
    """It must be whole, with a body that its check sum is right for."""
    head = check_record(data, 0, len(data), at, check_crc=True)
    assert head.size == len(data), head.reason
    return decode(memoryview(data), head)


# -- records -----------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(
            st.binary(min_size=1, max_size=80), st.integers(0, 1 << 40), st.sampled_from([4, 6])
        ),
        max_size=6,
    ),
    st.integers(0, 65_535),
    st.integers(0, 1 << 40),
)
def test_records_when_shown_to_an_old_client_then_queue_and_offset_are_logical_and_nothing_else(
    messages: list[tuple[bytes, int, int]], queue_id: int, delta: int
) -> None:
    """It looks at no other place; whatever else changed would be taken for damage."""
    before = [
        record(body, 3, offset, at=number, host=host)
        for number, (body, offset, host) in enumerate(messages)
    ]
    after = logical_records(b"".join(before), queue_id, delta)
    at = 0
    for number, one in enumerate(before):
        old, new = read(one, number), read(after[at : at + len(one)], number)
        assert new == old._replace(
            queue_id=queue_id, queue_offset=old.queue_offset + delta, view=new.view
        )
        assert new.body == old.body
        at += len(one)
    assert at == len(after)


@pytest.mark.parametrize("cut", [1, 60, 94])
def test_records_when_they_are_not_whole_then_they_are_not_shown(cut: int) -> None:
    """Another broker may answer anything."""
    data = record(b"body", 0, 0)
    with pytest.raises(RemoteProtocolError):
        logical_records(data + data[:cut], 1, 0)
    with pytest.raises(RemoteProtocolError):
        logical_records(struct.pack(">i", 0) + data[4:], 1, 0)


def test_answer_when_a_leader_has_messages_then_their_records_and_its_advice_are_changed() -> None:
    """The replica that it suggests is one of its own set."""
    fields = {"offsetDelta": "10000", "suggestWhichBrokerId": "3", "nextBeginOffset": "10002"}
    answer = RemotingCommand(0, ext_fields=fields, body=record(b"body", 3, 1))
    shown = answer_of_leader(answer, 7)
    assert (shown.code, shown.ext_fields) == (0, fields | {"suggestWhichBrokerId": "0"})
    assert read(shown.body)[3:6:2] == (7, 10_001)
    nothing = RemotingCommand(19, remark="NO", ext_fields={"nextBeginOffset": "5"})
    shown = answer_of_leader(nothing, 7)
    assert (shown.code, shown.remark, shown.ext_fields) == (19, "NO", {"nextBeginOffset": "5"})


def test_answer_when_it_has_messages_and_no_delta_then_it_is_not_shown() -> None:
    """A Java replica that became master has lost the mapping: its offsets are of another order."""
    with pytest.raises(RemoteProtocolError):
        answer_of_leader(RemotingCommand(0, ext_fields={}, body=record(b"body", 3, 1)), 7)


# -- who is meant --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "fields", "is_old"),
    [
        (0, None, True), (GO, {}, True), (JAVA_4_9_8, {"lo": "true"}, True),
        (JAVA_5_0_0, None, False), (VERSION_CURRENT, {}, False),
        (GO, {FORWARDED_FIELD: "true"}, False),
    ],
)  # fmt: skip
def test_request_when_of_a_release_before_5_0_then_it_is_translated(
    version: int, fields: dict[str, str] | None, is_old: bool
) -> None:
    """Unless another broker has passed it on, which translates."""
    assert is_of_old_client(version, fields) is is_old


def test_registration_when_a_broker_serves_old_clients_then_it_says_so() -> None:
    """Java's brokers say nothing."""
    assert serves_old_clients(serving_fields())
    assert not serves_old_clients({"brokerName": "b"})
    assert not serves_old_clients(None)


def test_queue_when_old_clients_lock_it_then_it_has_the_name_of_new_ones() -> None:
    """Else one of each could hold it."""
    mappings = {"T": TopicQueueMappingDetail("T", 4, "broker-a", 1)}
    shown = old_clients_broker_name("__global__", "T")
    assert shown == "__syslo__global__T"
    expected = MessageQueue("T", "__syslo__global__", 3)
    assert logical_queue(mappings, MessageQueue("T", shown, 3)) == expected
    assert logical_queue(mappings, expected) == expected
    assert logical_queue(mappings, MessageQueue("T", "broker-a", 3)) is None
    assert logical_queue(mappings, MessageQueue("%RETRY%G", shown, 3)) is None


# -- what is named by its place ------------------------------------------------------------------


def test_message_when_named_by_its_place_then_its_id_has_to_fit() -> None:
    """Its UNIQ_KEY, or its place with the broker's address; no id names nothing."""
    keyed, plain = read(record(b"x", 0, 0, at=9, key="U1"), 9), read(record(b"x", 0, 0, at=9), 9)
    place = message_id(HOSTS[4], 9)
    assert all(is_named(*one) for one in ((keyed, "U1"), (keyed, place), (plain, place)))
    other = message_id(pack_host("10.0.0.2", 10911), 9)
    wrong = [
        (keyed, "U2"), (keyed, other), (plain, "U1"), (keyed, ""), (plain, ""), (None, "U1"),
    ]  # fmt: skip
    assert not any(is_named(*one) for one in wrong)


def test_half_messages_when_very_many_are_passed_on_then_the_oldest_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their own sets ask about them. One that is ended is forgotten as well."""
    monkeypatch.setattr(strays, "HALVES_KEPT_MAX", 2)
    halves = PassedHalves()
    for number in range(3):
        halves.passed_on(f"U{number}", f"broker-{number}", "T")
    found = [halves.find(f"U{number}") for number in range(3)]
    assert found == [None, ("broker-1", "T"), ("broker-2", "T")]
    halves.forget("U1")
    assert [halves.find(f"U{number}") is None for number in range(3)] == [True, True, False]
