"""updateControllerConfig: change one setting of each given controller."""

from __future__ import annotations

import re

import click

from rmqha.admin.report import Report, Table
from rmqha.admin.spec import CommandSpec, controllers_option
from rmqha.base.errors import RmqhaError
from rmqha.client.exchange import CONFIG_TIMEOUT_MS, Exchange, Refused, Unreachable, ask
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import RemotingCommand
from rmqha.runtime.properties import format_properties

_KEY = re.compile(r"[\w.-]+")


def run(controllers: tuple[str, ...], key: str, value: str) -> Exchange[Report]:
    """Send every given node (1009) the setting; the change is not replicated between nodes.

    Raises:
        click.UsageError: the key cannot be a setting's name.
    """
    key, value = key.strip(), value.strip()
    if not _KEY.fullmatch(key):
        # "a=b" would change another setting than the one that was typed.
        raise click.UsageError(f"-k {key!r} is not a setting's name")
    body = format_properties({key: value}).encode()
    updated: list[str] = []
    failures: list[RmqhaError] = []
    for address in controllers:
        request = RemotingCommand(RequestCode.UPDATE_CONTROLLER_CONFIG, body=body)
        try:
            yield from ask(address, request, CONFIG_TIMEOUT_MS)
        except (Refused, Unreachable) as error:
            failures.append(error)
            continue
        updated.append(address)
    # The Java tool claims success for all or for none.
    plain = f"update controller config success![{', '.join(updated)}]\n{key} : {value}\n"
    table = Table("Updated", ("Controller", "Key", "Value"), [(a, key, value) for a in updated])
    data = {"updated": updated, "key": key, "value": value}
    return Report(plain if updated else "", data, (table,) if updated else (), tuple(failures))


def _options() -> list[click.Option]:
    return [
        controllers_option(),
        click.Option(["-k", "--key", "key"], required=True, help="The setting's name."),
        click.Option(["-v", "--value", "value"], required=True, help="Its new value."),
    ]


SPEC = CommandSpec(
    "updateControllerConfig", "Change a setting of each given controller.", _options, run
)
