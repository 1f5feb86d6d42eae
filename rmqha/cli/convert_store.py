"""``mqadmin convertStore``: a store from before controller mode becomes one of controller mode.

Exit codes: 0 done, 1 refused or not possible, 2 wrong usage.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import orjson

from rmqha.base.errors import RmqhaError

if TYPE_CHECKING:
    from rich.console import Console

    from rmqha.cli.store_conversion import Outcome

FILE_SIZE = 1 << 30
WIDE_COLUMNS = 120
"""Room for a digest, where nobody says how wide the output is."""
_ROWS = ("File", "Up to", "Messages", "SHA-256")


def _show(outcome: Outcome, console: Console) -> None:
    from rich.table import Table

    files = outcome.files
    messages = sum(one.messages for one in files)
    if outcome.last_index is not None:
        console.print(
            f"Entries {outcome.first_index} to {outcome.last_index} of DLedger, the last of term"
            f" {outcome.last_term}"
        )
    console.print(f"{outcome.store}: {messages} messages up to {files[-1].end}, of epoch 0")
    console.print(f"{outcome.topics} topics and {outcome.groups} groups in its tables")
    if outcome.timers_nowhere:
        console.print(
            "Timers of messages that the new log does not have, which are passed over:"
            f" {outcome.timers_nowhere}"
        )
    table = Table(*_ROWS)
    for row in files:
        table.add_row(row.name, str(row.end), str(row.messages), row.sha256)
    console.print(table)


@click.command("convertStore", context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "-s", "--store", required=True, type=click.Path(path_type=Path),
    help="storePathRootDir of a stopped broker.",
)  # fmt: skip
@click.option(
    "-o", "--output", type=click.Path(path_type=Path),
    help="The new store of a broker of DLedger mode; must not be there.",
)  # fmt: skip
@click.option(
    "--file-size", type=click.IntRange(min=1 << 12), default=FILE_SIZE, show_default=True,
    help="mappedFileSizeCommitLog of the new store.",
)  # fmt: skip
@click.option(
    "--first-index", type=click.IntRange(min=0),
    help="Begin with this entry; the same for all nodes of a group.",
)  # fmt: skip
@click.option(
    "--through-end", is_flag=True,
    help="Take what lies behind the committed entries, too: for the node with the newest log only.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One line of JSON.")
@click.option("-n", "--namesrvAddr", "_unused", hidden=True)
def convert_store(
    store: Path,
    output: Path | None,
    file_size: int,
    first_index: int | None,
    through_end: bool,
    as_json: bool,
    _unused: str | None,
) -> None:
    """Make a store of DLedger mode, or of masters and slaves, one of controller mode."""
    # The other commands of mqadmin do not wait for what only this one needs.
    from rich.console import Console

    from rmqha.cli.store_conversion import Wanted, convert

    try:
        outcome = convert(store, output, file_size, Wanted(first_index, through_end))
    except RmqhaError as error:
        click.echo(f"mqadmin: {error}", err=True)
        sys.exit(1)
    if as_json:
        rows = [row._asdict() for row in outcome.files]
        click.echo(orjson.dumps({**outcome._asdict(), "files": rows}).decode())
        return
    _show(outcome, Console(width=None if sys.stdout.isatty() else WIDE_COLUMNS))
