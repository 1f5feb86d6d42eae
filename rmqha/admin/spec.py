"""A command's name, options and exchange, and the options that several commands share.

The flags are the Java tool's with their clashes: ``-b`` is a broker name in one command and broker
ids in another, where the name is ``-bn``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

import click
from msgspec import Struct

from rmqha.admin.report import Report
from rmqha.base.errors import ConfigInvalid
from rmqha.client.exchange import Exchange, NotFound
from rmqha.remoting.address import parse_address, split_addresses
from rmqha.remoting.headers import INT64_MAX


def _no_folder(path: str) -> Mapping[str, bytes]:
    raise NotFound(f"{path}: no folder can be read here")


class Here(Struct, frozen=True):
    """What a command cannot know by itself.

    Attributes:
        now_ms: milliseconds since 1970 when the command began.
        number: 64 random bits.
        folder: where files go that are for this time only.
        read_folder: a folder's files by name, while nobody else may use it as a store.
    """

    now_ms: int
    number: int
    folder: str = "/tmp"
    read_folder: Callable[[str], Mapping[str, bytes]] = _no_folder


class CommandSpec(Struct, frozen=True):
    """One mqadmin command.

    Attributes:
        name: as typed.
        summary: one line of help.
        options: makes the command's own options, in order of help.
        run: starts the exchange; its keyword arguments are the options' names.
        repeats: whether ``-i seconds`` runs it again and again.
        needs_here: whether ``run`` takes a :class:`Here` as ``here``.
    """

    name: str
    summary: str
    options: Callable[[], list[click.Option]]
    run: Callable[..., Exchange[Report]]
    repeats: bool = False
    needs_here: bool = False


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


def addresses_option(*names: str, help: str) -> click.Option:  # noqa: A002
    """An option with one address, or several with ';'; its value is a tuple of them, or None."""
    return click.Option(list(names), callback=_addresses, metavar="HOST:PORT;...", help=help)


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


def _stripped(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Blanks around a value mean nothing, and nothing but blanks is a usage error."""
    if value is None:
        return None
    text = value.strip()
    if not text:
        raise click.BadParameter("is empty", context, parameter)
    return text


def text_option(*names: str, required: bool = False, help: str) -> click.Option:  # noqa: A002
    """An option with a text; blanks around it are dropped, as the Java tool does."""
    return click.Option(list(names), required=required, callback=_stripped, help=help)


def number_option(
    *names: str,
    low: int = 0,
    high: int = INT64_MAX,
    default: int | None = None,
    required: bool = False,
    help: str,  # noqa: A002
) -> click.Option:
    """An option with a whole number."""
    # To click 8.3 a default that is given is a value, None too: nothing would be required then.
    given: dict[str, Any] = {} if default is None else {"default": default}
    return click.Option(
        list(names), type=click.IntRange(low, high), required=required, help=help, **given
    )


def switch_option(
    *names: str,
    default: bool | None = None,
    help: str,  # noqa: A002
) -> click.Option:
    """An option that takes ``true`` or ``false``; the Java tool reads a typing error as false."""
    return click.Option(
        list(names),
        type=click.Choice(["true", "false"], case_sensitive=False),
        callback=lambda _context, _parameter, value: None if value is None else value == "true",
        default=None if default is None else str(default).lower(),
        help=help,
    )


def file_option(*names: str, help: str) -> click.Option:  # noqa: A002
    """An option with the name of a file; its value is what stands in it."""
    return click.Option(
        list(names),
        type=click.File("rb"),
        callback=_content,
        help=help,
    )


def _content(
    context: click.Context, parameter: click.Parameter, file: BinaryIO | None
) -> bytes | None:
    if file is None:
        return None
    with file:
        return file.read()


def names_option(*names: str, help: str) -> click.Option:  # noqa: A002
    """An option with names, several with ','; the value is a tuple of them."""
    return click.Option(
        list(names),
        callback=lambda _context, _parameter, value: tuple(
            name.strip() for name in (value or "").split(",") if name.strip()
        ),
        metavar="NAME,...",
        help=help,
    )


def topic_option(*, required: bool = True) -> click.Option:
    """``-t``: the topic."""
    return text_option("-t", "--topic", "topic", required=required, help="Topic.")


def broker_address_option(name: str = "--brokerAddr", *, required: bool = False) -> click.Option:
    """``-b``: one broker's address."""
    return click.Option(
        ["-b", name, "broker_address"],
        callback=_address,
        metavar="HOST:PORT",
        required=required,
        help="Broker's address.",
    )


def _address(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    addresses = _addresses(context, parameter, value)
    if addresses is not None and len(addresses) > 1:
        raise click.BadParameter("give one address", context, parameter)
    return addresses[0] if addresses else None


def need_address_or_cluster(
    broker_address: str | None, cluster_name: str | None, *, exclusive: bool = False
) -> None:
    """Refuse a command line that names no broker.

    Raises:
        click.UsageError: neither; or both where only one can be meant.
    """
    if not broker_address and not cluster_name:
        raise click.UsageError("give a broker with -b or a cluster with -c")
    if exclusive and broker_address and cluster_name:
        raise click.UsageError("-b and -c exclude each other")


def parent_option() -> click.Option:
    """``-c``: a cluster, by whose name the route is looked up where the topic has none."""
    return text_option(
        "-c", "--cluster", "cluster_name", help="Cluster, or the parent topic of a light topic."
    )
