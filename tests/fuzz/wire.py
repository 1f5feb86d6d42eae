"""What comes over the network: frames, headers, bodies, filters, and what replicas send each other."""

from __future__ import annotations

import struct
import zlib

from rmqha.base.errors import HeaderMalformed, MessageIllegal, RemoteProtocolError
from rmqha.broker.common.table_slices import head_of, table_slices
from rmqha.broker.deferred.delays import decode_handle
from rmqha.broker.deferred.timers import TimerMark
from rmqha.broker.groups.consumers import ConsumerData
from rmqha.broker.groups.heartbeat import Heartbeat
from rmqha.broker.groups.offset_rules import ResetRequest
from rmqha.broker.groups.request_modes import AssignmentRequest
from rmqha.broker.pop.check_points import Acks, CheckPoint
from rmqha.broker.pop.request import batch_acks, parse_ack, parse_key, parse_pop, read_batch
from rmqha.broker.pull.request import parse_pull
from rmqha.broker.pull.sql92 import SelectorIllegal, compile_selector
from rmqha.broker.send import plain_request
from rmqha.broker.send.request import parse_any_send, parse_send
from rmqha.broker.topics.changes import parse_attributes, parse_topics
from rmqha.broker.topics.group_table import GroupTable
from rmqha.broker.topics.topic_table import TopicTable
from rmqha.client.logical import Leaders, decode_segments
from rmqha.client.offsets import ConsumeStats, decode_reset, decode_topic_stats
from rmqha.client.routes import TopicRoute
from rmqha.client.routes import decode_names as topic_names
from rmqha.controller.metadata.fields import parse_sync_state_set
from rmqha.controller.raft.hello import Hello, pack_answer, pack_hello, unpack_answer, unpack_hello
from rmqha.controller.raft.messages import (
    SnapshotRequest,
    StandingTold,
    TimeoutNow,
    decode_message,
    encode_message,
)
from rmqha.ha.frames import MasterFrameParser, SlaveFrameParser
from rmqha.namesrv.registration import reading
from rmqha.namesrv.settings import RouteSettings
from rmqha.remoting import codec_binary, codec_json, fastjson
from rmqha.remoting.bodies import (
    BrokerReplicasInfo,
    ClusterInfo,
    ElectMasterResponseBody,
    EpochEntryCache,
    SyncStateSet,
    decode_names,
)
from rmqha.remoting.broker_figures import read_figures
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.frame import FrameDecoder
from rmqha.remoting.headers import ext_fields
from rmqha.remoting.heartbeat import beat_of, decode_heartbeat
from rmqha.remoting.repeats import HeaderCache
from rmqha.remoting.topic_names import is_system_topic
from rmqha.runtime.parts import at_once
from rmqha.store.batches import split_client_batch
from rmqha.store.compression import plain_body
from rmqha.store.record import Message, pack_host
from tests.fuzz.target import Target, as_json, body_of, frames, golden, header_of

REMOTE = (RemoteProtocolError,)
HOST = pack_host("127.0.0.1", 1)
REGISTRATION_BYTES_MAX = 1 << 20


def frame(data: bytes) -> None:
    """At once, and byte by byte in two halves: the same commands or the same error."""
    middle = len(data) // 2
    decoder, whole = FrameDecoder(decode_json=HeaderCache().decode), FrameDecoder()
    found: list[RemotingCommand] = []
    for part in (data[:middle], data[middle:]):
        if decoder.error is None:
            try:
                found += decoder.feed(part)
            except RemoteProtocolError:
                break
    try:
        expected = whole.feed(data)
    except RemoteProtocolError:
        expected = []
    assert [vars_of(one) for one in found] == [vars_of(one) for one in expected]
    assert str(decoder.error) == str(whole.error)
    if whole.error is not None:
        raise whole.error


def vars_of(command: RemotingCommand) -> tuple[object, ...]:
    """All that a command says."""
    fields = command.ext_fields
    return (
        command.code, command.opaque, command.flag, command.version, command.language,
        command.remark, fields, command.body, command.serialize_type,
    )  # fmt: skip


def header_json(data: bytes) -> None:
    """The general reader, and the quick ones, which must say the same."""
    try:
        expected = codec_json.decode_command(data, b"")
    except HeaderMalformed:
        expected = None
    for quick in (plain_request.decode_message, decode_heartbeat, HeaderCache().decode):
        try:
            found = quick(data, b"")
        except HeaderMalformed:
            assert expected is None, quick
            continue
        if isinstance(found, plain_request.PlainSend):
            found.general()
        beat_of(found)
        if expected is not None:
            assert (found.code, found.opaque) == (expected.code, expected.opaque), quick
    if expected is None:
        raise HeaderMalformed("none of them reads it")
    again = codec_json.decode_command(codec_json.encode_header(expected), b"")
    assert vars_of(again) == vars_of(expected)


def header_binary(data: bytes) -> None:
    """Read, and the fields of every request that comes often."""
    command = codec_binary.decode_command(data, b"")
    fields = command.ext_fields
    parse_pull(fields)
    parse_pop(fields)
    parse_send(310, fields)
    parse_any_send(10, fields)
    try:
        parse_ack(fields)
    except RemoteProtocolError:
        return
    ResetRequest.parse(fields)


def bodies(data: bytes) -> None:
    """Every JSON body that somebody is sent; each may refuse it in its own way."""
    read = 0
    for decode in (
        SyncStateSet.decode, ElectMasterResponseBody.decode, BrokerReplicasInfo.decode,
        ClusterInfo.decode, EpochEntryCache.decode, decode_names, read_figures,
        TopicRoute.decode, decode_topic_stats, ConsumeStats.decode, decode_reset, Heartbeat.decode,
        AssignmentRequest.decode, _acks, decode_segments, _leaders, _names, _tables, _topics,
        _consumer_data, fastjson.loads,
    ):  # fmt: skip
        try:
            decode(data)
            read += 1
        except RemoteProtocolError:
            pass
    parse_sync_state_set(data)
    if not read:
        raise RemoteProtocolError("none of them reads it")


def _acks(data: bytes) -> None:
    batch_acks(read_batch(data)[1])


def _leaders(data: bytes) -> None:
    Leaders.of("t", TopicRoute.decode(data))


def _names(data: bytes) -> None:
    topic_names(data, "topicList")


def _tables(data: bytes) -> None:
    value = fastjson.loads(data)
    if isinstance(value, dict):
        for table in (TopicTable.of, GroupTable.of):
            try:
                table(value)
            except RemoteProtocolError:
                pass


def _topics(data: bytes) -> None:
    parse_topics(data, lambda _: None, is_system_topic)


def _consumer_data(data: bytes) -> None:
    ConsumerData.of(fastjson.loads(data))


def offset_table(data: bytes) -> None:
    """A table that is read in slices holds what it holds read at once."""
    slices = list(table_slices(data, 16))
    head_of(data)
    whole = fastjson.loads(data)
    found: dict[str, object] = {}
    for one in slices:
        table = one.get("offsetTable")
        if isinstance(table, dict):
            found |= table
    table = whole.get("offsetTable") if isinstance(whole, dict) else None
    if isinstance(table, dict) and data.count(b'"offsetTable"') == 1:
        assert found == table  # a table that is there twice is read twice in slices


def registration(data: bytes) -> None:
    """The body of 103: plain, and packed by zlib in two versions."""
    settings = RouteSettings(registration_bytes_max=REGISTRATION_BYTES_MAX)
    fields = {"brokerName": "b", "brokerId": "0", "clusterName": "c", "brokerAddr": "a:1"}
    plain = int.from_bytes(data[:1])
    fields["compressed"] = "true" if plain & 1 else "false"
    body = zlib.compress(data[1:]) if plain & 2 else data[1:]
    at_once(reading(479 if plain & 4 else 300, fields, body, settings))


def ha_slave(data: bytes) -> None:
    """What a slave sends, in two chunks and at once."""
    parser, whole = SlaveFrameParser(), SlaveFrameParser()
    middle = len(data) // 2
    found = list(parser.feed(data[:middle]))
    if parser.error is None:
        found += parser.feed(data[middle:])
    assert found == whole.feed(data)


def ha_master(data: bytes) -> None:
    """What a master sends; bodies are skipped."""
    parser, at = MasterFrameParser(), 0
    while at < len(data):
        if parser.body_pending:
            size = min(parser.body_pending, len(data) - at)
            parser.body_received(size)
            at += size
            continue
        wanted = parser.wanted
        assert wanted > 0
        parser.feed(data[at : at + wanted])
        at += wanted


def raft_message(data: bytes) -> None:
    """A message between controllers, which is written as it was read."""
    message = decode_message(data)
    assert decode_message(encode_message(message)) == message


def hello(data: bytes) -> None:
    """What controllers say first."""
    try:
        unpack_answer(data)
    except RemoteProtocolError:
        pass
    unpack_hello(data)


PROPERTIES = {"a": "1", "b": "x", "c": "2.5", "TAGS": "t", "d": "true", "e": "", "f": "9" * 30}


def sql92(data: bytes) -> None:
    """A selector, and what it says of a message; it never raises there."""
    select = compile_selector(data.decode("utf-8", "replace"))
    select(PROPERTIES)
    select({})


def client_batch(data: bytes) -> None:
    """Messages that a client packed into one body."""
    split_client_batch(Message("t", 0, data, b"", 0, HOST, HOST), messages_max=1000)


def packed_body(data: bytes) -> None:
    """A body that a producer compressed with whatever the first byte says."""
    plain_body(data[1:], 1 | (data[0] & 7) << 8 if data else 1)


def texts(data: bytes) -> None:
    """Texts in header fields: keys of popped messages, handles, attributes; check points in bodies."""
    text = data.decode("utf-8", "replace")
    parse_attributes(text)
    decode_handle(text)
    for decode in (
        lambda: parse_key(text), lambda: CheckPoint.decode(data, "b"),
        lambda: Acks.decode(data, "b", batch=False), lambda: Acks.decode(data, "b", batch=True),
        lambda: TimerMark.decode(data, 1000),
    ):  # fmt: skip
        try:
            decode()
        except RemoteProtocolError:
            pass


FRAMES = frames("remoting") + frames("namesrv")
CHECK_POINT = CheckPoint("t", "g", 1, 7, 1_000, 60_000, "b", (7, 9))
SEND = b'{"code":310,"extFields":{"a":"g","b":"t","c":"TBW102","d":"4","e":"0","f":"0","g":"17","h":"0"},"opaque":3}'
BEAT = b'{"code":904,"beat":{"brokerId":1},"extFields":{"brokerAddr":"a:1","epoch":"3","maxOffset":"9"}}'
BINARY = tuple(
    codec_binary.encode_header(
        RemotingCommand(code, ext_fields=ext_fields(topic="t", queueId=1, a="b"), remark="r")
    )
    for code in (11, 310)
)
REGISTRATIONS = tuple(
    bytes([one]) + body_of(frame)
    for frame in frames("namesrv")
    if int(frame[8:].startswith(b'{"code":103'))
    for one in (0, 3, 7)
)
ROUTE = {
    "brokerDatas": [{"brokerAddrs": {"0": "a:1"}, "brokerName": "b", "cluster": "c"}],
    "queueDatas": [{"brokerName": "b", "perm": 6, "readQueueNums": 4, "writeQueueNums": 4}],
    "topicQueueMappingByBroker": {
        "b": {"bname": "b", "currIdMap": {"0": 1}, "epoch": 7, "topic": "t", "totalQueues": 1}
    },
}
SEGMENT = {"bname": "b", "gen": 0, "queueId": 1, "logicOffset": 0, "startOffset": 0}
MAPPING = {
    "bname": "b",
    "topic": "t",
    "epoch": 7,
    "totalQueues": 1,
    "hostedQueues": {"0": [SEGMENT]},
}
HEARTBEAT = {
    "clientID": "c",
    "consumerDataSet": [{
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "consumeType": "CONSUME_PASSIVELY",
        "groupName": "g", "messageModel": "CLUSTERING", "unitMode": False,
        "subscriptionDataSet": [{
            "classFilterMode": False, "codeSet": [1], "expressionType": "TAG", "subString": "*",
            "subVersion": 1, "tagsSet": ["a"], "topic": "t",
        }],
    }],
    "producerDataSet": [{"groupName": "p"}],
}  # fmt: skip
TOPIC = {"topicName": "t", "perm": 6, "readQueueNums": 4, "writeQueueNums": 4, "attributes": {}}
BODIES = (
    *(body for body in map(body_of, frames("remoting")) if 0 < len(body) < 600),
    *as_json(
        ROUTE, HEARTBEAT, {"mappingDetail": MAPPING}, {"topicList": ["a"]},
        {"topicConfigList": [TOPIC]}, {"topicConfigTable": {"t": TOPIC}, "dataVersion": {"counter": 1}},
        {"subscriptionGroupTable": {"g": {"groupName": "g"}}, "dataVersion": {"counter": 1}},
        {"syncStateSet": [1, 2], "syncStateSetEpoch": 3}, {"syncStateSet": ["1"]},
        {"table": {"putTps": "1.0 0.9 0.8"}}, {"b": "n", "acks": [{"t": "t", "c": "g", "q": 1}]},
        {"topic": "t", "consumerGroup": "g", "clientId": "c", "strategyName": "AVG"},
    ),
    b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:7}}',
    b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:{"brokerOffset":1,"consumerOffset":0}}}',
    b'{"epochList":[{"epoch":1,"startOffset":0}],"maxOffset":9}',
)  # fmt: skip

TARGETS = (
    Target("frame", frame, REMOTE, FRAMES[:12]),
    Target("header_json", header_json, REMOTE, (SEND, BEAT, *map(header_of, FRAMES[:20]))),
    Target("header_binary", header_binary, REMOTE, BINARY),
    Target("bodies", bodies, REMOTE, BODIES),
    Target("offset_table", offset_table, REMOTE,
           (b'{"dataVersion":{"counter":1},"offsetTable":{"t@g":{0:1,1:2},"t@h":{0:3}}}', b"{}")),
    Target("registration", registration, REMOTE, REGISTRATIONS),
    Target("ha_slave", ha_slave, REMOTE,
           tuple(bytes.fromhex(one["hex"]) for one in golden("ha")[:40] if one["dir"] == "c2s")[:4]),
    Target("ha_master", ha_master, REMOTE,
           tuple(bytes.fromhex(one["hex"])[:400] for one in golden("ha")[:40] if one["dir"] == "s2c")[:8]),
    Target("raft_message", raft_message, REMOTE, tuple(map(encode_message, (
        TimeoutNow(1, "n0"), StandingTold(1, "n0", "voter", "s", (("n0", "s"),), 0, 1),
        SnapshotRequest(1, "n0", 5, 1, 0, 9, b"data", 3, 7),
    )))),
    Target("hello", hello, REMOTE,
           (pack_hello(Hello(2, "g", "n0", b"c" * 16)), pack_hello(Hello(2, "g", "n0", b"c", b"p")),
            pack_answer(b"c" * 16, b"p" * 32))),
    Target("sql92", sql92, (SelectorIllegal,), (
        b"a > 0 AND (b = 'x' OR c BETWEEN 1 AND 2.5e1)", b"b IN ('x', 'it''s') AND d IS NOT NULL",
        b"NOT (a <= -3) AND b CONTAINS 'x' /* c */ -- r\n AND TRUE", b"b NOT STARTSWITH 'y' OR f > 9L",
    )),
    Target("client_batch", client_batch, (MessageIllegal,), (
        struct.pack(">5i", 25, 0, 0, 0, 1) + b"x" + struct.pack(">h", 2) + b"p\x01",
    )),
    Target("packed_body", packed_body, (), (b"\0" + zlib.compress(b"a" * 50),
           b"\3" + zlib.compress(b"abc"), b"\1\x04\x22\x4d\x18", b"\2\x28\xb5\x2f\xfd")),
    Target("texts", texts, REMOTE, (
        CHECK_POINT.encode(), b"1 2 3 4 0 b 5 6", b"+a=b,-c", b"djEgdG9waWMgYnJva2VyIDEgbWlk",
        b'{"ao":7,"bn":"b","c":"g","pt":1,"q":0,"so":7,"t":"t"}',
    )),
)  # fmt: skip
