"""Consumers' requests against whole replicas, time and network simulated."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from rmqha.broker.aio.replica import BrokerReplica
from rmqha.broker.common.refusal import Refusal
from rmqha.broker.groups.consumers import ConsumerGroup, Subscription, subscription
from rmqha.broker.pull.request import check_pull, parse_pull, status_code
from rmqha.broker.topics.group_table import GROUP_LENGTH_MAX, GroupConfig
from rmqha.broker.topics.topic_table import TopicConfig
from rmqha.ha.events import Role
from rmqha.remoting import fastjson
from rmqha.remoting.asked_queues import asked_fields
from tests.broker.replicas import QUEUES, TOPIC, ReplicaCluster, master_of, send_fields
from tests.broker.subscriber import Subscriber, pull_fields
from tests.broker.test_switches_in_simulator import switch

GROUP = "CG"


@pytest.fixture
def alone() -> Iterator[ReplicaCluster]:
    """One replica, which reigns."""
    with ReplicaCluster(
        seed=21, replicas=1, heldPullsMax=4, flushConsumerOffsetInterval=500
    ) as one:
        one.boot_all()
        yield one


@pytest.fixture
def three() -> Iterator[ReplicaCluster]:
    """Three replicas, in sync."""
    with ReplicaCluster(seed=22, slaveReadEnable="true", syncSlaveMetadataPeriod=500) as one:
        one.boot_all()
        one.until(one.in_sync, "SyncStateSet of three")
        yield one


def connect(cluster: ReplicaCluster, client_id: str = "c1") -> Subscriber:
    """A client of the master."""
    return Subscriber(cluster, master_of(cluster).config.address, client_id)


def put(cluster: ReplicaCluster, count: int = 1, *, queue: int = 0, tag: str = "TagA") -> None:
    """Send messages to one queue."""
    for number in range(count):
        fields = send_fields(number) | {"e": str(queue)}
        fields["i"] = fields["i"].replace("TagA", tag)
        answer = cluster.ask(master_of(cluster).config.address, 310, fields, b"body-%d" % number)
        assert answer.code == 0, answer.remark


def offsets_in(body: bytes) -> list[int]:
    """The queue offsets of the messages in a pull's answer."""
    found, at = [], 0
    while at < len(body):
        found.append(struct.unpack_from(">q", body, at + 20)[0])
        at += struct.unpack_from(">i", body, at)[0]
    return found


# -- who may pull what (pure) ------------------------------------------------------------------------

ONLINE = ConsumerGroup(GROUP, subscriptions={"T": subscription("T", "a || b", version=5)})
EVERYTHING = ConsumerGroup(GROUP, subscriptions={"T": subscription("T", "*", version=5)})
SELECTED = ConsumerGroup(GROUP, subscriptions={"T": subscription("T", "a > 1", "SQL92", 5)})
BROADCAST = ConsumerGroup(
    GROUP, message_model="BROADCASTING", subscriptions={"T": Subscription("T")}
)
NOTHING = ConsumerGroup(GROUP, subscriptions={"T": subscription("T", "||", version=5)})
"""No message matches; each pull went further and brought nothing."""

GOOD = TopicConfig("T", 4, 4)


@pytest.mark.parametrize(
    ("fields", "group", "topic", "online", "code"),
    [
        ({}, None, None, None, 26),
        ({}, GroupConfig(GROUP, consume_enable=False), None, None, 16),
        ({}, GroupConfig(GROUP), None, None, 17),
        ({"queueId": 9}, GroupConfig(GROUP), TopicConfig("T", 4, 4, perm=2), None, 16),
        ({"queueId": 4}, GroupConfig(GROUP), GOOD, None, 29),
        ({"queueId": -1}, GroupConfig(GROUP), GOOD, None, 29),
        ({"sysFlag": 2}, GroupConfig(GROUP), GOOD, None, 24),
        ({"sysFlag": 2}, GroupConfig(GROUP, consume_broadcast_enable=False), GOOD, BROADCAST, 16),
        ({"sysFlag": 2}, GroupConfig(GROUP), GOOD, ConsumerGroup(GROUP), 24),
        ({"sysFlag": 2, "subVersion": 6}, GroupConfig(GROUP), GOOD, ONLINE, 25),
        ({"sysFlag": 2, "subVersion": 5}, GroupConfig(GROUP), GOOD, ONLINE, 0),
        ({"sysFlag": 2, "subVersion": 6}, GroupConfig(GROUP), GOOD, EVERYTHING, 0),
        ({"sysFlag": 2, "subVersion": 6}, GroupConfig(GROUP), GOOD, SELECTED, 25),
        ({}, GroupConfig(GROUP), GOOD, None, 0),
        ({"subscription": "||"}, GroupConfig(GROUP), GOOD, None, 23),
        ({"subscription": " || "}, GroupConfig(GROUP), GOOD, None, 23),
        ({"sysFlag": 2}, GroupConfig(GROUP), GOOD, NOTHING, 23),
    ],
)
def test_pull_when_checked_then_javas_code_in_javas_order(
    fields: dict[str, Any],
    group: GroupConfig | None,
    topic: TopicConfig | None,
    online: ConsumerGroup | None,
    code: int,
) -> None:
    """A client acts on the code: 25 waits for a heartbeat, 24 logs, 17 looks for the route."""
    texts = {name: str(value) for name, value in pull_fields(GROUP, "T", **fields).items()}
    found = check_pull(parse_pull(texts), group, topic, online)
    assert (found.code if isinstance(found, Refusal) else 0) == code


@pytest.mark.parametrize(
    ("status", "offset", "code"),
    [
        ("FOUND", 5, 0), ("NO_MATCHED_MESSAGE", 5, 20), ("OFFSET_OVERFLOW_ONE", 5, 19),
        ("NO_MESSAGE_IN_QUEUE", 0, 19), ("NO_MATCHED_LOGIC_QUEUE", 0, 19),
        ("NO_MESSAGE_IN_QUEUE", 5, 21), ("NO_MATCHED_LOGIC_QUEUE", 5, 21),
        ("OFFSET_TOO_SMALL", 5, 21), ("OFFSET_OVERFLOW_BADLY", 5, 21),
    ],
)  # fmt: skip
def test_status_when_answered_then_javas_code(status: str, offset: int, code: int) -> None:
    """21 makes a client throw its place away: it must never stand for "nothing new"."""
    assert status_code(status, offset) == code


# -- pulling -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset", "code", "following"),
    [(0, 0, 5), (3, 0, 5), (5, 19, 5), (6, 21, 5), (-1, 21, 0), (1 << 62, 21, 5)],
)
def test_pull_when_anywhere_in_a_queue_then_the_table_of_answers(
    alone: ReplicaCluster, offset: int, code: int, following: int
) -> None:
    """The status table, against a real store; all four numbers are always there."""
    put(alone, 5)
    answer = connect(alone).ask(11, pull_fields(GROUP, TOPIC, offset, sysFlag=4))
    fields = answer.ext_fields or {}
    assert answer.code == code
    assert int(fields["nextBeginOffset"]) == following
    assert (fields["minOffset"], fields["maxOffset"]) == ("0", "5")
    assert fields["suggestWhichBrokerId"] == "0"
    assert offsets_in(answer.body) == (list(range(offset, 5)) if code == 0 else [])


def test_pull_when_it_may_wait_beyond_the_end_then_the_master_sends_it_back_at_once(
    alone: ReplicaCluster,
) -> None:
    """It has all there is: what is held there misses every message up to its offset."""
    put(alone, 5)
    client = connect(alone)
    number = client.pull(GROUP, TOPIC, 9)
    alone.until(lambda: number in client.answers, "an answer", 1_000)
    answer = client.answers[number]
    assert (answer.code, (answer.ext_fields or {})["nextBeginOffset"]) == (21, "5")


def test_pull_when_the_queue_is_empty_then_zero_waits_and_else_is_moved(
    alone: ReplicaCluster,
) -> None:
    """A queue without a message is no error for whoever begins at 0."""
    put(alone, 1, queue=1)
    client = connect(alone)
    assert client.ask(11, pull_fields(GROUP, TOPIC, 0, sysFlag=4)).code == 19
    moved = client.ask(11, pull_fields(GROUP, TOPIC, 7, sysFlag=4))
    assert (moved.code, (moved.ext_fields or {})["nextBeginOffset"]) == (21, "0")


def test_pull_when_tags_differ_then_only_the_wanted_come_and_the_place_moves_on(
    alone: ReplicaCluster,
) -> None:
    """Code 20 with the same place would be asked for ever."""
    put(alone, 3, tag="x")
    put(alone, 2, tag="y")
    client = connect(alone)
    found = client.ask(11, pull_fields(GROUP, TOPIC, 0, sysFlag=4, subscription="y || z"))
    assert offsets_in(found.body) == [3, 4]
    none = client.ask(11, pull_fields(GROUP, TOPIC, 0, sysFlag=4, subscription="z"))
    assert (none.code, (none.ext_fields or {})["nextBeginOffset"], none.body) == (20, "5", b"")


def test_pull_when_it_is_bounded_then_at_least_one_message_comes(alone: ReplicaCluster) -> None:
    """A limit smaller than a message must not make a consumer stand still."""
    put(alone, 5)
    client = connect(alone)
    one = client.ask(11, pull_fields(GROUP, TOPIC, 0, sysFlag=4, maxMsgBytes=1))
    assert offsets_in(one.body) == [0]
    two = client.ask(11, pull_fields(GROUP, TOPIC, 0, sysFlag=4, maxMsgNums=2))
    assert offsets_in(two.body) == [0, 1]
    garbage = client.ask(11, pull_fields(GROUP, TOPIC, 0, sysFlag=4, maxMsgNums=-5))
    assert offsets_in(garbage.body) == [0]


def test_held_pull_when_a_wanted_message_comes_then_it_is_answered_at_once(
    alone: ReplicaCluster,
) -> None:
    """Long polling: neither polling by the client nor a scan decides when a message arrives."""
    put(alone, 1)
    client = connect(alone)
    number = client.pull(GROUP, TOPIC, 1, subscription="wanted")
    alone.run_for(3_000)
    assert number not in client.answers
    put(alone, 1, tag="other")
    alone.run_for(200)
    assert number not in client.answers, "woken by what it did not want"
    put(alone, 1, queue=1, tag="wanted")
    alone.run_for(200)
    assert number not in client.answers, "woken by another queue"
    put(alone, 1, tag="wanted")
    alone.until(lambda: number in client.answers, "the answer", 200)
    answer = client.answers[number]
    assert (answer.code, offsets_in(answer.body)) == (0, [2])
    assert (answer.ext_fields or {})["nextBeginOffset"] == "3"


def test_held_pull_when_its_time_is_over_then_it_is_answered_once(alone: ReplicaCluster) -> None:
    """Nothing new is code 19, when the client said and not before."""
    put(alone, 1)
    client = connect(alone)
    number = client.pull(GROUP, TOPIC, 1, suspendTimeoutMillis=2_000)
    alone.run_for(1_900)
    assert number not in client.answers
    alone.run_for(200)
    assert client.answers[number].code == 19
    put(alone, 1)
    alone.run_for(1_000)
    assert len(master_of(alone)._pull.waiting) == 0


def test_held_pull_when_only_unwanted_messages_came_then_its_end_is_past_them(
    alone: ReplicaCluster,
) -> None:
    """Otherwise the next pull, and every one after it, looks at them again."""
    put(alone, 1)
    client = connect(alone)
    number = client.pull(GROUP, TOPIC, 1, suspendTimeoutMillis=2_000, subscription="wanted")
    alone.run_for(100)
    put(alone, 3, tag="other")
    alone.until(lambda: number in client.answers, "the answer", 3_000)
    answer = client.answers[number]
    assert (answer.code, (answer.ext_fields or {})["nextBeginOffset"]) == (20, "4")


@pytest.mark.costly
def test_held_pulls_when_too_many_then_further_ones_are_refused_and_closed_ones_dropped(
    alone: ReplicaCluster,
) -> None:
    """heldPullsMax bounds the memory; a client that goes away frees its share.

    Java's consumers ask again at once when they are told that there is nothing new: those that found
    no place would ask without an end. Any refusal makes them wait for 3 s.
    """
    put(alone, 1)
    client, other = connect(alone), connect(alone, "c2")
    held = [client.pull(GROUP, TOPIC, 1) for _ in range(4)]
    alone.run_for(100)
    refused = other.ask(11, pull_fields(GROUP, TOPIC, 1))
    assert (refused.code, refused.remark) == (2, "4 pulls wait already, heldPullsMax")
    answered = len(other.answers)
    other.oneway(11, pull_fields(GROUP, TOPIC, 1))
    assert len(other.answers) == answered, "who wants no answer gets none"
    assert other.ask(11, pull_fields(GROUP, TOPIC, 1, sysFlag=4)).code == 19, "it would not wait"
    waiting = [one.asked.request.ext_fields for one in master_of(alone)._pull.waiting._held.all()]
    assert waiting == [None] * 4, "what a pull said is not kept beside what was read of it"
    client.connection.close()
    alone.run_for(100)
    assert not any(number in client.answers for number in held)
    last = other.pull(GROUP, TOPIC, 1)
    alone.run_for(100)
    assert last not in other.answers
    assert len(master_of(alone)._pull.waiting) == 1


def test_push_pull_when_the_subscription_is_a_heartbeats_then_its_tags_count(
    alone: ReplicaCluster,
) -> None:
    """Push consumers do not repeat their subscription in each pull."""
    put(alone, 2, tag="x")
    put(alone, 2, tag="y")
    client = connect(alone)
    assert client.ask(11, pull_fields(GROUP, TOPIC, 0, sysFlag=2)).code == 24
    assert client.beat(GROUP, TOPIC, expression="y").code == 0
    answer = client.ask(11, pull_fields(GROUP, TOPIC, 0, sysFlag=2, subVersion=1))
    assert offsets_in(answer.body) == [2, 3]
    assert client.ask(11, pull_fields(GROUP, TOPIC, 0, sysFlag=2, subVersion=2)).code == 25


# -- members of a group --------------------------------------------------------------------------------


def test_members_when_one_joins_and_one_goes_then_all_are_told_and_see_the_same(
    alone: ReplicaCluster,
) -> None:
    """Different lists at two members give a queue to both, or to nobody."""
    put(alone, 1)
    first, second = connect(alone, "c1"), connect(alone, "c2")
    beat = first.beat(GROUP, TOPIC)
    assert (beat.code, beat.ext_fields) == (
        0, {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"},
    )  # fmt: skip
    assert [one.ext_fields for one in first.told(40)] == [{"consumerGroup": GROUP}]
    second.beat(GROUP, TOPIC)
    assert (len(first.told(40)), len(second.told(40))) == (2, 1)
    second.beat(GROUP, TOPIC)
    assert len(first.told(40)) == 2, "a renewal is no news"
    for one in (first, second):
        answer = one.ask(38, {"consumerGroup": GROUP})
        assert fastjson.loads(answer.body) == {"consumerIdList": ["c1", "c2"]}
    second.connection.abort()
    alone.until(lambda: len(first.told(40)) == 3, "the news", 1_000)
    answer = first.ask(38, {"consumerGroup": GROUP})
    assert fastjson.loads(answer.body) == {"consumerIdList": ["c1"]}
    assert first.ask(38, {"consumerGroup": "nobody"}).code == 1
    assert first.ask(35, {"clientID": "c1", "consumerGroup": GROUP}).code == 0
    assert first.ask(38, {"consumerGroup": GROUP}).code == 1


def test_heartbeat_when_a_group_is_new_then_it_and_its_retry_topic_are_made(
    alone: ReplicaCluster,
) -> None:
    """Without the retry topic its members log an error a second, and retries never arrive."""
    connect(alone).beat(GROUP, TOPIC)
    broker = master_of(alone)
    assert broker.groups.table.get(GROUP) is not None
    topic = broker.topics.table.get("%RETRY%CG")
    assert topic is not None
    assert (topic.read_queue_nums, topic.perm) == (1, 6)
    alone.run_for(1_000)
    _, body = alone.name_server.registered[-1]
    assert "%RETRY%CG" in body["topicConfigSerializeWrapper"]["topicConfigTable"]


def test_heartbeat_when_its_consumer_is_a_unit_s_then_the_retry_topic_says_so(
    alone: ReplicaCluster,
) -> None:
    """Name servers list such topics (312, 313)."""
    connect(alone).beat(GROUP, TOPIC, unit_mode=True)
    topic = master_of(alone).topics.table.get(f"%RETRY%{GROUP}")
    assert topic is not None
    assert topic.topic_sys_flag == 2


def test_heartbeat_v2_when_the_broker_forgot_then_the_client_is_told_to_say_it_all(
    alone: ReplicaCluster,
) -> None:
    """After a failover the new master has no subscriptions."""
    client = connect(alone)
    short = {"fingerprint": 77, "without_sub": True}
    fields = client.beat(GROUP, **short).ext_fields or {}
    assert fields["IS_SUB_CHANGE"] == "true"
    assert client.ask(38, {"consumerGroup": GROUP}).code == 1
    fields = client.beat(GROUP, TOPIC, fingerprint=77).ext_fields or {}
    assert fields["IS_SUB_CHANGE"] == "false"
    fields = client.beat(GROUP, **short).ext_fields or {}
    assert fields["IS_SUB_CHANGE"] == "false"
    group = master_of(alone).consumers.get(GROUP)
    assert group is not None
    assert list(group.subscriptions) == [TOPIC]


@pytest.mark.slow
def test_client_when_it_falls_silent_then_its_queues_are_given_away_and_it_is_cut_off(
    alone: ReplicaCluster,
) -> None:
    """A client that hangs keeps its socket open."""
    silent, alive = connect(alone, "c1"), connect(alone, "c2")
    silent.beat(GROUP, TOPIC)
    alive.beat(GROUP, TOPIC)
    for _ in range(5):
        alone.run_for(25_000)
        # The silent one still asks, so that its connection is not idle.
        silent.ask(31, {"topic": TOPIC, "queueId": 0})
        alive.beat(GROUP, TOPIC)
    alone.until(lambda: silent.closed, "its end", 15_000)
    answer = alive.ask(38, {"consumerGroup": GROUP})
    assert fastjson.loads(answer.body) == {"consumerIdList": ["c2"]}


def test_connections_when_asked_for_then_they_are_told_in_javas_words(
    alone: ReplicaCluster,
) -> None:
    """203 and 204, which mqadmin reads."""
    client = connect(alone)
    client.beat(GROUP, TOPIC, producers=("PG",))
    body = fastjson.loads(client.ask(203, {"consumerGroup": GROUP}).body)
    (connection,) = body["connectionSet"]
    assert connection["clientId"] == "c1"
    assert (connection["language"], connection["version"]) == ("JAVA", 479)
    assert body["messageModel"] == "CLUSTERING"
    assert body["subscriptionTable"][TOPIC]["subString"] == "*"
    body = fastjson.loads(client.ask(204, {"producerGroup": "PG"}).body)
    assert [one["clientId"] for one in body["connectionSet"]] == ["c1"]
    assert client.ask(203, {"consumerGroup": "none"}).code == 206
    assert client.ask(204, {"producerGroup": "none"}).code == 1


@pytest.mark.costly
def test_consumer_when_asked_through_the_broker_then_its_answer_comes_back(
    alone: ReplicaCluster,
) -> None:
    """307: fields and body pass in both directions; whoever is away is named."""
    consumer, asking = connect(alone, "c1"), connect(alone, "admin")
    consumer.beat(GROUP, TOPIC)
    consumer.reply = lambda request: request.reply(0, "fine", {"a": "b"}, b"info")
    fields = {"consumerGroup": GROUP, "clientId": "c1", "jstackEnable": "false"}
    answer = asking.ask(307, fields)
    assert (answer.code, answer.remark, answer.body) == (0, "fine", b"info")
    assert consumer.told(307)[0].ext_fields == fields
    assert asking.ask(307, fields | {"clientId": "gone"}).code == 1
    consumer.reply = None
    number = asking.tell(307, fields)
    alone.run_for(9_000)
    assert number not in asking.answers
    alone.run_for(2_000)
    assert asking.answers[number].code == 207
    number = asking.tell(307, fields)
    alone.run_for(100)
    consumer.connection.abort()
    alone.until(lambda: number in asking.answers, "an answer", 1_000)
    assert asking.answers[number].code == 1


# -- bad input -----------------------------------------------------------------------------------------

GARBAGE = [b"", b"{", b"null", b"[]", b'"x"', b'{"a":', b"\xff\xfe", b"[" * 5000, b"{}" * 2]


@pytest.mark.parametrize("code", [34, 41, 42, 46, 200, 225])
def test_body_when_it_is_garbage_then_a_code_comes_and_nothing_changes(
    alone: ReplicaCluster, code: int
) -> None:
    """Whatever comes, the connection lives, the answer is an error, and the tables are as before."""
    client = connect(alone)
    client.beat(GROUP, TOPIC)
    broker = master_of(alone)
    before = (broker.groups.table.members(), broker.consumers.client_ids(GROUP), len(broker.locks))
    # A 46 that names no subscription asks nothing.
    wrong = [b'{"clientID":1}', b'{"mqSet":[1]}', b'{"groupName":"a b"}'] if code != 46 else []
    for body in [*GARBAGE, *wrong, b'{"subscriptionData":5,"groupConfigList":5}']:
        assert client.ask(code, body=body).code != 0, body
    assert before == (
        broker.groups.table.members(), broker.consumers.client_ids(GROUP), len(broker.locks),
    )  # fmt: skip
    assert not client.closed


@pytest.mark.few
@pytest.mark.parametrize("code", [11, 14, 15, 29, 30, 31, 32, 35, 38, 202, 203, 204, 207, 208, 222,
                                  223, 300, 307, 309, 317, 343, 345, 352, 361])  # fmt: skip
def test_fields_when_they_miss_or_are_garbage_then_an_answer_comes(
    alone: ReplicaCluster, code: int
) -> None:
    """A missing answer costs the client up to 30 s."""
    client = connect(alone)
    names = [
        "topic", "queueId", "queueOffset", "consumerGroup", "commitOffset", "timestamp", "group",
        "offset", "sysFlag", "maxMsgNums", "msgId", "clientId", "groupName", "clientID",
    ]  # fmt: skip
    for value in (None, "", "x", "-1", "9" * 30, "\u00fc/../.."):
        fields = None if value is None else dict.fromkeys(names, value)
        answer = client.ask(code, fields)
        assert answer.code is not None
    assert not client.closed


# -- offsets -------------------------------------------------------------------------------------------


def test_offset_when_nothing_is_stored_then_a_young_queue_is_read_from_its_start(
    alone: ReplicaCluster,
) -> None:
    """14: 0 where message 0 is there, 22 where the queue is empty or the client says so."""
    put(alone, 2)
    client = connect(alone)
    fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0}
    answer = client.ask(14, fields)
    assert (answer.code, answer.ext_fields) == (0, {"offset": "0"})
    assert client.ask(14, fields | {"queueId": 1}).code == 22
    assert client.ask(14, fields | {"setZeroIfNotFound": False}).code == 22
    assert client.ask(14, fields | {"topic": "none"}).code == 22


def test_offset_when_committed_then_it_is_kept_over_a_kill(alone: ReplicaCluster) -> None:
    """The file is written within flushConsumerOffsetInterval, and read at the start."""
    put(alone, 2)
    client = connect(alone)
    fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "commitOffset": 2}
    assert client.ask(15, fields).code == 26
    client.beat(GROUP, TOPIC)
    assert client.ask(15, fields | {"topic": "none"}).code == 17
    assert client.ask(15, fields | {"commitOffset": -1}).code == 29
    client.oneway(15, fields)
    alone.run_for(1_500)
    alone.kill("10.0.0.1")
    alone.boot("10.0.0.1")
    alone.until(lambda: alone.master() is not None, "its mastership")
    again = connect(alone, "c2")
    assert again.ask(14, fields).ext_fields == {"offset": "2"}
    assert master_of(alone).groups.table.get(GROUP) is not None


def test_group_when_strangers_filled_the_table_then_it_is_served_and_only_not_kept(
    alone: ReplicaCluster,
) -> None:
    """100,000 groups by heartbeats of strangers kept every new consumer from its messages."""
    put(alone, 5)
    broker = master_of(alone)
    size, fits = len(broker.groups.table.items), broker.groups.table.fits
    broker.groups.table.fits = lambda wanted: not list(wanted)  # type: ignore[method-assign]
    client = connect(alone)
    client.beat(GROUP, TOPIC)
    assert client.ask(11, pull_fields(GROUP, TOPIC, 0)).code == 0
    fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "commitOffset": 3}
    assert client.ask(15, fields).code == 0
    assert len(broker.groups.table.items) == size
    broker.groups.table.fits = fits  # type: ignore[method-assign]
    assert client.ask(15, fields | {"consumerGroup": "never seen"}).code == 26
    alone.run_for(1_500)
    alone.kill("10.0.0.1")
    alone.boot("10.0.0.1")
    alone.until(lambda: alone.master() is not None, "its mastership")
    assert connect(alone, "c2").ask(14, fields).ext_fields == {"offset": "3"}


def test_offset_when_the_pull_carries_it_then_it_is_stored(alone: ReplicaCluster) -> None:
    """Bit 1 saves a push consumer a request."""
    put(alone, 5)
    client = connect(alone)
    client.beat(GROUP, TOPIC)
    assert client.ask(11, pull_fields(GROUP, TOPIC, 4, sysFlag=3, commitOffset=4)).code == 0
    fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0}
    assert client.ask(14, fields).ext_fields == {"offset": "4"}


def test_offset_when_a_pull_that_would_not_wait_carries_it_then_it_is_stored(
    alone: ReplicaCluster,
) -> None:
    """As Java: what the broker does with a pull that waits has nothing to do with what it carries."""
    put(alone, 5)
    client = connect(alone)
    client.beat(GROUP, TOPIC)
    assert client.ask(11, pull_fields(GROUP, TOPIC, 4, sysFlag=1, commitOffset=4)).code == 0
    fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0}
    assert client.ask(14, fields).ext_fields == {"offset": "4"}


@pytest.mark.costly
def test_ends_and_times_when_asked_then_as_java(alone: ReplicaCluster) -> None:
    """29 to 32, with both boundaries."""
    put(alone, 3)
    client = connect(alone)
    fields = {"topic": TOPIC, "queueId": 0}
    stamps = [master_of(alone).store.reader.store_timestamp(TOPIC, 0, at) for at in range(3)]
    assert stamps == sorted(set(stamps))
    assert client.ask(30, fields).ext_fields == {"offset": "3"}
    assert client.ask(31, fields).ext_fields == {"offset": "0"}
    assert client.ask(32, fields).ext_fields == {"timestamp": str(stamps[0])}
    assert client.ask(32, fields | {"queueId": 3}).ext_fields == {"timestamp": "-1"}
    for moment, lower, upper in (
        (stamps[0] - 1, "0", "0"), (stamps[1], "1", "1"), (stamps[1] + 1, "2", "1"),
        (stamps[2] + 1, "3", "2"),
    ):  # fmt: skip
        assert client.ask(29, fields | {"timestamp": moment}).ext_fields == {"offset": lower}
        asked = fields | {"timestamp": moment, "boundaryType": "UPPER"}
        assert client.ask(29, asked).ext_fields == {"offset": upper}


def test_reset_when_ordered_then_the_next_pull_is_sent_there(alone: ReplicaCluster) -> None:
    """222 with useServerSideResetOffset, Java's default since 5.2."""
    put(alone, 5)
    client = connect(alone)
    client.beat(GROUP, TOPIC)
    commit = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "commitOffset": 5}
    client.ask(15, commit)
    reset = {
        "topic": TOPIC, "group": GROUP, "timestamp": 0, "isForce": True, "queueId": -1, "offset": -1
    }  # fmt: skip
    answer = client.ask(222, reset)
    rows = wire_rows(answer.body)
    assert rows == dict.fromkeys(range(QUEUES), 0)
    client.ask(15, commit)
    moved = client.ask(11, pull_fields(GROUP, TOPIC, 5, sysFlag=2, subVersion=1))
    assert (moved.code, (moved.ext_fields or {})["nextBeginOffset"]) == (21, "0")
    assert client.ask(14, commit).ext_fields == {"offset": "0"}
    found = client.ask(11, pull_fields(GROUP, TOPIC, 0, sysFlag=2, subVersion=1))
    assert offsets_in(found.body) == [0, 1, 2, 3, 4]
    assert client.ask(222, reset | {"topic": "none"}).code == 17
    assert client.ask(222, reset | {"group": "none"}).code == 26
    assert client.ask(222, reset | {"queueId": 0, "offset": 99}).code == 29
    assert client.ask(222, reset | {"queueId": 77}).code == 29


def test_reset_when_it_is_not_forced_then_no_queue_goes_forward(alone: ReplicaCluster) -> None:
    """222 to a time that the group has not come to: isForce=false means back, if at all."""
    put(alone, 5)
    client = connect(alone)
    client.beat(GROUP, TOPIC)
    commit = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "commitOffset": 2}
    assert client.ask(15, commit).code == 0
    reader = master_of(alone).store.reader
    late, early = (reader.store_timestamp(TOPIC, 0, at) for at in (4, 1))
    reset = {"topic": TOPIC, "group": GROUP, "queueId": 0, "offset": -1}
    for timestamp, force, place in (
        (late, False, 2), (-1, False, 2), (early, False, 1), (late, False, 1), (late, True, 4),
        (-1, True, 5),
    ):  # fmt: skip
        answer = client.ask(222, reset | {"timestamp": timestamp, "isForce": force})
        assert wire_rows(answer.body) == {0: place}
        assert client.ask(14, commit).ext_fields == {"offset": str(place)}


def test_reset_when_there_is_no_room_for_all_queues_then_its_operator_is_told() -> None:
    """Success would name places where the group has not been moved to."""
    # The broker's own transactions have two.
    with ReplicaCluster(seed=25, replicas=1, consumerOffsetsMax=4) as cluster:
        cluster.boot_all()
        put(cluster, 3)
        client = connect(cluster)
        client.beat(GROUP, TOPIC)
        commit = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": QUEUES - 1, "commitOffset": 0}
        assert client.ask(15, commit).code == 0
        reset = {"topic": TOPIC, "group": GROUP, "timestamp": -1, "isForce": True}
        answer = client.ask(222, reset)
        assert (answer.code, answer.body) == (2, b"")
        table = master_of(cluster).offsets.table
        assert table.stored(GROUP, TOPIC) == {0: 3, QUEUES - 1: 0}
        assert table.pending_reset(GROUP, TOPIC, QUEUES - 1) == 0


def test_reset_when_its_group_is_deleted_then_one_of_its_name_is_sent_nowhere(
    alone: ReplicaCluster,
) -> None:
    """Its consumer would be told OFFSET_RESET, and to read what another group had before it."""
    put(alone, 5)
    client = connect(alone)
    client.beat(GROUP, TOPIC)
    assert client.ask(222, {"topic": TOPIC, "group": GROUP, "timestamp": 0}).code == 0
    assert client.ask(207, {"groupName": GROUP, "cleanOffset": True}).code == 0
    client.ask(35, {"clientID": "c1", "consumerGroup": GROUP})
    client.beat(GROUP, TOPIC)
    pulled = client.ask(11, pull_fields(GROUP, TOPIC, 3, sysFlag=0, subVersion=1))
    assert (pulled.code, offsets_in(pulled.body)) == (0, [3, 4])


def test_reset_when_members_do_it_then_they_are_told_the_table() -> None:
    """222 without useServerSideResetOffset: request 220 to every member, or 206."""
    with ReplicaCluster(seed=23, replicas=1, useServerSideResetOffset="false") as cluster:
        cluster.boot_all()
        put(cluster, 2)
        client, asking = connect(cluster), connect(cluster, "admin")
        client.beat(GROUP, TOPIC)
        reset = {"topic": TOPIC, "group": GROUP, "timestamp": 0, "isForce": True}
        assert asking.ask(222, reset).code == 0
        (told,) = client.told(220)
        assert wire_rows(told.body) == dict.fromkeys(range(QUEUES), 0)
        client.ask(35, {"clientID": "c1", "consumerGroup": GROUP})
        assert asking.ask(222, reset).code == 206


@pytest.mark.parametrize("length", [248, 255])
def test_group_when_its_name_is_as_long_as_java_lets_it_be_then_its_broker_lives(
    alone: ReplicaCluster, length: int
) -> None:
    """248 characters leave room for a retry topic's folder; groups of Java's with more are served
    as far as that goes."""
    put(alone, 3)
    master, client, name = master_of(alone), connect(alone), "x" * length
    if length > GROUP_LENGTH_MAX:
        assert client.ask(200, body=fastjson.dumps({"groupName": name})).code == 29
        master.groups.table.put(GroupConfig(name), 1)
    client.beat(name, TOPIC)
    pulled = client.ask(11, pull_fields(name, TOPIC, 0, sysFlag=4))
    assert (pulled.code, offsets_in(pulled.body)) == (0, [0, 1, 2])
    (place,) = struct.unpack_from(">q", pulled.body, 28)
    back = {"offset": place, "group": name, "delayLevel": 1, "originTopic": TOPIC}
    made = f"%RETRY%{name}" in master.topics.table.topics
    assert (client.ask(36, back).code == 0) is made is (length <= GROUP_LENGTH_MAX)
    pop = {
        "consumerGroup": name, "topic": TOPIC, "queueId": -1, "maxMsgNums": 1,
        "invisibleTime": 60_000, "pollTime": 0, "bornTime": 0, "initMode": 0,
    }  # fmt: skip
    popped = client.ask(200050, pop)
    assert popped.code == 29
    assert "no retry topic" in (popped.remark or "")
    put(alone, 1)
    assert client.ask(14, {"consumerGroup": name, "topic": TOPIC, "queueId": 0}).code == 0


def test_reset_when_the_master_becomes_a_slave_then_it_sends_nobody_back_later() -> None:
    """Members have gone on elsewhere meanwhile; what they stored there is what counts."""
    with ReplicaCluster(seed=24, replicas=2) as cluster:
        cluster.boot_all()
        cluster.until(cluster.in_sync, "SyncStateSet of two")
        put(cluster, 5)
        first = master_of(cluster)
        client = connect(cluster)
        client.beat(GROUP, TOPIC)
        commit = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "commitOffset": 5}
        client.ask(15, commit)
        assert client.ask(222, {"topic": TOPIC, "group": GROUP, "timestamp": 0}).code == 0
        ids = [one.replicas.broker_id for one in cluster.replicas.values()]
        for target in (*(one for one in ids if one != first.replicas.broker_id), None):
            target = target or first.replicas.broker_id
            assert target is not None
            switch(cluster, target)
            cluster.until(
                lambda to=target: master_of(cluster).replicas.broker_id == to, "it reigns"
            )
            cluster.until(cluster.in_sync, "the other one follows")
            again = connect(cluster, f"c{target}")
            again.beat(GROUP, TOPIC)
            assert again.ask(15, commit).code == 0
        assert master_of(cluster) is first
        assert (again.ask(14, commit).ext_fields or {})["offset"] == "5"
        pulled = again.ask(11, pull_fields(GROUP, TOPIC, 5, sysFlag=0, subVersion=1))
        assert pulled.code == 19


def test_reset_when_the_server_is_to_do_it_no_more_then_none_is_pending(
    alone: ReplicaCluster,
) -> None:
    """A pending one that nobody is told of would swallow every later commit of the group."""
    put(alone, 5)
    client = connect(alone)
    client.beat(GROUP, TOPIC)
    commit = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "commitOffset": 5}
    reset = {"topic": TOPIC, "group": GROUP, "timestamp": 0, "isForce": True}
    assert client.ask(222, reset).code == 0
    assert client.ask(25, {}, b"useServerSideResetOffset=false").code == 0
    client.ask(15, commit)
    assert (client.ask(14, commit).ext_fields or {})["offset"] == "5"
    assert client.ask(222, reset).code == 0
    assert len(client.told(220)) == 1, "the members do it"
    assert (client.ask(14, commit).ext_fields or {})["offset"] == "5"
    assert client.ask(25, {}, b"useServerSideResetOffset=true").code == 0
    assert client.ask(222, reset).code == 0
    assert len(client.told(220)) == 1
    assert (client.ask(14, commit).ext_fields or {})["offset"] == "0"


def wire_rows(body: bytes) -> dict[int, Any]:
    """A table with objects for keys, by queue id."""
    import re

    text = body.decode()
    rows = re.findall(
        r'\{"brokerName":"[^"]*","queueId":(\d+),"topic":"[^"]*"\}:(\d+|\{[^}]*\})', text
    )
    return {int(queue): fastjson.loads(value.encode()) for queue, value in rows}


def test_tables_when_asked_then_every_queue_is_there(alone: ReplicaCluster) -> None:
    """202 and 208, from which mqadmin computes how far a group is behind."""
    put(alone, 3)
    client = connect(alone)
    client.beat(GROUP, TOPIC)
    client.ask(15, {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "commitOffset": 1})
    rows = wire_rows(client.ask(202, {"topic": TOPIC}).body)
    assert sorted(rows) == list(range(QUEUES))
    assert (rows[0]["minOffset"], rows[0]["maxOffset"]) == (0, 3)
    assert rows[0]["lastUpdateTimestamp"] > 0
    rows = wire_rows(client.ask(208, {"consumerGroup": GROUP}).body)
    assert (rows[0]["brokerOffset"], rows[0]["consumerOffset"]) == (3, 1)
    assert rows[1]["consumerOffset"] == 0
    assert client.ask(208, {"consumerGroup": "none"}).code == 0
    assert client.ask(202, {"topic": "none"}).code == 17
    some = wire_rows(client.ask(202, {"topic": TOPIC, **asked_fields([1, QUEUES])}).body)
    assert sorted(some) == [1]
    assert fastjson.loads(client.ask(300, {"topic": TOPIC}).body) == {"groupList": [GROUP]}
    assert fastjson.loads(client.ask(343, {"group": GROUP}).body) == {"topicList": [TOPIC]}


def test_stats_when_topics_are_listed_then_these_alone(alone: ReplicaCluster) -> None:
    """208 of 5.3.3: also such as the group has no offset in, or does not subscribe to now."""
    put(alone, 3)
    client = connect(alone)
    client.beat(GROUP, TOPIC)
    client.ask(15, {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "commitOffset": 1})

    def topics(listed: str, group: str = GROUP) -> set[str]:
        fields = {"consumerGroup": group, "topicList": listed, "topic": ""}
        body = bytes(client.ask(208, fields).body).decode()
        return set(re.findall(r'"topic":"([^"]*)"', body))

    assert topics(f"{TOPIC};") == {TOPIC}
    assert topics("TBW102;None;") == {"TBW102"}
    assert topics(f"{TOPIC};TBW102;", "other") == {TOPIC, "TBW102"}
    assert topics("") == topics(" ; ") == {TOPIC}


def test_tables_of_all_groups_when_asked_then_each_group_has_its_topics(
    alone: ReplicaCluster,
) -> None:
    """317: a queue without an offset counts from 0; a group without any has an empty list."""
    put(alone, 3)
    client = connect(alone)
    client.beat(GROUP, TOPIC)
    client.ask(15, {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "commitOffset": 1})
    found = fastjson.loads(client.ask(317, {"isOrder": "false"}).body)
    groups = {name: tables for entry in found["consumeStatsList"] for name, tables in entry.items()}
    assert groups["TOOLS_CONSUMER"] == []
    (table,) = groups[GROUP]
    rows = {
        fastjson.loads(key.encode())["queueId"]: row for key, row in table["offsetTable"].items()
    }
    assert sorted(rows) == list(range(QUEUES))
    assert (rows[0]["brokerOffset"], rows[0]["consumerOffset"]) == (3, 1)
    assert (rows[1]["brokerOffset"], rows[1]["consumerOffset"]) == (0, 0)
    assert found["totalDiff"] == 2
    ordered = fastjson.loads(client.ask(317, {"isOrder": "true"}).body)
    assert {GROUP: []} in ordered["consumeStatsList"]
    assert ordered["totalDiff"] == 0


def test_group_when_administered_then_it_is_kept_shown_and_gone(alone: ReplicaCluster) -> None:
    """200, 201, 352 and 207; a group that may not consume gets 16."""
    put(alone, 1)
    client = connect(alone)
    members = GroupConfig("G2", consume_enable=False, retry_max_times=3).members()
    assert client.ask(200, body=fastjson.dumps(members)).code == 0
    assert fastjson.loads(client.ask(352, {"group": "G2"}).body) == members
    assert client.ask(11, pull_fields("G2", TOPIC, 0, sysFlag=4)).code == 16
    table = fastjson.loads(client.ask(201).body)["subscriptionGroupTable"]
    assert table["G2"] == members
    assert "TOOLS_CONSUMER" in table
    assert client.ask(207, {"groupName": "G2"}).code == 0
    assert "G2" not in fastjson.loads(client.ask(201).body)["subscriptionGroupTable"]


def test_lock_when_asked_over_the_wire_then_one_member_holds_a_queue(alone: ReplicaCluster) -> None:
    """41 and 42 in Java's bodies."""
    first, second = connect(alone, "c1"), connect(alone, "c2")
    queues = [{"brokerName": "broker-a", "queueId": number, "topic": TOPIC} for number in range(2)]

    def body(client: Subscriber) -> bytes:
        return fastjson.dumps(
            {"clientId": client.client_id, "consumerGroup": GROUP, "mqSet": queues}
        )

    held = fastjson.loads(first.ask(41, body=body(first)).body)["lockOKMQSet"]
    assert held == queues
    assert fastjson.loads(second.ask(41, body=body(second)).body)["lockOKMQSet"] == []
    assert second.ask(42, body=body(second)).code == 0
    assert fastjson.loads(second.ask(41, body=body(second)).body)["lockOKMQSet"] == []
    assert first.ask(42, body=body(first)).code == 0
    assert fastjson.loads(second.ask(41, body=body(second)).body)["lockOKMQSet"] == queues


# -- sets ----------------------------------------------------------------------------------------------


def slave_of(cluster: ReplicaCluster) -> BrokerReplica:
    """One of the slaves."""
    return next(one for one in cluster.replicas.values() if one.role is Role.SLAVE)


def test_slaves_when_the_master_changes_then_groups_and_offsets_are_there(
    three: ReplicaCluster,
) -> None:
    """A failover must not make a group begin anew."""
    put(three, 5)
    client = connect(three)
    client.beat(GROUP, TOPIC)
    fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0}
    assert client.ask(15, fields | {"commitOffset": 3}).code == 0
    three.until(
        lambda: all(
            one.offsets.table.query(GROUP, TOPIC, 0) == 3 and one.groups.table.get(GROUP)
            for one in three.replicas.values()
        ),
        "offset and group everywhere", 5_000,
    )  # fmt: skip
    old = master_of(three)
    three.kill(three.host_of(old))
    three.until(lambda: three.master() not in (None, old), "a new master")
    after = connect(three, "c2")
    assert after.ask(14, fields).ext_fields == {"offset": "3"}
    found = after.ask(11, pull_fields(GROUP, TOPIC, 3, sysFlag=4))
    assert offsets_in(found.body) == [3, 4]


@pytest.mark.costly
def test_slave_when_it_serves_reads_then_messages_come_and_all_else_points_to_master_of(
    three: ReplicaCluster,
) -> None:
    """slaveReadEnable: a slave corrects nobody, for it may not have what its master has."""
    put(three, 3)
    slave = slave_of(three)
    three.until(lambda: slave.store.reader.max_offset(TOPIC, 0) == 3, "the messages")
    three.until(lambda: slave.topics.table.get(TOPIC) is not None, "the topic", 5_000)
    client = Subscriber(three, slave.config.address)
    found = client.ask(11, pull_fields(GROUP, TOPIC, 1, sysFlag=4))
    assert (found.code, offsets_in(found.body)) == (0, [1, 2])
    assert (found.ext_fields or {})["suggestWhichBrokerId"] == "0"
    beyond = client.ask(11, pull_fields(GROUP, TOPIC, 9, sysFlag=4))
    assert (beyond.code, (beyond.ext_fields or {})["nextBeginOffset"]) == (20, "9")
    number = client.pull(GROUP, TOPIC, 3)
    three.run_for(1_000)
    assert number not in client.answers
    put(three, 1)
    three.until(lambda: number in client.answers, "the answer", 1_000)
    assert offsets_in(client.answers[number].body) == [3]


def test_slave_when_reads_are_off_then_it_refuses_with_busy() -> None:
    """Java's default; a client that is sent here by mistake goes back."""
    with ReplicaCluster(seed=24, replicas=2) as cluster:
        cluster.boot_all()
        cluster.until(cluster.in_sync, "SyncStateSet of two")
        client = Subscriber(cluster, slave_of(cluster).config.address)
        assert client.ask(11, pull_fields(GROUP, TOPIC)).code == 2


def test_offsets_when_the_log_was_cut_then_they_come_back_to_its_end(alone: ReplicaCluster) -> None:
    """#4771: an offset beyond the end makes a group skip what is written there next."""
    put(alone, 3)
    client = connect(alone)
    client.beat(GROUP, TOPIC)
    commit = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0}
    assert client.ask(15, commit | {"commitOffset": 9}).code == 0
    broker = master_of(alone)
    epoch = broker.replicas.place.master_epoch + 1
    broker.role = None

    async def elect() -> None:
        assert await broker.become_master(epoch, frozenset({1}), 7)
        broker.serve_as(Role.MASTER, epoch)

    elected = alone.loop.create_task(elect())
    alone.until(elected.done, "the role")
    elected.result()
    assert client.ask(14, commit).ext_fields == {"offset": "3"}


# -- what people ask -------------------------------------------------------------------------------------


@pytest.mark.costly
def test_runtime_info_when_messages_flow_then_mqadmin_finds_every_key_and_its_counts(
    alone: ReplicaCluster,
) -> None:
    """28: mqadmin's clusterList throws on a missing key."""
    alone.run_for(11_000)
    put(alone, 20)
    client = connect(alone)
    assert client.ask(11, pull_fields(GROUP, TOPIC, 0, sysFlag=4)).code == 0
    alone.run_for(11_000)
    table = fastjson.loads(client.ask(28).body)["table"]
    for key in (
        "brokerVersionDesc", "putTps", "getTransferredTps", "sendThreadPoolQueueSize",
        "pullThreadPoolQueueSize", "ackThreadPoolQueueSize", "pageCacheLockTimeMills",
        "sendThreadPoolQueueHeadWaitTimeMills", "pullThreadPoolQueueHeadWaitTimeMills",
        "ackThreadPoolQueueHeadWaitTimeMills", "earliestMessageTimeStamp", "commitLogDiskRatio",
        "timerReadBehind", "timerOffsetBehind", "timerCongestNum", "timerEnqueueTps",
        "timerDequeueTps", "brokerActive", "msgPutTotalYesterdayMorning",
        "msgPutTotalTodayMorning", "msgGetTotalYesterdayMorning", "msgGetTotalTodayMorning",
    ):  # fmt: skip
        assert isinstance(table[key], str), key
    assert (table["brokerActive"], table["msgPutTotalTodayNow"]) == ("true", "20")
    assert table["msgGetTotalTodayNow"] == "20"
    assert [float(part) > 0 for part in table["putTps"].split(" ")][1:] == [True, True]
    assert wire_tps(client.ask(202, {"topic": TOPIC}).body) > 0


def wire_tps(body: bytes) -> float:
    """topicPutTps of a 202."""
    return float(body.rpartition(b'"topicPutTps":')[2].rstrip(b"}"))
