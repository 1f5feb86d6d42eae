"""Finding brokers through the name server, for the commands that take a set, a cluster or a topic."""

from __future__ import annotations

from rmqha.base.ids import MASTER_ID
from rmqha.client.exchange import Exchange, NotFound, ask_any
from rmqha.client.routes import TopicRoute
from rmqha.remoting.bodies import BrokerMemberGroup, ClusterInfo
from rmqha.remoting.codes import RequestCode


def cluster_info(name_servers: tuple[str, ...]) -> Exchange[ClusterInfo]:
    """Ask the first name server that answers for its broker sets (106)."""
    _, answer = yield from ask_any(name_servers, RequestCode.GET_BROKER_CLUSTER_INFO)
    return ClusterInfo.decode(answer.body)


def names_in_cluster(cluster: ClusterInfo, cluster_name: str) -> tuple[str, ...]:
    """The broker sets of a cluster.

    Raises:
        NotFound: no such cluster.
    """
    names = cluster.cluster_addr_table.get(cluster_name)
    if not names:
        raise NotFound(f"cluster {cluster_name} is not known to the name server")
    return names


def groups_in_cluster(cluster: ClusterInfo, cluster_name: str) -> tuple[BrokerMemberGroup, ...]:
    """The broker sets of a cluster with their addresses, by name.

    Raises:
        NotFound: no such cluster.
    """
    table = cluster.broker_addr_table
    return tuple(table[name] for name in names_in_cluster(cluster, cluster_name) if name in table)


def masters_by_set(cluster: ClusterInfo) -> dict[str, str]:
    """The master's address of each broker set that has one."""
    return {
        name: group.broker_addrs[MASTER_ID]
        for name, group in cluster.broker_addr_table.items()
        if MASTER_ID in group.broker_addrs
    }


def masters(
    name_servers: tuple[str, ...], cluster_name: str
) -> Exchange[tuple[BrokerMemberGroup, ...]]:
    """Ask for a cluster's broker sets that have a master now.

    Raises:
        NotFound: no such cluster, or none of its sets has a master.
    """
    cluster = yield from cluster_info(name_servers)
    found = tuple(
        group
        for group in groups_in_cluster(cluster, cluster_name)
        if MASTER_ID in group.broker_addrs
    )
    if not found:
        raise NotFound(f"no broker set of cluster {cluster_name} has a master")
    return found


def master_addresses(name_servers: tuple[str, ...], cluster_name: str) -> Exchange[tuple[str, ...]]:
    """Ask for the masters' addresses of a cluster; raises NotFound."""
    groups = yield from masters(name_servers, cluster_name)
    return tuple(group.broker_addrs[MASTER_ID] for group in groups)


def all_addresses(name_servers: tuple[str, ...], cluster_name: str) -> Exchange[tuple[str, ...]]:
    """Ask for the addresses of all brokers of a cluster; raises NotFound."""
    cluster = yield from cluster_info(name_servers)
    groups = groups_in_cluster(cluster, cluster_name)
    return tuple(address for group in groups for address in group.broker_addrs.values())


def topic_route(name_servers: tuple[str, ...], topic: str) -> Exchange[TopicRoute]:
    """Ask the first name server that answers where a topic is (105).

    Raises:
        Refused: 17, nobody has the topic.
    """
    _, answer = yield from ask_any(
        name_servers, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic, acceptStandardJsonOnly=True
    )
    return TopicRoute.decode(answer.body)


def need_broker(route: TopicRoute, topic: str, broker_name: str) -> str:
    """The address of a broker set that has the topic.

    Raises:
        NotFound: the set does not have it.
    """
    address = route.address_of(broker_name)
    if address is None:
        raise NotFound(f"topic {topic} has no broker set {broker_name}")
    return address
