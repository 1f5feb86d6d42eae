"""What is shown of static topics: their queues as clients see them, from what brokers answer.

Source: MQAdminUtils of RocketMQ 5.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from rmqha.admin.topic_calls import mapped_config
from rmqha.base.errors import RmqhaError
from rmqha.client.brokers import topic_route
from rmqha.client.exchange import Exchange, Refused, Unreachable
from rmqha.client.offsets import ConsumeOffset, ConsumeStats, TopicOffset
from rmqha.client.routes import QueueKey, TopicRoute
from rmqha.remoting.topic_names import RETRY_PREFIX
from rmqha.statictopic.known import Known, KnownTopic, histories
from rmqha.statictopic.map_file import known_topic
from rmqha.statictopic.mapping import LogicQueueMappingItem, Segments, mock_broker_name
from rmqha.statictopic.translate import first_decided, last_decided


def known_by_route(topic: str, route: TopicRoute) -> Exchange[tuple[Known, dict[str, RmqhaError]]]:
    """Ask every broker set of a topic's route what it knows (351).

    Returns:
        What those know that answer, and the failures of the others by name.
    """
    brokers, failures = {}, dict[str, RmqhaError]()
    for name, address in route.brokers():
        try:
            config = yield from mapped_config(address, topic)
        except (Refused, Unreachable) as error:
            failures[name] = error
            continue
        brokers[name] = KnownTopic() if config is None else known_topic(config)
    return Known(topic, brokers), failures


def physical_key(topic: str, item: LogicQueueMappingItem) -> QueueKey:
    """The physical queue of a segment, as tables of brokers name it."""
    return QueueKey(topic, item.broker_name, item.queue_id)


def _logical_queues(known: Known) -> Iterable[tuple[QueueKey, Segments]]:
    mock = mock_broker_name(known.scope)
    for logical, segments in histories(known).items():
        yield QueueKey(known.topic, mock, logical), segments


def logical_offsets(
    known: Known, physical: Mapping[QueueKey, TopicOffset]
) -> dict[QueueKey, TopicOffset]:
    """The ends of each logical queue: where its oldest segment begins, and its newest ends."""
    found = {}
    for key, segments in _logical_queues(known):
        first, last = first_decided(segments), last_decided(segments)
        if first is None or last is None:
            continue
        low = physical.get(physical_key(known.topic, first))
        high = physical.get(physical_key(known.topic, last))
        if low is not None and high is not None:
            found[key] = TopicOffset(
                first.logical_or_bound(low.min_offset),
                last.logical(high.max_offset),
                high.last_update_timestamp,
            )
    return found


def logical_consumption(
    known: Known, physical: Mapping[QueueKey, ConsumeOffset]
) -> dict[QueueKey, ConsumeOffset]:
    """How far a group is in each logical queue: where its newest offset is.

    Java shows that offset as the physical queue has it, and the difference is wrong after a remap.
    """
    found = {}
    for key, segments in _logical_queues(known):
        end, consumed = None, None
        for item in reversed(segments):
            one = physical.get(physical_key(known.topic, item))
            if one is None or not item.is_decided:
                continue
            if end is None:
                end = item.logical(one.broker_offset)
            if one.consumer_offset >= 0:
                consumed = (
                    item.logical(one.consumer_offset),
                    item.logical(max(one.pull_offset, one.consumer_offset)),
                    one.last_timestamp,
                )
                break
        if end is not None and consumed is not None:
            found[key] = ConsumeOffset(end, *consumed)
    return found


def as_members_see(
    name_servers: tuple[str, ...], stats: ConsumeStats
) -> Exchange[tuple[ConsumeStats, list[RmqhaError]]]:
    """How far a group is, in logical queues where a topic has them (105, and 351 for these).

    Returns:
        This, and the failures of broker sets that do not say what they know of a topic.
    """
    table, failures = dict(stats.offset_table), list[RmqhaError]()
    for topic in sorted({key.topic for key in table}):
        if topic.startswith(RETRY_PREFIX):
            continue
        try:
            route = yield from topic_route(name_servers, topic)
        except Refused:
            continue  # it was deleted, and the offsets are left
        if route.is_mapped:
            known, silent = yield from known_by_route(topic, route)
            failures += silent.values()
            logical = logical_consumption(known, table)
            table = {key: one for key, one in table.items() if key.topic != topic} | logical
    return replace(stats, offset_table=table), failures
