"""deleteSubGroup: delete a subscription group, with its retry and dead letter topics."""

from __future__ import annotations

import click

from rmqha.admin.commands import delete_topic
from rmqha.admin.places import place_options, places
from rmqha.admin.report import Report, Table
from rmqha.admin.spec import (
    CommandSpec,
    need_name_servers,
    switch_option,
    text_option,
)
from rmqha.base.errors import RmqhaError
from rmqha.client.exchange import Exchange, ask_each
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.topic_names import DLQ_PREFIX, RETRY_PREFIX


def run(
    name_servers: tuple[str, ...] | None,
    broker_address: str | None,
    cluster_name: str | None,
    group: str,
    remove_offset: bool,
) -> Exchange[Report]:
    """Ask one broker, or every master of a cluster (207); then the group's topics go (215, 216).

    The topics go from a cluster only, and when all masters have deleted the group: one that has it
    still would make them anew.

    Raises:
        click.UsageError: neither broker nor cluster, or both.
        NotFound: no such cluster.
    """
    found = yield from places(name_servers, broker_address, cluster_name, masters=True)
    where = f" in cluster [{cluster_name}]" if cluster_name else ""
    done, failures = yield from ask_each(
        found.addresses,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        groupName=group,
        cleanOffset=remove_offset,
    )
    failures += found.failures
    brokers = [address for address, _ in done]
    plain = "".join(
        f"delete subscription group [{group}] from broker [{address}]{where} success.\n"
        for address in brokers
    )
    topics: list[str] = []
    if cluster_name and not failures:
        servers = need_name_servers(name_servers)
        topics, more = yield from _delete_topics(servers, group, cluster_name)
        failures += more
    data = {"group": group, "brokers": brokers, "topics": topics}
    rows = [(group, "group", address) for address in brokers]
    rows += [(topic, "topic", cluster_name or "") for topic in topics]
    tables = (Table("Deleted", ("Name", "What", "At"), rows),) if rows else ()
    return Report(plain, data, tables, tuple(failures), warnings=found.warnings)


def _delete_topics(
    servers: tuple[str, ...], group: str, cluster_name: str
) -> Exchange[tuple[list[str], list[RmqhaError]]]:
    """Delete what the group had for itself; returns the topics that are gone, and the failures."""
    gone: list[str] = []
    failures: list[RmqhaError] = []
    for topic in (RETRY_PREFIX + group, DLQ_PREFIX + group):
        report = yield from delete_topic.run(servers, topic, cluster_name)
        failures += report.failures
        if not report.failures:
            gone.append(topic)
    return gone, failures


def _options() -> list[click.Option]:
    return [
        *place_options(),
        text_option("-g", "--groupName", "group", required=True, help="Consumer group."),
        switch_option("-r", "--removeOffset", "remove_offset", default=False,
                      help="Forget its offsets, too (default false)."),
    ]  # fmt: skip


SPEC = CommandSpec("deleteSubGroup", "Delete a subscription group.", _options, run)
