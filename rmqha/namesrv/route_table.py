"""The tables of a name server: clusters, broker sets, live brokers, topics. Memory only.

The rules of registering are in ``register``, those of leaving here; ``routes`` makes the answers
and keeps them until a change here forgets them.

Source: RouteInfoManager, RocketMQ namesrv.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from rmqha.base.ids import MASTER_ID
from rmqha.base.machine import Note
from rmqha.namesrv.kept_answers import KeptAnswers
from rmqha.namesrv.messages import (
    MappingInfo,
    NamesrvEffect,
    NotifyMinBrokerId,
    QueueData,
)
from rmqha.namesrv.settings import RouteSettings
from rmqha.remoting.data_version import DataVersion
from rmqha.remoting.headers import ext_fields
from rmqha.remoting.topic_names import PERM_READ, PERM_WRITE

ValueT = TypeVar("ValueT")

FORGOTTEN_MAX = 1_000
"""Where more topics change at once, all kept answers go: to look for theirs would take longer."""


class BrokerAddr(NamedTuple):
    """What tells one broker from another."""

    cluster_name: str
    address: str


class BrokerSet(Struct):
    """All registered brokers of one name."""

    cluster_name: str
    broker_name: str
    addrs: dict[int, str] = field(default_factory=dict)
    enable_acting_master: bool = False
    zone_name: str | None = None

    @property
    def min_id(self) -> int | None:
        """The smallest registered id; None without any."""
        return min(self.addrs) if self.addrs else None

    def id_of(self, address: str) -> int | None:
        """The id of an address; None when it is not registered here."""
        return next((one for one, known in self.addrs.items() if known == address), None)


class LiveBroker(Struct, frozen=True):
    """A broker that is heard.

    Attributes:
        connection_id: of the connection that registered it last.
        serves_old_clients: whether it serves logical queues to clients that know none.
        account: the user who registered it last; empty where nobody is asked to sign.
    """

    broker_name: str
    last_update_ms: int
    timeout_ms: int
    data_version: DataVersion
    connection_id: int
    ha_address: str
    serves_old_clients: bool = False
    account: str = ""


class RouteTable:
    """The tables, and the changes that keep them consistent.

    Attributes:
        clusters: names of the sets of each cluster.
        sets: by brokerName, the only key (a name in two clusters is one set, as in Java).
        live: by cluster and address.
        topics: queues by topic and brokerName.
        topics_of: the topics of each brokerName, in order of arrival.
        mappings: static topics' infos by topic and brokerName.
        mapped_by: the static topics of each brokerName, in order of arrival.
        doubts: topics and brokerNames whose mapping was missing when it was last looked for.
        filter_servers: by cluster and address.
        ha_addresses: what each address registered last, also when it has gone since.
        speaking: brokers, and their sets, whose word waits to be read; they are not silent.
        kept: answers that hold until the next change.
        route_count, mapping_count: pairs of topic and brokerName.
    """

    def __init__(self) -> None:
        self.clusters: dict[str, dict[str, None]] = {}
        self.sets: dict[str, BrokerSet] = {}
        self.live: dict[BrokerAddr, LiveBroker] = {}
        self.topics: dict[str, dict[str, QueueData]] = {}
        self.topics_of: dict[str, dict[str, None]] = {}
        self.mappings: dict[str, dict[str, MappingInfo]] = {}
        self.mapped_by: dict[str, dict[str, None]] = {}
        self.filter_servers: dict[BrokerAddr, tuple[str, ...]] = {}
        self.ha_addresses: dict[BrokerAddr, str] = {}
        self.kept = KeptAnswers()
        self._spared_ms = 0
        self._by_connection: dict[int, dict[BrokerAddr, None]] = {}
        self.route_count = 0
        self.mapping_count = 0
        self.doubts: set[tuple[str, str]] = set()
        self.speaking: Counter[tuple[BrokerAddr, str]] = Counter()

    # -- topics ------------------------------------------------------------------------------

    def put_queues(self, topic: str, queues: QueueData) -> bool:
        """List a topic on a broker set; tells whether that is news."""
        known = self.topics.get(topic)
        before = None if known is None else known.get(queues.broker_name)
        if before == queues:
            return False
        if known is None:
            known = self.topics[topic] = {}
            self.forget_lists()
        known[queues.broker_name] = queues
        if before is None:
            self.route_count += 1
            self.topics_of.setdefault(queues.broker_name, {})[topic] = None
            self.kept.forget_topic_lists(of_clusters_only=True)
        self.forget_topic(topic)
        return True

    def put_all(self, broker_name: str, listed: Mapping[str, QueueData]) -> None:
        """List many topics of one set: one by one, 100,000 of them took 140 ms."""
        if not listed:
            return
        topics, mine = self.topics, self.topics_of.setdefault(broker_name, {})
        routes, known_topics, changed = len(mine), len(topics), list[str]()
        for topic, queues in listed.items():
            known = topics.get(topic)
            if known is None:
                topics[topic] = {broker_name: queues}
                mine[topic] = None
            elif known.get(broker_name) != queues:
                known[broker_name] = queues
                mine[topic] = None
            else:
                continue
            changed.append(topic)
        self.route_count += len(mine) - routes
        if len(topics) > known_topics:
            self.forget_lists()
        elif len(mine) > routes:
            self.kept.forget_topic_lists(of_clusters_only=True)
        self._forget_topics(changed)

    def remove_all(self, broker_name: str, gone: Collection[str]) -> None:
        """Take many topics from a set, mappings too: one by one, 100,000 of them took 104 ms."""
        if not gone:
            return
        self.route_count -= _take_from(self.topics, self.topics_of, broker_name, gone)
        self.mapping_count -= _take_from(self.mappings, self.mapped_by, broker_name, gone)
        self.trust_mappings(broker_name, gone)
        self.forget_lists()
        self._forget_topics(gone)

    def remove_queues(self, topic: str, broker_name: str) -> bool:
        """Take a topic from a broker set; tells whether it was there. Its mapping goes as well."""
        self.remove_mapping(topic, broker_name)
        known = self.topics.get(topic, {})
        if known.pop(broker_name, None) is None:
            return False
        self.route_count -= 1
        self.forget_topic(topic)
        self.kept.forget_topic_lists(of_clusters_only=True)
        listed = self.topics_of[broker_name]
        del listed[topic]
        if not listed:
            del self.topics_of[broker_name]
        if not known:
            del self.topics[topic]
            self.forget_lists()
        return True

    def put_mappings(self, broker_name: str, infos: Mapping[str, MappingInfo]) -> None:
        """Keep what a broker set says about static topics; what is the same does not come here."""
        if not infos:
            return
        mapped = self.mapped_by.setdefault(broker_name, {})
        self.mapping_count -= len(mapped)
        for topic, info in infos.items():
            self.mappings.setdefault(topic, {})[broker_name] = info
            mapped[topic] = None
        self.mapping_count += len(mapped)
        self._forget_topics(infos)

    def remove_mapping(self, topic: str, broker_name: str) -> None:
        """Forget what a broker set said about a static topic."""
        self.trust_mappings(broker_name, (topic,))
        infos = self.mappings.get(topic, {})
        if infos.pop(broker_name, None) is None:
            return
        self.mapping_count -= 1
        self.forget_topic(topic)
        mapped = self.mapped_by[broker_name]
        del mapped[topic]
        if not mapped:
            del self.mapped_by[broker_name]
        if not infos:
            del self.mappings[topic]

    def doubt_mapping(self, topic: str, broker_name: str) -> bool:
        """The set named the topic without a mapping; tells whether for the first time."""
        doubt = (topic, broker_name)
        if doubt in self.doubts:
            return False
        self.doubts.add(doubt)
        return True

    def trust_mappings(self, broker_name: str, topics: Iterable[str]) -> None:
        """The set named their mappings, or there is none to doubt."""
        if self.doubts:
            self.doubts.difference_update([(topic, broker_name) for topic in topics])

    def delete_topic(self, topic: str, broker_names: Iterable[str]) -> tuple[str, ...]:
        """Take a topic from these sets; returns those that had it."""
        return tuple(name for name in list(broker_names) if self.remove_queues(topic, name))

    def brokers_of(self, topic: str) -> list[str]:
        """Every set that has the topic or a mapping of it."""
        names = {**self.topics.get(topic, {}), **self.mappings.get(topic, {})}
        return list(names)

    def change_perm(self, broker_name: str, *, writable: bool) -> int:
        """Clear the write permission of all topics of a set, or give read and write exactly.

        Returns:
            How many topics the set has.
        """
        topics = self.topics_of.get(broker_name, {})
        # Most topics have the same queues: with a value made for each, 40,000 take 60 ms.
        changed: dict[QueueData, QueueData] = {}
        for topic in topics:
            known = self.topics[topic]
            queues = known[broker_name]
            if queues not in changed:
                perm = PERM_READ | PERM_WRITE if writable else queues.perm & ~PERM_WRITE
                changed[queues] = queues._replace(perm=perm)
            known[broker_name] = changed[queues]
            self.forget_topic(topic)
        return len(topics)

    # -- brokers -----------------------------------------------------------------------------

    def touch(self, key: BrokerAddr, broker_name: str | None, now_ms: int) -> None:
        """A sign of life; a broker that is not listed stays so, and another set's word is none.

        Args:
            broker_name: the set that it comes from; None where nothing says it.
        """
        live = self.live.get(key)
        if live is not None and broker_name in (None, live.broker_name):
            self.live[key] = replace(live, last_update_ms=now_ms)

    def put_live(self, key: BrokerAddr, live: LiveBroker) -> None:
        """List a broker as heard over a connection, which owns it from now on."""
        self._take_live(key)
        self.live[key] = live
        self._by_connection.setdefault(live.connection_id, {})[key] = None

    def drop_live(self, key: BrokerAddr) -> None:
        """Forget that a broker was heard: whom clients of before are led to goes by it too."""
        if key in self.live:
            self._take_live(key)
            self.forget_all()

    def _take_live(self, key: BrokerAddr) -> None:
        live = self.live.pop(key, None)
        if live is not None:
            owned = self._by_connection[live.connection_id]
            del owned[key]
            if not owned:
                del self._by_connection[live.connection_id]

    def remember_ha(self, key: BrokerAddr, ha_address: str, limit: int) -> None:
        """Keep where a broker serves its slaves, also for when it has gone; the oldest go first."""
        self.ha_addresses.pop(key, None)
        if ha_address:
            self.ha_addresses[key] = ha_address
        while len(self.ha_addresses) > limit:
            del self.ha_addresses[next(iter(self.ha_addresses))]

    def owned_by(self, connection_id: int) -> list[BrokerAddr]:
        """The brokers whose newest registration came over a connection."""
        return list(self._by_connection.get(connection_id, {}))

    def names_by_cluster(self) -> list[str]:
        """All broker sets as people look for them: by cluster, then by name."""
        return [
            name for _, name in sorted((one.cluster_name, name) for name, one in self.sets.items())
        ]

    def silent(self, now_ms: int) -> list[BrokerAddr]:
        """The brokers that have been silent for longer than they said."""
        return [
            key
            for key, live in self.live.items()
            if max(live.last_update_ms, self._spared_ms) + live.timeout_ms < now_ms
            and (key, live.broker_name) not in self.speaking
        ]

    def begin_speaking(self, key: BrokerAddr, broker_name: str) -> None:
        """A broker's word has come, and waits to be read."""
        self.speaking[key, broker_name] += 1

    def end_speaking(self, key: BrokerAddr, broker_name: str, now_ms: int) -> None:
        """It has been dealt with, or never will be; the broker was heard up to now."""
        self.speaking[key, broker_name] -= 1
        if not self.speaking[key, broker_name]:
            del self.speaking[key, broker_name]
        self.touch(key, broker_name, now_ms)

    def spare(self, now_ms: int) -> None:
        """Nobody was silent before: whoever was to hear them was away."""
        self._spared_ms = now_ms

    def unregister(
        self, broker_name: str, key: BrokerAddr, reason: str, settings: RouteSettings
    ) -> list[NamesrvEffect]:
        """Take a broker off: its address, and what was there for its sake only."""
        live = self.live.get(key)
        if live is not None and live.broker_name == broker_name:
            self.drop_live(key)
            self.filter_servers.pop(key, None)
        one = self.sets.get(broker_name)
        if one is None:
            return []
        min_id, gone_id = one.min_id, one.id_of(key.address)
        if gone_id is None:
            return []
        self.forget_all()
        one.addrs = {known: addr for known, addr in one.addrs.items() if addr != key.address}
        note = Note(
            "broker_unregistered", "warning" if reason != "request" else "info",
            {"broker": broker_name, "broker_id": gone_id, "address": key.address,
             "reason": reason, "left": len(one.addrs)},
        )  # fmt: skip
        if not one.addrs:
            self._remove_set(broker_name)
            return [note]
        if one.enable_acting_master and MASTER_ID not in one.addrs:
            self.change_perm(broker_name, writable=False)
        if (
            settings.notify_min_broker_id_changed
            and one.enable_acting_master
            and min_id != one.min_id
        ):
            return [note, min_id_notice(one, offline_address=key.address)]
        return [note]

    def _remove_set(self, broker_name: str) -> None:
        del self.sets[broker_name]
        for cluster in list(self.clusters):
            names = self.clusters[cluster]
            names.pop(broker_name, None)
            if not names:
                del self.clusters[cluster]
        mine, mapped = self.topics_of.get(broker_name, {}), self.mapped_by.get(broker_name, {})
        self.remove_all(broker_name, list(mine | mapped))

    # -- kept answers ------------------------------------------------------------------------

    def forget_all(self) -> None:
        """Something changed that any answer may show."""
        self.kept.clear()

    def forget_topic(self, topic: str) -> None:
        """A topic's queues changed."""
        self.kept.forget_topic(topic)

    def _forget_topics(self, topics: Collection[str]) -> None:
        if len(topics) > FORGOTTEN_MAX:
            self.forget_all()
            return
        for topic in topics:
            self.forget_topic(topic)

    def forget_lists(self) -> None:
        """There is a topic more or less."""
        self.kept.forget_topic_lists()


def _take_from(
    table: dict[str, dict[str, ValueT]],
    names_of: dict[str, dict[str, None]],
    broker_name: str,
    gone: Collection[str],
) -> int:
    """Take a set's topics out of a table and out of the set's list; returns how many were there."""
    mine, taken = names_of.get(broker_name, {}), 0
    for topic in gone:
        if topic not in mine:
            continue
        del mine[topic]
        known = table[topic]
        del known[broker_name]
        if not known:
            del table[topic]
        taken += 1
    if taken and not mine:
        del names_of[broker_name]
    return taken


def min_id_notice(
    one: BrokerSet, *, offline_address: str | None = None, ha_address: str | None = None
) -> NotifyMinBrokerId:
    """Tell a set's brokers which id is its smallest now.

    Everybody is told when one went or only one is there; else all but the new smallest itself.
    """
    smallest = min(one.addrs)
    everybody = offline_address is not None or len(one.addrs) == 1
    told = [addr for known, addr in sorted(one.addrs.items()) if everybody or known != smallest]
    fields = ext_fields(
        minBrokerId=smallest,
        minBrokerAddr=one.addrs[smallest],
        offlineBrokerAddr=offline_address,
        haBrokerAddr=ha_address,
    )
    return NotifyMinBrokerId(tuple(told), fields)
