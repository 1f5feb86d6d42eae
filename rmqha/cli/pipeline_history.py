"""``bin/pipeline history-check``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from rmqha.cli.pipeline_exits import EXIT_FOUND, LINES_MAX, usage_errors, write_page
from rmqha.pipeline import session
from rmqha.pipeline.histories.clients import LONGER_THAN_MS
from rmqha.pipeline.jobs.report_page import REPORT, moment

if TYPE_CHECKING:
    from rmqha.pipeline.jobs.history_check import Checked
    from rmqha.pipeline.jobs.history_findings import Finding


@click.command("history-check")
@click.argument("files", nargs=-1, required=True)
@click.option("-o", "--out", required=True, help="Directory of the tables.")
@click.option(
    "--longer-than",
    "longer_than_ms",
    type=click.IntRange(min=0),
    default=LONGER_THAN_MS,
    show_default=True,
    help="Tell times without an acknowledgement that are longer, in milliseconds.",
)
@click.option("--unread-ok", is_flag=True, help="What reading did not come to is no loss.")
@click.option("--master", default=None, help="Spark master; local[*] unless submitted.")
def history_check_command(
    files: tuple[str, ...],
    out: str,
    longer_than_ms: int,
    *,
    unread_ok: bool,
    master: str | None,
) -> None:
    """Judge client histories (FILES of one run): lost, duplicated, reordered, unavailable.

    Exits with 1 when an acknowledged message was not read, or two messages had one place.
    """
    from rmqha.pipeline.jobs import history_check as job
    from rmqha.pipeline.spark.progress import shown, stored_bytes

    with usage_errors():
        job.checked_files(files)
        spark = session("rmqha history-check", master=master)
        with shown(spark, "history-check", stored_bytes(files), unit=None):
            checked = job.run(spark, files, out, longer_than_ms=longer_than_ms)
        _show(checked, out)
        write_page(out, REPORT, job.report(files, checked))
    if checked.is_bad(unread_ok=unread_ok):
        sys.exit(EXIT_FOUND)


def _show(checked: Checked, out: str) -> None:
    for one in checked.findings[:LINES_MAX]:
        print(_line(one))
    if sum(checked.counts.values()) > LINES_MAX:
        print(f"... and more: see {out}")
    for history, line, why in checked.damaged_lines[:LINES_MAX]:
        print(f"{history} line {line}: {why}")
    print("records: " + _tally(checked.records))
    print(f"findings: {_tally(checked.counts)}; {checked.damaged} damaged lines")


def _tally(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items()) or "none"


def _line(one: Finding) -> str:
    parts = [one.kind, one.topic or ""]
    if one.queue is not None:
        parts.append(f"{one.broker} queue {one.queue} offset {one.offset}")
    if one.key is not None:
        parts.append(f"key {one.key}")
    if one.client is not None:
        parts.append(f"by {one.client}")
    if one.start_ms is not None:
        parts.append(f"from {moment(one.start_ms)}")
    if one.end_ms is not None:
        parts.append(f"to {moment(one.end_ms)}")
    return " ".join(part for part in parts if part) + f": {one.detail}"
