"""How commands change static topics: look at all brokers, and plan.

What an earlier command left unfinished is finished first, by whatever command comes next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from operator import or_
from typing import Any

from msgspec import Struct

from rmqha.admin.places import unheard_words
from rmqha.admin.topic_calls import mapped_config
from rmqha.base.errors import RemoteProtocolError, RmqhaError
from rmqha.base.ids import MASTER_ID
from rmqha.client.brokers import (
    groups_in_cluster,
    joined_cluster_info,
    sets_with_topic,
    without_master,
)
from rmqha.client.exchange import Exchange, NotFound, Refused, Unreachable
from rmqha.client.routes import chosen_address
from rmqha.remoting.bodies import ClusterInfo
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.values import as_number
from rmqha.statictopic.known import Known, KnownTopic, PlanRefused, is_unfinished
from rmqha.statictopic.map_file import known_topic
from rmqha.statictopic.plan import Change, retell
from rmqha.statictopic.steps import check

_PERM_ALL = 6
_TELLS_NOBODY: frozenset[int] = frozenset(
    {ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.NO_PERMISSION}
)
"""Refusals of a set elsewhere that will not go away: of a broker that knows no static topics, and of
one with other users. Where it has an ordinary topic, the route says so."""

Members = Mapping[str, Any]


class Found(Struct, frozen=True):
    """What was found out about a topic.

    Attributes:
        name_servers: who was asked.
        addresses: the master of each broker set of the cluster.
        configs: the members of TopicConfig of each; those of another where it has none.
        new: broker sets that have never had the topic.
        known: what they know of queues.
        elsewhere: what speaks for it that broker sets have the topic which were not asked for it,
            such as those of another cluster. Clients would see one topic of both.
        unheard: failures of name servers, which may know a set that has the topic.
    """

    name_servers: tuple[str, ...]
    cluster_name: str
    addresses: Mapping[str, str]
    configs: Mapping[str, Members]
    new: frozenset[str]
    known: Known
    elsewhere: tuple[str, ...] = ()
    unheard: tuple[str, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is told to who changes the topic all the same."""
        words = (f"{self.known.topic} is elsewhere as well: {one}" for one in self.elsewhere)
        return (*words, *unheard_words(self.unheard))


class Wish(Struct, frozen=True):
    """What a command wants of a topic.

    Attributes:
        kind: of map files.
        change: what is to be done; None if nothing is.
        may_create: whether the topic may be a new one.
    """

    kind: str
    change: Callable[[Known], Change | None]
    force: bool = False
    may_create: bool = False


def cluster_of(cluster: ClusterInfo, clusters: Iterable[str], brokers: Iterable[str]) -> str:
    """The one cluster that these names are of.

    Raises:
        NotFound: a name that the name server does not know, or names of several clusters.
    """
    wanted, found = {*brokers}, {*clusters}
    for name, members in cluster.cluster_addr_table.items():
        if wanted & {*members}:
            found.add(name)
            wanted -= {*members}
    if wanted:
        raise NotFound(f"broker set {', '.join(sorted(wanted))} is not known to the name server")
    if len(found) != 1:
        raise NotFound(f"the brokers are of clusters {', '.join(sorted(found))}; name one")
    return found.pop()


def gather(
    name_servers: tuple[str, ...],
    topic: str,
    clusters: Iterable[str],
    brokers: Iterable[str],
) -> Exchange[Found]:
    """Ask every master of a cluster what it knows of a topic (106, 351), and look for it elsewhere.

    Raises:
        NotFound: no such cluster; a broker set that has no master now: it could not be told.
    """
    cluster, unheard = yield from joined_cluster_info(name_servers)
    name = cluster_of(cluster, clusters, brokers)
    addresses = {}
    for group in groups_in_cluster(cluster, name):
        if MASTER_ID not in group.broker_addrs:
            raise without_master(group.broker_name)
        addresses[group.broker_name] = group.broker_addrs[MASTER_ID]
    configs: dict[str, Members] = {}
    for broker, address in sorted(addresses.items()):
        config = yield from mapped_config(address, topic)
        if config is not None:
            configs[broker] = config
    known = Known(topic, {one: _known_topic(one, configs.get(one)) for one in sorted(addresses)})
    elsewhere, silent = yield from _elsewhere(name_servers, cluster, known)
    new = frozenset(addresses) - configs.keys()
    pattern = {**next(iter(configs.values()), {"topicName": topic}), "perm": _perm(configs)}
    plain = {one: _without_mapping(configs.get(one, pattern)) for one in addresses}
    words = tuple(dict.fromkeys(map(str, (*unheard, *silent))))
    return Found(name_servers, name, addresses, plain, new, known, elsewhere, words)


def _elsewhere(
    name_servers: tuple[str, ...], cluster: ClusterInfo, known: Known
) -> Exchange[tuple[tuple[str, ...], tuple[RmqhaError, ...]]]:
    """What speaks for it that broker sets have the topic of which nothing is known.

    Routes tell it (105). A topic that is to be a new one is asked for at the sets themselves as well
    (351): the name server may have been started anew, and not have heard of it yet.

    Returns:
        That, and the failures of name servers.
    """
    routed, silent = yield from sets_with_topic(name_servers, known.topic)
    words = {
        name: f"broker set {name} of cluster {of} has it"
        for name, of in routed.items()
        if name not in known.brokers
    }
    for name, group in cluster.broker_addr_table.items() if not known.details else ():
        address = chosen_address(group)
        if name in known.brokers or name in words or address is None:
            continue
        try:
            config = yield from mapped_config(address, known.topic)
        except (Refused, Unreachable) as error:
            if isinstance(error, Refused) and error.code in _TELLS_NOBODY:
                continue
            words[name] = f"broker set {name} of cluster {group.cluster} does not say: {error}"
            continue
        if config is not None:
            words[name] = f"broker set {name} of cluster {group.cluster} has it"
    return tuple(said for _, said in sorted(words.items())), silent


def _perm(configs: Mapping[str, Members]) -> int:
    """What a set that is new to the topic may do: all that another one may.

    Who retires a set takes writing from it first, which says nothing of others.
    """
    found = [as_number(config.get("perm")) for config in configs.values()]
    return reduce(or_, found) if found else _PERM_ALL


def _without_mapping(config: Members) -> Members:
    rest = {"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False, "attributes": {}}
    whole = {**rest, **config}
    return {key: value for key, value in whole.items() if key != "mappingDetail"}


def _known_topic(broker: str, config: Members | None) -> KnownTopic:
    one = KnownTopic() if config is None else known_topic(config)
    if one.detail is not None and one.detail.broker_name != broker:
        raise RemoteProtocolError(f"{broker} has the mapping of {one.detail.broker_name}")
    return one


def next_change(found: Found, wish: Wish, now_ms: int) -> tuple[Change | None, bool]:
    """What to do next, and whether it is the wish; else it is what was left unfinished.

    Raises:
        NotFound: no broker has the topic.
        PlanRefused: it cannot be done; or it is to be a new topic, which may be elsewhere already,
            and not by force. Later changes cost nobody else anything, and force would do more there.
    """
    known = found.known
    against = (*found.elsewhere, *(f"a name server does not say: {one}" for one in found.unheard))
    if against and not known.details and not wish.force:
        raise PlanRefused(
            f"{known.topic} may be no topic of cluster {found.cluster_name} alone: "
            f"{'; '.join(against)}; -fr true goes on all the same"
        )
    if not wish.may_create and not known.details and len(found.new) == len(known.brokers):
        raise NotFound(f"no broker of cluster {found.cluster_name} has topic {known.topic}")
    unfinished = is_unfinished(known)
    change = retell(known, now_ms, force=wish.force) if unfinished else wish.change(known)
    if change is not None:
        check(change)
    return change, not unfinished
