"""getBrokerConfig: the settings of a broker, or of every broker of a cluster."""

from __future__ import annotations

import click

from rmqha.admin.commands.get_controller_config import text_of
from rmqha.admin.report import Report, Table
from rmqha.admin.spec import (
    CommandSpec,
    broker_address_option,
    cluster_option,
    name_servers_option,
    need_address_or_cluster,
    need_name_servers,
)
from rmqha.base.errors import RmqhaError
from rmqha.base.ids import MASTER_ID
from rmqha.client.brokers import cluster_info, groups_in_cluster
from rmqha.client.exchange import CONFIG_TIMEOUT_MS, Exchange, Refused, Unreachable, ask
from rmqha.remoting.bodies import ClusterInfo
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import RemotingCommand
from rmqha.runtime.properties import parse_properties

_NO_MASTER = "NO_MASTER"


def run(
    name_servers: tuple[str, ...] | None, broker_address: str | None, cluster_name: str | None
) -> Exchange[Report]:
    """Ask one broker, or all of a cluster (26); one that is down hides no other.

    Raises:
        click.UsageError: neither broker nor cluster.
        NotFound: no such cluster.
    """
    need_address_or_cluster(broker_address, cluster_name)
    asked: list[tuple[str, str | None]] = [(broker_address or "", broker_address)]
    if not broker_address:
        cluster = yield from cluster_info(need_name_servers(name_servers))
        asked = _headed(cluster, cluster_name or "")
    plain, found = "", {}
    failures: list[RmqhaError] = []
    for head, address in asked:
        heading = f"============{head}============\n"
        if address is None:
            plain += heading
            continue
        try:
            request = RemotingCommand(RequestCode.GET_BROKER_CONFIG)
            answer = yield from ask(address, request, CONFIG_TIMEOUT_MS)
        except (Refused, Unreachable) as error:
            failures.append(error)
            continue
        found[address] = parse_properties(text_of(answer.body))
        lines = [f"{key:<50}=  {value}\n" for key, value in found[address].items()]
        plain += heading + "".join(lines) + "\n"
    tables = tuple(
        Table(address, ("Key", "Value"), sorted(config.items()))
        for address, config in found.items()
    )
    return Report(plain, found, tables, tuple(failures))


def _headed(cluster: ClusterInfo, cluster_name: str) -> list[tuple[str, str | None]]:
    """Headings and addresses: each set's master, then its slaves; no address where no master is."""
    asked: list[tuple[str, str | None]] = []
    for group in groups_in_cluster(cluster, cluster_name):
        master = group.broker_addrs.get(MASTER_ID)
        asked.append((f"Master: {master or _NO_MASTER}", master))
        asked += [
            (f"My Master: {master or _NO_MASTER}=====Slave: {address}", address)
            for broker_id, address in group.broker_addrs.items()
            if broker_id != MASTER_ID
        ]
    return asked


def _options() -> list[click.Option]:
    return [name_servers_option(), broker_address_option(), cluster_option()]


SPEC = CommandSpec("getBrokerConfig", "Show the settings of brokers.", _options, run)
