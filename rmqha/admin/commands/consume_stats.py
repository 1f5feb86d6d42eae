"""How far a group is and who its members are: what several commands ask brokers for."""

from __future__ import annotations

from rmqha.admin.bodies import ConsumerConnection
from rmqha.base.errors import RmqhaError
from rmqha.client.brokers import topic_route
from rmqha.client.exchange import TIMEOUT_MS, Exchange, NotFound, Refused, Unreachable, ask
from rmqha.client.offsets import ConsumeOffset, ConsumeStats
from rmqha.client.routes import QueueKey, TopicRoute
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import ext_fields
from rmqha.remoting.topic_names import BROADCASTING, RETRY_PREFIX

_STATS_TIMEOUT_MS = 3 * TIMEOUT_MS


def stats_at(address: str, group: str, topic: str | None) -> Exchange[ConsumeStats]:
    """Ask one broker how far a group is (208), in all its topics or in one."""
    fields = ext_fields(consumerGroup=group, topic=topic)
    request = RemotingCommand(RequestCode.GET_CONSUME_STATS, ext_fields=fields)
    answer = yield from ask(address, request, _STATS_TIMEOUT_MS)
    return ConsumeStats.decode(answer.body)


def consume_stats(
    name_servers: tuple[str, ...],
    group: str,
    topic: str | None = None,
    cluster_name: str | None = None,
) -> Exchange[tuple[ConsumeStats, list[RmqhaError]]]:
    """Ask all brokers of a group how far it is.

    They are those of its retry topic, else of the topic, else of ``cluster_name`` as a topic.

    Returns:
        What those know that answer, and the failures of the others.

    Raises:
        Refused: none of these topics has a route; or, as Unreachable, nobody answered.
        NotFound: the group has no offset anywhere.
    """
    route = yield from _route(name_servers, group, topic, cluster_name)
    table: dict[QueueKey, ConsumeOffset] = {}
    tps, failures = 0.0, list[RmqhaError]()
    for _, address in route.brokers():
        try:
            stats = yield from stats_at(address, group, topic)
        except (Refused, Unreachable) as error:
            failures.append(error)
            continue
        table.update(stats.offset_table)
        tps += stats.consume_tps
    if not table and failures:
        raise failures[0]
    if not table:
        yield from _explain(name_servers, group)
    return ConsumeStats(table, tps), failures


def _route(
    name_servers: tuple[str, ...], group: str, topic: str | None, cluster_name: str | None
) -> Exchange[TopicRoute]:
    names = [RETRY_PREFIX + group]
    if topic:
        # A group that pops has its retries by topic.
        names += [topic, f"{RETRY_PREFIX}{group}_{topic}"]
        names += [cluster_name] if cluster_name else []
    for name in names[:-1]:
        try:
            return (yield from topic_route(name_servers, name))
        except Refused:
            continue
    return (yield from topic_route(name_servers, names[-1]))


def _explain(name_servers: tuple[str, ...], group: str) -> Exchange[None]:
    """Say why a group has no offsets, unless it is there and has just begun."""
    try:
        _, connection = yield from consumer_connection(name_servers, group)
    except (Refused, Unreachable, NotFound) as error:
        raise NotFound(f"group {group} has no offsets and is not online") from error
    if connection.message_model == BROADCASTING:
        raise NotFound(f"group {group} has no offsets: it consumes broadcasting")


def consumer_connection(
    name_servers: tuple[str, ...], group: str
) -> Exchange[tuple[str, ConsumerConnection]]:
    """Ask brokers of the group for its members (203), until one has some.

    The Java tool asks one of them by chance, to which the members need not have come back yet.

    Returns:
        The broker's address, and who is connected to it.

    Raises:
        Refused: 17, the group has no retry topic; 206, nobody is online.
        NotFound: nobody is online, by an older broker's word.
        Unreachable: a broker did not answer, and no other has members.
    """
    route = yield from topic_route(name_servers, RETRY_PREFIX + group)
    why: Refused | Unreachable | NotFound = NotFound(f"group {group} is not online")
    for _, address in route.brokers():
        try:
            return address, (yield from connection_at(address, group))
        except (Refused, Unreachable, NotFound) as error:
            # Who is at a broker that does not answer is not known, whatever others say.
            why = why if isinstance(why, Unreachable) else error
    raise why


def connection_at(address: str, group: str) -> Exchange[ConsumerConnection]:
    """Ask one broker for a group's members (203).

    Raises:
        Refused: 206, nobody is online.
        NotFound: nobody is online, by an older broker's word.
    """
    fields = ext_fields(consumerGroup=group)
    request = RemotingCommand(RequestCode.GET_CONSUMER_CONNECTION_LIST, ext_fields=fields)
    answer = yield from ask(address, request)
    connection = ConsumerConnection.decode(answer.body)
    if not connection.clients:
        raise NotFound(f"group {group} is not online")
    return connection
