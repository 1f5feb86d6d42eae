"""Requests of somebody else to a test cluster: of the test's author, with whatever tool."""

from __future__ import annotations

from typing import Any

from rmqha.remoting import fastjson
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.testing.cluster import RmqCluster
from rmqha.testing.topics import Queues, topic_fields


def ask(
    cluster: RmqCluster,
    code: int,
    fields: dict[str, str] | None = None,
    body: bytes = b"",
    at: str = "",
) -> RemotingCommand:
    """What the master answers, or whoever is at an address."""
    address = at or cluster.wait_for_master().address
    return cluster._call(cluster._core.client.ask(address, code, fields, body))


def make_topic(cluster: RmqCluster, topic: str, queues: Queues, **more: str) -> None:
    """Make a topic, or change it."""
    fields = topic_fields(topic, queues) | more
    assert ask(cluster, RequestCode.UPDATE_AND_CREATE_TOPIC, fields).code == ResponseCode.SUCCESS


def topic_at(cluster: RmqCluster, topic: str) -> dict[str, Any] | None:
    """A topic as the master has it."""
    answer = ask(cluster, RequestCode.GET_TOPIC_CONFIG, {"topic": topic})
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        return None
    found = fastjson.loads(answer.body)
    assert isinstance(found, dict)
    return found
