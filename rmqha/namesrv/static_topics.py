"""Static topics as a name server knows them: which broker set leads which logical queues.

Java keeps the last word of each set, whatever its epoch. Here an older word never replaces a newer one.

Source: RouteInfoManager.registerBroker and TopicQueueMappingInfo of RocketMQ 5.0 to 5.5; the rules of
merging are ours.
"""

from __future__ import annotations

from collections.abc import Mapping

from rmqha.base.ids import MASTER_ID
from rmqha.namesrv.messages import MappingInfo, Registration
from rmqha.namesrv.route_table import RouteTable


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
    for topic, info in broker.mapping_infos.items():
        # Of a broker set that was renamed: others have to speak for the old name.
        if info.broker_name != name:
            continue
        table.trust_mapping(topic, name)
        known = table.mappings.get(topic, {}).get(name)
        if known is None:
            # Java writes queues first and mappings later, under one DataVersion: a registration
            # between the two has used it up.
            if changed or name in table.topics.get(topic, ()):
                table.put_mapping(topic, info)
        elif supersedes(info, known) and (changed or info.epoch > known.epoch):
            table.put_mapping(topic, info)
    # A slave that speaks for its set may have missed the topic's mapping; the master cannot.
    if broker.broker_id == MASTER_ID:
        _drop_remade(table, broker)


def _drop_remade(table: RouteTable, broker: Registration) -> None:
    """Forget the mapping of a topic that is an ordinary one by now.

    Its master lists it without an info, twice with none in between: Java's split registrations
    list the topics first and all infos at the end.
    """
    for topic in sorted(broker.topics.keys() & table.mappings.keys()):
        if topic in broker.mapping_infos or broker.broker_name not in table.mappings[topic]:
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
