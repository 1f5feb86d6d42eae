"""What commands show of static topics, and their deletion."""

from __future__ import annotations

import pytest

from rmqha.client.exchange import NotFound
from rmqha.statictopic.known import PlanRefused
from tests.admin.static_cluster import TOPIC, StaticCluster

WHO = f"-n ns:1 -t {TOPIC}"
MOCK = "__syslo__global__"


@pytest.fixture
def cluster() -> StaticCluster:
    """The example of the reference: four queues at a, two more at b, then all at b."""
    cluster = StaticCluster("ab")
    cluster.run(f"updateStaticTopic {WHO} -b a -qn 4")
    cluster.run(f"updateStaticTopic {WHO} -b b -qn 6")
    cluster.brokers["a"].ends = {0: (3, 8)}
    cluster.run(f"remappingStaticTopic {WHO} -b b")
    return cluster


def test_example_when_remapped_then_the_first_message_has_javas_offset(
    cluster: StaticCluster,
) -> None:
    """Queues 0 to 3 are physical 2 to 5 there, and begin at 10000."""
    detail = cluster.brokers["b"].detail
    assert detail is not None
    assert detail.curr_id_map == {0: 2, 1: 3, 2: 4, 3: 5, 4: 0, 5: 1}
    assert {detail.hosted_queues[logical][-1].logic_offset for logical in range(4)} == {10_000}


def test_topic_status_when_static_then_logical_queues_stand_before_the_physical_ones(
    cluster: StaticCluster,
) -> None:
    """Clients know the logical ones."""
    cluster.brokers["b"].ends = {3: (0, 1)}
    (report,) = cluster.run(f"topicStatus {WHO}")
    rows = [line.split()[:4] for line in report.plain.splitlines()[1:-2]]
    assert rows[0] == [MOCK, "0", "3", "10000"]
    assert rows[1] == [MOCK, "1", "0", "10001"]
    assert [row[0] for row in rows] == [MOCK] * 6 + ["a"] * 4 + ["b"] * 6
    assert report.data["queues"][1]["lastUpdateTimestamp"] == 1_000


def test_topic_status_when_a_queue_is_undecided_then_its_old_end_is_shown(
    cluster: StaticCluster,
) -> None:
    """A remap that has stopped in the middle."""
    assert cluster.run_killed(f"migrateLogicalQueue {WHO} -i 4 -b a", 4)
    (report,) = cluster.run(f"topicStatus {WHO}")
    row = next(one for one in report.data["queues"] if one["queueId"] == 4)
    assert (row["brokerName"], row["minOffset"], row["maxOffset"]) == (MOCK, 0, 0)


def test_consumer_progress_when_static_then_offsets_are_logical(cluster: StaticCluster) -> None:
    """Of the newest segment that the group has been in; Java shows the physical one."""
    cluster.brokers["a"].consumed = {0: 8, 1: 0}
    cluster.brokers["b"].consumed = {3: 1}
    cluster.brokers["b"].ends = {3: (0, 5)}
    (report,) = cluster.run("consumerProgress -n ns:1 -g G")
    assert [
        (row["brokerName"], row["queueId"], row["brokerOffset"], row["consumerOffset"])
        for row in report.data["queues"]
    ] == [(MOCK, 0, 10_000, 8), (MOCK, 1, 10_005, 10_001)]
    assert report.data["diffTotal"] == 9_992 + 4
    assert report.data["inflightTotal"] == 0


def test_query_when_asked_then_segments_have_the_states_of_the_rip(
    cluster: StaticCluster,
) -> None:
    """A segment that is empty, one that is read only, and the leader."""
    (report,) = cluster.run(f"queryLogicalQueueMapping {WHO}")
    found = [
        (row["logicalQueue"], row["gen"], row["state"], row["brokerName"], row["queueId"])
        for row in report.data["segments"]
    ]
    assert found[:4] == [
        (0, 0, "ReadOnly", "a", 0), (0, 1, "Normal", "b", 2),
        (1, 0, "Expired", "a", 1), (1, 1, "Normal", "b", 3),
    ]  # fmt: skip
    assert (
        report.data["segments"][0] | {"minOffset": 3, "maxOffset": 8, "messages": 5}
        == (report.data["segments"][0])
    )
    assert report.data["state"] == "whole"
    assert report.plain.splitlines()[1].split() == [
        "0", "0", "ReadOnly", "a", "0", "3", "8", "5",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("calls", "words"), [(6, "a change is unfinished"), (10, "not all brokers know it")]
)
def test_query_when_a_command_died_then_it_says_what_to_do(
    cluster: StaticCluster, calls: int, words: str
) -> None:
    """Whether writes are stopped, or only old leaders are behind."""
    assert cluster.run_killed(f"migrateLogicalQueue {WHO} -i 4 -b a", calls - 1)
    (report,) = cluster.run(f"queryLogicalQueueMapping {WHO}")
    assert report.data["state"].startswith(words)


def test_query_when_a_broker_is_gone_then_what_it_led_is_named(
    cluster: StaticCluster,
) -> None:
    """Not an empty list, which would look like health."""
    del cluster.brokers["b"]
    (report,) = cluster.run(f"queryLogicalQueueMapping {WHO}")
    assert report.data["state"] == "nobody who is there leads logical queue 0, 1, 2, 3, 4, 5"
    assert report.data["segments"][1]["messages"] is None


def test_query_when_the_topic_is_ordinary_then_it_is_not_found() -> None:
    """It has no logical queues."""
    cluster = StaticCluster("a")
    cluster.brokers["a"].config = {"topicName": TOPIC, "readQueueNums": 8, "writeQueueNums": 8}
    with pytest.raises(NotFound, match="is an ordinary topic"):
        cluster.run(f"queryLogicalQueueMapping {WHO}")
    with pytest.raises(NotFound, match="has no logical queues in cluster C"):
        cluster.run(f"deleteLogicalQueue {WHO} -c C")


def test_delete_when_there_are_messages_then_it_takes_force(cluster: StaticCluster) -> None:
    """The topic goes with all its queues, from brokers and name servers."""
    with pytest.raises(PlanRefused, match="a has 5 messages of Orders"):
        cluster.run(f"deleteLogicalQueue {WHO} -c C")
    assert cluster.brokers["a"].detail is not None
    cluster.calls.clear()
    cluster.run(f"deleteLogicalQueue {WHO} -c C -fr true")
    assert cluster.codes() == [("a", 215), ("b", 215), ("ns", 216)]
    assert cluster.known().details == []


def test_delete_when_all_has_expired_then_it_needs_no_force(cluster: StaticCluster) -> None:
    """Nothing is lost."""
    cluster.brokers["a"].ends = {0: (8, 8)}
    cluster.run(f"deleteLogicalQueue {WHO} -c C")
    assert cluster.known().details == []
