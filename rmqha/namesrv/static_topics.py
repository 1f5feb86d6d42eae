"""Static topics as a name server knows them: which broker set leads which logical queues.

And which one serves all of them to clients that know no logical queues: a broker of this project says
of itself that it does.

Java keeps the last word of each set, whatever its epoch. Here an older word never replaces a newer one.

Source: RouteInfoManager.registerBroker and TopicQueueMappingInfo of RocketMQ 5.0 to 5.5; the rules of
merging are ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from hashlib import blake2b

from rmqha.base.ids import MASTER_ID
from rmqha.namesrv.messages import MappingInfo, Registration
from rmqha.namesrv.route_table import BrokerAddr, BrokerSet, RouteTable
from rmqha.remoting.topic_names import PERM_READ, PERM_WRITE
from rmqha.statictopic.mapping import QUEUES_MAX, old_clients_broker_name


def supersedes(new: MappingInfo, old: MappingInfo) -> bool:
    """Whether a set's word replaces its former one.

    A word of the same epoch does: that of a new master, or one that is no longer dirty. A dirty one
    counts only where nothing clean is known of its epoch.
    """
    if new.epoch != old.epoch:
        return new.epoch > old.epoch
    return old.dirty or not new.dirty


def list_mappings(table: RouteTable, broker: Registration, *, changed: bool) -> None:
    """Take what a registration says, or leaves out, about static topics.

    Args:
        changed: the registration has another DataVersion than the one before.
    """
    name = broker.broker_name
    # Of a broker set that was renamed others have to speak for the old name.
    infos = {
        topic: info for topic, info in broker.mapping_infos.items() if info.broker_name == name
    }
    table.trust_mappings(name, infos)
    mapped, listed = table.mapped_by.get(name, ()), table.topics_of.get(name, ())
    news: dict[str, MappingInfo] = {}
    for topic, info in infos.items():
        if topic not in mapped:
            # Java writes queues first and mappings later, under one DataVersion: a registration
            # between the two has used it up.
            if changed or topic in listed:
                news[topic] = info
            continue
        known = table.mappings[topic][name]
        if known != info and supersedes(info, known) and (changed or info.epoch > known.epoch):
            news[topic] = info
    table.put_mappings(name, news)
    # A slave that speaks for its set may have missed the topic's mapping; the master cannot.
    if broker.broker_id == MASTER_ID:
        _drop_remade(table, broker)


def _drop_remade(table: RouteTable, broker: Registration) -> None:
    """Forget the mapping of a topic that is an ordinary one by now.

    Its master lists it without an info, twice with none in between: Java's split registrations
    list the topics first and all infos at the end.
    """
    for topic in list(table.mapped_by.get(broker.broker_name, ())):
        if topic in broker.mapping_infos or topic not in broker.topics:
            continue
        if not table.doubt_mapping(topic, broker.broker_name):
            table.remove_mapping(topic, broker.broker_name)


def leaders(infos: Mapping[str, MappingInfo]) -> dict[int, tuple[str, int]]:
    """Set and physical queue of each logical queue, as clients work it out; unknown ones miss.

    The newest epoch that claims a queue counts. Of two equal ones, the later name: there should be
    none.
    """
    found: dict[int, tuple[str, int]] = {}
    for info in sorted(infos.values(), key=lambda one: (one.epoch, one.broker_name)):
        for logical, physical in info.curr_id_map:
            found[logical] = (info.broker_name, physical)
    return found


def front_of(table: RouteTable, topic: str) -> BrokerSet | None:
    """The broker set that serves a static topic to clients that know none; None without one.

    Any set of the topic that knows how will do. One with a master is best, then one that nobody has
    closed, then the one that leads most queues, so that least has to be passed on. The clients' name
    for it stays the same when it is another one.
    """
    infos = table.mappings.get(topic, {})
    led = Counter(name for name, _ in leaders(infos).values())
    best: tuple[tuple[bool, bool, int, bytes], BrokerSet] | None = None
    for name in sorted(infos):
        one, queues = table.sets.get(name), table.topics.get(topic, {}).get(name)
        if one is None or queues is None or not _serves(table, one):
            continue
        is_open = queues.perm & (PERM_READ | PERM_WRITE) == PERM_READ | PERM_WRITE
        # Topics whose queues lie alike are spread over the sets.
        turn = blake2b(f"{topic} {name}".encode(), digest_size=8).digest()
        rank = (MASTER_ID in one.addrs, is_open, led[name], turn)
        if best is None or rank > best[0]:
            best = rank, one
    return None if best is None else best[1]


def perm_for_old_clients(table: RouteTable, topic: str) -> int:
    """What a client may that takes all logical queues for those of one broker set.

    Whatever one of the leaders allows: the others pass on, or refuse, what comes for their queues.
    So where all of them are closed nothing can be written, as for clients that know logical queues.
    """
    listed = table.topics[topic]
    names = {name for name, _ in leaders(table.mappings[topic]).values() if name in listed}
    found = 0 if names else PERM_READ | PERM_WRITE
    for name in names:
        found |= listed[name].perm & (PERM_READ | PERM_WRITE)
    return found


def _serves(table: RouteTable, one: BrokerSet) -> bool:
    """Whether a set's master serves old clients; without one, all that are left."""
    ids = [MASTER_ID] if MASTER_ID in one.addrs else sorted(one.addrs)
    found = [table.live.get(BrokerAddr(one.cluster_name, one.addrs[number])) for number in ids]
    return all(live is not None and live.serves_old_clients for live in found)


def shown_to_old_clients(table: RouteTable, topic: str) -> tuple[str, int, BrokerSet] | None:
    """Name of no set, number of queues and serving set of a static topic; None if it is refused."""
    front = front_of(table, topic)
    if front is None:
        return None
    newest = max(table.mappings[topic].values(), key=lambda one: (one.epoch, one.broker_name))
    if not 0 < newest.total_queues <= QUEUES_MAX:
        return None
    return old_clients_broker_name(newest.scope, topic), newest.total_queues, front
