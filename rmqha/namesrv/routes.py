"""The answers about routes, clusters and topics, exactly as Java and Go clients parse them.

Compact, members sorted, null members left out: Go cuts ``brokerAddrs`` by hand on commas and on the
first colon. Number keys are quoted for who can read JSON and bare for everybody else.

Source: RouteInfoManager, ClientRequestProcessor, ZoneRouteRPCHook, RocketMQ namesrv.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from rmqha.base.ids import MASTER_ID
from rmqha.namesrv.kept_answers import CLUSTERS, TOPICS, TOPICS_OF_CLUSTER
from rmqha.namesrv.messages import QueueData
from rmqha.namesrv.route_table import BrokerAddr, BrokerSet, RouteTable
from rmqha.namesrv.static_topics import perm_for_old_clients, shown_to_old_clients
from rmqha.remoting import fastjson
from rmqha.remoting.topic_names import PERM_WRITE

VERSION_4_9_4 = 401
"""From this release on clients read quoted number keys."""

SYNC_MEMBER_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"


class Zone(NamedTuple):
    """A client asks for its own zone's brokers only; masterless sets are in every zone."""

    name: str

    def has(self, broker: dict[str, Any]) -> bool:
        """Whether a set of an answer belongs to it."""
        if MASTER_ID not in broker["brokerAddrs"]:
            return True
        zone = broker.get("zoneName")
        return zone is not None and zone.lower() == self.name.lower()


def route_body(
    table: RouteTable,
    topic: str,
    *,
    standard_json: bool,
    support_acting_master: bool,
    order_conf: str | None,
    zone: Zone | None = None,
    knows_static_topics: bool = True,
) -> bytes | None:
    """The answer to 105; None when nobody serves the topic.

    Args:
        table: the tables; it keeps what was made until something changes.
        topic: the question.
        standard_json: quote number keys and escape what is not ASCII.
        support_acting_master: show the smallest slave of a read-only set without a master as 0.
        order_conf: how the topic's queues are ordered over the brokers; None for unordered.
        zone: keep this zone's brokers only; answered with bare keys to everybody, as in Java.
        knows_static_topics: whether the client does; one that does not takes any queue for a
            physical one.
    """
    for_old = not knows_static_topics and topic in table.mappings
    quoted = standard_json and zone is None
    key = (
        ("route" if quoted else "bare") + (" old" if for_old else ""), topic,
        "" if zone is None else f"in {zone.name.lower()}",
    )  # fmt: skip
    kept = table.kept.get(key)
    if kept is not None:
        return kept
    members = _route(table, topic, support_acting_master, order_conf)
    if members is None:
        return None
    if for_old:
        members = _for_old_client(table, topic, members)
    if zone is not None:
        members = _of_zone(members, zone)
    return table.kept.put(key, (fastjson.dumps_ascii if quoted else fastjson.dumps_bare)(members))


def _route(
    table: RouteTable, topic: str, support_acting_master: bool, order_conf: str | None
) -> dict[str, Any] | None:
    queues = table.topics.get(topic, {})
    sets = [table.sets[name] for name in sorted(queues) if name in table.sets]
    if not sets:
        return None
    acting = support_acting_master and not topic.startswith(SYNC_MEMBER_PREFIX)
    brokers = [_broker(one, queues[one.broker_name], acting) for one in sets]
    members: dict[str, Any] = {
        "brokerDatas": brokers,
        "filterServerTable": _filter_servers(table, sets),
    }
    infos = table.mappings.get(topic)
    # It would lead producers to physical queues, which brokers take for logical ones.
    if order_conf is not None and infos is None:
        members["orderTopicConf"] = order_conf
    members["queueDatas"] = [queues[name].members() for name in sorted(queues)]
    if infos is not None:
        members["topicQueueMappingByBroker"] = {
            name: infos[name].members() for name in sorted(infos)
        }
    return members


def _for_old_client(table: RouteTable, topic: str, members: dict[str, Any]) -> dict[str, Any]:
    """The route of a static topic as one of a single broker set with all its logical queues.

    Its address is that of the set that serves it. The other sets are there without queues: whoever
    consumes tells all of them, so that each knows the whole group.
    """
    shown = shown_to_old_clients(table, topic)
    if shown is None:
        return _without_queues(members)
    name, count, front = shown
    brokers = [
        {**one, "brokerName": name} if one["brokerName"] == front.broker_name else one
        for one in members["brokerDatas"]
    ]
    queues = {
        "brokerName": name, "perm": perm_for_old_clients(table, topic), "readQueueNums": count,
        "topicSysFlag": table.topics[topic][front.broker_name].topic_sys_flag,
        "writeQueueNums": count,
    }  # fmt: skip
    for one in brokers:
        # What it suggests to whoever lags are replicas of the queue's leader.
        addrs = one["brokerAddrs"]
        if one["brokerName"] == name and MASTER_ID in addrs:
            one["brokerAddrs"] = {MASTER_ID: addrs[MASTER_ID]}
    rest = {key: one for key, one in members.items() if key != "topicQueueMappingByBroker"}
    return {**rest, "brokerDatas": brokers, "queueDatas": [queues]}


def _without_queues(members: dict[str, Any]) -> dict[str, Any]:
    """A route in which nothing can be written or read.

    Code 17 would not do: producers then take the route of TBW102 and send all the same, and clients
    that know the topic from before it was static keep what they know.
    """
    closed = {"perm": 0, "readQueueNums": 0, "writeQueueNums": 0}
    rest = {name: one for name, one in members.items() if name != "topicQueueMappingByBroker"}
    return {**rest, "queueDatas": [{**one, **closed} for one in members["queueDatas"]]}


def _broker(one: BrokerSet, queues: QueueData, acting: bool) -> dict[str, Any]:
    addrs = dict(sorted(one.addrs.items()))
    if (
        acting
        and one.enable_acting_master
        and MASTER_ID not in addrs
        and not queues.perm & PERM_WRITE
    ):
        smallest = min(addrs)
        addrs = {MASTER_ID: addrs.pop(smallest), **addrs}
    members: dict[str, Any] = {
        "brokerAddrs": addrs,
        "brokerName": one.broker_name,
        "cluster": one.cluster_name,
        "enableActingMaster": one.enable_acting_master,
    }
    if one.zone_name is not None:
        members["zoneName"] = one.zone_name
    return members


def _filter_servers(table: RouteTable, sets: list[BrokerSet]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for one in sets if table.filter_servers else ():
        for _, address in sorted(one.addrs.items()):
            servers = table.filter_servers.get(BrokerAddr(one.cluster_name, address))
            if servers is not None:
                found[address] = list(servers)
    return found


def _of_zone(members: dict[str, Any], zone: Zone) -> dict[str, Any]:
    """Leave the sets of other zones out, their queues and filter servers with them."""
    datas = members["brokerDatas"]
    gone = [broker for broker in datas if not zone.has(broker)]
    names = {broker["brokerName"] for broker in gone}
    addresses = {address for broker in gone for address in broker["brokerAddrs"].values()}
    return {
        **members,
        "brokerDatas": [one for one in datas if one["brokerName"] not in names],
        "filterServerTable": {
            address: servers
            for address, servers in members["filterServerTable"].items()
            if address not in addresses
        },
        "queueDatas": [one for one in members["queueDatas"] if one["brokerName"] not in names],
    }


def cluster_info_body(table: RouteTable) -> bytes:
    """The answer to 106: number keys are bare, whoever asks."""
    body = table.kept.get(CLUSTERS)
    if body is None:
        members = {
            "brokerAddrTable": {
                name: _broker_data(table.sets[name]) for name in sorted(table.sets)
            },
            "clusterAddrTable": {
                name: sorted(table.clusters[name]) for name in sorted(table.clusters)
            },
        }
        body = table.kept.put(CLUSTERS, fastjson.dumps_bare(members))
    return body


def _broker_data(one: BrokerSet) -> dict[str, Any]:
    return _broker(one, QueueData(one.broker_name, PERM_WRITE, 0, 0, 0), acting=False)


def member_group_body(table: RouteTable, cluster_name: str, broker_name: str) -> bytes:
    """The answer to 901: an unknown name has no members."""
    one = table.sets.get(broker_name)
    group = {
        "brokerAddrs": {} if one is None else dict(sorted(one.addrs.items())),
        "brokerName": broker_name,
        "cluster": cluster_name,
    }
    return fastjson.dumps_bare({"brokerMemberGroup": group})


def all_topics_body(table: RouteTable) -> bytes:
    """The answer to 206."""
    body = table.kept.get(TOPICS)
    if body is None:
        body = table.kept.put(TOPICS, _topic_list(sorted(table.topics)))
    return body


def cluster_topics_body(table: RouteTable, cluster_name: str) -> bytes:
    """The answer to 224: an unknown cluster has no topics."""
    names = table.clusters.get(cluster_name)
    if names is None:
        return _topic_list([])
    key = (TOPICS_OF_CLUSTER, cluster_name)
    body = table.kept.get(key)
    if body is None:
        found: set[str] = set()
        found.update(*(table.topics_of.get(name, {}) for name in names))
        body = table.kept.put(key, _topic_list(sorted(found)))
    return body


def system_topics_body(table: RouteTable) -> bytes:
    """The answer to 304: names of clusters and broker sets, and where to ask one broker."""
    found = {*table.clusters, *(name for names in table.clusters.values() for name in names)}
    for name in sorted(table.sets):
        _, address = min(table.sets[name].addrs.items())
        return _topic_list(sorted(found), address)
    return _topic_list(sorted(found))


def unit_topics_body(table: RouteTable, wanted: Callable[[int], bool]) -> bytes:
    """The answers to 311, 312 and 313: topics by the flags on their first broker set."""
    found = [
        topic
        for topic, queues in sorted(table.topics.items())
        if wanted(next(iter(queues.values())).topic_sys_flag)
    ]
    return _topic_list(found)


def _topic_list(topics: list[str], broker_address: str | None = None) -> bytes:
    members: dict[str, Any] = {} if broker_address is None else {"brokerAddr": broker_address}
    return fastjson.dumps({**members, "topicList": topics})
