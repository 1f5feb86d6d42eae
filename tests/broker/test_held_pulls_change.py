"""What a pull asked for may be another thing by the time that there is something for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqha.remoting import fastjson
from tests.broker.replicas import TOPIC, ReplicaCluster, master_of, send_fields
from tests.broker.subscriber import Subscriber

GROUP = "CG"
FROM_HEARTBEAT = {
    "sysFlag": 2, "subscription": "", "suspendTimeoutMillis": 2_000, "queueOffset": 1,
}  # fmt: skip


@pytest.fixture
def alone() -> Iterator[ReplicaCluster]:
    """One replica, which reigns, with a message."""
    with ReplicaCluster(seed=22, replicas=1, enablePropertyFilter="true") as one:
        one.boot_all()
        put(one, 0)
        yield one


def put(cluster: ReplicaCluster, size: int) -> None:
    """Send a message with a property of its own."""
    fields = send_fields(0) | {"e": "0"}
    fields["i"] += f"size\x01{size}\x02"
    assert cluster.ask(master_of(cluster).config.address, 310, fields, b"x").code == 0


def held(cluster: ReplicaCluster, client: Subscriber, **fields: object) -> int:
    """Send a pull of the queue's end, and see that it waits; its number."""
    waiting, before = master_of(cluster)._pull.waiting, len(master_of(cluster)._pull.waiting)
    number = client.pull(GROUP, TOPIC, **(FROM_HEARTBEAT | fields))  # type: ignore[arg-type]
    cluster.until(lambda: len(waiting) == before + 1, "the pull", 500)
    return number


def select(client: Subscriber, expression: str, version: int) -> None:
    """Subscribe by properties."""
    answer = client.beat(GROUP, TOPIC, expression=expression, version=version, kind="SQL92")
    assert answer.code == 0


@pytest.mark.costly
@pytest.mark.parametrize("passed_over", ["after", "before", "before, and more comes"])
def test_pull_when_its_consumer_has_another_selector_then_that_one_counts(
    alone: ReplicaCluster, passed_over: str
) -> None:
    """The old one passed over what the new one wants, and the group went on behind it: lost."""
    client = Subscriber(alone, master_of(alone).config.address)
    select(client, "size = 1", 1)
    number = held(alone, client, subVersion=1, expressionType="SQL92")
    if passed_over != "after":
        put(alone, 2)
        alone.run_for(100)
    select(client, "size = 1 OR size = 2", 2)
    if passed_over != "before":
        put(alone, 2)
    alone.until(lambda: number in client.answers, "the answer", 2_500)
    answer = client.answers[number]
    count = 2 if "more" in passed_over else 1
    assert (answer.code, (answer.ext_fields or {})["nextBeginOffset"]) == (0, str(1 + count))
    assert bytes(answer.body).count(b"size\x012") == count


def test_pull_when_its_consumer_wants_less_by_now_then_it_gets_no_more_than_that(
    alone: ReplicaCluster,
) -> None:
    """Nobody looks at a selector's messages again: Java's clients take what they are given."""
    client = Subscriber(alone, master_of(alone).config.address)
    select(client, "size = 1 OR size = 2", 1)
    number = held(alone, client, subVersion=1, expressionType="SQL92")
    select(client, "size = 1", 2)
    put(alone, 2)
    alone.run_for(200)
    assert number not in client.answers
    put(alone, 1)
    alone.until(lambda: number in client.answers, "the answer", 500)
    assert (client.answers[number].ext_fields or {})["nextBeginOffset"] == "3"
    assert b"size\x011" in bytes(client.answers[number].body)
    assert b"size\x012" not in bytes(client.answers[number].body)


@pytest.mark.parametrize(
    ("code", "fields", "group", "refusal"),
    [
        (200, None, {"consumeEnable": False}, 16),
        (17, {"perm": "2"}, None, 16),
    ],
    ids=["group switched off", "topic not read"],
)
@pytest.mark.parametrize("found_by", ["arrival", "the end of its time"])
def test_pull_when_nobody_may_read_there_any_more_then_it_is_refused_as_a_new_one_is(
    alone: ReplicaCluster, code: int, fields: dict[str, str] | None,
    group: dict[str, bool] | None, refusal: int, found_by: str,
) -> None:  # fmt: skip
    """An operator who has switched a group off sees it consume on."""
    address = master_of(alone).config.address
    client = Subscriber(alone, address)
    assert client.beat(GROUP, TOPIC).code == 0
    asked = held(alone, client), held(alone, client, sysFlag=6, subscription="*")
    topic = {
        "topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4",
        "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
    }  # fmt: skip
    body = fastjson.dumps(
        {"groupName": GROUP, "retryQueueNums": 1, "retryMaxTimes": 16} | (group or {})
    )
    if code == 17:
        assert alone.ask(address, 17, topic | (fields or {})).code == 0
    else:
        assert alone.ask(address, 200, None, body).code == 0
    if found_by == "arrival":
        put(alone, 1)
    alone.until(lambda: all(one in client.answers for one in asked), "the answers", 2_500)
    fresh = client.ask(11, {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "queueOffset": 0,
                            "maxMsgNums": 1, "sysFlag": 4, "subscription": "*"})  # fmt: skip
    for one in asked:
        answer = client.answers[one]
        assert (answer.code, answer.remark) == (fresh.code, fresh.remark)
        assert len(bytes(answer.body)) == 0
    assert fresh.code == refusal


def test_pull_when_its_group_is_deleted_then_it_is_refused_and_makes_none(
    alone: ReplicaCluster,
) -> None:
    """A group that is made at first use comes back by a new request alone."""
    one = master_of(alone)
    client = Subscriber(alone, one.config.address)
    assert client.beat(GROUP, TOPIC).code == 0
    number = held(alone, client, sysFlag=6, subscription="*")
    assert one.groups.table.get(GROUP) is not None
    deleted = alone.ask(one.config.address, 207, {"groupName": GROUP, "cleanOffset": "true"})
    assert deleted.code == 0
    put(alone, 1)
    alone.until(lambda: number in client.answers, "the answer", 500)
    assert client.answers[number].code == 26
    assert one.groups.table.get(GROUP) is None


def test_pull_when_another_member_wants_other_topics_then_it_is_served_as_it_asked(
    alone: ReplicaCluster,
) -> None:
    """Members should all want the same. A pull that has waited is not refused because they do not."""
    client = Subscriber(alone, master_of(alone).config.address)
    assert client.beat(GROUP, TOPIC, expression="TagA").code == 0
    number = held(alone, client)
    other = Subscriber(alone, master_of(alone).config.address, "c2")
    assert other.beat(GROUP, "Other", version=9).code == 0
    put(alone, 1)
    alone.until(lambda: number in client.answers, "the answer", 500)
    assert client.answers[number].code == 0


@pytest.mark.parametrize("code", [11, 200050])
def test_request_when_it_waits_then_it_keeps_no_body(alone: ReplicaCluster, code: int) -> None:
    """A hundred thousand may wait, with as many frames of 16 MiB that no bound counts."""
    client, one = Subscriber(alone, master_of(alone).config.address), master_of(alone)
    pull = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "queueOffset": "1",
            "maxMsgNums": "1", "sysFlag": "6", "suspendTimeoutMillis": "2000", "subscription": "*"}  # fmt: skip
    pop = {"consumerGroup": GROUP, "topic": "None", "queueId": "-1", "maxMsgNums": "1", "initMode": "0",
           "invisibleTime": "60000", "pollTime": "2000", "expType": "TAG", "exp": "*",
           "bornTime": str(one.clock.wall_ms())}  # fmt: skip
    assert alone.ask(
        one.config.address, 17,
        {"topic": "None", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1",
         "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"},
    ).code == 0  # fmt: skip
    client.tell(code, pull if code == 11 else pop, bytes(1 << 20))
    waiting = one._pull.waiting if code == 11 else one.pop.pops._waiting
    alone.until(lambda: len(waiting) == 1, "one that waits", 500)
    (kept,) = waiting._held.all()
    assert bytes(kept.asked.request.body) == b""
