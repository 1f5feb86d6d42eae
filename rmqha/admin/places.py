"""The brokers that a command goes to: the one of ``-b``, or those of the cluster of ``-c``."""

from __future__ import annotations

import click

from rmqha.admin.spec import (
    broker_address_option,
    cluster_option,
    name_servers_option,
    need_address_or_cluster,
    need_name_servers,
)
from rmqha.client.brokers import all_addresses, master_addresses
from rmqha.client.exchange import Exchange


def place_options() -> list[click.Option]:
    """``-n``, and one broker or one cluster."""
    return [name_servers_option(), broker_address_option(), cluster_option()]


def places(
    name_servers: tuple[str, ...] | None,
    broker_address: str | None,
    cluster_name: str | None,
    *,
    masters: bool,
) -> Exchange[tuple[str, ...]]:
    """Find the addresses that a command line names.

    Args:
        masters: of a cluster, the masters only.

    Raises:
        click.UsageError: neither broker nor cluster, or both.
        NotFound: no such cluster.
    """
    need_address_or_cluster(broker_address, cluster_name, exclusive=True)
    if broker_address or not cluster_name:
        return (broker_address or "",)
    find = master_addresses if masters else all_addresses
    return (yield from find(need_name_servers(name_servers), cluster_name))
