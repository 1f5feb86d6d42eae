"""getControllerConfig: the settings of each given controller."""

from __future__ import annotations

import click

from rmqha.admin.report import Report, Table
from rmqha.admin.spec import CommandSpec, controllers_option
from rmqha.base.errors import RemoteProtocolError, RmqhaError
from rmqha.client.exchange import CONFIG_TIMEOUT_MS, Exchange, Refused, Unreachable, ask
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import RemotingCommand
from rmqha.runtime.properties import parse_properties


def run(controllers: tuple[str, ...]) -> Exchange[Report]:
    """Ask every given node (1010) for its own settings; one that is down hides no other."""
    found: list[tuple[str, dict[str, str]]] = []
    failures: list[RmqhaError] = []
    for address in controllers:
        request = RemotingCommand(RequestCode.GET_CONTROLLER_CONFIG)
        try:
            answer = yield from ask(address, request, CONFIG_TIMEOUT_MS)
        except (Refused, Unreachable) as error:
            failures.append(error)
            continue
        found.append((address, parse_properties(text_of(answer.body))))
    plain = "".join(shown_config(address, config) for address, config in found)
    tables = tuple(
        Table(address, ("Key", "Value"), sorted(config.items())) for address, config in found
    )
    return Report(plain, dict(found), tables, tuple(failures))


def text_of(body: bytes) -> str:
    """The text of a configuration; raises RemoteProtocolError when it is none."""
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(f"configuration is not UTF-8: {error}") from error


def shown_config(address: str, config: dict[str, str]) -> str:
    """The settings of one server as the Java tool lists them."""
    lines = [f"{key:<50}=  {value}\n" for key, value in config.items()]
    return f"============{address}============\n" + "".join(lines)


def _options() -> list[click.Option]:
    return [controllers_option()]


SPEC = CommandSpec(
    "getControllerConfig", "Show the settings of each given controller.", _options, run
)
