"""Reports as tables, as JSON, and as the Java tool's text."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from rmqha.admin.report import Report, Table
from rmqha.remoting import fastjson

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text


class Style(Enum):
    """How to show a report."""

    TABLES = "tables"
    JSON = "json"
    PLAIN = "plain"


def print_report(report: Report, style: Style, console: Console) -> None:
    """Write a report to the console.

    JSON is one line a report, so that a repeated command makes JSON lines. Plain text goes past
    the console's wrapping and colours.
    """
    if style is Style.TABLES:
        for table in report.tables:
            console.print(_rich(table))
    elif style is Style.JSON:
        console.file.write(_json(report.data, console.encoding) + "\n")
    else:
        console.file.write(report.plain)
    console.file.flush()


def _json(data: object, encoding: str) -> str:
    """JSON, and still JSON where the output's encoding lacks a letter of it."""
    text = fastjson.dumps(data).decode()
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return fastjson.dumps_ascii(data).decode()
    return text


def _rich(table: Table) -> RichTable:
    from rich.table import Table as RichTable
    from rich.text import Text

    rich = RichTable(title=Text(table.title), title_justify="left")
    for column in table.columns:
        # An id that is cut off with an ellipsis cannot be copied.
        rich.add_column(column, overflow="fold")
    for row in table.rows:
        rich.add_row(*(_cell(value) for value in row))
    return rich


def _cell(value: object) -> Text:
    """Text, never markup: a broker may be called ``[red]``."""
    from rich.text import Text

    if value is None or value == "":
        return Text("-", style="dim")
    if isinstance(value, bool):
        return Text("yes" if value else "no", style="green" if value else "red")
    return Text(str(value))
