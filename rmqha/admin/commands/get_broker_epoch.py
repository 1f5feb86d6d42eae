"""getBrokerEpoch: each broker's own record of masterships."""

from __future__ import annotations

import click

from rmqha.admin.report import Report, Table
from rmqha.admin.spec import (
    CommandSpec,
    broker_name_option,
    cluster_option,
    name_servers_option,
    need_name_or_cluster,
    need_name_servers,
)
from rmqha.base.errors import RmqhaError
from rmqha.client.brokers import cluster_info, names_in_cluster
from rmqha.client.exchange import Exchange, NotFound, Refused, Unreachable, ask
from rmqha.remoting.bodies import ClusterInfo, EpochEntry, EpochEntryCache
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import INT64_MAX

_COLUMNS = ("Broker set", "Broker id", "Address", "Epoch", "Start offset", "End offset")


def run(
    broker_name: str | None, cluster_name: str | None, name_servers: tuple[str, ...] | None
) -> Exchange[Report]:
    """Ask every broker of a set or a cluster (1007); one that is down does not hide the others.

    Raises:
        click.UsageError: neither a set nor a cluster, or no name server.
        NotFound: the name server knows no such set or cluster.
    """
    need_name_or_cluster(broker_name, cluster_name)
    cluster = yield from cluster_info(need_name_servers(name_servers))
    found: list[tuple[str, EpochEntryCache]] = []
    failures: list[RmqhaError] = []
    for address in _addresses(cluster, broker_name, cluster_name):
        try:
            answer = yield from ask(address, RemotingCommand(RequestCode.GET_BROKER_EPOCH_CACHE))
        except (Refused, Unreachable) as error:
            failures.append(error)
            continue
        found.append((address, EpochEntryCache.decode(answer.body)))
    plain = "".join(_plain(address, cache) for address, cache in found)
    data = [_data(address, cache) for address, cache in found]
    rows = [
        (cache.broker_name, cache.broker_id, address, *_span(cache, entry))
        for address, cache in found
        for entry in cache.epoch_list
    ]
    return Report(plain, data, (Table("Broker epochs", _COLUMNS, rows),), tuple(failures))


def _addresses(
    cluster: ClusterInfo, broker_name: str | None, cluster_name: str | None
) -> list[str]:
    names = (broker_name,) if broker_name else names_in_cluster(cluster, cluster_name or "")
    addresses: list[str] = []
    for name in names:
        group = cluster.broker_addr_table.get(name)
        if group is None:
            raise NotFound(f"broker set {name} is not known to the name server")
        addresses += group.broker_addrs.values()
    return addresses


def _span(cache: EpochEntryCache, entry: EpochEntry) -> tuple[int, int, int]:
    """The running epoch has Java's greatest long for its end; its true end is the log's."""
    end = cache.max_offset if entry.end_offset == INT64_MAX else entry.end_offset
    return entry.epoch, entry.start_offset, end


def _plain(address: str, cache: EpochEntryCache) -> str:
    head = (
        f"\n#clusterName\t{cache.cluster_name}\n#brokerName\t{cache.broker_name}"
        f"\n#brokerAddr\t{address}\n#brokerId\t{cache.broker_id}"
    )
    lines = [
        f"\n#Epoch: EpochEntry{{epoch={epoch}, startOffset={start}, endOffset={end}}}"
        for epoch, start, end in (_span(cache, entry) for entry in cache.epoch_list)
    ]
    return head + "".join(lines) + "\n"


def _data(address: str, cache: EpochEntryCache) -> dict[str, object]:
    spans = [_span(cache, entry) for entry in cache.epoch_list]
    return {
        "clusterName": cache.cluster_name,
        "brokerName": cache.broker_name,
        "brokerAddr": address,
        "brokerId": cache.broker_id,
        "maxOffset": cache.max_offset,
        "epochs": [
            {"epoch": epoch, "startOffset": start, "endOffset": end} for epoch, start, end in spans
        ],
    }


def _options() -> list[click.Option]:
    return [broker_name_option("-b"), cluster_option(), name_servers_option()]


SPEC = CommandSpec(
    "getBrokerEpoch", "Show the masterships that brokers have recorded.", _options, run,
    repeats=True,
)  # fmt: skip
