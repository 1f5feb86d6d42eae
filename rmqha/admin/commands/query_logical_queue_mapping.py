"""queryLogicalQueueMapping: each logical queue with its segments and their states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from rmqha.admin.report import Report, Table
from rmqha.admin.spec import CommandSpec, name_servers_option, need_name_servers, topic_option
from rmqha.admin.static_topic_view import known_by_route, physical_key
from rmqha.admin.topic_calls import topic_stats
from rmqha.base.errors import RmqhaError
from rmqha.client.brokers import topic_route
from rmqha.client.exchange import Exchange, NotFound, Refused, Unreachable
from rmqha.client.offsets import TopicOffset
from rmqha.client.routes import QueueKey
from rmqha.statictopic.known import Known, histories, is_stale, is_unfinished
from rmqha.statictopic.mapping import LogicQueueMappingItem, Segments
from rmqha.statictopic.placement import leaders_by_queue
from rmqha.statictopic.translate import SegmentState, segment_states

_COLUMNS = ("QID", "Gen", "State", "Broker Name", "Queue", "Begins at", "Ends at", "Messages")
_ROW = "%-6s  %-10s  %-8s  %-32s  %-6s  %-20s  %-20s  %s\n"


def run(name_servers: tuple[str, ...] | None, topic: str) -> Exchange[Report]:
    """Ask every broker set of the topic for its mapping (351) and its queues' ends (202).

    Of a set that does not answer it is not said what its segments hold, nor that they hold nothing.

    Raises:
        click.UsageError: no name server.
        NotFound: an ordinary topic.
        Refused: 17, nobody has the topic.
    """
    servers = need_name_servers(name_servers)
    route = yield from topic_route(servers, topic)
    known, failures = yield from known_by_route(topic, route)
    if not known.details:
        raise next(iter(failures.values()), None) or NotFound(
            f"{topic} is an ordinary topic: it has no logical queues"
        )
    ends: dict[QueueKey, TopicOffset] = {}
    for name, address in route.brokers():
        if name not in failures:
            try:
                offsets, _ = yield from topic_stats(address, topic)
            except (Refused, Unreachable) as error:
                failures[name] = error
                continue
            ends |= offsets
    rows = []
    for logical, segments in histories(known).items():
        states = segment_states(segments, _empty(topic, segments, ends))
        for item, state in zip(segments, states, strict=True):
            # A set that is silent may have messages of an older segment still.
            is_told = state is not SegmentState.EXPIRED or item.broker_name not in failures
            told = state if is_told else None
            rows.append(_row(logical, item, told, ends.get(physical_key(topic, item))))
    return _report(known, rows, failures)


def _empty(topic: str, segments: Segments, ends: Mapping[QueueKey, TopicOffset]) -> frozenset[int]:
    """Generations without a message; of a broker that is gone, too."""
    return frozenset(
        item.gen
        for item in segments
        if (one := ends.get(physical_key(topic, item))) is None or one.min_offset >= one.max_offset
    )


def _row(
    logical: int, item: LogicQueueMappingItem, state: SegmentState | None, ends: TopicOffset | None
) -> dict[str, Any]:
    begin = end = count = None
    if item.is_decided:
        begin = item.logic_offset if ends is None else item.logical(ends.min_offset)
        end = None if ends is None else item.logical(ends.max_offset)
    if ends is not None:
        count = ends.max_offset - ends.min_offset
    return {
        "logicalQueue": logical, "gen": item.gen, "state": state.value if state else None,
        "brokerName": item.broker_name, "queueId": item.queue_id, "minOffset": begin,
        "maxOffset": end, "messages": count,
    }  # fmt: skip


def _report(known: Known, rows: list[dict[str, Any]], failures: Mapping[str, RmqhaError]) -> Report:
    words = f"{', '.join(sorted(failures))} did not answer" if failures else "whole"
    if failures:
        pass  # nobody can say what else there is
    elif is_unfinished(known):
        words = "a change is unfinished: updateLogicalQueueMapping finishes it"
    elif is_stale(known):
        words = "not all brokers know it: updateLogicalQueueMapping tells them"
    alone = [logical for logical, name in leaders_by_queue(known).items() if name is None]
    if alone and not failures:
        words = f"nobody who is there leads logical queue {', '.join(map(str, alone))}"
    title = f"{known.topic}: {known.total_queues} logical queues, epoch {known.epoch}, {words}"
    values = [tuple(row.values()) for row in rows]
    plain = "".join(
        _ROW % tuple("-" if value is None else value for value in line)
        for line in [tuple(f"#{column}" for column in _COLUMNS), *values]
    )
    data = {
        "topic": known.topic, "epoch": known.epoch, "totalQueues": known.total_queues,
        "state": words, "segments": rows,
    }  # fmt: skip
    tables = (Table(title, _COLUMNS, values),)
    return Report(plain + f"\n{title}\n", data, tables, tuple(failures.values()))


def _options() -> list[click.Option]:
    return [name_servers_option(), topic_option()]


SPEC = CommandSpec(
    "queryLogicalQueueMapping", "Show logical queues with their segments.", _options, run
)
