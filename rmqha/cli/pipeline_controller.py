"""``bin/pipeline controller-history``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from rmqha.base.errors import ConfigInvalid
from rmqha.cli.pipeline_exits import EXIT_FOUND, EXIT_USAGE, usage_errors, write_page
from rmqha.pipeline import session
from rmqha.pipeline.jobs.report_page import REPORT

if TYPE_CHECKING:
    from rmqha.pipeline.jobs import controller_history as job


@click.command("controller-history")
@click.argument("stores", nargs=-1, required=True)
@click.option("-o", "--out", required=True, help="Directory of the tables.")
@click.option("--at", type=click.IntRange(min=0), default=None, help="The state at this index.")
@click.option("--from", "before", type=click.IntRange(min=0), default=None, metavar="INDEX")
@click.option("--to", "after", type=click.IntRange(min=0), default=None, metavar="INDEX")
@click.option("--strict", is_flag=True, help="Exit with 1 when something is damaged.")
@click.option("--master", default=None, help="Spark master; local[*] unless submitted.")
def history_command(
    stores: tuple[str, ...],
    out: str,
    at: int | None,
    before: int | None,
    after: int | None,
    *,
    strict: bool,
    master: str | None,
) -> None:
    """Logs and snapshots of controllers (STORES: directories, or name=directory) as a table.

    --at shows the state at an index; --from and --to what two states differ in. Nothing is written
    to the stores, and they may be in use.
    """
    from rmqha.pipeline.jobs import controller_history as job
    from rmqha.pipeline.spark.progress import folder_bytes, shown

    with usage_errors():
        if (before is None) != (after is None):
            raise ConfigInvalid("--from and --to go together")
        between = None if before is None or after is None else (before, after)
        job.named_stores(stores)
        spark = session("rmqha controller-history", master=master)
        folders = [path for _, path in job.named_stores(stores)]
        with shown(spark, "controller-history", folder_bytes(folders), unit=None):
            found = job.run(spark, stores, out, at=at, between=between)
        _show(found)
        is_known = _show_unknown(found, at, between)
        write_page(out, REPORT, job.report(stores, found))
    if not is_known:
        sys.exit(EXIT_USAGE)
    if strict and found.damaged:
        sys.exit(EXIT_FOUND)


def _show(found: job.History) -> None:
    for replica, kind, status, rows, first, last in found.kinds:
        span = "" if first is None else f"{first} to {last}"
        print(f"{replica:20} {kind:20} {status:10} {rows:>10}  {span}")
    for replica, index, name, key, value in found.state:
        print(f"{replica} at {index}: {_place(name, key)} = {value or '-'}")
    for replica, name, key, old, new in found.difference:
        print(f"{replica}: {_place(name, key)} {old or '-'} -> {new or '-'}")
    for replica, segment, position, size, why in (*found.torn, *found.damaged):
        print(f"{replica}: {segment} at byte {position}, {size} bytes: {why}")
    print(f"{len(found.damaged)} damaged places, {len(found.torn)} torn tails")


def _show_unknown(found: job.History, at: int | None, between: tuple[int, int] | None) -> bool:
    """Whether every state that was asked for is known, by one replica at least."""
    for replica, index, why in found.unknown:
        print(f"pipeline: {replica} at {index}: {why}", file=sys.stderr)
    asked = {one for one in (at, *(between or ())) if one is not None}
    lost = sorted(asked - set(found.known))
    for index in lost:
        print(f"pipeline: the state at {index} is not known", file=sys.stderr)
    return not lost


def _place(name: str, key: str) -> str:
    return f"{name} {key}" if name else key
