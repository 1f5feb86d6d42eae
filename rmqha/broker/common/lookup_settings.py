"""Which lists of servers a broker looks up while it runs, and how often.

Source: BrokerConfig, BrokerController, ReplicasManager, BrokerStartup (the keys of the address server)
and MixAll of RocketMQ 5.3; ``updateControllerAddrPeriod`` is ours, where Java has a fixed two minutes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from rmqha.base.errors import ConfigInvalid
from rmqha.remoting.address import format_address, parse_address, split_addresses

DEFAULTS: dict[str, str] = {
    "fetchControllerAddrByDnsLookup": "false",
    "fetchNameSrvAddrByDnsLookup": "false",
    "fetchNamesrvAddrByAddressServer": "false",
    "fetchNamesrvAddrInterval": "10000",
    "rmqAddressServerDomain": "",
    "rmqAddressServerSubGroup": "nsaddr",
    "updateNameServerAddrPeriod": "120000",
    # our own
    "updateControllerAddrPeriod": "120000",
}
PERIODS = ("fetchNamesrvAddrInterval", "updateControllerAddrPeriod", "updateNameServerAddrPeriod")
PERIOD_MS_LEAST = 1_000
"""A resolver, or an address server, is asked by every broker."""

ADDRESS_SERVER_PORT = 8080
_SUB_GROUP = re.compile(r"[\w.~%/?=&-]+", re.ASCII)


class LookupSettings(Struct, frozen=True):
    """What is looked up; nothing by default.

    Attributes:
        namesrv_by_dns: ``namesrvAddr`` is one name, and each of its addresses is a name server.
        address_server: the URL that tells the name servers; empty for none.
        namesrv_period_ms: between two look-ups of either.
        controllers_by_dns: ``controllerAddr`` is one name likewise.
        controllers_period_ms: between two look-ups of it.
    """

    namesrv_by_dns: bool = False
    address_server: str = ""
    namesrv_period_ms: int = 120_000
    controllers_by_dns: bool = False
    controllers_period_ms: int = 120_000

    @property
    def finds_name_servers(self) -> bool:
        """Whether the name servers are others than those that the file names."""
        return self.namesrv_by_dns or bool(self.address_server)


def load_lookup_settings(values: Mapping[str, str]) -> LookupSettings:
    """Read what is looked up, of values whose kinds were checked.

    As in Java the address server is asked only where ``namesrvAddr`` is empty.

    Raises:
        ConfigInvalid: what cannot be meant: no name or several, or no address server to ask.
    """
    for key in PERIODS:
        if int(values[key]) < PERIOD_MS_LEAST:
            raise ConfigInvalid(f"{key}={values[key]} must be at least {PERIOD_MS_LEAST}")
    by_server, by_dns = asks_address_server(values), name_servers_are_looked_up(values)
    if by_dns:
        check_one_name("namesrvAddr", values["namesrvAddr"], "fetchNameSrvAddrByDnsLookup")
    controllers_by_dns = bool(values["controllerAddr"]) and controllers_are_looked_up(values)
    if controllers_by_dns:
        check_one_name("controllerAddr", values["controllerAddr"], CONTROLLERS_BY_DNS)
    period = "fetchNamesrvAddrInterval" if by_server else "updateNameServerAddrPeriod"
    return LookupSettings(
        by_dns, _address_server(values) if by_server else "", int(values[period]),
        controllers_by_dns, int(values["updateControllerAddrPeriod"]),
    )  # fmt: skip


CONTROLLERS_BY_DNS = "fetchControllerAddrByDnsLookup"


def asks_address_server(values: Mapping[str, str]) -> bool:
    """Whether an address server tells the name servers."""
    by_server = _is_true(values, "fetchNamesrvAddrByAddressServer")
    return by_server and not values.get("namesrvAddr", "").strip()


def name_servers_are_looked_up(values: Mapping[str, str]) -> bool:
    """Whether ``namesrvAddr`` is a name with the name servers' addresses behind it."""
    by_dns = _is_true(values, "fetchNameSrvAddrByDnsLookup")
    return by_dns and not asks_address_server(values)


def controllers_are_looked_up(values: Mapping[str, str]) -> bool:
    """Whether ``controllerAddr`` is a name with the controllers' addresses behind it."""
    return _is_true(values, CONTROLLERS_BY_DNS)


def check_one_name(key: str, text: str, switch: str) -> None:
    """Refuse what is not one ``NAME:PORT``; raises ConfigInvalid."""
    named = split_addresses(text)
    if len(named) != 1:
        raise ConfigInvalid(
            f"{key} names {len(named)}: with {switch}=true it is one NAME:PORT, of which all addresses"
            " are looked up"
        )
    try:
        parse_address(named[0])
    except ConfigInvalid as error:
        raise ConfigInvalid(f"{key}: {error}") from error


def _is_true(values: Mapping[str, str], key: str) -> bool:
    return values.get(key, "").strip().lower() == "true"


def _address_server(values: Mapping[str, str]) -> str:
    domain, group = values["rmqAddressServerDomain"], values["rmqAddressServerSubGroup"]
    if not domain:
        raise ConfigInvalid(
            "fetchNamesrvAddrByAddressServer=true needs namesrvAddr, or in rmqAddressServerDomain the"
            " HOST or HOST:PORT of the address server"
        )
    try:
        host, port = parse_address(domain if ":" in domain else f"{domain}:{ADDRESS_SERVER_PORT}")
    except ConfigInvalid as error:
        raise ConfigInvalid(f"rmqAddressServerDomain: {error}") from error
    if not _SUB_GROUP.fullmatch(group):
        raise ConfigInvalid(f"rmqAddressServerSubGroup={group!r} is no part of a URL")
    return f"http://{format_address(host, port)}/rocketmq/{group}"
