"""What clients and mqadmin are answered: sends, pulls, topics, status; and registrations."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rmqha.broker.naming.messages import Registered, registration_body, registration_fields
from rmqha.broker.sync.aio import metadata_log
from rmqha.broker.topics.topic_table import TopicConfig, TopicTable, system_topics
from rmqha.remoting import fastjson
from rmqha.remoting.bodies import EpochEntryCache
from rmqha.remoting.frame import FrameDecoder
from rmqha.remoting.old_clients import serving_fields
from rmqha.store import properties as props
from rmqha.store.aio.metadata_reader import waiting_from
from rmqha.testing.real.wire import parse_messages
from tests.broker.replicas import NAME, TOPIC, ReplicaCluster, master_of, send_fields

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "5.3.3" / "remoting.jsonl"


@pytest.fixture
def cluster() -> Iterator[ReplicaCluster]:
    """One replica, which reigns."""
    with ReplicaCluster(seed=1, replicas=1) as one:
        one.boot_all()
        yield one


def address(cluster: ReplicaCluster) -> str:
    """The master's."""
    master = cluster.master()
    assert master is not None
    return master.config.address


def send(cluster: ReplicaCluster, body: bytes = b"x", code: int = 310, **fields: str) -> Any:
    """Send one message with changed fields; the answer."""
    return cluster.ask(address(cluster), code, {**send_fields(0), **fields}, body)


def pull(cluster: ReplicaCluster, offset: int, **fields: str) -> Any:
    """Pull from queue 0."""
    asked = {
        "consumerGroup": "CG", "topic": TOPIC, "queueId": "0", "queueOffset": str(offset),
        "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
        "subscription": "*", "subVersion": "0", "expressionType": "TAG", **fields,
    }  # fmt: skip
    return cluster.ask(address(cluster), 11, asked)


def test_send_when_stored_then_the_answer_names_queue_offset_and_ids(
    cluster: ReplicaCluster,
) -> None:
    """Java's client fails on an answer without queueId or queueOffset."""
    first, second = send(cluster).ext_fields, send(cluster).ext_fields
    assert (first["queueId"], first["queueOffset"], second["queueOffset"]) == ("0", "0", "1")
    assert first["transactionId"] == "U0"
    assert len(first["msgId"]) == 32
    assert first["msgId"].startswith("0A00000100002A9F")
    assert (first["MSG_REGION"], first["TRACE_ON"]) == ("DefaultRegion", "true")


def test_sends_when_they_name_no_queue_then_all_queues_have_their_turn(
    cluster: ReplicaCluster,
) -> None:
    """A producer that leaves the choice to the broker would fill one queue alone."""
    answers = [send(cluster, e="-1") for _ in range(5)]
    chosen = [int(answer.ext_fields["queueId"]) for answer in answers]
    assert sorted(chosen[:4]) == [0, 1, 2, 3]
    assert chosen[4] == chosen[0]


@pytest.mark.few
@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"b": "bad topic"}, 29),
        ({"b": "a" * 128}, 29),
        ({"b": "SCHEDULE_TOPIC_XXXX"}, 16),
        ({"b": "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"}, 16),
        ({"b": "New", "c": "Nothing"}, 17),
        ({"e": "99"}, 29),
        ({"f": "4"}, 13),
        ({"f": "128", "i": "INNER_NUM\x012\x02"}, 13),
        ({"i": "INNER_NUM\x012\x02"}, 13),
        ({"i": "K\x01" + "v" * 40_000 + "\x02"}, 13),
        ({"i": "INNER_MULTI_DISPATCH\x01%LMQ%a\x02"}, 13),
        ({"i": "UNIQ_KEY\x01A1\x02__LITE_TOPIC\x01session-1\x02"}, 13),
        ({"i": "UNIQ_KEY\x01A1\x02INNER_MULTI_DISPATCH\x01%LMQ%a\x02WAIT\x01true"}, 13),
        ({"i": "UNIQ_KEY\x01A1\x02K\x01" + "\0" * 5_000 + "v\x02"}, 13),
        ({"b": "%RETRY%G", "m": "true"}, 13),
    ],
)
def test_send_when_illegal_then_it_is_refused_and_nothing_is_stored(
    cluster: ReplicaCluster, changed: dict[str, str], code: int
) -> None:
    """Codes decide whether a client tries another broker or gives up."""
    send(cluster)
    master = cluster.master()
    assert master is not None
    end = master.store.max_offset
    assert send(cluster, **changed).code == code
    # A topic may have come to be on the way, as in Java; no message did.
    made = sum(one.end - one.offset for one in waiting_from(master.store.commit_log, end))
    assert master.store.max_offset == end + made


@pytest.mark.parametrize(
    ("more", "queue", "kept"),
    [
        ("", "2", False),
        ("_SYS_MSG_PRIORITY_\x010\x02", "0", True),
        ("_SYS_MSG_PRIORITY_\x011\x02", "1", True),
        ("_SYS_MSG_PRIORITY_\x019\x02", "3", True),
        ("_SYS_MSG_PRIORITY_\x01-1\x02", "2", True),
        ("_SYS_MSG_PRIORITY_\x01high\x02", "2", True),
        ("_SYS_MSG_PRIORITY_\x010\x02__SHARDINGKEY\x01k\x02", "2", False),
    ],
)
def test_send_when_it_has_a_priority_then_that_chooses_the_queue(
    cluster: ReplicaCluster, more: str, queue: str, kept: bool
) -> None:
    """As brokers of 5.5 do, whichever queue it was sent to: pops begin with the last one."""
    assert send(cluster).code == 0
    fields = send(cluster, e="2", i=f"UNIQ_KEY\x01A1\x02{more}").ext_fields
    assert fields["queueId"] == queue
    master = cluster.master()
    assert master is not None
    unit = master.store.reader.unit(TOPIC, int(queue), int(fields["queueOffset"]))
    assert unit is not None
    record = master.store.reader.look(unit.physical_offset)
    assert record is not None
    assert ("_SYS_MSG_PRIORITY_" in record.property_map()) == kept


@pytest.mark.parametrize(
    "promise", ["queue.type=BatchCQ", "cleanup.policy=COMPACTION", "message.type=LITE"]
)
def test_send_when_a_java_brokers_topic_promises_more_then_it_is_refused(
    cluster: ReplicaCluster, promise: str
) -> None:
    """In a batch queue a plain message has no place: it was acknowledged and delivered to nobody."""
    assert send(cluster).code == 0
    master = cluster.master()
    assert master is not None
    name, _, value = promise.partition("=")
    topic = master.topics.table.get(TOPIC)
    assert topic is not None
    master.topics.table.put(replace(topic, attributes={name: value}), 0)
    end = master.store.max_offset
    answer = send(cluster)
    assert (answer.code, promise in (answer.remark or "")) == (13, True)
    assert master.store.max_offset == end
    master.topics.table.put(topic, 0)
    assert send(cluster).code == 0


def test_store_of_java_when_a_topic_promises_more_then_it_opens() -> None:
    """Whoever moves from Java must not stand before a broker that does not start."""
    with ReplicaCluster(seed=2, replicas=1) as cluster:
        (host,) = cluster.broker_hosts
        attributes = {"queue.type": "BatchCQ", "cleanup.policy": "COMPACTION", "new.thing": "1"}
        table = {"topicConfigTable": {"Old": {"topicName": "Old", "attributes": attributes}}}
        disk = cluster.disks[host]
        cluster.loop.run_until_complete(disk.make_dirs("/store/config"))
        path = "/store/config/topics.json"
        cluster.loop.run_until_complete(disk.write_atomic(path, json.dumps(table).encode()))
        cluster.boot_all()
        master = cluster.master()
        assert master is not None
        old = master.topics.table.get("Old")
        assert old is not None
        assert old.attributes == attributes


def test_send_when_the_body_is_too_large_then_13() -> None:
    """maxMessageSize."""
    with ReplicaCluster(seed=1, replicas=1, maxMessageSize=100) as cluster:
        cluster.boot_all()
        assert send(cluster, b"x" * 101).code == 13
        assert send(cluster, b"x" * 100).code == 0


def test_send_when_too_few_replicas_are_in_sync_then_nothing_is_written() -> None:
    """minInSyncReplicas: SYSTEM_ERROR, so that the client goes elsewhere."""
    with ReplicaCluster(seed=1, replicas=1, minInSyncReplicas=2) as cluster:
        cluster.boot_all()
        answer = send(cluster)
        assert (answer.code, answer.remark) == (1, "in-sync replicas not enough")
        master = cluster.master()
        assert master is not None
        assert master.store.max_offset == 0


@pytest.mark.parametrize("key", ["", "UNIQ_KEY\x01U1\x02"], ids=["the long way", "the quick way"])
@pytest.mark.parametrize("wait", ["", "WAIT\x01true\x02", "WAIT\x01false\x02"])
def test_send_when_it_says_nothing_of_waiting_then_it_waits_for_the_slaves(
    wait: str, key: str
) -> None:
    """Java's waitStoreMsgOK is true unless WAIT says something else."""
    with ReplicaCluster(seed=3, replicas=2) as cluster:
        cluster.boot_all()
        cluster.until(cluster.in_sync, "SyncStateSet of two")
        master, answers = master_of(cluster).config, list[Any]()
        for host in cluster.broker_hosts:
            if host != master.host:
                cluster.net.cut(host, master.host)
        fields = {**send_fields(1), "i": f"TAGS\x01TagA\x02{key}{wait}"}
        cluster.ask_later(master.address, 310, fields, b"x", told=answers.append)
        cluster.run_for(500)
        assert [one.code for one in answers] == ([0] if "false" in wait else [])


def test_topic_when_first_sent_to_then_it_inherits_and_name_servers_hear_of_it(
    cluster: ReplicaCluster,
) -> None:
    """TBW102 has 8 queues, the client asks for 4; without inheritance nothing is made."""
    send(cluster)
    cluster.until(
        lambda: TOPIC
        in cluster.name_server.registered[-1][1]["topicConfigSerializeWrapper"]["topicConfigTable"],
        "the topic's registration",
        2_000,
    )
    topic = fastjson.loads(cluster.ask(address(cluster), 351, {"topic": TOPIC}).body)
    assert (topic["readQueueNums"], topic["writeQueueNums"], topic["perm"]) == (4, 4, 6)
    host = cluster.host_of(cluster.replicas["10.0.0.1"])
    cluster.kill(host)
    cluster.boot(host)
    cluster.until(lambda: cluster.master() is not None, "the master again")
    assert cluster.ask(address(cluster), 351, {"topic": TOPIC}).code == 0


def test_batch_when_sent_then_each_message_is_stored_and_ids_are_joined(
    cluster: ReplicaCluster,
) -> None:
    """320: one body, consecutive offsets."""
    body = b""
    for number in range(3):
        pairs = props.encode({"UNIQ_KEY": f"B{number}"})
        text = f"part-{number}".encode()
        size = 22 + len(text) + len(pairs)
        body += b"".join(value.to_bytes(4) for value in (size, 0, 0, 0, len(text)))
        body += text + len(pairs).to_bytes(2) + pairs
    fields = send(cluster, body, code=320, m="true").ext_fields
    assert len(fields["msgId"].split(",")) == 3
    assert fields["queueOffset"] == "0"
    found = parse_messages(pull(cluster, 0).body)
    assert [(one.queue_offset, one.body) for one in found] == [
        (0, b"part-0"), (1, b"part-1"), (2, b"part-2"),
    ]  # fmt: skip


def test_pull_when_tags_are_asked_for_then_others_are_passed_over(cluster: ReplicaCluster) -> None:
    """Filtering by hash at the broker; what is passed over is not offered again."""
    for tag in ("TagA", "TagB", "TagA"):
        send(cluster, tag.encode(), i=f"TAGS\x01{tag}\x02")
    cluster.run_for(100)
    answer = pull(cluster, 0, subscription="TagA || TagC")
    assert [one.queue_offset for one in parse_messages(answer.body)] == [0, 2]
    assert answer.ext_fields["nextBeginOffset"] == "3"
    none = pull(cluster, 0, subscription="TagC")
    assert (none.code, none.ext_fields["nextBeginOffset"]) == (20, "3")


@pytest.mark.parametrize(("offset", "code", "following"), [(2, 19, "2"), (9, 21, "2"), (0, 0, "2")])
def test_pull_when_at_or_beyond_the_end_then_the_code_tells(
    cluster: ReplicaCluster, offset: int, code: int, following: str
) -> None:
    """19 is "nothing new"; 21 makes clients give their offset up, so it must be right."""
    send(cluster)
    send(cluster)
    cluster.run_for(100)
    answer = pull(cluster, offset)
    assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (code, following)


def test_pull_when_held_then_a_new_message_ends_it_at_once(cluster: ReplicaCluster) -> None:
    """Long polling: the consumer hears of a message long before its pull's time is over."""
    send(cluster)
    cluster.run_for(100)
    started = cluster.loop.time()
    asked = cluster.loop.create_task(_held(cluster, 10_000), context=cluster._client_context.copy())
    cluster.run_for(500)
    assert not asked.done()
    send(cluster, b"second")
    cluster.until(asked.done, "the held pull's answer", 2_000)
    assert cluster.loop.time() - started < 3
    assert [one.body for one in parse_messages(asked.result().body)] == [b"second"]


async def _held(cluster: ReplicaCluster, suspend_ms: int) -> Any:
    from rmqha.remoting.command import RemotingCommand

    fields = {
        "consumerGroup": "CG", "topic": TOPIC, "queueId": "0", "queueOffset": "1",
        "maxMsgNums": "32", "sysFlag": "6", "suspendTimeoutMillis": str(suspend_ms),
        "subscription": "*", "expressionType": "TAG",
    }  # fmt: skip
    command = RemotingCommand(11, ext_fields=fields)
    return await cluster._client.invoke(address(cluster), command, 20_000)


def test_status_when_asked_then_epochs_and_replication_are_shown() -> None:
    """1007 and 907, which mqadmin prints."""
    with ReplicaCluster(seed=2) as cluster:
        cluster.boot_all()
        cluster.until(cluster.in_sync, "SyncStateSet of three")
        cluster.send_many(3)
        master = cluster.master()
        assert master is not None
        shown = EpochEntryCache.decode(cluster.ask(address(cluster), 1007).body)
        assert (shown.broker_id, shown.broker_name) == (0, NAME)
        assert [(e.epoch, e.start_offset) for e in shown.epoch_list] == [(1, 0)]
        assert shown.max_offset == master.store.max_offset
        status = fastjson.loads(cluster.ask(address(cluster), 907).body)
        assert (status["master"], status["inSyncSlaveNums"]) == (True, 2)
        assert [one["inSync"] for one in status["haConnectionInfo"]] == [True, True]


def test_registration_when_compared_with_javas_then_fields_and_shape_are_the_same() -> None:
    """The recorded 103 of a real 5.3.3 broker in controller mode."""
    line = next(
        json.loads(text)
        for text in GOLDEN.read_text().splitlines()
        if '"request_code":103,"response":false' in text
    )
    (java,) = FrameDecoder().feed(bytes.fromhex(line["hex"]))
    theirs = fastjson.loads(java.body)["topicConfigSerializeWrapper"]
    table = TopicTable(
        system_topics("DefaultCluster", "broker-a", auto_create=True, default_queues=8, timers=True)
    )
    body = registration_body(table, 0)
    ours = fastjson.loads(body)["topicConfigSerializeWrapper"]
    broker = Registered("DefaultCluster", "broker-a", "a:1", "a:2", 0)
    fields = registration_fields(broker, body)
    assert set(fields) == {*(java.ext_fields or {}), *serving_fields()}
    assert int(fields["bodyCrc32"]) == zlib.crc32(body) & 0x7FFFFFFF
    assert set(ours) == set(theirs)
    assert {k: type(v) for k, v in ours["dataVersion"].items()} == {
        k: type(v) for k, v in theirs["dataVersion"].items()
    }
    for name, topic in theirs["topicConfigTable"].items():
        if name in ours["topicConfigTable"]:
            assert ours["topicConfigTable"][name] == topic
    common = set(ours["topicConfigTable"]) & set(theirs["topicConfigTable"])
    assert {"TBW102", "broker-a", "DefaultCluster", "SCHEDULE_TOPIC_XXXX"} <= common


@pytest.mark.parametrize("unit_mode", [False, True])
def test_topic_when_a_send_makes_it_then_it_inherits_what_java_s_does(unit_mode: bool) -> None:
    """createTopicInSendMessageMethod: neither order nor attributes, and the sender's own unit flag.

    A default topic for ordered messages would have made every topic of a typing error ordered.
    """
    default = TopicConfig(
        "TBW102", 8, 8, perm=7, topic_filter_type="MULTI_TAG", topic_sys_flag=2, order=True,
        attributes={"message.type": "FIFO"},
    )  # fmt: skip
    table = TopicTable([default])
    made = table.topic_for_send("T", "TBW102", 4, unit_mode=unit_mode)
    flag = 1 if unit_mode else 0
    assert made == TopicConfig(
        "T", 4, 4, perm=6, topic_filter_type="MULTI_TAG", topic_sys_flag=flag
    )
    retry = table.topic_for_send("%RETRY%G", "TBW102", 4, unit_mode=unit_mode)
    assert retry == TopicConfig("%RETRY%G", 1, 1, topic_sys_flag=2 * flag)


def test_epochs_when_there_are_no_controllers_then_javas_refusal() -> None:
    """1007 of a broker alone: its epoch means nothing to anybody."""
    with ReplicaCluster(seed=5, replicas=1, enableControllerMode="false") as one:
        one.boot_all()
        answer = one.ask(address(one), 1007)
        assert (answer.code, answer.remark) == (1, "this request only for controllerMode ")


@pytest.mark.costly
def test_new_topics_when_too_many_wait_for_queues_then_busy_and_others_go_on(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What honest senders sent stood in the log behind ten thousands of queues to be made."""
    assert send(cluster).code == 0
    monkeypatch.setattr(metadata_log, "NEW_TOPICS_WAITING_MAX", 0)
    refused = send(cluster, b="Second")
    assert (refused.code, refused.remark) == (2, "too many new topics wait for their queues")
    assert send(cluster).code == 0
    assert cluster.ask(address(cluster), 215, {"topic": TOPIC}).code == 0
    monkeypatch.undo()
    assert send(cluster, b="Second").code == 0
