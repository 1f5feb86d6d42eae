"""Topics, groups and their offsets are as safe as messages: every change survives its master.

Slaves would copy tables once a minute only; what a new master has comes from its log.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from rmqha.base.errors import DiskFailed
from rmqha.broker.aio.replica import BrokerReplica
from rmqha.broker.topics.group_table import GroupConfig
from rmqha.broker.topics.told_tables import TOLD_AT_ONCE
from rmqha.broker.topics.topic_table import TopicConfig
from rmqha.ha.events import Role
from rmqha.remoting.command import RemotingCommand
from rmqha.store.aio.message_store import MessageStore
from rmqha.store.aio.metadata_reader import dispatched_since
from rmqha.store.metadata_records import METADATA_TOPIC, ended_property
from rmqha.store.record import Message
from tests.broker.replicas import QUEUES, ReplicaCluster, master_of, send_fields

T = "Young"
GROUP = "CG"
ASK = {
    "readQueueNums": "8", "writeQueueNums": "8", "perm": "6", "order": "false",
    "defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0",
}  # fmt: skip


@pytest.fixture
def cluster() -> Iterator[ReplicaCluster]:
    """Three replicas in sync."""
    with ReplicaCluster(
        seed=31, syncSlaveMetadataPeriod=60_000, haHousekeepingInterval=20_000
    ) as one:
        one.boot_all()
        one.until(one.in_sync, "SyncStateSet of three")
        yield one


def ask(cluster: ReplicaCluster, code: int, fields: dict[str, str], body: bytes = b"") -> None:
    """A request that succeeds."""
    answer = cluster.ask(master_of(cluster).config.address, code, fields, body)
    assert (answer.code, answer.remark) == (0, None)


def make_topic(cluster: ReplicaCluster, **fields: str) -> None:
    """17."""
    ask(cluster, 17, {"topic": T, **ASK, **fields})


def make_group(cluster: ReplicaCluster, **members: object) -> None:
    """200."""
    ask(cluster, 200, {}, json.dumps({"groupName": GROUP, **members}).encode())


def put(cluster: ReplicaCluster, number: int, queue: int = 0) -> int:
    """Send to the young topic; the queue offset."""
    address = master_of(cluster).config.address
    fields = {**send_fields(number, T), "e": str(queue)}
    answer = cluster.ask(address, 310, fields, b"body-%d" % number)
    assert answer.code == 0, answer.remark
    return int((answer.ext_fields or {})["queueOffset"])


def bodies(replica: BrokerReplica, queue: int = 0) -> list[bytes]:
    """What the young topic's queue holds."""
    got = replica.store.reader.get(T, queue, 0, count_max=32, bytes_max=1 << 20)
    return [bytes(one)[bytes(one).index(b"body-") :][:6] for one in got.records]


def kill_master(cluster: ReplicaCluster) -> BrokerReplica:
    """And wait for the next one."""
    old = master_of(cluster)
    cluster.kill(cluster.host_of(old))
    cluster.until(lambda: cluster.master() not in (None, old), "new master")
    return master_of(cluster)


def test_topic_when_made_and_the_master_dies_then_the_next_one_has_it(
    cluster: ReplicaCluster,
) -> None:
    """B2: the log had the messages of sixteen queues, and the new master knew no such topic."""
    make_topic(cluster, readQueueNums="16", writeQueueNums="16")
    for queue in range(16):
        put(cluster, queue, queue)
    master = kill_master(cluster)
    topic = master.topics.table.get(T)
    assert topic is not None
    assert (topic.read_queue_nums, topic.write_queue_nums) == (16, 16)
    assert put(cluster, 99, 15) == 1
    fields = {
        "consumerGroup": GROUP, "topic": T, "queueId": "15", "queueOffset": "0",
        "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
        "subscription": "*", "subVersion": "0", "expressionType": "TAG",
    }  # fmt: skip
    assert cluster.ask(master.config.address, 11, fields).code == 0


def test_topic_when_changed_or_deleted_and_the_master_dies_then_so_it_is(
    cluster: ReplicaCluster,
) -> None:
    """The table of a second ago is not the topic that was acknowledged."""
    make_topic(cluster)
    make_topic(cluster, perm="4", readQueueNums="9")
    ask(cluster, 17, {"topic": "Other", **ASK})
    ask(cluster, 215, {"topic": "Other"})
    master = kill_master(cluster)
    topic = master.topics.table.get(T)
    assert topic is not None
    assert (topic.perm, topic.read_queue_nums) == (4, 9)
    assert master.topics.table.get("Other") is None


def test_topics_when_several_are_made_at_once_then_all_survive(cluster: ReplicaCluster) -> None:
    """18 and 225 are one record each: all, or none."""
    topics = [
        {"topicName": f"Many{one}", "readQueueNums": 2, "writeQueueNums": 2} for one in range(50)
    ]
    ask(cluster, 18, {}, json.dumps({"topicConfigList": topics}).encode())
    groups = [{"groupName": f"Groups{one}"} for one in range(50)]
    ask(cluster, 225, {}, json.dumps({"groupConfigList": groups}).encode())
    master = kill_master(cluster)
    assert all(master.topics.table.get(f"Many{one}") for one in range(50))
    assert all(master.groups.table.get(f"Groups{one}") for one in range(50))


def test_topic_when_made_by_a_send_and_the_master_dies_then_the_next_one_has_it(
    cluster: ReplicaCluster,
) -> None:
    """Who sends to a new topic has asked nobody to make it."""
    put(cluster, 1)
    master = kill_master(cluster)
    topic = master.topics.table.get(T)
    assert topic is not None
    assert topic.write_queue_nums == QUEUES
    assert bodies(master) == [b"body-1"]


@pytest.mark.costly
def test_group_when_made_and_the_master_dies_then_the_next_one_has_it(
    cluster: ReplicaCluster,
) -> None:
    """Subscription groups had the same fault."""
    make_group(cluster, retryMaxTimes=3)
    make_group(cluster, retryMaxTimes=5, consumeEnable=False)
    ask(cluster, 200, {}, json.dumps({"groupName": "Gone"}).encode())
    ask(cluster, 207, {"groupName": "Gone", "cleanOffset": "true"})
    master = kill_master(cluster)
    group = master.groups.table.get(GROUP)
    assert group is not None
    assert (group.retry_max_times, group.consume_enable) == (5, False)
    assert master.groups.table.get("Gone") is None


@pytest.mark.costly
@pytest.mark.parametrize("after", ["nothing", "failover", "restart", "power"])
def test_topic_when_deleted_and_made_again_then_it_begins_anew(
    cluster: ReplicaCluster, after: str
) -> None:
    """B5: its first message had offset 2, and a pull returned the old ones."""
    make_topic(cluster)
    make_group(cluster)
    for number in (1, 2, 3):
        put(cluster, number)
    offset = {"consumerGroup": GROUP, "topic": T, "queueId": "0", "commitOffset": "3"}
    ask(cluster, 15, offset)
    ask(cluster, 215, {"topic": T})
    assert not master_of(cluster).store.reader.has_topic(T)
    make_topic(cluster)
    assert put(cluster, 4) == 0
    if after == "power":
        # Messages are flushed behind their answers; what no disk has, no disk brings back.
        cluster.run_for(1_000)
    if after == "failover":
        kill_master(cluster)
    elif after != "nothing":
        hosts = [cluster.host_of(one) for one in cluster.replicas.values()]
        for host in hosts:
            cluster.kill(host, power=after == "power")
        for host in hosts:
            cluster.boot(host)
        cluster.until(lambda: cluster.master() is not None, "a master")
    assert put(cluster, 5) == 1
    assert bodies(master_of(cluster)) == [b"body-4", b"body-5"]
    for replica in cluster.replicas.values():
        cluster.until(lambda r=replica: bodies(r) == [b"body-4", b"body-5"], "the same queues")  # type: ignore[misc]  # bound at once
        assert replica.offsets.table.query(GROUP, T, 0) is None


@pytest.mark.costly
def test_topic_when_a_thousand_groups_retry_it_then_it_can_be_deleted(
    cluster: ReplicaCluster,
) -> None:
    """All their names do not fit into the properties of one record."""
    make_topic(cluster)
    master = master_of(cluster)
    groups = [f"{number:0100d}" for number in range(1_000)]
    topics = [
        {"topicName": f"%RETRY%{group}_{T}", "readQueueNums": 1, "writeQueueNums": 1}
        for group in groups
    ]
    for first in range(0, 1_000, 250):
        made = json.dumps({"topicConfigList": topics[first : first + 250]}).encode()
        assert cluster.ask(master.config.address, 18, {}, made).code == 0
    for group in groups:
        master.offsets.table.commit(group, T, 0, 0, 0)
    ask(cluster, 215, {"topic": T})
    new = kill_master(cluster)
    assert new.topics.table.get(T) is None
    assert not [name for name in new.topics.table.topics if name.endswith(f"_{T}")]


def test_topic_when_its_deletion_waits_for_replicas_then_nothing_is_made_in_its_place(
    cluster: ReplicaCluster,
) -> None:
    """Its old queues are still there: a young message would stand among the old ones."""
    make_topic(cluster)
    put(cluster, 1)
    master = master_of(cluster)
    for one in cluster.replicas.values():
        if one is not master:
            assert one.ha is not None
            assert one.ha._master is not None
            one.ha._master[1]._transport.pause_reading()  # type: ignore[union-attr]  # it is connected
    address = master.config.address
    cluster.ask_later(address, 215, {"topic": T})
    cluster.until(lambda: master.topics.table.get(T) is None, "the deletion to be written")
    assert master.store.reader.has_topic(T)
    for code, fields in ((17, {"topic": T, **ASK}), (310, send_fields(2, T))):
        answer = cluster.ask(address, code, fields, b"x" if code == 310 else b"")
        assert answer.code == 2
        assert "is being deleted" in (answer.remark or "")


@pytest.mark.costly
def test_change_when_the_master_is_cut_off_then_the_set_knows_nothing_of_it(
    cluster: ReplicaCluster,
) -> None:
    """A deletion that nobody confirmed must not stay on the old master when it comes back."""
    make_topic(cluster)
    put(cluster, 1)
    old = master_of(cluster)
    host = cluster.host_of(old)
    others = [*cluster.controller_hosts, *(one for one in cluster.broker_hosts if one != host)]
    for other in others:
        cluster.net.cut(host, other)
        cluster.net.cut(other, host)
    address = old.config.address
    assert cluster.ask(address, 215, {"topic": T}).code != 0
    cluster.ask(address, 17, {"topic": "Ghost", **ASK})
    cluster.until(lambda: cluster.master() not in (None, old), "new master")
    assert bodies(master_of(cluster)) == [b"body-1"]
    cluster.net.heal()
    cluster.until(lambda: old.role is Role.SLAVE, "the old master as a slave")
    cluster.until(cluster.in_sync, "all three", 120_000)
    for replica in cluster.replicas.values():
        assert replica.topics.table.get(T) is not None
        assert replica.topics.table.get("Ghost") is None
        assert bodies(replica) == [b"body-1"]


def test_replica_when_its_tables_are_of_no_moment_then_it_takes_its_masters(
    cluster: ReplicaCluster,
) -> None:
    """A new disk, and a store that an older release or Java has written: no mark in its files."""
    make_topic(cluster)
    make_group(cluster, retryMaxTimes=3)
    slave = next(one for one in cluster.replicas.values() if one.role is Role.SLAVE)
    host = cluster.host_of(slave)
    cluster.until(lambda: slave.topics.table.get(T) is not None, "the topic")
    cluster.run_for(500)
    cluster.kill(host)
    disk = cluster.disks[host]
    path = "/store/config/topics.json"
    members = json.loads(cluster.loop.run_until_complete(disk.read(path)))
    assert members.pop("rmqhaAppliedOffset") > 0
    del members["topicConfigTable"][T]
    cluster.loop.run_until_complete(disk.write_atomic(path, json.dumps(members).encode()))
    ask(cluster, 17, {"topic": "Later", **ASK})
    cluster.boot(host)
    cluster.until(cluster.in_sync, "all three", 120_000)
    again = cluster.replicas[host]
    assert again.metadata.is_known
    assert again.topics.table.get(T) is not None
    assert again.topics.table.get("Later") is not None


@pytest.mark.costly
def test_tables_when_copied_from_a_java_master_then_the_next_master_tells_of_them(
    cluster: ReplicaCluster,
) -> None:
    """The log has no record of them: who was down while the Java master reigned lacked them for good."""
    old = cluster.host_of(master_of(cluster))
    slaves = [one for one in cluster.replicas.values() if one.role is Role.SLAVE]
    # Of two with the same log the smaller id is elected; the other one has copied nothing.
    copier = min(slaves, key=lambda one: one.replicas.broker_id or 0)
    names = [f"Of{number}" for number in range(TOLD_AT_ONCE + 20)]
    for name in names:
        copier.topics.table.put(TopicConfig(name, 4, 4), 0)
    copier.groups.table.put(GroupConfig(GROUP, retry_max_times=3), 0)
    copier.metadata.copied()
    assert not copier.metadata.is_known
    cluster.kill(old)
    cluster.until(lambda: cluster.master() is not None, "a new master", 120_000)
    assert master_of(cluster) is copier
    cluster.boot(old)
    cluster.until(cluster.in_sync, "all three", 120_000)
    cluster.run_for(1_000)
    for one in cluster.replicas.values():
        assert [name for name in names if one.topics.table.get(name) is None] == []
        group = one.groups.table.get(GROUP)
        assert group is not None
        assert group.retry_max_times == 3
        assert one.metadata.is_known
    # Once is enough: the log tells whoever comes.
    end = master_of(cluster).store.max_offset
    cluster.run_for(5_000)
    assert master_of(cluster).store.max_offset == end


def test_offsets_when_their_topic_has_ended_then_no_slave_keeps_them(
    cluster: ReplicaCluster,
) -> None:
    """An offset of the topic's first life would pass over the messages of the next one."""
    make_topic(cluster)
    make_group(cluster)
    put(cluster, 1)
    slaves = [one for one in cluster.replicas.values() if one.role is Role.SLAVE]
    for one in slaves:
        one.offsets.table.commit(GROUP, T, 0, 7, 0)
        one.offsets.table.commit(GROUP, "Other", 0, 7, 0)
    ask(cluster, 215, {"topic": T})
    for one in slaves:
        cluster.until(lambda r=one: r.topics.table.get(T) is None, "the deletion")  # type: ignore[misc]  # bound at once
        assert one.offsets.table.query(GROUP, T, 0) is None
        assert one.offsets.table.query(GROUP, "Other", 0) == 7


@pytest.mark.few
@pytest.mark.parametrize(
    "body", [b"", b"\xff\x00", b"[1]", b'{"topics": [{"topicName": 7}]}', b'{"endedTopics": 1}']
)
def test_record_when_nobody_of_this_kind_wrote_it_then_it_is_set_aside(
    cluster: ReplicaCluster, body: bytes
) -> None:
    """X3: a producer of a Java master can write to any topic; no broker may end of what it reads."""
    master = master_of(cluster)
    make_topic(cluster)
    host = bytes((10, 0, 0, 9, 0, 0, 1, 1))
    strange = Message(METADATA_TOPIC, 0, body, ended_property([f"{T},,\xe4"]), 0, host, host)
    master.store.append(strange)
    make_group(cluster)
    cluster.until(
        lambda: all(one.metadata.set_aside == 1 for one in cluster.replicas.values()),
        "all to see it",
    )
    new = kill_master(cluster)
    assert new.groups.table.get(GROUP) is not None
    hosts = [cluster.host_of(one) for one in cluster.replicas.values()]
    for one in hosts:
        cluster.kill(one)
    for one in hosts:
        cluster.boot(one)
    cluster.until(lambda: cluster.master() is not None, "a master")
    put(cluster, 5)


def test_clients_when_they_write_to_the_internal_topic_then_they_are_refused(
    cluster: ReplicaCluster,
) -> None:
    """Whoever could write there could delete any topic."""
    address = master_of(cluster).config.address
    assert cluster.ask(address, 310, send_fields(1, METADATA_TOPIC), b"{}").code == 16
    assert cluster.ask(address, 17, {"topic": METADATA_TOPIC, **ASK}).code == 29
    assert cluster.ask(address, 215, {"topic": METADATA_TOPIC}).code == 29


def stop(cluster: ReplicaCluster, host: str) -> None:
    """In order: its store ends clean, and is dispatched to its end."""
    task = cluster.loop.create_task(cluster.replicas[host].stop())
    cluster.until(task.done, "stop")
    cluster.kill(host)


@pytest.mark.few
@pytest.mark.parametrize("expired", [False, True])
@pytest.mark.parametrize("unwritten", ["/config/", "consumerOffset.json", "topics.json"])
def test_change_when_a_file_was_not_written_then_the_records_make_up_for_it(
    monkeypatch: pytest.MonkeyPatch, unwritten: str, expired: bool
) -> None:
    """After a stop in order no record is dispatched again: what a file lacks is looked up."""
    with ReplicaCluster(seed=5, replicas=1, flushConsumerOffsetInterval=100) as cluster:
        cluster.boot_all()
        make_topic(cluster)
        make_group(cluster)
        ask(cluster, 17, {"topic": "Gone", **ASK})
        for topic in (T, "Gone"):
            offset = {"consumerGroup": GROUP, "topic": topic, "queueId": "0", "commitOffset": "0"}
            ask(cluster, 15, offset)
        cluster.run_for(1_000)
        host = cluster.broker_hosts[0]
        disk = cluster.disks[host]
        write = disk.write_atomic

        async def guarded(path: str, data: bytes) -> None:
            if unwritten in path:
                raise DiskFailed(f"{path}: read-only file system")
            await write(path, data)

        with monkeypatch.context() as patch:
            patch.setattr(disk, "write_atomic", guarded)
            master = master_of(cluster)
            # Together: once a file has failed, no further change is taken.
            cluster.ask_later(master.config.address, 17, {**ASK, "topic": "Late"})
            cluster.ask_later(master.config.address, 215, {**ASK, "topic": "Gone"})
            # With this one every table is written later than the deletion, if it can be.
            group = json.dumps({"groupName": "Late"}).encode()
            cluster.ask_later(master.config.address, 200, {}, group)
            cluster.until(lambda: master.topics.table.get("Gone") is None, "the deletion")
            cluster.until(lambda: master.topics.table.get("Late"), "the topic")
            cluster.until(lambda: master.groups.table.get("Late"), "the group")
            cluster.until(lambda: not master.store.reader.has_topic("Gone"), "its queues gone")
            stop(cluster, host)
        if expired:
            # The files are true up to a place of the log that is gone meanwhile.
            monkeypatch.setattr(MessageStore, "min_offset", property(lambda self: 1 << 20))
        cluster.boot(host)
        cluster.until(lambda: cluster.master() is not None, "the master again")
        again = master_of(cluster)
        assert again.topics.table.get("Late") is not None
        assert again.topics.table.get("Gone") is None
        assert again.offsets.table.query(GROUP, "Gone", 0) is None
        assert again.offsets.table.query(GROUP, T, 0) == 0


def test_master_when_records_wait_for_its_dispatcher_then_it_knows_them_until_its_role_ends(
    cluster: ReplicaCluster,
) -> None:
    """A replica that reigns decides by all of its log; one that does not, by what is confirmed."""
    slave = next(one for one in cluster.replicas.values() if one.role is Role.SLAVE)
    held = cluster.loop.create_task(slave.store.dispatcher.lock.acquire())
    cluster.until(held.done, "the dispatcher to be held")
    make_topic(cluster)
    cluster.until(lambda: slave.store.max_offset == master_of(cluster).store.max_offset, "the log")
    assert slave.topics.table.get(T) is None

    async def reign_and_resign() -> list[bool]:
        found = []
        for turn in (slave.metadata.reign, slave.metadata.resign):
            turn()
            found.append(T in slave.topics.table.topics)
        return found

    turns = cluster.loop.create_task(reign_and_resign())
    cluster.until(turns.done, "both turns")
    assert turns.result() == [True, False]
    slave.store.dispatcher.lock.release()
    cluster.until(lambda: slave.topics.table.get(T) is not None, "the dispatcher")


def hold_replication(cluster: ReplicaCluster) -> None:
    """The log stops flowing to slaves; requests go on."""
    for one in cluster.replicas.values():
        if one.role is Role.SLAVE:
            assert one.ha is not None
            assert one.ha._master is not None
            one.ha._master[1]._transport.pause_reading()  # type: ignore[union-attr]  # it is connected


@pytest.mark.costly
@pytest.mark.few
@pytest.mark.parametrize(
    ("code", "fields", "body"),
    [
        (17, {"topic": T, **ASK}, b""),
        (215, {"topic": "Old"}, b""),
        (200, {}, json.dumps({"groupName": GROUP}).encode()),
        (207, {"groupName": "OldGroup"}, b""),
    ],
)
def test_change_when_asked_for_again_before_it_is_safe_then_the_answer_waits_too(
    cluster: ReplicaCluster, code: int, fields: dict[str, str], body: bytes
) -> None:
    """Nothing is left to change, but what the first request has written may still be cut off."""
    ask(cluster, 17, {**ASK, "topic": "Old"})
    ask(cluster, 200, {}, json.dumps({"groupName": "OldGroup"}).encode())
    hold_replication(cluster)
    address = master_of(cluster).config.address
    end = master_of(cluster).store.max_offset
    cluster.ask_later(address, code, fields, body)
    cluster.until(lambda: master_of(cluster).store.max_offset > end, "the record")
    again = cluster.ask(address, code, fields, body)
    assert (again.code, again.remark) == (1, "FLUSH_SLAVE_TIMEOUT")


@pytest.mark.costly
def test_groups_when_one_heartbeat_brings_a_thousand_then_a_few_records_make_them(
    cluster: ReplicaCluster,
) -> None:
    """A record for each of the two would hold the broker up for as long as it writes them."""
    names = [f"Many{number}" for number in range(1_000)]
    consumers = [
        {
            "groupName": name, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": [],
            "unitMode": False,
        }
        for name in names
    ]  # fmt: skip
    end = master_of(cluster).store.max_offset
    beat = {"clientID": "c", "consumerDataSet": consumers, "producerDataSet": []}
    ask(cluster, 34, {}, json.dumps(beat).encode())
    cluster.run_for(200)
    store = master_of(cluster).store
    assert len(list(dispatched_since(store.commit_log, store.queues, end))) == 20
    new = kill_master(cluster)
    assert all(new.groups.table.get(name) for name in names)
    assert all(new.topics.table.get(f"%RETRY%{name}") for name in names)


def test_table_when_a_slave_asks_for_it_then_a_master_alone_gives_it(
    cluster: ReplicaCluster,
) -> None:
    """A slave's table is that of another moment; Java's slaves and tools may have any."""
    make_topic(cluster)
    slave = next(one for one in cluster.replicas.values() if one.role is Role.SLAVE)
    for code, member in ((21, "topicConfigTable"), (201, "subscriptionGroupTable")):
        for wanted in ("known", "wanted"):
            fields = {"rmqhaTable": wanted}
            assert cluster.ask(slave.config.address, code, fields).code == 1
            answer = cluster.ask(master_of(cluster).config.address, code, fields)
            value = json.loads(bytes(answer.body))
            assert value["rmqhaAppliedOffset"] > 0
            assert (member in value) == (wanted == "wanted")
        plain = json.loads(bytes(cluster.ask(slave.config.address, code).body))
        assert member in plain
        assert "rmqhaAppliedOffset" not in plain


def test_offsets_when_asked_for_by_what_another_process_counted_then_all_are_told(
    cluster: ReplicaCluster,
) -> None:
    """Its count says nothing here: a slave that took it for this one's would miss positions."""
    make_topic(cluster)
    make_group(cluster)
    put(cluster, 1)
    ask(cluster, 15, {"consumerGroup": GROUP, "topic": T, "queueId": "0", "commitOffset": "1"})
    address = master_of(cluster).config.address

    def asked(since: str) -> dict[str, object]:
        return json.loads(bytes(cluster.ask(address, 43, {"rmqhaSince": since}).body))  # type: ignore[no-any-return]  # an object

    known = str(asked("-")["rmqhaChanges"])
    assert f"{T}@{GROUP}" not in asked(known)["offsetTable"]  # type: ignore[operator]  # an object
    for since in ("-", known.replace("/", "0/"), known + "x", "10.0.0.9:1/5:99", "99"):
        assert f"{T}@{GROUP}" in asked(since)["offsetTable"]  # type: ignore[operator]  # an object


@pytest.mark.costly
def test_deletion_when_its_queues_are_still_there_then_the_answer_waits_for_them(
    cluster: ReplicaCluster,
) -> None:
    """Who makes the topic again at once, as tests do, would be refused."""
    make_topic(cluster)
    put(cluster, 1)
    master = master_of(cluster)
    held = cluster.loop.create_task(master.store.dispatcher.lock.acquire())
    cluster.until(held.done, "the dispatcher to be held")
    command = RemotingCommand(215, ext_fields={"topic": T})
    asked = cluster.loop.create_task(
        cluster._client.invoke(master.config.address, command),
        context=cluster._client_context.copy(),
    )
    cluster.run_for(1_000)
    assert not asked.done()
    master.store.dispatcher.lock.release()
    cluster.until(asked.done, "the answer")
    assert asked.result().code == 0
    assert not master.store.reader.has_topic(T)
