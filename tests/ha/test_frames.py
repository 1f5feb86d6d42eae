"""HA frames: struct equals construct, any chunks, bounds, and what real brokers sent."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.base.errors import FrameTooLarge, HeaderMalformed, RemoteProtocolError
from rmqha.ha import layout
from rmqha.ha.epochs import EpochEntry
from rmqha.ha.frames import (
    Ack,
    HandshakeReply,
    HandshakeRequest,
    MasterFrame,
    MasterFrameParser,
    SlaveFrameParser,
    TransferHeader,
    encode_ack,
    encode_handshake_reply,
    encode_handshake_request,
    encode_transfer_header,
    without_passed,
)
from rmqha.ha.settings import EPOCH_ENTRIES_MAX, RECEIVED_BODY_BYTES_MAX

GOLDEN = Path(__file__).parent.parent / "golden" / "5.3.3" / "ha.jsonl"
I32 = st.integers(-(2**31), 2**31 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
REQUESTS = st.builds(HandshakeRequest, I64, st.booleans(), st.booleans())
ENTRIES = st.lists(st.builds(EpochEntry, I32, I64), max_size=5).map(tuple)
REPLIES = st.builds(HandshakeReply, I64, I32, ENTRIES)
HEADERS = st.builds(TransferHeader, st.integers(0, 60), I64, I32, I64, I64)


def read_master(data: bytes, cuts: list[int]) -> tuple[list[MasterFrame], bytes]:
    """Parse a master's stream in pieces; returns its frames and all body bytes."""
    parser, frames, bodies = MasterFrameParser(), [], b""
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for start, end in itertools.pairwise(edges):
        piece = data[start:end]
        while piece:
            size = parser.body_pending or parser.wanted
            assert size > 0
            part, piece = piece[:size], piece[size:]
            if parser.body_pending:
                bodies += part
                parser.body_received(len(part))
            elif (frame := parser.feed(part)) is not None:
                frames.append(frame)
    return frames, bodies


def encode(frame: MasterFrame) -> bytes:
    if isinstance(frame, HandshakeReply):
        return encode_handshake_reply(frame)
    return encode_transfer_header(frame) + b"\xda" * frame.body_size


@given(REQUESTS, REPLIES, HEADERS, I64)
def test_struct_equals_construct(
    request: HandshakeRequest, reply: HandshakeReply, header: TransferHeader, offset: int
) -> None:
    """construct is the specification, struct is what runs."""
    drawn = layout.HANDSHAKE_REQUEST.parse(encode_handshake_request(request))
    assert request == HandshakeRequest(
        drawn.slave_id, drawn.sync_from_last_file == 1, drawn.async_learner == 1
    )
    assert layout.HANDSHAKE_REQUEST.build(dict(drawn)) == encode_handshake_request(request)
    drawn = layout.HANDSHAKE_REPLY.parse(encode_handshake_reply(reply))
    entries = tuple(EpochEntry(one.epoch, one.start_offset) for one in drawn.entries)
    assert reply == HandshakeReply(drawn.max_offset, drawn.last_epoch, entries)
    assert layout.HANDSHAKE_REPLY.build(dict(drawn)) == encode_handshake_reply(reply)
    drawn = layout.TRANSFER.parse(encode(header))
    values = (drawn.body_size, drawn.offset, drawn.epoch, drawn.epoch_start, drawn.confirm_offset)
    assert header == TransferHeader(*values)
    assert layout.TRANSFER.build(dict(drawn)) == encode(header)
    assert layout.ACK.parse(encode_ack(offset)).offset == offset
    assert layout.ACK.build({"offset": offset}) == encode_ack(offset)


@given(st.lists(st.one_of(REPLIES, HEADERS), max_size=6), st.lists(st.integers(0, 999)))
def test_a_masters_stream_is_read_in_any_chunks(frames: list[MasterFrame], cuts: list[int]) -> None:
    """A reply comes in pieces, and bodies begin anywhere in a segment."""
    found, bodies = read_master(b"".join(encode(frame) for frame in frames), cuts)
    assert found == frames
    sizes = [frame.body_size for frame in frames if isinstance(frame, TransferHeader)]
    assert bodies == b"\xda" * sum(sizes)


@given(st.lists(st.one_of(REQUESTS, st.builds(Ack, I64)), max_size=6), st.integers(1, 40))
def test_a_slaves_stream_is_read_in_any_chunks(
    frames: list[HandshakeRequest | Ack], chunk: int
) -> None:
    """Java takes 12 bytes of a handshake for the whole. Handshakes come before acknowledgements."""
    frames.sort(key=lambda one: isinstance(one, Ack))
    data = b"".join(
        encode_ack(one.offset) if isinstance(one, Ack) else encode_handshake_request(one)
        for one in frames
    )
    parser = SlaveFrameParser()
    pieces = [data[at : at + chunk] for at in range(0, len(data), chunk)]
    assert [frame for piece in pieces for frame in parser.feed(piece)] == frames


def test_documented_examples() -> None:
    """The bytes of the reference."""
    assert encode_handshake_request(HandshakeRequest(2)).hex() == "00000001000000000000000000000002"
    reply = HandshakeReply(3280, 2, (EpochEntry(1, 0), EpochEntry(2, 1580)))
    assert encode_handshake_reply(reply).hex() == (
        "00000001000000180000000000000cd00000000200000001000000000000000000000002000000000000062c"
    )
    assert encode_ack(0x6CA).hex() == "0000000200000000000006ca"


@pytest.mark.parametrize("state", [0, 3, 4, 5, -1, 0x47455420])
def test_6306_an_unknown_state_ends_the_connection(state: int) -> None:
    """#6306: going on in a stream that makes no sense loops for ever."""
    junk = state.to_bytes(4, "big", signed=True) + bytes(40)
    parser = SlaveFrameParser()
    good = encode_handshake_request(HandshakeRequest(7))
    assert parser.feed(good + junk) == [HandshakeRequest(7)]
    with pytest.raises(HeaderMalformed):
        parser.feed(b"")
    with pytest.raises(HeaderMalformed):
        MasterFrameParser().feed(junk[:20])


@pytest.mark.parametrize("size", [-1, RECEIVED_BODY_BYTES_MAX + 1, -(2**31), 2**31 - 1])
def test_a_body_over_the_limit_or_negative_ends_the_connection(size: int) -> None:
    """An announced size is never believed without a bound."""
    parser = MasterFrameParser()
    header = encode_transfer_header(TransferHeader(size, 0, 1, 0, 0))
    with pytest.raises(FrameTooLarge):
        feed_all(parser, header)


def test_the_largest_body_is_taken() -> None:
    """The bound itself is inside."""
    parser = MasterFrameParser()
    feed_all(parser, encode_transfer_header(TransferHeader(RECEIVED_BODY_BYTES_MAX, 0, 1, 0, 0)))
    assert parser.body_pending == RECEIVED_BODY_BYTES_MAX


@pytest.mark.parametrize("size", [-12, 13, (EPOCH_ENTRIES_MAX + 1) * 12])
def test_epochs_of_a_broken_size_end_the_connection(size: int) -> None:
    """The number of epochs is bounded."""
    header = bytearray(encode_handshake_reply(HandshakeReply(0, 0, ())))
    header[4:8] = size.to_bytes(4, "big", signed=True)
    with pytest.raises(RemoteProtocolError):
        MasterFrameParser().feed(bytes(header))


def feed_all(parser: MasterFrameParser, data: bytes) -> None:
    while data:
        size = parser.wanted
        parser.feed(data[:size])
        data = data[size:]


def test_g9_more_epochs_than_a_java_master_can_send() -> None:
    """1001 entries arrive."""
    entries = tuple(EpochEntry(number, number * 10) for number in range(1001))
    reply = HandshakeReply(10_010, 1000, entries)
    assert read_master(encode_handshake_reply(reply), [500])[0] == [reply]


def test_golden_streams_of_real_brokers_decode_and_encode_again() -> None:
    """#5157: the wire as it is, not as documents have it."""
    streams: dict[tuple[int, str], bytes] = {}
    for line in GOLDEN.read_text().splitlines():
        part = json.loads(line)
        key = (part["conn"], part["dir"])
        streams[key] = streams.get(key, b"") + bytes.fromhex(part["hex"])
    assert len(streams) == 6
    for (_, direction), data in streams.items():
        if direction == "c2s":
            frames = SlaveFrameParser().feed(data)
            again = b"".join(
                encode_ack(one.offset) if isinstance(one, Ack) else encode_handshake_request(one)
                for one in frames
            )
            assert again == data
        else:
            found, bodies = read_master(data, [17, 33, 1000])
            again = b""
            for frame in found:
                again += encode(frame)[:36] if isinstance(frame, TransferHeader) else encode(frame)
                if isinstance(frame, TransferHeader):
                    again += bodies[: frame.body_size]
                    bodies = bodies[frame.body_size :]
            assert again == data


@pytest.mark.parametrize("epochs", [0, 1, 2, 5])
def test_g1_a_late_handshake_reply_between_transfer_frames(epochs: int) -> None:
    """Transfer headers are read in one piece; a shorter reply loses nothing of the next one."""
    entries = tuple(EpochEntry(number, number * 10) for number in range(epochs))
    reply = HandshakeReply(100, epochs - 1, entries)
    header = TransferHeader(0, 100, 1, 0, 90)
    parser, found = MasterFrameParser(), []
    data = b"".join(
        encode_transfer_header(one)
        if isinstance(one, TransferHeader)
        else encode_handshake_reply(one)
        for one in (header, reply, reply, header, header)
    )
    while data:
        size = parser.wanted
        frame = parser.feed(data[:size])
        data = data[size:]
        if frame is not None:
            found.append(frame)
    assert found == [header, reply, reply, header, header]
    assert parser.wanted == 36


def test_handshake_when_it_comes_after_an_acknowledgement_then_the_stream_ends() -> None:
    """A peer that sent the two in turn, 256 KB of them at once, held its master up for 133 ms each time."""
    parser, handshake = SlaveFrameParser(), encode_handshake_request(HandshakeRequest(2))
    data = handshake * 2 + encode_ack(100) + handshake
    assert parser.feed(data) == [HandshakeRequest(2), HandshakeRequest(2), Ack(100)]
    with pytest.raises(HeaderMalformed, match="after an acknowledgement"):
        parser.feed(b"")


def test_handshakes_when_many_come_at_once_then_the_first_and_the_last_are_looked_at() -> None:
    """A slave of Java's repeats its own until it is answered; 256 KB of them took 228 ms."""
    first, last = HandshakeRequest(2), HandshakeRequest(3)
    frames = [first, *[first] * 1_000, last, Ack(1), *[Ack(2)] * 1_000, Ack(3)]
    assert without_passed(frames) == [first, last, Ack(1), Ack(3)]
