"""Records, units, checkpoint and index as bytes: Java's vectors, and construct against struct."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.base.errors import MessageIllegal
from rmqha.store import checkpoint as cp
from rmqha.store import consume_queue as cq
from rmqha.store import layout
from rmqha.store import properties as props
from rmqha.store import record as rec
from tests.store.harness import BORN, BORN_MS, HOST, message

VECTOR = bytes.fromhex(
    "0000009edaa320a709021560000000000000000000000000000000000000000000000000000000000000018bcfe56800"
    "7f000001000000000000018bcfe5687b7f00000100001fbb000000000000000000000000000000204f6e63652c207468"
    "657265207761732061206368616e636520666f72206d652106466f6f426172001d544147530154414731024b45595301"
    "3137303030303030303030303002"
)
STORED_MS = BORN_MS + 123
I32 = st.integers(-(1 << 31), (1 << 31) - 1)
I64 = st.integers(-(1 << 63), (1 << 63) - 1)
HOSTS = st.one_of(st.binary(min_size=8, max_size=8), st.binary(min_size=20, max_size=20))
TOPICS = st.one_of(
    st.text("abcXYZ_%-09", min_size=1, max_size=127), st.text("abc", min_size=128, max_size=200)
)
# A last byte of zero is what a lost page leaves; no writer ends so.
PROPERTIES = st.one_of(st.just(b""), st.binary(max_size=60).map(lambda data: data + b"\x02"))
MESSAGES = st.builds(
    rec.Message, TOPICS, I32, st.binary(max_size=300), PROPERTIES, I64, HOSTS, HOSTS,
    I32, I32, I32, I64,
)  # fmt: skip


def encode(
    msg: rec.Message, *, queue_offset: int = 0, offset: int = 0, stored: int = STORED_MS,
    crc: bool = False, lead: int = 0,
) -> bytearray:  # fmt: skip
    size = rec.encoded_size(msg, property_crc=crc)
    buffer = bytearray(lead + size)
    rec.encode_into(
        buffer, lead, msg, size=size, queue_offset=queue_offset, physical_offset=offset,
        store_timestamp=stored, property_crc=crc,
    )  # fmt: skip
    return buffer


def test_the_vector_of_java_comes_out_byte_for_byte() -> None:
    """A difference here is a commit log that Java cannot read."""
    assert encode(message()) == VECTOR


def test_the_property_crc_of_java_comes_out_byte_for_byte() -> None:
    """178 bytes, digits least significant first; one bit elsewhere no longer fits."""
    data = encode(message(), crc=True)
    assert len(data) == 178
    assert data[-11:-1] == b"8433854731"
    assert data[127:129] == b"\x00\x31"
    assert rec.check_record(data, 0, 178, 0, check_crc=True, verify_property_crc=True).size == 178
    data[20] ^= 1
    found = rec.check_record(data, 0, 178, 0, check_crc=True, verify_property_crc=True)
    assert (found.size, found.reason) == (-1, "CRC of the record does not match")


def test_unit_and_message_id_of_the_vector() -> None:
    """The consume-queue unit and the id that Java prints for the vector."""
    code = cq.unit_tags_code(b"FooBar", message().properties, STORED_MS, ())
    assert cq.UNIT.pack(0, 158, code).hex() == "00000000000000000000009e0000000000272bf7"
    assert rec.message_id(HOST, 0) == "7F00000100001FBB0000000000000000"
    assert len(rec.message_id(rec.pack_host("::1", 1), 5)) == 56
    assert rec.unpack_host(HOST) == ("127.0.0.1", 8123)


@given(MESSAGES, I64, st.integers(0, 1 << 62), I64)
def test_what_struct_writes_construct_reads(
    msg: rec.Message, queue_offset: int, offset: int, stored: int
) -> None:
    """The drawing in layout.py and the hot path must not drift apart."""
    data = encode(msg, queue_offset=queue_offset, offset=offset, stored=stored)
    drawn = layout.RECORD.parse(bytes(data))
    assert drawn.total_size == len(data)
    assert (drawn.queue_offset, drawn.physical_offset) == (queue_offset, offset)
    assert (drawn.body, drawn.topic, drawn.properties) == (
        msg.body, msg.topic.encode(), msg.properties
    )  # fmt: skip
    host = drawn.born_host
    assert host.ip + host.port.to_bytes(4, signed=True) == msg.born_host
    assert drawn.store_timestamp == stored
    assert layout.RECORD.build(drawn) == data


@given(MESSAGES, I64, st.integers(0, 1 << 62), I64, st.integers(0, 9))
def test_what_is_written_is_read_back(
    msg: rec.Message, queue_offset: int, offset: int, stored: int, lead: int
) -> None:
    """Every field of a message survives, at any place of a buffer, with IPv6 and long topics."""
    data = encode(msg, queue_offset=queue_offset, offset=offset, stored=stored, lead=lead)
    head = rec.check_record(data, lead, len(data), offset, check_crc=True)
    assert head.size == len(data) - lead, head.reason
    found = rec.decode(memoryview(data), head)
    assert found.body == msg.body
    assert (found.topic, found.properties) == (msg.topic, msg.properties)
    assert (found.born_host, found.store_host) == (msg.born_host, msg.store_host)
    assert (found.queue_id, found.flag, found.queue_offset) == (
        msg.queue_id, msg.flag, queue_offset
    )  # fmt: skip
    assert (found.born_timestamp, found.store_timestamp) == (msg.born_timestamp, stored)
    assert (found.reconsume_times, found.prepared_transaction_offset) == (
        msg.reconsume_times, msg.prepared_transaction_offset
    )  # fmt: skip
    assert found.sys_flag & ~0x30 == msg.sys_flag & ~0x30
    assert found.physical_offset == offset


@given(st.binary(max_size=400), st.integers(0, 10))
def test_no_bytes_make_the_checker_fall_over(data: bytes, position: int) -> None:
    """Recovery reads whatever a disk holds."""
    position = min(position, len(data))
    assert rec.check_record(data, position, len(data), 0, check_crc=True).size >= -1


@given(
    st.integers(0, 157), st.integers(0, 255),
    st.sampled_from([rec.MAGIC_V1, rec.MAGIC_V2]), st.integers(-5, 200),
)  # fmt: skip
def test_a_changed_byte_never_makes_the_checker_fall_over(
    at: int, value: int, magic: int, size: int
) -> None:
    """Valid magic with wrong lengths is what a flipped bit leaves."""
    data = bytearray(VECTOR)
    struct.pack_into(">iI", data, 0, size, magic)
    data[at] = value
    found = rec.check_record(data, 0, len(data), 0, check_crc=True)
    assert found.size <= len(data)
    assert found.size > 0 or found.size == 0 or found.reason


@pytest.mark.parametrize(
    ("at", "reason"),
    [(4, "unknown magic"), (35, "says that its offset is 1"), (88, "CRC of the body"),
     (87, "does not fit"), (3, "not 159 bytes long")],
)  # fmt: skip
def test_a_damaged_record_is_named(at: int, reason: str) -> None:
    """The message tells an operator what is wrong with the bytes."""
    data = bytearray(VECTOR) + bytes(50)
    data[at] ^= 1 if at not in (87,) else 0x80
    found = rec.check_record(data, 0, len(data), 0, check_crc=True)
    assert found.size == -1
    assert reason in found.reason


def test_records_of_another_place_are_no_records() -> None:
    """Bytes of a cut tail, still in the file, must not come back."""
    assert rec.check_record(encode(message(), offset=158), 0, 158, 0, check_crc=True).size == -1


@pytest.mark.parametrize("cut", [1, 5, 20, 40])
def test_a_lost_page_behind_the_body_is_noticed(cut: int) -> None:
    """The CRC covers the body only: a power cut that takes the page of the properties must show."""
    lead = 4096 - 158 + cut
    data = encode(message(), lead=lead)
    assert not rec.lost_page(data, rec.check_record(data, lead, len(data), 0, check_crc=True))
    data[4096:] = bytes(cut)
    found = rec.check_record(data, lead, len(data), 0, check_crc=True)
    assert found.size == -1 or rec.lost_page(data, found)


@pytest.mark.parametrize("lead", range(3900, 4097))
def test_a_long_topic_s_size_at_the_end_of_a_page_is_no_lost_page(lead: int) -> None:
    """Its first byte is zero: one of 4,096 such records was taken for damaged at the next start."""
    data = encode(message(topic="t" * 200, body=b"b" * 100), lead=lead)
    assert not rec.lost_page(data, rec.check_record(data, lead, len(data), 0, check_crc=True))


def test_a_record_without_properties_has_lost_no_page() -> None:
    """It ends with the zeros of their size."""
    data = encode(message(properties=b""))
    assert not rec.lost_page(data, rec.check_record(data, 0, len(data), 0, check_crc=True))


@pytest.mark.parametrize("properties", [b"A\x01b\0", b"A\x01" + bytes(4095) + b"\x02", b"\0"])
def test_properties_that_look_like_a_lost_page_are_refused(properties: bytes) -> None:
    """The store that holds them would be taken for damaged at its next start, on every replica."""
    with pytest.raises(MessageIllegal, match="zero byte"):
        rec.encoded_size(message(properties=properties), property_crc=False)
    harmless = b"A\x01" + bytes(4094) + b"\x02"
    for lead in (0, 4096 - 110, 4096 - 105, 4096 - 100):
        data = encode(message(properties=harmless), lead=lead)
        assert not rec.lost_page(data, rec.check_record(data, lead, len(data), 0, check_crc=True))


def test_a_message_that_fits_no_field_is_refused() -> None:
    """An i16 or i8 that wraps would damage the log."""
    with pytest.raises(MessageIllegal, match="properties"):
        rec.encoded_size(message(properties=bytes(32_768)), property_crc=False)
    with pytest.raises(MessageIllegal, match="topic"):
        rec.encoded_size(message(topic=""), property_crc=False)
    with pytest.raises(MessageIllegal, match="topic"):
        rec.encoded_size(message(topic="ü" * 100), property_crc=False)
    with pytest.raises(MessageIllegal, match="IP address"):
        rec.pack_host("example", 1)
    assert rec.encoded_size(message(topic="t" * 128), property_crc=False) == 152 + 128 + 1


@pytest.mark.costly
@given(st.dictionaries(st.text(min_size=1).filter(lambda t: "\x01" not in t and "\x02" not in t),
                       st.text(min_size=1).filter(lambda t: "\x01" not in t and "\x02" not in t)))  # fmt: skip
def test_properties_come_back(pairs: dict[str, str]) -> None:
    """Names and values of any text but the separators and halves of pairs."""
    try:
        data = props.encode(pairs)
    except MessageIllegal:
        return
    kept = {k: v for k, v in pairs.items() if len(k) + len(v) + 1 >= 3}
    assert props.decode(data) == kept
    assert props.decode(data[:-1]) == kept
    for name, value in kept.items():
        assert props.find(data, name.encode()) == value.encode()


@given(st.binary(max_size=60), st.sampled_from([b"TAGS", b"KEYS", b"A"]))
def test_searching_a_property_equals_decoding_all(data: bytes, name: bytes) -> None:
    """The dispatcher's search must see what a consumer's decoder sees."""
    found = props.find(data, name)
    pieces = [p.partition(b"\x01") for p in data.split(b"\x02")]
    values = [value for key, separator, value in pieces if separator and key == name]
    assert found == (values[-1] or None if values else None)


@given(
    st.lists(st.sampled_from([b"TAGS", b"A", b"\x01", b"\x02", b"v"]), max_size=20).map(b"".join)
)
def test_values_when_read_by_name_then_each_as_the_search_gives_it(data: bytes) -> None:
    """The broker's rules ask the one, services and the dispatcher the other."""
    named = props.by_name(data)
    for name in (b"TAGS", b"A", b"v", b"AA", b"TAGSA"):
        assert named.get(name) == props.find(data, name)


@given(
    st.lists(st.sampled_from([b"TAGS", b"A", b"\x01", b"\x02", b"v"]), max_size=20).map(b"".join),
    st.dictionaries(st.sampled_from([b"TAGS", b"A", b"v"]), st.sampled_from([b"1", b"A"])),
)
def test_properties_when_set_together_then_as_one_after_another(
    data: bytes, pairs: dict[bytes, bytes]
) -> None:
    """A delayed record would differ from Java's by the order of its properties."""
    single = data
    for name, value in pairs.items():
        single = props.put(single, name, value)
    assert props.put_all(data, pairs) == single


@pytest.mark.parametrize(
    ("text", "value"), [("", 0), ("TAG1", 2567159), ("polygenelubricants", -(1 << 31)), ("ü", 252),
                        ("\U0001f600", 1772899)]
)  # fmt: skip
def test_hash_codes_are_those_of_java(text: str, value: int) -> None:
    """Consumers filter by them; the strings are well known."""
    assert props.java_hash(text) == value


@given(I64, I32, I64, I64, I64, st.integers(0, 32767))
def test_units_of_both_kinds_equal_the_drawing(
    offset: int, size: int, code: int, stored: int, base: int, number: int
) -> None:
    """20 and 46 bytes."""
    plain = cq.UNIT.pack(offset, size, code)
    drawn = layout.CONSUME_QUEUE_UNIT.parse(plain)
    assert (drawn.physical_offset, drawn.size, drawn.tags_code) == (offset, size, code)
    assert layout.CONSUME_QUEUE_UNIT.build(drawn) == plain
    unit = cq.BatchUnit(offset, size, code, stored, base, number)
    batch = cq.BATCH_UNIT.pack(*unit)
    fields: Any = layout.BATCH_CONSUME_QUEUE_UNIT.parse(batch)
    assert tuple(v for k, v in fields.items() if k != "_io") == unit
    assert layout.BATCH_CONSUME_QUEUE_UNIT.build(fields) == batch
    assert len(batch) == 46


_MARKS = st.one_of(st.none(), st.integers(0, (1 << 63) - 1))


@given(I64, I64, I64, I64, I64, _MARKS, _MARKS)
def test_the_checkpoint_comes_back_and_equals_the_drawing(
    physic: int, logics: int, index: int, flushed: int, confirm: int, mark: int | None,
    indexed: int | None,
) -> None:  # fmt: skip
    """Java's five longs, and our sealed marks behind them."""
    content = cp.Checkpoint(physic, logics, index, flushed, confirm, mark, indexed)
    buffer = bytearray(cp.SIZE)
    cp.write_into(buffer, content)
    assert cp.read(buffer) == content
    drawn = layout.CHECKPOINT.parse(bytes(buffer))
    assert (drawn.physic_msg_timestamp, drawn.confirm_offset) == (physic, confirm)
    assert (drawn.flushed_offset, drawn.indexed_offset) == (mark, indexed)
    struct.pack_into(">q", buffer, 32, confirm ^ 1)
    again = cp.read(buffer)
    assert (again.flushed_offset, again.indexed_offset) == (None, None)


def test_delayed_messages_are_indexed_by_their_time() -> None:
    """tagsCode of the delay topic is when the message is due."""
    levels = (1_000, 5_000)
    topic = cq.SCHEDULE_TOPIC
    for level, due in ((1, 1_000), (2, 5_000), (9, 5_000)):
        data = props.encode({"DELAY": str(level), "TAGS": "a"})
        assert cq.unit_tags_code(topic, data, 100, levels) == 100 + due
    assert cq.unit_tags_code(topic, props.encode({"TAGS": "a"}), 100, levels) == 97
    assert BORN == bytes.fromhex("7f00000100000000")
