"""What stands on disks: logs and snapshots, records, queues, indexes, and the small files."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from typing import Any

from rmqha.base.errors import (
    ConfigInvalid,
    RemoteProtocolError,
    StoreCorrupted,
    StoreMismatch,
)
from rmqha.base.ids import BrokerId
from rmqha.broker.deferred.delay_offsets import DelayOffsets
from rmqha.broker.deferred.timers import TimerMark
from rmqha.broker.groups.offset_table import ConsumerOffsets
from rmqha.broker.groups.request_modes import RequestMode, RequestModes
from rmqha.broker.pop.order import OrderTable
from rmqha.broker.pull.filters import properties_of
from rmqha.broker.topics.group_table import GroupTable
from rmqha.broker.topics.mapping_table import MappingTable
from rmqha.broker.topics.metadata_change import Change
from rmqha.broker.topics.topic_table import TopicTable
from rmqha.controller.metadata.events import (
    BrokerIdTaken,
    SyncStateSetAltered,
    from_entry,
    from_proposal,
    to_proposal,
)
from rmqha.controller.metadata.snapshot import from_snapshot, join_snapshot
from rmqha.controller.metadata.state import MetadataState
from rmqha.controller.raft.events import HardState
from rmqha.controller.raft.wal_layout import (
    SNAPSHOT_MAGIC,
    WAL_MAGIC,
    WAL_MAGIC_1,
    Recovery,
    decode_snapshot,
    encode_frame,
    encode_records,
    open_record,
)
from rmqha.ha.epochs import parse_epochs
from rmqha.ha.frames import HandshakeReply, encode_handshake_reply
from rmqha.namesrv.kv_config import KvConfig
from rmqha.pipeline.live.offsets import Progress
from rmqha.runtime.properties import decode_properties, format_properties, parse_properties
from rmqha.runtime.trace import TRACE_VERSION, TraceUnreadable, encode, read_records, unpack
from rmqha.runtime.trace import Opened as TraceOpened
from rmqha.statictopic.map_file import read_map_file
from rmqha.store import checkpoint
from rmqha.store import consume_queue as cq
from rmqha.store import properties as props
from rmqha.store.config_files import decode_config
from rmqha.store.identity import decode_identity
from rmqha.store.index_file import IndexFile, IndexWriter, file_size, gather_keys, key_hash
from rmqha.store.metadata_records import ended_topics
from rmqha.store.record import Message, check_record, decode, encode_into, encoded_size, pack_host
from rmqha.store.scan import scan
from rmqha.verify.client_history import decode_line
from tests.fuzz.target import Target, as_json

STORE = (StoreCorrupted, StoreMismatch)
REMOTE = (RemoteProtocolError,)
HOST = pack_host("127.0.0.1", 1)
SLOTS = 4


def wal(data: bytes) -> None:
    """A segment as it is: the last one, and one in front of others."""
    for is_last in (True, False):
        try:
            Recovery("g", "n0").read_segment("1.wal", data, is_last=is_last)
        except STORE:
            if not is_last:
                raise
    Recovery("g", "n0", forgiving=True).read_segment("1.wal", data, is_last=True)


def wal_payload(data: bytes) -> None:
    """Frames with good checksums around any payloads, which a zero byte in front ends each."""
    magic = WAL_MAGIC_1 if data[:1] == b"\1" else WAL_MAGIC
    payloads = data[1:].split(b"\xc1\xc1")
    segment = b"".join(encode_frame(magic, seq, one) for seq, one in enumerate(payloads, 1))
    Recovery("g", "n0").read_segment("1.wal", segment, is_last=True)


def snapshot(data: bytes) -> None:
    """A snapshot file with a good checksum, and the state in it."""
    found = decode_snapshot("s", encode_frame(SNAPSHOT_MAGIC, 1, data), "g")
    from_snapshot(found[2])


def state(data: bytes) -> None:
    """The state of a controller, as a snapshot holds it and as it is sent."""
    index, found = from_snapshot(data)
    again = from_snapshot(join_snapshot(index, found))
    assert again[1] == found


def proposal(data: bytes) -> None:
    """What the entries of a controller's log say."""
    try:
        from_entry(data)
    except STORE:
        pass
    from_proposal(data)


def epochs(data: bytes) -> None:
    """The epoch file; what it says must fit what slaves are sent."""
    found = parse_epochs(data)
    encode_handshake_reply(HandshakeReply(0, 0, found.entries))


def record(data: bytes) -> None:
    """A record anywhere in a log, checked in every way, and read when it is good."""
    view = memoryview(data)
    for check_crc in (True, False):
        head = check_record(
            view, 0, len(data), 0, check_crc=check_crc, verify_property_crc=check_crc
        )
        if head.size > 0 and check_crc:
            gather_keys(view, 0, head.size, 0, count_max=100)
        if head.size > 0:
            found = decode(view, head)
            assert found.message().body == found.body
            assert found.message_id
            found.property_map()
            properties_of(view[head.position : head.position + head.size])
    scan(view, 0, len(data), 0, check_crc=True, count_max=100)


def properties(data: bytes) -> None:
    """The properties of a record, whole and one by one."""
    known = props.decode(data)
    assert len(known) <= len(data)
    for name in (b"TAGS", b"KEYS", b"", *props.by_name(data)):
        props.find(data, name)
        props.find_integer(data, name)
        props.drop(data, name)
    props.without_crc(data)
    ended_topics(data)


def queue(data: bytes) -> None:
    """The units of a queue."""
    view, units = memoryview(data), len(data) // 20
    for size in (20, 46):
        count, _ = cq.valid_units(view, size, 0)
        assert count * size <= len(data)
    cq.count_below(view, 20, units, 1000)
    cq.first_live(view, 20, units, 1000)
    cq.last_real(view, 20, units)
    list(cq.places(view[: units * 20]))


def index(data: bytes) -> None:
    """An index file of any size; a walk through it ends."""
    if len(data) < file_size(SLOTS, 0):
        return
    found = IndexFile(data, SLOTS).find("t", "k", begin_ms=0, end_ms=1 << 62, limit=10)
    assert len(found) <= 10


def small_files(data: bytes) -> None:
    """Files of a line or a few numbers."""
    checkpoint.read(data)
    for temporary in (True, False):
        try:
            decode_identity(data, "p", temporary=temporary)
        except StoreCorrupted:
            pass
    KvConfig(1000).load(data)


def config(data: bytes) -> None:
    """Files in JSON: topics, groups, offsets, mappings, modes, what is in flight, and delays."""
    value = decode_config(data, "p")
    tables: Iterable[Any] = (
        TopicTable.of, GroupTable.of, MappingTable.of, DelayOffsets.of, TimerMark.of,
        ConsumerOffsets(100).load, OrderTable(100).load,
        RequestModes(100, RequestMode("PULL", 0)).load,
    )  # fmt: skip
    for load in tables:
        try:
            load(value)
        except RemoteProtocolError:
            pass


def change(data: bytes) -> None:
    """A change of topics and groups in the log."""
    found = Change.decode(data)
    assert Change.decode(found.encode()) == found


def settings(data: bytes) -> None:
    """A properties file."""
    values = parse_properties(decode_properties(data))
    assert parse_properties(format_properties(values)) == values


def trace(data: bytes) -> None:
    """A core's trace, and a value in it."""
    for one in read_records(data):
        unpack(getattr(one, "start", getattr(one, "event", None)), {})


def history(data: bytes) -> None:
    """A client's history."""
    for line in data.split(b"\n"):
        decode_line(line)


def map_file(data: bytes) -> None:
    """A map file of a static topic."""
    read_map_file(data)


def progress(data: bytes) -> None:
    """A checkpoint of Spark."""
    value = decode_config(data, "p")
    found = Progress.decode(value)
    assert Progress.decode(found.encode()) == found


def one_record(**changes: Any) -> bytes:
    """A record of the log."""
    pairs = props.encode({"TAGS": "a", "KEYS": "k1 k2", "UNIQ_KEY": "u"})
    message = Message("t", 0, b"body", pairs, 1, HOST, HOST)._replace(**changes)
    size = encoded_size(message, property_crc=bool(changes))
    buffer = bytearray(size)
    encode_into(
        buffer, 0, message, size=size, queue_offset=0, physical_offset=0, store_timestamp=2,
        property_crc=bool(changes),
    )  # fmt: skip
    return bytes(buffer)


def one_index() -> bytes:
    """An index file with two keys of one slot."""
    buffer = bytearray(file_size(SLOTS, 4))
    writer = IndexWriter(buffer, SLOTS, 4)
    writer.put([(key_hash("t", "k"), offset, 5) for offset in (7, 9)])
    writer.publish()
    return bytes(buffer)


def one_epoch_file() -> bytes:
    """Two epochs with their CRC."""
    lines = b"1-0\n2-100\n"
    return b"2\n%d\n" % (zlib.crc32(lines) & 0x7FFFFFFF) + lines


ENTRIES = [(2, number, 1, b"x") for number in (1, 2)]
PAYLOADS = (
    encode_records([open_record("g", "n0", HardState(1, "n0"))]), encode_records(ENTRIES),
    encode_records([(1, 2, None)]), encode_records([(3, 5, 1)]),
)  # fmt: skip
SEGMENT = b"".join(encode_frame(WAL_MAGIC, seq, one) for seq, one in enumerate(PAYLOADS[:2], 1))
SEGMENT_1 = b"".join(encode_frame(WAL_MAGIC_1, seq, one) for seq, one in enumerate(PAYLOADS[:2], 1))
STATE = join_snapshot(
    7, MetadataState.from_snapshot([["c", "b", 2, [], [[1, "a:1", "x"]], 1, 1, [1], 1]])
)
EVENTS = (
    to_proposal(1, 2, BrokerIdTaken("c", "b", "a:1", BrokerId(1), "x")),
    to_proposal(1, 2, SyncStateSetAltered("b", (BrokerId(1),), 2)),
)
SNAPSHOTS = tuple(
    __import__("msgpack").packb((1, "g", 7, 1, data), use_bin_type=True) for data in (STATE, b"")
)
TOPIC = {"topicName": "t", "perm": 6, "readQueueNums": 4, "writeQueueNums": 4, "attributes": {}}
SEGMENT_OF_QUEUE = {"bname": "b", "gen": 0, "queueId": 1, "logicOffset": 0, "startOffset": 0}
DETAIL = {
    "bname": "b",
    "topic": "t",
    "epoch": 7,
    "totalQueues": 1,
    "hostedQueues": {"0": [SEGMENT_OF_QUEUE]},
}
CONFIGS = as_json(
    {"topicConfigTable": {"t": TOPIC}, "dataVersion": {"counter": 1, "stateVersion": 1, "timestamp": 2}},
    {"subscriptionGroupTable": {"g": {"groupName": "g", "retryQueueNums": 1}}},
    {"offsetTable": {"t@g": {"0": 5}}, "pullOffsetTable": {}, "resetOffsetTable": {}},
    {"topicQueueMappingInfoMap": {"t": DETAIL}}, {"offsetTable": {"3": 7}},
    {"readTimeMs": 1, "queueOffset": 2, "lateOffsets": [3]},
    {"table": {"t@g": {"0": {"i": 1, "l": 1, "o": [1, 2], "p": 3}}}},
    {"messageRequestModeMap": {"t": {"g": {"mode": "POP", "popShareQueueNum": 0}}}},
)  # fmt: skip

TARGETS = (
    Target("wal", wal, STORE, (SEGMENT, SEGMENT_1)),
    Target("wal_payload", wal_payload, STORE,
           (*(head + b"\xc1\xc1".join(PAYLOADS) for head in (b"\0", b"\1")), b"\0" + PAYLOADS[3])),
    Target("snapshot", snapshot, STORE, SNAPSHOTS),
    Target("state", state, STORE, (STATE,)),
    Target("proposal", proposal, STORE, EVENTS),
    Target("epochs", epochs, STORE, (one_epoch_file(), b"1\n0\n3-7\n")),
    Target("record", record, (), (one_record(), one_record(topic="y" * 200), one_record() * 2)),
    Target("properties", properties, (), (
        props.encode({"TAGS": "a", "KEYS": "k1 k2", "DELAY": "3"}), b"CRC32\x010123456789\x02")),
    Target("queue", queue, (), (struct.pack(">qiq", 0, 100, 7) * 3, struct.pack(">qiqqqhii", *range(1, 9)))),
    Target("index", index, (), (one_index(),)),
    Target("small_files", small_files, STORE,
           (b"c#b#1#x", b"c#b#x", struct.pack(">8q", *range(8)), *as_json({"configTable": {"n": {"k": "v"}}}))),
    Target("config", config, STORE, CONFIGS),
    Target("change", change, REMOTE, as_json(
        {"topics": [TOPIC], "mappings": [DETAIL], "groups": [{"groupName": "g"}], "endedTopics": ["u"]})),
    Target("settings", settings, (ConfigInvalid,), (
        b"a = b\\\n  c\n# x\n! y\nd\\u00e4:e\\tf\n", "k=ä\n".encode("latin-1"))),
    Target("trace", trace, (TraceUnreadable,), (encode(TraceOpened(TRACE_VERSION, "r", 1)),)),
    Target("history", history, REMOTE, as_json(
        {"op": "history", "version": 1}, {"op": "send", "client": "c", "n": 1, "topic": "t", "key": "k", "startMs": 2})),
    Target("map_file", map_file, REMOTE, as_json(
        {"topic": "t", "type": "x", "epoch": 1, "totalQueue": 1, "hostedQueues": {"0": [SEGMENT_OF_QUEUE]}},
        {"brokerConfigMap": {"b": {"readQueueNums": 1, "writeQueueNums": 1, "mappingDetail": DETAIL}}, "prefix": "t"})),
    Target("progress", progress, (*STORE, ConfigInvalid), as_json(
        {"version": 1, "queues": {"t": {"b": {"0": 5}}}, "logs": {"b": {"epoch": 1, "epochStart": 0, "offset": 9}}})),
)  # fmt: skip
