"""Heartbeats read straight into numbers must say what reading them the long way says."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.base.errors import HeaderMalformed
from rmqha.remoting import codec_json
from rmqha.remoting.command import FLAG_ONEWAY, RemotingCommand
from rmqha.remoting.heartbeat import (
    NOBODY,
    PRIORITY_LAST,
    Heartbeat,
    HeartbeatCommand,
    beat_of,
    decode_heartbeat,
)
from rmqha.remoting.repeats import HeaderCache

FIELDS = ("brokerId", "clusterName", "brokerName", "epoch", "maxOffset", "confirmOffset",
          "heartbeatTimeoutMills", "electionPriority", "brokerAddr", "writeLease")  # fmt: skip
SAID = {"clusterName": "c", "brokerName": "a", "brokerId": "2", "epoch": "1", "maxOffset": "70",
        "confirmOffset": "60", "heartbeatTimeoutMills": "10000", "electionPriority": "3",
        "brokerAddr": "10.0.0.1:10911", "writeLease": "true"}  # fmt: skip

# Not "1e2" and "1.0": see decode_heartbeat.
odd = st.sampled_from(
    ["0", "-1", "+7", "007", "", " 5", "5 ", "x", "9" * 25, "2147483648", "9223372036854775807",
     "9223372036854775808", "\u0661", "NaN", "true", 5, -1, 2**31, 2**63, True, None, [1], {"a": 1}]
) | st.integers(-(2**64), 2**64).map(str)  # fmt: skip
members = st.dictionaries(
    st.sampled_from(("opaque", "flag", "version", "language", "remark", "-", "--", "---", "body")),
    st.sampled_from([0, 1, 2, -5, 2**31 - 1, 2**31, "7", "JAVA", "X", None, [1]]),
)


@pytest.mark.costly
@given(st.dictionaries(st.sampled_from(FIELDS), odd | st.text(max_size=5)), members)
def test_a_heartbeat_however_written_says_what_parsing_in_full_gives(
    said: dict[str, object], other: dict[str, object]
) -> None:
    """Else replicas are ranked wrongly, or answers go to another request."""
    try:
        header = orjson.dumps({"code": 904, "extFields": said, **other})
    except TypeError:
        return  # larger than any JSON number
    try:
        long = codec_json.decode_command(header, b"")
    except HeaderMalformed:
        with pytest.raises(HeaderMalformed):
            decode_heartbeat(header, b"")
        return
    short = decode_heartbeat(header, b"")
    assert beat_of(short) == Heartbeat.of(long.ext_fields)
    assert (short.code, short.opaque, short.flag, short.version, short.serialize_type) == (
        long.code, long.opaque, long.flag, long.version, long.serialize_type,
    )  # fmt: skip


def test_what_brokers_write_is_read_the_short_way() -> None:
    """Otherwise the test above shows nothing, and a busy fleet costs twice as much."""
    header = codec_json.encode_header(
        RemotingCommand(904, 77, FLAG_ONEWAY, "JAVA", 479, None, dict(SAID))
    )
    command = decode_heartbeat(header, b"")
    assert type(command) is HeartbeatCommand
    assert command.is_oneway
    assert (command.opaque, command.ext_fields) == (77, None)
    assert command.beat == Heartbeat(
        2, "c", "a", 1, 70, 60, 10000, 3, write_lease=True, broker_addr="10.0.0.1:10911"
    )
    assert Heartbeat.of(SAID) == command.beat


def test_a_heartbeat_that_says_nothing_names_nobody() -> None:
    """The defaults are those of a broker of which nothing is known."""
    for header in (
        b'{"code":904,"extFields":{}}',
        b'{"code":904}',
        b'{"code":904,"extFields":null}',
    ):
        beat = beat_of(decode_heartbeat(header, b""))
        assert beat == Heartbeat(NOBODY, "", "", -1, -1, -1, 0, PRIORITY_LAST)


@pytest.mark.parametrize("names", [b"", b'"brokerId":"0",'])
def test_a_heartbeat_without_an_id_says_its_address(names: bytes) -> None:
    """Brokers of 5.0.0 have none, and masters of 5.1.0 say 0."""
    header = b'{"code":904,"extFields":{%b"brokerName":"a","brokerAddr":"h:1"}}'
    beat = beat_of(decode_heartbeat(header % names, b""))
    assert (beat.broker_id < 1, beat.broker_name, beat.broker_addr) == (True, "a", "h:1")
    named = beat_of(decode_heartbeat(header % b'"brokerId":"2",', b""))
    assert (named.broker_id, named.broker_addr) == (2, "h:1")


def test_a_header_whose_last_code_is_another_is_another_request() -> None:
    """Members may come twice, and the last one counts."""
    header = b'{"code":904,"extFields":{"brokerId":"2"},"code":1004}'
    command = decode_heartbeat(header, b"")
    assert (command.code, command.ext_fields) == (1004, {"brokerId": "2"})


def test_only_who_asks_for_it_gets_heartbeats_without_ext_fields() -> None:
    """Name servers and brokers read theirs as they read all other requests."""
    header = codec_json.encode_header(RemotingCommand(904, 1, ext_fields=dict(SAID)))
    assert HeaderCache().decode(header, b"").ext_fields == SAID
    told = HeaderCache(decode_beat=decode_heartbeat).decode(header, b"")
    assert type(told) is HeartbeatCommand
