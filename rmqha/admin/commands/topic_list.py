"""topicList: all topics that the name server knows, on demand with their clusters and groups."""

from __future__ import annotations

import click

from rmqha.admin.java_text import clipped, hash_order
from rmqha.admin.report import Report, Table
from rmqha.admin.spec import CommandSpec, name_servers_option, need_name_servers
from rmqha.base.errors import RmqhaError
from rmqha.client.brokers import cluster_info, topic_route
from rmqha.client.exchange import Exchange, Refused, Unreachable, ask, ask_any
from rmqha.client.routes import TopicRoute, decode_names
from rmqha.remoting.bodies import ClusterInfo
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import ext_fields
from rmqha.remoting.topic_names import DLQ_PREFIX, RETRY_PREFIX

_HEAD = "%-20s  %-48s  %-48s\n"
_ROW = "%-20s  %-64s  %-64s\n"


def all_topics(name_servers: tuple[str, ...]) -> Exchange[list[str]]:
    """Ask the first name server that answers for its topics (206)."""
    _, answer = yield from ask_any(name_servers, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    return decode_names(answer.body, "topicList")


def groups_of_topic(route: TopicRoute, topic: str) -> Exchange[list[str]]:
    """Ask the topic's brokers for its consumer groups (300), until one answers.

    Raises:
        Refused, Unreachable: the last of them, when none did.
    """
    why: Refused | Unreachable | None = None
    for _, address in route.brokers():
        request = RemotingCommand(
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, ext_fields=ext_fields(topic=topic)
        )
        try:
            answer = yield from ask(address, request)
        except (Refused, Unreachable) as error:
            why = error
            continue
        return decode_names(answer.body, "groupList")
    if why is not None:
        raise why
    return []


def run(name_servers: tuple[str, ...] | None, by_cluster: bool) -> Exchange[Report]:
    """List the topics; with ``by_cluster`` where each is (105) and who consumes it (300).

    Raises:
        click.UsageError: no name server.
    """
    servers = need_name_servers(name_servers)
    if not by_cluster:
        topics = yield from all_topics(servers)
        plain = "".join(f"{topic}\n" for topic in hash_order(topics))
        rows = [(topic,) for topic in sorted(topics)]
        return Report(plain, sorted(topics), (Table("Topics", ("Topic",), rows),))
    cluster = yield from cluster_info(servers)
    topics = yield from all_topics(servers)
    found: dict[str, tuple[str, list[str]]] = {}
    failures: list[RmqhaError] = []
    for topic in hash_order(topics):
        if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            continue
        found[topic] = "", []
        try:
            route = yield from topic_route(servers, topic)
            found[topic] = _cluster_of(route, cluster), []
            groups = yield from groups_of_topic(route, topic)
            found[topic] = found[topic][0], groups
        except (Refused, Unreachable) as error:
            failures.append(error)
    lines = [
        _ROW % (clipped(cluster_name, 20), clipped(topic, 64), clipped(group, 64))
        for topic, (cluster_name, groups) in found.items()
        for group in hash_order(groups) or [""]
    ]
    plain = _HEAD % ("#Cluster Name", "#Topic", "#Consumer Group") + "".join(lines)
    data = [
        {"topic": topic, "clusterName": found[topic][0], "consumerGroups": sorted(found[topic][1])}
        for topic in sorted(found)
    ]
    table_rows = [
        (one["clusterName"], one["topic"], "\n".join(one["consumerGroups"])) for one in data
    ]
    table = Table("Topics", ("Cluster Name", "Topic", "Consumer Group"), table_rows)
    return Report(plain, data, (table,), tuple(failures))


def _cluster_of(route: TopicRoute, cluster: ClusterInfo) -> str:
    first = route.groups[0].broker_name if route.groups else ""
    names = (name for name, sets in cluster.cluster_addr_table.items() if first in sets)
    return next(names, "")


def _options() -> list[click.Option]:
    return [
        name_servers_option(),
        click.Option(
            ["-c", "--clusterModel", "by_cluster"], is_flag=True,
            help="With the cluster and the consumer groups of each.",
        ),
    ]  # fmt: skip


SPEC = CommandSpec("topicList", "List the topics of the name server.", _options, run)
