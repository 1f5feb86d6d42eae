"""brokerStatus: all figures of a broker, or of every broker of a cluster."""

from __future__ import annotations

from rmqha.admin.bodies import decode_table
from rmqha.admin.places import place_options, places
from rmqha.admin.report import Report, Table
from rmqha.admin.spec import (
    CommandSpec,
)
from rmqha.client.exchange import Exchange, ask_each
from rmqha.remoting.codes import RequestCode


def run(
    name_servers: tuple[str, ...] | None, broker_address: str | None, cluster_name: str | None
) -> Exchange[Report]:
    """Ask one broker, or all of a cluster (28).

    Raises:
        click.UsageError: neither broker nor cluster, or both.
        NotFound: no such cluster.
    """
    found_at = yield from places(name_servers, broker_address, cluster_name, masters=False)
    answers, failures = yield from ask_each(found_at.addresses, RequestCode.GET_BROKER_RUNTIME_INFO)
    found = {
        address: dict(sorted(decode_table(answer.body).items())) for address, answer in answers
    }
    plain = "".join(
        (f"{address:<24} " if cluster_name else "") + f"{name:<32}: {value}\n"
        for address, figures in found.items()
        for name, value in figures.items()
    )
    tables = tuple(
        Table(address, ("Key", "Value"), list(figures.items()))
        for address, figures in found.items()
    )
    return Report(plain, found, tables, tuple(failures), warnings=found_at.warnings)


SPEC = CommandSpec("brokerStatus", "Show all figures of brokers.", place_options, run)
