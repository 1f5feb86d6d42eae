"""cleanBrokerMetadata: make the controllers forget brokers, or a whole broker set."""

from __future__ import annotations

import click

from rmqha.admin.report import Report, Table
from rmqha.admin.spec import CommandSpec, broker_name_option, cluster_option, controllers_option
from rmqha.client.exchange import Exchange, ask_leader
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import ext_fields


def run(
    controllers: tuple[str, ...],
    broker_name: str,
    broker_ids: str | None,
    cluster_name: str | None,
    clean_living: bool,
) -> Exchange[Report]:
    """Ask the leader (1011); without ``clean_living`` it refuses to forget a living broker.

    Raises:
        click.UsageError: no cluster while only dead brokers may be cleaned, or ids that are none.
    """
    if not clean_living and not cluster_name:
        raise click.UsageError("give the cluster with -c, or -l to clean living brokers too")
    ids = [part.strip() for part in broker_ids.split(";") if part.strip()] if broker_ids else []
    if broker_ids is not None and not (ids and all(_is_id(part) for part in ids)):
        # A list that names nobody would clean the whole set.
        raise click.UsageError(f"-b {broker_ids!r} is not a list of broker ids such as 1;2")
    fields = ext_fields(
        clusterName=cluster_name,
        brokerName=broker_name,
        brokerControllerIdsToClean=";".join(ids) or None,
        isCleanLivingBroker=clean_living,
    )
    request = RemotingCommand(RequestCode.CLEAN_BROKER_DATA, ext_fields=fields)
    yield from ask_leader(controllers, request)
    plain = f"clear broker {broker_name} metadata from controller success! \n"
    data = {"brokerName": broker_name, "brokerIds": [int(part) for part in ids] or None}
    rows = [(broker_name, ", ".join(ids) or "all")]
    return Report(plain, data, (Table("Cleaned", ("Broker set", "Broker ids"), rows),))


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _options() -> list[click.Option]:
    return [
        controllers_option(),
        broker_name_option("-bn", required=True),
        click.Option(
            ["-b", "--brokerControllerIdsToClean", "broker_ids"],
            help="Controller ids to forget, such as '1;2'; without it the whole set.",
        ),
        cluster_option(),
        click.Option(
            ["-l", "--cleanLivingBroker", "clean_living"],
            is_flag=True,
            help="Forget brokers that are alive, too.",
        ),
    ]


SPEC = CommandSpec(
    "cleanBrokerMetadata", "Make the controllers forget brokers of a set.", _options, run
)
