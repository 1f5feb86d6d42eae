"""The brokers that a command goes to: the one of ``-b``, or those of the cluster of ``-c``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import click

from rmqha.admin.spec import (
    broker_address_option,
    cluster_option,
    name_servers_option,
    need_address_or_cluster,
    need_name_servers,
)
from rmqha.base.errors import RmqhaError
from rmqha.client.brokers import Masters, all_addresses
from rmqha.client.brokers import masters as masters_of
from rmqha.client.exchange import Exchange


class Places(NamedTuple):
    """Whom a command goes to, and a failure for each that it should go to and cannot.

    Attributes:
        warnings: name servers that did not answer; one of several is to stop no command.
    """

    addresses: tuple[str, ...]
    failures: tuple[RmqhaError, ...] = ()
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(cls, now: Masters) -> Places:
        """The masters of a cluster."""
        return cls(now.addresses, now.failures, unheard_words(now.unheard))


def unheard_words(unheard: Iterable[object]) -> tuple[str, ...]:
    """What is said of name servers that did not answer while others did."""
    return tuple(f"{one}; broker sets that no other name server lists are passed over"
                 for one in unheard)  # fmt: skip


def place_options() -> list[click.Option]:
    """``-n``, and one broker or one cluster."""
    return [name_servers_option(), broker_address_option(), cluster_option()]


def places(
    name_servers: tuple[str, ...] | None,
    broker_address: str | None,
    cluster_name: str | None,
    *,
    masters: bool,
) -> Exchange[Places]:
    """Find the addresses that a command line names.

    Args:
        masters: of a cluster, the masters only; a broker set that has none now is a failure.

    Raises:
        click.UsageError: neither broker nor cluster, or both.
        NotFound: no such cluster, or all its sets are without a master.
    """
    need_address_or_cluster(broker_address, cluster_name, exclusive=True)
    if broker_address or not cluster_name:
        return Places((broker_address or "",))
    servers = need_name_servers(name_servers)
    if not masters:
        addresses, unheard = yield from all_addresses(servers, cluster_name)
        return Places(addresses, (), unheard_words(unheard))
    return Places.of((yield from masters_of(servers, cluster_name)))
