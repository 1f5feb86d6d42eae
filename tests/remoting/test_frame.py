"""Frames: round trips, any chunking, limits, and that no input does worse than a protocol error."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.base.errors import (
    FrameTooLarge,
    HeaderMalformed,
    LocalProtocolError,
    RemoteProtocolError,
)
from rmqha.remoting.command import SERIALIZE_ROCKETMQ, RemotingCommand
from rmqha.remoting.frame import FrameDecoder, encode
from rmqha.remoting.layout import BINARY_HEADER, FRAME
from tests.remoting.strategies import commands

GOLDEN_JSON_HEADER = (
    b'{"code":1005,"flag":0,"language":"JAVA","opaque":7,'
    b'"serializeTypeCurrentRPC":"JSON","version":479}'
)
GOLDEN_BINARY = (
    "00000031 0100002d 03ec 00 01df 00000007 00000000 00000000 00000018 "
    "000a 62726f6b65724e616d65 00000008 62726f6b65722d61"
)


def frame_of(header: bytes, body: bytes = b"", serialize_type: int = 0) -> bytes:
    """A frame around any header bytes."""
    total = 4 + len(header) + len(body)
    return struct.pack(">iI", total, serialize_type << 24 | len(header)) + header + body


def test_json_frame_is_the_reference_vector() -> None:
    """A wrong prefix and no peer finds the header."""
    command = RemotingCommand(1005, opaque=7, language="JAVA", version=479)
    expected = bytes.fromhex("0000006600000062") + GOLDEN_JSON_HEADER
    assert expected == encode(command)
    assert [command] == FrameDecoder().feed(expected)


def test_binary_frame_is_the_reference_vector() -> None:
    """A wrong field width and every binary peer closes the connection."""
    command = RemotingCommand(
        1004, 7, 0, "JAVA", 479, None, {"brokerName": "broker-a"}, b"", SERIALIZE_ROCKETMQ
    )
    expected = bytes.fromhex(GOLDEN_BINARY)
    assert expected == encode(command)
    assert [command] == FrameDecoder().feed(expected)


@pytest.mark.slow
@given(st.lists(commands(), max_size=6), st.data())
def test_any_chunking_gives_the_same_commands(
    sent: list[RemotingCommand], data: st.DataObject
) -> None:
    """TCP cuts anywhere; a decoder that cares loses or invents requests."""
    stream = b"".join(map(encode, sent))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    decoder = FrameDecoder()
    received: list[RemotingCommand] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        received += decoder.feed(stream[start:end])
    assert sent == received
    assert not decoder._pending


@given(commands())
def test_every_command_survives_byte_by_byte(sent: RemotingCommand) -> None:
    """The smallest chunks cross every boundary inside the prefix."""
    decoder = FrameDecoder()
    received = [c for byte in encode(sent) for c in decoder.feed(bytes([byte]))]
    assert [sent] == received


@pytest.mark.costly
@given(commands())
def test_layout_reads_what_struct_writes(command: RemotingCommand) -> None:
    """The drawn layout is the specification; the fast code must be the same."""
    raw = encode(command)
    drawn = FRAME.parse(raw)
    assert len(raw) == drawn.total_length + 4
    assert command.serialize_type == drawn.serialize_type
    assert command.body == drawn.body
    if command.serialize_type == SERIALIZE_ROCKETMQ:
        header = BINARY_HEADER.parse(drawn.header)
        fields = {item.key.decode(): item.value.decode() for item in header.ext_fields}
        assert (command.code, command.version, command.opaque, command.flag) == (
            header.code, header.version, header.opaque, header.flag,
        )  # fmt: skip
        assert (command.remark or "").encode() == header.remark
        assert (command.ext_fields or {}) == fields


@given(commands(serialize_type=SERIALIZE_ROCKETMQ))
def test_struct_reads_what_the_layout_writes(command: RemotingCommand) -> None:
    """The other direction of the same equality, to the byte."""
    parsed = BINARY_HEADER.parse(FRAME.parse(encode(command)).header)
    header = BINARY_HEADER.build(parsed)
    raw = FRAME.build(
        {
            "total_length": 4 + len(header) + len(command.body),
            "serialize_type": SERIALIZE_ROCKETMQ,
            "header_length": len(header),
            "header": header,
            "body": command.body,
        }
    )
    assert encode(command) == raw
    assert [command] == FrameDecoder().feed(raw)


@given(st.binary(max_size=200))
def test_noise_raises_only_protocol_errors(noise: bytes) -> None:
    """Any other exception would leave the connection half handled."""
    feed_all(noise)


@given(st.binary(max_size=120), st.binary(max_size=10), st.sampled_from([0, 1]))
def test_noise_in_a_header_raises_only_protocol_errors(
    header: bytes, body: bytes, serialize_type: int
) -> None:
    """Framed noise reaches the header codecs behind the length checks."""
    feed_all(frame_of(header, body, serialize_type))


@given(commands(), st.data())
def test_damaged_frames_raise_only_protocol_errors(
    command: RemotingCommand, data: st.DataObject
) -> None:
    """Almost-valid input reaches the nested lengths that noise rarely reaches."""
    raw = bytearray(encode(command))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    feed_all(bytes(raw))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@pytest.mark.costly
@given(
    st.dictionaries(
        st.sampled_from(["code", "opaque", "flag", "version", "language", "remark", "extFields"]),
        json_values,
    )
)
def test_json_headers_of_any_shape_raise_only_protocol_errors(header: dict[str, object]) -> None:
    """Well-formed JSON of the wrong types must not become a TypeError."""
    import json

    feed_all(frame_of(json.dumps(header).encode("utf-8", "surrogatepass")))


def test_deeply_nested_ext_field_is_malformed() -> None:
    """The JSON library reads deeper than it writes; that edge must stay a protocol error."""
    deep = b"[" * 600 + b"]" * 600
    with pytest.raises(HeaderMalformed):
        FrameDecoder().feed(frame_of(b'{"code":1,"extFields":{"a":' + deep + b"}}"))


def feed_all(stream: bytes) -> None:
    """Feed a stream whole and byte by byte: the same commands and the same kind of end."""
    outcomes = []
    for chunks in ([stream], [bytes([byte]) for byte in stream]):
        decoder = FrameDecoder(frame_bytes_max=4096, header_bytes_max=1024)
        received: list[RemotingCommand] = []
        try:
            for chunk in [*chunks, b""]:
                received += decoder.feed(chunk)
        except RemoteProtocolError as error:
            outcomes.append((received, type(error)))
        else:
            outcomes.append((received, None))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (b"GET / HTTP/1.1\r\n", "HTTP"),
        (b"POST", "HTTP"),
        (b"PRI * HTTP/2.0", "HTTP"),
        (b"\x16\x03\x01\x02\x00", "TLS to a plain-text port"),
        (b"HTTP/1.1 400 Bad Request\r\n", "an HTTP port, of a status page or of metrics"),
        (b"\x7f\xff\xff\xff", "outside"),
        (b"\xff\xff\xff\xff", "outside"),
        (b"\x00\x00\x00\x03", "outside"),
    ],
)
def test_other_protocols_are_named(start: bytes, words: str) -> None:
    """An operator who points a browser or a TLS client here should read why it fails."""
    with pytest.raises(FrameTooLarge, match=words):
        FrameDecoder().feed(start)


def test_frame_limit_counts_the_prefix() -> None:
    """Java counts the prefix; one byte of disagreement closes connections at the limit."""
    command = RemotingCommand(1, body=b"x" * 100)
    size = len(encode(command))
    assert [command] == FrameDecoder(frame_bytes_max=size).feed(encode(command))
    with pytest.raises(FrameTooLarge):
        FrameDecoder(frame_bytes_max=size - 1).feed(encode(command)[:4])
    assert size == len(encode(command, frame_bytes_max=size))
    with pytest.raises(LocalProtocolError):
        encode(command, frame_bytes_max=size - 1)


def test_header_limit_is_checked_before_the_header_arrives() -> None:
    """A peer must not make this side buffer what will be refused."""
    with pytest.raises(HeaderMalformed, match="limit 64"):
        FrameDecoder(header_bytes_max=64).feed(struct.pack(">iI", 4096, 65))


def test_header_longer_than_its_frame_is_malformed() -> None:
    """Java closes the connection on it; reading on would eat the next frame."""
    with pytest.raises(HeaderMalformed):
        FrameDecoder().feed(struct.pack(">iI", 4, 1))


def test_unknown_serialize_type_is_malformed() -> None:
    """Guessing a header format would turn bytes into requests."""
    with pytest.raises(HeaderMalformed, match="serialize type 2"):
        FrameDecoder().feed(frame_of(b"{}", serialize_type=2))


def test_commands_before_a_malformed_frame_are_kept() -> None:
    """A legal request must not vanish because of what follows it in the same chunk."""
    good = RemotingCommand(1005, opaque=1)
    decoder = FrameDecoder()
    assert [good] == decoder.feed(encode(good) + b"GET / HTTP/1.1")
    assert isinstance(decoder.error, FrameTooLarge)
    with pytest.raises(FrameTooLarge):
        decoder.feed(b"")


def test_private_code_survives_a_binary_header() -> None:
    """Codes over 32767 read signed would turn raft messages into unknown requests."""
    command = RemotingCommand(60_001, serialize_type=SERIALIZE_ROCKETMQ)
    assert [command] == FrameDecoder().feed(encode(command))


@pytest.mark.parametrize(
    "command",
    [
        RemotingCommand(70_000, serialize_type=SERIALIZE_ROCKETMQ),
        RemotingCommand(1, version=1 << 20, serialize_type=SERIALIZE_ROCKETMQ),
        RemotingCommand(1, ext_fields={"k" * 40_000: "v"}, serialize_type=SERIALIZE_ROCKETMQ),
        RemotingCommand(1, remark="\ud800", serialize_type=SERIALIZE_ROCKETMQ),
        RemotingCommand(1, remark="\ud800"),
        RemotingCommand(1, serialize_type=9),
    ],
)
def test_unwritable_commands_are_local_errors(command: RemotingCommand) -> None:
    """A mistake on this side must not look like the peer's."""
    with pytest.raises(LocalProtocolError):
        encode(command)


@pytest.mark.parametrize(
    "header",
    [
        # remark length over the rest; block over the rest; key, then value over the block
        "03ec 00 01df 00000007 00000000 00000001 00000000",
        "03ec 00 01df 00000007 00000000 ffffffff 00000000",
        "03ec 00 01df 00000007 00000000 00000000 00000001",
        "03ec 00 01df 00000007 00000000 00000000 80000000",
        "03ec 00 01df 00000007 00000000 00000000 00000001 00",
        "03ec 00 01df 00000007 00000000 00000000 00000007 7fff 61 00000000",
        "03ec 00 01df 00000007 00000000 00000000 00000007 ffff 61 00000000",
        "03ec 00 01df 00000007 00000000 00000000 00000007 0001 61 00000001",
        "03ec 00 01df 00000007 00000000 00000000 00000007 0001 61 ffffffff",
        "03ec 00 01df 00000007 00000000 00000000 00000008 0001 ff 00000001 61",
    ],
)
def test_nested_lengths_outside_the_header_are_malformed(header: str) -> None:
    """A length that is believed reads the next field, or the body, as text."""
    with pytest.raises(HeaderMalformed):
        FrameDecoder().feed(frame_of(bytes.fromhex(header), b"body", SERIALIZE_ROCKETMQ))


def test_key_length_below_zero_is_malformed() -> None:
    """It would have the next field begin where this one does, for ever, at a peer's will."""
    header = (
        "03ec 00 01df 00000007 00000000 00000000 00000011 0001 61 00000004 00000006 fffa 61616161"
    )
    with pytest.raises(HeaderMalformed, match="key length -6 is outside"):
        FrameDecoder().feed(frame_of(bytes.fromhex(header), serialize_type=SERIALIZE_ROCKETMQ))


def test_empty_binary_texts_are_null() -> None:
    """Zero length is Java's null; an empty text must not appear out of it."""
    header = bytes.fromhex(
        "03ec 63 01df 00000007 00000000 00000000 0000000e 0000 00000001 61 0001 61 00000000"
    )
    (command,) = FrameDecoder().feed(frame_of(header, serialize_type=SERIALIZE_ROCKETMQ))
    assert command.remark is None
    assert command.ext_fields == {}
    assert command.language == "OTHER"


def test_large_frame_in_small_chunks_copies_each_byte_a_bounded_number_of_times() -> None:
    """A decoder that joins again at every chunk is quadratic and stalls the loop."""
    stream = encode(RemotingCommand(1, body=bytes(4_000_000)))
    decoder = FrameDecoder()
    received: list[RemotingCommand] = []
    for start in range(0, len(stream), 100):
        received += decoder.feed(stream[start : start + 100])
    assert [4_000_000] == [len(command.body) for command in received]


def test_large_frame_when_it_comes_in_small_chunks_then_its_bytes_are_looked_at_a_few_times() -> (
    None
):
    """All that had come was copied for each chunk: 32 GB for one frame of 16 MiB."""

    class Counting(FrameDecoder):
        looked_at = 0

        def _decode_all(self, data: bytes, commands: list[RemotingCommand]) -> int:
            self.looked_at += len(data)
            return super()._decode_all(data, commands)

    frame = encode(RemotingCommand(10, body=bytes(16 * 1024 * 1024 - 1_000)))
    decoder, chunk = Counting(), 4_096
    got = [decoder.feed(frame[at : at + chunk]) for at in range(0, len(frame), chunk)]
    assert [len(one) for one in got] == [0] * (len(got) - 1) + [1]
    assert decoder.looked_at <= len(frame) + 2 * chunk
