"""The HTML page that a job leaves for people, one file: a title, sentences, charts, tables."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

REPORT = "_report.html"
"""The page's name, beside the tables of its job."""
SHOWN_MAX = 1000
"""Rows of a table that a page shows."""
_BEGIN = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""Of the years 1 to 9999, which are those of Python's dates."""
_PAGE = """<!doctype html><meta charset="utf-8"><title>rmqha {title}</title>
<meta name="viewport" content="width=device-width">
<style>body{{font:14px system-ui,sans-serif;margin:2em auto;max-width:1200px;padding:0 1em}}
td,th{{padding:.25em .8em;text-align:left;white-space:nowrap}}th{{background:#f2f2f2}}
tr:nth-child(even){{background:#fafafa}}table{{border-collapse:collapse}}
.wide{{overflow-x:auto}}.n{{text-align:right;font-variant-numeric:tabular-nums}}
svg{{max-width:100%;height:auto}}</style>
<h1>{title}</h1>{parts}
"""


def page(title: str, *parts: str) -> str:
    """A page; ``parts`` are made by ``sentence``, ``chart`` and ``table``."""
    return _PAGE.format(title=html.escape(title), parts="\n".join(parts))


def sentence(text: str) -> str:
    """One paragraph of HTML."""
    return f"<p>{html.escape(text)}</p>"


def table(title: str, names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table with a heading; None is shown as nothing, numbers stand to the right."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    lines = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    inside = f"<table><tr>{head}</tr>{lines}</table>"
    return f'<h2>{html.escape(title)}</h2><div class="wide">{inside}</div>'


def chart(title: str, svg: str) -> str:
    """A chart of ``charts`` with a heading."""
    return f"<h2>{html.escape(title)}</h2>{svg}"


def moment(ms: int | None) -> str | None:
    """A time as people read it, in UTC; the number where Python has no date; None for none."""
    if ms is None:
        return None
    if not _FIRST_MS <= ms <= _LAST_MS:
        return f"{ms} ms"
    return (_BEGIN + timedelta(milliseconds=ms)).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def _cell(value: object) -> str:
    text = "" if value is None else html.escape(str(value))
    return f'<td class="n">{text}</td>' if isinstance(value, int | float) else f"<td>{text}</td>"
