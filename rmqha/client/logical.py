"""Static topics as clients see them: which broker set leads each logical queue.

A logical queue's ``QueueKey`` names no broker set, as its leader changes, but its scope's mock name.

Source: MQClientInstance.topicRouteData2EndpointsForStaticTopic, TopicQueueMappingInfo and
TopicConfigAndQueueMapping of RocketMQ 5.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from rmqha.client.routes import QueueKey, TopicRoute
from rmqha.remoting import fastjson
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import ext_fields
from rmqha.remoting.values import as_object
from rmqha.statictopic.mapping import (
    MOCK_BROKER_PREFIX,
    Segments,
    TopicQueueMappingDetail,
    queue_id,
)


def is_logical(queue: QueueKey) -> bool:
    """Whether a queue is one of a static topic."""
    return queue.broker_name.startswith(MOCK_BROKER_PREFIX)


def begins_at(history: Segments, offset: int) -> bool:
    """Whether a segment begins at a logical offset: who was led there has skipped a gap.

    Who was led elsewhere has skipped messages that have been deleted; Java's answers to the two are
    alike else.
    """
    return any(one.is_decided and one.logic_offset == offset for one in history)


def leaders(route: TopicRoute) -> dict[tuple[str, int], str]:
    """The leader of each logical queue, by the mock name of its scope and its number.

    The newest epoch that claims a queue counts. A queue that nobody claims misses.

    Raises:
        RemoteProtocolError: a mapping is malformed.
    """
    found: dict[tuple[str, int], str] = {}
    mappings = as_object(route.raw.get("topicQueueMappingByBroker"))
    infos = [(TopicQueueMappingDetail.of(value), value) for value in mappings.values()]
    for info, members in sorted(infos, key=lambda one: (one[0].epoch, one[0].broker_name)):
        for key in as_object(as_object(members).get("currIdMap")):
            found[info.mock_broker_name, queue_id(key)] = info.broker_name
    return found


class Leaders(Struct, frozen=True):
    """Who leads the queues of a static topic, and which of these broker sets lets clients do what.

    Attributes:
        names: the leader of each logical queue.
        perms: of broker sets; one that misses allows nothing.
    """

    names: Mapping[QueueKey, str]
    perms: Mapping[str, int]

    @classmethod
    def of(cls, topic: str, route: TopicRoute) -> Leaders:
        """Those of a route; raises RemoteProtocolError."""
        names = {QueueKey(topic, *place): name for place, name in leaders(route).items()}
        return cls(names, {one.broker_name: one.perm for one in route.queues})

    def allowing(self, perm: int) -> list[QueueKey]:
        """The queues whose leaders allow something, in order."""
        return sorted(queue for queue, name in self.names.items() if self.perms.get(name, 0) & perm)


def mapping_request(topic: str) -> RemotingCommand:
    """Ask a broker for a topic with its mapping (351)."""
    return RemotingCommand(
        RequestCode.GET_TOPIC_CONFIG, ext_fields=ext_fields(topic=topic, lo=True)
    )


def decode_segments(body: bytes) -> Mapping[int, Segments]:
    """The segments of each logical queue that a broker knows, by 351's body; none of other topics.

    Raises:
        RemoteProtocolError: not such a body.
    """
    detail = as_object(fastjson.loads(body)).get("mappingDetail")
    return {} if detail is None else TopicQueueMappingDetail.of(detail).hosted_queues
