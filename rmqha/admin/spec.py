"""A command's name, options and exchange, and the options that several commands share.

The flags are the Java tool's with their clashes: ``-b`` is a broker name in one command and broker
ids in another, where the name is ``-bn``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import click

from rmqha.admin.exchange import Exchange
from rmqha.admin.report import Report
from rmqha.base.errors import ConfigInvalid
from rmqha.remoting.address import parse_address, split_addresses


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """One mqadmin command.

    Attributes:
        name: as typed.
        summary: one line of help.
        options: makes the command's own options, in order of help.
        run: starts the exchange; its keyword arguments are the options' names.
        repeats: whether ``-i seconds`` runs it again and again.
    """

    name: str
    summary: str
    options: Callable[[], list[click.Option]]
    run: Callable[..., Exchange[Report]]
    repeats: bool = False


def _addresses(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> tuple[str, ...] | None:
    """Split and check ``host:port;host:port``; a malformed one is a usage error."""
    if value is None:
        return None
    addresses = split_addresses(value)
    try:
        for address in addresses:
            parse_address(address)
    except ConfigInvalid as error:
        raise click.BadParameter(str(error), context, parameter) from error
    if not addresses:
        raise click.BadParameter("no address is given", context, parameter)
    return tuple(addresses)


def controllers_option() -> click.Option:
    """``-a``: the controllers to ask, in order."""
    return click.Option(
        ["-a", "--controllerAddress", "controllers"],
        callback=_addresses,
        metavar="HOST:PORT;...",
        required=True,
        help="Controller address, or several with ';'. The leader is found from any of them.",
    )


def name_servers_option() -> click.Option:
    """``-n``: the name servers, by default those of the environment."""
    return click.Option(
        ["-n", "--namesrvAddr", "name_servers"],
        callback=_addresses,
        metavar="HOST:PORT;...",
        envvar="NAMESRV_ADDR",
        help="Name server address, or several with ';' (default: $NAMESRV_ADDR).",
    )


def broker_name_option(flag: str, *, required: bool = False) -> click.Option:
    """The broker set's name, under the flag that this command has for it."""
    return click.Option(
        [flag, "--brokerName", "broker_name"], required=required, help="Broker set's name."
    )


def cluster_option(*, required: bool = False) -> click.Option:
    """``-c``: the cluster's name."""
    return click.Option(
        ["-c", "--clusterName", "cluster_name"], required=required, help="Cluster's name."
    )


def need_name_or_cluster(broker_name: str | None, cluster_name: str | None) -> None:
    """Refuse a command line that names neither.

    Raises:
        click.UsageError: always shown with the command's usage.
    """
    if not broker_name and not cluster_name:
        raise click.UsageError("give a broker set with -b or a cluster with -c")


def need_name_servers(name_servers: tuple[str, ...] | None) -> tuple[str, ...]:
    """The name servers.

    Raises:
        click.UsageError: neither flag nor environment names one.
    """
    if not name_servers:
        raise click.UsageError("give a name server with -n or NAMESRV_ADDR")
    return name_servers
