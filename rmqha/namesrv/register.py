"""What a registration changes, and what it is answered.

Refusals are decided before anything changes. The order of the steps is Java's.

Source: RouteInfoManager.registerBroker, RocketMQ namesrv.
"""

from __future__ import annotations

from typing import NamedTuple

from rmqha.base.ids import MASTER_ID
from rmqha.base.machine import Note
from rmqha.namesrv.messages import (
    ElectedMaster,
    NamesrvEffect,
    Registration,
)
from rmqha.namesrv.registration_members import INFOS_MAX, TOPICS_MAX
from rmqha.namesrv.route_table import BrokerAddr, BrokerSet, LiveBroker, RouteTable, min_id_notice
from rmqha.namesrv.settings import RouteSettings
from rmqha.namesrv.static_topics import list_mappings
from rmqha.remoting.topic_names import PERM_WRITE

NOTHING: dict[str, None] = {}


class Registered(NamedTuple):
    """The outcome of a registration.

    Attributes:
        refused: why, for the remark; None when it was taken.
        master: address and HA address for a slave; None when none is known.
    """

    effects: list[NamesrvEffect]
    refused: str | None = None
    master: tuple[str, str] | None = None


def register(
    table: RouteTable,
    settings: RouteSettings,
    now_ms: int,
    connection_id: int,
    broker: Registration,
    elected: ElectedMaster | None,
) -> Registered:
    """List a broker; its topics too if it speaks for its set.

    Args:
        table: what is changed.
        settings: of the name server.
        now_ms: the sign of life.
        connection_id: whose end will be the broker's.
        broker: the request.
        elected: the master by the embedded controller's word; None without it.
    """
    key = BrokerAddr(broker.cluster_name, broker.address)
    refused = _refusal(table, settings, key, broker, elected)
    if refused is None and _belongs_to_another_user(table, connection_id, key, broker):
        refused = f"register broker failed: {broker.address} is registered by another user"
    if refused is not None:
        return Registered(
            [_note("registration_refused", "warning", broker, reason=refused)], refused
        )
    effects = _leave_old_name(table, settings, key, broker)
    one = table.sets.get(broker.broker_name)
    if one is not None and _is_stale(table, one, broker):
        return Registered([*effects, _drop_newcomer(table, one, key, broker)])
    one, first, min_changed = _list_address(table, broker, effects)
    changed = first or _version_changed(table, key, broker)
    _list_topics(table, settings, one, broker, changed=changed)
    _list_live(table, settings, now_ms, connection_id, key, broker)
    if min_changed and settings.notify_min_broker_id_changed:
        effects.append(min_id_notice(one, ha_address=broker.ha_address))
    return Registered(effects, master=_master_for(table, one, broker, elected))


def _refusal(
    table: RouteTable,
    settings: RouteSettings,
    key: BrokerAddr,
    broker: Registration,
    elected: ElectedMaster | None,
) -> str | None:
    """Why a registration is refused; None when it is not. Limits are ours, the first rule Java's."""
    one = table.sets.get(broker.broker_name)
    if _claims_the_route(broker, elected):
        return f"register broker failed: {broker.address} is no replica of {broker.broker_name}"
    if len(broker.topics) == 1 and (one is None or broker.broker_id not in one.addrs):
        # News of one topic must follow a whole registration.
        return "register broker failed"
    if key not in table.live and len(table.live) >= settings.brokers_max:
        return f"register broker failed: {settings.brokers_max} brokers are registered already"
    listed = table.topics_of.get(broker.broker_name, NOTHING)
    new = len(broker.topics.keys() - listed.keys())
    if table.route_count + new > settings.routes_max:
        return f"register broker failed: more than {settings.routes_max} routes"
    if len(listed) + new > TOPICS_MAX:
        return f"register broker failed: more than {TOPICS_MAX} topics of {broker.broker_name}"
    mapped = table.mapped_by.get(broker.broker_name, NOTHING)
    infos = len(broker.mapping_infos.keys() - mapped.keys())
    if table.mapping_count + infos > settings.routes_max:
        return f"register broker failed: more than {settings.routes_max} mapping infos"
    if len(mapped) + infos > INFOS_MAX:
        return (
            f"register broker failed: more than {INFOS_MAX} static topics of {broker.broker_name}"
        )
    return None


def _claims_the_route(broker: Registration, elected: ElectedMaster | None) -> bool:
    """Whether somebody registers as master whom the controllers do not know in this set.

    Which replica reigns they may tell a moment later than the replica itself, by its epoch; but an
    address that is no replica's is a stranger's, whatever epoch it brings.
    """
    is_master = broker.broker_id == MASTER_ID
    return is_master and elected is not None and broker.address not in elected.replicas


def _belongs_to_another_user(
    table: RouteTable, connection_id: int, key: BrokerAddr, broker: Registration
) -> bool:
    """Whether the address is one of a set that its user may not speak for.

    Names are what a user's rights are about, and addresses what brokers leave the table by: a user
    of one set would take the brokers of all others off. Whoever registered them may rename them.
    """
    live = table.live.get(key)
    return (
        live is not None
        and live.broker_name != broker.broker_name
        and live.connection_id != connection_id
        and live.account != broker.account
        and not broker.is_super
    )


def _leave_old_name(
    table: RouteTable, settings: RouteSettings, key: BrokerAddr, broker: Registration
) -> list[NamesrvEffect]:
    """A broker that comes back under another name has left its old set."""
    live = table.live.get(key)
    if live is None or live.broker_name == broker.broker_name:
        return []
    return table.unregister(live.broker_name, key, "renamed", settings)


def _is_stale(table: RouteTable, one: BrokerSet, broker: Registration) -> bool:
    """Whether another address has this id, with a larger epoch."""
    holder = one.addrs.get(broker.broker_id)
    if holder is None or holder == broker.address:
        return False
    live = table.live.get(BrokerAddr(broker.cluster_name, holder))
    return live is not None and live.data_version.state_version > broker.data_version.state_version


def _drop_newcomer(
    table: RouteTable, one: BrokerSet, key: BrokerAddr, broker: Registration
) -> Note:
    """Answered with success and no master, as Java does: the broker asks again by and by."""
    if one.id_of(broker.address) is not None:
        one.addrs = {known: addr for known, addr in one.addrs.items() if addr != broker.address}
        table.forget_all()
    table.drop_live(key)
    table.filter_servers.pop(key, None)
    return _note(
        "registration_stale", "warning", broker, holder=one.addrs[broker.broker_id],
        epoch=broker.data_version.state_version,
    )  # fmt: skip


def _list_address(
    table: RouteTable, broker: Registration, effects: list[NamesrvEffect]
) -> tuple[BrokerSet, bool, bool]:
    """Steps 1 to 4 and 7; tells whether the id is new, and whether it is the new smallest."""
    one = table.sets.get(broker.broker_name)
    if one is None:
        one = table.sets[broker.broker_name] = BrokerSet(broker.cluster_name, broker.broker_name)
    # Kept answers need no word of it: who is new in a cluster is not heard there yet (_list_live).
    table.clusters.setdefault(broker.cluster_name, {})[broker.broker_name] = None
    min_changed = broker.broker_id < (one.min_id or 0)
    acting = broker.enable_acting_master is True
    shown = (one.enable_acting_master, one.zone_name, dict(one.addrs))
    one.enable_acting_master, one.zone_name = acting, broker.zone_name
    before_id, holder = one.id_of(broker.address), one.addrs.get(broker.broker_id)
    one.addrs = {known: addr for known, addr in one.addrs.items() if addr != broker.address}
    one.addrs[broker.broker_id] = broker.address
    if shown != (acting, broker.zone_name, one.addrs):
        table.forget_all()
    if before_id != broker.broker_id or holder != broker.address:
        event = "broker_registered" if before_id is None else "broker_role_changed"
        effects.append(
            _note(event, "info", broker, before_id=before_id, replaced=holder,
                  epoch=broker.data_version.state_version)
        )  # fmt: skip
    return one, holder is None, min_changed


def _version_changed(table: RouteTable, key: BrokerAddr, broker: Registration) -> bool:
    live = table.live.get(key)
    return live is None or live.data_version != broker.data_version


def _list_topics(
    table: RouteTable,
    settings: RouteSettings,
    one: BrokerSet,
    broker: Registration,
    *,
    changed: bool,
) -> None:
    """Steps 8 and 9: only the master speaks for the set, or the slave with the smallest id."""
    is_master = broker.broker_id == MASTER_ID
    is_prime_slave = (
        not is_master and broker.enable_acting_master is not None and broker.broker_id == one.min_id
    )
    if not is_master and not is_prime_slave:
        return
    name = broker.broker_name
    if settings.delete_topic_with_broker_registration and not broker.mapping_infos:
        mine = table.topics_of.get(name, NOTHING)
        table.remove_all(name, [topic for topic in mine if topic not in broker.topics])
    read_only = is_prime_slave and one.enable_acting_master
    known = table.topics_of.get(name, NOTHING)
    if not changed and broker.topics.keys() <= known.keys():
        list_mappings(table, broker, changed=changed)
        return
    news = broker.topics
    if not changed:
        news = {topic: queues for topic, queues in news.items() if topic not in known}
    if read_only:
        # Most topics have the same queues: one value for all of them.
        shown = {
            queues: queues._replace(perm=queues.perm & ~PERM_WRITE) for queues in news.values()
        }
        news = {topic: shown[queues] for topic, queues in news.items()}
    table.put_all(name, news)
    list_mappings(table, broker, changed=changed)


def _list_live(
    table: RouteTable,
    settings: RouteSettings,
    now_ms: int,
    connection_id: int,
    key: BrokerAddr,
    broker: Registration,
) -> None:
    """Note that the broker lives, and what it says of itself."""
    live = LiveBroker(
        broker.broker_name, now_ms, broker.heartbeat_timeout_ms, broker.data_version,
        connection_id, broker.ha_address, broker.serves_old_clients, broker.account,
    )  # fmt: skip
    before_live = table.live.get(key)
    if before_live is None or before_live.serves_old_clients != live.serves_old_clients:
        table.forget_all()
    table.put_live(key, live)
    table.remember_ha(key, broker.ha_address, settings.brokers_max)
    if broker.filter_servers is None:
        return
    before = table.filter_servers.get(key, ())
    if before != broker.filter_servers:
        table.forget_all()
    if broker.filter_servers:
        table.filter_servers[key] = broker.filter_servers
    else:
        table.filter_servers.pop(key, None)


def _master_for(
    table: RouteTable, one: BrokerSet, broker: Registration, elected: ElectedMaster | None
) -> tuple[str, str] | None:
    """Where a slave finds its master.

    An embedded controller knows the master before it has registered here. Its word counts unless
    this slave or a registered master knows a larger epoch (the controller may be behind the others
    of its group), and if it is known where the elected master serves slaves.
    """
    if broker.broker_id == MASTER_ID:
        return None
    if elected is not None and elected.epoch < broker.data_version.state_version:
        elected = None
    address = one.addrs.get(MASTER_ID)
    live = None if address is None else table.live.get(BrokerAddr(broker.cluster_name, address))
    if elected is not None and elected.address != address:
        epoch = -1 if live is None else live.data_version.state_version
        if elected.address == broker.address and elected.epoch > epoch:
            # It has not heard yet that it is the master: the old one is nobody to follow.
            return None
        ha_address = table.ha_addresses.get(BrokerAddr(broker.cluster_name, elected.address))
        if elected.epoch >= epoch and ha_address and elected.address != broker.address:
            return elected.address, ha_address
    if address is None or live is None:
        return None
    return address, live.ha_address


def _note(event: str, level: str, broker: Registration, **facts: object) -> Note:
    return Note(
        event, level,
        {"broker": broker.broker_name, "broker_id": broker.broker_id, "address": broker.address,
         "cluster": broker.cluster_name, **facts},
    )  # fmt: skip
