"""``bin/mqdoctor``: what the files of brokers and controllers say, and what is wrong.

Exit codes of ``show``: 0 all was shown, 1 something in the file is damaged, 2 it cannot be read, or
nobody knows what it is, 130 ended by Ctrl-C. Those of ``check`` stand in ``doctor_check.py``.
"""

from __future__ import annotations

import itertools
import mmap
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import click

from rmqha.base.errors import ConfigInvalid
from rmqha.cli.doctor_check import OPTIONS, check
from rmqha.cli.early import EXIT_INTERRUPTED
from rmqha.cli.output import complain, run_command
from rmqha.cli.process import EXIT_CONFIG, EXIT_FAILED
from rmqha.cli.version import version_option
from rmqha.doctor import others, stores
from rmqha.doctor.kinds import Kind, kind_of
from rmqha.doctor.stores import Row
from rmqha.doctor.text import line
from rmqha.pipeline.controller_log.records import find_store
from rmqha.remoting import fastjson

SLOTS = 5_000_000
LIMIT = 100


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@version_option("mqdoctor")
def main() -> None:
    """Look at brokers and controllers from outside."""


main.add_command(click.Command("check", callback=check, params=list(OPTIONS), help=check.__doc__))


@main.command()
@click.argument("path", type=click.Path(exists=True))
@click.option("--as", "kind", type=click.Choice([one.value for one in Kind]), help="What it is.")
@click.option(
    "--from", "begin", type=click.IntRange(min=0), default=None,
    help="Offset of the first record of a commit log, number of the first unit of a queue or index.",
)  # fmt: skip
@click.option(
    "--limit", type=click.IntRange(min=0), default=LIMIT, show_default=True,
    help="Rows at most; 0 for all.",
)  # fmt: skip
@click.option(
    "--slots", type=click.IntRange(min=1), default=SLOTS, show_default=True,
    help="maxHashSlotNum of an index file.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="A JSON object a line.")
def show(
    path: str, kind: str | None, begin: int | None, limit: int, slots: int, as_json: bool
) -> None:
    """Print what a file of a broker, or the store of a controller, holds."""
    damaged = False
    try:
        with ExitStack() as stack:
            rows = _rows(path, _kind(path, kind), begin, slots, stack)
            for row in itertools.islice(rows, limit or None):
                damaged = damaged or "damage" in row
                click.echo(fastjson.dumps(row).decode() if as_json else line(row))
            if next(rows, None) is not None:
                click.echo(f"there is more than {limit} rows; --limit 0 shows all", err=True)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except (ConfigInvalid, OSError) as error:
        complain("mqdoctor", error)
        sys.exit(EXIT_CONFIG)
    sys.exit(EXIT_FAILED if damaged else 0)


def _kind(path: str, given: str | None) -> Kind:
    if given is not None:
        return Kind(given)
    return Kind.CONTROLLER if os.path.isdir(path) else kind_of(os.path.abspath(path))


def _rows(path: str, kind: Kind, begin: int | None, slots: int, stack: ExitStack) -> Iterator[Row]:
    if kind is Kind.CONTROLLER:
        if os.path.isdir(path):
            return others.controller(find_store(path), None)
        return others.controller(os.path.dirname(path) or ".", os.path.basename(path))
    data = _mapped(path, stack)
    if kind in (Kind.COMMIT_LOG, Kind.CONSUME_QUEUE, Kind.BATCH_CONSUME_QUEUE):
        return _of_a_log(path, kind, data, begin)
    whole = bytes(data) if kind is not Kind.INDEX else b""
    match kind:
        case Kind.INDEX:
            return stores.index(data, slots, begin or 1)
        case Kind.CHECKPOINT:
            return iter([stores.checkpoint_row(whole)])
        case Kind.EPOCHS:
            return others.epochs(whole)
        case Kind.IDENTITY:
            return others.identity(whole, path)
        case Kind.CONFIG:
            return others.config(whole)
        case _:
            return others.frames(whole)


def _of_a_log(path: str, kind: Kind, data: memoryview, begin: int | None) -> Iterator[Row]:
    name = os.path.basename(path)
    base = int(name) if name.isdecimal() else 0
    if kind is Kind.COMMIT_LOG:
        at = base if begin is None else begin
        if begin is not None and not base <= at < base + len(data):
            raise ConfigInvalid(f"{path} holds {base} to {base + len(data) - 1}, not {at}")
        return stores.commit_log(data, base, at)
    if kind is Kind.CONSUME_QUEUE:
        return stores.consume_queue_units(data, base, begin or 0)
    return stores.batch_consume_queue_units(data, base, begin or 0)


def _mapped(path: str, stack: ExitStack) -> memoryview:
    """A file's bytes; one of a gigabyte is mostly empty, and only what is shown is read."""
    if os.path.getsize(path) == 0:
        return memoryview(b"")
    with open(path, "rb") as file:
        mapped = stack.enter_context(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    return stack.enter_context(memoryview(mapped))


if __name__ == "__main__":
    run_command("mqdoctor", main)
