"""How many queues a topic has, by what brokers and name servers say; the request that makes one."""

from __future__ import annotations

from msgspec import Struct

from rmqha.client.routes import TopicRoute
from rmqha.remoting import fastjson
from rmqha.remoting.values import as_number, as_object


class Queues(Struct, frozen=True):
    """How many queues a topic has at one broker set, to read from and to write to."""

    read: int
    write: int


def queues_made(body: bytes) -> Queues:
    """Read a broker's answer to 351.

    Raises:
        RemoteProtocolError: no topic.
    """
    return _queues(fastjson.loads(body))


def queues_listed(body: bytes, topic: str) -> Queues | None:
    """Read a topic's queues from a broker's answer to 21; None when it is not there.

    Raises:
        RemoteProtocolError: no table of topics.
    """
    table = as_object(as_object(fastjson.loads(body)).get("topicConfigTable"))
    return _queues(table[topic]) if topic in table else None


def _queues(value: object) -> Queues:
    members = as_object(value)
    return Queues(as_number(members.get("readQueueNums")), as_number(members.get("writeQueueNums")))


def routed_queues(body: bytes, broker_name: str) -> Queues | None:
    """Read a name server's answer to 105; None when the broker set has no queue of the topic.

    Raises:
        RemoteProtocolError: no route.
    """
    for one in TopicRoute.decode(body).queues:
        if one.broker_name == broker_name:
            return Queues(one.read_queue_nums, one.write_queue_nums)
    return None


def topic_fields(topic: str, queues: Queues) -> dict[str, str]:
    """The fields of 17, which makes a topic."""
    return {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": str(queues.read),
        "writeQueueNums": str(queues.write), "perm": "6", "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0", "order": "false",
    }  # fmt: skip
