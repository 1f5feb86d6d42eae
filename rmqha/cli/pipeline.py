"""Spark jobs over stores: ``bin/pipeline JOB``, or the same module given to ``spark-submit``.

Exit codes: 0 done, 1 done and something was found that must not be (a difference, a loss, damage
with ``--strict``), 2 wrong usage, no Java, a path that is not what it should be.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from rmqha.cli.output import run_command
from rmqha.cli.pipeline_audit import audit_command
from rmqha.cli.pipeline_controller import history_command
from rmqha.cli.pipeline_exits import EXIT_FOUND, EXIT_USAGE, usage_errors, write_page
from rmqha.cli.pipeline_failover import failover_command
from rmqha.cli.pipeline_history import history_check_command
from rmqha.cli.pipeline_lag import lag_command
from rmqha.cli.pipeline_package import java_home_command, package_command
from rmqha.cli.version import version_option
from rmqha.pipeline import session

if TYPE_CHECKING:
    from rmqha.pipeline.jobs.export import Exported


class Jobs(click.Group):
    """A group whose commands import their libraries when they run; help needs none of them."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a job.

        Raises:
            click.UsageError: a library that it needs is not installed.
        """
        try:
            with usage_errors():
                return super().invoke(ctx)
        except ModuleNotFoundError as missing:
            if missing.name is None or missing.name.partition(".")[0] == "rmqha":
                raise
            raise click.UsageError(
                f"{missing.name} is not installed; rmqha with its extra spark brings it"
            ) from missing


@click.group(cls=Jobs, context_settings={"help_option_names": ["-h", "--help"]})
@version_option("rmqha pipeline")
def main() -> None:
    """Spark jobs over RocketMQ stores."""


for command in (
    audit_command, history_command, lag_command, history_check_command, failover_command, package_command,
    java_home_command,
):  # fmt: skip
    main.add_command(command)


@main.command("export")
@click.argument("stores", nargs=-1, required=True)
@click.option("-o", "--out", required=True, help="The lake's directory.")
@click.option(
    "-t", "--topic", "topics", multiple=True, help="Only these topics, with commas; several times."
)
@click.option("--bodies/--no-bodies", default=True, show_default=True)
@click.option(
    "--up-to", default=None, metavar="end|confirmed|OFFSET",
    help="Where logs end; of a running store by default what its set has confirmed.",
)  # fmt: skip
@click.option("--strict", is_flag=True, help="Exit with 1 when a damaged range was found.")
@click.option("--master", default=None, help="Spark master; local[*] unless submitted.")
def export_command(
    stores: tuple[str, ...],
    out: str,
    topics: tuple[str, ...],
    *,
    up_to: str | None,
    bodies: bool,
    strict: bool,
    master: str | None,
) -> None:
    """Commit logs of STORES to Parquet by topic and day.

    Each is a directory, of a broker set of its own. One without an identity file (its broker has no
    controller) is given as set=directory, or cluster/set=directory. What a run reads replaces what
    the lake had of it; everything else stays.
    """
    from rmqha.pipeline.jobs import export
    from rmqha.pipeline.spark.progress import log_bytes, shown

    opened, wanted = export.checked(stores), export.chosen(topics)
    spark = session("rmqha export", master=master)
    with shown(spark, "export", log_bytes(store for store, _ in opened), unit=None):
        done = export.run(spark, stores, out, topics=wanted, bodies=bodies, up_to=up_to)
    _show(done)
    write_page(out, export.REPORT, export.report(stores, done))
    if wanted and len(done.missing) == len(wanted):
        sys.exit(EXIT_USAGE)
    if done.refused or (strict and done.damaged):
        sys.exit(EXIT_FOUND)


def _show(done: Exported) -> None:
    from rmqha.pipeline.jobs import export

    for one in done.sets:
        for topic, day, messages, size in one.days:
            print(f"{topic:40} {day} {messages:>12} messages {size:>16} bytes")
        print(one)
    print(f"{done.rows} messages, {done.damaged} damaged ranges")
    for topic in done.missing:
        lacking = "the stores have no message and no queue of it, and the lake neither"
        print(f"pipeline: topic {topic}: {lacking}", file=sys.stderr)
    for line in export.refusals(done):
        print(f"pipeline: {line}", file=sys.stderr)


if __name__ == "__main__":
    run_command("pipeline", main)
