"""JSON headers: what real and sloppy peers send."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.base.errors import HeaderMalformed
from rmqha.remoting import codec_json
from rmqha.remoting.codec_json import decode_command, encode_header, success_format
from rmqha.remoting.command import RemotingCommand


def test_missing_members_take_javas_defaults() -> None:
    """The Go and C++ clients leave members out."""
    expected = RemotingCommand(0, language="JAVA", version=0)
    assert expected == decode_command(b"{}", b"")


def test_unknown_members_and_blanks_are_ignored() -> None:
    """Newer peers add members."""
    command = decode_command(b'{ "code" : 5, "later": [1], "language": "MARS" }', b"x")
    assert (5, "OTHER", b"x") == (command.code, command.language, command.body)


def test_field_values_become_javas_text() -> None:
    """Non-Java clients send numbers and booleans bare; handlers read only text."""
    header = b'{"code":"7","extFields":{"n":1,"t":true,"f":1.5,"z":null,"s":"x","o":{"a":[1]}}}'
    command = decode_command(header, b"")
    expected = {"n": "1", "t": "true", "f": "1.5", "s": "x", "o": '{"a":[1]}'}
    assert expected == command.ext_fields
    assert command.code == 7


@pytest.mark.parametrize(
    "header",
    [
        b"", b"null", b"[]", b"1", b'"x"', b"{", b'{"code":true}', b'{"code":1.5}',
        b'{"code":"x"}', b'{"code":"--1"}', b'{"opaque":2147483648}', b'{"version":-2147483649}',
        b'{"extFields":[]}', b'{"extFields":"x"}', b'{"remark":"\xff"}', b'{"remark":"\\ud800"}',
    ],
)  # fmt: skip
def test_malformed_headers_are_refused(header: bytes) -> None:
    """Half-read headers would be answered as something they are not."""
    with pytest.raises(HeaderMalformed):
        decode_command(header, b"")


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**33), 2**33), st.floats(), st.text(max_size=5),
    st.sampled_from(["7", "-1", "2147483648", "JAVA", "GO"]),
    st.dictionaries(st.text(max_size=3), st.one_of(st.text(max_size=3), st.integers(), st.none())),
)  # fmt: skip
MEMBERS = st.tuples(
    st.sampled_from(["code", "opaque", "flag", "version", "language", "remark", "extFields", "x"]),
    VALUES,
)


@given(st.lists(MEMBERS, max_size=8), st.binary(max_size=2))
def test_the_quick_way_reads_what_the_lenient_one_reads(
    members: list[tuple[str, object]], tail: bytes
) -> None:
    """Also of a member that comes twice, of members of other types and of broken headers."""
    inner = ",".join(f"{json.dumps(name)}:{json.dumps(value)}" for name, value in members)
    header = b"{%b}%b" % (inner.encode(), tail)
    try:
        expected = codec_json._decode_leniently(header, b"x")
    except HeaderMalformed:
        with pytest.raises(HeaderMalformed):
            decode_command(header, b"x")
        return
    assert decode_command(header, b"x") == expected


def test_members_are_written_in_javas_order() -> None:
    """Byte equality with Java makes captures comparable."""
    command = RemotingCommand(1, 2, 1, "JAVA", 479, "no", {"z": "1", "a": "2"})
    expected = (
        b'{"code":1,"extFields":{"z":"1","a":"2"},"flag":1,"language":"JAVA","opaque":2,'
        b'"remark":"no","serializeTypeCurrentRPC":"JSON","version":479}'
    )
    assert expected == encode_header(command)


def test_reply_repeats_opaque_and_header_format() -> None:
    """An answer with another opaque is never matched."""
    reply = RemotingCommand(1004, 9, serialize_type=1).reply(0, "fine", {"a": "b"}, b"body")
    assert (0, 9, 1, "fine", {"a": "b"}, b"body", 1) == (
        reply.code, reply.opaque, reply.flag, reply.remark, reply.ext_fields, reply.body,
        reply.serialize_type,
    )  # fmt: skip
    assert reply.is_response
    assert not reply.is_oneway


@given(
    st.dictionaries(st.text(max_size=5), st.text(max_size=9), max_size=4),
    st.integers(0, 2**63 - 1),
    st.integers(-(2**31), 2**31 - 1),
)
def test_success_when_filled_into_its_format_then_as_it_is_encoded(
    fields: dict[str, str], number: int, opaque: int
) -> None:
    """Messages that go the quick way would be answered otherwise than the others."""
    places = {**fields, "queueOffset": b"%d", "transactionId": b"%b"}
    values = {**fields, "queueOffset": str(number), "transactionId": "U1"}
    answer = RemotingCommand(310, opaque).reply(0, None, values)
    assert success_format(places) % (number, b"U1", opaque) == encode_header(answer)
