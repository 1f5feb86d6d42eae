"""Finding brokers through the name server, for the commands that take a set or a cluster."""

from __future__ import annotations

from rmqha.admin.exchange import Exchange, NotFound, ask_any
from rmqha.remoting.bodies import ClusterInfo
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
