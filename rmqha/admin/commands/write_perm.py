"""wipeWritePerm and addWritePerm: have name servers route no writes to a broker set, and again."""

from __future__ import annotations

from functools import partial

import click

from rmqha.admin.report import Report, Table
from rmqha.admin.spec import CommandSpec, name_servers_option, need_name_servers, text_option
from rmqha.client.exchange import Exchange, NotFound, ask_each
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.headers import int_field


def run(
    code: RequestCode, verb: str, count_field: str,
    *, name_servers: tuple[str, ...] | None, broker_name: str,
) -> Exchange[Report]:  # fmt: skip
    """Ask every given name server (205 or 327); it forgets with the broker's next change.

    One that routes no topic to the set has done nothing, which Java's tool calls OK.

    Raises:
        click.UsageError: no name server.
    """
    servers = need_name_servers(name_servers)
    done, failures = yield from ask_each(servers, code, brokerName=broker_name)
    counts = {address: int_field(answer.ext_fields, count_field, 0) for address, answer in done}
    failures += [
        NotFound(f"{address}: no topic is routed to a broker set {broker_name}")
        for address, count in counts.items()
        if count == 0
    ]
    lines = [
        f"{verb} write perm of broker[{broker_name}] in name server[{address}] "
        + (f"OK, {counts[address]}\n" if address in counts else "Failed\n")
        for address in servers
    ]
    rows = [(address, broker_name, count) for address, count in counts.items() if count]
    table = Table("Done", ("Name server", "Broker set", "Topics"), rows)
    data = {"brokerName": broker_name, "topicCounts": counts}
    return Report("".join(lines), data, (table,) if rows else (), tuple(failures))


def _options() -> list[click.Option]:
    return [
        name_servers_option(),
        text_option("-b", "--brokerName", "broker_name", required=True, help="Broker set's name."),
    ]


WIPE_SPEC = CommandSpec(
    "wipeWritePerm", "Have name servers route no writes to a broker set.", _options,
    partial(run, RequestCode.WIPE_WRITE_PERM_OF_BROKER, "wipe", "wipeTopicCount"),
)  # fmt: skip
ADD_SPEC = CommandSpec(
    "addWritePerm", "Have name servers route writes to a broker set again.", _options,
    partial(run, RequestCode.ADD_WRITE_PERM_OF_BROKER, "add", "addTopicCount"),
)  # fmt: skip
