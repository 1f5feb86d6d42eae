"""Topics that a broker makes for itself, those named after it and its cluster among them: who may change them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from rmqha.remoting import fastjson
from rmqha.remoting.command import RemotingCommand
from tests.broker.replicas import ReplicaCluster, master_of, send_fields

NAMED_AFTER_US = ("DefaultCluster", "broker-a", "DefaultCluster_REPLY_TOPIC")
ASKED = {
    "readQueueNums": "8", "writeQueueNums": "8", "perm": "6", "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": "0", "order": "false", "defaultTopic": "TBW102",
}  # fmt: skip


@pytest.fixture
def alone() -> Iterator[ReplicaCluster]:
    """One replica, which reigns."""
    with ReplicaCluster(seed=31, replicas=1) as one:
        one.boot_all()
        yield one


def ask(cluster: ReplicaCluster, code: int, fields: Any, body: bytes = b"") -> RemotingCommand:
    """Send a request to the master."""
    return cluster.ask(master_of(cluster).config.address, code, fields, body)


@pytest.mark.parametrize("topic", NAMED_AFTER_US)
def test_topic_when_it_is_named_after_us_then_nobody_deletes_or_changes_it(
    alone: ReplicaCluster, topic: str
) -> None:
    """A mistyped ``-t`` (the cluster's name in the topic's place) took it from all clients."""
    before = master_of(alone).topics.table.get(topic)
    assert before is not None
    items = [{"topicName": topic, "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}]
    listed = json.dumps({"topicConfigList": items}).encode()
    answers = [
        ask(alone, 215, {"topic": topic}),
        ask(alone, 17, {"topic": topic, **ASKED}),
        ask(alone, 18, {}, listed),
    ]
    remark = f"The topic[{topic}] is conflict with system topic."
    assert [(one.code, one.remark) for one in answers] == [(29, remark)] * 3
    assert ask(alone, 513, {"topic": topic, **ASKED}, b"{}").remark == remark
    assert master_of(alone).topics.table.get(topic) == before


def test_topics_when_they_are_told_as_ours_then_all_of_them_are_protected(
    alone: ReplicaCluster,
) -> None:
    """At Java's brokers 305 tells the very names that 215 refuses."""
    told = fastjson.loads(ask(alone, 305, {}).body)["topicList"]
    assert set(told) >= set(NAMED_AFTER_US)
    assert {ask(alone, 215, {"topic": name}).code for name in told} == {29}


def test_topics_when_they_are_named_after_us_then_messages_go_there_as_before(
    alone: ReplicaCluster,
) -> None:
    """Clients of old look whether a broker takes messages by a send to the topic of its name."""
    for topic in NAMED_AFTER_US:
        assert ask(alone, 310, send_fields(0, topic), b"x").code == 0


def test_topics_when_they_are_of_groups_or_of_another_set_then_they_can_be_changed(
    alone: ReplicaCluster,
) -> None:
    """Retry and dead letter topics are made, changed and deleted; so is what sounds like ours."""
    for topic in ("%RETRY%G", "%DLQ%G", "broker-b", "Other_REPLY_TOPIC", "broker-a-2"):
        assert ask(alone, 17, {"topic": topic, **ASKED}).code == 0
        assert ask(alone, 215, {"topic": topic}).code == 0


def test_topics_when_the_settings_protect_none_then_ours_can_be_changed() -> None:
    """Java's key for whoever has to mend them: validateSystemTopicWhenUpdateTopic."""
    with ReplicaCluster(seed=31, replicas=1, validateSystemTopicWhenUpdateTopic="false") as one:
        one.boot_all()
        assert ask(one, 17, {"topic": "broker-a", **ASKED}).code == 0
        table = master_of(one).topics.table
        assert table.topics["broker-a"].read_queue_nums == 8
