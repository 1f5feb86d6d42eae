"""getSyncStateSet: who is in sync, by broker set."""

from __future__ import annotations

import click

from rmqha.admin.replicas_info import replicas_infos
from rmqha.admin.report import Report, Table
from rmqha.admin.spec import (
    CommandSpec,
    broker_name_option,
    cluster_option,
    controllers_option,
    name_servers_option,
    need_name_or_cluster,
    need_name_servers,
)
from rmqha.client.brokers import cluster_info, names_in_cluster
from rmqha.client.exchange import Exchange, NotFound
from rmqha.remoting.bodies import ReplicaIdentity, ReplicasInfo

_COLUMNS = (
    "Broker set", "Broker id", "Address", "Role", "In sync", "Alive", "Master epoch", "Set epoch",
)  # fmt: skip


def run(
    controllers: tuple[str, ...],
    broker_name: str | None,
    cluster_name: str | None,
    name_servers: tuple[str, ...] | None,
) -> Exchange[Report]:
    """Ask the leader (1006) for one broker set, or for all of a cluster by the name server's list.

    Raises:
        click.UsageError: neither a set nor a cluster, or a cluster without a name server.
        NotFound: the controllers do not know the broker set.
    """
    need_name_or_cluster(broker_name, cluster_name)
    names: tuple[str, ...]
    if broker_name:
        names = (broker_name,)
    else:
        cluster = yield from cluster_info(need_name_servers(name_servers))
        names = names_in_cluster(cluster, cluster_name or "")
    leader, table = yield from replicas_infos(controllers, names)
    if broker_name and broker_name not in table:
        raise NotFound(f"{leader}: broker set {broker_name} is not known to the controllers")
    found = sorted(table.items())
    plain = "".join(_plain(name, info) for name, info in found)
    data = [{"brokerName": name, **info.members()} for name, info in found]
    rows = [row for name, info in found for row in _rows(name, info)]
    return Report(plain, data, (Table("Sync state sets", _COLUMNS, rows),))


def _plain(name: str, info: ReplicasInfo) -> str:
    master_id = "null" if info.master_broker_id is None else str(info.master_broker_id)
    lines = [
        f"\n#brokerName\t{name}\n#MasterBrokerId\t{master_id}"
        f"\n#MasterAddr\t{info.master_address or 'null'}\n#MasterEpoch\t{info.master_epoch}"
        f"\n#SyncStateSetEpoch\t{info.sync_state_set_epoch}"
        f"\n#SyncStateSetNums\t{len(info.in_sync_replicas)}\n"
    ]
    lines += [f"\nInSyncReplica:\t{_identity(replica)}\n" for replica in info.in_sync_replicas]
    lines += [
        f"\nNotInSyncReplica:\t{_identity(replica)}\n" for replica in info.not_in_sync_replicas
    ]
    return "".join(lines)


def _identity(replica: ReplicaIdentity) -> str:
    return (
        f"ReplicaIdentity{{brokerName='{replica.broker_name}', brokerId={replica.broker_id}, "
        f"brokerAddress='{replica.broker_address}', alive={'true' if replica.alive else 'false'}}}"
    )


def _rows(name: str, info: ReplicasInfo) -> list[tuple[object, ...]]:
    replicas = [(replica, True) for replica in info.in_sync_replicas]
    replicas += [(replica, False) for replica in info.not_in_sync_replicas]
    epochs = (info.master_epoch, info.sync_state_set_epoch)
    if not replicas:
        return [(name, None, None, None, None, None, *epochs)]
    return [
        (
            name,
            replica.broker_id,
            replica.broker_address,
            "master" if replica.broker_id == info.master_broker_id else "slave",
            in_sync,
            replica.alive,
            *epochs,
        )
        for replica, in_sync in replicas
    ]


def _options() -> list[click.Option]:
    return [
        controllers_option(), broker_name_option("-b"), cluster_option(), name_servers_option(),
    ]  # fmt: skip


SPEC = CommandSpec(
    "getSyncStateSet", "Show who is in sync in a broker set.", _options, run, repeats=True
)
