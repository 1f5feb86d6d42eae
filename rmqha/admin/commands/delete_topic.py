"""deleteTopic: delete a topic at a cluster's masters and at the name servers."""

from __future__ import annotations

import click

from rmqha.admin.places import Places
from rmqha.admin.report import Report, Table
from rmqha.admin.spec import (
    CommandSpec,
    cluster_option,
    name_servers_option,
    need_name_servers,
    topic_option,
)
from rmqha.client.brokers import masters
from rmqha.client.exchange import Exchange, ask_each
from rmqha.remoting.codes import RequestCode


def run(name_servers: tuple[str, ...] | None, topic: str, cluster_name: str) -> Exchange[Report]:
    """Ask every master (215), and when all have done it every name server (216).

    Raises:
        click.UsageError: no name server.
        NotFound: no such cluster.
    """
    servers = need_name_servers(name_servers)
    found = Places.of((yield from masters(servers, cluster_name)))
    code = RequestCode.DELETE_TOPIC_IN_BROKER
    done, failures = yield from ask_each(found.addresses, code, topic=topic)
    failures += found.failures
    brokers, forgotten, plain = [address for address, _ in done], [], ""
    # A name server that has forgotten it would be told again by a broker that still has it.
    if not failures:
        plain = f"delete topic [{topic}] from cluster [{cluster_name}] success.\n"
        told, failures = yield from ask_each(
            servers, RequestCode.DELETE_TOPIC_IN_NAMESRV, topic=topic, clusterName=cluster_name
        )
        forgotten = [address for address, _ in told]
        if not failures:
            plain += f"delete topic [{topic}] from NameServer success.\n"
    data = {"topic": topic, "brokers": brokers, "nameServers": forgotten}
    rows = [(topic, "broker", address) for address in brokers]
    rows += [(topic, "name server", address) for address in forgotten]
    tables = (Table("Deleted", ("Topic", "At", "Address"), rows),) if rows else ()
    return Report(plain, data, tables, tuple(failures), warnings=found.warnings)


def _options() -> list[click.Option]:
    return [name_servers_option(), topic_option(), cluster_option(required=True)]


SPEC = CommandSpec("deleteTopic", "Delete a topic from a cluster.", _options, run)
