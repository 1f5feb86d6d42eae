"""fastjson's not-quite JSON, field leniency, bodies and addresses."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.base.errors import ConfigInvalid, LocalProtocolError, RemoteProtocolError
from rmqha.remoting import fastjson
from rmqha.remoting.address import format_address, parse_address, split_addresses
from rmqha.remoting.bodies import (
    BrokerMemberGroup,
    BrokerReplicasInfo,
    ClusterInfo,
    ElectMasterResponseBody,
    EpochEntryCache,
    ReplicaIdentity,
    ReplicasInfo,
    SyncStateSet,
    decode_names,
)
from rmqha.remoting.headers import bool_field, ext_fields, int_field, long_field, text_field
from rmqha.runtime.parts import at_once

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
keys = st.integers(-(2**63), 2**63 - 1)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.costly
@given(st.dictionaries(keys, values, max_size=4))
def test_bare_and_quoted_number_keys_read_alike(table: dict[int, object]) -> None:
    """Java controllers write them bare, wherever the map stands and whatever its texts hold."""
    inner = ",".join(f"{key} :{json.dumps(value)}" for key, value in table.items())
    bare = f'{{"a":[1,2,{{{inner}}}],"b{{1:":"{{1:2,3:"}}'
    expected = {"a": [1, 2, {str(k): v for k, v in table.items()}], "b{1:": "{1:2,3:"}
    assert expected == fastjson.loads(bare.encode())


@given(values)
def test_plain_json_round_trips(value: object) -> None:
    """Repairing must not touch what is legal."""
    assert value == fastjson.loads(fastjson.dumps(value))


number_tables = st.recursive(
    texts | st.booleans() | st.integers(-(2**53), 2**53),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)


@given(number_tables)
def test_bare_and_ascii_forms_mean_the_same(value: object) -> None:
    """Old clients get the one, new ones the other; both must understand the same."""
    bare, ascii_only = fastjson.dumps_bare(value), fastjson.dumps_ascii(value)
    assert fastjson.loads(fastjson.dumps(value)) == fastjson.loads(bare)
    assert json.loads(ascii_only) == fastjson.loads(bare)
    assert ascii_only.isascii()


def test_both_forms_are_fastjsons_to_the_byte() -> None:
    """As seen from Java's name server: bare keys; or quoted ones, slashes and units escaped."""
    value = {"a/\u00fc": {0: "\U0001f600", -2: [True, None]}}
    assert '{"a/\u00fc":{0:"\U0001f600",-2:[true,null]}}'.encode() == fastjson.dumps_bare(value)
    expected = rb'{"a\/\u00FC":{"0":"\uD83D\uDE00","-2":[true,null]}}'
    assert expected == fastjson.dumps_ascii(value)


@given(st.binary(max_size=80) | st.text('{}[]",:\\1-', max_size=80).map(str.encode))
def test_noise_raises_only_protocol_errors(noise: bytes) -> None:
    """Bodies come from outside."""
    try:
        fastjson.loads(noise)
    except RemoteProtocolError:
        pass


@pytest.mark.parametrize(
    "hostile", [b'"' + b'\\"' * 200_000, b"{" * 200_000, b"{" + b"1" * 400_000]
)
def test_hostile_bodies_are_refused_in_linear_time(hostile: bytes) -> None:
    """The repair runs on whatever a peer sends; quadratic would stall the loop for minutes."""
    with pytest.raises(RemoteProtocolError):
        fastjson.loads(hostile)


def test_number_keys_are_written_quoted() -> None:
    """Legal JSON that fastjson reads as well."""
    assert b'{"1":"a","2":"b"}' == fastjson.dumps({1: "a", 2: "b"})
    with pytest.raises(LocalProtocolError):
        fastjson.dumps(object())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5", 5), ("-5", -5), ("+5", 5), ("007", 7), ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)), ("9223372036854775808", None), ("", None), (" 5", None),
        ("5_0", None), ("x", None), ("-", None), ("1" * 5000, None), ("٣", None), ("1.0", None),
    ],
)  # fmt: skip
def test_longs_are_read_as_java_reads_them(text: str, expected: int | None) -> None:
    """A malformed number keeps the default; int() alone would take blanks and underscores."""
    assert expected == long_field({"n": text}, "n", None)


def test_fields_that_are_missing_take_the_default() -> None:
    """Absent header, absent field and 32-bit overflow are all no error."""
    assert 7 == int_field(None, "n", 7)
    assert 7 == int_field({}, "n", 7)
    assert 7 == int_field({"n": "2147483648"}, "n", 7)
    assert -(2**31) == int_field({"n": "-2147483648"}, "n", 7)
    assert "d" == text_field(None, "n", "d")
    assert text_field({"n": "x"}, "n", None) == "x"
    assert bool_field({"b": "TrUe"}, "b")
    assert not bool_field({"b": "1"}, "b", default=True)
    assert bool_field(None, "b", default=True)


def test_fields_are_written_as_java_writes_them() -> None:
    """null is absent and booleans are lower case."""
    written = ext_fields(a=1, b=True, c=None, d="x", e=False)
    assert {"a": "1", "b": "true", "d": "x", "e": "false"} == written


def test_election_body_serves_brokers_and_mqadmin() -> None:
    """Java's mqadmin looks for the group at the top level, brokers below brokerMemberGroup."""
    group = BrokerMemberGroup("c", "b", {2: "y:2", 1: "x:1"})
    body = ElectMasterResponseBody(group, (2, 1))
    expected = (
        b'{"brokerMemberGroup":{"brokerAddrs":{"1":"x:1","2":"y:2"},"brokerName":"b","cluster":"c"},'
        b'"brokerAddrs":{"1":"x:1","2":"y:2"},"brokerName":"b","cluster":"c","syncStateSet":[1,2]}'
    )
    assert expected == body.encode()
    assert ElectMasterResponseBody(group, (1, 2)) == ElectMasterResponseBody.decode(expected)
    assert b'{"syncStateSet":[]}' == ElectMasterResponseBody(None, ()).encode()
    assert ElectMasterResponseBody(None, ()) == ElectMasterResponseBody.decode(b"{}")


def test_replicas_without_a_master_leave_its_members_out() -> None:
    """Java omits null; an empty address would be taken for one."""
    replica = ReplicaIdentity("b", 1, "x:1", alive=False)
    info = BrokerReplicasInfo({"b": ReplicasInfo(None, None, 3, 2, (), (replica,))})
    assert b"masterBrokerId" not in info.encode()
    assert info == BrokerReplicasInfo.decode(info.encode())


@pytest.mark.parametrize(
    ("decode", "body"),
    [
        (SyncStateSet.decode, b"[]"),
        (SyncStateSet.decode, b'{"syncStateSet":[true]}'),
        (SyncStateSet.decode, b'{"syncStateSetEpoch":"1"}'),
        (ElectMasterResponseBody.decode, b'{"brokerMemberGroup":{"brokerAddrs":{"x":"y"}}}'),
        (ElectMasterResponseBody.decode, b'{"brokerMemberGroup":{"brokerAddrs":{"1":2}}}'),
        (BrokerReplicasInfo.decode, b'{"replicasInfoTable":[1]}'),
        (ClusterInfo.decode, b'{"clusterAddrTable":{"c":1}}'),
        (EpochEntryCache.decode, b'{"epochList":{}}'),
        (decode_names, b'{"a":1}'),
        (decode_names, b""),
    ],
)
def test_bodies_of_the_wrong_shape_are_protocol_errors(decode: object, body: bytes) -> None:
    """The caller catches one error type, whatever the peer sent."""
    assert callable(decode)
    with pytest.raises(RemoteProtocolError):
        decode(body)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a:1", ("a", 1)),
        ("[::1]:9876", ("::1", 9876)),
        ("[fe80::1%eth0]:9876", ("fe80::1%eth0", 9876)),
        (" h.example:65535 ", ("h.example", 65535)),
        (
            "rmq-controller_0.rmq-headless.default.svc.cluster.local.:9878",
            ("rmq-controller_0.rmq-headless.default.svc.cluster.local.", 9878),
        ),
        ("bücher.example:1", ("bücher.example", 1)),
        (f"{'a' * 63}.b:1", (f"{'a' * 63}.b", 1)),
    ],
)
def test_addresses_are_split(text: str, expected: tuple[str, int]) -> None:
    """IPv6 hosts have colons of their own."""
    assert expected == parse_address(text)
    assert text.strip() == format_address(*expected)


@pytest.mark.parametrize("text", ["", "a", "a:", ":1", "a:0", "a:65536", "a:x", "a:-1", "a:٣"])
def test_addresses_without_host_or_port_are_refused(text: str) -> None:
    """Java's own split would throw an index error far from the cause."""
    with pytest.raises(ConfigInvalid):
        parse_address(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a:1,b:2", "host 'a:1,b'"),
        ("a,b:2", "host 'a,b'"),
        ("a b:2", "host 'a b'"),
        ("a\t:2", "host 'a\\t'"),
        ("http://a:2", "host 'http://a'"),
        ("//a:2", "host '//a'"),
        ("a/b:2", "host 'a/b'"),
        ("-a:2", "host '-a'"),
        (".a:2", "host '.a'"),
        ("a..b:2", "host 'a..b'"),
        ("u@a:2", "host 'u@a'"),
        ("a:1:2", "host 'a:1'"),
        ("[]:2", "host ''"),
        ("[a]:2", "host 'a'"),
        ("[::1:2", "host '[::1'"),
        ("[1.2.3.4]:2", "host '1.2.3.4'"),
        ("a\x00:2", "host 'a\\x00'"),
        (f"{'a' * 64}:2", "host 'aaaa"),
        (f"a.{'b' * 64}.c:2", "host 'a.bbbb"),
        (f"{'ü' * 63}:2", "host 'üüüü"),
        (f"{'a.' * 127}a:2", "host 'a.a.a"),
    ],
)
def test_addresses_of_impossible_hosts_are_refused(text: str, reason: str) -> None:
    """Commas for semicolons, and URLs: a list would be one host of a strange name."""
    with pytest.raises(ConfigInvalid) as caught:
        parse_address(text)
    assert reason in str(caught.value)
    assert "host:port" in str(caught.value)


def test_addresses_of_ipv6_without_brackets_are_read() -> None:
    """Java writes them so."""
    assert parse_address("2001:db8::1:9876") == ("2001:db8::1", 9876)


def test_address_lists_lose_blanks_and_empty_parts() -> None:
    """A trailing semicolon is common in scripts."""
    assert ["a:1", "b:2"] == split_addresses(" a:1; b:2;;")


def test_object_keys_are_read_as_the_text_of_the_object() -> None:
    """Java's maps by message queue: 202, 208 and 222; a brace in a name must not end the key."""
    body = rb'{"offsetTable":{{"queueId":1,"topic":"T\"}{"}:{"n":[{"a":1},{"b":{}}]},{"q":2}:{}}}'
    table = fastjson.loads(body)["offsetTable"]
    keys = [fastjson.loads(key.encode()) for key in table]
    assert [{"queueId": 1, "topic": 'T"}{'}, {"q": 2}] == keys
    assert {"n": [{"a": 1}, {"b": {}}]} == next(iter(table.values()))


@pytest.mark.parametrize(
    "body", [b"{" * 50_000, b'{{"a' * 25_000, b"{{}" * 30_000, b"{ ," * 30_000]
)
def test_garbage_with_object_keys_is_refused_in_linear_time(body: bytes) -> None:
    """Anybody can send a body; a slow expression would stop the loop."""
    began = time.process_time()
    with pytest.raises(RemoteProtocolError):
        fastjson.loads(body)
    assert time.process_time() - began < 2.0


@pytest.mark.parametrize(
    ("unit", "parts"),
    [(b"{1:1},", 5), (b'"a",', 1), (b"1,", 1), (b"{", 1), (b'{"1":1},', 1)],
)
def test_large_body_when_its_keys_are_quoted_then_others_have_their_turns(
    unit: bytes, parts: int
) -> None:
    """16 MB of it kept a name server for eight seconds."""
    data = unit * (10_000 if b"1:1" in unit else fastjson.PART_BYTES // len(unit) + 1)
    turns = sum(1 for _ in fastjson.quoting(data))
    assert turns >= parts
    assert at_once(fastjson.quoting(data)) == data.replace(b"{1:", b'{"1":')


def test_large_body_when_its_keys_are_quoted_then_each_part_has_as_many() -> None:
    """Once the first part was full, each key was a part of its own."""
    data = b"{1:1}," * (5 * fastjson.PART_KEYS)
    assert sum(1 for _ in fastjson.quoting(data)) == 5


def test_body_when_all_of_its_keys_are_quoted_then_it_is_as_it_was() -> None:
    """And strict reading takes no other."""
    data = b'{"a{1:":["{1:2,",{"2" :-3}],"b\\"{4:":0}'
    assert at_once(fastjson.quoting(data)) == data
    assert fastjson.loads_strict(data) == fastjson.loads(data)
    with pytest.raises(RemoteProtocolError, match="not JSON"):
        fastjson.loads_strict(b"{1:2}")
    assert at_once(fastjson.quoting(b'{ 1 :{-2:"{3:"},"4":[{5:6}, 7]}')) == (
        b'{ "1" :{"-2":"{3:"},"4":[{"5":6}, 7]}'
    )
