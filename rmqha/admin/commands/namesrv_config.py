"""getNamesrvConfig and updateNamesrvConfig: the settings of each given name server."""

from __future__ import annotations

import re

import click

from rmqha.admin.commands.get_controller_config import shown_config, text_of
from rmqha.admin.report import Report, Table
from rmqha.admin.spec import CommandSpec, name_servers_option, need_name_servers, text_option
from rmqha.client.exchange import Exchange, ask_each
from rmqha.remoting.codes import RequestCode
from rmqha.runtime.properties import format_properties, parse_properties

_KEY = re.compile(r"[\w.-]+")


def run_get(name_servers: tuple[str, ...] | None) -> Exchange[Report]:
    """Ask every given name server (319); one that is down hides no other.

    Raises:
        click.UsageError: no name server.
    """
    servers = need_name_servers(name_servers)
    done, failures = yield from ask_each(servers, RequestCode.GET_NAMESRV_CONFIG)
    found = {address: parse_properties(text_of(answer.body)) for address, answer in done}
    plain = "".join(shown_config(address, config) for address, config in found.items())
    tables = tuple(
        Table(address, ("Key", "Value"), sorted(config.items()))
        for address, config in found.items()
    )
    return Report(plain, found, tables, tuple(failures))


def run_update(name_servers: tuple[str, ...] | None, key: str, value: str) -> Exchange[Report]:
    """Send every given name server the setting (318); each keeps it for itself.

    Raises:
        click.UsageError: no name server; the key cannot be a setting's name.
    """
    servers, value = need_name_servers(name_servers), value.strip()
    if not _KEY.fullmatch(key):
        # "a=b" would change another setting than the one that was typed.
        raise click.UsageError(f"-k {key!r} is not a setting's name")
    body = format_properties({key: value}).encode()
    done, failures = yield from ask_each(servers, RequestCode.UPDATE_NAMESRV_CONFIG, body)
    updated = [address for address, _ in done]
    # The Java tool claims success for all or for none.
    plain = f"update name server config success![{', '.join(updated)}]\n{key} : {value}\n"
    table = Table("Updated", ("Name server", "Key", "Value"), [(a, key, value) for a in updated])
    data = {"updated": updated, "key": key, "value": value}
    return Report(plain if updated else "", data, (table,) if updated else (), tuple(failures))


def _get_options() -> list[click.Option]:
    return [name_servers_option()]


def _update_options() -> list[click.Option]:
    return [
        name_servers_option(),
        text_option("-k", "--key", "key", required=True, help="The setting's name."),
        click.Option(["-v", "--value", "value"], required=True, help="Its new value."),
    ]


GET = CommandSpec(
    "getNamesrvConfig", "Show the settings of each given name server.", _get_options, run_get
)
UPDATE = CommandSpec(
    "updateNamesrvConfig", "Change a setting of each given name server.", _update_options,
    run_update,
)  # fmt: skip
