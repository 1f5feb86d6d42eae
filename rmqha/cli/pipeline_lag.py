"""``bin/pipeline lag-latency``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from rmqha.cli.pipeline_exits import EXIT_FOUND, EXIT_USAGE, LINES_MAX, usage_errors, write_page
from rmqha.pipeline import session
from rmqha.pipeline.jobs.report_page import REPORT

if TYPE_CHECKING:
    from rmqha.pipeline.jobs import lag_latency as job


@click.command("lag-latency")
@click.argument("stores", nargs=-1, required=True)
@click.option("-o", "--out", required=True, help="Directory of the tables.")
@click.option(
    "--lag-max",
    type=click.IntRange(min=0),
    default=None,
    help="Exit with 1 when a group is further behind in a topic, with 2 when that is not known.",
)
@click.option("--master", default=None, help="Spark master; local[*] unless submitted.")
def lag_command(
    stores: tuple[str, ...], out: str, *, lag_max: int | None, master: str | None
) -> None:
    """Born to stored (p50, p95, p99) of topics, and the lag of groups, of STORES.

    STORES are directories, or name=directory. The lag is of config/consumerOffset.json against the
    consume queues of the same store: ask the master's.
    """
    from rmqha.pipeline.commitlog.store_folder import open_store
    from rmqha.pipeline.jobs import lag_latency as job
    from rmqha.pipeline.spark.progress import log_bytes, shown

    with usage_errors():
        job.checked_stores(stores)
        spark = session("rmqha lag-latency", master=master)
        with shown(spark, "lag-latency", log_bytes(map(open_store, stores))):
            found = job.run(spark, stores, out)
        _show(found)
        code = 0 if lag_max is None else _judge(found, lag_max)
        write_page(out, REPORT, job.report(stores, found))
    if code:
        sys.exit(code)


def _show(found: job.Found) -> None:
    for one in found.latencies:
        print(
            f"{one.replica} {one.topic:40} {one.day} {one.messages:>12} messages"
            f"  p50 {one.p50_ms:g} p95 {one.p95_ms:g} p99 {one.p99_ms:g} max {one.max_ms} ms"
            + (f"  ({one.born_later} born after they were stored)" if one.born_later else "")
        )
    for lag in found.lags:
        print(f"{lag.replica} {lag.topic:40} {lag.group:40} {_told(lag)}")
    for replica, what in found.unreadable:
        print(f"{replica}: {what}")
    print(f"{found.damaged} damaged ranges, {len(found.unreadable)} entries that cannot be read")


def _judge(found: job.Found, lag_max: int) -> int:
    """The exit code: 1 for a lag that is too great, and else 2 for one that nobody knows."""
    for replica, why in (*found.over[:LINES_MAX], *found.unknown[:LINES_MAX]):
        print(f"pipeline: {replica}: {why}", file=sys.stderr)
    if found.lag_max > lag_max:
        return EXIT_FOUND
    if found.unknown:
        print("pipeline: whether a lag is over --lag-max is not known", file=sys.stderr)
        return EXIT_USAGE
    return 0


def _told(one: job.GroupLag) -> str:
    text = "lag unknown" if one.lag is None else f"lag {one.lag}"
    if one.behind_ms is not None:
        text += f", {one.behind_ms} ms behind"
    if one.expired:
        text += f", {one.expired} expired"
    if one.beyond:
        text += f", beyond the end in {one.beyond} queues"
    if one.unknown:
        text += f", {one.unknown} of {one.queues} queues unknown"
    return text
