"""Static topics as mqadmin makes and reads them: 513, 351, 21, 103, 17 and 215."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from rmqha.broker.topics.aio import static_requests
from rmqha.broker.topics.mapping_table import MAPPINGS_BYTES_MAX, MappingTable
from rmqha.broker.topics.static_changes import queues_used
from rmqha.remoting import fastjson
from rmqha.remoting.data_version import DataVersion
from rmqha.statictopic.mapping import TopicQueueMappingDetail
from tests.broker.mappings import FIELDS, T, detail, led, put_static
from tests.broker.replicas import NAME, ReplicaCluster, master_of, send_fields


@pytest.fixture
def cluster() -> Iterator[ReplicaCluster]:
    """One replica, which reigns."""
    with ReplicaCluster(seed=4, replicas=1) as one:
        one.boot_all()
        yield one


def ask(cluster: ReplicaCluster, code: int, fields: dict[str, str]) -> tuple[int, str]:
    """Code and remark of an answer."""
    answer = cluster.ask(master_of(cluster).config.address, code, fields)
    return answer.code, answer.remark or ""


def shown(cluster: ReplicaCluster, **fields: str) -> dict[str, object]:
    """351."""
    answer = cluster.ask(master_of(cluster).config.address, 351, {"topic": T, **fields})
    assert answer.code == 0
    return json.loads(bytes(answer.body))  # type: ignore[no-any-return]  # an object


def test_static_topic_when_made_then_it_is_shown_with_its_mapping(cluster: ReplicaCluster) -> None:
    """mqadmin plans with what 351 tells it, and takes a topic without a mapping for an ordinary one."""
    assert put_static(cluster, detail()).code == 0
    plain, whole = shown(cluster), shown(cluster, lo="true")
    mapping = whole.pop("mappingDetail")
    assert plain == whole
    assert (plain["readQueueNums"], plain["writeQueueNums"]) == (4, 4)
    assert TopicQueueMappingDetail.of(mapping) == detail()
    assert ask(cluster, 17, {**FIELDS, "topic": "Plain"}) == (0, "")
    assert "mappingDetail" not in shown(cluster, topic="Plain", lo="true")


def test_static_topic_when_nothing_of_it_is_here_then_it_may_have_no_queues(
    cluster: ReplicaCluster,
) -> None:
    """mqadmin tells brokers that lead nothing as well, so that they answer 501 and know the epoch."""
    nothing = detail(queues={})
    assert put_static(cluster, nothing, readQueueNums="0", writeQueueNums="0").code == 0
    assert master_of(cluster).mappings.table.get(T) == nothing
    assert ask(cluster, 17, {**FIELDS, "topic": "Plain", "readQueueNums": "0"})[0] == 29


@pytest.mark.few
@pytest.mark.parametrize(
    ("mapping", "fields", "remark"),
    [
        (detail(name="broker-b"), {}, "of broker broker-b, not broker-a"),
        (detail(topic="Other"), {}, "of topic Other, not Static"),
        (detail(0), {}, "epoch 0 is older than 1"),
        (detail(2, {0: (led(3),)}), {}, "generation 0 is another physical queue"),
        (detail(2, {0: (led(1), led(1, 1))}), {}, "begins at 0"),
        (detail(2), {"writeQueueNums": "3"}, "use 4 queues"),
        (detail(2), {"readQueueNums": "3"}, "use 4 queues"),
        (detail(2), {"writeQueueNums": "70000"}, "queue numbers must be from 0"),
        (detail(2), {"topic": "bad topic"}, "bad topic"),
        (detail(2, topic="TBW102"), {"topic": "TBW102"}, "system topic"),
    ],
)
def test_static_topic_when_its_change_is_refused_then_nothing_changes(
    cluster: ReplicaCluster, mapping: TopicQueueMappingDetail, fields: dict[str, str], remark: str
) -> None:
    """Java's broker keeps the topic's new queue numbers when it refuses the mapping."""
    assert put_static(cluster, detail()).code == 0
    before, end = shown(cluster, lo="true"), master_of(cluster).store.max_offset
    changed = {"writeQueueNums": "9", "readQueueNums": "9", **fields}
    answer = put_static(cluster, mapping, **changed)
    assert (answer.code, remark in (answer.remark or "")) == (1, True), answer.remark
    assert shown(cluster, lo="true") == before
    assert master_of(cluster).store.max_offset == end


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"topic": "Static"}', b'{"epoch": "x"}'])
def test_static_topic_when_its_body_is_none_then_it_is_refused(
    cluster: ReplicaCluster, body: bytes
) -> None:
    """What is no mapping must not make an ordinary topic of a static one."""
    answer = cluster.ask(master_of(cluster).config.address, 513, FIELDS, body)
    assert (answer.code, "cannot be read" in (answer.remark or "")) == (1, True)
    assert master_of(cluster).topics.table.get(T) is None


def test_static_topic_when_forced_then_an_older_mapping_counts(cluster: ReplicaCluster) -> None:
    """A broker that is gone for good leaves a state that no rule of succession leads out of."""
    assert put_static(cluster, detail(9)).code == 0
    assert put_static(cluster, detail(3), force="true").code == 0
    mapping = master_of(cluster).mappings.table.get(T)
    assert mapping is not None
    assert mapping.epoch == 3


def test_static_topic_when_put_again_then_no_record_is_written(cluster: ReplicaCluster) -> None:
    """mqadmin repeats a plan that was broken off."""
    assert put_static(cluster, detail()).code == 0
    end = master_of(cluster).store.max_offset
    assert put_static(cluster, detail()).code == 0
    assert master_of(cluster).store.max_offset == end


@pytest.mark.costly
def test_static_topic_when_too_much_for_a_record_then_it_is_refused_in_plain_words(
    cluster: ReplicaCluster,
) -> None:
    """A record is as large as a message may be, and all mappings fit into a frame."""
    queues = {number: (led(number),) for number in range(30_000)}
    huge = TopicQueueMappingDetail(T, 30_000, NAME, 1, hosted_queues=queues)
    answer = put_static(cluster, huge, writeQueueNums="30000", readQueueNums="30000")
    assert (answer.code, answer.remark) == (1, "there is no room for more logical queues")
    assert master_of(cluster).topics.table.get(T) is None
    table = MappingTable([detail()])
    assert not table.put(huge, 0)
    assert len(fastjson.dumps(huge.members())) > MAPPINGS_BYTES_MAX


def test_static_topic_when_the_dispatcher_is_behind_then_the_answer_waits_for_it(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who remaps asks next where the queues end: what was acknowledged before must be in them."""
    assert put_static(cluster, detail()).code == 0
    master = master_of(cluster)
    held = cluster.loop.create_task(master.store.dispatcher.lock.acquire())
    cluster.until(held.done, "the dispatcher to be held")
    answer = put_static(cluster, detail(2))
    assert (answer.code, "ask again" in (answer.remark or "")) == (1, True)
    master.store.dispatcher.lock.release()
    monkeypatch.setattr(static_requests, "PASSED_MS", 60_000)
    assert put_static(cluster, detail(2)).code == 0
    assert master.store.dispatched_offset == master.store.max_offset


@pytest.mark.parametrize("changed", [{"readQueueNums": "3"}, {"writeQueueNums": "3"}])
def test_topic_when_it_would_lose_queues_of_its_mapping_then_it_stays(
    cluster: ReplicaCluster, changed: dict[str, str]
) -> None:
    """A logical queue whose physical one is none of the topic's could not be written to or read."""
    assert put_static(cluster, detail()).code == 0
    code, remark = ask(cluster, 17, {**FIELDS, **changed})
    assert (code, "use 4 queues" in remark) == (29, True)
    assert ask(cluster, 17, {**FIELDS, "readQueueNums": "5", "writeQueueNums": "5"}) == (0, "")
    listed = {"topicConfigList": [{"topicName": T, "readQueueNums": 1, "writeQueueNums": 1}]}
    address = master_of(cluster).config.address
    assert cluster.ask(address, 18, {}, json.dumps(listed).encode()).code == 29


def test_topic_when_deleted_then_its_mapping_is(cluster: ReplicaCluster) -> None:
    """One made anew under the name would answer 501 for the queues of the old one."""
    assert put_static(cluster, detail()).code == 0
    told: list[frozenset[str]] = []
    master_of(cluster).mappings.on_changed.append(told.append)
    assert ask(cluster, 215, {"topic": T}) == (0, "")
    assert master_of(cluster).mappings.table.get(T) is None
    assert ask(cluster, 17, FIELDS) == (0, "")
    assert "mappingDetail" not in shown(cluster, lo="true")
    assert told == [frozenset({T})]


def test_send_when_a_mapping_has_no_topic_then_none_is_made(cluster: ReplicaCluster) -> None:
    """Copied from a Java master one may be there without the other; eight queues would be wrong."""
    master_of(cluster).mappings.table.put(detail(), 0)
    answer = cluster.ask(master_of(cluster).config.address, 310, send_fields(1, T), b"x")
    assert answer.code != 0
    assert master_of(cluster).topics.table.get(T) is None


def test_name_servers_when_a_mapping_changes_then_they_are_told_with_a_new_version(
    cluster: ReplicaCluster,
) -> None:
    """They take infos only from a registration whose version they have not seen."""
    versions = set()
    for mapping in (detail(), detail(2), detail(3, {0: (led(0), led(0, 1, "broker-b", 100))})):
        assert put_static(cluster, mapping).code == 0
        wrapper = cluster.name_server.registered[-1][1]["topicConfigSerializeWrapper"]
        info = wrapper["topicQueueMappingInfoMap"][T]
        versions.add(DataVersion.of(wrapper["dataVersion"]))
        assert info["epoch"] == mapping.epoch
    assert info["currIdMap"] == {"1": 1, "2": 2, "3": 3}
    assert (info["bname"], info["totalQueues"], info["dirty"]) == (NAME, 4, False)
    assert len(versions) == 3


def test_slave_of_java_when_it_copies_then_it_finds_details_and_their_version(
    cluster: ReplicaCluster,
) -> None:
    """21; Java's slave takes them when mappingDataVersion is another one."""
    first = cluster.ask(master_of(cluster).config.address, 21)
    assert put_static(cluster, detail()).code == 0
    second = cluster.ask(master_of(cluster).config.address, 21)
    before, after = (json.loads(bytes(one.body)) for one in (first, second))
    assert before["mappingDataVersion"] != after["mappingDataVersion"]
    assert TopicQueueMappingDetail.of(after["topicQueueMappingDetailMap"][T]) == detail()
    assert "rmqhaMappingsOffset" not in after


def test_queues_used_when_a_queue_has_moved_on_then_its_old_one_here_still_counts() -> None:
    """Its messages are read from there."""
    assert queues_used(detail(queues={})) == 0
    moved = {
        0: (led(6), led(0, 1, "broker-b", 100)),
        1: (led(9, 0, "broker-b"), led(2, 1, NAME, 5)),
    }
    assert queues_used(detail(queues=moved)) == 7
