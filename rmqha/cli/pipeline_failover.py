"""``bin/pipeline failover-report``."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from rmqha.base.errors import ConfigInvalid
from rmqha.cli.pipeline_exits import LINES_MAX, usage_errors, write_page
from rmqha.pipeline import session
from rmqha.pipeline.jobs.report_page import REPORT

if TYPE_CHECKING:
    from rmqha.pipeline.jobs import failover_report as job


@click.command("failover-report")
@click.argument("logs", nargs=-1, required=True)
@click.option("-o", "--out", required=True, help="Directory of the table.")
@click.option("--history", "histories", multiple=True, help="A client history; several times.")
@click.option(
    "--controller-history",
    "controllers",
    default=None,
    help="Directory that controller-history has written: elections that no log tells of.",
)
@click.option("--master", default=None, help="Spark master; local[*] unless submitted.")
def failover_command(
    logs: tuple[str, ...],
    out: str,
    histories: tuple[str, ...],
    controllers: str | None,
    master: str | None,
) -> None:
    """Stages of every failover, of LOGS (JSON lines of controllers, brokers and name servers).

    A stage that no log tells of is left out.
    """
    from rmqha.pipeline.jobs import controller_history
    from rmqha.pipeline.jobs import failover_report as job
    from rmqha.pipeline.jobs.tables import named_paths
    from rmqha.pipeline.spark.progress import shown, stored_bytes

    with usage_errors():
        job.checked_files(logs, histories)
        entries = None
        if controllers is not None:
            entries = os.path.abspath(os.path.join(controllers, controller_history.ENTRIES))
            if not os.path.isdir(entries):
                raise ConfigInvalid(f"{controllers}: controller-history has not written it")
        spark = session("rmqha failover-report", master=master)
        paths = [path for _, path in named_paths(logs)]
        with shown(spark, "failover-report", stored_bytes([*paths, *histories]), unit=None):
            found = job.run(spark, logs, out, histories=histories, entries=entries)
        _show(found)
        write_page(out, REPORT, job.report(logs, found))


def _show(found: job.Report) -> None:
    for one in found.failovers:
        print(_line(one))
    for source, what in found.left_out:
        print(f"{source}: left out {what}")
    for source, line, why in found.damaged_lines[:LINES_MAX]:
        print(f"{source} line {line}: {why}")
    print(f"{len(found.failovers)} elections, {found.damaged} lines that cannot be read")


def _line(one: job.Failover) -> str:
    from rmqha.pipeline.jobs import failover_report as job

    begin = job.begin_ms(one)
    when = "at an unknown time"
    if begin is not None:
        moment = datetime.fromtimestamp(begin / 1000, UTC)
        when = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    old = "nobody" if one.old_master is None else f"broker {one.old_master}"
    new = "nobody" if one.new_master is None else f"broker {one.new_master}"
    unclean = ", unclean" if one.unclean else ""
    stages = [
        f"{name.removesuffix('Ms')} {at:+d}"
        for name, at in sorted(
            zip(job.STAGES, job.after_ms(one), strict=True), key=lambda pair: pair[1] or 0
        )
        if at is not None
    ]
    return (
        f"{one.broker_set} epoch {one.master_epoch} {when}: {old} -> {new}"
        f" ({one.reason or 'no reason known'}{unclean}): {', '.join(stages) or 'no stage known'}"
    )
