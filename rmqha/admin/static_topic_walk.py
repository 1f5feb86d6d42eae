"""How the plan for a static topic is carried out: who is told and asked, where masters change amid it.

What is told, and in which order, is decided in ``statictopic/steps.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from rmqha.admin.commands.update_topic import TopicConfig
from rmqha.admin.static_topics import Found
from rmqha.admin.topic_calls import topic_stats
from rmqha.base.errors import RemoteProtocolError
from rmqha.client.brokers import joined_cluster_info, masters_by_set
from rmqha.client.exchange import CONFIG_TIMEOUT_MS, Exchange, Refused, Unreachable, ask
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import ext_fields
from rmqha.remoting.values import as_number, as_object, as_text
from rmqha.statictopic.known import Known
from rmqha.statictopic.mapping_body import encode_detail
from rmqha.statictopic.plan import Change
from rmqha.statictopic.steps import Look, Step, Tell, steps, stop

LOOKED_AT_MAX = 5_000
"""Queues in one question for ends: what names very many names none, and slaves answer it as well."""


class Walk(Struct):
    """The steps that were carried out so far."""

    done: list[Step]


def carry_out(
    found: Found, change: Change, walk: Walk, *, dry_run: bool = False
) -> Exchange[Found]:
    """Carry a change out; returns what brokers know then.

    Args:
        dry_run: brokers are asked where queues end, and told nothing.

    Raises:
        Refused, Unreachable: a broker; what is done so far stands in ``walk``.
    """
    todo: Generator[Step, Mapping[int, int], Known] = steps(change)
    masters, has_stopped = dict(found.addresses), dry_run
    try:
        step = next(todo)
        while True:
            ends: Mapping[int, int] = {}
            if isinstance(step, Look):
                if not has_stopped:
                    yield from _stop_new_masters(found, change, masters, walk)
                    has_stopped = True
                ends = yield from _again(found, masters, step.broker_name, _look(found, step))
            elif not dry_run:
                yield from _again(found, masters, step.broker_name, _tell(found, step))
            walk.done.append(step)
            step = todo.send(ends)
    except StopIteration as end:
        return replace(found, addresses=masters, known=end.value, new=frozenset())


def _stop_new_masters(
    found: Found, change: Change, masters: dict[str, str], walk: Walk
) -> Exchange[None]:
    """Tell it also to new masters that their sets lead no more, before any is asked for ends.

    A Java slave takes what its master is to be told, and answers where its queues end. So a master of
    before, which is one by now, lets nobody notice that the new one still takes messages.
    """
    now = yield from _masters_now(found)
    for broker in change.map_out:
        if now.get(broker, masters[broker]) != masters[broker]:
            masters[broker] = now[broker]
            step = stop(change, broker)
            yield from _again(found, masters, broker, _tell(found, step))
            walk.done.append(step)


def _again(
    found: Found, masters: dict[str, str], broker: str, request: Callable[[str], Exchange[Any]]
) -> Exchange[Any]:
    """Ask a broker set's master, and once more where that is another one meanwhile.

    Every step may be done twice. A master of before may be back as a slave, which lags and, where it
    is Java's, says all the same where its queues end: so all later steps go to the new one, and a
    queue's end is asked of whoever took that it leads no more.

    Args:
        masters: of each set, as far as is known; changed where there is another one.
    """
    address = masters[broker]
    try:
        return (yield from request(address))
    except (Refused, Unreachable):  # a slave refuses what its master alone may do
        masters[broker] = (yield from _masters_now(found)).get(broker, address)
        if masters[broker] == address:
            raise
    return (yield from request(masters[broker]))


def _masters_now(found: Found) -> Exchange[dict[str, str]]:
    """The masters that there are; none where nobody knows: what a master said is what counts then."""
    try:
        cluster, _ = yield from joined_cluster_info(found.name_servers)
    except (Refused, Unreachable, RemoteProtocolError):
        return {}
    return masters_by_set(cluster)


def _look(found: Found, step: Look) -> Callable[[str], Exchange[Mapping[int, int]]]:
    def request(address: str) -> Exchange[Mapping[int, int]]:
        ends: dict[int, int] = {}
        for first in range(0, len(step.queue_ids), LOOKED_AT_MAX):
            queue_ids = step.queue_ids[first : first + LOOKED_AT_MAX]
            offsets, _ = yield from topic_stats(address, found.known.topic, queue_ids)
            ends |= {
                key.queue_id: one.max_offset
                for key, one in offsets.items()
                if key.broker_name == step.broker_name
            }
        return ends

    return request


def _tell(found: Found, step: Tell) -> Callable[[str], Exchange[None]]:
    config = found.configs[step.broker_name]
    attributes = as_object(config.get("attributes")) if step.broker_name in found.new else {}
    topic = TopicConfig(
        found.known.topic,
        step.read_queue_nums,
        step.write_queue_nums,
        as_number(config.get("perm")),
        as_number(config.get("topicSysFlag")),
        config.get("order") is True,
        {f"+{key}": as_text(value) for key, value in attributes.items()},
    )

    def request(address: str) -> Exchange[None]:
        command = RemotingCommand(
            RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,
            ext_fields=ext_fields(**topic.fields(), force=step.force),
            body=encode_detail(step.detail),
        )
        yield from ask(address, command, CONFIG_TIMEOUT_MS)

    return request
