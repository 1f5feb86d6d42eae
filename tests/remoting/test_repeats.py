"""Headers parsed once and answers encoded once must be exactly what parsing and encoding give."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.base.errors import RemoteProtocolError
from rmqha.remoting import codec_json
from rmqha.remoting.command import FLAG_RESPONSE, RemotingCommand
from rmqha.remoting.frame import FrameDecoder, encode
from rmqha.remoting.repeats import HeaderCache, ReplyTemplate

text = st.text(max_size=12)
fields = st.none() | st.dictionaries(
    text | st.sampled_from(["opaque", '"opaque":']), text, max_size=4
)
opaque = st.integers(-(2**31), 2**31 - 1)


@pytest.mark.costly
@given(fields, st.none() | text, st.lists(opaque, min_size=1, max_size=6), st.binary(max_size=5))
def test_a_cached_header_is_what_parsing_gives(
    ext_fields: dict[str, str] | None, remark: str | None, opaques: list[int], body: bytes
) -> None:
    """Whatever the fields hold, also members and texts that look like the opaque."""
    cache = HeaderCache()
    for number in [*opaques, *opaques, *opaques]:
        command = RemotingCommand(1004, number, remark=remark, ext_fields=ext_fields, body=body)
        header = codec_json.encode_header(command)
        assert codec_json.decode_command(header, body) == cache.decode(header, body)


@given(st.lists(st.sampled_from([b'"opaque":', b"7", b",", b"{", b"}", b'"code":1', b'"', b"-"])))
def test_odd_headers_are_refused_by_both_or_read_alike(parts: list[bytes]) -> None:
    """The cache must not accept what the parser refuses, nor remember it."""
    header = b"".join(parts)
    cache = HeaderCache()

    def outcome(decode: object) -> object:
        try:
            return decode(header, b"")  # type: ignore[operator]
        except RemoteProtocolError:
            return "refused"

    expected = outcome(codec_json.decode_command)
    assert expected == outcome(cache.decode)
    assert expected == outcome(cache.decode)


def test_a_repeated_request_is_parsed_once() -> None:
    """Otherwise the cache would cost and bring nothing."""
    cache = HeaderCache()
    decoder = FrameDecoder(decode_json=cache.decode)
    commands = [
        decoder.feed(encode(RemotingCommand(1004, number, ext_fields={"brokerName": "a"})))[0]
        for number in (5, 6, 123_456, 7, 2**31 - 1)
    ]
    assert cache.hits == 3
    assert [5, 6, 123_456, 7, 2**31 - 1] == [command.opaque for command in commands]
    assert commands[1].ext_fields is commands[2].ext_fields is commands[3].ext_fields


@pytest.mark.parametrize("digits", [b"2147483648", b"9999999999", b"007", b"-0", b"10000000000"])
def test_an_opaque_that_is_no_plain_int_is_the_parser_s_business(digits: bytes) -> None:
    """A remembered header must not make it acceptable, nor change what it means."""
    cache = HeaderCache()
    header = codec_json.encode_header(RemotingCommand(1004, 5, ext_fields={"brokerName": "a"}))
    for _ in range(3):
        cache.decode(header, b"")
    odd = header.replace(b'"opaque":5', b'"opaque":' + digits)

    def outcome(decode: object) -> object:
        try:
            return decode(odd, b"")  # type: ignore[operator]
        except RemoteProtocolError as error:
            return str(error)

    assert outcome(codec_json.decode_command) == outcome(cache.decode)


@pytest.mark.parametrize(
    "header",
    [
        b'{"code":1004,"opaque" :5,"extFields":{"opaque":N,"opaque":N,"a":"b"},"flag":0}',
        b'{"code":1004,"opaque" :5,"extFields":{"opaque":5,"opaque":N,"a":"b"},"flag":0}',
        b'{"code":1004,"opaque" :5,"extFields":{"a":"b","opaque":N,"b":7},"flag":0}',
        b'{"code":1004,"\\u006fpaque":5,"extFields":{"opaque":N,"a":7},"flag":0}',
        b'{"code":1004,"opaque":5,"extFields":{"a":"b"},"x":{"opaque":N,"y":7},"flag":0}',
    ],
)
def test_header_when_its_opaque_is_written_otherwise_then_a_field_is_not_taken_for_it(
    header: bytes,
) -> None:
    """What was remembered of one request would stand for another, with another opaque and fields."""
    cache = HeaderCache()
    for number in (5, 5, 5, 6, 7):
        sent = header.replace(b"N", b"%d" % number)
        assert codec_json.decode_command(sent, b"") == cache.decode(sent, b"")


def test_the_cache_is_bounded() -> None:
    """Busy brokers send headers that never come again."""
    cache = HeaderCache(entries_max=4)
    for number in range(50):
        command = RemotingCommand(904, 1, ext_fields={"maxOffset": str(number)})
        for _ in range(3):
            cache.decode(codec_json.encode_header(command), b"")
        assert len(cache._entries) <= 4
        assert len(cache._once) <= 4
    assert cache.hits == 50


@given(st.integers(0, 2100), st.none() | text, fields, st.binary(max_size=20), opaque)
def test_a_template_writes_what_encode_writes(
    code: int,
    remark: str | None,
    ext_fields: dict[str, str] | None,
    body: bytes,
    number: int,
) -> None:
    """Byte for byte, lengths included."""
    whole = RemotingCommand(code, number, FLAG_RESPONSE, "PYTHON", remark=remark,
                            ext_fields=ext_fields, body=body)  # fmt: skip
    assert encode(whole) == ReplyTemplate(code, remark, ext_fields, body).frame(number)
