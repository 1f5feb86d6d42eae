"""Finding brokers through the name server, for the commands that take a set, a cluster or a topic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from rmqha.base.errors import RmqhaError
from rmqha.base.ids import MASTER_ID
from rmqha.client.exchange import Exchange, NotFound, Refused, Unreachable, ask_any, ask_each
from rmqha.client.routes import TopicRoute
from rmqha.remoting.bodies import BrokerMemberGroup, ClusterInfo
from rmqha.remoting.codes import RequestCode, ResponseCode


def cluster_info(name_servers: tuple[str, ...]) -> Exchange[ClusterInfo]:
    """Ask the first name server that answers for its broker sets (106)."""
    _, answer = yield from ask_any(name_servers, RequestCode.GET_BROKER_CLUSTER_INFO)
    return ClusterInfo.decode(answer.body)


class JoinedSets(NamedTuple):
    """The broker sets that several name servers list together, and the failures of the others.

    What a set is that only they know cannot be told: it looks as if it were not there.
    """

    cluster: ClusterInfo
    unheard: tuple[RmqhaError, ...]


def joined_cluster_info(name_servers: tuple[str, ...]) -> Exchange[JoinedSets]:
    """Ask every name server for its broker sets (106), and join what they say.

    One that was started anew lists a set only when its brokers have registered again. Where two
    name different addresses for a broker, the first counts.

    Raises:
        Refused, Unreachable: none of them answered.
    """
    answers, failures = yield from ask_each(name_servers, RequestCode.GET_BROKER_CLUSTER_INFO)
    if not answers:
        raise _first_refused(failures) or _unreachable(failures)
    sets: dict[str, BrokerMemberGroup] = {}
    clusters: dict[str, set[str]] = {}
    for _, answer in answers:
        cluster = ClusterInfo.decode(answer.body)
        for name, group in cluster.broker_addr_table.items():
            known = sets.setdefault(name, group)
            joined = _joined_brokers(known.broker_addrs, group.broker_addrs)
            sets[name] = replace(known, broker_addrs=joined)
        for name, members in cluster.cluster_addr_table.items():
            clusters.setdefault(name, set()).update(members)
    joined_clusters = {name: tuple(sorted(found)) for name, found in clusters.items()}
    return JoinedSets(ClusterInfo(sets, joined_clusters), tuple(failures))


def _joined_brokers(known: Mapping[int, str], more: Mapping[int, str]) -> dict[int, str]:
    """The brokers of a set by id, each of them once: amid a failover two name servers list one broker
    under two ids. The master is whoever is called so."""
    found = dict(known)
    for broker_id, address in more.items():
        is_listed = address in found.values()
        if broker_id in found or (is_listed and broker_id != MASTER_ID):
            continue
        found = {number: one for number, one in found.items() if one != address}
        found[broker_id] = address
    return found


def sets_with_topic(
    name_servers: tuple[str, ...], topic: str
) -> Exchange[tuple[dict[str, str], tuple[RmqhaError, ...]]]:
    """The cluster of each broker set that any of the name servers routes a topic to (105).

    Returns:
        These clusters by set, and the failures of name servers that do not say. That one does not
        know the topic (17) is none.

    Raises:
        Unreachable: none of them answered.
    """
    answers, failures = yield from ask_each(
        name_servers, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic, acceptStandardJsonOnly=True
    )
    if not answers and _first_refused(failures) is None:
        raise _unreachable(failures)
    routes = [TopicRoute.decode(answer.body) for _, answer in answers]
    found = {group.broker_name: group.cluster for route in routes for group in route.groups}
    return found, tuple(one for one in failures if not _is_unknown(one))


def _is_unknown(failure: RmqhaError) -> bool:
    return isinstance(failure, Refused) and failure.code == ResponseCode.TOPIC_NOT_EXIST


def _first_refused(failures: Iterable[RmqhaError]) -> Refused | None:
    return next((one for one in failures if isinstance(one, Refused)), None)


def _unreachable(failures: Iterable[RmqhaError]) -> Unreachable:
    return Unreachable("; ".join(map(str, failures)) or "no address was given")


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


class Masters(Struct, frozen=True):
    """The broker sets of a cluster that have a master now, and a failure for each of the others.

    Who changes something at all of a cluster has not done so while one of them could not be told.

    Attributes:
        unheard: failures of name servers; broker sets that they alone know are passed over.
    """

    groups: tuple[BrokerMemberGroup, ...]
    failures: tuple[NotFound, ...]
    unheard: tuple[RmqhaError, ...] = ()

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where the masters are."""
        return tuple(group.broker_addrs[MASTER_ID] for group in self.groups)


def masters(name_servers: tuple[str, ...], cluster_name: str) -> Exchange[Masters]:
    """Ask for a cluster's broker sets and their masters, at all name servers.

    Raises:
        NotFound: no such cluster, or none of its sets has a master.
    """
    cluster, unheard = yield from joined_cluster_info(name_servers)
    groups = groups_in_cluster(cluster, cluster_name)
    found = tuple(group for group in groups if MASTER_ID in group.broker_addrs)
    if not found:
        raise NotFound(f"no broker set of cluster {cluster_name} has a master")
    absent = tuple(without_master(one.broker_name) for one in groups if one not in found)
    return Masters(found, absent, unheard)


def without_master(broker_name: str) -> NotFound:
    """The failure of a broker set whose master died, and nobody has been elected yet."""
    return NotFound(
        f"broker set {broker_name} has no master now; try again later, or stop its slaves if it is to "
        "have none any more: name servers then forget it"
    )


def all_addresses(
    name_servers: tuple[str, ...], cluster_name: str
) -> Exchange[tuple[tuple[str, ...], tuple[RmqhaError, ...]]]:
    """Ask all name servers for the addresses of all brokers of a cluster, each of them once.

    Returns:
        These, and the failures of name servers; brokers that they alone know are passed over.

    Raises:
        NotFound: no such cluster.
    """
    cluster, unheard = yield from joined_cluster_info(name_servers)
    groups = groups_in_cluster(cluster, cluster_name)
    found = (address for group in groups for address in group.broker_addrs.values())
    return tuple(dict.fromkeys(found)), unheard


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
