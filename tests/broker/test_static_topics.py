"""513, 351, 21, 103 and 215 of static topics, and what becomes of mappings when a master dies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rmqha.ha.events import Role
from rmqha.remoting import fastjson
from rmqha.statictopic.mapping import TopicQueueMappingDetail
from tests.broker.broker_sets import STATIC, SetsCluster, segment

FIELDS = {
    "topic": STATIC, "defaultTopic": "TBW102", "readQueueNums": "3", "writeQueueNums": "3",
    "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
}  # fmt: skip
A = "broker-a"


@pytest.fixture(scope="module")
def one() -> Iterator[SetsCluster]:
    """One set of one replica."""
    with SetsCluster(seed=41, sets=1) as cluster:
        cluster.boot_all()
        yield cluster


@pytest.fixture
def three() -> Iterator[SetsCluster]:
    """One set of three replicas, in sync."""
    with SetsCluster(seed=42, sets=1, replicas=3) as cluster:
        cluster.boot_all()
        cluster.until(cluster.in_sync, "all in sync")
        yield cluster


def detail(topic: str, epoch: int = 1_000, **more: Any) -> TopicQueueMappingDetail:
    """One logical queue on physical queue 2."""
    queues = {0: (segment(0, 2, A, 0),)}
    return TopicQueueMappingDetail(topic, **{
        "total_queues": 1, "broker_name": A, "epoch": epoch, "hosted_queues": queues, **more,
    })  # fmt: skip


def tell(cluster: SetsCluster, mapping: TopicQueueMappingDetail, **fields: str) -> tuple[int, str]:
    """Send a 513."""
    body = fastjson.dumps(mapping.members())
    sent = FIELDS | {"topic": mapping.topic} | fields
    answer = cluster.ask(cluster.address(A), 513, sent, body)
    return answer.code, answer.remark or ""


def mapping_of(cluster: SetsCluster, topic: str) -> dict[str, Any] | None:
    """What 351 says of a topic's mapping."""
    answer = cluster.ask(cluster.address(A), 351, {"topic": topic, "lo": "true"})
    assert answer.code in (0, 17)
    members = fastjson.loads(answer.body) if answer.body else {}
    assert isinstance(members, dict)
    return members.get("mappingDetail")


def told(cluster: SetsCluster, topic: str) -> dict[str, Any] | None:
    """What the name server answers clients about a topic's mapping."""
    fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
    answer = cluster.ask("10.0.1.1:9876", 105, fields)
    if answer.code != 0:
        return None
    members = fastjson.loads(answer.body)
    assert isinstance(members, dict)
    return members.get("topicQueueMappingByBroker")


def test_mapping_when_told_then_it_is_shown_to_all_who_ask(one: SetsCluster) -> None:
    """mqadmin by 351, slaves by 21, name servers by 103; ordinary topics have none."""
    wanted = detail("Shown")
    assert tell(one, wanted) == (0, "")
    assert mapping_of(one, "Shown") == fastjson.loads(fastjson.dumps(wanted.members()))
    plain = one.ask(one.address(A), 351, {"topic": "Shown"})
    assert b"mappingDetail" not in plain.body
    table = fastjson.loads(one.ask(one.address(A), 21).body)
    assert isinstance(table, dict)
    assert table["topicQueueMappingDetailMap"]["Shown"]["epoch"] == 1_000
    found = told(one, "Shown")
    assert found is not None
    assert found[A]["currIdMap"] == {"0": 2}
    assert mapping_of(one, "SELF_TEST_TOPIC") is None


@pytest.mark.parametrize(
    ("mapping", "fields", "words"),
    [
        (detail("R", broker_name="broker-z"), {}, "broker-z"),
        (detail("R"), {"topic": "Other"}, "not Other"),
        (detail("R", total_queues=0), {}, "totalQueues"),
        (detail("R"), {"readQueueNums": "2"}, "logical queues of R use 3"),
        (detail("R", hosted_queues={0: (segment(0, 2, A, -1), segment(1, 1, A, 0))}), {},
         "no logical offset"),
        (detail("bad topic"), {}, ""),
    ],
    ids=["another broker", "another topic", "no queues", "too few queues", "no offset", "a name"],
)  # fmt: skip
def test_mapping_when_it_cannot_be_right_then_nothing_is_changed(
    one: SetsCluster, mapping: TopicQueueMappingDetail, fields: dict[str, str], words: str
) -> None:
    """Java has the topic's queues changed by then."""
    code, remark = tell(one, mapping, **fields)
    assert code != 0
    assert words in remark
    assert mapping_of(one, mapping.topic) is None
    answer = one.ask(one.address(A), 351, {"topic": mapping.topic})
    assert answer.code == 17


def test_mapping_when_it_is_older_than_the_known_one_then_it_is_refused(one: SetsCluster) -> None:
    """An operator's second shell must not bring back what the first one has changed."""
    assert tell(one, detail("Old", 2_000))[0] == 0
    code, remark = tell(one, detail("Old", 1_999))
    assert code == 1
    assert "older than 2000" in remark
    assert tell(one, detail("Old", 2_000)) == (0, "")
    assert tell(one, detail("Old", 1_999), force="true") == (0, "")


def test_queues_when_an_ordinary_update_would_take_them_then_it_is_refused(
    one: SetsCluster,
) -> None:
    """updateTopic knows nothing of logical queues."""
    assert tell(one, detail("Kept"))[0] == 0
    sent = FIELDS | {"topic": "Kept", "readQueueNums": "1", "writeQueueNums": "1"}
    answer = one.ask(one.address(A), 17, sent)
    assert answer.code != 0
    assert "logical queues" in (answer.remark or "")


@pytest.mark.costly
def test_topic_when_deleted_then_its_mapping_goes(one: SetsCluster) -> None:
    """An ordinary topic of the same name is ordinary."""
    assert tell(one, detail("Gone"))[0] == 0
    assert one.ask(one.address(A), 215, {"topic": "Gone"}).code == 0
    assert mapping_of(one, "Gone") is None
    assert one.ask(one.address(A), 17, FIELDS | {"topic": "Gone"}).code == 0
    assert mapping_of(one, "Gone") is None
    one.until(lambda: told(one, "Gone") in (None, {}), "name servers to have heard of it")


def test_mapping_when_the_master_dies_then_the_next_one_has_it(three: SetsCluster) -> None:
    """Acknowledged, so in the log of whoever is elected."""
    assert tell(three, detail(STATIC)) == (0, "")
    for number in range(3):
        assert three.put(A, number, 0).code == 0
    first = three.master_of(A)
    assert first is not None
    host = three.host_of(first)
    three.kill(host)
    three.until(lambda: three.master_of(A) is not None, "another master")
    assert mapping_of(three, STATIC) is not None
    answer = three.put(A, 3, 0)
    assert answer.code == 0
    assert (answer.ext_fields or {})["queueOffset"] == "3"
    assert [body for _, body in three.consume(A, 0)] == [b"body-%d" % n for n in range(4)]
    three.until(lambda: (told(three, STATIC) or {}).get(A), "the route's mapping")
    # The one that died has it as well, from its file and its log.
    three.boot(host)
    three.until(three.in_sync, "all in sync")
    assert three.replicas[host].mappings.table.get(STATIC) == detail(STATIC)


def test_mapping_when_it_was_not_acknowledged_then_its_master_forgets_it(
    three: SetsCluster,
) -> None:
    """A master that is cut off has written it; nobody else has, and nobody was told."""
    master = three.master_of(A)
    assert master is not None
    host = three.host_of(master)
    others = [*three.controller_hosts, *(one for one in three.broker_hosts if one != host)]
    for other in others:
        three.net.cut(host, other)
        three.net.cut(other, host)
    three.ask_later(master.config.address, 513, FIELDS, fastjson.dumps(detail(STATIC).members()))
    three.until(lambda: master.mappings.table.get(STATIC) is not None, "the mapping at its master")
    three.until(
        lambda: any(
            one is not master and one.role is Role.MASTER for one in three.replicas.values()
        ),
        "another master",
    )  # fmt: skip
    three.net.heal()
    three.until(three.in_sync, "all in sync")
    assert all(one.mappings.table.get(STATIC) is None for one in three.replicas.values())
