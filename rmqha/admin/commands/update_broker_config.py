"""updateBrokerConfig: change one setting of a broker, or of a cluster's brokers."""

from __future__ import annotations

import re

import click

from rmqha.admin.places import places
from rmqha.admin.report import Report, Table
from rmqha.admin.spec import (
    CommandSpec,
    broker_address_option,
    cluster_option,
    name_servers_option,
    switch_option,
    text_option,
)
from rmqha.client.exchange import Exchange, ask_each
from rmqha.remoting.codes import RequestCode
from rmqha.runtime.properties import format_properties

_COLUMNS = ("Broker", "Key", "Value", "Remark")
_KEY = re.compile(r"[\w.-]+")


def run(
    name_servers: tuple[str, ...] | None,
    broker_address: str | None,
    cluster_name: str | None,
    update_all: bool,
    key: str,
    value: str,
) -> Exchange[Report]:
    """Ask one broker, or a cluster's masters, or with ``update_all`` its slaves too (25).

    Our brokers say where the value was this one already; Java's say nothing.

    Raises:
        click.UsageError: neither broker nor cluster, or both; the key cannot be a setting's name.
        NotFound: no such cluster.
    """
    if not _KEY.fullmatch(key):
        # "a=b" would change another setting than the one that was typed.
        raise click.UsageError(f"-k {key!r} is not a setting's name")
    found = yield from places(name_servers, broker_address, cluster_name, masters=not update_all)
    body = format_properties({key: value.strip()}).encode()
    done, failures = yield from ask_each(found.addresses, RequestCode.UPDATE_BROKER_CONFIG, body)
    updated = [address for address, answer in done if not answer.remark]
    kept = [(address, key, value, answer.remark) for address, answer in done if answer.remark]
    plain = "".join(f"update broker config success, {address}\n" for address, _ in done)
    tables = (
        Table("Updated", _COLUMNS[:3], [(one, key, value) for one in updated]),
        Table("Not changed", _COLUMNS, kept),
    )
    data = {
        "updated": updated, "unchanged": [row[0] for row in kept],
        "key": key, "value": value.strip(),
    }  # fmt: skip
    shown = tuple(table for table in tables if table.rows)
    failed = (*failures, *found.failures)
    return Report(plain, data, shown, failed, warnings=found.warnings)


def _options() -> list[click.Option]:
    return [
        name_servers_option(),
        broker_address_option(),
        cluster_option(),
        switch_option("-a", "--updateAllBroker", "update_all", default=False,
                      help="The cluster's slaves, too."),
        text_option("-k", "--key", "key", required=True, help="The setting's name."),
        click.Option(["-v", "--value", "value"], required=True, help="Its new value."),
    ]  # fmt: skip


SPEC = CommandSpec("updateBrokerConfig", "Change a setting of brokers.", _options, run)
